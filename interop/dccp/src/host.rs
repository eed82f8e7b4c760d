//! A host whose DCCP stands on a raw socket.

use crate::options::Options;
use libc::{IPPROTO_IP, IPPROTO_IPV6};
use ringway_dccp::{Dccp, PROTOCOL};
use ringway_os::{
    After, Cause, ChaCha, Clock, Datagram, ReceiveBatch, SendBatch, enlarge_buffers,
    next_icmp_error, set_option, wait_readable,
};
use ringway_sansio::{Addressing, Ecn, Endpoint, Icmp, Time};
use socket2::{Domain, Protocol, Socket, Type};
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// Size of the socket's buffers in bytes, so that what is lost is lost by the link.
const BUFFER: usize = 4 << 20;
/// Bytes of a packet that an ICMP message may quote.
const QUOTE: usize = 64;

/// A host with one address.
pub(crate) struct Host {
    pub(crate) dccp: Dccp,
    /// Number of packets that the system did not send.
    pub(crate) refused: u64,
    local: IpAddr,
    socket: Socket,
    clock: Clock,
    incoming: ReceiveBatch,
    outgoing: SendBatch,
}

impl Host {
    pub(crate) fn new(options: &Options) -> Result<Host, Box<dyn Error>> {
        let random = Box::new(ChaCha::from_os()?);
        Ok(Host {
            dccp: Dccp::new(options.limits(), options.settings(), random)?,
            refused: 0,
            local: options.local,
            socket: open(options.local)?,
            clock: Clock::new(),
            incoming: ReceiveBatch::new(),
            outgoing: SendBatch::new(),
        })
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Handles what has come and what is due, and sends.
    pub(crate) fn turn(&mut self) -> io::Result<()> {
        self.receive()?;
        self.receive_errors();
        let now = self.now();
        if self.dccp.poll_timeout().is_some_and(|at| at <= now) {
            self.dccp.handle_timeout(now);
        }
        self.send();
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        loop {
            let count = match self.incoming.receive(self.socket.as_fd()) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // An ICMP message, which is read from the queue of errors.
                Err(error) if error.raw_os_error().is_some_and(is_icmp) => return Ok(()),
                Err(error) => return Err(error),
            };
            let now = self.now();
            for reception in (0..count).filter_map(|index| self.incoming.get(index)) {
                let way = Addressing::new(reception.remote.ip(), self.local, PROTOCOL);
                let bytes = reception.bytes();
                // In IPv4 the header is included (raw(7)).
                let (ecn, header) = match (self.local, bytes) {
                    (IpAddr::V4(_), [first, class, ..]) => (*class, usize::from(first & 15) * 4),
                    _ => (reception.ecn, 0),
                };
                let way = Addressing { ecn: Ecn::from_bits(ecn), ..way };
                if let Some(payload) = bytes.get(header..) {
                    self.dccp.handle_packet(now, way, payload);
                }
            }
        }
    }

    fn receive_errors(&mut self) {
        let mut quote = [0; QUOTE];
        while let Some(error) = next_icmp_error(self.socket.as_fd(), &mut quote) {
            let icmp = match error.cause {
                Cause::TooBig(mtu) => Icmp::TooBig(mtu),
                Cause::ProtocolUnreachable => Icmp::ProtocolUnreachable,
                Cause::PortUnreachable | Cause::Unreachable => Icmp::Unreachable,
                Cause::Other => continue,
            };
            if let Some(to) = error.to {
                let sent = Addressing::new(self.local, to.ip(), PROTOCOL);
                let quoted = &quote[..error.quoted.min(QUOTE)];
                self.dccp.handle_icmp(self.clock.now(), &sent, icmp, quoted);
            }
        }
    }

    /// Sends what the protocol has to send.
    pub(crate) fn send(&mut self) {
        let mut packet = Vec::new();
        let now = self.now();
        while let Some(way) = self.dccp.poll_transmit(now, &mut packet) {
            let to = SocketAddr::new(way.destination, 0);
            let datagram = Datagram { ecn: way.ecn.bits(), ..Datagram::new(&packet, to, None) };
            let refused = &mut self.refused;
            self.outgoing.send(self.socket.as_fd(), &[datagram], |_, _| {
                *refused += 1;
                After::Skip
            });
            packet.clear();
        }
    }

    /// Waits for a packet or a deadline, until `limit` at most.
    pub(crate) fn wait(&self, limit: Time) -> io::Result<()> {
        let next = self.dccp.poll_timeout().map_or(limit, |at| at.min(limit));
        let left = next.since(self.now());
        wait_readable([self.socket.as_fd()], Some(left)).map(|_| ())
    }
}

/// Returns whether an error of a socket is that of an ICMP message.
fn is_icmp(code: i32) -> bool {
    [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EMSGSIZE, libc::ENOPROTOOPT]
        .contains(&code)
}

/// Opens the socket. The system writes the IP header and does not fragment.
fn open(local: IpAddr) -> io::Result<Socket> {
    let at = SocketAddr::new(local, 0);
    let protocol = Protocol::from(i32::from(PROTOCOL));
    let socket = Socket::new(Domain::for_address(at), Type::RAW, Some(protocol))?;
    socket.set_nonblocking(true)?;
    let fd = socket.as_fd();
    if local.is_ipv4() {
        set_option(fd, IPPROTO_IP, libc::IP_RECVERR, 1)?;
        set_option(fd, IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    } else {
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    }
    enlarge_buffers(&socket, BUFFER)?;
    socket.bind(&at.into())?;
    Ok(socket)
}
