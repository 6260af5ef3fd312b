//! Montgomery multiplication with 64-bit limbs, any length.

use zeroize::{Zeroize, Zeroizing};

use crate::modulus::Modulus;

/// Room for the largest modulus: the accumulator of a product needs two words more than it.
const MAX_WORDS: usize = crate::modulus::MAX_MODULUS_BITS as usize / 64;

/// `out = a · b · R⁻¹ mod m`, `R = 2^(64·k)`, for `a < R` and `b < m`. Constant time.
///
/// # Bound
/// The accumulator stays below `b + m < 2m`: a round adds `a_i·b + q_i·m ≤ (2^64 − 1)(b + m)` and
/// divides by 2^64, and `(b + m + (2^64 − 1)(b + m)) / 2^64 = b + m`. So one bit above k words holds
/// the excess, and one conditional subtraction reduces.
///
/// # Source
/// Ç. K. Koç, T. Acar, B. S. Kaliski, "Analyzing and comparing Montgomery multiplication
/// algorithms", 1996: coarsely integrated operand scanning.
pub(super) fn mont_mul(m: &Modulus, out: &mut [u64], a: &[u64], b: &[u64]) {
    let (n, n0) = (m.words(), m.neg_inverse());
    let k = n.len();
    let mut room = [0u64; MAX_WORDS + 1];
    let t = &mut room[..k + 1];
    let (b, n) = (&b[..k], &n[..k]);
    for &ai in &a[..k] {
        let sum = u128::from(ai) * u128::from(b[0]) + u128::from(t[0]);
        let qi = (sum as u64).wrapping_mul(n0);
        let (mut carry_a, sum_low) = ((sum >> 64) as u64, sum as u64);
        let reduced = u128::from(qi) * u128::from(n[0]) + u128::from(sum_low);
        let mut carry_q = (reduced >> 64) as u64;
        for j in 1..k {
            let sum = u128::from(ai) * u128::from(b[j]) + u128::from(t[j]) + u128::from(carry_a);
            carry_a = (sum >> 64) as u64;
            let sum = u128::from(qi) * u128::from(n[j]) + u128::from(sum as u64);
            let sum = sum + u128::from(carry_q);
            carry_q = (sum >> 64) as u64;
            t[j - 1] = sum as u64;
        }
        let top = u128::from(t[k]) + u128::from(carry_a) + u128::from(carry_q);
        t[k - 1] = top as u64;
        t[k] = (top >> 64) as u64;
    }
    subtract_once(out, &t[..k], t[k], n);
    t.zeroize();
}

/// `out = high·R + t − n` if that is not negative, else `t`. Constant time.
pub(super) fn subtract_once(out: &mut [u64], t: &[u64], high: u64, n: &[u64]) {
    let mut borrow = 0;
    for j in 0..n.len() {
        let difference = u128::from(t[j]).wrapping_sub(u128::from(n[j]) + u128::from(borrow));
        out[j] = difference as u64;
        borrow = (difference >> 127) as u64;
    }
    // Keep t exactly if the subtraction borrowed past the excess word.
    let keep = (high.wrapping_sub(borrow) >> 63).wrapping_neg();
    out.iter_mut().zip(t).for_each(|(o, &t)| *o = (*o & !keep) | (t & keep));
}

/// `x` in Montgomery form, `x·R mod m`, for `x < R`.
pub(super) fn enter(m: &Modulus, out: &mut [u64], x: &[u64]) {
    mont_mul(m, out, x, m.r_squared());
}

/// Out of Montgomery form: `x·R⁻¹ mod m`.
pub(super) fn leave(m: &Modulus, out: &mut [u64], x: &[u64]) {
    let mut one = [0u64; MAX_WORDS];
    one[0] = 1;
    mont_mul(m, out, x, &one[..m.len_words()]);
}

/// `R mod m`: one in Montgomery form.
pub(super) fn one(m: &Modulus, out: &mut [u64]) {
    leave(m, out, m.r_squared());
}

/// `a · b mod m` in ordinary form, for `a < R`, `b < m`: two products.
pub(super) fn mul_mod(m: &Modulus, out: &mut [u64], a: &[u64], b: &[u64]) {
    let mut room = Zeroizing::new([0u64; MAX_WORDS]);
    let a_form = &mut room[..m.len_words()];
    enter(m, a_form, a);
    mont_mul(m, out, a_form, b);
}
