//! Openers, who open the sums of a round together: shares for them, requests and answers (PROTOCOL §7.11).

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use crate::NicError;
use crate::proto::{Peer, Time};
use crate::round::message::{
    AnswerMessage, AttendMessage, MessageKind, RequestMessage, SharesMessage,
};
use crate::round::{Application, pending::AdmittedClient};

use super::{Aggregator, AggregatorEvent};

/// The span in which openers that were asked may answer once enough have: the answers of all tell false ones apart.
pub const SPARE_SPAN: Duration = Duration::from_secs(1);
/// The span in which a round that could open waits for as many openers as open its sums, once after the start: of one
/// that has not attended since, a prekey may be known that is erased, and it opens nothing that is sealed under that.
const OPENERS_SPAN: Duration = Duration::from_secs(3);
/// Processes of one node that may attend as one opener: one that ended is forgotten as others come.
const MAX_PROCESSES: usize = 4;
/// Characters of a peer's words that are told on.
const MAX_REASON: usize = 200;

/// A process that attends as an opener. Several may say that they are the same one: an answer shows which is.
pub(super) struct Attendant {
    opener: u8,
    inbox: u32,
}

/// The opening of one round's sums.
#[derive(Default)]
pub(super) struct Asking {
    /// Contributors of whom the shares are there.
    shared: BTreeSet<u16>,
    /// Contributors who are not admitted, whatever they send.
    refused: BTreeSet<u16>,
    /// To each opener, once every chunk is settled; and since when.
    requests: Option<(Vec<Bytes>, Time)>,
    /// Processes that were asked, and those of them that replied.
    asked: BTreeSet<Peer>,
    replied: BTreeSet<Peer>,
    /// Openers that answered.
    answered: BTreeSet<u8>,
    /// When as many as open the sums had.
    enough: Option<Time>,
}

impl<A: Application> Aggregator<A> {
    /// Takes the shares of a contribution to the open round.
    pub(super) fn on_shares(&mut self, now: Time, from: Peer, message: &SharesMessage) {
        let (Some(round), Some(asking)) = (&self.current, &mut self.asking) else { return };
        let Some(contributor) = round.contributor_at(from) else { return };
        let is_own = |joined: &AdmittedClient| joined.contribution == message.contribution;
        let is_of_round =
            round.number() == message.round && round.joined(contributor).is_some_and(is_own);
        let (rkey, Some(openers)) = (round.rkey(), self.application.openers()) else { return };
        if !is_of_round {
            return;
        }
        if asking.refused.contains(&contributor) {
            let reason = format!("client {contributor}: its contribution was refused before");
            return self.refuse_contribution(now, contributor, reason);
        }
        match openers.take_shares(contributor, &message.shares) {
            Ok(()) => {
                asking.shared.insert(contributor);
                self.try_admit(now, rkey, contributor);
            }
            Err(reason) => self.refuse_contribution(now, contributor, reason),
        }
    }

    /// Lets a contribution count once all of it is there, if its chunks are those that its client signed.
    pub(super) fn try_admit(&mut self, now: Time, rkey: u32, contributor: u16) {
        if !self.asking.as_ref().is_some_and(|asking| asking.shared.contains(&contributor)) {
            return;
        }
        let (Ok(region), Some(openers)) =
            (self.endpoint.sum_region(rkey), self.application.openers())
        else {
            return;
        };
        let mut upload = blake3::Hasher::new();
        if !region.see_staged(contributor, |chunks| _ = upload.update(chunks)) {
            return;
        }
        match openers.admit(contributor, upload.finalize().as_bytes()) {
            Ok(()) => {
                let closed = region.admit(contributor);
                closed.into_iter().for_each(|chunk| self.settle(rkey, chunk));
            }
            Err(reason) => self.refuse_contribution(now, contributor, reason),
        }
    }

    /// Returns whether the next round waits for openers, which are there at once as a rule.
    pub(super) fn waits_for_openers(&mut self, now: Time) -> bool {
        let Some(openers) = self.application.openers() else { return false };
        let has_enough = openers.attended() >= openers.needed();
        !has_enough && now < *self.openers_until.get_or_insert(now + OPENERS_SPAN)
    }

    /// Forgets an opener's process that left or is silent. It is asked again if it comes back.
    pub(super) fn forget_attendant(&mut self, peer: Peer) {
        self.attendants.remove(&peer);
        if let Some(asking) = &mut self.asking {
            asking.asked.remove(&peer);
            asking.replied.remove(&peer);
        }
    }

    /// Tells a participant why its contribution does not count.
    fn refuse_contribution(&mut self, now: Time, contributor: u16, reason: String) {
        if let Some(asking) = &mut self.asking {
            asking.shared.remove(&contributor);
            asking.refused.insert(contributor);
        }
        let joined = self.current.as_ref().and_then(|round| round.joined(contributor)).cloned();
        if let Some(joined) = joined {
            self.refuse(now, contributor, &joined, reason);
        }
    }

    /// Notes an opener that can be asked.
    pub(super) fn on_attend(&mut self, from: Peer, message: &AttendMessage) {
        let AttendMessage { opener, inbox, .. } = *message;
        let (Some(openers), true) =
            (self.application.openers(), self.config.nodes.contains_key(&from.node))
        else {
            return;
        };
        if let Err(reason) = openers.attend(opener, &message.hello) {
            // It says so every second.
            if self.turned_away.insert(from.node) {
                self.emit(AggregatorEvent::OpenerRefused { opener, reason });
            }
            return;
        }
        self.turned_away.remove(&from.node);
        if let Some(known) = self.attendants.get_mut(&from).filter(|known| known.opener == opener) {
            known.inbox = inbox;
            return;
        }
        let is_same =
            |(peer, other): &(&Peer, &Attendant)| peer.node == from.node && other.opener == opener;
        let same: Vec<Peer> =
            self.attendants.iter().filter(is_same).map(|(peer, _)| *peer).collect();
        if same.len() >= MAX_PROCESSES {
            same.iter().for_each(|peer| _ = self.attendants.remove(peer));
        }
        self.attendants.insert(from, Attendant { opener, inbox });
        self.emit(AggregatorEvent::OpenerAttends { opener, peer: from });
    }

    /// Takes an opener's answer to the request of the open round, or its reason to give none.
    pub(super) fn on_answer(&mut self, from: Peer, message: AnswerMessage) {
        let AnswerMessage { round, opener, answer } = message;
        let (Some(current), Some(asking)) = (&self.current, &mut self.asking) else { return };
        let Some(openers) = self.application.openers() else { return };
        // Before the requests nobody can have answered them.
        if current.number() != round || asking.requests.is_none() {
            return;
        }
        let is_asked = asking.asked.contains(&from)
            && self.attendants.get(&from).is_some_and(|attendant| attendant.opener == opener);
        let answer = match answer {
            Ok(_) if asking.answered.contains(&opener) => Ok(()),
            // Whoever sends it, and if it has left since: it is signed.
            Ok(answer) => openers.take_answer(opener, &answer).map(|()| {
                asking.answered.insert(opener);
            }),
            Err(reason) => Err(printable(&reason)),
        };
        if is_asked {
            asking.replied.insert(from);
        }
        match answer {
            Ok(()) => self.emit(AggregatorEvent::OpenerAnswered { round, opener }),
            Err(reason) if is_asked => {
                self.emit(AggregatorEvent::OpenerRefused { opener, reason });
            }
            Err(_) => {}
        }
    }

    /// Asks openers about the open round, of which every chunk is settled: those that attend, also as they come.
    pub(super) fn ask(&mut self, now: Time) {
        let (Some(round), Some(openers), Some(asking)) =
            (&self.current, self.application.openers(), &mut self.asking)
        else {
            return;
        };
        if round.summed() == 0 {
            return;
        }
        let number = round.number();
        let message = |request| RequestMessage { round: number, request }.encode().into();
        let made = || (openers.requests().into_iter().map(message).collect(), now);
        let (requests, _) = asking.requests.get_or_insert_with(made);
        for (peer, attendant) in &self.attendants {
            let request = requests.get(usize::from(attendant.opener));
            if let (Some(request), false) = (request, asking.asked.contains(peer)) {
                let kind = Some(MessageKind::Request as u32);
                let inbox = attendant.inbox;
                match self.endpoint.write(now, *peer, inbox, 0, request.clone(), kind) {
                    // There is space again soon.
                    Err(NicError::WindowFull { .. }) => {}
                    // One that is gone is heard of otherwise.
                    Ok(_) | Err(_) => _ = asking.asked.insert(*peer),
                }
            }
        }
        if asking.answered.len() >= openers.needed() {
            asking.enough.get_or_insert(now);
        }
    }

    /// Returns the answers that the open round ends with; none while they are waited for.
    pub(super) fn answers(&mut self, now: Time) -> Option<Vec<u8>> {
        let (Some(round), Some(openers), Some(asking)) =
            (&self.current, self.application.openers(), &self.asking)
        else {
            return Some(vec![]);
        };
        let Some((_, since)) = &asking.requests else { return Some(vec![]) };
        let all_replied = self.attendants.keys().all(|peer| asking.replied.contains(peer));
        let ended = match asking.enough {
            Some(enough) => all_replied || now >= enough + SPARE_SPAN,
            None => now >= *since + self.config.round_deadline,
        };
        if !ended {
            return None;
        }
        let (found, needed) = (asking.answered.len(), openers.needed());
        let (answers, round) = (openers.answers(), round.number());
        if found < needed {
            self.emit(AggregatorEvent::TooFewAnswers { round, found, needed });
        }
        Some(answers)
    }

    /// Returns when openers are no longer waited for.
    pub(super) fn asking_timeout(&self) -> Option<Time> {
        let asking = self.asking.as_ref().filter(|_| self.current.is_some())?;
        let (_, since) = asking.requests.as_ref()?;
        let enough = asking.enough.map(|enough| enough + SPARE_SPAN);
        Some(enough.unwrap_or(*since + self.config.round_deadline))
    }
}

/// Returns a peer's words as one line of a log may have them.
fn printable(words: &str) -> String {
    let seen = |c: char| if c.is_control() { ' ' } else { c };
    words.chars().take(MAX_REASON).map(seen).collect()
}
