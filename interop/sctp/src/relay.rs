//! A link between two UDP ports, as bad as asked for: whoever writes to one is answered from it, and
//! the other writes to the server. What passes can be captured.

use nix::sys::socket::{setsockopt, sockopt};
use ringway_link::{Departure, DropReason, InFlight, Link, LinkConfig, Outlet, Packet, Streams};
use ringway_os::Clock;
use ringway_sansio::pcapng::{Direction, Writer};
use ringway_sansio::{Ecn, Time};
use std::fs::File;
use std::io::{self, BufWriter};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UdpSocket;

/// Most datagrams on their way; more are dropped.
const MOST: usize = 65_536;
/// Bytes of IP and UDP headers.
const HEADERS: usize = 28;
/// Largest datagram.
const DATAGRAM: usize = 65_536;
/// Receive buffer asked for, so that what is lost is lost by the link.
const RECEIVE: usize = 8 << 20;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the client writes to
    #[arg(long)]
    listen: SocketAddrV4,
    /// Where the server is
    #[arg(long)]
    server: SocketAddrV4,
    /// Where the server is written to from
    #[arg(long)]
    from: SocketAddrV4,
    /// The link each way, as JSON
    #[arg(long, default_value = "{}")]
    link: String,
    /// Milliseconds after which the server is written to from another port, as by a NAT that forgot
    #[arg(long)]
    rebind: Option<u64>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes what passes into this file
    #[arg(long)]
    capture: Option<PathBuf>,
}

/// What is on its way in one direction.
struct Side {
    link: Link,
    held: Held,
}

/// Datagrams by their handles.
#[derive(Default)]
struct Held {
    bytes: Vec<Vec<u8>>,
    free: Vec<u32>,
    flight: InFlight,
    dropped: u64,
    /// Why the last one was dropped.
    reason: Option<DropReason>,
}

impl Held {
    fn put(&mut self, bytes: Vec<u8>) -> Option<u32> {
        if let Some(id) = self.free.pop() {
            self.bytes[id as usize] = bytes;
            return Some(id);
        }
        if self.bytes.len() >= MOST {
            return None;
        }
        self.bytes.push(bytes);
        Some(self.bytes.len() as u32 - 1)
    }
}

impl Outlet for Held {
    fn departs(&mut self, departure: Departure) {
        self.flight.push(departure);
    }

    fn dropped(&mut self, _: Time, packet: Packet, reason: DropReason) {
        self.free.push(packet.id);
        self.dropped += 1;
        self.reason = Some(reason);
    }

    fn copy(&mut self, packet: Packet) -> Option<u32> {
        self.put(self.bytes[packet.id as usize].clone())
    }

    fn bytes(&mut self, packet: &Packet) -> &[u8] {
        &self.bytes[packet.id as usize]
    }
}

impl Side {
    fn new(config: &LinkConfig, name: &str, seed: u64, now: Time) -> Result<Side, String> {
        let link = Link::new(config.clone(), name, &Streams::new(seed, 1), now);
        Ok(Side { link: link.map_err(|error| error.to_string())?, held: Held::default() })
    }

    /// A datagram begins its way; why it does not, where that is known at once.
    fn offer(&mut self, now: Time, datagram: &[u8]) -> Option<&'static str> {
        let Some(id) = self.held.put(datagram.to_vec()) else {
            self.held.dropped += 1;
            return Some("no room");
        };
        let size = (datagram.len() + HEADERS) as u32;
        self.held.reason = None;
        self.link.offer(now, Packet::new(id, size, 0, Ecn::NotEct), &mut self.held);
        self.held.reason.map(DropReason::as_str)
    }

    fn next(&self) -> Option<Time> {
        [self.link.poll_timeout(), self.held.flight.next()].into_iter().flatten().min()
    }

    /// The next datagram that has arrived.
    fn take(&mut self, now: Time) -> Option<Vec<u8>> {
        self.link.poll(now, &mut self.held);
        let departure = self.held.flight.pop(now)?;
        let id = departure.packet.id;
        let bytes = std::mem::take(&mut self.held.bytes[id as usize]);
        self.held.free.push(id);
        Some(bytes)
    }
}

/// Captures with the headers that a datagram would have had.
struct Capture(Option<Writer<BufWriter<File>>>);

impl Capture {
    fn open(path: Option<&PathBuf>) -> io::Result<Capture> {
        let Some(path) = path else { return Ok(Capture(None)) };
        let mut writer = Writer::new(BufWriter::new(File::create(path)?))?;
        writer.interface("link")?;
        Ok(Capture(Some(writer)))
    }

    fn write(
        &mut self,
        now: Time,
        direction: Direction,
        [from, to]: [SocketAddrV4; 2],
        datagram: &[u8],
        dropped: Option<&str>,
    ) -> io::Result<()> {
        let Some(writer) = &mut self.0 else { return Ok(()) };
        let mut headers = [0; HEADERS];
        headers[..2].copy_from_slice(&[0x45, 0]);
        headers[2..4].copy_from_slice(&((HEADERS + datagram.len()) as u16).to_be_bytes());
        headers[6..10].copy_from_slice(&[0x40, 0, 64, 17]);
        headers[12..16].copy_from_slice(&from.ip().octets());
        headers[16..20].copy_from_slice(&to.ip().octets());
        headers[20..22].copy_from_slice(&from.port().to_be_bytes());
        headers[22..24].copy_from_slice(&to.port().to_be_bytes());
        headers[24..26].copy_from_slice(&((8 + datagram.len()) as u16).to_be_bytes());
        let mut sum: u32 = headers[..20]
            .chunks_exact(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        sum = (sum & 0xffff) + (sum >> 16);
        let check = !(((sum & 0xffff) + (sum >> 16)) as u16);
        headers[10..12].copy_from_slice(&check.to_be_bytes());
        let comment = dropped.map(|reason| format!("dropped: {reason}"));
        writer.packet(0, now.as_nanos(), direction, [&headers, datagram], comment.as_deref())
    }

    fn finish(self) -> io::Result<()> {
        self.0.map_or(Ok(()), |writer| writer.finish().map(|_| ()))
    }
}

async fn bind(at: SocketAddrV4) -> Result<UdpSocket, String> {
    let socket = UdpSocket::bind(at).await.map_err(|error| format!("{at}: {error}"))?;
    // Where more is not allowed, as much as there is.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE);
    Ok(socket)
}

/// Carries datagrams until it is told to end.
pub(crate) async fn run(options: Options) -> Result<bool, String> {
    let text = |error: io::Error| error.to_string();
    let config: LinkConfig =
        serde_json::from_str(&options.link).map_err(|error| format!("--link: {error}"))?;
    let clock = Clock::new();
    let side = |name| Side::new(&config, name, options.seed, clock.now());
    let (mut there, mut back) = (side("there")?, side("back")?);
    let mut capture = Capture::open(options.capture.as_ref()).map_err(text)?;
    let near = bind(options.listen).await?;
    let mut far = bind(options.from).await?;
    let mut forgotten = None;
    let mut rebind =
        options.rebind.map(|ms| tokio::time::Instant::now() + Duration::from_millis(ms));
    let mut client = None;
    let [mut one, mut other] = [vec![0; DATAGRAM], vec![0; DATAGRAM]];
    let mut ended =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(text)?;
    crate::say("relaying");
    loop {
        let due = [there.next(), back.next()].into_iter().flatten().min();
        let wake = async {
            match due {
                Some(due) => tokio::time::sleep_until(clock.instant(due).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = ended.recv() => break,
            got = near.recv_from(&mut one) => {
                let Ok((length, std::net::SocketAddr::V4(peer))) = got else { continue };
                client = Some(peer);
                let (now, datagram) = (clock.now(), &one[..length]);
                let dropped = there.offer(now, datagram);
                let ends = [peer, options.listen];
                capture.write(now, Direction::Outbound, ends, datagram, dropped).map_err(text)?;
            }
            got = far.recv_from(&mut other) => {
                let (Ok((length, _)), Some(peer)) = (got, client) else { continue };
                let (now, datagram) = (clock.now(), &other[..length]);
                let dropped = back.offer(now, datagram);
                let ends = [options.listen, peer];
                capture.write(now, Direction::Inbound, ends, datagram, dropped).map_err(text)?;
            }
            () = wake => {}
            () = tokio::time::sleep_until(rebind.unwrap_or_else(tokio::time::Instant::now)), if rebind.is_some() => {
                rebind = None;
                // The port of before swallows what comes to it: nobody there is told.
                forgotten = Some(std::mem::replace(
                    &mut far,
                    bind(SocketAddrV4::new(*options.from.ip(), 0)).await?,
                ));
                crate::say("rebound");
            }
        }
        // What a socket does not take is lost, as on a link.
        while let Some(datagram) = there.take(clock.now()) {
            let _ = far.send_to(&datagram, options.server).await;
        }
        while let Some(datagram) = back.take(clock.now()) {
            if let Some(client) = client {
                let _ = near.send_to(&datagram, client).await;
            }
        }
    }
    drop(forgotten);
    capture.finish().map_err(text)?;
    crate::say(&format!("dropped={}", there.held.dropped + back.held.dropped));
    Ok(true)
}
