//! A sink that measures the traffic of a source.

use super::STAMP;
use crate::headers::{self, UDP_HEADER};
use ringway_sansio::{Addressing, Ecn, Endpoint, Time};

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number, from 0.
    pub number: u64,
    /// The send time.
    pub sent: Time,
    /// The time of reception.
    pub received: Time,
}

/// Totals of a sink. Sums are whole numbers, so they do not depend on order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes with IP headers.
    pub bytes: u64,
    /// Packets not counted above because their checksum is wrong or they are too short.
    pub damaged: u64,
    /// Packets with a number below one that arrived before.
    pub late: u64,
    /// Packets with a congestion mark.
    pub marked: u64,
    /// Sum of delays, in nanoseconds.
    pub delay_sum: u128,
    /// Sum of their squares.
    pub delay_squares: u128,
    /// Shortest delay, in nanoseconds.
    pub delay_min: u64,
    /// Longest delay, in nanoseconds.
    pub delay_max: u64,
}

impl Totals {
    /// Returns the mean delay in seconds; 0 without packets.
    pub fn mean_delay(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { self.delay_sum as f64 / self.packets as f64 * 1e-9 }
    }

    /// Returns the variance of the delay in s^2, of the received packets and not of a population that
    /// they are a sample of.
    pub fn delay_variance(&self) -> f64 {
        if self.packets == 0 {
            return 0.0;
        }
        let n = u128::from(self.packets);
        // n sum(x^2) - sum(x)^2 is exact in whole numbers; a sum that is too large is computed as a
        // float.
        let exact =
            self.delay_squares.checked_mul(n).zip(self.delay_sum.checked_mul(self.delay_sum));
        let scaled = match exact {
            Some((squares, square)) => squares.saturating_sub(square) as f64 / (n * n) as f64,
            None => {
                let mean = self.delay_sum as f64 / n as f64;
                self.delay_squares as f64 / n as f64 - mean * mean
            }
        };
        scaled * 1e-18
    }
}

/// A sink for one source, as an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    totals: Totals,
    next: u64,
    arrivals: Option<Vec<Arrival>>,
}

impl Sink {
    /// Creates a sink that stores only totals.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a sink that stores every arrival as well.
    pub fn keeping() -> Self {
        Sink { arrivals: Some(Vec::new()), ..Self::default() }
    }

    /// Returns the totals.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns every arrival in order; empty unless they are stored.
    pub fn arrivals(&self) -> &[Arrival] {
        self.arrivals.as_deref().unwrap_or_default()
    }
}

/// Returns the number and the send time in a packet with a correct checksum or none.
fn stamp(addressing: &Addressing, payload: &[u8]) -> Option<(u64, Time)> {
    // RFC 768: zero stands for no checksum.
    if payload.get(6..8)? != [0, 0] {
        let sum = headers::pseudo_sum(addressing, payload.len()) + headers::sum(payload);
        if headers::fold(sum) != 0 {
            return None;
        }
    }
    let stamp = payload.get(UDP_HEADER..UDP_HEADER + STAMP)?;
    let (number, sent) = stamp.split_first_chunk::<8>()?;
    let sent = u64::from_be_bytes(*sent.first_chunk()?);
    Some((u64::from_be_bytes(*number), Time::from_nanos(sent)))
}

impl Endpoint for Sink {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        let Some((number, sent)) = stamp(&addressing, payload) else {
            self.totals.damaged += 1;
            return;
        };
        let t = &mut self.totals;
        let delay = now.since(sent).as_nanos() as u64;
        t.delay_min = if t.packets == 0 { delay } else { t.delay_min.min(delay) };
        t.delay_max = t.delay_max.max(delay);
        t.packets += 1;
        t.bytes += (headers::ip_header_len(&addressing) + payload.len()) as u64;
        t.delay_sum += u128::from(delay);
        t.delay_squares += u128::from(delay) * u128::from(delay);
        t.late += u64::from(number < self.next);
        t.marked += u64::from(addressing.ecn == Ecn::Ce);
        self.next = self.next.max(number.saturating_add(1));
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.push(Arrival { number, sent, received: now });
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Option<Addressing> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Source, SourceConfig};
    use super::*;
    use ringway_link::Streams;
    use std::net::SocketAddr;

    fn packet(v6: bool, checksum: bool) -> (Addressing, Vec<u8>) {
        let at = |port| match v6 {
            false => SocketAddr::from(([10, 0, 0, 1], port)),
            true => SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 1], port)),
        };
        let config = SourceConfig { checksum, ..SourceConfig::ns2(at(1), at(2)) };
        let mut source = Source::new(config, Streams::new(1, 0).stream("s"));
        source.handle_timeout(Time::ZERO);
        let mut payload = Vec::new();
        let addressing = source.poll_transmit(Time::from_secs(3), &mut payload).unwrap();
        (addressing, payload)
    }

    #[test]
    fn what_a_source_sends_is_understood() {
        for (v6, checksum) in [(false, true), (true, true), (false, false), (true, false)] {
            let (addressing, payload) = packet(v6, checksum);
            assert_eq!(payload[6..8] != [0, 0], v6 || checksum);
            let mut sink = Sink::keeping();
            sink.handle_packet(Time::from_secs(5), addressing, &payload);
            assert_eq!((sink.totals().packets, sink.totals().bytes), (1, 1000));
            assert_eq!(sink.totals().mean_delay(), 2.0);
            assert_eq!(sink.arrivals()[0].number, 0);
        }
    }

    #[test]
    fn every_wrong_bit_is_noticed() {
        let (addressing, payload) = packet(false, true);
        for bit in 0..payload.len() * 8 {
            // A checksum that becomes zero by one wrong bit would stand for none.
            let mut wrong = payload.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let mut sink = Sink::new();
            sink.handle_packet(Time::from_secs(5), addressing, &wrong);
            assert_eq!((sink.totals().packets, sink.totals().damaged), (0, 1), "{bit}");
        }
        let mut sink = Sink::new();
        sink.handle_packet(Time::from_secs(5), addressing, &payload[..20]);
        sink.handle_packet(Time::from_secs(5), addressing, &[]);
        assert_eq!(sink.totals().damaged, 2);
    }

    #[test]
    fn variance_is_that_of_the_definition() {
        let delays = [1.5, 2.0, 0.25];
        let mut totals = Totals { packets: 3, ..Totals::default() };
        for d in delays {
            let nanos = (d * 1e9) as u128;
            totals.delay_sum += nanos;
            totals.delay_squares += nanos * nanos;
        }
        assert!((totals.mean_delay() - 1.25).abs() < 1e-12);
        assert!((totals.delay_variance() - (0.0625 + 0.5625 + 1.0) / 3.0).abs() < 1e-12);
    }
}
