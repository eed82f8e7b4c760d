//! Messages over UDP: each a datagram. Many leave with one call where the kernel cuts them (UDP
//! segmentation offload), and come with one where it joins them.

use super::protocol::{Control, DATA, Reply, Session};
use super::server::Shown;
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
/// Most clients that are measured at a time; one more takes the place of who was silent for longest.
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

/// What came with one call: where from, how much, and how long each datagram is.
struct Train {
    peer: SocketAddr,
    length: usize,
    each: usize,
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Train> {
    let mut control = cmsg_space!(i32);
    let mut bytes = [IoSliceMut::new(buffer)];
    let got = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut bytes,
        Some(&mut control),
        MsgFlags::empty(),
    )?;
    let each = got.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::UdpGroSegments(each) => usize::try_from(each).ok(),
        _ => None,
    });
    let address = got.address.ok_or(io::ErrorKind::InvalidData)?;
    let peer = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => SocketAddr::V4((*v4).into()),
        (_, Some(v6)) => SocketAddr::V6((*v6).into()),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    Ok(Train { peer, length: got.bytes, each: each.unwrap_or(got.bytes).max(1) })
}

/// Who is measured, and when each was heard last.
type Sessions = HashMap<SocketAddr, (Instant, Session)>;

/// Forgets who was silent for longest, if there is no room for one more.
fn make_room(sessions: &mut Sessions) {
    if sessions.len() < MAX_CLIENTS {
        return;
    }
    let oldest = sessions.iter().min_by_key(|(_, (heard, _))| *heard).map(|(peer, _)| *peer);
    if let Some(peer) = oldest {
        sessions.remove(&peer);
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
    shown.waits(&format!("udp on {at}"));
    let mut sessions = Sessions::new();
    let mut buffer = vec![0; MAX_DATAGRAM.max(MAX_SIZE.min(1 << 16))];
    loop {
        let got = socket.async_io(Interest::READABLE, || receive(&socket, &mut buffer)).await;
        // An ICMP message about an earlier answer is not this socket's end.
        let Ok(train) = got else { continue };
        let now = Instant::now();
        let (mut stranger, mut session) = (Session::default(), sessions.get_mut(&train.peer));
        for message in buffer[..train.length].chunks(train.each) {
            // Who has not begun costs nothing that is kept.
            if session.is_none() && matches!(Control::read(message), Some(Control::Begin(_))) {
                make_room(&mut sessions);
                session =
                    Some(sessions.entry(train.peer).or_insert_with(|| (now, Session::default())));
            }
            let session = match &mut session {
                Some((heard, session)) => {
                    *heard = now;
                    session
                }
                None => &mut stranger,
            };
            match session.take(now, message, message.len(), true) {
                Reply::Nothing => continue,
                // What cannot be sent is lost, as a datagram may be.
                Reply::Echo => drop(socket.send_to(message, train.peer).await),
                Reply::Say(bytes) => drop(socket.send_to(&bytes, train.peer).await),
            }
            shown.measured(&train.peer, session.result());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn one_more_client_takes_the_place_of_the_most_silent() {
        let (mut sessions, begun) = (Sessions::new(), Instant::now());
        let peer = |n: usize| SocketAddr::from(([127, 0, 0, 1], 1024 + n as u16));
        for n in 0..MAX_CLIENTS {
            make_room(&mut sessions);
            let silent = if n == 7 { 0 } else { 1 + n as u64 };
            sessions.insert(peer(n), (begun + Duration::from_millis(silent), Session::default()));
        }
        assert_eq!(sessions.len(), MAX_CLIENTS);
        make_room(&mut sessions);
        assert_eq!((sessions.len(), sessions.contains_key(&peer(7))), (MAX_CLIENTS - 1, false));
    }
}
