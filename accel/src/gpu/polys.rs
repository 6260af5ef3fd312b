//! The steps over polynomials and beats, as dispatches.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::{
    GpuEngine,
    constants::filled,
    device::GpuDevice,
    memory::ResidentBuffer,
    record::{Bindings, GpuRecorder},
    shaders::{MAX_ROUNDS, OverRings, RingParams},
};
use crate::{
    beats,
    cpu::{BLOCKS, RUN},
    device::{Applied, Buffer, DeviceValue, HostWords},
    engine::DeviceFault,
    modulus::inverse_mod_word,
    program::{BaseExtension, ExtensionRow, Kind, LaneStep, LimbOp, LimbStep, RingOp, RingStep},
    ring::{Ring, mul_mod_vartime, pow_mod_vartime},
};

/// log2 of the residues that workgroup memory holds.
const LOG_TILE: u32 = 10;

/// Bits of a piece of a residue: see `tile.wgsl`.
const PIECE_BITS: u32 = 30;

/// The most rounds of loops for the draws of one block, where each is drawn a second time.
const ROUNDS_PER_BLOCK: u32 = 300;

/// The constants of a ring, as kernels read them. All public.
pub(crate) struct RingConstants {
    memory: Arc<ResidentBuffer>,
}

impl RingConstants {
    pub(crate) fn new(device: &Arc<GpuDevice>, ring: &Ring) -> Result<Self, DeviceFault> {
        let (n, primes) = (ring.degree() as u64, ring.primes());
        let inverse = |x: u64, q: u64| pow_mod_vartime(x % q, q - 2, q);
        let mut words = Vec::with_capacity(8 * primes.len() + 4 * ring.len_words());
        for &q in primes {
            words.extend([q, inverse_mod_word(q).wrapping_neg()]);
            let radix = ((1u128 << 64) % u128::from(q)) as u64;
            words.extend([radix, 1].map(|w| factor(w, q)).as_flattened());
            words.extend(radices(q).map(|radix| piecewise(inverse(n, q), radix, q)));
        }
        for (&q, &root) in primes.iter().zip(ring.roots()) {
            for (root, first) in [(root, 1), (inverse(root, q), inverse(n, q))] {
                let mut factors: Vec<_> = bit_reversed_powers(root, q, n).collect();
                // Of the inverse transform the last stage has one.
                factors[1] = mul_mod_vartime(factors[1], first, q);
                for radix in radices(q) {
                    words.extend(factors.iter().map(|&w| piecewise(w, radix, q)));
                }
            }
        }
        for (j, &q) in primes.iter().enumerate() {
            let of =
                |(i, &p): (usize, &u64)| if i == j { [0; 2] } else { factor(inverse(p, q), q) };
            words.extend(primes.iter().enumerate().flat_map(of));
        }
        Ok(Self { memory: filled(device, &words)? })
    }
}

/// Returns a factor modulo q, and its quotient: see `ring.wgsl`.
fn factor(w: u64, q: u64) -> [u64; 2] {
    [w, ((u128::from(w) << 64) / u128::from(q)) as u64]
}

/// Returns the constants of an extension, as `base_extend.wgsl` reads them.
fn extension_words(extension: &BaseExtension) -> Vec<u64> {
    let words = |row: &ExtensionRow| {
        let weights = row.weights.iter().flat_map(|&w| factor(w, row.prime));
        [row.prime, row.shift].into_iter().chain(weights).collect::<Vec<_>>()
    };
    extension.rows().iter().flat_map(words).collect()
}

/// Returns the radices by which the two numbers of a factor of transforms are multiplied.
fn radices(q: u64) -> [u64; 2] {
    [1, 2].map(|pieces| (1 << (PIECE_BITS * pieces)) % q)
}

/// `w · radix mod q` in pieces, each in 32 bits.
fn piecewise(w: u64, radix: u64, q: u64) -> u64 {
    let w = mul_mod_vartime(w, radix, q);
    ((w >> PIECE_BITS) << 32) | (w & ((1 << PIECE_BITS) - 1))
}

/// `root^brv(i)` for all i below n, `brv` over log2 n bits.
fn bit_reversed_powers(root: u64, q: u64, n: u64) -> impl Iterator<Item = u64> {
    let next = move |&x: &u64| Some(mul_mod_vartime(x, root, q));
    let powers: Vec<u64> = std::iter::successors(Some(1), next).take(n as usize).collect();
    (0..n).map(move |i| powers[(i.reverse_bits() >> (n.leading_zeros() + 1)) as usize])
}

/// Buffers and parameters that the dispatches of one step share.
struct Over {
    constants: Buffer,
    params: RingParams,
}

impl Over {
    fn record(
        &self,
        recorder: &mut GpuRecorder<'_>,
        kernel: OverRings,
        count: u32,
        [a, b, out]: [Buffer; 3],
    ) {
        let bindings = Bindings { constants: self.constants, a, b, out, state: None };
        let params = RingParams { count, ..self.params };
        recorder.over_rings(kernel, count, &bindings, params);
    }
}

impl GpuEngine {
    /// Returns what dispatches over the polynomials of a ring have in common.
    fn over(
        &self,
        recorder: &mut GpuRecorder<'_>,
        ring: &Arc<Ring>,
        args: &[DeviceValue<'_>],
    ) -> Result<Over, DeviceFault> {
        let constants = self.ring(ring)?;
        let (a, b) = (&args[0], args.get(1).unwrap_or(&args[0]));
        let params = RingParams {
            log_degree: ring.degree().trailing_zeros(),
            limbs: ring.primes().len() as u32,
            a_stride: a.stride() / 2,
            b_stride: b.stride() / 2,
            ..RingParams::default()
        };
        Ok(Over { constants: recorder.resident(&constants.memory), params })
    }

    /// Records a step that treats each prime apart.
    pub(super) fn limb_step(
        &self,
        recorder: &mut GpuRecorder<'_>,
        step: &LimbStep,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { out, args, count } = applied;
        let LimbStep { op, ring, ntt } = step;
        let over = self.over(recorder, ring, args)?;
        let params = over.params;
        let (a, b) = (&args[0], args.get(1).unwrap_or(&args[0]));
        let buffers = [a.buffer, b.buffer, out.buffer];
        // Numbers of 64 bits of the result.
        let numbers = count * out.words() / 2;
        let mut each = |kernel| over.record(recorder, kernel, numbers, buffers);
        match op {
            LimbOp::Add => each(OverRings::PolyAdd),
            LimbOp::Sub => each(OverRings::PolySub),
            LimbOp::Mul => each(OverRings::PolyMul),
            LimbOp::Lift { signed } => lift(recorder, &over, (1, *signed), numbers, buffers),
            LimbOp::Scale { factors } => {
                let pairs = factors.words().iter().zip(ring.primes());
                let words: Vec<u64> = pairs.flat_map(|(&w, &q)| factor(w, q)).collect();
                let factors = recorder.constant(HostWords::Owned(Zeroizing::new(words)));
                over.record(recorder, OverRings::Scale, numbers, [a.buffer, factors, out.buffer]);
            }
            LimbOp::Limbs { .. } | LimbOp::JoinLimbs => {
                pick_limbs(recorder, &over, ring, args, out.buffer, numbers);
            }
            LimbOp::MulSum => {
                let (first, second) = args.split_at(args.len() / 2);
                for (index, (a, b)) in first.iter().zip(second).enumerate() {
                    let params = RingParams {
                        a_stride: a.stride() / 2,
                        b_stride: b.stride() / 2,
                        words: (index > 0).into(),
                        ..params
                    };
                    let buffers = [a.buffer, b.buffer, out.buffer];
                    Over { params, ..over }.record(recorder, OverRings::PolyMul, numbers, buffers);
                }
            }
            LimbOp::Automorphism { element } => {
                let (words, stages) = match ntt {
                    true => (*element, params.log_degree),
                    // Where a coefficient of the result comes from.
                    false => (inverse_mod_word(u64::from(*element)) as u32, 0),
                };
                let over = Over { params: RingParams { words, stages, ..params }, ..over };
                over.record(recorder, OverRings::Automorphism, numbers, buffers);
            }
            LimbOp::Ntt => transform(recorder, OverRings::Ntt, &over, a, out, numbers),
            LimbOp::Intt => transform(recorder, OverRings::Intt, &over, a, out, numbers),
        }
        Ok(())
    }

    /// Records a step over whole polynomials.
    pub(super) fn ring_step(
        &self,
        recorder: &mut GpuRecorder<'_>,
        step: &RingStep,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { out, args, count } = applied;
        let mut over = self.over(recorder, &step.ring, args)?;
        let (a, b) = (&args[0], args.get(1).unwrap_or(&args[0]));
        let buffers = [a.buffer, b.buffer, out.buffer];
        let (numbers, coefficients) = (count * out.words() / 2, count << over.params.log_degree);
        let beats = |view: &DeviceValue<'_>| view.words() / 2 / beats::WORDS as u32;
        match &step.op {
            RingOp::Uniform => {
                over.params.words = seeds(a);
                uniform(recorder, &over, buffers, count);
            }
            RingOp::Noise => {
                over.params.words = seeds(a);
                over.record(recorder, OverRings::Noise, coefficients >> 3, buffers);
            }
            RingOp::Ternary => {
                over.params.words = seeds(a);
                over.record(recorder, OverRings::Ternary, coefficients >> 3, buffers);
            }
            RingOp::Lift { words_each, signed } => {
                lift(recorder, &over, (*words_each as u32, *signed), numbers, buffers);
            }
            RingOp::Compose => over.record(recorder, OverRings::Compose, coefficients, buffers),
            RingOp::BaseExtend { extension, .. } => {
                over.params.words = extension.rows().len() as u32;
                let words = HostWords::Owned(Zeroizing::new(extension_words(extension)));
                let buffers = [a.buffer, recorder.constant(words), out.buffer];
                over.record(recorder, OverRings::BaseExtend, coefficients, buffers);
            }
            RingOp::Pack => {
                over.params.beats = beats(out);
                over.record(recorder, OverRings::Pack, numbers, buffers);
            }
            RingOp::Unpack => {
                over.params.beats = beats(a);
                over.record(recorder, OverRings::Unpack, numbers, buffers);
            }
        }
        Ok(())
    }

    /// Records sums of beats.
    pub(super) fn add_beats(
        &self,
        recorder: &mut GpuRecorder<'_>,
        step: &LaneStep,
        Applied { out, args, count }: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let mut over = self.over(recorder, &step.ring, args)?;
        over.params.beats = step.count as u32;
        let buffers = [args[0].buffer, args[1].buffer, out.buffer];
        over.record(recorder, OverRings::AddBeats, count * out.words() / 2, buffers);
        Ok(())
    }
}

/// Returns the keys of an item of seeds.
fn seeds(view: &DeviceValue<'_>) -> u32 {
    view.words() / 8
}

/// Records integers of so many words as residues.
fn lift(
    recorder: &mut GpuRecorder<'_>,
    over: &Over,
    (words, signed): (u32, bool),
    numbers: u32,
    buffers: [Buffer; 3],
) {
    let params = RingParams { words, stages: signed.into(), ..over.params };
    Over { params, ..*over }.record(recorder, OverRings::Lift, numbers, buffers);
}

/// Records where the residues of each prime come from, and that they go there.
fn pick_limbs(
    recorder: &mut GpuRecorder<'_>,
    over: &Over,
    ring: &Ring,
    args: &[DeviceValue<'_>],
    out: Buffer,
    numbers: u32,
) {
    let source = |q: &u64| {
        let place = |arg: &DeviceValue<'_>| match arg.kind {
            Kind::Polys { ring, .. } => ring.primes().iter().position(|p| p == q),
            _ => None,
        };
        let found = args.iter().map(place).enumerate().find(|(_, place)| place.is_some());
        found.and_then(|(operand, place)| Some(operand as u64 | (place? as u64) << 32))
    };
    let sources = ring.primes().iter().filter_map(source).collect();
    let constants = recorder.constant(HostWords::Owned(Zeroizing::new(sources)));
    let (a, b) = (args[0].buffer, args.last().map_or(args[0].buffer, |b| b.buffer));
    Over { constants, ..*over }.record(recorder, OverRings::Limbs, numbers, [a, b, out]);
}

/// Records draws, a block of the stream a thread: some seeds to a dispatch.
fn uniform(recorder: &mut GpuRecorder<'_>, over: &Over, buffers: [Buffer; 3], count: u32) {
    let RingParams { limbs, log_degree, words, .. } = over.params;
    let blocks = (limbs << log_degree).div_ceil(RUN as u32) * BLOCKS as u32;
    let seeds_at_once = MAX_ROUNDS / ROUNDS_PER_BLOCK;
    for first_seed in (0..words).step_by(seeds_at_once as usize) {
        let words = seeds_at_once.min(words - first_seed);
        let over = Over { params: RingParams { words, first_seed, ..over.params }, ..*over };
        over.record(recorder, OverRings::Uniform, count * blocks, buffers);
    }
}

/// Records a transform by its kernel in one pass or two, `numbers` residues in all.
fn transform(
    recorder: &mut GpuRecorder<'_>,
    kernel: OverRings,
    over: &Over,
    a: &DeviceValue<'_>,
    out: &DeviceValue<'_>,
    numbers: u32,
) {
    let log_degree = over.params.log_degree;
    let spread = a.shared.then(|| {
        // a + 0 for each item.
        let spread = recorder.buffer(2 * numbers as usize);
        let zero = recorder.zeros(a.words() as usize);
        over.record(recorder, OverRings::PolyAdd, numbers, [a.buffer, zero, spread]);
        spread
    });
    let a = spread.unwrap_or(a.buffer);
    // The outer stages join residues that are far apart, and take neighbours along.
    let outer = log_degree.saturating_sub(LOG_TILE);
    let inner = RingParams { first_stage: outer, stages: log_degree - outer, ..over.params };
    let outer = RingParams { stages: outer, log_columns: LOG_TILE - outer, ..over.params };
    let passes = if kernel == OverRings::Ntt { [outer, inner] } else { [inner, outer] };
    let passes: Vec<_> = passes.into_iter().filter(|pass| pass.stages > 0).collect();
    let between = recorder.buffer(if passes.len() > 1 { 2 * numbers as usize } else { 1 });
    let last = passes.len() - 1;
    for (index, pass) in passes.into_iter().enumerate() {
        let from = if index == 0 { a } else { between };
        let to = if index == last { out.buffer } else { between };
        let tiles = numbers >> (pass.stages + pass.log_columns);
        let over = Over { params: pass, ..*over };
        over.record(recorder, kernel, tiles, [from, from, to]);
    }
}

const _: () = assert!(beats::WORDS == 8 && beats::LANES == 10 && beats::LANE_BITS == 51);
