//! Any processor: one number at a time, limbs of 64 bits, `u128` products.

mod rows;

use super::backend::{Backend, Factor, Items, Limbs};

/// Room for the limbs of the largest modulus.
const MAX_LIMBS: usize = crate::modulus::MAX_MODULUS_BITS as usize / 64 + 1;

/// Needs nothing of the processor.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// A digit.
pub(super) struct Digit {
    value: u64,
    width: usize,
}

impl Factor<'_, Portable> {
    /// The limbs of the factor, in `room` if they have to be picked.
    fn limbs<'r>(&'r self, room: &'r mut [u64]) -> &'r [u64] {
        let (table, digit) = match self {
            Self::Group(group) => return group,
            Self::Own { table, digits } | Self::Shared { table, digits } => (table, digits),
        };
        for (limb, entries) in room.iter_mut().zip(table.chunks_exact(1 << digit.width)) {
            *limb = pick(entries, digit.value);
        }
        room
    }
}

/// Entry `digit`, reading every entry.
fn pick(entries: &[u64], digit: u64) -> u64 {
    let masked = |(index, &entry): (usize, &u64)| {
        // All ones exactly for the wanted entry, without a comparison that could become a branch.
        let difference = index as u64 ^ digit;
        entry & ((difference | difference.wrapping_neg()) >> 63).wrapping_sub(1)
    };
    entries.iter().enumerate().map(masked).fold(0, |picked, entry| picked | entry)
}

impl Backend for Portable {
    type Word = u64;
    type Digits = Digit;

    const LANES: usize = 1;
    const LIMB_BITS: u32 = 64;
    const PICK: f64 = 8.0;

    fn zero(self) -> u64 {
        0
    }

    fn bias(multiple: &[u64]) -> Vec<u64> {
        multiple.to_vec()
    }

    fn mul_redc<const P: usize>(
        self,
        m: &Limbs,
        out: &mut [u64],
        acc: &mut [u64],
        pairs: [(Factor<'_, Self>, &[u64]); P],
    ) {
        let h = m.len();
        let mut rooms = [[0; MAX_LIMBS]; P];
        let mut factors: [(&[u64], &[u64]); P] = [(&[], &[]); P];
        for ((factor, room), (a, b)) in factors.iter_mut().zip(&mut rooms).zip(&pairs) {
            *factor = (&a.limbs(&mut room[..h])[..h], &b[..h]);
        }
        if P > 0 {
            acc[h + 1..2 * h].fill(0);
        }
        rows::mul_redc(&m.m, m.neg_inverse, &mut acc[..2 * h], factors);
        out[..h].copy_from_slice(&acc[h..2 * h]);
        rooms.iter_mut().for_each(|room| zeroize::Zeroize::zeroize(&mut room[..h]));
    }

    fn square(self, acc: &mut [u64], a: &[u64]) {
        rows::square(&mut acc[..2 * a.len()], a);
    }

    fn mul_wide(self, acc: &mut [u64], a: &[u64], b: &[u64]) {
        rows::mul_wide(&mut acc[..a.len() + b.len()], a, b);
    }

    fn double(self, out: &mut [u64], a: &[u64]) {
        let mut carry = 0;
        for (out, &x) in out.iter_mut().zip(a) {
            (*out, carry) = (x << 1 | carry, x >> 63);
        }
    }

    fn complement(self, acc: &mut [u64], m: &Limbs) {
        acc[m.len()] = 0;
        let mut borrow = 0;
        for (x, &bias) in acc.iter_mut().zip(&m.bias) {
            (*x, borrow) = subtract(bias, *x, borrow);
        }
    }

    fn add_assign(self, a: &mut [u64], b: &[u64]) {
        let mut carry = 0;
        for (i, x) in a.iter_mut().enumerate() {
            let sum = u128::from(*x) + u128::from(b.get(i).copied().unwrap_or(0)) + carry;
            (*x, carry) = (sum as u64, sum >> 64);
        }
    }

    fn reduce_once(self, m: &[u64], x: &mut [u64]) -> u64 {
        let mut borrow = 0;
        for (&x, &m) in x.iter().zip(m) {
            borrow = subtract(x, m, borrow).1;
        }
        let large = std::hint::black_box(borrow.wrapping_sub(1));
        let mut borrow = 0;
        for (x, &m) in x.iter_mut().zip(m) {
            (*x, borrow) = subtract(*x, m & large, borrow);
        }
        large & 1
    }

    fn negate(self, x: &mut [u64]) {
        let mut borrow = 0;
        for x in x {
            (*x, borrow) = subtract(0, *x, borrow);
        }
    }

    fn select(self, out: &mut [u64], factor: &Factor<'_, Self>) {
        let mut room = [0; 2 * MAX_LIMBS];
        let len = out.len();
        out.copy_from_slice(factor.limbs(&mut room[..len]));
        zeroize::Zeroize::zeroize(&mut room[..len]);
    }

    fn load(self, out: &mut [u64], items: &Items<'_>, first: usize, shift: u32) {
        let item = items.item(first);
        let word = |i: Option<usize>| i.and_then(|i| item.get(i)).copied().unwrap_or(0);
        let (up, bits) = ((shift / 64) as usize, shift % 64);
        for (l, out) in out.iter_mut().enumerate() {
            let (high, low) = (word(l.checked_sub(up)), word(l.checked_sub(up + 1)));
            *out = if bits == 0 { high } else { high << bits | low >> (64 - bits) };
        }
    }

    fn store(self, out: &mut [u64], each: usize, x: &[u64]) {
        let used = each.min(x.len());
        out[..used].copy_from_slice(&x[..used]);
        out[used..].fill(0);
    }

    fn load_words(self, out: &mut [u64], items: &Items<'_>, first: usize) {
        out.copy_from_slice(items.item(first));
    }

    fn digits(self, words: &[u64], at: usize, bits: usize, width: usize) -> Digit {
        let (word, bit) = (at / 64, at % 64);
        let next = words.get(word + 1).copied().unwrap_or(0);
        let both = u128::from(words[word]) | u128::from(next) << 64;
        Digit { value: (both >> bit) as u64 & ((1 << bits) - 1), width }
    }

    fn width(digits: &Digit) -> usize {
        digits.width
    }

    fn lane(word: u64, _lane: usize) -> u64 {
        word
    }

    fn from_lanes(self, limbs: impl Fn(usize) -> u64) -> u64 {
        limbs(0)
    }
}

/// `a − b − borrow`, and the borrow of it.
fn subtract(a: u64, b: u64, borrow: u64) -> (u64, u64) {
    let difference = u128::from(a).wrapping_sub(u128::from(b) + u128::from(borrow));
    (difference as u64, (difference >> 127) as u64)
}
