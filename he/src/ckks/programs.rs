//! The programs of the levelled scheme, level by level.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Program, Ring,
    program::{Coeff, Constant, Ntt, Var},
};

use super::{
    parameters::{Level, Parameters},
    switching_key::SwitchingKey,
};

/// An operation on ciphertexts, which is a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each says in words what it does")]
pub enum Operation {
    Encode,
    Encrypt,
    EncryptSecret,
    Decrypt,
    Add,
    Subtract,
    AddPlain,
    SubtractPlain,
    Scale,
    Weigh,
    Multiply,
    MultiplyPlain,
    SumPlain,
    Tensor,
    TensorSum,
    AddProducts,
    Relinearise,
    Rotate,
    Digits,
    RotateDigits,
    PublicKey,
    SwitchingKey,
    Uniform,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Encode,
        Self::Encrypt,
        Self::EncryptSecret,
        Self::Decrypt,
        Self::Add,
        Self::Subtract,
        Self::AddPlain,
        Self::SubtractPlain,
        Self::Scale,
        Self::Weigh,
        Self::Multiply,
        Self::MultiplyPlain,
        Self::SumPlain,
        Self::Tensor,
        Self::TensorSum,
        Self::AddProducts,
        Self::Relinearise,
        Self::Rotate,
        Self::Digits,
        Self::RotateDigits,
        Self::PublicKey,
        Self::SwitchingKey,
        Self::Uniform,
    ];

    /// Returns the name of its program.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// Returns what it does, for people.
    #[must_use]
    pub fn about(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Encode => ("ckks-encode", "The transform of an encoded plaintext"),
            Self::Encrypt => ("ckks-encrypt", "With the public key"),
            Self::EncryptSecret => ("ckks-encrypt-secret", "With the secret key"),
            Self::Decrypt => ("ckks-decrypt", "Back to integers, which decoding takes"),
            Self::Add => ("ckks-add", "A sum of two ciphertexts"),
            Self::Subtract => ("ckks-sub", "A difference of two ciphertexts"),
            Self::AddPlain => ("ckks-add-plain", "A sum with a plaintext"),
            Self::SubtractPlain => ("ckks-sub-plain", "A difference with a plaintext"),
            Self::Scale => ("ckks-scale", "A product by an integer, which takes no level"),
            Self::Weigh => ("ckks-weigh", "A sum of ciphertexts, each times a number, rescaled"),
            Self::Multiply => ("ckks-mul", "A product of two, relinearised and rescaled"),
            Self::MultiplyPlain => ("ckks-mul-plain", "A product by a plaintext, rescaled"),
            Self::SumPlain => ("ckks-sum-plain", "A sum of products by plaintexts"),
            Self::Tensor => ("ckks-tensor", "A product of two, of three parts"),
            Self::TensorSum => ("ckks-tensor-sum", "A sum of products of three parts"),
            Self::AddProducts => ("ckks-add-products", "A sum of two that have three parts"),
            Self::Relinearise => ("ckks-relinearise", "Two parts again of three, rescaled"),
            Self::Rotate => ("ckks-rotate", "A rotation of slots, or their conjugates"),
            Self::Digits => ("ckks-digits", "The digits that rotations of one ciphertext share"),
            Self::RotateDigits => ("ckks-rotate-digits", "A rotation by digits that are there"),
            Self::PublicKey => ("ckks-public-key", "The public key, of the secret"),
            Self::SwitchingKey => ("ckks-switching-key", "A digit of a key for products"),
            Self::Uniform => ("ckks-uniform", "A uniform polynomial, of its seed"),
        }
    }

    /// Returns its program for fresh ciphertexts, under keys that are zero: shapes do not depend on keys. Sums are of
    /// two. None where it takes a level and the set has none, which no checked set is without.
    #[must_use]
    pub fn program(self, set: &Parameters) -> Option<Program> {
        let level = set.top_level();
        let zeros = |ring: &Ring| Constant::new(vec![0; ring.len_words()]);
        let (q, all, key) = (zeros(set.ring(level)), zeros(set.whole()), SwitchingKey::zeros(set));
        let low = level.min(1);
        Some(match self {
            Self::Encode => encode(set, level),
            Self::Encrypt => encrypt_public(set, level, [&all, &all]),
            Self::EncryptSecret => encrypt_secret(set, level, &q),
            Self::Decrypt => decrypt(set, low, &zeros(set.ring(low))),
            Self::Add => add(set, level, false),
            Self::Subtract => add(set, level, true),
            Self::AddPlain => add_plain(set, level, false),
            Self::SubtractPlain => add_plain(set, level, true),
            Self::Scale => scale(set, level, 3),
            Self::Weigh => weigh(set, level, &[2, -3])?,
            Self::Multiply => multiply(set, level, &key)?,
            Self::MultiplyPlain => multiply_plain(set, level)?,
            Self::SumPlain => sum_plain(set, level, 2),
            Self::Tensor => tensor(set, level),
            Self::TensorSum => tensor_sum(set, level, 2),
            Self::AddProducts => add_products(set, level),
            Self::Relinearise => relinearise(set, level, &key)?,
            Self::Rotate => turn(set, level, 5, &key),
            Self::Digits => digits(set, level),
            Self::RotateDigits => turn_digits(set, level, 5, &key),
            Self::PublicKey => public_key(set, &all),
            Self::SwitchingKey => switching_key(set, 0, &all, Switch::Relinearise),
            Self::Uniform => uniform(set.whole()),
        })
    }
}

/// Both parts of a ciphertext.
pub(super) type NttPair = [Var<Ntt>; 2];

/// The names of the parts.
const PARTS: [&str; 2] = ["0", "1"];

/// A program under construction for ciphertexts of one level.
pub(super) struct On<'p> {
    pub(super) b: Builder,
    pub(super) set: &'p Parameters,
    pub(super) level: &'p Level,
}

impl<'p> On<'p> {
    /// Begins a program for a level.
    pub(super) fn new(operation: Operation, set: &'p Parameters, level: usize) -> Self {
        Self { b: Builder::new(operation.name()), set, level: set.level(level) }
    }

    /// Adds an input of ciphertexts.
    pub(super) fn ciphertext(&mut self, name: &str) -> NttPair {
        PARTS.map(|part| self.b.polys(&format!("{name}{part}"), &self.level.q))
    }

    /// Makes parts outputs.
    pub(super) fn finish(mut self, parts: impl IntoIterator<Item = Var<Ntt>>) -> Program {
        parts.into_iter().for_each(|part| self.b.output(part));
        self.b.build()
    }

    /// Adds the tensor product of two ciphertexts: three parts, under 1, s and s².
    pub(super) fn tensor(&mut self, x: NttPair, y: NttPair) -> [Var<Ntt>; 3] {
        let d0 = self.b.poly_mul("d0", x[0], y[0]);
        let d1 = self.b.mul_sum("d1", &[(x[0], y[1]), (x[1], y[0])]);
        let d2 = self.b.poly_mul("d2", x[1], y[1]);
        [d0, d1, d2]
    }

    /// Cuts a polynomial into digits, each modulo all primes: the costly half of switching keys,
    /// which rotations of one ciphertext share.
    pub(super) fn digits(&mut self, x: Var<Ntt>) -> Vec<Var<Ntt>> {
        let level = self.level;
        let coefficients = self.b.intt("x", x);
        let digit = |(j, digit): (usize, &super::parameters::Digit)| {
            let b = &mut self.b;
            let own = b.limbs(&format!("x_{j}"), coefficients, &digit.own);
            let extended = b.base_extend(&format!("x_{j}'"), own, &digit.others);
            let others = b.ntt(&format!("x̂_{j}'"), extended);
            let own = b.limbs(&format!("x̂_{j}"), x, &digit.own);
            b.join_limbs(&format!("digit{j}"), (others, own), &level.all)
        };
        level.digits.iter().enumerate().map(digit).collect()
    }

    /// Adds the sum of digits times a key: what the digits are of, under the key's own secret, times
    /// the special primes.
    pub(super) fn switch(&mut self, digits: &[Var<Ntt>], key: &SwitchingKey) -> NttPair {
        [0, 1].map(|part| {
            let pairs: Vec<_> = digits
                .iter()
                .enumerate()
                .map(|(j, &digit)| {
                    let name = format!("key{j}{}", PARTS[part]);
                    let words = key.words(j, part, &self.level.all);
                    (digit, self.b.evaluation_key(&name, &self.level.all, &words))
                })
                .collect();
            self.b.mul_sum(&format!("sum{}", PARTS[part]), &pairs)
        })
    }

    /// Adds the ciphertext of a product, one level lower.
    pub(super) fn relinearise(
        &mut self,
        [d0, d1, d2]: [Var<Ntt>; 3],
        key: &SwitchingKey,
        last: &LastPrime<'_>,
    ) -> NttPair {
        let digits = self.digits(d2);
        let switched = self.switch(&digits, key);
        let c0 = self.divide_all("c0", switched[0], d0, last);
        let c1 = self.divide_all("c1", switched[1], d1, last);
        [c0, c1]
    }

    /// Adds what a ciphertext turns to, of its first part and the digits of its second.
    pub(super) fn turn(
        &mut self,
        first: Var<Ntt>,
        digits: &[Var<Ntt>],
        element: u32,
        key: &SwitchingKey,
    ) -> NttPair {
        let switched = self.switch(digits, key);
        let divided = [0, 1].map(|part| self.divide_special(["ks0", "ks1"][part], switched[part]));
        let first = self.b.add("c0", divided[0], first);
        [("turned0", first), ("turned1", divided[1])]
            .map(|(name, part)| self.b.automorphism(name, part, element))
    }

    /// Adds `round(x / P)` of a polynomial modulo all primes, P being the product of the special
    /// ones, over the primes of the level.
    pub(super) fn divide_special(&mut self, name: &str, x: Var<Ntt>) -> Var<Ntt> {
        let (special, q) = (self.set.special(), &self.level.q);
        let low = self.b.limbs(&format!("{name}.P"), x, special);
        let high = self.b.limbs(&format!("{name}.Q"), x, q);
        self.divide(name, (high, low), (special, q))
    }

    /// Adds `round((x + P·y) / (P·q))` of a polynomial modulo all primes and one modulo those of the
    /// level, q being its last prime: what a key switched is divided by, and the level, in one.
    pub(super) fn divide_all(
        &mut self,
        name: &str,
        x: Var<Ntt>,
        y: Var<Ntt>,
        last: &LastPrime<'_>,
    ) -> Var<Ntt> {
        let (special, q) = (self.set.special(), &self.level.q);
        let b = &mut self.b;
        let times_p = b.scale(&format!("{name}.d"), y, &residues(special, q));
        let high = b.limbs(&format!("{name}.Q"), x, q);
        let sum = b.add(&format!("{name}.sum"), high, times_p);
        let low = b.limbs(&format!("{name}.P"), x, special);
        let prime = b.limbs(&format!("{name}.q"), sum, last.prime);
        let low = b.join_limbs(&format!("{name}.Pq"), (low, prime), last.with_special);
        let high = b.limbs(&format!("{name}.high"), sum, last.below);
        self.divide(name, (high, low), (last.with_special, last.below))
    }

    /// Adds `round(x / q)`, q being the last prime of the level.
    pub(super) fn rescale(&mut self, name: &str, x: Var<Ntt>, last: &LastPrime<'_>) -> Var<Ntt> {
        let low = self.b.limbs(&format!("{name}.q"), x, last.prime);
        let high = self.b.limbs(&format!("{name}.high"), x, last.below);
        self.divide(name, (high, low), (last.prime, last.below))
    }

    /// Adds `(x − [x mod D]) / D`, D being the product of the primes of `by`: what is left, centred,
    /// is taken away, so it is the nearest integer. `high` is x over the primes that stay, `low`
    /// over those of D.
    fn divide(
        &mut self,
        name: &str,
        (high, low): (Var<Ntt>, Var<Ntt>),
        (by, to): (&Arc<Ring>, &Arc<Ring>),
    ) -> Var<Ntt> {
        let b = &mut self.b;
        let rest = b.intt(&format!("{name}.r"), low);
        let rest = b.base_extend(&format!("{name}.r'"), rest, to);
        let rest = b.ntt(&format!("{name}.r̂"), rest);
        let difference = b.sub(&format!("{name}.diff"), high, rest);
        let inverses: Vec<u64> =
            residues(by, to).iter().zip(to.primes()).map(|(&d, &q)| inverse(d, q)).collect();
        b.scale(name, difference, &inverses)
    }

    /// Returns what the level is rescaled by, with the ring below. None on level 0.
    pub(super) fn last(&self, level: usize) -> Option<LastPrime<'p>> {
        let of = self.level.last.as_ref()?;
        let below = &self.set.level(level - 1).q;
        Some(LastPrime { prime: &of.prime, with_special: &of.with_special, below })
    }
}

/// The last prime of a level, and what is left without it.
pub(super) struct LastPrime<'p> {
    pub(super) prime: &'p Arc<Ring>,
    pub(super) with_special: &'p Arc<Ring>,
    pub(super) below: &'p Arc<Ring>,
}

/// Returns the product of the primes of `of`, modulo each prime of `to`.
pub(super) fn residues(of: &Ring, to: &Ring) -> Vec<u64> {
    let product = |&q: &u64| {
        of.primes().iter().fold(1, |x, &p| (u128::from(x) * u128::from(p) % u128::from(q)) as u64)
    };
    to.primes().iter().map(product).collect()
}

/// Returns `x⁻¹` modulo a prime q; x is public.
fn inverse(x: u64, q: u64) -> u64 {
    let times = |a: u64, b: u64| (u128::from(a) * u128::from(b) % u128::from(q)) as u64;
    let (mut result, mut square, mut exponent) = (1, x, q - 2);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = times(result, square);
        }
        square = times(square, square);
        exponent >>= 1;
    }
    result
}

/// Returns an integer modulo each prime of a ring.
pub(super) fn integer_mod(x: i128, ring: &Ring) -> Vec<u64> {
    ring.primes().iter().map(|&q| x.rem_euclid(i128::from(q)) as u64).collect()
}

/// Builds the program that multiplies two ciphertexts, switches what is under s² back to s, and
/// rescales.
pub(super) fn multiply(set: &Parameters, level: usize, key: &SwitchingKey) -> Option<Program> {
    let mut on = On::new(Operation::Multiply, set, level);
    let last = on.last(level)?;
    let (x, y) = (on.ciphertext("a"), on.ciphertext("b"));
    let product = on.tensor(x, y);
    let parts = on.relinearise(product, key, &last);
    Some(on.finish(parts))
}

/// Builds the program of a tensor product: three parts, which sums leave as they are.
pub(super) fn tensor(set: &Parameters, level: usize) -> Program {
    let mut on = On::new(Operation::Tensor, set, level);
    let (x, y) = (on.ciphertext("a"), on.ciphertext("b"));
    let parts = on.tensor(x, y);
    on.finish(parts)
}

/// Builds the program of a sum of tensor products: three parts, each reduced once.
pub(super) fn tensor_sum(set: &Parameters, level: usize, terms: usize) -> Program {
    let mut on = On::new(Operation::TensorSum, set, level);
    let pairs: Vec<_> = (0..terms)
        .map(|i| [on.ciphertext(&format!("a{i}.")), on.ciphertext(&format!("b{i}."))])
        .collect();
    let sums = [
        pairs.iter().map(|[x, y]| (x[0], y[0])).collect::<Vec<_>>(),
        pairs.iter().flat_map(|[x, y]| [(x[0], y[1]), (x[1], y[0])]).collect(),
        pairs.iter().map(|[x, y]| (x[1], y[1])).collect(),
    ];
    let names = ["d0", "d1", "d2"];
    let parts = [0, 1, 2].map(|part| on.b.mul_sum(names[part], &sums[part]));
    on.finish(parts)
}

/// Builds the program that adds two products.
pub(super) fn add_products(set: &Parameters, level: usize) -> Program {
    let mut on = On::new(Operation::AddProducts, set, level);
    let [x, y] = ["a", "b"].map(|name| {
        ["0", "1", "2"].map(|part| on.b.polys::<Ntt>(&format!("{name}{part}"), &on.level.q))
    });
    let parts = [0, 1, 2].map(|part| on.b.add(&format!("d{part}"), x[part], y[part]));
    on.finish(parts)
}

/// Builds the program that switches what of a product is under s² back to s, and rescales.
pub(super) fn relinearise(set: &Parameters, level: usize, key: &SwitchingKey) -> Option<Program> {
    let mut on = On::new(Operation::Relinearise, set, level);
    let last = on.last(level)?;
    let d = ["d0", "d1", "d2"].map(|name| on.b.polys::<Ntt>(name, &on.level.q));
    let parts = on.relinearise(d, key, &last);
    Some(on.finish(parts))
}

/// Builds the program that cuts the second part of a ciphertext into digits.
pub(super) fn digits(set: &Parameters, level: usize) -> Program {
    let mut on = On::new(Operation::Digits, set, level);
    let x = on.b.polys::<Ntt>("a1", &on.level.q);
    let digits = on.digits(x);
    on.finish(digits)
}

/// Builds the program of [`turn`] for digits that are there.
pub(super) fn turn_digits(
    set: &Parameters,
    level: usize,
    element: u32,
    key: &SwitchingKey,
) -> Program {
    let mut on = On::new(Operation::RotateDigits, set, level);
    let first = on.b.polys::<Ntt>("a0", &on.level.q);
    let digits: Vec<_> = (0..on.level.digits.len())
        .map(|j| on.b.polys::<Ntt>(&format!("digit{j}"), &on.level.all))
        .collect();
    let turned = on.turn(first, &digits, element, key);
    on.finish(turned)
}

/// Builds the program that switches a ciphertext to the secret that `element` undoes, and turns it.
pub(super) fn turn(set: &Parameters, level: usize, element: u32, key: &SwitchingKey) -> Program {
    let mut on = On::new(Operation::Rotate, set, level);
    let x = on.ciphertext("a");
    let digits = on.digits(x[1]);
    let turned = on.turn(x[0], &digits, element, key);
    on.finish(turned)
}

/// Builds the program that multiplies a ciphertext by an integer, on the same level.
pub(super) fn scale(set: &Parameters, level: usize, factor: i128) -> Program {
    let mut on = On::new(Operation::Scale, set, level);
    let x = on.ciphertext("a");
    let factors = integer_mod(factor, &on.level.q);
    let parts = [0, 1].map(|part| on.b.scale(&format!("c{part}"), x[part], &factors));
    on.finish(parts)
}

/// Builds the program that sums ciphertexts, each times an integer, and rescales.
pub(super) fn weigh(set: &Parameters, level: usize, factors: &[i128]) -> Option<Program> {
    let mut on = On::new(Operation::Weigh, set, level);
    let last = on.last(level)?;
    let mut sums: Option<NttPair> = None;
    for (index, &factor) in factors.iter().enumerate() {
        let x = on.ciphertext(&format!("a{index}."));
        let factors = integer_mod(factor, &on.level.q);
        let scaled = [0, 1].map(|part| on.b.scale(&format!("x{index}.{part}"), x[part], &factors));
        sums = Some(match sums {
            None => scaled,
            Some(sums) => {
                [0, 1].map(|part| on.b.add(&format!("sum{index}.{part}"), sums[part], scaled[part]))
            }
        });
    }
    let sums = sums?;
    let parts = [0, 1].map(|part| on.rescale(&format!("c{part}"), sums[part], &last));
    Some(on.finish(parts))
}

/// Builds the program that adds a plaintext to the first part of a ciphertext, or subtracts it.
pub(super) fn add_plain(set: &Parameters, level: usize, minus: bool) -> Program {
    let operation = if minus { Operation::SubtractPlain } else { Operation::AddPlain };
    let mut on = On::new(operation, set, level);
    let [x, m] = ["a0", "m"].map(|name| on.b.polys::<Ntt>(name, &on.level.q));
    let sum = if minus { on.b.sub("c0", x, m) } else { on.b.add("c0", x, m) };
    on.finish([sum])
}

/// Builds the program that multiplies a ciphertext by a plaintext and rescales.
pub(super) fn multiply_plain(set: &Parameters, level: usize) -> Option<Program> {
    let mut on = On::new(Operation::MultiplyPlain, set, level);
    let last = on.last(level)?;
    let x = on.ciphertext("a");
    let m = on.b.polys::<Ntt>("m", &on.level.q);
    let parts = [0, 1].map(|part| {
        let product = on.b.poly_mul(&format!("product{part}"), x[part], m);
        on.rescale(&format!("c{part}"), product, &last)
    });
    Some(on.finish(parts))
}

/// Builds the program that adds two ciphertexts, or subtracts the second.
pub(super) fn add(set: &Parameters, level: usize, minus: bool) -> Program {
    let operation = if minus { Operation::Subtract } else { Operation::Add };
    let mut on = On::new(operation, set, level);
    let (x, y) = (on.ciphertext("a"), on.ciphertext("b"));
    let parts = [0, 1].map(|part| match minus {
        true => on.b.sub(&format!("c{part}"), x[part], y[part]),
        false => on.b.add(&format!("c{part}"), x[part], y[part]),
    });
    on.finish(parts)
}

/// Adds integers of one word, in two's complement, as a polynomial: a message.
fn message(b: &mut Builder, ring: &Arc<Ring>) -> Var<Coeff> {
    let integers = b.integers("message", ring.degree());
    b.lift_signed("m", ring, integers)
}

/// Builds the program that transforms an encoded plaintext.
pub(super) fn encode(set: &Parameters, level: usize) -> Program {
    let mut on = On::new(Operation::Encode, set, level);
    let m = message(&mut on.b, &on.level.q);
    let t = on.b.ntt("m̂", m);
    on.b.output(t);
    on.b.build()
}

/// Builds the program that encrypts with the secret: `(−a·s + e + m, a)`, a being the uniform
/// polynomial that a seed names.
pub(super) fn encrypt_secret(set: &Parameters, level: usize, s: &Constant) -> Program {
    let mut on = On::new(Operation::EncryptSecret, set, level);
    let ring = &on.level.q;
    let b = &mut on.b;
    let m = message(b, ring);
    let index = b.index("index");
    let seed = b.seeds("seed", 1);
    let noise_key = b.secret_seed("noise_key");
    let s = b.shared_secret("ŝ", ring, s);
    let a = b.uniform("â", ring, seed, index);
    let e = b.noise("e", ring, noise_key, index);
    let noisy = b.add("m+e", m, e);
    let t = b.ntt("m̂+ê", noisy);
    let product = b.poly_mul("âŝ", a, s);
    let first = b.sub("c0", t, product);
    on.finish([first, a])
}

/// Builds the program that encrypts with the public key: `u·(b, a) + (e₀, e₁)` over all primes,
/// divided by the special ones, and m. The noise of the key, which u multiplies, is divided too.
pub(super) fn encrypt_public(set: &Parameters, level: usize, key: [&Constant; 2]) -> Program {
    let mut on = On::new(Operation::Encrypt, set, level);
    let (all, q) = (&on.level.all, &on.level.q);
    let b = &mut on.b;
    let m = message(b, q);
    let index = b.index("index");
    let keys = ["u_key", "e0_key", "e1_key"].map(|name| b.secret_seed(name));
    let u = b.ternary("u", all, keys[0], index);
    let u = b.ntt("û", u);
    let parts = [0, 1].map(|part| {
        let b = &mut on.b;
        let key = b.evaluation_key(["b̂", "â"][part], all, key[part]);
        let e = b.noise(["e0", "e1"][part], all, keys[part + 1], index);
        let product = b.poly_mul(["ûb̂", "ûâ"][part], u, key);
        let e = b.ntt(["ê0", "ê1"][part], e);
        let sum = b.add(["sum0", "sum1"][part], product, e);
        on.divide_special(["z0", "z1"][part], sum)
    });
    let t = on.b.ntt("m̂", m);
    let first = on.b.add("c0", parts[0], t);
    on.finish([first, parts[1]])
}

/// Builds the program that decrypts: integers of as many words as primes, modulo their product.
pub(super) fn decrypt(set: &Parameters, level: usize, s: &Constant) -> Program {
    let mut on = On::new(Operation::Decrypt, set, level);
    let x = on.ciphertext("c");
    let ring = &on.level.q;
    let b = &mut on.b;
    let s = b.shared_secret("ŝ", ring, s);
    let product = b.poly_mul("ĉ1ŝ", x[1], s);
    let sum = b.add("m̂", x[0], product);
    let m = b.intt("m", sum);
    let integers = b.compose("integers", m);
    b.output(integers);
    on.b.build()
}

/// Which secret a key leads from, and to.
#[derive(Clone, Copy)]
pub(super) enum Switch {
    /// From s² to s.
    Relinearise,
    /// From s to the one that `element` turns into s.
    Turn { inverse: u32 },
}

/// Builds the program that makes one digit of a key: `(−a·s' + e + P·[own primes]·s'', a)`.
pub(super) fn switching_key(
    set: &Parameters,
    digit: usize,
    s: &Constant,
    switch: Switch,
) -> Program {
    let mut on = On::new(Operation::SwitchingKey, set, set.top_level());
    let ring = &on.level.all;
    let own = &on.level.digits[digit].own;
    let special = residues(set.special(), ring);
    let is_own = |q: &u64| own.primes().contains(q);
    let factors: Vec<u64> = ring
        .primes()
        .iter()
        .zip(special)
        .map(|(q, factor)| if is_own(q) { factor } else { 0 })
        .collect();
    let b = &mut on.b;
    let index = b.index("index");
    let seed = b.seeds("seed", 1);
    let noise_key = b.secret_seed("noise_key");
    let s = b.shared_secret("ŝ", ring, s);
    let (from, to) = match switch {
        Switch::Relinearise => (b.poly_mul("ŝ²", s, s), s),
        Switch::Turn { inverse } => (s, b.automorphism("ŝ'", s, inverse)),
    };
    let a = b.uniform("â", ring, seed, index);
    let e = b.noise("e", ring, noise_key, index);
    let e = b.ntt("ê", e);
    let message = b.scale("P·ŝ", from, &factors);
    let noisy = b.add("P·ŝ+ê", message, e);
    let product = b.poly_mul("âŝ", a, to);
    let first = b.sub("b̂", noisy, product);
    on.finish([first, a])
}

/// Builds the program that expands a uniform polynomial from a seed.
pub(super) fn uniform(ring: &Arc<Ring>) -> Program {
    let mut b = Builder::new(Operation::Uniform.name());
    let index = b.index("index");
    let seed = b.seeds("seed", 1);
    let a = b.uniform("â", ring, seed, index);
    b.output(a);
    b.build()
}

/// Builds the program that makes the public key: `(−a·s + e, a)` over all primes.
pub(super) fn public_key(set: &Parameters, s: &Constant) -> Program {
    let mut on = On::new(Operation::PublicKey, set, set.top_level());
    let ring = &on.level.all;
    let b = &mut on.b;
    let index = b.index("index");
    let seed = b.seeds("seed", 1);
    let noise_key = b.secret_seed("noise_key");
    let s = b.shared_secret("ŝ", ring, s);
    let a = b.uniform("â", ring, seed, index);
    let e = b.noise("e", ring, noise_key, index);
    let e = b.ntt("ê", e);
    let product = b.poly_mul("âŝ", a, s);
    let first = b.sub("b̂", e, product);
    on.finish([first, a])
}

/// Builds the program that sums products of ciphertexts by plaintexts, at the scale of products.
pub(super) fn sum_plain(set: &Parameters, level: usize, terms: usize) -> Program {
    let mut on = On::new(Operation::SumPlain, set, level);
    let x: Vec<_> = (0..terms).map(|i| on.ciphertext(&format!("a{i}."))).collect();
    let q = &on.level.q;
    let m: Vec<_> = (0..terms).map(|i| on.b.polys::<Ntt>(&format!("m{i}"), q)).collect();
    let parts = [0, 1].map(|part| {
        let pairs: Vec<_> = x.iter().zip(&m).map(|(x, &m)| (x[part], m)).collect();
        on.b.mul_sum(&format!("sum{part}"), &pairs)
    });
    on.finish(parts)
}
