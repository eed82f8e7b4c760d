//! The loop that runs an emulator between two ends, in a thread of its own.
//!
//! It sleeps until shortly before the next packet is to be sent, and looks at the clock for the rest: the system wakes a
//! thread some tens of microseconds after the time that it asks for. One thread serves both directions: half the packets of a
//! connection go either way, and two threads would share a machine's processor with the programs at both ends.

use crate::direction::Transmit;
use crate::emulator::{Changes, Emulator, Way};
use crate::log::LogFiles;
use crate::ports::{Clocks, Port, Turn};
use crate::report::Report;
use ringway_link::ConfigError;
use ringway_os::{Clock, FRAME_BATCH, use_exact_timers, use_real_time_priority, wait_readable};
use ringway_sansio::time::sooner;
use ringway_sansio::{Duration, Time};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Time before a packet is to be sent from which on the clock is looked at.
const SPIN: Duration = Duration::from_micros(80);
/// Longest sleep.
const IDLE: Duration = Duration::from_secs(1);
/// Longest time that lines of the log wait.
const LOG_PERIOD: Duration = Duration::from_millis(50);

/// A function that lines for the operator go to.
pub(crate) type Lines = Arc<dyn Fn(&str) + Send + Sync>;

/// What the loop is asked for, and where the answer goes. Nobody may be there for it any more.
#[derive(Debug)]
pub(crate) enum Request {
    /// The state.
    Report(oneshot::Sender<Report>),
    /// A change of parameters.
    Set(Box<Changes>, oneshot::Sender<Result<(), ConfigError>>),
    /// The end.
    Stop,
}

/// The loop, for those that ask it.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    requests: Sender<Request>,
    /// Wakes the loop.
    waker: Arc<UnixStream>,
}

impl Asker {
    /// Passes a request on.
    pub(crate) fn send(&self, request: Request) {
        // The loop may have ended. A full pipe has woken it already.
        let _ = self.requests.send(request);
        let _ = (&*self.waker).write(&[0]);
    }

    /// Returns the state, or `None` when the loop has ended.
    pub(crate) async fn report(&self) -> Option<Report> {
        let (answer, answered) = oneshot::channel();
        self.send(Request::Report(answer));
        answered.await.ok()
    }

    /// Changes parameters. Returns `None` when the loop has ended.
    pub(crate) async fn set(&self, changes: Changes) -> Option<Result<(), ConfigError>> {
        let (answer, answered) = oneshot::channel();
        self.send(Request::Set(Box::new(changes), answer));
        answered.await.ok()
    }
}

/// What the loop needs besides the emulator.
pub(crate) struct Parts {
    pub(crate) emulator: Emulator,
    pub(crate) ports: [Port; 2],
    pub(crate) clock: Clock,
    pub(crate) start: Time,
    pub(crate) log: Option<LogFiles>,
    pub(crate) lines: Lines,
    /// The report without what changes.
    pub(crate) name: String,
    pub(crate) ends: [String; 2],
    pub(crate) seed: u64,
}

/// Why the loop has ended, and the last state.
pub(crate) type Outcome = io::Result<Report>;

/// Starts the loop. The outcome comes when it has ended.
///
/// # Errors
/// The error of starting a thread.
pub(crate) fn start(parts: Parts) -> io::Result<(Asker, oneshot::Receiver<Outcome>)> {
    let (requests, requested) = channel();
    let (waker, woken) = UnixStream::pair()?;
    waker.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let (ended, outcome) = oneshot::channel();
    let asker = Asker { requests, waker: Arc::new(waker) };
    std::thread::Builder::new().name("emulate".into()).spawn(move || {
        let mut line = Line { parts, requested, woken, ready: Vec::new(), flush: None };
        // Whoever has started it may be gone.
        let _ = ended.send(line.run());
    })?;
    Ok((asker, outcome))
}

/// Returns the time by both clocks. If the thread was interrupted between, both are read again.
fn read_clocks(clock: &Clock) -> Clocks {
    const TOGETHER: Duration = Duration::from_micros(2);
    let mut before = clock.now();
    let mut tries = 0;
    loop {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = clock.now();
        tries += 1;
        if now.since(before) <= TOGETHER || tries == 3 {
            return Clocks { now, wall };
        }
        before = now;
    }
}

/// The state of the loop.
struct Line {
    parts: Parts,
    requested: Receiver<Request>,
    woken: UnixStream,
    /// Packets that are to be sent now.
    ready: Vec<Transmit>,
    /// When the log is handed over.
    flush: Option<Time>,
}

impl Line {
    fn run(&mut self) -> Outcome {
        // Both make it more exact; without them it works too.
        let _ = use_exact_timers();
        let _ = use_real_time_priority();
        let mut readable = [true; 2];
        loop {
            let mut more = false;
            for way in Way::BOTH {
                let turn = self.receive(way, readable[way.index()]);
                more |= turn.more;
                self.transmit(way, turn.known);
            }
            if !self.handle_requests() {
                return self.finish();
            }
            self.hand_over_log();
            readable = if more { [true; 2] } else { self.wait()? };
        }
    }

    /// Passes what has come at the end of a direction to the emulator.
    fn receive(&mut self, way: Way, readable: bool) -> Turn {
        let Parts { emulator, ports, clock, lines, .. } = &mut self.parts;
        if !readable {
            return Turn { known: clock.now(), more: false };
        }
        let clocks = read_clocks(clock);
        let port = &mut ports[way.index()];
        port.receive(clocks, lines.as_ref(), |time, arrival| {
            emulator.handle_packet(time, way, arrival);
        })
    }

    /// Sends what is to be sent until `now`.
    fn transmit(&mut self, way: Way, now: Time) {
        let Parts { emulator, ports, clock, .. } = &mut self.parts;
        let port = &mut ports[1 - way.index()];
        loop {
            while self.ready.len() < FRAME_BATCH {
                let Some(packet) = emulator.poll_transmit(now, way) else { break };
                self.ready.push(packet);
            }
            if self.ready.is_empty() {
                return;
            }
            let mut refused = [None; FRAME_BATCH];
            port.send(&self.ready, |i, reason| refused[i] = Some(reason));
            let sent = clock.now();
            for (packet, refused) in self.ready.drain(..).zip(refused) {
                match refused {
                    None => emulator.sent(sent, way, packet),
                    Some(reason) => emulator.refused(way, packet, reason),
                }
            }
        }
    }

    /// Answers requests. Returns whether to go on.
    fn handle_requests(&mut self) -> bool {
        while let Ok(request) = self.requested.try_recv() {
            match request {
                Request::Report(answer) => {
                    // Whoever has asked may be gone.
                    let _ = answer.send(self.report());
                }
                Request::Set(changes, answer) => {
                    let now = self.parts.clock.now();
                    let _ = answer.send(self.parts.emulator.set(now, &changes));
                }
                Request::Stop => return false,
            }
        }
        true
    }

    fn hand_over_log(&mut self) {
        let Parts { emulator, clock, log: Some(log), .. } = &mut self.parts else { return };
        let now = clock.now();
        if self.flush.is_none_or(|flush| now >= flush) {
            self.flush = Some(now + LOG_PERIOD);
            for way in Way::BOTH {
                log.push(way.index(), emulator.take_log(way));
            }
        }
    }

    /// Waits until there is something to do. Returns which ends may have packets.
    fn wait(&mut self) -> io::Result<[bool; 2]> {
        let Parts { emulator, ports, clock, lines, .. } = &mut self.parts;
        let now = clock.now();
        let due = emulator.poll_timeout();
        if let Some(due) = due.filter(|due| due.since(now) <= SPIN) {
            while clock.now() < due {
                std::hint::spin_loop();
            }
            return Ok([true; 2]);
        }
        let mut end =
            due.map_or(now + IDLE, |due| Time::from_nanos(due.as_nanos() - SPIN.as_nanos() as u64));
        for port in &mut *ports {
            end = sooner(Some(end), port.handle_timeout(now, lines.as_ref())).unwrap_or(end);
        }
        end = sooner(Some(end), self.flush).unwrap_or(end);
        let waker = self.woken.as_fd();
        let [one, other] = ports.each_ref().map(|port| port.descriptor().unwrap_or(waker));
        let [one, other, woken] =
            wait_readable([one, other, waker], Some(end.since(now).min(IDLE)))?;
        if woken {
            let mut octets = [0; 64];
            // It is read to be empty.
            while (&self.woken).read(&mut octets).is_ok_and(|read| read == octets.len()) {}
        }
        Ok([one, other])
    }

    fn report(&mut self) -> Report {
        let Parts { emulator, ports, clock, start, log, name, ends, seed, .. } = &mut self.parts;
        let now = clock.now();
        let mut directions = emulator.report(now);
        for (from, direction) in directions.iter_mut().enumerate() {
            direction.from.clone_from(&ends[from]);
            direction.to.clone_from(&ends[1 - from]);
            direction.lost.extend(ports[from].lost());
            direction.lost.retain(|_, count| *count > 0);
        }
        Report {
            name: name.clone(),
            seconds: now.since(*start).as_secs_f64(),
            seed: *seed,
            log_lines_lost: log.as_ref().map_or(0, LogFiles::lost),
            directions,
        }
    }

    fn finish(&mut self) -> Outcome {
        let report = self.report();
        if let Some(log) = &mut self.parts.log {
            for way in Way::BOTH {
                log.push(way.index(), self.parts.emulator.take_log(way));
            }
            log.finish().map_err(|error| io::Error::new(error.kind(), format!("log: {error}")))?;
        }
        Ok(report)
    }
}
