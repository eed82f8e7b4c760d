//! UDP: one socket a worker and listener, received in batches and sent in batches.
//!
//! Nothing is allocated for a datagram: it is handed up as a slice of the receive buffers and sent
//! from a slice of the outbox. Answers leave from the address the peer used (`IP_PKTINFO`), and
//! datagrams above the path's MTU are fragmented as RFC 3261 section 18.1.1 expects of responses.

mod fragment;
mod outstanding;
mod waiting;

pub(crate) use outstanding::{Outstanding, QUOTE};

use crate::bind::enlarge_buffers;
use crate::route::{Listener, source_for};
use crate::sys::{
    After, Datagram, Refusal, SEND_BATCH, SendBatch, next_refusal, set_option, watch_reading,
};
use fragment::Fragment;
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use ringway_sansio::{Flow, FlowId, Transport};
use socket2::Socket;
use std::array;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::unix::AsyncFd;
use waiting::Waiting;

/// Most datagrams one receive call gives (more when the system coalesced them).
pub(crate) const RECEIVE_BATCH: usize = BATCH_SIZE;

/// Room for the largest datagram, or a train of coalesced ones: 65,535 bytes and enough more that
/// the buffers' beginnings do not fall on the same cache lines.
const BUFFER: usize = 65_536 + 9 * 64;

/// Times a datagram is tried again because the error may have been an older one of the socket.
const SEND_RETRIES: u8 = 2;

/// Where a worker's datagrams are received; shared by all its sockets.
pub(crate) struct ReceiveBuffers {
    storage: Box<[u8]>,
    meta: [RecvMeta; RECEIVE_BATCH],
}

impl ReceiveBuffers {
    pub(crate) fn new() -> Self {
        ReceiveBuffers {
            storage: vec![0; BUFFER * RECEIVE_BATCH].into_boxed_slice(),
            meta: [RecvMeta::default(); RECEIVE_BATCH],
        }
    }

    /// Every datagram of the first `count` receptions: the peer's address, the address it was sent
    /// to, the bytes. An empty datagram is given as no bytes.
    pub(crate) fn datagrams(&self, count: usize) -> impl Iterator<Item = (&RecvMeta, &[u8])> {
        let buffers = self.storage.chunks_exact(BUFFER);
        self.meta.iter().take(count).zip(buffers).flat_map(|(meta, buffer)| {
            let bytes = &buffer[..meta.len.min(BUFFER)];
            let stride = meta.stride.max(1);
            let pieces = bytes.len().div_ceil(stride).max(1);
            (0..pieces).map(move |i| {
                let end = ((i + 1) * stride).min(bytes.len());
                (meta, &bytes[i * stride..end])
            })
        })
    }

    /// How long the first datagram received had waited in the socket.
    pub(crate) fn delay(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.meta[0].timestamp.map_or(Duration::ZERO, |then| now.saturating_sub(then))
    }
}

/// One worker's socket of one UDP listener.
pub(crate) struct UdpPort {
    io: Rc<AsyncFd<Socket>>,
    state: UdpSocketState,
    id: FlowId,
    local: SocketAddr,
    wildcard: bool,
    fragment: Fragment,
    waiting: Waiting,
    /// Datagrams of the full batches in a row before the present one.
    pub(crate) behind: usize,
}

/// What became of a batch of datagrams.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) sent: u64,
    pub(crate) waited: u64,
}

impl UdpPort {
    /// Takes a bound socket into the runtime. Gives also the receive buffer granted, in bytes.
    pub(crate) fn new(
        socket: Socket,
        listener: Listener,
        id: FlowId,
        receive_buffer: usize,
    ) -> io::Result<(Self, usize)> {
        let granted = enlarge_buffers(&socket, receive_buffer)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        set_options(&socket, listener.addr)?;
        let io = Rc::new(watch_reading(socket)?);
        let wildcard = listener.addr.ip().is_unspecified();
        let fragment = Fragment::new(listener.addr.is_ipv4());
        let waiting = Waiting::default();
        let local = listener.addr;
        Ok((UdpPort { io, state, id, local, wildcard, fragment, waiting, behind: 0 }, granted))
    }

    /// Receives one batch: the number of receptions now in `buffers`. After a batch that is not
    /// full the socket is known to be empty and is not asked again until it wakes us.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut ReceiveBuffers,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.io.poll_read_ready(cx))?;
            let mut chunks = buffers.storage.chunks_exact_mut(BUFFER);
            let mut slices: [IoSliceMut<'_>; RECEIVE_BATCH] =
                array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
            let socket = UdpSockRef::from(self.io.get_ref());
            match self.state.recv(socket, &mut slices, &mut buffers.meta) {
                Ok(got) => {
                    // recvmmsg stops early only when the queue is empty. Noting that saves a system
                    // call that would find nothing.
                    if got < RECEIVE_BATCH {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(got));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// The flow a datagram came on.
    pub(crate) fn flow(&self, meta: &RecvMeta) -> Flow {
        let mut local = self.local;
        if self.wildcard {
            // A group's address is not one to answer from.
            let own = |ip: &IpAddr| !ip.is_multicast() && !ip.is_unspecified();
            match meta.dst_ip.filter(own).or_else(|| source_for(meta.addr.ip())) {
                Some(ip) => local.set_ip(ip),
                None => local.set_ip(meta.addr.ip()),
            }
        }
        Flow { id: self.id, transport: Transport::Udp, local, remote: meta.addr }
    }

    /// The source address a datagram must be given so that it leaves from `local`.
    pub(crate) fn source(&self, local: SocketAddr) -> Option<IpAddr> {
        (self.wildcard && !local.ip().is_unspecified()).then(|| local.ip())
    }

    /// Sends datagrams, in order; `reports` go with them. Those the socket has no room for wait
    /// here; the reports of those that cannot be sent are put into `failed`, zeroes too.
    pub(crate) fn send(
        &mut self,
        buffers: &mut SendBatch,
        batch: &[Datagram<'_>],
        reports: &[u64],
        failed: &mut Vec<u64>,
    ) -> Sent {
        let mut result = Sent::default();
        let mut done = 0;
        let mut room = self.waiting.is_empty();
        while room && done < batch.len() {
            let (batch, reports) = (&batch[done..], &reports[done..]);
            let (socket, fragment) = (self.io.get_ref(), &mut self.fragment);
            let (dealt, skipped) = attempt(socket, fragment, buffers, batch, reports, failed);
            done += dealt;
            result.sent += (dealt - skipped) as u64;
            room = dealt == batch.len().min(SEND_BATCH);
        }
        for (datagram, report) in batch.iter().zip(reports).skip(done) {
            if self.waiting.push(datagram, *report) {
                result.waited += 1;
            } else {
                failed.push(*report);
            }
        }
        result
    }

    /// Whether datagrams wait for room in the socket; they are tried again by
    /// [`UdpPort::send_waiting`].
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends what waits, as far as there is room. Gives how many were sent.
    pub(crate) fn send_waiting(&mut self, buffers: &mut SendBatch, failed: &mut Vec<u64>) -> u64 {
        let mut sent = 0;
        while !self.waiting.is_empty() {
            let (socket, fragment) = (self.io.get_ref(), &mut self.fragment);
            let (dealt, skipped) = self.waiting.with_front(|batch, reports| {
                attempt(socket, fragment, buffers, batch, reports, failed)
            });
            sent += (dealt - skipped) as u64;
            if dealt == 0 {
                break;
            }
            self.waiting.pop(dealt);
        }
        sent
    }

    /// The socket, for a task that waits for ICMP messages.
    pub(crate) fn io(&self) -> Rc<AsyncFd<Socket>> {
        self.io.clone()
    }

    /// Takes one ICMP message; the datagram it quotes is in `quote`.
    pub(crate) fn next_refusal(&self, quote: &mut [u8]) -> Option<Refusal> {
        next_refusal(self.io.get_ref().as_fd(), quote)
    }
}

/// One round of sending. Gives how many datagrams are dealt with, and how many of those failed.
fn attempt(
    socket: &Socket,
    fragment: &mut Fragment,
    buffers: &mut SendBatch,
    batch: &[Datagram<'_>],
    reports: &[u64],
    failed: &mut Vec<u64>,
) -> (usize, usize) {
    let mut skipped = 0;
    let mut tried = (usize::MAX, 0);
    fragment.prepare(socket, &batch[..batch.len().min(SEND_BATCH)]);
    let dealt = buffers.send(socket.as_fd(), batch, |index, code| {
        if code == libc::EAGAIN || code == libc::EWOULDBLOCK {
            return After::Stop;
        }
        // The path is narrower than any should be.
        if code == libc::EMSGSIZE && fragment.allow(socket) {
            return After::Retry;
        }
        // With IP_RECVERR a send may tell of an ICMP message about an earlier datagram; that error
        // is gone once told. An error that stays is this datagram's own.
        if tried.0 != index {
            tried = (index, 0);
        }
        if tried.1 < SEND_RETRIES {
            tried.1 += 1;
            return After::Retry;
        }
        failed.push(reports[index]);
        skipped += 1;
        After::Skip
    });
    (dealt, skipped)
}

/// Options on top of what `quinn-udp` sets, which is made for QUIC: SIP wants large datagrams
/// fragmented, not refused ([`Fragment`] changes that for small ones), has no use for ECN, and wants
/// to hear of refusals.
fn set_options(socket: &Socket, addr: SocketAddr) -> io::Result<()> {
    use libc::{IPPROTO_IP, IPPROTO_IPV6};
    let fd = socket.as_fd();
    if addr.is_ipv4() {
        set_option(fd, IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)?;
        set_option(fd, IPPROTO_IP, libc::IP_RECVTOS, 0)?;
        set_option(fd, IPPROTO_IP, libc::IP_RECVERR, 1)?;
        if !addr.ip().is_unspecified() {
            set_option(fd, IPPROTO_IP, libc::IP_PKTINFO, 0)?;
        }
    } else {
        set_option(fd, IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_DONTFRAG, 0)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 0)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        if !addr.ip().is_unspecified() {
            set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 0)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_waits_goes_first_and_in_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let addr = "127.0.0.1:0".parse().unwrap();
        let bound = crate::bind::bind(Transport::Udp, addr, 1).unwrap();
        let socket = bound.sockets.into_iter().next().unwrap();
        let id = FlowId::new(0, 0);
        let (mut port, _) = UdpPort::new(socket, bound.listener, id, 1 << 20).unwrap();
        let receiver = std::net::UdpSocket::bind(addr).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let to = receiver.local_addr().unwrap();
        let numbers: Vec<[u8; 1]> = (0..SEND_BATCH as u8 + 6).map(|n| [n]).collect();
        for bytes in &numbers {
            assert!(port.waiting.push(&Datagram { bytes, to, from: None }, 1));
        }
        let (mut buffers, mut failed) = (SendBatch::new(), Vec::new());
        let last = [Datagram { bytes: &[200], to, from: None }];
        let sent = port.send(&mut buffers, &last, &[1], &mut failed);
        assert_eq!(sent, Sent { sent: 0, waited: 1 });
        assert_eq!(port.send_waiting(&mut buffers, &mut failed), SEND_BATCH as u64 + 7);
        assert!(!port.has_waiting() && failed.is_empty());
        let mut buffer = [0; 4];
        for bytes in numbers.iter().chain([&[200]]) {
            assert_eq!((receiver.recv(&mut buffer).unwrap(), buffer[0]), (1, bytes[0]));
        }
    }
}
