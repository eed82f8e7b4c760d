//! A worker's connection to the world: its listeners, and the loop that runs its handler.

use crate::bind::{self, Bound};
use crate::error::BindError;
use crate::handler::Handler;
use crate::ingress::IngressFilter;
use crate::limits::UDP_RECEIVE_BUFFER;
use crate::listen::Bind;
use crate::mailbox::{Inbox, Mail, mailbox};
use crate::origin::Origins;
use crate::shared::{Control, Files, Listening, Shared, open_files};
use crate::sockets::{SharedWorker, Sockets, Worker, now};
use crate::stream;
use crate::stream::port::{SctpBinds, TwoAddresses, sctp_settings};
use crate::tls::{TlsClient, TlsServer};
use crate::udp::{Ledger, QUOTE, UdpPort};
use arc_swap::ArcSwap;
use ringway_flow::limits::MAX_WORKERS;
use ringway_flow::{Common, Counters, Flows, Limits};
use ringway_os::{Clock, RECEIVE_BATCH, ReceiveBatch, Watched};
use ringway_sansio::time::sooner;
use ringway_sansio::{CloseReason, FlowId, Listener, Time, Transport};
use ringway_sctp_tokio::Settings;
use socket2::Socket;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
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
    /// Addresses of which associations have both.
    pub sctp_paths: Option<TwoAddresses>,
    /// The web pages that may open a WebSocket.
    pub origins: Origins,
    /// Sources that are believed only where datagrams come by one interface.
    pub ingress: Option<IngressFilter>,
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
            sctp_paths: None,
            origins: Origins::default(),
            ingress: None,
        }
    }
}

/// One worker's listeners, bound and not yet running. May be moved to the worker's thread.
pub struct Endpoint<P> {
    shared: Arc<Shared<P>>,
    worker: u8,
    /// By index among the listeners; `None` for those over SCTP.
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
        return Err(BindError::Workers { requested: config.workers, max: MAX_WORKERS });
    }
    let mut bound: Vec<Bound> = Vec::new();
    let mut sctp: Vec<_> = (0..config.workers)
        .map(|_| SctpBinds::new(config.limits.connections, config.sctp, config.sctp_paths))
        .collect();
    let mut owners = vec![None; config.listen.len()];
    for (index, bind) in config.listen.iter().enumerate() {
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
                        .unwrap_or(index % config.workers),
                };
                // Below the number of workers, which is at most MAX_WORKERS.
                owners[index] = Some(owner as u8);
                bound.push(sctp[owner].bind(index, bind)?);
            }
            _ => bound.push(bind::bind(transport, addr, config.workers)?),
        }
    }
    let (listeners, configured) = list(&config.listen, &bound);
    let counters: Vec<Arc<Counters>> = (0..config.workers).map(|_| Arc::default()).collect();
    let (mailboxes, inboxes): (Vec<_>, Vec<_>) =
        counters.iter().map(|counters| mailbox(counters.clone())).unzip();
    let files = Files::new(&config.limits, open_files());
    let shared = Arc::new(Shared {
        common: Arc::new(Common::new(config.limits, files.room, &call_key())),
        mailboxes,
        counters,
        listening: Listening::new(listeners, configured, owners),
        files,
        clock: config.clock,
        tls_server: config.tls_server,
        tls_client: config.tls_client,
        stop: tokio::sync::watch::channel(None).0,
        origins: ArcSwap::from_pointee(config.origins),
        ingress: config.ingress,
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

/// Returns the secret key that tells calls apart on the streams of SCTP.
fn call_key() -> [u8; 16] {
    let random = RandomState::new();
    let halves = [random.hash_one(0), random.hash_one(1)].map(u64::to_ne_bytes);
    std::array::from_fn(|i| halves[i / 8][i % 8])
}

/// The listeners, after them the further addresses of those that have several; and for each of all
/// these the index of the listener.
fn list(binds: &[Bind], bound: &[Bound]) -> (Vec<Listener>, Vec<usize>) {
    let mut listeners: Vec<_> = bound.iter().map(|b| b.listener).collect();
    let mut indices: Vec<_> = (0..listeners.len()).collect();
    for (index, bind) in binds.iter().enumerate() {
        let Listener { transport, addr } = listeners[index];
        for ip in &bind.more {
            listeners.push(Listener { transport, addr: SocketAddr::new(*ip, addr.port()) });
            indices.push(index);
        }
    }
    (listeners, indices)
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
        let counters = self.shared.counters[usize::from(self.worker)].clone();
        for (index, socket) in self.sockets.into_iter().enumerate() {
            let listener = self.shared.listening.listeners()[index];
            let Some(socket) = socket else {
                udp.push(None);
                continue;
            };
            if !listener.transport.is_datagram() {
                tcp.push((listener.transport, TcpListener::from_std(socket.into())?));
                udp.push(None);
                continue;
            }
            let id = FlowId::new(self.worker, index as u64);
            let (port, granted) = UdpPort::new(socket, listener, id, self.receive_buffer)?;
            counters.udp_receive_buffer.add(granted as u64);
            report_buffer(&listener, self.worker, self.receive_buffer, granted);
            udp.push(Some(port));
        }
        let ios: Vec<_> = udp.iter().map(|port| port.as_ref().map(UdpPort::io)).collect();
        let mut stop = self.shared.stop.subscribe();
        let worker = start(self.shared, self.worker, udp, handler);
        let mut tasks: Vec<JoinHandle<()>> = Vec::new();
        for (index, port, listener) in self.sctp.start()? {
            let transport = port.transport;
            worker.borrow_mut().pipes_mut().add_sctp(index, port);
            let accepting = stream::sctp::accept(worker.clone(), listener, transport);
            tasks.push(tokio::task::spawn_local(accepting));
        }
        for (transport, listener) in tcp {
            let accepting = stream::accept(worker.clone(), listener, transport);
            tasks.push(tokio::task::spawn_local(accepting));
        }
        for (index, io) in ios.into_iter().enumerate() {
            let Some(io) = io else { continue };
            tasks.push(tokio::task::spawn_local(hear_refusals(worker.clone(), index, io)));
        }
        let stopped = worker.clone();
        tasks.push(tokio::task::spawn_local(async move {
            // The sender lives in what the workers share.
            let grace = stop.wait_for(Option::is_some).await.ok().and_then(|grace| *grace);
            stopped.borrow_mut().pipes_mut().stop(grace.unwrap_or_default());
        }));
        let mail = tokio::task::spawn_local(take_mail(worker.clone(), self.inbox));
        let mut turn = Turn {
            buffers: ReceiveBatch::new(),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            end: None,
            first: 0,
        };
        poll_fn(|cx| turn.poll(&worker, &mut tasks, cx)).await;
        // Mail is taken until the last connection has ended.
        mail.abort();
        tasks.push(mail);
        for task in tasks {
            let _ = task.await;
        }
        let worker =
            Rc::try_unwrap(worker).map_err(|_| io::Error::other("a connection did not end"))?;
        Ok(worker.into_inner().into_program())
    }
}

/// Returns a worker that runs a handler above its sockets.
fn start<H: Handler>(
    shared: Arc<Shared<H::Post>>,
    worker: u8,
    udp: Vec<Option<UdpPort>>,
    handler: H,
) -> SharedWorker<H> {
    let (now, workers) = (shared.clock.now(), shared.mailboxes.len());
    let (common, counters) = (shared.common.clone(), shared.counters[usize::from(worker)].clone());
    Rc::new_cyclic(|me| {
        let sockets = Sockets::new(me.clone(), shared, worker, udp);
        RefCell::new(Flows::new(now, (worker, workers), common, counters, handler, sockets))
    })
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
    /// Once the endpoint stops: when the last connection must be closed.
    end: Option<Time>,
    /// The index of the UDP socket that is read first.
    first: usize,
}

impl Turn {
    fn poll<H: Handler>(
        &mut self,
        worker: &SharedWorker<H>,
        tasks: &mut [JoinHandle<()>],
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let flows = &mut *worker.borrow_mut();
        flows.pipes_mut().alarm.awake(cx);
        let began = now(flows);
        flows.with_pipes(|sockets, failed| sockets.udp.send_waiting(failed));
        flows.flush(began);
        let (mut more, at) = match self.end {
            None => self.receive(began, flows, cx),
            Some(_) => (false, began),
        };
        flows.timeout(at);
        if self.has_stopped(at, flows, tasks) {
            return Poll::Ready(());
        }
        more |= self.arm(at, flows, cx);
        if more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Receives some batches from every UDP socket. Returns whether there may be more, and the time.
    fn receive<H: Handler>(
        &mut self,
        mut at: Time,
        flows: &mut Worker<H>,
        cx: &mut Context<'_>,
    ) -> (bool, Time) {
        let mut more = false;
        let ports = flows.pipes().udp.len();
        self.first = self.first.wrapping_add(1);
        // The clock was read as the turn began.
        let mut first = true;
        for turn in 0..ports {
            let index = self.first.wrapping_add(turn) % ports;
            let mut emptied = false;
            for _ in 0..BATCHES_A_TURN {
                let Some(port) = flows.pipes_mut().udp.get_mut(index) else {
                    emptied = true;
                    break;
                };
                match port.poll_receive(cx, &mut self.buffers) {
                    Poll::Pending => {
                        flows.note_emptied(index);
                        emptied = true;
                        break;
                    }
                    // An ICMP message came for an earlier datagram; another task handles it.
                    Poll::Ready(Err(_)) => {}
                    Poll::Ready(Ok(count)) => {
                        if !std::mem::take(&mut first) {
                            at = now(flows);
                        }
                        self.take_batch(at, flows, index, count);
                    }
                }
            }
            more |= !emptied;
        }
        (more, at)
    }

    fn take_batch<H: Handler>(
        &mut self,
        at: Time,
        flows: &mut Worker<H>,
        index: usize,
        count: usize,
    ) {
        let counters = flows.counters().clone();
        let Some(port) = flows.pipes_mut().udp.get_mut(index) else { return };
        let (backlog, dropped) = port.backlog(at, &self.buffers, count);
        let lost = if port.is_shedding() { &counters.udp_shed } else { &counters.udp_dropped };
        counters.udp_batches.add(1);
        if count == RECEIVE_BATCH {
            counters.udp_full_batches.add(1);
            lost.add(dropped.into());
        }
        let shed = flows.note_queued(at, index, backlog);
        if let Some(port) = flows.pipes_mut().udp.get_mut(index) {
            // A socket found empty has nothing too much.
            port.shed(if count == RECEIVE_BATCH { shed } else { 0 });
        }
        let ingress = flows.pipes().shared().ingress;
        let mut received = 0;
        for reception in (0..count).filter_map(|i| self.buffers.get(i)) {
            let Some(port) = flows.pipes().udp.get(index) else { return };
            if ingress.is_some_and(|filter| filter.refuses(&reception)) {
                counters.udp_spoofed.add(1);
                continue;
            }
            let flow = port.flow(&reception);
            for bytes in reception.datagrams() {
                received += 1;
                flows.datagram(at, &flow, bytes);
            }
        }
        counters.udp_received.add(received);
        flows.flush(at);
    }

    /// Once the endpoint stops: ends accepting, then the connections. Returns whether all is over.
    fn has_stopped<H: Handler>(
        &mut self,
        at: Time,
        flows: &mut Worker<H>,
        tasks: &mut [JoinHandle<()>],
    ) -> bool {
        let end = match self.end {
            Some(end) => end,
            None => {
                let Some(grace) = flows.pipes().stopping() else { return false };
                for task in tasks {
                    task.abort();
                }
                let end = at + grace;
                flows.end_all(at, CloseReason::Stopped, Some(end));
                self.end = Some(end);
                end
            }
        };
        if at >= end {
            flows.end_all(at, CloseReason::Stopped, None);
        }
        flows.is_empty() && (at >= end || !flows.pipes().udp.has_waiting())
    }

    /// Has the task woken for the next deadline. Returns whether it has come already.
    fn arm<H: Handler>(&mut self, at: Time, flows: &mut Worker<H>, cx: &mut Context<'_>) -> bool {
        if self.sleep.is_elapsed() {
            self.armed = None;
        }
        let next = flows.pipes().next_timeout(at, flows.poll_timeout());
        let next = sooner(next, self.end);
        let mut due = false;
        if let Some(next) = next
            && self.armed.is_none_or(|armed| next < armed)
        {
            let instant = flows.pipes().shared().clock.instant(next);
            self.sleep.as_mut().reset(Instant::from_std(instant));
            self.armed = Some(next);
            // Polled once, it keeps our waker until then.
            due = self.sleep.as_mut().poll(cx).is_ready();
        }
        flows.pipes_mut().alarm.sleep_until(self.armed);
        due
    }
}

/// Takes what other threads sent.
async fn take_mail<H: Handler>(worker: SharedWorker<H>, mut inbox: Inbox<H::Post>) {
    let mut mails = Vec::new();
    let mut taken = 0;
    loop {
        match poll_fn(|cx| inbox.poll_take(cx, &mut mails, POSTS_A_TURN)).await {
            0 => break,
            count => taken += count,
        }
        take_mails(&worker, &mut mails);
        // To yield is to look for datagrams: a system call that is not due for each post.
        if taken >= POSTS_A_TURN {
            taken = 0;
            tokio::task::yield_now().await;
        }
    }
}

fn take_mails<H: Handler>(worker: &SharedWorker<H>, mails: &mut Vec<Mail<H::Post>>) {
    let flows = &mut *worker.borrow_mut();
    let at = now(flows);
    for mail in mails.drain(..) {
        match mail {
            Mail::Post(item) => flows.post(at, |handler, at, out| handler.posted(at, item, out)),
            Mail::Flow(mail) => flows.mail(at, mail),
            Mail::Refused(quoted) => flows.with_pipes(|sockets, failed| {
                failed.extend(sockets.udp.refused_elsewhere(quoted.to, &quoted.bytes));
            }),
        }
    }
    flows.flush(at);
}

/// Receives ICMP messages about what was sent from a socket.
async fn hear_refusals<H: Handler>(worker: SharedWorker<H>, index: usize, io: Rc<Watched<Socket>>) {
    let mut quote = [0; QUOTE];
    while let Ok(mut ready) = io.ready(Interest::ERROR).await {
        // From here on a new message makes the socket ready again.
        ready.clear_ready();
        while hear_some(&worker, index, &mut quote) {
            tokio::task::yield_now().await;
        }
    }
}

/// Reads some ICMP messages. Returns whether there may be more.
fn hear_some<H: Handler>(worker: &SharedWorker<H>, index: usize, quote: &mut [u8]) -> bool {
    let flows = &mut *worker.borrow_mut();
    let at = now(flows);
    let mut more = true;
    flows.with_pipes(|sockets, failed| {
        for _ in 0..REFUSALS_A_TURN {
            let port = sockets.udp.get(index);
            let Some(refusal) = port.and_then(|port| port.next_refusal(quote)) else {
                more = false;
                break;
            };
            if let Some(to) = refusal.to.filter(|_| refusal.cause.is_unreachable()) {
                sockets.refused(to, &quote[..refusal.quoted], failed);
            }
        }
    });
    flows.flush(at);
    more
}
