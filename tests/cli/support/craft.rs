//! Contributions and sums that a malicious party crafts with the library, for the real binary to open.

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine, beats};
use ciphergram_he::{
    Agreement, AnyKey, Contribution, Job, KeyRef, Ledger, Member, PublicKey, Sum, Update,
    aggregate,
    paillier::{Ciphertexts, Evaluator, Plaintexts},
};

use super::{
    place::Place,
    tensors::{Brought, Tensors, from_file, single, to_file, uniform},
};

const CLIENTS: u16 = 3;
/// One chunk of values under each scheme, nearly.
const VALUES: usize = 150;
/// The range of everyone's values.
pub(crate) const RANGE: f64 = 1.0;
/// What is said of every sum that does not open, whatever is wrong with it.
pub(crate) const CLOSED: &str = "error: sum.cgm: the sum does not open: it is not what its 3 contributors sealed \
                                 for this round of this job";

/// Three clients with a key, a job that leaves ranges open, and their updates.
pub(crate) struct Scene {
    pub(crate) place: Place,
    pub(crate) public: PublicKey,
    pub(crate) job: Job,
    pub(crate) brought: Brought,
    /// The keys that clients contribute with.
    keys: Vec<AnyKey>,
}

pub(crate) fn engine() -> Arc<dyn Engine> {
    Arc::new(CpuEngine::new())
}

impl Scene {
    pub(crate) fn new(scheme: &str) -> Self {
        let place = Place::with_key(scheme, CLIENTS.into());
        let tensors = |seed| {
            let mut draw = uniform(seed);
            single(&(0..VALUES).map(|_| draw()).collect::<Vec<_>>())
        };
        let brought = Brought::new((0..3).map(tensors).collect(), &[5, 2, 9], |_| RANGE);
        for (i, client) in brought.clients.iter().enumerate() {
            place.write(&format!("g{i}"), to_file(client));
        }
        let public = PublicKey::load(&place.path("keys/public.json")).unwrap();
        let job = Job::load(&place.path("keys/job.json"), &public).unwrap();
        let key = |i| {
            let own = place.path(&format!("keys/clients/{i}.json"));
            let shared = place.path("keys/secret.json");
            AnyKey::load(if own.exists() { &own } else { &shared }).unwrap()
        };
        let keys = (0..CLIENTS).map(key).collect();
        Self { place, public, job, brought, keys }
    }

    /// Returns the key of a client.
    pub(crate) fn key(&self, client: u16) -> KeyRef<'_> {
        self.keys[usize::from(client)].as_client(Some(client)).unwrap()
    }

    pub(crate) fn update(&self, client: u16) -> Update {
        Update::from_safetensors(&self.place.read(&format!("g{client}"))).unwrap()
    }

    /// Returns what all agree on, with one range for all values.
    pub(crate) fn agreement(&self, range: f64) -> Agreement {
        Agreement::new(self.update(0).specs(), vec![range], 9).unwrap()
    }

    /// Returns a client's honest contribution to a round.
    pub(crate) fn contribution(
        &self,
        client: u16,
        round: u64,
        range: f64,
    ) -> Contribution<'static> {
        let (agreement, update) = (self.agreement(range), self.update(client));
        let weight = self.brought.weights[usize::from(client)];
        // Any round, as often as a test likes.
        let ledger = Ledger::in_memory();
        let member = Member::new(self.key(client), &self.job, &ledger, engine());
        member.seal(&update, weight, &agreement, Some(round)).unwrap().into_contribution().unwrap()
    }

    /// Returns the honest contributions of all to a round.
    pub(crate) fn contributions(&self, round: u64) -> Vec<Contribution<'static>> {
        (0..CLIENTS).map(|client| self.contribution(client, round, RANGE)).collect()
    }

    /// Sums contributions as an aggregator does.
    pub(crate) fn sum(&self, contributions: &[Contribution<'_>]) -> Sum {
        let all = contributions.iter().cloned().enumerate().map(|(i, c)| (i, Ok(c)));
        aggregate(&self.public, &self.job, engine(), all).unwrap()
    }

    /// Has the binary open a sum, and returns the mean or the one line of its error.
    pub(crate) fn open(&self, sum: &Sum, words: &str) -> Result<Tensors, String> {
        let out = self.place.path("out");
        // What stood there before is not what comes of this.
        if out.exists() {
            std::fs::remove_file(&out).unwrap();
        }
        self.place.write("sum.cgm", sum.to_bytes(&self.public));
        let decrypt = "decrypt --key keys/secret.json --in sum.cgm --out out";
        let ran = self.place.run(format!("{decrypt} {words}").trim_end());
        if ran.code == Some(0) {
            return Ok(from_file(&self.place.read("out")));
        }
        assert!(!out.exists(), "{ran:?}");
        Err(ran.error(1))
    }

    /// Has the binary open a sum that is what its contributors sealed: the mean is right.
    pub(crate) fn opens(&self, sum: &Sum) {
        self.brought.check_mean(&self.open(sum, "").unwrap());
    }

    /// Has the binary refuse a sum for `why`, and counts whether it did not open. Then what the key was used
    /// for is forgotten.
    pub(crate) fn refuses(&self, sum: &Sum, why: &str) {
        let error = self.open(sum, "").unwrap_err();
        assert!(error.contains(why), "{error}, not {why}");
        assert_eq!(self.failures(), u64::from(why == CLOSED), "{error}");
        self.place.forget("keys/secret.json");
    }

    /// Returns the sums that did not open.
    pub(crate) fn failures(&self) -> u64 {
        let status = self.place.json("inspect keys/secret.json");
        status["failures"].as_u64().unwrap()
    }

    /// Adds `2^bit` to one slot of a chunk, which carries values. Under schemes over rings bits below the margin
    /// are noise.
    pub(crate) fn add(&self, stream: &mut [u8], chunk: u32, slot: usize, bit: u32) {
        let chunks = self.public.parameters().chunks(VALUES);
        let at = chunks.offset_of(chunk);
        if let Some(modulus) = self.public.paillier() {
            let each = chunks.geometry().unit_bytes;
            let own = &mut stream[at + slot * each..][..each];
            let words = own.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let old = Ciphertexts::try_from_words(modulus, words).unwrap();
            let mut number = vec![0u64; modulus.n().words().len()];
            number[bit as usize / 64] = 1 << (bit % 64);
            let number = Plaintexts::try_from_words(modulus, number.into()).unwrap();
            let new = Evaluator::new(modulus, engine()).add_plain(&old, &number).unwrap();
            let words = new.into_words(&*engine()).unwrap();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            own.copy_from_slice(&bytes);
            return;
        }
        let primes = self.public.parameters().rlwe().unwrap().ring.primes();
        for (limb, &prime) in primes.iter().enumerate() {
            let power = (0..bit).fold(1, |power, _| power * 2 % prime);
            let lane = slot * primes.len() + limb;
            let at = at + lane / beats::LANES * beats::BYTES;
            add_to_lane(&mut stream[at..][..beats::BYTES], lane % beats::LANES, power, prime);
        }
    }

    /// Returns bits of the margin, below which a coefficient is noise.
    pub(crate) fn margin(&self) -> u32 {
        self.public.parameters().rlwe().map_or(0, |rlwe| rlwe.margin_bits)
    }
}

/// Adds to a residue of a beat.
fn add_to_lane(beat: &mut [u8], lane: usize, more: u64, prime: u64) {
    let words: Vec<u64> = beat.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let mut changed = [0; beats::WORDS];
    for other in 0..beats::LANES {
        let residue = beats::lane(&words, other);
        let added = (u128::from(residue) + u128::from(more)) % u128::from(prime);
        beats::set_lane(&mut changed, other, if other == lane { added as u64 } else { residue });
    }
    for (bytes, word) in beat.as_chunks_mut().0.iter_mut().zip(changed) {
        *bytes = word.to_le_bytes();
    }
}
