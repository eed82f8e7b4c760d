//! The stream of a call: which of several streams a message is sent on.
//!
//! RFC 4168 section 5.1 would have every message on stream zero, unordered. Then messages of one call may
//! overtake each other: a CANCEL its INVITE, a BYE the re-INVITE before it. Here all messages of a call are
//! sent in order on one stream, chosen by the Call-ID. So a lost packet of one call delays no call on another
//! stream, and no message of a call overtakes an earlier one.

use siphasher::sip::SipHasher13;
use std::collections::BTreeSet;

/// Maximum number of calls remembered that began early. With more of them all calls stay on the first stream.
const MAX_EARLY_CALLS: usize = 1024;

/// Chooses streams by a keyed hash of the Call-ID.
#[derive(Clone, Copy, Debug)]
pub struct CallStreams(SipHasher13);

impl CallStreams {
    /// Returns the choice of an endpoint. Its key is secret, so that a stranger cannot choose Call-IDs that
    /// share the stream of others.
    pub fn new(key: &[u8; 16]) -> Self {
        CallStreams(SipHasher13::new_with_key(key))
    }

    /// Returns the choice that both ends make alike, where a call must have the same stream in both
    /// directions. A stranger can have calls share a stream; then they wait for each other as over TCP.
    pub fn symmetric() -> Self {
        CallStreams(SipHasher13::new())
    }

    /// Returns the hash of a message's Call-ID, zero if it has none.
    pub fn hash(&self, message: &[u8]) -> u64 {
        call_id(message).map_or(0, |id| self.0.hash(id))
    }

    /// Returns the stream of a message, below `streams`. A message without a Call-ID is on the first.
    pub fn stream(&self, message: &[u8], streams: u16) -> u16 {
        stream_of(self.hash(message), streams)
    }
}

/// Returns the stream of the calls with a hash.
pub fn stream_of(hash: u64, streams: u16) -> u16 {
    // Below the number of streams, which is a u16.
    (hash % u64::from(streams.max(1))) as u16
}

/// The calls whose first message left before their stream could be used: while the association was being
/// opened, or before the peer had opened the stream. They stay on the first stream, so that no message of theirs
/// overtakes another.
#[derive(Clone, Default, Debug)]
pub struct EarlyCalls {
    calls: BTreeSet<u64>,
    /// There were too many of them.
    all: bool,
}

impl EarlyCalls {
    /// Returns the stream of a message whose call has this hash and chose `stream`, which is `usable` now or
    /// not.
    pub fn choose(&mut self, call: u64, stream: u16, usable: bool) -> u16 {
        if stream == 0 || self.all {
            return 0;
        }
        if usable {
            return if self.calls.contains(&call) { 0 } else { stream };
        }
        self.calls.insert(call);
        if self.calls.len() > MAX_EARLY_CALLS {
            (self.calls, self.all) = (BTreeSet::new(), true);
        }
        0
    }
}

/// Returns the Call-ID of a message (RFC 3261 section 20.8), in its long or compact form, without the space
/// around it.
fn call_id(message: &[u8]) -> Option<&[u8]> {
    let mut lines = message.split(|b| *b == b'\n');
    // The start line.
    lines.next();
    for line in lines {
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return None;
        }
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let name = line[..colon].trim_ascii_end();
        if name.eq_ignore_ascii_case(b"call-id") || name.eq_ignore_ascii_case(b"i") {
            return Some(line[colon + 1..].trim_ascii());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_id_is_found_in_either_form() {
        for (message, id) in [
            ("INVITE a SIP/2.0\r\nVia: x\r\nCall-ID: abc@d\r\n\r\n", Some("abc@d")),
            ("SIP/2.0 200 OK\r\nCALL-ID \t:  abc@d \r\nVia: i: x\r\n\r\n", Some("abc@d")),
            ("BYE a SIP/2.0\ni:abc@d\n\n", Some("abc@d")),
            ("BYE a SIP/2.0\r\nSubject: x\r\n\r\ni: not in the body\r\n", None),
            ("i: x", None),
            ("", None),
        ] {
            assert_eq!(call_id(message.as_bytes()), id.map(str::as_bytes), "{message:?}");
        }
    }

    #[test]
    fn a_call_that_began_on_the_first_stream_stays() {
        let mut early = EarlyCalls::default();
        assert_eq!(early.choose(7, 3, false), 0);
        assert_eq!(early.choose(7, 3, true), 0);
        assert_eq!(early.choose(8, 3, true), 3);
        for call in 0..=MAX_EARLY_CALLS as u64 {
            assert_eq!(early.choose(call, 5, false), 0);
        }
        assert_eq!((early.choose(8, 3, true), early.calls.len()), (0, 0));
    }

    #[test]
    fn a_call_keeps_its_stream_and_calls_are_spread() {
        let message = |method: &str, n: usize| {
            let id =
                if n.is_multiple_of(2) { format!("{n}@host.example") } else { format!("call-{n}") };
            format!("{method} sip:b SIP/2.0\r\nCall-ID: {id}\r\n\r\n").into_bytes()
        };
        for streams in [CallStreams::symmetric(), CallStreams::new(&[7; 16])] {
            let mut counts = [0; 16];
            for n in 0..1600 {
                let stream = streams.stream(&message("INVITE", n), 16);
                assert_eq!(streams.stream(&message("BYE", n), 16), stream);
                counts[usize::from(stream)] += 1;
            }
            assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
            assert_eq!(streams.stream(&message("INVITE", 1), 1), 0);
            assert_eq!(streams.stream(b"nothing", 1000), 0);
        }
    }
}
