//! `ckks-sum-public`: encryption by a public key. See the [schemes](super).

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc};

use ciphergram_accel::{Builder, Engine, Operand, Program, beats};
use zeroize::Zeroizing;

use super::{
    beats::stray_lane,
    parameters::RlweParameters,
    polynomials::{DecryptPolynomial, EncryptPolynomial, GroupEncryptor, opener},
    secret::{OF_SUMS, RlweSecret},
};
use crate::{
    Error,
    bytes::{to_bytes, to_words},
    ids::{Seed, Statement},
    random,
    schemes::{Groups, Opener, PublicEncryption, Scratch, SecretScheme, UpdateEncryptor},
};

/// The public half of a key: the seed of the uniform `a`, and `b = a·s + e`. Clones share it.
#[derive(Clone)]
pub(crate) struct EncryptionKey(Arc<PublicState>);

struct PublicState {
    parameters: Arc<RlweParameters>,
    seed: [u8; 32],
    /// `b` in beats, as masks travel.
    packed: Vec<u8>,
    /// `a` and `b` in NTT form.
    ntt: [Vec<u64>; 2],
}

/// The secret half, and the public one that encrypts.
pub(crate) struct SumKeyPair {
    seed: Zeroizing<[u8; 32]>,
    secret: RlweSecret,
    public: EncryptionKey,
}

impl SumKeyPair {
    /// Expands the key that `seed` names.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn expand(
        seed: &[u8; 32],
        parameters: &Arc<RlweParameters>,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let secret = RlweSecret::expand(seed, OF_SUMS, &parameters.ring, engine)?;
        let public = EncryptionKey::derive(seed, &secret, parameters, engine)?;
        Ok(Self { seed: Zeroizing::new(*seed), secret, public })
    }

    /// Returns the seed, for the key file.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// Returns the public half.
    pub(crate) fn public(&self) -> &EncryptionKey {
        &self.public
    }

    fn parameters(&self) -> &RlweParameters {
        self.public.parameters()
    }
}

impl EncryptionKey {
    /// Checks and expands what a key file holds.
    ///
    /// # Errors
    /// `b` has another length, a residue that is not below its prime, or more than the polynomial; or
    /// the engine's.
    pub(crate) fn new(
        parameters: &Arc<RlweParameters>,
        seed: &[u8; 32],
        packed: &[u8],
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let invalid = |why: String| Error::Format { what: "key file", why };
        let ring = &parameters.ring;
        let expected = parameters.mask_beats() * beats::BYTES;
        if packed.len() != expected {
            let found = packed.len();
            return Err(invalid(format!("its polynomial b has {found} bytes, not {expected}")));
        }
        let words = to_words(packed);
        if let Some(lane) = parameters.range.first_bad_lane(engine, &words) {
            let why = format!("residue {lane} of its polynomial b is not below its prime");
            return Err(invalid(why));
        }
        if stray_lane(&words, ring.len_words()).is_some() {
            return Err(invalid("its polynomial b goes on past its end".into()));
        }
        let mut program = Builder::new("ckks-sum-public.expand");
        let packed_b = program.beats("beats", ring, parameters.mask_beats());
        let index = program.index("index");
        let seeds = program.seeds("seed", 1);
        let a = program.uniform("â", ring, seeds, index);
        let b = program.unpack("b", packed_b);
        let b = program.ntt("b̂", b);
        program.output(a);
        program.output(b);
        let mut ntt = [(); 2].map(|()| vec![0; ring.len_words()]);
        let [a, b] = &mut ntt;
        let mut operands = [
            Operand::In(&words),
            Operand::In(&[0]),
            Operand::In(&random::seed_words(seed)),
            Operand::Out(a),
            Operand::Out(b),
        ];
        engine.run(&program.build(), &mut operands)?;
        Ok(Self(Arc::new(PublicState {
            parameters: parameters.clone(),
            seed: *seed,
            packed: packed.into(),
            ntt,
        })))
    }

    /// Returns the parameters of what is summed.
    pub(crate) fn parameters(&self) -> &RlweParameters {
        &self.0.parameters
    }

    /// Returns the seed of `a`.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        &self.0.seed
    }

    /// Returns `b` in beats.
    pub(crate) fn packed(&self) -> &[u8] {
        &self.0.packed
    }

    /// Derives the public half that belongs to a secret, the same at every call: the seed of `a` and the
    /// noise of `b` come of the secret's own seed, each by a derivation of its own.
    ///
    /// # Errors
    /// The engine's.
    fn derive(
        own: &[u8; 32],
        secret: &RlweSecret,
        parameters: &Arc<RlweParameters>,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let derive = |context| Zeroizing::new(blake3::derive_key(context, own));
        let seed = *derive("ciphergram 2026 ckks-sum-public uniform seed");
        let noise_key = Zeroizing::new(random::seed_words(&derive(
            "ciphergram 2026 ckks-sum-public key noise",
        )));
        let ring = &parameters.ring;
        let mut program = Builder::new("ckks-sum-public.key");
        let index = program.index("index");
        let seeds = program.seeds("seed", 1);
        let key = program.secret_seed("noise_key");
        let s = program.shared_secret("ŝ", ring, secret.constant());
        let a = program.uniform("â", ring, seeds, index);
        let product = program.poly_mul("âŝ", a, s);
        let product = program.intt("as", product);
        let e = program.noise("e", ring, key, index);
        let b = program.add("b", product, e);
        let packed = program.pack("beats", b, parameters.mask_beats());
        program.output(packed);
        let mut packed = vec![0; parameters.mask_beats() * beats::WORDS];
        let mut operands = [
            Operand::In(&[0]),
            Operand::In(&random::seed_words(&seed)),
            Operand::SecretIn(&*noise_key),
            Operand::Out(&mut packed),
        ];
        engine.run(&program.build(), &mut operands)?;
        Self::new(parameters, &seed, &to_bytes(&packed), engine)
    }
}

impl PublicEncryption for EncryptionKey {
    fn encryptor(&self, _: &dyn Engine) -> Result<Box<dyn UpdateEncryptor>, Error> {
        let parameters = self.0.parameters.clone();
        Ok(Box::new(GroupEncryptor { parameters, polynomials: AsymmetricEncryption::new(self)? }))
    }

    fn encrypt_program(&self, _: &dyn Engine) -> Result<Arc<Program>, Error> {
        Ok(encrypt_program(self).into())
    }
}

impl SecretScheme for SumKeyPair {
    fn encryptor(
        &self,
        engine: &dyn Engine,
        _: &Statement,
        _: &Seed,
    ) -> Result<Box<dyn UpdateEncryptor>, Error> {
        self.public.encryptor(engine)
    }

    fn encrypt_program(&self, engine: &dyn Engine) -> Result<Arc<Program>, Error> {
        self.public.encrypt_program(engine)
    }

    fn decrypt_program(&self, _: usize) -> Result<Arc<Program>, Error> {
        Ok(decrypt_program(&self.secret, self.parameters()).into())
    }

    fn opener(&self, _: &Statement, _: &BTreeSet<usize>) -> Result<Box<dyn Opener + '_>, Error> {
        let (program, parameters) = (self.decrypt_program(0)?, self.parameters());
        let mask_words = parameters.mask_beats() * beats::WORDS;
        Ok(opener(parameters, AsymmetricDecryption { program, mask_words }))
    }
}

/// The polynomials of one contribution, with keys of its own for `u`, `e₀` and `e₁`.
struct AsymmetricEncryption {
    program: Program,
    keys: [Zeroizing<[u64; 4]>; 3],
    mask_words: usize,
    value_words: usize,
}

impl AsymmetricEncryption {
    fn new(public: &EncryptionKey) -> Result<Self, Error> {
        let key = || Ok::<_, Error>(Zeroizing::new(random::seed_words(&*random::bytes::<32>()?)));
        let parameters = &public.0.parameters;
        Ok(Self {
            program: encrypt_program(public),
            keys: [key()?, key()?, key()?],
            mask_words: parameters.mask_beats() * beats::WORDS,
            value_words: parameters.value_beats() * beats::WORDS,
        })
    }
}

impl EncryptPolynomial for AsymmetricEncryption {
    /// The mask's words come before the values'.
    fn encrypt(
        &self,
        engine: &dyn Engine,
        index: u64,
        message: &[u64],
        out: &mut Vec<u64>,
    ) -> Result<(), Error> {
        out.resize(self.mask_words + self.value_words, 0);
        let (mask, values) = out.split_at_mut(self.mask_words);
        let [u, e0, e1] = &self.keys;
        let mut operands = [
            Operand::SecretIn(message),
            Operand::In(&[index]),
            Operand::SecretIn(&**u),
            Operand::SecretIn(&**e0),
            Operand::SecretIn(&**e1),
            Operand::Out(mask),
            Operand::Out(values),
        ];
        Ok(engine.run(&self.program, &mut operands)?)
    }
}

/// The program that decrypts sums, of any contributors.
struct AsymmetricDecryption {
    program: Arc<Program>,
    mask_words: usize,
}

impl DecryptPolynomial for AsymmetricDecryption {
    fn decrypt(
        &self,
        engine: &dyn Engine,
        _: u64,
        _: &Groups<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let (mask, values) = scratch.words.split_at(self.mask_words);
        let out = Operand::Out(&mut scratch.integers);
        Ok(engine.run(&self.program, &mut [Operand::In(mask), Operand::In(values), out])?)
    }
}

/// Builds the program that encrypts one polynomial: its mask and its values.
fn encrypt_program(public: &EncryptionKey) -> Program {
    let PublicState { parameters, ntt: [a, b], .. } = &*public.0;
    let ring = &parameters.ring;
    let mut program = Builder::new("ckks-sum-public.encrypt");
    let message = program.integers("message", ring.degree() * parameters.message_words());
    let index = program.index("index");
    let [u_key, e0_key, e1_key] =
        ["u_key", "e₀_key", "e₁_key"].map(|name| program.secret_seed(name));
    let a = program.public_key("â", ring, a);
    let b = program.public_key("b̂", ring, b);
    let u = program.ternary("u", ring, u_key, index);
    let u = program.ntt("û", u);
    let au = program.poly_mul("âû", a, u);
    let au = program.intt("au", au);
    let e1 = program.noise("e₁", ring, e1_key, index);
    let c1 = program.add("c₁", au, e1);
    let mask = program.pack("mask", c1, parameters.mask_beats());
    let bu = program.poly_mul("b̂û", b, u);
    let bu = program.intt("bu", bu);
    let e0 = program.noise("e₀", ring, e0_key, index);
    let noisy = program.add("bu+e₀", bu, e0);
    let m = program.lift("m", ring, message);
    let c0 = program.add("c₀", noisy, m);
    let values = program.pack("values", c0, parameters.value_beats());
    program.output(mask);
    program.output(values);
    program.build()
}

/// Builds the program that decrypts one polynomial of a sum, of any contributors.
fn decrypt_program(secret: &RlweSecret, parameters: &RlweParameters) -> Program {
    let ring = secret.ring();
    let mut b = Builder::new("ckks-sum-public.decrypt");
    let mask = b.beats("mask", ring, parameters.mask_beats());
    let values = b.beats("values", ring, parameters.value_beats());
    let s = b.shared_secret("ŝ", ring, secret.constant());
    let c1 = b.unpack("c₁", mask);
    let c1 = b.ntt("ĉ₁", c1);
    let product = b.poly_mul("ĉ₁ŝ", c1, s);
    let product = b.intt("c₁s", product);
    let c0 = b.unpack("c₀", values);
    let noisy = b.sub("m+e", c0, product);
    let integers = b.compose("integers", noisy);
    b.output(integers);
    b.build()
}
