//! Sends each datagram back, and measures the cost.
//!
//! ```text
//! echo                     measure for five seconds over loopback
//! echo measure SECONDS BYTES
//! echo serve ADDRESS       only serve, for a generator on another machine
//! ```
//!
//! The cost is the processor time of the worker's thread, which receives and sends; the generators run on
//! other threads. The kernel's work for a sender on loopback, including delivery to the receiver's
//! socket, counts as the sender's.
#![allow(clippy::print_stdout)]

use ringway_net::{Config, Handler, bind};
use ringway_sansio::{Backlog, CloseReason, Flow, Outbox, Program, Target, Time, Transport};
use std::error::Error;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Maximum number of datagrams in flight for each generator.
const WINDOW: usize = 128;

/// Number of generators.
const GENERATORS: usize = 2;

/// Processor time of a thread: the total in nanoseconds, and user and system time in clock ticks.
#[derive(Clone, Copy, Debug)]
struct Used {
    nanos: u64,
    user: u64,
    system: u64,
}

/// Returns the processor time of the calling thread.
fn used() -> Option<Used> {
    let stat = fs::read_to_string("/proc/thread-self/stat").ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let mut field = || fields.next()?.parse().ok();
    let (user, system) = (field()?, field()?);
    let schedule = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = schedule.split_whitespace().next()?.parse().ok()?;
    Some(Used { nanos, user, system })
}

/// Counts each datagram, and sends it back.
#[derive(Default)]
struct Echo {
    datagrams: u64,
    batches: u64,
}

/// A query to the worker for its counts and its processor time.
type Question = Sender<(u64, u64, Option<Used>)>;

impl Program for Echo {
    fn message(&mut self, _: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        self.datagrams += 1;
        out.push(Target::Flow(*flow), 0, |buffer| buffer.extend_from_slice(bytes));
    }

    fn closed(&mut self, _: Time, _: &Flow, _: CloseReason, _: &mut Outbox) {}

    fn not_sent(&mut self, _: Time, _: u64, _: &mut Outbox) {}

    fn timeout(&mut self, _: Time, _: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn backlog(&mut self, _: Time, _: Backlog) -> u32 {
        self.batches += 1;
        0
    }
}

impl Handler for Echo {
    type Post = Question;

    fn posted(&mut self, _: Time, question: Question, _: &mut Outbox) {
        // The thread that asked may have ended.
        let _ = question.send((self.datagrams, self.batches, used()));
    }
}

fn generate(to: SocketAddr, bytes: usize, stop: &AtomicBool) -> std::io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    let datagram = vec![b'x'; bytes];
    let mut buffer = vec![0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..WINDOW {
            socket.send(&datagram)?;
        }
        for _ in 0..WINDOW {
            if socket.recv(&mut buffer).is_err() {
                break;
            }
        }
    }
    Ok(())
}

fn measure(seconds: u64, bytes: usize) -> Result<(), Box<dyn Error>> {
    let mut endpoints = bind(Config::new(vec![(Transport::Udp, "127.0.0.1:0".parse()?)]))?;
    let endpoint = endpoints.remove(0);
    let control = endpoint.control();
    let to = control.listeners()[0].addr;
    let worker = std::thread::spawn(move || endpoint.run(Echo::default()));
    let stop = Arc::new(AtomicBool::new(false));
    let generators: Vec<_> = (0..GENERATORS)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || generate(to, bytes, &stop))
        })
        .collect();
    let ask = || -> Result<_, Box<dyn Error>> {
        let (sender, receiver) = channel();
        if !control.mailboxes()[0].try_post(sender) {
            return Err("the worker does not listen".into());
        }
        let (datagrams, batches, used) = receiver.recv_timeout(Duration::from_secs(5))?;
        Ok((datagrams, batches, used.ok_or("no thread times in /proc")?))
    };
    std::thread::sleep(Duration::from_millis(500));
    let (begun, (datagrams, batches, first)) = (Instant::now(), ask()?);
    std::thread::sleep(Duration::from_secs(seconds));
    let (elapsed, (more, more_batches, last)) = (begun.elapsed(), ask()?);
    stop.store(true, Ordering::Relaxed);
    for generator in generators {
        generator.join().map_err(|_| "a generator failed")??;
    }
    control.stop(Duration::from_secs(1));
    worker.join().map_err(|_| "the worker failed")??;
    let count = (more - datagrams) as f64;
    let micros = (last.nanos - first.nanos) as f64 / 1_000.0;
    let (user, system) = (last.user - first.user, last.system - first.system);
    let share = user as f64 / (user + system).max(1) as f64;
    println!("{count:.0} datagrams of {bytes} bytes received and sent back in {elapsed:.1?}");
    println!("{:.1} a receive call", count / (more_batches - batches).max(1) as f64);
    println!("{:.2} us of CPU a datagram in and out", micros / count);
    println!("{:.2} us of that outside the kernel", micros / count * share);
    Ok(())
}

fn serve(addr: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut endpoints = bind(Config::new(vec![(Transport::Udp, addr)]))?;
    endpoints.remove(0).run(Echo::default())?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => measure(5, 500),
        ["measure", seconds, bytes] => measure(seconds.parse()?, bytes.parse()?),
        ["serve", addr] => serve(addr.parse()?),
        _ => Err("usage: echo [measure SECONDS BYTES | serve ADDRESS]".into()),
    }
}
