use super::*;
use crate::properties::{CapacityProfile, Coverage};
use proptest::prelude::*;

const NOW: Time = Time::from_secs(1);

fn sending() -> Sending {
    Sending {
        lifetime: None,
        priority: 100,
        ordered: true,
        reliable: true,
        last: false,
        checksum: Coverage(None),
        capacity_profile: CapacityProfile::Default,
        max_retransmissions: None,
        no_fragmentation: false,
        no_segmentation: false,
    }
}

fn queue(scheduler: Scheduler) -> SendQueue<&'static str> {
    SendQueue::new(Limits { messages: 6, octets: 1_000 }, scheduler)
}

fn drain<M>(queue: &mut SendQueue<M>) -> Vec<M> {
    core::iter::from_fn(|| queue.next(NOW, |_| true).map(|next| next.message)).collect()
}

fn events<M>(queue: &mut SendQueue<M>) -> Vec<Event> {
    core::iter::from_fn(|| queue.poll_event()).collect()
}

/// RFC 9622 section 9.1.3.3 and 9.1.3.2.
#[test]
fn unordered_messages_pass_by_priority_and_ordered_ones_do_not() {
    let mut queue = queue(Scheduler::default());
    let mut push = |message, priority, ordered| {
        let sending = Sending { priority, ordered, ..sending() };
        queue.push(NOW, 1, message, 1, sending).unwrap();
    };
    push("first", 100, true);
    push("second, although urgent", 0, true);
    push("background", 200, false);
    push("urgent", 1, false);
    assert_eq!(drain(&mut queue), ["urgent", "first", "second, although urgent", "background"]);
}

/// RFC 9622 section 9.1.3.5.
#[test]
fn the_last_message_goes_behind_all_and_nothing_follows() {
    let mut queue = queue(Scheduler::default());
    queue.push(NOW, 1, "one", 1, Sending { priority: 200, ..sending() }).unwrap();
    queue.push(NOW, 1, "last", 1, Sending { last: true, priority: 0, ..sending() }).unwrap();
    assert_eq!(queue.push(NOW, 1, "more", 1, sending()), Err((PushError::Ended, "more")));
    queue.push(NOW, 2, "another connection's", 1, sending()).unwrap();
    assert_eq!(drain(&mut queue), ["one", "another connection's", "last"]);
}

/// RFC 9622 section 9.2.6: connPriority goes before msgPriority.
#[test]
fn the_priority_of_the_connection_counts_before_that_of_the_message() {
    for scheduler in [Scheduler::Priority, Scheduler::WeightedFairQueueing] {
        let mut queue = queue(scheduler);
        queue.set_priority(1, 1);
        queue.set_priority(2, 0);
        queue.push(NOW, 1, "later", 10, Sending { priority: 0, ..sending() }).unwrap();
        queue.push(NOW, 2, "sooner", 10, Sending { priority: 1, ..sending() }).unwrap();
        assert_eq!(drain(&mut queue), ["sooner", "later"], "{scheduler}");
    }
}

/// RFC 9622 section 9.1.3.1.
#[test]
fn an_expired_message_is_dropped_with_an_event() {
    let mut queue = queue(Scheduler::default());
    let lifetime = Some(Duration::from_millis(100));
    let id = queue.push(NOW, 1, "old", 1, Sending { lifetime, ..sending() }).unwrap();
    queue.push(NOW, 1, "kept", 1, sending()).unwrap();
    assert_eq!(queue.poll_timeout(), Some(NOW + Duration::from_millis(100)));
    let next = queue.next(NOW + Duration::from_millis(100), |_| true).unwrap();
    assert_eq!((next.message, next.lifetime_left), ("kept", None));
    assert_eq!(events(&mut queue), [Event::Expired(1, id)]);
    assert_eq!(queue.poll_timeout(), None);
    queue.push(NOW, 1, "young", 1, Sending { lifetime, ..sending() }).unwrap();
    let next = queue.next(NOW + Duration::from_millis(40), |_| true).unwrap();
    assert_eq!(next.lifetime_left, Some(Duration::from_millis(60)));
}

/// RFC 7496 section 3.3.
#[test]
fn a_full_queue_drops_unreliable_messages_of_lower_priority() {
    let mut queue = queue(Scheduler::default());
    let unreliable = |priority| Sending { reliable: false, priority, ..sending() };
    let worst = queue.push(NOW, 1, "worst", 1, unreliable(300)).unwrap();
    for message in ["a", "b", "c", "d"] {
        queue.push(NOW, 1, message, 1, sending()).unwrap();
    }
    queue.push(NOW, 1, "bad", 1, unreliable(200)).unwrap();
    queue.push(NOW, 1, "e", 1, sending()).unwrap();
    assert_eq!(events(&mut queue), [Event::Discarded(1, worst)]);
    // What is not less important stays, and the new one is refused.
    let refused = queue.push(NOW, 1, "f", 1, unreliable(200)).unwrap_err();
    assert_eq!(refused, (PushError::Full { messages: 6, octets: 6 }, "f"));
    // Nothing is dropped for a message that does not fit anyway.
    assert!(queue.push(NOW, 1, "too large", 2_000, sending()).is_err());
    assert!(queue.push(NOW, 1, "large", 999, sending()).is_err());
    assert!(events(&mut queue).is_empty());
    assert_eq!((queue.len(), queue.refused()), (6, 3));
}

#[test]
fn a_connection_that_cannot_take_a_message_blocks_no_other() {
    let mut queue = queue(Scheduler::FirstComeFirstServed);
    queue.push(NOW, 1, "blocked", 1, sending()).unwrap();
    queue.push(NOW, 2, "free", 1, sending()).unwrap();
    assert_eq!(queue.next(NOW, |connection| connection != 1).unwrap().message, "free");
    assert_eq!(queue.next(NOW, |connection| connection != 1), None);
    assert_eq!(queue.remove(1).len(), 1);
    assert!(queue.is_empty() && queue.poll_timeout().is_none() && queue.octets() == 0);
}

/// RFC 8260 section 3: the octets that two connections get out of 1,200 messages of different sizes.
fn shares(scheduler: Scheduler, priorities: [u32; 2]) -> [usize; 2] {
    let mut queue = SendQueue::new(Limits::default(), scheduler);
    for (connection, priority) in (0..).zip(priorities) {
        queue.set_priority(connection, priority);
        for _ in 0..600 {
            let length = if connection == 0 { 100 } else { 300 };
            queue.push(NOW, connection, length, length, sending()).unwrap();
        }
    }
    let mut shares = [0; 2];
    while shares.iter().sum::<usize>() < 60_000 {
        let next = queue.next(NOW, |_| true).unwrap();
        shares[next.connection as usize] += next.message;
    }
    shares
}

/// RFC 8260 sections 3.2 to 3.6.
#[test]
fn schedulers_share_as_they_are_named() {
    let [one, other] = shares(Scheduler::RoundRobin, [100, 100]);
    assert!(one * 3 >= other - 600 && one * 3 <= other + 600, "{one} {other}");
    let [one, other] = shares(Scheduler::FairBandwidth, [100, 100]);
    assert!(one.abs_diff(other) <= 600, "{one} {other}");
    let [one, other] = shares(Scheduler::WeightedFairQueueing, [0, 2]);
    assert!(one.abs_diff(3 * other) <= 1_800, "{one} {other}");
    let [one, other] = shares(Scheduler::Priority, [7, 3]);
    assert!(one == 0 && other >= 60_000, "{one} {other}");
}

proptest! {
    /// Every message has one outcome, ordered ones of a connection keep their order, and the bounds hold.
    #[test]
    fn every_message_has_one_outcome(
        steps in proptest::collection::vec((0u8..4, 0u64..3, 0u32..4, 0usize..300, any::<[bool; 3]>()), 1..200),
        scheduler in proptest::sample::select(Scheduler::ALL),
    ) {
        let mut queue = SendQueue::new(Limits { messages: 8, octets: 1_000 }, scheduler);
        let (mut pushed, mut done) = (Vec::new(), Vec::new());
        let mut order: BTreeMap<ConnectionId, MessageId> = BTreeMap::new();
        let mut now = NOW;
        for (step, connection, priority, length, [ordered, reliable, lives]) in steps {
            now += Duration::from_millis(7);
            match step {
                0 | 1 => {
                    let lifetime = lives.then_some(Duration::from_millis(20));
                    let sending = Sending { priority, ordered, reliable, lifetime, ..sending() };
                    if let Ok(id) = queue.push(now, connection, ordered, length, sending) {
                        pushed.push(id);
                    }
                }
                2 => {
                    if let Some(next) = queue.next(now, |other| other != connection) {
                        done.push(next.id);
                        if next.message {
                            let before = order.insert(next.connection, next.id);
                            prop_assert!(before.is_none_or(|before| before < next.id));
                        }
                    }
                }
                _ => queue.set_priority(connection, priority),
            }
            prop_assert!(queue.len() <= 8 && queue.octets() <= 1_000);
        }
        done.extend(events(&mut queue).iter().map(|event| match event {
            Event::Expired(_, id) | Event::Discarded(_, id) => *id,
        }));
        for connection in 0..3 {
            done.extend(queue.remove(connection));
        }
        done.sort_unstable();
        prop_assert_eq!(done, pushed);
        prop_assert!(queue.is_empty() && queue.octets() == 0 && queue.poll_timeout().is_none());
        prop_assert!(queue.turns.is_empty() && queue.expendable.is_empty());
    }
}
