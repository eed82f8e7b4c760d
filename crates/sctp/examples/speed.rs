//! Moves messages from one host to another in memory, to count instructions with callgrind:
//! `speed SIZE COUNT [STREAMS]`. Prints the number of messages moved. `speed idle COUNT` opens idle
//! associations instead, to measure their memory.

use ringway_sansio::{Duration, Endpoint, SplitMix, Time};
use ringway_sctp::{AssocId, Event, Limits, Sctp, SendOptions, SettingError, Settings};
use std::net::IpAddr;

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const PORT: u16 = 5060;

fn host(seed: u64) -> Result<Sctp, SettingError> {
    Sctp::new(Limits::default(), Settings::default(), Box::new(SplitMix::new(seed)))
}

/// Exchanges packets until neither host has more; `arrived` is called after each packet to b.
fn settle(
    a: &mut Sctp,
    b: &mut Sctp,
    now: Time,
    buffer: &mut Vec<u8>,
    mut arrived: impl FnMut(&mut Sctp),
) {
    loop {
        let mut quiet = true;
        while let Some(way) = a.poll_transmit(now, buffer) {
            b.handle_packet(now, way, buffer);
            buffer.clear();
            arrived(b);
            quiet = false;
        }
        while let Some(way) = b.poll_transmit(now, buffer) {
            a.handle_packet(now, way, buffer);
            buffer.clear();
            quiet = false;
        }
        if quiet {
            return;
        }
    }
}

fn incoming(b: &mut Sctp) -> Option<AssocId> {
    let mut found = None;
    while let Some(event) = b.poll_event() {
        if let Event::Up { id, .. } = event {
            found = Some(id);
        }
    }
    found
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, other: usize| {
        arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(other)
    };
    let (mut a, mut b, mut now) = (host(1)?, host(2)?, Time::from_secs(1000));
    let mut buffer = Vec::with_capacity(2048);
    b.listen(&[B], PORT, None)?;
    if arguments.first().is_some_and(|word| word == "idle") {
        for n in 0..number(1, 1000) {
            a.connect(now, &[A], 1024 + (n % 60_000) as u16, &[B], PORT, None)?;
            settle(&mut a, &mut b, now, &mut buffer, |_| {});
            incoming(&mut b);
        }
        println!("{} and {} associations", a.len(), b.len());
        return Ok(());
    }
    let (size, count, streams) = (number(0, 1024), number(1, 10_000), number(2, 1));
    let id = a.connect(now, &[A], 0, &[B], PORT, None)?;
    settle(&mut a, &mut b, now, &mut buffer, |_| {});
    let Some(peer) = incoming(&mut b) else { return Ok(()) };
    let data = bytes::Bytes::from(vec![7; size]);
    let (mut given, mut read, mut out) = (0, 0, Vec::new());
    while read < count {
        let stream = (given % streams) as u16;
        let options = SendOptions { stream, ..SendOptions::default() };
        while given < count && a.send(now, id, &options, data.clone()).is_ok() {
            given += 1;
        }
        settle(&mut a, &mut b, now, &mut buffer, |b| {
            while let Ok(Some(received)) = b.recv(peer, &mut out) {
                read += usize::from(received.end);
                out.clear();
            }
        });
        now += Duration::from_millis(1);
        if b.poll_timeout().is_some_and(|at| at <= now) {
            b.handle_timeout(now);
        }
    }
    println!("{read} messages of {size} bytes in {:?}", now - Time::from_secs(1000));
    Ok(())
}
