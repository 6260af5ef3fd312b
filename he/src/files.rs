//! The two binary files: a contribution and a sum.

use std::{borrow::Cow, collections::BTreeSet, ops::Range, sync::Arc};

use ciphergram_accel::Engine;

use crate::{
    Accumulator, Agreement, Error, PublicKey,
    aggregate::check_stream,
    bytes::{Reader, Writer},
    error::CiphertextFault,
    frame::{self, Frame, FrameError, Kind},
    params::Chunks,
    seal::Seed,
};

/// Which of a sum's contributors a chunk holds: a bitmap over their list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContributorSet(Vec<u8>);

impl ContributorSet {
    /// No one, out of `count`.
    #[must_use]
    pub fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(8)])
    }

    /// All of `count`.
    #[must_use]
    pub fn all(count: usize) -> Self {
        let mut set = Self::none(count);
        (0..count).for_each(|i| set.insert(i));
        set
    }

    /// Adds a contributor by its place in the list.
    pub fn insert(&mut self, index: usize) {
        self.0[index / 8] |= 1 << (index % 8);
    }

    /// The contributors' places in the list, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..8 * self.0.len()).filter(|&i| self.0[i / 8] >> (i % 8) & 1 == 1)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(|b| b.count_ones() as usize).sum()
    }

    fn write(&self, w: &mut Writer) {
        w.bytes(&self.0);
    }

    fn read(r: &mut Reader<'_>, count: usize) -> Result<Self, FrameError> {
        let set = Self(r.bytes(count.div_ceil(8))?.to_vec());
        if set.iter().any(|i| i >= count) {
            return Err(FrameError::Malformed { what: "a contributor beyond the list" });
        }
        Ok(set)
    }
}

/// The ciphertext stream is not as long as the tensors ask for.
const WRONG_LENGTH: FrameError =
    FrameError::Malformed { what: "not the chunks that the tensors need" };

/// Seeds met so far, each once: a sum of three is not three times one client's.
#[derive(Default)]
pub(crate) struct Distinct(BTreeSet<Seed>);

impl Distinct {
    /// Refuses a seed that is there already.
    pub(crate) fn add(&mut self, seed: Seed) -> Result<(), Error> {
        if self.0.insert(seed) { Ok(()) } else { Err(Error::SameContribution) }
    }

    /// Refuses a list with a seed twice.
    pub(crate) fn check(seeds: impl IntoIterator<Item = Seed>) -> Result<(), Error> {
        let mut distinct = Self::default();
        seeds.into_iter().try_for_each(|seed| distinct.add(seed))
    }
}

/// One client's encrypted update, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Contribution<'a> {
    /// What names it.
    pub seed: Seed,
    /// What it must share with others to be summed.
    pub agreement: Agreement,
    /// The chunks' wire bytes.
    pub stream: Cow<'a, [u8]>,
}

impl<'a> Contribution<'a> {
    /// The file's bytes.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        frame::seal(Kind::Contribution, key, self.stream.len() + 1024, |w| {
            self.seed.write(w);
            self.agreement.write(w);
            w.bytes(&self.stream);
        })
    }

    /// Reads a file made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be. Ciphertexts are not
    /// checked yet.
    pub fn from_bytes(bytes: &'a [u8], key: &PublicKey) -> Result<Self, Error> {
        Self::from_frame(&frame::open(bytes, Kind::Contribution, key)?)
    }

    /// The same, of bytes that it need not outlive.
    #[must_use]
    pub fn into_owned(self) -> Contribution<'static> {
        let Self { seed, agreement, stream } = self;
        Contribution { seed, agreement, stream: stream.into_owned().into() }
    }

    /// Reads a frame under whatever key.
    ///
    /// # Errors
    /// Its kind or body is not as it should be.
    pub fn from_frame(frame: &Frame<'a>) -> Result<Self, Error> {
        frame.check_kind(Kind::Contribution)?;
        let (mut r, parameters) = (Reader(frame.body), frame.parameters()?);
        let seed = Seed::read(&mut r)?;
        let agreement = Agreement::read(&mut r)?;
        if r.0.len() != parameters.chunks(agreement.values()).total_bytes() {
            return Err(WRONG_LENGTH.into());
        }
        Ok(Self { seed, agreement, stream: r.0.into() })
    }
}

/// The sum of several contributions.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    /// Who contributed.
    pub contributors: Vec<Seed>,
    /// What they share.
    pub agreement: Agreement,
    /// For each chunk, which of the contributors it holds.
    pub sets: Vec<ContributorSet>,
    /// The chunks' wire bytes.
    pub stream: Vec<u8>,
}

impl Sum {
    /// Sums whole contributions given one by one, so that only one need be in memory.
    ///
    /// `name` says which one an error is about.
    ///
    /// # Errors
    /// More than the key admits, none at all, the same one twice, other tensors or ranges than the
    /// first, or what is no ciphertext. The offender is named.
    pub fn of<'a, N: ToString>(
        key: &PublicKey,
        engine: Arc<dyn Engine>,
        contributions: impl IntoIterator<Item = (N, Result<Contribution<'a>, Error>)>,
    ) -> Result<Self, Error> {
        let mut sum: Option<(Accumulator, Agreement)> = None;
        let (mut contributors, mut distinct) = (vec![], Distinct::default());
        for (name, contribution) in contributions {
            let add = || -> Result<(), Error> {
                let c = contribution?;
                let (found, chunks) =
                    (c.stream.len(), key.parameters().chunks(c.agreement.values()));
                // Before anything is allocated: an agreement can claim any number of values.
                if found != chunks.total_bytes() {
                    let fault = CiphertextFault::Length { found, expected: chunks.total_bytes() };
                    return Err(Error::Ciphertext { chunk: 0, fault });
                }
                let (accumulator, agreement) = sum.get_or_insert_with(|| {
                    let values = c.agreement.values();
                    (Accumulator::new(key, engine.clone(), values), c.agreement.clone())
                });
                c.agreement.check_same(agreement)?;
                distinct.add(c.seed)?;
                let admitted = key.parameters().clients() as usize;
                if contributors.len() == admitted {
                    return Err(Error::TooManyContributors { found: admitted + 1, admitted });
                }
                accumulator.add_stream(&c.stream)?;
                contributors.push(c.seed);
                Ok(())
            };
            add().map_err(|e| e.within(name))?;
        }
        let (accumulator, agreement) = sum.ok_or(Error::NothingToSum)?;
        let all = ContributorSet::all(contributors.len());
        let sets = vec![all; accumulator.chunks().count() as usize];
        Ok(Self { contributors, agreement, sets, stream: accumulator.into_stream()? })
    }

    /// Refuses a sum whose parts do not fit together, however it was made.
    pub(crate) fn check(&self, chunks: &Chunks) -> Result<(), Error> {
        Distinct::check(self.contributors.iter().copied())?;
        let known = |set: &ContributorSet| set.iter().all(|i| i < self.contributors.len());
        let whole = self.sets.len() == chunks.count() as usize
            && self.stream.len() == chunks.total_bytes()
            && self.sets.iter().all(known);
        if !whole {
            return Err(WRONG_LENGTH.into());
        }
        if let Some(chunk) = self.sets.iter().position(|set| set.count() == 0) {
            return Err(Error::Inconsistent { chunk: chunk as u32, contributors: 0 });
        }
        for (set, chunk) in self.sets.iter().zip(0..) {
            let Range { start, end } = chunks.opening_with(chunk);
            if *set != self.sets[start as usize] {
                return Err(Error::MixedContributors { start, end });
            }
        }
        Ok(())
    }

    /// Checks all that can be checked without the secret key, as [`OpenedSum::open`](crate::OpenedSum::open)
    /// does: that the parts fit together, and that every ciphertext is one. Not that the sum is what its
    /// contributors sent.
    ///
    /// # Errors
    /// The first fault, with its chunk; the engine's.
    pub fn verify(&self, key: &PublicKey, engine: &dyn Engine) -> Result<(), Error> {
        let chunks = key.parameters().chunks(self.agreement.values());
        self.check(&chunks)?;
        check_stream(key, engine, &chunks, &self.stream)
    }

    /// The fewest contributors of any chunk.
    #[must_use]
    pub fn fewest_contributors(&self) -> usize {
        self.sets.iter().map(ContributorSet::count).min().unwrap_or(0)
    }

    /// The file's bytes. Runs of chunks with the same contributors are stored once.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        frame::seal(Kind::Sum, key, self.stream.len() + 4096, |w| {
            w.u32(self.contributors.len() as u32);
            self.contributors.iter().for_each(|seed| seed.write(w));
            self.agreement.write(w);
            let runs: Vec<_> = self.sets.chunk_by(|a, b| a == b).collect();
            w.u32(runs.len() as u32);
            for run in runs {
                w.u32(run.len() as u32);
                run[0].write(w);
            }
            w.bytes(&self.stream);
        })
    }

    /// Reads a file made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be, or it lists more
    /// contributors than the key admits. Ciphertexts are not checked yet.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        Self::from_frame(&frame::open(bytes, Kind::Sum, key)?)
    }

    /// Reads a frame under whatever key.
    ///
    /// # Errors
    /// Its kind or body is not as it should be.
    pub fn from_frame(frame: &Frame<'_>) -> Result<Self, Error> {
        frame.check_kind(Kind::Sum)?;
        let (mut r, parameters) = (Reader(frame.body), frame.parameters()?);
        let (found, admitted) = (r.u32()? as usize, parameters.clients() as usize);
        if found > admitted {
            return Err(Error::TooManyContributors { found, admitted });
        }
        let contributors = (0..found).map(|_| Seed::read(&mut r)).collect::<Result<Vec<_>, _>>()?;
        Distinct::check(contributors.iter().copied())?;
        let agreement = Agreement::read(&mut r)?;
        let chunks = parameters.chunks(agreement.values());
        let (count, total) = (chunks.count() as usize, chunks.total_bytes());
        // Before anything is allocated for so many chunks: the stream itself must be there.
        if r.0.len() < total {
            return Err(WRONG_LENGTH.into());
        }
        let mut sets = vec![];
        for _ in 0..r.u32()? {
            let run = r.u32()? as usize;
            let set = ContributorSet::read(&mut r, found)?;
            if run == 0 || run > count - sets.len() {
                return Err(
                    FrameError::Malformed { what: "more chunks than the tensors need" }.into()
                );
            }
            sets.resize(sets.len() + run, set);
        }
        if sets.len() != count || r.0.len() != total {
            return Err(WRONG_LENGTH.into());
        }
        Ok(Self { contributors, agreement, sets, stream: r.0.to_vec() })
    }
}
