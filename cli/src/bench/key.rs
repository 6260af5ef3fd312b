//! Keys to measure with.

use ciphergram_he::{
    Parameters, Scheme, SecretKey,
    paillier::{PaillierModulus, PaillierSecret},
    params::Literal,
};

use crate::failure::Failure;

/// Clients and bits of a value that gradient values a second are counted for.
const CLIENTS: u32 = 64;
const VALUE_BITS: u32 = 16;

/// The size of n that is for comparison with papers only, in bits.
pub(crate) const INSECURE_BITS: u32 = 1024;

/// A Paillier key, and the values that a plaintext of it carries.
pub(crate) struct Key {
    pub(crate) bits: u32,
    /// Gradient values of 16 bits in a plaintext, with headroom for 64 clients.
    pub(crate) values: usize,
    pair: Pair,
}

enum Pair {
    Fresh(Box<SecretKey>),
    Published(Box<PaillierSecret>),
}

impl Key {
    /// Returns a key of `bits` bits: a fresh one, or below 2048 bits one that is public.
    ///
    /// # Errors
    /// There are no keys of that size; no randomness.
    pub(crate) fn of_bits(bits: u32) -> Result<Self, Failure> {
        let scheme = Scheme::ALL.into_iter().find(|s| s.modulus_bits() == Some(bits));
        let (values, pair) = match scheme {
            Some(scheme) => {
                let key = SecretKey::generate(literal(scheme))?;
                (key.public().parameters().geometry().fields_per_slot, Pair::Fresh(Box::new(key)))
            }
            None if bits == INSECURE_BITS => {
                let wider = Parameters::new(literal(Scheme::Paillier2048));
                let wider = wider.map_err(ciphergram_he::Error::from)?;
                let fields = (bits - 1) / wider.geometry().field_bits;
                (fields as usize, Pair::Published(Box::new(published()?)))
            }
            None => return Err(Failure::Misuse(format!("no keys of {bits} bits"))),
        };
        Ok(Self { bits, values, pair })
    }

    /// Returns the secret key.
    ///
    /// # Errors
    /// None: a key of these bits is Paillier's.
    pub(crate) fn secret(&self) -> Result<&PaillierSecret, Failure> {
        match &self.pair {
            Pair::Published(secret) => Ok(secret),
            Pair::Fresh(key) => {
                let other = || Failure::Work("this key is not one of Paillier's".into());
                key.paillier().ok_or_else(other)
            }
        }
    }

    /// Returns the public modulus.
    ///
    /// # Errors
    /// None: see [`Key::secret`].
    pub(crate) fn modulus(&self) -> Result<&PaillierModulus, Failure> {
        Ok(self.secret()?.modulus())
    }
}

fn literal(scheme: Scheme) -> Literal {
    Literal { scheme, clients: CLIENTS, bits: VALUE_BITS }
}

/// The first prime that is 3 mod 4 from the integer part of `π · 2^510` on.
const FROM_PI: [u64; 8] = [
    0x4fe1_356d_6d51_c5ef,
    0x302b_0a6d_f25f_1437,
    0xef95_19b3_cd3a_431b,
    0x514a_0879_8e34_04dd,
    0x020b_bea6_3b13_9b22,
    0x2902_4e08_8a67_cc74,
    0xc4c6_628b_80dc_1cd1,
    0xc90f_daa2_2168_c234,
];

/// The same for e.
const FROM_E: [u64; 8] = [
    0xd3df_1ed5_d5fd_6597,
    0xf681_b202_aec4_617a,
    0x7d2f_e363_630c_75d8,
    0xcc93_9dce_249b_3ef9,
    0xa9e1_3641_1464_33fb,
    0xd8b9_c583_ce2d_3695,
    0xafdc_5620_273d_3cf1,
    0xadf8_5458_a2bb_4a9a,
];

/// Returns the one key of 1024 bits. Nothing here generates such keys: this one is in the source,
/// so that nobody can mistake it for one that protects something. Time does not depend on it.
fn published() -> Result<PaillierSecret, Failure> {
    let key = PaillierSecret::new(&FROM_PI, &FROM_E, INSECURE_BITS, true);
    Ok(key.map_err(ciphergram_he::Error::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_key_is_a_key() {
        let Ok(key) = Key::of_bits(INSECURE_BITS) else { panic!("no key") };
        assert_eq!((key.values, key.modulus().ok().unwrap().n().bits()), (46, 1024));
        assert!(Key::of_bits(1536).is_err());
    }
}
