//! One connection of Ringway's TCP over a TUN device, with a link as bad as asked for in between.
//!
//! What is sent and what must be received is the same pattern, so that a byte out of place shows.
//! The last line of the output says how it ended; the exit status is 0 when it did as expected.

mod watch;
mod wire;

use clap::{Parser, ValueEnum};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ringway_os::Tun;
use ringway_sansio::{Addressing, Duration, Endpoint, Random, SplitMix, Time};
use ringway_tcp::{
    Algorithm, Close, ConnId, Detection, Event, Limits, ListenerId, Settings, Snapshot, State, Tcp,
};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Instant;
use watch::{Diagnosis, Sender, Trace};
use wire::{Impairment, Way, Wire};

/// How it is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum End {
    /// Both ends close.
    Finished,
    /// The peer resets.
    Reset,
    /// The peer refuses.
    Refused,
    /// This end aborts once everything was received.
    Abort,
}

#[derive(Parser, Debug)]
struct Options {
    /// The device; it is made, and must be given its address from outside.
    #[arg(long)]
    tun: String,
    /// This end's address.
    #[arg(long)]
    local: IpAddr,
    /// Wait for a connection on this port.
    #[arg(long)]
    listen: Option<u16>,
    /// Connect to this address.
    #[arg(long)]
    connect: Option<SocketAddr>,
    /// From this port, so that both ends can connect to each other.
    #[arg(long, default_value_t = 0)]
    from: u16,
    /// Bytes to send.
    #[arg(long, default_value_t = 0)]
    send: usize,
    /// Bytes to expect.
    #[arg(long, default_value_t = 0)]
    receive: usize,
    /// Begin to send only once the peer has sent everything and its FIN.
    #[arg(long)]
    after_eof: bool,
    /// Read nothing for so many milliseconds after the connection is open.
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// Wait so many milliseconds after the connection is open before the FIN.
    #[arg(long, default_value_t = 0)]
    linger: u64,
    /// How it is to end.
    #[arg(long, value_enum, default_value_t = End::Finished)]
    end: End,
    /// Loss each way, per cent.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Which data packets are dropped, each way counted from 1.
    #[arg(long, value_delimiter = ',')]
    lose: Vec<u64>,
    /// Bottleneck each way, in kbit/s. The link's clock then stands still while the machine is busy
    /// with other things, so that a sender never sees more come at once than the rate allows.
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// Write what our sender is at here, a line a change: see `watch.rs`.
    #[arg(long)]
    trace: Option<std::path::PathBuf>,
    /// Write what the kernel's sender is at here.
    #[arg(long)]
    trace_kernel: Option<std::path::PathBuf>,
    /// Write what comes onto the link here, as pcapng.
    #[arg(long)]
    capture: Option<std::path::PathBuf>,
    /// Reordering each way, per cent.
    #[arg(long, default_value_t = 0.0)]
    reorder: f64,
    /// Duplication each way, per cent.
    #[arg(long, default_value_t = 0.0)]
    duplicate: f64,
    /// Marking of packets capable of ECN each way, per cent.
    #[arg(long, default_value_t = 0.0)]
    mark: f64,
    /// Delay each way, in milliseconds.
    #[arg(long, default_value_t = 0)]
    delay: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Receive buffer.
    #[arg(long, default_value_t = 1 << 20)]
    buffer: usize,
    /// Without SACK.
    #[arg(long)]
    no_sack: bool,
    /// Without timestamps.
    #[arg(long)]
    no_timestamps: bool,
    /// Without window scaling.
    #[arg(long)]
    no_scaling: bool,
    /// Count blocks (RFC 6675) instead of time (RFC 8985).
    #[arg(long)]
    count: bool,
    /// NewReno instead of CUBIC.
    #[arg(long)]
    reno: bool,
    /// With ECN.
    #[arg(long)]
    ecn: bool,
    /// Give up after so many seconds.
    #[arg(long, default_value_t = 60)]
    limit: u64,
}

impl Options {
    fn settings(&self) -> Settings {
        Settings {
            receive_buffer: self.buffer,
            sack: !self.no_sack,
            timestamps: !self.no_timestamps,
            window_scaling: !self.no_scaling,
            detection: if self.count { Detection::Sack } else { Detection::RackTlp },
            algorithm: if self.reno { Algorithm::NewReno } else { Algorithm::Cubic },
            ecn: self.ecn,
            min_rto: Duration::from_millis(200),
            ..Settings::default()
        }
    }

    fn impairment(&self) -> Impairment {
        Impairment {
            loss: self.loss,
            lose: self.lose.clone(),
            reorder: self.reorder,
            duplicate: self.duplicate,
            mark: self.mark,
            delay: Duration::from_millis(self.delay),
            rate: self.rate * 1000,
            late: Duration::from_millis(5),
        }
    }
}

/// How far the clock of a link with a bottleneck goes at once.
const STEP: Duration = Duration::from_millis(1);

/// The pattern repeats after this many bytes.
const PERIOD: usize = 1 << 16;

fn pattern() -> Vec<u8> {
    (0..2 * PERIOD).map(|i| (i.wrapping_mul(31) ^ (i >> 8)) as u8).collect()
}

/// What the program above TCP does.
struct Program {
    options: Options,
    pattern: Vec<u8>,
    listener: Option<ListenerId>,
    conn: Option<ConnId>,
    opened: Option<Time>,
    sent: usize,
    received: usize,
    peer_closed: bool,
    shut: bool,
    states: Vec<State>,
    last: Option<Snapshot>,
    wrong: Option<String>,
    end: Option<End>,
}

impl Program {
    fn note(&mut self, tcp: &Tcp) {
        let Some(snapshot) = self.conn.and_then(|conn| tcp.snapshot(conn).ok()) else { return };
        if self.states.last() != Some(&snapshot.state) {
            self.states.push(snapshot.state);
        }
        self.last = Some(snapshot);
    }

    fn events(&mut self, tcp: &mut Tcp, now: Time) {
        while let Some(event) = tcp.poll_event() {
            match event {
                Event::Incoming(_) => {
                    self.conn = self.listener.and_then(|listener| tcp.accept(listener));
                    self.opened = Some(now);
                }
                Event::Connected(_) => self.opened = Some(now),
                Event::PeerClosed(_) => self.peer_closed = true,
                Event::Closed(_, why) => {
                    self.end = Some(match why {
                        Close::Finished => End::Finished,
                        Close::Reset => End::Reset,
                        Close::Refused => End::Refused,
                        _ => {
                            self.wrong = Some(format!("closed: {why:?}"));
                            End::Abort
                        }
                    });
                }
                _ => {}
            }
        }
    }

    /// Whether so many milliseconds have passed since the connection opened.
    fn waited(&self, now: Time, milliseconds: u64) -> bool {
        self.opened.is_some_and(|at| now >= at + Duration::from_millis(milliseconds))
    }

    fn work(&mut self, tcp: &mut Tcp, now: Time) {
        self.events(tcp, now);
        let Some(conn) = self.conn else { return };
        if self.opened.is_none() {
            return;
        }
        if self.waited(now, self.options.pause) {
            self.read(tcp, now, conn);
        }
        if self.options.end == End::Abort && self.received >= self.options.receive {
            let _ = tcp.abort(now, conn);
            self.end.get_or_insert(End::Abort);
            return;
        }
        if self.options.after_eof && !(self.peer_closed && self.received == self.options.receive) {
            return;
        }
        while self.sent < self.options.send {
            let at = self.sent % PERIOD;
            let count = (self.options.send - self.sent).min(PERIOD);
            match tcp.write(now, conn, &self.pattern[at..at + count]) {
                Ok(0) | Err(_) => break,
                Ok(took) => self.sent += took,
            }
        }
        if self.sent == self.options.send && !self.shut && self.waited(now, self.options.linger) {
            self.shut = true;
            let _ = tcp.shutdown(now, conn);
        }
    }

    fn read(&mut self, tcp: &mut Tcp, now: Time, conn: ConnId) {
        let mut out = vec![0; PERIOD];
        while let Ok(count) = tcp.read(now, conn, &mut out) {
            if count == 0 {
                return;
            }
            let at = self.received % PERIOD;
            if out[..count] != self.pattern[at..at + count] {
                self.wrong = Some(format!("a wrong byte after {}", self.received));
            }
            self.received += count;
        }
    }

    fn is_over(&self) -> bool {
        self.wrong.is_some() || self.end.is_some()
    }

    /// The last word: what went wrong, if anything.
    fn verdict(&self) -> Option<String> {
        if let Some(wrong) = &self.wrong {
            return Some(wrong.clone());
        }
        if self.end != Some(self.options.end) {
            return Some(format!("expected the end {:?}, got {:?}", self.options.end, self.end));
        }
        if self.end == Some(End::Finished) && self.received != self.options.receive {
            return Some(format!("expected {} bytes, got {}", self.options.receive, self.received));
        }
        None
    }
}

/// Both senders, if they are to be traced: each with the time that its own clock says.
#[derive(Default)]
struct Traces {
    ours: Trace,
    kernel: Trace,
    diagnosis: Option<Diagnosis>,
}

struct World {
    tun: Tun,
    tcp: Tcp,
    wire: Wire,
    start: Instant,
    clock: Duration,
    /// What the machine's clock said when ours was last set.
    set: Duration,
    conn: Option<ConnId>,
    traces: Traces,
}

impl World {
    fn now(&self) -> Time {
        // Not from zero, so that times can be subtracted.
        Time::from_secs(1_000_000) + self.clock
    }

    /// Sets the clock: with a bottleneck, not further than to the next arrival, or by `STEP`.
    fn tick(&mut self) {
        let real = self.start.elapsed();
        let mut passed = real - self.set;
        if self.wire.has_bottleneck()
            && let Some(next) = self.wire.next()
        {
            passed = passed.min(next.since(self.now()).max(STEP));
        }
        self.clock += passed;
        self.set = real;
    }

    /// Takes in what the kernel has, moves what has arrived, and lets the endpoint speak.
    fn turn(&mut self) -> io::Result<()> {
        self.tick();
        let now = self.now();
        self.hear(now)?;
        while let Some((way, packet)) = self.wire.take(now) {
            match way {
                Way::Out => {
                    wire::deliver(&self.tun, &packet)?;
                    self.hear(now)?;
                    self.trace_kernel(&packet)?;
                }
                Way::In => {
                    if let Some((addressing, payload)) = wire::parse(&packet)
                        && addressing.protocol == ringway_tcp::PROTOCOL
                    {
                        self.tcp.handle_packet(now, addressing, payload);
                        self.speak(now)?;
                        self.trace_ours();
                    }
                }
            }
        }
        if self.tcp.poll_timeout().is_some_and(|at| at <= now) {
            self.tcp.handle_timeout(now);
        }
        self.speak(now)
    }

    /// Puts what the kernel sent on the link.
    fn hear(&mut self, now: Time) -> io::Result<()> {
        let mut packet = [0; 65_536];
        loop {
            match self.tun.read(&mut packet) {
                Ok(length) => self.wire.put(now, Way::In, &packet[..length])?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn trace_ours(&mut self) {
        let Some(snapshot) = self.conn.and_then(|conn| self.tcp.snapshot(conn).ok()) else {
            return;
        };
        let at = self.clock.as_secs_f64() * 1000.0;
        self.traces.ours.note(at, self.wire.data_packets(Way::Out), Sender::ours(&snapshot));
    }

    /// Asks after the packet that the kernel was just given.
    fn trace_kernel(&mut self, packet: &[u8]) -> io::Result<()> {
        let Some(diagnosis) = &self.traces.diagnosis else { return Ok(()) };
        let Some((addressing, &[a, b, c, d, ..])) = wire::parse(packet) else { return Ok(()) };
        let back = Addressing {
            source: addressing.destination,
            destination: addressing.source,
            ..addressing
        };
        if let Some(sender) = diagnosis.ask(&back, [c, d, a, b])? {
            let at = self.start.elapsed().as_secs_f64() * 1000.0;
            self.traces.kernel.note(at, self.wire.data_packets(Way::In), sender);
        }
        Ok(())
    }

    fn speak(&mut self, now: Time) -> io::Result<()> {
        let mut payload = Vec::new();
        while let Some(addressing) = self.tcp.poll_transmit(now, &mut payload) {
            self.wire.put(now, Way::Out, &wire::wrap(&addressing, &payload))?;
            payload.clear();
        }
        Ok(())
    }

    /// Waits for a packet or a deadline, and not longer than 20 ms.
    fn wait(&self) -> io::Result<()> {
        let next = [self.wire.next(), self.tcp.poll_timeout()].into_iter().flatten().min();
        let left = next.map_or(20, |at| at.since(self.now()).as_micros().div_ceil(1000).min(20));
        let mut polled = [PollFd::new(self.tun.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::from(left as u8))?;
        Ok(())
    }
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let mut random = SplitMix::new(options.seed ^ u64::from(std::process::id()) << 32);
    random.next_u64();
    let settings = options.settings();
    let mut world = World {
        tun: Tun::open(&options.tun)?,
        tcp: Tcp::new(Limits::default(), settings, &mut random)?,
        wire: Wire::new(options.impairment(), options.seed),
        start: Instant::now(),
        clock: Duration::ZERO,
        set: Duration::ZERO,
        conn: None,
        traces: Traces::default(),
    };
    if options.trace_kernel.is_some() {
        world.traces.diagnosis = Some(Diagnosis::new()?);
    }
    if let Some(path) = &options.capture {
        world.wire.capture(path)?;
    }
    let mut out = io::stdout().lock();
    writeln!(out, "open")?;
    out.flush()?;
    // The device is useless until it has been given its address.
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    world.start = Instant::now();
    let (mut listener, mut conn) = (None, None);
    let local = SocketAddr::new(options.local, options.listen.unwrap_or(options.from));
    if options.listen.is_some() {
        listener = Some(world.tcp.listen(local, 4, None)?);
    } else if let Some(remote) = options.connect {
        conn = Some(world.tcp.connect(world.now(), local, remote, None)?);
    }
    let limit = world.now() + Duration::from_secs(options.limit);
    let mut program = Program {
        options,
        pattern: pattern(),
        listener,
        conn,
        opened: None,
        sent: 0,
        received: 0,
        peer_closed: false,
        shut: false,
        states: Vec::new(),
        last: None,
        wrong: None,
        end: None,
    };
    while !program.is_over() && world.now() < limit {
        world.turn()?;
        program.note(&world.tcp);
        world.conn = program.conn;
        let now = world.now();
        program.work(&mut world.tcp, now);
        world.turn()?;
        program.note(&world.tcp);
        world.wait()?;
    }
    if let Some(conn) = program.conn {
        // What came with the last segment.
        let now = world.now();
        program.read(&mut world.tcp, now, conn);
    }
    // Answers for what comes again, until the peer is done too.
    let quiet = world.now() + Duration::from_millis(1000 + 4 * program.options.delay);
    while world.now() < quiet {
        world.turn()?;
        world.wait()?;
    }
    world.wire.finish_capture()?;
    writeln!(out, "states {:?}", program.states)?;
    if let Some(snapshot) = program.last {
        writeln!(out, "{snapshot:?}")?;
    }
    let Wire { dropped, capable, marked, .. } = world.wire;
    writeln!(
        out,
        "dropped {dropped} capable {capable} marked {marked} {:?}",
        world.tcp.counters()
    )?;
    let Traces { ours, kernel, .. } = &world.traces;
    for (trace, path) in [(ours, &program.options.trace), (kernel, &program.options.trace_kernel)] {
        if let Some(path) = path {
            trace.write(path)?;
        }
    }
    let verdict = program.verdict();
    writeln!(out, "{}", verdict.as_deref().unwrap_or("as expected"))?;
    Ok(verdict.is_none())
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "tcp-over-tun: {error}");
            ExitCode::FAILURE
        }
    }
}
