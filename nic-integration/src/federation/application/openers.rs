//! Openers of a job, as the aggregator serves them: the prekeys that they told, and the key messages of the round.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ciphergram_he::{
    Contributor, Job, PublicKey,
    exchange::RoundTerms,
    threshold::{KeyMessage, KeyMessages, OpenAnswer, Openers, Prekey, Prekeys},
};

use crate::round::{OpenerApplication, message::MAX_ROUND_MESSAGE_BYTES};

/// The openers of a job.
pub(super) struct JobOpeners {
    key: PublicKey,
    needed: usize,
    prekeys: Prekeys,
    /// Those that attended since the start.
    attended: BTreeSet<u8>,
    round: Option<RoundOpeners>,
}

/// What they are asked about a round, and answer.
struct RoundOpeners {
    participants: Vec<Contributor>,
    messages: KeyMessages,
    /// Of contributions that are not whole yet.
    waiting: BTreeMap<u16, KeyMessage>,
    answers: Vec<OpenAnswer>,
}

impl JobOpeners {
    pub(super) fn new(key: &PublicKey, openers: &Arc<Openers>) -> Self {
        let needed = openers.quorum().open.into();
        let (key, prekeys) = (key.clone(), Prekeys::of(openers));
        Self { key, needed, prekeys, attended: BTreeSet::new(), round: None }
    }

    /// Begins a round: its terms name the latest prekeys.
    pub(super) fn begin(&mut self, job: &Job, terms: &mut RoundTerms) -> Result<(), String> {
        terms.prekeys = self.prekeys.latest().to_vec();
        let messages = KeyMessages::new(&self.key, job, terms.round, &terms.agreement);
        let (messages, participants) =
            (messages.map_err(|e| e.to_string())?, terms.participants.clone());
        let (clients, limit) = (participants.len(), MAX_ROUND_MESSAGE_BYTES as usize / 2);
        if clients.saturating_mul(messages.requested_bytes()) > limit {
            return Err(format!("shares of {clients} clients are more than one request carries"));
        }
        if terms.prekeys.len().saturating_mul(terms.to_bytes(&self.key).len()) > limit {
            return Err("answers about so many tensors are more than one message carries".into());
        }
        self.round = Some(RoundOpeners {
            participants,
            messages,
            waiting: BTreeMap::new(),
            answers: vec![],
        });
        Ok(())
    }

    fn round(&mut self) -> Result<&mut RoundOpeners, String> {
        self.round.as_mut().ok_or_else(|| "no round has opened".into())
    }
}

impl RoundOpeners {
    fn contributor(&self, number: u16) -> Result<Contributor, String> {
        let own = self.participants.iter().find(|own| own.number == number);
        own.copied().ok_or_else(|| format!("client {number} takes no part in the round"))
    }
}

impl OpenerApplication for JobOpeners {
    fn attend(&mut self, opener: u8, hello: &[u8]) -> Result<(), String> {
        let prekey = Prekey::from_bytes(hello).map_err(|e| e.to_string())?;
        self.prekeys.learn(opener, &prekey).map_err(|e| e.to_string())?;
        self.attended.insert(opener);
        Ok(())
    }

    fn take_shares(&mut self, contributor: u16, shares: &[u8]) -> Result<(), String> {
        let round = self.round()?;
        let own = round.contributor(contributor)?;
        let (found, expected) = (shares.len(), round.messages.each_bytes());
        if found != expected {
            return Err(format!("client {contributor}: shares of {found} bytes, not {expected}"));
        }
        let message = KeyMessage::from_bytes(shares);
        let message = message.map_err(|e| format!("client {contributor}: its shares: {e}"))?;
        round.messages.check(&own, &message).map_err(|e| e.to_string())?;
        round.waiting.insert(contributor, message);
        Ok(())
    }

    fn admit(&mut self, contributor: u16, upload: &[u8; 32]) -> Result<(), String> {
        let round = self.round()?;
        let own = round.contributor(contributor)?;
        let message = round.waiting.remove(&contributor).ok_or("its shares are not there")?;
        KeyMessages::check_upload(&own, &message, upload).map_err(|e| e.to_string())?;
        round.messages.take(own, message);
        Ok(())
    }

    fn requests(&self) -> Vec<Vec<u8>> {
        let Some(round) = &self.round else { return vec![] };
        round.messages.requests().iter().map(|request| request.to_bytes(&self.key)).collect()
    }

    fn needed(&self) -> usize {
        self.needed
    }

    fn attended(&self) -> usize {
        self.attended.len()
    }

    fn take_answer(&mut self, opener: u8, answer: &[u8]) -> Result<(), String> {
        let answer = OpenAnswer::from_bytes(answer, &self.key).map_err(|e| e.to_string())?;
        if answer.opener != opener {
            return Err(format!("its answer is of opener {}", answer.opener));
        }
        let round = self.round()?;
        round.messages.check_answer(&answer).map_err(|e| e.to_string())?;
        let prekey = answer.prekey().clone();
        round.answers.push(answer);
        // It opens the sum all the same.
        let _ = self.prekeys.learn(opener, &prekey);
        Ok(())
    }

    fn answers(&self) -> Vec<u8> {
        let answers = self.round.as_ref().map_or(&[][..], |round| &round.answers);
        OpenAnswer::list_to_bytes(answers, &self.key)
    }
}
