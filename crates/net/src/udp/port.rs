//! One worker's socket of one UDP listener.

use super::shed;
use ringway_os::udp::{Fragment, Gauge, Waiting};
use ringway_os::{
    After, Datagram, IcmpError, RECEIVE_BATCH, ReceiveBatch, Reception, SEND_BATCH, SendBatch,
    Watched, enlarge_buffers, memory, next_icmp_error, set_option, source_for, watch_reading,
};
use ringway_sansio::{Backlog, Flow, FlowId, Listener, Time, Transport};
use socket2::Socket;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Maximum number of retries of a datagram, because an error may be an older one of the socket. A forger of
/// ICMP messages can cause such an error between any two attempts, but not between so many.
const SEND_RETRIES: u8 = 16;

/// One worker's socket of one UDP listener.
pub(crate) struct UdpPort {
    io: Rc<Watched<Socket>>,
    id: FlowId,
    local: SocketAddr,
    wildcard: bool,
    fragment: Fragment,
    waiting: Waiting,
    gauge: Gauge,
    /// The share of new requests that the kernel discards now, of [`SHED_ALL`](ringway_sansio::SHED_ALL).
    shed: u32,
}

/// The result of sending a batch of datagrams.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) sent: u64,
    pub(crate) waited: u64,
}

impl UdpPort {
    /// Registers a bound socket with the runtime. Returns also the size of the granted receive buffer, in bytes.
    pub(crate) fn new(
        socket: Socket,
        listener: Listener,
        id: FlowId,
        receive_buffer: usize,
    ) -> io::Result<(Self, usize)> {
        let granted = enlarge_buffers(&socket, receive_buffer)?;
        set_options(&socket, listener.addr)?;
        let io = Rc::new(watch_reading(socket)?);
        let wildcard = listener.addr.ip().is_unspecified();
        let fragment = Fragment::new(listener.addr.is_ipv4());
        let waiting = Waiting::default();
        let local = listener.addr;
        let gauge = Gauge::default();
        let shed = 0;
        Ok((UdpPort { io, id, local, wildcard, fragment, waiting, gauge, shed }, granted))
    }

    /// Receives one batch. Returns the number of receptions now in `buffers`. After a batch that is not full
    /// the socket is empty, and is not read again until it wakes the task.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut ReceiveBatch,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.io.poll_read_ready(cx))?;
            match buffers.receive(self.io.as_fd()) {
                Ok(got) => {
                    // recvmmsg stops early only when the queue is empty. Recording that saves a system
                    // call that would return nothing.
                    if got < RECEIVE_BATCH {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(got));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    drop(ready);
                    self.gauge.emptied(0);
                    self.shed(0);
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Returns the worker's backlog after a batch of `count` receptions, and the number of datagrams that the
    /// system has dropped since the last call.
    pub(crate) fn backlog(
        &mut self,
        now: Time,
        buffers: &ReceiveBatch,
        count: usize,
    ) -> (Backlog, u32) {
        if count < RECEIVE_BATCH {
            return (self.gauge.emptied(count), 0);
        }
        let octets = (0..count).filter_map(|i| buffers.get(i)).map(|r| r.bytes().len()).sum();
        match memory(self.io.as_fd()) {
            Some(memory) => self.gauge.full(now, count, octets, memory),
            None => (self.gauge.emptied(count), 0),
        }
    }

    /// Makes the kernel discard a share of new requests, of [`SHED_ALL`](ringway_sansio::SHED_ALL).
    pub(crate) fn shed(&mut self, share: u32) {
        // Where the system has no filters, the share stays zero and nothing is discarded.
        if share != self.shed && shed::shed(self.io.get_ref(), share).is_ok() {
            self.shed = share;
        }
    }

    /// Returns whether new requests are being discarded.
    pub(crate) fn is_shedding(&self) -> bool {
        self.shed > 0
    }

    /// Returns the flow of a datagram.
    pub(crate) fn flow(&self, reception: &Reception<'_>) -> Flow {
        let Reception { remote, local: to, .. } = *reception;
        let mut local = self.local;
        if self.wildcard {
            // A multicast address cannot be the source of a response.
            let unicast = |ip: &IpAddr| !ip.is_multicast() && !ip.is_unspecified();
            local.set_ip(
                to.filter(unicast).or_else(|| source_for(remote.ip())).unwrap_or(remote.ip()),
            );
        }
        Flow { id: self.id, transport: Transport::Udp, local, remote }
    }

    /// Returns the source address that a datagram needs in order to be sent from `local`.
    pub(crate) fn source(&self, local: SocketAddr) -> Option<IpAddr> {
        (self.wildcard && !local.ip().is_unspecified()).then(|| local.ip())
    }

    /// Sends datagrams in order; `reports` are their report numbers. Datagrams that the socket has no room
    /// for wait here. Appends to `failed` the report numbers of those that cannot be sent, zeros included.
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
            let (handled, skipped) = attempt(socket, fragment, buffers, batch, reports, failed);
            done += handled;
            result.sent += (handled - skipped) as u64;
            room = handled == batch.len().min(SEND_BATCH);
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

    /// Returns whether datagrams wait for room in the socket. [`UdpPort::send_waiting`] sends them.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends the waiting datagrams, as far as there is room. Returns the number sent.
    pub(crate) fn send_waiting(&mut self, buffers: &mut SendBatch, failed: &mut Vec<u64>) -> u64 {
        let mut sent = 0;
        while !self.waiting.is_empty() {
            let (socket, fragment) = (self.io.get_ref(), &mut self.fragment);
            let (handled, skipped) = self.waiting.with_front(|batch, reports| {
                attempt(socket, fragment, buffers, batch, reports, failed)
            });
            sent += (handled - skipped) as u64;
            if handled == 0 {
                break;
            }
            self.waiting.pop(handled);
        }
        sent
    }

    /// Returns the socket, for a task that waits for ICMP messages.
    pub(crate) fn io(&self) -> Rc<Watched<Socket>> {
        self.io.clone()
    }

    /// Reads one ICMP message; the quoted datagram is in `quote`.
    pub(crate) fn next_refusal(&self, quote: &mut [u8]) -> Option<IcmpError> {
        next_icmp_error(self.io.get_ref().as_fd(), quote)
    }
}

/// Sends once. Returns the number of datagrams sent or skipped, and the number skipped.
fn attempt(
    socket: &Socket,
    fragment: &mut Fragment,
    buffers: &mut SendBatch,
    batch: &[Datagram<'_>],
    reports: &[u64],
    failed: &mut Vec<u64>,
) -> (usize, usize) {
    let mut skipped = 0;
    let mut retries = (usize::MAX, 0);
    fragment.prepare(socket, &batch[..batch.len().min(SEND_BATCH)]);
    let handled = buffers.send(socket.as_fd(), batch, |index, code| {
        if code == libc::EAGAIN || code == libc::EWOULDBLOCK {
            return After::Stop;
        }
        // The path's MTU is smaller than any should be.
        if code == libc::EMSGSIZE && fragment.allow(socket) {
            return After::Retry;
        }
        // With IP_RECVERR a send may report an ICMP message about an earlier datagram. That error is
        // cleared once it is reported. An error that remains is this datagram's own.
        if retries.0 != index {
            retries = (index, 0);
        }
        if retries.1 < SEND_RETRIES {
            retries.1 += 1;
            return After::Retry;
        }
        failed.push(reports[index]);
        skipped += 1;
        After::Skip
    });
    (handled, skipped)
}

/// Sets the options of a socket. Large datagrams are fragmented, not refused ([`Fragment`] handles small
/// ones), and ICMP errors are reported. Control messages are received on a wildcard address, for the destination
/// address; over IPv6, for the interface; and with a train that the system coalesced.
fn set_options(socket: &Socket, addr: SocketAddr) -> io::Result<()> {
    use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_UDP};
    let fd = socket.as_fd();
    let wildcard = addr.ip().is_unspecified().into();
    if addr.is_ipv4() {
        set_option(fd, IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)?;
        set_option(fd, IPPROTO_IP, libc::IP_RECVERR, 1)?;
        set_option(fd, IPPROTO_IP, libc::IP_PKTINFO, wildcard)?;
    } else {
        set_option(fd, IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    }
    // Systems older than Linux 5.0 do not coalesce, and work without it.
    let _ = set_option(fd, SOL_UDP, libc::UDP_GRO, 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn waiting_datagrams_are_sent_first_and_in_order() {
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
            assert!(port.waiting.push(&Datagram::new(bytes, to, None), 1));
        }
        let (mut buffers, mut failed) = (SendBatch::new(), Vec::new());
        let last = [Datagram::new(&[200], to, None)];
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
