//! Powers, by digits: each picks an entry of a table, all of which the card reads.

use std::sync::Arc;

use super::{
    FpgaEngine,
    card::{CardDevice, ResidentBeats},
    constants::Modular,
    descriptor::CardOperation,
    record::{Call, CardNumbers, CardRecorder},
};
use crate::{
    device::{DeviceValue, HostWords},
    engine::DeviceFault,
    program::FixedBase,
};

/// The bits that a digit can have.
const WIDTHS: [u64; 3] = [1, 2, 4];

/// A factor of a product of powers: its table, and where the digits begin that pick from it.
struct PowerRow {
    table: CardNumbers,
    exponent: CardNumbers,
    shift: u64,
}

/// Powers of a base known beforehand: `base^(digit · 2^(width · window))` for every window and
/// digit, as numbers of chains, and the factor as a residue.
pub(super) struct CardTable {
    width: u64,
    windows: u64,
    memory: Arc<ResidentBeats>,
}

impl CardTable {
    /// Computes all on the card.
    pub(super) fn new(
        device: &Arc<CardDevice>,
        m: &Modular,
        fixed: &FixedBase,
    ) -> Result<Self, DeviceFault> {
        let width = 4;
        let windows = u64::from(fixed.exponent_bits()).div_ceil(width);
        let beats = (windows << width) * m.loose_length();
        let memory = device.resident(beats + m.length())?;
        let table = Self { width, windows, memory };
        let mut recorder = CardRecorder::default();
        let buffer = recorder.resident(&table.memory);
        if let Some(factor) = fixed.factor() {
            recorder.fill(buffer, beats, HostWords::Borrowed(factor));
        }
        let base = recorder.number(fixed.base().to_vec().into(), m.length());
        let mut turns = [(); 2].map(|()| m.loose(&mut recorder, 1));
        let square = m.square(&mut recorder);
        let first = table.window(&mut recorder, m, 0).after(m.loose_length());
        m.times(&mut recorder, [base, square, first], 1);
        let mut power = first;
        for window in 1..windows {
            let next = table.window(&mut recorder, m, window).after(m.loose_length());
            for turn in 0..width {
                let to = if turn + 1 == width { next } else { turns[0] };
                m.times(&mut recorder, [power, power, to], 1);
                power = to;
                turns.swap(0, 1);
            }
        }
        let whole = table.window(&mut recorder, m, 0).every(m.loose_length() << width);
        fill(&mut recorder, m, whole, width, windows);
        device.once(&recorder.finish()?)?;
        Ok(table)
    }

    /// Returns the table of a window.
    fn window(&self, recorder: &mut CardRecorder<'_>, m: &Modular, window: u64) -> CardNumbers {
        let length = m.loose_length();
        let start = (window << self.width) * length;
        CardNumbers { buffer: recorder.resident(&self.memory), start, stride: 0, length }
    }

    /// Returns the factor.
    fn factor(&self, recorder: &mut CardRecorder<'_>, m: &Modular) -> CardNumbers {
        let end = self.window(recorder, m, self.windows);
        end.of_length(m.length())
    }
}

/// Records the entries of tables, whose entries 1 are there.
fn fill(recorder: &mut CardRecorder<'_>, m: &Modular, table: CardNumbers, width: u64, count: u64) {
    let entry = |index: u64| table.after(index * m.loose_length());
    let one = m.one(recorder);
    copy(recorder, one, entry(0), count);
    for index in 2..1 << width {
        let factors = [entry(index / 2), entry(index.div_ceil(2)), entry(index)];
        m.times(recorder, factors, count);
    }
}

/// Records tables of the powers of `count` bases; returns that of the first.
fn tables(
    recorder: &mut CardRecorder<'_>,
    m: &Modular,
    bases: CardNumbers,
    width: u64,
    count: u64,
) -> CardNumbers {
    let (length, each) = (m.loose_length(), m.loose_length() << width);
    let table = recorder.numbers(count << width, length).every(each);
    let square = m.square(recorder);
    m.times(recorder, [bases, square, table.after(length)], count);
    fill(recorder, m, table, width, count);
    table
}

/// Returns the bits of the digits of exponents of so many, for which a table has to be made.
fn own_width(bits: u64) -> u64 {
    let cost = |&width: &u64| bits.div_ceil(width) + (1 << width);
    WIDTHS.into_iter().min_by_key(cost).unwrap_or(1)
}

/// Records the product over all rows of powers of `windows` digits; returns it as numbers of a chain.
fn product_of_powers(
    recorder: &mut CardRecorder<'_>,
    m: &Modular,
    rows: &[PowerRow],
    (windows, width): (u64, u64),
    count: u64,
) -> CardNumbers {
    let [mut product, mut other, mut digit, mut later] = [(); 4].map(|()| m.loose(recorder, count));
    let mut is_begun = false;
    for window in (0..windows).rev() {
        for _ in 0..if is_begun { width } else { 0 } {
            m.times(recorder, [product, product, other], count);
            (product, other) = (other, product);
        }
        for &PowerRow { table, exponent, shift } in rows {
            let to = if is_begun { digit } else { product };
            let call = Call::new(CardOperation::Select, to, count);
            let (a, b, shift) = (Some(table), Some(exponent), shift + window * width);
            recorder.call(Call { a, b, shift, width, ..call });
            if is_begun {
                m.times(recorder, [product, digit, other], count);
                (product, other, digit, later) = (other, product, later, digit);
            }
            is_begun = true;
        }
    }
    product
}

/// Takes products of powers out of chains.
fn plain(
    recorder: &mut CardRecorder<'_>,
    m: &Modular,
    product: CardNumbers,
    count: u64,
) -> CardNumbers {
    let (unit, power) = (m.unit(recorder), m.loose(recorder, count));
    m.times(recorder, [product, unit, power], count);
    power
}

/// Records powers of each item's own base, or of one base; returns them below 2M'.
pub(super) fn pow(
    recorder: &mut CardRecorder<'_>,
    m: &Modular,
    args: &[DeviceValue<'_>],
    bits: u32,
    count: u64,
) -> CardNumbers {
    let width = own_width(bits.into());
    let number = if args[0].shared { 1 } else { count };
    let table = tables(recorder, m, args[0].number(0), width, number);
    let table = if args[0].shared { table.every(0) } else { table };
    let rows = [PowerRow { table, exponent: args[1].number(0), shift: 0 }];
    let digits = (u64::from(bits).div_ceil(width), width);
    let product = product_of_powers(recorder, m, &rows, digits, count);
    plain(recorder, m, product, count)
}

/// Records products of powers of `number` bases that all items share; returns them below 2M'.
pub(super) fn dot(
    recorder: &mut CardRecorder<'_>,
    m: &Modular,
    args: &[DeviceValue<'_>],
    (bits, number): (u32, usize),
    count: u64,
) -> CardNumbers {
    let width = own_width(bits.into());
    let bases = args[0].number(0);
    let table = tables(recorder, m, bases.every(bases.length), width, number as u64);
    let row = |row: usize| PowerRow {
        table: table.every(0).after(row as u64 * table.stride),
        exponent: args[1].number(row),
        shift: 0,
    };
    let rows: Vec<_> = (0..number).map(row).collect();
    let digits = (u64::from(bits).div_ceil(width), width);
    let product = product_of_powers(recorder, m, &rows, digits, count);
    plain(recorder, m, product, count)
}

impl FpgaEngine {
    /// Records the residues that powers of a base known beforehand are.
    pub(super) fn fixed_power(
        &self,
        recorder: &mut CardRecorder<'_>,
        base: &Arc<FixedBase>,
        exponents: &DeviceValue<'_>,
        d: CardNumbers,
        count: u64,
    ) -> Result<(), DeviceFault> {
        let m = &*self.modulus(base.modulus())?;
        let table = self.table(base, m)?;
        let last = match base.factor() {
            Some(_) => table.factor(recorder, m),
            None => m.unit(recorder),
        };
        let exponent = exponents.number(0);
        let row = |window: u64, recorder: &mut CardRecorder<'_>| PowerRow {
            table: table.window(recorder, m, window),
            exponent,
            shift: window * table.width,
        };
        let rows: Vec<_> = (0..table.windows).map(|window| row(window, recorder)).collect();
        let product = product_of_powers(recorder, m, &rows, (1, table.width), count);
        let power = m.loose(recorder, count);
        m.times(recorder, [product, last, power], count);
        m.reduce(recorder, power, d, count);
        Ok(())
    }
}

/// Records copies of numbers.
pub(super) fn copy(recorder: &mut CardRecorder<'_>, a: CardNumbers, d: CardNumbers, count: u64) {
    // A digit of no bits, of whatever is there.
    recorder.call(Call { a: Some(a), b: Some(a), ..Call::new(CardOperation::Select, d, count) });
}
