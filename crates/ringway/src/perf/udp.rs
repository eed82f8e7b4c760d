//! Messages over UDP: one datagram each. Many are sent per call if the kernel segments them (UDP
//! segmentation offload), and received per call if it coalesces them.

use super::error::PerfError;
use super::output::Output;
use super::protocol::{Control, DATA, MAX_SIZE, Reply, Session, echoed};
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Instant;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Maximum payload of a datagram over IPv4.
pub(crate) const MAX_DATAGRAM: usize = 65_507;
/// Maximum datagram that fits into an Ethernet frame and so is sent in trains.
const MAX_IN_TRAIN: usize = 1452;
/// Maximum number of datagrams of a train (the smallest UDP_MAX_SEGMENTS of the kernel).
const TRAIN: usize = 64;
/// Requested size of the receive buffer in bytes; the kernel may grant less.
const RECEIVE: usize = 4 << 20;
/// Maximum number of clients that are tracked; beyond it the longest silent ones are dropped.
const MAX_CLIENTS: usize = 4096;

/// A client's socket.
pub(crate) struct Port {
    socket: UdpSocket,
    buffer: Vec<u8>,
}

fn to_error(error: io::Error) -> PerfError {
    PerfError::Failed(error.to_string())
}

impl Port {
    /// Opens a socket to a server, from a given address if there is one.
    pub(crate) async fn open(to: SocketAddr, from: Option<IpAddr>) -> Result<Port, PerfError> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket =
            UdpSocket::bind(SocketAddr::new(from.unwrap_or(any), 0)).await.map_err(to_error)?;
        socket.connect(to).await.map_err(to_error)?;
        Ok(Port { socket, buffer: vec![0; MAX_DATAGRAM] })
    }

    /// Sends a message.
    pub(crate) async fn send(&mut self, message: &[u8]) -> Result<(), PerfError> {
        self.socket.send(message).await.map(|_| ()).map_err(to_error)
    }

    /// Receives the next message.
    pub(crate) async fn receive(&mut self) -> Result<Option<&[u8]>, PerfError> {
        let length = self.socket.recv(&mut self.buffer).await.map_err(to_error)?;
        Ok(Some(&self.buffer[..length]))
    }

    /// Sends data until a time; returns the number of messages.
    pub(crate) async fn flood(&mut self, size: usize, until: Instant) -> Result<u64, PerfError> {
        let mut message = vec![0; size];
        message[0] = DATA;
        let mut count = if size > MAX_IN_TRAIN { 1 } else { (MAX_DATAGRAM / size).min(TRAIN) };
        let block = message.repeat(count);
        let mut sent = 0;
        while Instant::now() < until {
            let done = if count == 1 {
                self.socket.send(&message).await.map(|_| ())
            } else {
                self.train(&block, size as u16).await
            };
            match done {
                Ok(()) => sent += count as u64,
                // The kernel or the device does not segment trains.
                Err(_) if count > 1 => count = 1,
                Err(error) => return Err(to_error(error)),
            }
            // The kernel accepts everything; other tasks must run too.
            tokio::task::yield_now().await;
        }
        Ok(sent)
    }

    async fn train(&self, block: &[u8], size: u16) -> io::Result<()> {
        self.socket
            .async_io(Interest::WRITABLE, || {
                let cut = [ControlMessage::UdpGsoSegments(&size)];
                let to: Option<&SockaddrStorage> = None;
                let bytes = [IoSlice::new(block)];
                sendmsg(self.socket.as_raw_fd(), &bytes, &cut, MsgFlags::empty(), to)?;
                Ok(())
            })
            .await
    }
}

/// Datagrams received with one call: source, destination, total length, and length of each.
struct Train {
    from: SockaddrStorage,
    to: Option<ControlMessageOwned>,
    length: usize,
    each: usize,
}

impl Train {
    /// Answers from the destination address of the request, because a host has several. An answer
    /// that cannot be sent is lost, as a datagram may be.
    fn answer(&self, socket: &UdpSocket, bytes: &[u8]) {
        let (v4, v6);
        let source = match self.to {
            Some(ControlMessageOwned::Ipv4PacketInfo(mut info)) => {
                // The route decides the interface.
                info.ipi_ifindex = 0;
                v4 = info;
                Some(ControlMessage::Ipv4PacketInfo(&v4))
            }
            Some(ControlMessageOwned::Ipv6PacketInfo(mut info)) => {
                info.ipi6_ifindex = 0;
                v6 = info;
                Some(ControlMessage::Ipv6PacketInfo(&v6))
            }
            _ => None,
        };
        let bytes = [IoSlice::new(bytes)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let _ = sendmsg(socket.as_raw_fd(), &bytes, source.as_slice(), flags, Some(&self.from));
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Train> {
    let mut control = cmsg_space!(i32, nix::libc::in6_pktinfo);
    let mut bytes = [IoSliceMut::new(buffer)];
    let got = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut bytes,
        Some(&mut control),
        MsgFlags::empty(),
    )?;
    let (mut each, mut to) = (got.bytes, None);
    for message in got.cmsgs()? {
        match message {
            ControlMessageOwned::UdpGroSegments(size) => each = usize::try_from(size).unwrap_or(0),
            address => to = Some(address),
        }
    }
    let from = got.address.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Train { from, to, length: got.bytes, each: each.max(1) })
}

/// The most recent clients. Half of the capacity is for clients seen since the last rotation; when
/// it is full, those of the previous rotation are dropped, so that many unknown clients cost no
/// search.
#[derive(Default)]
struct Clients {
    fresh: HashMap<SockaddrStorage, Session>,
    stale: HashMap<SockaddrStorage, Session>,
}

impl Clients {
    fn knows(&self, from: &SockaddrStorage) -> bool {
        self.fresh.contains_key(from) || self.stale.contains_key(from)
    }

    fn get(&mut self, from: SockaddrStorage) -> &mut Session {
        if !self.fresh.contains_key(&from) && self.fresh.len() >= MAX_CLIENTS / 2 {
            self.stale = std::mem::take(&mut self.fresh);
        }
        let stale = &mut self.stale;
        self.fresh.entry(from).or_insert_with(|| stale.remove(&from).unwrap_or_default())
    }
}

/// Answers clients.
pub(crate) async fn serve(at: SocketAddr, output: Output) -> Result<(), PerfError> {
    let to_error = |error| PerfError::at(format_args!("udp on {at}"), error);
    let socket = UdpSocket::bind(at).await.map_err(to_error)?;
    // Without this option datagrams arrive one by one, and are lost earlier.
    let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE)
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE));
    let _ = if at.is_ipv4() {
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)
    } else {
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)
    };
    output.print_ready(&format!("udp on {at}"));
    let mut clients = Clients::default();
    let mut buffer = vec![0; MAX_DATAGRAM.max(MAX_SIZE.min(1 << 16))];
    loop {
        let got = socket.async_io(Interest::READABLE, || receive(&socket, &mut buffer)).await;
        // An ICMP error about an earlier answer does not close this socket.
        let Ok(train) = got else { continue };
        let mut stranger = Session::default();
        // A client that has not begun a measurement uses no memory.
        let begins = |message| matches!(Control::read(message), Some(Control::Begin(_)));
        let known =
            clients.knows(&train.from) || buffer[..train.length].chunks(train.each).any(begins);
        let session = if known { clients.get(train.from) } else { &mut stranger };
        let now = Instant::now();
        for message in buffer[..train.length].chunks(train.each) {
            match session.take(now, message, message.len(), true) {
                Reply::Nothing => continue,
                Reply::Echo => train.answer(&socket, &echoed(message)),
                Reply::Send(bytes) => train.answer(&socket, &bytes),
            }
            output.print_measurement(&train.from, session.result());
        }
    }
}
