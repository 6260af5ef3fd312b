//! Keys and numbers that several tests share, in another library's big integers.

use ciphergram_he::paillier::{Ciphertexts, PaillierModulus, PaillierSecret};
use num_bigint::BigUint;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use serde_json::Value;

pub(crate) fn hex(value: &Value) -> BigUint {
    parse(value.as_str().unwrap())
}

fn parse(text: &str) -> BigUint {
    BigUint::parse_bytes(text.as_bytes(), 16).unwrap()
}

pub(crate) fn words(x: &BigUint, count: usize) -> Vec<u64> {
    let mut words = x.to_u64_digits();
    assert!(words.len() <= count);
    words.resize(count, 0);
    words
}

pub(crate) fn big(words: &[u64]) -> BigUint {
    words.iter().rev().fold(BigUint::ZERO, |acc, &w| (acc << 64) + BigUint::from(w))
}

pub(crate) fn vectors(bits: u32) -> Value {
    let path = format!("{}/he/data/paillier_phe_{bits}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A key that protects nothing, with the factors that its own type keeps to itself.
pub(crate) struct Key {
    pub(crate) secret: PaillierSecret,
    pub(crate) bits: u32,
    pub(crate) p: BigUint,
    pub(crate) q: BigUint,
    pub(crate) n: BigUint,
    pub(crate) n2: BigUint,
}

impl Key {
    fn new(p: BigUint, q: BigUint, bits: u32, djn: bool) -> Self {
        let secret = PaillierSecret::new(&p.to_u64_digits(), &q.to_u64_digits(), bits, djn);
        let n = &p * &q;
        Self { secret: secret.unwrap(), bits, n2: &n * &n, n, p, q }
    }

    /// A key with the form that short masks need: of python-paillier, or smaller than any scheme's.
    pub(crate) fn of_bits(bits: u32) -> Self {
        if bits == 1024 {
            let p = "c511fd5b6ff666b5573e9ee6c550b07da9185c36c02ca748da3855cc118bd57b\
                     a85a37724ccb42d308fdeee79e8d748eaf1e859e7743236d102dab402103002f";
            let q = "d28ed19cc9be612c0780a69625d21278a1cbb2c3609b740b4ac987f5f6d2559d\
                     e042375472a909f85fec2e30e93bf4bd35fc6d89465ac67840ca6aa5769f197b";
            return Self::new(parse(p), parse(q), bits, true);
        }
        let file = vectors(bits);
        Self::new(hex(&file["p"]), hex(&file["q"]), bits, true)
    }

    /// A valid key of 1024 bits with `p ≡ q ≡ 1 mod 4` and `gcd(p − 1, q − 1) = 720`.
    pub(crate) fn of_another_form() -> Self {
        let p = "e4ebb164e19e92ab13050d64b947345ee23f983e47e3bbf24114a45f624bf77a\
                 38ebb9d8637496808f2aebe7942988d90050f34c84379b68ae672e272daa9011";
        let q = "f32ff2f467458c3ddf09aad390f786cb64e779f428084622f338adf6cf8ebc97\
                 ac91d813feb015a218e362a1cf5a604ab0d34459953d9a6d8263a7b1893f5b81";
        Self::new(parse(p), parse(q), 1024, false)
    }

    pub(crate) fn modulus(&self) -> &PaillierModulus {
        self.secret.modulus()
    }

    /// Words of a plaintext; a ciphertext has twice as many.
    pub(crate) fn words(&self) -> usize {
        self.bits as usize / 64
    }

    pub(crate) fn batch(&self, items: &[BigUint]) -> Ciphertexts {
        let words = items.iter().flat_map(|c| words(c, 2 * self.words())).collect();
        Ciphertexts::try_from_words(self.modulus(), words).unwrap()
    }

    pub(crate) fn plain_words(&self, items: &[BigUint]) -> Vec<u64> {
        items.iter().flat_map(|m| words(m, self.words())).collect()
    }

    /// Any unit modulo n² is an encryption of something.
    pub(crate) fn random_ciphertexts(&self, count: usize, rng: &mut ChaCha20Rng) -> Vec<BigUint> {
        (0..count).map(|_| random_below(&self.n2, rng)).collect()
    }

    /// `(1 + m·n) · mask mod n²`.
    pub(crate) fn encrypt(&self, m: &BigUint, mask: &BigUint) -> BigUint {
        (BigUint::from(1u8) + m * &self.n) * mask % &self.n2
    }

    /// `L(c^φ) · φ⁻¹ mod n` with `L(x) = (x − 1)/n`.
    pub(crate) fn decrypt(&self, c: &BigUint) -> BigUint {
        let phi = (&self.p - 1u8) * (&self.q - 1u8);
        let power = c.modpow(&phi, &self.n2);
        (power - 1u8) / &self.n * phi.modinv(&self.n).unwrap() % &self.n
    }

    /// `c^s mod n²`, also for negative `s`.
    pub(crate) fn power(&self, c: &BigUint, s: i64) -> BigUint {
        let power = c.modpow(&BigUint::from(s.unsigned_abs()), &self.n2);
        if s < 0 { power.modinv(&self.n2).unwrap() } else { power }
    }

    /// A signed number modulo n.
    pub(crate) fn residue(&self, m: i64) -> BigUint {
        let magnitude = BigUint::from(m.unsigned_abs());
        if m < 0 { &self.n - magnitude } else { magnitude }
    }
}

pub(crate) fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

pub(crate) fn random_below(bound: &BigUint, rng: &mut ChaCha20Rng) -> BigUint {
    let digits: Vec<u64> = (0..bound.bits() / 64 + 2).map(|_| rng.next_u64()).collect();
    big(&digits) % bound
}

/// The ciphertexts of ordinary words.
pub(crate) fn items(words: &[u64], each: usize) -> Vec<BigUint> {
    words.chunks(each).map(big).collect()
}
