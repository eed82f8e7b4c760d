//! The bridge between the endpoint and the device: IP headers, and what a bad link does.

use ringway_os::Tun;
use ringway_sansio::pcapng::{Direction, Writer};
use ringway_sansio::{Addressing, Duration, Ecn, Random, SplitMix, Time};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::net::IpAddr;
use std::path::Path;

/// Most packets held back; more are dropped.
const MOST_HELD: usize = 100_000;

/// A packet this long carries data, not only an acknowledgment.
const DATA: usize = 500;

/// What becomes of packets, each way alike.
#[derive(Clone, Debug)]
pub(crate) struct Impairment {
    /// Share of packets dropped, per cent.
    pub(crate) loss: f64,
    /// Share of packets sent on `late` after the others, per cent.
    pub(crate) reorder: f64,
    /// Share of packets that come twice, per cent.
    pub(crate) duplicate: f64,
    /// Share of packets marked that say they are capable of ECN, per cent.
    pub(crate) mark: f64,
    /// Which data packets are dropped, each way counted from 1.
    pub(crate) lose: Vec<u64>,
    /// Bits a second each way; packets wait for their turn. 0 for no limit.
    pub(crate) rate: u64,
    /// How long every packet takes.
    pub(crate) delay: Duration,
    /// How much longer a reordered one takes.
    pub(crate) late: Duration,
}

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// From the kernel to the endpoint.
    In,
    /// From the endpoint to the kernel.
    Out,
}

/// Packets on their way, by when they arrive.
pub(crate) struct Wire {
    impairment: Impairment,
    random: SplitMix,
    held: BTreeMap<(Time, u64), (Way, Vec<u8>)>,
    serial: u64,
    /// Data packets seen, in and out.
    data: [u64; 2],
    /// When the bottleneck has done with what came so far, in and out.
    free: [Time; 2],
    pub(crate) dropped: u64,
    capture: Option<Writer<BufWriter<File>>>,
    /// Packets from the kernel that said they are capable of ECN.
    pub(crate) capable: u64,
    pub(crate) marked: u64,
}

impl Wire {
    pub(crate) fn new(impairment: Impairment, seed: u64) -> Wire {
        let random = SplitMix::new(seed);
        Wire {
            impairment,
            random,
            held: BTreeMap::new(),
            serial: 0,
            data: [0; 2],
            free: [Time::ZERO; 2],
            dropped: 0,
            capture: None,
            capable: 0,
            marked: 0,
        }
    }

    fn chance(&mut self, percent: f64) -> bool {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * 100.0 < percent
    }

    /// Captures into a file what comes from either side, with a comment on what is dropped.
    pub(crate) fn capture(&mut self, path: &Path) -> io::Result<()> {
        let mut writer = Writer::new(BufWriter::new(File::create(path)?))?;
        writer.interface("link")?;
        self.capture = Some(writer);
        Ok(())
    }

    /// Ends the capture.
    pub(crate) fn finish_capture(&mut self) -> io::Result<()> {
        self.capture.take().map_or(Ok(()), |writer| writer.finish().map(|_| ()))
    }

    /// A packet begins its way.
    pub(crate) fn put(&mut self, now: Time, way: Way, packet: &[u8]) -> io::Result<()> {
        let listed = packet.len() >= DATA && {
            let data = &mut self.data[usize::from(way == Way::Out)];
            *data += 1;
            self.impairment.lose.contains(data)
        };
        let why = if listed {
            Some("dropped: listed")
        } else if self.chance(self.impairment.loss) {
            Some("dropped: lost at random")
        } else {
            (self.held.len() >= MOST_HELD).then_some("dropped: no room")
        };
        if let Some(capture) = &mut self.capture {
            let direction = if way == Way::In { Direction::Inbound } else { Direction::Outbound };
            capture.packet(0, now.as_nanos(), direction, [packet, &[]], why)?;
        }
        if why.is_some() {
            self.dropped += 1;
            return Ok(());
        }
        let mut packet = packet.to_vec();
        if let Some((addressing, _)) = parse(&packet)
            && addressing.ecn.is_capable()
        {
            self.capable += u64::from(way == Way::In);
            if self.chance(self.impairment.mark) {
                self.marked += 1;
                mark(&mut packet);
            }
        }
        let copies = 1 + u32::from(self.chance(self.impairment.duplicate));
        for _ in 0..copies {
            let mut at = self.served(now, way, packet.len()) + self.impairment.delay;
            if self.chance(self.impairment.reorder) {
                at += self.impairment.late;
            }
            self.serial += 1;
            self.held.insert((at, self.serial), (way, packet.clone()));
        }
        Ok(())
    }

    pub(crate) fn has_bottleneck(&self) -> bool {
        self.impairment.rate > 0
    }

    /// When the bottleneck has done with a packet that comes now.
    fn served(&mut self, now: Time, way: Way, length: usize) -> Time {
        if self.impairment.rate == 0 {
            return now;
        }
        let free = &mut self.free[usize::from(way == Way::Out)];
        let nanos = length as u64 * 8 * 1_000_000_000 / self.impairment.rate;
        *free = (*free).max(now) + Duration::from_nanos(nanos);
        *free
    }

    /// Data packets put on the link this way so far, lost ones too.
    pub(crate) fn data_packets(&self, way: Way) -> u64 {
        self.data[usize::from(way == Way::Out)]
    }

    /// The next packet that has arrived.
    pub(crate) fn take(&mut self, now: Time) -> Option<(Way, Vec<u8>)> {
        let first = self.held.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// When the next one arrives.
    pub(crate) fn next(&self) -> Option<Time> {
        self.held.first_key_value().map(|(key, _)| key.0)
    }
}

/// Reads an IP header: addressing, and where the payload is. `None` for what is no whole packet of
/// the endpoint's protocol.
pub(crate) fn parse(packet: &[u8]) -> Option<(Addressing, &[u8])> {
    match packet.first()? >> 4 {
        4 => {
            let length = usize::from(packet[0] & 15) * 4;
            let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
            let address = |at: usize| -> Option<IpAddr> {
                Some(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?.into())
            };
            let addressing = Addressing {
                ecn: Ecn::from_bits(*packet.get(1)?),
                ..Addressing::new(address(12)?, address(16)?, *packet.get(9)?)
            };
            Some((addressing, packet.get(length..total)?))
        }
        6 => {
            let address = |at: usize| -> Option<IpAddr> {
                Some(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?.into())
            };
            let addressing = Addressing {
                ecn: Ecn::from_bits(packet.get(1)? >> 4),
                ..Addressing::new(address(8)?, address(24)?, *packet.get(6)?)
            };
            let length = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
            Some((addressing, packet.get(40..40 + length)?))
        }
        _ => None,
    }
}

/// Marks a packet as having met congestion.
fn mark(packet: &mut [u8]) {
    if packet[0] >> 4 == 6 {
        packet[1] |= Ecn::Ce.bits() << 4;
    } else {
        packet[1] |= Ecn::Ce.bits();
        packet[10..12].fill(0);
        let check = header_checksum(&packet[..usize::from(packet[0] & 15) * 4]);
        packet[10..12].copy_from_slice(&check);
    }
}

/// The checksum of an IPv4 header whose own is zero.
fn header_checksum(header: &[u8]) -> [u8; 2] {
    let words =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Puts an IP header before a payload.
pub(crate) fn wrap(addressing: &Addressing, payload: &[u8]) -> Vec<u8> {
    const HOPS: u8 = 64;
    let mut packet = Vec::with_capacity(40 + payload.len());
    match (addressing.source, addressing.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = (20 + payload.len()) as u16;
            packet.extend_from_slice(&[0x45, addressing.ecn.bits()]);
            packet.extend_from_slice(&total.to_be_bytes());
            packet.extend_from_slice(&[0, 0, 0x40, 0, HOPS, addressing.protocol, 0, 0]);
            packet.extend_from_slice(&source.octets());
            packet.extend_from_slice(&destination.octets());
            let check = header_checksum(&packet);
            packet[10..12].copy_from_slice(&check);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            packet.extend_from_slice(&[0x60, addressing.ecn.bits() << 4, 0, 0]);
            packet.extend_from_slice(&(payload.len() as u16).to_be_bytes());
            packet.extend_from_slice(&[addressing.protocol, HOPS]);
            packet.extend_from_slice(&source.octets());
            packet.extend_from_slice(&destination.octets());
        }
        _ => {}
    }
    packet.extend_from_slice(payload);
    packet
}

/// Hands a packet to the kernel; one for which there is no room is lost, as on a link.
pub(crate) fn deliver(tun: &Tun, packet: &[u8]) -> io::Result<()> {
    match tun.write(packet) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}
