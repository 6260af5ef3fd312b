//! The steps over big residues, as operations of the card. Powers are in `powers.rs`.
//!
//! A number of a chain of products modulo m is below 2M' and stands for 2^(−N) times itself; a
//! product of two is again one. `reduce` makes the residue of it.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::{
    FpgaEngine,
    constants::{Modular, Quotient},
    descriptor::CardOperation,
    powers::{self, copy},
    record::{Call, CardNumbers, CardRecorder},
    registers,
    shape::{self, ProductShape},
};
use crate::{
    device::{Applied, numbers::power_of_two},
    engine::DeviceFault,
    modulus::Modulus,
    program::{Crt, PairOp, ResidueOp, ResidueStep},
};

/// Records `a + b · c`, or `a − b · c`; c is 1 if there is none.
fn linear(
    recorder: &mut CardRecorder<'_>,
    [a, b, d]: [CardNumbers; 3],
    c: Option<CardNumbers>,
    flags: u32,
    count: u64,
) {
    let flags = flags | if c.is_some() { registers::FLAG_WITH_C } else { 0 };
    let (a, b) = (Some(a), Some(b));
    recorder.call(Call { flags, a, b, c, ..Call::new(CardOperation::Linear, d, count) });
}

/// Records `a · b + c` in whole numbers.
fn plain(
    recorder: &mut CardRecorder<'_>,
    shape: ProductShape,
    [a, b, c, d]: [CardNumbers; 4],
    flags: u32,
    count: u64,
) {
    let flags = flags | registers::FLAG_WITH_C | registers::FLAG_LOW;
    let (a, b, c) = (Some(a), Some(b), Some(c));
    let ProductShape { words, passes, .. } = shape;
    let call =
        Call { flags, a, b, c, words, passes, ..Call::new(CardOperation::Multiply, d, count) };
    recorder.call(call);
}

/// Records x modulo m for any x of `words` words of 64 bits.
pub(super) fn reduce_any(
    recorder: &mut CardRecorder<'_>,
    (m, modulus): (&Modular, &Modulus),
    rows: u64,
    (x, words): (CardNumbers, usize),
    d: CardNumbers,
    count: u64,
) {
    let shape = ProductShape::modular(rows, m.bits, 64 * words as u64);
    let power = recorder.number(power_of_two(shape.radix as u32, modulus.words()), m.length());
    let loose = m.loose(recorder, count);
    let call = m.product(recorder, [power, x, loose], count);
    recorder.call(Call { passes: shape.passes, ..call });
    m.reduce(recorder, loose, d, count);
}

impl FpgaEngine {
    /// Records a step over residues, one that the engine supports.
    pub(super) fn residue_step(
        &self,
        recorder: &mut CardRecorder<'_>,
        step: &ResidueStep,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        match step {
            ResidueStep::Residue { op, modulus } => self.residue(recorder, op, modulus, applied),
            ResidueStep::Pair { op, square, root } => {
                self.pair(recorder, op, [square, root], applied)
            }
            ResidueStep::CrtJoin { crt } => self.crt_join(recorder, crt, applied),
        }
    }

    fn residue(
        &self,
        recorder: &mut CardRecorder<'_>,
        op: &ResidueOp,
        modulus: &Arc<Modulus>,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { out, args, .. } = applied;
        let count = applied.items();
        let (a, d) = (args[0].number(0), out.number(0));
        match op {
            ResidueOp::Mul => {
                let m = self.modulus(modulus)?;
                let [product, whole] = [(); 2].map(|()| m.loose(recorder, count));
                m.times(recorder, [a, args[1].number(0), product], count);
                let square = m.square(recorder);
                m.times(recorder, [product, square, whole], count);
                m.reduce(recorder, whole, d, count);
            }
            ResidueOp::MontMul => {
                let m = self.modulus(modulus)?;
                let product = m.loose(recorder, count);
                let call = m.product(recorder, [a, args[1].number(0), product], count);
                recorder.call(Call { shift: m.montgomery_shift(), ..call });
                m.reduce(recorder, product, d, count);
            }
            ResidueOp::Product => self.product(recorder, modulus, applied)?,
            ResidueOp::Join { root } => {
                let [x0, x1] = [0, 1].map(|digit| args[0].number(digit));
                self.scaled(recorder, root, [x1, x0, d], count)?;
            }
            ResidueOp::OnePlusMn { n } => {
                let one = recorder.number(Zeroizing::new(vec![1]), 1);
                self.scaled(recorder, n, [a, one, d], count)?;
            }
            ResidueOp::Reduce => {
                let m = &*self.modulus(modulus)?;
                let x = (a, args[0].kind.words());
                reduce_any(recorder, (m, modulus), self.device.sizes.rows, x, d, count);
            }
            ResidueOp::LQuotient => {
                let quotient = self.quotient(modulus)?;
                let (inverse, minus) = (quotient.inverse(recorder), quotient.minus(recorder));
                plain(recorder, quotient.shape, [inverse, a, minus, d], 0, count);
            }
            ResidueOp::Choose => {
                let [bit, x, y] = [0, 1, 2].map(|index| args[index].number(0));
                let table = recorder.numbers(2 * count, x.length).every(2 * x.length);
                copy(recorder, y, table, count);
                copy(recorder, x, table.after(x.length), count);
                let call = Call::new(CardOperation::Select, d, count);
                recorder.call(Call { a: Some(table), b: Some(bit), width: 1, ..call });
            }
            &ResidueOp::Pow { bits, .. } => {
                let m = &*self.modulus(modulus)?;
                let power = powers::pow(recorder, m, args, bits, count);
                m.reduce(recorder, power, d, count);
            }
            &ResidueOp::Dot { bits, .. } => {
                let m = &*self.modulus(modulus)?;
                let rows = args[0].kind.words() / modulus.len_words();
                let power = powers::dot(recorder, m, args, (bits, rows), count);
                m.reduce(recorder, power, d, count);
            }
            ResidueOp::PowFixedBase { base } => {
                self.fixed_power(recorder, base, &args[0], d, count)?;
            }
            ResidueOp::Invert => return Err(DeviceFault::no_kernel("invert")),
        }
        Ok(())
    }

    fn pair(
        &self,
        recorder: &mut CardRecorder<'_>,
        op: &PairOp,
        [square, root]: [&Arc<Modulus>; 2],
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { out, args, .. } = applied;
        let count = applied.items();
        let [low, high] = [0, 1].map(|digit| out.number(digit));
        match op {
            PairOp::OnePlusMn => {
                let one = recorder.number(Zeroizing::new(vec![1]), low.length);
                copy(recorder, one, low, count);
                copy(recorder, args[0].number(0), high, count);
                Ok(())
            }
            PairOp::Split => {
                let x = (args[0].number(0), args[0].kind.words());
                self.split(recorder, root, x, [low, high], count)
            }
            PairOp::Mul => {
                let of = |index: usize| [0, 1].map(|digit| args[index].number(digit));
                self.pair_mul(recorder, root, [of(0), of(1)], [low, high], count)
            }
            PairOp::PowFixedBase { base } => {
                let residue = recorder.numbers(count, self.modulus(square)?.length());
                self.fixed_power(recorder, base, &args[0], residue, count)?;
                self.split(recorder, root, (residue, square.len_words()), [low, high], count)
            }
        }
    }

    /// Records `x · n + c` for x and c of the words of n.
    fn scaled(
        &self,
        recorder: &mut CardRecorder<'_>,
        n: &Arc<Modulus>,
        [x, c, d]: [CardNumbers; 3],
        count: u64,
    ) -> Result<(), DeviceFault> {
        let m = self.modulus(n)?;
        let factor = m.m(recorder);
        let shape = ProductShape::plain(self.device.sizes.rows, m.bits, 64 * n.len_words() as u64);
        plain(recorder, shape, [factor, x, c, d], registers::FLAG_HIGH, count);
        Ok(())
    }

    /// Records the remainder of x modulo s and the quotient, which is below s.
    fn split(
        &self,
        recorder: &mut CardRecorder<'_>,
        root: &Arc<Modulus>,
        (x, words): (CardNumbers, usize),
        [low, high]: [CardNumbers; 2],
        count: u64,
    ) -> Result<(), DeviceFault> {
        let (m, quotient): (_, Arc<Quotient>) = (self.modulus(root)?, self.quotient(root)?);
        reduce_any(recorder, (&m, root), self.device.sizes.rows, (x, words), low, count);
        // x/s − x₀/s, of which nothing is left over.
        let (inverse, minus) = (quotient.inverse(recorder), quotient.minus(recorder));
        let ProductShape { words, passes, .. } = quotient.shape;
        let part = recorder.numbers(count, inverse.length);
        let call = Call::new(CardOperation::Multiply, part, count);
        let (a, b) = (Some(inverse), Some(x));
        recorder.call(Call { flags: registers::FLAG_LOW, a, b, words, passes, ..call });
        plain(recorder, quotient.shape, [minus, low, part, high], 0, count);
        Ok(())
    }

    /// Records `(x₀ + x₁·s)(y₀ + y₁·s) · 2^(−64 · words of s) mod s²`.
    ///
    /// With `x₀·y₀ · 2^shift = 2^N · T − Q · k · s` it is `T + s · (x₀·y₁ + x₁·y₀) · 2^(shift − N) −
    /// s · Q · k · 2^(−N)`: the last goes into one of the products as a third operand, made
    /// positive by a multiple of s.
    fn pair_mul(
        &self,
        recorder: &mut CardRecorder<'_>,
        root: &Arc<Modulus>,
        [[x0, x1], [y0, y1]]: [[CardNumbers; 2]; 2],
        [low, high]: [CardNumbers; 2],
        count: u64,
    ) -> Result<(), DeviceFault> {
        let m = &*self.modulus(root)?;
        let pairing = self.pairing(root, m)?;
        let (shift, loose) = (m.montgomery_shift(), m.loose_length());
        let quotient = shape::beats(m.shape.radix);
        let first = recorder.numbers(count, quotient + loose);
        let call = m.product(recorder, [x0, y0, first], count);
        recorder.call(Call { flags: call.flags | registers::FLAG_LOW, shift, ..call });
        // It waits for nothing: the arrays have it while the tail works on the first.
        let [mixed, other] = [(); 2].map(|()| m.loose(recorder, count));
        let call = m.product(recorder, [x1, y0, other], count);
        recorder.call(Call { shift, ..call });
        let product = first.after(quotient).of_length(loose);
        m.reduce(recorder, product, low, count);
        let carry = recorder.numbers(count, 1);
        let call = m.remainder(recorder, product, carry, count);
        recorder.call(Call { flags: registers::FLAG_HIGH, ..call });

        let third = recorder.numbers(count, shape::beats(pairing.bits));
        let (multiple, k) = (pairing.multiple(recorder), pairing.factor(recorder));
        let numbers = [multiple, first.of_length(quotient), third];
        linear(recorder, numbers, Some(k), registers::FLAG_MINUS, count);
        let ProductShape { words, passes, .. } = m.shape.with_third(pairing.bits);
        let call = m.product(recorder, [x0, y1, mixed], count);
        let flags = call.flags | registers::FLAG_WITH_C;
        recorder.call(Call { flags, c: Some(third), words, passes, shift, ..call });
        // Below 2^19 · s, all three together.
        let [both, all] = [(); 2].map(|()| recorder.numbers(count, shape::beats(m.bits + 20)));
        linear(recorder, [mixed, other, both], None, 0, count);
        linear(recorder, [both, carry, all], None, 0, count);
        m.reduce(recorder, all, high, count);
        Ok(())
    }

    /// Records the product of all rows of each item.
    fn product(
        &self,
        recorder: &mut CardRecorder<'_>,
        modulus: &Arc<Modulus>,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { out, args, .. } = applied;
        let count = applied.items();
        let m = &*self.modulus(modulus)?;
        let rows = args[0].kind.words() / out.kind.words();
        let mut product = args[0].number(0);
        let mut turns = [(); 2].map(|()| m.loose(recorder, count));
        for row in 1..rows {
            m.times(recorder, [product, args[0].number(row), turns[0]], count);
            product = turns[0];
            turns.swap(0, 1);
        }
        let power = Zeroizing::new(modulus.power_of_two(m.shape.radix as u32, rows as u32));
        let power = recorder.number(power, m.length());
        m.times(recorder, [product, power, turns[0]], count);
        m.reduce(recorder, turns[0], out.number(0), count);
        Ok(())
    }

    /// Records `a + p · ((b − a) · p⁻¹ mod q)`.
    fn crt_join(
        &self,
        recorder: &mut CardRecorder<'_>,
        crt: &Arc<Crt>,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { out, args, .. } = applied;
        let count = applied.items();
        let q = &*self.modulus(crt.q())?;
        let constants = self.crt(crt, q)?;
        let (a, b) = (args[0].number(0), args[1].number(0));
        let (plus, minus) = (constants.number(recorder, 0), constants.number(recorder, 1));
        let [of_a, of_b] = [(); 2].map(|()| q.loose(recorder, count));
        q.times(recorder, [plus, b, of_b], count);
        q.times(recorder, [minus, a, of_a], count);
        let sum = recorder.numbers(count, shape::beats(q.bits + 19));
        linear(recorder, [of_a, of_b, sum], None, 0, count);
        let digit = recorder.numbers(count, q.length());
        q.reduce(recorder, sum, digit, count);
        let m = self.modulus(crt.p())?;
        let factor = m.m(recorder);
        let shape =
            ProductShape::plain(self.device.sizes.rows, m.bits, 64 * crt.q().len_words() as u64);
        plain(recorder, shape, [factor, digit, a, out.number(0)], registers::FLAG_HIGH, count);
        Ok(())
    }
}
