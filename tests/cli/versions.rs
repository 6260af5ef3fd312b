//! Files of earlier versions, stored beside this test, are read; later ones are refused by their version.

use std::{fs, path::Path};

use ciphergram_he::PublicKey;
use ciphergram_nic::federation::spool::Spool;
use serde_json::{Value, json};

use crate::support::place::Place;

const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cli/data");

/// Returns a place with the stored files of a version.
fn stored(version: &str) -> Place {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if from.is_dir() {
                copy(&from, &to);
            } else {
                fs::copy(from, to).unwrap();
            }
        }
    }
    let place = Place::new();
    copy(&Path::new(STORED).join(version), &place.path("."));
    // Checkouts keep no permissions.
    #[cfg(unix)]
    for secret in ["ckks-sum", "paillier-2048"].map(|s| format!("{s}/secret.json")) {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(place.path(&secret), fs::Permissions::from_mode(0o600)).unwrap();
    }
    place
}

/// Returns the five values of `g0`, `g1` and their means.
fn values(file: &[u8]) -> impl Iterator<Item = f32> {
    let bytes = file[file.len() - 20..].as_chunks().0;
    bytes.iter().copied().map(f32::from_le_bytes)
}

#[test]
fn files_of_version_1_are_read() {
    let place = stored("v1");
    for (file, kind) in [
        ("ckks-sum/secret.json", "secret key"),
        ("ckks-sum/public.json", "public key"),
        ("ckks-sum/job.json", "job"),
        ("ckks-sum/ranges.json", "ranges"),
        ("ckks-sum/ledger", "ledger"),
        ("ckks-sum/clients.allow", "allow list"),
        ("ckks-sum/server.node", "node key"),
        ("paillier-2048/secret.json", "secret key"),
        ("paillier-2048/0.contribution", "contribution"),
    ] {
        assert_eq!(place.json(&format!("inspect {file}"))["kind"], kind, "{file}");
    }
    // Their owner's alone, or a warning: checkouts do not say.
    for file in ["ckks-sum/server.identity", "paillier-2048/clients/0.json"] {
        place.run(&format!("inspect {file}")).done();
    }
    let identity = String::from_utf8(place.read("ckks-sum/server.identity")).unwrap();
    assert!(identity.starts_with("# secret key of node"), "the form that is tested");

    place.done("decrypt --key paillier-2048/secret.json --in paillier-2048/sum --out mean");
    assert_eq!(place.read("mean"), place.read("paillier-2048/mean"));
    // What has polynomials of the former expansion is refused by name.
    let earlier = ["which expanded seeds to other polynomials", "make it again"];
    for command in ["inspect ckks-sum/0.contribution", "inspect ckks-sum/sum"] {
        place.fails_with(1, command, &earlier);
    }
    let sum = "decrypt --key ckks-sum/secret.json --in ckks-sum/sum --out mean";
    place.fails_with(1, sum, &earlier);
    // What is new is summed with what is old.
    fs::copy(place.path("ckks-sum/ledger"), place.path("ckks-sum/secret.json.ledger")).unwrap();
    place.done("encrypt --key ckks-sum/secret.json --client 1 --in g1 --round 1 --out 1.cgm");
    place.fails_with(
        1,
        "encrypt --key ckks-sum/secret.json --client 1 --in g1 --round 0 --out 0.cgm",
        &["client 1 has sealed a contribution to round 1"],
    );
    let one = "encrypt --key paillier-2048/clients/0.json --in g0 --round 7 --out 0.cgm";
    place.run(one).done();
    let key = PublicKey::load(&place.path("ckks-sum/public.json")).unwrap();
    let refused = Spool::open(&place.path("ckks-sum/spool"), &key).err().unwrap().to_string();
    assert!(refused.contains(earlier[0]), "{refused}");
    // A round with the stored node keys.
    let serve = "serve --key ckks-sum/public.json --listen 127.0.0.1:0 --clients 2 --json";
    let mut server = place.start(serve);
    let address = server.event("listening")["address"].as_str().unwrap().to_owned();
    let join = |i| {
        let words = format!("--client {i} --in g{i} --server {address} --out mean{i}");
        place.start(&format!("join --key ckks-sum/secret.json {words}"))
    };
    let clients = [join(0), join(1)];
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    server.finish().done();
    // Rounding is drawn anew.
    for (new, old) in values(&place.read("mean0")).zip(values(&place.read("ckks-sum/mean"))) {
        assert!((new - old).abs() < 1e-4, "{new} {old}");
    }
}

#[test]
fn files_of_later_versions_are_refused() {
    let place = stored("v1");
    let newer = |file: &str, found: u32, known: u32| {
        format!("{file}: made by a newer ciphergram: version {found}; this reads up to {known}")
    };
    let edit = |file: &str, change: &dyn Fn(&mut Value)| {
        let mut json: Value = serde_json::from_slice(&place.read(file)).unwrap();
        change(&mut json);
        json["of_later"] = json!(1);
        place.write(file, json.to_string());
    };
    edit("ckks-sum/job.json", &|json| json["version"] = json!(5));
    let words = newer("ckks-sum/job.json", 5, 4);
    place.fails_with(1, "decrypt --key ckks-sum/secret.json --in g0 --out mean", &[&words]);
    place.fails_with(1, "inspect ckks-sum/job.json", &[&words]);
    edit("ckks-sum/ranges.json", &|json| json["version"] = json!(4));
    let words = newer("ckks-sum/ranges.json", 4, 3);
    place.fails_with(1, "ranges --merge --out r.json ckks-sum/ranges.json", &[&words]);
    place.fails_with(1, "inspect ckks-sum/ranges.json", &[&words]);
    for (file, change) in [
        ("public.json", (|json| json["ciphergram"]["version"] = json!(4)) as fn(&mut Value)),
        ("secret.json", |json| json["pub"]["ciphergram"]["version"] = json!(4)),
    ] {
        let file = format!("ckks-sum/{file}");
        edit(&file, &change);
        place.fails_with(1, &format!("inspect {file}"), &[&newer(&file, 4, 3)]);
    }
    let mut sum = place.read("ckks-sum/sum");
    sum[8] = 200;
    place.write("sum", sum);
    place.fails_with(
        1,
        "inspect sum",
        &["sum: made by a newer ciphergram: version 200; this reads"],
    );

    let place = stored("v1");
    let serve = "serve --key ckks-sum/public.json --listen 127.0.0.1:0";
    let prefix = |file: &str, line: &str| {
        let text = [line.as_bytes(), &place.read(&format!("ckks-sum/{file}"))].concat();
        place.write(&format!("ckks-sum/{file}"), text);
    };
    prefix("server.identity", "# ciphergram identity 2\n");
    place.fails_with(1, serve, &[&newer("ckks-sum/server.identity", 2, 1)]);
    prefix("clients.allow", "# ciphergram allow 2\n");
    let allow = format!("{serve} --allow ckks-sum/clients.allow");
    place.fails_with(1, &allow, &[&newer("ckks-sum/clients.allow", 2, 1)]);
    prefix("server.node", "# ciphergram node 2\n");
    let join = "join --key ckks-sum/secret.json --client 0 --in g0 --server 127.0.0.1:9 --out mean";
    let identity = format!("{join} --identity ckks-sum/client.identity");
    place.fails_with(1, &identity, &[&newer("ckks-sum/server.node", 2, 1)]);
    prefix("ledger", "# ciphergram ledger 2\n");
    fs::copy(place.path("ckks-sum/ledger"), place.path("ckks-sum/secret.json.ledger")).unwrap();
    let encrypt = "encrypt --key ckks-sum/secret.json --client 0 --in g0 --out 0.cgm";
    place.fails_with(1, encrypt, &["made by a newer ciphergram: version 2; this reads up to 1"]);
    let mut spool = place.read("ckks-sum/spool");
    spool[7] = b'2';
    place.write("mean.spool", spool);
    let key = PublicKey::load(&place.path("ckks-sum/public.json")).unwrap();
    let refused = Spool::open(&place.path("mean.spool"), &key).err().unwrap().to_string();
    assert!(
        refused.contains("made by a newer ciphergram: version 2; this reads up to 1"),
        "{refused}"
    );
}

#[test]
fn new_files_say_what_they_are() {
    let place = Place::with_key("ckks-sum", 2);
    let text = |file: &str| String::from_utf8(place.read(file)).unwrap();
    assert!(text("keys/server.identity").starts_with("# ciphergram identity 1\n"));
    assert!(text("keys/clients.allow").starts_with("# ciphergram allow 1\n"));
    let node = text("keys/server.node");
    assert!(node.trim().ends_with("#ciphergram-node-1") && !node.trim().contains(' '), "{node}");
    // A node key is an argument as its file has it.
    let shown = place.json("inspect keys/server.node");
    let mut server = place.start("serve --key keys/public.json --listen 127.0.0.1:0 --json");
    drop(server.event("listening"));
    assert_eq!(node.split('#').next(), shown["node"].as_str());
    let join = "join --key keys/secret.json --client 0 --in none --server 127.0.0.1:9 --out mean";
    let words = format!("{join} --server-key {}", node.trim());
    place.fails_with(1, &words, &["none: No such file"]);
}
