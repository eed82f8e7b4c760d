//! TLS over SCTP (RFC 3436): a TLS connection for each pair of streams in use (section 5), so that a
//! lost packet of one call holds up no call on another pair.
//!
//! The first pair's handshake is that of the association: who the peer is, is settled there. Whoever
//! opened the association is TLS's client on every pair, and begins a pair when a call asks for it:
//! one of its own, or one of the peer's that came on the first pair because the peer cannot begin
//! one. [`calls`] says which pair a call asks for, [`session`] is one pair.

mod session;

use super::acknowledgments::{Acknowledgments, abort_after};
use super::drive::drive;
use super::port::{MAX_SCTP_MESSAGE, TLS_SESSIONS};
use super::unread::Unread;
use super::{guarded, opened};
use crate::handler::Handler;
use crate::sockets::SharedWorker;
use crate::tls::server_name;
use ringway_flow::call::stream_of;
use ringway_flow::{Broken, CallStreams, Carrier, EarlyCalls, Flows, Pipes, WriteQueue};
use ringway_sansio::{CloseReason, FlowId, Peer, Program, Time};
use ringway_sctp_tokio::{Association, Event};
use session::{Role, Session};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// SCTP messages taken before other connections get their turn.
const MESSAGES_A_TURN: usize = 32;

/// Messages looked at for one whose pair can take it, while others wait for a handshake.
const LOOKED_AT: usize = 64;

/// A pair of streams.
enum Pair {
    /// Nothing was said on it.
    Unused,
    /// In its handshake, which must be over in time.
    Opening(Box<Session>, Pin<Box<Sleep>>),
    Open(Box<Session>),
    /// Refused, or closed by the peer: its calls go by the first pair, and what still comes on it is
    /// dropped.
    Dead,
}

impl Pair {
    fn session(&mut self) -> Option<&mut Session> {
        match self {
            Pair::Opening(session, _) | Pair::Open(session) => Some(session),
            Pair::Unused | Pair::Dead => None,
        }
    }
}

/// An association that carries SIP over TLS.
struct Sessions {
    association: Association,
    role: Role,
    /// Longest handshake of one pair.
    patience: Duration,
    pairs: Vec<Pair>,
    early: EarlyCalls,
    acknowledged: Acknowledgments,
    /// Messages of SCTP that dead pairs gave.
    given: u64,
    /// Whom the first pair's certificate stands for, once that is known.
    domains: Option<Vec<Box<str>>>,
    /// A message of SCTP.
    buffer: Vec<u8>,
    /// Messages may wait that came with the handshake.
    waiting: bool,
    closing: Closing,
}

/// How far the end is that the peer began by closing the first pair. It may overtake what other pairs
/// still bring, so it is SCTP that ends: its shutdown waits for all of that (RFC 9260 section 9.2).
#[derive(PartialEq)]
enum Closing {
    Not,
    /// The peer is to hear our own end first.
    Asked,
    /// SCTP takes nothing more.
    Shut,
}

/// RFC 3436 section 3.1: streams of one number are a pair.
fn pairs(association: &Association) -> u16 {
    let streams = association.statistics().map_or((1, 1), |s| s.streams);
    streams.0.min(streams.1).clamp(1, TLS_SESSIONS)
}

/// Whether TLS was closed in order.
fn is_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

impl Sessions {
    fn new(association: Association, role: Role, patience: Duration) -> Sessions {
        let pairs = (0..pairs(&association)).map(|_| Pair::Unused).collect();
        Sessions {
            association,
            role,
            patience,
            pairs,
            early: EarlyCalls::default(),
            acknowledged: Acknowledgments::default(),
            given: 0,
            domains: None,
            buffer: Vec::new(),
            waiting: true,
            closing: Closing::Not,
        }
    }

    fn is_client(&self) -> bool {
        matches!(self.role, Role::Client(..))
    }

    /// Begins a pair's handshake: says the first word, or waits for it.
    fn begin(&mut self, index: u16) {
        self.pairs[usize::from(index)] = match Session::new(&self.role, index) {
            Ok(session) => Pair::Opening(Box::new(session), Box::pin(sleep(self.patience))),
            Err(error) => {
                tracing::debug!(%error, "cannot begin TLS on a stream");
                Pair::Dead
            }
        };
    }

    /// The handshake of the first pair.
    async fn establish<H: Handler>(
        &mut self,
        worker: &SharedWorker<H>,
        id: FlowId,
    ) -> io::Result<()> {
        self.begin(0);
        guarded(worker, id, poll_fn(|cx| self.poll_establish(cx))).await
    }

    fn poll_establish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let broken = |_: Broken| io::Error::from(io::ErrorKind::BrokenPipe);
        loop {
            let flushed = self.flush(cx).map_err(broken);
            if let Poll::Ready(Err(error)) = flushed {
                return Poll::Ready(Err(error));
            }
            if matches!(self.pairs[0], Pair::Open(_)) {
                return Poll::Ready(Ok(()));
            }
            let Some(index) = ready!(self.poll_take(cx))? else {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            };
            // What comes by other pairs already waits for the first, within bounds.
            let session = self.pairs.get_mut(index).and_then(Pair::session);
            let waiting = session.map_or(0, |s| s.messages.pending());
            if waiting > MAX_SCTP_MESSAGE {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
        }
    }

    /// Takes a message of SCTP to its pair; gives its stream. `None` when the association is over.
    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<usize>>> {
        while let Poll::Ready(Some(event)) = self.association.poll_event(cx) {
            if event == Event::Restarted {
                // Who began anew knows nothing of what was agreed.
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
        self.buffer.clear();
        let got = ready!(self.association.poll_recv_into(cx, &mut self.buffer));
        let Some(got) = got.map_err(io::Error::other)? else { return Poll::Ready(Ok(None)) };
        let index = usize::from(got.stream);
        if index >= self.pairs.len() {
            // RFC 3436 section 7: a stream with none the other way carries no TLS, and SIP is not taken
            // without.
            tracing::debug!(stream = got.stream, "dropped what came on a stream that is no pair's");
            return Poll::Ready(Ok(Some(index)));
        }
        if matches!(self.pairs[index], Pair::Unused) && !self.is_client() {
            self.begin(got.stream);
        }
        let Some(session) = self.pairs[index].session() else {
            return Poll::Ready(Ok(Some(index)));
        };
        // RFC 3436 section 6.2: in order, and nothing of it is ever given up.
        let taken = if got.unordered || got.cut {
            session.say_closed();
            let text = format!("expected TLS in order, got {got:?}");
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        } else {
            session.take(&self.buffer)
        };
        match taken {
            Ok(false) => {}
            Ok(true) => self.opened(index, cx),
            Err(error) if index == 0 && session.open && is_end(&error) => self.closed_by_peer(),
            Err(error) if index == 0 => {
                // The peer is told why, if there is room for it.
                let _ = session.poll_flush(&self.association, cx);
                return Poll::Ready(Err(error));
            }
            Err(error) => self.refuse(index, &error, cx),
        }
        Poll::Ready(Ok(Some(index)))
    }

    /// A handshake is over. Who shows another identity than on the first pair is refused: what the
    /// proxy was told of the peer (RFC 5922 section 4) must hold for every message.
    fn opened(&mut self, index: usize, cx: &mut Context<'_>) {
        let pair = std::mem::replace(&mut self.pairs[index], Pair::Dead);
        if let Pair::Opening(session, _) = pair {
            if index == 0 {
                self.domains = Some(session.domains());
            }
            self.pairs[index] = Pair::Open(session);
        }
        // Others may have been quicker than the first.
        let others = if index == 0 { 1..self.pairs.len() } else { index..index + 1 };
        for other in others {
            if let (Some(domains), Pair::Open(session)) = (&self.domains, &mut self.pairs[other])
                && session.domains() != *domains
            {
                session.say_closed();
                let text = "another certificate than on the first stream";
                self.refuse(other, &io::Error::other(text), cx);
            }
        }
    }

    /// The peer closed the first pair: all of them close, and then the association.
    fn closed_by_peer(&mut self) {
        if self.closing == Closing::Not {
            self.closing = Closing::Asked;
            self.pairs.iter_mut().filter_map(Pair::session).for_each(Session::say_closed);
        }
    }

    /// Gives a pair up.
    fn refuse(&mut self, index: usize, error: &io::Error, cx: &mut Context<'_>) {
        tracing::debug!(index, %error, "TLS on a stream ended");
        if let Some(session) = self.pairs[index].session() {
            // An alert goes if there is room for it.
            let _ = session.poll_flush(&self.association, cx);
            self.given += session.given;
        }
        self.pairs[index] = Pair::Dead;
        // Messages may wait for it.
        cx.waker().wake_by_ref();
    }
}

impl Sessions {
    /// The pair that a message goes by; `None` while that is in its handshake.
    fn index(&mut self, message: &[u8]) -> Option<usize> {
        let call = CallStreams::symmetric().hash(message);
        let pair = stream_of(call, self.pairs.len() as u16);
        let open = matches!(self.pairs[usize::from(pair)], Pair::Open(_));
        if !self.is_client() {
            return Some(self.early.choose(call, pair, open).into());
        }
        self.ask(pair);
        match self.pairs[usize::from(pair)] {
            Pair::Open(_) => Some(pair.into()),
            Pair::Dead => Some(0),
            Pair::Unused | Pair::Opening(..) => None,
        }
    }

    /// Begins a pair that a call asks for, which only TLS's client can.
    fn ask(&mut self, pair: u16) {
        if self.is_client() && matches!(self.pairs[usize::from(pair)], Pair::Unused) {
            self.begin(pair);
        }
    }

    /// Gives up what is too long in its handshake.
    fn end_late(&mut self, cx: &mut Context<'_>) {
        for index in 1..self.pairs.len() {
            if let Pair::Opening(_, patience) = &mut self.pairs[index]
                && patience.as_mut().poll(cx).is_ready()
            {
                self.refuse(index, &io::ErrorKind::TimedOut.into(), cx);
            }
        }
    }

    /// Moves what the pairs have to send to the association.
    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        if self.closing == Closing::Shut {
            return Poll::Ready(Ok(()));
        }
        self.end_late(cx);
        for session in self.pairs.iter_mut().filter_map(Pair::session) {
            match ready!(session.poll_flush(&self.association, cx)) {
                // The peer has begun SCTP's shutdown already.
                Err(Broken) if self.closing == Closing::Asked => break,
                flushed => flushed?,
            }
        }
        if self.closing == Closing::Asked {
            self.closing = Closing::Shut;
            self.association.begin_shutdown();
        }
        Poll::Ready(Ok(()))
    }

    /// Hands up the messages that are whole on a pair. Returns their number.
    fn hand_up<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        index: usize,
        id: FlowId,
        flows: &mut Flows<P, W>,
    ) -> usize {
        let (client, pairs) = (self.is_client(), self.pairs.len() as u16);
        let Some(session) = self.pairs.get_mut(index).and_then(Pair::session) else { return 0 };
        let mut wanted = 0u64;
        let received = flows.receive(now, id, &mut session.messages, &[], |message| {
            // The peer cannot begin the pair that this call asks for.
            if client && index == 0 {
                wanted |= 1 << CallStreams::symmetric().stream(message, pairs);
            }
        });
        (0..pairs).filter(|pair| wanted >> pair & 1 == 1).for_each(|pair| self.ask(pair));
        let sessions = self.pairs.iter_mut().filter_map(Pair::session);
        let partial = sessions.filter_map(|s| s.messages.partial()).min();
        flows.note_framing(now, id, partial, received.broken);
        received.messages
    }
}

impl Carrier<Context<'_>> for Sessions {
    const TURN: usize = 1;

    /// Takes the first message whose pair can carry it. A message passes only messages of other pairs.
    fn poll_write(
        &mut self,
        _: Time,
        queue: &mut WriteQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, Broken>> {
        if self.closing != Closing::Not {
            // Whoever sent it is told at the end.
            return Poll::Pending;
        }
        let mut looked_at = queue.iter().take(LOOKED_AT).enumerate();
        let found = looked_at.find_map(|(number, message)| {
            self.index(message).map(|index| (number, index, message))
        });
        let Some((number, index, message)) = found else { return Poll::Pending };
        let association = &self.association;
        let Some(session) = self.pairs[index].session() else {
            return Poll::Ready(Err(Broken));
        };
        // All pairs share the association's buffer, so others need not be tried.
        ready!(session.poll_flush(association, cx))?;
        session.write(message).map_err(|_| Broken)?;
        if let Poll::Ready(result) = session.poll_flush(association, cx) {
            result?;
        }
        drop(looked_at);
        queue.written_at(number);
        Poll::Ready(Ok(1))
    }

    fn poll_flush(&mut self, _: Time, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.flush(cx)
    }

    fn poll_read<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CloseReason>> {
        let given: u64 = self.pairs.iter_mut().filter_map(|p| Some(p.session()?.given)).sum();
        self.acknowledged.sent = self.given + given;
        let limit = flows.limits().write_stall;
        if let Err(reason) = self.acknowledged.check(&self.association, limit, cx) {
            return Poll::Ready(Err(reason));
        }
        if std::mem::take(&mut self.waiting) {
            (0..self.pairs.len()).for_each(|index| {
                self.hand_up(now, index, id, flows);
            });
        }
        let (mut bytes, mut messages) = (0, 0);
        let mut result = Poll::Ready(Ok(()));
        for taken in 0..MESSAGES_A_TURN {
            match self.poll_take(cx) {
                Poll::Pending if taken == 0 => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(Ok(Some(index))) => {
                    bytes += self.buffer.len();
                    messages += self.hand_up(now, index, id, flows);
                }
                Poll::Ready(Ok(None)) => {
                    result = Poll::Ready(Err(CloseReason::Peer));
                    break;
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "TLS over SCTP ended");
                    result = Poll::Ready(Err(match error.kind() {
                        io::ErrorKind::UnexpectedEof => CloseReason::Peer,
                        io::ErrorKind::ConnectionReset => CloseReason::Restarted,
                        _ => CloseReason::Broken,
                    }));
                    break;
                }
            }
        }
        flows.note_read(bytes, messages);
        result
    }

    fn refuse_slow<P: Program, W: Pipes>(
        &mut self,
        now: Time,
        id: FlowId,
        flows: &mut Flows<P, W>,
    ) {
        let sessions = self.pairs.iter_mut().filter_map(Pair::session);
        let slow = sessions.filter(|s| s.messages.partial().is_some());
        if let Some(session) = slow.min_by_key(|session| session.messages.partial()) {
            flows.refuse_slow(now, id, &mut session.messages);
        }
    }

    /// All that was given is delivered first (RFC 9260 section 9.2).
    fn poll_close(&mut self, _: Time, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.pairs.iter_mut().filter_map(Pair::session).for_each(Session::say_closed);
        ready!(self.flush(cx))?;
        self.association.begin_shutdown();
        Poll::Ready(Ok(()))
    }

    fn poll_discard(&mut self, _: Time, cx: &mut Context<'_>) -> Poll<bool> {
        self.buffer.clear();
        self.association
            .poll_recv_into(cx, &mut self.buffer)
            .map(|received| matches!(received, Ok(Some(_))))
    }
}

impl Unread for Sessions {
    fn unread(&self) -> usize {
        self.association.statistics().map_or(0, |s| s.unread)
    }
}

/// Carries SIP over TLS for a peer that opened the association, until it ends.
pub(super) async fn serve<H: Handler>(
    worker: &SharedWorker<H>,
    id: FlowId,
    association: Association,
) -> io::Result<CloseReason> {
    let (server, patience) = {
        let flows = worker.borrow();
        (flows.pipes().shared().tls_server.clone(), flows.limits().handshake)
    };
    let server = server.ok_or_else(|| io::Error::other("no certificate"))?;
    let sessions = Sessions::new(association, Role::Server(server.config()), patience);
    run(worker, id, sessions, None, true).await
}

/// Carries SIP over TLS to a peer that we opened an association to, until it ends.
pub(super) async fn dial<H: Handler>(
    worker: &SharedWorker<H>,
    id: FlowId,
    association: Association,
    remote: SocketAddr,
    name: Option<Arc<str>>,
    local: Option<SocketAddr>,
) -> io::Result<CloseReason> {
    let (client, patience) = {
        let flows = worker.borrow();
        (flows.pipes().shared().tls_client.clone(), flows.limits().connect)
    };
    let client = client.ok_or_else(|| io::Error::other("no certificates to trust"))?;
    let name = server_name(name.as_deref(), remote.ip())
        .ok_or_else(|| io::Error::other("not a name a certificate can carry"))?;
    let sessions = Sessions::new(association, Role::Client(client.config(), name), patience);
    run(worker, id, sessions, local, false).await
}

async fn run<H: Handler>(
    worker: &SharedWorker<H>,
    id: FlowId,
    mut sessions: Sessions,
    local: Option<SocketAddr>,
    inbound: bool,
) -> io::Result<CloseReason> {
    sessions.establish(worker, id).await?;
    let domains = sessions.domains.clone().unwrap_or_default();
    opened(worker, id, local, &Peer { domains, inbound });
    let association = sessions.association.clone();
    let reason = drive(worker, id, sessions).await;
    abort_after(&association, reason);
    Ok(reason)
}
