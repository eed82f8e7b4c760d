//! Requests and reports of the core to the world, beside the messages it sends.

use super::ids::{AskId, ResolveId};
use crate::question::Question;
use ringway_sansio::{Flow, Time, Transport};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The number of events that may wait. Beyond it reports are dropped.
pub const MAX_EVENTS: usize = 20_000;

/// A queue larger than this is replaced by a small one when it becomes empty.
const KEEP_ENTRIES: usize = 4096;

/// The maximum length of a text in an event, in octets.
pub const MAX_TEXT: usize = 256;

/// A request or a report of the core, returned by [`Core::poll_event`](super::Core::poll_event).
#[derive(Debug)]
pub enum Event {
    /// Locate a server; answer with [`Core::handle_resolved`](super::Core::handle_resolved).
    Resolve {
        /// Returned with the result.
        id: ResolveId,
        /// The server to locate.
        target: ResolveTarget,
        /// The source of the request that needs it: look-ups are shared among sources.
        source: IpAddr,
    },
    /// Find out about a user of other servers; reply with [`Core::handle_answered`](super::Core::handle_answered).
    Ask {
        /// Returned with the reply.
        id: AskId,
        /// The question.
        question: Question,
        /// The source of the request that waits for the reply.
        source: IpAddr,
    },
    /// Hand this message over to another worker: to its [`Core::handle_handed_over`](super::Core::handle_handed_over).
    HandOver {
        /// The worker it belongs to.
        worker: u8,
        /// The flow it came on.
        flow: Flow,
        /// The message.
        bytes: Vec<u8>,
    },
    /// A message of [`Core::deliver`](super::Core::deliver) has been answered, or has failed.
    Delivered {
        /// Its number.
        id: u64,
        /// The final status.
        status: u16,
    },
    /// A next hop did not answer or could not be reached. It should be avoided for a while.
    Failed(Transport, SocketAddr),
    /// The peer of this connection also offers it for requests to this address of its own (RFC 5923 section 8).
    Alias(Flow, SocketAddr),
    /// A line for the log about a request.
    Log(LogLine),
    /// A step of a call.
    Call(Box<CallEvent>),
    /// Credentials that were refused.
    AuthFailed(Box<AuthFailure>),
}

/// The server that location is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveTarget {
    /// Host part of the URI, never a literal address.
    pub host: Box<str>,
    /// Port, where the URI has one.
    pub port: Option<u16>,
    /// Transport, where the URI names one.
    pub transport: Option<Transport>,
    /// Whether the URI is a `sips` one.
    pub secure: bool,
}

/// Events that wait, in order.
pub(super) struct Events(VecDeque<Event>);

impl Events {
    pub(super) fn new() -> Events {
        Events(VecDeque::new())
    }

    /// Adds an event that must not be lost. The requests to the world are bounded elsewhere.
    pub(super) fn push(&mut self, event: Event) {
        self.0.push_back(event);
    }

    /// Adds a report, or drops it if too many wait. Returns whether there was room.
    pub(super) fn report(&mut self, event: impl FnOnce() -> Event) -> bool {
        let fits = self.0.len() < MAX_EVENTS;
        if fits {
            self.0.push_back(event());
        }
        fits
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let event = self.0.pop_front();
        if event.is_none() && self.0.capacity() > KEEP_ENTRIES {
            self.0 = VecDeque::new();
        }
        event
    }
}

/// Returns text from the network for an event: at most [`MAX_TEXT`] octets, with what is not UTF-8 replaced.
pub(super) fn short_text(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]).into()
}

/// A line for the log.
#[derive(Debug)]
pub struct LogLine {
    /// The event.
    pub what: &'static str,
    /// The status sent, or 0.
    pub status: u16,
    /// Method of the request.
    pub method: Box<str>,
    /// Call-ID of the request.
    pub call_id: Box<str>,
    /// Request-URI.
    pub uri: Box<str>,
    /// The source of the request.
    pub source: SocketAddr,
}

/// One step of one call. All steps of a call have the same Call-ID and tag of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallEvent {
    /// The time of the step.
    pub at: Time,
    /// The step.
    pub step: CallStep,
    /// The call, as its INVITE describes it; of [`CallStep::Ended`], as the BYE does.
    pub call: Arc<CallInfo>,
    /// The callee's tag; empty until it is known.
    pub to_tag: Box<str>,
    /// The target that answered, or the last one that was tried.
    pub destination: Option<(Transport, SocketAddr)>,
    /// The next hop of a routing rule that the call went to, as configured.
    pub gateway: Option<Box<str>>,
}

/// The parties of a call. All steps that one worker reports of a call share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// The texts, concatenated, and the end of each.
    texts: Box<str>,
    ends: [u16; 5],
    /// The authenticated caller, as `user@realm`.
    pub user: Option<Box<str>>,
    /// The source of the request.
    pub source: (Transport, SocketAddr),
    /// The time at which the INVITE came.
    pub began: Time,
}

impl CallInfo {
    /// Returns the description with Call-ID, caller's tag, caller, callee and target as they are in a message. At most
    /// [`MAX_TEXT`] octets of each are stored, and what is not UTF-8 is replaced.
    pub fn new(
        texts: [&[u8]; 5],
        user: Option<Box<str>>,
        source: (Transport, SocketAddr),
        began: Time,
    ) -> CallInfo {
        let texts = texts.map(|text| &text[..text.len().min(MAX_TEXT)]);
        let ends_of = |lengths: [usize; 5]| {
            let mut end = 0;
            // A replacement has up to three octets: all texts together fit 5 * 3 * 256.
            lengths.map(|length| {
                end += length;
                end as u16
            })
        };
        // Nearly all text is UTF-8, which one check of the whole shows.
        let mut ends = ends_of(texts.map(<[u8]>::len));
        let whole = |all: &String| ends.iter().all(|&end| all.is_char_boundary(end.into()));
        let all = String::from_utf8(texts.concat()).ok().filter(whole).unwrap_or_else(|| {
            let texts = texts.map(String::from_utf8_lossy);
            ends = ends_of(texts.each_ref().map(|text| text.len()));
            texts.concat()
        });
        CallInfo { texts: all.into_boxed_str(), ends, user, source, began }
    }

    fn text(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.texts[usize::from(start)..usize::from(self.ends[index])]
    }

    /// Returns the Call-ID.
    pub fn call_id(&self) -> &str {
        self.text(0)
    }

    /// Returns the caller's tag.
    pub fn from_tag(&self) -> &str {
        self.text(1)
    }

    /// Returns the URI of From of the INVITE.
    pub fn caller(&self) -> &str {
        self.text(2)
    }

    /// Returns the URI of To of the INVITE.
    pub fn callee(&self) -> &str {
        self.text(3)
    }

    /// Returns the Request-URI of the INVITE as it came; for [`CallStep::Ended`], that of the BYE.
    pub fn target(&self) -> &str {
        self.text(4)
    }
}

/// A step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// The INVITE has been accepted for forwarding.
    Began,
    /// A 2xx has been sent back.
    Answered {
        /// Its status.
        status: u16,
    },
    /// A final response other than 2xx has been sent back; 487 if the caller cancelled.
    Failed {
        /// Its status.
        status: u16,
    },
    /// A BYE has passed within the dialog. Reported only if the proxy record-routes, and by any worker.
    Ended {
        /// Whether the caller hung up.
        by_caller: bool,
    },
}

/// Credentials that were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthFailure {
    /// The time of the failure.
    pub at: Time,
    /// The user name in the credentials.
    pub user: Box<str>,
    /// The realm in which they were checked.
    pub realm: Arc<str>,
    /// The source of the request.
    pub source: SocketAddr,
    /// The transport of the request.
    pub transport: Transport,
    /// Method of the request.
    pub method: Box<str>,
    /// Call-ID of the request.
    pub call_id: Box<str>,
    /// The reason for the refusal.
    pub reason: AuthFailureReason,
}

/// The reason why credentials were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthFailureReason {
    /// The digest does not fit the user's password.
    WrongPassword,
    /// The realm has no such user.
    UnknownUser,
    /// The user's password was imported as a hash, which is of another algorithm than the digest.
    OtherAlgorithm,
    /// This user or source has failed too often: the credentials were not checked.
    BackOff,
    /// The credentials prove one user, and the request acts as another.
    OtherUser,
    /// The digest was made for another request: its `uri` does not match the Request-URI.
    OtherUri,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text from a sender is bounded, and what is not UTF-8 is replaced in its own text only.
    #[test]
    fn the_texts_of_a_call_are_bounded() {
        let long = [0xe9; 4 * MAX_TEXT];
        let texts: [&[u8]; 5] = [b"id", b"", &long, "sip:\u{e9}@a.org".as_bytes(), b"sip:b@a.org"];
        let source = (Transport::Udp, SocketAddr::from(([192, 0, 2, 1], 5060)));
        let call = CallInfo::new(texts, None, source, Time::ZERO);
        assert_eq!((call.call_id(), call.from_tag()), ("id", ""));
        assert_eq!(call.caller(), "\u{fffd}".repeat(MAX_TEXT));
        assert_eq!((call.callee(), call.target()), ("sip:\u{e9}@a.org", "sip:b@a.org"));
    }
}
