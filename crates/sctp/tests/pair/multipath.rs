//! Data over several paths at once (CMT), over links with a rate and a queue.

use super::support::*;
use ringway_sansio::{Duration, Time};
use ringway_sctp::{AssocId, Multipath, PathState, SendOptions, Settings};
use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

/// A link: bytes a second, the queue before it in bytes, and the way.
struct Link {
    rate: u64,
    queue: u64,
    delay: Duration,
    free: Time,
    /// Drops some before the queue is full, so that flows are hit by how much they send.
    dice: Dice,
}

impl Link {
    fn new(rate: u64, queue: u64) -> Link {
        Link { rate, queue, delay: ms(20), free: Time::ZERO, dice: Dice::new(1) }
    }

    /// How long a packet takes; `None` when the queue is full.
    fn carry(&mut self, now: Time, size: u64) -> Option<Duration> {
        let waits = self.free.since(now);
        let filled = waits.as_nanos() as u64 * self.rate / 1_000_000_000;
        let half = self.queue / 2;
        let early = filled > half && self.dice.below(half * 40) < filled - half;
        if filled > self.queue || early {
            return None;
        }
        let takes = Duration::from_nanos(size * 1_000_000_000 / self.rate);
        self.free = self.free.max(now) + takes;
        Some(waits + takes + self.delay)
    }
}

/// A wire of two links from a to b, the second for the second addresses, and back without a bound.
/// With `shared` all goes over the first.
fn links(rate: u64, queue: u64, shared: bool, cut: Rc<Cell<bool>>) -> Wire {
    let mut links = [Link::new(rate, queue), Link::new(rate, queue)];
    Box::new(move |now, packet| {
        let second = |address: IpAddr| [A2, B2].contains(&address);
        let (from, to) = (packet.addressing.source, packet.addressing.destination);
        if second(from) != second(to) || (second(to) && cut.get()) {
            return Vec::new();
        }
        if !packet.to_b {
            return vec![ms(20)];
        }
        let index = usize::from(second(to) && !shared);
        let size = packet.bytes.len() as u64 + 20;
        links[index].carry(now, size).into_iter().collect()
    })
}

fn fast(multipath: Multipath) -> Settings {
    Settings {
        multipath,
        send_buffer: 1 << 20,
        receive_buffer: 1 << 20,
        rto_min: ms(200),
        sack_delay: ms(100),
        ..Settings::default()
    }
}

/// Sends as much as there is room for, for some time. Returns the bytes that each association
/// delivered.
fn transfer(
    pair: &mut Pair,
    ids: &[(AssocId, AssocId)],
    unordered: bool,
    time: Duration,
) -> Vec<u64> {
    let until = pair.now + time;
    let mut got = vec![0; ids.len()];
    let data = vec![7u8; 1400];
    let mut out = Vec::new();
    while pair.now < until {
        for (n, (a, b)) in ids.iter().enumerate() {
            let options = SendOptions { unordered, ..SendOptions::default() };
            while pair.a.send(pair.now, *a, &options, data.clone()).is_ok() {}
            while let Ok(Some(received)) = pair.b.recv(*b, &mut out) {
                got[n] += received.len as u64;
                out.clear();
            }
        }
        if !pair.step(until) {
            break;
        }
    }
    got
}

fn one_or_two(multipath: Multipath, addresses: usize) -> u64 {
    let wire = links(500_000, 30_000, false, Rc::default());
    let mut pair = Pair::over(fast(multipath), fast(multipath), wire);
    pair.keep_log = false;
    let (a, b) = pair.open_over(&[A1, A2][..addresses], &[B1, B2][..addresses]);
    pair.run(secs(5));
    let got = transfer(&mut pair, &[(a, b)], true, secs(20))[0];
    let totals = pair.a.snapshot(a).unwrap().totals;
    assert!(totals.timeouts < 5, "{totals:?}");
    got
}

/// Two equal paths carry nearly twice what one does: split fast retransmit, window growth by path
/// and patient SACKs keep the order that two paths upset from being taken for loss.
#[test]
fn two_paths_carry_twice() {
    let one = one_or_two(Multipath::Off, 1);
    assert!(one > 8_000_000, "{one}");
    for multipath in [Multipath::Independent, Multipath::Pooled] {
        let two = one_or_two(multipath, 2);
        assert!(two as f64 >= 1.8 * one as f64, "{multipath:?}: {two} to {one}");
    }
}

/// What a pair carries in 20 s over the first or both of two paths of so many bytes a second and so long
/// a round trip, each with a queue of 40,000 bytes, into a receive buffer.
fn unequal(
    multipath: Multipath,
    addresses: usize,
    rates: [u64; 2],
    trips: [u64; 2],
    receive_buffer: usize,
) -> u64 {
    let mut links = [0, 1].map(|n| Link { delay: ms(trips[n] / 2), ..Link::new(rates[n], 40_000) });
    let wire: Wire = Box::new(move |now, packet| {
        let second = |address: IpAddr| [A2, B2].contains(&address);
        let (from, to) = (packet.addressing.source, packet.addressing.destination);
        let index = usize::from(second(to));
        if second(from) != second(to) {
            return Vec::new();
        }
        if !packet.to_b {
            return vec![links[index].delay];
        }
        links[index].carry(now, packet.bytes.len() as u64 + 20).into_iter().collect()
    });
    let settings = Settings { receive_buffer, ..fast(multipath) };
    let mut pair = Pair::over(settings, settings, wire);
    pair.keep_log = false;
    let (a, b) = pair.open_over(&[A1, A2][..addresses], &[B1, B2][..addresses]);
    pair.run(secs(5));
    transfer(&mut pair, &[(a, b)], false, secs(20))[0]
}

/// RFC 6356 section 2, goal 1: several paths carry what the best of them carries alone, also where the
/// receive buffer is small, so that what is under way on a slow path could fill it.
#[test]
fn unequal_paths_are_no_worse_than_the_best() {
    let cases = [
        ([500_000, 50_000], [20, 200]),
        ([500_000, 500_000], [10, 200]),
        ([500_000, 500_000], [40, 40]),
    ];
    for (rates, trips) in cases {
        for buffer in [1 << 20, 100_000, 32_000] {
            let one = unequal(Multipath::Off, 1, rates, trips, buffer);
            for multipath in [Multipath::Independent, Multipath::Pooled] {
                let two = unequal(multipath, 2, rates, trips, buffer);
                let share = two as f64 / one as f64;
                let what = format!("{multipath:?}, {rates:?}, {trips:?} ms, {buffer} bytes");
                let least = if trips[0] == trips[1] && buffer > 50_000 { 1.75 } else { 0.9 };
                assert!(share > least, "{what}: {share:.2} of the best alone");
            }
        }
    }
}

/// RFC 6356 section 2: over a bottleneck that both paths share, pooled windows take no more than one
/// association beside them; independent ones take more.
#[test]
fn pooled_paths_do_no_harm() {
    let share = |multipath| {
        let wire = links(1_000_000, 40_000, true, Rc::default());
        let mut pair = Pair::over(fast(multipath), fast(Multipath::Off), wire);
        pair.keep_log = false;
        let (a, b) = pair.open_over(&[A1, A2], &[B1, B2]);
        let off = Some(fast(Multipath::Off));
        let other = pair.a.connect(pair.now, &[A1], 0, &[B1], PORT, off).unwrap();
        pair.run(secs(5));
        let peer = pair.events[1].iter().find_map(|event| match event {
            ringway_sctp::Event::Up { id, .. } if *id != b => Some(*id),
            _ => None,
        });
        let ids = [(a, b), (other, peer.unwrap())];
        let got = transfer(&mut pair, &ids, true, secs(60));
        got[0] as f64 / got[1] as f64
    };
    let (pooled, greedy) = (share(Multipath::Pooled), share(Multipath::Independent));
    assert!(pooled < 1.3 && pooled > 0.5, "{pooled}");
    assert!(greedy > pooled + 0.2, "{greedy} and {pooled}");
}

/// A path that dies takes nothing with it, and comes back.
#[test]
fn a_dead_path_loses_no_message() {
    let cut: Rc<Cell<bool>> = Rc::default();
    let wire = links(500_000, 30_000, false, cut.clone());
    let settings = fast(Multipath::Independent);
    let mut pair = Pair::over(settings, settings, wire);
    pair.keep_log = false;
    let (a, b) = pair.open_over(&[A1, A2], &[B1, B2]);
    pair.run(secs(5));
    let (mut sent, mut got) = (0, Vec::new());
    for step in 0..400 {
        cut.set((100..200).contains(&step));
        for _ in 0..10 {
            pair.send(a, (sent % 5) as u16, &pattern(sent, 900));
            sent += 1;
        }
        pair.run(ms(50));
        got.extend(pair.received(b));
        if step == 199 {
            assert_ne!(pair.a.snapshot(a).unwrap().paths[1].state, PathState::Active);
        }
    }
    pair.run(secs(60));
    got.extend(pair.received(b));
    assert_eq!(got.len(), sent);
    for stream in 0..5 {
        let of: Vec<_> = got.iter().filter(|m| m.0 == stream).map(|m| m.1.clone()).collect();
        let expected: Vec<_> =
            (0..sent).filter(|n| *n as u16 % 5 == stream).map(|n| pattern(n, 900)).collect();
        assert!(of == expected, "{stream}");
    }
    let paths = pair.a.snapshot(a).unwrap().paths;
    assert!(paths.iter().all(|path| path.state == PathState::Active), "{paths:?}");
}

/// RFC 9260 section 7.2.1: a window that shrinks for idleness is no reason to send nothing: what waits
/// goes out at once.
#[test]
fn several_paths_go_on_after_idleness() {
    let multipath = Multipath::Independent;
    let settings = Settings { multipath, max_burst: 0, heartbeat_interval: None, ..super::quick() };
    let mut pair = Pair::new(settings, settings, ms(10));
    let (a, b) = pair.open_over(&[A1, A2], &[B1, B2]);
    pair.run(secs(3));
    for n in 0..100 {
        pair.send(a, 0, &pattern(n, 5000));
    }
    pair.run(secs(5));
    assert_eq!(pair.received(b).len(), 100);
    pair.run(secs(20));
    pair.send(a, 0, b"hello");
    pair.run(ms(500));
    assert_eq!(pair.received(b).len(), 1, "{:?}", pair.a.snapshot(a).unwrap().paths);
}
