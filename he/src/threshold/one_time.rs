//! The one-time secret of a contribution.

use std::sync::Arc;

use ciphergram_accel::random::centred_binomial;
use zeroize::Zeroizing;

use super::{
    identity::Identity,
    prekey::Prekey,
    sharing::{SecretPolynomials, Sharing},
};
use crate::{
    Error,
    ids::Seed,
    random,
    schemes::{
        UpdateEncryptor,
        rlwe::{RlweParameters, RlweSecret, host, symmetric},
    },
};

/// The secret that one contribution is encrypted under: its coefficients are centred binomials, as its noise is.
pub(crate) struct OneTimeSecret {
    /// Whatever the contribution needs grows from it: who goes on after a restart sends the same bytes.
    seed: Zeroizing<[u8; 32]>,
    coefficients: Zeroizing<Vec<i8>>,
    secret: RlweSecret,
    parameters: Arc<RlweParameters>,
}

impl OneTimeSecret {
    /// Derives the secret of the contribution that a seed names under a statement, of the integers with this digest,
    /// and of what was drawn for it: two messages never have one secret, whichever copy of the identity seals them, and
    /// who steals that later cannot test a guess of the integers.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn derive(
        identity: &Identity,
        statement: &[u8; 32],
        (name, update, drawn): (&Seed, &[u8; 32], &[u8; 32]),
        parameters: &Arc<RlweParameters>,
    ) -> Result<Self, Error> {
        let key = identity.derive("ciphergram 2026 one-time secrets");
        let material = Zeroizing::new([&statement[..], name.bytes(), update, drawn].concat());
        let seed = Zeroizing::new(*blake3::keyed_hash(&key, &material).as_bytes());
        let ring = &parameters.ring;
        let words = random::keystream(&derive(&seed, "secret", 0), ring.degree());
        let coefficients = words.iter().map(|&word| centred_binomial(word));
        let coefficients: Zeroizing<Vec<i8>> = Zeroizing::new(coefficients.collect());
        let secret = RlweSecret::of_small(&coefficients, ring, host())?;
        Ok(Self { seed, coefficients, secret, parameters: parameters.clone() })
    }

    /// Makes the encryptor of the contribution, under the polynomials that all of a statement have in common.
    pub(crate) fn encryptor(&self, polynomials: &[u8; 32]) -> Box<dyn UpdateEncryptor> {
        let noise = Zeroizing::new(random::seed_words(&derive(
            &self.seed,
            "noise of tiles under ChaCha8",
            0,
        )));
        symmetric::encryptor(&self.parameters, &self.secret, random::seed_words(polynomials), noise)
    }

    /// Shares it among openers with these prekeys, but for those whose prekeys are `over`. Whatever is drawn for that
    /// follows from all of these: under other prekeys, or once one is over, it is shared anew, since one set of masks
    /// must not prove two sharings.
    pub(super) fn share(
        &self,
        sharing: &Sharing,
        prekeys: &[Prekey],
        over: &[usize],
    ) -> SharedSecret {
        let mut openers: Vec<u8> = prekeys.iter().flat_map(Prekey::digest).collect();
        openers.extend(over.iter().map(|&opener| opener as u8));
        let key = Zeroizing::new(*blake3::keyed_hash(&self.seed, &openers).as_bytes());
        let seeds: Vec<_> =
            (0..sharing.drawn()).map(|opener| derive(&key, "share", opener)).collect();
        let drawn: Vec<_> = seeds.iter().map(|seed| sharing.draw(seed)).collect();
        let masks = derive(&key, "masks", 0);
        let polynomials = sharing.polynomials(&self.coefficients, &masks, &drawn);
        SharedSecret { key, seeds, polynomials }
    }
}

/// A secret, shared among openers.
pub(super) struct SharedSecret {
    key: Zeroizing<[u8; 32]>,
    /// Of the shares of the first openers.
    pub(super) seeds: Vec<Zeroizing<[u8; 32]>>,
    /// That all shares are of.
    pub(super) polynomials: SecretPolynomials,
}

impl SharedSecret {
    /// Returns what the key of an opener's box is encapsulated with.
    pub(super) fn box_randomness(&self, opener: usize) -> Zeroizing<[u8; 32]> {
        derive(&self.key, "box", opener)
    }

    /// Returns what the noise of a closed box grows from, which is public.
    pub(super) fn closed_box_noise(&self, opener: usize) -> Zeroizing<[u8; 32]> {
        derive(&self.key, "closed box", opener)
    }
}

fn derive(seed: &[u8; 32], purpose: &str, index: usize) -> Zeroizing<[u8; 32]> {
    let purpose = format!("{purpose} {index}");
    Zeroizing::new(*blake3::keyed_hash(seed, purpose.as_bytes()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Parameters,
        params::{Literal, Scheme},
    };

    #[test]
    fn secrets_follow_from_what_was_drawn_as_well() {
        let literal = Literal { scheme: Scheme::CkksSumThreshold, clients: 4, bits: 16 };
        let parameters = Parameters::new(literal).unwrap();
        let rlwe = parameters.of_values(1).rlwe().unwrap();
        let (identity, name) = (Identity::generate().unwrap(), Seed::draw().unwrap());
        let of = |update: [u8; 32], drawn: [u8; 32]| {
            let of = (&name, &update, &drawn);
            OneTimeSecret::derive(&identity, &[7; 32], of, rlwe).unwrap().coefficients
        };
        let secret = of([3; 32], [5; 32]);
        assert_eq!(secret, of([3; 32], [5; 32]), "who goes on after a restart has the same");
        assert_ne!(secret, of([3; 32], [6; 32]));
        assert_ne!(secret, of([4; 32], [5; 32]));
    }
}
