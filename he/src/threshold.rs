//! Keys that nobody holds: contributions under one-time secrets, and sums that τ of c openers open.
//!
//! A contributor encrypts under a secret of its own, `b_p = a_p·s_i + e_p + m_p·2^margin`, with polynomials `a_p` that
//! follow from the round's statement and are the same for all. So sums are encrypted under the sum of the secrets, of
//! which each contributor gives every opener a share, sealed to it. An opener adds the shares of those who are in a
//! sum, tells that once, and forgets the key to what it was sent. τ answers tell the sum's secret, and no other.
//!
//! `he/docs/threshold.md` says what is assumed, and of whom.
//!
//! | module | content |
//! |---|---|
//! | `identity` | a member's keys: it signs, and the job's secret is sealed to it |
//! | `openers` | openers and members of a job, and the quorum |
//! | `prekey` | one-time keys of openers, which shares are sealed under |
//! | `sharing` | packed Shamir shares |
//! | `one_time` | the secret of a contribution |
//! | `boxes`, `messages` | shares sealed to openers, signed with the contribution; those of a sum |
//! | `member`, `opener` | what a client and an opener do |
//! | `request`, `answer`, `recovery` | from the set of contributors to the secret of their sum |

mod answer;
mod boxes;
mod identity;
mod member;
mod messages;
mod one_time;
mod opener;
mod openers;
mod prekey;
mod recovery;
mod request;
mod sealing;
mod sharing;

pub use answer::OpenAnswer;
pub use boxes::KeyMessage;
pub use identity::{Identity, MemberId};
pub(crate) use member::KeySealer;
pub use member::MemberKey;
pub use messages::KeyMessages;
pub use opener::OpenerKey;
pub use openers::{OpenerId, Openers, Prekeys};
pub use prekey::{Prekey, PrekeyChain};
pub use recovery::SumSecret;
pub use request::OpenRequest;
pub use sharing::{MAX_OPENERS, Quorum};
