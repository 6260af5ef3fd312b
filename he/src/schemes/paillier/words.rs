//! Little-endian words of secret numbers: comparison and negation in constant time, and copies.

use std::hint::black_box;

/// Computes `a − b − borrow`, and the next borrow.
fn subtract(a: u64, b: u64, borrow: u64) -> (u64, u64) {
    let difference = u128::from(a).wrapping_sub(u128::from(b) + u128::from(borrow));
    (difference as u64, (difference >> 127) as u64)
}

/// Returns whether `a < b`, of equal lengths. Only the answer can influence time.
pub(super) fn is_below(a: &[u64], b: &[u64]) -> bool {
    let borrow = a.iter().zip(b).fold(0, |borrow, (&a, &b)| subtract(a, b, borrow).1);
    black_box(borrow) == 1
}

/// Returns the first item that is not below `bound`. Only which items pass can influence time.
pub(super) fn first_not_below(words: &[u64], bound: &[u64]) -> Option<usize> {
    words.chunks(bound.len()).position(|item| !is_below(item, bound))
}

/// Replaces `x` by `bound − x`, for `x ≤ bound`, where `choice` is 1, and leaves it where it is 0.
pub(super) fn negate_if(choice: u64, x: &mut [u64], bound: &[u64]) {
    let (mask, mut borrow) = (black_box(choice.wrapping_neg()), 0);
    for (x, &b) in x.iter_mut().zip(bound) {
        let difference;
        (difference, borrow) = subtract(b, *x, borrow);
        *x = (difference & mask) | (*x & !mask);
    }
}

/// Copies the items of public indices, in their order, of `each` words.
pub(super) fn gather(words: &[u64], each: usize, indices: &[usize]) -> Vec<u64> {
    let mut out = Vec::with_capacity(indices.len() * each);
    indices.iter().for_each(|&index| out.extend_from_slice(&words[index * each..][..each]));
    out
}

/// Overwrites the items of public indices, of `each` words, by those of `from` in their order.
pub(super) fn scatter(words: &mut [u64], each: usize, indices: &[usize], from: &[u64]) {
    for (&index, item) in indices.iter().zip(from.chunks(each)) {
        words[index * each..][..each].copy_from_slice(item);
    }
}

/// Returns 1 for a negative number, else 0.
pub(super) fn sign(value: i64) -> u64 {
    value as u64 >> 63
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_and_negations_carry_through_all_words() {
        let edges = [[0, 0], [1, 0], [u64::MAX, 0], [0, 1], [u64::MAX, u64::MAX], [0, u64::MAX]];
        let whole = |x: &[u64]| u128::from(x[0]) | u128::from(x[1]) << 64;
        for a in edges {
            for b in edges {
                assert_eq!(is_below(&a, &b), whole(&a) < whole(&b), "{a:?} < {b:?}");
                for choice in [0, 1] {
                    let mut x = a;
                    negate_if(choice, &mut x, &b);
                    let negated = whole(&b).wrapping_sub(whole(&a));
                    assert_eq!(whole(&x), if choice == 1 { negated } else { whole(&a) });
                }
            }
        }
        assert_eq!(first_not_below(&[1, 0, 4, 9, 5, 9, 0, 0], &[5, 9]), Some(2));
        assert_eq!(first_not_below(&[], &[5, 9]), None);
    }
}
