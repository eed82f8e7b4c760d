//! Connections over SCTP, in UDP or directly over IP: an association for each.
//!
//! Connections do not share an association, although it has many streams: SCTP has one receive window for all of them,
//! so that a connection whose program does not read would stop the others.
//!
//! A listener of port N has SCTP port N, and in UDP also UDP port N, so that a peer who knows the port of TCP knows the
//! others.

use super::locals;
use super::opened::{Information, Opened, Received};
use crate::locking::lock;
use bytes::Bytes;
use ringway_sansio::Duration;
use ringway_sctp_tokio::{
    AcceptError, Association, Close, Config, Connect, ConnectError, Listener, Over,
    Received as Part, SendOptions, Settings, Stack,
};
use ringway_with_wire::stream::{self, DATA, Delivery, FIN, FIN_PAYLOAD, Piece, Receiving};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::task::Poll;

/// Messages that are taken at once.
const MAX_TAKEN: usize = 64;
/// Time that an orderly end may take.
const CLOSE: Duration = Duration::from_secs(60);
/// Time between two looks at the addresses of the host.
const REFRESH: Duration = Duration::from_secs(3);
/// Octets that SCTP adds to a segment: headers of IPv4 or IPv6, UDP, SCTP and a chunk.
const HEADERS: usize = 40 + 8 + 12 + 16;

/// How packets travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Below {
    Udp,
    Ip,
}

impl Below {
    pub(super) fn title(self) -> &'static str {
        match self {
            Below::Udp => "SCTP in UDP",
            Below::Ip => "SCTP over IP",
        }
    }
}

/// The stacks that all connections share; each is opened when it is first needed.
#[derive(Default)]
pub(super) struct Stacks {
    /// For connections that are opened here, at any UDP port.
    udp: Mutex<Option<Stack>>,
    ip: Mutex<Option<Stack>>,
}

fn settings() -> Settings {
    Settings {
        outbound_streams: 1,
        inbound_streams: 1,
        receive_buffer: 2 << 20,
        send_buffer: 2 << 20,
        // What was lost with a path arrives by another at once.
        rack: true,
        probe_elsewhere: true,
        heartbeat_interval: Some(Duration::from_secs(5)),
        ..Settings::default()
    }
}

/// Returns an error with the number that the system would have for it.
fn failed(error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    if error.raw_os_error().is_some() {
        return error;
    }
    match error.kind() {
        io::ErrorKind::TimedOut => io::Error::from_raw_os_error(libc::ETIMEDOUT),
        io::ErrorKind::AddrNotAvailable => io::Error::from_raw_os_error(libc::EADDRNOTAVAIL),
        // However an association has ended.
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::NotConnected
        | io::ErrorKind::ResourceBusy => io::Error::from_raw_os_error(libc::ECONNRESET),
        _ => error,
    }
}

/// As [`failed`], for an association that never stood: an ABORT is a refusal then.
fn not_opened(error: ConnectError) -> io::Error {
    match error {
        ConnectError::Closed(Close::Aborted { .. }) => {
            io::Error::from_raw_os_error(libc::ECONNREFUSED)
        }
        error => failed(error),
    }
}

impl Stacks {
    /// Returns the stack for connections that are opened here.
    fn outgoing(&self, below: Below) -> io::Result<Stack> {
        let (slot, over) = match below {
            Below::Udp => (&self.udp, Over::Udp { locals: wildcards(), port: 0 }),
            Below::Ip => (&self.ip, Over::Ip),
        };
        let mut slot = lock(slot);
        if let Some(stack) = &*slot {
            return Ok(stack.clone());
        }
        let config = Config { settings: settings(), ..Config::new(over) };
        let stack = Stack::new(config).map_err(failed)?;
        Ok(slot.insert(stack).clone())
    }

    /// Waits until what is due has been sent.
    pub(super) async fn flush(&self) {
        let stacks = [lock(&self.udp).clone(), lock(&self.ip).clone()];
        for stack in stacks.into_iter().flatten() {
            stack.flush().await;
        }
    }

    /// Opens a connection from one of several local addresses, or from the one that the program has bound.
    pub(super) async fn connect(
        &self,
        below: Below,
        peer: SocketAddr,
        bound: Option<SocketAddr>,
        several: bool,
    ) -> io::Result<Opened<SctpTransport>> {
        let named = bound.map(|bound| bound.ip()).filter(|ip| !ip.is_unspecified());
        let from = match named {
            Some(ip) => vec![ip],
            None => locals::towards(peer.ip(), several)
                .ok_or_else(|| io::Error::from_raw_os_error(libc::ENETUNREACH))?,
        };
        let connect = Connect {
            local_port: bound.map_or(0, |bound| bound.port()),
            encapsulation: peer.port(),
            ..Connect::new(&from, &[peer.ip()], peer.port())
        };
        let stack = self.outgoing(below)?;
        let opened = stack.connect(&connect).await;
        let association = opened.map_err(not_opened)?;
        opened_by(association, below)
    }

    /// Listens at an address.
    pub(super) fn listen(
        &self,
        below: Below,
        local: SocketAddr,
        dual: bool,
    ) -> io::Result<SctpListener> {
        let wild = local.ip().is_unspecified();
        let mut addresses = vec![local.ip()];
        if dual && wild && local.is_ipv6() {
            addresses.push(Ipv4Addr::UNSPECIFIED.into());
        }
        let port = local.port();
        let stack = match below {
            Below::Ip => self.outgoing(Below::Ip)?,
            Below::Udp => {
                let over = Over::Udp { locals: addresses.clone(), port };
                let config = Config { settings: settings(), ..Config::new(over) };
                Stack::new(config).map_err(failed)?
            }
        };
        let joined = wild.then(|| Joined {
            stack: stack.clone(),
            ipv4: below == Below::Ip || addresses.iter().any(IpAddr::is_ipv4),
            ipv6: below == Below::Ip || addresses.iter().any(IpAddr::is_ipv6),
        });
        if let Some(joined) = &joined {
            joined.refresh();
        }
        let listen = |ip: &IpAddr| stack.listen(&[*ip], port, None).map_err(failed);
        let listeners = addresses.iter().map(listen).collect::<io::Result<_>>()?;
        Ok(SctpListener { listeners, below, joined })
    }
}

/// Returns the wildcards of the families that the host has.
fn wildcards() -> Vec<IpAddr> {
    let mut wildcards = vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    if std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok() {
        wildcards.push(Ipv6Addr::UNSPECIFIED.into());
    }
    wildcards
}

/// Listeners at the same port, one for each family.
pub(crate) struct SctpListener {
    listeners: Vec<Listener>,
    below: Below,
    /// At wildcards.
    joined: Option<Joined>,
}

/// A stack whose associations use all addresses that the host has. In UDP another stack, of another listener, may have the
/// port of the other family.
struct Joined {
    stack: Stack,
    ipv4: bool,
    ipv6: bool,
}

impl Joined {
    fn refresh(&self) {
        let has = |ip: &IpAddr| if ip.is_ipv4() { self.ipv4 } else { self.ipv6 };
        let addresses: Vec<IpAddr> = locals::all().into_iter().filter(has).collect();
        self.stack.join_addresses(&addresses);
    }
}

impl SctpListener {
    pub(super) async fn accept(&self) -> io::Result<Opened<SctpTransport>> {
        loop {
            let accepted = tokio::select! {
                accepted = self.next() => accepted.map_err(failed)?,
                () = tokio::time::sleep(REFRESH) => {
                    if let Some(joined) = &self.joined {
                        joined.refresh();
                    }
                    continue;
                }
            };
            // One that has ended again has no paths.
            if let Ok(opened) = opened_by(accepted, self.below) {
                return Ok(opened);
            }
        }
    }

    /// Waits for the next association at any of the listeners.
    async fn next(&self) -> Result<Association, AcceptError> {
        poll_fn(|cx| {
            let mut accepted = self.listeners.iter().map(|listener| listener.poll_accept(cx));
            accepted.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }
}

fn opened_by(association: Association, below: Below) -> io::Result<Opened<SctpTransport>> {
    let paths = association.paths().map_err(failed)?;
    let (local, remote) = association.ports().map_err(failed)?;
    let primary = paths.iter().find(|path| path.primary).or(paths.first());
    let primary = primary.ok_or(io::ErrorKind::NotConnected)?;
    let (local, peer) = ((primary.local, local).into(), (primary.remote, remote).into());
    let transport = SctpTransport { association, below, receiving: Mutex::default() };
    Ok(Opened { transport, local, peer })
}

/// A connection over SCTP.
pub(crate) struct SctpTransport {
    association: Association,
    below: Below,
    /// The receiving direction, which one task at a time has.
    receiving: Mutex<Buffered>,
}

#[derive(Default)]
struct Buffered {
    receiving: Receiving,
    parts: Vec<Part>,
}

fn options(ppid: u32) -> SendOptions {
    SendOptions { ppid, ..SendOptions::default() }
}

impl SctpTransport {
    pub(super) fn association(&self) -> &Association {
        &self.association
    }

    pub(super) fn title(&self) -> String {
        let title = self.below.title();
        match self.association.paths().map_or(0, |paths| paths.len()) {
            0 => title.to_owned(),
            1 => format!("{title}, 1 path"),
            paths => format!("{title}, {paths} paths"),
        }
    }

    pub(super) async fn send(&self, bytes: Bytes) -> io::Result<()> {
        self.association.send(bytes, &options(DATA)).await.map_err(failed)
    }

    pub(super) async fn finish(&self) -> io::Result<()> {
        let end = Bytes::from_static(FIN_PAYLOAD);
        self.association.send(end, &options(FIN)).await.map_err(failed)
    }

    pub(super) async fn receive(&self, out: &mut Vec<u8>) -> io::Result<Received> {
        if lock(&self.receiving).receiving.is_ended() {
            return Ok(Received::End);
        }
        let before = out.len();
        let mut parts = std::mem::take(&mut lock(&self.receiving).parts);
        let taken = self.association.recv_many_into(out, &mut parts, MAX_TAKEN).await;
        let count = taken.map_err(failed)?;
        // A peer that shuts down has sent all there is.
        if count == 0 {
            return Ok(Received::End);
        }
        let mut buffered = lock(&self.receiving);
        let kept = take(&mut buffered.receiving, &parts, out.len() - before);
        parts.clear();
        buffered.parts = parts;
        match kept {
            // The end is reported by the next call, once the bytes before it are read.
            Ok(kept) if kept > 0 => {
                out.truncate(before + kept);
                Ok(Received::Bytes)
            }
            Ok(_) => {
                out.truncate(before);
                Ok(Received::End)
            }
            Err(violation) => {
                out.truncate(before);
                // It has ended, if it cannot be aborted.
                let _ = self.association.abort(violation.to_string().as_bytes());
                Err(io::Error::from_raw_os_error(libc::ECONNRESET))
            }
        }
    }

    pub(super) fn abort(&self) {
        // It has ended, if it cannot be aborted.
        let _ = self.association.abort(stream::RESET);
    }

    pub(super) async fn close(&self) {
        // What remains is gone after that time; the peer has what it was sent, or is not there.
        let _ = tokio::time::timeout(CLOSE, self.association.shutdown()).await;
    }
}

/// Takes the parts of messages in. Returns how many of the octets are bytes of the stream; what follows those is the end.
fn take(
    receiving: &mut Receiving,
    parts: &[Part],
    octets: usize,
) -> Result<usize, stream::Violation> {
    let mut kept = 0;
    for part in parts {
        let &Part { stream, ppid, unordered, cut, len, .. } = part;
        let delivery = Delivery { stream, ppid, unordered, cut, length: len };
        match receiving.take(&delivery)? {
            Piece::Bytes => kept += len,
            Piece::End => {}
        }
    }
    Ok(kept.min(octets))
}

/// Returns the state of an association in terms of TCP.
pub(super) fn information(association: &Association) -> Information {
    let Ok(snapshot) = association.statistics() else { return Information::default() };
    let primary = snapshot.paths.iter().find(|path| path.primary).or(snapshot.paths.first());
    let Some(path) = primary else { return Information::default() };
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let mss = number(path.mtu.saturating_sub(HEADERS).max(1));
    Information {
        rtt: path.srtt.unwrap_or_default(),
        rto: path.rto,
        mss,
        mtu: number(path.mtu),
        cwnd: path.cwnd / mss,
        ssthresh: path.ssthresh / mss,
        unacknowledged: number(snapshot.unacknowledged),
        retransmissions: u32::try_from(snapshot.totals.retransmits).unwrap_or(u32::MAX),
    }
}
