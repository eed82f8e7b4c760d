use super::*;
use crate::wire::LossInterval;

const RTT: Duration = Duration::from_millis(100);

fn at(ms: u64) -> Time {
    Time::from_millis(1_000_000 + ms)
}

fn feedback<'a>(ms: u64, ack: u64, rate: u32, intervals: &'a [u8]) -> Feedback<'a> {
    Feedback {
        now: at(ms),
        ack: Seq::new(ack),
        vectors: &[],
        elapsed: Duration::ZERO,
        dropped: &[],
        slow_receiver: false,
        lost_acks: 0,
        loss_event_rate: None,
        loss_intervals: Some(intervals),
        receive_rate: Some(rate),
    }
}

fn value(list: &[(u32, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    let list =
        list.iter().map(|&(lossless, loss)| LossInterval { lossless, loss, data: lossless + loss });
    interval::emit(0, list, &mut out);
    out
}

/// Sends as fast as the rate allows from `from` to `to` ms. Returns the next sequence number.
fn send(sender: &mut TfrcSender, from: u64, to: u64, mut seq: u64) -> u64 {
    let mut now = at(from);
    while now < at(to) {
        match sender.permit(now, 1000) {
            Permit::Now => {
                sender.sent(Sent { now, seq: Seq::new(seq), data: true, size: 1000 });
                seq += 1;
            }
            Permit::At(next) => now = next,
            Permit::Blocked => unreachable!("a rate always allows a time"),
        }
    }
    seq
}

/// RFC 4342 section 8.1: the window counter counts quarters of round trips, at most five for a pause, and what is sent after
/// an acknowledgement belongs to another round trip than what it acknowledges.
#[test]
fn the_window_counter_follows_time_and_acknowledgements() {
    let mut sender = TfrcSender::new(1000, Some(RTT));
    let mut next = 0;
    let mut counter = |sender: &mut TfrcSender, ms| {
        let counter = sender.ccval(at(ms));
        next += 1;
        sender.sent(Sent { now: at(ms), seq: Seq::new(next), data: true, size: 1000 });
        counter
    };
    let counters = [0, 24, 26, 51, 80].map(|ms| counter(&mut sender, ms));
    assert_eq!(counters, [0, 0, 1, 2, 3]);
    let none = value(&[(5, 0)]);
    // The acknowledged packet had counter 2.
    sender.feedback(&feedback(90, 4, 60_000, &none));
    assert_eq!(counter(&mut sender, 91), 6);
    sender.feedback(&feedback(92, 4, 60_000, &none));
    assert_eq!(counter(&mut sender, 93), 6);
    assert_eq!(counter(&mut sender, 5000), 11);
}

/// RFC 5348 sections 4.2 and 4.3: an initial window for each round trip, doubled for each round trip
/// without loss, at most twice the receive rate.
#[test]
fn slow_start_doubles_up_to_twice_the_receive_rate() {
    let mut sender = TfrcSender::new(1000, Some(RTT));
    assert_eq!(sender.snapshot().rate, 40_000.0);
    let next = send(&mut sender, 0, 100, 1);
    assert!((4..=6).contains(&next), "{next}");
    let none = value(&[(5, 0)]);
    sender.feedback(&feedback(100, 1, 0, &none));
    assert_eq!(sender.snapshot().rate, 80_000.0);
    let next = send(&mut sender, 100, 200, next);
    sender.feedback(&feedback(200, next - 8, 50_000, &none));
    assert_eq!(sender.snapshot().rate, 160_000.0, "the first feedback's limit still holds");
    let mut next = next;
    for round in 2..6 {
        next = send(&mut sender, round * 100, round * 100 + 100, next);
        sender.feedback(&feedback(round * 100 + 100, next - 1, 60_000, &none));
    }
    assert_eq!(sender.snapshot().rate, 120_000.0);
}

/// RFC 5348 sections 4.3 and 6.3.1: after a loss event the equation rules.
#[test]
fn the_equation_rules_after_a_loss() {
    let mut sender = TfrcSender::new(1000, Some(RTT));
    let next = send(&mut sender, 0, 100, 1);
    sender.feedback(&feedback(100, 1, 0, &value(&[(5, 0)])));
    let next = send(&mut sender, 100, 200, next);
    let list = value(&[
        (100, 1),
        (100, 1),
        (100, 1),
        (100, 1),
        (100, 1),
        (100, 1),
        (100, 1),
        (100, 1),
        (100, 1),
    ]);
    sender.feedback(&feedback(200, next - 1, 1_000_000, &list));
    let snapshot = sender.snapshot();
    assert!((snapshot.loss_event_rate - 1.0 / 101.0).abs() < 1e-6);
    let rtt = snapshot.rtt.unwrap().as_secs_f64();
    let expected = equation::throughput(1000.0, rtt, 1.0 / 101.0);
    assert!((snapshot.rate / expected - 1.0).abs() < 0.02, "{} {expected}", snapshot.rate);
    // The first interval of all is replaced by one that the receive rate implies.
    let mut other = TfrcSender::new(1000, Some(RTT));
    let next = send(&mut other, 0, 100, 1);
    other.feedback(&feedback(100, next - 1, 40_000, &value(&[(1, 1), (100_000, 0)])));
    assert!(other.snapshot().loss_event_rate > 0.01, "{:?}", other.snapshot());
}

/// RFC 5348 section 4.4: without feedback the rate is halved, not below a packet each 64 seconds; an
/// idle sender keeps its rate, and its timer ends.
#[test]
fn silence_halves_the_rate() {
    let mut sender = TfrcSender::new(1000, Some(RTT));
    send(&mut sender, 0, 50, 1);
    let mut rates = vec![sender.snapshot().rate];
    for _ in 0..40 {
        let now = sender.deadline().unwrap();
        sender.sent(Sent { now, seq: Seq::new(100), data: true, size: 1000 });
        sender.timeout(now);
        rates.push(sender.snapshot().rate);
    }
    assert_eq!(rates[1], rates[0] / 2.0);
    assert_eq!(rates[40], 1000.0 / 64.0);
    let mut idle = TfrcSender::new(1000, Some(RTT));
    let next = send(&mut idle, 0, 50, 1);
    idle.feedback(&feedback(100, next - 1, 40_000, &value(&[(5, 0)])));
    let before = idle.snapshot().rate;
    let mut count = 0;
    while let Some(now) = idle.deadline() {
        idle.timeout(now);
        count += 1;
        assert!(count < 100, "an idle sender's timer ends");
    }
    assert!(idle.snapshot().rate >= before / 2.0);
}

/// RFC 4342 section 8.1: the window counter grows by one for each quarter of a round trip, at most five.
#[test]
fn the_window_counter_counts_quarters() {
    let mut sender = TfrcSender::new(1000, Some(RTT));
    let values: Vec<u8> = [0, 10, 25, 50, 80, 1000].map(|ms| sender.ccval(at(ms))).to_vec();
    assert_eq!(values, [0, 0, 1, 2, 3, 8]);
}

/// RFC 4340 sections 11.6 and 11.7.2.
#[test]
fn a_receiver_that_cannot_keep_up_slows_the_sender() {
    let mut sender = TfrcSender::new(1000, Some(RTT));
    let next = send(&mut sender, 0, 100, 1);
    let none = value(&[(5, 0)]);
    sender.feedback(&Feedback { slow_receiver: true, ..feedback(100, 1, 0, &none) });
    assert_eq!(sender.snapshot().rate, 40_000.0);
    let drops =
        Feedback { receive_rate: None, dropped: &[0xa0], ..feedback(110, next - 1, 0, &none) };
    sender.feedback(&drops);
    sender.feedback(&drops);
    assert_eq!(sender.snapshot().rate, 30_000.0);
}
