//! A bulk transfer between two hosts without a link between them, for counting instructions:
//! `valgrind --tool=callgrind target/quick/examples/speed 20000`. The argument is the number of
//! full segments; take the difference of two runs to exclude the cost of the set-up. With a second argument N,
//! each N-th data segment is dropped.

#![allow(clippy::print_stdout)]

use ringway_sansio::{Duration, Endpoint, SplitMix, Time};
use ringway_tcp::{ConnId, Event, Limits, Settings, Tcp};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

fn host(seed: u64) -> Option<Tcp> {
    Tcp::new(Limits::default(), Settings::default(), &mut SplitMix::new(seed)).ok()
}

struct World {
    hosts: [Tcp; 2],
    now: Time,
    flying: VecDeque<(Time, usize, ringway_sansio::Addressing, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    drop_each: u64,
    packets: u64,
}

impl World {
    fn flush(&mut self) {
        for from in 0..2 {
            loop {
                let mut bytes = self.spare.pop().unwrap_or_default();
                bytes.clear();
                let Some(addressing) = self.hosts[from].poll_transmit(self.now, &mut bytes) else {
                    self.spare.push(bytes);
                    break;
                };
                self.packets += u64::from(bytes.len() > 500);
                if bytes.len() > 500
                    && self.drop_each > 0
                    && self.packets.is_multiple_of(self.drop_each)
                {
                    self.spare.push(bytes);
                    continue;
                }
                let at = self.now + Duration::from_millis(5);
                self.flying.push_back((at, 1 - from, addressing, bytes));
            }
        }
    }

    fn step(&mut self) {
        self.flush();
        let timer = self.hosts.iter().filter_map(Tcp::poll_timeout).min();
        let arrival = self.flying.front().map(|packet| packet.0);
        match (timer, arrival) {
            (timer, Some(at)) if timer.is_none_or(|timer| at <= timer) => {
                self.now = at;
                if let Some((_, to, addressing, bytes)) = self.flying.pop_front() {
                    self.hosts[to].handle_packet(at, addressing, &bytes);
                    self.spare.push(bytes);
                }
            }
            (Some(at), _) => {
                self.now = self.now.max(at);
                for host in &mut self.hosts {
                    host.handle_timeout(at);
                }
            }
            _ => {}
        }
    }

    fn event(&mut self, host: usize) -> Option<Event> {
        self.hosts[host].poll_event()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let segments: usize = arguments.next().map_or(Ok(10_000), |a| a.parse())?;
    let drop_each: u64 = arguments.next().map_or(Ok(0), |a| a.parse())?;
    let (Some(one), Some(two)) = (host(1), host(2)) else { return Err("settings".into()) };
    let mut world = World {
        hosts: [one, two],
        now: Time::from_secs(1),
        flying: VecDeque::new(),
        spare: Vec::new(),
        drop_each,
        packets: 0,
    };
    let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let listener = world.hosts[1].listen(SocketAddr::new(b, 80), 1, None)?;
    let sender =
        world.hosts[0].connect(world.now, SocketAddr::new(a, 0), SocketAddr::new(b, 80), None)?;
    let mut receiver: Option<ConnId> = None;
    let total = segments * 1448;
    let (mut written, mut read) = (0, 0);
    let chunk = vec![7u8; 1448];
    let mut writable = false;
    while read < total {
        world.step();
        while let Some(event) = world.event(0) {
            writable |= matches!(event, Event::Connected(_) | Event::Writable(_));
        }
        while writable && written < total {
            let count = chunk.len().min(total - written);
            let took = world.hosts[0].write(world.now, sender, &chunk[..count])?;
            written += took;
            writable = took == count;
        }
        while let Some(event) = world.event(1) {
            match event {
                Event::Incoming(_) => receiver = world.hosts[1].accept(listener),
                Event::Readable(conn) => {
                    let count = world.hosts[1].peek(conn).map(|(x, y)| x.len() + y.len())?;
                    world.hosts[1].consume(world.now, conn, count)?;
                    read += count;
                }
                _ => {}
            }
        }
    }
    let totals = world.hosts[0].snapshot(sender)?.totals;
    println!(
        "{segments} segments, {} sent, {} again, {} acknowledgments, {:?} of virtual time, receiver {}",
        world.packets,
        totals.retransmits,
        totals.segments_received,
        world.now.since(Time::from_secs(1)),
        if receiver.is_some() { "accepted" } else { "never accepted" },
    );
    Ok(())
}
