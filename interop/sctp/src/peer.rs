//! One association: sends its part of the pattern, checks the peer's, and ends as it is told to.

use crate::pattern::{self, Got, LARGEST, Pattern, Sent};
use crate::say;
use ringway_net::sctp::{
    Association, Close, Config, Connect, Error, Event, Over, Reliability, SendOptions, Settings,
    Stack,
};
use ringway_sansio::Duration as Span;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until, timeout};

/// Room in the buffers, each way.
const BUFFER: usize = 4 << 20;
/// How often it is asked whether all is done.
const TICK: Duration = Duration::from_millis(5);

#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) place: Place,
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
    pub(crate) ss7: bool,
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

impl Options {
    fn settings(&self) -> Settings {
        let settings = if self.ss7 { Settings::ss7() } else { Settings::default() };
        Settings {
            send_buffer: BUFFER,
            receive_buffer: BUFFER,
            outbound_streams: self.streams,
            inbound_streams: u16::MAX,
            ..settings
        }
    }

    async fn associate(&self) -> Result<Association, Error> {
        let refused = |error: String| Error::System {
            what: "sctp".into(),
            error: std::io::Error::other(error).into(),
        };
        let stack = self.place.stack().map_err(refused)?;
        let Place { bind, port, .. } = &self.place;
        if self.listen {
            let listener = stack.listen(bind, *port, Some(self.settings()))?;
            say("listening");
            return listener.accept().await;
        }
        let connect = Connect {
            local_port: *port,
            encapsulation: self.to_udp,
            settings: Some(self.settings()),
            ..Connect::new(bind, &self.connect, self.to_port)
        };
        stack.connect(&connect).await
    }
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
    resets: Cell<u64>,
    ended: RefCell<Option<String>>,
}

fn ended(error: &Error) -> String {
    match error {
        Error::Closed(Close::Finished) => "shutdown".to_owned(),
        Error::Closed(Close::Aborted { .. }) => "reset".to_owned(),
        Error::Closed(Close::Unreachable) => "lost".to_owned(),
        other => other.to_string(),
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
    fn fail(&self, error: &Error) {
        if !self.is_over() {
            say(&format!("{error}, at {} ms", self.at()));
        }
        self.end(ended(error));
    }

    fn is_over(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Sends all there is to send.
    async fn send(&self) {
        let Options { size, sizes, count, pace, unordered, lifetime, .. } = *self.options;
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
                return self.fail(&error);
            }
            self.sent.borrow_mut().count(stream, size);
            if pace > 0 {
                due += Duration::from_micros(pace);
                sleep_until(due.into()).await;
            }
        }
    }

    /// Takes what comes until the end.
    async fn receive(&self) {
        let mut message = Vec::new();
        loop {
            match self.association.recv_into(&mut message).await {
                Ok(Some(received)) if received.end => {
                    if received.cut {
                        message.clear();
                        continue;
                    }
                    let now = Instant::now();
                    if let Some(last) = self.last.replace(Some(now)) {
                        self.gap.set(self.gap.get().max(now - last));
                    }
                    let number = pattern::number(received.ppid);
                    let mut got = self.got.borrow_mut();
                    got.take(&self.pattern, received.stream, number, &message);
                    message.clear();
                }
                Ok(Some(_)) => {}
                Ok(None) => return self.end("shutdown".to_owned()),
                Err(error) => return self.fail(&error),
            }
        }
    }

    /// Tells what happens.
    async fn watch(&self) {
        while let Some(event) = self.association.event().await {
            match event {
                Event::Path { remote, state } => {
                    self.paths.set(self.paths.get() + 1);
                    say(&format!("path {remote} {state:?} at {} ms", self.at()));
                }
                Event::SendFailed { messages } => {
                    self.failed.set(self.failed.get() + u64::from(messages));
                }
                Event::Restarted => say("restart"),
                Event::Closed(how) => {
                    let why = ended(&Error::Closed(how));
                    // What has come is still to be read.
                    sleep(TICK).await;
                    self.end(why);
                }
                _ => {}
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
        if self.options.abort && !self.is_over() {
            let _ = self.association.abort(b"asked to");
            // Its packet leaves when the stack has its turn.
            sleep(TICK).await;
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
        say(&format!(
            "sent={} sent_bytes={} got={} got_bytes={} wrong={} failed={} resets={} paths={} seconds={:.3} cpu={:.3} \
             gap_ms={:.1} ended={}",
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
    let association = match timeout(limit, options.associate()).await {
        Ok(Ok(association)) => association,
        Ok(Err(error)) => return Err(ended(&error)),
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
        ended: RefCell::new(None),
        options: &options,
        association,
    };
    let work = async { tokio::join!(run.send(), run.receive(), run.watch()) };
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
    Ok(run.summary())
}
