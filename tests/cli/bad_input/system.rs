//! Refusals of the system: ports in use, devices that are full, pipes that nobody reads.

use std::net::UdpSocket;

use super::{
    table::{check, row},
    world,
};

/// Commands that only print, and how much.
const PRINTED: &[&str] = &[
    "--help",
    "--version",
    "encrypt --help",
    "show params",
    "show params --json",
    "show program encrypt",
    "show program encrypt --json",
    "show noise --sigma 1 --clip 1 --clients 3 --rounds 1",
    "show noise --sigma 1 --clip 1 --clients 3 --rounds 1 --json",
    "inspect a.cgm",
    "inspect a.cgm --json",
    "inspect keys/secret.json",
    "show devices",
    "show devices --json",
];

#[test]
fn full_devices_are_errors_unread_pipes_none() {
    let rows = PRINTED.iter().flat_map(|words| {
        [
            row(1, words, "standard output: No space left").into_full(),
            row(0, words, "").into_unread(),
        ]
    });
    check(&world(), rows.collect());
}

#[test]
fn addresses_that_cannot_be_used_are_named() {
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_by_http = listener.local_addr().unwrap();
    let serve = "serve --key keys/public.json";
    let rows = vec![
        row(1, &format!("{serve} --listen {taken}"), &format!("{taken}: address in use")),
        row(
            1,
            &format!("{serve} --listen 127.0.0.1:0 --metrics {taken_by_http}"),
            &format!("{taken_by_http}: address in use"),
        ),
        row(
            2,
            &format!("{serve} --listen 192.0.2.1:7700"),
            "192.0.2.1:7700 is not on this machine",
        ),
        row(
            1,
            &format!(
                "{serve} --listen 192.0.2.1:7700 --identity keys/server.identity --allow keys/clients.allow"
            ),
            "192.0.2.1:7700: address not available",
        ),
        row(
            1,
            &format!("{serve} --listen 127.0.0.1:0 --metrics 192.0.2.1:9"),
            "192.0.2.1:9: address not available",
        ),
        row(2, &format!("{serve} --listen nowhere"), "--listen"),
        row(2, &format!("{serve} --listen 127.0.0.1:0 --metrics nowhere"), "--metrics"),
    ];
    check(&world(), rows);
}

#[test]
fn surroundings_that_mean_nothing_are_refused() {
    let words = "show params";
    let rows = vec![
        row(2, "show devices", "CIPHERGRAM_CPU")
            .and("nonsense")
            .with_variable("CIPHERGRAM_CPU", "nonsense"),
        row(2, "encrypt --key keys/secret.json --client 0 --in g --out out", "CIPHERGRAM_CPU")
            .with_variable("CIPHERGRAM_CPU", "nonsense"),
        row(1, words, "").with_variable("CIPHERGRAM_LOG", "nonsense").or_not(),
        // Without a standard output.
        row(1, words, "").after("exec >&-").or_not(),
    ];
    check(&world(), rows);
}
