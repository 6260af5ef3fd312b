//! Ciphertexts added a second.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use ciphergram_accel::{Builder, CpuEngine, Engine, Measure as _, Modulus, Operand, Program};
use ciphergram_he::{
    Job, Limits, Quantised, Scheme, SealPermit, Sealer, SecretKey, Tensor, TensorSpec, Update,
    exchange::Announcement, params::Literal,
};
use ciphergram_nic::{
    Bytes,
    federation::SumApplication,
    proto::{
        ChunkAdder, ChunkLayout, Counts, Peer, Refusal, Shard, SumConfig, SumMessage, SumRegion,
    },
    round::{Application as _, ReadyRound},
};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};

use super::{
    Failure, WARM_UP,
    pair::{Pair, Setting},
    rates::goodput,
    spent::Flow,
};

/// SUMs of a mebibyte under way at once.
const AHEAD: usize = 4;
/// Bytes of their chunks.
const MESSAGE_BYTES: usize = 1 << 20;
/// The first of the sum regions.
const SUMS: u32 = 100;
/// Contributions to one region, all of them the same ciphertexts.
const CONTRIBUTORS: u16 = 64;
/// More than is sent in the time: bytes of all contributions, a second.
const PLENTY: f64 = 6e9;

/// A contribution, and what sums it.
struct Contribution {
    stream: Bytes,
    open: Box<dyn FnMut() -> Result<ReadyRound, Failure>>,
}

/// Measures SUMs under a scheme, of ciphertext: contributions of 300,000 values, sealed beforehand, added by the
/// threads that also receive and open them.
///
/// # Errors
/// The sockets', or an end that gave up.
pub fn sums(setting: Setting, scheme: Scheme, span: Duration) -> Result<Flow, Failure> {
    added(setting, contribution(scheme)?, span)
}

/// Measures what the sums of [`sums`] take alone, for each byte in picoseconds: checking and adding chunks, `bytes` at
/// a time.
///
/// # Errors
/// A chunk is refused.
pub fn additions(bytes: usize, scheme: Scheme, span: Duration) -> Result<f64, Failure> {
    let Contribution { stream, mut open } = contribution(scheme)?;
    let ReadyRound { layout, mut shards, .. } = open()?;
    let runs = cut(&layout, &stream, bytes);
    let ends = runs.iter().skip(1).map(|(first, _)| *first).chain([layout.chunk_count()]);
    let runs: Vec<_> = runs.iter().zip(ends).collect();
    let (mut added, began) = (0, Instant::now());
    while began.elapsed() < span {
        for ((first, data), end) in &runs {
            let at = shards.partition_point(|shard| shard.chunks.end <= *first);
            // A run that reaches into the next shard is left out.
            let Some(shard) = shards.get_mut(at).filter(|shard| shard.chunks.end >= *end) else {
                continue;
            };
            shard.adder.add(*first..*end, data).map_err(|refusal| refusal.to_string())?;
            added += data.len();
        }
    }
    if added == 0 {
        return Err("no run lies in one shard".into());
    }
    Ok(began.elapsed().as_secs_f64() * 1e12 / added as f64)
}

/// Seals a contribution under a key of its own.
fn contribution(scheme: Scheme) -> Result<Contribution, Failure> {
    let engine = Arc::new(CpuEngine::new());
    let literal = Literal { scheme, clients: u32::from(CONTRIBUTORS), bits: 16 };
    let key = SecretKey::generate(literal)?;
    let spec =
        TensorSpec { name: "w".into(), dtype: ciphergram_he::Dtype::F32, shape: vec![300_000] };
    let values: Vec<f64> = (0..300_000).map(|i| f64::from(i % 1000) / 1000.0).collect();
    let update = Update::new(vec![Tensor::from_values(spec, &values)?]);
    let job = Job::new(key.public(), Limits::of_key(key.public()))?;
    let mut application =
        SumApplication::new(key.public().clone(), job.clone(), engine.clone(), None)?;
    let mut hellos = BTreeMap::new();
    let mut agreement = None;
    for number in 0..2 {
        let announcement =
            Announcement::propose(SealPermit::draw()?.seed(), &job, (0, None), &update, 1, None)?;
        hellos.insert(number, announcement.to_bytes(key.public()));
        agreement = Some(announcement.agreement);
    }
    let agreement = agreement.ok_or("nobody announced")?;
    let parameters = key.public().parameters();
    let seed = ciphergram_he::random::bytes()?;
    let own = Quantised::new(&update, &agreement, 1, parameters, &seed)?;
    let terms = job.terms(0, &agreement)?;
    let sealer = Sealer::new(key.as_client(0), engine, own, SealPermit::draw()?, &terms)?;
    let stream = sealer.seal_all()?;
    let open = Box::new(move || {
        Ok(application.open(0, &hellos)?.opened().ok_or("the round is not ready")?)
    });
    Ok(Contribution { stream: stream.into(), open })
}

/// Measures SUMs of what Paillier with a modulus of 1024 bits would send:
/// numbers of 2048 bits, added by one product each modulo one of as many bits. It protects nothing:
/// only for comparison with papers.
///
/// # Errors
/// The sockets', or an end that gave up.
pub fn sums_insecure_1024(setting: Setting, span: Duration) -> Result<Flow, Failure> {
    let mut rng = ChaCha20Rng::from_seed([10; 32]);
    let modulus = odd_modulus(&mut rng, WORDS)?;
    let mut stream = vec![0; CHUNKS as usize * CHUNK_BYTES];
    rng.fill_bytes(&mut stream);
    // Below the modulus.
    stream.chunks_mut(8 * WORDS).for_each(|number| number[8 * WORDS - 1] &= 0x7f);
    let (program, engine) = (Arc::new(product(&modulus)), Arc::new(CpuEngine::new()));
    let open = Box::new(move || {
        let shards = (0..CHUNKS).step_by(SHARD_CHUNKS as usize).map(|first| {
            let chunks = first..(first + SHARD_CHUNKS).min(CHUNKS);
            let mut sums = vec![0; chunks.len() * CHUNK_BYTES / 8];
            sums.chunks_mut(WORDS).for_each(|number| number[0] = 1);
            let (program, engine) = (program.clone(), engine.clone());
            let products = Products { first, sums, modulus: modulus.clone(), program, engine };
            Shard { chunks, adder: Box::new(products) }
        });
        Ok(ReadyRound {
            terms: vec![],
            layout: LAYOUT,
            shards: shards.collect(),
            left_out: vec![],
            late: BTreeSet::new(),
        })
    });
    added(setting, Contribution { stream: stream.into(), open }, span)
}

/// Draws an odd modulus of `words` words, whose highest bit is set.
fn odd_modulus(rng: &mut ChaCha20Rng, words: usize) -> Result<Arc<Modulus>, Failure> {
    let mut all: Vec<u64> = (0..words).map(|_| rng.next_u64()).collect();
    all[0] |= 1;
    all[words - 1] |= 1 << 63;
    Ok(Arc::new(Modulus::new("n2", &all)?))
}

/// Builds the program of one addition under Paillier: a Montgomery product into the sum.
fn product(modulus: &Arc<Modulus>) -> Program {
    let mut b = Builder::new("sum");
    let sum = b.residue_sums("sum", modulus);
    let c = b.residues("c", modulus);
    let product = b.mont_mul("product", sum, c);
    b.update(sum, product);
    b.build()
}

/// Measures the rate at which one core could add ciphertexts of `bits` bits under Paillier if it did nothing but
/// multiply, one product each: Gbit/s. `None` where other work hid the rate.
///
/// # Errors
/// There is no such modulus.
pub fn multiply_limit(bits: usize) -> Result<Option<f64>, Failure> {
    let words = bits / 64;
    let program = product(&odd_modulus(&mut ChaCha20Rng::from_seed([11; 32]), words)?);
    let (mut sums, factors) = (vec![1; NUMBERS * words], vec![1; NUMBERS * words]);
    let engine = CpuEngine::new();
    let operands = [Operand::InOut(&mut sums), Operand::In(&factors)];
    let limit = engine.multiply_rate().zip(engine.multiplies(&program, &operands));
    Ok(limit.map(|(rate, multiplies)| (bits * NUMBERS) as f64 * 1e-9 * rate / multiplies as f64))
}

/// Numbers of a batch whose multiplies are counted.
const NUMBERS: usize = 64;

/// Words of a number of 2048 bits.
const WORDS: usize = 32;
/// Five of them.
const CHUNK_BYTES: usize = 5 * 8 * WORDS;
const CHUNKS: u32 = 1024;
const SHARD_CHUNKS: u32 = 64;

/// Chunks of five numbers of 2048 bits.
const LAYOUT: ChunkLayout = ChunkLayout {
    chunk_bytes: NonZeroU32::new(CHUNK_BYTES as u32).unwrap(),
    total_bytes: CHUNKS as u64 * CHUNK_BYTES as u64,
};

/// Running products modulo one number.
struct Products {
    first: u32,
    sums: Vec<u64>,
    modulus: Arc<Modulus>,
    program: Arc<Program>,
    engine: Arc<CpuEngine>,
}

fn words(payload: &[u8]) -> Vec<u64> {
    payload.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

impl ChunkAdder for Products {
    fn check(&mut self, _: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        let fits = words(payload).chunks(WORDS).all(|number| self.modulus.contains_vartime(number));
        if fits { Ok(()) } else { Err(Refusal::InvalidCiphertext) }
    }
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        self.check(chunks.clone(), payload)?;
        let place = |chunk: u32| (chunk - self.first) as usize * CHUNK_BYTES / 8;
        let place = place(chunks.start)..place(chunks.end);
        let mut operands = [Operand::InOut(&mut self.sums[place]), Operand::In(&words(payload))];
        // What was checked is in range.
        let _ = self.engine.run(&self.program, &mut operands);
        Ok(())
    }
    fn finish(&mut self, _: u32, _: u32) -> Result<Vec<u8>, String> {
        Err("nobody asks for the sum".into())
    }
}

/// Measures a contribution that many contribute, again and again.
fn added(
    setting: Setting,
    mut contribution: Contribution,
    span: Duration,
) -> Result<Flow, Failure> {
    let Pair { mut waits, contacts, node } = Pair::new(setting)?;
    let region_bytes = contribution.stream.len() * usize::from(CONTRIBUTORS);
    let needed = PLENTY * (span + 2 * WARM_UP).as_secs_f64() / region_bytes as f64;
    let peer = contacts.peer()?;
    let mut messages = vec![];
    let mut chunk_bytes = NonZeroU32::MIN;
    for region in 0..needed.ceil() as u32 {
        let ReadyRound { layout, shards, .. } = (contribution.open)()?;
        if messages.is_empty() {
            chunk_bytes = layout.chunk_bytes;
            messages = cut(&layout, &contribution.stream, MESSAGE_BYTES);
        }
        let config = SumConfig {
            round: 0,
            contributors: CONTRIBUTORS,
            target: u32::from(CONTRIBUTORS) + 1,
            layout,
            shards,
            counts: Counts::Chunks,
        };
        let sum = SumRegion::new(config)?;
        (0..CONTRIBUTORS).for_each(|contributor| sum.bind(contributor, peer));
        waits.endpoint.register_sum(SUMS + region, sum)?;
    }
    let mut next = (0u32..)
        .flat_map(|region| (0..CONTRIBUTORS).map(move |contributor| (region, contributor)))
        .flat_map(|turn| messages.iter().map(move |message| (turn, message)));
    let to = Peer::of(node);
    goodput((waits, contacts), to, AHEAD, span, &mut |endpoint, now| {
        let ((region, contributor), (first_chunk, data)) = next.next().ok_or("no end")?;
        let (rkey, first_chunk, data) = (SUMS + region, *first_chunk, data.clone());
        let bytes = data.len();
        let sum = SumMessage {
            rkey,
            round: 0,
            contributor,
            first_chunk,
            chunk_bytes,
            by_chunk: true,
            data,
        };
        Ok((endpoint.sum(now, to, sum)?, bytes))
    })
}

/// Cuts chunks into runs, as many whole ones to each as fit: the first, and their bytes.
fn cut(chunks: &ChunkLayout, stream: &Bytes, limit: usize) -> Vec<(u32, Bytes)> {
    let place = |chunk: u32| chunks.bytes_of(&(chunk..chunk + 1));
    let (start, end) = (|chunk| place(chunk).start as usize, |chunk| place(chunk).end as usize);
    let (mut cuts, mut first) = (vec![], 0);
    while first < chunks.chunk_count() {
        let fits = |chunk: &u32| end(*chunk) <= start(first) + limit;
        let last = (first..chunks.chunk_count()).take_while(fits).last().unwrap_or(first);
        cuts.push((first, stream.slice(start(first)..end(last))));
        first = last + 1;
    }
    cuts
}
