//! `ckks-sum-public`: encryption by a public key. See the [scheme](super).

use std::sync::Arc;

use ciphergram_accel::{Builder, Engine, Operand, Program, Ring, beats};
use zeroize::Zeroizing;

use super::{LatticeSecret, value_beats};
use crate::{
    Error, Parameters,
    bytes::{to_bytes, to_words},
    random,
};

/// The public half of a `ckks-sum-public` key: the seed of the uniform `a`, and `b = a·s + e`.
#[derive(Clone)]
pub struct LatticePublic {
    seed: [u8; 32],
    /// `b` in beats, as masks travel.
    packed: Arc<[u8]>,
    ring: Arc<Ring>,
    /// `a` and `b` in NTT form.
    ntt: Arc<[Vec<u64>; 2]>,
}

/// Beats of the chunks of one mask.
pub(crate) fn mask_beats(parameters: &Parameters) -> usize {
    let g = parameters.geometry();
    g.mask_chunks * g.chunk_bytes() / beats::BYTES
}

/// Whether the lanes of a mask that are past the end of its polynomial are zero.
pub(crate) fn ends_in_zeros(mask: &[u64], ring: &Ring) -> bool {
    let lanes = mask.len() / beats::WORDS * beats::LANES;
    (ring.len_words()..lanes).all(|lane| {
        let beat = &mask[lane / beats::LANES * beats::WORDS..][..beats::WORDS];
        beats::lane(beat, lane % beats::LANES) == 0
    })
}

impl LatticePublic {
    /// Checks and expands what a key file holds.
    ///
    /// # Errors
    /// `b` has another length, a residue that is not below its prime, or more than the polynomial; or
    /// the engine's.
    pub(crate) fn new(
        parameters: &Parameters,
        ring: &Arc<Ring>,
        seed: &[u8; 32],
        packed: &[u8],
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let invalid = |why: String| Error::Json { what: "key file", why };
        let expected = mask_beats(parameters) * beats::BYTES;
        if packed.len() != expected {
            let found = packed.len();
            return Err(invalid(format!("its polynomial b has {found} bytes, not {expected}")));
        }
        let words = to_words(packed);
        if let Some(lane) = engine.first_bad_lane(&words, ring) {
            let why = format!("residue {lane} of its polynomial b is not below its prime");
            return Err(invalid(why));
        }
        if !ends_in_zeros(&words, ring) {
            return Err(invalid("its polynomial b goes on past its end".into()));
        }
        let mut program = Builder::new("ckks-sum-public.expand");
        let packed_b = program.beats("beats", ring, mask_beats(parameters));
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
        Ok(Self { seed: *seed, packed: packed.into(), ring: ring.clone(), ntt: Arc::new(ntt) })
    }

    /// The seed of `a`.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// `b` in beats.
    pub(crate) fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// The program that encrypts one polynomial: its mask and its values.
    #[must_use]
    pub fn encrypt_program(&self, parameters: &Parameters) -> Program {
        let ring = &self.ring;
        let [a, b] = &*self.ntt;
        let mut program = Builder::new("ckks-sum-public.encrypt");
        let message = program.integers("message", ring.len_words());
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
        let mask = program.pack("mask", c1, mask_beats(parameters));
        let bu = program.poly_mul("b̂û", b, u);
        let bu = program.intt("bu", bu);
        let e0 = program.noise("e₀", ring, e0_key, index);
        let noisy = program.add("bu+e₀", bu, e0);
        let m = program.lift("m", ring, message);
        let c0 = program.add("c₀", noisy, m);
        let values = program.pack("values", c0, value_beats(parameters));
        program.output(mask);
        program.output(values);
        program.build()
    }
}

impl LatticeSecret {
    /// The public half that belongs to this secret, the same at every call: the seed of `a` and the
    /// noise of `b` come of the secret's own seed, each by a derivation of its own.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn publish(
        &self,
        parameters: &Parameters,
        engine: &dyn Engine,
    ) -> Result<LatticePublic, Error> {
        let derive = |context| Zeroizing::new(blake3::derive_key(context, &*self.seed));
        let seed = *derive("ciphergram 2026 ckks-sum-public uniform seed");
        let noise_key = Zeroizing::new(random::seed_words(&derive(
            "ciphergram 2026 ckks-sum-public key noise",
        )));
        let ring = self.ring();
        let mut program = Builder::new("ckks-sum-public.key");
        let index = program.index("index");
        let seeds = program.seeds("seed", 1);
        let key = program.secret_seed("noise_key");
        let s = program.secret_key("ŝ", ring, self.ntt.words());
        let a = program.uniform("â", ring, seeds, index);
        let product = program.poly_mul("âŝ", a, s);
        let product = program.intt("as", product);
        let e = program.noise("e", ring, key, index);
        let b = program.add("b", product, e);
        let packed = program.pack("beats", b, mask_beats(parameters));
        program.output(packed);
        let mut packed = vec![0; mask_beats(parameters) * beats::WORDS];
        let mut operands = [
            Operand::In(&[0]),
            Operand::In(&random::seed_words(&seed)),
            Operand::SecretIn(&*noise_key),
            Operand::Out(&mut packed),
        ];
        engine.run(&program.build(), &mut operands)?;
        LatticePublic::new(parameters, ring, &seed, &to_bytes(&packed), engine)
    }

    /// The program that decrypts one polynomial of a sum of whatever contributors under
    /// `ckks-sum-public`.
    #[must_use]
    pub fn decrypt_public_program(&self, parameters: &Parameters) -> Program {
        let ring = self.ring();
        let mut b = Builder::new("ckks-sum-public.decrypt");
        let mask = b.beats("mask", ring, mask_beats(parameters));
        let values = b.beats("values", ring, value_beats(parameters));
        let s = b.secret_key("ŝ", ring, self.ntt.words());
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
}

/// Encrypts the polynomials of one contribution, with keys of its own for `u`, `e₀` and `e₁`.
pub(crate) struct Encryptor {
    program: Program,
    keys: [Zeroizing<[u64; 4]>; 3],
    mask_words: usize,
    value_words: usize,
}

impl Encryptor {
    /// An encryptor of one contribution with fresh randomness.
    ///
    /// # Errors
    /// No randomness.
    pub(crate) fn new(public: &LatticePublic, parameters: &Parameters) -> Result<Self, Error> {
        let key = || Ok::<_, Error>(Zeroizing::new(random::seed_words(&*random::bytes::<32>()?)));
        Ok(Self {
            program: public.encrypt_program(parameters),
            keys: [key()?, key()?, key()?],
            mask_words: mask_beats(parameters) * beats::WORDS,
            value_words: value_beats(parameters) * beats::WORDS,
        })
    }

    /// Encrypts polynomials `first ..`: of each its mask, then its values.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn encrypt(
        &self,
        engine: &dyn Engine,
        first: u64,
        message: &[u64],
        count: usize,
    ) -> Result<Vec<u64>, Error> {
        let indices: Vec<u64> = (first..).take(count).collect();
        let mut masks = vec![0; count * self.mask_words];
        let mut values = vec![0; count * self.value_words];
        let [u, e0, e1] = &self.keys;
        let mut operands = [
            Operand::SecretIn(message),
            Operand::In(&indices),
            Operand::SecretIn(&**u),
            Operand::SecretIn(&**e0),
            Operand::SecretIn(&**e1),
            Operand::Out(&mut masks),
            Operand::Out(&mut values),
        ];
        engine.run(&self.program, &mut operands)?;
        let mut out = Vec::with_capacity(masks.len() + values.len());
        for (mask, values) in masks.chunks(self.mask_words).zip(values.chunks(self.value_words)) {
            out.extend_from_slice(mask);
            out.extend_from_slice(values);
        }
        Ok(out)
    }
}
