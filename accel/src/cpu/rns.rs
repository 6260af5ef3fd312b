//! Polynomials in residue number system form, and beats: the steps over them.
//!
//! Processors differ in one trait, [`Rns`]: loops over the residues of one prime.
//! Nothing here branches, indexes or divides by a residue but where seeds are public.

mod loops;
pub(super) mod sampling;
mod tables;

use std::sync::Arc;

use crate::{
    beats,
    derived::Derived,
    interpret::Arg,
    program::{
        BaseExtension, Kind, LaneOp, LaneStep, LimbOp, LimbStep, MAX_TERMS, RingOp, RingStep,
    },
    ring::{MAX_PRIMES, Ring, subtract_once},
};
pub(super) use loops::Rns;
use tables::Primes;
pub(super) use tables::{
    DoubleFactor, DoubleFactors, Factor, IntegerFactors, Limb, Tables, WeightRow, mul_lazy,
};

/// Blocks of a stream that are made at once.
pub(crate) const BLOCKS: usize = 16;
/// Their words.
pub(crate) const STREAM_WORDS: usize = BLOCKS * beats::WORDS;
/// Their lanes: a run of draws. See `Builder::uniform`.
pub(crate) const RUN: usize = BLOCKS * beats::LANES;
/// Draws that are added before they are reduced: sums are below `2^5 · 2^50`.
pub(super) const TOGETHER: usize = 16;

/// Returns the bits that a number below q has.
pub(super) fn mask(q: u64) -> u64 {
    u64::MAX >> q.leading_zeros()
}

/// Which of some primes the next beat starts with, which is ten lanes further on.
pub(super) struct Phase {
    prime: usize,
    /// Ten modulo their number: a division for each beat would take longer than the beat.
    step: usize,
    primes: usize,
}

impl Phase {
    pub(super) fn new(primes: usize) -> Self {
        Self { prime: 0, step: beats::LANES % primes, primes }
    }

    /// Returns the prime of the next beat.
    #[inline]
    pub(super) fn next(&mut self) -> usize {
        let prime = self.prime;
        let next = prime + self.step;
        self.prime = if next >= self.primes { next - self.primes } else { next };
        prime
    }
}

/// Returns the four quarters of a block of a transform.
#[inline]
pub(super) fn quarters<T>(block: &mut [T]) -> [&mut [T]; 4] {
    let quarter = block.len() / 4;
    let (low, high) = block.split_at_mut(2 * quarter);
    let ((a, b), (c, d)) = (low.split_at_mut(quarter), high.split_at_mut(quarter));
    [a, b, c, d]
}

/// Integers that are lifted at a time.
pub(super) const LIFTED: usize = 64;

/// Coefficients that are packed or unpacked at a time: whole beats for any number of primes.
const TILE: usize = 80;

/// Computes coefficients of `a(X^g)`, in which `X^N = −1`.
fn turn_coefficients(out: &mut [u64], a: &[u64], g: usize, q: u64) {
    let n = a.len();
    for (i, &x) in a.iter().enumerate() {
        let power = (i * g) & (2 * n - 1);
        out[power & (n - 1)] = if power < n { x } else { subtract_once(q - x, q) };
    }
}

/// Where values of `a(X^g)` come from: at ψ^e stands that of `a` at ψ^(e·g).
///
/// Place `8k + r` has the exponent `2·brv(k) + 1 + brv₃(r)·N/4`, `brv(k)` of the bits that k has.
/// Times g, the lowest bits are the same for all r: the eight values of a group stay together,
/// and change places with each other as the highest three bits say.
pub(super) struct Turn {
    g: usize,
}

impl Turn {
    /// Returns, for each way in which eight values change places, where each comes from.
    pub(super) fn places(&self) -> [[u8; 8]; 8] {
        PLACES[self.g / 2 % 4]
    }

    /// Calls `f` for each group of n values: where it goes, where it comes from, and in which way
    /// its values change places.
    #[inline(always)]
    pub(super) fn each_group(&self, n: usize, mut f: impl FnMut(usize, usize, usize)) {
        let g = self.g;
        let groups = n / 8;
        let bits = groups.trailing_zeros();
        let reversed = |k: usize| k.reverse_bits() >> (usize::BITS - bits);
        // One after the other where they go: memory is better read than written out of order.
        for place in 0..groups {
            let power = ((2 * reversed(place) + 1) * g / 2) & (n - 1);
            f(place, reversed(power & (groups - 1)), power >> bits);
        }
    }
}

/// For `g mod 8` and the highest three bits, where each of eight values comes from.
const PLACES: [[[u8; 8]; 8]; 4] = {
    const REVERSED: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];
    let mut places = [[[0; 8]; 8]; 4];
    let mut i = 0;
    while i < 4 * 8 * 8 {
        let (g, turn, r) = (2 * (i / 64) + 1, i / 8 % 8, i % 8);
        places[i / 64][turn][r] = REVERSED[(turn + g * REVERSED[r]) % 8] as u8;
        i += 1;
    }
    places
};

/// The steps over polynomials and beats on one kind of processor.
pub(super) struct RnsSteps<B> {
    backend: B,
    primes: Primes,
    tables: Derived<Ring, Tables>,
    extensions: Derived<BaseExtension, Vec<WeightRow>>,
}

impl<B: Rns> RnsSteps<B> {
    pub(super) fn new(backend: B) -> Self {
        let (primes, tables) = (Primes::default(), Derived::default());
        Self { backend, primes, tables, extensions: Derived::default() }
    }

    /// Lets go of the tables of rings and extensions that are gone.
    pub(super) fn sweep(&self) {
        self.tables.sweep();
        self.extensions.sweep();
    }

    fn tables(&self, ring: &Arc<Ring>) -> Arc<Tables> {
        self.tables.get(ring, |ring| Tables::new(ring, &self.primes, B::QUOTIENT_BITS))
    }

    /// Runs a step over the residues of one prime.
    pub(super) fn run_of_prime(
        &self,
        step: &LimbStep,
        limb: usize,
        out: &mut [u64],
        args: &[&[u64]],
    ) {
        let (backend, tables, a) = (self.backend, self.tables(&step.ring), args[0]);
        let of = &tables.limbs()[limb];
        match &step.op {
            LimbOp::Add => backend.add(out, a, args[1], of.q()),
            LimbOp::Sub => backend.sub(out, a, args[1], of.q()),
            LimbOp::Mul => backend.mul(out, a, args[1], of),
            LimbOp::MulSum => {
                let (a, b) = args.split_at(args.len() / 2);
                let mut pairs = [[&[][..]; 2]; MAX_TERMS];
                pairs.iter_mut().zip(a.iter().zip(b)).for_each(|(pair, (a, b))| *pair = [a, b]);
                backend.mul_sum(out, &pairs[..a.len()], of);
            }
            LimbOp::Scale { factors } => {
                let factor = of.factor(factors.words()[limb]);
                backend.scale(out, a, of.q(), factor);
            }
            LimbOp::Ntt => backend.forward(out, a, of),
            LimbOp::Intt => backend.inverse(out, a, of),
            &LimbOp::Automorphism { element } if step.ntt => {
                backend.turn_values(out, a, &Turn { g: element as usize })
            }
            &LimbOp::Automorphism { element } => {
                turn_coefficients(out, a, element as usize, of.q())
            }
            &LimbOp::Lift { signed } => backend.lift(out, a, of, signed),
            LimbOp::Limbs { .. } | LimbOp::JoinLimbs => out.copy_from_slice(a),
        }
    }

    /// Runs a step over lanes. Items follow each other as if they were one, if each ends with a whole coefficient.
    pub(super) fn run_lanes(
        &self,
        step: &LaneStep,
        kind: &Kind,
        out: &mut [u64],
        args: &[Arg<'_>],
    ) {
        let LaneStep { op, ring, count } = step;
        let primes = ring.primes();
        let run = |out: &mut [u64], a: &[u64], b: &[u64]| match op {
            LaneOp::AddBeats => self.backend.add_beats(out, a, b, primes),
            LaneOp::FirstBadLane => self.backend.first_bad_lanes(out, a, primes),
            LaneOp::AddLanes => self.backend.add_lanes(out, a, ring.lane_primes()),
            LaneOp::ReduceLanes => beats::reduce_lanes(out, a, ring.primes()),
        };
        let second = args.get(1).unwrap_or(&args[0]);
        // Items of lanes end with a word that is none.
        let is_of_lanes = matches!(op, LaneOp::AddLanes | LaneOp::ReduceLanes);
        let is_aligned = !is_of_lanes && (count * beats::LANES).is_multiple_of(primes.len());
        if is_aligned && args.iter().all(|arg| !arg.is_shared()) {
            return run(out, args[0].words(), second.words());
        }
        for (index, out) in out.chunks_mut(kind.words()).enumerate() {
            run(out, args[0].item(index), second.item(index));
        }
    }

    /// Runs a step over whole polynomials.
    pub(super) fn run(&self, step: &RingStep, kind: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        let RingStep { op, ring } = step;
        let (backend, tables) = (self.backend, self.tables(ring));
        for (index, out) in out.chunks_mut(kind.words()).enumerate() {
            let a = args[0].item(index);
            // Which polynomial of a seed.
            let number = || args[1].item(index)[0];
            match op {
                RingOp::Uniform => sampling::uniform(backend, ring, out, a, number()),
                RingOp::Noise => sampling::small(backend, sampling::noise, ring, out, a, number()),
                RingOp::Ternary => {
                    sampling::small(backend, sampling::ternary, ring, out, a, number())
                }
                RingOp::Compose => backend.compose(out, a, &tables),
                &RingOp::Lift { signed, .. } => backend.lift_all(out, a, &tables, signed),
                RingOp::BaseExtend { extension, .. } => {
                    let rows = self.extensions.get(extension, |extension| {
                        extension
                            .rows()
                            .iter()
                            .map(|row| WeightRow::new(row, B::QUOTIENT_BITS))
                            .collect()
                    });
                    backend.base_extend(out, a, &tables, &rows);
                }
                RingOp::Pack => self.pack(ring, out, a),
                RingOp::Unpack => self.unpack(ring, out, a),
            }
        }
    }

    /// Residues lie limb by limb in polynomials, coefficient by coefficient in beats: a tile of
    /// them is turned, and packed from there.
    fn pack(&self, ring: &Ring, out: &mut [u64], poly: &[u64]) {
        let (n, limbs) = (ring.degree(), ring.primes().len());
        let mut lanes = [0; TILE * MAX_PRIMES + beats::LANES];
        let tiles = out.chunks_mut(TILE * limbs / beats::LANES * beats::WORDS);
        for (index, beats) in tiles.enumerate() {
            let first = n.min(index * TILE);
            let held = TILE.min(n - first);
            // Past the end of the polynomial there is nothing.
            let needed = beats.len() / beats::WORDS * beats::LANES;
            if let Some(past) = lanes.get_mut(held * limbs..needed) {
                past.fill(0);
            }
            for limb in 0..limbs {
                let residues = &poly[limb * n + first..][..held];
                let turned = lanes[limb..].iter_mut().step_by(limbs);
                turned.zip(residues).for_each(|(lane, &residue)| *lane = residue);
            }
            self.backend.pack(beats, &lanes);
        }
    }

    fn unpack(&self, ring: &Ring, out: &mut [u64], words: &[u64]) {
        let (n, limbs) = (ring.degree(), ring.primes().len());
        let mut lanes = [0; TILE * MAX_PRIMES + beats::LANES];
        // What the beats do not hold is zero; a coefficient that they hold in part is written over.
        let held = words.len() / beats::WORDS * beats::LANES / limbs;
        out.chunks_exact_mut(n).for_each(|residues| residues[n.min(held)..].fill(0));
        for (index, beats) in words.chunks(TILE * limbs / beats::LANES * beats::WORDS).enumerate() {
            let first = n.min(index * TILE);
            self.backend.unpack(&mut lanes, beats);
            let count = beats.len() / beats::WORDS * beats::LANES;
            for limb in 0..limbs {
                let turned = lanes[..count].iter().skip(limb).step_by(limbs);
                let residues = &mut out[limb * n + first..(limb + 1) * n];
                residues.iter_mut().zip(turned).for_each(|(residue, &lane)| *residue = lane);
            }
        }
    }
}
