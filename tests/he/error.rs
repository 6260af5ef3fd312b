//! Wrong input from outside: one clear error each.

mod faults;

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::{
    Agreement, AnyKey, Contribution, Dtype, Error, Job, Limits, PublicKey, Quantised, SealPermit,
    Sealer, SecretKey, Sum, TensorSpec, aggregate, codec,
    error::CiphertextFault,
    error::FrameError,
    exchange::{Announcement, RoundTerms},
    frame::Frame,
    params::{Literal, Scheme},
};
use proptest::prelude::*;

fn engine() -> Arc<dyn Engine> {
    Arc::new(CpuEngine::new())
}

/// A key, and a job under it.
struct Key {
    secret: SecretKey,
    job: Job,
}

impl Key {
    fn public(&self) -> &PublicKey {
        self.secret.public()
    }
}

fn key(clients: u32, bits: u32) -> Key {
    let literal = Literal { scheme: Scheme::CkksSum, clients, bits };
    let secret = SecretKey::generate(literal).unwrap();
    let job = Job::new(secret.public(), Limits::of_key(secret.public())).unwrap();
    Key { secret, job }
}

fn spec(name: &str, shape: &[u64]) -> TensorSpec {
    TensorSpec { name: name.into(), dtype: Dtype::F32, shape: shape.into() }
}

fn agreement(specs: Vec<TensorSpec>, range: f64, max_weight: u32) -> Agreement {
    let ranges = vec![range; specs.len()];
    Agreement::new(specs, ranges, max_weight).unwrap()
}

fn contribution(key: &Key, number: u16, agreement: &Agreement) -> Contribution<'static> {
    let update = Quantised::from_fields(vec![9; agreement.values()], 1);
    let (own, terms) = (key.secret.as_client(number), key.job.terms(2, agreement).unwrap());
    let sealer = Sealer::new(own, engine(), update, SealPermit::draw().unwrap(), &terms).unwrap();
    let (contributor, job, agreement) = (sealer.contributor(), key.job.id(), agreement.clone());
    let stream = sealer.seal_all().unwrap().into();
    Contribution { contributor, job, round: 2, agreement, stream, keys: None }
}

fn sum(key: &Key, contributions: Vec<Contribution<'_>>) -> Result<Sum, String> {
    let named = contributions.into_iter().enumerate().map(|(i, c)| (format!("{i}.cgm"), Ok(c)));
    aggregate(key.public(), &key.job, engine(), named).map_err(|e| e.to_string())
}

#[test]
fn frames_name_what_is_wrong() {
    let (key, other, params) = (key(3, 16), key(3, 16), key(4, 16));
    let agreement = agreement(vec![spec("t", &[5])], 1.0, 1);
    let bytes = contribution(&key, 0, &agreement).to_bytes(key.public());
    let read = |bytes: &[u8], key: &Key| Contribution::from_bytes(bytes, key.public()).err();
    assert_eq!(read(&bytes, &key), None);
    assert_eq!(read(&[], &key), Some(FrameError::Magic.into()));
    assert_eq!(read(b"hello, world", &key), Some(FrameError::Magic.into()));
    for end in [1, 8, 20, 47, 48, 100, bytes.len() - 1] {
        assert_eq!(read(&bytes[..end], &key), Some(FrameError::Truncated.into()), "{end}");
    }
    let mut version = bytes.clone();
    version[8] = 1;
    assert_eq!(read(&version, &key), Some(FrameError::Version { found: 1, known: 7 }.into()));
    assert!(matches!(read(&bytes, &other), Some(Error::KeyMismatch { .. })));
    assert!(matches!(
        read(&bytes, &params),
        Some(Error::KeyMismatch { what: "its parameter set is", .. })
    ));
    let kind = Sum::from_bytes(&bytes, key.public()).err();
    let expected = FrameError::Kind { found: "contribution", expected: "sum" };
    assert_eq!(kind, Some(expected.into()));
    let literal = Literal { scheme: Scheme::Paillier2048, clients: 3, bits: 16 };
    let paillier = SecretKey::generate(literal).unwrap();
    let error = Contribution::from_bytes(&bytes, paillier.public()).err();
    assert!(matches!(error, Some(Error::KeyMismatch { what: "it is of scheme", .. })));
}

#[test]
fn sums_refuse_by_name() {
    let key = key(3, 16);
    let plain = agreement(vec![spec("a", &[5]), spec("b", &[2, 2])], 1.0, 1);
    let first = contribution(&key, 0, &plain);
    let with =
        |a: Agreement| sum(&key, vec![first.clone(), contribution(&key, 1, &a)]).unwrap_err();
    assert_eq!(
        with(agreement(vec![spec("a", &[5]), spec("b", &[4])], 1.0, 1)),
        "1.cgm: the tensors differ: tensor \"b\" is F32 [4] in it and F32 [2, 2] was agreed"
    );
    assert_eq!(
        with(agreement(vec![spec("a", &[5])], 1.0, 1)),
        "1.cgm: the tensors differ: it lacks tensor \"b\", which was agreed"
    );
    assert_eq!(
        with(agreement(vec![spec("a", &[5]), spec("b", &[2, 2])], 2.0, 1)),
        "1.cgm: the clipping ranges differ: tensor \"a\" has range 2 here and 1 there; \
         share one ranges file among all clients"
    );
    assert!(
        with(agreement(vec![spec("a", &[5]), spec("b", &[2, 2])], 1.0, 2))
            .contains("the largest weight is 2 here and 1 there")
    );
    let again = sum(&key, vec![first.clone(), first.clone()]).unwrap_err();
    assert_eq!(
        again,
        "1.cgm: the same contribution was given twice: leave one out, or seal another under a \
         fresh seed"
    );
    // Another's seed, however much else differs.
    let mut other = contribution(&key, 1, &plain);
    other.contributor.seed = first.contributor.seed;
    let again = sum(&key, vec![first.clone(), other]).unwrap_err();
    assert!(again.starts_with("1.cgm: the same contribution was given twice"), "{again}");
    // Another seed of the same client.
    let again = sum(&key, vec![first.clone(), contribution(&key, 0, &plain)]).unwrap_err();
    let same_number = "two contributions of client 0 were given: a sum has one of each client";
    assert_eq!(again, format!("1.cgm: {same_number}"));
    let mut fourth = contribution(&key, 2, &plain);
    fourth.contributor.number = 3;
    let error = sum(&key, vec![fourth]).unwrap_err();
    assert_eq!(error, "0.cgm: client 3 of 3 clients, which are numbered from 0");
    let later = Contribution { round: 3, ..contribution(&key, 1, &plain) };
    let error = sum(&key, vec![first.clone(), later]).unwrap_err();
    assert_eq!(error, "1.cgm: it is of round 3, others are of round 2");
    let elsewhere = Job::new(key.public(), Limits::of_key(key.public())).unwrap().id();
    let stray = Contribution { job: elsewhere, ..contribution(&key, 1, &plain) };
    let error = sum(&key, vec![first.clone(), stray]).unwrap_err();
    assert!(error.starts_with(&format!("1.cgm: it is of job {elsewhere}, not ")), "{error}");
    assert_eq!(sum(&key, vec![]).unwrap_err(), "there is nothing to sum");
    let mut bad = first.clone();
    bad.stream.to_mut()[0..7].fill(0xff);
    let error = sum(&key, vec![bad]).unwrap_err();
    let fault = CiphertextFault::residue(0);
    assert_eq!(error, format!("0.cgm: chunk 0: {fault}"));
    let huge = agreement(vec![spec("a", &[1 << 36])], 1.0, 1);
    let claim = Contribution { agreement: huge, ..first.clone() };
    let error = sum(&key, vec![claim]).unwrap_err();
    assert!(error.starts_with("0.cgm: chunk 0: 64 bytes of ciphertext where"), "{error}");
    let mut short = first;
    short.stream.to_mut().pop();
    let error = sum(&key, vec![short]).unwrap_err();
    assert_eq!(error, "0.cgm: chunk 0: 63 bytes of ciphertext where 64 belong");
}

#[test]
fn agreements_that_no_sum_can_hold_are_refused() {
    let refuse = |specs: Vec<TensorSpec>| {
        let ranges = vec![1.0; specs.len()];
        Agreement::new(specs, ranges, 1).unwrap_err().to_string()
    };
    let large = refuse(vec![spec("a", &[1 << 63]), spec("b", &[(1 << 63) + 5])]);
    assert!(large.contains("tensor \"a\" makes them more than"), "{large}");
    assert!(refuse(vec![spec("a", &[1; 65_536])]).contains("65536 extents"));
    assert!(refuse(vec![spec("a", &[1]), spec("a", &[1])]).contains("\"a\" is listed twice"));
    let with = |range| Agreement::new(vec![spec("a", &[1])], vec![range], 1).err();
    assert!(with(-1.0).is_some() && with(f64::NAN).is_some() && with(f64::INFINITY).is_some());
    assert_eq!(with(0.0), None);
}

#[test]
fn sums_beyond_the_type_are_refused_and_means_are_not() {
    let specs = |dtype| vec![TensorSpec { name: "t".into(), dtype, shape: vec![1] }];
    let parameters =
        ciphergram_he::Parameters::new(Literal { scheme: Scheme::CkksSum, clients: 2, bits: 8 })
            .unwrap();
    for (dtype, range) in [(Dtype::F16, 65_536.0), (Dtype::F32, f64::MAX), (Dtype::F64, f64::MAX)] {
        let agreement = Agreement::new(specs(dtype), vec![range], 2).unwrap();
        let one = || [(&[127][..], 1)].into_iter();
        let mean = codec::decode(&agreement, &parameters, codec::Output::Mean, one()).unwrap();
        assert!(mean.tensors()[0].values().unwrap().iter().all(|x| x.is_finite()));
        let sum = codec::decode(&agreement, &parameters, codec::Output::Sum, one());
        assert!(matches!(sum.err(), Some(Error::Overflow { index: 0, .. })));
    }
}

#[test]
fn key_files_of_the_wrong_kind_or_content_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (public, secret) = (folder.path().join("public.json"), folder.path().join("secret.json"));
    let Key { secret: key, .. } = key(3, 16);
    key.public().save(&public).unwrap();
    key.save(&secret).unwrap();
    assert_eq!(key.save(&secret), Err(Error::Exists { path: secret.clone() }));
    let message = |e: Error| e.to_string();
    let error = SecretKey::load(&public).err().map(message).unwrap();
    assert!(
        error.ends_with(
            "public.json: this is a public key; this needs the secret key, keys/secret.json"
        ),
        "{error}"
    );
    let error = PublicKey::load(&secret).err().map(message).unwrap();
    assert!(error.contains("this is a secret key"), "{error}");
    let error = SecretKey::load(&folder.path().join("none.json")).err().map(message).unwrap();
    assert!(error.contains("none.json: No such file"), "{error}");
    let (loaded, warning) = SecretKey::load(&secret).unwrap();
    assert_eq!((loaded.public().id(), warning), (key.public().id(), None));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o644)).unwrap();
        let warning = SecretKey::load(&secret).unwrap().1.unwrap();
        assert!(warning.contains("readable by others (mode 0644)"), "{warning}");
    }
    let text = std::fs::read_to_string(&secret).unwrap();
    let seed = text.split("\"seed\": \"").nth(1).unwrap().split('"').next().unwrap();
    // No error quotes a secret, wherever the file is broken.
    for end in 0..text.len() {
        let error = AnyKey::from_json(&text[..end]).err().map(message).unwrap();
        assert!(!error.contains(&seed[..8]), "{error}");
    }
}

proptest! {
    /// Bodies that a digest vouches for but that make no sense never panic.
    #[test]
    fn malformed_bodies_never_panic(
        kind in 1u8..5, body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let key = key(2, 16);
        let agreement = agreement(vec![], 1.0, 1);
        let mut bytes = contribution(&key, 1, &agreement).to_bytes(key.public());
        bytes.truncate(40);
        bytes[10] = kind;
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(&body);
        bytes.extend(blake3::hash(&bytes).as_bytes());
        prop_assert!(Frame::parse(&bytes).is_ok());
        let _ = Contribution::from_bytes(&bytes, key.public());
        let _ = Sum::from_bytes(&bytes, key.public());
        let _ = Announcement::from_bytes(&bytes, key.public());
        let _ = RoundTerms::from_bytes(&bytes, key.public());
    }

    /// Random text is no key.
    #[test]
    fn random_key_files_never_panic(text in "\\PC{0,200}") {
        prop_assert!(AnyKey::from_json(&text).is_err());
    }
}
