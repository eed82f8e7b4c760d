//! Hosts of which only some pairs of addresses reach each other.

use super::support::*;
use ringway_sctp::{Reliability, SendOptions, Settings, State};
use std::cell::Cell;
use std::rc::Rc;

/// RFC 9260 section 6.4.1: with a peer of one address, timed-out data uses another pair of addresses,
/// from the next local address, also where only heartbeats detected the failure of the first.
#[test]
fn a_single_address_is_reached_from_another_local_address() {
    let cut = Rc::new(Cell::new(false));
    let cutting = cut.clone();
    let wire: Wire = Box::new(move |_, packet| {
        let way = [packet.addressing.source, packet.addressing.destination];
        if cutting.get() && way.contains(&A1) { Vec::new() } else { vec![ms(10)] }
    });
    let mut pair = Pair::over(super::quick(), super::quick(), wire);
    let (a, b) = pair.open_over(&[A1, A2], &[B1]);
    pair.run(secs(1));
    assert_eq!(pair.a.snapshot(a).unwrap().paths[0].local, A1);
    cut.set(true);
    pair.send(a, 0, b"hello");
    pair.run(ms(600));
    assert_eq!(pair.received(b).len(), 1);
    assert_eq!(pair.a.snapshot(a).unwrap().paths[0].local, A2);
}

/// RFC 9260 section 6.4.1: lost data is sent from another local address, but not away from the one that
/// the peer's packets have arrived at since: of two addresses of which one reaches the peer, that one
/// carries the data again as soon as its link does.
#[test]
fn a_pair_that_works_is_not_left() {
    for path_max_retrans in [0, 1, 5] {
        let cut = Rc::new(Cell::new(false));
        let cutting = cut.clone();
        let wire: Wire = Box::new(move |_, packet| {
            let way = [packet.addressing.source, packet.addressing.destination];
            if cutting.get() || way.contains(&A2) { Vec::new() } else { vec![ms(10)] }
        });
        let homed = Settings { path_max_retrans, rto_max: secs(2), ..super::quick() };
        let asking = Settings { heartbeat_interval: Some(ms(100)), ..homed };
        let mut pair = Pair::over(homed, asking, wire);
        let (a, b) = pair.open_over(&[A1, A2], &[B1]);
        pair.run(secs(1));
        cut.set(true);
        pair.send(a, 0, b"hello");
        pair.run(secs(3));
        cut.set(false);
        pair.run(secs(6));
        assert_eq!(pair.received(b), [(0, b"hello".to_vec())], "{path_max_retrans}");
    }
}

/// RFC 9260 section 6.4.1: a path moved to another local address for a spurious loss returns to the one
/// that the peer's packets arrive at, also when the local endpoint sends only SACKs.
#[test]
fn a_guessed_local_address_is_reverted() {
    let late = Rc::new(Cell::new(false));
    let once = late.clone();
    let wire: Wire = Box::new(move |_, packet| {
        let way = [packet.addressing.source, packet.addressing.destination];
        if way.contains(&A2) {
            return Vec::new();
        }
        vec![if packet.to_b && once.take() { ms(500) } else { ms(10) }]
    });
    let settings =
        Settings { heartbeat_interval: None, potentially_failed: None, ..super::quick() };
    let mut pair = Pair::over(settings, settings, wire);
    let (a, b) = pair.open_over(&[A1, A2], &[B1]);
    pair.run(secs(1));
    late.set(true);
    pair.send(a, 0, b"late");
    pair.run(ms(700));
    assert_eq!(pair.received(b), [(0, b"late".to_vec())]);
    pair.b.send(pair.now, b, &SendOptions::default(), &b"hello"[..]).unwrap();
    pair.run(secs(3));
    assert_eq!(pair.b.snapshot(b).unwrap().unacknowledged, 0);
}

/// Two cables of 10 ms, and which of them are cut.
fn cables() -> (Rc<Cell<[bool; 2]>>, Wire) {
    let dead: Rc<Cell<[bool; 2]>> = Rc::default();
    let cut = dead.clone();
    let wire: Wire = Box::new(move |_, packet| {
        let second = [A2, B2].contains(&packet.addressing.destination);
        if cut.get()[usize::from(second)] { Vec::new() } else { vec![ms(10)] }
    });
    (dead, wire)
}

/// RFC 3758 section 3.5, rule C5, and RFC 9260 section 6.4.1: FORWARD TSN goes by each path in turn while
/// none is known to work.
#[test]
fn a_forward_tsn_tries_all_paths() {
    let (dead, wire) = cables();
    let settings = Settings {
        heartbeat_interval: None,
        path_max_retrans: 0,
        potentially_failed: None,
        rto_max: secs(2),
        ..super::quick()
    };
    let mut pair = Pair::over(settings, settings, wire);
    let (a, _) = pair.open_over(&[A1, A2], &[B1, B2]);
    pair.run(secs(3));
    dead.set([true, true]);
    let twice = SendOptions { reliability: Reliability::Retransmits(1), ..SendOptions::default() };
    pair.a.send(pair.now, a, &twice, &b"given up"[..]).unwrap();
    pair.run(secs(3));
    dead.set([true, false]);
    pair.run(secs(8));
    let snapshot = pair.a.snapshot(a).unwrap();
    assert_eq!((snapshot.state, snapshot.errors), (State::Established, 0), "{:?}", pair.log);
}

/// RFC 9260 section 8.2: all addresses of a peer may be inactive while it is reachable. Of those, data goes
/// where fewer errors came in a row, so that a path that works is found and stays in use.
#[test]
fn of_inactive_paths_the_one_that_works_is_found() {
    let (dead, wire) = cables();
    let settings = Settings {
        heartbeat_interval: None,
        path_max_retrans: 0,
        potentially_failed: None,
        ..super::quick()
    };
    let mut pair = Pair::over(settings, settings, wire);
    let (a, b) = pair.open_over(&[A1, A2], &[B1, B2]);
    pair.run(secs(3));
    dead.set([true, true]);
    pair.send(a, 0, b"first");
    pair.run(ms(700));
    dead.set([true, false]);
    pair.run(secs(5));
    let before = pair.a.snapshot(a).unwrap().totals.timeouts;
    for n in 0..20 {
        pair.send(a, 0, &pattern(n, 100));
        pair.run(secs(5));
    }
    let after = pair.a.snapshot(a).unwrap().totals.timeouts;
    assert_eq!((pair.received(b).len(), after - before), (21, 0), "{:?}", pair.log);
}

/// RFC 9260 section 8.1: where heartbeats pass and data does not, on all of three paths, the peer is
/// unreachable after Association.Max.Retrans errors or a few more.
#[test]
fn heartbeats_alone_do_not_keep_an_association() {
    for count in [1, 2, 3] {
        let settings = Settings { heartbeat_interval: Some(ms(500)), ..super::quick() };
        let wire: Wire = Box::new(move |now, packet| {
            let text = describe(&packet.bytes, None, None);
            let lost = packet.to_b && now > at(1_000_000) + secs(10) && text.contains("DATA");
            if lost { Vec::new() } else { vec![ms(10)] }
        });
        let mut pair = Pair::over(settings, settings, wire);
        let third = |host| std::net::IpAddr::from([10, 0, 3, host]);
        let (ours, theirs) = ([A1, A2, third(1)], [B1, B2, third(2)]);
        let (a, _) = pair.open_over(&ours[..count], &theirs[..count]);
        pair.run(secs(20));
        pair.send(a, 0, &pattern(0, 5000));
        pair.run(secs(1500));
        assert_eq!(pair.closed(0), Some(ringway_sctp::Close::Unreachable), "{count} paths");
    }
}

/// RFC 5061 section 5.3, F4: an address is deleted, and the paths that do not use it go on from where they
/// work: here each pair of addresses has a link of its own, and dealt out anew none would fit.
#[test]
fn deleting_addresses_moves_no_other_path() {
    let ends = |host: u8| -> Vec<std::net::IpAddr> {
        (1..=4).map(|link| std::net::IpAddr::from([10, 0, link, host])).collect()
    };
    let wire: Wire = Box::new(|_, packet| {
        let link = |address: std::net::IpAddr| match address {
            std::net::IpAddr::V4(ip) => ip.octets()[2],
            std::net::IpAddr::V6(_) => 0,
        };
        let (source, destination) = (packet.addressing.source, packet.addressing.destination);
        if link(source) == link(destination) { vec![ms(1)] } else { Vec::new() }
    });
    let settings = Settings { dynamic_addresses: true, ..Settings::ss7() };
    let mut pair = Pair::over(settings, settings, wire);
    let (a, b) = pair.open_over(&ends(1), &ends(2));
    pair.run(secs(5));
    for deleted in [0, 3] {
        pair.a.delete_address(pair.now, a, ends(1)[deleted]).unwrap();
    }
    let paths = pair.a.snapshot(a).unwrap().paths;
    let pairs: Vec<_> = paths.iter().map(|path| (path.local, path.remote)).collect();
    assert_eq!(pairs[1..3], [(ends(1)[1], ends(2)[1]), (ends(1)[2], ends(2)[2])]);
    let mut sent = 0;
    for turn in 0..100 {
        pair.send(a, 0, &pattern(turn, 3000));
        sent += 1;
        pair.run(ms(20));
    }
    pair.run(secs(5));
    assert_eq!((pair.closed(0), pair.received(b).len()), (None, sent));
}

/// RFC 9260 section 6.4: a SHUTDOWN ACK goes where the SHUTDOWN came from. The path of the data is dead in
/// one direction, of which an end that has all its data acknowledged hears no more.
#[test]
fn a_shutdown_ack_goes_where_the_shutdown_came_from() {
    let dead = Rc::new(Cell::new(false));
    let cut = dead.clone();
    let wire: Wire = Box::new(move |_, packet| {
        let lost = cut.get() && packet.addressing.source == B1;
        if lost { Vec::new() } else { vec![ms(10)] }
    });
    let quick = Settings { heartbeat_interval: None, ..Settings::ss7() };
    // T2-shutdown of this end, which tries another path too, comes much later.
    let slow = Settings { heartbeat_interval: None, ..Settings::default() };
    let mut pair = Pair::over(quick, slow, wire);
    let (a, _) = pair.open_over(&[A1, A2], &[B1, B2]);
    pair.run(secs(5));
    dead.set(true);
    pair.a.shutdown(pair.now, a).unwrap();
    pair.run(ms(500));
    let finished = Some(ringway_sctp::Close::Finished);
    assert_eq!([pair.closed(0), pair.closed(1)], [finished.clone(), finished]);
}
