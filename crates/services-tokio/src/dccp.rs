//! DCCP over UDP (RFC 6773): `ringway_dccp` on a socket, for one connection or for those of a listener.

use crate::alarm::Alarm;
use crate::carrier::{Carrier, Event, Part};
use crate::error::Error;
use crate::limits::Limits;
use crate::options;
use crate::packets::PacketSocket;
use crate::transport::{Established, Peer, Transport};
use crate::waiters::Waiters;
use bytes::Bytes;
use ringway_dccp::{
    Close, ConnId, Dccp, Event as DccpEvent, PROTOCOL, SendError, SendOptions, Settings, UDP_PORT,
};
use ringway_os::{Cause, ChaCha, Clock, ReceiveBatch, next_icmp_error, path_mtu};
use ringway_sansio::{Addressing, Ecn, Endpoint as _, Icmp};
use ringway_services::protocol::MessageLimits;
use ringway_services::sending::Sending;
use ringway_services::{Candidate, Preconnection as Policy};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The service code of connections of this project (RFC 4340 section 8.1.2): the port identifies what they carry.
pub(crate) const SERVICE_CODE: u32 = u32::from_be_bytes(*b"RWTS");

/// Octets of an IP packet if nothing is known of the path.
const DEFAULT_MTU: u16 = 1_500;
/// Octets that are quoted of a datagram in an ICMP message.
const QUOTE: usize = 64;
/// Octets of a packet's headers: IPv6, UDP, and DCCP-Data with options.
const HEADERS: u16 = 40 + 8 + 16 + 32;

/// One connection.
#[derive(Default)]
struct Slot {
    waiters: Waiters,
    open: bool,
    closed: Option<Close>,
}

struct State {
    dccp: Dccp,
    slots: BTreeMap<ConnId, Slot>,
    driver: Option<Waker>,
    /// Whether no connection will be opened any longer.
    is_single: bool,
    ended: Option<Error>,
}

/// The DCCP of one socket.
pub(crate) struct Endpoint {
    state: Mutex<State>,
    socket: PacketSocket,
    clock: Clock,
}

impl Endpoint {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(socket: PacketSocket, settings: Settings, is_single: bool) -> Result<Arc<Self>, Error> {
        let random = ChaCha::from_os().map_err(|error| Error::system("DCCP", error))?;
        let dccp = Dccp::new(ringway_dccp::Limits::default(), settings, Box::new(random));
        let dccp = dccp.map_err(|e| Error::system("DCCP", io::Error::other(e)))?;
        let (slots, driver, ended) = (BTreeMap::new(), None, None);
        let state = Mutex::new(State { dccp, slots, driver, is_single, ended });
        Ok(Arc::new(Endpoint { state, socket, clock: Clock::new() }))
    }

    fn poll<T>(
        &self,
        cx: &Context<'_>,
        id: ConnId,
        poll: impl FnOnce(&mut Dccp, &Slot) -> Poll<T>,
    ) -> Poll<T> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let slot = state.slots.entry(id).or_default();
        let result = poll(&mut state.dccp, slot);
        if result.is_pending() {
            slot.waiters.add(cx);
        }
        result
    }

    fn wake_driver(&self) {
        let waker = self.lock().driver.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Returns the settings of a connection.
fn settings(policy: &Policy, limits: &Limits, remote: Option<SocketAddr>) -> Settings {
    let mtu = remote.and_then(|remote| path_mtu(remote.ip()));
    let mtu = mtu.map_or(DEFAULT_MTU, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX));
    let defaults = Settings::default();
    let timeout = policy.properties.connection.conn_timeout.0;
    Settings {
        mtu,
        handshake_timeout: limits.handshake,
        user_timeout: timeout.unwrap_or(defaults.user_timeout),
        udp_port: Some(remote.map_or(UDP_PORT, |remote| remote.port())),
        ..defaults
    }
}

fn close_error(close: Close) -> Error {
    match close {
        Close::Finished => Error::Closed,
        Close::Reset(_) => Error::Aborted { code: 0 },
        Close::HandshakeTimeout => Error::lost("the peer does not answer"),
        Close::Timeout => Error::lost("the peer was silent for too long"),
        Close::Unreachable => Error::lost("the peer is unreachable"),
        other => Error::lost(format!("{other:?}")),
    }
}

/// Opens a connection, from a socket of its own.
pub(crate) async fn connect(
    peer: &Peer<'_>,
    policy: &Policy,
    candidate: Candidate,
    limits: &Limits,
) -> Result<Established, Error> {
    let remote = peer.address;
    let source = candidate.local_address.map_or_else(|| options::source_for(remote), Ok);
    let source = source.map_err(|error| Error::system("connect", error))?;
    let bound = SocketAddr::new(source, candidate.local_port.unwrap_or(0));
    let socket = PacketSocket::bind_reporting(bound, candidate.interface.as_deref());
    let socket = socket.map_err(|error| Error::system("socket", error))?;
    let udp = SocketAddr::new(remote.ip(), peer.udp_port);
    let settings = settings(policy, limits, Some(udp));
    let endpoint = Endpoint::new(socket, settings, true)?;
    let now = endpoint.clock.now();
    let local = SocketAddr::new(source, 0);
    let id = endpoint.lock().dccp.connect(now, local, remote, SERVICE_CODE, None);
    let id = id.map_err(|error| Error::system("connect", io::Error::other(error)))?;
    endpoint.lock().slots.insert(id, Slot::default());
    let flow = Flow { endpoint: endpoint.clone(), id };
    start(endpoint.clone(), None);
    let opened = poll_fn(|cx| {
        endpoint.poll(cx, id, |_, slot| match slot.closed {
            Some(close) => Poll::Ready(Err(close_error(close))),
            None if slot.open => Poll::Ready(Ok(())),
            None => Poll::Pending,
        })
    });
    opened.await?;
    let local = endpoint.lock().dccp.addresses(id).map_or(local, |(local, _)| local);
    let transport = Transport::Single(Box::new(flow));
    Ok(Established { transport, local, remote, candidate })
}

/// A connection that a peer has opened.
pub(crate) struct Accepted {
    pub(crate) flow: Flow,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// Listens for connections at a port, over UDP at a UDP port. The endpoint ends when it is dropped and its last connection
/// has ended.
pub(crate) fn listen(
    policy: &Policy,
    limits: &Limits,
    address: SocketAddr,
    udp_port: u16,
    interface: Option<&str>,
) -> Result<(Listening, mpsc::Receiver<Accepted>), Error> {
    let bound = SocketAddr::new(address.ip(), udp_port);
    let socket = PacketSocket::bind_reporting(bound, interface);
    let socket = socket.map_err(|error| Error::system("bind", error))?;
    let endpoint = Endpoint::new(socket, settings(policy, limits, None), false)?;
    let listening = endpoint.lock().dccp.listen(address, &[SERVICE_CODE], None);
    listening.map_err(|error| Error::system("listen", io::Error::other(error)))?;
    let (sender, receiver) = mpsc::channel(limits.waiting.max(1));
    start(endpoint.clone(), Some(sender));
    Ok((Listening(endpoint), receiver))
}

/// A listening endpoint.
pub(crate) struct Listening(Arc<Endpoint>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.lock().is_single = true;
        self.0.wake_driver();
    }
}

fn start(endpoint: Arc<Endpoint>, accepted: Option<mpsc::Sender<Accepted>>) {
    let errors = tokio::spawn(read_errors(Arc::downgrade(&endpoint), endpoint.socket.clone()));
    let batch = ReceiveBatch::new();
    tokio::spawn(async move {
        Driver { endpoint, accepted, batch, alarm: Alarm::new(), out: Vec::new() }.await;
        errors.abort();
    });
}

/// Passes ICMP messages to the protocol.
async fn read_errors(endpoint: Weak<Endpoint>, socket: PacketSocket) {
    let mut quote = [0; QUOTE];
    while socket.errors().await.is_ok() {
        let Some(endpoint) = endpoint.upgrade() else { return };
        while let Some(error) = next_icmp_error(socket.as_fd(), &mut quote) {
            let icmp = match error.cause {
                Cause::PortUnreachable | Cause::ProtocolUnreachable => Icmp::ProtocolUnreachable,
                Cause::Unreachable => Icmp::Unreachable,
                Cause::TooBig(mtu) => Icmp::TooBig(mtu),
                Cause::Other => continue,
            };
            let Some(to) = error.to else { continue };
            let bound = socket.local().ip();
            let local = error.local.filter(|_| bound.is_unspecified()).unwrap_or(bound);
            let sent =
                Addressing { udp_port: to.port(), ..Addressing::new(local, to.ip(), PROTOCOL) };
            let now = endpoint.clock.now();
            endpoint.lock().dccp.handle_icmp(now, &sent, icmp, &quote[..error.quoted]);
        }
        endpoint.wake_driver();
    }
}

/// Drops what was received of a connection that nobody reads any longer.
fn discard(dccp: &mut Dccp, id: ConnId) {
    while let Ok(Some(_)) = dccp.recv(id) {}
}

/// The task of a socket.
struct Driver {
    endpoint: Arc<Endpoint>,
    accepted: Option<mpsc::Sender<Accepted>>,
    batch: ReceiveBatch,
    alarm: Alarm,
    out: Vec<u8>,
}

impl Driver {
    /// Receives what is there. Returns whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let endpoint = &self.endpoint;
        match endpoint.socket.poll_receive(cx, &mut self.batch) {
            Poll::Pending => return false,
            // An ICMP message, which the other task reads.
            Poll::Ready(Err(_)) => return true,
            Poll::Ready(Ok(())) => {}
        }
        let now = endpoint.clock.now();
        let mut state = endpoint.lock();
        endpoint.socket.each(&self.batch, |packet| {
            let Some(local) = packet.local else { return };
            let addressing = Addressing {
                ecn: Ecn::from_bits(packet.ecn),
                udp_port: packet.remote.port(),
                ..Addressing::new(packet.remote.ip(), local, PROTOCOL)
            };
            state.dccp.handle_packet(now, addressing, packet.bytes);
        });
        true
    }

    fn dispatch(&mut self) {
        let mut opened = Vec::new();
        let mut guard = self.endpoint.lock();
        let state = &mut *guard;
        while let Some(event) = state.dccp.poll_event() {
            match event {
                DccpEvent::Open { id, listener: Some(_) } => {
                    state.slots.insert(id, Slot { open: true, ..Slot::default() });
                    opened.extend(state.dccp.addresses(id).map(|ends| (id, ends)));
                }
                DccpEvent::Open { id, listener: None } => {
                    if let Some(slot) = state.slots.get_mut(&id) {
                        slot.open = true;
                        slot.waiters.wake();
                    }
                }
                DccpEvent::Readable(id) | DccpEvent::Writable(id) => match state.slots.get_mut(&id)
                {
                    Some(slot) => slot.waiters.wake(),
                    None => discard(&mut state.dccp, id),
                },
                DccpEvent::Closed(id, close) => match state.slots.get_mut(&id) {
                    Some(slot) => {
                        slot.closed = Some(close);
                        slot.waiters.wake();
                    }
                    None => discard(&mut state.dccp, id),
                },
                _ => {}
            }
        }
        drop(guard);
        for (id, (local, remote)) in opened {
            let flow = Flow { endpoint: self.endpoint.clone(), id };
            if let Some(sender) = &self.accepted {
                // One that finds no room is closed as it is dropped.
                let _ = sender.try_send(Accepted { flow, local, remote });
            }
        }
    }

    fn transmit(&mut self) {
        let endpoint = &self.endpoint;
        let now = endpoint.clock.now();
        let mut state = endpoint.lock();
        loop {
            self.out.clear();
            let Some(way) = state.dccp.poll_transmit(now, &mut self.out) else { return };
            let to = SocketAddr::new(way.destination, way.udp_port);
            // What the system has no room for is lost, as in the network.
            let _ = endpoint.socket.send(&self.out, to, Some(way.source), way.ecn.bits());
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        driver.endpoint.lock().driver = Some(cx.waker().clone());
        let more = driver.receive(cx);
        let now = driver.endpoint.clock.now();
        {
            let mut state = driver.endpoint.lock();
            if state.dccp.poll_timeout().is_some_and(|at| at <= now) {
                state.dccp.handle_timeout(now);
            }
        }
        driver.dispatch();
        driver.transmit();
        driver.dispatch();
        let (next, over) = {
            let state = driver.endpoint.lock();
            (state.dccp.poll_timeout(), state.is_single && state.dccp.is_empty())
        };
        if over {
            return Poll::Ready(());
        }
        let next = next.map(|at| Instant::from_std(driver.endpoint.clock.instant(at)));
        driver.alarm.set(next, cx);
        if more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = self.endpoint.lock();
        state.ended.get_or_insert_with(|| Error::lost("its task has ended"));
        state.slots.values_mut().for_each(|slot| slot.waiters.wake());
    }
}

/// One connection. When it is dropped, it is closed.
pub(crate) struct Flow {
    endpoint: Arc<Endpoint>,
    id: ConnId,
}

impl Carrier for Flow {
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        message: &mut Bytes,
        sending: &Sending,
    ) -> Poll<Result<(), Error>> {
        let now = self.endpoint.clock.now();
        if let Some(error) = self.endpoint.lock().ended.clone() {
            return Poll::Ready(Err(error));
        }
        let options = SendOptions { lifetime: sending.lifetime, ..SendOptions::default() };
        let sent = self.endpoint.poll(cx, self.id, |dccp, slot| {
            if let Some(close) = slot.closed {
                return Poll::Ready(Err(close_error(close)));
            }
            match dccp.send(now, self.id, message.clone(), options) {
                Err(SendError::Full { .. }) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(Error::lost(error))),
                Ok(()) => {}
            }
            if sending.last {
                let _ = dccp.close(now, self.id);
            }
            Poll::Ready(Ok(()))
        });
        if let Poll::Ready(Ok(())) = sent {
            *message = Bytes::new();
        }
        self.endpoint.wake_driver();
        sent
    }

    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, Error>> {
        let ended = self.endpoint.lock().ended.clone();
        self.endpoint.poll(cx, self.id, |dccp, slot| match (dccp.recv(self.id), slot.closed) {
            (Ok(Some(bytes)), _) => Poll::Ready(Ok(Some(Part::whole(bytes)))),
            (_, Some(Close::Finished)) => Poll::Ready(Ok(None)),
            (_, Some(close)) => Poll::Ready(Err(close_error(close))),
            (Err(error), None) => Poll::Ready(Err(Error::lost(error))),
            (Ok(None), None) => match &ended {
                Some(error) => Poll::Ready(Err(error.clone())),
                None => Poll::Pending,
            },
        })
    }

    fn poll_flushed(&self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // What is queued is sent before the connection is closed (RFC 4340 section 8.3).
        Poll::Ready(Ok(()))
    }

    fn poll_event(&self, _cx: &mut Context<'_>) -> Poll<Event> {
        Poll::Pending
    }

    fn close(&self) {
        let now = self.endpoint.clock.now();
        let mut state = self.endpoint.lock();
        let _ = state.dccp.close(now, self.id);
        discard(&mut state.dccp, self.id);
        drop(state);
        self.endpoint.wake_driver();
    }

    fn abort(&self, _code: u32) {
        let now = self.endpoint.clock.now();
        let _ = self.endpoint.lock().dccp.abort(now, self.id);
        self.endpoint.wake_driver();
    }

    fn limits(&self) -> Option<MessageLimits> {
        let snapshot = self.endpoint.lock().dccp.snapshot(self.id).ok();
        let max = snapshot.map_or(u32::from(DEFAULT_MTU - HEADERS), |one| one.max_message as u32);
        Some(MessageLimits {
            singular_transmission_msg_max_len: Some(max),
            send_msg_max_len: Some(max),
            recv_msg_max_len: Some(u16::MAX.into()),
        })
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.close();
        self.endpoint.lock().slots.remove(&self.id);
    }
}
