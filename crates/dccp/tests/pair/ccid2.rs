//! CCID 2 over a bottleneck (RFC 4341).

use crate::support::*;
use ringway_dccp::{Ccid, ConnId, Settings};
use ringway_sansio::Time;

fn bottleneck(rate: u64, queue: usize) -> Pair {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(25));
    pair.keep_log = false;
    pair.links[0].rate = Some(rate);
    pair.links[0].queue = queue;
    pair
}

fn rate_of(flow: &Flow, from: Time, to: Time) -> f64 {
    flow.rate(from, to)
}

/// RFC 4341 section 5: the window fills the link and its queue.
#[test]
fn one_flow_fills_the_bottleneck() {
    let mut pair = bottleneck(250_000, 30);
    let ends = pair.open();
    let mut flows = [Flow::new(0, ends, 1000)];
    drive(&mut pair, &mut flows, secs(20));
    let begin = pair.now;
    drive(&mut pair, &mut flows, secs(60));
    let rate = rate_of(&flows[0], begin, pair.now);
    assert!(rate > 0.85 * 250_000.0, "{rate}");
    let snapshot = pair.snapshot(0, ends.0);
    assert!(snapshot.sender.congestion_events > 3, "{:?}", snapshot.sender);
    assert!(snapshot.sender.timeouts <= 2, "{:?}", snapshot.sender);
}

/// RFC 4341 section 5: two flows share a bottleneck evenly, also when one begins later.
#[test]
fn two_flows_share_a_bottleneck() {
    let mut pair = bottleneck(500_000, 40);
    let one = pair.open();
    let mut flows = vec![Flow::new(0, one, 1000)];
    drive(&mut pair, &mut flows, secs(20));
    let two = pair.open();
    flows.push(Flow::new(0, two, 1000));
    drive(&mut pair, &mut flows, secs(40));
    let begin = pair.now;
    drive(&mut pair, &mut flows, secs(80));
    let rates: Vec<f64> = flows.iter().map(|flow| rate_of(flow, begin, pair.now)).collect();
    let (sum, squares) = (rates[0] + rates[1], rates[0].powi(2) + rates[1].powi(2));
    let fairness = sum * sum / (2.0 * squares);
    assert!(fairness > 0.9, "Jain's index {fairness}: {rates:?}");
    assert!(sum > 0.85 * 500_000.0, "{rates:?}");
}

/// RFC 4341 section 5, RFC 4340 section 12: marks slow the sender as losses do, and nothing is lost.
#[test]
fn marks_replace_losses() {
    let mut pair = bottleneck(250_000, 200);
    pair.links[0].mark_from = Some(10);
    let ends = pair.open();
    let mut flows = [Flow::new(0, ends, 1000)];
    drive(&mut pair, &mut flows, secs(60));
    let sender = pair.snapshot(0, ends.0).sender;
    assert!(pair.links[0].marked > 10 && sender.congestion_events > 5, "{sender:?}");
    assert_eq!((pair.links[0].dropped, sender.lost, sender.timeouts), (0, 0, 0));
    let rate = flows[0].got.len() as f64 * 1000.0 / 60.0;
    assert!(rate > 0.8 * 250_000.0, "{rate}");
}

/// RFC 4341 section 6.1.2: lost acknowledgements raise the Ack Ratio, which the receiver obeys.
#[test]
fn lost_acknowledgements_raise_the_ack_ratio() {
    let run = |lose: u64| {
        let mut pair = Pair::new(Settings::default(), Settings::default(), ms(50));
        pair.links[0].rate = Some(2_000_000);
        pair.links[0].queue = 500;
        pair.links[1].lose = lose;
        let ends = pair.open();
        let mut flows = [Flow::new(0, ends, 1000)];
        // A timeout takes the ratio back.
        let mut ratio = 0;
        for _ in 0..30 {
            drive(&mut pair, &mut flows, secs(1));
            ratio = ratio.max(pair.snapshot(0, ends.0).ack_ratio);
        }
        let acks = pair.count("Ack");
        let data = flows[0].got.len();
        (ratio, data as f64 / acks as f64)
    };
    let (plain, sparse) = (run(0), run(200));
    assert_eq!(plain.0, 2);
    assert!(plain.1 < 2.6, "{plain:?}");
    assert!(sparse.0 > 3 && sparse.1 > 1.5 * plain.1, "{sparse:?} {plain:?}");
}

/// RFC 4341 section 5: an outage is survived by timeouts, each of which leaves one packet in flight.
#[test]
fn an_outage_is_survived() {
    let mut pair = bottleneck(500_000, 40);
    let (a, b): (ConnId, ConnId) = pair.open();
    let mut flows = [Flow::new(0, (a, b), 1000)];
    drive(&mut pair, &mut flows, secs(10));
    pair.links[0].filter = Box::new(|_| false);
    drive(&mut pair, &mut flows, secs(10));
    let during = pair.snapshot(0, a);
    assert!(during.sender.timeouts >= 3 && during.sender.cwnd == 1, "{:?}", during.sender);
    pair.links[0].filter = Box::new(|_| true);
    drive(&mut pair, &mut flows, secs(40));
    let begin = pair.now;
    drive(&mut pair, &mut flows, secs(10));
    assert!(rate_of(&flows[0], begin, pair.now) > 0.8 * 500_000.0);
    assert_eq!(pair.snapshot(0, a).sender_ccid, Ccid::TcpLike);
}

/// RFC 4340 section 11.4.1 and appendix A: what is reported stays short, because the sender acknowledges
/// acknowledgements.
#[test]
fn ack_vectors_stay_short() {
    let mut pair = bottleneck(1_000_000, 60);
    let (a, b) = pair.open();
    let mut flows = [Flow::new(0, (a, b), 1300)];
    let mut longest = 0;
    for _ in 0..300 {
        drive(&mut pair, &mut flows, ms(100));
        longest = longest.max(pair.snapshot(1, b).reported);
        longest = longest.max(pair.snapshot(0, a).reported);
    }
    assert!(longest < 500, "{longest}");
    assert_eq!(pair.snapshot(1, b).totals.vectors_cut, 0);
}
