//! One association: sends its part of the pattern, checks the peer's, and ends as it is told to.

use crate::pattern::{self, Got, LARGEST, Pattern, Sent};
use crate::say;
use ringway_sansio::Duration as Span;
use ringway_sctp::{Algorithm, Multipath};
use ringway_sctp_tokio::{
    AddAddressError, Association, CallError, Change, Close, Config, Connect, ConnectError,
    EndedError, Event, Over, Received, Reliability, Reset, Scheduling, SendOptions, Settings,
    Stack, SystemError, Totals, refusal,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until, timeout};

/// Room in the buffers, each way.
const BUFFER: usize = 4 << 20;
/// How often it is asked whether all is done.
const TICK: Duration = Duration::from_millis(5);

#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) meeting: Meeting,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    streams: u16,
    /// Messages to send
    #[arg(long, default_value_t = 0)]
    count: u64,
    #[arg(long, default_value_t = 1000)]
    size: usize,
    /// Different sizes, from one byte up to --size
    #[arg(long, default_value_t = 1)]
    sizes: u64,
    /// Messages to receive
    #[arg(long, default_value_t = 0)]
    expect: u64,
    /// Seconds it may take
    #[arg(long, default_value_t = 30)]
    limit: u64,
    /// Milliseconds that it stays when all is over, to answer a peer that did not hear of it
    #[arg(long, default_value_t = 0)]
    linger: u64,
    #[arg(long)]
    unordered: bool,
    /// Milliseconds after which a message is given up
    #[arg(long)]
    lifetime: Option<u64>,
    /// The peer gives messages up, so that some may be missing
    #[arg(long)]
    partial: bool,
    /// Microseconds from one message to the next
    #[arg(long, default_value_t = 0)]
    pace: u64,
    /// Ends by ABORT
    #[arg(long)]
    abort: bool,
    /// Leaves the end to the peer
    #[arg(long)]
    stay: bool,
    /// Moves quickly from a failed path to another
    #[arg(long)]
    ss7: bool,
    /// Messages are sent and taken in turns (RFC 8260)
    #[arg(long)]
    interleave: bool,
    /// What is off unless asked for
    #[arg(long, value_delimiter = ',')]
    with: Vec<Extra>,
    /// Bytes of the receive buffer
    #[arg(long, default_value_t = BUFFER)]
    buffer: usize,
    /// Addresses may change (RFC 5061)
    #[arg(long)]
    dynamic: bool,
    /// After so many messages all streams begin anew (RFC 6525)
    #[arg(long)]
    reset_after: Option<u64>,
    /// Milliseconds after which addresses change
    #[arg(long, default_value_t = 0)]
    change_after: u64,
    /// An address that is added
    #[arg(long)]
    add: Option<IpAddr>,
    /// An address of ours that the peer is asked to prefer
    #[arg(long)]
    peer_primary: Option<IpAddr>,
    /// An address that is removed
    #[arg(long)]
    remove: Option<IpAddr>,
}

/// An extension, or another way of doing what is done anyhow.
#[derive(clap::ValueEnum, Clone, Copy)]
enum Extra {
    Cubic,
    Ecn,
    FinalAcks,
    Multipath,
    Pmtu,
    Pooled,
    Rack,
}

impl Extra {
    fn apply(self, settings: &mut Settings) {
        match self {
            Extra::Cubic => settings.algorithm = Algorithm::Cubic,
            Extra::Ecn => settings.ecn = true,
            Extra::FinalAcks => settings.final_acks = true,
            Extra::Multipath => settings.multipath = Multipath::Independent,
            Extra::Pmtu => settings.largest_mtu = Some(9000),
            Extra::Pooled => settings.multipath = Multipath::Pooled,
            Extra::Rack => settings.rack = true,
        }
    }
}

#[derive(clap::Args, Clone)]
pub(crate) struct Place {
    /// Our addresses
    #[arg(long, value_delimiter = ',', required = true)]
    pub(crate) bind: Vec<IpAddr>,
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// SCTP over UDP, from this port
    #[arg(long)]
    pub(crate) udp: Option<u16>,
}

impl Place {
    /// A stack there.
    pub(crate) fn stack(&self) -> Result<Stack, String> {
        let over = match self.udp {
            Some(port) => Over::Udp { locals: self.bind.clone(), port },
            None => Over::Ip,
        };
        Stack::new(Config::new(over)).map_err(|error| error.to_string())
    }
}

/// Where both are, and who comes to whom.
#[derive(clap::Args, Clone)]
pub(crate) struct Meeting {
    #[command(flatten)]
    place: Place,
    /// Waits for the peer
    #[arg(long)]
    listen: bool,
    /// Connects to these addresses
    #[arg(long, value_delimiter = ',', required_unless_present = "listen")]
    connect: Vec<IpAddr>,
    #[arg(long, default_value_t = 0)]
    to_port: u16,
    /// The peer's UDP port, with --udp
    #[arg(long, default_value_t = 0)]
    to_udp: u16,
}

impl Meeting {
    /// The one association.
    pub(crate) async fn associate(&self, settings: Settings) -> Result<Association, String> {
        let stack = self.place.stack()?;
        let Place { bind, port, .. } = &self.place;
        if self.listen {
            let listening = stack.listen(bind, *port, Some(settings));
            let listener = listening.map_err(|error| error.to_string())?;
            say("listening");
            return listener.accept().await.map_err(|error| error.to_string());
        }
        let connect = Connect {
            local_port: *port,
            encapsulation: self.to_udp,
            settings: Some(settings),
            ..Connect::new(bind, &self.connect, self.to_port)
        };
        stack.connect(&connect).await.map_err(|error| match &error {
            ConnectError::Closed(why) => ended(Some(why), &error),
            _ => error.to_string(),
        })
    }
}

impl Options {
    fn settings(&self) -> Settings {
        let mut settings = if self.ss7 { Settings::ss7() } else { Settings::default() };
        for extra in &self.with {
            extra.apply(&mut settings);
        }
        Settings {
            send_buffer: BUFFER,
            receive_buffer: self.buffer,
            outbound_streams: self.streams,
            inbound_streams: u16::MAX,
            interleaving: self.interleave,
            scheduling: if self.interleave { Scheduling::RoundRobin } else { Scheduling::Fcfs },
            dynamic_addresses: self.dynamic,
            ..settings
        }
    }
}

/// What an association brings.
enum Next {
    News(Option<Event>),
    Message(Result<Option<Received>, EndedError>),
}

/// One association as it goes.
struct Run<'a> {
    options: &'a Options,
    association: Association,
    pattern: Pattern,
    begun: Instant,
    sent: RefCell<Sent>,
    got: RefCell<Got>,
    /// When the last message came, and the longest time from one to the next.
    last: Cell<Option<Instant>>,
    gap: Cell<Duration>,
    failed: Cell<u64>,
    paths: Cell<u64>,
    /// How often streams of the peer began anew.
    resets: Cell<u64>,
    /// How many of ours did.
    own_resets: Cell<usize>,
    /// Whether our reset that is under way, if one is, was refused.
    refused: Cell<Option<bool>>,
    /// Answers to changes of our addresses.
    changes: Cell<u64>,
    /// What was counted until the end began.
    totals: Cell<Totals>,
    ended: RefCell<Option<String>>,
}

fn ended(why: Option<&Close>, error: &dyn std::error::Error) -> String {
    match why {
        Some(Close::Finished) => "shutdown".to_owned(),
        Some(Close::Aborted { .. }) => "reset".to_owned(),
        Some(Close::Unreachable) => "lost".to_owned(),
        _ => error.to_string(),
    }
}

impl Run<'_> {
    /// Milliseconds since the association stood.
    fn at(&self) -> u128 {
        self.begun.elapsed().as_millis()
    }

    fn end(&self, how: String) {
        self.ended.borrow_mut().get_or_insert(how);
    }

    /// It ended otherwise than in order.
    fn fail(&self, why: Option<&Close>, error: &dyn std::error::Error) {
        if !self.is_over() {
            say(&format!("{error}, at {} ms", self.at()));
        }
        self.end(ended(why, error));
    }

    fn is_over(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Sends all there is to send.
    async fn send(&self) {
        let Options { size, sizes, count, pace, unordered, lifetime, reset_after, .. } =
            *self.options;
        let mut due = Instant::now();
        for _ in 0..count {
            let (stream, number, size) = self.sent.borrow().next(size, sizes);
            let reliability = match lifetime {
                Some(ms) => Reliability::Lifetime(Span::from_millis(ms)),
                None => Reliability::Full,
            };
            let ppid = pattern::ppid(number);
            let how =
                SendOptions { stream, ppid, unordered, reliability, ..SendOptions::default() };
            let message = self.pattern.message(stream, number, size);
            if let Err(error) = self.association.send(message, &how).await {
                return self.fail(error.closed(), &error);
            }
            self.sent.borrow_mut().count(stream, size);
            if Some(self.sent.borrow().messages) == reset_after {
                self.reset().await;
            }
            if pace > 0 {
                due += Duration::from_micros(pace);
                sleep_until(due.into()).await;
            }
        }
    }

    /// Has all streams begin anew, and waits until they do.
    async fn reset(&self) {
        while self.own_resets.get() < usize::from(self.options.streams) && !self.is_over() {
            // Refused while a request of the peer's is under way: then later.
            if self.refused.replace(Some(false)) != Some(false)
                && let Err(error) = self.association.reset_streams(Reset::Outgoing(&[]))
            {
                return self.fail(error.closed(), &error);
            }
            sleep(TICK).await;
        }
    }

    /// What comes next: news before messages, so that a message is taken for what it is.
    async fn next(&self, news: bool, message: &mut Vec<u8>) -> Next {
        poll_fn(|cx| {
            if news && let Poll::Ready(event) = self.association.poll_event(cx) {
                return Poll::Ready(Next::News(event));
            }
            self.association.poll_recv_into(cx, message).map(Next::Message)
        })
        .await
    }

    /// Takes what comes until the end.
    async fn receive(&self) {
        let mut parts: HashMap<(u16, bool), Vec<u8>> = HashMap::new();
        let (mut message, mut news) = (Vec::new(), true);
        loop {
            match self.next(news, &mut message).await {
                Next::News(Some(event)) => self.hear(event),
                Next::News(None) => news = false,
                Next::Message(Ok(Some(part))) if part.begin && part.end => {
                    self.take(&part, &message);
                    message.clear();
                }
                Next::Message(Ok(Some(part))) => {
                    // Those of several streams may come in turns (RFC 8260).
                    let held = parts.entry((part.stream, part.unordered)).or_default();
                    held.append(&mut message);
                    if part.end {
                        self.take(&part, held);
                        held.clear();
                    }
                }
                Next::Message(Ok(None)) => return self.end("shutdown".to_owned()),
                Next::Message(Err(error)) => return self.fail(error.closed(), &error),
            }
        }
    }

    /// A message is whole, or will not be.
    fn take(&self, last: &Received, message: &[u8]) {
        if last.cut {
            return;
        }
        let now = Instant::now();
        if let Some(last) = self.last.replace(Some(now)) {
            self.gap.set(self.gap.get().max(now - last));
        }
        let number = pattern::number(last.ppid);
        self.got.borrow_mut().take(&self.pattern, last.stream, number, message);
    }

    /// Something happened.
    fn hear(&self, event: Event) {
        match event {
            Event::Path { remote, state } => {
                self.paths.set(self.paths.get() + 1);
                say(&format!("path {remote} {state:?} at {} ms", self.at()));
            }
            Event::SendFailed { messages } => {
                self.failed.set(self.failed.get() + u64::from(messages));
            }
            Event::Changed(change) => {
                say(&format!("{change:?} at {} ms", self.at()));
                match change {
                    Change::StreamsReset { incoming: true, streams } => {
                        self.got.borrow_mut().reset(&streams);
                        self.resets.set(self.resets.get() + 1);
                    }
                    Change::StreamsReset { streams, .. } => {
                        let count = self.sent.borrow_mut().reset(&streams);
                        self.own_resets.set(self.own_resets.get() + count);
                    }
                    Change::ReconfigRefused(_) => self.refused.set(Some(true)),
                    Change::AddressAdded(_)
                    | Change::PrimaryRequested(_)
                    | Change::AddressDeleted(_)
                    | Change::AddressRefused { .. } => self.changes.set(self.changes.get() + 1),
                    _ => {}
                }
            }
            Event::Restarted => say("restart"),
            _ => {}
        }
    }

    /// Changes addresses in time.
    async fn change(&self) {
        let Options { add, peer_primary, remove, change_after, .. } = *self.options;
        sleep(Duration::from_millis(change_after)).await;
        let of = &self.association;
        // An address can go once another is there.
        let add_to = |of: &Association, ip| {
            of.add_address(ip).map_err(|error| match error {
                AddAddressError::Call(error) => error,
                other => CallError::System(SystemError::new("sctp", std::io::Error::other(other))),
            })
        };
        type Ask = fn(&Association, IpAddr) -> Result<(), CallError<refusal::AddressError>>;
        for (address, ask) in [
            (add, add_to as Ask),
            (peer_primary, Association::ask_primary),
            (remove, Association::delete_address),
        ] {
            let Some(address) = address else { continue };
            let before = self.changes.get();
            if let Err(error) = ask(of, address) {
                return self.fail(error.closed(), &error);
            }
            while self.changes.get() == before && !self.is_over() {
                sleep(TICK).await;
            }
        }
    }

    /// Whether what was to be sent and to be received is.
    fn is_done(&self) -> bool {
        self.sent.borrow().messages >= self.options.count
            && self.got.borrow().messages >= self.options.expect
    }

    /// Ends once all is done, and waits for the end.
    async fn finish(&self) {
        while !self.is_done() && !self.is_over() {
            sleep(TICK).await;
        }
        if let Ok(snapshot) = self.association.statistics() {
            self.totals.set(snapshot.totals);
        }
        if self.options.abort && !self.is_over() {
            let _ = self.association.abort(b"asked to");
            return self.end("aborted".to_owned());
        }
        if !self.options.stay {
            self.association.begin_shutdown();
        }
        while !self.is_over() {
            sleep(TICK).await;
        }
    }

    /// The last line, and whether all went as expected.
    fn summary(&self) -> bool {
        let (sent, got) = (self.sent.borrow(), self.got.borrow());
        let totals = self.totals.get();
        say(&format!(
            "sent={} sent_bytes={} got={} got_bytes={} wrong={} failed={} resets={} paths={} seconds={:.3} cpu={:.3} \
             gap_ms={:.1} again={} timeouts={} ended={}",
            sent.messages,
            sent.bytes,
            got.messages,
            got.bytes,
            got.wrong,
            self.failed.get(),
            self.resets.get(),
            self.paths.get(),
            self.begun.elapsed().as_secs_f64(),
            crate::cpu(),
            self.gap.get().as_secs_f64() * 1e3,
            totals.retransmits,
            totals.timeouts,
            self.ended.borrow().as_deref().unwrap_or("not"),
        ));
        self.is_done() && got.wrong == 0
    }
}

/// Runs one association to its end.
pub(crate) async fn run(options: Options) -> Result<bool, String> {
    if !(1..=LARGEST).contains(&options.size) {
        return Err(format!("--size: expected 1 to {LARGEST}"));
    }
    let limit = Duration::from_secs(options.limit);
    let association = match timeout(limit, options.meeting.associate(options.settings())).await {
        Ok(Ok(association)) => association,
        Ok(Err(error)) => return Err(error),
        Err(_) => return Err("no association in time".to_owned()),
    };
    let run = Run {
        pattern: Pattern::new(),
        begun: Instant::now(),
        sent: RefCell::new(Sent::new(options.streams)),
        got: RefCell::new(Got::new(options.unordered, options.partial)),
        last: Cell::new(None),
        gap: Cell::new(Duration::ZERO),
        failed: Cell::new(0),
        paths: Cell::new(0),
        resets: Cell::new(0),
        own_resets: Cell::new(0),
        changes: Cell::new(0),
        refused: Cell::new(None),
        totals: Cell::default(),
        ended: RefCell::new(None),
        options: &options,
        association,
    };
    let work = async { tokio::join!(run.send(), run.receive(), run.change()) };
    let done = timeout(limit, async {
        tokio::select! {
            biased;
            () = run.finish() => {}
            _ = work => {}
        }
    });
    if done.await.is_err() {
        say("out of time");
    }
    // The last packets leave when the stack has its turn.
    sleep(TICK).await;
    let well = run.summary();
    sleep(Duration::from_millis(options.linger)).await;
    Ok(well)
}
