//! One direction between its two ends: what comes at one is handed to the machine, and what the machine sends leaves at the
//! other. Nothing of it is shared with the direction back.

use crate::direction::{Direction, Transmit};
use crate::log::LogFile;
use crate::ports::{Clocks, Sink, Source, Turn};
use crate::report::{DirectionReport, InterfaceState};
use crate::ways::Way;
use ringway_os::{Clock, FRAME_BATCH};
use ringway_sansio::{Duration, Time};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest time that lines of the log wait.
const LOG_PERIOD: Duration = Duration::from_millis(50);

/// A direction, its ends and its log.
pub(crate) struct Lane {
    way: Way,
    direction: Direction,
    source: Source,
    sink: Sink,
    log: Option<LogFile>,
    /// Packets that are to be sent now.
    ready: Vec<Transmit>,
    /// When the log is handed over.
    flush: Option<Time>,
}

/// The state of a lane.
#[derive(Debug)]
pub(crate) struct LaneReport {
    pub(crate) way: Way,
    /// Without the names of the interfaces.
    pub(crate) direction: DirectionReport,
    pub(crate) log_lines_lost: u64,
}

impl Lane {
    /// Creates a lane. A direction with a log has a file for it.
    pub(crate) fn new(
        way: Way,
        mut direction: Direction,
        source: Source,
        sink: Sink,
        log: Option<LogFile>,
    ) -> Lane {
        if log.is_some() {
            direction.start_log();
        }
        Lane { way, direction, source, sink, log, ready: Vec::new(), flush: None }
    }

    /// Returns which direction it is.
    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Returns the machine.
    pub(crate) fn direction(&mut self) -> &mut Direction {
        &mut self.direction
    }

    /// Receives if there may be packets, and sends what is due. Returns whether more may be waiting.
    pub(crate) fn turn(&mut self, clock: &Clock, readable: bool, lines: &dyn Fn(&str)) -> bool {
        let turn = if readable {
            self.receive(clock, lines)
        } else {
            Turn { known: clock.now(), more: false }
        };
        self.transmit(clock, turn.known);
        self.hand_over_log(clock);
        turn.more
    }

    fn receive(&mut self, clock: &Clock, lines: &dyn Fn(&str)) -> Turn {
        let (clocks, direction) = (read_clocks(clock), &mut self.direction);
        self.source.receive(clocks, lines, |time, arrival| direction.handle_packet(time, arrival))
    }

    /// Sends what is to be sent until `now`.
    fn transmit(&mut self, clock: &Clock, now: Time) {
        let Lane { direction, sink, ready, .. } = self;
        loop {
            while ready.len() < FRAME_BATCH {
                let Some(packet) = direction.poll_transmit(now) else { break };
                ready.push(packet);
            }
            if ready.is_empty() {
                return;
            }
            let mut refused = [None; FRAME_BATCH];
            sink.send(ready, |i, reason| refused[i] = Some(reason));
            let sent = clock.now();
            for (packet, refused) in ready.drain(..).zip(refused) {
                match refused {
                    None => direction.sent(sent, packet),
                    Some(reason) => direction.refused(packet, reason),
                }
            }
        }
    }

    fn hand_over_log(&mut self, clock: &Clock) {
        let Some(log) = &mut self.log else { return };
        let now = clock.now();
        if self.flush.is_none_or(|flush| now >= flush) {
            self.flush = Some(now + LOG_PERIOD);
            log.push(self.direction.take_log());
        }
    }

    /// Looks at the interfaces, whose states have changed.
    pub(crate) fn look(&mut self, states: [InterfaceState; 2], lines: &dyn Fn(&str)) {
        self.source.look(lines);
        self.sink.look(states[1 - self.way.index()]);
    }

    /// Returns when lines of the log are handed over.
    pub(crate) fn flush(&self) -> Option<Time> {
        self.flush
    }

    /// Returns when the next packet is to be sent.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.direction.poll_timeout()
    }

    /// Returns what may be waited for.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.source.descriptor()
    }

    /// Returns the state at `now`.
    pub(crate) fn report(&mut self, now: Time) -> LaneReport {
        let mut direction = self.direction.report(now);
        direction.lost.extend(self.source.lost());
        direction.lost.retain(|_, count| *count > 0);
        let log_lines_lost = self.log.as_ref().map_or(0, LogFile::lost);
        LaneReport { way: self.way, direction, log_lines_lost }
    }

    /// Writes the rest of the log.
    ///
    /// # Errors
    /// That of writing it.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        log.push(self.direction.take_log());
        log.finish().map_err(|error| io::Error::new(error.kind(), format!("log: {error}")))
    }
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
