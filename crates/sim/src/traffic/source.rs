//! Sources that send at a constant rate, at random times, or in bursts.

use super::STAMP;
use crate::headers;
use ringway_link::{Rate, Size, Span, Stream};
use ringway_sansio::{Addressing, Duration, Ecn, Endpoint, Time};
use std::net::SocketAddr;

/// Maximum length of an IP packet.
const MAX_PACKET: Size = Size(65_535);

/// The times of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// At a constant bit rate, as ns-2's CBR without jitter.
    Constant(Rate),
    /// At independent times (Poisson); the mean bit rate.
    Poisson(Rate),
    /// Bursts at a constant bit rate with silences between.
    OnOff {
        /// Bit rate of a burst.
        rate: Rate,
        /// Mean length of a burst.
        on: Span,
        /// Mean length of a silence.
        off: Span,
        /// Distribution of both lengths.
        stay: Stay,
    },
}

/// Distribution of the lengths of bursts and silences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stay {
    /// Constant.
    Fixed,
    /// Exponential.
    Exponential,
    /// Pareto of that shape, above 1. Many such sources together are self-similar for shapes below 2.
    Pareto(f64),
}

/// Configuration of a source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceConfig {
    /// Source address; a host with several addresses chooses its path by it.
    pub source: SocketAddr,
    /// Destination address.
    pub destination: SocketAddr,
    /// Length of a packet with its IP header, in bytes.
    pub packet: Size,
    /// The times of packets.
    pub pattern: Pattern,
    /// Earliest time of the first packet.
    pub start: Time,
    /// Latest time of a packet.
    pub stop: Time,
    /// Maximum number of packets.
    pub max_packets: u64,
    /// Congestion notification of the packets.
    pub ecn: Ecn,
    /// Whether packets have a checksum, by which a sink detects damaged ones. Over IPv6 they always
    /// have one (RFC 8200 section 8.1).
    pub checksum: bool,
}

impl SourceConfig {
    /// Returns ns-2's CBR: 448 kb/s of 1000-byte packets, without end.
    pub const fn ns2(source: SocketAddr, destination: SocketAddr) -> Self {
        SourceConfig {
            source,
            destination,
            packet: Size(1000),
            pattern: Pattern::Constant(Rate(448_000)),
            start: Time::ZERO,
            stop: Time::from_nanos(u64::MAX),
            max_packets: u64::MAX,
            ecn: Ecn::NotEct,
            checksum: true,
        }
    }
}

/// A source as an endpoint.
#[derive(Clone, Debug)]
pub struct Source {
    config: SourceConfig,
    stream: Stream,
    next: Option<Time>,
    /// Whether a packet is due now.
    due: bool,
    sent: u64,
    /// Nanobits left over from rounding down the times of a constant rate.
    rest: u64,
    /// The end of the present burst.
    burst_ends: Time,
    /// Sum of the addresses, the protocol and the ports, for the checksum.
    fixed_sum: u64,
}

impl Source {
    /// Creates a source that draws from `stream`. A packet longer than IP allows is cut to 65535 bytes.
    pub fn new(mut config: SourceConfig, stream: Stream) -> Self {
        config.packet = config.packet.min(MAX_PACKET);
        let ends = [config.source.ip(), config.destination.ip()];
        let addressing = headers::udp_between(ends[0], ends[1]);
        let ports = u64::from(config.source.port()) + u64::from(config.destination.port());
        let mut source = Source {
            fixed_sum: headers::pseudo_sum(&addressing, 0) + ports,
            config,
            stream,
            next: None,
            due: false,
            sent: 0,
            rest: 0,
            burst_ends: Time::ZERO,
        };
        source.next = source.first().filter(|_| config.max_packets > 0);
        source
    }

    /// Returns the number of packets sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn first(&mut self) -> Option<Time> {
        let start = self.config.start;
        let first = match self.config.pattern {
            Pattern::Constant(_) => start,
            Pattern::Poisson(_) => start + self.gap(),
            Pattern::OnOff { on, stay, .. } => {
                self.burst_ends = start + self.stay(on, stay);
                start
            }
        };
        (first <= self.config.stop).then_some(first)
    }

    /// Returns the time from one packet to the next, without silences.
    fn gap(&mut self) -> Duration {
        // Times 8 bits a byte and 10^9 nanoseconds a second; u128 for packets beyond 2 GB.
        let bits = u128::from(self.config.packet.0) * 8_000_000_000;
        match self.config.pattern {
            Pattern::Constant(rate) | Pattern::OnOff { rate, .. } => {
                let rate = u128::from(rate.0.max(1));
                let total = bits + u128::from(self.rest);
                self.rest = (total % rate) as u64;
                Duration::from_nanos((total / rate) as u64)
            }
            Pattern::Poisson(rate) => {
                let mean = bits as f64 / rate.0.max(1) as f64;
                Duration::from_nanos(self.stream.exponential(mean).round() as u64)
            }
        }
    }

    fn stay(&mut self, mean: Span, stay: Stay) -> Duration {
        let mean = mean.as_nanos() as f64;
        let nanos = match stay {
            Stay::Fixed => mean,
            Stay::Exponential => self.stream.exponential(mean),
            // A Pareto distribution of minimum 1 has the mean shape / (shape - 1).
            Stay::Pareto(shape) => mean * (shape - 1.0) / shape * self.stream.pareto(shape),
        };
        Duration::from_nanos(nanos.round() as u64)
    }

    /// Returns the time of the packet after one at `now`.
    fn following(&mut self, now: Time) -> Option<Time> {
        let mut next = now + self.gap();
        if let Pattern::OnOff { on, off, stay, .. } = self.config.pattern {
            // A burst always sends at least one packet, at its start.
            if next > self.burst_ends {
                next = self.burst_ends + self.stay(off, stay);
                next = next.max(now + Duration::from_nanos(1));
                self.burst_ends = next + self.stay(on, stay);
                self.rest = 0;
            }
        }
        (next <= self.config.stop).then_some(next)
    }
}

impl Endpoint for Source {
    fn handle_packet(&mut self, _: Time, _: Addressing, _: &[u8]) {}

    fn handle_timeout(&mut self, now: Time) {
        if self.next.is_some_and(|at| at <= now) {
            self.due = true;
            self.next =
                if self.sent + 1 < self.config.max_packets { self.following(now) } else { None };
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        if !core::mem::take(&mut self.due) {
            return None;
        }
        let (source, destination) = (self.config.source, self.config.destination);
        let addressing = Addressing {
            ecn: self.config.ecn,
            ..headers::udp_between(source.ip(), destination.ip())
        };
        let overhead = headers::ip_header_len(&addressing) + headers::UDP_HEADER;
        let data = (self.config.packet.0 as usize).saturating_sub(overhead).max(STAMP);
        let length = headers::UDP_HEADER + data;
        let mut head = [0; headers::UDP_HEADER + STAMP];
        head[..8].copy_from_slice(&headers::udp_header(source.port(), destination.port(), data));
        head[8..16].copy_from_slice(&self.sent.to_be_bytes());
        head[16..].copy_from_slice(&now.as_nanos().to_be_bytes());
        if self.config.checksum || source.is_ipv6() {
            // The zeros add nothing, and the length is added twice: in the pseudo-header and here.
            let stamp = headers::sum(&head[headers::UDP_HEADER..]);
            let checksum = headers::fold(self.fixed_sum + 2 * length as u64 + stamp);
            // RFC 768: a checksum of zero is sent as all ones.
            let checksum = if checksum == 0 { 0xffff } else { checksum };
            head[6..8].copy_from_slice(&checksum.to_be_bytes());
        }
        payload.extend_from_slice(&head);
        payload.resize(length, 0);
        self.sent += 1;
        Some(addressing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_link::Streams;

    fn config(pattern: Pattern) -> SourceConfig {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        SourceConfig { pattern, ..SourceConfig::ns2(at(1), at(2)) }
    }

    /// Returns the send times up to `end`.
    fn times(config: SourceConfig, end: Time) -> Vec<u64> {
        let mut source = Source::new(config, Streams::new(1, 0).stream("source"));
        let (mut times, mut payload) = (Vec::new(), Vec::new());
        while let Some(at) = source.poll_timeout().filter(|&at| at <= end) {
            source.handle_timeout(at);
            payload.clear();
            assert!(source.poll_transmit(at, &mut payload).is_some());
            assert_eq!(payload.len(), 980);
            times.push(at.as_nanos());
        }
        assert_eq!(source.sent(), times.len() as u64);
        times
    }

    /// 448 kb/s of 1000 bytes is one each 125/7 ms: 1568 in 28 s and one more at the end of it.
    #[test]
    fn constant_rate_does_not_drift() {
        let t = times(config(Pattern::Constant(Rate(448_000))), Time::from_secs(28));
        assert_eq!((t.len(), t[7], t[1568]), (1569, 125_000_000, 28_000_000_000));
    }

    #[test]
    fn a_source_stops() {
        let constant = config(Pattern::Constant(Rate(8_000_000)));
        let some = SourceConfig { max_packets: 5, ..constant };
        assert_eq!(times(some, Time::from_secs(1)).len(), 5);
        let window =
            SourceConfig { start: Time::from_millis(10), stop: Time::from_millis(12), ..constant };
        assert_eq!(times(window, Time::from_secs(1)), [10_000_000, 11_000_000, 12_000_000]);
        assert!(times(SourceConfig { max_packets: 0, ..constant }, Time::from_secs(1)).is_empty());
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let t = times(config(Pattern::Poisson(Rate(8_000_000))), Time::from_secs(100));
        let gaps: Vec<f64> = t.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn bursts_have_their_mean_rate() {
        for stay in [Stay::Fixed, Stay::Exponential, Stay::Pareto(2.5)] {
            let pattern = Pattern::OnOff {
                rate: Rate(8_000_000),
                on: Span::from_millis(100),
                off: Span::from_millis(300),
                stay,
            };
            let t = times(config(pattern), Time::from_secs(400));
            // A quarter of the time, a packet a millisecond, and one at the start of each burst.
            let share = t.len() as f64 / 400_000.0;
            assert!((0.22..0.28).contains(&share), "{stay:?}: {share}");
        }
    }
}
