//! Openers of a job, as the aggregator serves them: the prekeys that they told, and the key messages of the round.

use std::sync::Arc;

use ciphergram_he::{
    Contributor, Job, PublicKey,
    exchange::RoundTerms,
    threshold::{KeyMessage, KeyMessages, OpenAnswer, Openers, Prekey, Prekeys},
};

use crate::round::{self, message::MAX_ROUND_MESSAGE_BYTES};

/// The openers of a job.
pub(super) struct OpenersOfJob {
    key: PublicKey,
    needed: usize,
    prekeys: Prekeys,
    round: Option<OpenersOfRound>,
}

/// What they are asked about a round, and answer.
struct OpenersOfRound {
    participants: Vec<Contributor>,
    messages: KeyMessages,
    answers: Vec<OpenAnswer>,
}

impl OpenersOfJob {
    pub(super) fn new(key: &PublicKey, openers: &Arc<Openers>) -> Self {
        let needed = openers.quorum().open.into();
        Self { key: key.clone(), needed, prekeys: Prekeys::of(openers), round: None }
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
        self.round = Some(OpenersOfRound { participants, messages, answers: vec![] });
        Ok(())
    }

    fn round(&mut self) -> Result<&mut OpenersOfRound, String> {
        self.round.as_mut().ok_or_else(|| "no round has opened".into())
    }
}

impl round::Openers for OpenersOfJob {
    fn attend(&mut self, opener: u8, hello: &[u8]) -> Result<(), String> {
        let prekey = Prekey::from_bytes(hello).map_err(|e| e.to_string())?;
        self.prekeys.tell(opener, &prekey).map_err(|e| e.to_string())
    }

    fn shares_bytes(&self) -> usize {
        self.round.as_ref().map_or(0, |round| round.messages.each_bytes())
    }

    fn admit(&mut self, contributor: u16, shares: &[u8], upload: &[u8; 32]) -> Result<(), String> {
        let round = self.round()?;
        let own = round.participants.iter().find(|own| own.number == contributor);
        let own = *own.ok_or("it takes no part in the round")?;
        let message = KeyMessage::from_bytes(shares);
        let message = message.map_err(|e| format!("client {contributor}: its shares: {e}"))?;
        round.messages.check(&own, &message, upload).map_err(|e| e.to_string())?;
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

    fn answer(&mut self, opener: u8, answer: &[u8]) -> Result<(), String> {
        let answer = OpenAnswer::from_bytes(answer, &self.key).map_err(|e| e.to_string())?;
        if answer.opener != opener {
            return Err(format!("its answer is of opener {}", answer.opener));
        }
        let round = self.round()?;
        round.messages.check_answer(&answer).map_err(|e| e.to_string())?;
        if round.answers.iter().all(|known| known.opener != opener) {
            self.prekeys.tell(opener, answer.prekey()).map_err(|e| e.to_string())?;
            self.round()?.answers.push(answer);
        }
        Ok(())
    }

    fn answers(&self) -> Vec<u8> {
        let answers = self.round.as_ref().map_or(&[][..], |round| &round.answers);
        OpenAnswer::list_to_bytes(answers, &self.key)
    }
}
