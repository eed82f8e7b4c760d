//! SIP over SCTP (RFC 4168): one message of SIP is one message of SCTP, and each call has a stream.
//!
//! RFC 4168 section 5.1 would have every message on stream zero, unordered. Then what one call sends
//! may overtake itself: an ACK its INVITE's CANCEL, a BYE the re-INVITE before it. Here a call's
//! messages go in order on a stream chosen by its Call-ID, so no lost packet of one call holds up
//! another on another stream, and none of a call's messages overtakes its own. Messages are taken from
//! any stream, as that section demands.

use super::conn::Key;
use super::drive::{Broken, Carrier, drive};
use super::life::new_conn;
use super::queue::WriteQueue;
use super::websocket::too_long;
use super::{SharedHub, guarded, sctp_tls};
use crate::bind::{Bind, Bound};
use crate::endpoint::Config;
use crate::error::BindError;
use crate::handler::{CloseReason, Handler, Peer};
use crate::hub::Hub;
use crate::route::source_for;
use crate::sctp::{
    Association, Connect, Error, Event, Limits, Listener, Opened, PathState, Scheduling,
    SendOptions, Settings, Stack, check_scope,
};
use bytes::Bytes;
use ringway_sansio::{Flow, FlowId, Transport};
use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Longest message taken over SCTP, in bytes; as much as UDP can carry.
pub const MAX_SCTP_MESSAGE: usize = 64 << 10;

/// What may wait in an association each way, in bytes: enough that a whole message is never taken
/// in parts, which it would be from half of this on.
const BUFFER: usize = 4 * MAX_SCTP_MESSAGE;

/// Streams asked for each way: what two calls share by chance is rarely lost at once.
const STREAMS: u16 = 1024;

/// Messages handed up before other connections get their turn.
const MESSAGES_A_TURN: usize = 32;

/// The answer to a double CRLF (RFC 5626 section 4.4.1).
const PONG: &[u8] = b"\r\n";

/// The packet that every path is taken to carry, and the one that each is probed for (RFC 8899): the
/// least of IPv6 (RFC 8200 section 5), and that of Ethernet.
const MTU: u16 = 1280;
const LARGEST_MTU: u16 = 1500;

/// What is told to the peer of an association for which there is no room.
const TOO_MANY: &[u8] = b"too many connections";

/// How SCTP carries SIP, with the timers of `profile`: the streams take turns, so that no call waits
/// for the long message of another. Phones send too little for three later packets to show a loss, so
/// it is found by time (RFC 8985).
pub fn sctp_settings(profile: Settings) -> Settings {
    Settings {
        send_buffer: BUFFER,
        receive_buffer: BUFFER,
        outbound_streams: STREAMS,
        inbound_streams: STREAMS,
        scheduling: Scheduling::RoundRobin,
        mtu: MTU,
        largest_mtu: Some(LARGEST_MTU),
        rack: true,
        ..profile
    }
}

/// The same for an association of a transport: RFC 3436 section 5 has a connection of TLS for each pair of
/// streams that is used, so there are no more than are served, and none is used that is not.
fn of_transport(settings: Settings, transport: Transport) -> Settings {
    if !transport.is_secure() {
        return settings;
    }
    let streams = sctp_tls::calls::TLS_SESSIONS;
    Settings { outbound_streams: streams, inbound_streams: streams, ..settings }
}

/// What a worker is to run of SCTP: opened, and not yet running.
pub(crate) struct SctpBinds {
    limits: Limits,
    settings: Settings,
    opened: Vec<Opened>,
    /// Which of them is for listeners over IP.
    raw: Option<usize>,
    /// Place among the listeners, which of those opened, what to listen on.
    listeners: Vec<(usize, usize, Bind)>,
}

impl SctpBinds {
    pub(crate) fn new(config: &Config) -> SctpBinds {
        let limits = Limits { associations: config.limits.connections, ..Limits::default() };
        let (opened, listeners) = (Vec::new(), Vec::new());
        SctpBinds { limits, settings: config.sctp, opened, raw: None, listeners }
    }

    /// Which of those opened carries a listener already. A UDP port carries SCTP whatever its ports (RFC
    /// 6951 section 3), so listeners share it.
    pub(crate) fn known(&self, bind: &Bind) -> Option<usize> {
        match bind.encapsulation {
            None => self.raw,
            Some(udp) => self.opened.iter().position(|o| o.carries(&addresses(bind), udp)),
        }
    }

    /// Opens what a listener needs.
    pub(crate) fn bind(&mut self, place: usize, bind: &Bind) -> Result<Bound, BindError> {
        let failed = |error| BindError::Sctp { bind: Box::new(bind.clone()), error };
        check_scope(&addresses(bind)).map_err(failed)?;
        if bind.encapsulation.is_none() {
            Opened::check(&addresses(bind)).map_err(failed)?;
        }
        let stack = match (bind.encapsulation, self.known(bind)) {
            (_, Some(known)) => known,
            (encapsulation, None) => {
                let opened = match encapsulation {
                    Some(port) => Opened::udp(&addresses(bind), port),
                    None => Opened::raw(),
                };
                self.opened.push(opened.map_err(failed)?);
                if encapsulation.is_none() {
                    self.raw = Some(self.opened.len() - 1);
                }
                self.opened.len() - 1
            }
        };
        let opened = &mut self.opened[stack];
        let port = opened.hold(bind.addr.port()).map_err(failed)?;
        let taken = |(_, other, bind): &(usize, usize, Bind)| {
            *other == stack && opened.udp_port.is_some() && bind.addr.port() == port
        };
        if self.listeners.iter().any(taken) {
            return Err(failed(Error::in_use(port)));
        }
        let bind = Bind {
            addr: SocketAddr::new(bind.addr.ip(), port),
            encapsulation: opened.udp_port,
            ..bind.clone()
        };
        let listener = crate::Listener { transport: bind.transport, addr: bind.addr };
        self.listeners.push((place, stack, bind));
        Ok(Bound { listener, sockets: Vec::new() })
    }

    /// Runs it. To be called within the worker's runtime.
    pub(crate) fn start(self) -> io::Result<Vec<(usize, SctpPort, Listener)>> {
        let (limits, settings) = (self.limits, self.settings);
        let start = |opened| Stack::start(opened, limits, settings).map_err(io::Error::other);
        let stacks: Vec<Stack> = self.opened.into_iter().map(start).collect::<io::Result<_>>()?;
        let listen = |(place, stack, bind): (usize, usize, Bind)| {
            let (stack, locals, port) = (stacks[stack].clone(), addresses(&bind), bind.addr.port());
            let (encapsulation, transport) = (bind.encapsulation, bind.transport);
            let settings = of_transport(settings, transport);
            let listener = stack.listen(&locals, port, Some(settings)).map_err(io::Error::other)?;
            let port = SctpPort { transport, settings, stack, locals, port, encapsulation };
            Ok((place, port, listener))
        };
        self.listeners.into_iter().map(listen).collect()
    }
}

/// All the addresses of a listener.
fn addresses(bind: &Bind) -> Vec<IpAddr> {
    [bind.addr.ip()].into_iter().chain(bind.more.iter().copied()).collect()
}

/// The SCTP of one listener, with what is needed to open associations from it.
pub(crate) struct SctpPort {
    pub(crate) transport: Transport,
    settings: Settings,
    pub(crate) stack: Stack,
    /// Our addresses; one may be a wildcard.
    pub(crate) locals: Vec<IpAddr>,
    pub(crate) port: u16,
    /// The UDP port of peers, in UDP: ours, because a network that chose another than the usual one
    /// chose it for all.
    pub(crate) encapsulation: Option<u16>,
}

impl SctpPort {
    /// What to open for a peer. From the port that is listened on, so that whoever of two servers
    /// opens the association, it is the one that both use. Not so with TLS, where who opens it is the
    /// client, and both may open one at once.
    fn connect(&self, transport: Transport, remote: SocketAddr) -> Option<Connect> {
        let wild = self.locals.iter().any(IpAddr::is_unspecified);
        let locals = if wild { vec![source_for(remote.ip())?] } else { self.locals.clone() };
        let connect = Connect::new(&locals, &[remote.ip()], remote.port());
        let encapsulation = self.encapsulation.unwrap_or(connect.encapsulation);
        let local_port = if transport.is_secure() { 0 } else { self.port };
        let settings = Some(self.settings);
        Some(Connect { local_port, encapsulation, settings, ..connect })
    }
}

impl<H: Handler> Hub<H> {
    /// The worker that alone can open connections of a transport towards a peer.
    pub(crate) fn owner(&mut self, transport: Transport, remote: SocketAddr) -> Option<u8> {
        if !matches!(transport, Transport::Sctp | Transport::TlsSctp) {
            return None;
        }
        let place = self.sctp_place(transport, remote)?;
        self.shared.owners[place]
    }

    /// The listener whose SCTP reaches a peer.
    fn sctp_place(&mut self, transport: Transport, remote: SocketAddr) -> Option<usize> {
        let listener = self.local.choose(self.now, transport, remote.ip())?;
        self.shared.places.get(listener).copied()
    }

    /// Begins to open an association. `None` when there is no SCTP towards the peer, or there are
    /// too many connections.
    pub(super) fn associate(
        &mut self,
        key: Key,
        transport: Transport,
        remote: SocketAddr,
        name: Option<&Arc<str>>,
    ) -> Option<Flow> {
        let hub = self.me.upgrade()?;
        let place = self.sctp_place(transport, remote)?;
        let port = self.sctp.get(place)?.as_ref()?;
        let connect = port.connect(transport, remote)?;
        if self.admit(transport, None).is_err() {
            self.counters.refused_full.add(1);
            return None;
        }
        let association = port.stack.open(&connect).or_else(|error| match error.kind() {
            // An association that is ending still has the port.
            io::ErrorKind::AddrInUse => {
                port.stack.open(&Connect { local_port: 0, ..connect.clone() })
            }
            _ => Err(error),
        });
        let association = association.inspect_err(|error| {
            tracing::debug!(%remote, %error, "cannot open an association");
        });
        let local = SocketAddr::new(connect.locals[0], connect.local_port);
        let now = self.now;
        let id = association.as_ref().ok().and_then(|_| {
            let flow = |id| Flow { id, transport, local, remote };
            self.conns.insert(|id| new_conn(flow(id), None, Some(key), now))
        });
        let (Ok(association), Some(id)) = (association, id) else {
            self.shared.admission().release(transport, None);
            return None;
        };
        self.watch(id);
        self.counters.connections.set(self.conns.len() as u64);
        let name = name.cloned();
        tokio::task::spawn_local(dial(hub, id, association, transport, remote, name));
        self.conns.get_mut(id).map(|c| c.flow)
    }
}

/// Takes associations for as long as the worker lives.
pub(crate) async fn accept<H: Handler>(
    hub: SharedHub<H>,
    listener: Listener,
    transport: Transport,
) {
    while let Ok(association) = listener.accept().await {
        let Some((local, remote)) = ends(&association) else { continue };
        let mut h = hub.borrow_mut();
        h.tick();
        match h.accept(transport, local, remote) {
            Some(id) => {
                tokio::task::spawn_local(serve(hub.clone(), id, association, transport));
            }
            None => {
                // It is over already if this fails.
                let _ = association.abort(TOO_MANY);
            }
        }
    }
}

/// Our address and the peer's on the primary path. `None` when the association is over already.
fn ends(association: &Association) -> Option<(SocketAddr, SocketAddr)> {
    let (ours, theirs) = association.ports().ok()?;
    let paths = association.paths().ok()?;
    let path = paths.iter().find(|p| p.primary).or(paths.first())?;
    Some((SocketAddr::new(path.local, ours), SocketAddr::new(path.remote, theirs)))
}

/// The life of an association we accepted, or whose peer began anew: then it goes on as another
/// connection, which the peer is taken to have opened.
async fn serve<H: Handler>(
    hub: SharedHub<H>,
    id: FlowId,
    association: Association,
    transport: Transport,
) {
    let mut next = Some(id);
    while let Some(id) = next {
        let reason = if transport.is_secure() {
            let ended = sctp_tls::serve(&hub, id, association.clone()).await;
            ended.unwrap_or_else(|error| failed(&association, &error))
        } else {
            let peer = Peer { domains: Vec::new(), inbound: true };
            hub.borrow_mut().opened(id, None, peer);
            run(&hub, id, association.clone()).await
        };
        hub.borrow_mut().closed(id, reason);
        next = again(&hub, &association, transport, reason);
    }
}

/// The connection that an association goes on as, if its peer began anew.
fn again<H: Handler>(
    hub: &SharedHub<H>,
    association: &Association,
    transport: Transport,
    reason: CloseReason,
) -> Option<FlowId> {
    if reason != CloseReason::Restarted {
        return None;
    }
    let (local, remote) = ends(association)?;
    let id = hub.borrow_mut().accept(transport, local, remote);
    if id.is_none() {
        // It is over already if this fails.
        let _ = association.abort(TOO_MANY);
    }
    id
}

/// The life of an association we open.
async fn dial<H: Handler>(
    hub: SharedHub<H>,
    id: FlowId,
    association: Association,
    transport: Transport,
    remote: SocketAddr,
    name: Option<Arc<str>>,
) {
    let established = async { association.established().await.map_err(io::Error::other) };
    let ended = match guarded(&hub, id, established).await {
        Err(error) => Err(error),
        Ok(()) => {
            let local = ends(&association).map(|(local, _)| local);
            if transport.is_secure() {
                sctp_tls::dial(&hub, id, association.clone(), remote, name, local).await
            } else {
                let peer = Peer { domains: Vec::new(), inbound: false };
                hub.borrow_mut().opened(id, local, peer);
                Ok(run(&hub, id, association.clone()).await)
            }
        }
    };
    let reason = ended.unwrap_or_else(|error| failed(&association, &error));
    hub.borrow_mut().closed(id, reason);
    if let Some(id) = again(&hub, &association, transport, reason) {
        serve(hub, id, association, transport).await;
    }
}

/// An association that did not come to carry messages is not worth an end in order.
fn failed(association: &Association, error: &io::Error) -> CloseReason {
    tracing::debug!(%error, "cannot use an association");
    // Over already if this fails.
    let _ = association.abort(b"handshake failed");
    CloseReason::Broken
}

/// Ends an association that nobody waits for to end in order.
pub(super) fn cut(association: &Association, reason: CloseReason) {
    if matches!(reason, CloseReason::SlowReader | CloseReason::HalfOpen | CloseReason::Broken) {
        let _ = association.abort(b"");
    }
}

/// How far a peer had come when that was looked at last. Part of a message counts: a large one takes its
/// time on a slow line.
#[derive(Default)]
struct Progress {
    /// Messages acknowledged.
    acknowledged: u64,
    /// Chunks sent for the first time, of which there are no more without acknowledgements.
    sent: u64,
    /// The fewest bytes in flight since one of these changed.
    least: u32,
}

impl Progress {
    /// Whether it has come further.
    fn moves(&mut self, acknowledged: u64, sent: u64, flying: u32) -> bool {
        let further = (acknowledged, sent) != (self.acknowledged, self.sent);
        // What is taken for lost flies no more either, but that ends.
        let moves = further || flying < self.least;
        if moves {
            *self = Progress { acknowledged, sent, least: flying };
        }
        moves
    }
}

/// Sees to it that a peer acknowledges what its association was given. That lies in the association's
/// buffer, not in a queue, however long the peer lets its window closed.
#[derive(Default)]
pub(super) struct Acknowledged {
    /// Messages of SCTP given.
    pub(super) given: u64,
    progress: Progress,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Acknowledged {
    /// An error when nothing was acknowledged for one `limit` to three, though something waited.
    pub(super) fn check(
        &mut self,
        association: &Association,
        limit: Duration,
        cx: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        if self.given == self.progress.acknowledged {
            return Ok(());
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        while timer.as_mut().poll(cx).is_ready() {
            // Over: nothing waits any more.
            let (waiting, sent, flying) = association.statistics().map_or((0, 0, 0), |s| {
                (s.unacknowledged as u64, s.totals.chunks_sent, s.outstanding)
            });
            let moves = self.progress.moves(self.given.saturating_sub(waiting), sent, flying);
            if waiting == 0 {
                self.timer = None;
                break;
            }
            if !moves {
                return Err(CloseReason::SlowReader);
            }
            timer.as_mut().reset(Instant::now() + limit);
        }
        Ok(())
    }
}

async fn run<H: Handler>(hub: &SharedHub<H>, id: FlowId, association: Association) -> CloseReason {
    let streams = association.statistics().map_or(1, |s| s.streams.0).max(1);
    let (key, flow) = {
        let mut hub = hub.borrow_mut();
        let Some(flow) = hub.conns.get_mut(id).map(|c| c.flow) else { return CloseReason::Broken };
        (hub.shared.call_key.clone(), flow)
    };
    let acknowledged = Acknowledged::default();
    let messages = Messages { association, streams, key, acknowledged, buffer: Vec::new() };
    for path in messages.association.paths().unwrap_or_default() {
        messages.note_path(&flow, &hub.borrow(), path.remote, path.state);
    }
    let association = messages.association.clone();
    let reason = drive(hub, id, messages).await;
    cut(&association, reason);
    reason
}

/// An association that carries SIP.
struct Messages {
    association: Association,
    /// Streams we may send on.
    streams: u16,
    key: RandomState,
    acknowledged: Acknowledged,
    /// The message being taken.
    buffer: Vec<u8>,
}

impl Messages {
    /// The stream of a message: that of its call.
    fn stream(&self, message: &[u8]) -> u16 {
        // Below the number of streams, which is a u16.
        call_id(message).map_or(0, |id| (self.key.hash_one(id) % u64::from(self.streams)) as u16)
    }

    /// A peer is found by each of its addresses that is known to be its own (RFC 9260 section 5.4).
    fn note_path<H: Handler>(&self, flow: &Flow, hub: &Hub<H>, remote: IpAddr, state: PathState) {
        if state == PathState::Active {
            let address = SocketAddr::new(remote, flow.remote.port());
            hub.shared.directory().reaches(flow, address);
        }
    }

    /// Takes what is told of the association. An error when its peer began anew.
    fn take_events<H: Handler>(
        &self,
        id: FlowId,
        hub: &mut Hub<H>,
        cx: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        while let Poll::Ready(Some(event)) = self.association.poll_event(cx) {
            match (event, hub.conns.get_mut(id).map(|c| c.flow)) {
                (Event::Path { remote, state }, Some(flow)) => {
                    self.note_path(&flow, hub, remote, state);
                }
                (Event::Restarted, _) => return Err(CloseReason::Restarted),
                _ => {}
            }
        }
        Ok(())
    }

    /// Hands up a whole message.
    fn take<H: Handler>(&self, id: FlowId, flow: &Flow, hub: &mut Hub<H>) {
        let bytes = &self.buffer[..];
        if bytes.iter().all(|b| matches!(b, b'\r' | b'\n')) {
            hub.counters.stream_keepalives.add(1);
            if bytes == b"\r\n\r\n" {
                hub.send_on(flow, PONG, 0);
            }
            return;
        }
        hub.take_message(id, flow, bytes);
    }

    /// Answers a message that is too long. SCTP says where the next begins, so the association goes on.
    fn refuse<H: Handler>(&self, id: FlowId, flow: &Flow, hub: &mut Hub<H>) {
        let fault = too_long(self.buffer.len());
        hub.take_malformed(id, flow, &self.buffer, &fault);
    }
}

impl Carrier for Messages {
    const TURN: usize = 1;

    fn poll_write(
        &mut self,
        queue: &mut WriteQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, Broken>> {
        let Some(message) = queue.message() else { return Poll::Ready(Ok(0)) };
        let length = message.len();
        // RFC 4168 section 5: the payload protocol identifier is zero.
        let options = SendOptions { stream: self.stream(message), ..SendOptions::default() };
        let mut bytes = Bytes::copy_from_slice(message);
        let given = ready!(self.association.poll_send(cx, &mut bytes, &options));
        self.acknowledged.given += 1;
        Poll::Ready(given.map(|()| queue.written(length)).map_err(|_| Broken))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn poll_read<H: Handler>(
        &mut self,
        id: FlowId,
        hub: &mut Hub<H>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CloseReason>> {
        let limit = hub.limits().write_stall;
        let heard = self.take_events(id, hub, cx);
        if let Err(reason) =
            heard.and_then(|()| self.acknowledged.check(&self.association, limit, cx))
        {
            return Poll::Ready(Err(reason));
        }
        let now = hub.now;
        let Some(flow) = hub.conns.get_mut(id).map(|c| c.flow) else {
            return Poll::Ready(Err(CloseReason::Broken));
        };
        let (mut octets, mut messages) = (0, 0);
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
                    octets += received.len;
                    messages += 1;
                    // What was given up by its sender was never a message.
                    let whole = received.begin && received.end && !received.cut;
                    if whole && received.len <= MAX_SCTP_MESSAGE {
                        self.take(id, &flow, hub);
                    } else if received.begin && !received.cut {
                        // What follows of a message that came in parts is dropped.
                        self.refuse(id, &flow, hub);
                    }
                    self.buffer.clear();
                }
            }
        };
        if let Some(conn) = hub.conns.get_mut(id) {
            conn.heard = now;
        }
        hub.flush();
        hub.waiting.streams.took(octets, messages);
        result
    }

    /// A message is taken when it is whole, so none is slow.
    fn too_slow<H: Handler>(&mut self, _: FlowId, _: &mut Hub<H>) {}

    /// RFC 9260 section 9.2.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.association.begin_shutdown();
        self.association.poll_closed(cx).map_err(|_: Error| Broken)
    }

    fn unread(&self) -> usize {
        self.association.statistics().map_or(0, |s| s.unread)
    }

    fn poll_discard(&mut self, _: &mut [u8], cx: &mut Context<'_>) -> Poll<bool> {
        self.buffer.clear();
        self.association
            .poll_recv_into(cx, &mut self.buffer)
            .map(|received| matches!(received, Ok(Some(_))))
    }
}

/// The Call-ID of a message (RFC 3261 section 20.8), compact or not: what its sender wrote, without
/// the space around it.
pub(super) fn call_id(message: &[u8]) -> Option<&[u8]> {
    let mut lines = message.split(|b| *b == b'\n');
    // The start line.
    lines.next();
    for line in lines {
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return None;
        }
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let name = line[..colon].trim_ascii_end();
        if name.eq_ignore_ascii_case(b"call-id") || name.eq_ignore_ascii_case(b"i") {
            return Some(line[colon + 1..].trim_ascii());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of many chunks over a slow line, then a peer that takes nothing more.
    #[test]
    fn a_chunk_is_progress_and_a_chunk_sent_again_is_none() {
        let mut progress = Progress::default();
        // Chunks leave as others arrive; then the last fly, fewer and fewer.
        for (sent, flying) in [(4, 5600), (7, 5600), (10, 8400), (10, 4200), (10, 1400)] {
            assert!(progress.moves(0, sent, flying), "{sent} {flying}");
        }
        assert!(progress.moves(1, 12, 2800));
        assert!(progress.moves(1, 12, 0), "taken for lost");
        for flying in [1400, 0, 2800, 0] {
            assert!(!progress.moves(1, 12, flying), "sent again");
        }
    }

    #[test]
    fn a_call_is_known_by_its_id() {
        for (message, id) in [
            ("INVITE a SIP/2.0\r\nVia: x\r\nCall-ID: abc@d\r\n\r\n", Some("abc@d")),
            ("SIP/2.0 200 OK\r\nCALL-ID \t:  abc@d \r\nVia: i: x\r\n\r\n", Some("abc@d")),
            ("BYE a SIP/2.0\ni:abc@d\n\n", Some("abc@d")),
            ("BYE a SIP/2.0\r\nSubject: x\r\n\r\ni: not in the body\r\n", None),
            ("i: x", None),
            ("", None),
        ] {
            assert_eq!(call_id(message.as_bytes()), id.map(str::as_bytes), "{message:?}");
        }
    }
}
