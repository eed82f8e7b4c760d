//! UDP and UDP-Lite: a connected socket, and a listener's socket whose datagrams are distinguished by their source.

use crate::carrier::{Carrier, Event, Part};
use crate::error::Error;
use crate::events::Events;
use crate::limits::DATAGRAM_QUEUE;
use crate::packets::{Packet, PacketSocket};
use crate::waiters::{Fan, Waiters};
use bytes::Bytes;
use ringway_os::{ReceiveBatch, Watched, set_receive_coverage, set_send_coverage, watch_reading};
use ringway_services::Protocol;
use ringway_services::properties::Coverage;
use ringway_services::sending::Sending;
use socket2::Socket;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, ready};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Notify;

/// Octets of the largest datagram.
pub(crate) const MAX_DATAGRAM: usize = 65_535;

thread_local! {
    /// What datagrams are received into, before each gets memory of its own size.
    static BUFFER: RefCell<Box<[u8; MAX_DATAGRAM]>> = RefCell::new(Box::new([0; MAX_DATAGRAM]));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unsupported(octets: Option<u32>) -> Result<(), Error> {
    let what = "cover a part of a message by its checksum";
    match octets {
        None => Ok(()),
        Some(_) => Err(Error::Unsupported { protocol: Protocol::Udp, what }),
    }
}

/// Waits for what there is to receive, and for what the network reports.
struct Readiness {
    io: Arc<Watched<Socket>>,
    readers: Arc<Fan>,
    waiting: Mutex<Option<Wait>>,
}

type Wait = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

impl Readiness {
    fn poll(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut waiting = lock(&self.waiting);
        let wait = waiting.get_or_insert_with(|| {
            let io = self.io.clone();
            Box::pin(async move {
                // Cleared before the next attempt, which finds what has come until then; what comes later is reported.
                io.ready(Interest::READABLE | Interest::ERROR).await?.clear_ready();
                Ok(())
            })
        });
        let result = ready!(self.readers.poll(cx, |cx| wait.as_mut().poll(cx)));
        *waiting = None;
        Poll::Ready(result)
    }
}

/// What the network reports of an earlier datagram.
fn is_soft(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

/// A socket that is connected to one peer.
pub(crate) struct Connected {
    io: Arc<Watched<Socket>>,
    is_lite: bool,
    /// The coverage of the socket, which is set when a message wants another one.
    coverage: Mutex<Coverage>,
    local: SocketAddr,
    readiness: Readiness,
    /// Registered when there was no room for the first time: sockets have room nearly always, and report each change.
    writer: OnceLock<UdpSocket>,
    writers: Arc<Fan>,
    /// What the network has reported to a call that sent.
    reported: Mutex<Option<io::Error>>,
    ended: AtomicBool,
}

impl Connected {
    /// To be called within a runtime.
    pub(crate) fn new(socket: Socket, is_lite: bool) -> Result<Connected, Error> {
        let failed = |error| Error::system("socket", error);
        let local = socket.local_addr().map_err(failed)?.as_socket();
        let local = local.ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))?;
        let io = Arc::new(watch_reading(socket).map_err(failed)?);
        let (readers, waiting) = (Arc::default(), Mutex::default());
        Ok(Connected {
            readiness: Readiness { io: io.clone(), readers, waiting },
            io,
            is_lite,
            coverage: Mutex::new(Coverage(None)),
            local,
            writer: OnceLock::new(),
            writers: Arc::default(),
            reported: Mutex::default(),
            ended: AtomicBool::new(false),
        })
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends a datagram with the coverage that it wants.
    fn try_send(&self, message: &[u8], coverage: Coverage) -> io::Result<usize> {
        let socket = self.io.get_ref();
        if !self.is_lite {
            return socket.send(message);
        }
        // The option is the socket's, so that no other datagram may be sent between setting and sending.
        let mut set = lock(&self.coverage);
        if *set != coverage {
            set_send_coverage(socket.as_fd(), coverage.0)?;
            *set = coverage;
        }
        socket.send(message)
    }

    /// Waits until there is room.
    fn poll_writable(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let writer = match self.writer.get() {
            Some(writer) => writer,
            None => {
                let copy = self.io.get_ref().try_clone()?;
                let copy = UdpSocket::from_std(copy.into())?;
                self.writer.get_or_init(|| copy)
            }
        };
        let blocks = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        // The attempt before this found none.
        let _ = writer.try_io(Interest::WRITABLE, blocks);
        self.writers.poll(cx, |cx| writer.poll_send_ready(cx))
    }
}

impl Carrier for Connected {
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        message: &mut Bytes,
        sending: &Sending,
    ) -> Poll<Result<(), Error>> {
        if self.ended.load(Ordering::Relaxed) {
            return Poll::Ready(Err(Error::Ended));
        }
        let mut had_report = false;
        loop {
            match self.try_send(message, sending.checksum) {
                Ok(_) => {
                    if sending.last {
                        self.ended.store(true, Ordering::Relaxed);
                    }
                    *message = Bytes::new();
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_writable(cx)).map_err(|error| Error::system("send", error))?;
                }
                // This datagram was not sent because of an earlier one, whose report is for who receives.
                Err(error) if is_soft(&error) && !had_report => {
                    had_report = true;
                    *lock(&self.reported) = Some(error);
                    self.readiness.readers.wake_by_ref();
                }
                Err(error) => return Poll::Ready(Err(Error::system("send", error))),
            }
        }
    }

    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, Error>> {
        loop {
            if let Some(error) = lock(&self.reported).take() {
                return Poll::Ready(Err(Error::system("receive", error)));
            }
            let received: io::Result<Bytes> = BUFFER.with_borrow_mut(|buffer| {
                let length = self.io.get_ref().read(&mut buffer[..])?;
                Ok(Bytes::copy_from_slice(&buffer[..length]))
            });
            match received {
                Ok(bytes) => return Poll::Ready(Ok(Some(Part::whole(bytes)))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = self.readiness.poll(cx);
                    ready!(ready).map_err(|error| Error::system("receive", error))?;
                }
                Err(error) => return Poll::Ready(Err(Error::system("receive", error))),
            }
        }
    }

    fn poll_flushed(&self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn poll_event(&self, _cx: &mut Context<'_>) -> Poll<Event> {
        Poll::Pending
    }

    fn close(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn abort(&self, _code: u32) {
        self.close();
    }

    fn set_receive_coverage(&self, octets: Option<u32>) -> Result<(), Error> {
        if !self.is_lite {
            return unsupported(octets);
        }
        set_receive_coverage(self.io.get_ref().as_fd(), octets)
            .map_err(|error| Error::system("the coverage of checksums", error))
    }
}

/// What was received of one peer and not read.
#[derive(Default)]
struct Inbox {
    datagrams: VecDeque<Bytes>,
    readers: Waiters,
    events: Events,
}

/// A socket of a listener.
pub(crate) struct Shared {
    socket: PacketSocket,
    is_lite: bool,
    coverage: Mutex<Coverage>,
    peers: Mutex<HashMap<SocketAddr, Arc<Mutex<Inbox>>>>,
    /// Whether the listener has ended, and only peers that are known are served.
    closed: AtomicBool,
    /// Notified when the listener or a flow has ended.
    ended: Notify,
}

/// One peer at a socket of a listener.
pub(crate) struct Flow {
    shared: Arc<Shared>,
    remote: SocketAddr,
    /// The local address that the peer sends to.
    local: Option<IpAddr>,
    inbox: Arc<Mutex<Inbox>>,
    ended: Mutex<bool>,
}

impl Shared {
    pub(crate) fn new(socket: PacketSocket, is_lite: bool) -> Arc<Shared> {
        let (coverage, peers) = (Mutex::new(Coverage(None)), Mutex::default());
        let (closed, ended) = (AtomicBool::new(false), Notify::new());
        Arc::new(Shared { socket, is_lite, coverage, peers, closed, ended })
    }

    pub(crate) fn set_receive_coverage(&self, octets: Option<u32>) -> io::Result<()> {
        if self.is_lite {
            set_receive_coverage(self.socket.as_fd(), octets)?;
        }
        Ok(())
    }

    /// Admits no more peers. The socket is closed when the last flow has ended.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.ended.notify_one();
    }

    fn is_over(&self) -> bool {
        self.closed.load(Ordering::Relaxed) && lock(&self.peers).is_empty()
    }

    /// Puts a datagram into the inbox of its peer. Returns the flow of a peer that is new, if `admit` allows it.
    fn deliver(
        self: &Arc<Self>,
        packet: &Packet<'_>,
        admit: impl FnOnce() -> bool,
    ) -> Option<Flow> {
        let mut peers = lock(&self.peers);
        let (inbox, is_new) = match peers.get(&packet.remote) {
            Some(inbox) => (inbox.clone(), false),
            None => {
                if self.closed.load(Ordering::Relaxed) || !admit() {
                    return None;
                }
                let inbox = Arc::<Mutex<Inbox>>::default();
                peers.insert(packet.remote, inbox.clone());
                (inbox, true)
            }
        };
        drop(peers);
        {
            let mut inbox = lock(&inbox);
            if inbox.datagrams.len() < DATAGRAM_QUEUE {
                inbox.datagrams.push_back(Bytes::copy_from_slice(packet.bytes));
                inbox.readers.wake();
            } else {
                inbox.events.push(Event::Dropped { messages: 1 });
            }
        }
        is_new.then(|| {
            let (shared, remote, local) = (self.clone(), packet.remote, packet.local);
            Flow { shared, remote, local, inbox, ended: Mutex::new(false) }
        })
    }
}

/// Receives datagrams until the listener and all flows have ended. `new` is called with the flow of each new peer that
/// `admit` allows.
pub(crate) async fn serve(shared: Arc<Shared>, admit: impl Fn(IpAddr) -> bool, new: impl Fn(Flow)) {
    let mut batch = ReceiveBatch::new();
    while !shared.is_over() {
        tokio::select! {
            () = shared.ended.notified() => continue,
            received = shared.socket.receive(&mut batch) => if received.is_err() {
                return;
            },
        }
        shared.socket.each(&batch, |packet| {
            if let Some(flow) = shared.deliver(&packet, || admit(packet.remote.ip())) {
                new(flow);
            }
        });
    }
}

impl Flow {
    pub(crate) fn remote(&self) -> SocketAddr {
        self.remote
    }

    pub(crate) fn local(&self) -> SocketAddr {
        let bound = self.shared.socket.local();
        SocketAddr::new(self.local.unwrap_or(bound.ip()), bound.port())
    }

    fn try_send(&self, message: &[u8], coverage: Coverage) -> io::Result<()> {
        let shared = &self.shared;
        if !shared.is_lite {
            return shared.socket.send(message, self.remote, self.local, 0);
        }
        let mut set = lock(&shared.coverage);
        if *set != coverage {
            set_send_coverage(shared.socket.as_fd(), coverage.0)?;
            *set = coverage;
        }
        shared.socket.send(message, self.remote, self.local, 0)
    }
}

impl Carrier for Flow {
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        message: &mut Bytes,
        sending: &Sending,
    ) -> Poll<Result<(), Error>> {
        if *lock(&self.ended) {
            return Poll::Ready(Err(Error::Ended));
        }
        let sent = self.shared.socket.poll_send(cx, || self.try_send(message, sending.checksum));
        ready!(sent).map_err(|error| Error::system("send", error))?;
        *lock(&self.ended) |= sending.last;
        *message = Bytes::new();
        Poll::Ready(Ok(()))
    }

    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, Error>> {
        let mut inbox = lock(&self.inbox);
        match inbox.datagrams.pop_front() {
            Some(bytes) => Poll::Ready(Ok(Some(Part::whole(bytes)))),
            None => {
                inbox.readers.add(cx);
                Poll::Pending
            }
        }
    }

    fn poll_flushed(&self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Event> {
        lock(&self.inbox).events.poll(cx)
    }

    fn close(&self) {
        *lock(&self.ended) = true;
    }

    fn abort(&self, _code: u32) {
        self.close();
    }

    fn set_receive_coverage(&self, octets: Option<u32>) -> Result<(), Error> {
        if !self.shared.is_lite {
            return unsupported(octets);
        }
        // The option is that of the socket, and a listener sets what its properties have.
        match octets {
            None => Ok(()),
            Some(_) => self
                .shared
                .set_receive_coverage(octets)
                .map_err(|error| Error::system("the coverage of checksums", error)),
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let mut peers = lock(&self.shared.peers);
        if peers.get(&self.remote).is_some_and(|inbox| Arc::ptr_eq(inbox, &self.inbox)) {
            peers.remove(&self.remote);
        }
        drop(peers);
        self.shared.ended.notify_one();
    }
}
