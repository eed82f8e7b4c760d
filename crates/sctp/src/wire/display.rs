//! Packets as text: chunks joined by " + ", as the packet tables of the tests write them.
//!
//! `DATA tsn flags stream:ssn bytes`, `IDATA tsn flags stream:mid:(ppid or fragment) bytes`,
//! `SACK cumulative [from-to ...] [dup tsn ...]`, `NRSACK cumulative [from-to ...]`, `FORWARD tsn [stream:ssn ...]`,
//! `IFORWARD tsn [U]stream:mid ...`, `RECONFIG` with `out request response last [stream ...]`, `in request [stream ...]`,
//! `all request`, `answer request result [sender receiver]`, `more request count` or `give request count`,
//! `ASCONF serial`, `ASCONF_ACK serial`, `AUTH key`, `UNKNOWN type`, `SHUTDOWN cumulative`, `ABORT [T] [cause]`,
//! `ERROR cause`, `SHUTDOWN_COMPLETE [T]`, and names alone for the rest. Flags are `I` (immediate), `U` (unordered), `B` (begin) and `E` (end).

use super::cause::Causes;
use super::chunk::Chunk;
use super::parameter::Parameters;
use super::reconfig::{Reconfig, Streams};
use super::{DataFlags, Gap, NrSack, Packet, Sack};
use crate::numbers::Tsn;
use core::fmt::{self, Display, Formatter};

const FLAGS: [(char, DataFlags); 4] = [
    ('I', DataFlags::IMMEDIATE),
    ('U', DataFlags::UNORDERED),
    ('B', DataFlags::BEGIN),
    ('E', DataFlags::END),
];

/// The first TSN of the sender of a packet and that of its receiver, which are written as 1; `None` for numbers as
/// they are.
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    sender: Option<Tsn>,
    receiver: Option<Tsn>,
}

/// Returns a TSN as a number from its first one, which is 1.
fn relative(tsn: Tsn, first: Option<Tsn>) -> i64 {
    first.map_or(i64::from(tsn.raw()), |first| i64::from(tsn.distance(first)) + 1)
}

impl Origin {
    /// Returns a TSN, or a request's number, of the sender.
    fn own(self, tsn: Tsn) -> i64 {
        relative(tsn, self.sender)
    }

    /// Returns one of the receiver.
    fn other(self, tsn: Tsn) -> i64 {
        relative(tsn, self.receiver)
    }
}

fn flags(f: &mut Formatter<'_>, flags: DataFlags) -> fmt::Result {
    f.write_str(" ")?;
    FLAGS.iter().filter(|flag| flags.has(flag.1)).try_for_each(|flag| write!(f, "{}", flag.0))
}

fn causes(f: &mut Formatter<'_>, causes: &[u8]) -> fmt::Result {
    Causes::new(causes).flatten().try_for_each(|cause| write!(f, " {}", cause.code()))
}

fn sack(f: &mut Formatter<'_>, origin: Origin, sack: &Sack<'_>) -> fmt::Result {
    let base = origin.other(sack.cumulative_tsn_ack);
    write!(f, "SACK {base}")?;
    sack.gaps().try_for_each(|gap| ranges(f, base, gap))?;
    sack.duplicates().try_for_each(|tsn| write!(f, " dup {}", origin.other(tsn)))
}

fn nr_sack(f: &mut Formatter<'_>, origin: Origin, sack: &NrSack<'_>) -> fmt::Result {
    let base = origin.other(sack.cumulative_tsn_ack);
    write!(f, "NRSACK {base}")?;
    sack.final_gaps().try_for_each(|gap| ranges(f, base, gap))
}

fn ranges(f: &mut Formatter<'_>, base: i64, gap: Gap) -> fmt::Result {
    write!(f, " {}-{}", base + i64::from(gap.start), base + i64::from(gap.end))
}

fn list(f: &mut Formatter<'_>, streams: Streams<'_>) -> fmt::Result {
    streams.iter().try_for_each(|stream| write!(f, " {stream}"))
}

fn reconfig(f: &mut Formatter<'_>, origin: Origin, value: &[u8]) -> fmt::Result {
    f.write_str("RECONFIG")?;
    for parameter in Parameters::new(value) {
        let request = parameter.ok().and_then(|parameter| Reconfig::read(&parameter)?.ok());
        let own = |request: u32| origin.own(Tsn::new(request));
        let other = |request: u32| origin.other(Tsn::new(request));
        match request {
            None => return f.write_str(" malformed"),
            Some(Reconfig::OutgoingReset { request, response, last_tsn, streams }) => {
                let last = origin.own(last_tsn);
                write!(f, " out {} {} {last}", own(request), other(response))?;
                list(f, streams)?;
            }
            Some(Reconfig::IncomingReset { request, streams }) => {
                write!(f, " in {}", own(request))?;
                list(f, streams)?;
            }
            Some(Reconfig::TsnReset { request }) => write!(f, " all {}", own(request))?,
            Some(Reconfig::Response { response, result, next }) => {
                write!(f, " answer {} {result}", other(response))?;
                if let Some((sender, receiver)) = next {
                    write!(f, " {} {}", origin.own(sender), origin.other(receiver))?;
                }
            }
            Some(Reconfig::AddOutgoing { request, count }) => {
                write!(f, " more {} {count}", own(request))?;
            }
            Some(Reconfig::AddIncoming { request, count }) => {
                write!(f, " give {} {count}", own(request))?;
            }
        }
    }
    Ok(())
}

fn chunk(f: &mut Formatter<'_>, origin: Origin, chunk: &Chunk<'_>) -> fmt::Result {
    match chunk {
        Chunk::Data(data) => {
            write!(f, "DATA {}", origin.own(data.tsn))?;
            flags(f, data.flags)?;
            write!(f, " {}:{} {}", data.stream, data.ssn.raw(), data.user.len())
        }
        Chunk::IData(data) => {
            write!(f, "IDATA {}", origin.own(data.tsn))?;
            flags(f, data.flags)?;
            let (stream, mid, number) = (data.stream, data.mid.raw(), data.ppid_or_fsn);
            write!(f, " {stream}:{mid}:{number} {}", data.user.len())
        }
        Chunk::Init(_) => f.write_str("INIT"),
        Chunk::InitAck(_) => f.write_str("INIT_ACK"),
        Chunk::Sack(of) => sack(f, origin, of),
        Chunk::NrSack(of) => nr_sack(f, origin, of),
        Chunk::Heartbeat(_) => f.write_str("HEARTBEAT"),
        Chunk::HeartbeatAck(_) => f.write_str("HEARTBEAT_ACK"),
        Chunk::Abort { reflected, causes: list } => {
            f.write_str(if *reflected { "ABORT T" } else { "ABORT" })?;
            causes(f, list)
        }
        Chunk::Shutdown(cumulative) => write!(f, "SHUTDOWN {}", origin.other(*cumulative)),
        Chunk::ShutdownAck => f.write_str("SHUTDOWN_ACK"),
        Chunk::ShutdownComplete { reflected } => {
            f.write_str(if *reflected { "SHUTDOWN_COMPLETE T" } else { "SHUTDOWN_COMPLETE" })
        }
        Chunk::Error(list) => {
            f.write_str("ERROR")?;
            causes(f, list)
        }
        Chunk::CookieEcho(_) => f.write_str("COOKIE_ECHO"),
        Chunk::CookieAck => f.write_str("COOKIE_ACK"),
        Chunk::Ecne(tsn) => write!(f, "ECNE {}", origin.other(*tsn)),
        Chunk::Cwr(tsn) => write!(f, "CWR {}", origin.own(*tsn)),
        Chunk::ForwardTsn(forward) => {
            write!(f, "FORWARD {}", origin.own(forward.new_cumulative_tsn))?;
            let mut streams = forward.streams();
            streams.try_for_each(|(stream, ssn)| write!(f, " {stream}:{}", ssn.raw()))
        }
        Chunk::IForwardTsn(forward) => {
            write!(f, "IFORWARD {}", origin.own(forward.new_cumulative_tsn))?;
            forward.messages().try_for_each(|(stream, unordered, mid)| {
                write!(f, " {}{stream}:{}", if unordered { "U" } else { "" }, mid.raw())
            })
        }
        Chunk::ReConfig(value) => reconfig(f, origin, value),
        Chunk::Pad => f.write_str("PAD"),
        Chunk::Asconf(serial, _) => write!(f, "ASCONF {serial}"),
        Chunk::AsconfAck(serial, _) => write!(f, "ASCONF_ACK {serial}"),
        Chunk::Auth(key, ..) => write!(f, "AUTH {key}"),
        Chunk::Unknown { whole, .. } => write!(f, "UNKNOWN {}", whole[0]),
    }
}

fn packet(f: &mut Formatter<'_>, origin: Origin, packet: &Packet<'_>) -> fmt::Result {
    for (index, raw) in packet.chunks().enumerate() {
        if index > 0 {
            f.write_str(" + ")?;
        }
        match raw.map(|raw| (raw.kind, raw.parse())) {
            Ok((_, Ok(parsed))) => chunk(f, origin, &parsed)?,
            Ok((kind, Err(error))) => write!(f, "MALFORMED {kind} ({error})")?,
            Err(error) => write!(f, "MALFORMED ({error})")?,
        }
    }
    Ok(())
}

/// A packet with TSNs from the first ones of its sender and its receiver, see [`Packet::relative_to`].
#[derive(Clone, Copy, Debug)]
pub struct RelativePacket<'a> {
    packet: Packet<'a>,
    origin: Origin,
}

impl<'a> Packet<'a> {
    /// Returns the packet to be written with TSNs that count from 1: from the first one of the packet's sender, which
    /// its DATA has, and from that of its receiver, which its SACKs acknowledge. `None` leaves them as they are.
    pub fn relative_to(self, sender: Option<Tsn>, receiver: Option<Tsn>) -> RelativePacket<'a> {
        RelativePacket { packet: self, origin: Origin { sender, receiver } }
    }
}

impl Display for RelativePacket<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        packet(f, self.origin, &self.packet)
    }
}

/// Writes its chunks, joined by " + ".
impl Display for Packet<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        packet(f, Origin::default(), self)
    }
}

/// Writes its name and what a reader of a trace looks for, such as `SACK 7 2-3`.
impl Display for Chunk<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        chunk(f, Origin::default(), self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Data, Writer};
    use super::*;
    use crate::numbers::Ssn;

    #[test]
    fn a_packet_is_written_as_a_line() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 1500, 5060, 5061, 7);
        let data = Data {
            flags: DataFlags::BEGIN.with(DataFlags::END),
            tsn: Tsn::new(102),
            stream: 3,
            ssn: Ssn::new(4),
            ppid: 0,
            user: b"hello",
        };
        Chunk::CookieAck.emit(writer.chunks());
        data.emit(writer.chunks());
        Chunk::Shutdown(Tsn::new(9)).emit(writer.chunks());
        writer.finish();
        let packet = Packet::parse(&bytes).expect("valid");
        assert_eq!(packet.to_string(), "COOKIE_ACK + DATA 102 BE 3:4 5 + SHUTDOWN 9");
        let relative = packet.relative_to(Some(Tsn::new(101)), Some(Tsn::new(8)));
        assert_eq!(relative.to_string(), "COOKIE_ACK + DATA 2 BE 3:4 5 + SHUTDOWN 2");
    }

    #[test]
    fn a_malformed_chunk_is_named() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 1500, 1, 2, 7);
        writer.chunks().extend_from_slice(&[0, 3, 0, 4]);
        writer.finish();
        let text = Packet::parse(&bytes).expect("a packet").to_string();
        assert!(text.starts_with("MALFORMED 0 ("), "{text}");
    }
}
