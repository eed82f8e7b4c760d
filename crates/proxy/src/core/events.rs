//! What the core asks of the world and reports to it, beside the messages it sends.

use super::ids::ResolveId;
use ringway_sansio::{Flow, Time, Transport};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Log lines and questions to the world that may wait to be taken away; beyond it reports are
/// dropped.
pub const MAX_EVENTS: usize = 20_000;

/// Queues larger than this give their memory back when they fall empty.
const KEEP_ENTRIES: usize = 4096;

/// Longest text of a message that an event carries, in octets.
pub const MAX_TEXT: usize = 256;

/// A request or a report of the core's, taken away by [`Core::poll_event`](super::Core::poll_event).
#[derive(Debug)]
pub enum Event {
    /// Locate a server; answer with [`Core::handle_resolved`](super::Core::handle_resolved).
    Resolve {
        /// To be returned with the answer.
        id: ResolveId,
        /// What to locate.
        target: ResolveTarget,
        /// The source of the request that needs it: look-ups are shared out by source.
        source: IpAddr,
    },
    /// This message belongs to another worker: hand it to that worker's
    /// [`Core::handle_handed_over`](super::Core::handle_handed_over).
    HandOver {
        /// The worker it belongs to.
        worker: u8,
        /// The flow it came on.
        flow: Flow,
        /// The message.
        bytes: Vec<u8>,
    },
    /// A next hop did not answer or could not be reached; remember it for a while.
    Failed(Transport, SocketAddr),
    /// The peer at the other end of this connection offers it for requests to this address of its
    /// own too (RFC 5923 section 8).
    Alias(Flow, SocketAddr),
    /// Something about a request worth a line in the log.
    Log(LogLine),
    /// A call has come a step further.
    Call(Box<CallEvent>),
    /// Credentials were refused.
    AuthFailed(Box<AuthFailure>),
}

/// What server location is asked for.
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

/// Events that wait to be taken away, in order.
pub(super) struct Events(VecDeque<Event>);

impl Events {
    pub(super) fn new() -> Events {
        Events(VecDeque::new())
    }

    /// Adds what must not be lost. What asks has a bound of its own.
    pub(super) fn push(&mut self, event: Event) {
        self.0.push_back(event);
    }

    /// Adds a report, which is dropped where too many wait; returns whether there was room.
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

/// Text from the network for an event: at most [`MAX_TEXT`] octets of it, what is no UTF-8 replaced.
pub(super) fn short_text(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]).into()
}

/// A line for the log.
#[derive(Debug)]
pub struct LogLine {
    /// What happened.
    pub what: &'static str,
    /// The status sent, or 0.
    pub status: u16,
    /// Method of the request.
    pub method: Box<str>,
    /// Call-ID of the request.
    pub call_id: Box<str>,
    /// Request-URI.
    pub uri: Box<str>,
    /// Where the request came from.
    pub source: SocketAddr,
}

/// One step of one call. All steps of a call have the same Call-ID and tag of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallEvent {
    /// When it happened.
    pub at: Time,
    /// What happened.
    pub step: CallStep,
    /// The call, as its INVITE describes it; of [`CallStep::Ended`], as the BYE does.
    pub call: Arc<CallInfo>,
    /// The callee's tag; empty until it is known.
    pub to_tag: Box<str>,
    /// Where the call was answered, or last tried.
    pub destination: Option<(Transport, SocketAddr)>,
    /// The next hop of a routing rule that the call went to, as configured.
    pub gateway: Option<Box<str>>,
}

/// Who calls whom. All steps that one worker reports of a call share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// The texts behind each other, and where each ends.
    texts: Box<str>,
    ends: [u16; 5],
    /// `user@realm` that proved by digest to be the caller.
    pub user: Option<Box<str>>,
    /// Where the request came from.
    pub source: (Transport, SocketAddr),
    /// When the INVITE came.
    pub began: Time,
}

impl CallInfo {
    /// Of Call-ID, caller's tag, caller, callee and target, as they stand in a message: at most
    /// [`MAX_TEXT`] octets of each are kept, and what is no UTF-8 is replaced.
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
        // Nearly all text is UTF-8, which one look at all of it shows.
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

    /// Call-ID.
    pub fn call_id(&self) -> &str {
        self.text(0)
    }

    /// The caller's tag.
    pub fn from_tag(&self) -> &str {
        self.text(1)
    }

    /// URI of From of the INVITE.
    pub fn caller(&self) -> &str {
        self.text(2)
    }

    /// URI of To of the INVITE.
    pub fn callee(&self) -> &str {
        self.text(3)
    }

    /// Request-URI of the INVITE as it came; of [`CallStep::Ended`], of the BYE.
    pub fn target(&self) -> &str {
        self.text(4)
    }
}

/// What happened to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// The INVITE has been accepted for forwarding.
    Began,
    /// A 2xx has been sent back.
    Answered {
        /// Its status.
        status: u16,
    },
    /// A final response that is no 2xx has been sent back; 487 where the caller cancelled.
    Failed {
        /// Its status.
        status: u16,
    },
    /// A BYE has passed within the dialog. Only seen where the proxy record-routes; any worker may
    /// see it.
    Ended {
        /// Whether the caller hung up.
        by_caller: bool,
    },
}

/// Credentials that were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthFailure {
    /// When.
    pub at: Time,
    /// The user name in the credentials.
    pub user: Box<str>,
    /// The realm in which they were checked.
    pub realm: Arc<str>,
    /// Where the request came from.
    pub source: SocketAddr,
    /// What it was carried by.
    pub transport: Transport,
    /// Method of the request.
    pub method: Box<str>,
    /// Call-ID of the request.
    pub call_id: Box<str>,
    /// Why.
    pub reason: AuthFailureReason,
}

/// Why credentials were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthFailureReason {
    /// The digest does not fit the user's password.
    WrongPassword,
    /// There is no such user in the realm.
    UnknownUser,
    /// Too many wrong attempts by this user or source: not checked at all.
    BackOff,
    /// The credentials prove one user, and the request acts as another.
    OtherUser,
    /// The digest was made for another request: its `uri` does not fit the Request-URI.
    OtherUri,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a stranger writes is bounded, and what is no UTF-8 is replaced in its own text alone.
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
