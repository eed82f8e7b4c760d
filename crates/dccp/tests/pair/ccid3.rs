//! CCID 3 over lossy and narrow links (RFC 4342, RFC 5348).

use crate::support::*;
use ringway_dccp::congestion::ccid3::equation;
use ringway_dccp::{Ccid, Settings};

fn tfrc() -> Settings {
    Settings { ccid: Ccid::Tfrc, ..Settings::default() }
}

fn pair(delay: u64) -> Pair {
    let mut pair = Pair::new(tfrc(), tfrc(), ms(delay));
    pair.keep_log = false;
    pair
}

/// RFC 5348 section 3.1: at a given loss rate the rate is that of the equation.
#[test]
fn the_rate_follows_the_equation() {
    for (lose, delay) in [(10, 25), (30, 50), (50, 25)] {
        let mut pair = pair(delay);
        pair.links[0].lose = lose;
        let (a, b) = pair.open();
        let mut flows = [Flow::new(0, (a, b), 1000)];
        drive(&mut pair, &mut flows, secs(60));
        let begin = pair.now;
        let mut rates = 0.0;
        for _ in 0..300 {
            drive(&mut pair, &mut flows, ms(500));
            rates += pair.snapshot(0, a).sender.loss_event_rate;
        }
        let (p, rtt) = (rates / 300.0, 0.002 * delay as f64);
        let expected = equation::throughput(1000.0, rtt, p);
        let rate = flows[0].rate(begin, pair.now);
        let quotient = rate / expected;
        assert!((0.7..1.4).contains(&quotient), "{lose}: {rate} of {expected} at {p}");
        // Losses of one round trip are one event, so that there are fewer events than losses.
        let loss = lose as f64 / 1000.0;
        assert!(p <= loss * 1.3 && p > loss * 0.3, "{p} {loss}");
    }
}

/// RFC 5348 section 1: with a steady loss rate the sending rate changes little from second to second,
/// much less than that of CCID 2.
#[test]
fn the_rate_is_smooth() {
    let variation = |ccid: Ccid| {
        let settings = Settings { ccid, ..Settings::default() };
        let mut pair = Pair::new(settings, settings, ms(50));
        pair.keep_log = false;
        pair.links[0].lose = 10;
        let (a, b) = pair.open();
        let mut flows = [Flow::new(0, (a, b), 1000)];
        drive(&mut pair, &mut flows, secs(60));
        let mut rates = Vec::new();
        for _ in 0..160 {
            let begin = pair.now;
            drive(&mut pair, &mut flows, ms(500));
            rates.push(flows[0].rate(begin, pair.now));
        }
        let changes: f64 = rates.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
        changes / rates.iter().sum::<f64>()
    };
    let (smooth, rough) = (variation(Ccid::Tfrc), variation(Ccid::TcpLike));
    assert!(smooth < 0.25 && smooth < 0.8 * rough, "{smooth} {rough}");
}

/// RFC 5348 section 4.3: one flow fills a bottleneck, and two share it.
#[test]
fn flows_share_a_bottleneck() {
    let mut pair = pair(25);
    pair.links[0].rate = Some(500_000);
    pair.links[0].queue = 40;
    let one = pair.open();
    let mut flows = vec![Flow::new(0, one, 1000)];
    drive(&mut pair, &mut flows, secs(30));
    let begin = pair.now;
    drive(&mut pair, &mut flows, secs(60));
    let alone = flows[0].rate(begin, pair.now);
    assert!(alone > 0.75 * 500_000.0, "{alone}");
    let two = pair.open();
    flows.push(Flow::new(0, two, 1000));
    drive(&mut pair, &mut flows, secs(60));
    let begin = pair.now;
    drive(&mut pair, &mut flows, secs(80));
    let rates: Vec<f64> = flows.iter().map(|flow| flow.rate(begin, pair.now)).collect();
    let (sum, squares) = (rates[0] + rates[1], rates[0].powi(2) + rates[1].powi(2));
    assert!(sum * sum / (2.0 * squares) > 0.85, "{rates:?}");
    assert!(sum > 0.75 * 500_000.0, "{rates:?}");
}

/// RFC 4342 section 6.1: marks count as losses.
#[test]
fn marks_replace_losses() {
    let mut pair = pair(25);
    pair.links[0].rate = Some(250_000);
    pair.links[0].queue = 400;
    pair.links[0].mark_from = Some(8);
    let ends = pair.open();
    let mut flows = [Flow::new(0, ends, 1000)];
    drive(&mut pair, &mut flows, secs(60));
    let begin = pair.now;
    drive(&mut pair, &mut flows, secs(30));
    assert!(pair.links[0].marked > 10);
    let sender = pair.snapshot(0, ends.0).sender;
    assert!(sender.loss_event_rate > 0.0 && sender.congestion_events > 2, "{sender:?}");
    let rate = flows[0].rate(begin, pair.now);
    assert!(rate > 0.7 * 250_000.0, "{rate}");
    assert_eq!(pair.links[0].dropped, 0);
}

/// RFC 4342 sections 8.4 and 8.5: Loss Event Rates are sent beside the intervals, for senders that read nothing else, whether
/// they ask for them or not.
#[test]
fn loss_event_rates_are_sent_beside_the_intervals() {
    for loss_event_rate in [true, false] {
        let mut pair = Pair::new(Settings { loss_event_rate, ..tfrc() }, tfrc(), ms(25));
        pair.links[0].lose = 20;
        let ends = pair.open();
        let mut flows = [Flow::new(0, ends, 1000)];
        drive(&mut pair, &mut flows, secs(20));
        let p = pair.snapshot(0, ends.0).sender.loss_event_rate;
        let line = pair.log.iter().rev().find(|line| line.contains("LossEventRate(")).unwrap();
        let inverse = line.split("LossEventRate(").nth(1).unwrap().split(')').next().unwrap();
        let reported = 1.0 / inverse.parse::<f64>().unwrap();
        assert!((reported / p).ln().abs() < 0.7, "{reported} {p}");
    }
}

/// RFC 5348 section 4.4: during an outage the nofeedback timer halves the rate again and again, and after
/// it the rate recovers.
#[test]
fn an_outage_halves_the_rate() {
    let mut pair = pair(25);
    pair.links[0].rate = Some(500_000);
    let (a, b) = pair.open();
    let mut flows = [Flow::new(0, (a, b), 1000)];
    drive(&mut pair, &mut flows, secs(20));
    let before = pair.snapshot(0, a).sender.rate;
    pair.links[1].filter = Box::new(|_| false);
    drive(&mut pair, &mut flows, secs(20));
    let during = pair.snapshot(0, a).sender;
    assert!(during.rate < before / 16.0 && during.timeouts > 3, "{before} {during:?}");
    pair.links[1].filter = Box::new(|_| true);
    drive(&mut pair, &mut flows, secs(60));
    let after = pair.snapshot(0, a).sender.rate;
    assert!(after > before / 4.0, "{before} {after}");
    assert_eq!(pair.closed(0), None);
}

/// RFC 5348 section 4.3: a data-limited sender is not slowed, and does not save up a burst.
#[test]
fn a_data_limited_sender_keeps_its_pace() {
    let mut pair = pair(25);
    let (a, b) = pair.open();
    let mut flows = [Flow::new(0, (a, b), 200).paced(ms(20))];
    drive(&mut pair, &mut flows, secs(60));
    assert!(flows[0].got.len() > 2990, "{}", flows[0].got.len());
    let longest = flows[0].arrivals.windows(2).map(|w| w[1] - w[0]).max().unwrap();
    assert!(longest < ms(60), "{longest:?}");
}
