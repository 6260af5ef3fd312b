//! Openers, who open the sums of a round together: shares for them, requests and answers (PROTOCOL §7.11).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::NicError;
use crate::proto::{Peer, Time};
use crate::round::message::{AnswerMessage, AttendMessage, MessageKind, SharesMessage};
use crate::round::{Application, pending::AdmittedClient};

use super::{Aggregator, AggregatorEvent};

/// The span in which openers that were asked may answer once enough have: the answers of all tell false ones apart.
pub const SPARE_SPAN: Duration = Duration::from_secs(1);

/// An opener that can be asked. Several may say that they are the same one: an answer shows which is.
pub(super) struct Attendant {
    opener: u8,
    inbox: u32,
    /// The rounds that it was asked about and that it replied to, last.
    asked: Option<u32>,
    replied: Option<u32>,
}

/// The opening of one round's sums.
#[derive(Default)]
pub(super) struct Asking {
    /// Shares that wait for the rest of their contribution.
    shares: BTreeMap<u16, Vec<u8>>,
    /// To each opener, once every chunk is settled; and since when.
    requests: Option<(Vec<Bytes>, Time)>,
    /// Openers that answered.
    answered: BTreeSet<u8>,
    /// When as many as open the sums had.
    enough: Option<Time>,
}

impl<A: Application> Aggregator<A> {
    /// Takes the shares of a contribution to the open round.
    pub(super) fn on_shares(&mut self, now: Time, from: Peer, message: SharesMessage) {
        let Some(round) = self.current.as_ref().filter(|round| round.number() == message.round)
        else {
            return;
        };
        let Some(contributor) = round.contributor_at(from) else { return };
        let is_ours = |joined: &AdmittedClient| joined.contribution == message.contribution;
        let rkey = round.rkey();
        if !round.joined(contributor).is_some_and(is_ours) {
            return;
        }
        let expected = self.application.openers().map_or(0, |openers| openers.shares_bytes());
        if message.shares.len() != expected {
            let found = message.shares.len();
            let reason = format!("client {contributor}: shares of {found} bytes, not {expected}");
            return self.refuse_contribution(now, contributor, reason);
        }
        if let Some(asking) = &mut self.asking {
            asking.shares.insert(contributor, message.shares);
            self.try_admit(now, rkey, contributor);
        }
    }

    /// Lets a contribution count once all of it is there, if its shares are as they should be.
    pub(super) fn try_admit(&mut self, now: Time, rkey: u32, contributor: u16) {
        let Some(shares) = self.asking.as_ref().and_then(|a| a.shares.get(&contributor)) else {
            return;
        };
        let (Ok(region), Some(openers)) =
            (self.endpoint.sum_region(rkey), self.application.openers())
        else {
            return;
        };
        let mut upload = blake3::Hasher::new();
        if !region.see_staged(contributor, |chunks| _ = upload.update(chunks)) {
            return;
        }
        let admitted = openers.admit(contributor, shares, upload.finalize().as_bytes());
        if let Some(asking) = &mut self.asking {
            asking.shares.remove(&contributor);
        }
        match admitted {
            Ok(()) => {
                let closed = region.admit(contributor).unwrap_or_default();
                closed.into_iter().for_each(|chunk| self.settle(rkey, chunk));
            }
            Err(reason) => self.refuse_contribution(now, contributor, reason),
        }
    }

    /// Tells a participant why its contribution does not count.
    fn refuse_contribution(&mut self, now: Time, contributor: u16, reason: String) {
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
            return self.emit(AggregatorEvent::NotAnswered { opener, reason });
        }
        match self.attendants.get_mut(&from).filter(|known| known.opener == opener) {
            Some(known) => known.inbox = inbox,
            None => {
                let new = Attendant { opener, inbox, asked: None, replied: None };
                // A process that ended is nobody to wait for.
                self.attendants.retain(|peer, a| peer.node != from.node || a.opener != opener);
                self.attendants.insert(from, new);
                self.emit(AggregatorEvent::Attending { opener, peer: from });
            }
        }
    }

    /// Takes an opener's answer to the request of the open round, or its reason to give none.
    pub(super) fn on_answer(&mut self, from: Peer, message: AnswerMessage) {
        let AnswerMessage { opener, answer } = message;
        let Some(round) = self.current.as_ref().map(|round| round.number()) else { return };
        let (Some(openers), Some(asking)) = (self.application.openers(), &mut self.asking) else {
            return;
        };
        // One that has left since may have answered before.
        if let Some(attendant) = self.attendants.get_mut(&from) {
            attendant.replied = Some(round);
        }
        match answer.and_then(|answer| openers.answer(opener, &answer)) {
            Ok(()) if asking.answered.insert(opener) => {
                self.emit(AggregatorEvent::Answered { round, opener });
            }
            Ok(()) => {}
            Err(reason) => self.emit(AggregatorEvent::NotAnswered { opener, reason }),
        }
    }

    /// Returns the answers that the open round, of which every chunk is settled, ends with; none while they are waited
    /// for.
    pub(super) fn answers(&mut self, now: Time) -> Option<Vec<u8>> {
        let (Some(round), Some(openers), Some(asking)) =
            (&self.current, self.application.openers(), &mut self.asking)
        else {
            return Some(vec![]);
        };
        if !round.has_sums() {
            return Some(vec![]);
        }
        let number = round.number();
        let (requests, since) = asking.requests.get_or_insert_with(|| {
            (openers.requests().into_iter().map(Bytes::from).collect(), now)
        });
        self.attendants.retain(|peer, attendant| {
            if attendant.asked == Some(number) {
                return true;
            }
            let Some(request) = requests.get(usize::from(attendant.opener)) else { return false };
            let kind = Some(MessageKind::Request as u32);
            let sent = self.endpoint.write(now, *peer, attendant.inbox, 0, request.clone(), kind);
            match sent {
                Ok(_) => attendant.asked = Some(number),
                // There is space again soon.
                Err(NicError::WindowFull { .. }) => {}
                Err(_) => return false,
            }
            true
        });
        let (found, needed) = (asking.answered.len(), openers.needed());
        if found >= needed {
            asking.enough.get_or_insert(now);
        }
        let waits = |attendant: &Attendant| attendant.replied != Some(number);
        let all_replied = !self.attendants.values().any(waits);
        let has_replied = |opener| self.attendants.values().any(|a| a.opener == opener);
        let nobody_left = all_replied && (0..requests.len()).all(|o| has_replied(o as u8));
        let ended = match asking.enough {
            Some(enough) => all_replied || now >= enough + SPARE_SPAN,
            None => nobody_left || now >= *since + self.config.round_deadline,
        };
        if !ended {
            return None;
        }
        let answers = openers.answers();
        if found < needed {
            self.emit(AggregatorEvent::Unopened { round: number, found, needed });
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
