//! A link as a queue of the textbook.

#![allow(clippy::unwrap_used)]

mod common;

use common::Bench;
use ringway_link::{DropReason, LinkConfig, Rate, Streams};
use ringway_sansio::Time;

/// M/M/1/K: packets come as a Poisson process, their sizes are exponential, and K of them fit, the
/// one on the wire included. The share that is lost is (1 - r) r^K / (1 - r^(K+1)), and the mean
/// number in the system r / (1 - r) - (K + 1) r^(K+1) / (1 - r^(K+1)).
#[test]
fn exponential_packets_are_lost_as_in_m_m_1_k() {
    for (load, room) in [(0.8f64, 5), (1.2, 10)] {
        let queue = format!(
            "rate = \"8 Gbit/s\"\nqueue = {{ discipline = \"drop-tail\", limit = {} }}",
            room - 1
        );
        let config: LinkConfig = toml::from_str(&queue).unwrap();
        assert_eq!(config.rate, Rate(8_000_000_000));
        let mut b = Bench::new(config, 1);
        // A mean of a million bytes makes the rounding of sizes nothing: 1 ms of sending.
        let (mut times, mut sizes) =
            (Streams::new(2, 0).stream("times"), Streams::new(2, 0).stream("sizes"));
        let n = 300_000;
        let mut at = 0.0;
        for _ in 0..n {
            at += times.exponential(1e6 / load);
            let now = Time::from_nanos(at as u64);
            b.poll(now);
            b.offer(now, sizes.exponential(1e6) as u32);
            b.log.clear();
        }
        b.run(Time::from_secs(10_000));
        let k = f64::from(room);
        let power = load.powf(k + 1.0);
        let lost = b.count(DropReason::QueueFull) as f64 / f64::from(n);
        let expected = (1.0 - load) * load.powf(k) / (1.0 - power);
        assert!((lost / expected - 1.0).abs() < 0.03, "{load} {room}: {lost} {expected}");
        // Little: the mean number is the rate of those let in times the mean time they stay.
        let stay: u128 =
            b.delivered.iter().map(|d| d.arrives.since(d.packet.queued).as_nanos()).sum();
        let number = stay as f64 / at;
        let expected = load / (1.0 - load) - (k + 1.0) * power / (1.0 - power);
        assert!((number / expected - 1.0).abs() < 0.03, "{load} {room}: {number} {expected}");
    }
}
