//! A toy scheme of sums, for tests: integers in the clear, one to a lane of a beat. It hides nothing. It
//! shows everything that a scheme has to bring, and that [`update`](crate::update) knows none.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Arc, LazyLock},
};

use ciphergram_accel::{Builder, Engine, Operand, Program, Ring, beats, ring::largest_primes};

use super::{
    Groups, Opener, Pace, PublicEncryption, RunningSum, Scratch, SecretScheme, SumScheme,
    UpdateEncryptor,
};
use crate::{
    Error,
    bytes::write_words,
    codec::{FieldRoom, Packing},
    error::{CiphertextFault, faults::ParameterError},
    ids::{Seed, Statement},
    params::{
        Chunks,
        geometry::{CHUNK_BYTES, Geometry},
        head::Head,
        scheme::Literal,
    },
};

/// Bits that an integer has below the prime that lanes are added modulo.
const INTEGER_BITS: u32 = 49;
/// The ring whose residues a lane holds.
static RING: LazyLock<Arc<Ring>> =
    LazyLock::new(|| Ring::new(1024, &largest_primes(50, 1024, 1)).unwrap().into());

/// Cuts a stream into chunks of whole beats.
pub(crate) fn geometry(literal: Literal, field_bits: u32) -> Result<Geometry, ParameterError> {
    let fields_per_slot = (INTEGER_BITS / field_bits) as usize;
    let g = Geometry {
        field_bits,
        fields_per_slot,
        slots_per_chunk: CHUNK_BYTES / beats::BYTES * beats::LANES,
        head_fields: 0,
        head: Head::EMPTY,
        slots_per_unit: beats::LANES,
        unit_bytes: beats::BYTES,
        group_chunks: 1,
    };
    g.with_head(literal, fields_per_slot, INTEGER_BITS)
}

/// Both halves of the key that there is.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

/// Builds a program that takes integers out of a beat.
fn unpack(name: &str) -> Arc<Program> {
    let mut b = Builder::new(name);
    let x = b.beats("x", &RING, 1);
    let integers = b.unpack("integers", x);
    b.output(integers);
    b.build().into()
}

impl PublicEncryption for Plain {
    fn encryptor(&self, _: &dyn Engine) -> Result<Box<dyn UpdateEncryptor>, Error> {
        Ok(Box::new(*self))
    }

    fn encrypt_program(&self, _: &dyn Engine) -> Result<Arc<Program>, Error> {
        Ok(unpack("plain.encrypt"))
    }
}

impl SumScheme for Plain {
    fn sum_program(&self) -> Arc<Program> {
        let mut b = Builder::new("plain.sum");
        let (sum, x) = (b.beat_sums("sum", &RING, 1), b.beats("x", &RING, 1));
        let next = b.add_beats("next", sum, x);
        b.update(sum, next);
        b.build().into()
    }

    fn running_sum(&self, chunks: &Chunks, own: Range<u32>) -> Box<dyn RunningSum> {
        let words = vec![0; chunks.range_of(&own).len() / 8];
        Box::new(BeatSums { chunks: *chunks, first: own.start, words })
    }

    fn places_per_chunk(&self, chunks: &Chunks) -> usize {
        chunks.geometry().slots_per_chunk
    }

    fn range_fault(&self, _: &dyn Engine, words: &[u64]) -> Option<CiphertextFault> {
        beats::first_bad_lane(words, RING.primes()).map(CiphertextFault::residue)
    }
}

/// Sums of beats, always reduced.
struct BeatSums {
    chunks: Chunks,
    first: u32,
    words: Vec<u64>,
}

impl BeatSums {
    fn range(&self, own: &Range<u32>) -> Range<usize> {
        let Range { start, end } = self.chunks.range_within(self.first, own);
        start / 8..end / 8
    }
}

impl RunningSum for BeatSums {
    fn add(
        &mut self,
        engine: &dyn Engine,
        own: Range<u32>,
        words: &[u64],
    ) -> Result<Option<CiphertextFault>, Error> {
        let fault = Plain.range_fault(engine, words);
        if fault.is_none() {
            let range = self.range(&own);
            let sum = Operand::InOut(&mut self.words[range]);
            engine.run(&Plain.sum_program(), &mut [sum, Operand::In(words)])?;
        }
        Ok(fault)
    }

    fn finish(&mut self, _: &dyn Engine, own: Range<u32>, _: u32) -> Result<Vec<u64>, Error> {
        Ok(self.words[self.range(&own)].to_vec())
    }
}

impl SecretScheme for Plain {
    fn encryptor(
        &self,
        _: &dyn Engine,
        _: &Statement,
        _: &Seed,
    ) -> Result<Box<dyn UpdateEncryptor>, Error> {
        Ok(Box::new(*self))
    }

    fn encrypt_program(&self, engine: &dyn Engine) -> Result<Arc<Program>, Error> {
        PublicEncryption::encrypt_program(self, engine)
    }

    fn decrypt_program(&self, _: usize) -> Result<Arc<Program>, Error> {
        Ok(unpack("plain.decrypt"))
    }

    fn opener(&self, _: &Statement, _: &BTreeSet<usize>) -> Result<Box<dyn Opener + '_>, Error> {
        Ok(Box::new(*self))
    }
}

impl UpdateEncryptor for Plain {
    fn batch_end(&self, next: u32, pace: Pace) -> u32 {
        next.saturating_add(match pace {
            Pace::Soon => 2,
            Pace::Bulk => 64,
        })
    }

    fn seal(
        &mut self,
        _: &dyn Engine,
        packing: &Packing<'_>,
        own: Range<u32>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let (mut rest, mut room) = (out, FieldRoom::default());
        let batch = packing.batch(&own, &mut room)?;
        for chunk in own {
            let (bytes, after) = rest.split_at_mut(packing.chunks().bytes_of(chunk));
            let mut words = vec![0; bytes.len() / 8];
            batch.pack(chunk, 0, &mut [0], |slot, integer| {
                let beat = &mut words[slot / beats::LANES * beats::WORDS..][..beats::WORDS];
                beats::set_lane(beat, slot % beats::LANES, integer[0]);
            });
            write_words(bytes, &words);
            rest = after;
        }
        Ok(())
    }
}

impl Opener for Plain {
    fn groups_at_once(&self) -> usize {
        3
    }

    fn sizes(&self) -> (usize, usize) {
        (0, 1)
    }

    fn open(
        &self,
        _: &dyn Engine,
        groups: &Groups<'_>,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(u32, &[u64]),
    ) -> Result<(), Error> {
        let mut beats = scratch.words.chunks(beats::WORDS);
        for chunk in groups.own.clone() {
            scratch.slots.clear();
            for beat in beats.by_ref().take(groups.chunks.units_of(chunk)) {
                scratch.slots.extend((0..beats::LANES).map(|lane| beats::lane(beat, lane)));
            }
            take(chunk, &scratch.slots);
        }
        Ok(())
    }
}

mod tests {
    use ciphergram_accel::CpuEngine;

    use crate::{
        Accumulator, Agreement, AnyKey, Contribution, Dtype, Job, KeyRef, Ledger, Limits, Member,
        OpenedSum, Operation, PublicKey, Quantised, Scheme, SealPermit, Sealer, SecretKey, Sum,
        Tensor, TensorSpec, Update, aggregate, codec::Output, params::Literal,
    };
    use std::sync::Arc;

    fn engine() -> Arc<CpuEngine> {
        Arc::new(CpuEngine::new())
    }

    fn key() -> SecretKey {
        SecretKey::generate(Literal { scheme: Scheme::Plain, clients: 8, bits: 12 }).unwrap()
    }

    fn job(key: &SecretKey) -> Job {
        let limits = Limits::of_key(key.public());
        let clients = limits.clients;
        Job::new(key.public(), limits.of_clients(clients, Some(1))).unwrap()
    }

    fn agreement(values: u64) -> Agreement {
        let spec = TensorSpec { name: "t".into(), dtype: Dtype::F32, shape: vec![values] };
        Agreement::new(vec![spec], vec![1.0], 5).unwrap()
    }

    /// Chunk by chunk as the network adds them, under either half of the key: sums are exact.
    #[test]
    fn sums_are_exact_chunk_by_chunk() {
        let (key, values) = (key(), 4000);
        let most = 2 * key.public().parameters().half_steps();
        let field = |client: u32, i: usize| (i as u32 * 37 + client * 911) % (most + 1);
        let mut sum = Accumulator::new(key.public(), engine(), values);
        let mut contributors = vec![];
        let (job, agreement) = (job(&key), agreement(4000));
        let terms = job.terms(3, &agreement).unwrap();
        for client in 0..6u16 {
            let fields = (0..values).map(|i| field(client.into(), i)).collect();
            let update = Quantised::from_fields(fields, u32::from(client) % 5 + 1);
            let own = key.client_key(client).unwrap();
            let key = [key.as_client(client), KeyRef::from(&own)][usize::from(client) % 2];
            let permit = SealPermit::draw().unwrap();
            let mut sealer = Sealer::new(key, engine(), update, permit, &terms).unwrap();
            contributors.push(sealer.contributor());
            let (mut first, chunks) = (0, *sealer.chunks());
            while let Some(bytes) = sealer.next_batch().unwrap() {
                let end = (first..=chunks.count())
                    .find(|&end| chunks.range_of(&(first..end)).len() == bytes.len())
                    .unwrap();
                sum.check(first..end, &bytes).unwrap();
                sum.add(first..end, &bytes).unwrap();
                first = end;
            }
            assert_eq!(first, chunks.count());
        }
        let chunks = *sum.chunks();
        let stream: Vec<u8> = (0..chunks.count()).flat_map(|c| sum.finish(c, 6).unwrap()).collect();
        assert_eq!(stream, sum.into_stream(&vec![6; chunks.count() as usize]).unwrap());
        let sets = vec![crate::ContributorSet::all(6); chunks.count() as usize];
        let (job_id, agreement) = (job.id(), agreement.clone());
        let sum = Sum { contributors, job: job_id, round: 3, agreement, sets, stream };
        let opened = OpenedSum::open(&key, &*engine(), &sum, &job).unwrap();
        let half = i64::from(key.public().parameters().half_steps());
        for (i, &found) in opened.sums().iter().enumerate() {
            let expected: i64 = (0..6).map(|c| i64::from(field(c, i)) - half).sum();
            assert_eq!(found, expected);
        }
        assert!(opened.parts().iter().all(|&part| part == (6, 16)));
    }

    /// Whole files as a member writes them, and the key through its file.
    #[test]
    fn files_and_keys_pass_through_their_bytes() {
        let generated = key();
        let folder = tempfile::tempdir().unwrap();
        let [secret, public] = ["secret.json", "public.json"].map(|name| folder.path().join(name));
        generated.save(&secret).unwrap();
        generated.public().save(&public).unwrap();
        let (key, _) = SecretKey::load(&secret).unwrap();
        assert!(matches!(AnyKey::load(&public), Ok(AnyKey::Public(_))));
        let public = PublicKey::load(&public).unwrap();
        assert_eq!(public.id(), key.public().id());
        let (job, agreement) = (job(&key), agreement(1000));
        let tensor = |x: f32| {
            let spec = agreement.specs()[0].clone();
            Update::new(vec![Tensor::from_bytes(spec, x.to_le_bytes().repeat(1000))])
        };
        let ledger = Ledger::in_memory();
        let files = [(0, 0.5), (1, -0.25), (2, 1.0)].map(|(client, x)| {
            let member = Member::new(key.as_client(client), &job, &ledger, engine());
            let mut file = vec![];
            member.seal(&tensor(x), 5, &agreement, None).unwrap().write_to(&mut file).unwrap();
            file
        });
        let read = files.iter().map(|bytes| Contribution::from_bytes(bytes, &public));
        let sum = aggregate(&public, &job, engine(), (0..).zip(read)).unwrap();
        sum.verify(&public, &*engine(), &job).unwrap();
        let sum = Sum::from_bytes(&sum.to_bytes(&public), &public).unwrap();
        let opened = OpenedSum::open(&key, &*engine(), &sum, &job).unwrap();
        let mean = opened.decode(&sum, Output::Mean).unwrap();
        let step = 1.0 / f64::from(key.public().parameters().half_steps());
        let expected = (0.5 - 0.25 + 1.0) / 3.0;
        assert!(mean.tensors()[0].values().unwrap().iter().all(|x| (x - expected).abs() <= step));
    }

    #[test]
    fn faults_are_located_and_programs_named() {
        let key = key();
        let update = Quantised::from_fields(vec![1; 2000], 1);
        let (job, agreement) = (job(&key), agreement(2000));
        let (terms, permit) = (job.terms(0, &agreement).unwrap(), SealPermit::draw().unwrap());
        let own = key.as_client(0);
        let sealer = Sealer::new(own, engine(), update, permit, &terms).unwrap();
        let (chunks, mut stream) = (*sealer.chunks(), sealer.seal_all().unwrap());
        stream[chunks.offset_of(1)..][..8].fill(0xff);
        let mut sum = Accumulator::new(key.public(), engine(), 2000);
        let error = sum.add_stream(&stream).unwrap_err().to_string();
        assert!(error.starts_with("chunk 1: residue 0"), "{error}");
        let names = [
            (Operation::Encrypt, "plain.encrypt"),
            (Operation::Aggregate, "plain.sum"),
            (Operation::Decrypt, "plain.decrypt"),
        ];
        for (operation, name) in names {
            assert_eq!(key.program(operation, &*engine(), 3, 0).unwrap().name(), name);
        }
    }
}
