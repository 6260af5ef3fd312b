//! Faults of a public `ckks-sum-public` key file: one error each.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ciphergram_accel::beats;
use ciphergram_he::{
    AnyKey, Error, PublicKey, SecretKey,
    params::{Literal, Scheme},
};
use serde_json::{Value, json};

/// The JSON of the public half, and its polynomial b.
struct File {
    json: Value,
    b: Vec<u8>,
}

fn secret(clients: u32, bits: u32) -> SecretKey {
    SecretKey::generate(Literal { scheme: Scheme::CkksSumPublic, clients, bits }).unwrap()
}

impl File {
    fn new() -> (File, SecretKey) {
        let folder = tempfile::tempdir().unwrap();
        let (key, path) = (secret(3, 24), folder.path().join("public.json"));
        key.public().save(&path).unwrap();
        let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let b = BASE64_URL_SAFE_NO_PAD.decode(json["b"].as_str().unwrap()).unwrap();
        (Self { json, b }, key)
    }

    fn read(&self, b: &[u8]) -> Result<PublicKey, String> {
        self.with("b", json!(BASE64_URL_SAFE_NO_PAD.encode(b)))
    }

    fn with(&self, name: &str, value: Value) -> Result<PublicKey, String> {
        let mut json = self.json.clone();
        match value {
            Value::Null => drop(json.as_object_mut().unwrap().remove(name)),
            value => json[name] = value,
        }
        match AnyKey::from_json(&json.to_string()) {
            Ok(AnyKey::Public(key)) => Ok(key),
            Ok(_) => panic!("not a public key"),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Overwrites a lane of b.
    fn set_lane(&self, lane: usize, value: u64) -> Vec<u8> {
        let mut b = self.b.clone();
        let beat = &mut b[lane / beats::LANES * beats::BYTES..][..beats::BYTES];
        let words: Vec<u64> =
            beat.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let mut new = vec![0; beats::WORDS];
        for i in 0..beats::LANES {
            let value = if i == lane % beats::LANES { value } else { beats::lane(&words, i) };
            beats::set_lane(&mut new, i, value);
        }
        let bytes: Vec<u8> = new.iter().flat_map(|word| word.to_le_bytes()).collect();
        beat.copy_from_slice(&bytes);
        b
    }
}

const WRONG_ID: &str = "not a valid key file: the key id is not that of the key material";

#[test]
fn a_file_as_it_was_written_is_the_key() {
    let (file, key) = File::new();
    let read = file.read(&file.b).unwrap();
    assert_eq!(read.id(), key.public().id());
    assert!(read.encrypts() && read.check_sums().is_ok());
    assert_eq!(file.json["key_ops"], json!(["encrypt"]));
}

#[test]
fn every_residue_that_is_not_below_its_prime_is_named() {
    let (file, key) = File::new();
    let ring = &key.public().parameters().rlwe().unwrap().ring;
    let lanes = file.b.len() / beats::BYTES * beats::LANES;
    // All at either end, and some at every place of a beat and under every prime.
    let ends = |lane: usize| lane < 100 || lane + 100 >= lanes;
    for lane in (0..lanes).filter(|&lane| ends(lane) || lane % 41 == 0) {
        let q = ring.primes()[lane % ring.primes().len()];
        let why = |lane| {
            format!(
                "not a valid key file: residue {lane} of its polynomial b is not below its prime"
            )
        };
        // The smallest that is too large, and the largest that a lane holds.
        for value in [q, (1 << 51) - 1] {
            assert_eq!(file.read(&file.set_lane(lane, value)).err(), Some(why(lane)));
        }
        if lane % beats::LANES == 9 {
            for bit in [6, 7] {
                let mut b = file.b.clone();
                b[lane / beats::LANES * beats::BYTES + 63] |= 1 << bit;
                assert_eq!(file.read(&b).err(), Some(why(lane)));
            }
        }
        // In range it is another key, or more than a polynomial.
        if lane % 410 == 0 || lane >= lanes - beats::LANES {
            let past = "not a valid key file: its polynomial b goes on past its end";
            let why = if lane < ring.len_words() { WRONG_ID } else { past };
            assert_eq!(file.read(&file.set_lane(lane, q - 1)).err().as_deref(), Some(why));
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (file, _) = File::new();
    let (other, stranger) = File::new();
    let cut = &file.b[..file.b.len() - beats::BYTES];
    let error = file.read(cut).err().unwrap();
    assert!(error.contains("b has 209856 bytes, not 209920"), "{error}");
    assert!(file.read(&[]).err().unwrap().contains("b has 0 bytes"));
    let error = file.with("b", Value::Null).err().unwrap();
    assert!(error.ends_with("its polynomial b is missing"), "{error}");
    let error = file.with("a", Value::Null).err().unwrap();
    assert!(error.ends_with("the seed of a is missing"), "{error}");
    let error = file.with("a", json!("AAAA")).err().unwrap();
    assert!(error.ends_with("the seed of a is not 32 bytes"), "{error}");
    let error = file.with("b", json!("?")).err().unwrap();
    assert!(error.ends_with("a number is not base64url"), "{error}");
    // Halves of two keys, and the parameters and the name of another.
    assert_eq!(file.with("a", other.json["a"].clone()).err().as_deref(), Some(WRONG_ID));
    assert_eq!(file.read(&other.b).err().as_deref(), Some(WRONG_ID));
    let mut own = file.json["ciphergram"].clone();
    own["key_id"] = json!(stranger.public().id().to_string());
    assert_eq!(file.with("ciphergram", own.clone()).err().as_deref(), Some(WRONG_ID));
    let mut own = file.json["ciphergram"].clone();
    own["clients"] = json!(4);
    assert_eq!(file.with("ciphergram", own.clone()).err().as_deref(), Some(WRONG_ID));
    own["scheme"] = json!("paillier-2048");
    assert!(file.with("ciphergram", own).is_err());
}

/// A polynomial that is not looked at is none.
#[test]
fn polynomials_where_none_belong_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let polynomial = json!("AAAA");
    for (scheme, is_public) in [
        (Scheme::CkksSum, true),
        (Scheme::CkksSum, false),
        (Scheme::CkksSumPublic, false),
        (Scheme::Paillier2048, true),
        (Scheme::Paillier2048, false),
    ] {
        let key = SecretKey::generate(Literal { scheme, clients: 3, bits: 24 }).unwrap();
        let path = folder.path().join(format!("{scheme} {is_public}"));
        if is_public { key.public().save(&path) } else { key.save(&path) }.unwrap();
        let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(AnyKey::from_json(&json.to_string()).is_ok());
        for name in ["a", "b"] {
            let mut json = json.clone();
            let public = if is_public { &mut json } else { &mut json["pub"] };
            public[name] = polynomial.clone();
            let error = AnyKey::from_json(&json.to_string()).err().unwrap().to_string();
            assert!(error.contains("it has a polynomial a or b"), "{scheme}: {error}");
        }
    }
}

/// The seed is all that the secret file has, and it makes the same public half again.
#[test]
fn a_secret_file_of_another_key_id_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.json");
    let key = secret(3, 24);
    key.save(&path).unwrap();
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(json["pub"]["a"].is_null() && json["pub"]["b"].is_null());
    let read = |json: &Value| AnyKey::from_json(&json.to_string());
    assert_eq!(read(&json).unwrap().public().id(), key.public().id());
    json["pub"]["ciphergram"]["key_id"] = json!(secret(3, 24).public().id().to_string());
    assert_eq!(read(&json).err().unwrap().to_string(), WRONG_ID);
    json["seed"] = json!("AAAA");
    let error = read(&json).err().unwrap();
    assert!(matches!(error, Error::Format { .. }) && error.to_string().contains("not 32 bytes"));
}
