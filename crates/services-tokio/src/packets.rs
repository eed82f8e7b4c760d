//! A socket for datagrams of many peers, which answers each from the address that it was sent to.

use crate::options;
use crate::waiters::Fan;
use ringway_os::{
    After, Datagram, ReceiveBatch, SendBatch, Watched, set_option, watch_both, watch_reading,
};
use socket2::{Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::Interest;

/// Octets of the system's buffers in each direction, if it grants them.
const BUFFER: usize = 1 << 20;

/// A datagram that has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) remote: SocketAddr,
    /// The address that it was sent to.
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: u8,
    pub(crate) bytes: &'a [u8],
}

/// The socket. Clones are handles of the same one.
#[derive(Clone)]
pub(crate) struct PacketSocket(Arc<Inner>);

struct Inner {
    io: Watched<Socket>,
    local: SocketAddr,
    batch: Mutex<SendBatch>,
    writers: Arc<Fan>,
}

impl PacketSocket {
    /// Binds a socket. To be called within a runtime.
    pub(crate) fn bind(
        address: SocketAddr,
        protocol: i32,
        interface: Option<&str>,
    ) -> io::Result<PacketSocket> {
        Self::new(options::open(address, Type::DGRAM, protocol, interface)?, address, watch_both)
    }

    /// Binds a socket of UDP that reports ICMP messages and ECN bits, and not when it has room to send. To be called within a runtime.
    pub(crate) fn bind_reporting(
        address: SocketAddr,
        interface: Option<&str>,
    ) -> io::Result<PacketSocket> {
        use libc::{IPPROTO_IP, IPPROTO_IPV6};
        let socket = options::open(address, Type::DGRAM, libc::IPPROTO_UDP, interface)?;
        let fd = socket.as_fd();
        if address.is_ipv6() {
            set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        } else {
            set_option(fd, IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            set_option(fd, IPPROTO_IP, libc::IP_RECVERR, 1)?;
        }
        Self::new(socket, address, watch_reading)
    }

    fn new(
        socket: Socket,
        address: SocketAddr,
        watch: impl FnOnce(Socket) -> io::Result<Watched<Socket>>,
    ) -> io::Result<PacketSocket> {
        use libc::{IPPROTO_IP, IPPROTO_IPV6};
        let fd = socket.as_fd();
        let wildcard = address.ip().is_unspecified().into();
        if address.is_ipv6() {
            set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, wildcard)?;
        } else {
            set_option(fd, IPPROTO_IP, libc::IP_PKTINFO, wildcard)?;
        }
        ringway_os::enlarge_buffers(&socket, BUFFER)?;
        socket.bind(&address.into())?;
        let local = socket.local_addr()?.as_socket().unwrap_or(address);
        let (batch, writers) = (Mutex::new(SendBatch::new()), Arc::default());
        Ok(PacketSocket(Arc::new(Inner { io: watch(socket)?, local, batch, writers })))
    }

    /// Waits for ICMP messages.
    pub(crate) async fn errors(&self) -> io::Result<()> {
        self.0.io.ready(Interest::ERROR).await?.clear_ready();
        Ok(())
    }

    /// Returns the address that it is bound to.
    pub(crate) fn local(&self) -> SocketAddr {
        self.0.local
    }

    /// Waits for datagrams and receives a batch.
    pub(crate) async fn receive(&self, batch: &mut ReceiveBatch) -> io::Result<()> {
        loop {
            let mut ready = self.0.io.readable().await?;
            match batch.receive(self.0.io.get_ref().as_fd()) {
                Ok(received) => {
                    if received < ringway_os::RECEIVE_BATCH {
                        ready.clear_ready();
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                // An ICMP message about a datagram to one of the peers.
                Err(_) => {}
            }
        }
    }

    /// As [`receive`](PacketSocket::receive).
    pub(crate) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        batch: &mut ReceiveBatch,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.io.poll_read_ready(cx))?;
            match batch.receive(self.0.io.get_ref().as_fd()) {
                Ok(received) => {
                    if received < ringway_os::RECEIVE_BATCH {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Calls `each` with every datagram of a batch.
    pub(crate) fn each(&self, batch: &ReceiveBatch, mut each: impl FnMut(Packet<'_>)) {
        let mut index = 0;
        while let Some(reception) = batch.get(index) {
            let (remote, ecn) = (reception.remote, reception.ecn);
            let bound = self.0.local.ip();
            let local = if bound.is_unspecified() { reception.local } else { Some(bound) };
            for bytes in reception.datagrams() {
                each(Packet { remote, local, ecn, bytes });
            }
            index += 1;
        }
    }

    /// Sends a datagram from the address that the peer knows.
    pub(crate) fn send(
        &self,
        bytes: &[u8],
        to: SocketAddr,
        from: Option<IpAddr>,
        ecn: u8,
    ) -> io::Result<()> {
        let from = from.filter(|_| self.0.local.ip().is_unspecified());
        let datagram = Datagram { ecn, ..Datagram::new(bytes, to, from) };
        let mut failed = None;
        let mut batch = self.0.batch.lock().unwrap_or_else(PoisonError::into_inner);
        batch.send(self.as_fd(), &[datagram], |_, errno| {
            failed = Some(io::Error::from_raw_os_error(errno));
            After::Stop
        });
        failed.map_or(Ok(()), Err)
    }

    /// Calls `send` until the system has room.
    pub(crate) fn poll_send(
        &self,
        cx: &Context<'_>,
        mut send: impl FnMut() -> io::Result<()>,
    ) -> Poll<io::Result<()>> {
        match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
        self.0.writers.poll(cx, |cx| {
            loop {
                let mut ready = ready!(self.0.io.poll_write_ready(cx))?;
                match send() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                    result => return Poll::Ready(result),
                }
            }
        })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.io.get_ref().as_fd()
    }
}
