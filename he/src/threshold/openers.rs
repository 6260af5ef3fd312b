//! The openers of a job, and its members.

use std::{path::Path, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use zeroize::Zeroizing;

use super::{
    identity::{Identity, MemberId, seal_to},
    prekey::{Prekey, now},
    sharing::{Quorum, Sharing},
};
use crate::{
    Error, Parameters,
    bytes::{Reader, Writer},
    error::FrameError,
    files::read_text,
    random,
    schemes::rlwe::RlweParameters,
    versions,
};

const KIND: &str = "member";
const VERSION: u32 = 1;

/// An opener of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenerId {
    /// Who it is.
    pub id: MemberId,
    /// The prekey of its first answer.
    pub prekey: Prekey,
}

impl OpenerId {
    /// Returns the text of a member's file, for whoever makes the job.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut w = Writer::default();
        self.write(&mut w);
        versions::first_line(KIND, VERSION) + &BASE64.encode(w.0) + "\n"
    }

    /// Reads that.
    ///
    /// # Errors
    /// It is no member's file; its prekey is not its own.
    pub fn of_text(text: &str) -> Result<Self, Error> {
        versions::check_lines(text, KIND, VERSION)?;
        let invalid = |why: &str| Error::Format { what: "member's file", why: why.into() };
        let line = text.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
        let bytes = BASE64.decode(line.trim()).map_err(|_| invalid("its keys are not base64"))?;
        let mut r = Reader(&bytes);
        let read = Self::read(&mut r)?;
        r.end()?;
        read.prekey.check(&read.id, 0).map_err(invalid)?;
        Ok(read)
    }

    /// Reads the file of a member.
    ///
    /// # Errors
    /// As [`of_text`](Self::of_text), with its path.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let read = || Self::of_text(&read_text("member's file", path)?);
        read().map_err(|e| e.within(path.display()))
    }

    fn write(&self, w: &mut Writer) {
        w.bytes(&self.id.to_bytes());
        self.prekey.write(w);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { id: MemberId::read(r)?, prekey: Prekey::read(r)? })
    }
}

/// Who opens the sums of a job, and who contributes to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Openers {
    quorum: Quorum,
    openers: Vec<OpenerId>,
    /// Of each client, by its number.
    members: Vec<MemberId>,
    /// The public half of the key that the job's secret is sealed under.
    sealer: [u8; 32],
    /// The job's secret, sealed to each member and then to each opener.
    sealed: Vec<Vec<u8>>,
}

/// A secret that the members of a job and its openers have in common: whoever adds contributions lacks it, and so what
/// tags are made with and answers sealed under. It opens no contribution.
pub(crate) type JobSecret = Zeroizing<[u8; 32]>;

impl Openers {
    /// Settles openers and members, and draws the job's secret.
    ///
    /// # Errors
    /// [`Error::Limits`]: not as many openers as the quorum has, or one twice; no randomness.
    pub fn new(
        quorum: Quorum,
        openers: Vec<OpenerId>,
        members: Vec<MemberId>,
    ) -> Result<Self, Error> {
        let secret = random::bytes()?;
        let all = members.iter().chain(openers.iter().map(|opener| &opener.id));
        let (sealer, sealed) = seal_to(all, &secret)?;
        let openers = Self { quorum, openers, members, sealer, sealed };
        openers.check()?;
        Ok(openers)
    }

    fn check(&self) -> Result<(), Error> {
        let invalid = |why: &str| Err(Error::Limits { why: why.into() });
        let Self { quorum, openers, members, sealed, .. } = self;
        if openers.len() != usize::from(quorum.openers) {
            return invalid("not as many openers as the quorum is of");
        }
        let twice = |ids: Vec<&MemberId>| {
            (1..ids.len()).any(|i| ids[..i].iter().any(|id| id.shares_a_key(ids[i])))
        };
        if twice(openers.iter().map(|opener| &opener.id).collect()) {
            return invalid("an opener is there twice");
        }
        if twice(members.iter().collect()) {
            return invalid("a member is there twice");
        }
        if sealed.len() != members.len() + openers.len() {
            return invalid("not as many sealed secrets as members and openers");
        }
        Ok(())
    }

    /// Returns how many there are, and how many open.
    #[must_use]
    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// Returns the openers.
    #[must_use]
    pub fn openers(&self) -> &[OpenerId] {
        &self.openers
    }

    /// Returns the members, by their numbers as clients.
    #[must_use]
    pub fn members(&self) -> &[MemberId] {
        &self.members
    }

    /// Returns how secrets over the ring of updates of `values` values are shared, and that ring.
    ///
    /// # Errors
    /// [`Error::NoOpeners`]: parameters of another scheme.
    pub(super) fn sharing<'a>(
        &self,
        parameters: &'a Parameters,
        values: usize,
    ) -> Result<(Sharing, &'a Arc<RlweParameters>), Error> {
        let rlwe = parameters.of_values(values).rlwe().ok_or(Error::NoOpeners)?;
        let clients = self.members.len() as u32;
        Ok((Sharing::new(self.quorum, clients, rlwe.ring.degree()), rlwe))
    }

    /// Refuses a prekey that the opener at a place did not sign, or that is over.
    ///
    /// # Errors
    /// [`Error::Opener`]; the clock stands before 1970.
    pub(crate) fn check_prekey(&self, opener: u8, prekey: &Prekey) -> Result<(), Error> {
        let opener = usize::from(opener);
        let known = self.openers.get(opener).ok_or("the job has no such opener");
        let now = now()?;
        let checked = known.and_then(|known| prekey.check(&known.id, now));
        checked.map_err(|why| Error::Opener { opener, why: why.into() })
    }

    /// Returns the openers whose prekeys nobody uses from `now` on.
    ///
    /// # Errors
    /// [`Error::Opener`]: they are more than may be silent.
    pub(super) fn over(&self, prekeys: &[Prekey], now: u64) -> Result<Vec<usize>, Error> {
        let known = self.openers.iter().zip(prekeys).enumerate();
        let over: Vec<_> = known
            .filter_map(|(opener, (known, prekey))| {
                Some((opener, prekey.check(&known.id, now).err()?))
            })
            .collect();
        match over.get(usize::from(self.quorum.silent())) {
            Some(&(opener, why)) => Err(Error::Opener { opener, why: why.into() }),
            None => Ok(over.into_iter().map(|(opener, _)| opener).collect()),
        }
    }

    /// Finds the client that an identity is.
    ///
    /// # Errors
    /// [`Error::NoMember`].
    pub(super) fn client(&self, identity: &Identity) -> Result<(u16, JobSecret), Error> {
        let id = identity.id();
        let number = self.members.iter().position(|member| *member == id);
        let number = number.ok_or(Error::NoMember { role: "client" })?;
        Ok((number as u16, identity.open(&self.sealer, &self.sealed[number])?))
    }

    /// Finds the opener that an identity is.
    ///
    /// # Errors
    /// [`Error::NoMember`].
    pub(super) fn opener(&self, identity: &Identity) -> Result<(usize, JobSecret), Error> {
        let id = identity.id();
        let place = self.openers.iter().position(|opener| opener.id == id);
        let place = place.ok_or(Error::NoMember { role: "opener" })?;
        let sealed = &self.sealed[self.members.len() + place];
        Ok((place, identity.open(&self.sealer, sealed)?))
    }

    /// Writes all of it, for the job's name and its file.
    pub(crate) fn write(&self, w: &mut Writer) {
        let Quorum { open, faulty, .. } = self.quorum;
        w.u8(open);
        w.u8(faulty);
        w.u16(self.openers.len() as u16);
        self.openers.iter().for_each(|opener| opener.write(w));
        w.u16(self.members.len() as u16);
        self.members.iter().for_each(|member| w.bytes(&member.to_bytes()));
        w.bytes(&self.sealer);
        self.sealed.iter().for_each(|sealed| w.prefixed(sealed));
    }

    /// Reads what [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// Its form; a quorum that admits two sums of a round; as [`new`](Self::new).
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Error> {
        let r = &mut Reader(bytes);
        let (open, faulty) = (r.u8()?, r.u8()?);
        let count = r.u16()?;
        let openers = (0..count).map(|_| OpenerId::read(r)).collect::<Result<Vec<_>, _>>()?;
        let quorum = Quorum::new(openers.len(), Some(open.into()))?;
        if quorum.faulty != faulty {
            return Err(FrameError::Malformed {
                what: "a quorum with another number of faulty ones",
            }
            .into());
        }
        let count = r.u16()?;
        let members = (0..count).map(|_| MemberId::read(r)).collect::<Result<Vec<_>, _>>()?;
        let sealer = r.array()?;
        let sealed = (0..members.len() + openers.len()).map(|_| Ok(r.prefixed()?.to_vec()));
        let sealed = sealed.collect::<Result<_, FrameError>>()?;
        r.end()?;
        let read = Self { quorum, openers, members, sealer, sealed };
        read.check()?;
        Ok(read)
    }
}

/// The latest prekey known of each opener of a job.
#[derive(Clone)]
pub struct Prekeys {
    openers: Arc<Openers>,
    latest: Vec<Prekey>,
}

impl Prekeys {
    /// Begins with those of the job.
    #[must_use]
    pub fn of(openers: &Arc<Openers>) -> Self {
        let latest = openers.openers.iter().map(|opener| opener.prekey.clone()).collect();
        Self { openers: openers.clone(), latest }
    }

    /// Takes a prekey that an opener told, unless one that is later is known.
    ///
    /// # Errors
    /// [`Error::Opener`]: the job has no such opener; it did not sign it; it is over.
    pub fn learn(&mut self, opener: u8, prekey: &Prekey) -> Result<(), Error> {
        self.openers.check_prekey(opener, prekey)?;
        if let Some(known) = self.latest.get_mut(usize::from(opener))
            && known.is_before(prekey)
        {
            *known = prekey.clone();
        }
        Ok(())
    }

    /// Returns them, by the openers' places.
    #[must_use]
    pub fn latest(&self) -> &[Prekey] {
        &self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threshold::{
        boxes::{KeyMessage, ShareBox},
        one_time::OneTimeSecret,
        prekey::PrekeyChain,
    };
    use crate::{
        Contributor, Seed,
        params::{Literal, Scheme},
    };

    /// Of four openers, three of whom open a sum, one may lack a prekey: its box opens for nobody, and the others' do.
    #[test]
    fn openers_whose_prekeys_are_over_are_silent() {
        let identities: Vec<_> = (0..4).map(|_| Identity::generate().unwrap()).collect();
        let chains: Vec<_> = (0..4).map(|_| PrekeyChain::in_memory().unwrap()).collect();
        let prekey = |opener: usize, expires| chains[opener].until(&identities[opener], expires);
        let ids = identities.iter().enumerate();
        let ids = ids.map(|(i, own)| OpenerId { id: own.id(), prekey: prekey(i, 10) });
        let members = identities.iter().map(Identity::id).collect();
        let quorum = Quorum::new(4, Some(3)).unwrap();
        let openers = Openers::new(quorum, ids.collect(), members).unwrap();
        let ending = |ends: [u64; 4]| [0, 1, 2, 3].map(|opener| prekey(opener, ends[opener]));
        assert_eq!(openers.over(&ending([11, 11, 11, 11]), 10), Ok(vec![]));
        assert_eq!(openers.over(&ending([11, 11, 10, 11]), 10), Ok(vec![2]));
        let two = openers.over(&ending([11, 9, 10, 11]), 10);
        let why = "its prekey has expired".into();
        assert_eq!(two, Err(Error::Opener { opener: 2, why }));

        let literal = Literal { scheme: Scheme::CkksSumThreshold, clients: 4, bits: 16 };
        let parameters = Parameters::new(literal).unwrap();
        let (sharing, rlwe) = openers.sharing(&parameters, 0).unwrap();
        let (statement, prekeys) = ([7; 32], ending([11, 11, 10, 11]));
        let contributor = Contributor { number: 1, seed: Seed::draw().unwrap() };
        let of = (&contributor.seed, &[3; 32], &[5; 32]);
        let secret = OneTimeSecret::derive(&identities[1], &statement, of, rlwe).unwrap();
        let of = (&statement, &contributor);
        let seal = |over: &[usize]| {
            KeyMessage::seal((&identities[1], &prekeys, over), of, (&secret, &sharing), [9; 32])
        };
        let (message, all) = (seal(&[2]).unwrap(), seal(&[]).unwrap());
        assert_eq!(message.bytes(), all.bytes());
        // No two messages have masks or keys of boxes in common.
        assert!((0..4).all(|opener| message.boxes[opener] != all.boxes[opener]));
        assert_eq!(message, seal(&[2]).unwrap(), "a restart sends the same");
        assert_eq!(message.check(&openers, of), Ok(()));
        let hashes: Vec<_> = message.boxes.iter().map(ShareBox::hash).collect();
        for (opener, chain) in chains.iter().enumerate() {
            let own = (&identities[1].id(), &message.boxes[opener], &hashes[..]);
            let opened = message.signed.open(own, of, (&chain.key(), &sharing, opener));
            assert_eq!(opened.is_ok(), opener != 2, "opener {opener}");
        }
    }
}
