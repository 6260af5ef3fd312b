//! The constants of moduli, fixed bases and recombinations that stay on the device.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::{
    device::GpuDevice,
    memory::ResidentBuffer,
    record::{Bindings, GpuRecorder},
    shaders::{CONSTANTS_HEAD, LIMB_BITS, OverNumbers, Params, Shape},
};
use crate::{
    device::{
        Buffer, HostWords,
        numbers::{WipedWords, big, cut, mul_mod, power_of_two, recombination},
    },
    engine::DeviceFault,
    modulus::{Modulus, inverse_mod_word, odd},
    program::{Crt, FixedBase},
};

/// The constants of a modulus, as kernels read them.
pub(crate) struct Constants {
    pub(crate) shape: Shape,
    /// Numbers of a residue: 2 modulo a square s², whose residues are pairs; then the shape is of
    /// s.
    digits: u32,
    memory: Arc<ResidentBuffer>,
}

impl Constants {
    /// `m`, then `numbers`, all below R'.
    fn new(
        device: &Arc<GpuDevice>,
        shape: Shape,
        m: &[u64],
        numbers: &[&[u64]],
    ) -> Result<Self, DeviceFault> {
        let each = shape.words() as usize;
        let halves = CONSTANTS_HEAD + each * (1 + numbers.len());
        let mut words = Zeroizing::new(vec![0u64; halves / 2]);
        words[0] = inverse_mod_word(m[0]).wrapping_neg() & ((1 << LIMB_BITS) - 1);
        for (index, number) in std::iter::once(&m).chain(numbers).enumerate() {
            for j in 0..shape.total() {
                let half = CONSTANTS_HEAD + index * each + shape.place(j) as usize;
                words[half / 2] |= u64::from(limb(number, j)) << (half % 2 * 32);
            }
        }
        Ok(Self { shape, digits: 1, memory: filled(device, &words)? })
    }

    /// Makes the constants of arithmetic modulo `modulus`: m, R' and R'².
    pub(crate) fn of_modulus(
        device: &Arc<GpuDevice>,
        modulus: &Modulus,
    ) -> Result<Self, DeviceFault> {
        Self::with_extras(device, modulus, &[])
    }

    /// Makes the constants of pairs modulo the square of `root`: s, R'' and R''².
    pub(crate) fn of_pairs(
        device: &Arc<GpuDevice>,
        square: &Modulus,
        root: &Modulus,
    ) -> Result<Self, DeviceFault> {
        let shape = Shape::of_words(root.len_words());
        let bits = shape.pair_radix_bits();
        let powers = [bits, 2 * bits]
            .map(|bits| digits_of(&power_of_two(bits, square.words()), root.words()));
        let numbers: Vec<&[u64]> = powers.iter().flatten().map(|digit| digit.as_slice()).collect();
        Ok(Self { digits: 2, ..Self::new(device, shape, root.words(), &numbers)? })
    }

    /// Makes the constants of inverses modulo `modulus`, with R' ≥ 2^32 · m: see `invert.wgsl`.
    pub(crate) fn of_inverses(
        device: &Arc<GpuDevice>,
        modulus: &Modulus,
    ) -> Result<Self, DeviceFault> {
        let shape = Shape::with_room(modulus.len_words(), 32);
        Self::new(device, shape, modulus.words(), &[])
    }

    /// Makes the constants of `(b − a) · p⁻¹ mod q`: see `residues_sum.wgsl`.
    pub(crate) fn of_crt(device: &Arc<GpuDevice>, crt: &Crt) -> Result<Self, DeviceFault> {
        let q = crt.q();
        let bits = Shape::of_words(q.len_words()).radix_bits();
        let [plus, minus] = recombination(crt, bits);
        Self::with_extras(device, q, &[&minus, &plus])
    }

    fn with_extras(
        device: &Arc<GpuDevice>,
        modulus: &Modulus,
        extras: &[&[u64]],
    ) -> Result<Self, DeviceFault> {
        let m = modulus.words();
        let shape = Shape::of_words(m.len());
        let bits = shape.radix_bits();
        let [one, square] = [bits, 2 * bits].map(|bits| power_of_two(bits, m));
        let numbers: Vec<&[u64]> = [&one[..], &square].into_iter().chain(extras.to_vec()).collect();
        Self::new(device, shape, m, &numbers)
    }

    /// Makes the constants of `a · n + b` in plain numbers of `words` words: see `linear.wgsl`.
    pub(crate) fn of_linear(
        device: &Arc<GpuDevice>,
        n: &Modulus,
        words: usize,
    ) -> Result<Self, DeviceFault> {
        let shape = Shape::of_words(words);
        let bits = shape.radix_bits() as usize;
        let mut all_ones = vec![u64::MAX; bits.div_ceil(64)];
        if !bits.is_multiple_of(64) {
            all_ones[bits / 64] = (1 << (bits % 64)) - 1;
        }
        // What is at the places of R' and R'² is not read.
        Self::new(device, shape, &all_ones, &[&[], &[], n.words()])
    }

    /// Returns this memory in a recording.
    pub(crate) fn buffer(&self, recorder: &mut GpuRecorder<'_>) -> Buffer {
        recorder.resident(&self.memory)
    }

    /// Returns the kernel of tables of powers.
    pub(crate) fn table_kernel(&self) -> OverNumbers {
        if self.digits == 1 { OverNumbers::Table } else { OverNumbers::PairTable }
    }

    /// Returns the kernel of products of entries of such tables.
    pub(crate) fn pow_kernel(&self) -> OverNumbers {
        if self.digits == 1 { OverNumbers::Pow } else { OverNumbers::PairPow }
    }

    /// Returns the words of a residue that stays on the device.
    pub(crate) fn words(&self) -> u32 {
        self.digits * self.shape.words()
    }

    /// Returns the cost of a product, in limbs touched over the limbs of a residue: a product and a
    /// reduction of its number; of a pair three products and two reductions of one of two numbers.
    pub(crate) fn product_cost(&self) -> u32 {
        let total = self.shape.total();
        if self.digits == 1 { 2 * total } else { 5 * total / 2 }
    }
}

/// Returns limb `index` of a number: 29 bits from bit 29 · index on.
fn limb(words: &[u64], index: u32) -> u32 {
    let bit = (LIMB_BITS * index) as usize;
    let word = |i: usize| words.get(i).map_or(0, |&w| u128::from(w));
    let two = word(bit / 64) | word(bit / 64 + 1) << 64;
    (two >> (bit % 64)) as u32 & ((1 << LIMB_BITS) - 1)
}

/// Makes device memory with these words, of which no copy is left on the way.
pub(crate) fn filled(
    device: &Arc<GpuDevice>,
    words: &[u64],
) -> Result<Arc<ResidentBuffer>, DeviceFault> {
    let resident = device.resident(2 * words.len())?;
    let mut recorder = GpuRecorder::default();
    let buffer = recorder.resident(&resident);
    recorder.fill(buffer, HostWords::Borrowed(words));
    device.once(&recorder.finish()?)?;
    Ok(resident)
}

/// Returns the digits of x in base s, x being below s². Constant time.
fn digits_of(x: &[u64], s: &[u64]) -> [WipedWords; 2] {
    let (quotient, rest) = big(x).div_rem(odd(&big(s)).as_nz_ref());
    [rest, quotient].map(|digit| cut(Zeroizing::new(digit).as_words(), s.len()))
}

/// The powers of a fixed base: `base^(digit · 2^(width · window))` for every window and digit.
pub(crate) struct GpuTable {
    pub(crate) width: u32,
    pub(crate) windows: u32,
    memory: Arc<ResidentBuffer>,
}

/// The most bytes of the table of a fixed base.
const TABLE_BYTES: u64 = 64_000_000;

impl GpuTable {
    /// Computes the first power of each window here, all entries on the device.
    pub(crate) fn new(
        device: &Arc<GpuDevice>,
        m: &Constants,
        fixed: &FixedBase,
    ) -> Result<Self, DeviceFault> {
        let (bits, each) = (fixed.exponent_bits(), m.words());
        let bytes = |w: &u32| u64::from(bits.div_ceil(*w) * each) << (w + 2);
        let fits = |w: &u32| bytes(w) <= TABLE_BYTES.min(device.binding_bytes());
        let cost = |w: &u32| digit_cost(bits, *w, m.product_cost());
        let width = (1..=MAX_WIDTH).filter(fits).min_by_key(cost).unwrap_or(1);
        let windows = bits.div_ceil(width);
        let modulus = fixed.modulus();
        let firsts = in_digits(&first_powers(fixed, width, windows), modulus);
        let factor = in_digits(fixed.factor().unwrap_or(&[]), modulus);
        let words = 2 * modulus.root().unwrap_or(modulus).len_words() as u32;

        let memory = device.resident(((windows * each) << width) as usize)?;
        let mut recorder = GpuRecorder::default();
        let bases = recorder.constant(HostWords::Borrowed(&firsts));
        // The kernel may look at it where there is none.
        let factors = recorder.buffer((m.digits * words) as usize);
        recorder.fill(factors, HostWords::Borrowed(&factor));
        let (constants, out) = (m.buffer(&mut recorder), recorder.resident(&memory));
        let params = Params {
            count: windows,
            a_words: words,
            a_stride: m.digits * words,
            b_words: words,
            width,
            flag: u32::from(!factor.is_empty()),
            ..Params::default()
        };
        let bindings = Bindings { constants, a: bases, b: factors, out, state: None };
        recorder.over_numbers(m.table_kernel(), m.shape, windows, &bindings, params);
        device.once(&recorder.finish()?)?;
        Ok(Self { width, windows, memory })
    }

    /// Returns this memory in a recording.
    pub(crate) fn buffer(&self, recorder: &mut GpuRecorder<'_>) -> Buffer {
        recorder.resident(&self.memory)
    }
}

/// The most bits of a digit: its table of 128 entries is made in one dispatch.
pub(crate) const MAX_WIDTH: u32 = 7;

/// Returns the cost of digits of `width` bits, in limbs touched over the limbs of a residue: a
/// product for every digit, and every entry of a table read for it.
pub(crate) fn digit_cost(bits: u32, width: u32, product: u32) -> u32 {
    bits.div_ceil(width) * (product + (1 << width))
}

/// Lays residues out as kernels over their modulus take them: modulo a square as digits. Constant
/// time.
fn in_digits(residues: &[u64], modulus: &Modulus) -> Zeroizing<Vec<u64>> {
    let each = residues.chunks(modulus.len_words());
    match modulus.root() {
        None => Zeroizing::new(residues.to_vec()),
        Some(root) => {
            let mut words = Zeroizing::new(Vec::with_capacity(each.len() * 2 * root.len_words()));
            each.flat_map(|x| digits_of(x, root.words()))
                .for_each(|digit| words.extend_from_slice(&digit));
            words
        }
    }
}

/// `base^(2^(width · window))` for every window. Constant time.
fn first_powers(fixed: &FixedBase, width: u32, windows: u32) -> Zeroizing<Vec<u64>> {
    let m = fixed.modulus();
    let mut power = Zeroizing::new(fixed.base().to_vec());
    let mut words = Zeroizing::new(Vec::with_capacity(windows as usize * m.len_words()));
    for window in 0..windows {
        if window > 0 {
            (0..width).for_each(|_| power = mul_mod(&power, &power, m.words()));
        }
        words.extend_from_slice(&power);
    }
    words
}
