//! What a worker has of the real world: its sockets, and what wakes its main task.

use crate::handler::Handler;
use crate::mailbox::{Mail, Quoted};
use crate::shared::{Listening, Shared};
use crate::stream::port::SctpPort;
use crate::udp::{Refused, UdpPort, UdpPorts};
use ringway_flow::{Counters, Flows};
use ringway_os::LocalAddresses;
use ringway_sansio::time::sooner;
use ringway_sansio::{FlowId, Outbox, Time, Transport};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

/// How long a worker logs no further refusal of an origin after one.
const ORIGIN_LOG_PAUSE: Duration = Duration::from_secs(1);

/// Bytes of an origin that are logged.
const MAX_LOGGED: usize = 255;

/// One worker: the flows of its handler above its sockets. The endpoint's main task and the tasks of all
/// connections share it and borrow it for the moment of one batch; none holds it while it waits.
pub(crate) type Worker<H> = Flows<H, Sockets<H>>;

/// See [`Worker`].
pub(crate) type SharedWorker<H> = Rc<RefCell<Worker<H>>>;

/// The sockets of one worker.
pub(crate) struct Sockets<H: Handler> {
    me: Weak<RefCell<Worker<H>>>,
    shared: Arc<Shared<H::Post>>,
    counters: Arc<Counters>,
    pub(crate) udp: UdpPorts,
    /// By index of the listener: the SCTP that this worker runs.
    sctp: Vec<Option<SctpPort>>,
    local: LocalAddresses,
    pub(crate) alarm: Alarm,
    /// Once the endpoint stops: the time that connections have to end.
    stop: Option<Duration>,
    /// When the refusal of an origin was logged last.
    origin_logged: Option<Time>,
}

/// What wakes the main task of a worker.
#[derive(Default)]
pub(crate) struct Alarm {
    main: Option<Waker>,
    /// When the main task wakes by itself; zero while it is awake.
    armed: Option<Time>,
}

impl Alarm {
    /// Notes that the main task is awake: it need not be woken for a deadline.
    pub(crate) fn awake(&mut self, cx: &Context<'_>) {
        set_waker(&mut self.main, cx);
        self.armed = Some(Time::ZERO);
    }

    /// Notes when the main task wakes by itself.
    pub(crate) fn sleep_until(&mut self, at: Option<Time>) {
        self.armed = at;
    }

    pub(crate) fn ring(&self) {
        if let Some(waker) = &self.main {
            waker.wake_by_ref();
        }
    }

    fn is_awake(&self) -> bool {
        self.armed == Some(Time::ZERO)
    }

    /// Wakes the main task if it would sleep past `next`.
    fn rearm(&self, next: Option<Time>) {
        if next.is_some_and(|next| self.armed.is_none_or(|armed| next < armed)) {
            self.ring();
        }
    }
}

fn set_waker(waker: &mut Option<Waker>, cx: &Context<'_>) {
    match waker {
        Some(waker) => waker.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
}

/// Has the calling task woken when there is something to do for a connection. Returns `false` if the
/// connection is closed.
pub(crate) fn listen<H: Handler>(worker: &mut Worker<H>, id: FlowId, cx: &Context<'_>) -> bool {
    worker.handle_mut(id).map(|waker| set_waker(waker, cx)).is_some()
}

/// Returns the time.
pub(crate) fn now<H: Handler>(worker: &Worker<H>) -> Time {
    worker.pipes().shared.clock.now()
}

impl<H: Handler> Sockets<H> {
    pub(crate) fn new(
        me: Weak<RefCell<Worker<H>>>,
        shared: Arc<Shared<H::Post>>,
        worker: u8,
        udp: Vec<Option<UdpPort>>,
    ) -> Self {
        let counters = shared.counters[usize::from(worker)].clone();
        let udp = UdpPorts::new(udp, worker, counters.clone(), shared.ledger.clone());
        let local = LocalAddresses::new(shared.listening.listeners());
        Sockets {
            me,
            shared,
            counters,
            udp,
            sctp: Vec::new(),
            local,
            alarm: Alarm::default(),
            stop: None,
            origin_logged: None,
        }
    }

    /// Returns the worker that these sockets are part of.
    pub(crate) fn worker(&self) -> Option<SharedWorker<H>> {
        self.me.upgrade()
    }

    /// Returns what is shared with other workers.
    pub(crate) fn shared(&self) -> &Arc<Shared<H::Post>> {
        &self.shared
    }

    /// Adds the SCTP of the listener with this index.
    pub(crate) fn add_sctp(&mut self, index: usize, port: SctpPort) {
        if self.sctp.len() <= index {
            self.sctp.resize_with(index + 1, || None);
        }
        self.sctp[index] = Some(port);
    }

    pub(crate) fn sctp(&self, index: usize) -> Option<&SctpPort> {
        self.sctp.get(index)?.as_ref()
    }

    /// Returns the index of the listener to send from to a peer.
    pub(crate) fn listener_for(
        &mut self,
        now: Time,
        transport: Transport,
        remote: SocketAddr,
    ) -> Option<usize> {
        self.local.choose(now, transport, remote.ip())
    }

    pub(crate) fn listening(&self) -> &Listening {
        &self.shared.listening
    }

    /// Sends the datagrams of an outbox.
    pub(crate) fn send_datagrams(&mut self, now: Time, outbox: &Outbox, failed: &mut Vec<u64>) {
        self.udp.send(now, outbox, &mut self.local, failed);
    }

    /// Returns the earlier of `next` and the time at which datagrams are tried again that wait.
    pub(crate) fn next_timeout(&self, now: Time, next: Option<Time>) -> Option<Time> {
        sooner(next, self.udp.retry_at(now))
    }

    /// Wakes the main task if it sleeps, and would sleep past `next`. While it is awake nothing is computed: it
    /// asks before it sleeps.
    pub(crate) fn rearm(&self, next: impl FnOnce() -> Option<Time>) {
        if self.alarm.is_awake() {
            return;
        }
        let next = match self.udp.has_waiting() {
            true => self.next_timeout(self.shared.clock.now(), next()),
            false => next(),
        };
        self.alarm.rearm(next);
    }

    /// Has the main task end the worker, with a time for connections to end.
    pub(crate) fn stop(&mut self, grace: Duration) {
        self.stop = Some(grace);
        self.alarm.ring();
    }

    /// Returns the time that connections have to end, once the endpoint stops.
    pub(crate) fn stopping(&self) -> Option<Duration> {
        self.stop
    }

    /// Handles a report of ICMP that a datagram to `to`, which began with `quote`, is undeliverable. If
    /// another worker sent it, that worker is notified. A message that quotes nothing that was sent of late is
    /// not believed.
    pub(crate) fn refused(&mut self, to: SocketAddr, quote: &[u8], failed: &mut Vec<u64>) {
        self.counters.udp_refused.add(1);
        let other = match self.udp.refused(to, quote) {
            Refused::Ours(report) => return failed.push(report),
            Refused::Other(worker) => self.shared.mailboxes.get(usize::from(worker)),
            Refused::Unknown => None,
        };
        let Some(mailbox) = other else { return self.counters.udp_refused_unknown.add(1) };
        let quoted = Quoted { to, bytes: quote.into() };
        // If that mailbox is full, which is counted, the timers of the worker must find out.
        if mailbox.try_send(Mail::Refused(Box::new(quoted))).is_ok() {
            self.counters.udp_refused_handed_over.add(1);
        }
    }

    /// Whether a page of this origin may open a WebSocket at our address `local`; counts and logs it if not.
    pub(crate) fn allow_origin(
        &mut self,
        now: Time,
        (local, remote): (SocketAddr, SocketAddr),
        origin: &[u8],
    ) -> bool {
        let allowed = self.shared.origins.load().allow(origin, local.ip());
        if !allowed {
            self.counters.refused_origin.add(1);
            // A page can ask as often as it likes; the counter tells how often.
            if self.origin_logged.is_none_or(|at| at + ORIGIN_LOG_PAUSE <= now) {
                self.origin_logged = Some(now);
                let origin = String::from_utf8_lossy(&origin[..origin.len().min(MAX_LOGGED)]);
                tracing::warn!(source = %remote, ?origin, "WebSocket refused: origin not allowed");
            }
        }
        allowed
    }
}
