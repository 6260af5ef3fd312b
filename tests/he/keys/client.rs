//! Keys of clients, sum keys, and keys of earlier versions that have none.

use ciphergram_he::{
    AnyKey, ClientKey, Error, Job, KeyRef, Limits, PublicKey, SealPermit, SecretKey, aggregate,
    params::{Literal, Scheme},
};
use serde_json::Value;

use crate::support::sums::{Key, agreement, contribute, contribute_with, engine, generate, sealer};

/// The text of a file that a key is saved to.
fn saved(save: impl FnOnce(&std::path::Path) -> Result<(), Error>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.json");
    save(&path).unwrap();
    std::fs::read_to_string(path).unwrap()
}

fn read_secret(text: &str) -> Result<SecretKey, Error> {
    AnyKey::from_json(text).map(|key| match key {
        AnyKey::Secret(key, _) => *key,
        _ => panic!("a secret key"),
    })
}

fn read_client(text: &str) -> ClientKey {
    match AnyKey::from_json(text) {
        Ok(AnyKey::Client(key, _)) => *key,
        _ => panic!("a client's key"),
    }
}

/// A secret file of version 3 of frames, which knew no sum key, of `ckks-sum`.
const OLD: (&str, u32, u32, &str, &str) = (
    "ckks-sum",
    5,
    16,
    "15XY74q3qkvkWaMSi-4-pVKGGuN0SfUMPwmoBM7BsB0",
    "f0d1c65a822b765f67605fbee93676d5",
);

fn old_secret((scheme, clients, bits, seed, id): (&str, u32, u32, &str, &str)) -> String {
    format!(
        r#"{{"kty": "CIPHERGRAM", "key_ops": ["encrypt", "decrypt"], "seed": "{seed}", "pub": {{
            "kty": "CIPHERGRAM", "key_ops": ["encrypt"], "kid": "Ciphergram {scheme} public key {id}",
            "ciphergram": {{"version": 1, "scheme": "{scheme}", "clients": {clients}, "bits": {bits},
            "key_id": "{id}"}}}}, "kid": "Ciphergram {scheme} secret key {id}"}}"#
    )
}

/// A Paillier key as `pheutil` writes it, and the public half of it.
fn foreign() -> (String, String) {
    let key = SecretKey::generate(Literal { scheme: Scheme::Paillier2048, clients: 3, bits: 16 });
    let mut json: Value = serde_json::from_str(&saved(|path| key.unwrap().save(path))).unwrap();
    json.as_object_mut().unwrap().remove("sum_key").unwrap();
    json["pub"].as_object_mut().unwrap().remove("ciphergram").unwrap();
    (json.to_string(), json["pub"].to_string())
}

/// Sums a round of one under a key, which must have a sum key.
fn assert_sums(secret: SecretKey) {
    let key = Key::new(secret);
    let sum = key.aggregate([contribute(&key, 0, &[5; 9], 1, &agreement(9, 1))]).unwrap();
    assert!(key.open(&sum).is_ok());
}

#[test]
fn keys_without_a_sum_key_seal_sum_and_open_nothing() {
    let (foreign_secret, foreign_public) = foreign();
    let key = Key::new(read_secret(&foreign_secret).unwrap());
    assert_eq!(key.public().check_sums(), Err(Error::NoSumKey));
    assert_eq!(key.secret.client_key(0).err(), Some(Error::NoSumKey));
    let (own, permit) = (key.secret.as_client(0), SealPermit::draw().unwrap());
    assert_eq!(sealer(own, &key.job, (&[5; 9], 1), permit).err(), Some(Error::NoSumKey));
    assert_eq!(key.aggregate([]).err(), Some(Error::NoSumKey));
    // What another key's holder says was sealed under it.
    let sums = generate(Scheme::CkksSum, 3, 16);
    let sum = sums.aggregate([contribute(&sums, 0, &[5; 9], 1, &agreement(9, 1))]).unwrap();
    assert_eq!(key.open(&sum).err(), Some(Error::NoSumKey));
    // Upgraded it does all that: under another id, by which nobody takes it for the former.
    let before = key.public().id();
    let upgraded = key.secret.upgrade().unwrap();
    assert_ne!(upgraded.public().id(), before);
    let read = read_secret(&saved(|path| upgraded.save(path))).unwrap();
    assert_eq!(read.public().id(), upgraded.public().id());
    assert_eq!(read.client_key(2).unwrap().public().id(), upgraded.public().id());
    let whole = upgraded.upgrade().err();
    assert!(matches!(whole, Some(Error::KeyKind { found: "whole", .. })), "{whole:?}");
    assert_sums(read);
    let AnyKey::Public(public) = AnyKey::from_json(&foreign_public).unwrap() else {
        panic!("a public key")
    };
    let job = Job::new(&public, Limits::of_key(&public)).unwrap();
    let none: [(&str, _); 0] = [];
    assert_eq!(aggregate(&public, &job, engine(), none).err(), Some(Error::NoSumKey));
    assert!(public.paillier().is_some(), "single numbers are encrypted as before");
    // Under `ckks-sum` the sum key comes from the seed, of old keys too; the id is what it was.
    let old = read_secret(&old_secret(OLD)).unwrap();
    assert_eq!(old.public().id().to_string(), OLD.4);
    assert_sums(old);
}

/// Under `ckks-sum` the sum key comes from the seed, and its name is nowhere else.
#[test]
fn a_seed_tells_the_sum_key() {
    let literal = Literal { scheme: Scheme::CkksSum, clients: 3, bits: 16 };
    let key = SecretKey::generate(literal).unwrap();
    assert!(!saved(|path| key.public().save(path)).contains("sum_key"));
    assert!(!saved(|path| key.save(path)).contains("sum_key"));
    assert_eq!(key.public().check_sums(), Ok(()));
}

#[test]
fn a_clients_file_holds_its_part_and_nothing_else() {
    let key = generate(Scheme::Paillier2048, 4, 16);
    let whole: Value = serde_json::from_str(&saved(|path| key.secret.save(path))).unwrap();
    let files: Vec<String> = (0..4).map(|i| saved(|path| key.client(i).save(path))).collect();
    let parts: Vec<Value> = files.iter().map(|f| serde_json::from_str(f).unwrap()).collect();
    let secrets = ["sum_key", "seed", "p", "q"].into_iter().filter_map(|name| whole[name].as_str());
    let secrets: Vec<_> = secrets.collect();
    assert!(secrets.len() >= 2, "there is something to look for");
    for (i, file) in files.iter().enumerate() {
        assert!(secrets.iter().all(|secret| !file.contains(secret)), "client {i}");
        for other in (0..4).filter(|&other| other != i) {
            let pads = parts[other]["client"]["pads"].as_str().unwrap();
            assert!(!file.contains(pads), "the pads of {other} in the file of {i}");
        }
        // All have the numbers that they tag by in common.
        assert_eq!(parts[i]["client"]["coefficients"], parts[0]["client"]["coefficients"]);
        let members: Vec<_> = parts[i].as_object().unwrap().keys().collect();
        assert_eq!(members, ["client", "key_ops", "kid", "kty", "pub"]);
        assert_eq!(parts[i]["key_ops"], serde_json::json!(["encrypt"]));
        let read = read_client(file);
        assert_eq!((usize::from(read.number()), read.public().id()), (i, key.public().id()));
        let sum = contribute_with(&read, &key.job, &[5; 9], 1, &agreement(9, 1));
        assert!(key.open(&key.aggregate([sum]).unwrap()).is_ok());
    }
}

#[test]
fn clients_files_are_of_one_client_and_sum_nothing() {
    let key = generate(Scheme::Paillier2048, 4, 16);
    let folder = tempfile::tempdir().unwrap();
    let [public, client, secret] =
        ["public.json", "1.json", "secret.json"].map(|name| folder.path().join(name));
    key.public().save(&public).unwrap();
    key.client(1).save(&client).unwrap();
    key.secret.save(&secret).unwrap();
    assert!(matches!(key.client(1).save(&client), Err(Error::Exists { .. })));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&client).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::set_permissions(&client, PermissionsExt::from_mode(0o640)).unwrap();
        let warning = AnyKey::load(&client).unwrap().warning().unwrap().to_string();
        assert!(warning.contains("readable by others (mode 0640)"), "{warning}");
    }
    let error = PublicKey::load(&client).err().unwrap().to_string();
    assert!(error.contains("1.json: this is a client's key; an aggregator must hold"), "{error}");
    let error = SecretKey::load(&client).err().unwrap().to_string();
    assert!(error.contains("this is a client's key; this needs the secret key"), "{error}");
    // Its number is its own; a secret key may be any that there is, and says which.
    let client = AnyKey::load(&client).unwrap();
    let number = |key: KeyRef<'_>| key.number();
    assert_eq!(client.as_client(None).map(number), Ok(1));
    assert_eq!(client.as_client(Some(1)).map(number), Ok(1));
    assert_eq!(client.as_client(Some(2)).err(), Some(Error::AnotherClient { found: 1, asked: 2 }));
    let secret = AnyKey::load(&secret).unwrap();
    assert_eq!(secret.as_client(Some(3)).map(number), Ok(3));
    assert_eq!(secret.as_client(None).err(), Some(Error::NoNumber));
    let error = AnyKey::load(&public).unwrap().as_client(Some(1)).err();
    assert!(matches!(error, Some(Error::KeyKind { found: "public", .. })));
    let beyond = Some(Error::Number { number: 4, clients: 4 });
    assert_eq!(key.secret.client_key(4).err(), beyond);
    let permit = SealPermit::draw().unwrap();
    let sealed = sealer(key.secret.as_client(4), &key.job, (&[5; 9], 1), permit);
    assert_eq!(sealed.err(), beyond);
}

#[test]
fn clients_files_that_make_no_sense_are_refused() {
    let key = generate(Scheme::Paillier2048, 4, 16);
    let text = saved(|path| key.client(1).save(path));
    let json: Value = serde_json::from_str(&text).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut json = json.clone();
        change(&mut json);
        AnyKey::from_json(&json.to_string()).err().map(|error| error.to_string())
    };
    assert_eq!(with(&|_| ()), None);
    let refused = |change: &dyn Fn(&mut Value), why: &str| {
        let error = with(change).unwrap();
        assert!(error.contains(why), "{error}, not {why}");
    };
    refused(&|json| json["client"]["number"] = 4.into(), "client 4 of 4 clients");
    refused(&|json| json["client"]["number"] = 65_536.into(), "unexpected content");
    refused(&|json| json["client"]["pads"] = "AAAA".into(), "the key of pads is not 32 bytes");
    refused(&|json| json["client"]["coefficients"] = "?".into(), "not base64url");
    refused(&|json| json["client"]["more"] = 1.into(), "unexpected content");
    refused(&|json| json["kty"] = "CIPHERGRAM".into(), "its public key is of another type");
    let sum_key_id = |json: &mut Value| {
        json["pub"]["ciphergram"].as_object_mut().unwrap().remove("sum_key_id");
    };
    refused(&sum_key_id, "the key id is not that of the key material");
    // Whatever is cut off, no error quotes what was left.
    let pads = json["client"]["pads"].as_str().unwrap();
    for end in 0..text.len() / 50 {
        let error = AnyKey::from_json(&text[..50 * end]).err().unwrap().to_string();
        assert!(!error.contains(&pads[..8]), "{error}");
    }
}
