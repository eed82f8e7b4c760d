//! The kernel's notifications (RFC 6458 section 6.1, as in linux/sctp.h).

use crate::message::Event;
use bytes::Bytes;
use ringway_os::sctp::decode_address;
use ringway_sctp::{Change, Close, PathState};

const ASSOC_CHANGE: u16 = 0x8001;
const PEER_ADDR_CHANGE: u16 = 0x8002;
const SEND_FAILED: u16 = 0x8003;
const REMOTE_ERROR: u16 = 0x8004;
const SHUTDOWN: u16 = 0x8005;
const STREAM_RESET: u16 = 0x800a;
const ASSOC_RESET: u16 = 0x800b;
const STREAM_CHANGE: u16 = 0x800c;
const SEND_FAILED_EVENT: u16 = 0x800d;

/// Flags of a reset's result: it concerns incoming streams, was refused, or failed.
const INCOMING: u16 = 1;
const REFUSED: u16 = 4;
const FAILED: u16 = 8;
/// RFC 6525 table 3: denied.
const DENIED: u32 = 2;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_ne_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes)
}

/// Parses a notification. Returns `None` for one that is of no use here, or unknown.
pub(super) fn parse(bytes: &[u8]) -> Option<Event> {
    let flags = u16_at(bytes, 2)?;
    match u16_at(bytes, 0)? {
        ASSOC_CHANGE => {
            let code = u16_at(bytes, 10)?;
            Some(match u16_at(bytes, 8)? {
                0 => Event::Up,
                2 => Event::Restarted,
                3 => Event::Closed(Close::Finished),
                // Lost without an answer, or by an ABORT, which has a cause or is quoted.
                1 if code == 0 && bytes.len() <= 20 => Event::Closed(Close::Unreachable),
                1 => Event::Closed(aborted(code, bytes.get(20..).unwrap_or(&[]))),
                _ => Event::Closed(Close::Unreachable),
            })
        }
        PEER_ADDR_CHANGE => {
            let remote = decode_address(bytes.get(8..136)?)?.0.ip();
            let path = |state| Event::Path { remote, state };
            Some(match u32_at(bytes, 136)? {
                0 | 5 => path(PathState::Active),
                1 => path(PathState::Inactive),
                2 => Event::Changed(Change::PeerAddressDeleted(remote)),
                3 => Event::Changed(Change::PeerAddressAdded(remote)),
                4 => Event::Changed(Change::PeerPrimary(remote)),
                6 => path(PathState::PotentiallyFailed),
                _ => return None,
            })
        }
        SEND_FAILED | SEND_FAILED_EVENT => Some(Event::SendFailed { messages: 1 }),
        REMOTE_ERROR => Some(Event::PeerError { code: u16::from_be(u16_at(bytes, 8)?) }),
        SHUTDOWN => Some(Event::PeerShutdown),
        STREAM_RESET if flags & (REFUSED | FAILED) != 0 => {
            Some(Event::Changed(Change::ReconfigRefused(DENIED)))
        }
        STREAM_RESET => {
            let list = bytes.get(12..).unwrap_or(&[]).chunks_exact(2);
            let streams = list.map(|b| u16::from_ne_bytes([b[0], b[1]])).collect();
            let incoming = flags & INCOMING != 0;
            Some(Event::Changed(Change::StreamsReset { incoming, streams }))
        }
        ASSOC_RESET if flags & (REFUSED | FAILED) == 0 => {
            Some(Event::Changed(Change::EverythingReset))
        }
        STREAM_CHANGE if flags & (REFUSED | FAILED) == 0 => {
            let (inbound, outbound) = (u16_at(bytes, 12)?, u16_at(bytes, 14)?);
            Some(Event::Changed(Change::Streams { outbound, inbound }))
        }
        ASSOC_RESET | STREAM_CHANGE => Some(Event::Changed(Change::ReconfigRefused(DENIED))),
        _ => None,
    }
}

/// Returns the first cause of an ABORT, whose chunk or causes the kernel quotes (RFC 9260 section
/// 3.3.10).
fn aborted(code: u16, quoted: &[u8]) -> Close {
    // The kernel reports the code in network order.
    let code = u16::from_be(code);
    let cause = quoted.windows(4).position(|w| w[..2] == code.to_be_bytes() && code != 0);
    let reason = cause.and_then(|at| {
        let length = usize::from(u16::from_be_bytes([quoted[at + 2], quoted[at + 3]]));
        quoted.get(at + 4..(at + length).min(quoted.len()))
    });
    Close::Aborted { code, reason: Bytes::copy_from_slice(reason.unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_os::sctp::encode_addresses;
    use std::net::SocketAddr;

    fn notice(kind: u16, flags: u16, rest: &[u8]) -> Vec<u8> {
        let mut bytes = [kind.to_ne_bytes(), flags.to_ne_bytes()].concat();
        bytes.extend(((8 + rest.len()) as u32).to_ne_bytes());
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn changes_of_the_association_are_parsed() {
        let change = |state: u16, error: u16, quoted: &[u8]| {
            let rest = [state, error, 1, 1, 0, 0].map(u16::to_ne_bytes).concat();
            parse(&notice(ASSOC_CHANGE, 0, &[&rest[..], quoted].concat()))
        };
        assert_eq!(change(0, 0, &[]), Some(Event::Up));
        assert_eq!(change(3, 0, &[]), Some(Event::Closed(Close::Finished)));
        assert_eq!(change(1, 0, &[]), Some(Event::Closed(Close::Unreachable)));
        assert_eq!(change(4, 0, &[]), Some(Event::Closed(Close::Unreachable)));
        let abort = [6, 0, 0, 11, 0, 12, 0, 7, b'b', b'y', b'e', 0];
        let reason = Bytes::from_static(b"bye");
        let closed = Event::Closed(Close::Aborted { code: 12, reason });
        assert_eq!(change(1, 12u16.to_be(), &abort), Some(closed));
    }

    #[test]
    fn changes_of_paths_and_streams_are_parsed() {
        let remote: SocketAddr = "10.0.0.2:5060".parse().unwrap();
        let mut rest = encode_addresses(&[remote]);
        rest.resize(128, 0);
        rest.extend(1u32.to_ne_bytes());
        let path = Event::Path { remote: remote.ip(), state: PathState::Inactive };
        assert_eq!(parse(&notice(PEER_ADDR_CHANGE, 0, &rest)), Some(path));
        let rest = [0u16, 0, 4, 9].map(u16::to_ne_bytes).concat();
        let streams = Change::StreamsReset { incoming: true, streams: Box::new([4, 9]) };
        assert_eq!(parse(&notice(STREAM_RESET, 1, &rest)), Some(Event::Changed(streams)));
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&notice(0x9999, 0, &[])), None);
        for kind in ASSOC_CHANGE..=SEND_FAILED_EVENT {
            for length in 0..20 {
                let _ = parse(&notice(kind, 0, &[0; 20][..length]));
            }
        }
    }
}
