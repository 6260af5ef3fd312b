//! The constants of moduli, of exact quotients and of recombinations that stay on the card.

use std::sync::Arc;

use crypto_bigint::ConcatenatingMul as _;
use zeroize::Zeroizing;

use super::{
    card::{CardDevice, ResidentBeats},
    record::{Call, CardNumbers, CardRecorder},
    registers,
    shape::{self, DIGIT, ProductShape},
};
use crate::{
    beats,
    device::{
        HostWords,
        numbers::{self, WipedWords, big, cut, mul_mod, power_of_two},
    },
    engine::DeviceFault,
    fpga::descriptor::CardOperation,
    modulus::{Modulus, inverse_mod_word},
    program::Crt,
    ring::Ring,
};

/// Numbers that stay on the card, one after the other.
pub(super) struct KeptNumbers {
    memory: Arc<ResidentBeats>,
    /// The first beat and the length of each.
    places: Vec<(u64, u64)>,
}

impl KeptNumbers {
    /// Copies numbers to the card, each to as many beats as told or as it has.
    pub(super) fn new(
        device: &Arc<CardDevice>,
        numbers: &[(&[u64], u64)],
    ) -> Result<Self, DeviceFault> {
        let mut end = 0;
        let mut place = |&(words, length): &(&[u64], u64)| {
            let length = length.max(words.len().div_ceil(8) as u64);
            let place = (end, length);
            end += length;
            place
        };
        let places: Vec<_> = numbers.iter().map(&mut place).collect();
        let memory = device.resident(end)?;
        let mut recorder = CardRecorder::default();
        let buffer = recorder.resident(&memory);
        for (&(words, _), &(start, length)) in numbers.iter().zip(&places) {
            let mut padded = Zeroizing::new(vec![0; 8 * length as usize]);
            padded[..words.len()].copy_from_slice(words);
            recorder.fill(buffer, start, HostWords::Owned(padded));
        }
        device.once(&recorder.finish()?)?;
        Ok(Self { memory, places })
    }

    /// Returns a number of these, the same for all items.
    pub(super) fn number(&self, recorder: &mut CardRecorder<'_>, index: usize) -> CardNumbers {
        let buffer = recorder.resident(&self.memory);
        let (start, length) = self.places[index];
        CardNumbers { buffer, start, stride: 0, length }
    }
}

/// The constants of arithmetic modulo m.
pub(super) struct Modular {
    pub(super) bits: u64,
    pub(super) shape: ProductShape,
    /// Words of 64 bits of a residue.
    words: u64,
    kept: KeptNumbers,
}

impl Modular {
    /// Makes m, M″, 2^N mod m, 2^(2N) mod m and 1.
    pub(super) fn new(device: &Arc<CardDevice>, modulus: &Modulus) -> Result<Self, DeviceFault> {
        let (m, bits) = (modulus.words(), u64::from(modulus.bits()));
        let words = m.len() as u64;
        let shape = ProductShape::modular(device.sizes.rows, bits, 64 * words);
        let [one, square] = [1, 2].map(|times| power_of_two(times * shape.radix as u32, m));
        let loose = shape::beats(bits + 18);
        let numbers: [(&[u64], u64); 5] =
            [(m, 0), (&folded(m), 0), (&one, loose), (&square, 0), (&[1], 0)];
        Ok(Self { bits, shape, words, kept: KeptNumbers::new(device, &numbers)? })
    }

    /// Returns the beats of a residue.
    pub(super) fn length(&self) -> u64 {
        shape::beats(self.bits)
    }

    /// Returns the beats of a number below 2M'.
    pub(super) fn loose_length(&self) -> u64 {
        shape::beats(self.bits + 18)
    }

    /// Returns room for `count` numbers below 2M'.
    pub(super) fn loose(&self, recorder: &mut CardRecorder<'_>, count: u64) -> CardNumbers {
        recorder.numbers(count, self.loose_length())
    }

    /// Returns m.
    pub(super) fn m(&self, recorder: &mut CardRecorder<'_>) -> CardNumbers {
        self.kept.number(recorder, 0)
    }

    /// Returns 2^N mod m, the 1 of chains, in the beats of a number below 2M'.
    pub(super) fn one(&self, recorder: &mut CardRecorder<'_>) -> CardNumbers {
        self.kept.number(recorder, 2)
    }

    /// Returns 2^(2N) mod m, which a product with takes into chains.
    pub(super) fn square(&self, recorder: &mut CardRecorder<'_>) -> CardNumbers {
        self.kept.number(recorder, 3)
    }

    /// Returns the plain 1, which a product with takes out of chains.
    pub(super) fn unit(&self, recorder: &mut CardRecorder<'_>) -> CardNumbers {
        self.kept.number(recorder, 4)
    }

    /// Returns the bits by which to shift factors for a product by `2^(−64 · words)`.
    pub(super) fn montgomery_shift(&self) -> u64 {
        self.shape.radix - 64 * self.words
    }

    /// Returns a product modulo m, without its third operand, that writes T.
    pub(super) fn product(
        &self,
        recorder: &mut CardRecorder<'_>,
        [a, b, d]: [CardNumbers; 3],
        count: u64,
    ) -> Call {
        let folded = self.kept.number(recorder, 1);
        Call {
            flags: registers::FLAG_WITH_M | registers::FLAG_HIGH,
            a: Some(a),
            b: Some(b),
            m: Some(folded),
            words: self.shape.words,
            passes: self.shape.passes,
            ..Call::new(CardOperation::Multiply, d, count)
        }
    }

    /// Records `a · b · 2^(−N)` in chains.
    pub(super) fn times(
        &self,
        recorder: &mut CardRecorder<'_>,
        factors: [CardNumbers; 3],
        count: u64,
    ) {
        let call = self.product(recorder, factors, count);
        recorder.call(call);
    }

    /// Returns the residue of numbers below 2^20 · m, or with the flag `high` the quotient.
    pub(super) fn remainder(
        &self,
        recorder: &mut CardRecorder<'_>,
        a: CardNumbers,
        d: CardNumbers,
        count: u64,
    ) -> Call {
        let m = self.m(recorder);
        Call {
            a: Some(a),
            m: Some(m),
            shift: self.bits.saturating_sub(22),
            ..Call::new(CardOperation::Reduce, d, count)
        }
    }

    /// Records the residues of numbers below 2^20 · m.
    pub(super) fn reduce(
        &self,
        recorder: &mut CardRecorder<'_>,
        a: CardNumbers,
        d: CardNumbers,
        count: u64,
    ) {
        let call = self.remainder(recorder, a, d, count);
        recorder.call(call);
    }
}

/// The constants of products of pairs modulo the square of s.
pub(super) struct Pairing {
    /// Bits of what takes the quotient's place.
    pub(super) bits: u64,
    kept: KeptNumbers,
}

impl Pairing {
    /// Makes k, and the least multiple of s that is above `k · 2^N`, or s more.
    pub(super) fn new(
        device: &Arc<CardDevice>,
        root: &Modulus,
        modular: &Modular,
    ) -> Result<Self, DeviceFault> {
        let s = root.words();
        let radix = modular.shape.radix;
        let k = Zeroizing::new(vec![negated_inverse(s[0])]);
        let rest = mul_mod(&k, &power_of_two(radix as u32, s), s);
        let power = Zeroizing::new(power_of_two_words(radix));
        let top = Zeroizing::new(big(&power).concatenating_mul(&*big(&k)));
        let missing = Zeroizing::new(big(s).wrapping_sub(&*big(&rest)));
        let sum = Zeroizing::new(top.concatenating_add(&*missing));
        let bits = (radix + DIGIT).max(64 * s.len() as u64) + 1;
        let multiple = cut(sum.as_words(), bits.div_ceil(64) as usize);
        let kept = KeptNumbers::new(device, &[(&k, 0), (&multiple, shape::beats(bits))])?;
        Ok(Self { bits, kept })
    }

    /// Returns k.
    pub(super) fn factor(&self, recorder: &mut CardRecorder<'_>) -> CardNumbers {
        self.kept.number(recorder, 0)
    }

    /// Returns the multiple of s.
    pub(super) fn multiple(&self, recorder: &mut CardRecorder<'_>) -> CardNumbers {
        self.kept.number(recorder, 1)
    }
}

/// The constants of exact quotients below d by d: its inverse and the negative of that, modulo a
/// power of two that d's beats hold.
pub(super) struct Quotient {
    pub(super) shape: ProductShape,
    kept: KeptNumbers,
}

impl Quotient {
    pub(super) fn new(device: &Arc<CardDevice>, divisor: &Modulus) -> Result<Self, DeviceFault> {
        let d = divisor.words();
        let length = shape::beats(divisor.bits().into());
        let bits = length * shape::BEAT;
        let divisor = big(&cut(d, 8 * length as usize));
        let [two, start] =
            [2, inverse_mod_word(d[0])].map(|word| cut(&[word], 8 * length as usize));
        let (two, mut inverse) = (big(&two), big(&start));
        // Each step doubles the bits that are right, from 64 on.
        for _ in 0..(bits / 64).ilog2() + u32::from(!(bits / 64).is_power_of_two()) {
            let product = Zeroizing::new(divisor.wrapping_mul(&*inverse));
            let factor = Zeroizing::new(two.wrapping_sub(&*product));
            inverse = Zeroizing::new(inverse.wrapping_mul(&*factor));
        }
        let minus = Zeroizing::new(inverse.wrapping_neg());
        let kept = KeptNumbers::new(device, &[(inverse.as_words(), 0), (minus.as_words(), 0)])?;
        Ok(Self { shape: ProductShape::plain(device.sizes.rows, bits, bits), kept })
    }

    /// Returns `1/d`.
    pub(super) fn inverse(&self, recorder: &mut CardRecorder<'_>) -> CardNumbers {
        self.kept.number(recorder, 0)
    }

    /// Returns `−1/d`.
    pub(super) fn minus(&self, recorder: &mut CardRecorder<'_>) -> CardNumbers {
        self.kept.number(recorder, 1)
    }
}

/// Makes the constants of a recombination: the factors of b and of a, in chains modulo q.
pub(super) fn recombination(
    device: &Arc<CardDevice>,
    crt: &Crt,
    q: &Modular,
) -> Result<KeptNumbers, DeviceFault> {
    let [plus, minus] = numbers::recombination(crt, q.shape.radix as u32);
    KeptNumbers::new(device, &[(&plus, 0), (&minus, 0)])
}

/// Makes the primes of lanes, in as many beats as hold whole coefficients.
pub(super) fn lanes(device: &Arc<CardDevice>, ring: &Ring) -> Result<KeptNumbers, DeviceFault> {
    let primes = ring.primes();
    let count = beats::beats_per_unit(primes.len());
    let mut words = vec![0; count * beats::WORDS];
    for lane in 0..count * beats::LANES {
        let beat = &mut words[lane / beats::LANES * beats::WORDS..][..beats::WORDS];
        beats::set_lane(beat, lane % beats::LANES, primes[lane % primes.len()]);
    }
    KeptNumbers::new(device, &[(&words, 0)])
}

/// `−m⁻¹ mod 2^17`.
fn negated_inverse(m: u64) -> u64 {
    inverse_mod_word(m).wrapping_neg() & ((1 << DIGIT) - 1)
}

/// M″ = `(k · m + 1) / 2^17`, which has the words of m.
fn folded(m: &[u64]) -> WipedWords {
    let k = u128::from(negated_inverse(m[0]));
    let mut carry = 1;
    let mut product = Zeroizing::new(Vec::with_capacity(m.len() + 1));
    for &word in m {
        carry += k * u128::from(word);
        product.push(carry as u64);
        carry >>= 64;
    }
    product.push(carry as u64);
    let words = product.windows(2).map(|pair| pair[0] >> DIGIT | pair[1] << (64 - DIGIT));
    Zeroizing::new(words.collect())
}

fn power_of_two_words(exponent: u64) -> Vec<u64> {
    let mut words = vec![0; exponent as usize / 64 + 1];
    words[exponent as usize / 64] = 1 << (exponent % 64);
    words
}
