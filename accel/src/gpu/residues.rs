//! The steps over big residues, as dispatches.

use std::{ops::Range, sync::Arc};

use zeroize::Zeroizing;

use super::{
    GpuEngine,
    constants::{Constants, FixedTable, MAX_WIDTH, digit_cost},
    record::{Bindings, Buffer, Recorder, Words},
    run::{Applied, View},
    shaders::{Kernel, LIMB_BITS, MAX_ROUNDS, Params, WordParams},
};
use crate::{
    engine::DeviceFault,
    modulus::Modulus,
    program::{Kind, Step},
};

/// Numbers in device memory: where they lie, in words of 32 bits.
#[derive(Clone, Copy)]
struct Numbers {
    buffer: Buffer,
    words: u32,
    stride: u32,
    start: u32,
}

impl Numbers {
    /// Returns one number an item.
    fn of(view: &View<'_>) -> Self {
        Self::part(view, 0, view.words())
    }

    /// `words` words of an item from `start` on.
    fn part(view: &View<'_>, start: u32, words: u32) -> Self {
        Self { buffer: view.buffer, words, stride: view.stride(), start }
    }

    /// Returns the low digits of pairs; each high one follows.
    fn low_digits(view: &View<'_>) -> Self {
        Self::part(view, 0, view.words() / 2)
    }

    /// Returns room for `count` new pairs modulo the square of `root`.
    fn new_pairs(recorder: &mut Recorder<'_>, root: &Modulus, count: u32) -> Self {
        let words = 2 * root.len_words() as u32;
        let buffer = recorder.buffer((count * 2 * words) as usize);
        Self { buffer, words, stride: 2 * words, start: 0 }
    }

    /// Returns the same numbers, `words` words later.
    fn from(self, words: u32) -> Self {
        Self { start: self.start + words, ..self }
    }

    /// No numbers, at a binding that a kernel has but does not read from.
    fn none(buffer: Buffer) -> Self {
        Self { buffer, words: 0, stride: 0, start: 0 }
    }

    /// Returns the number 1 for every item.
    fn one(recorder: &mut Recorder<'_>) -> Self {
        let buffer = recorder.constant(Words::Borrowed(&[1]));
        Self { buffer, words: 2, stride: 0, start: 0 }
    }
}

/// One dispatch over numbers.
struct Call<'b> {
    kernel: Kernel,
    m: &'b Constants,
    a: Numbers,
    b: Numbers,
    out: Numbers,
    count: u32,
}

impl Call<'_> {
    fn record(&self, recorder: &mut Recorder<'_>, more: Params) {
        self.dispatch(recorder, more, None);
    }

    /// Records a kernel that takes many rounds, in as many dispatches as they need: each round is a
    /// loop over the limbs of a number two by two, of pairs a turn more, and over `entries` entries
    /// of a table.
    fn record_rounds(
        &self,
        recorder: &mut Recorder<'_>,
        rounds: Range<u32>,
        entries: u32,
        more: Params,
    ) {
        let most = MAX_ROUNDS / (self.m.shape.total() / 2 + 1 + entries);
        let several = rounds.len() as u32 > most;
        let state = several.then(|| recorder.buffer((self.count * self.m.words()) as usize));
        for from_round in rounds.clone().step_by(most as usize) {
            let to_round = rounds.end.min(from_round + most);
            self.dispatch(recorder, Params { from_round, to_round, ..more }, state);
        }
    }

    fn dispatch(&self, recorder: &mut Recorder<'_>, more: Params, state: Option<Buffer>) {
        let Self { kernel, m, a, b, out, count } = *self;
        let params = Params {
            count,
            a_words: a.words,
            a_stride: a.stride,
            a_start: a.start,
            b_words: b.words,
            b_stride: b.stride,
            b_start: b.start,
            out_words: out.words,
            out_stride: out.stride,
            out_start: out.start,
            ..more
        };
        let (a, b, out) = (a.buffer, b.buffer, out.buffer);
        let bindings = Bindings { constants: m.buffer(recorder), a, b, out, state };
        recorder.over_numbers(kernel, m.shape, count, &bindings, &params);
    }

    /// Records a product of powers from a table: see `pow.wgsl`.
    fn record_powers(&self, recorder: &mut Recorder<'_>, params: Params) {
        let Params { width, rows, windows, .. } = params;
        self.record_rounds(recorder, width..windows * (width + rows) + 1, 1 << width, params);
    }
}

/// Returns the bits of a digit of a power whose base is the item's own: a table for each item has
/// to be made.
fn own_width(bits: u32, m: &Constants) -> u32 {
    let product = m.product_cost();
    let cost = |&width: &u32| digit_cost(bits, width, product) + (product << width);
    (1..=5).min_by_key(cost).unwrap_or(1)
}

/// Returns the bits of a digit of a power whose bases `count` items share: the cheapest of those
/// whose table, of `width` bits for one base, is at most `most` words.
fn shared_width(bits: u32, m: &Constants, count: u32, most: u64) -> Option<u32> {
    let product = m.product_cost();
    let cost = |&width: &u32| {
        u64::from(digit_cost(bits, width, product)) * u64::from(count) + u64::from(product << width)
    };
    let fits = |width: &u32| u64::from(m.words()) << width <= most;
    (1..=MAX_WIDTH).filter(fits).min_by_key(cost)
}

impl GpuEngine {
    /// Records a step over residues.
    pub(super) fn residue_step(
        &self,
        recorder: &mut Recorder<'_>,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { step, out, args, count } = applied;
        match (step, out.kind) {
            (Step::CrtJoin { .. }, _) => return self.crt_join(recorder, applied),
            (Step::Pow { .. } | Step::Dot { .. } | Step::PowFixedBase { .. }, _) => {
                return self.powers(recorder, applied);
            }
            (_, Kind::Pairs { modulus }) => {
                return self.pair_step(recorder, modulus, applied);
            }
            (Step::OnePlusMn { n }, _) => {
                let linear = self.linear(n)?;
                let b = Numbers::one(recorder);
                let (a, out) = (Numbers::of(&args[0]), Numbers::of(out));
                let call = Call { kernel: Kernel::Linear, m: &linear, a, b, out, count };
                call.record(recorder, Params::default());
                return Ok(());
            }
            _ => {}
        }
        let Kind::Residues { modulus, .. } = out.kind else {
            unreachable!("{} makes residues", step.name())
        };
        let m = &*self.modulus(modulus)?;
        let (a, out_numbers) = (Numbers::of(&args[0]), Numbers::of(out));
        let second = || Numbers::of(&args[1]);
        let call = |kernel, b| Call { kernel, m, a, b, out: out_numbers, count };
        match step {
            Step::Mul => {
                call(Kernel::MontMul, second())
                    .record(recorder, Params { flag: 1, ..Params::default() });
            }
            Step::MontMul => {
                let shift = m.shape.radix_bits() - 64 * modulus.len_words() as u32;
                call(Kernel::MontMul, second())
                    .record(recorder, Params { shift, ..Params::default() });
            }
            Step::Product => {
                let rows = Numbers::part(&args[0], 0, out.words());
                let number = args[0].words() / out.words();
                product(recorder, modulus, m, out_numbers, (rows, number), count);
            }
            Step::Join => {
                let linear = self.linear(root_of(modulus))?;
                join(recorder, &linear, Numbers::low_digits(&args[0]), out_numbers, count);
            }
            Step::Reduce => reduce(recorder, m, a, out_numbers, count),
            Step::LQuotient => {
                let b = Numbers::one(recorder);
                call(Kernel::Divide, b).record(recorder, Params::default());
            }
            Step::Invert => {
                let m = self.inverses(modulus)?;
                invert(recorder, modulus, &m, a, out_numbers, count);
            }
            Step::Choose => choose(recorder, out, args, count),
            _ => unreachable!("{} makes no residues here", step.name()),
        }
        Ok(())
    }

    fn pair_step(
        &self,
        recorder: &mut Recorder<'_>,
        square: &Arc<Modulus>,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { step, out, args, count } = applied;
        let root = root_of(square);
        let m = &*self.modulus(root)?;
        let low = Numbers::low_digits(out);
        match step {
            Step::OnePlusMn { .. } => {
                let params = WordParams {
                    words: count * out.words(),
                    item_words: out.words(),
                    a_stride: args[0].stride(),
                    ..WordParams::default()
                };
                let a = args[0].buffer;
                let bindings = Bindings { constants: a, a, b: a, out: out.buffer, state: None };
                recorder.over_words(Kernel::UnitPair, params.words, &bindings, &params);
            }
            Step::Split => split(recorder, m, Numbers::of(&args[0]), low, count),
            Step::PairMul => {
                let [a, b] = [0, 1].map(|index| Numbers::low_digits(&args[index]));
                let shift = m.shape.radix_bits() - 64 * root.len_words() as u32;
                Call { kernel: Kernel::PairMul, m, a, b, out: low, count }
                    .record(recorder, Params { shift, ..Params::default() });
            }
            _ => unreachable!("{} makes no pairs", step.name()),
        }
        Ok(())
    }

    /// Records powers; modulo a square by pairs, which bases are split into and results joined
    /// from.
    fn powers(&self, recorder: &mut Recorder<'_>, applied: Applied<'_>) -> Result<(), DeviceFault> {
        let Applied { step, out, args, count } = applied;
        let (Kind::Residues { modulus, .. } | Kind::Pairs { modulus }) = out.kind else {
            unreachable!("powers are residues")
        };
        let m = &*self.chains(modulus)?;
        let powers = match (out.kind, modulus.root()) {
            (Kind::Pairs { .. }, _) => Numbers::low_digits(out),
            (_, Some(root)) => Numbers::new_pairs(recorder, root, count),
            (_, None) => Numbers::of(out),
        };
        if let Step::PowFixedBase { base } = step {
            let table = self.table(base)?;
            fixed_power(recorder, m, powers, &table, &args[0], count);
        } else {
            let words = 2 * modulus.len_words() as u32;
            let rows = args[0].words() / words;
            let number = if args[0].shared { rows } else { rows * count };
            let mut bases = Numbers { stride: words, ..Numbers::part(&args[0], 0, words) };
            if let Some(root) = modulus.root() {
                let pairs = Numbers::new_pairs(recorder, root, number);
                split(recorder, &*self.modulus(root)?, bases, pairs, number);
                bases = pairs;
            }
            if let Step::Dot { .. } = step {
                let most = self.device.binding_bytes();
                dot(recorder, m, powers, (bases, rows), &args[1], count, most)?;
            } else {
                pow(recorder, m, powers, (bases, number), &args[1], count);
            }
        }
        if let (Kind::Residues { .. }, Some(root)) = (out.kind, modulus.root()) {
            join(recorder, &*self.linear(root)?, powers, Numbers::of(out), count);
        }
        Ok(())
    }

    /// `a + p · ((b − a) · p⁻¹ mod q)`.
    fn crt_join(
        &self,
        recorder: &mut Recorder<'_>,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { step, out, args, count } = applied;
        let Step::CrtJoin { crt } = step else { unreachable!("the caller has looked") };
        let constants = self.crt(crt)?;
        let words = 2 * crt.q().len_words() as u32;
        let high = recorder.buffer((count * words) as usize);
        let high = Numbers { buffer: high, words, stride: words, start: 0 };
        let (a, b) = (Numbers::of(&args[0]), Numbers::of(&args[1]));
        Call { kernel: Kernel::ResiduesSum, m: &constants[0], a, b, out: high, count }
            .record(recorder, Params::default());
        let out = Numbers::of(out);
        Call { kernel: Kernel::Linear, m: &constants[1], a: high, b: a, out, count }
            .record(recorder, Params::default());
        Ok(())
    }
}

fn root_of(square: &Modulus) -> &Arc<Modulus> {
    match square.root() {
        Some(root) => root,
        None => unreachable!("pairs are for squares"),
    }
}

/// Records inverses, after as many division steps as numbers of this size need.
fn invert(
    recorder: &mut Recorder<'_>,
    modulus: &Modulus,
    m: &Constants,
    a: Numbers,
    out: Numbers,
    count: u32,
) {
    let steps = (49 * modulus.bits() + 80) / 17;
    let rows = steps.div_ceil(LIMB_BITS);
    Call { kernel: Kernel::Invert, m, a, b: Numbers::none(m.buffer(recorder)), out, count }
        .record(recorder, Params { rows, ..Params::default() });
}

fn reduce(recorder: &mut Recorder<'_>, m: &Constants, a: Numbers, out: Numbers, count: u32) {
    let rows = (32 * a.words).div_ceil(m.shape.radix_bits());
    Call { kernel: Kernel::Reduce, m, a, b: Numbers::none(m.buffer(recorder)), out, count }
        .record(recorder, Params { rows, ..Params::default() });
}

/// Records the remainder modulo m to `low`, the quotient after it.
fn split(recorder: &mut Recorder<'_>, m: &Constants, x: Numbers, low: Numbers, count: u32) {
    let rest = recorder.buffer((count * low.words) as usize);
    let rest = Numbers { buffer: rest, words: low.words, stride: low.words, start: 0 };
    reduce(recorder, m, x, rest, count);
    Call { kernel: Kernel::Divide, m, a: x, b: rest, out: low, count }
        .record(recorder, Params { flag: 1, ..Params::default() });
}

/// Records the numbers of pairs whose low digits are `low`.
fn join(recorder: &mut Recorder<'_>, linear: &Constants, low: Numbers, out: Numbers, count: u32) {
    let high = low.from(low.words);
    Call { kernel: Kernel::Linear, m: linear, a: high, b: low, out, count }
        .record(recorder, Params::default());
}

/// Rows that one team multiplies where there are many rows and few items: a card has many teams,
/// and waits for the slowest.
const FAN: u32 = 16;
/// Items that keep a card busy by themselves; and those for each of which dispatches of its own are
/// few.
const MANY: u32 = 4096;
const FEW: u32 = 64;

/// Records the product of `number` rows of each item, where there are few items by way of products
/// of some rows each.
fn product(
    recorder: &mut Recorder<'_>,
    modulus: &Modulus,
    m: &Constants,
    out: Numbers,
    (rows, number): (Numbers, u32),
    count: u32,
) {
    let (words, groups, left) = (rows.words, number / FAN, number % FAN);
    // Whether groups follow one another from item to item.
    let is_even = left == 0 && rows.stride == number * words;
    if groups < 2 || count >= MANY || !(is_even || count <= FEW) {
        return Turns::new(recorder, modulus, m, number).record(recorder, out, rows, count);
    }
    let each = groups + u32::from(left > 0);
    let buffer = recorder.buffer((count * each * words) as usize);
    let products = Numbers { buffer, words, stride: words, start: 0 };
    let rows_of_groups = Numbers { stride: FAN * words, ..rows };
    let whole = Turns::new(recorder, modulus, m, FAN);
    if is_even {
        whole.record(recorder, products, rows_of_groups, count * groups);
    } else {
        let rest = (left > 0).then(|| Turns::new(recorder, modulus, m, left));
        for item in 0..count {
            let rows = rows_of_groups.from(item * rows.stride);
            let products = products.from(item * each * words);
            whole.record(recorder, products, rows, groups);
            if let Some(rest) = &rest {
                let (rows, products) =
                    (rows.from(groups * rows.stride), products.from(groups * words));
                rest.record(recorder, products, rows, 1);
            }
        }
    }
    let products = Numbers { stride: each * words, ..products };
    product(recorder, modulus, m, out, (products, each), count);
}

/// Products of `rows` rows, one after the other.
struct Turns<'m> {
    m: &'m Constants,
    rows: u32,
    /// The factor that makes up for the radices of these Montgomery products.
    correction: Buffer,
}

impl<'m> Turns<'m> {
    fn new(recorder: &mut Recorder<'_>, modulus: &Modulus, m: &'m Constants, rows: u32) -> Self {
        let power = modulus.power_of_two(m.shape.radix_bits(), rows);
        let correction = recorder.constant(Words::Owned(Zeroizing::new(power)));
        Self { m, rows, correction }
    }

    fn record(&self, recorder: &mut Recorder<'_>, out: Numbers, a: Numbers, count: u32) {
        let Self { m, rows, correction } = *self;
        let b = Numbers { buffer: correction, words: a.words, stride: 0, start: 0 };
        let call = Call { kernel: Kernel::Product, m, a, b, out, count };
        call.record_rounds(recorder, 1..rows + 1, 0, Params { rows, ..Params::default() });
    }
}

fn choose(recorder: &mut Recorder<'_>, out: &View<'_>, args: &[View<'_>], count: u32) {
    let [bits, x, y] = [0, 1, 2].map(|i| &args[i]);
    let params = WordParams {
        words: count * out.words(),
        item_words: out.words(),
        a_stride: bits.stride(),
        b_stride: x.stride(),
        c_stride: y.stride(),
    };
    let bindings =
        Bindings { constants: y.buffer, a: bits.buffer, b: x.buffer, out: out.buffer, state: None };
    recorder.over_words(Kernel::Choose, params.words, &bindings, &params);
}

/// Records tables of the powers of `rows` bases.
fn tables(
    recorder: &mut Recorder<'_>,
    m: &Constants,
    bases: Numbers,
    rows: u32,
    width: u32,
) -> Buffer {
    let table = recorder.buffer(((rows * m.words()) << width) as usize);
    let out = Numbers::none(table);
    let b = Numbers::none(m.buffer(recorder));
    Call { kernel: m.table_kernel(), m, a: bases, b, out, count: rows }
        .record(recorder, Params { width, ..Params::default() });
    table
}

/// Records powers of a base known beforehand.
fn fixed_power(
    recorder: &mut Recorder<'_>,
    m: &Constants,
    out: Numbers,
    table: &FixedTable,
    exponents: &View<'_>,
    count: u32,
) {
    let (a, b) = (Numbers::of(exponents), Numbers::none(table.buffer(recorder)));
    let (width, rows) = (table.width, table.windows);
    Call { kernel: m.pow_kernel(), m, a, b, out, count }.record_powers(
        recorder,
        Params { rows, windows: 1, width, row_bits: width, ..Params::default() },
    );
}

/// Records powers of each item's own base, or of one base.
fn pow(
    recorder: &mut Recorder<'_>,
    m: &Constants,
    out: Numbers,
    (bases, number): (Numbers, u32),
    exponents: &View<'_>,
    count: u32,
) {
    let (bits, each) = exponent_size(exponents);
    let width = own_width(bits, m);
    let table = tables(recorder, m, bases, number, width);
    let a = Numbers::part(exponents, 0, each);
    let flag = u32::from(number > 1);
    Call { kernel: m.pow_kernel(), m, a, b: Numbers::none(table), out, count }.record_powers(
        recorder,
        Params { rows: 1, windows: bits.div_ceil(width), width, flag, ..Params::default() },
    );
}

/// Records products of powers of bases that all items share, with a table of at most `most` bytes.
fn dot(
    recorder: &mut Recorder<'_>,
    m: &Constants,
    out: Numbers,
    (bases, rows): (Numbers, u32),
    exponents: &View<'_>,
    count: u32,
    most: u64,
) -> Result<(), DeviceFault> {
    let (bits, each) = exponent_size(exponents);
    let most = most / 4 / u64::from(rows);
    let width = shared_width(bits, m, count, most).ok_or(DeviceFault::OutOfMemory)?;
    let table = tables(recorder, m, bases, rows, width);
    let a = Numbers::part(exponents, 0, each);
    let windows = bits.div_ceil(width);
    Call { kernel: m.pow_kernel(), m, a, b: Numbers::none(table), out, count }
        .record_powers(recorder, Params { rows, windows, width, shift: each, ..Params::default() });
    Ok(())
}

/// Returns the bits of an exponent, and its words of 32 bits.
fn exponent_size(view: &View<'_>) -> (u32, u32) {
    let Kind::Exponents { bits, .. } = view.kind else { unreachable!("powers take exponents") };
    (*bits, 2 * bits.div_ceil(64))
}
