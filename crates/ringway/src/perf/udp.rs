//! Messages over UDP: each a datagram. Many leave with one call where the kernel cuts them (UDP
//! segmentation offload), and come with one where it joins them.

use super::output::Shown;
use super::protocol::{Control, DATA, Reply, Session, echoed};
use super::{MAX_SIZE, Trouble};
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

/// Largest payload of a datagram over IPv4.
pub(crate) const MAX_DATAGRAM: usize = 65_507;
/// Largest datagram that fits into an Ethernet frame and so is sent in trains.
const MAX_IN_TRAIN: usize = 1452;
/// Most datagrams of a train (the kernel's UDP_MAX_SEGMENTS, where it is least).
const TRAIN: usize = 64;
/// Receive buffer asked for, in bytes; the kernel may give less.
const RECEIVE: usize = 4 << 20;
/// Most clients that are remembered; with more, those are forgotten that are silent for longest.
const MAX_CLIENTS: usize = 4096;

/// A client's socket.
pub(crate) struct Port {
    socket: UdpSocket,
    buffer: Vec<u8>,
}

fn wrong(error: io::Error) -> Trouble {
    Trouble::Failed(error.to_string())
}

impl Port {
    /// A socket to a server, from an address if one is given.
    pub(crate) async fn open(to: SocketAddr, from: Option<IpAddr>) -> Result<Port, Trouble> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket =
            UdpSocket::bind(SocketAddr::new(from.unwrap_or(any), 0)).await.map_err(wrong)?;
        socket.connect(to).await.map_err(wrong)?;
        Ok(Port { socket, buffer: vec![0; MAX_DATAGRAM] })
    }

    /// Sends a message.
    pub(crate) async fn say(&mut self, message: &[u8]) -> Result<(), Trouble> {
        self.socket.send(message).await.map(|_| ()).map_err(wrong)
    }

    /// The next message.
    pub(crate) async fn hear(&mut self) -> Result<Option<&[u8]>, Trouble> {
        let length = self.socket.recv(&mut self.buffer).await.map_err(wrong)?;
        Ok(Some(&self.buffer[..length]))
    }

    /// Sends data until then: how many messages.
    pub(crate) async fn flood(&mut self, size: usize, until: Instant) -> Result<u64, Trouble> {
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
                // A kernel or a device that cuts no trains.
                Err(_) if count > 1 => count = 1,
                Err(error) => return Err(wrong(error)),
            }
            // The kernel takes all there is; let the rest of the program have a turn.
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

/// What came with one call: where from, where to, how much, and how long each datagram is.
struct Train {
    from: SockaddrStorage,
    to: Option<ControlMessageOwned>,
    length: usize,
    each: usize,
}

impl Train {
    /// Answers from the address that was asked: a host has several. What cannot be sent is lost, as a
    /// datagram may be.
    fn answer(&self, socket: &UdpSocket, bytes: &[u8]) {
        let (v4, v6);
        let source = match self.to {
            Some(ControlMessageOwned::Ipv4PacketInfo(mut info)) => {
                // By whichever interface leads there.
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

/// The clients heard of last. Half of the room is for those heard since the last turn: when it is full,
/// those of the turn before are forgotten, so that many strangers cost no search.
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
pub(crate) async fn serve(at: SocketAddr, shown: Shown) -> Result<(), Trouble> {
    let wrong = |error| Trouble::at(format_args!("udp on {at}"), error);
    let socket = UdpSocket::bind(at).await.map_err(wrong)?;
    // Where the kernel cannot or will not, datagrams come one by one, and sooner get lost.
    let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE)
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE));
    let _ = if at.is_ipv4() {
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)
    } else {
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)
    };
    shown.waits(&format!("udp on {at}"));
    let mut clients = Clients::default();
    let mut buffer = vec![0; MAX_DATAGRAM.max(MAX_SIZE.min(1 << 16))];
    loop {
        let got = socket.async_io(Interest::READABLE, || receive(&socket, &mut buffer)).await;
        // An ICMP message about an earlier answer is not this socket's end.
        let Ok(train) = got else { continue };
        let mut stranger = Session::default();
        // Who has not begun costs nothing that is kept.
        let begins = |message| matches!(Control::read(message), Some(Control::Begin(_)));
        let known =
            clients.knows(&train.from) || buffer[..train.length].chunks(train.each).any(begins);
        let session = if known { clients.get(train.from) } else { &mut stranger };
        let now = Instant::now();
        for message in buffer[..train.length].chunks(train.each) {
            match session.take(now, message, message.len(), true) {
                Reply::Nothing => continue,
                Reply::Echo => train.answer(&socket, &echoed(message)),
                Reply::Say(bytes) => train.answer(&socket, &bytes),
            }
            shown.measured(&train.from, session.result());
        }
    }
}
