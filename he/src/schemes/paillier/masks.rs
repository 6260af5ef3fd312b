//! Masks: the programs of an encryption, and what each draws for every ciphertext.
//!
//! Tables of fixed bases hold their powers times R, so that one Montgomery product with the message
//! part makes an ordinary ciphertext.
//!
//! # The owner's masks
//! Modulo p², the n-th powers of units are the cyclic group of order p − 1: raising to the power p
//! maps the numbers from 1 to p − 1 onto it one to one, and raising to the power q only permutes it,
//! since q shares no factor with p − 1. So `g_p = x^p mod p²` with `x` uniform is a uniform n-th
//! power, and with an exponent uniform below p − 1, a multiple of its order, `g_p^r` is uniform in
//! the group that it generates, exactly. The same holds modulo q², independently. A full mask is
//! uniform among all n-th powers. The group of `g_p` is all of them but for a small index, which a
//! prime l that divides p − 1 divides with the chance 1/l.
//!
//! So the masks of a key are uniform in one random, nearly full group of n-th powers, which holds all
//! powers of the random n-th power that is `g_p` modulo p² and `g_q` modulo q². Short masks come from
//! such powers as well, and only close to uniformly. What hides them is the same assumption, that
//! nobody tells powers of a random n-th power from other numbers; but the owner, who knows the orders,
//! needs no promise about the form of p and q for it.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine, Modulus, Operand, Program, Public, Secret, program::FixedBase,
    random::StreamRng,
};
use crypto_bigint::BoxedUint;
use rand_core::Rng;
use zeroize::Zeroizing;

use super::{
    factors::{Factors, secret_big},
    words::is_below,
};
use crate::{Error, error::ModulusFault};

/// The program of an encryption, and what must be drawn for it.
///
/// Its operands are the plaintexts, one batch for each draw, and the ciphertexts: as pairs, or
/// ordinary ones, whichever the masks make cheaper.
pub(super) struct Masks {
    pub(super) program: Arc<Program>,
    pub(super) draws: Vec<Draw>,
    pub(super) pairs: bool,
}

/// Secret numbers of `bits` bits, uniform or uniform below a bound.
pub(super) struct Draw {
    bits: u32,
    below: Option<Zeroizing<Vec<u64>>>,
    /// Words of each item, with zeros past the number.
    item_words: usize,
}

impl Draw {
    fn of_bits(bits: u32) -> Self {
        Self { bits, below: None, item_words: bits.div_ceil(64) as usize }
    }

    /// Below a bound of `bits` bits.
    fn below(bound: &[u64], bits: u32, item_words: usize) -> Self {
        Self { bits, below: Some(Zeroizing::new(bound.to_vec())), item_words }
    }

    /// Draws a whole batch into one buffer. A number that is not below the bound is drawn again:
    /// fewer than half of all, since a bound has its highest bit set. How often that happens shows
    /// in time; what is kept does not depend on it, nor time on what is kept.
    pub(super) fn fill(&self, count: usize, rng: &mut StreamRng) -> Zeroizing<Vec<u64>> {
        let used = self.bits.div_ceil(64) as usize;
        let top = u64::MAX >> (64 * used as u32 - self.bits);
        let mut out = Zeroizing::new(vec![0; count * self.item_words]);
        for item in out.chunks_mut(self.item_words) {
            let number = &mut item[..used];
            loop {
                number.iter_mut().for_each(|word| *word = rng.next_u64());
                number[used - 1] &= top;
                if self.below.as_ref().is_none_or(|bound| is_below(number, bound)) {
                    break;
                }
            }
        }
        out
    }
}

impl Masks {
    /// Makes full masks modulo n², for moduli of unknown form.
    pub(super) fn full(n: &Arc<Modulus>, n_squared: &Arc<Modulus>) -> Self {
        let program = full_mask_program(n, n_squared);
        let r = Draw::below(n.words(), n.bits(), n_squared.len_words());
        Self { program: program.into(), draws: vec![r], pairs: false }
    }

    /// Makes the masks of the key's owner: powers of fixed bases modulo p² and q², joined.
    ///
    /// # Errors
    /// The engine's.
    pub(super) fn for_owner(
        (n, n_squared): (&Arc<Modulus>, &Arc<Modulus>),
        factors: &Factors,
        engine: &dyn Engine,
        rng: &mut StreamRng,
    ) -> Result<Self, Error> {
        let (p, q) = (factors.p.words(), factors.q.words());
        let radix = n_squared.radix_power(1);
        let mut base = |name, p, square| owner_base(name, (p, square), &radix, engine, rng);
        let (base_p, exponents_p) = base("g_p (times R)", p, &factors.p_squared)?;
        let (base_q, exponents_q) = base("g_q (times R)", q, &factors.q_squared)?;
        let mut b = Builder::new("paillier.encrypt_owner");
        let m = b.integers("m", n.len_words());
        let r = b.exponents::<Secret>("r_p", exponents_p.bits);
        let s = b.exponents::<Secret>("r_q", exponents_q.bits);
        let plain = b.one_plus_mn("plain", m, n, n_squared);
        let mask_p = b.pow_fixed_base("mask_p", &base_p, r);
        let mask_q = b.pow_fixed_base("mask_q", &base_q, s);
        let mask = b.crt_join_residues("mask", (mask_p, mask_q), &factors.squares, n_squared);
        let c = b.mont_mul("c", plain, mask);
        b.output(c);
        Ok(Self { program: b.build().into(), draws: vec![exponents_p, exponents_q], pairs: false })
    }

    /// Makes short masks: `(1 + m·n) · h_s^r` with `r` of half the bits of n. Draws `x` and computes
    /// `h_s = (−x²)ⁿ`.
    ///
    /// # Errors
    /// The engine's.
    pub(super) fn short(
        n: &Arc<Modulus>,
        n_squared: &Arc<Modulus>,
        engine: &dyn Engine,
        rng: &mut StreamRng,
    ) -> Result<Self, Error> {
        let x = secret_big(&Draw::below(n.words(), n.bits(), n.len_words()).fill(1, rng));
        let big_n = BoxedUint::from_words(n.words().iter().copied());
        let nonzero = big_n.to_nz().into_option().ok_or_else(ModulusFault::even)?;
        let h = Zeroizing::new(big_n.wrapping_sub(x.square_mod(&nonzero)));
        let mut base = Zeroizing::new(vec![0; n_squared.len_words()]);
        base[..n.len_words()].copy_from_slice(h.as_words());
        let h_s = secret_power(engine, n_squared, &base, (n.words(), n.bits()))?;
        let base = FixedBase::new("h_s (times R)", n_squared.clone(), &h_s, n.bits() / 2);
        let base = Arc::new(base.times(&n_squared.pair_radix_power(1)));

        let mut b = Builder::new("paillier.encrypt");
        let m = b.integers("m", n.len_words());
        let r = b.exponents::<Secret>("r", n.bits() / 2);
        let plain = b.one_plus_mn_pair("plain", m, n_squared);
        let mask = b.pow_fixed_base_pair("mask", &base, r);
        let c = b.pair_mul("c", plain, mask);
        b.output(c);
        let draws = vec![Draw::of_bits(n.bits() / 2)];
        Ok(Self { program: b.build().into(), draws, pairs: true })
    }
}

/// Draws `x` below p, and gives `x^p mod p²`, with every power times the radix modulo n², and
/// exponents uniform below `p − 1`. That `x` is 0 has the chance of guessing p.
fn owner_base(
    name: &str,
    (p, p_squared): (&[u64], &Arc<Modulus>),
    radix: &[u64],
    engine: &dyn Engine,
    rng: &mut StreamRng,
) -> Result<(Arc<FixedBase>, Draw), Error> {
    let bits = secret_big(p).bits();
    let x = Draw::below(p, bits, p_squared.len_words()).fill(1, rng);
    let base = secret_power(engine, p_squared, &x, (p, bits))?;
    let mut p_1 = Zeroizing::new(p.to_vec());
    p_1[0] -= 1;
    let square = secret_big(p_squared.words());
    let square = square.as_nz_vartime().ok_or_else(ModulusFault::not_prime)?;
    // The quotient tells p as well as the remainder does.
    let (quotient, radix) = secret_big(radix).div_rem(square);
    let (_, radix) = (Zeroizing::new(quotient), Zeroizing::new(radix));
    let base = FixedBase::new(name, p_squared.clone(), &base, bits).times(radix.as_words());
    Ok((Arc::new(base), Draw::below(&p_1, bits, p.len())))
}

/// Builds the program of `(1 + m·n) · rⁿ` with a mask `r` uniform below n.
pub(super) fn full_mask_program(n: &Arc<Modulus>, n_squared: &Arc<Modulus>) -> Program {
    let mut b = Builder::new("paillier.encrypt");
    let m = b.integers("m", n.len_words());
    let r = b.secret_residues("r", n_squared);
    let e = b.public_exponent("n", n.bits(), n.words());
    let plain = b.one_plus_mn("plain", m, n, n_squared);
    let mask = b.pow::<Public>("mask", r, e);
    let c = b.mul("c", plain, mask);
    b.output(c);
    b.build()
}

/// Computes `base^exponent mod m`, all secret but the modulus' size.
fn secret_power(
    engine: &dyn Engine,
    m: &Arc<Modulus>,
    base: &[u64],
    (exponent, bits): (&[u64], u32),
) -> Result<Zeroizing<Vec<u64>>, Error> {
    let mut b = Builder::new("paillier.base");
    let x = b.secret_residues("x", m);
    let e = b.secret_exponent("e", bits, exponent);
    let power = b.pow("power", x, e);
    b.output(power);
    let mut out = Zeroizing::new(vec![0; m.len_words()]);
    engine.run(&b.build(), &mut [Operand::SecretIn(base), Operand::Out(&mut out)])?;
    Ok(out)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn drawn_numbers_are_uniform_below_their_bound() {
        let mut rng = StreamRng::from_seed(&[1; 32]);
        let mut counts = [0; 5];
        for item in Draw::below(&[5], 3, 2).fill(10_000, &mut rng).chunks(2) {
            assert_eq!(item[1], 0, "room past the number stays zero");
            counts[item[0] as usize] += 1;
        }
        assert!(counts.iter().all(|&count: &u32| count.abs_diff(2_000) < 200), "{counts:?}");
        // The bound of a number that fills its words, and one just above a power of two.
        for bound in [[u64::MAX, u64::MAX], [1, 1 << 63]] {
            let drawn = Draw::below(&bound, 128, 2).fill(1_000, &mut rng);
            assert!(drawn.chunks(2).all(|x| x.iter().rev().lt(bound.iter().rev())));
        }
        let bits = Draw::of_bits(70).fill(1_000, &mut rng);
        let seen = bits.chunks(2).fold([0, 0], |seen, x| [seen[0] | x[0], seen[1] | x[1]]);
        assert_eq!(seen, [u64::MAX, 63]);
        assert!(Draw::of_bits(70).fill(0, &mut rng).is_empty());
    }
}
