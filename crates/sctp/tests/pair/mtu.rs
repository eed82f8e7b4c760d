//! Paths that take packets of some size, over a wire that drops what is larger.

use super::support::*;
use ringway_sctp::Settings;
use std::cell::Cell;
use std::rc::Rc;

/// RFC 8899: both ends find what the path takes, a transfer goes on when it takes less, and with
/// more when it takes more again.
#[test]
fn the_size_is_found() {
    let truth = Rc::new(Cell::new(1492));
    let limit = truth.clone();
    let wire: Wire = Box::new(move |_, packet| {
        let passes = packet.bytes.len() + 20 <= limit.get() || packet.addressing.fragment;
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
/// fragmented. Where no search was asked for too, what is sent arrives before the peer is given up.
#[test]
fn a_black_hole_is_got_around() {
    for largest_mtu in [Some(1500), None] {
        let settings = Settings { largest_mtu, ..Settings::default() };
        let wire: Wire = Box::new(|_, packet| {
            let fits = packet.bytes.len() + 20 <= 1420 || packet.addressing.fragment;
            if fits { vec![ms(20)] } else { Vec::new() }
        });
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
        let wire: Wire = Box::new(|_, packet| {
            let fits = packet.bytes.len() + 20 <= 1280 || packet.addressing.fragment;
            if fits { vec![ms(20)] } else { Vec::new() }
        });
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
