//! A worker's connection to the world: its listeners, and the loop that runs its handler.

use crate::bind::{self, Bind, Bound};
use crate::clock::Clock;
use crate::counters::Counters;
use crate::error::BindError;
use crate::handler::{Backlog, CloseReason, Handler};
use crate::hub::{Hub, sooner};
use crate::limits::{Limits, MAX_WORKERS, UDP_RECEIVE_BUFFER};
use crate::mailbox::{Inbox, Mail, mailbox};
use crate::origin::Origins;
use crate::route::Listener;
use crate::sctp::Settings;
use crate::shared::{Control, Files, Shared, open_files};
use crate::stream::sctp::{SctpBinds, sctp_settings};
use crate::stream::{self, SharedHub};
use crate::sys::{RECEIVE_BATCH, ReceiveBatch};
use crate::tls::{TlsClient, TlsServer};
use crate::udp::{Ledger, QUOTE, UdpPort};
use arc_swap::ArcSwap;
use ringway_sansio::{FlowId, Time, Transport};
use socket2::Socket;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

/// Receive batches taken from one UDP socket before timers, posts and connections get their turn.
const BATCHES_A_TURN: usize = 4;

/// Posts taken before the others get their turn.
const POSTS_A_TURN: usize = 256;

/// ICMP messages read before the others get their turn.
const REFUSALS_A_TURN: usize = 64;

/// What to listen on and within which bounds.
pub struct Config {
    /// Workers, each with a socket of every listener: 1 to [`MAX_WORKERS`].
    pub workers: usize,
    /// Transports and addresses.
    pub listen: Vec<Bind>,
    /// Bounds on connections.
    pub limits: Limits,
    /// The time of the world.
    pub clock: Clock,
    /// Needed to listen on TLS and secure WebSocket.
    pub tls_server: Option<Arc<TlsServer>>,
    /// Needed to open TLS connections.
    pub tls_client: Option<Arc<TlsClient>>,
    /// Receive buffer to ask for each UDP socket, in bytes.
    pub udp_receive_buffer: usize,
    /// How SCTP associations behave.
    pub sctp: Settings,
    /// The web pages that may open a WebSocket.
    pub origins: Origins,
}

impl Config {
    /// One worker, the usual bounds, no TLS.
    pub fn new(listen: impl IntoIterator<Item = impl Into<Bind>>) -> Self {
        let listen = listen.into_iter().map(Into::into).collect();
        Config {
            workers: 1,
            listen,
            limits: Limits::default(),
            clock: Clock::new(),
            tls_server: None,
            tls_client: None,
            udp_receive_buffer: UDP_RECEIVE_BUFFER,
            sctp: sctp_settings(Settings::default()),
            origins: Origins::default(),
        }
    }
}

/// One worker's listeners, bound and not yet running. May be moved to the worker's thread.
pub struct Endpoint<P> {
    shared: Arc<Shared<P>>,
    worker: u8,
    /// By place among the listeners; `None` for those over SCTP.
    sockets: Vec<Option<Socket>>,
    /// The SCTP that this worker runs.
    sctp: SctpBinds,
    inbox: Inbox<P>,
    receive_buffer: usize,
}

/// Binds all listeners for all workers; gives an endpoint for each worker. Nothing is received
/// until [`Endpoint::run`].
pub fn bind<P: Send + 'static>(config: Config) -> Result<Vec<Endpoint<P>>, BindError> {
    if !(1..=MAX_WORKERS).contains(&config.workers) {
        return Err(BindError::Workers { asked: config.workers, most: MAX_WORKERS });
    }
    let mut bound: Vec<Bound> = Vec::new();
    let mut sctp: Vec<_> = (0..config.workers).map(|_| SctpBinds::new(&config)).collect();
    let mut owners = vec![None; config.listen.len()];
    for (place, bind) in config.listen.iter().enumerate() {
        let &Bind { transport, addr, .. } = bind;
        match transport {
            _ if transport.is_secure() && config.tls_server.is_none() => {
                return Err(BindError::NoCertificate { transport, addr });
            }
            Transport::Sctp | Transport::TlsSctp => {
                // Raw sockets are shared by all listeners over IP, so one worker has them all; and one has
                // all that go by the same UDP port.
                let owner = match bind.encapsulation {
                    None => 0,
                    Some(_) => sctp
                        .iter()
                        .position(|binds| binds.known(bind).is_some())
                        .unwrap_or(place % config.workers),
                };
                // Below the number of workers, which is at most MAX_WORKERS.
                owners[place] = Some(owner as u8);
                bound.push(sctp[owner].bind(place, bind)?);
            }
            _ => bound.push(bind::bind(transport, addr, config.workers)?),
        }
    }
    let (listeners, places) = list(&config.listen, &bound);
    let counters: Vec<Arc<Counters>> = (0..config.workers).map(|_| Arc::default()).collect();
    let (mailboxes, inboxes): (Vec<_>, Vec<_>) =
        counters.iter().map(|counters| mailbox(counters.clone())).unzip();
    let shared = Arc::new(Shared {
        mailboxes,
        counters,
        listeners,
        places,
        owners,
        call_key: Default::default(),
        files: Files::new(&config.limits, open_files()),
        limits: config.limits,
        clock: config.clock,
        tls_server: config.tls_server,
        tls_client: config.tls_client,
        stop: tokio::sync::watch::channel(None).0,
        admission: Default::default(),
        directory: Default::default(),
        origins: ArcSwap::from_pointee(config.origins),
        ledger: Arc::new(Ledger::new(config.workers)),
    });
    let mut sockets: Vec<_> = bound.into_iter().map(|b| b.sockets.into_iter()).collect();
    let endpoints =
        inboxes.into_iter().zip(sctp).enumerate().map(|(worker, (inbox, sctp))| Endpoint {
            shared: shared.clone(),
            worker: worker as u8,
            sockets: sockets.iter_mut().map(Iterator::next).collect(),
            sctp,
            inbox,
            receive_buffer: config.udp_receive_buffer,
        });
    Ok(endpoints.collect())
}

/// The listeners, after them the further addresses of those that have several; and for each of all
/// these the place of the listener.
fn list(binds: &[Bind], bound: &[Bound]) -> (Vec<Listener>, Vec<usize>) {
    let mut listeners: Vec<_> = bound.iter().map(|b| b.listener).collect();
    let mut places: Vec<_> = (0..listeners.len()).collect();
    for (place, bind) in binds.iter().enumerate() {
        let Listener { transport, addr } = listeners[place];
        for ip in &bind.more {
            listeners.push(Listener { transport, addr: SocketAddr::new(*ip, addr.port()) });
            places.push(place);
        }
    }
    (listeners, places)
}

impl<P: Send + 'static> Endpoint<P> {
    /// The number of this worker, which its flows carry.
    pub fn worker(&self) -> u8 {
        self.worker
    }

    /// What may be asked of the endpoints while they run, from any thread.
    pub fn control(&self) -> Control<P> {
        Control(self.shared.clone())
    }

    /// Runs `handler` on this thread until [`Control::stop`]; gives it back then. An error means
    /// that the system refused what every worker needs, at the start.
    pub fn run<H: Handler<Post = P>>(self, handler: H) -> io::Result<H> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build_local(LocalOptions::default())?;
        // The runtime moves what a poll gives, ready or not. Boxed, that is a pointer; unboxed it would
        // be room for the whole handler, copied at every wake-up.
        let handler = runtime.block_on(async { self.serve(handler).await.map(Box::new) })?;
        Ok(*handler)
    }

    async fn serve<H: Handler<Post = P>>(self, handler: H) -> io::Result<H> {
        let mut udp = Vec::new();
        let mut tcp = Vec::new();
        let counters = self.shared.counters[self.worker as usize].clone();
        for (place, socket) in self.sockets.into_iter().enumerate() {
            let listener = self.shared.listeners[place];
            let Some(socket) = socket else {
                udp.push(None);
                continue;
            };
            if !listener.transport.is_datagram() {
                tcp.push((listener.transport, TcpListener::from_std(socket.into())?));
                udp.push(None);
                continue;
            }
            let id = FlowId::new(self.worker, place as u64);
            let (port, granted) = UdpPort::new(socket, listener, id, self.receive_buffer)?;
            counters.udp_receive_buffer.add(granted as u64);
            report_buffer(&listener, self.worker, self.receive_buffer, granted);
            udp.push(Some(port));
        }
        let ios: Vec<_> = udp.iter().flatten().map(UdpPort::io).collect();
        let mut stop = self.shared.stop.subscribe();
        let hub = Hub::new(self.shared, self.worker, udp, handler);
        let mut tasks: Vec<JoinHandle<()>> = Vec::new();
        for (place, port, listener) in self.sctp.start()? {
            let mut h = hub.borrow_mut();
            if h.sctp.len() <= place {
                h.sctp.resize_with(place + 1, || None);
            }
            let transport = port.transport;
            h.sctp[place] = Some(port);
            let accepting = stream::sctp::accept(hub.clone(), listener, transport);
            tasks.push(tokio::task::spawn_local(accepting));
        }
        for (transport, listener) in tcp {
            let accepting = stream::accept(hub.clone(), listener, transport);
            tasks.push(tokio::task::spawn_local(accepting));
        }
        for (place, io) in ios.into_iter().enumerate() {
            tasks.push(tokio::task::spawn_local(hear_refusals(hub.clone(), place, io)));
        }
        let stopped = hub.clone();
        tasks.push(tokio::task::spawn_local(async move {
            // The sender lives in `shared`, which the hub holds.
            let told = stop.wait_for(Option::is_some).await.ok().and_then(|grace| *grace);
            let mut hub = stopped.borrow_mut();
            hub.stop = Some(told.unwrap_or_default());
            hub.wake_main();
        }));
        let mail = tokio::task::spawn_local(take_mail(hub.clone(), self.inbox));
        let mut turn = Turn {
            buffers: ReceiveBatch::new(),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            end: None,
            first: 0,
        };
        poll_fn(|cx| turn.poll(&hub, &mut tasks, cx)).await;
        // Mail is taken until the last connection has ended.
        mail.abort();
        tasks.push(mail);
        for task in tasks {
            let _ = task.await;
        }
        let hub = Rc::try_unwrap(hub).map_err(|_| io::Error::other("a connection did not end"))?;
        Ok(hub.into_inner().handler)
    }
}

fn report_buffer(listener: &Listener, worker: u8, asked: usize, granted: usize) {
    if granted < asked && worker == 0 {
        tracing::warn!(
            listener = %format_args!("udp://{}", listener.addr),
            asked,
            granted,
            "receive buffer is smaller than asked: raise net.core.rmem_max"
        );
    }
}

/// The main task's state from turn to turn.
struct Turn {
    buffers: ReceiveBatch,
    sleep: Pin<Box<Sleep>>,
    /// When `sleep` ends.
    armed: Option<Time>,
    /// Set once we stop: when the last connection must be gone.
    end: Option<Time>,
    /// Which UDP socket comes first.
    first: usize,
}

impl Turn {
    fn poll<H: Handler>(
        &mut self,
        hub: &SharedHub<H>,
        tasks: &mut [JoinHandle<()>],
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut hub = hub.borrow_mut();
        let hub = &mut *hub;
        match &mut hub.main {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        // Awake: no need to be woken for a deadline.
        hub.armed = Some(Time::ZERO);
        hub.tick();
        hub.send_waiting();
        hub.flush();
        let mut more = false;
        if self.end.is_none() {
            more |= self.receive(hub, cx);
        }
        if hub.handler.next_timeout().is_some_and(|at| at <= hub.now) {
            let now = hub.now;
            hub.handler.timeout(now, &mut hub.outbox);
            hub.flush();
        }
        hub.expire_connections();
        if self.has_stopped(hub, tasks) {
            return Poll::Ready(());
        }
        more |= self.arm(hub, cx);
        if more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Receives some batches from every UDP socket. Tells whether there may be more.
    fn receive<H: Handler>(&mut self, hub: &mut Hub<H>, cx: &mut Context<'_>) -> bool {
        let mut more = false;
        let ports = hub.udp.len();
        self.first = self.first.wrapping_add(1);
        let mut first = true;
        for turn in 0..ports {
            let place = self.first.wrapping_add(turn) % ports;
            let mut emptied = false;
            for _ in 0..BATCHES_A_TURN {
                let Some(port) = &mut hub.udp[place] else {
                    emptied = true;
                    break;
                };
                match port.poll_receive(cx, &mut self.buffers) {
                    Poll::Pending => {
                        hub.waiting.ports[place] = Backlog::default();
                        emptied = true;
                        break;
                    }
                    // An ICMP message came for an earlier datagram; it is heard elsewhere.
                    Poll::Ready(Err(_)) => {}
                    Poll::Ready(Ok(count)) => {
                        // The clock was read as the turn began.
                        if !std::mem::take(&mut first) {
                            hub.tick();
                        }
                        self.take_batch(hub, place, count);
                    }
                }
            }
            more |= !emptied;
        }
        more
    }

    fn take_batch<H: Handler>(&mut self, hub: &mut Hub<H>, place: usize, count: usize) {
        let now = hub.now;
        let Some(port) = &mut hub.udp[place] else { return };
        let (backlog, dropped) = port.backlog(now, &self.buffers, count);
        let lost =
            if port.is_shedding() { &hub.counters.udp_shed } else { &hub.counters.udp_dropped };
        hub.counters.udp_batches.add(1);
        if count == RECEIVE_BATCH {
            hub.counters.udp_full_batches.add(1);
            lost.add(dropped.into());
        }
        let shed = hub.note_queued(place, backlog);
        if let Some(port) = &mut hub.udp[place] {
            // A socket found empty has nothing too much.
            port.shed(if count == RECEIVE_BATCH { shed } else { 0 });
        }
        let mut received = 0;
        for reception in (0..count).filter_map(|i| self.buffers.get(i)) {
            let Some(port) = &hub.udp[place] else { return };
            let flow = port.flow(&reception);
            for bytes in reception.datagrams() {
                received += 1;
                hub.datagram(&flow, bytes);
            }
        }
        hub.counters.udp_received.add(received);
        hub.flush();
    }

    /// Once told to stop: ends accepting, then the connections. Tells when all is over.
    fn has_stopped<H: Handler>(&mut self, hub: &mut Hub<H>, tasks: &mut [JoinHandle<()>]) -> bool {
        let now = hub.now;
        let end = match self.end {
            Some(end) => end,
            None => {
                let Some(grace) = hub.stop else { return false };
                for task in tasks {
                    task.abort();
                }
                let end = now + grace;
                for conn in hub.conns.iter_mut() {
                    conn.end(CloseReason::Stopped, Some(end));
                }
                self.end = Some(end);
                end
            }
        };
        if now >= end {
            for conn in hub.conns.iter_mut() {
                conn.end(CloseReason::Stopped, None);
            }
        }
        let waiting = hub.udp.iter().flatten().any(UdpPort::has_waiting);
        hub.conns.len() == 0 && (now >= end || !waiting)
    }

    /// Sees to it that we are woken for the next deadline. Tells when it has come already.
    fn arm<H: Handler>(&mut self, hub: &mut Hub<H>, cx: &mut Context<'_>) -> bool {
        if self.sleep.is_elapsed() {
            self.armed = None;
        }
        let next = sooner(hub.next_timeout(), self.end);
        let mut due = false;
        if let Some(next) = next
            && self.armed.is_none_or(|armed| next < armed)
        {
            let at = Instant::from_std(hub.shared.clock.instant(next));
            self.sleep.as_mut().reset(at);
            self.armed = Some(next);
            // Asked once, it keeps our waker until then.
            due = self.sleep.as_mut().poll(cx).is_ready();
        }
        hub.armed = self.armed;
        due
    }
}

/// Takes what other threads sent.
async fn take_mail<H: Handler>(hub: SharedHub<H>, mut inbox: Inbox<H::Post>) {
    let mut mails = Vec::new();
    let mut taken = 0;
    loop {
        match poll_fn(|cx| inbox.poll_take(cx, &mut mails, POSTS_A_TURN)).await {
            0 => break,
            count => taken += count,
        }
        take_mails(&hub, &mut mails);
        // To yield is to look for datagrams: a system call that is not due for each post.
        if taken >= POSTS_A_TURN {
            taken = 0;
            tokio::task::yield_now().await;
        }
    }
}

fn take_mails<H: Handler>(hub: &SharedHub<H>, mails: &mut Vec<Mail<H::Post>>) {
    let mut hub = hub.borrow_mut();
    let hub = &mut *hub;
    let now = hub.tick();
    for mail in mails.drain(..) {
        match mail {
            Mail::Post(item) => hub.handler.posted(now, item, &mut hub.outbox),
            Mail::Carry(carry) => hub.carried(&carry),
            Mail::NotSent(reports) => hub.fail(reports.into_iter()),
            Mail::CutOff(reports) => hub.tell_cut_off(&reports),
            Mail::Refused(quoted) => {
                let report = hub.outstanding.take(quoted.to, &quoted.bytes);
                hub.fail(report.into_iter());
            }
        }
    }
    hub.flush();
}

/// Listens for ICMP messages about what was sent from a socket.
async fn hear_refusals<H: Handler>(hub: SharedHub<H>, place: usize, io: Rc<AsyncFd<Socket>>) {
    let mut quote = [0; QUOTE];
    while let Ok(mut ready) = io.ready(Interest::ERROR).await {
        // From here on a new message makes the socket ready again.
        ready.clear_ready();
        while hear_some(&hub, place, &mut quote) {
            tokio::task::yield_now().await;
        }
    }
}

/// Reads some ICMP messages. Tells whether there may be more.
fn hear_some<H: Handler>(hub: &SharedHub<H>, place: usize, quote: &mut [u8]) -> bool {
    let mut hub = hub.borrow_mut();
    let hub = &mut *hub;
    hub.tick();
    for _ in 0..REFUSALS_A_TURN {
        let Some(Some(port)) = hub.udp.get(place) else { return false };
        let Some(refusal) = port.next_refusal(quote) else {
            hub.flush();
            return false;
        };
        if let Some(to) = refusal.to.filter(|_| refusal.cause.is_unreachable()) {
            hub.refused(to, &quote[..refusal.quoted]);
        }
    }
    hub.flush();
    true
}
