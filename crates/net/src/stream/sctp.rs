//! SIP over SCTP (RFC 4168): one message of SIP is one message of SCTP, and each call has a stream
//! ([`CallStreams`]). Messages are taken from any stream, as section 5.1 demands.

use super::acknowledgments::{Acknowledgments, abort_after};
use super::drive;
use super::unread::Unread;
use super::{closed, guarded, opened, sctp_tls};
use crate::handler::Handler;
use crate::sockets::{SharedWorker, Sockets, now};
use bytes::Bytes;
use ringway_flow::call::stream_of;
use ringway_flow::{
    Broken, CallStreams, Carrier, Driver, EarlyCalls, Flows, Open, Pipes, WriteQueue,
};
use ringway_sansio::{CloseReason, FlowId, Peer, Program, Time, Transport};
use ringway_sctp_tokio::{
    Association, Connect, EndedError, Event, Listener, PathState, SendOptions,
};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Maximum number of messages handed up before other connections get their turn.
const MESSAGES_A_TURN: usize = 32;

/// Memory of the buffer for messages, in bytes, that an idle association keeps.
const MAX_IDLE_BUFFER: usize = 2048;

/// The reason sent to the peer of an association for which there is no room.
const TOO_MANY: &[u8] = b"too many connections";

/// Begins to open an association. Returns our address, or `None` if there is no SCTP towards the peer.
pub(crate) fn open<H: Handler>(
    sockets: &mut Sockets<H>,
    at: Time,
    id: FlowId,
    open: Open,
) -> Option<SocketAddr> {
    let Open { transport, remote, name } = open;
    let worker = sockets.worker()?;
    let listener = sockets.listener_for(at, transport, remote)?;
    let port = sockets.sctp(sockets.listening().configured(listener)?)?;
    let connect = port.connect(transport, remote)?;
    let association = port.stack.open(&connect).or_else(|error| match error.kind() {
        // An association that is ending still has the port.
        io::ErrorKind::AddrInUse => port.stack.open(&Connect { local_port: 0, ..connect.clone() }),
        _ => Err(error),
    });
    let association = association
        .inspect_err(|error| tracing::debug!(%remote, %error, "cannot open an association"))
        .ok()?;
    tokio::task::spawn_local(dial(worker, id, association, transport, remote, name));
    Some(SocketAddr::new(connect.locals[0], connect.local_port))
}

/// Accepts associations for as long as the worker lives.
pub(crate) async fn accept<H: Handler>(
    worker: SharedWorker<H>,
    listener: Listener,
    transport: Transport,
) {
    while let Ok(association) = listener.accept().await {
        let Some((local, remote)) = ends(&association) else { continue };
        let mut flows = worker.borrow_mut();
        let at = now(&flows);
        match flows.accept(at, transport, local, remote) {
            Some(id) => {
                tokio::task::spawn_local(serve(worker.clone(), id, association, transport));
            }
            None => {
                // It is over already if this fails.
                let _ = association.abort(TOO_MANY);
            }
        }
    }
}

/// Returns our address and the peer's on the primary path, or `None` if the association is over already.
fn ends(association: &Association) -> Option<(SocketAddr, SocketAddr)> {
    let (ours, theirs) = association.ports().ok()?;
    let paths = association.paths().ok()?;
    let path = paths.iter().find(|p| p.primary).or(paths.first())?;
    Some((SocketAddr::new(path.local, ours), SocketAddr::new(path.remote, theirs)))
}

/// The life of an association that we accepted, or whose peer restarted it: then it continues as another
/// connection, which counts as opened by the peer.
async fn serve<H: Handler>(
    worker: SharedWorker<H>,
    id: FlowId,
    association: Association,
    transport: Transport,
) {
    let mut next = Some(id);
    while let Some(id) = next {
        let reason = if transport.is_secure() {
            let ended = sctp_tls::serve(&worker, id, association.clone()).await;
            ended.unwrap_or_else(|error| failed(&association, &error))
        } else {
            opened(&worker, id, None, &Peer { domains: Vec::new(), inbound: true });
            let mut messages = Messages::new(&association, worker.borrow().common().calls());
            messages.established();
            run(&worker, id, Driver::new(id, messages)).await
        };
        closed(&worker, id, reason);
        next = again(&worker, &association, transport, reason);
    }
}

/// Returns the connection that an association continues as, if its peer restarted it.
fn again<H: Handler>(
    worker: &SharedWorker<H>,
    association: &Association,
    transport: Transport,
    reason: CloseReason,
) -> Option<FlowId> {
    if reason != CloseReason::Restarted {
        return None;
    }
    let (local, remote) = ends(association)?;
    let mut flows = worker.borrow_mut();
    let at = now(&flows);
    let id = flows.accept(at, transport, local, remote);
    if id.is_none() {
        // It is over already if this fails.
        let _ = association.abort(TOO_MANY);
    }
    id
}

/// The life of an association that we open.
async fn dial<H: Handler>(
    worker: SharedWorker<H>,
    id: FlowId,
    association: Association,
    transport: Transport,
    remote: SocketAddr,
    name: Option<Arc<str>>,
) {
    let ended = if transport.is_secure() {
        dial_tls(&worker, id, &association, remote, name).await
    } else {
        dial_plain(&worker, id, &association).await
    };
    let reason = ended.unwrap_or_else(|error| failed(&association, &error));
    closed(&worker, id, reason);
    if let Some(id) = again(&worker, &association, transport, reason) {
        serve(worker, id, association, transport).await;
    }
}

async fn dial_tls<H: Handler>(
    worker: &SharedWorker<H>,
    id: FlowId,
    association: &Association,
    remote: SocketAddr,
    name: Option<Arc<str>>,
) -> io::Result<CloseReason> {
    let established = async { association.established().await.map_err(io::Error::other) };
    guarded(worker, id, established).await?;
    let local = ends(association).map(|(local, _)| local);
    sctp_tls::dial(worker, id, association.clone(), remote, name, local).await
}

async fn dial_plain<H: Handler>(
    worker: &SharedWorker<H>,
    id: FlowId,
    association: &Association,
) -> io::Result<CloseReason> {
    let calls = worker.borrow().common().calls();
    let mut driver = Driver::new(id, Messages::new(association, calls));
    let established = poll_fn(|cx| {
        let flows = &mut *worker.borrow_mut();
        let at = now(flows);
        // RFC 9260 section 5.1: data may go with the COOKIE ECHO.
        if driver.write_early(at, flows, cx).is_err() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        association.poll_established(cx).map_err(io::Error::other)
    });
    guarded(worker, id, established).await?;
    driver.carrier_mut().established();
    opened(worker, id, ends(association).map(|(local, _)| local), &Peer::default());
    Ok(run(worker, id, driver).await)
}

/// Aborts an association that never carried messages. Returns the reason.
fn failed(association: &Association, error: &io::Error) -> CloseReason {
    tracing::debug!(%error, "cannot use an association");
    // Over already if this fails.
    let _ = association.abort(b"handshake failed");
    CloseReason::Broken
}

/// Carries messages until the association ends. Returns the reason.
async fn run<H: Handler>(
    worker: &SharedWorker<H>,
    id: FlowId,
    driver: Driver<Messages>,
) -> CloseReason {
    let association = driver.carrier().association.clone();
    for path in association.paths().unwrap_or_default() {
        let flows = &mut *worker.borrow_mut();
        driver.carrier().note_path(id, flows, path.remote, path.state);
    }
    let reason = drive::run(worker, driver).await;
    abort_after(&association, reason);
    reason
}

/// An association that carries SIP.
struct Messages {
    association: Association,
    /// Number of streams that we may send on, once the association is established.
    streams: Option<u16>,
    calls: CallStreams,
    early: EarlyCalls,
    acknowledged: Acknowledgments,
    /// The message being received.
    buffer: Vec<u8>,
}

impl Messages {
    fn new(association: &Association, calls: CallStreams) -> Self {
        Messages {
            association: association.clone(),
            streams: None,
            calls,
            early: EarlyCalls::default(),
            acknowledged: Acknowledgments::default(),
            buffer: Vec::new(),
        }
    }

    /// Notes that the association is established, and with how many streams.
    fn established(&mut self) {
        self.streams = Some(self.association.statistics().map_or(1, |s| s.streams.0));
    }

    /// Returns the stream of a message: that of its call. Until the peer has said how many it takes, there is
    /// only the first.
    fn stream(&mut self, message: &[u8]) -> u16 {
        let call = self.calls.hash(message);
        // Which one it would be does not matter to a call that begins early.
        let stream = self.streams.map_or(1, |streams| stream_of(call, streams));
        self.early.choose(call, stream, self.streams.is_some())
    }

    /// Notes the state of a path. A peer is found by each of its addresses that is known to be its own (RFC
    /// 9260 section 5.4).
    fn note_path<P: Program, W: Pipes>(
        &self,
        id: FlowId,
        flows: &mut Flows<P, W>,
        remote: IpAddr,
        state: PathState,
    ) {
        if state == PathState::Active
            && let Some(flow) = flows.flow(id)
        {
            flows.reaches(id, SocketAddr::new(remote, flow.remote.port()));
        }
    }

    /// Handles the events of the association. Fails if its peer restarted it.
    fn take_events<P: Program, W: Pipes>(
        &self,
        id: FlowId,
        flows: &mut Flows<P, W>,
        cx: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        while let Poll::Ready(Some(event)) = self.association.poll_event(cx) {
            match event {
                Event::Path { remote, state } => self.note_path(id, flows, remote, state),
                Event::Restarted => return Err(CloseReason::Restarted),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Carrier<Context<'_>> for Messages {
    const TURN: usize = 1;

    fn poll_write(
        &mut self,
        _: Time,
        queue: &mut WriteQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, Broken>> {
        let Some(message) = queue.message() else { return Poll::Ready(Ok(0)) };
        let length = message.len();
        // RFC 4168 section 5: the payload protocol identifier is zero.
        let options = SendOptions { stream: self.stream(message), ..SendOptions::default() };
        let mut bytes = Bytes::copy_from_slice(message);
        let given = ready!(self.association.poll_send(cx, &mut bytes, &options));
        self.acknowledged.sent += 1;
        Poll::Ready(given.map(|()| queue.written(length)).map_err(|_| Broken))
    }

    fn poll_flush(&mut self, _: Time, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn poll_read<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CloseReason>> {
        let limit = flows.limits().write_stall;
        self.take_events(id, flows, cx)
            .and_then(|()| self.acknowledged.check(&self.association, limit, cx))?;
        let (mut bytes, mut messages) = (0, 0);
        let result = loop {
            if messages >= MESSAGES_A_TURN {
                break Poll::Ready(Ok(()));
            }
            match self.association.poll_recv_into(cx, &mut self.buffer) {
                Poll::Pending if messages == 0 => return Poll::Pending,
                Poll::Pending => break Poll::Ready(Ok(())),
                Poll::Ready(Ok(None)) => break Poll::Ready(Err(CloseReason::Peer)),
                Poll::Ready(Err(_)) => break Poll::Ready(Err(CloseReason::Broken)),
                Poll::Ready(Ok(Some(received))) => {
                    bytes += received.len;
                    messages += 1;
                    // What its sender abandoned was never a message.
                    let whole = received.begin && received.end && !received.cut;
                    if whole {
                        flows.receive_message(now, id, &self.buffer);
                    } else if received.begin && !received.cut {
                        // The rest of a message that came in parts is dropped.
                        flows.refuse_long(now, id, &self.buffer);
                    }
                    self.buffer.clear();
                }
            }
        };
        if self.buffer.capacity() > MAX_IDLE_BUFFER {
            self.buffer = Vec::new();
        }
        flows.note_read(bytes, messages);
        result
    }

    /// RFC 9260 section 9.2.
    fn poll_close(&mut self, _: Time, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.association.begin_shutdown();
        self.association.poll_closed(cx).map_err(|_: EndedError| Broken)
    }

    fn poll_discard(&mut self, _: Time, cx: &mut Context<'_>) -> Poll<bool> {
        self.buffer.clear();
        self.association
            .poll_recv_into(cx, &mut self.buffer)
            .map(|received| matches!(received, Ok(Some(_))))
    }
}

impl Unread for Messages {
    fn unread(&self) -> usize {
        self.association.statistics().map_or(0, |s| s.unread)
    }
}
