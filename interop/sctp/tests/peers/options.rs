//! What both ends can do besides ordered messages on a few streams, and that all implementations deliver
//! the same where they are given the same.

use super::end::{Ended, Kind, Limit, Offer, Post};
use super::script::{check, delivered, limited, mixed, post};
use super::tap::{COOKIE_ECHO, DATA, FORWARD_TSN, I_DATA, I_FORWARD_TSN, INIT};
use super::wire::{BAD, GOOD, Line, TWISTED, WORSE, WORST, World};
use Kind::{DcSctp, Proto, Ringway};
use ringway_sansio::Duration;
use std::collections::BTreeSet;

const PLAIN: [Offer; 2] = [Offer { interleaving: false, zero_checksum: false }; 2];

/// Every implementation with every other, opened from either side, and with itself.
const PAIRS: [[Kind; 2]; 9] = [
    [Ringway, Ringway],
    [Ringway, DcSctp],
    [DcSctp, Ringway],
    [Ringway, Proto],
    [Proto, Ringway],
    [DcSctp, DcSctp],
    [DcSctp, Proto],
    [Proto, DcSctp],
    [Proto, Proto],
];

/// Ringway with each other, opened from either side.
const OURS: [[Kind; 2]; 4] =
    [[Ringway, DcSctp], [DcSctp, Ringway], [Ringway, Proto], [Proto, Ringway]];

/// The same messages, ordered and not, between every two implementations: what came must be the same.
fn same(line: Line, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let posts = [mixed(40, 9, seed), mixed(40, 9, seed + 100)];
        let mut first = None;
        for kinds in PAIRS {
            let mut world = World::new(kinds, PLAIN, line, seed);
            let came = world.exchange([&posts[0], &posts[1]]);
            let came = [delivered(&came[0]), delivered(&came[1])];
            let first = first.get_or_insert_with(|| came.clone());
            assert!(*first == came, "{kinds:?} {line:?} {seed}");
        }
        // What two of Ringway's deliver is what was given.
        let whole = |list: &[Post]| {
            delivered(&list.iter().map(|p| (p.stream, p.data.clone())).collect::<Vec<_>>())
        };
        assert!(first == Some([whole(&posts[1]), whole(&posts[0])]), "{line:?} {seed}");
    }
}

#[test]
fn all_deliver_the_same_over_a_good_wire() {
    same(GOOD, 0..2);
    same(TWISTED, 2..5);
}

#[test]
fn all_deliver_the_same_over_a_bad_wire() {
    same(BAD, 5..8);
}

#[test]
fn all_deliver_the_same_where_a_tenth_is_lost() {
    same(WORSE, 8..11);
}

#[test]
fn all_deliver_the_same_where_a_fifth_is_lost() {
    same(WORST, 11..14);
}

/// RFC 9260 section 5.1.1: one message or two on each of many streams.
#[test]
fn many_streams() {
    for kinds in OURS {
        let posts: Vec<Post> = (0..1500)
            .map(|n| post(n, (n * 7 % 1000) as u16, 1 + n % 60, n % 5 == 4, Limit::Never))
            .collect();
        let mut world = World::new(kinds, PLAIN, BAD, 3);
        for came in world.exchange([&posts, &posts]) {
            assert_eq!(check(&posts, &came), 0, "{kinds:?}");
        }
    }
}

/// Whether dcsctp gives messages up by their age. Its release 0.1.16 drops what is left of one that
/// expires half sent (`SendQueue::get_stream_to_produce_from`), without a FORWARD-TSN, and sends another in
/// place of its other fragments. Ringway either ends the association ("a message begins within another")
/// or waits for the end of the message. So it is given small messages, one by one, that are not cut.
fn may_drop_half(kinds: &[Kind], limit: Limit) -> bool {
    matches!(limit, Limit::Lifetime(_)) && kinds.contains(&DcSctp)
}

/// Messages with a limit both ways, over wires that lose: some do not come to either end, each end says
/// so by chunks of type `forward`, and nothing else is held up.
fn give_up(kinds: [Kind; 2], offer: Offer, limit: Limit, forward: u8) {
    let (mut missing, mut forwarded) = ([0, 0], [0, 0]);
    for (line, seed) in [(WORSE, 20), (WORSE, 21), (WORST, 22), (WORST, 23)] {
        let script = |side: usize| {
            let seed = seed + 100 * side as u64;
            let half = may_drop_half(&kinds[side..=side], limit);
            limited(60, 4, seed, limit, if half { 300 } else { usize::MAX })
        };
        let posts = [script(0), script(1)];
        let mut world = World::new(kinds, [offer; 2], line, seed);
        world.pace = may_drop_half(&kinds, limit).then_some(Duration::from_millis(30));
        let came = world.exchange([&posts[0], &posts[1]]);
        for side in 0..2 {
            missing[side] += check(&posts[1 - side], &came[side]);
            forwarded[side] += usize::from(world.taps[side].kinds.contains(&forward));
        }
        world.close(usize::from(kinds[1] == Ringway));
    }
    for counts in [missing, forwarded] {
        assert!(
            counts.iter().all(|&count| count > 0),
            "{kinds:?} {limit:?} {missing:?} {forwarded:?}"
        );
    }
}

/// RFC 3758 section 3.5: what is lost too often is given up, either way.
#[test]
fn messages_are_given_up_after_retransmissions() {
    for kinds in OURS {
        for count in [0, 1] {
            give_up(kinds, PLAIN[0], Limit::Retransmits(count), FORWARD_TSN);
        }
    }
}

/// RFC 3758 section 4.1: so is what is older than its lifetime.
#[test]
fn messages_are_given_up_after_a_time() {
    for kinds in OURS {
        give_up(kinds, PLAIN[0], Limit::Lifetime(60), FORWARD_TSN);
    }
}

/// RFC 8260 section 2.3: interleaved messages are given up by I-FORWARD-TSN.
#[test]
fn interleaved_messages_are_given_up() {
    let offer = Offer { interleaving: true, ..Offer::default() };
    for kinds in [[Ringway, DcSctp], [DcSctp, Ringway]] {
        for limit in [Limit::Retransmits(0), Limit::Retransmits(1), Limit::Lifetime(60)] {
            give_up(kinds, offer, limit, I_FORWARD_TSN);
        }
    }
}

const STREAMS: u16 = 5;
const RESET: [u16; 2] = [1, 3];

/// RFC 6525: the numbers of streams that were reset begin at 0, those of the others go on from `next`.
fn numbers_are_right(world: &World, next: u32) {
    for tap in &world.taps {
        for stream in 0..STREAMS {
            let first = if RESET.contains(&stream) { 0 } else { next };
            let numbers: BTreeSet<u32> = (first..first + 10).collect();
            assert_eq!(tap.numbers[&stream], numbers, "stream {stream}");
        }
    }
}

/// One end resets streams, and the other is told.
fn reset(world: &mut World, side: usize) {
    world.ends[side].reset(&RESET);
    let mut told = BTreeSet::new();
    world.until("not reset", |world| {
        told.append(&mut world.ends[1 - side].resets());
        told.iter().eq(&RESET)
    });
}

/// The first end resets two of five streams and then the other end does, as RFC 8831 section 6.7 has
/// it, twice.
fn begin_anew(kinds: [Kind; 2], offer: Offer, line: Line) {
    let mut world = World::new(kinds, [offer; 2], line, 30 + line.lost);
    let stream = |n: usize| n as u16 % STREAMS;
    let posts: Vec<Post> = (0..50).map(|n| post(n, stream(n), 200, false, Limit::Never)).collect();
    for round in 0..3 {
        world.taps.iter_mut().for_each(|tap| tap.numbers.clear());
        for came in world.exchange([&posts, &posts]) {
            assert_eq!(check(&posts, &came), 0, "{kinds:?}");
        }
        numbers_are_right(&world, round * 10);
        world.rest();
        reset(&mut world, 0);
        reset(&mut world, 1);
        world.rest();
    }
    world.close(usize::from(kinds[1] == Ringway));
}

// By their sources, dcsctp 0.1.16 answers a request to reset its own streams (RFC 6525 section 4.2) with
// "nothing to do" and resets none, sctp-proto 0.10.8 does not know it, and neither knows added streams or a
// reset of everything: of RFC 6525 only the outgoing reset can be tried with them.

#[test]
fn streams_begin_anew() {
    for kinds in OURS {
        for line in [GOOD, TWISTED, BAD, WORSE] {
            begin_anew(kinds, PLAIN[0], line);
        }
    }
}

/// RFC 8260 section 2.1: so do the numbers of interleaved messages.
#[test]
fn interleaved_streams_begin_anew() {
    let offer = Offer { interleaving: true, ..Offer::default() };
    for kinds in [[Ringway, DcSctp], [DcSctp, Ringway]] {
        begin_anew(kinds, offer, WORSE);
    }
}

/// RFC 8260 section 2.2.1: I-DATA where both ends offer it, nowhere else. Then small messages overtake a
/// large one that was given before them.
#[test]
fn messages_are_interleaved_where_both_offer_it() {
    let with = Offer { interleaving: true, ..Offer::default() };
    for kinds in [[Ringway, DcSctp], [DcSctp, Ringway]] {
        for offers in [[with, with], [with, PLAIN[0]], [PLAIN[0], with]] {
            let both = offers == [with; 2];
            let mut posts = vec![post(0, 0, 300_000, false, Limit::Never)];
            posts.extend((1..20).map(|n| post(n, 1, 100, false, Limit::Never)));
            // A chunk that is lost would let the small messages pass in any case.
            let line = if both { BAD } else { GOOD };
            let mut world = World::new(kinds, offers, line, 40);
            for came in world.exchange([&posts, &posts]) {
                assert_eq!(check(&posts, &came), 0, "{kinds:?}");
                assert_eq!(came[0].0, u16::from(both), "{kinds:?} {offers:?}");
            }
            for tap in &world.taps {
                assert_eq!(tap.kinds.contains(&I_DATA), both, "{kinds:?} {offers:?}");
                assert_eq!(tap.kinds.contains(&DATA), !both, "{kinds:?} {offers:?}");
            }
        }
    }
}

/// Messages of all sizes, ordered and not, interleaved.
#[test]
fn interleaved_messages_are_whole() {
    let offer = Offer { interleaving: true, ..Offer::default() };
    for (kinds, seed) in [([Ringway, DcSctp], 50), ([DcSctp, Ringway], 51)] {
        for line in [TWISTED, WORSE, WORST] {
            let posts = [mixed(60, 9, seed), mixed(60, 9, seed + 100)];
            let mut world = World::new(kinds, [offer; 2], line, seed);
            let came = world.exchange([&posts[0], &posts[1]]);
            assert_eq!([check(&posts[0], &came[1]), check(&posts[1], &came[0])], [0, 0]);
        }
    }
}

/// RFC 9653 section 5: an end leaves checksums out where the other has offered to take such packets, but
/// never of what opens an association. dcsctp does so only where it offers it too (section 5.3 allows
/// that), Ringway as well.
#[test]
fn checksums_are_zero_where_both_offer_it() {
    let with = Offer { zero_checksum: true, ..Offer::default() };
    for kinds in [[Ringway, DcSctp], [DcSctp, Ringway]] {
        for offers in [PLAIN, [with, with], [with, PLAIN[0]], [PLAIN[0], with]] {
            let posts = mixed(30, 4, 60);
            let mut world = World::new(kinds, offers, BAD, 60);
            for came in world.exchange([&posts, &posts]) {
                assert_eq!(check(&posts, &came), 0, "{kinds:?}");
            }
            for tap in &world.taps {
                let bare = tap.unsummed.contains(&DATA);
                assert_eq!(bare, offers == [with; 2], "{kinds:?} {offers:?}");
                assert!(bare || tap.unsummed.is_empty(), "{kinds:?} {offers:?}");
                assert!(!tap.unsummed.contains(&INIT) && !tap.unsummed.contains(&COOKIE_ECHO));
            }
        }
    }
}

/// RFC 9260 section 9.2: whatever an end was given before its shutdown is delivered.
#[test]
fn a_shutdown_leaves_nothing_behind() {
    for kinds in OURS {
        for line in [GOOD, BAD, WORSE] {
            for closer in 0..2 {
                // The SHUTDOWN of sctp-proto is wrong (see `main`).
                if kinds[closer] != Proto {
                    shut_down_busy(kinds, line, closer);
                }
            }
        }
    }
}

fn shut_down_busy(kinds: [Kind; 2], line: Line, closer: usize) {
    let posts = mixed(60, 4, 70);
    let mut world = World::new(kinds, PLAIN, line, 70);
    assert_eq!(world.give(closer, &posts), posts.len());
    world.ends[closer].shutdown(world.now);
    world.until_over();
    assert_eq!(check(&posts, &world.inbox[1 - closer]), 0, "{kinds:?} {closer}");
}

/// RFC 9260 section 9.1: the other end is told, with the reason, while data is under way both ways. Where
/// packets overtake each other, the answer to a stray one (section 8.4), which gives no reason, may be first.
#[test]
fn an_abort_ends_it_at_once() {
    for kinds in OURS {
        for side in 0..2 {
            // sctp-proto 0.10.8 has no call that sends an ABORT: its `close` says nothing to the other end.
            if kinds[side] != Proto {
                abort_busy(kinds, side);
            }
        }
    }
}

fn abort_busy(kinds: [Kind; 2], side: usize) {
    let posts = mixed(60, 4, 80);
    let mut world = World::new(kinds, PLAIN, GOOD, 80);
    for side in 0..2 {
        assert_eq!(world.give(side, &posts), posts.len());
    }
    world.step();
    let began = world.now;
    world.ends[side].abort(world.now);
    world.until_over();
    assert!(world.now < began + Duration::from_millis(100), "{kinds:?} {side}");
    match world.ends[1 - side].ended() {
        Some(Ended::Aborted(text)) => {
            let reason = if kinds[side] == Ringway { "enough" } else { "Close called" };
            assert!(text.contains(reason), "{kinds:?}: {text}");
        }
        other => assert!(kinds[1 - side] == Proto && other == Some(Ended::Somehow), "{other:?}"),
    }
}
