//! Faults of a secret key's file.

use ciphergram_he::{
    AnyKey, Error, SecretKey,
    params::{Literal, Scheme},
};
use serde_json::{Value, json};

fn secret() -> SecretKey {
    let literal = Literal { scheme: Scheme::CkksSum, clients: 3, bits: 24 };
    SecretKey::generate(literal).unwrap()
}

/// The seed is all that the file has, and it makes the same key again.
#[test]
fn a_secret_file_of_another_key_id_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.json");
    let key = secret();
    key.save(&path).unwrap();
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let read = |json: &Value| AnyKey::from_json(&json.to_string());
    assert_eq!(read(&json).unwrap().public().id(), key.public().id());
    json["pub"]["ciphergram"]["key_id"] = json!(secret().public().id().to_string());
    let error = read(&json).err().unwrap().to_string();
    assert!(error.ends_with("the key id is not that of the key material"), "{error}");
    json["seed"] = json!("AAAA");
    let error = read(&json).err().unwrap();
    assert!(matches!(error, Error::Format { .. }) && error.to_string().contains("not 32 bytes"));
}

#[test]
fn a_key_of_a_scheme_that_there_is_no_more_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.json");
    secret().save(&path).unwrap();
    let text =
        std::fs::read_to_string(path).unwrap().replace("\"ckks-sum\"", "\"ckks-sum-public\"");
    let error = AnyKey::from_json(&text).err().unwrap().to_string();
    assert!(error.contains("no scheme \"ckks-sum-public\"; there are ckks-sum,"), "{error}");
}
