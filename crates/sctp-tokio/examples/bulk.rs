//! Sends messages from one SCTP stack to another over UDP on loopback, each on its own thread:
//! `bulk SIZE SECONDS [MTU [MAX_BURST]]`. Prints the throughput and the sizes of batches. Or opens
//! idle associations, `bulk idle COUNT`, and prints the memory that each end takes.

use ringway_sctp_tokio::{Config, Connect, OpenError, Over, SendOptions, Settings, Stack};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

const PORT: u16 = 5060;

/// The reason why a measurement failed.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Maximum number of messages read by one call.
const AT_ONCE: usize = 1024;

fn runtime() -> Runtime {
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime: {error}"),
    }
}

fn stack(last: u8, settings: Settings) -> Result<(Stack, IpAddr), OpenError> {
    let local = IpAddr::from([127, 0, 0, last]);
    let over = Over::Udp { locals: vec![local], port: 0 };
    Ok((Stack::new(Config { settings, ..Config::new(over) })?, local))
}

/// Returns the resident memory in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap_or(0) * 1024
}

/// Opens associations between two stacks of this process, and keeps all.
#[allow(clippy::print_stdout)]
fn idle(count: usize) -> Result<(), Failure> {
    runtime().block_on(async {
        let (a, local) = stack(1, Settings::default())?;
        let (b, remote) = stack(2, Settings::default())?;
        let listeners: Vec<_> = (0..=count / 60_000)
            .map(|n| b.listen(&[remote], PORT + n as u16, None))
            .collect::<Result<_, _>>()?;
        let encapsulation = b.udp_port().unwrap_or_default();
        let mut held = Vec::with_capacity(2 * count);
        let (before, began) = (memory(), Instant::now());
        for number in 0..count {
            // There are more associations than local ports, so they lead to several ports of the peer.
            let to = Connect::new(&[local], &[remote], PORT + (number / 60_000) as u16);
            let to = Connect { encapsulation, local_port: 1024 + (number % 60_000) as u16, ..to };
            let (ours, theirs) = tokio::join!(a.connect(&to), listeners[number / 60_000].accept());
            held.push((ours?, theirs?));
        }
        let each = (memory() - before) / (2 * count);
        println!("{count} associations in {:?}, {each} bytes each end", began.elapsed());
        Ok(())
    })
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    if words.next().is_some_and(|word| word == "idle") {
        return idle(words.next().and_then(|count| count.parse().ok()).unwrap_or(10_000));
    }
    let arguments: Vec<usize> = std::env::args().skip(1).flat_map(|a| a.parse()).collect();
    let number = |at: usize, other| arguments.get(at).copied().unwrap_or(other);
    let (size, seconds) = (number(0, 1024), number(1, 3));
    let mtu = u16::try_from(number(2, 1500))?;
    let settings = Settings { mtu, max_burst: number(3, 0) as u32, ..Settings::default() };
    let (tell, told) = mpsc::channel();
    let server = std::thread::spawn(move || {
        runtime().block_on(async {
            let (stack, local) = stack(2, settings)?;
            let listener = stack.listen(&[local], PORT, None)?;
            let _ = tell.send(stack.udp_port());
            let association = listener.accept().await?;
            let (mut buffer, mut taken, mut messages) = (Vec::new(), Vec::new(), 0u64);
            while association.recv_many_into(&mut buffer, &mut taken, AT_ONCE).await? > 0 {
                messages += taken.drain(..).filter(|received| received.end).count() as u64;
                buffer.clear();
            }
            Ok::<_, Failure>((messages, stack.traffic()))
        })
    });
    let encapsulation = told.recv()?.unwrap_or_default();
    let began = Instant::now();
    let (snapshot, sent) = runtime().block_on(async {
        let (stack, local) = stack(1, settings)?;
        let remote = [IpAddr::from([127, 0, 0, 2])];
        let connect = Connect { encapsulation, ..Connect::new(&[local], &remote, PORT) };
        let association = stack.connect(&connect).await?;
        let data = bytes::Bytes::from(vec![7; size]);
        let end = Instant::now() + Duration::from_secs(seconds as u64);
        let mut queue = VecDeque::new();
        while Instant::now() < end {
            queue.resize_with(64, || (SendOptions::default(), data.clone()));
            association.send_many(&mut queue).await?;
        }
        let snapshot = association.statistics()?;
        association.shutdown().await?;
        Ok::<_, Failure>((snapshot, stack.traffic()))
    })?;
    let (messages, received) = server.join().map_err(|_| "the server panicked")??;
    let took = began.elapsed().as_secs_f64();
    println!("{messages} messages, {:.3} Gbit/s", messages as f64 * size as f64 * 8e-9 / took);
    println!("{:?}\n{sent:?}\n{received:?}", snapshot.totals);
    Ok(())
}
