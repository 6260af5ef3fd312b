//! The products of a recording, in the unit of `limit`: those of two numbers of 32 bits, of 64 bits
//! each. Products of which only 32 bits are wanted are left out, and those of teams past the last
//! item; so is the one by which a thread finds two digits of a quotient at once.

use super::{
    record::{Dispatch, GpuRecording, KernelWork},
    shaders::{Kernel, OverNumbers, OverRings, Params, RingParams, Shape},
};

/// Products of functions of `ring.wgsl` and of `times` of `tile.wgsl`. The low half of a product of
/// 64 bits has one.
const MUL_HIGH: u64 = 4;
const MUL_FACTOR: u64 = MUL_HIGH + 2;
const REDUCED: u64 = MUL_HIGH + 1;
const TIMES: u64 = 6;

/// Counts the products of all dispatches of a recording.
pub(super) fn of(recording: &GpuRecording<'_>) -> u64 {
    let of_dispatch = |dispatch: &Dispatch| match &dispatch.work {
        KernelWork::Numbers { kernel, shape, params } => of_numbers(*kernel, *shape, params),
        KernelWork::Words { .. } => 0,
        KernelWork::Rings { kernel, params } => of_rings(*kernel, params),
    };
    recording.dispatches().map(of_dispatch).sum()
}

/// Counts the products of one product modulo m of `limbs` limbs: for each limb of a factor those by
/// all limbs of the other and of m.
fn of_product(limbs: u64) -> u64 {
    2 * limbs * limbs
}

/// Returns the same of a pair, over `of_factor` limbs of a factor.
fn of_pair(limbs: u64, of_factor: u64, is_square: bool) -> u64 {
    (if is_square { 4 } else { 5 }) * limbs * of_factor
}

fn of_numbers(kernel: OverNumbers, shape: Shape, params: &Params) -> u64 {
    let &Params { count, rows, windows, width, flag, from_round, to_round, .. } = params;
    let limbs = u64::from(shape.total());
    let [product, rows_of] = [of_product(limbs), u64::from(rows)];
    let is_pair = Kernel::from(kernel).digits() == 2;
    let of_residue = |is_square| match is_pair {
        true => of_pair(limbs, limbs + 2, is_square),
        false => product,
    };
    let each = match kernel {
        OverNumbers::MontMul => (1 + u64::from(flag)) * product,
        OverNumbers::Product => u64::from(to_round - from_round) * product,
        OverNumbers::Table | OverNumbers::PairTable => (1 + (1 << width)) * of_residue(false),
        OverNumbers::Pow | OverNumbers::PairPow => {
            let last = windows * (width + rows);
            let is_square = |round: u32| round != last && round % (width + rows) < width;
            (from_round..to_round).map(|round| of_residue(is_square(round))).sum()
        }
        OverNumbers::PairMul => of_pair(limbs, limbs, false),
        OverNumbers::Reduce => (1 + 2 * rows_of) * product,
        OverNumbers::Divide | OverNumbers::Linear => product,
        OverNumbers::ResiduesSum => 2 * product,
        // Sums of three products: four of a round, three in the end.
        OverNumbers::Invert => (4 * rows_of + 3) * 3 * limbs,
    };
    u64::from(count) * each
}

fn of_rings(kernel: OverRings, params: &RingParams) -> u64 {
    let &RingParams { count, limbs, first_stage, stages, log_columns, words, .. } = params;
    let (limbs, words) = (u64::from(limbs), u64::from(words));
    let residues = 1 << (stages + log_columns);
    let butterflies = residues / 2 * u64::from(stages) * TIMES;
    let each = match kernel {
        OverRings::PolyMul => 2 + 2 * MUL_HIGH + MUL_FACTOR,
        OverRings::Scale => MUL_FACTOR,
        OverRings::Lift => 2 * words * MUL_FACTOR + REDUCED,
        // Digits take two for each prime before theirs; then, for each prime, 2L words of 32 bits
        // are times both halves of it.
        OverRings::Compose => limbs * (limbs - 1) * MUL_FACTOR + 4 * limbs * limbs,
        OverRings::BaseExtend => limbs * (limbs - 1 + words) * MUL_FACTOR,
        OverRings::Ntt if log_columns == 0 => butterflies + residues * REDUCED,
        OverRings::Ntt => butterflies,
        // The last stage of all multiplies its sums too.
        OverRings::Intt if first_stage == 0 => butterflies + residues / 2 * TIMES,
        OverRings::Intt => butterflies + residues * REDUCED,
        OverRings::Limit => 8 * words,
        OverRings::PolyAdd | OverRings::PolySub | OverRings::Limbs => 0,
        OverRings::Pack | OverRings::Unpack | OverRings::AddBeats => 0,
        OverRings::Noise | OverRings::Ternary | OverRings::Uniform | OverRings::Automorphism => 0,
    };
    u64::from(count) * each
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{
        Builder, Measure as _, Modulus, Operand, Program, Ring, Secret, gpu::tests::present,
        ring::largest_primes,
    };

    /// Counts the products of a program over inputs of these words, and one output; none without an adapter.
    fn counted(program: &Program, inputs: &[usize], output: usize) -> Option<u64> {
        let words: Vec<_> = inputs.iter().map(|&words| vec![1; words]).collect();
        let mut out = vec![0; output];
        let mut operands: Vec<_> = words.iter().map(|words| Operand::SecretIn(words)).collect();
        operands.push(Operand::Out(&mut out));
        Some(present()?.multiplies(program, &operands).unwrap())
    }

    fn modulus(words: usize) -> Arc<Modulus> {
        Arc::new(Modulus::new("m", &vec![u64::MAX; words]).unwrap())
    }

    /// 4096 bits are 144 limbs of 29.
    #[test]
    fn products_of_numbers() {
        let m = modulus(64);
        let mut b = Builder::new("products");
        let (x, y) = (b.residues("x", &m), b.shared_residues("y", &m, 1));
        let z = b.mont_mul("z", x, y);
        // As two Montgomery products.
        let z = b.mul("z", z, z);
        b.output(z);
        let Some(all) = counted(&b.build(), &[5 * 64, 64], 5 * 64) else { return };
        assert_eq!(all, 5 * 3 * 2 * 144 * 144);
    }

    /// 2048 bits are 72 limbs. 64 bits of exponents are cheapest in 22 windows of 3. A table takes
    /// a product for the start, one for the base and one for each power above the first; 22 windows
    /// take one each and 21 times 3 squares, and what takes the radix away is one more.
    #[test]
    fn products_of_powers() {
        let m = modulus(32);
        let mut b = Builder::new("powers");
        let (x, e) = (b.residues("x", &m), b.exponents::<Secret>("e", 64));
        let z = b.pow("z", x, e);
        b.output(z);
        let Some(all) = counted(&b.build(), &[3 * 32, 3], 3 * 32) else { return };
        assert_eq!(all, 3 * (9 + 22 + 21 * 3 + 1) * 2 * 72 * 72);
    }

    /// 13 stages, six products for two residues in each. Residues are reduced once forward and once
    /// back, the last stage back takes twice as many.
    #[test]
    fn products_of_transforms() {
        let ring = Arc::new(Ring::new(8192, &largest_primes(50, 8192, 2)).unwrap());
        let mut b = Builder::new("transforms");
        let x = b.coefficients("x", &ring);
        let t = b.ntt("t", x);
        b.output(t);
        let Some(forward) = counted(&b.build(), &[3 * 2 * 8192], 3 * 2 * 8192) else { return };
        assert_eq!(forward, 3 * 2 * 8192 * (13 * 3 + 5));
        let mut b = Builder::new("transforms");
        let x = b.coefficients("x", &ring);
        let t = b.ntt("t", x);
        let back = b.intt("back", t);
        b.output(back);
        let Some(both) = counted(&b.build(), &[3 * 2 * 8192], 3 * 2 * 8192) else { return };
        assert_eq!(both - forward, 3 * 2 * 8192 * (13 * 3 + 5 + 3));
    }
}
