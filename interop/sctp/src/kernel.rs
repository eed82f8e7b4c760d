//! Checks the kernel's SCTP against the guarantees of the API, on a machine that has it: associations over
//! loopback between two addresses on each side, first of Ringway's protocol in UDP, then of the kernel's, against
//! the same expectations; then one between the two. Returns an error where the kernel has no SCTP.

use crate::say;
use ringway_sctp_tokio::{
    Association, Close, Config, Connect, EndedError, Event, Over, SendOptions, Settings, Stack,
    UDP_PORT,
};
use std::net::IpAddr;
use std::time::Duration;

const PORT: u16 = 5060;

/// The kernel's setting of the UDP port at which it receives SCTP too (Linux 5.11 and later).
const UDP_PORT_OF_KERNEL: &str = "/proc/sys/net/sctp/udp_port";

/// Number of messages of the longest exchange, small enough for an emulated machine.
const COUNT: u32 = 800;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn on(stream: u16) -> SendOptions {
    SendOptions { stream, ppid: 7, ..SendOptions::default() }
}

/// Opens an association between two stacks, or of one with itself.
async fn pair(a: &Stack, b: &Stack) -> Outcome<[Association; 2]> {
    let listener = b.listen(&[ip(2), ip(4)], PORT, None)?;
    let encapsulation = b.udp_port().unwrap_or(UDP_PORT);
    let connect = Connect { encapsulation, ..Connect::new(&[ip(1), ip(3)], &[ip(2), ip(4)], PORT) };
    let (ours, theirs) = tokio::join!(a.connect(&connect), listener.accept());
    Ok([ours?, theirs?])
}

fn expect(what: &str, right: bool) -> Outcome {
    if right { Ok(()) } else { Err(format!("wrong: {what}").into()) }
}

/// Aborts an association; the peer receives `expected_reason` as the reason.
async fn aborted([ours, theirs]: [Association; 2], expected_reason: &str) -> Outcome {
    ours.abort(b"enough")?;
    match theirs.recv().await {
        Err(EndedError::Closed(Close::Aborted { code: 12, reason })) => {
            expect("the reason", reason == expected_reason)
        }
        other => Err(format!("no abort: {other:?}").into()),
    }
}

async fn check(a: &Stack, b: &Stack, expected_reason: &str) -> Outcome {
    let [ours, theirs] = pair(a, b).await?;
    ours.send("hello", &SendOptions { unordered: true, ..on(3) }).await?;
    let got = theirs.recv().await?.ok_or("no message")?;
    expect("message", got.bytes == "hello" && got.is_whole())?;
    expect("options", (got.stream, got.ppid, got.unordered) == (3, 7, true))?;
    expect("port", theirs.ports()?.0 == PORT)?;
    let paths = ours.paths()?;
    expect("paths", paths.len() == 2 && paths.iter().any(|p| p.primary && p.remote == ip(2)))?;
    // Events and messages are received by different tasks.
    let watching = tokio::spawn({
        let theirs = theirs.clone();
        async move {
            let mut events = Vec::new();
            while let Some(event) = theirs.event().await {
                events.push(event);
            }
            events
        }
    });
    let reading = tokio::spawn({
        let theirs = theirs.clone();
        async move {
            let (mut count, mut next, mut bytes) = (0u32, [0u32; 8], Vec::new());
            while let Some(got) = theirs.recv_into(&mut bytes).await? {
                if got.end {
                    let number = u32::from(bytes[0]) | u32::from(bytes[1]) << 8;
                    let expected = &mut next[usize::from(got.stream)];
                    let right = number == *expected && bytes.len() == 2 + 50 * number as usize;
                    *expected += 1;
                    count += u32::from(right);
                    bytes.clear();
                }
            }
            Ok::<_, EndedError>(count)
        }
    });
    for number in 0..COUNT {
        let mut bytes = vec![number as u8; 2 + 50 * (number / 8) as usize];
        (bytes[0], bytes[1]) = ((number / 8) as u8, (number / 2048) as u8);
        ours.send(bytes, &on((number % 8) as u16)).await?;
    }
    let totals = ours.statistics()?.totals;
    expect(&format!("{totals:?}"), totals.chunks_sent >= 100 && totals.packets_sent > 0)?;
    expect("packets received", theirs.statistics()?.totals.packets_received > 0)?;
    ours.set_primary(ip(4))?;
    ours.request_heartbeat(ip(2))?;
    ours.shutdown().await?;
    let count = reading.await??;
    expect(&format!("{count} of {COUNT} messages in order"), count == COUNT)?;
    let events = watching.await?;
    expect(&format!("{events:?}"), events.last() == Some(&Event::Closed(Close::Finished)))?;
    let late = ours.send("late", &on(0)).await;
    expect("sending after the end", late.is_err())?;
    // A large message, and an abort with its reason.
    let [ours, theirs] = pair(a, b).await?;
    let (large, options) = (vec![5; 100_000], on(0));
    let (sent, got) = tokio::join!(ours.send(large.clone(), &options), async {
        let mut bytes = Vec::new();
        while bytes.len() < large.len() && theirs.recv_into(&mut bytes).await?.is_some() {}
        Ok::<_, EndedError>(bytes)
    });
    sent?;
    expect("a large message", got? == large)?;
    aborted([ours, theirs], expected_reason).await?;
    // The drop of the last handle shuts the association down.
    let [ours, theirs] = pair(a, b).await?;
    ours.send("last", &on(0)).await?;
    drop(ours);
    expect("the last", theirs.recv().await?.is_some_and(|m| m.bytes == "last"))?;
    expect("the end", theirs.recv().await?.is_none())
}

async fn compare() -> Outcome {
    let settings = Settings { send_buffer: 300_000, ..Settings::default() };
    let udp = |last: [u8; 2]| Over::Udp { locals: last.map(ip).to_vec(), port: 0 };
    let stack = |over| Stack::new(Config { settings, ..Config::new(over) });
    let limit = Duration::from_secs(60);
    let userspace = [stack(udp([1, 3]))?, stack(udp([2, 4]))?];
    tokio::time::timeout(limit, check(&userspace[0], &userspace[1], "enough")).await??;
    say("ok: Ringway's in UDP");
    let kernel = stack(Over::Kernel)?;
    tokio::time::timeout(limit, check(&kernel, &kernel, "")).await??;
    say("ok: the kernel's");
    std::fs::write(UDP_PORT_OF_KERNEL, UDP_PORT.to_string())
        .map_err(|error| format!("{UDP_PORT_OF_KERNEL}: {error}"))?;
    // Only single packets: Linux 6.1 fails on a train that is for its own SCTP.
    let mixed = tokio::time::timeout(limit, pair(&userspace[0], &kernel)).await??;
    tokio::time::timeout(limit, aborted(mixed, "enough")).await??;
    say("ok: the kernel reports the reason of an abort");
    Ok(())
}

/// Runs all checks.
pub(crate) async fn run() -> Result<bool, String> {
    compare().await.map(|()| true).map_err(|error| error.to_string())
}
