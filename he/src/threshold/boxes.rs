//! The shares of a contribution's secret, sealed to openers, and the signature over all that it consists of.

use zeroize::Zeroizing;

use super::{
    identity::{Identity, MemberId, SIGNATURE_BYTES},
    one_time::OneTimeSecret,
    openers::Openers,
    prekey::{AnswerKey, KEM_BYTES, Kem, Prekey},
    sealing::{self, SEAL_BYTES},
    sharing::{MAX_OPENERS, Share, Sharing},
};
use crate::{
    Error,
    bytes::{Reader, Writer, to_bytes},
    contributors::Contributor,
    error::FrameError,
    random,
};

const PURPOSE: &str = "ciphergram 2026 contribution";
pub(super) const NOT_SIGNED: &str = "it did not sign this contribution to this round";
/// The version of key messages: in the first shares were over larger fields, in the second each combination of a proof
/// had factors of its own.
const VERSION: u8 = 3;
/// Bytes of a share that a seed names.
const SEED_BYTES: usize = 32;
/// Bytes of a box before what is sealed in it.
const BOX_BYTES: usize = 8 + KEM_BYTES + 4;

/// What a contribution has beside its ciphertext: shares of its secret for the openers, and a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMessage {
    /// The share of each opener.
    pub(super) boxes: Vec<ShareBox>,
    pub(super) signed: Signed,
}

/// What a contributor signs of its contribution beside its boxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signed {
    /// BLAKE3 of its ciphertext.
    pub(super) upload: [u8; 32],
    /// That shares are of polynomials that τ openers recover.
    proof: Vec<u8>,
    pub(super) signature: [u8; SIGNATURE_BYTES],
}

/// A share, sealed to its opener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShareBox {
    /// Which prekey it was sealed under.
    counter: u64,
    kem: Kem,
    sealed: Vec<u8>,
}

impl KeyMessage {
    /// Seals the shares of a secret, and signs them with what was uploaded. Openers whose prekeys are `over` get boxes
    /// that nobody opens.
    ///
    /// # Errors
    /// [`Error::Opener`]: the prekey of an opener is none.
    pub(super) fn seal(
        (identity, prekeys, over): (&Identity, &[Prekey], &[usize]),
        (statement, contributor): (&[u8; 32], &Contributor),
        (secret, sharing): (&OneTimeSecret, &Sharing),
        upload: [u8; 32],
    ) -> Result<Self, Error> {
        let shared = secret.share(sharing, prekeys, over);
        let boxes = prekeys.iter().enumerate().map(|(opener, prekey)| {
            let message = match shared.seeds.get(opener) {
                Some(seed) => Zeroizing::new(seed.to_vec()),
                None => sharing.pack(&shared.polynomials.share(opener)),
            };
            if over.contains(&opener) {
                let noise = shared.closed_box_noise(opener);
                return Ok(ShareBox::closed(prekey, &noise, message.len()));
            }
            let context = context(statement, contributor, opener);
            ShareBox::seal(prekey, &shared.box_randomness(opener), &context, &message)
                .map_err(|error| Error::Opener { opener, why: error.to_string() })
        });
        let boxes = boxes.collect::<Result<Vec<_>, _>>()?;
        let hashes: Vec<_> = boxes.iter().map(ShareBox::hash).collect();
        let proof = shared.polynomials.prove(&challenge(statement, contributor, &hashes));
        let mut signed = Signed { upload, proof, signature: [0; SIGNATURE_BYTES] };
        let digest = signed.digest((statement, contributor), &hashes);
        signed.signature = identity.sign(PURPOSE, &digest);
        Ok(Self { boxes, signed })
    }

    /// Returns the bytes that one has.
    pub(super) fn bytes_of(sharing: &Sharing) -> usize {
        let boxes = (0..sharing.openers()).map(|opener| {
            let share = if opener < sharing.drawn() { SEED_BYTES } else { sharing.share_bytes() };
            BOX_BYTES + share + SEAL_BYTES
        });
        2 + boxes.sum::<usize>() + Signed::bytes_of(sharing)
    }

    /// Refuses a contribution that its client did not make so for the openers of a job: all that takes no secret.
    ///
    /// # Errors
    /// The first fault.
    pub(super) fn check(
        &self,
        openers: &Openers,
        (statement, contributor): (&[u8; 32], &Contributor),
    ) -> Result<(), &'static str> {
        let member = openers.members().get(usize::from(contributor.number));
        let member = member.ok_or("the job has no such client")?;
        if self.boxes.len() != openers.openers().len() {
            return Err("its shares are not for the openers of the job");
        }
        let is_signed = self.signed.is_by(member, (statement, contributor), &self.hashes());
        is_signed.then_some(()).ok_or(NOT_SIGNED)
    }

    /// Names the boxes.
    pub(super) fn hashes(&self) -> Vec<[u8; 32]> {
        self.boxes.iter().map(ShareBox::hash).collect()
    }

    /// Returns what its contributor signs.
    pub(super) fn digest(&self, of: (&[u8; 32], &Contributor)) -> [u8; 32] {
        self.signed.digest(of, &self.hashes())
    }

    /// Returns BLAKE3 of the ciphertext that it is of.
    pub(super) fn upload(&self) -> &[u8; 32] {
        &self.signed.upload
    }

    /// Returns the length of what [`to_bytes`](Self::to_bytes) writes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let boxes = self.boxes.iter().map(|share| BOX_BYTES + share.sealed.len());
        2 + boxes.sum::<usize>() + 36 + self.signed.proof.len() + SIGNATURE_BYTES
    }

    /// Writes it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(self.bytes()));
        w.u8(VERSION);
        w.u8(self.boxes.len() as u8);
        self.boxes.iter().for_each(|share| share.write(&mut w));
        self.signed.write(&mut w);
        w.0
    }

    /// Reads one.
    ///
    /// # Errors
    /// Its form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FrameError> {
        let r = &mut Reader(bytes);
        let (version, count) = (r.u8()?, r.u8()?);
        if version != VERSION {
            return Err(FrameError::Version { found: version.into(), known: VERSION.into() });
        }
        if usize::from(count) > MAX_OPENERS {
            return Err(FrameError::Malformed { what: "more openers than there may be" });
        }
        let boxes = (0..count).map(|_| ShareBox::read(r)).collect::<Result<_, _>>()?;
        let signed = Signed::read(r)?;
        r.end()?;
        Ok(Self { boxes, signed })
    }
}

impl Signed {
    /// Returns the bytes that one has.
    pub(super) fn bytes_of(sharing: &Sharing) -> usize {
        36 + sharing.proof_bytes() + SIGNATURE_BYTES
    }

    /// Returns whether a member signed this contribution, whose boxes have these hashes.
    pub(super) fn is_by(
        &self,
        member: &MemberId,
        of: (&[u8; 32], &Contributor),
        hashes: &[[u8; 32]],
    ) -> bool {
        member.has_signed(PURPOSE, &self.digest(of, hashes), &self.signature)
    }

    /// Returns what the contributor signs.
    pub(super) fn digest(
        &self,
        (statement, contributor): (&[u8; 32], &Contributor),
        hashes: &[[u8; 32]],
    ) -> [u8; 32] {
        let mut w = Writer::default();
        w.bytes(statement);
        contributor.write(&mut w);
        w.bytes(&self.upload);
        w.prefixed(&self.proof);
        hashes.iter().for_each(|hash| w.bytes(hash));
        *blake3::hash(&w.0).as_bytes()
    }

    /// Opens and checks what a contributor sent one opener: that it signed it, and that it fits what others got.
    ///
    /// # Errors
    /// The first fault.
    pub(super) fn open(
        &self,
        (member, share, hashes): (&MemberId, &ShareBox, &[[u8; 32]]),
        of: (&[u8; 32], &Contributor),
        (key, sharing, opener): (&AnswerKey, &Sharing, usize),
    ) -> Result<Share, &'static str> {
        if hashes.len() != sharing.openers() || hashes[opener] != share.hash() {
            return Err("its box is not among those that it signed");
        }
        if !self.is_by(member, of, hashes) {
            return Err(NOT_SIGNED);
        }
        let mut share = share.open(key, of, (sharing, opener))?;
        let challenge = challenge(of.0, of.1, hashes);
        if sharing.fits(opener, &mut share, (&challenge, &self.proof)) {
            Ok(share)
        } else {
            Err("its shares do not fit together")
        }
    }

    pub(super) fn write(&self, w: &mut Writer) {
        w.bytes(&self.upload);
        w.prefixed(&self.proof);
        w.bytes(&self.signature);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (upload, proof) = (r.array()?, r.prefixed()?.to_vec());
        Ok(Self { upload, proof, signature: r.array()? })
    }
}

impl ShareBox {
    /// Returns the most bytes that one has.
    pub(super) fn bytes_of(sharing: &Sharing) -> usize {
        BOX_BYTES + sharing.share_bytes().max(SEED_BYTES) + SEAL_BYTES
    }

    fn seal(
        prekey: &Prekey,
        randomness: &[u8; 32],
        context: &[u8],
        message: &[u8],
    ) -> Result<Self, FrameError> {
        let (kem, key) = prekey.encapsulate(randomness)?;
        let sealed = sealing::seal(&key, context, message);
        Ok(Self { counter: prekey.counter(), kem, sealed })
    }

    /// Returns a box of noise, as long as one with a message of this length.
    fn closed(prekey: &Prekey, noise: &[u8; 32], length: usize) -> Self {
        let bytes = KEM_BYTES + length + SEAL_BYTES;
        let noise = to_bytes(&random::keystream(noise, bytes.div_ceil(8)));
        let mut kem = Box::new([0; KEM_BYTES]);
        kem.copy_from_slice(&noise[..KEM_BYTES]);
        Self { counter: prekey.counter(), kem, sealed: noise[KEM_BYTES..bytes].to_vec() }
    }

    /// Opens the share of an opener, by the key of the answer that is made.
    ///
    /// # Errors
    /// It is of another prekey; it does not open; it is no share.
    fn open(
        &self,
        key: &AnswerKey,
        (statement, contributor): (&[u8; 32], &Contributor),
        (sharing, opener): (&Sharing, usize),
    ) -> Result<Share, &'static str> {
        let key =
            key.decapsulate(self.counter, &self.kem).ok_or("its box is for another prekey")?;
        let context = context(statement, contributor, opener);
        let message = sealing::open(&key, &context, &self.sealed);
        let message = message.ok_or("its box is of another opener, contribution or round")?;
        if opener < sharing.drawn() {
            let seed = message[..].try_into().map_err(|_| "its box has no seed of a share")?;
            return Ok(sharing.draw(&Zeroizing::new(seed)));
        }
        sharing.unpack_share(&message).ok_or("its box has no share")
    }

    /// Names it.
    pub(super) fn hash(&self) -> [u8; 32] {
        let mut w = Writer::default();
        self.write(&mut w);
        blake3::derive_key("ciphergram 2026 box", &w.0)
    }

    pub(super) fn write(&self, w: &mut Writer) {
        w.u64(self.counter);
        w.bytes(&*self.kem);
        w.prefixed(&self.sealed);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (counter, kem) = (r.u64()?, Box::new(r.array()?));
        Ok(Self { counter, kem, sealed: r.prefixed()?.to_vec() })
    }
}

/// What a box is bound to.
fn context(statement: &[u8; 32], contributor: &Contributor, opener: usize) -> Vec<u8> {
    let mut w = Writer::default();
    w.bytes(statement);
    contributor.write(&mut w);
    w.u8(opener as u8);
    w.0
}

/// What the combinations of a proof follow from: all shares, which are sealed before.
fn challenge(statement: &[u8; 32], contributor: &Contributor, hashes: &[[u8; 32]]) -> [u8; 32] {
    let mut w = Writer::default();
    w.bytes(statement);
    contributor.write(&mut w);
    hashes.iter().for_each(|hash| w.bytes(hash));
    blake3::derive_key("ciphergram 2026 proof of shares", &w.0)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{prekey::PrekeyChain, sharing::Quorum},
        *,
    };
    use crate::ids::Seed;

    /// A contributor seals one opener a share of another polynomial, then proves and signs all as it should.
    #[test]
    fn the_opener_of_an_odd_share_names_its_contributor() {
        let (openers, odd) = (4, 2);
        let sharing = Sharing::new(Quorum::new(openers, Some(3)).unwrap(), 4, 64);
        let identity = Identity::generate().unwrap();
        let (statement, seed) = ([7; 32], Seed::draw().unwrap());
        let contributor = Contributor { number: 1, seed };
        let drawn: Vec<_> = (0..sharing.drawn()).map(|i| sharing.draw(&[i as u8; 32])).collect();
        let polynomials = [1, 2].map(|c| sharing.polynomials(&[c; 64], &[9; 32], &drawn));
        let chains: Vec<_> = (0..openers).map(|_| PrekeyChain::in_memory().unwrap()).collect();
        let boxes = chains.iter().enumerate().map(|(opener, chain)| {
            let message = match opener < drawn.len() {
                true => Zeroizing::new(vec![opener as u8; SEED_BYTES]),
                false => sharing.pack(&polynomials[usize::from(opener == odd)].share(opener)),
            };
            let context = context(&statement, &contributor, opener);
            let prekey = chain.prekey(&identity).unwrap();
            ShareBox::seal(&prekey, &[opener as u8; 32], &context, &message).unwrap()
        });
        let boxes: Vec<_> = boxes.collect();
        let hashes: Vec<_> = boxes.iter().map(ShareBox::hash).collect();
        let proof = polynomials[0].prove(&challenge(&statement, &contributor, &hashes));
        let mut signed = Signed { upload: [5; 32], proof, signature: [0; SIGNATURE_BYTES] };
        let of = (&statement, &contributor);
        signed.signature = identity.sign(PURPOSE, &signed.digest(of, &hashes));
        for (opener, chain) in chains.iter().enumerate() {
            let sent = (&identity.id(), &boxes[opener], &hashes[..]);
            let opened = signed.open(sent, of, (&chain.key(), &sharing, opener)).map(|_| ());
            let fault = (opener == odd).then_some("its shares do not fit together");
            assert_eq!(opened.err(), fault, "opener {opener}");
        }
    }
}
