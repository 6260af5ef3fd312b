//! `ciphergram relay`.

use ciphergram_nic::{
    faults::Faults,
    relay::{Bottleneck, DirectionTally, RelaySwitch},
};
use serde_json::{Value, json};

use crate::{args::RelayArgs, failure::Failure, report::say};

pub(crate) fn run(args: &RelayArgs) -> Result<(), Failure> {
    let faults = Faults {
        loss: args.loss,
        duplication: args.duplicate,
        corruption: args.corrupt,
        trimming: args.trim,
        marking: args.mark,
        delay: args.delay,
        jitter: args.jitter,
        ..Faults::default()
    };
    let (queue, trim_on_full) = (args.queue as usize, args.trim_on_full);
    let bottleneck = Bottleneck { rate: args.rate, queue, trim_on_full };
    let mut switch = RelaySwitch::bind(args.listen, args.to, faults, bottleneck, args.seed)?;
    let listening = switch.local_addr()?;
    let value = json!({"event": "listening", "address": listening.to_string()});
    say(args.report.json, &value, || format!("listening on {listening}, for {}", args.to));
    switch.run(args.seconds)?;
    let (to_server, to_clients) = switch.tallies();
    let (turned_away, unsent) = (switch.turned_away(), switch.unsent());
    let value = json!({
        "event": "done", "datagrams_to_server": counts(&to_server), "datagrams_to_clients": counts(&to_clients),
        "clients_turned_away": turned_away, "datagrams_unsent": unsent,
    });
    say(args.report.json, &value, || {
        format!(
            "to the server: {}\nto clients: {}\n{turned_away} of clients too many, {unsent} that no \
             socket took",
            line(&to_server),
            line(&to_clients)
        )
    });
    Ok(())
}

fn counts(t: &DirectionTally) -> Value {
    let injected = t.injected;
    json!({
        "received": t.received, "forwarded": t.forwarded, "reordered": t.reordered,
        "lost": injected.lost, "duplicated": injected.duplicated, "corrupted": injected.corrupted,
        "trimmed": injected.trimmed, "marked": injected.marked, "trimmed_full": t.trimmed_full, "dropped_full": t.dropped,
    })
}

fn line(t: &DirectionTally) -> String {
    format!(
        "{} datagrams received, {} forwarded, {} of them overtaken; {} lost, {} doubled, {} with a \
         flipped bit, {} cut to their header, {} marked for congestion; of a full queue {} cut, {} dropped",
        t.received,
        t.forwarded,
        t.reordered,
        t.injected.lost,
        t.injected.duplicated,
        t.injected.corrupted,
        t.injected.trimmed,
        t.injected.marked,
        t.trimmed_full,
        t.dropped
    )
}
