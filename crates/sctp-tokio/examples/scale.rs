//! Measures how associations of one endpoint share processors: `scale [SIZE [SECONDS [REPETITIONS [BUFFER]]]]`.
//! BUFFER is the send buffer in bytes, otherwise the default. Messages go over UDP on loopback from one stack to another
//! of the same runtime, first over one association with one thread, then over two with two threads, in turn. Prints the
//! throughput of each, the medians, and their ratio.
//!
//! One thread runs both ends of its association, so that two associations have twice what one has. The kernel's work for
//! both ends is included. One association with two threads is measured too: its ends then run side by side.

#![allow(clippy::print_stdout)]

use ringway_sctp_tokio::{
    Association, Config, Connect, OpenError, Over, SendOptions, Settings, Stack,
};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

const PORT: u16 = 5060;

/// The reason why a measurement failed.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Maximum number of messages read by one call.
const AT_ONCE: usize = 64;

/// The measurements: associations and threads.
const CASES: [(usize, usize); 3] = [(1, 1), (1, 2), (2, 2)];

fn stack(last: u8, send_buffer: usize) -> Result<(Stack, IpAddr), OpenError> {
    let settings = Settings { max_burst: 0, send_buffer, ..Settings::default() };
    let local = IpAddr::from([127, 0, 0, last]);
    let over = Over::Udp { locals: vec![local], port: 0 };
    Ok((Stack::new(Config { settings, ..Config::new(over) })?, local))
}

async fn send(association: Association, size: usize, until: Instant) -> Result<u64, Failure> {
    let data = bytes::Bytes::from(vec![7; size]);
    let mut queue = VecDeque::new();
    while Instant::now() < until {
        queue.resize_with(64, || (SendOptions::default(), data.clone()));
        association.send_many(&mut queue).await?;
    }
    association.shutdown().await?;
    Ok(0)
}

async fn receive(association: Association) -> Result<u64, Failure> {
    let (mut buffer, mut taken, mut messages) = (Vec::new(), Vec::new(), 0);
    while association.recv_many_into(&mut buffer, &mut taken, AT_ONCE).await? > 0 {
        messages += taken.drain(..).filter(|received| received.end).count() as u64;
        buffer.clear();
    }
    Ok(messages)
}

/// Returns the throughput of so many associations with so many threads, in Gbit/s.
fn measure(
    (associations, threads): (usize, usize),
    size: usize,
    send_buffer: usize,
    time: Duration,
) -> Result<f64, Box<dyn std::error::Error>> {
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let work = async move {
        let (a, local) = stack(1, send_buffer)?;
        let (b, remote) = stack(2, send_buffer)?;
        let listener = b.listen(&[remote], PORT, None)?;
        let encapsulation = b.udp_port().unwrap_or_default();
        let connect = Connect { encapsulation, ..Connect::new(&[local], &[remote], PORT) };
        let mut pairs = Vec::new();
        for _ in 0..associations {
            let (ours, theirs) = tokio::join!(a.connect(&connect), listener.accept());
            pairs.push((ours?, theirs?));
        }
        let began = Instant::now();
        let mut tasks = Vec::new();
        for (ours, theirs) in pairs {
            tasks.push(tokio::spawn(send(ours, size, began + time)));
            tasks.push(tokio::spawn(receive(theirs)));
        }
        let mut messages = 0;
        for task in tasks {
            messages += task.await??;
        }
        let took = began.elapsed().as_secs_f64();
        Ok::<_, Failure>(messages as f64 * size as f64 * 8e-9 / took)
    };
    // In a task: the thread that waits for it is none of those counted.
    Ok(runtime.block_on(runtime.spawn(work))?.map_err(|error| error.to_string())?)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<usize> = std::env::args().skip(1).flat_map(|a| a.parse()).collect();
    let number = |at: usize, other| arguments.get(at).copied().unwrap_or(other);
    let (size, seconds, repetitions) = (number(0, 1024), number(1, 2), number(2, 5).max(1));
    let buffer = number(3, Settings::default().send_buffer);
    let mut results: [Vec<f64>; CASES.len()] = Default::default();
    for _ in 0..repetitions {
        for (case, results) in CASES.into_iter().zip(&mut results) {
            results.push(measure(case, size, buffer, Duration::from_secs(seconds as u64))?);
        }
    }
    let mut medians = Vec::new();
    for ((associations, threads), results) in CASES.into_iter().zip(&mut results) {
        let all: Vec<String> = results.iter().map(|value| format!("{value:.2}")).collect();
        let median = median(results);
        medians.push(median);
        println!(
            "{associations} associations, {threads} threads: median {median:.3} Gbit/s of {}",
            all.join(" ")
        );
    }
    println!("ratio {:.2}", medians[2] / medians[0]);
    Ok(())
}
