//! The steps over big residues, as dispatches.

use std::{ops::Range, sync::Arc};

use zeroize::Zeroizing;

use super::{
    GpuEngine,
    constants::{Constants, MAX_WIDTH, digit_cost},
    record::{Bindings, GpuRecorder},
    shaders::{LIMB_BITS, MAX_ROUNDS, OverNumbers, OverWords, Params, WordParams},
};
use crate::{
    device::{Applied, Buffer, DeviceValue, HostWords},
    engine::DeviceFault,
    modulus::Modulus,
    program::{Crt, FixedBase, PairOp, ResidueOp, ResidueStep},
};

/// Numbers in device memory: where they lie, in words of 32 bits.
#[derive(Clone, Copy)]
struct GpuNumbers {
    buffer: Buffer,
    words: u32,
    stride: u32,
    start: u32,
}

impl GpuNumbers {
    /// Returns one number an item.
    fn of(view: &DeviceValue<'_>) -> Self {
        Self::part(view, 0, view.words())
    }

    /// `words` words of an item from `start` on.
    fn part(view: &DeviceValue<'_>, start: u32, words: u32) -> Self {
        Self { buffer: view.buffer, words, stride: view.stride(), start }
    }

    /// Returns the low digits of pairs; each high one follows.
    fn low_digits(view: &DeviceValue<'_>) -> Self {
        Self::part(view, 0, view.words() / 2)
    }

    /// Returns room for `count` new pairs modulo the square of `root`.
    fn new_pairs(recorder: &mut GpuRecorder<'_>, root: &Modulus, count: u32) -> Self {
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
    fn one(recorder: &mut GpuRecorder<'_>) -> Self {
        let buffer = recorder.constant(HostWords::Borrowed(&[1]));
        Self { buffer, words: 2, stride: 0, start: 0 }
    }
}

/// One dispatch over numbers.
struct ResidueCall<'b> {
    kernel: OverNumbers,
    m: &'b Constants,
    a: GpuNumbers,
    b: GpuNumbers,
    out: GpuNumbers,
    count: u32,
}

impl ResidueCall<'_> {
    fn record(&self, recorder: &mut GpuRecorder<'_>, more: Params) {
        self.dispatch(recorder, more, None);
    }

    /// Records a kernel that takes many rounds, in as many dispatches as they need: each round is a
    /// loop over the limbs of a number two by two, of pairs a turn more, and over `entries` entries
    /// of a table.
    fn record_rounds(
        &self,
        recorder: &mut GpuRecorder<'_>,
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

    fn dispatch(&self, recorder: &mut GpuRecorder<'_>, more: Params, state: Option<Buffer>) {
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
        recorder.over_numbers(kernel, m.shape, count, &bindings, params);
    }

    /// Records a product of powers from a table: see `pow.wgsl`.
    fn record_powers(&self, recorder: &mut GpuRecorder<'_>, params: Params) {
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
        recorder: &mut GpuRecorder<'_>,
        step: &ResidueStep,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        match step {
            ResidueStep::Residue { op, modulus } => self.residue(recorder, op, modulus, applied),
            ResidueStep::Pair { op, root, .. } => self.pair(recorder, op, root, applied),
            ResidueStep::CrtJoin { crt } => self.crt_join(recorder, crt, applied),
        }
    }

    fn residue(
        &self,
        recorder: &mut GpuRecorder<'_>,
        op: &ResidueOp,
        modulus: &Arc<Modulus>,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { out: view, args, count } = applied;
        let (a, out) = (GpuNumbers::of(&args[0]), GpuNumbers::of(view));
        match op {
            ResidueOp::Mul => {
                let (m, b) = (&*self.modulus(modulus)?, GpuNumbers::of(&args[1]));
                let params = Params { flag: 1, ..Params::default() };
                ResidueCall { kernel: OverNumbers::MontMul, m, a, b, out, count }
                    .record(recorder, params);
            }
            ResidueOp::MontMul => {
                let (m, b) = (&*self.modulus(modulus)?, GpuNumbers::of(&args[1]));
                let shift = m.shape.radix_bits() - 64 * modulus.len_words() as u32;
                let params = Params { shift, ..Params::default() };
                ResidueCall { kernel: OverNumbers::MontMul, m, a, b, out, count }
                    .record(recorder, params);
            }
            ResidueOp::Product => {
                let rows = GpuNumbers::part(&args[0], 0, view.words());
                let number = args[0].words() / view.words();
                let m = &*self.modulus(modulus)?;
                product(recorder, modulus, m, out, (rows, number), count);
            }
            ResidueOp::Join { root } => {
                let low = GpuNumbers::low_digits(&args[0]);
                join(recorder, &*self.linear(root)?, low, out, count);
            }
            ResidueOp::OnePlusMn { n } => {
                let (m, b) = (&*self.linear(n)?, GpuNumbers::one(recorder));
                ResidueCall { kernel: OverNumbers::Linear, m, a, b, out, count }
                    .record(recorder, Params::default());
            }
            ResidueOp::Reduce => reduce(recorder, &*self.modulus(modulus)?, a, out, count),
            ResidueOp::LQuotient => {
                let (m, b) = (&*self.modulus(modulus)?, GpuNumbers::one(recorder));
                ResidueCall { kernel: OverNumbers::Divide, m, a, b, out, count }
                    .record(recorder, Params::default());
            }
            ResidueOp::Invert => {
                invert(recorder, modulus, &*self.inverses(modulus)?, a, out, count);
            }
            ResidueOp::Choose => choose(recorder, view, args, count),
            ResidueOp::PowFixedBase { base } => {
                let powers = new_powers(recorder, modulus, out, count);
                self.fixed_power(recorder, base, powers, &args[0], count)?;
                self.join_powers(recorder, modulus, powers, out, count)?;
            }
            &ResidueOp::Pow { bits, .. } => {
                let powers = new_powers(recorder, modulus, out, count);
                let bases = self.bases(recorder, modulus, &args[0], count)?;
                let m = &*self.chains(modulus)?;
                pow(recorder, m, powers, bases, (&args[1], bits), count);
                self.join_powers(recorder, modulus, powers, out, count)?;
            }
            &ResidueOp::Dot { bits, .. } => {
                let powers = new_powers(recorder, modulus, out, count);
                let bases = self.bases(recorder, modulus, &args[0], count)?;
                let m = &*self.chains(modulus)?;
                let most = self.device.binding_bytes();
                dot(recorder, m, powers, bases, (&args[1], bits), count, most)?;
                self.join_powers(recorder, modulus, powers, out, count)?;
            }
        }
        Ok(())
    }

    fn pair(
        &self,
        recorder: &mut GpuRecorder<'_>,
        op: &PairOp,
        root: &Arc<Modulus>,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { out, args, count } = applied;
        let low = GpuNumbers::low_digits(out);
        match op {
            PairOp::OnePlusMn => {
                let params = WordParams {
                    words: count * out.words(),
                    item_words: out.words(),
                    a_stride: args[0].stride(),
                    ..WordParams::default()
                };
                let a = args[0].buffer;
                let bindings = Bindings { constants: a, a, b: a, out: out.buffer, state: None };
                recorder.over_words(OverWords::UnitPair, params.words, &bindings, params);
            }
            PairOp::Split => {
                split(recorder, &*self.modulus(root)?, GpuNumbers::of(&args[0]), low, count);
            }
            PairOp::Mul => {
                let m = &*self.modulus(root)?;
                let [a, b] = [0, 1].map(|index| GpuNumbers::low_digits(&args[index]));
                let shift = m.shape.radix_bits() - 64 * root.len_words() as u32;
                ResidueCall { kernel: OverNumbers::PairMul, m, a, b, out: low, count }
                    .record(recorder, Params { shift, ..Params::default() });
            }
            PairOp::PowFixedBase { base } => {
                self.fixed_power(recorder, base, low, &args[0], count)?;
            }
        }
        Ok(())
    }

    /// Returns bases as powers modulo `modulus` take them, a row after the other, and how many there are: modulo a
    /// square split into pairs.
    fn bases(
        &self,
        recorder: &mut GpuRecorder<'_>,
        modulus: &Modulus,
        view: &DeviceValue<'_>,
        count: u32,
    ) -> Result<(GpuNumbers, u32), DeviceFault> {
        let words = 2 * modulus.len_words() as u32;
        let rows = view.words() / words;
        let number = if view.shared { rows } else { rows * count };
        let bases = GpuNumbers { stride: words, ..GpuNumbers::part(view, 0, words) };
        let Some(root) = modulus.root() else { return Ok((bases, number)) };
        let pairs = GpuNumbers::new_pairs(recorder, root, number);
        split(recorder, &*self.modulus(root)?, bases, pairs, number);
        Ok((pairs, number))
    }

    /// Records powers of a base known beforehand, modulo a square as pairs.
    fn fixed_power(
        &self,
        recorder: &mut GpuRecorder<'_>,
        base: &Arc<FixedBase>,
        out: GpuNumbers,
        exponents: &DeviceValue<'_>,
        count: u32,
    ) -> Result<(), DeviceFault> {
        let (m, table) = (&*self.chains(base.modulus())?, self.table(base)?);
        let (a, b) = (GpuNumbers::of(exponents), GpuNumbers::none(table.buffer(recorder)));
        let (width, rows) = (table.width, table.windows);
        ResidueCall { kernel: m.pow_kernel(), m, a, b, out, count }.record_powers(
            recorder,
            Params { rows, windows: 1, width, row_bits: width, ..Params::default() },
        );
        Ok(())
    }

    /// Records the residues that powers are, where they are pairs.
    fn join_powers(
        &self,
        recorder: &mut GpuRecorder<'_>,
        modulus: &Modulus,
        powers: GpuNumbers,
        out: GpuNumbers,
        count: u32,
    ) -> Result<(), DeviceFault> {
        if let Some(root) = modulus.root() {
            join(recorder, &*self.linear(root)?, powers, out, count);
        }
        Ok(())
    }

    /// `a + p · ((b − a) · p⁻¹ mod q)`.
    fn crt_join(
        &self,
        recorder: &mut GpuRecorder<'_>,
        crt: &Arc<Crt>,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { out, args, count } = applied;
        let constants = self.crt(crt)?;
        let words = 2 * crt.q().len_words() as u32;
        let high = recorder.buffer((count * words) as usize);
        let high = GpuNumbers { buffer: high, words, stride: words, start: 0 };
        let (a, b) = (GpuNumbers::of(&args[0]), GpuNumbers::of(&args[1]));
        ResidueCall { kernel: OverNumbers::ResiduesSum, m: &constants[0], a, b, out: high, count }
            .record(recorder, Params::default());
        let out = GpuNumbers::of(out);
        ResidueCall { kernel: OverNumbers::Linear, m: &constants[1], a: high, b: a, out, count }
            .record(recorder, Params::default());
        Ok(())
    }
}

/// Returns room for powers: modulo a square for pairs, else that for the residues.
fn new_powers(
    recorder: &mut GpuRecorder<'_>,
    modulus: &Modulus,
    out: GpuNumbers,
    count: u32,
) -> GpuNumbers {
    modulus.root().map_or(out, |root| GpuNumbers::new_pairs(recorder, root, count))
}

/// Records inverses, after as many division steps as numbers of this size need.
fn invert(
    recorder: &mut GpuRecorder<'_>,
    modulus: &Modulus,
    m: &Constants,
    a: GpuNumbers,
    out: GpuNumbers,
    count: u32,
) {
    let steps = (49 * modulus.bits() + 80) / 17;
    let rows = steps.div_ceil(LIMB_BITS);
    ResidueCall {
        kernel: OverNumbers::Invert,
        m,
        a,
        b: GpuNumbers::none(m.buffer(recorder)),
        out,
        count,
    }
    .record(recorder, Params { rows, ..Params::default() });
}

fn reduce(
    recorder: &mut GpuRecorder<'_>,
    m: &Constants,
    a: GpuNumbers,
    out: GpuNumbers,
    count: u32,
) {
    let rows = (32 * a.words).div_ceil(m.shape.radix_bits());
    ResidueCall {
        kernel: OverNumbers::Reduce,
        m,
        a,
        b: GpuNumbers::none(m.buffer(recorder)),
        out,
        count,
    }
    .record(recorder, Params { rows, ..Params::default() });
}

/// Records the remainder modulo m to `low`, the quotient after it.
fn split(
    recorder: &mut GpuRecorder<'_>,
    m: &Constants,
    x: GpuNumbers,
    low: GpuNumbers,
    count: u32,
) {
    let rest = recorder.buffer((count * low.words) as usize);
    let rest = GpuNumbers { buffer: rest, words: low.words, stride: low.words, start: 0 };
    reduce(recorder, m, x, rest, count);
    ResidueCall { kernel: OverNumbers::Divide, m, a: x, b: rest, out: low, count }
        .record(recorder, Params { flag: 1, ..Params::default() });
}

/// Records the numbers of pairs whose low digits are `low`.
fn join(
    recorder: &mut GpuRecorder<'_>,
    linear: &Constants,
    low: GpuNumbers,
    out: GpuNumbers,
    count: u32,
) {
    let high = low.from(low.words);
    ResidueCall { kernel: OverNumbers::Linear, m: linear, a: high, b: low, out, count }
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
    recorder: &mut GpuRecorder<'_>,
    modulus: &Modulus,
    m: &Constants,
    out: GpuNumbers,
    (rows, number): (GpuNumbers, u32),
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
    let products = GpuNumbers { buffer, words, stride: words, start: 0 };
    let rows_of_groups = GpuNumbers { stride: FAN * words, ..rows };
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
    let products = GpuNumbers { stride: each * words, ..products };
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
    fn new(recorder: &mut GpuRecorder<'_>, modulus: &Modulus, m: &'m Constants, rows: u32) -> Self {
        let power = modulus.power_of_two(m.shape.radix_bits(), rows);
        let correction = recorder.constant(HostWords::Owned(Zeroizing::new(power)));
        Self { m, rows, correction }
    }

    fn record(&self, recorder: &mut GpuRecorder<'_>, out: GpuNumbers, a: GpuNumbers, count: u32) {
        let Self { m, rows, correction } = *self;
        let b = GpuNumbers { buffer: correction, words: a.words, stride: 0, start: 0 };
        let call = ResidueCall { kernel: OverNumbers::Product, m, a, b, out, count };
        call.record_rounds(recorder, 1..rows + 1, 0, Params { rows, ..Params::default() });
    }
}

fn choose(
    recorder: &mut GpuRecorder<'_>,
    out: &DeviceValue<'_>,
    args: &[DeviceValue<'_>],
    count: u32,
) {
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
    recorder.over_words(OverWords::Choose, params.words, &bindings, params);
}

/// Records tables of the powers of `rows` bases.
fn tables(
    recorder: &mut GpuRecorder<'_>,
    m: &Constants,
    bases: GpuNumbers,
    rows: u32,
    width: u32,
) -> Buffer {
    let table = recorder.buffer(((rows * m.words()) << width) as usize);
    let out = GpuNumbers::none(table);
    let b = GpuNumbers::none(m.buffer(recorder));
    ResidueCall { kernel: m.table_kernel(), m, a: bases, b, out, count: rows }
        .record(recorder, Params { width, ..Params::default() });
    table
}

/// Records powers of each item's own base, or of one base.
fn pow(
    recorder: &mut GpuRecorder<'_>,
    m: &Constants,
    out: GpuNumbers,
    (bases, number): (GpuNumbers, u32),
    (exponents, bits): (&DeviceValue<'_>, u32),
    count: u32,
) {
    let width = own_width(bits, m);
    let table = tables(recorder, m, bases, number, width);
    let a = GpuNumbers::part(exponents, 0, exponent_words(bits));
    let flag = u32::from(number > 1);
    ResidueCall { kernel: m.pow_kernel(), m, a, b: GpuNumbers::none(table), out, count }
        .record_powers(
            recorder,
            Params { rows: 1, windows: bits.div_ceil(width), width, flag, ..Params::default() },
        );
}

/// Records products of powers of bases that all items share, with a table of at most `most` bytes.
fn dot(
    recorder: &mut GpuRecorder<'_>,
    m: &Constants,
    out: GpuNumbers,
    (bases, rows): (GpuNumbers, u32),
    (exponents, bits): (&DeviceValue<'_>, u32),
    count: u32,
    most: u64,
) -> Result<(), DeviceFault> {
    let each = exponent_words(bits);
    let most = most / 4 / u64::from(rows);
    let width = shared_width(bits, m, count, most).ok_or(DeviceFault::OutOfMemory)?;
    let table = tables(recorder, m, bases, rows, width);
    let a = GpuNumbers::part(exponents, 0, each);
    let windows = bits.div_ceil(width);
    ResidueCall { kernel: m.pow_kernel(), m, a, b: GpuNumbers::none(table), out, count }
        .record_powers(recorder, Params { rows, windows, width, shift: each, ..Params::default() });
    Ok(())
}

/// Returns the words of 32 bits of an exponent.
fn exponent_words(bits: u32) -> u32 {
    2 * bits.div_ceil(64)
}
