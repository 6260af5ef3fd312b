//! Both paths of the CPU engine against an independent bignum: every size of a key's moduli,
//! operands that make carries run, every count up to two groups and around a block.

use std::{ops::RangeInclusive, sync::Arc};

use ciphergram_accel::{
    Builder, CpuEngine, Engine, Modulus, Operand, Program, Public, Secret, program::FixedBase,
};
use num_bigint::BigUint;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

/// n, n², p and p² of keys of 1024 to 4096 bits.
const SIZES: [usize; 8] = [512, 1024, 1536, 2048, 3072, 4096, 6144, 8192];

fn big(words: &[u64]) -> BigUint {
    words.iter().rev().fold(BigUint::ZERO, |acc, &w| (acc << 64) + BigUint::from(w))
}

fn words(x: &BigUint, count: usize) -> Vec<u64> {
    let mut words = x.to_u64_digits();
    assert!(words.len() <= count);
    words.resize(count, 0);
    words
}

fn random(rng: &mut ChaCha20Rng, bits: usize) -> BigUint {
    let words: Vec<u64> = (0..bits.div_ceil(64)).map(|_| rng.next_u64()).collect();
    big(&words) >> (words.len() * 64 - bits)
}

/// Roots of exactly `bits` bits: random, all ones, one bit at either end, and borrows at the limbs
/// of either radix.
fn roots(rng: &mut ChaCha20Rng, bits: usize) -> Vec<BigUint> {
    let one = || BigUint::from(1u8);
    let top = one() << (bits - 1);
    let random = random(rng, bits) | &top | one();
    vec![
        random,
        (one() << bits) - one(),
        top.clone() + one(),
        (one() << bits) - (one() << 51) + one(),
        (one() << bits) - (one() << 52) + one(),
        (one() << bits) - (one() << (bits / 2)) - one(),
        top | ((one() << 64) - one()),
    ]
}

/// Numbers below m: 0, 1, m − 1, all ones, limbs of all ones beside empty ones, and random.
fn operands(rng: &mut ChaCha20Rng, m: &BigUint) -> Vec<BigUint> {
    let one = BigUint::from(1u8);
    let bits = m.bits() as usize;
    let stripes = |width: usize| {
        let stripe = (BigUint::from(1u8) << width) - BigUint::from(1u8);
        (0..bits.div_ceil(2 * width)).fold(BigUint::ZERO, |x, i| x | (&stripe << (2 * width * i)))
    };
    let mut all = vec![
        BigUint::ZERO,
        one.clone(),
        m - &one,
        (one.clone() << (bits - 1)) - &one,
        one.clone() << (bits - 1),
        m >> 1,
        stripes(51),
        stripes(52),
        stripes(64),
        stripes(1),
        m - (&one << (bits / 2)),
    ];
    all.extend((0..3).map(|_| random(rng, bits)));
    all.into_iter().map(|x| x % m).collect()
}

struct Case {
    m: Arc<Modulus>,
    big: BigUint,
}

impl Case {
    fn plain(bits: usize, root: &BigUint) -> Self {
        let m = Arc::new(Modulus::new("m", &words(root, bits.div_ceil(64))).unwrap());
        Self { m, big: root.clone() }
    }

    fn square(bits: usize, root: &BigUint) -> Self {
        let plain = Self::plain(bits, root);
        let m = Arc::new(Modulus::square("m", &plain.m).unwrap());
        Self { m, big: root * root }
    }

    fn k(&self) -> usize {
        self.m.len_words()
    }

    fn batch(&self, numbers: &[BigUint]) -> Vec<u64> {
        numbers.iter().flat_map(|x| words(x, self.k())).collect()
    }
}

/// Runs a program of public inputs and one output on every path, and compares with the numbers.
fn check(name: &str, program: &Program, inputs: &[&[u64]], each: usize, expected: &[BigUint]) {
    for engine in CpuEngine::paths() {
        let mut out = vec![u64::MAX; each * expected.len()];
        let mut operands: Vec<_> = inputs.iter().map(|&w| Operand::In(w)).collect();
        operands.push(Operand::Out(&mut out));
        engine.run(program, &mut operands).unwrap();
        drop(operands);
        for (index, (found, expected)) in out.chunks(each).zip(expected).enumerate() {
            assert!(big(found) == *expected, "{name}, item {index}, {}", engine.info().description);
        }
    }
}

fn binary(
    m: &Arc<Modulus>,
    step: impl Fn(&mut Builder, [ciphergram_accel::program::Var<ciphergram_accel::program::Residue>; 2]),
) -> Program {
    let mut b = Builder::new("binary");
    let (x, y) = (b.residues("x", m), b.residues("y", m));
    step(&mut b, [x, y]);
    b.build()
}

/// All pairs of the operands.
fn pairs(all: &[BigUint]) -> (Vec<BigUint>, Vec<BigUint>) {
    all.iter().flat_map(|x| all.iter().map(|y| (x.clone(), y.clone()))).unzip()
}

#[test]
fn products() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for bits in SIZES {
        for root in roots(&mut rng, bits) {
            let case = Case::plain(bits, &root);
            let (x, y) = pairs(&operands(&mut rng, &case.big));
            let (bx, by) = (case.batch(&x), case.batch(&y));
            let expected: Vec<_> = x.iter().zip(&y).map(|(x, y)| x * y % &case.big).collect();
            let mul = binary(&case.m, |b, [x, y]| {
                let z = b.mul("z", x, y);
                b.output(z);
            });
            check("mul", &mul, &[&bx, &by], case.k(), &expected);

            // x·y·R⁻¹ · R
            let radix = big(&case.m.radix_power(1));
            let mont = binary(&case.m, |b, [x, y]| {
                let z = b.mont_mul("z", x, y);
                b.output(z);
            });
            let inverse = radix.modinv(&case.big).unwrap();
            let expected: Vec<_> = expected.iter().map(|z| z * &inverse % &case.big).collect();
            check("mont_mul", &mont, &[&bx, &by], case.k(), &expected);
        }
    }
}

/// Products that lie just above or just below a multiple of m, where a quotient that is a little
/// wrong shows, modulo numbers that take one bit of their highest limb, all or half of them.
#[test]
fn products_near_multiples() {
    let mut rng = ChaCha20Rng::seed_from_u64(6);
    let one = || BigUint::from(1u8);
    for limbs in [2, 3, 9, 26, 64, 96, 120] {
        let widths = [51 * limbs, 52 * limbs, 64 * limbs];
        for bits in widths.into_iter().flat_map(|bits| [bits, bits + 1]).chain([64 * limbs - 1]) {
            for root in roots(&mut rng, bits) {
                let case = Case::plain(bits, &root);
                let m = &case.big;
                let (mut x, mut y, mut z) = (vec![], vec![], vec![]);
                for _ in 0..4 {
                    let factor = random(&mut rng, bits) % m;
                    let Some(inverse) = factor.modinv(m) else { continue };
                    let near =
                        [BigUint::ZERO, one(), one() << (bits / 2), m - one() - one(), m - one()];
                    for rest in near.map(|near| near % m) {
                        x.push(factor.clone());
                        y.push(&rest * &inverse % m);
                        z.push(rest);
                    }
                }
                let mul = binary(&case.m, |b, [x, y]| {
                    let z = b.mul("z", x, y);
                    b.output(z);
                });
                check("near", &mul, &[&case.batch(&x), &case.batch(&y)], case.k(), &z);
            }
        }
    }
}

/// Products whose quotient, as each path estimates it, is from eight limbs on too small by 2,
/// which is as much as it can be. Modulo `A + 1`, for A a power β^2h of the radix, the product of
/// `A − β^h ± 1` has a quotient that is almost whole, and so much below place `A` that leaving it
/// out costs 1; the columns that are left out of the quotient's product cost the other.
#[test]
fn products_with_the_worst_estimates() {
    for radix in [51, 52, 64] {
        for h in [1, 2, 3, 8, 12, 16, 20, 32, 48, 63] {
            let one = || BigUint::from(1u8);
            let (half, whole) = (one() << (radix * h), one() << (2 * radix * h));
            let bits = 2 * radix * h + 1;
            let case = Case::plain(bits, &(&whole + one()));
            let x = [&whole - &half + one(), &whole - &half - one()];
            let mul = binary(&case.m, |b, [x, y]| {
                let z = b.mul("z", x, y);
                b.output(z);
            });
            // Two of them: one alone takes another path.
            let [a, b] = x.each_ref().map(|x| case.batch(&[x.clone(), x.clone()]));
            let expected = &x[0] * &x[1] % &case.big;
            check("worst", &mul, &[&a, &b], case.k(), &[expected.clone(), expected]);
        }
    }
}

#[test]
fn products_of_pairs() {
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    for bits in SIZES.into_iter().filter(|bits| *bits <= 4096) {
        for root in roots(&mut rng, bits) {
            let case = Case::square(bits, &root);
            let (x, y) = pairs(&operands(&mut rng, &case.big));
            let (bx, by) = (case.batch(&x), case.batch(&y));
            let radix = BigUint::from(1u8) << (64 * bits.div_ceil(64));
            let inverse = (radix % &case.big).modinv(&case.big).unwrap();
            let product = |(x, y): (&BigUint, &BigUint)| x * y % &case.big * &inverse % &case.big;
            let expected: Vec<_> = x.iter().zip(&y).map(product).collect();
            let program = binary(&case.m, |b, [x, y]| {
                let (x, y) = (b.split("px", x), b.split("py", y));
                let z = b.pair_mul("pz", x, y);
                let z = b.join("z", z);
                b.output(z);
            });
            check("pair_mul", &program, &[&bx, &by], case.k(), &expected);
        }
    }
}

#[test]
fn powers() {
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    for bits in SIZES {
        for root in roots(&mut rng, bits) {
            let mut cases = vec![Case::plain(bits, &root)];
            if bits <= 4096 {
                cases.push(Case::square(bits, &root));
            }
            for case in cases {
                let all = operands(&mut rng, &case.big);
                for e in [0, 1, 2, 3, 0xfedc_ba98_7654_3210u64, u64::MAX] {
                    let mut b = Builder::new("power");
                    let x = b.residues("x", &case.m);
                    let exponent = b.public_exponent("e", 64, &[e]);
                    let z = b.pow("z", x, exponent);
                    b.output(z);
                    let e = BigUint::from(e);
                    let expected: Vec<_> = all.iter().map(|x| x.modpow(&e, &case.big)).collect();
                    check("pow", &b.build(), &[&case.batch(&all)], case.k(), &expected);
                }
            }
        }
    }
}

/// Exponents that differ from lane to lane, secret and public, and of a base known beforehand.
#[test]
fn powers_by_the_lane() {
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    for (bits, exponent_bits) in [(512usize, 65usize), (1024, 256), (2048, 129), (3072, 64)] {
        let root = random(&mut rng, bits) | BigUint::from(1u8) << (bits - 1) | BigUint::from(1u8);
        let case = Case::square(bits, &root);
        let bases = operands(&mut rng, &case.big);
        let each = exponent_bits.div_ceil(64);
        let exponents: Vec<_> = (0..bases.len())
            .map(|i| match i {
                0 => BigUint::ZERO,
                1 => (BigUint::from(1u8) << exponent_bits) - BigUint::from(1u8),
                _ => random(&mut rng, exponent_bits),
            })
            .collect();
        let exponent_words: Vec<u64> = exponents.iter().flat_map(|e| words(e, each)).collect();
        let fixed = bases[7].clone();
        let factor = bases[9].clone();
        let table = FixedBase::new(
            "g",
            case.m.clone(),
            &case.batch(std::slice::from_ref(&fixed)),
            exponent_bits as u32,
        )
        .times(&case.batch(std::slice::from_ref(&factor)));
        let table = Arc::new(table);
        let mut b = Builder::new("powers");
        let x = b.residues("x", &case.m);
        let (s, p) = (
            b.exponents::<Secret>("s", exponent_bits as u32),
            b.exponents::<Public>("p", exponent_bits as u32),
        );
        let (xs, xp) = (b.pow("xs", x, s), b.pow("xp", x, p));
        let g = b.pow_fixed_base("g", &table, s);
        let product = b.mul("product", xs, xp);
        let product = b.mul("all", product, g);
        b.output(product);
        let expected: Vec<_> = bases
            .iter()
            .zip(&exponents)
            .map(|(x, e)| {
                let (x, g) = (x.modpow(e, &case.big), fixed.modpow(e, &case.big));
                &x * &x % &case.big * g % &case.big * &factor % &case.big
            })
            .collect();
        let inputs = [&case.batch(&bases)[..], &exponent_words, &exponent_words];
        check("powers", &b.build(), &inputs, case.k(), &expected);
    }
}

/// Counts around a group of lanes, the groups that pick at once, and a block, on one thread: more
/// threads would cut the batch first. No lane leaks into another.
#[test]
fn counts() {
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    one.install(on_one_thread);
}

fn on_one_thread() {
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let root = random(&mut rng, 512) | BigUint::from(1u8) << 511usize | BigUint::from(1u8);
    let case = Case::square(512, &root);
    let g = BigUint::from(0x1_0001u32);
    let table = FixedBase::new("g", case.m.clone(), &case.batch(std::slice::from_ref(&g)), 16);
    let table = Arc::new(table);
    let around = |x: usize| -> RangeInclusive<usize> { x - 1..=x + 1 };
    for count in (0..=17).chain(around(128)).chain(around(256)).chain(around(512)) {
        let x: Vec<_> = (0..count).map(|_| random(&mut rng, 1020) % &case.big).collect();
        let y: Vec<_> = (0..count).map(|_| random(&mut rng, 1020) % &case.big).collect();
        let mul = binary(&case.m, |b, [x, y]| {
            let z = b.mul("z", x, y);
            let square = b.mul("square", z, z);
            b.output(square);
        });
        let expected: Vec<_> =
            x.iter().zip(&y).map(|(x, y)| (x * y).modpow(&BigUint::from(2u8), &case.big)).collect();
        check("count", &mul, &[&case.batch(&x), &case.batch(&y)], case.k(), &expected);

        let mut b = Builder::new("fixed base");
        let e = b.exponents::<Secret>("e", 16);
        let power = b.pow_fixed_base("power", &table, e);
        b.output(power);
        let exponents: Vec<u64> = (0..count as u64).map(|i| i * 251 % 65536).collect();
        let expected: Vec<_> =
            exponents.iter().map(|&e| g.modpow(&BigUint::from(e), &case.big)).collect();
        check("fixed base", &b.build(), &[&exponents], case.k(), &expected);

        let mut b = Builder::new("invert");
        let a = b.residues("x", &case.m);
        let inverse = b.invert("inverse", a);
        b.output(inverse);
        let expected: Vec<_> =
            x.iter().map(|x| x.modinv(&case.big).unwrap_or(BigUint::ZERO)).collect();
        check("invert", &b.build(), &[&case.batch(&x)], case.k(), &expected);
    }
}
