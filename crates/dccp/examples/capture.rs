//! Writes a capture (pcapng, raw IP) of two connections in virtual time, with losses, one for each
//! congestion control. `capture FILE`

use ringway_dccp::{Ccid, Dccp, Event, Limits, PROTOCOL, SendOptions, Settings};
use ringway_sansio::pcapng::{Direction, Writer};
use ringway_sansio::{Addressing, Duration, Endpoint, SplitMix, Time};
use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};

const SERVICE: u32 = u32::from_be_bytes(*b"CHAT");
const DELAY: Duration = Duration::from_millis(10);
/// Of so many packets, the last is lost.
const LOSS: u64 = 23;

/// Returns the checksum of an IPv4 header.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the header of IPv4.
fn ip_header(way: &Addressing, length: usize) -> Vec<u8> {
    let mut out = vec![0x45, way.ecn.bits()];
    out.extend_from_slice(&(20 + length as u16).to_be_bytes());
    out.extend_from_slice(&[0, 0, 0x40, 0, 64, PROTOCOL, 0, 0]);
    for address in [way.source, way.destination] {
        if let IpAddr::V4(v4) = address {
            out.extend_from_slice(&v4.octets());
        }
    }
    let sum = checksum(&out);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    out
}

/// A packet on its way: when it arrives, at which host, and what it is.
type Flying = (Time, usize, Addressing, Vec<u8>);

/// Moves what both hosts have to send into the capture and onto the wire.
fn flush(
    hosts: &mut [Dccp; 2],
    now: Time,
    wire: &mut VecDeque<Flying>,
    count: &mut u64,
    out: &mut Writer<File>,
) -> Result<(), Box<dyn Error>> {
    for (index, host) in hosts.iter_mut().enumerate() {
        let mut bytes = Vec::new();
        while let Some(way) = host.poll_transmit(now, &mut bytes) {
            let parts = [&ip_header(&way, bytes.len())[..], &bytes[..]];
            out.packet(0, now.as_nanos(), Direction::Outbound, parts, None)?;
            *count += 1;
            if !count.is_multiple_of(LOSS) {
                wire.push_back((now + DELAY, 1 - index, way, bytes.clone()));
            }
            bytes.clear();
        }
    }
    Ok(())
}

/// Opens a connection, sends messages both ways for a second, and closes it.
fn run(settings: Settings, limits: Limits, out: &mut Writer<File>) -> Result<(), Box<dyn Error>> {
    let host = |seed| Dccp::new(limits, settings, Box::new(SplitMix::new(seed)));
    let mut hosts = [host(1)?, host(2)?];
    let server = SocketAddr::from(([10, 0, 0, 2], 5001));
    hosts[1].listen(server, &[SERVICE], None)?;
    let mut now = Time::from_secs(1_700_000_000);
    let end = now + Duration::from_secs(1);
    hosts[0].connect(now, SocketAddr::from(([10, 0, 0, 1], 0)), server, SERVICE, None)?;
    let (mut wire, mut count, mut open, mut ended) = (VecDeque::new(), 0, [None; 2], [false; 2]);
    loop {
        flush(&mut hosts, now, &mut wire, &mut count, out)?;
        for (index, host) in hosts.iter_mut().enumerate() {
            while let Some(event) = host.poll_event() {
                match event {
                    Event::Open { id, .. } => open[index] = Some(id),
                    Event::Closed(..) => (open[index], ended[index]) = (None, true),
                    _ => {}
                }
            }
            let Some(id) = open[index] else { continue };
            if now < end {
                // A full queue is what the example wants.
                let _ = host.send(now, id, vec![index as u8; 300], SendOptions::default());
            } else if index == 1 {
                host.close(now, id)?;
            }
            while host.recv(id)?.is_some() {}
        }
        flush(&mut hosts, now, &mut wire, &mut count, out)?;
        let arrival = wire.front().map(|flying| flying.0);
        let times = [arrival, hosts[0].poll_timeout(), hosts[1].poll_timeout()];
        // The wait in TIMEWAIT sends nothing.
        let Some(next) = times.into_iter().flatten().min().filter(|_| ended != [true; 2]) else {
            return Ok(());
        };
        now = now.max(next);
        if wire.front().is_some_and(|flying| flying.0 <= now)
            && let Some((_, index, way, bytes)) = wire.pop_front()
        {
            hosts[index].handle_packet(now, way, &bytes);
        }
        for host in &mut hosts {
            if host.poll_timeout().is_some_and(|at| at <= now) {
                host.handle_timeout(now);
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("expected the name of a file, got none")?;
    let mut out = Writer::new(File::create(path)?)?;
    out.interface("a-b")?;
    for (ccid, half_open) in [(Ccid::TcpLike, 8), (Ccid::Tfrc, 0)] {
        let settings = Settings {
            ccid,
            short_seqnos: ccid == Ccid::Tfrc,
            ndp_count: true,
            coverage: 2,
            min_coverage: 1,
            data_checksum: true,
            loss_event_rate: true,
            sequence_window: 300,
            ..Settings::default()
        };
        // Without half-open connections the handshake needs an Init Cookie.
        run(settings, Limits { half_open, ..Limits::default() }, &mut out)?;
    }
    out.finish()?;
    Ok(())
}
