//! Paths that take packets of some size, over a wire that drops what is larger.

use super::support::*;
use ringway_sctp::Settings;
use std::cell::Cell;
use std::rc::Rc;

/// Whether a packet, or each fragment of it, goes over a link that takes so many bytes. Fragments of
/// IPv6 need not be smaller than its least MTU (RFC 8200 section 5).
fn fits(packet: &Flying, mtu: usize) -> bool {
    let (header, least) = if packet.addressing.source.is_ipv4() { (20, 0) } else { (40, 1280) };
    let largest = match packet.addressing.fragment {
        Some(fragment) => usize::from(fragment).max(least),
        None => packet.bytes.len() + header,
    };
    largest <= mtu
}

/// RFC 8899: both ends find what the path takes, a transfer goes on when it takes less, and with
/// more when it takes more again.
#[test]
fn the_size_is_found() {
    let truth = Rc::new(Cell::new(1492));
    let limit = truth.clone();
    let wire: Wire = Box::new(move |_, packet| {
        let passes = fits(packet, limit.get());
        if passes { vec![ms(10)] } else { Vec::new() }
    });
    let settings = Settings { mtu: 1200, largest_mtu: Some(9000), ..super::quick() };
    let mut pair = Pair::over(settings, settings, wire);
    pair.keep_log = false;
    let (a, b) = pair.open();
    let (mut sent, mut got) = (0, Vec::new());
    for (size, seconds) in [(1492, 60), (1300, 60), (4000, 800)] {
        truth.set(size);
        for _ in 0..seconds * 2 {
            pair.send(a, 0, &pattern(sent, 5000));
            sent += 1;
            pair.run(ms(500));
            got.extend(pair.received(b));
        }
        let found = pair.a.snapshot(a).unwrap().paths[0].mtu;
        assert!(found <= size && found + 20 > size, "{found} of {size}");
    }
    pair.run(secs(100));
    got.extend(pair.received(b));
    let expected: Vec<_> = (0..sent).map(|n| (0, pattern(n, 5000))).collect();
    assert!(got == expected, "{} of {}", got.len(), expected.len());
}

/// RFC 9260 section 7.3 and RFC 8899 section 4.3: packets above 1420 bytes vanish unless they may be
/// fragmented. Also without a configured search, data arrives before the peer counts as unreachable.
#[test]
fn a_black_hole_is_got_around() {
    for largest_mtu in [Some(1500), None] {
        let settings = Settings { largest_mtu, ..Settings::default() };
        let wire: Wire =
            Box::new(|_, packet| if fits(packet, 1420) { vec![ms(20)] } else { Vec::new() });
        let mut pair = Pair::over(settings, settings, wire);
        let (a, b) = pair.open();
        pair.send(a, 0, &pattern(0, 20_000));
        pair.run(secs(30));
        assert_eq!(pair.received(b).len(), 1, "{largest_mtu:?}");
        pair.send(a, 0, &pattern(0, 20_000));
        pair.run(secs(30));
        assert_eq!(pair.received(b).len(), 1, "{largest_mtu:?}");
        let mtu = pair.a.snapshot(a).unwrap().paths[0].mtu;
        assert!((1400..=1420).contains(&mtu), "{mtu}");
    }
}

/// RFC 8899 section 4.3: of a path that has never carried a large packet, the first that is lost is
/// reason enough to send small ones, the second where no search was asked for; also where it went with the
/// cookie (RFC 9260 section 5.1).
#[test]
fn a_path_black_from_the_beginning_is_soon_known() {
    for (largest_mtu, early) in
        [(Some(1500), false), (Some(1500), true), (None, false), (None, true)]
    {
        let settings = Settings { largest_mtu, ..Settings::default() };
        let wire: Wire =
            Box::new(|_, packet| if fits(packet, 1280) { vec![ms(20)] } else { Vec::new() });
        let mut pair = Pair::over(settings, settings, wire);
        pair.listen(&[B1]);
        let a = pair.connect(&[A1], &[B1]);
        if !early {
            pair.run(ms(100));
        }
        for n in 0..4 {
            pair.send(a, 0, &pattern(n, 5000));
        }
        pair.run(if largest_mtu.is_some() { ms(1400) } else { ms(3400) });
        let b = pair.up(1).unwrap();
        assert_eq!(pair.received(b).len(), 4, "{largest_mtu:?} {early}: {:?}", pair.log);
    }
}

const A6: [std::net::IpAddr; 2] = [
    std::net::IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1)),
    std::net::IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1)),
];
const B6: [std::net::IpAddr; 2] = [
    std::net::IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2)),
    std::net::IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2)),
];

/// RFC 9260 section 6.9 and RFC 8899 section 4.3: in the middle of a transfer every path stops to carry
/// what is larger than 1280 bytes, without a word. Small packets still arrive, data of other streams and
/// heartbeats alike, and do not hide it. All that was sent arrives, what was cut before in fragments.
#[test]
fn a_transfer_outlives_a_path_that_stops_carrying_large_packets() {
    for (name, a, b) in [
        ("IPv4", &[A1][..], &[B1][..]),
        ("IPv6", &A6[..1], &B6[..1]),
        ("two paths of IPv4", &[A1, A2], &[B1, B2]),
        ("two paths of IPv6", &A6, &B6),
    ] {
        for largest_mtu in [None, Some(1500)] {
            for small in [false, true] {
                let limit = Rc::new(Cell::new(1500));
                let truth = limit.clone();
                let wire: Wire =
                    Box::new(
                        move |_, packet| {
                            if fits(packet, truth.get()) { vec![ms(10)] } else { Vec::new() }
                        },
                    );
                let settings = Settings { largest_mtu, ..Settings::default() };
                let mut pair = Pair::over(settings, settings, wire);
                pair.keep_log = false;
                let (x, y) = pair.open_over(a, b);
                pair.run(secs(5));
                let mut sent = 0;
                let mut got = 0;
                for turn in 0..900 {
                    if turn == 50 {
                        limit.set(1280);
                    }
                    if turn < 150 {
                        pair.send(x, 0, &pattern(turn, 5000));
                        sent += 1;
                    }
                    if small {
                        pair.send(x, 1, &pattern(turn, 100));
                        sent += 1;
                    }
                    pair.run(ms(100));
                    got += pair.received(y).len();
                }
                assert_eq!(got, sent, "{name}, {largest_mtu:?}, small ones: {small}");
            }
        }
    }
}
