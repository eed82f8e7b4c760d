//! The speed of TCP: one bulk flow over a bottleneck of 100 Mbit/s and 10 ms. The argument is the
//! time to simulate, in milliseconds; it prints the totals.
//!
//! Counted under `valgrind --tool=callgrind` like `line`; packets are all that the endpoints sent, data
//! and acknowledgments.

use ringway_link::queue::DropTailPackets;
use ringway_link::{LinkConfig, QueueConfig, Rate, Span, Streams};
use ringway_sansio::{Addressing, Endpoint, Time};
use ringway_sim::{Bind, World};
use ringway_tcp::{ConnId, Event, Limits, PROTOCOL, Settings, Tcp};
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;

/// A program that writes endlessly, or reads everything, and its TCP as one endpoint.
struct Host {
    tcp: Tcp,
    connection: Option<ConnId>,
    read: u64,
    sends: bool,
}

impl Host {
    fn work(&mut self, now: Time) {
        const DATA: [u8; 16_384] = [0; 16_384];
        while let Some(event) = self.tcp.poll_event() {
            if let Event::Incoming(listener) = event {
                self.connection = self.tcp.accept(listener);
            }
        }
        let Some(id) = self.connection else { return };
        if self.sends {
            while self.tcp.write(now, id, &DATA).is_ok_and(|n| n == DATA.len()) {}
        } else {
            let waits = self.tcp.peek(id).map_or(0, |(a, b)| a.len() + b.len());
            if waits > 0 && self.tcp.consume(now, id, waits).is_ok() {
                self.read += waits as u64;
            }
        }
    }
}

impl Endpoint for Host {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.tcp.handle_packet(now, addressing, payload);
        self.work(now);
    }
    fn handle_timeout(&mut self, now: Time) {
        self.tcp.handle_timeout(now);
        self.work(now);
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.tcp.poll_timeout()
    }
    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        self.tcp.poll_transmit(now, payload)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let millis: u64 = std::env::args().nth(1).unwrap_or_else(|| "10000".into()).parse()?;
    let mut world = World::new(Streams::new(1, 0));
    let (a, r, b) = (world.add_node("a")?, world.add_node("r")?, world.add_node("b")?);
    let fast = LinkConfig { rate: Rate(1_000_000_000), ..LinkConfig::default() };
    let narrow = LinkConfig {
        rate: Rate(100_000_000),
        delay: Span::from_millis(10),
        queue: QueueConfig::DropTail(DropTailPackets { limit: 100 }),
        ..LinkConfig::default()
    };
    let (out, _) = world.connect(a, r, fast.clone(), fast)?;
    let (_, far) = world.connect(r, b, narrow.clone(), narrow)?;
    let (from, to) = ("10.0.0.1:5000".parse::<SocketAddr>()?, "10.0.0.2:80".parse::<SocketAddr>()?);
    world.add_address(out, from.ip())?;
    world.add_address(far, to.ip())?;
    let tcp = |name| {
        let mut stream = world.streams().stream(name);
        Tcp::new(Limits::default(), Settings::default(), &mut stream)
    };
    let mut sender = Host { tcp: tcp("a/tcp")?, connection: None, read: 0, sends: true };
    let mut receiver = Host { tcp: tcp("b/tcp")?, connection: None, read: 0, sends: false };
    receiver.tcp.listen(to, 1, None)?;
    sender.connection = Some(sender.tcp.connect(Time::ZERO, from, to, None)?);
    world.attach(a, Bind::protocol(PROTOCOL), sender)?;
    let receiver = world.attach(b, Bind::protocol(PROTOCOL), receiver)?;
    let begun = std::time::Instant::now();
    world.run_until(Time::from_millis(millis))?;
    let seconds = begun.elapsed().as_secs_f64();
    let read = world.endpoint::<Host>(receiver).map_or(0, |h| h.read);
    let census = world.census();
    writeln!(
        std::io::stdout(),
        "{{\"packets\": {}, \"dropped\": {}, \"bytes\": {read}, \"events\": {}, \"seconds\": {seconds:.3}}}",
        census.sent,
        census.dropped,
        world.happened(),
    )?;
    Ok(())
}
