//! Addresses that change while data flows.

use super::support::*;
use ringway_sctp::{CallError, Change, Close, Event, KeyError, PathState, SetKeyError, Settings};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;

fn dynamic() -> Settings {
    Settings { dynamic_addresses: true, ..super::quick() }
}

fn changes(pair: &Pair, end: usize) -> Vec<Change> {
    let change = |event: &Event| match event {
        Event::Changed { change, .. } => Some(change.clone()),
        _ => None,
    };
    pair.events[end].iter().filter_map(change).collect()
}

/// RFC 5061: an address is added at either end, the transfer moves over to it, the old ones are
/// deleted; nothing is lost and nothing comes twice.
#[test]
fn a_transfer_moves_to_new_addresses() {
    for loss in [0, 5] {
        let mut dice = Dice::new(loss + 1);
        let wire: Wire = Box::new(move |_, packet| {
            let link = |address: IpAddr| [A2, B2].contains(&address);
            let across = link(packet.addressing.source) != link(packet.addressing.destination);
            if across || dice.chance(loss) { Vec::new() } else { vec![ms(10)] }
        });
        let mut pair = Pair::over(dynamic(), dynamic(), wire);
        pair.keep_log = false;
        let (a, b) = pair.open();
        let mut got = Vec::new();
        for step in 0..400usize {
            pair.send(a, (step % 3) as u16, &pattern(step, 700));
            match step {
                50 => pair.b.add_address(pair.now, b, B2).unwrap(),
                100 => pair.a.add_address(pair.now, a, A2).unwrap(),
                200 => pair.b.request_primary(pair.now, b, B2).unwrap(),
                250 => pair.b.delete_address(pair.now, b, B1).unwrap(),
                300 => pair.a.delete_address(pair.now, a, A1).unwrap(),
                _ => {}
            }
            pair.run(ms(30));
            got.extend(pair.received(b));
        }
        pair.run(secs(60));
        got.extend(pair.received(b));
        let mut expected: Vec<_> = (0..400).map(|n| ((n % 3) as u16, pattern(n, 700))).collect();
        expected.sort();
        got.sort();
        assert_eq!(got, expected);
        for (host, id, local, remote) in [(&pair.a, a, A2, B2), (&pair.b, b, B2, A2)] {
            let paths = host.snapshot(id).unwrap().paths;
            assert_eq!((paths.len(), paths[0].local, paths[0].remote), (1, local, remote));
            assert_eq!(paths[0].state, PathState::Active);
        }
        use Change::*;
        let told = [
            PeerAddressAdded(B2),
            AddressAdded(A2),
            PeerPrimary(B2),
            PeerAddressDeleted(B1),
            AddressDeleted(A1),
        ];
        assert_eq!(changes(&pair, 0), told);
        let told = [
            AddressAdded(B2),
            PeerAddressAdded(A2),
            PrimaryRequested(B2),
            AddressDeleted(B1),
            PeerAddressDeleted(A1),
        ];
        assert_eq!(changes(&pair, 1), told);
        assert_eq!((pair.closed(0), pair.closed(1)), (None, None));
        pair.a.shutdown(pair.now, a).unwrap();
        pair.run(secs(10));
        assert_eq!((pair.a.len(), pair.b.len()), (0, 0));
    }
}

/// RFC 5061 section 5.3.2: the only address of a host dies, and it moves to another.
#[test]
fn a_host_moves() {
    let dead: Rc<RefCell<BTreeSet<IpAddr>>> = Rc::default();
    let gone = dead.clone();
    let wire: Wire = Box::new(move |_, packet| {
        let gone = gone.borrow();
        let (from, to) = (packet.addressing.source, packet.addressing.destination);
        if gone.contains(&from) || gone.contains(&to) { Vec::new() } else { vec![ms(10)] }
    });
    let mut pair = Pair::over(dynamic(), dynamic(), wire);
    let (a, b) = pair.open();
    pair.send(a, 0, b"before");
    pair.run(secs(1));
    dead.borrow_mut().insert(A1);
    pair.send(a, 0, b"between");
    pair.a.add_address(pair.now, a, A2).unwrap();
    pair.run(secs(10));
    assert_eq!(changes(&pair, 0), [Change::AddressAdded(A2)]);
    pair.a.delete_address(pair.now, a, A1).unwrap();
    pair.run(secs(20));
    pair.send(a, 0, b"after");
    pair.run(secs(5));
    let got: Vec<_> = pair.received(b).into_iter().map(|m| m.1).collect();
    assert_eq!(got, [b"before".to_vec(), b"between".to_vec(), b"after".to_vec()]);
    assert_eq!(changes(&pair, 1), [Change::PeerAddressAdded(A2), Change::PeerAddressDeleted(A1)]);
    let paths = pair.b.snapshot(b).unwrap().paths;
    assert_eq!((paths.len(), paths[0].remote, paths[0].state), (1, A2, PathState::Active));
}

/// RFC 9260 sections 5.4 and 8.1, RFC 5061 section 5.3: the peer moves to an address that cannot be
/// verified. No data goes there, also none that was sent elsewhere before; the association ends in time,
/// and goes on if the address comes alive before that, without heartbeats too.
#[test]
fn no_data_goes_to_an_address_that_is_not_verified() {
    for (heals, heartbeat_interval) in [(true, None), (false, Some(secs(30)))] {
        let cut = Rc::new(Cell::new(false));
        let cutting = cut.clone();
        let wire: Wire = Box::new(move |_, packet| {
            let to = packet.addressing.destination;
            let lost = packet.to_b && describe(&packet.bytes, None, None).contains("DATA");
            if cutting.get() && (to == B2 || lost) { Vec::new() } else { vec![ms(10)] }
        });
        let settings = Settings { dynamic_addresses: true, heartbeat_interval, ..super::quick() };
        let mut pair = Pair::over(settings, settings, wire);
        let (a, b) = pair.open();
        pair.run(ms(500));
        cut.set(true);
        pair.b.add_address(pair.now, b, B2).unwrap();
        pair.run(ms(100));
        pair.b.delete_address(pair.now, b, B1).unwrap();
        for n in 0..4 {
            pair.send(a, 0, &[n; 1000]);
        }
        pair.run(ms(100));
        assert_eq!(pair.a.snapshot(a).unwrap().paths.len(), 1);
        let before = pair.log.len();
        for n in 0..10 {
            pair.send(a, 0, &[n; 1000]);
        }
        pair.run(secs(300));
        let data = |line: &&(_, bool, _, String)| line.1 && line.3.contains("DATA");
        assert_eq!(pair.log[before..].iter().filter(data).count(), 0, "{:?}", pair.log);
        cut.set(!heals);
        pair.run(secs(3000));
        if heals {
            assert_eq!(pair.received(b).len(), 14, "{:?}", pair.closed(0));
        } else {
            assert_eq!(pair.closed(0), Some(Close::Unreachable));
        }
    }
}

/// RFC 9260 section 7.2.1: the first ssthresh of a path that is added has nothing to do with how full the
/// peer's buffer is at the moment.
#[test]
fn a_new_path_begins_with_slow_start() {
    let settings = Settings { receive_buffer: 100_000, ..dynamic() };
    let mut pair = Pair::new(settings, settings, ms(10));
    let (a, b) = pair.open();
    for n in 0..100 {
        pair.send(a, 0, &pattern(n, 1400));
    }
    pair.run(secs(5));
    pair.b.add_address(pair.now, b, B2).unwrap();
    pair.run(secs(5));
    let paths = pair.a.snapshot(a).unwrap().paths;
    assert_eq!((paths.len(), paths[1].ssthresh), (2, 100_000), "{paths:?}");
}

/// RFC 9260 section 7.2.5.2: another source address is another way, whose window begins anew.
#[test]
fn another_source_address_begins_anew() {
    let mut pair = Pair::new(dynamic(), dynamic(), ms(10));
    let (a, b) = pair.open();
    for n in 0..200 {
        pair.send(a, 0, &pattern(n, 1400));
    }
    pair.run(secs(5));
    assert_eq!(pair.received(b).len(), 200);
    pair.a.add_address(pair.now, a, A2).unwrap();
    pair.run(secs(2));
    let before = pair.a.snapshot(a).unwrap().paths;
    assert!(before[0].local == A1 && before[0].cwnd > 50_000, "{before:?}");
    pair.a.delete_address(pair.now, a, A1).unwrap();
    pair.run(secs(2));
    let after = pair.a.snapshot(a).unwrap().paths;
    assert_eq!((after[0].local, after[0].cwnd), (A2, 4404), "{after:?}");
}

/// RFC 9260 section 6.1 A, RFC 5061 section 5.3: the path of a window probe that is under way is taken
/// away. The probe goes on elsewhere.
#[test]
fn the_path_of_a_probe_may_be_deleted() {
    let small = Settings { receive_buffer: 3000, ..dynamic() };
    let mut pair = Pair::new(dynamic(), small, ms(10));
    let (a, b) = pair.open_over(&[A1, A2], &[B1, B2]);
    pair.run(secs(3));
    for n in 0..10 {
        pair.send(a, 0, &pattern(n, 1000));
    }
    pair.run(secs(2));
    assert!(pair.a.snapshot(a).unwrap().totals.window_probes > 0);
    pair.b.delete_address(pair.now, b, B1).unwrap();
    pair.run(secs(1));
    let from = pair.log.len();
    pair.run(secs(300));
    let data = |line: &&(_, bool, _, String)| line.1 && line.3.contains("DATA");
    assert!(pair.log[from..].iter().filter(data).count() > 0, "{:?}", pair.a.snapshot(a));
}

/// RFC 4895 sections 4.1, 6.1 and 6.3: both ends set a secret, use it one after the other, and delete
/// the previous key; chunks with a key that the peer does not have are refused, and sent again until it
/// has it.
#[test]
fn keys_are_changed_while_data_flows() {
    let mut pair = Pair::new(dynamic(), dynamic(), ms(10));
    let (a, b) = pair.open();
    pair.a.set_auth_key(a, 7, b"between us").unwrap();
    pair.a.use_auth_key(a, 7).unwrap();
    pair.a.add_address(pair.now, a, A2).unwrap();
    pair.run(ms(500));
    let added = |events: &[Event]| {
        let added =
            |e: &&Event| matches!(e, Event::Changed { change: Change::AddressAdded(_), .. });
        events.iter().filter(added).count()
    };
    assert_eq!(added(&pair.events[0]), 0);
    assert!(pair.b.snapshot(b).unwrap().totals.auth_refused > 0);
    pair.b.set_auth_key(b, 7, b"between us").unwrap();
    pair.run(secs(2));
    assert_eq!(added(&pair.events[0]), 1);
    assert_eq!(pair.b.delete_auth_key(b, 3), Err(CallError::Refused(KeyError::Key { got: 3 })));
    // The answer came with key 0, which is taken until a secret stands for it.
    pair.a.set_auth_key(a, 0, b"another").unwrap();
    pair.a.delete_address(pair.now, a, A2).unwrap();
    pair.run(ms(500));
    let deleted = |e: &Event| matches!(e, Event::Changed { change: Change::AddressDeleted(_), .. });
    assert!(!pair.events[0].iter().any(deleted));
    pair.b.use_auth_key(b, 7).unwrap();
    pair.run(secs(2));
    assert!(pair.events[0].iter().any(deleted));
    let mut plain = Pair::new(super::quick(), super::quick(), ms(10));
    let (a, _) = plain.open();
    assert!(matches!(
        plain.a.set_auth_key(a, 1, b""),
        Err(CallError::Refused(SetKeyError::NotSupported))
    ));
}

/// RFC 9260 section 5.4: an address that failed before it was verified is probed once per RTO where it
/// is the only one left, since no data may be sent to it before.
#[test]
fn the_last_address_is_verified_soon() {
    let cut = Rc::new(Cell::new(false));
    let cutting = cut.clone();
    let wire: Wire = Box::new(move |_, packet| {
        let asks = describe(&packet.bytes, None, None) == "HEARTBEAT";
        if cutting.get() && packet.to_b && asks { Vec::new() } else { vec![ms(10)] }
    });
    let settings = Settings { path_max_retrans: 0, ..dynamic() };
    let mut pair = Pair::over(settings, settings, wire);
    let (a, b) = pair.open();
    pair.run(secs(1));
    cut.set(true);
    pair.b.add_address(pair.now, b, B2).unwrap();
    pair.run(secs(3));
    pair.b.delete_address(pair.now, b, B1).unwrap();
    pair.run(secs(3));
    cut.set(false);
    pair.b.send(pair.now, b, &super::SendOptions::default(), &b"hello"[..]).unwrap();
    pair.run(secs(8));
    assert_eq!(pair.b.snapshot(b).unwrap().unacknowledged, 0, "{:?}", pair.log);
    assert_eq!(pair.returned(a), [(0, b"hello".to_vec())]);
}
