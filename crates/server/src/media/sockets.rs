//! The sockets of the ports of a relay, and waiting for all of them at once.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{setsockopt, sockopt};
use ringway_media::{Family, Port};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Sockets that are reported at a time.
const EVENTS: usize = 128;
/// Octets of a socket's receive buffer: some hundred packets of a call, and no more, because there are thousands of them.
const RECEIVE_BUFFER: usize = 64 << 10;
/// The event that is no socket's.
const WAKE: u64 = u64::MAX;

/// The sockets, by port.
pub(super) struct Sockets {
    epoll: Epoll,
    first: u16,
    count: usize,
    /// Those of IPv4, then those of IPv6.
    open: Vec<Option<Socket>>,
    events: [EpollEvent; EVENTS],
}

impl Sockets {
    /// Prepares the sockets of a range, and watches `wake`.
    pub(super) fn new(ports: &RangeInclusive<u16>, wake: &EventFd) -> io::Result<Sockets> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let count = ports.clone().count();
        let mut open = Vec::new();
        open.resize_with(2 * count, || None);
        Ok(Sockets {
            epoll,
            first: *ports.start(),
            count,
            open,
            events: [EpollEvent::empty(); EVENTS],
        })
    }

    fn index(&self, port: Port) -> Option<usize> {
        let offset = usize::from(port.number.checked_sub(self.first)?);
        (offset < self.count).then_some(port.family as usize * self.count + offset)
    }

    /// Returns the socket of a port.
    pub(super) fn get(&self, port: Port) -> Option<&Socket> {
        self.open[self.index(port)?].as_ref()
    }

    /// Binds both ports of a pair.
    pub(super) fn bind(&mut self, port: Port) -> io::Result<()> {
        let pair = [bind(port)?, bind(port.companion())?];
        for (port, socket) in [port, port.companion()].into_iter().zip(pair) {
            let Some(index) = self.index(port) else { continue };
            self.epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, token(port)))?;
            self.open[index] = Some(socket);
        }
        Ok(())
    }

    /// Closes both ports of a pair.
    pub(super) fn close(&mut self, port: Port) {
        for port in [port, port.companion()] {
            if let Some(index) = self.index(port) {
                self.open[index] = None;
            }
        }
    }

    /// Waits until packets have come, something is to be done, or `timeout` has passed. Calls `receive` with each port that
    /// has packets. Returns whether something is to be done.
    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        mut receive: impl FnMut(&Sockets, Port),
    ) -> bool {
        let timeout = match timeout {
            None => EpollTimeout::NONE,
            // Rounded up, so that a deadline has come when the call returns.
            Some(timeout) => {
                EpollTimeout::try_from(timeout.as_millis() + 1).unwrap_or(EpollTimeout::MAX)
            }
        };
        let mut events = self.events;
        // An interrupted call has no events.
        let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
        let mut is_woken = false;
        for event in &events[..count] {
            match event.data() {
                WAKE => is_woken = true,
                token => receive(self, port(token)),
            }
        }
        is_woken
    }
}

fn token(port: Port) -> u64 {
    (port.family as u64) << 16 | u64::from(port.number)
}

fn port(token: u64) -> Port {
    let family = if token >> 16 == 0 { Family::V4 } else { Family::V6 };
    Port { family, number: token as u16 }
}

/// Binds a port at all addresses of its family. The socket reports to which one a packet was sent.
fn bind(port: Port) -> io::Result<Socket> {
    let (domain, any): (_, SocketAddr) = match port.family {
        Family::V4 => (Domain::IPV4, (Ipv4Addr::UNSPECIFIED, port.number).into()),
        Family::V6 => (Domain::IPV6, (Ipv6Addr::UNSPECIFIED, port.number).into()),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    match port.family {
        Family::V4 => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
        Family::V6 => {
            socket.set_only_v6(true)?;
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        }
    }
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(&any.into())?;
    Ok(socket)
}
