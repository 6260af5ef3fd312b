//! The small frames that fuzzing starts from: keys that protect nothing, and under each two
//! contributions and their sum. One key is of each ring of `ckks-sum`.

use std::sync::{Arc, OnceLock};

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::{
    AnyKey, Contribution, Error, Job, OpenedSum, PublicKey, SecretKey, Sum, aggregate,
};

pub(crate) fn engine() -> Arc<dyn Engine> {
    static ENGINE: OnceLock<Arc<CpuEngine>> = OnceLock::new();
    ENGINE.get_or_init(Arc::default).clone()
}

/// A key, a job under it, `contributions` of weights 2 and 3, and their `sum`.
pub(crate) struct Seeds {
    pub(crate) clients: usize,
    pub(crate) key: Box<SecretKey>,
    pub(crate) job: Job,
    pub(crate) contributions: [Vec<u8>; 2],
    pub(crate) sum: Vec<u8>,
}

impl Seeds {
    fn read(clients: usize, degree: usize) -> Self {
        let read = |name: String| {
            let path = format!("{}/../fuzz/seeds/{name}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let json = String::from_utf8(read(format!("{clients}.json"))).unwrap();
        let AnyKey::Secret(key, _) = AnyKey::from_json(&json).unwrap() else {
            panic!("a secret key")
        };
        assert_eq!(key.public().parameters().rlwe().unwrap().ring.degree(), degree);
        let text = String::from_utf8(read(format!("{clients}.job.json"))).unwrap();
        let job = Job::from_json(&text, key.public()).unwrap();
        let frame = |what: &str| read(format!("frame/{clients}-{what}.cgm"));
        let contributions = [frame("1"), frame("2")];
        Self { clients, key, job, contributions, sum: frame("sum") }
    }

    pub(crate) fn public(&self) -> &PublicKey {
        self.key.public()
    }

    /// Adds contributions as files are added.
    pub(crate) fn aggregate<'a, N: ToString>(
        &self,
        named: impl IntoIterator<Item = (N, Result<Contribution<'a>, Error>)>,
    ) -> Result<Sum, Error> {
        aggregate(self.public(), &self.job, engine(), named)
    }

    pub(crate) fn open(&self, sum: &Sum) -> Result<OpenedSum, Error> {
        OpenedSum::open(&*self.key, &*engine(), sum, &self.job)
    }

    pub(crate) fn verify(&self, sum: &Sum) -> Result<(), Error> {
        sum.verify(self.public(), &*engine(), &self.job)
    }
}

/// For 10 clients over the ring of four primes, and for 64 over that of two.
pub(crate) fn both_rings() -> [Seeds; 2] {
    [Seeds::read(10, 8192), Seeds::read(64, 4096)]
}

/// Makes the length of the body and the digest true of whatever bytes a frame has.
pub(crate) fn vouch(frame: &mut Vec<u8>) {
    let body = frame.len() - 48 - 32;
    frame[40..48].copy_from_slice(&(body as u64).to_le_bytes());
    frame.truncate(48 + body);
    let digest = blake3::hash(frame);
    frame.extend(digest.as_bytes());
}
