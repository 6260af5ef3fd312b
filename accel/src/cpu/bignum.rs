//! The steps over big residues.

use zeroize::Zeroizing;

use super::{
    montgomery::{enter, leave, mul_mod, subtract_once},
    power,
};
use crate::{
    modulus::Modulus,
    program::{Crt, Kind, Step},
};

/// Any step that makes residues, but powers of a fixed base.
pub(super) fn step(step: &Step, m: &Modulus, out: &mut [u64], args: &[(&Kind, &[u64])]) {
    let a = args[0].1;
    match step {
        Step::Mul => mul_mod(m, out, a, args[1].1),
        Step::Product => product(m, out, a),
        Step::MontMul => super::montgomery::mont_mul(m, out, a, args[1].1),
        Step::Invert => invert(m, out, a),
        Step::Choose => choose(out, a[0], args[1].1, args[2].1),
        Step::Dot { secret } => {
            let k = m.len_words();
            let each = args[1].1.len() / (a.len() / k);
            let (mut acc, mut power) = (vec![0; k], vec![0; k]);
            out.fill(0);
            out[0] = 1;
            for (base, e) in a.chunks(k).zip(args[1].1.chunks(each)) {
                power::pow(m, &mut power, base, e, *secret);
                acc.copy_from_slice(out);
                mul_mod(m, out, &acc, &power);
            }
        }
        Step::OnePlusMn { n } => one_plus_mn(out, a, n.words()),
        Step::Pow { secret } => power::pow(m, out, a, args[1].1, *secret),
        Step::Reduce => reduce(m, out, a),
        Step::LQuotient => l_quotient(m, out, a),
        _ => unreachable!("{} makes no residues here", step.name()),
    }
}

/// By the library's greatest common divisor; for public values.
fn invert(m: &Modulus, out: &mut [u64], a: &[u64]) {
    use crypto_bigint::BoxedUint;
    let (a, m) = (BoxedUint::from_words(a.iter().copied()), m.words().iter().copied());
    let odd = BoxedUint::from_words(m).to_odd().into_option();
    let inverse = odd.and_then(|odd| a.invert_odd_mod_vartime(&odd).into_option());
    out.fill(0);
    if let Some(inverse) = inverse {
        out.copy_from_slice(inverse.as_words());
    }
}

/// `a` where `bit` is 1, else `b`. Constant time.
fn choose(out: &mut [u64], bit: u64, a: &[u64], b: &[u64]) {
    let mask = std::hint::black_box(bit.wrapping_neg());
    out.iter_mut().zip(a).zip(b).for_each(|((o, &a), &b)| *o = (a & mask) | (b & !mask));
}

fn product(m: &Modulus, out: &mut [u64], rows: &[u64]) {
    let k = m.len_words();
    let mut acc = vec![0; k];
    out.copy_from_slice(&rows[..k]);
    for row in rows.chunks_exact(k).skip(1) {
        acc.copy_from_slice(out);
        mul_mod(m, out, &acc, row);
    }
}

/// `out = a · b`, all `a.len() + b.len()` words of it that `out` has.
fn mul_wide(out: &mut [u64], a: &[u64], b: &[u64]) {
    out.fill(0);
    for (i, &ai) in a.iter().enumerate() {
        let mut carry = 0;
        for (o, &bj) in out[i..].iter_mut().zip(b) {
            let sum = u128::from(ai) * u128::from(bj) + u128::from(*o) + u128::from(carry);
            (*o, carry) = (sum as u64, (sum >> 64) as u64);
        }
        if let Some(o) = out.get_mut(i + b.len()) {
            *o = carry;
        }
    }
}

/// `out += x`, giving the carry. Constant time.
fn add_assign(out: &mut [u64], x: &[u64]) -> u64 {
    let mut carry = 0;
    for (j, o) in out.iter_mut().enumerate() {
        let sum = u128::from(*o) + u128::from(x.get(j).copied().unwrap_or(0)) + u128::from(carry);
        (*o, carry) = (sum as u64, (sum >> 64) as u64);
    }
    carry
}

/// `1 + x·n ≤ 1 + (n − 1)·n < n²`, so no reduction is needed.
fn one_plus_mn(out: &mut [u64], x: &[u64], n: &[u64]) {
    mul_wide(out, x, n);
    add_assign(out, &[1]);
}

/// `out = a + b mod m` for `a, b < m`. Constant time.
fn add_mod(m: &Modulus, out: &mut [u64], a: &[u64], b: &[u64]) {
    let mut sum = Zeroizing::new(a.to_vec());
    let carry = add_assign(&mut sum, b);
    subtract_once(out, &sum, carry, m.words());
}

/// `x mod m` for `x` of any length, by Horner's rule over pieces of k words: a Montgomery product
/// with R² multiplies by R and reduces a piece below R at once.
fn reduce(m: &Modulus, out: &mut [u64], x: &[u64]) {
    let k = m.len_words();
    let mut room = Zeroizing::new(vec![0u64; 4 * k]);
    let (acc, rest) = room.split_at_mut(k);
    let (piece, rest) = rest.split_at_mut(k);
    let (form, shifted) = rest.split_at_mut(k);
    for chunk in x.chunks(k).rev() {
        piece.fill(0);
        piece[..chunk.len()].copy_from_slice(chunk);
        enter(m, shifted, acc);
        enter(m, form, piece);
        leave(m, piece, form);
        add_mod(m, acc, shifted, piece);
    }
    out.copy_from_slice(acc);
}

/// `(x − 1) / p` exactly, least significant word first: each quotient word is what makes the
/// lowest remaining word vanish. The quotient is below p, so the words above k never matter.
///
/// # Source
/// T. Jebelean, "An algorithm for exact division", 1993.
fn l_quotient(p: &Modulus, out: &mut [u64], x: &[u64]) {
    let k = p.len_words();
    let inverse = p.neg_inverse().wrapping_neg();
    let mut rest = Zeroizing::new(x[..k].to_vec());
    // x ≡ 1 mod p and x ≥ 1, so this does not borrow past the words kept.
    let mut borrow = 1;
    for word in rest.iter_mut() {
        let (difference, under) = word.overflowing_sub(borrow);
        (*word, borrow) = (difference, u64::from(under));
    }
    for i in 0..k {
        let quotient = rest[i].wrapping_mul(inverse);
        out[i] = quotient;
        let mut carry = 0;
        for (word, &pj) in rest[i..].iter_mut().zip(p.words()) {
            let product = u128::from(quotient) * u128::from(pj) + u128::from(carry);
            let (difference, under) = word.overflowing_sub(product as u64);
            *word = difference;
            carry = (product >> 64) as u64 + u64::from(under);
        }
    }
}

/// `a + p · ((b − a) · p⁻¹ mod q)`. Constant time.
pub(super) fn crt_join(crt: &Crt, out: &mut [u64], a: &[u64], b: &[u64]) {
    let q = crt.q();
    let k = q.len_words();
    let mut room = Zeroizing::new(vec![0u64; 3 * k]);
    let (a_mod_q, rest) = room.split_at_mut(k);
    let (negative, h) = rest.split_at_mut(k);
    reduce(q, a_mod_q, a);
    // q − a is q itself for a = 0; adding b and subtracting q once reduces that too.
    subtract(negative, q.words(), a_mod_q);
    let carry = add_assign(negative, b);
    subtract_once(a_mod_q, negative, carry, q.words());
    mul_mod(q, h, a_mod_q, crt.p_inverse());
    mul_wide(out, h, crt.p().words());
    add_assign(out, a);
}

/// `out = a − b` for `b ≤ a`.
fn subtract(out: &mut [u64], a: &[u64], b: &[u64]) {
    let mut borrow = 0;
    for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) {
        let difference = u128::from(a).wrapping_sub(u128::from(b) + u128::from(borrow));
        (*o, borrow) = (difference as u64, (difference >> 127) as u64);
    }
}
