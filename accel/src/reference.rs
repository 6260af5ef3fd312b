//! The oracle: every step by its definition, slow and obvious.
//!
//! It computes with a general big-integer library and with `u128` remainders, evaluates transforms
//! as polynomials, and runs on one thread. What it promises is to be right; it makes no promise
//! about timing, so it has no place near real secrets.

use crypto_bigint::{
    BoxedUint, ConcatenatingMul, NonZero,
    modular::{BoxedMontyForm, BoxedMontyParams},
};
use rand_core::Rng;

use crate::{
    beats,
    engine::{Engine, Info, Operand, RunError},
    interpret::{self, Arg, Blocks, Kernels},
    modulus::{Modulus, odd},
    program::{
        Crt, FixedBase, Kind, LaneOp, LaneStep, LimbOp, LimbStep, PairOp, Program, ResidueOp,
        ResidueStep, RingOp, RingStep,
    },
    random::centred_binomial,
    ring::{Ring, mul_mod_vartime, pow_mod_vartime},
    streams,
};

/// The reference engine. See the [module](self) documentation.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReferenceEngine;

impl Engine for ReferenceEngine {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn info(&self) -> Info {
        Info::of_host("the oracle: every step by its definition, one thread, not constant time")
    }

    fn supports(&self, _step: &str) -> bool {
        true
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        interpret::run(self, program, operands, false)
    }
}

impl Kernels for ReferenceEngine {
    fn blocks(&self, _program: &Program) -> Blocks {
        Blocks { unit: 1, units: 1, parts: 1, least: 1 }
    }

    fn residues(&self, step: &ResidueStep, _: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        let args: Vec<_> = args.iter().map(|arg| arg.item(0)).collect();
        match step {
            ResidueStep::Residue { op, modulus } => put(out, &residue(op, modulus, &args)),
            ResidueStep::Pair { op, square, root } => {
                let (quotient, rest) = pair(op, square, root, &args).div_rem(&nonzero(root));
                let (low, high) = out.split_at_mut(root.len_words());
                put(low, &rest);
                put(high, &quotient);
            }
            ResidueStep::CrtJoin { crt } => crt_join(crt, out, args[0], args[1]),
        }
    }

    fn polynomials(&self, step: &RingStep, _: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        let (ring, a) = (&*step.ring, args[0].item(0));
        let (n, limbs) = (ring.degree(), ring.primes().len());
        let mut small = |draw: fn(u64) -> i64| {
            let mut rng = streams::secret(a, args[1].item(0)[0], 0);
            let drawn: Vec<_> = (0..n).map(|_| draw(rng.next_u64())).collect();
            for (out, &q) in out.chunks_exact_mut(n).zip(ring.primes()) {
                let residue = |&x: &i64| x.rem_euclid(q as i64) as u64;
                out.iter_mut().zip(&drawn).for_each(|(out, x)| *out = residue(x));
            }
        };
        match &step.op {
            RingOp::Uniform => uniform(ring, out, a, args[1].item(0)[0]),
            RingOp::Noise => small(|word| centred_binomial(word).into()),
            RingOp::Ternary => small(ternary),
            RingOp::Lift { signed, .. } => {
                for (out, &q) in out.chunks_exact_mut(n).zip(ring.primes()) {
                    lift(*signed, q, out, a);
                }
            }
            RingOp::Compose => compose(ring, out, a),
            RingOp::BaseExtend { to, .. } => base_extend(ring, to, out, a),
            RingOp::Pack => {
                out.fill(0);
                for k in 0..(out.len() / beats::WORDS * beats::LANES).min(n * limbs) {
                    let value = a[k % limbs * n + k / limbs];
                    let beat = &mut out[k / beats::LANES * beats::WORDS..][..beats::WORDS];
                    beats::set_lane(beat, k % beats::LANES, value);
                }
            }
            RingOp::Unpack => {
                out.fill(0);
                for k in 0..(a.len() / beats::WORDS * beats::LANES).min(n * limbs) {
                    let beat = &a[k / beats::LANES * beats::WORDS..][..beats::WORDS];
                    out[k % limbs * n + k / limbs] = beats::lane(beat, k % beats::LANES);
                }
            }
        }
    }

    fn lanes(&self, step: &LaneStep, _: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        let (ring, a) = (&*step.ring, args[0].item(0));
        let lanes = step.count * beats::LANES;
        match step.op {
            LaneOp::AddBeats => {
                out.fill(0);
                let b = args[1].item(0);
                for k in 0..lanes {
                    let (at, lane) = (k / beats::LANES * beats::WORDS, k % beats::LANES);
                    let of = |words: &[u64]| beats::lane(&words[at..][..beats::WORDS], lane);
                    let sum = (of(a) + of(b)) % ring.primes()[k % ring.primes().len()];
                    beats::set_lane(&mut out[at..][..beats::WORDS], lane, sum);
                }
            }
            LaneOp::FirstBadLane => {
                out[0] = beats::first_bad_lane(a, ring.primes()).unwrap_or(lanes) as u64;
            }
            LaneOp::AddLanes => beats::add_lanes(out, a, ring.primes()),
            LaneOp::ReduceLanes => beats::reduce_lanes(out, a, ring.primes()),
        }
    }

    fn limb(&self, step: &LimbStep, limb: usize, out: &mut [u64], args: &[&[u64]]) {
        let (q, root) = (step.ring.primes()[limb], step.ring.roots()[limb]);
        let a = args[0];
        let mut each = |f: &dyn Fn(usize) -> u64| (0..out.len()).for_each(|i| out[i] = f(i));
        match &step.op {
            LimbOp::Add => each(&|i| (a[i] + args[1][i]) % q),
            LimbOp::Sub => each(&|i| (a[i] + q - args[1][i]) % q),
            LimbOp::Mul => each(&|i| mul_mod_vartime(a[i], args[1][i], q)),
            LimbOp::Scale { factors } => each(&|i| mul_mod_vartime(a[i], factors.words()[limb], q)),
            LimbOp::MulSum => {
                let (a, b) = args.split_at(args.len() / 2);
                each(&|i| {
                    let products = a.iter().zip(b).map(|(a, b)| mul_mod_vartime(a[i], b[i], q));
                    products.fold(0, |sum, product| (sum + product) % q)
                });
            }
            LimbOp::Lift { signed } => lift(*signed, q, out, a),
            LimbOp::Ntt => transform((root, q), out, a),
            LimbOp::Intt => inverse_transform((root, q), out, a),
            &LimbOp::Automorphism { element } => {
                automorphism((element as usize, step.ntt), q, out, a)
            }
            LimbOp::Limbs { .. } | LimbOp::JoinLimbs => out.copy_from_slice(a),
        }
    }
}

/// Integers modulo q, whose words lie as for `Builder::lift`.
fn lift(signed: bool, q: u64, out: &mut [u64], a: &[u64]) {
    let n = out.len();
    let radix = pow_mod_vartime(2, 64 * (a.len() / n) as u64, q);
    for (i, out) in out.iter_mut().enumerate() {
        let rest = remainder(a.iter().skip(i).step_by(n), q);
        let is_negative = signed && a[a.len() - n + i] >> 63 == 1;
        *out = if is_negative { (rest + q - radix) % q } else { rest };
    }
}

fn big(words: &[u64]) -> BoxedUint {
    BoxedUint::from_words(words.iter().copied())
}

fn nonzero(m: &Modulus) -> NonZero<BoxedUint> {
    odd(&big(m.words())).as_nz_ref().clone()
}

/// Writes `x`, which must fit, and fills up with zeros.
fn put(out: &mut [u64], x: &BoxedUint) {
    out.fill(0);
    let words = x.as_words();
    let used = words.len().min(out.len());
    out[..used].copy_from_slice(&words[..used]);
    assert!(words[used..].iter().all(|&w| w == 0), "a result fits its kind");
}

fn mul_mod(a: &BoxedUint, b: &BoxedUint, m: &Modulus) -> BoxedUint {
    a.concatenating_mul(b).rem(&nonzero(m))
}

/// `x₀ + x₁·s`.
fn joined(root: &Modulus, pair: &[u64]) -> BoxedUint {
    let (low, high) = pair.split_at(pair.len() / 2);
    big(high).concatenating_mul(big(root.words())).concatenating_add(big(low))
}

/// Computes the residue whose digits a step makes.
fn pair(op: &PairOp, square: &Modulus, root: &Modulus, args: &[&[u64]]) -> BoxedUint {
    match op {
        PairOp::Split => big(args[0]),
        PairOp::Mul => {
            let product = mul_mod(&joined(root, args[0]), &joined(root, args[1]), square);
            mul_mod(&product, &radix_inverse(root.len_words(), square), square)
        }
        PairOp::OnePlusMn => one_plus_mn(args[0], root, square),
        PairOp::PowFixedBase { base } => fixed_power(base, args[0]),
    }
}

/// `1 + x·n mod m`.
fn one_plus_mn(x: &[u64], n: &Modulus, m: &Modulus) -> BoxedUint {
    big(x).concatenating_mul(big(n.words())).concatenating_add(big(&[1])).rem(&nonzero(m))
}

fn fixed_power(base: &FixedBase, exponent: &[u64]) -> BoxedUint {
    let m = base.modulus();
    let power = pow_mod(base.base(), exponent, m);
    base.factor().map_or(power.clone(), |factor| mul_mod(&power, &big(factor), m))
}

/// `a⁻¹ mod m`; 0 where there is none.
fn inverse(a: &BoxedUint, m: &Modulus) -> BoxedUint {
    a.invert_mod(&nonzero(m)).into_option().unwrap_or_else(|| big(&[0]))
}

/// `2^(−64 · words) mod m`.
fn radix_inverse(words: usize, m: &Modulus) -> BoxedUint {
    let mut radix = vec![0; words + 1];
    radix[words] = 1;
    inverse(&big(&radix).rem(&nonzero(m)), m)
}

fn pow_mod(base: &[u64], exponent: &[u64], m: &Modulus) -> BoxedUint {
    let params = BoxedMontyParams::new(odd(&big(m.words())).clone());
    BoxedMontyForm::new(big(base), &params).pow(&big(exponent)).retrieve()
}

fn residue(op: &ResidueOp, m: &Modulus, args: &[&[u64]]) -> BoxedUint {
    let a = args[0];
    match op {
        ResidueOp::Mul => mul_mod(&big(a), &big(args[1]), m),
        ResidueOp::MontMul => {
            let product = mul_mod(&big(a), &big(args[1]), m);
            mul_mod(&product, &radix_inverse(m.len_words(), m), m)
        }
        ResidueOp::Invert => inverse(&big(a), m),
        ResidueOp::Choose => big(if a[0] == 1 { args[1] } else { args[2] }),
        ResidueOp::Dot { .. } => {
            let each = args[1].len() / (a.len() / m.len_words());
            let pairs = a.chunks(m.len_words()).zip(args[1].chunks(each));
            let one = big(&[1]).rem(&nonzero(m));
            pairs.fold(one, |acc, (base, e)| mul_mod(&acc, &pow_mod(base, e, m), m))
        }
        ResidueOp::Product => {
            let one = big(&[1]).rem(&nonzero(m));
            a.chunks(m.len_words()).fold(one, |acc, row| mul_mod(&acc, &big(row), m))
        }
        ResidueOp::OnePlusMn { n } => one_plus_mn(a, n, m),
        ResidueOp::Pow { .. } => pow_mod(a, args[1], m),
        ResidueOp::PowFixedBase { base } => fixed_power(base, a),
        ResidueOp::Join { root } => joined(root, a),
        ResidueOp::Reduce => big(a).rem(&nonzero(m)),
        ResidueOp::LQuotient => {
            let one = BoxedUint::one_with_precision(64 * a.len() as u32);
            big(a).wrapping_sub(&one).div_rem(&nonzero(m)).0
        }
    }
}

/// `x = a + p · ((b − a) · p⁻¹ mod q)`.
fn crt_join(crt: &Crt, out: &mut [u64], a: &[u64], b: &[u64]) {
    let (a, b) = (big(a), big(b));
    let q = nonzero(crt.q());
    let difference = b.concatenating_add(q.as_ref()).wrapping_sub(a.rem(&q)).rem(&q);
    let h = mul_mod(&difference, &big(crt.p_inverse()), crt.q());
    put(out, &big(crt.p().words()).concatenating_mul(&h).concatenating_add(&a));
}

/// `x = Σ_j (r_j · (Q/q_j)⁻¹ mod q_j) · Q/q_j mod Q` for each coefficient, and Q.
fn integers(ring: &Ring, poly: &[u64]) -> (Vec<BoxedUint>, BoxedUint) {
    let (n, primes) = (ring.degree(), ring.primes());
    let product = |primes: &mut dyn Iterator<Item = u64>| {
        primes.fold(big(&[1]), |product, q| product.concatenating_mul(&big(&[q])))
    };
    let all = odd(&product(&mut primes.iter().copied())).as_nz_ref().clone();
    // Of each limb: Q/q_j, and its inverse modulo q_j.
    let parts: Vec<_> = primes
        .iter()
        .map(|&q| {
            let others = || primes.iter().copied().filter(move |&other| other != q);
            let residue = others().fold(1, |residue, other| mul_mod_vartime(residue, other % q, q));
            (product(&mut others()), pow_mod_vartime(residue, q - 2, q))
        })
        .collect();
    let integer = |i: usize| {
        let limbs = primes.iter().zip(&parts).enumerate();
        let sum = limbs.fold(big(&[0]), |sum, (limb, (&q, (others, inverse)))| {
            let digit = mul_mod_vartime(poly[limb * n + i], *inverse, q);
            sum.concatenating_add(others.concatenating_mul(&big(&[digit])))
        });
        sum.rem(&all)
    };
    ((0..n).map(integer).collect(), all.get())
}

fn compose(ring: &Ring, out: &mut [u64], poly: &[u64]) {
    let n = ring.degree();
    let mut words = vec![0; ring.primes().len()];
    for (i, x) in integers(ring, poly).0.iter().enumerate() {
        put(&mut words, x);
        words.iter().enumerate().for_each(|(w, &word)| out[w * n + i] = word);
    }
}

/// Returns the number that these words are, modulo q.
fn remainder<'w>(words: impl DoubleEndedIterator<Item = &'w u64>, q: u64) -> u64 {
    let fold = |rest: u128, &word: &u64| ((rest << 64) | u128::from(word)) % u128::from(q);
    words.rev().fold(0, fold) as u64
}

fn base_extend(from: &Ring, to: &Ring, out: &mut [u64], poly: &[u64]) {
    let n = from.degree();
    let (integers, all) = integers(from, poly);
    for (i, x) in integers.iter().enumerate() {
        // Above Q/2 it stands for x − Q.
        let minus = all.wrapping_sub(x);
        for (limb, &p) in to.primes().iter().enumerate() {
            let of = |x: &BoxedUint| remainder(x.as_words().iter(), p);
            out[limb * n + i] = if minus < *x { (p - of(&minus)) % p } else { of(x) };
        }
    }
}

/// `b = a(X^g)`: of coefficients `a_i · X^(i·g)`, where `X^N = −1`; of values `b(ψ^e) =
/// a(ψ^(e·g))`.
fn automorphism((g, ntt): (usize, bool), q: u64, out: &mut [u64], a: &[u64]) {
    let n = a.len();
    let turned = |e: usize| e * g % (2 * n);
    for i in 0..n {
        if ntt {
            let e = turned(exponent(n, i));
            let slot = (0..n).find(|&slot| exponent(n, slot) == e);
            out[i] = slot.map_or(0, |slot| a[slot]);
        } else {
            let power = turned(i);
            out[power % n] = if power < n { a[i] } else { (q - a[i]) % q };
        }
    }
}

/// Returns the exponent of ψ at place `i` of a transform: `2·brv(i) + 1`.
fn exponent(n: usize, i: usize) -> usize {
    2 * (i.reverse_bits() >> (usize::BITS - n.trailing_zeros())) + 1
}

/// `â[i] = a(ψ^(2·brv(i)+1))`, by Horner's rule.
fn transform((root, q): (u64, u64), out: &mut [u64], a: &[u64]) {
    for (i, out) in out.iter_mut().enumerate() {
        let x = pow_mod_vartime(root, exponent(a.len(), i) as u64, q);
        *out = a.iter().rev().fold(0, |acc, &c| (mul_mod_vartime(acc, x, q) + c) % q);
    }
}

/// `a[k] = N⁻¹ · Σ_i â[i] · x_i^(−k)` with `x_i = ψ^(2·brv(i)+1)`: the inverse by its definition.
fn inverse_transform((root, q): (u64, u64), out: &mut [u64], a: &[u64]) {
    let n = a.len();
    let n_inverse = pow_mod_vartime(n as u64, q - 2, q);
    let next = |&x: &u64| Some(mul_mod_vartime(x, root, q));
    let powers: Vec<u64> = std::iter::successors(Some(1), next).take(2 * n).collect();
    for (k, out) in out.iter_mut().enumerate() {
        let term = |i: usize| {
            let e = (exponent(n, i) * k) % (2 * n);
            mul_mod_vartime(a[i], powers[(2 * n - e) % (2 * n)], q)
        };
        let sum = (0..n).fold(0, |acc, i| (acc + term(i)) % q);
        *out = mul_mod_vartime(sum, n_inverse, q);
    }
}

fn uniform(ring: &Ring, out: &mut [u64], seeds: &[u64], index: u64) {
    out.fill(0);
    for seed in seeds.chunks(4) {
        let draws = draws(streams::public(seed, index, 0));
        for (place, (word, draw)) in out.iter_mut().zip(draws).enumerate() {
            let q = ring.primes()[place / ring.degree()];
            let draw = draw & ((1 << (64 - q.leading_zeros())) - 1);
            let residue = if draw < q { draw } else { second_draw(seed, index, place, q) };
            *word = (*word + residue) % q;
        }
    }
}

/// Returns what takes the place of a draw that is not below its prime: the first 128 bits of a block that no other
/// residue has.
fn second_draw(seed: &[u64], index: u64, place: usize, q: u64) -> u64 {
    let mut rng = streams::public(seed, index, 8 * ((1 << 32) + place as u64));
    let [low, high] = std::array::from_fn(|_| u128::from(rng.next_u64()));
    ((high << 64 | low) % u128::from(q)) as u64
}

/// Returns the lanes of the blocks of a stream, read as beats: of each sixteen blocks lane 0 of
/// all, then lane 1.
fn draws(mut rng: impl Rng) -> impl Iterator<Item = u64> {
    let run = move || {
        let mut block = || std::array::from_fn(|_| rng.next_u64());
        let blocks: [[u64; beats::WORDS]; 16] = std::array::from_fn(|_| block());
        (0..beats::LANES).flat_map(move |lane| blocks.map(|block| beats::lane(&block, lane)))
    };
    std::iter::repeat_with(run).flatten()
}

pub(crate) fn ternary(word: u64) -> i64 {
    ((3 * u128::from(word)) >> 64) as i64 - 1
}
