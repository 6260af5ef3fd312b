//! Cases over several rings: residues that change rings, and sums of products.

use rand_core::Rng as _;

use super::*;
use crate::{
    polys::Domain,
    program::{Coeff, Constant, MAX_TERMS, Ntt, Var},
};

/// Rings of one degree: the primes of each are those of these numbers, of as many bits as are said.
fn rings<const COUNT: usize>(
    degree: usize,
    bits: u32,
    chosen: [&[usize]; COUNT],
) -> [Arc<Ring>; COUNT] {
    let most = chosen.iter().flat_map(|numbers| numbers.iter()).max().map_or(0, |&last| last + 1);
    let primes = largest_primes(bits, degree, most);
    chosen.map(|numbers| {
        ring_over(degree, &numbers.iter().map(|&number| primes[number]).collect::<Vec<_>>())
    })
}

/// Tries runs of primes, taken out and joined in any order, in both forms and of what a batch
/// shares.
pub fn limbs(engine: &dyn Engine) {
    for (degree, bits) in [(16, 20), (32, 50), (1024, 50)] {
        taken_and_joined::<Coeff>(engine, degree, bits);
        taken_and_joined::<Ntt>(engine, degree, bits);
    }
    let mut random = Operands::new(15);
    // A long run, of a constant that other programs have.
    let all: Vec<usize> = (0..24).collect();
    let [all, few, run] = rings(16, 50, [&all, &all[..3], &all[5..20]]);
    let key = Constant::new([random.poly(&few), random.poly(&all)].concat());
    let mut b = Builder::new("limbs of a key");
    let x = b.polys::<Ntt>("x", &run);
    let k = b.evaluation_key("k", &all, &key.part(few.len_words(), all.len_words()));
    let part = b.limbs("part", k, &run);
    let product = b.poly_mul("product", x, part);
    b.output(product);
    let x = random.polys(&run, 3);
    agree(engine, &b.build(), &[&x], x.len());
}

fn taken_and_joined<D: Domain>(engine: &dyn Engine, degree: usize, bits: u32) {
    let mut random = Operands::new(16);
    let [all, few, other, mixed] =
        rings(degree, bits, [&[0, 1, 2, 3, 4], &[1, 2], &[6, 5], &[6, 1, 2, 5]]);
    let mut b = Builder::new("limbs");
    let (x, y): (Var<D>, Var<D>) = (b.polys("x", &all), b.polys("y", &other));
    let part = b.limbs("part", x, &few);
    let joined = b.join_limbs("joined", (y, part), &mixed);
    let doubled = b.add("doubled", joined, joined);
    b.output(doubled);
    let (x, y) = (random.polys(&all, 3), random.polys(&other, 3));
    agree(engine, &b.build(), &[&x, &y], 3 * mixed.len_words());

    let mut b = Builder::new("limbs alone");
    let x: Var<D> = b.polys("x", &all);
    let part = b.limbs("part", x, &few);
    b.output(part);
    agree(engine, &b.build(), &[&random.polys(&all, 3)], 3 * few.len_words());
}

/// Tries products by constants, by the largest too, in both forms.
pub fn scalings(engine: &dyn Engine) {
    let mut random = Operands::new(17);
    for (degree, bits, count) in [(16, 12, 3), (32, 31, 1), (64, 50, 5), (16, 50, 24)] {
        let ring = ring(degree, bits, count);
        let factors: Vec<u64> = ring
            .primes()
            .iter()
            .enumerate()
            .map(|(i, &q)| [q - 1, 0, 1, random.0.next_u64() % q][i % 4])
            .collect();
        let mut b = Builder::new("scale");
        let (x, y) = (b.coefficients("x", &ring), b.polys::<Ntt>("y", &ring));
        let (scaled, of_y) = (b.scale("scaled", x, &factors), b.scale("of y", y, &factors));
        let t = b.ntt("t", scaled);
        let sum = b.add("sum", t, of_y);
        b.output(sum);
        let (x, y) = (random.polys(&ring, 2), random.polys(&ring, 2));
        agree(engine, &b.build(), &[&x, &y], x.len());
    }
}

/// Tries sums of one to the most products, of largest residues too.
pub fn product_sums(engine: &dyn Engine) {
    let mut random = Operands::new(18);
    for (degree, bits, count) in [(16, 12, 1), (16, 50, 3), (32, 31, 2), (256, 50, 2)] {
        let ring = ring(degree, bits, count);
        for terms in [1, 2, 3, 5, 8, MAX_TERMS] {
            let mut b = Builder::new("mul_sum");
            let x = b.polys::<Ntt>("x", &ring);
            let s = b.secret_key("s", &ring, &random.poly(&ring));
            let t = b.poly_mul("t", x, s);
            let of = |i: usize| [x, s, t][i % 3];
            let pairs: Vec<_> = (0..terms).map(|i| (of(i), of(i / 2))).collect();
            let sum = b.mul_sum("sum", &pairs);
            b.output(sum);
            let x = random.polys(&ring, 3);
            agree(engine, &b.build(), &[&x], x.len());

            let mut b = Builder::new("largest sums");
            let x = b.polys::<Ntt>("x", &ring);
            let sum = b.mul_sum("sum", &vec![(x, x); terms]);
            b.output(sum);
            let x: Vec<_> = ring.primes().iter().flat_map(|&q| vec![q - 1; degree]).collect();
            agree(engine, &b.build(), &[&x], x.len());
        }
    }
}

/// Tries integers of two's complement, the smallest and the largest too.
pub fn signed_lifts(engine: &dyn Engine) {
    let mut random = Operands::new(19);
    for (degree, bits, count, words_each) in
        [(16, 12, 1, 1), (64, 50, 2, 1), (16, 50, 3, 2), (16, 31, 2, 5), (16, 50, 2, 24)]
    {
        let ring = ring(degree, bits, count);
        let mut b = Builder::new("lift_signed");
        let x = b.integers("x", degree * words_each);
        let lifted = b.lift_signed("lifted", &ring, x);
        b.output(lifted);
        let mut x = random.words(degree * words_each * 3);
        // −1, −2^(64·words − 1), and one less than its negative.
        for (place, [top, rest]) in
            [[u64::MAX; 2], [1 << 63, 0], [u64::MAX >> 1, u64::MAX]].into_iter().enumerate()
        {
            for word in 0..words_each {
                let is_top = word + 1 == words_each;
                x[word * degree + place] = if is_top { top } else { rest };
            }
        }
        agree(engine, &b.build(), &[&x], 3 * ring.len_words());
    }
}
