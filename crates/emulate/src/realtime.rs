//! The loop that runs lanes in real time: in a thread for each, or in one for both where the process has one processor.
//!
//! A thread sleeps until shortly before the next packet is to be sent, and looks at the clock for the rest: the system wakes
//! a thread some tens of microseconds after the time that it asks for.

use crate::direction::Prepared;
use crate::lane::{Lane, LaneReport};
use crate::report::{InterfaceReport, InterfaceState, Report};
use crate::ways::{Changes, Way};
use ringway_link::ConfigError;
use ringway_os::{Clock, use_exact_timers, use_real_time_priority, wait_readable};
use ringway_sansio::time::sooner;
use ringway_sansio::{Duration, Time};
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::thread::available_parallelism;
use tokio::sync::{Mutex, oneshot};

/// Time before a packet is to be sent from which on the clock is looked at.
const SPIN: Duration = Duration::from_micros(80);
/// Longest sleep.
const IDLE: Duration = Duration::from_secs(1);

/// A function that lines for the operator go to.
pub(crate) type Lines = Arc<dyn Fn(&str) + Send + Sync>;

/// Changes that were found valid, each with its direction.
type AllPrepared = Vec<(Way, Prepared)>;

/// What a thread is asked for, and where the answer goes. Nobody may be there for it any more.
enum Request {
    /// The state.
    Report(oneshot::Sender<Vec<LaneReport>>),
    /// Whether changes would be valid.
    Prepare(Arc<Changes>, oneshot::Sender<Result<AllPrepared, ConfigError>>),
    /// Changes that are.
    Set(AllPrepared, oneshot::Sender<()>),
    /// A look at the interfaces, which have these states.
    Look([InterfaceState; 2]),
    /// The end.
    Stop,
}

/// A thread, for those that ask it.
struct Thread {
    requests: Sender<Request>,
    /// Wakes the thread.
    waker: UnixStream,
}

impl Thread {
    /// Passes a request on.
    fn send(&self, request: Request) {
        // The thread may have ended. A full pipe has woken it already.
        let _ = self.requests.send(request);
        let _ = (&self.waker).write(&[0]);
    }
}

/// What a report has besides the directions.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) ends: [String; 2],
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    pub(crate) start: Time,
    /// Empty between TUN devices.
    pub(crate) interfaces: std::sync::Mutex<Vec<InterfaceReport>>,
}

impl About {
    /// Puts the state together. Returns `None` if a direction is missing.
    fn report(&self, mut lanes: Vec<LaneReport>) -> Option<Report> {
        lanes.sort_by_key(|lane| lane.way.index());
        let log_lines_lost = lanes.iter().map(|lane| lane.log_lines_lost).sum();
        let directions = lanes.into_iter().map(|lane| {
            let (mut direction, from) = (lane.direction, lane.way.index());
            direction.from.clone_from(&self.ends[from]);
            direction.to.clone_from(&self.ends[1 - from]);
            direction
        });
        Some(Report {
            name: self.name.clone(),
            seconds: self.clock.now().since(self.start).as_secs_f64(),
            seed: self.seed,
            log_lines_lost,
            interfaces: self.interfaces.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            directions: directions.collect::<Vec<_>>().try_into().ok()?,
        })
    }
}

/// The threads, for those that ask them.
#[derive(Clone)]
pub(crate) struct Asker {
    threads: Arc<[Thread]>,
    about: Arc<About>,
    /// Held from the check of a change until it is made.
    changing: Arc<Mutex<()>>,
}

impl Asker {
    /// Passes a request on to each thread.
    fn ask<T>(&self, request: impl Fn(oneshot::Sender<T>) -> Request) -> Vec<oneshot::Receiver<T>> {
        let ask = |thread: &Thread| {
            let (answer, answered) = oneshot::channel();
            thread.send(request(answer));
            answered
        };
        self.threads.iter().map(ask).collect()
    }

    /// Returns the state, or `None` when a thread has ended.
    pub(crate) async fn report(&self) -> Option<Report> {
        let mut lanes = Vec::new();
        for answered in self.ask(Request::Report) {
            lanes.extend(answered.await.ok()?);
        }
        self.about.report(lanes)
    }

    /// Changes parameters in all directions, or in none if a result would not be valid. Returns `None` when a thread has
    /// ended.
    pub(crate) async fn set(&self, changes: Changes) -> Option<Result<(), ConfigError>> {
        let _alone = self.changing.lock().await;
        let changes = Arc::new(changes);
        let mut prepared = Vec::new();
        for answered in self.ask(|answer| Request::Prepare(changes.clone(), answer)) {
            match answered.await.ok()? {
                Ok(changes) => prepared.push(changes),
                Err(error) => return Some(Err(error)),
            }
        }
        // Nothing is waited for until all are asked: who has asked for the change may be gone at any `await`.
        let mut all = Vec::new();
        for (thread, changes) in self.threads.iter().zip(prepared) {
            let (answer, answered) = oneshot::channel();
            thread.send(Request::Set(changes, answer));
            all.push(answered);
        }
        for answered in all {
            answered.await.ok()?;
        }
        Some(Ok(()))
    }

    /// Reports that the states of the interfaces have changed.
    pub(crate) fn look(&self, states: &[InterfaceReport; 2]) {
        *self.about.interfaces.lock().unwrap_or_else(PoisonError::into_inner) = states.to_vec();
        let states = states.each_ref().map(|interface| interface.state);
        self.threads.iter().for_each(|thread| thread.send(Request::Look(states)));
    }

    /// Ends all threads.
    pub(crate) fn stop(&self) {
        self.threads.iter().for_each(|thread| thread.send(Request::Stop));
    }
}

/// Why a thread has ended, and the last state.
type Outcome = io::Result<Vec<LaneReport>>;

/// The ends of the threads.
pub(crate) struct Outcomes(Vec<oneshot::Receiver<Outcome>>);

impl Outcomes {
    /// Waits until one more thread has ended. May be cancelled.
    ///
    /// # Errors
    /// That which it has ended with.
    pub(crate) async fn next(&mut self) -> Outcome {
        let (index, outcome) = poll_fn(|context| {
            let mut all = self.0.iter_mut().enumerate();
            let ended = all.find_map(|(i, ended)| match Pin::new(ended).poll(context) {
                Poll::Ready(outcome) => Some((i, outcome)),
                Poll::Pending => None,
            });
            ended.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        drop(self.0.swap_remove(index));
        outcome.unwrap_or_else(|_| Err(io::Error::other("a thread of the emulation has ended")))
    }

    /// Ends all threads that have not ended. `first` has, if it is there. Returns the last state.
    ///
    /// # Errors
    /// The first that a thread has ended with.
    pub(crate) async fn finish(
        mut self,
        asker: &Asker,
        first: Option<Outcome>,
    ) -> io::Result<Report> {
        asker.stop();
        let mut outcomes: Vec<Outcome> = first.into_iter().collect();
        while !self.0.is_empty() {
            outcomes.push(self.next().await);
        }
        let lanes = outcomes.into_iter().collect::<io::Result<Vec<_>>>()?;
        let report = asker.about.report(lanes.into_iter().flatten().collect());
        report.ok_or_else(|| io::Error::other("a direction of the emulation is missing"))
    }
}

/// Returns the number of threads for both directions: one for each, unless the process has one processor.
pub(crate) fn threads() -> usize {
    available_parallelism().map_or(1, NonZero::get).min(Way::BOTH.len())
}

/// Starts at most `max` threads.
///
/// # Errors
/// The error of starting a thread.
pub(crate) fn start(
    mut lanes: Vec<Lane>,
    max: usize,
    about: About,
    lines: &Lines,
) -> io::Result<(Asker, Outcomes)> {
    let share = lanes.len().div_ceil(max);
    let (mut threads, mut outcomes) = (Vec::new(), Vec::new());
    while !lanes.is_empty() {
        let (requests, requested) = channel();
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let (ended, outcome) = oneshot::channel();
        let lanes = lanes.drain(..share.min(lanes.len())).collect();
        let lines = lines.clone();
        let mut run = Run { lanes, clock: about.clock, lines, requested, woken };
        std::thread::Builder::new().name("emulate".into()).spawn(move || {
            // Whoever has started it may be gone.
            let _ = ended.send(run.run());
        })?;
        threads.push(Thread { requests, waker });
        outcomes.push(outcome);
    }
    let (threads, about) = (threads.into(), Arc::new(about));
    Ok((Asker { threads, about, changing: Arc::default() }, Outcomes(outcomes)))
}

/// The state of a thread.
struct Run {
    /// One or two.
    lanes: Vec<Lane>,
    clock: Clock,
    lines: Lines,
    requested: Receiver<Request>,
    woken: UnixStream,
}

impl Run {
    fn run(&mut self) -> Outcome {
        // Both make it more exact; without them it works too.
        let _ = use_exact_timers();
        let _ = use_real_time_priority();
        let mut readable = [true; 2];
        loop {
            let mut more = false;
            for (lane, readable) in self.lanes.iter_mut().zip(readable) {
                more |= lane.turn(&self.clock, readable, self.lines.as_ref());
            }
            if !self.handle_requests() {
                return self.finish();
            }
            readable = if more { [true; 2] } else { self.wait()? };
        }
    }

    /// Answers requests. Returns whether to go on.
    fn handle_requests(&mut self) -> bool {
        loop {
            // Whoever has asked may be gone.
            match self.requested.try_recv() {
                Ok(Request::Report(answer)) => _ = answer.send(self.report()),
                Ok(Request::Prepare(changes, answer)) => _ = answer.send(self.prepare(&changes)),
                Ok(Request::Set(changes, answer)) => {
                    self.set(changes);
                    let _ = answer.send(());
                }
                Ok(Request::Look(states)) => {
                    let lines = self.lines.as_ref();
                    self.lanes.iter_mut().for_each(|lane| lane.look(states, lines));
                }
                Err(TryRecvError::Empty) => return true,
                Ok(Request::Stop) | Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn report(&mut self) -> Vec<LaneReport> {
        let now = self.clock.now();
        self.lanes.iter_mut().map(|lane| lane.report(now)).collect()
    }

    fn prepare(&mut self, changes: &Changes) -> Result<AllPrepared, ConfigError> {
        let prepare = |lane: &mut Lane| {
            let way = lane.way();
            Ok((way, lane.direction().prepare(&changes.0[way.index()])?))
        };
        self.lanes.iter_mut().map(prepare).collect()
    }

    fn set(&mut self, changes: AllPrepared) {
        for (way, prepared) in changes {
            if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.way() == way) {
                lane.direction().set(self.clock.now(), prepared);
            }
        }
    }

    /// Waits until there is something to do. Returns which lanes may have packets.
    fn wait(&mut self) -> io::Result<[bool; 2]> {
        let now = self.clock.now();
        let due = self.lanes.iter().filter_map(Lane::poll_timeout).min();
        if let Some(due) = due.filter(|due| due.since(now) <= SPIN) {
            while self.clock.now() < due {
                std::hint::spin_loop();
            }
            return Ok([true; 2]);
        }
        let mut end =
            due.map_or(now + IDLE, |due| Time::from_nanos(due.as_nanos() - SPIN.as_nanos() as u64));
        for lane in &self.lanes {
            end = sooner(Some(end), lane.flush()).unwrap_or(end);
        }
        let waker = self.woken.as_fd();
        let descriptor = |i: usize| self.lanes.get(i).and_then(Lane::descriptor).unwrap_or(waker);
        let [one, other, woken] =
            wait_readable([descriptor(0), descriptor(1), waker], Some(end.since(now).min(IDLE)))?;
        if woken {
            let mut octets = [0; 64];
            // It is read to be empty.
            while (&self.woken).read(&mut octets).is_ok_and(|read| read == octets.len()) {}
        }
        Ok([one, other])
    }

    fn finish(&mut self) -> Outcome {
        let report = self.report();
        for lane in &mut self.lanes {
            lane.finish()?;
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{self, Port};
    use crate::ways::LinkSettings;
    use ringway_link::{Change, LinkConfig, Rate, Span, Streams};

    fn delay(ms: u64) -> LinkConfig {
        LinkConfig { delay: Span::from_millis(ms), ..LinkConfig::default() }
    }

    /// Starts both directions between interfaces that do not exist.
    fn start_missing(max: usize) -> (Asker, Outcomes) {
        let (clock, names) = (Clock::new(), ["a-b", "b-a"].map(str::to_owned));
        let lines: Lines = Arc::new(|_: &str| {});
        let settings = LinkSettings { configs: [delay(10), delay(10)], names: names.clone() };
        let directions = settings.directions(&Streams::new(1, 0), clock.now()).unwrap();
        let lane = |(way, direction)| {
            let Port { source, sink } = ports::interface("rw-missing").unwrap();
            Lane::new(way, direction, source, sink, None)
        };
        let lanes = Way::BOTH.into_iter().zip(directions).map(lane).collect();
        let interfaces = std::sync::Mutex::default();
        let (name, start_time) = ("x".to_owned(), clock.now());
        let about = About { name, ends: names, seed: 1, clock, start: start_time, interfaces };
        start(lanes, max, about, &lines).unwrap()
    }

    #[test]
    fn parameters_change_in_both_directions_or_in_none() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for max in [1, 2] {
            let (asker, outcomes) = start_missing(max);
            assert_eq!(asker.threads.len(), max);
            let set = |there, back| runtime.block_on(asker.set(Changes([there, back]))).unwrap();
            let parameters = || {
                let report = runtime.block_on(asker.report()).unwrap();
                report.directions.map(|direction| direction.parameters)
            };
            let faster = Change { delay: Some(Span::from_millis(2)), ..Change::default() };
            let wrong = Change { rate: Some(Rate(0)), ..Change::default() };
            for refused in [
                set(faster.clone(), wrong.clone()),
                set(wrong.clone(), faster.clone()),
                set(wrong.clone(), wrong),
            ] {
                let error = refused.unwrap_err().to_string();
                assert!(error.contains("rate"), "{error}");
                assert_eq!(parameters(), [delay(10), delay(10)]);
            }
            set(faster.clone(), Change::default()).unwrap();
            assert_eq!(parameters(), [delay(2), delay(10)]);
            set(faster.clone(), faster).unwrap();
            let report = runtime.block_on(outcomes.finish(&asker, None)).unwrap();
            let [there, back] = report.directions;
            assert_eq!((there.parameters, back.parameters), (delay(2), delay(2)));
            assert_eq!((there.from.as_str(), there.to.as_str()), ("a-b", "b-a"));
            assert!(runtime.block_on(asker.report()).is_none(), "it has ended");
        }
    }
}
