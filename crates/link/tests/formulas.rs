//! A link as a textbook queue, and its random decisions.

#![allow(clippy::unwrap_used)]

mod common;

use common::Bench;
use ringway_link::{Chance, Distribution, DropReason, LinkConfig, Rate, Span, Streams};
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

/// Runs of lost packets over a whole link are as long as Gilbert's model says: geometric with mean
/// 1/r, the share that is lost p / (p + r). Chi squared over the lengths.
#[test]
fn losses_come_in_the_bursts_of_gilbert() {
    let (p, r, n) = (0.02, 0.4, 200_000u32);
    let text = format!("loss = {{ model = \"gilbert-elliott\", p = {p}, r = {r} }}");
    let mut b = Bench::from_toml(&text);
    for i in 0..n {
        b.offer(Time::from_nanos(i.into()), 100);
        b.log.clear();
    }
    b.run(Time::from_secs(1));
    let mut arrived = b.ids();
    arrived.push(n);
    let mut bursts: Vec<u32> = Vec::new();
    let mut next = 0;
    for id in arrived {
        if id > next {
            bursts.push(id - next);
        }
        next = id + 1;
    }
    let lost = b.count(DropReason::Loss) as f64 / f64::from(n);
    assert!((lost / (p / (p + r)) - 1.0).abs() < 0.05, "{lost}");
    const CELLS: u32 = 8;
    let chi: f64 = (1..=CELLS)
        .map(|k| {
            let seen = bursts.iter().filter(|&&b| b == k || k == CELLS && b > k).count() as f64;
            let tail = (1.0 - r).powi(k as i32 - 1);
            let expected = bursts.len() as f64 * if k == CELLS { tail } else { tail * r };
            (seen - expected).powi(2) / expected
        })
        .sum();
    // 99.9 % point of chi squared with 7 degrees of freedom.
    assert!(chi < 24.32, "{chi}");
}

/// Delays over a whole link come from the table of its distribution, correlated or not: Kolmogorov
/// and Smirnov, against an exponential distribution whose quantiles the table holds.
#[test]
fn delays_come_from_the_table() {
    for correlation in [0.0, 0.5] {
        let n = 10_000u32;
        let table: Vec<f64> =
            (0..4096).map(|i| -(1.0 - (f64::from(i) + 0.5) / 4096.0).ln()).collect();
        let config = LinkConfig {
            delay: Span::from_millis(10),
            jitter: Span::from_millis(1),
            distribution: Distribution::Table(table),
            delay_correlation: Chance::new(correlation).unwrap(),
            ..LinkConfig::default()
        };
        let mut b = Bench::new(config, 3);
        for i in 0..n {
            // Every eighth, so that what is correlated counts as drawn apart.
            for _ in 0..8 {
                b.offer(Time::from_millis(i.into()), 100);
            }
            b.log.clear();
        }
        b.run(Time::from_secs(100));
        let delay = |d: &ringway_link::Departure| d.arrives.since(d.started).as_secs_f64();
        let chosen = b.delivered.iter().filter(|d| d.packet.id % 8 == 0);
        let mut delays: Vec<f64> = chosen.map(|d| (delay(d) - 0.010) * 1000.0).collect();
        delays.sort_by(f64::total_cmp);
        let distance = delays.iter().enumerate().fold(0f64, |worst, (i, x)| {
            let f = 1.0 - (-x).exp();
            let (low, high) = (i as f64 / f64::from(n), (i + 1) as f64 / f64::from(n));
            worst.max((f - low).abs()).max((high - f).abs())
        });
        assert_eq!(delays.len(), n as usize);
        // The 99.9 % point.
        assert!(distance < 1.95 / f64::from(n).sqrt(), "{correlation}: {distance}");
    }
}
