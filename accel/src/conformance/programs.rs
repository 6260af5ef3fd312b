//! Programs that nobody wrote: random steps over random values, so that values live, are shared and
//! die as they like, and leave a program from anywhere in it.

use std::sync::Arc;

use rand_core::Rng;

use super::{Operands, bits_words, clip, ran, ring};
use crate::{
    engine::{Engine, Operand},
    exponents::{Public, Secret},
    program::{
        Builder, Coeff, Constant, Exponent, FixedBase, Integer, Kind, Ntt, Program, Seed, Spread,
        Var,
    },
    reference::ReferenceEngine,
};

/// Programs of each family.
const PROGRAMS: u64 = 12;
/// Steps of the longest.
const STEPS: usize = 14;
/// Items of a batch.
const COUNTS: [usize; 4] = [1, 3, 9, 17];

/// Tries programs of random steps over residues, and over polynomials.
pub fn random_programs(engine: &dyn Engine) {
    for seed in 0..PROGRAMS {
        let mut random = Operands::new(1_000 + seed);
        agrees(engine, &residues(&mut random), &mut random);
        agrees(engine, &polynomials(&mut random), &mut random);
    }
}

impl Operands {
    fn below(&mut self, bound: usize) -> usize {
        self.0.next_u32() as usize % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns one item of a kind. Integers are small enough for a plaintext of a modulus of as
    /// many words.
    fn item(&mut self, kind: &Kind) -> Vec<u64> {
        match kind {
            Kind::Integers { words } => {
                let mut x = self.words(*words);
                x[words - 1] >>= 44;
                x
            }
            Kind::Residues { modulus, rows } => self.residues(modulus, *rows),
            Kind::Pairs { root, .. } => self.residues(root, 2),
            Kind::Exponents { bits, count } => {
                let mut e = self.words(count * bits_words(*bits));
                clip(&mut e, *bits);
                e
            }
            Kind::Polys { ring, .. } => self.poly(ring),
            Kind::Beats { ring, count } => self.beats(ring, *count),
            Kind::Lanes { .. } => self.words(kind.words()),
            Kind::Seeds { count } => self.words(4 * count),
        }
    }
}

/// Runs a program on both engines, over batches of several sizes: all that leaves it has to be the
/// same.
fn agrees(engine: &dyn Engine, program: &Program, random: &mut Operands) {
    for count in COUNTS {
        let values = program.values();
        let inputs: Vec<_> = program
            .inputs()
            .map(|(value, spread)| {
                let items = if spread == Spread::Shared { 1 } else { count };
                let words: Vec<_> =
                    (0..items).flat_map(|_| random.item(&values[value].kind)).collect();
                (words, spread, values[value].secret)
            })
            .collect();
        let run = |engine: &dyn Engine| {
            let mut inputs = inputs.clone();
            let words = |&value: &usize| vec![u64::MAX; count * values[value].kind.words()];
            let mut outputs: Vec<_> = program.outputs().iter().map(words).collect();
            let mut operands: Vec<_> = inputs
                .iter_mut()
                .map(|(words, spread, secret)| match (spread, secret) {
                    (Spread::Update, _) => Operand::InOut(words),
                    (_, true) => Operand::SecretIn(words),
                    (_, false) => Operand::In(words),
                })
                .collect();
            operands.extend(outputs.iter_mut().map(|words| Operand::Out(words)));
            let ran = ran(engine, program, &mut operands);
            drop(operands);
            let updated = inputs.into_iter().map(|(words, ..)| words);
            ran.then(|| updated.chain(outputs).collect::<Vec<_>>())
        };
        if let Some(found) = run(engine) {
            let expected = run(&ReferenceEngine);
            assert!(Some(found) == expected, "{count} items on {}:\n{program}", engine.name());
        }
    }
}

/// Values of one type, of which some have to leave the program.
struct Pool<T>(Vec<Var<T>>);

impl<T> Pool<T> {
    fn pick(&self, random: &mut Operands) -> Var<T> {
        random.pick(&self.0)
    }

    /// Makes some of the values from place `first` on outputs, the newest always.
    fn leave(&self, first: usize, b: &mut Builder, random: &mut Operands) {
        for (place, &value) in self.0.iter().enumerate().skip(first) {
            if place + 1 == self.0.len() || random.below(3) == 0 {
                b.output(value);
            }
        }
    }
}

fn residues(random: &mut Operands) -> Program {
    let words = [2 + random.below(3), 1 + random.below(3)];
    let [m, n] = random.square(words[0]);
    let other = random.modulus(words[1]);
    let mut b = Builder::new("random residues");
    let mut all = Pool(vec![b.residues("x", &m), b.secret_residues("y", &m)]);
    let shared = b.shared_residues("shared", &m, 1);
    all.0.push(shared);
    let sum = (random.below(2) == 0).then(|| b.residue_sums("sum", &m));
    all.0.extend(sum);
    let (bases, rows) = (b.shared_residues("bases", &m, 3), b.residue_rows("rows", &m, 3));
    // What is computed of public values alone.
    let mut public = Pool(vec![all.0[0], shared]);
    let (pairs_in, given) = ([b.pairs("u", &m), b.shared_pair("v", &m)], all.0.len());
    let mut pairs = Pool(pairs_in.to_vec());
    let mut small = Pool(vec![b.residues("z", &other)]);
    let bits = 1 + random.below(70) as u32;
    let s: Var<Exponent<Secret>> = b.exponents("s", bits);
    let p: Var<Exponent<Public>> = b.exponents("p", bits);
    let several: Var<Exponent<Secret>> = b.exponent_rows("several", bits, 3);
    let bit = b.secret_bits("bit");
    let plain: Var<Integer> = b.integers("plain", n.len_words());
    let base = random.residue(&m, 9);
    let fixed = Arc::new(FixedBase::new("base", m.clone(), &base, bits));
    for step in 0..1 + random.below(STEPS) {
        let name = &format!("t{step}");
        let (x, y) = (all.pick(random), all.pick(random));
        let (u, v) = (pairs.pick(random), pairs.pick(random));
        match random.below(16) {
            0 => all.0.push(b.mul(name, x, y)),
            1 => all.0.push(b.mont_mul(name, x, y)),
            2 => {
                let inverse = b.invert(name, public.pick(random));
                all.0.push(inverse);
                public.0.push(inverse);
            }
            3 => all.0.push(b.choose(name, bit, x, y)),
            4 => all.0.push(b.pow(name, x, s)),
            5 => all.0.push(b.pow(name, x, p)),
            6 => all.0.push(b.pow_fixed_base(name, &fixed, s)),
            7 => pairs.0.push(b.pow_fixed_base_pair(name, &fixed, s)),
            8 => pairs.0.push(b.split(name, x)),
            9 => all.0.push(b.join(name, u)),
            10 => pairs.0.push(b.pair_mul(name, u, v)),
            11 => all.0.push(b.one_plus_mn(name, plain, &n, &m)),
            12 => pairs.0.push(b.one_plus_mn_pair(name, plain, &m)),
            13 => small.0.push(b.reduce(name, x, &other)),
            14 => all.0.push(b.product(name, rows)),
            _ => all.0.push(b.dot(name, bases, several)),
        }
    }
    // Something that certainly is the result of a step, and something that replaces the
    // accumulator.
    let last = b.mul("last", all.pick(random), all.pick(random));
    all.0.push(last);
    all.leave(given, &mut b, random);
    pairs.leave(pairs_in.len(), &mut b, random);
    small.leave(1, &mut b, random);
    if let Some(sum) = sum {
        let after = b.mul("sum + last", sum, last);
        b.update(sum, after);
    }
    b.build()
}

fn polynomials(random: &mut Operands) -> Program {
    let (degree, limbs) = (16 << random.below(3), 1 + random.below(3));
    let r = ring(degree, 20 + 10 * random.below(4) as u32, limbs);
    // Of other primes.
    let other = ring(degree, 40, 1 + random.below(3));
    let first = Arc::new(other.limbs(0, 1));
    let factors: Vec<u64> = r.primes().iter().map(|q| random.0.next_u64() % q).collect();
    let beat_count = 1 + random.below(2 * r.len_words() / 10);
    let mut b = Builder::new("random polynomials");
    let mut coeffs = Pool(vec![b.coefficients("x", &r), b.coefficients("y", &r)]);
    let (secret, public) = (random.poly(&r), random.poly(&r));
    let public = b.evaluation_key("p", &r, &Constant::new(public));
    let mut ntts = Pool(vec![b.secret_key("s", &r, &secret), public]);
    let mut extended = Pool(vec![b.coefficients("z", &other)]);
    let sum = (random.below(2) == 0).then(|| b.beat_sums("sum", &r, beat_count));
    let mut beats = Pool(vec![b.beats("beats", &r, beat_count)]);
    beats.0.extend(sum);
    let given = beats.0.len();
    // In a third of the programs: not every engine has steps over them.
    let has_lanes = random.below(3) == 0;
    let lane_sum = has_lanes.then(|| b.lane_sums("lane sum", &r, beat_count));
    let mut lanes = Pool(vec![b.lanes("lanes", &r, beat_count)]);
    lanes.0.extend(lane_sum);
    let given_lanes = lanes.0.len();
    let mut integers = Pool(vec![b.integers("n", degree * (1 + random.below(4)))]);
    let index = b.index("index");
    let seeds: Var<Seed<Public>> = b.seeds("seeds", 1 + random.below(4));
    let key: Var<Seed<Secret>> = b.secret_seed("key");
    for step in 0..1 + random.below(STEPS) {
        let name = &format!("t{step}");
        let (x, y): (Var<Coeff>, _) = (coeffs.pick(random), coeffs.pick(random));
        let (u, v): (Var<Ntt>, _) = (ntts.pick(random), ntts.pick(random));
        let element = 2 * random.below(degree) as u32 + 1;
        match random.below(if has_lanes { 26 } else { 24 }) {
            0 => ntts.0.push(b.ntt(name, x)),
            1 => coeffs.0.push(b.intt(name, u)),
            2 => coeffs.0.push(b.add(name, x, y)),
            3 => ntts.0.push(b.add(name, u, v)),
            4 => coeffs.0.push(b.sub(name, x, y)),
            5 => ntts.0.push(b.sub(name, u, v)),
            6 => ntts.0.push(b.poly_mul(name, u, v)),
            7 => coeffs.0.push(b.lift(name, &r, integers.pick(random))),
            8 => integers.0.push(b.compose(name, x)),
            9 => beats.0.push(b.pack(name, x, beat_count)),
            10 => coeffs.0.push(b.unpack(name, beats.pick(random))),
            11 => beats.0.push(b.add_beats(name, beats.pick(random), beats.pick(random))),
            12 => ntts.0.push(b.uniform(name, &r, seeds, index)),
            13 => coeffs.0.push(b.noise(name, &r, key, index)),
            14 => coeffs.0.push(b.ternary(name, &r, key, index)),
            15 => coeffs.0.push(b.automorphism(name, x, element)),
            16 => ntts.0.push(b.automorphism(name, u, element)),
            17 => extended.0.push(b.base_extend(name, x, &other)),
            18 => coeffs.0.push(b.scale(name, x, &factors)),
            19 => ntts.0.push(b.scale(name, u, &factors)),
            20 => {
                let pairs: Vec<_> = (0..1 + random.below(4))
                    .map(|_| (ntts.pick(random), ntts.pick(random)))
                    .collect();
                ntts.0.push(b.mul_sum(name, &pairs));
            }
            21 => {
                let x = extended.pick(random);
                let part = b.limbs(&format!("{name}'"), x, &first);
                extended.0.push(b.base_extend(name, part, &other));
            }
            22 => coeffs.0.push(b.lift_signed(name, &r, integers.pick(random))),
            24 => lanes.0.push(b.add_lanes(name, lanes.pick(random), beats.pick(random))),
            25 => beats.0.push(b.reduce_lanes(name, lanes.pick(random))),
            _ => coeffs.0.push(b.base_extend(name, extended.pick(random), &r)),
        }
    }
    let last = b.intt("last", ntts.pick(random));
    coeffs.0.push(last);
    coeffs.leave(2, &mut b, random);
    ntts.leave(2, &mut b, random);
    extended.leave(1, &mut b, random);
    integers.leave(1, &mut b, random);
    beats.leave(given, &mut b, random);
    lanes.leave(given_lanes, &mut b, random);
    if let Some(sum) = sum {
        let after = b.add_beats("sum + beats", sum, beats.pick(random));
        b.update(sum, after);
    }
    if let Some(sum) = lane_sum {
        let after = b.add_lanes("lane sum + beats", sum, beats.pick(random));
        b.update(sum, after);
    }
    b.build()
}
