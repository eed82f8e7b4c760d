//! SCTP's packets on sockets: in UDP (RFC 6951), a socket for each of our addresses, with trains both
//! ways; or right above IP as protocol 132, a raw socket for each family.

use super::carrier::{Carrier, DownAddresses, ErrorSource, ErrorWatch, Outgoing, Traffic};
use super::error::Error;
use super::fragments::{Cut, Fragmenter};
use super::limits::MAX_UDP_ADDRESSES;
use super::locals::{Locals, check_scope};
use super::moderation::Moderated;
use super::opening::{self, BoundSocket, UDP_PORT};
use super::ports::{DESTINATION, Held, Ports};
use crate::sys::{
    After, Datagram, RECEIVE_BATCH, ReceiveBatch, Reception, SEND_BATCH, SendBatch, path_mtu,
    set_option, watch_errors, watch_reading,
};
use ringway_sansio::{Addressing, Ecn, Icmp};
use ringway_sctp::PROTOCOL;
use smallvec::SmallVec;
use socket2::{Domain, Socket};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// Times a packet is tried again because the error may have been an older one of the socket.
const SEND_RETRIES: u8 = 2;

/// How much of a packet that could not be sent is told: its header and the beginning of an INIT.
const QUOTE: usize = 64;

/// Where the destination port stands in a packet.
const PORT_FIELD: Range<usize> = DESTINATION as usize..DESTINATION as usize + 2;

/// Most datagrams of one train (UDP_MAX_SEGMENTS of linux/udp.h).
const TRAIN_PACKETS: usize = 64;

/// Most bytes of one train: the largest UDP payload over IPv4.
const TRAIN_BYTES: usize = 65_507;

/// One socket.
struct Port {
    io: Io,
    /// The address bound to, which may be a wildcard; port 0 right above IP.
    local: SocketAddr,
}

enum Io {
    Udp(Arc<AsyncFd<Socket>>),
    Ip(Moderated),
}

impl Port {
    /// To be called within a runtime.
    fn new((socket, local): BoundSocket) -> io::Result<Port> {
        let io = match local.port() {
            0 => Io::Ip(Moderated::new(socket)?),
            _ => Io::Udp(Arc::new(watch_reading(socket)?)),
        };
        Ok(Port { io, local })
    }

    fn socket(&self) -> &Socket {
        match &self.io {
            Io::Udp(io) => io.get_ref(),
            Io::Ip(moderated) => moderated.socket(),
        }
    }

    /// To be called within a runtime.
    fn error_source(&self) -> io::Result<ErrorSource> {
        let ip = self.local.ip();
        let errors = match &self.io {
            Io::Udp(io) => ErrorWatch::Shared(io.clone()),
            Io::Ip(moderated) => ErrorWatch::Separate(watch_errors(moderated.socket().clone())?),
        };
        Ok((errors, Some(ip).filter(|ip| !ip.is_unspecified())))
    }

    /// Takes what has come, at most one batch.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut ReceiveBatch,
    ) -> Poll<io::Result<usize>> {
        let io = match &mut self.io {
            Io::Udp(io) => io,
            Io::Ip(moderated) => return moderated.poll_receive(cx, batch),
        };
        while let Poll::Ready(ready) = io.poll_read_ready(cx) {
            let mut ready = ready?;
            match batch.receive(io.as_fd()) {
                Ok(got) => {
                    // recvmmsg stops early only when the queue is empty.
                    if got < RECEIVE_BATCH {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(got));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Pending
    }
}

/// The sockets of a stack, in UDP or right above IP.
pub(super) struct Sockets {
    ports: Vec<Port>,
    /// The socket that the packets in `received` came by, and the one to ask next.
    current: usize,
    received: ReceiveBatch,
    buffers: SendBatch,
    /// Right above IP: the SCTP ports whose packets are ours.
    held: Option<Arc<Held>>,
    /// Whether the system takes trains.
    trains: bool,
    /// So many packets more are sent one by one, because the train they made was refused.
    singly: usize,
    fragmenter: Fragmenter,
    /// Our addresses that cannot be used now.
    down: DownAddresses,
    refused: Vec<(Addressing, Icmp, Vec<u8>)>,
    traffic: Traffic,
}

/// Sockets that are open and not yet used, so that what cannot be had is known before anything runs.
pub(crate) struct Opened {
    sockets: Vec<BoundSocket>,
    /// Right above IP: who holds which port.
    pub(super) ports: Option<Ports>,
    /// Our UDP port, in UDP.
    pub(crate) udp_port: Option<u16>,
}

/// Whether this process may use SCTP right above IP, and nobody would answer in its place.
pub fn permitted() -> bool {
    Opened::raw().is_ok()
}

/// Where a kernel whose own SCTP is loaded tells of it. Asking for a socket would load it.
const KERNELS_OWN: &str = "/proc/net/sctp";

impl Opened {
    /// Takes the sockets into the runtime.
    pub(super) fn watch(
        self,
        down: DownAddresses,
    ) -> io::Result<(Sockets, Option<Ports>, Option<Locals>)> {
        let held = self.ports.as_ref().map(Ports::held);
        let addresses = || self.sockets.iter().map(|(_, addr)| addr.ip()).collect();
        let locals = self.udp_port.map(|port| Locals::new(addresses(), port));
        Ok((Sockets::new(self.sockets, held, down)?, self.ports, locals))
    }

    /// Binds the UDP port `port` at each of `locals`, among them perhaps a wildcard of either
    /// family; port 0 is for one that the system chooses, the same at each.
    pub(crate) fn udp(locals: &[IpAddr], mut port: u16) -> Result<Opened, Error> {
        check_scope(locals)?;
        if locals.len() > MAX_UDP_ADDRESSES {
            return Err(Error::Addresses);
        }
        let mut sockets = Vec::with_capacity(locals.len());
        for &local in locals {
            let addr = SocketAddr::new(local, port);
            let failed = |error| Error::system(format!("sctp over udp at {addr}"), error);
            let socket = opening::udp(addr).map_err(failed)?;
            if port == 0 {
                let bound = socket.local_addr().map_err(failed)?;
                port = bound.as_socket().map_or(0, |a| a.port());
            }
            sockets.push((socket, SocketAddr::new(local, port)));
        }
        Ok(Opened { sockets, ports: None, udp_port: Some(port) })
    }

    /// Whether packets from and to all of `locals` go by this UDP port already.
    pub(crate) fn carries(&self, locals: &[IpAddr], port: u16) -> bool {
        let has = |ip: &IpAddr| self.sockets.iter().any(|(_, addr)| addr.ip() == *ip);
        port != 0 && self.udp_port == Some(port) && locals.iter().all(has)
    }

    /// Opens raw sockets of the families that the host has.
    pub(crate) fn raw() -> Result<Opened, Error> {
        let failed = |error| Error::system("sctp over ip", error);
        if std::path::Path::new(KERNELS_OWN).exists() {
            let text = "the kernel's own SCTP is loaded, and would abort the associations it does not \
                        know (sctp over udp works beside it)";
            return Err(failed(io::Error::other(text)));
        }
        let mut sockets = Vec::new();
        for wild in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
            match opening::raw(wild.is_ipv4()) {
                Ok(socket) => sockets.push((socket, SocketAddr::new(wild, 0))),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let what = "sctp over ip needs CAP_NET_RAW (or sctp over udp, which does not)";
                    return Err(Error::system(what, error));
                }
                // A host without the family has none of its addresses.
                Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let copies: io::Result<_> = sockets.iter().map(|(socket, _)| socket.try_clone()).collect();
        let ports = copies.and_then(Ports::new).map_err(failed)?;
        Ok(Opened { sockets, ports: Some(ports), udp_port: None })
    }

    /// Holds an SCTP port for as long as the stack lives; 0 for any. Gives which.
    pub(crate) fn hold(&mut self, port: u16) -> Result<u16, Error> {
        let failed = |error| Error::system(format!("sctp port {port}"), error);
        match &mut self.ports {
            Some(ports) if port == 0 => {
                ports.ephemeral(false).ok_or_else(|| ringway_sctp::Error::NoPort.into())
            }
            Some(ports) => ports.hold(port).map(|()| port).map_err(failed),
            None if port == 0 => Err(Error::Port),
            None => Ok(port),
        }
    }

    /// Refuses addresses that the host does not have. Raw sockets are bound to none.
    pub(crate) fn check(addresses: &[IpAddr]) -> Result<(), Error> {
        for &ip in addresses {
            std::net::UdpSocket::bind((ip, 0))
                .map_err(|error| Error::system(format!("sctp over ip at {ip}"), error))?;
        }
        Ok(())
    }
}

impl Sockets {
    fn new(
        sockets: Vec<BoundSocket>,
        held: Option<Arc<Held>>,
        down: DownAddresses,
    ) -> io::Result<Sockets> {
        Ok(Sockets {
            trains: held.is_none(),
            ports: sockets.into_iter().map(Port::new).collect::<io::Result<_>>()?,
            current: 0,
            received: ReceiveBatch::new(),
            buffers: SendBatch::new(),
            held,
            singly: 0,
            fragmenter: Fragmenter::new(),
            down,
            refused: Vec::new(),
            traffic: Traffic::default(),
        })
    }

    /// The sockets, for who listens for ICMP messages.
    pub(super) fn error_sources(&self) -> io::Result<Vec<ErrorSource>> {
        self.ports.iter().map(Port::error_source).collect()
    }

    /// The socket to send from `source` by, and the address to give it besides.
    fn port_of(&self, source: IpAddr) -> Option<(usize, Option<IpAddr>)> {
        let exact = self.ports.iter().position(|p| p.local.ip() == source);
        let wild =
            |p: &Port| p.local.ip().is_unspecified() && p.local.is_ipv4() == source.is_ipv4();
        match exact {
            Some(place) => Some((place, None)),
            None => self.ports.iter().position(wild).map(|place| (place, Some(source))),
        }
    }

    /// The packets of a reception.
    fn train(&self, index: usize, each: &mut dyn FnMut(Addressing, &[u8])) {
        let Some(reception) = self.received.get(index) else { return };
        let Some((addressing, skip)) = self.addressing(&reception) else { return };
        for packet in reception.datagrams() {
            let Some(packet) = packet.get(skip..) else { return };
            if let Some(held) = &self.held {
                // It may have been queued before the port went to another process.
                let Some(&[high, low]) = packet.get(PORT_FIELD) else { return };
                if !held.has(u16::from_be_bytes([high, low])) {
                    return;
                }
            }
            each(addressing, packet);
        }
    }

    /// The addressing of a reception, and how many bytes stand before the first packet in it.
    fn addressing(&self, reception: &Reception<'_>) -> Option<(Addressing, usize)> {
        let (remote, bound) = (reception.remote, self.ports[self.current].local.ip());
        if self.held.is_some() && bound.is_ipv4() {
            // The IP header comes with it (RFC 791 section 3.1).
            let header = reception.bytes();
            let length = usize::from(header.first()? & 0x0f) * 4;
            let to: [u8; 4] = header.get(16..20)?.try_into().ok()?;
            let addressing = Addressing {
                ecn: Ecn::from_bits(header[1]),
                ..Addressing::new(remote.ip(), to.into(), PROTOCOL)
            };
            return Some((addressing, length));
        }
        let to = if bound.is_unspecified() { reception.local? } else { bound };
        let udp_port = if self.held.is_some() { 0 } else { remote.port() };
        let ecn = Ecn::from_bits(reception.ecn);
        let addressing = Addressing { ecn, udp_port, ..Addressing::new(remote.ip(), to, PROTOCOL) };
        Some((addressing, 0))
    }
}

impl Carrier for Sockets {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        for _ in 0..self.ports.len() {
            self.current = (self.current + 1) % self.ports.len();
            let port = &mut self.ports[self.current];
            let Poll::Ready(got) = port.poll_receive(cx, &mut self.received) else { continue };
            let got = got?;
            self.traffic.receive_calls += 1;
            for train in (0..got).filter_map(|i| self.received.get(i)) {
                let packets = train.datagrams().count() as u64;
                self.traffic.received += packets;
                self.traffic.received_in_trains += if packets > 1 { packets } else { 0 };
            }
            // Right above IP the system coalesces nothing: what came by one call is taken as one train,
            // or each second packet would be acknowledged, at the price of a packet.
            return Poll::Ready(Ok(if self.held.is_some() { got.min(1) } else { got }));
        }
        Poll::Pending
    }

    fn packets(&self, train: usize, each: &mut dyn FnMut(Addressing, &[u8])) {
        if self.held.is_none() {
            return self.train(train, each);
        }
        for index in 0..RECEIVE_BATCH {
            self.train(index, each);
        }
    }

    fn send(&mut self, outgoing: &mut Outgoing) -> bool {
        while !outgoing.is_empty() {
            let attempt = self.attempt(outgoing);
            outgoing.advance(attempt.dealt);
            if !attempt.room {
                self.traffic.no_room += 1;
                return false;
            }
        }
        true
    }

    fn refused(&mut self) -> Vec<(Addressing, Icmp, Vec<u8>)> {
        std::mem::take(&mut self.refused)
    }

    fn traffic(&self) -> Traffic {
        let pauses = |port: &Port| match &port.io {
            Io::Udp(_) => 0,
            Io::Ip(moderated) => moderated.pauses,
        };
        Traffic { pauses: self.ports.iter().map(pauses).sum(), ..self.traffic }
    }

    fn admit(&mut self, bound: BoundSocket) -> Option<ErrorSource> {
        // Without it packets from its address are refused, and their path fails.
        let port = Port::new(bound).ok()?;
        let error_source = port.error_source().ok()?;
        self.ports.push(port);
        Some(error_source)
    }
}

/// What became of one call to send.
struct Attempt {
    /// Packets dealt with.
    dealt: usize,
    /// Whether the socket has room for more.
    room: bool,
}

impl Sockets {
    /// Sends what goes by the same socket as the first packet, in one call.
    fn attempt(&mut self, outgoing: &Outgoing) -> Attempt {
        let batch = gather(outgoing, self.trains && self.singly == 0, self.held.is_none());
        let Some(first) = batch.first() else { return Attempt { dealt: 0, room: true } };
        let source = first.addressing.source;
        let down = self.down.load().contains(&source);
        let Some((place, from)) = self.port_of(source).filter(|_| !down) else {
            // Nothing can be sent from an address that is not there.
            self.traffic.not_sent += first.packets as u64;
            let quote = first.datagram.bytes[..first.datagram.bytes.len().min(QUOTE)].to_vec();
            self.refused.push((first.addressing, Icmp::Unreachable, quote));
            return Attempt { dealt: first.packets, room: true };
        };
        if first.addressing.fragment.is_some()
            && let Some(attempt) = self.send_in_fragments(place, outgoing, first)
        {
            return attempt;
        }
        let like = |t: &&Train<'_>| {
            t.addressing.source == source && t.addressing.fragment == first.addressing.fragment
        };
        let datagrams: SmallVec<[Datagram<'_>; SEND_BATCH]> =
            batch.iter().take_while(like).map(|t| Datagram { from, ..t.datagram }).collect();
        let Sockets { ports, buffers, traffic, trains, singly, refused, .. } = self;
        let socket = ports[place].socket();
        let (mut lost, mut room, mut dealt) = (0, true, 0);
        let mut tried = (usize::MAX, 0);
        traffic.send_calls += 1;
        if first.addressing.fragment.is_some() {
            let _ = may_fragment(socket, true);
        }
        let trains_dealt = buffers.send(socket.as_fd(), &datagrams, |index, code| {
            if code == libc::EAGAIN {
                room = false;
                return After::Stop;
            }
            // With IP_RECVERR a send may tell of an ICMP message about an earlier packet; that
            // error is down once told.
            if tried.0 != index {
                tried = (index, 0);
            }
            if tried.1 < SEND_RETRIES && code != libc::ENOBUFS {
                tried.1 += 1;
                return After::Retry;
            }
            if batch[index].packets > 1 && code != libc::ENOBUFS {
                // A path too narrow for the pieces of this train, or a card that cuts none.
                *singly = batch[index].packets;
                *trains &= code != libc::EIO;
                return After::Stop;
            }
            lost += batch[index].packets as u64;
            refused.extend(fault(&batch[index], code));
            After::Skip
        });
        if first.addressing.fragment.is_some() {
            let _ = may_fragment(socket, false);
        }
        for train in &batch[..trains_dealt] {
            dealt += train.packets;
            if train.packets > 1 {
                traffic.sent_in_trains += train.packets as u64;
            } else {
                *singly = singly.saturating_sub(1);
            }
        }
        traffic.not_sent += lost;
        traffic.sent += dealt as u64 - lost;
        Attempt { dealt, room }
    }
}

impl Sockets {
    /// Sends the first packet in fragments of our own. `None` where this process may not, which leaves it
    /// to the system to fragment it.
    fn send_in_fragments(
        &mut self,
        place: usize,
        outgoing: &Outgoing,
        first: &Train<'_>,
    ) -> Option<Attempt> {
        let (ours, theirs) = (self.ports[place].local.port(), first.datagram.to.port());
        let udp_ports = self.held.is_none().then_some((ours, theirs));
        let cut = self.fragmenter.send(outgoing, udp_ports, &mut self.buffers);
        if matches!(cut, Cut::NotPermitted) {
            return None;
        }
        self.traffic.send_calls += 1;
        let room = !matches!(cut, Cut::NoRoom);
        match cut {
            Cut::Sent => {
                (self.traffic.sent, self.traffic.fragmented) =
                    (self.traffic.sent + 1, self.traffic.fragmented + 1)
            }
            Cut::Refused(code) => {
                self.traffic.not_sent += 1;
                self.refused.extend(fault(first, code));
            }
            Cut::NoRoom | Cut::NotPermitted => {}
        }
        Some(Attempt { dealt: usize::from(room), room })
    }
}

/// What the system's refusal to send a packet says of its path. A full queue says nothing: that is
/// a packet lost as any other.
fn fault(train: &Train<'_>, code: i32) -> Option<(Addressing, Icmp, Vec<u8>)> {
    let icmp = match code {
        libc::ENOBUFS => return None,
        libc::EMSGSIZE => Icmp::TooBig(path_mtu(train.addressing.destination)?),
        _ => Icmp::Unreachable,
    };
    let bytes = train.datagram.bytes;
    Some((train.addressing, icmp, bytes[..bytes.len().min(QUOTE)].to_vec()))
}

/// Says whether what is sent from now on may be fragmented on its way.
fn may_fragment(socket: &Socket, may: bool) -> io::Result<()> {
    use libc::{IPPROTO_IP, IPPROTO_IPV6};
    let ipv4 = socket.domain()? == Domain::IPV4;
    let (level, option, value) = match (ipv4, may) {
        (true, true) => (IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
        (true, false) => (IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        (false, true) => (IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        (false, false) => (IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
    };
    set_option(socket.as_fd(), level, option, value)
}

/// Packets that go together.
struct Train<'a> {
    datagram: Datagram<'a>,
    addressing: Addressing,
    packets: usize,
}

/// What is left to send, as trains where `trains` says so: packets one after the other, of one size
/// but for a shorter last, with the same addressing.
fn gather(outgoing: &Outgoing, trains: bool, udp: bool) -> SmallVec<[Train<'_>; SEND_BATCH]> {
    let mut batch = SmallVec::new();
    let mut left = outgoing.remaining();
    while let Some((addressing, range)) = left.first()
        && batch.len() < SEND_BATCH
    {
        let size = range.len();
        let (mut end, mut packets) = (range.end, 1);
        for (next, piece) in &left[1..] {
            let longest = piece.end - range.start;
            if !trains
                || addressing.fragment.is_some()
                || next != addressing
                || piece.len() > size
                || longest > TRAIN_BYTES
            {
                break;
            }
            (end, packets) = (piece.end, packets + 1);
            if piece.len() < size || packets == TRAIN_PACKETS {
                break;
            }
        }
        // Where a peer's port is not known it is the usual one.
        let port = match addressing.udp_port {
            _ if !udp => 0,
            0 => UDP_PORT,
            port => port,
        };
        let datagram = Datagram {
            bytes: &outgoing.bytes[range.start..end],
            to: SocketAddr::new(addressing.destination, port),
            from: None,
            ecn: addressing.ecn.bits(),
            segment: if packets > 1 { size as u16 } else { 0 },
        };
        batch.push(Train { datagram, addressing: *addressing, packets });
        left = &left[packets..];
    }
    batch
}
