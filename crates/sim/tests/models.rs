//! The world against formulas and against a published run.

#![allow(clippy::unwrap_used)]

mod common;

use common::Line;
use ringway_link::queue::{DropTailPackets, Ns2DropTail};
use ringway_link::{Generator, LinkConfig, QueueConfig, Rate, Span, Streams};
use ringway_sansio::Time;
use ringway_sim::traffic::{Pattern, Sink, SourceConfig};

/// The UDP row of Table 1 of the papers, from every link at 0.2 Mb/s and 10 ms, two hops, a
/// drop-tail queue of 50, CBR at ns-2's 448 kb/s for 28 s, and a cut 1 s after the source stops.
#[test]
fn the_udp_row_of_table_1() {
    let link = LinkConfig {
        rate: Rate(200_000),
        delay: Span::from_millis(10),
        queue: QueueConfig::Ns2DropTail(Ns2DropTail { limit: 50 }),
        ..LinkConfig::default()
    };
    let config = |source, destination| SourceConfig {
        stop: Time::from_secs(28),
        ..SourceConfig::ns2(source, destination)
    };
    let mut line = Line::new(Streams::new(12_345, 0), &[link.clone(), link], config, Sink::new());
    line.run(Time::from_secs(29));
    let t = *line.sink().totals();
    eprintln!(
        "sent {} received {} mean delay {:.6} s variance {:.6}",
        line.sent(),
        t.packets,
        t.mean_delay(),
        t.delay_variance()
    );
    assert!((1568..=1569).contains(&line.sent()), "{}", line.sent());
    assert_eq!(t.packets, 723);
    let near = |value: f64, paper: f64| (value / paper - 1.0).abs() < 0.001;
    assert!(near(t.mean_delay(), 1.930832), "{}", t.mean_delay());
    assert!(near(t.delay_variance(), 0.142850), "{}", t.delay_variance());
    let census = line.world.census();
    assert_eq!(census.delivered, 723);
    // What the paper calls lost: dropped, and still under way at the cut.
    assert_eq!(census.sent - census.delivered, census.dropped + census.waiting + census.on_the_way);
    assert!(census.waiting + census.on_the_way > 20, "{census:?}");
}

/// M/D/1: the mean wait of Pollaczek and Khinchine, rho s / (2 (1 - rho)), and its variance, by
/// Takacs's recurrence the square of the mean and rho s^2 / (3 (1 - rho)).
#[test]
fn poisson_packets_of_one_size_wait_as_in_m_d_1() {
    for (load, tolerance) in [(0.5, 0.03), (0.8, 0.05)] {
        let link = LinkConfig {
            rate: Rate(8_000_000),
            queue: QueueConfig::DropTail(DropTailPackets { limit: 1 << 20 }),
            ..LinkConfig::default()
        };
        let config = |source, destination| SourceConfig {
            pattern: Pattern::Poisson(Rate((load * 8e6) as u64)),
            ..SourceConfig::ns2(source, destination)
        };
        let streams = Streams::new(1, 0).with(Generator::Xoshiro);
        let mut line = Line::new(streams, &[link], config, Sink::new());
        line.run(Time::from_secs(300));
        let service = 0.001;
        let totals = line.sink().totals();
        let wait = totals.mean_delay() - service;
        let mean = load * service / (2.0 * (1.0 - load));
        assert!((wait / mean - 1.0).abs() < tolerance, "{load}: {wait} {mean}");
        let variance = mean * mean + load * service * service / (3.0 * (1.0 - load));
        let ratio = totals.delay_variance() / variance;
        assert!((ratio - 1.0).abs() < 3.0 * tolerance, "{load}: {ratio}");
    }
}

/// Two links in a row at half the load: the second never holds a queue, as packets leave the first
/// no faster than the second sends them.
#[test]
fn a_second_link_as_fast_adds_no_wait() {
    let link = LinkConfig { rate: Rate(8_000_000), ..LinkConfig::default() };
    let config = |source, destination| SourceConfig {
        pattern: Pattern::Poisson(Rate(4_000_000)),
        ..SourceConfig::ns2(source, destination)
    };
    let run = |links: &[LinkConfig]| {
        let mut line = Line::new(Streams::new(2, 0), links, config, Sink::new());
        line.run(Time::from_secs(20));
        line.sink().totals().mean_delay()
    };
    let (one, two) = (run(std::slice::from_ref(&link)), run(&[link.clone(), link.clone()]));
    assert!((two - one - 0.001).abs() < 1e-6, "{one} {two}");
}
