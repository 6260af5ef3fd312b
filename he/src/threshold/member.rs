//! A client of a job that openers open the sums of.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::{
    boxes::KeyMessage,
    identity::Identity,
    one_time::OneTimeSecret,
    openers::{JobSecret, Openers, Prekeys},
    prekey::{self, Prekey},
    sharing::Sharing,
};
use crate::{
    Error, Job, PublicKey, Quantised, contributors::Contributor, job::Terms,
    schemes::UpdateEncryptor, tag::TagKey,
};

/// The key of a client of one job: its identity there, and what it seals to the openers under.
#[derive(Clone)]
pub struct MemberKey {
    public: PublicKey,
    identity: Arc<Identity>,
    number: u16,
    secret: JobSecret,
    openers: Arc<Openers>,
    prekeys: Prekeys,
}

impl MemberKey {
    /// Finds the client of a job that an identity is.
    ///
    /// # Errors
    /// The job has no openers; [`Error::NoMember`].
    pub fn new(public: &PublicKey, identity: Arc<Identity>, job: &Job) -> Result<Self, Error> {
        let openers = job.openers()?.clone();
        let (number, secret) = openers.client(&identity)?;
        let prekeys = Prekeys::of(&openers);
        Ok(Self { public: public.clone(), identity, number, secret, openers, prekeys })
    }

    /// Takes prekeys that openers told, each by the opener's place, if they are later than those known. What is none of
    /// theirs is left aside.
    #[must_use]
    pub fn with_told<'a>(mut self, told: impl IntoIterator<Item = (u8, &'a Prekey)>) -> Self {
        told.into_iter().for_each(|(opener, prekey)| _ = self.prekeys.learn(opener, prekey));
        self
    }

    /// Returns the public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns the client's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the openers of the job.
    #[must_use]
    pub fn openers(&self) -> &Openers {
        &self.openers
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn prekeys(&self) -> &[Prekey] {
        self.prekeys.latest()
    }

    pub(super) fn secret(&self) -> &JobSecret {
        &self.secret
    }

    /// Returns what contributions are tagged with: without pads, in whose place one-time secrets stand.
    pub(crate) fn tag_key(&self) -> TagKey {
        TagKey {
            number: self.number,
            coefficients: Zeroizing::new(blake3::derive_key(
                "ciphergram 2026 tag coefficients",
                &*self.secret,
            )),
            pads: None,
        }
    }

    /// Begins a contribution, for which `secret` was drawn. An opener whose prekey is over gets no share, as if it were
    /// silent.
    ///
    /// # Errors
    /// [`Error::Opener`]: the prekeys of more openers are over than may be silent; the update cannot be read; the
    /// engine's.
    pub(crate) fn begin(
        &self,
        terms: &Terms<'_>,
        (contributor, secret): (&Contributor, &[u8; 32]),
        update: &Quantised,
    ) -> Result<(Box<dyn UpdateEncryptor>, KeySealer), Error> {
        let over = self.openers.over(self.prekeys(), prekey::now()?)?;
        let parameters = self.public.parameters();
        let (sharing, rlwe) = self.openers.sharing(parameters, update.count())?;
        let statement = terms.openers_statement();
        let of = (&contributor.seed, &update.digest()?, secret);
        let secret = OneTimeSecret::derive(&self.identity, &statement, of, rlwe)?;
        let encryptor = secret.encryptor(&polynomials(&statement));
        let sealer = KeySealer {
            member: self.clone(),
            statement,
            contributor: *contributor,
            secret,
            sharing,
            over,
            upload: blake3::Hasher::new(),
        };
        Ok((encryptor, sealer))
    }
}

/// Returns the seed of the uniform polynomials of a statement, which all of its contributions have in common.
pub(super) fn polynomials(statement: &[u8; 32]) -> [u8; 32] {
    blake3::derive_key("ciphergram 2026 ckks-sum-threshold polynomials", statement)
}

/// Seals the shares of a contribution's secret once its ciphertext is made.
pub(crate) struct KeySealer {
    member: MemberKey,
    statement: [u8; 32],
    contributor: Contributor,
    secret: OneTimeSecret,
    sharing: Sharing,
    /// The openers whose prekeys are over.
    over: Vec<usize>,
    upload: blake3::Hasher,
}

impl KeySealer {
    /// Takes the next bytes of the ciphertext.
    pub(crate) fn update(&mut self, ciphertext: &[u8]) {
        self.upload.update(ciphertext);
    }

    /// Returns the number of bytes taken.
    pub(crate) fn hashed(&self) -> u64 {
        self.upload.count()
    }

    /// Returns the bytes of the message.
    pub(crate) fn bytes(&self) -> usize {
        KeyMessage::bytes_of(&self.sharing)
    }

    /// Seals the message.
    ///
    /// # Errors
    /// As [`KeyMessage::seal`].
    pub(crate) fn seal(&self) -> Result<KeyMessage, Error> {
        let upload = *self.upload.finalize().as_bytes();
        let of = (&self.statement, &self.contributor);
        let own = (self.member.identity(), self.member.prekeys(), &self.over[..]);
        KeyMessage::seal(own, of, (&self.secret, &self.sharing), upload)
    }
}
