//! SCTP packets on sockets: in UDP (RFC 6951), a socket for each local address, with trains in both
//! directions; or directly over IP as protocol 132, a raw socket for each family.

use super::carrier::{Carrier, DownAddresses, ErrorSource, ErrorWatch, Outgoing, Traffic, tag_of};
use super::error::{OpenError, SystemError};
use super::fragments::{FragmentResult, Fragmenter};
use super::kernel;
use super::limits::MAX_UDP_ADDRESSES;
use super::locals::{Locals, check_scope};
use super::moderation::ModeratedSocket;
use super::opening::{self, BoundSocket, UDP_PORT};
use super::ports::{DESTINATION, PortSet, Ports};
use ringway_os::{
    After, Datagram, RECEIVE_BATCH, ReceiveBatch, Reception, SEND_BATCH, SendBatch, Watched,
    path_mtu, set_option, watch_errors, watch_reading,
};
use ringway_sansio::{Addressing, Ecn, Icmp};
use ringway_sctp::PROTOCOL;
use smallvec::SmallVec;
use socket2::{Domain, Socket};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Maximum number of retries of a packet, because an error may be an older one of the socket.
const SEND_RETRIES: u8 = 2;

/// Bytes that are reported of a packet that could not be sent: its header and the start of an INIT.
const QUOTE: usize = 64;

/// The range of the destination port in a packet.
const PORT_FIELD: Range<usize> = DESTINATION as usize..DESTINATION as usize + 2;

/// Maximum number of datagrams of one train (UDP_MAX_SEGMENTS of linux/udp.h).
const TRAIN_PACKETS: usize = 64;

/// Maximum size of one train in bytes: the largest UDP payload over IPv4.
const TRAIN_BYTES: usize = 65_507;

/// One socket.
struct PacketSocket {
    io: Io,
    /// The bound address, which may be a wildcard; port 0 directly over IP.
    local: SocketAddr,
}

enum Io {
    Udp(Arc<Watched<Socket>>),
    Ip(ModeratedSocket),
}

impl PacketSocket {
    /// To be called within a runtime.
    fn new((socket, local): BoundSocket) -> io::Result<PacketSocket> {
        let io = match local.port() {
            0 => Io::Ip(ModeratedSocket::new(socket)?),
            _ => Io::Udp(Arc::new(watch_reading(socket)?)),
        };
        Ok(PacketSocket { io, local })
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

    /// Receives at most one batch.
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

/// The sockets of a stack, in UDP or directly over IP.
pub(super) struct Sockets {
    sockets: Vec<PacketSocket>,
    /// The socket of the packets in `received`, after which the next one is read.
    current: usize,
    received: ReceiveBatch,
    buffers: SendBatch,
    /// Directly over IP: the SCTP ports that this stack holds.
    held: Option<Arc<PortSet>>,
    /// Whether the system accepts trains.
    trains: bool,
    /// The number of packets that remain to be sent one by one, because their train was refused.
    singly: usize,
    fragmenter: Fragmenter,
    /// Local addresses that cannot be used now.
    down: DownAddresses,
    refused: Vec<(Addressing, Icmp, Vec<u8>)>,
    traffic: Traffic,
}

/// Open sockets of a stack that does not run yet, so that errors are known, and privileges dropped, before
/// anything runs.
pub struct StackSockets {
    sockets: Vec<BoundSocket>,
    /// Directly over IP: the ports.
    pub(super) ports: Option<Ports>,
    /// The local UDP port, in UDP.
    udp_port: Option<u16>,
    /// There are none, as SCTP is the kernel's.
    by_kernel: bool,
}

/// The sockets of a stack for each of its drivers, and what these share.
pub(super) struct DividedSockets {
    pub(super) drivers: Vec<Vec<BoundSocket>>,
    /// Directly over IP: the ports.
    pub(super) ports: Option<Ports>,
    /// In UDP: the local addresses.
    pub(super) locals: Option<Locals>,
}

/// Returns whether this process may use SCTP directly over IP, and the kernel would not answer instead.
pub fn is_permitted() -> bool {
    StackSockets::raw().is_ok()
}

/// Exists when the kernel's own SCTP is loaded. Opening a socket to find out would load it.
const KERNELS_OWN: &str = "/proc/net/sctp";

impl fmt::Debug for StackSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackSockets").field("udp_port", &self.udp_port).finish_non_exhaustive()
    }
}

impl StackSockets {
    /// Returns the sockets of so many drivers: in UDP each has one at each address, among which the kernel divides the
    /// associations. Directly over IP, a second raw socket would only receive everything twice, so there is one driver.
    pub(super) fn divide(self, drivers: usize) -> io::Result<DividedSockets> {
        let Some(port) = self.udp_port else {
            return Ok(DividedSockets {
                drivers: vec![self.sockets],
                ports: self.ports,
                locals: None,
            });
        };
        let addresses = self.sockets.iter().map(|(_, addr)| addr.ip()).collect();
        let mut divided: Vec<Vec<BoundSocket>> = (0..drivers).map(|_| Vec::new()).collect();
        for (socket, addr) in self.sockets {
            let group = opening::udp_group(socket, addr, drivers)?;
            for (driver, socket) in divided.iter_mut().zip(group) {
                driver.push((socket, addr));
            }
        }
        let locals = Some(Locals::new(addresses, port));
        Ok(DividedSockets { drivers: divided, ports: self.ports, locals })
    }

    /// Binds the UDP port `port` at each of `locals`, which may contain the wildcards. Port 0 means one that
    /// the system chooses, the same at each address.
    pub fn udp(locals: &[IpAddr], mut port: u16) -> Result<StackSockets, OpenError> {
        check_scope(locals)?;
        if locals.len() > MAX_UDP_ADDRESSES {
            return Err(OpenError::TooManyAddresses);
        }
        let mut sockets = Vec::with_capacity(locals.len());
        for &local in locals {
            let addr = SocketAddr::new(local, port);
            let failed = |error| SystemError::new(format!("sctp over udp at {addr}"), error);
            let socket = opening::udp(addr).map_err(failed)?;
            if port == 0 {
                let bound = socket.local_addr().map_err(failed)?;
                port = bound.as_socket().map_or(0, |a| a.port());
            }
            sockets.push((socket, SocketAddr::new(local, port)));
        }
        Ok(StackSockets { sockets, ports: None, udp_port: Some(port), by_kernel: false })
    }

    /// Returns whether these sockets carry packets of all of `locals` at this UDP port.
    pub fn carries(&self, locals: &[IpAddr], port: u16) -> bool {
        let has = |ip: &IpAddr| self.sockets.iter().any(|(_, addr)| addr.ip() == *ip);
        port != 0 && self.udp_port == Some(port) && locals.iter().all(has)
    }

    /// Opens a raw socket for each family that the host has, to carry SCTP directly over IP.
    pub fn raw() -> Result<StackSockets, OpenError> {
        let failed = |error| SystemError::new("sctp over ip", error);
        if std::path::Path::new(KERNELS_OWN).exists() {
            let text = "the kernel's own SCTP is loaded, and would abort the associations it does not \
                        know (sctp over udp works beside it)";
            return Err(failed(io::Error::other(text)).into());
        }
        let mut sockets = Vec::new();
        for wild in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
            match opening::raw(wild.is_ipv4()) {
                Ok(socket) => sockets.push((socket, SocketAddr::new(wild, 0))),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let what = "sctp over ip needs CAP_NET_RAW (or sctp over udp, which does not)";
                    return Err(SystemError::new(what, error).into());
                }
                // A host without the family needs no socket for it.
                Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
                Err(error) => return Err(failed(error).into()),
            }
        }
        let copies: io::Result<_> = sockets.iter().map(|(socket, _)| socket.try_clone()).collect();
        let ports = copies.and_then(Ports::new).map_err(failed)?;
        Ok(StackSockets { sockets, ports: Some(ports), udp_port: None, by_kernel: false })
    }

    /// Returns what stands for the kernel's SCTP, which needs no sockets before it listens or connects. Fails where the
    /// kernel has none.
    pub fn kernel() -> Result<StackSockets, OpenError> {
        kernel::check()?;
        Ok(StackSockets { sockets: Vec::new(), ports: None, udp_port: None, by_kernel: true })
    }

    /// Returns whether SCTP is the kernel's.
    pub(super) fn is_kernels(&self) -> bool {
        self.by_kernel
    }

    /// Holds an SCTP port for as long as the stack lives; 0 for any. Returns the port.
    pub fn hold(&mut self, port: u16) -> Result<u16, OpenError> {
        let failed = |error| SystemError::new(format!("sctp port {port}"), error);
        match &mut self.ports {
            Some(ports) if port == 0 => ports.ephemeral(false).ok_or(OpenError::NoPort),
            Some(ports) => Ok(ports.hold(port).map(|()| port).map_err(failed)?),
            None if port == 0 => Err(OpenError::MissingPort),
            None => Ok(port),
        }
    }

    /// Returns the local UDP port, in UDP.
    pub fn udp_port(&self) -> Option<u16> {
        self.udp_port
    }

    /// Refuses addresses that no association can have over IP: those that the host does not have, as raw sockets
    /// are bound to none, and those that [`StackSockets::udp`] refuses.
    pub fn check(addresses: &[IpAddr]) -> Result<(), OpenError> {
        check_scope(addresses)?;
        Ok(check_host(addresses)?)
    }
}

/// Refuses addresses that the host does not have.
pub(super) fn check_host(addresses: &[IpAddr]) -> Result<(), SystemError> {
    for &ip in addresses {
        std::net::UdpSocket::bind((ip, 0))
            .map_err(|error| SystemError::new(format!("sctp over ip at {ip}"), error))?;
    }
    Ok(())
}

impl Sockets {
    /// Registers sockets with the runtime.
    pub(super) fn new(
        sockets: Vec<BoundSocket>,
        held: Option<Arc<PortSet>>,
        down: DownAddresses,
    ) -> io::Result<Sockets> {
        Ok(Sockets {
            trains: held.is_none(),
            sockets: sockets.into_iter().map(PacketSocket::new).collect::<io::Result<_>>()?,
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

    /// Returns the sources of ICMP messages.
    pub(super) fn error_sources(&self) -> io::Result<Vec<ErrorSource>> {
        self.sockets.iter().map(PacketSocket::error_source).collect()
    }

    /// Returns the index of the socket that sends from `source`, and the source address to pass to it if it
    /// is bound to a wildcard.
    fn socket_of(&self, source: IpAddr) -> Option<(usize, Option<IpAddr>)> {
        let exact = self.sockets.iter().position(|p| p.local.ip() == source);
        let wild = |p: &PacketSocket| {
            p.local.ip().is_unspecified() && p.local.is_ipv4() == source.is_ipv4()
        };
        match exact {
            Some(index) => Some((index, None)),
            None => self.sockets.iter().position(wild).map(|index| (index, Some(source))),
        }
    }

    /// Calls `each` with the packets of a reception.
    fn train<'a>(&'a self, index: usize, each: &mut dyn FnMut(Addressing, &'a [u8])) {
        let Some(reception) = self.received.get(index) else { return };
        let Some((addressing, skip)) = self.addressing(&reception) else { return };
        for packet in reception.datagrams() {
            let Some(packet) = packet.get(skip..) else { return };
            if let Some(held) = &self.held {
                // It may have been queued before another process took the port.
                let Some(&[high, low]) = packet.get(PORT_FIELD) else { return };
                if !held.contains(u16::from_be_bytes([high, low])) {
                    return;
                }
            }
            each(addressing, packet);
        }
    }

    /// Returns the addressing of a reception, and the number of bytes before its first packet.
    fn addressing(&self, reception: &Reception<'_>) -> Option<(Addressing, usize)> {
        let (remote, bound) = (reception.remote, self.sockets[self.current].local.ip());
        if self.held.is_some() && bound.is_ipv4() {
            // It includes the IP header (RFC 791 section 3.1).
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
        for _ in 0..self.sockets.len() {
            self.current = (self.current + 1) % self.sockets.len();
            let socket = &mut self.sockets[self.current];
            let Poll::Ready(got) = socket.poll_receive(cx, &mut self.received) else { continue };
            let got = got?;
            self.traffic.receive_calls += 1;
            for train in (0..got).filter_map(|i| self.received.get(i)) {
                let packets = train.datagrams().count() as u64;
                self.traffic.received += packets;
                self.traffic.received_in_trains += if packets > 1 { packets } else { 0 };
            }
            // Directly over IP the system coalesces nothing. The packets of one call are handled as one
            // train, or each second packet would cause an acknowledgement.
            return Poll::Ready(Ok(if self.held.is_some() { got.min(1) } else { got }));
        }
        Poll::Pending
    }

    fn packets<'a>(&'a self, train: usize, each: &mut dyn FnMut(Addressing, &'a [u8])) {
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
            outgoing.advance(attempt.handled);
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
        let pauses = |socket: &PacketSocket| match &socket.io {
            Io::Udp(_) => 0,
            Io::Ip(moderated) => moderated.pauses,
        };
        Traffic { pauses: self.sockets.iter().map(pauses).sum(), ..self.traffic }
    }

    fn admit(&mut self, bound: BoundSocket) -> Option<ErrorSource> {
        // If this fails, packets from its address are refused, and their path fails.
        let socket = PacketSocket::new(bound).ok()?;
        let error_source = socket.error_source().ok()?;
        self.sockets.push(socket);
        Some(error_source)
    }
}

/// The result of one call to send.
struct Attempt {
    /// The number of packets sent or dropped.
    handled: usize,
    /// Whether the socket has room for more.
    room: bool,
}

impl Sockets {
    /// Sends the first packets that use the same socket, in one call.
    fn attempt(&mut self, outgoing: &Outgoing) -> Attempt {
        let batch = gather(outgoing, self.trains && self.singly == 0, self.held.is_none());
        let Some(first) = batch.first() else { return Attempt { handled: 0, room: true } };
        let source = first.addressing.source;
        let down = self.down.load().contains(&source);
        let Some((index, from)) = self.socket_of(source).filter(|_| !down) else {
            // Nothing can be sent from an address that the host does not have.
            self.traffic.not_sent += first.packets as u64;
            let quote = first.datagram.bytes[..first.datagram.bytes.len().min(QUOTE)].to_vec();
            self.refused.push((first.addressing, Icmp::Unreachable, quote));
            return Attempt { handled: first.packets, room: true };
        };
        if first.addressing.fragment.is_some()
            && let Some(attempt) = self.send_in_fragments(index, outgoing, first)
        {
            return attempt;
        }
        let like = |t: &&Train<'_>| {
            t.addressing.source == source && t.addressing.fragment == first.addressing.fragment
        };
        let datagrams: SmallVec<[Datagram<'_>; SEND_BATCH]> =
            batch.iter().take_while(like).map(|t| Datagram { from, ..t.datagram }).collect();
        let Sockets { sockets, buffers, traffic, trains, singly, refused, .. } = self;
        let socket = sockets[index].socket();
        let (mut lost, mut room, mut handled) = (0, true, 0);
        let mut retries = (usize::MAX, 0);
        traffic.send_calls += 1;
        if first.addressing.fragment.is_some() {
            let _ = may_fragment(socket, true);
        }
        let handled_trains = buffers.send(socket.as_fd(), &datagrams, |index, code| {
            if code == libc::EAGAIN {
                room = false;
                return After::Stop;
            }
            // With IP_RECVERR a send may report an ICMP message about an earlier packet. That error is
            // cleared once it is reported.
            if retries.0 != index {
                retries = (index, 0);
            }
            if retries.1 < SEND_RETRIES && code != libc::ENOBUFS {
                retries.1 += 1;
                return After::Retry;
            }
            if batch[index].packets > 1 && code != libc::ENOBUFS {
                // The segments exceed the path's MTU, or the network card does not segment.
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
        for train in &batch[..handled_trains] {
            handled += train.packets;
            if train.packets > 1 {
                traffic.sent_in_trains += train.packets as u64;
            } else {
                *singly = singly.saturating_sub(1);
            }
        }
        traffic.not_sent += lost;
        traffic.sent += handled as u64 - lost;
        Attempt { handled, room }
    }
}

impl Sockets {
    /// Sends the first packet in fragments written here. Returns `None` where this process may not, so that
    /// the system must fragment it.
    fn send_in_fragments(
        &mut self,
        index: usize,
        outgoing: &Outgoing,
        first: &Train<'_>,
    ) -> Option<Attempt> {
        let (local, remote) = (self.sockets[index].local.port(), first.datagram.to.port());
        let udp_ports = self.held.is_none().then_some((local, remote));
        let result = self.fragmenter.send(outgoing, udp_ports, &mut self.buffers);
        if matches!(result, FragmentResult::NotPermitted) {
            return None;
        }
        self.traffic.send_calls += 1;
        let room = !matches!(result, FragmentResult::NoRoom);
        match result {
            FragmentResult::Sent => {
                (self.traffic.sent, self.traffic.fragmented) =
                    (self.traffic.sent + 1, self.traffic.fragmented + 1)
            }
            FragmentResult::Refused(code) => {
                self.traffic.not_sent += 1;
                self.refused.extend(fault(first, code));
            }
            FragmentResult::NoRoom | FragmentResult::NotPermitted => {}
        }
        Some(Attempt { handled: usize::from(room), room })
    }
}

/// Returns what an error of sending means for the packet's path. A full queue means nothing: the packet is
/// lost like any other.
fn fault(train: &Train<'_>, code: i32) -> Option<(Addressing, Icmp, Vec<u8>)> {
    let icmp = match code {
        libc::ENOBUFS => return None,
        libc::EMSGSIZE => Icmp::TooBig(path_mtu(train.addressing.destination)?),
        _ => Icmp::Unreachable,
    };
    let bytes = train.datagram.bytes;
    Some((train.addressing, icmp, bytes[..bytes.len().min(QUOTE)].to_vec()))
}

/// Sets whether packets sent from now on may be fragmented.
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

/// Packets that are sent together.
struct Train<'a> {
    datagram: Datagram<'a>,
    addressing: Addressing,
    packets: usize,
}

/// Groups the packets that remain to send, into trains if `trains`: consecutive packets of one size, except
/// a shorter last one, with the same addressing and the same tag, by which a receiver divides trains among its drivers.
fn gather(outgoing: &Outgoing, trains: bool, udp: bool) -> SmallVec<[Train<'_>; SEND_BATCH]> {
    let mut batch = SmallVec::new();
    let mut remaining = outgoing.remaining();
    while let Some((addressing, range)) = remaining.first()
        && batch.len() < SEND_BATCH
    {
        let (size, tag) = (range.len(), tag_of(&outgoing.bytes[range.clone()]));
        let (mut end, mut packets) = (range.end, 1);
        for (next, piece) in &remaining[1..] {
            let longest = piece.end - range.start;
            if !trains
                || addressing.fragment.is_some()
                || next != addressing
                || piece.len() > size
                || longest > TRAIN_BYTES
                || tag_of(&outgoing.bytes[piece.clone()]) != tag
            {
                break;
            }
            (end, packets) = (piece.end, packets + 1);
            if piece.len() < size || packets == TRAIN_PACKETS {
                break;
            }
        }
        // Where the peer's port is not known, it is the default.
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
        remaining = &remaining[packets..];
    }
    batch
}
