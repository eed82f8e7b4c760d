//! Refusals of requests, and other reasons to stop.

use super::proof::Proof;
use crate::question::Question;

/// The reason why a request goes no further now.
pub(super) enum Stop {
    /// It is refused.
    Refused(Refusal),
    /// It waits until the world has answered.
    Asks {
        question: Question,
        /// What its sender has proved so far, if it must not be asked for again.
        proof: Option<Proof>,
    },
}

impl Stop {
    /// Returns the stop of a request that needs to know where a user is registered.
    pub(super) fn locate(aor: &[u8]) -> Stop {
        Stop::Asks { question: Question::Location { aor: aor.into() }, proof: None }
    }

    /// Returns the stop of a request that needs to know the routing rules of other servers.
    pub(super) fn rules() -> Stop {
        Stop::Asks { question: Question::Rules, proof: None }
    }

    /// Adds what the sender has proved, if it was by credentials: their nonce is used up.
    pub(super) fn with_proof(self, proved: &Proof) -> Stop {
        match self {
            Stop::Asks { question, .. } if matches!(proved, Proof::Digest { .. }) => {
                Stop::Asks { question, proof: Some(proved.clone()) }
            }
            stop => stop,
        }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

/// The response to a request that is refused.
pub(super) struct Refusal {
    pub status: u16,
    pub reason: &'static str,
    /// Header lines of the response.
    pub headers: Vec<u8>,
}

impl Refusal {
    /// No response: an ACK is never answered (RFC 3261 section 17).
    pub(super) const SILENT: Refusal = Refusal { status: 0, reason: "", headers: Vec::new() };

    pub(super) fn new(status: u16, reason: &'static str) -> Refusal {
        Refusal { status, reason, headers: Vec::new() }
    }

    /// Returns 503: a table is full.
    pub(super) fn busy() -> Refusal {
        let headers = b"Retry-After: 10\r\n".to_vec();
        Refusal { status: 503, reason: "Service Unavailable", headers }
    }

    /// Returns 504: a server that had to be asked did not answer (RFC 3261 section 21.5.5).
    pub(super) fn unanswered() -> Refusal {
        Refusal::new(504, "Server Time-out")
    }

    /// Returns 504 with the time after which it may be different.
    pub(super) fn unanswered_for_now() -> Refusal {
        Refusal { headers: b"Retry-After: 10\r\n".to_vec(), ..Refusal::unanswered() }
    }

    /// Returns 420 for extensions that are required and not understood (RFC 3261 sections 8.2.2.3 and 16.3).
    pub(super) fn bad_extension<'a>(tags: impl Iterator<Item = &'a [u8]>) -> Refusal {
        let mut headers = b"Unsupported: ".to_vec();
        for (i, tag) in tags.enumerate() {
            if i > 0 {
                headers.extend_from_slice(b", ");
            }
            headers.extend_from_slice(tag);
        }
        headers.extend_from_slice(b"\r\n");
        Refusal { status: 420, reason: "Bad Extension", headers }
    }
}
