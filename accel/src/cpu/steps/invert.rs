//! Inverses of public numbers.

use crypto_bigint::BoxedUint;

use super::{
    super::{
        backend::{Backend, Items, Results},
        montgomery::Montgomery,
    },
    products,
};
use crate::modulus::Modulus;

/// Products of two items each, of two of those, and so on, leave one number to invert; on the way
/// back each inverse of a product gives those of its two factors. Where the last has none, each
/// item is tried alone. For public numbers.
///
/// # Source
/// P. L. Montgomery, "Speeding the Pollard and elliptic curve methods of factorization", 1987,
/// section 10.3.1, as a tree.
pub(super) fn invert<B: Backend>(
    modulus: &Modulus,
    m: &Montgomery<B>,
    out: Results<'_>,
    a: &Items<'_>,
) {
    let (out, each) = (out.words, out.each);
    if a.shared {
        out.chunks_mut(each).for_each(|out| invert_one(modulus, out, a.words));
    } else if !invert_tree(modulus, m, out, a.words) {
        let items = out.chunks_mut(each).zip(a.words.chunks(each));
        items.for_each(|(out, a)| invert_one(modulus, out, a));
    }
}

fn invert_tree<B: Backend>(
    modulus: &Modulus,
    m: &Montgomery<B>,
    out: &mut [u64],
    a: &[u64],
) -> bool {
    let each = modulus.len_words();
    let count = a.len() / each;
    if count <= 1 {
        out.chunks_mut(each).for_each(|out| invert_one(modulus, out, a));
        return count == 0 || out.iter().any(|&w| w != 0);
    }
    // Items i and half + i make a product; the middle one of an odd number stays alone.
    let half = count / 2 * each;
    let upper = a.len() - half;
    let (x, y) = (Items::new(&a[..half], each), Items::new(&a[upper..], each));
    let mut products = vec![0; half];
    products::mul(m, Results::new(&mut products, each), &x, &y);
    products.extend_from_slice(&a[half..upper]);
    let mut inverses = vec![0; products.len()];
    if !invert_tree(modulus, m, &mut inverses, &products) {
        return false;
    }
    let (inverses, middle) = inverses.split_at(half);
    let inverses = Items::new(inverses, each);
    products::mul(m, Results::new(&mut out[..half], each), &inverses, &y);
    out[half..upper].copy_from_slice(middle);
    products::mul(m, Results::new(&mut out[upper..], each), &inverses, &x);
    true
}

/// By the library's greatest common divisor; 0 where there is no inverse.
fn invert_one(modulus: &Modulus, out: &mut [u64], a: &[u64]) {
    let a = BoxedUint::from_words(a.iter().copied());
    let odd = BoxedUint::from_words(modulus.words().iter().copied()).to_odd().into_option();
    let inverse = odd.and_then(|odd| a.invert_odd_mod_vartime(&odd).into_option());
    out.fill(0);
    if let Some(inverse) = inverse {
        out.copy_from_slice(inverse.as_words());
    }
}
