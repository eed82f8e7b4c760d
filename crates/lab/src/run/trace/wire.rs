//! What a packet is to a viewer: its kind and its numbers, read from its transport header.
//!
//! The packets are the laboratory's own and are read as they are sent, before a link may damage them. Sequence numbers
//! and TSNs are relative to the first one of their direction, so that they begin near zero and do not wrap.

use ringway_sctp::wire::chunk::kind;
use ringway_sctp::wire::{Packet, chunk};
use ringway_tcp::Flags;

/// Protocol numbers of IP.
const TCP: u8 = ringway_tcp::PROTOCOL;
const SCTP: u8 = ringway_sctp::PROTOCOL;
/// Length of a TCP header without options.
const TCP_HEADER: usize = 20;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketKind {
    /// It has data that is sent for the first time.
    #[default]
    Data,
    /// It has data that was sent before.
    Retransmission,
    /// It only acknowledges.
    Ack,
    /// It sets up, ends or probes a connection.
    Control,
}

impl PacketKind {
    /// All kinds, by number.
    pub const ALL: [PacketKind; 4] =
        [PacketKind::Data, PacketKind::Retransmission, PacketKind::Ack, PacketKind::Control];

    /// Returns the name in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            PacketKind::Data => "data",
            PacketKind::Retransmission => "retransmission",
            PacketKind::Ack => "ack",
            PacketKind::Control => "control",
        }
    }
}

/// What the header of a packet contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Kind.
    pub kind: PacketKind,
    /// The most important thing in it: `DATA`, `SACK`, `SYN`.
    pub what: &'static str,
    /// Number of the first data: a byte of TCP, a TSN of SCTP, a datagram of UDP.
    pub seq: Option<u64>,
    /// Number of the first data that the sender of this packet expects.
    pub ack: Option<u64>,
    /// Stream of the first data.
    pub stream: Option<u16>,
}

/// The numbers of one direction of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    /// The first number of the direction.
    base: Option<u32>,
    /// The number after the highest one sent.
    next: u64,
}

impl Numbers {
    /// Returns the relative number of `raw`, the one nearest to the highest one sent.
    fn relative(&self, raw: u32) -> Option<u64> {
        let distance = raw.wrapping_sub(self.base?).wrapping_sub(self.next as u32) as i32;
        Some(self.next.saturating_add_signed(distance.into()))
    }

    /// Records the sending of `count` numbers from `raw` on. Returns the relative number, and whether the first of them
    /// was sent before.
    fn send(&mut self, raw: u32, count: u64) -> (u64, bool) {
        self.base.get_or_insert(raw);
        let first = self.relative(raw).unwrap_or_default();
        let again = first < self.next;
        self.next = self.next.max(first + count);
        (first, again)
    }
}

/// Reads a packet. `sent` are the numbers of its direction, `received` those of the other.
pub(super) fn read(
    protocol: u8,
    payload: &[u8],
    sent: &mut Numbers,
    received: &Numbers,
) -> Content {
    let content = match protocol {
        TCP => segment(payload, sent, received),
        SCTP => packet(payload, sent, received),
        _ => {
            let (seq, _) = sent.send(sent.next as u32, 1);
            Some(Content { what: "datagram", seq: Some(seq), ..Content::default() })
        }
    };
    content.unwrap_or(Content { what: "unknown", kind: PacketKind::Control, ..Content::default() })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads a segment of TCP (RFC 9293 section 3.1).
fn segment(bytes: &[u8], sent: &mut Numbers, received: &Numbers) -> Option<Content> {
    let head: &[u8; TCP_HEADER] = bytes.first_chunk()?;
    let flags = Flags::from_bits(head[13]);
    let data = bytes.len().checked_sub(usize::from(head[12] >> 4) * 4)? as u64;
    let marks = u64::from(flags.has(Flags::SYN)) + u64::from(flags.has(Flags::FIN));
    let raw = word(head, 4)?;
    let (seq, again) = match data + marks {
        0 => (None, false),
        count => {
            let (seq, again) = sent.send(raw, count);
            (Some(seq), again)
        }
    };
    let what = match flags {
        f if f.has(Flags::RST) => "RST",
        f if f.has(Flags::SYN) => "SYN",
        f if f.has(Flags::FIN) => "FIN",
        _ if data > 0 => "segment",
        _ => "ACK",
    };
    let kind = match (data, what) {
        (1.., _) if again => PacketKind::Retransmission,
        (1.., _) => PacketKind::Data,
        (_, "ACK") => PacketKind::Ack,
        _ => PacketKind::Control,
    };
    let ack = if flags.has(Flags::ACK) { received.relative(word(head, 8)?) } else { None };
    Some(Content { kind, what, seq: seq.filter(|_| data > 0), ack, stream: None })
}

/// Reads a packet of SCTP (RFC 9260 section 3).
fn packet(bytes: &[u8], sent: &mut Numbers, received: &Numbers) -> Option<Content> {
    let mut content = Content::default();
    let mut data = false;
    let mut first = None;
    for raw in Packet::parse_unchecked(bytes).ok()?.chunks().map_while(Result::ok) {
        match raw.kind {
            kind::DATA | kind::I_DATA => {
                let (seq, again) = sent.send(word(raw.whole, 4)?, 1);
                if !data {
                    content.seq = Some(seq);
                    content.stream = raw.whole.get(8..10).map(|s| u16::from_be_bytes([s[0], s[1]]));
                    content.kind =
                        if again { PacketKind::Retransmission } else { PacketKind::Data };
                }
                data = true;
            }
            kind::SACK | kind::NR_SACK => {
                content.ack = received.relative(word(raw.whole, 4)?).map(|tsn| tsn + 1);
                first.get_or_insert(raw);
            }
            _ if first.is_none_or(is_sack) => first = Some(raw),
            _ => {}
        }
    }
    if data {
        content.what = "DATA";
        return Some(content);
    }
    let first = first?;
    content.what = name(first.kind);
    content.kind = if is_sack(first) { PacketKind::Ack } else { PacketKind::Control };
    Some(content)
}

fn is_sack(raw: chunk::Raw<'_>) -> bool {
    matches!(raw.kind, kind::SACK | kind::NR_SACK)
}

/// Returns the name of a chunk type.
fn name(chunk: u8) -> &'static str {
    match chunk {
        kind::INIT => "INIT",
        kind::INIT_ACK => "INIT ACK",
        kind::SACK => "SACK",
        kind::NR_SACK => "NR-SACK",
        kind::HEARTBEAT => "HEARTBEAT",
        kind::HEARTBEAT_ACK => "HEARTBEAT ACK",
        kind::ABORT => "ABORT",
        kind::SHUTDOWN => "SHUTDOWN",
        kind::SHUTDOWN_ACK => "SHUTDOWN ACK",
        kind::SHUTDOWN_COMPLETE => "SHUTDOWN COMPLETE",
        kind::ERROR => "ERROR",
        kind::COOKIE_ECHO => "COOKIE ECHO",
        kind::COOKIE_ACK => "COOKIE ACK",
        kind::ECNE => "ECNE",
        kind::CWR => "CWR",
        kind::FORWARD_TSN | kind::I_FORWARD_TSN => "FORWARD TSN",
        kind::ASCONF => "ASCONF",
        kind::ASCONF_ACK => "ASCONF ACK",
        kind::RE_CONFIG => "RE-CONFIG",
        _ => "chunk",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(seq: u32, ack: u32, flags: u8, data: usize) -> Vec<u8> {
        let mut bytes = vec![0; TCP_HEADER + data];
        bytes[4..8].copy_from_slice(&seq.to_be_bytes());
        bytes[8..12].copy_from_slice(&ack.to_be_bytes());
        (bytes[12], bytes[13]) = (5 << 4, flags);
        bytes
    }

    /// Numbers are relative to the first one of their direction, also where they wrap; what was sent before is a
    /// retransmission.
    #[test]
    fn segments_have_relative_numbers() {
        let (mut there, mut back) = (Numbers::default(), Numbers::default());
        let first = u32::MAX - 10;
        let syn = read(TCP, &tcp(first, 0, 2, 0), &mut there, &back);
        assert_eq!((syn.kind, syn.what, syn.seq), (PacketKind::Control, "SYN", None));
        let data = tcp(first.wrapping_add(1), 0, 16, 100);
        let sent = read(TCP, &data, &mut there, &back);
        assert_eq!((sent.kind, sent.seq), (PacketKind::Data, Some(1)));
        let next = read(TCP, &tcp(first.wrapping_add(101), 0, 16, 100), &mut there, &back);
        assert_eq!((next.kind, next.seq), (PacketKind::Data, Some(101)));
        let again = read(TCP, &data, &mut there, &back);
        assert_eq!((again.kind, again.seq), (PacketKind::Retransmission, Some(1)));
        let ack = read(TCP, &tcp(7, first.wrapping_add(101), 16, 0), &mut back, &there);
        assert_eq!((ack.kind, ack.what, ack.ack), (PacketKind::Ack, "ACK", Some(101)));
        // A header that ends early, or that claims to be longer than the packet.
        for odd in [&data[..TCP_HEADER - 1], &[0xff; TCP_HEADER][..], &[]] {
            assert_eq!(read(TCP, odd, &mut there, &back).what, "unknown");
        }
    }

    fn sctp(chunks: &[(u8, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; 12];
        for (kind, number) in chunks {
            let mut value = [0; 20];
            value[..4].copy_from_slice(&number.to_be_bytes());
            value[5] = 3;
            chunk::put(&mut bytes, *kind, 3, &[&value]);
        }
        bytes
    }

    /// Data is what a packet with data and a SACK is; a control chunk is named before a SACK.
    #[test]
    fn packets_are_named_by_their_chunks() {
        let (mut there, mut back) = (Numbers::default(), Numbers::default());
        let mut read = |chunks: &[(u8, u32)]| read(SCTP, &sctp(chunks), &mut there, &back);
        let data = read(&[(kind::SACK, 5), (kind::DATA, 100), (kind::DATA, 101)]);
        assert_eq!((data.kind, data.what), (PacketKind::Data, "DATA"));
        assert_eq!((data.seq, data.stream, data.ack), (Some(0), Some(3), None));
        assert_eq!(read(&[(kind::DATA, 102)]).seq, Some(2));
        assert_eq!(read(&[(kind::DATA, 101)]).kind, PacketKind::Retransmission);
        let probe = read(&[(kind::SACK, 5), (kind::HEARTBEAT, 1)]);
        assert_eq!((probe.kind, probe.what), (PacketKind::Control, "HEARTBEAT"));
        let sack = super::read(SCTP, &sctp(&[(kind::SACK, 102)]), &mut back, &there);
        assert_eq!((sack.kind, sack.what, sack.ack), (PacketKind::Ack, "SACK", Some(3)));
        let empty = super::read(SCTP, &[0; 12], &mut back, &there);
        assert_eq!(empty.what, "unknown");
    }
}
