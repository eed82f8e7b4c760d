use super::*;
use proptest::prelude::*;

const SIZE: u32 = 1000;

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn sender() -> TcpLikeSender {
    TcpLikeSender::new(Seq::new(0), SIZE, Some(Duration::from_millis(100)))
}

fn send(sender: &mut TcpLikeSender, ms: u64, seqs: core::ops::Range<u64>) {
    for seq in seqs {
        let seq = Seq::new(seq);
        sender.sent(Sent { now: at(ms), seq, data: true, size: SIZE });
    }
}

fn feedback<'a>(ms: u64, ack: u64, vectors: &'a [&'a [u8]]) -> Feedback<'a> {
    Feedback {
        now: at(ms),
        ack: Seq::new(ack),
        vectors,
        elapsed: Duration::ZERO,
        dropped: &[],
        slow_receiver: false,
        lost_acks: 0,
        loss_event_rate: None,
        loss_intervals: None,
        receive_rate: None,
    }
}

/// RFC 4341 section 5 with RFC 3390: four packets of 1000 bytes at first, one more for every two
/// acknowledged.
#[test]
fn slow_start_opens_by_one_for_two() {
    let mut s = sender();
    assert_eq!(s.snapshot().cwnd, 4);
    send(&mut s, 0, 1..5);
    assert_eq!(s.permit(at(1), SIZE), Permit::Blocked);
    s.feedback(&feedback(100, 2, &[&[1]]));
    assert_eq!((s.snapshot().cwnd, s.snapshot().pipe), (5, 2));
    send(&mut s, 100, 5..8);
    s.feedback(&feedback(100, 4, &[&[3]]));
    assert_eq!(s.snapshot().cwnd, 6);
    assert_eq!(s.snapshot().rtt, Some(Duration::from_millis(100)));
}

/// RFC 4341 section 5: a loss halves the window once for a window of data.
#[test]
fn a_loss_halves_once() {
    let mut s = sender();
    (s.cwnd, s.ssthresh) = (20, 20);
    send(&mut s, 0, 1..21);
    // 5 and 6 are missing.
    s.feedback(&feedback(100, 8, &[&[1, 0xc1, 3]]));
    assert_eq!((s.snapshot().cwnd, s.snapshot().lost), (20, 0), "two acknowledged after them");
    s.feedback(&feedback(101, 9, &[&[2, 0xc1, 3]]));
    assert_eq!((s.snapshot().cwnd, s.snapshot().lost, s.snapshot().pipe), (10, 2, 11));
    // Another loss of the same window of data.
    s.feedback(&feedback(102, 14, &[&[3, 0xc0]]));
    assert_eq!((s.snapshot().cwnd, s.snapshot().lost), (10, 3));
    assert_eq!(s.snapshot().congestion_events, 1);
    // One of a later window.
    send(&mut s, 110, 21..27);
    s.feedback(&feedback(200, 26, &[&[2, 0xc0, 1]]));
    assert_eq!(s.snapshot().cwnd, 5);
}

/// RFC 4341 section 5: a mark counts as a loss.
#[test]
fn a_mark_halves() {
    let mut s = sender();
    send(&mut s, 0, 1..5);
    s.feedback(&feedback(100, 2, &[&[0x40, 0]]));
    assert_eq!((s.snapshot().cwnd, s.snapshot().lost, s.snapshot().pipe), (2, 0, 2));
}

/// RFC 4341 section 5: after a timeout the window is one packet, and nothing counts as in flight.
#[test]
fn a_timeout_leaves_one_packet() {
    let mut s = sender();
    send(&mut s, 0, 1..5);
    assert_eq!(s.deadline(), Some(at(500)));
    s.timeout(at(500));
    let snapshot = s.snapshot();
    assert_eq!((snapshot.cwnd, snapshot.pipe, snapshot.timeouts, snapshot.lost), (1, 0, 1, 4));
    assert_eq!((s.deadline(), s.permit(at(500), SIZE)), (None, Permit::Now));
    assert_eq!(s.ack_ratio(), Some(1));
    // A late acknowledgement does no harm.
    s.feedback(&feedback(501, 4, &[&[3]]));
    assert_eq!(s.snapshot().pipe, 0);
}

/// RFC 4341 section 5.1: an idle sender starts again from its initial window.
#[test]
fn idleness_reduces_the_window() {
    let mut s = sender();
    s.cwnd = 64;
    send(&mut s, 1000, 1..2);
    s.feedback(&feedback(1100, 1, &[]));
    assert_eq!(s.permit(at(1150), SIZE), Permit::Now);
    assert_eq!(s.snapshot().cwnd, 64, "an unused window stays");
    s.permit(at(1000 + 2 * 300), SIZE);
    assert!(s.snapshot().cwnd < 64);
    s.permit(at(60_000), SIZE);
    assert_eq!(s.snapshot().cwnd, 4);
    assert!(s.ssthresh >= 48);
}

/// RFC 4340 sections 11.6 and 11.7.2, RFC 4341 section 5.2.
#[test]
fn a_receiver_that_cannot_keep_up_slows_the_sender() {
    let mut s = sender();
    send(&mut s, 0, 1..5);
    s.feedback(&Feedback { slow_receiver: true, ..feedback(100, 2, &[&[1]]) });
    assert_eq!((s.snapshot().cwnd, s.ssthresh), (4, 4), "slow start ends");
    // Of the packets 4 and 3, newly acknowledged, the buffer had no room for 3; 2 was known before.
    s.feedback(&Feedback { dropped: &[0, 0xa1], ..feedback(300, 4, &[&[3]]) });
    assert_eq!(s.snapshot().cwnd, 3);
}

/// RFC 4340 section 11.7.2: corrupt data and unknown drop codes count as marks, other codes do not.
#[test]
fn corrupt_data_count_as_marks() {
    for (code, cwnd) in [(0, 5), (1, 5), (2, 3), (3, 2), (4, 2), (6, 2), (7, 2)] {
        let mut s = sender();
        send(&mut s, 0, 1..5);
        let dropped = [0, 0x80 | code << 4];
        s.feedback(&Feedback { dropped: &dropped, ..feedback(100, 2, &[&[1]]) });
        assert_eq!(s.snapshot().cwnd, cwnd, "code {code}");
    }
}

/// RFC 4341 section 5: one sample of the round-trip time for each window of data.
#[test]
fn the_round_trip_time_is_sampled_once_for_a_window() {
    let mut s = sender();
    send(&mut s, 0, 1..5);
    s.feedback(&feedback(100, 1, &[&[0]]));
    s.feedback(&feedback(300, 4, &[&[2]]));
    assert_eq!(s.snapshot().rtt, Some(Duration::from_millis(100)));
    send(&mut s, 300, 5..6);
    s.feedback(&feedback(580, 5, &[&[0]]));
    assert_eq!(s.snapshot().rtt, Some(Duration::from_micros(122_500)));
}

/// RFC 4341 section 6.1.2.
#[test]
fn lost_acknowledgements_raise_the_ratio() {
    let mut s = sender();
    s.cwnd = 20;
    send(&mut s, 0, 1..21);
    s.feedback(&Feedback { lost_acks: 1, ..feedback(100, 2, &[&[1]]) });
    assert_eq!(s.ack_ratio(), Some(4));
    let mut seq = 21;
    for round in 2..6 {
        send(&mut s, round * 100, seq..seq + 10);
        seq += 10;
        s.feedback(&feedback(round * 100 + 100, seq - 1, &[&[63]]));
    }
    assert_eq!(s.ack_ratio(), Some(3), "slowly less again");
}

proptest! {
    /// RFC 4341 section 5: what counts as in flight is what is neither acknowledged nor lost, whatever a
    /// receiver states.
    #[test]
    fn the_pipe_is_what_is_unacknowledged(
        steps in proptest::collection::vec(
            (0u8..8, any::<u8>(), proptest::collection::vec(any::<u8>(), 0..5)), 1..200),
    ) {
        let mut s = sender();
        let (mut next, mut now, mut sent) = (1u64, 1000u64, 0u64);
        for (step, number, vector) in steps {
            now += u64::from(number);
            match step {
                0..4 => {
                    while s.permit(at(now), SIZE) == Permit::Now {
                        send(&mut s, now, next..next + 1);
                        (next, sent) = (next + 1, sent + 1);
                    }
                    // An acknowledgement of the other direction.
                    s.sent(Sent { now: at(now), seq: Seq::new(next), data: false, size: 0 });
                    next += 1;
                }
                4 => s.timeout(at(now)),
                _ => {
                    let ack = next.saturating_sub(u64::from(number % 40));
                    s.feedback(&Feedback {
                        dropped: &vector,
                        slow_receiver: number == 7,
                        lost_acks: (number / 100).into(),
                        ..feedback(now, ack, &[&vector])
                    });
                }
            }
            let pending = s.flight.iter().filter(|record| record.fate == Fate::Pending).count();
            prop_assert_eq!(s.pipe as usize, pending);
            prop_assert!((1..=MAX_CWND).contains(&s.cwnd) && s.ssthresh >= 2);
            prop_assert_eq!(s.rto_at.is_some(), s.pipe > 0);
            prop_assert!(u64::from(s.pipe) + s.lost <= sent);
            prop_assert!(s.ack_ratio().is_some_and(|ratio| ratio >= 1));
        }
    }
}
