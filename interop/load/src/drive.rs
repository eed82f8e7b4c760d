//! The loop of one worker and the thread that watches over all of them.
//!
//! A worker never waits on a socket. It sleeps until the next message is due or a short tick has
//! passed, and then looks at all its ports. So a server's send never has to wake anybody on this
//! machine, as it would not have to if its peers were elsewhere; and since the kernel stamps
//! arrivals, delays do not suffer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::clock::{self, MICROSECOND, MILLISECOND, SECOND};
use crate::error::Error;
use crate::port::{Incoming, Listener, Local, Outgoing, Port, Stamp, Transport, Troubles};
use crate::report::{Durations, Generator, Server, ratio};
use crate::secure::Identity;
use crate::target::Target;
use crate::udp::Receiver;
use crate::watch::Use;

/// Messages begun before the ports are looked at again.
const MAX_LAUNCHES: usize = 64;
/// Time between the last worker being ready and the first message.
const LEAD: u64 = 20 * MILLISECOND;

/// What a worker plays: calls or registrations.
pub(crate) trait Play {
    /// Which port the `n`th message of this worker begins at.
    fn port(&self, n: u64) -> usize;
    /// Begins the `n`th.
    fn launch(&mut self, n: u64, due: u64, measured: bool, local: &Local, out: &mut Outgoing);
    /// Takes a message.
    fn message(&mut self, now: u64, incoming: &Incoming<'_>, local: &Local, out: &mut Outgoing);
    /// Learns when a stamped message went.
    fn sent(&mut self, stamp: Stamp, now: u64);
    /// Does what time asks for.
    fn tick(&mut self, now: u64, ports: &mut [Port]);
    /// When time next asks for something.
    fn next(&self) -> Option<u64>;
    /// How many are begun and not ended.
    fn active(&self) -> usize;
    /// How many ended well.
    fn completed(&self) -> u64;
}

/// Where a user is reached.
pub(crate) struct Home {
    /// What stands after the `@` of its contact.
    pub(crate) contact: Vec<u8>,
    /// Port its REGISTER is sent from.
    pub(crate) port: usize,
    /// Port number it is reached at.
    pub(crate) number: u16,
}

/// The ports of one worker.
pub(crate) struct Desk {
    pub(crate) ports: Vec<Port>,
    /// How many of the ports, from the first, belong to callers.
    pub(crate) callers: usize,
    pub(crate) homes: Vec<Home>,
    listener: Option<Listener>,
    identity: Option<Identity>,
    receiver: Receiver,
    tick: u64,
}

impl Desk {
    /// Opens the ports of one worker.
    pub(crate) fn open(target: &Target) -> Result<Self, Error> {
        let count = target.ports;
        let identity = target.identity()?;
        let connect =
            |index, server| Port::connect(index, server, target.transport, identity.as_ref());
        let callers = (0..count).map(|index| connect(index, target.server));
        let mut ports = callers.collect::<Result<Vec<_>, _>>()?;
        let mut homes = Vec::new();
        let mut listener = None;
        match target.transport {
            Transport::Udp => {
                for index in count..2 * count {
                    let port = connect(index, target.home.unwrap_or(target.server))?;
                    let (contact, number) = (port.local.sent_by.clone(), port.local.number);
                    homes.push(Home { contact, port: index, number });
                    ports.push(port);
                }
            }
            Transport::Tcp | Transport::Tls => {
                let listening = Listener::new(&ports[0])?;
                let address = listening.address();
                let contact = format!("{address}{}", target.transport.parameter()).into_bytes();
                for port in 0..count {
                    homes.push(Home { contact: contact.clone(), port, number: address.port() });
                }
                listener = Some(listening);
            }
        }
        let (receiver, tick) = (Receiver::new(), target.tick_us.max(1) * MICROSECOND);
        Ok(Self { ports, callers: count, homes, listener, identity, receiver, tick })
    }

    /// What went wrong at the ports.
    pub(crate) fn troubles(&self) -> Troubles {
        let mut sum = Troubles::default();
        for port in &self.ports {
            sum.add(port.troubles());
        }
        sum
    }

    fn accept(&mut self) -> Result<(), Error> {
        if let Some(stream) = self.listener.as_ref().and_then(Listener::accept) {
            self.ports.push(Port::accepted(self.ports.len(), stream, self.identity.as_ref())?);
        }
        Ok(())
    }
}

/// When messages begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Evenly spaced, whatever the server does (an open loop).
    Rate {
        /// When the first of all workers is due, monotonic nanoseconds.
        start: u64,
        /// Between two of this worker, nanoseconds.
        interval: f64,
        /// This worker's first after `start`, nanoseconds.
        offset: f64,
    },
    /// As many as fit the window (a closed loop).
    Window(usize),
}

/// A worker's task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) pace: Pace,
    /// How many to begin.
    pub(crate) total: u64,
    /// Window of measurement, monotonic nanoseconds.
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// What a worker tells about itself.
pub(crate) struct Effort {
    late: Durations,
    cpu: u64,
    completed: u64,
    span: u64,
}

/// Plays until everything begun has ended. `progress` always shows how many ended well.
pub(crate) fn play<P: Play>(
    desk: &mut Desk,
    play: &mut P,
    task: Task,
    progress: &AtomicU64,
) -> Result<Effort, Error> {
    let mut meter = Meter::new(task);
    let mut late = Durations::new();
    let mut begun = 0;
    loop {
        let now = clock::monotonic();
        meter.note(now, play.completed());
        let mut full = false;
        let mut next = None;
        for launched in 0.. {
            let due = match task.pace {
                _ if begun == task.total => break,
                Pace::Rate { start, interval, offset } => {
                    start + (begun as f64).mul_add(interval, offset) as u64
                }
                Pace::Window(size) if play.active() < size => now,
                Pace::Window(_) => break,
            };
            if due > now {
                next = Some(due);
                break;
            }
            if launched == MAX_LAUNCHES {
                full = true;
                break;
            }
            let measured = (task.from..task.until).contains(&due);
            if measured {
                late.record(now - due);
            }
            let port = &mut desk.ports[play.port(begun)];
            play.launch(begun, due, measured, &port.local, &mut port.out);
            begun += 1;
        }
        desk.accept()?;
        for port in &mut desk.ports {
            full |= port.receive(&mut desk.receiver, |incoming, local, out| {
                play.message(now, &incoming, local, out);
            })?;
        }
        play.tick(now, &mut desk.ports);
        for port in &mut desk.ports {
            port.flush(&mut |stamp, at| play.sent(stamp, at));
        }
        progress.store(play.completed(), Ordering::Relaxed);
        if begun == task.total && play.active() == 0 {
            break;
        }
        if !full {
            let now = clock::monotonic();
            let soon = now + desk.tick / 4;
            let wake = [next, play.next()].into_iter().flatten().fold(now + desk.tick, u64::min);
            clock::sleep_until(wake.max(soon));
        }
    }
    meter.note(clock::monotonic().max(task.until), play.completed());
    Ok(meter.effort(late))
}

/// Notes processor time and progress at both ends of the window.
struct Meter {
    task: Task,
    start: Option<(u64, u64, u64)>,
    end: Option<(u64, u64, u64)>,
}

impl Meter {
    fn new(task: Task) -> Self {
        Self { task, start: None, end: None }
    }

    fn note(&mut self, now: u64, completed: u64) {
        if self.start.is_none() && now >= self.task.from {
            self.start = Some((now, clock::thread_cpu(), completed));
        }
        if self.end.is_none() && now >= self.task.until {
            self.end = Some((now, clock::thread_cpu(), completed));
        }
    }

    fn effort(&self, late: Durations) -> Effort {
        let (from, cpu_from, done_from) = self.start.unwrap_or_default();
        let (until, cpu_until, done_until) = self.end.unwrap_or((from, cpu_from, done_from));
        Effort {
            late,
            cpu: cpu_until - cpu_from,
            completed: done_until - done_from,
            span: until - from,
        }
    }
}

/// A run at a fixed rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Messages begun each second, all workers together.
    pub(crate) rate: f64,
    /// Seconds before the window.
    pub(crate) warm_up: f64,
    /// Seconds of the window.
    pub(crate) seconds: f64,
}

impl Plan {
    /// The task of one of `workers`, when the first message is due at `start`.
    fn task(self, worker: usize, workers: usize, start: u64) -> Task {
        let step = SECOND as f64 / self.rate;
        let all = ((self.warm_up + self.seconds) * self.rate).round() as u64;
        let (worker, workers) = (worker as u64, workers as u64);
        let from = start + (self.warm_up * SECOND as f64) as u64;
        Task {
            pace: Pace::Rate {
                start,
                interval: step * workers as f64,
                offset: step * worker as f64,
            },
            total: (all + workers - 1 - worker.min(all + workers - 1)) / workers,
            from,
            until: from + (self.seconds * SECOND as f64) as u64,
        }
    }
}

/// All workers' results.
pub(crate) struct Outcome<P> {
    pub(crate) plays: Vec<P>,
    pub(crate) generator: Generator,
    pub(crate) server: Option<Server>,
    /// Completed each second of the window.
    pub(crate) completed_rate: f64,
}

/// Runs every worker in a thread of its own: `prepare` opens its ports and registers its users,
/// then all begin together, and `finish` cleans up.
pub(crate) fn run<P: Play + Send>(
    target: &Target,
    plan: Plan,
    prepare: impl Fn(usize) -> Result<(Desk, P), Error> + Sync,
    finish: impl Fn(&mut Desk, &mut P) + Sync,
) -> Result<Outcome<P>, Error> {
    let workers = target.workers;
    let progress: Vec<AtomicU64> = (0..workers).map(|_| AtomicU64::new(0)).collect();
    let (prepare, finish, progress) = (&prepare, &finish, &progress);
    thread::scope(|scope| {
        let (ready, readiness) = mpsc::channel::<()>();
        let mut starts = Vec::new();
        let mut threads = Vec::new();
        for (worker, progress) in progress.iter().enumerate() {
            let (start, started) = mpsc::channel::<u64>();
            starts.push(start);
            let ready = ready.clone();
            threads.push(scope.spawn(move || -> Result<_, Error> {
                clock::wake_exactly();
                let (mut desk, mut playing) = prepare(worker)?;
                // A failure here or there means that the other side is gone and will say why.
                let _ = ready.send(());
                let Ok(start) = started.recv() else { return Ok(None) };
                let task = plan.task(worker, workers, start);
                let effort = play(&mut desk, &mut playing, task, progress)?;
                let troubles = desk.troubles();
                finish(&mut desk, &mut playing);
                let buffer = desk.ports.first().map_or(0, Port::receive_buffer);
                Ok(Some((playing, effort, troubles, buffer)))
            }));
        }
        drop(ready);
        let mut window = None;
        if readiness.iter().take(workers).count() == workers {
            let start = clock::monotonic() + LEAD;
            for worker in &starts {
                let _ = worker.send(start);
            }
            window = Some(observe(target, plan, start, progress));
        }
        drop(starts);
        let mut results = Vec::new();
        for thread in threads {
            results.extend(thread.join().map_err(|_| Error::Worker)??);
        }
        let (server, completed_rate) = window.unwrap_or_default();
        Ok(summary(target, results, server, completed_rate))
    })
}

/// Reads the server's use and the workers' progress at both ends of the window.
fn observe(
    target: &Target,
    plan: Plan,
    start: u64,
    progress: &[AtomicU64],
) -> (Option<Server>, f64) {
    let done = || progress.iter().map(|p| p.load(Ordering::Relaxed)).sum::<u64>();
    let task = plan.task(0, 1, start);
    wait_until(task.from);
    let (first, begun) = (Use::of(&target.watch), done());
    wait_until(task.until);
    let (last, ended) = (Use::of(&target.watch), done());
    let span = last.at.saturating_sub(first.at);
    let completed = ended - begun;
    let server = (!target.watch.is_empty()).then(|| {
        let memory = Use::with_memory(&target.watch).memory;
        Server::between(&first, &Use { memory, ..last }, completed)
    });
    (server, ratio(completed as f64 * SECOND as f64, span as f64))
}

fn wait_until(deadline: u64) {
    thread::sleep(Duration::from_nanos(deadline.saturating_sub(clock::monotonic())));
}

fn summary<P>(
    target: &Target,
    results: Vec<(P, Effort, Troubles, usize)>,
    server: Option<Server>,
    completed_rate: f64,
) -> Outcome<P> {
    let mut late = Durations::new();
    let mut troubles = Troubles::default();
    let (mut cpu, mut completed, mut busiest, mut receive_buffer) = (0, 0, 0f64, 0);
    let mut plays = Vec::new();
    for (playing, effort, trouble, buffer) in results {
        late.add(&effort.late);
        troubles.add(trouble);
        cpu += effort.cpu;
        completed += effort.completed;
        busiest = busiest.max(ratio(effort.cpu as f64, effort.span as f64));
        receive_buffer = buffer;
        plays.push(playing);
    }
    let generator = Generator {
        workers: target.workers,
        ports: target.ports,
        receive_buffer,
        cpu_us_each: ratio(cpu as f64 / 1e3, completed as f64),
        cpu_share: busiest,
        headroom: (1.0 - busiest).max(0.0),
        schedule_late_us: late.spread(),
        troubles,
    };
    Outcome { plays, generator, server, completed_rate }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_share_the_rate_evenly() {
        let plan = Plan { rate: 1_000.0, warm_up: 0.5, seconds: 1.5 };
        for workers in [1, 2, 3] {
            let mut due = Vec::new();
            for worker in 0..workers {
                let task = plan.task(worker, workers, 7);
                let Pace::Rate { start, interval, offset } = task.pace else { panic!() };
                for n in 0..task.total {
                    due.push(start + (n as f64).mul_add(interval, offset) as u64);
                }
                assert_eq!((task.from, task.until), (7 + SECOND / 2, 7 + 2 * SECOND));
            }
            due.sort_unstable();
            assert_eq!(due.len(), 2_000, "{workers} workers");
            for (n, due) in due.iter().enumerate() {
                assert!(due.abs_diff(7 + n as u64 * MILLISECOND) <= 1, "{workers} workers");
            }
        }
    }
}
