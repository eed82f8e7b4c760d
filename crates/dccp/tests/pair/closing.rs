//! Connections end (RFC 4340 section 8.3).

use crate::support::*;
use ringway_dccp::{
    Close, ConnectError, Event, Limits, ResetCode, SendError, SendOptions, Settings, State,
};

fn opened() -> (Pair, ringway_dccp::ConnId, ringway_dccp::ConnId) {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    let (a, b) = pair.open();
    pair.b.send(pair.now, b, &b"up"[..], SendOptions::default()).unwrap();
    pair.run(ms(100));
    assert_eq!(pair.a.recv(a).unwrap().as_deref(), Some(&b"up"[..]));
    (pair, a, b)
}

/// RFC 4340 section 8.3: the client sends Close, the server Reset, and the client rests in TIMEWAIT.
#[test]
fn a_client_closes() {
    let (mut pair, a, b) = opened();
    pair.a.send(pair.now, a, &b"last"[..], SendOptions::default()).unwrap();
    let (local, _) = pair.a.addresses(a).unwrap();
    pair.a.close(pair.now, a).unwrap();
    let refused = pair.a.send(pair.now, a, &b"late"[..], SendOptions::default());
    assert_eq!(refused, Err(SendError::Closing));
    pair.run(ms(100));
    assert_eq!((pair.closed(0), pair.closed(1)), (Some(Close::Finished), Some(Close::Finished)));
    assert_eq!((pair.count("Close"), pair.count("CloseReq"), pair.count("Reset")), (1, 0, 1));
    // What was queued before arrived, and can be read after the end.
    assert_eq!(pair.b.recv(b).unwrap().as_deref(), Some(&b"last"[..]));
    assert!(pair.b.recv(b).is_err(), "released");
    assert_eq!((pair.a.time_wait(), pair.b.time_wait()), (1, 0));
    let again = pair.a.connect(pair.now, local, server(), SERVICE, None);
    assert_eq!(again, Err(ConnectError::InUse));
    pair.run(secs(241));
    assert_eq!((pair.a.time_wait(), pair.next()), (0, None));
    assert!(pair.a.connect(pair.now, local, server(), SERVICE, None).is_ok());
}

/// RFC 4340 section 8.3: the server sends CloseReq, the client Close, the server Reset: again it is the
/// client that rests.
#[test]
fn a_server_closes() {
    let (mut pair, _, b) = opened();
    pair.b.close(pair.now, b).unwrap();
    pair.run(ms(100));
    assert_eq!((pair.closed(0), pair.closed(1)), (Some(Close::Finished), Some(Close::Finished)));
    assert_eq!((pair.count("CloseReq"), pair.count("Close"), pair.count("Reset")), (1, 1, 1));
    assert_eq!((pair.a.time_wait(), pair.b.time_wait()), (1, 0));
}

#[test]
fn both_close_at_once() {
    let (mut pair, a, b) = opened();
    pair.a.close(pair.now, a).unwrap();
    pair.b.close(pair.now, b).unwrap();
    pair.run(secs(5));
    assert_eq!((pair.closed(0), pair.closed(1)), (Some(Close::Finished), Some(Close::Finished)));
    assert!(pair.a.is_empty() && pair.b.is_empty());
}

/// RFC 4340 section 8.3: each packet of a close may be lost.
#[test]
fn every_packet_of_a_close_may_be_lost() {
    for by_client in [true, false] {
        for (link, kind) in [(0, "Close"), (1, "CloseReq"), (1, "Reset")] {
            let (mut pair, a, b) = opened();
            pair.links[link].filter = drop_kind(kind, 0..2);
            if by_client {
                pair.a.close(pair.now, a).unwrap();
            } else {
                pair.b.close(pair.now, b).unwrap();
            }
            pair.run(secs(100));
            assert!(pair.a.is_empty() && pair.b.is_empty(), "{by_client} {kind}");
            let closed = [pair.closed(0).unwrap(), pair.closed(1).unwrap()];
            assert_eq!(closed[1], Close::Finished, "{by_client} {kind}");
            // A lost Reset is answered by one that knows no connection.
            let lost_reset = kind == "Reset";
            assert!(closed[0] == Close::Finished || lost_reset, "{by_client} {kind} {closed:?}");
        }
    }
}

/// RFC 4340 section 5.6: an abort is a Reset, with its code.
#[test]
fn an_abort_resets() {
    let (mut pair, a, b) = opened();
    pair.a.abort(pair.now, a).unwrap();
    assert!(pair.a.snapshot(a).is_err());
    pair.run(ms(100));
    let Some(Close::Reset(reset)) = pair.closed(1) else { panic!("{:?}", pair.events) };
    assert_eq!(reset.code, ResetCode::Aborted);
    assert_eq!(pair.closed(0), None, "no event follows");
    assert!(pair.a.is_empty() && pair.b.is_empty());
    assert_eq!((pair.b.snapshot(b).is_err(), pair.b.time_wait()), (true, 1));
}

/// RFC 4340 section 8.3: a peer that vanishes is given up, while data go out and while it is closed.
#[test]
fn a_dead_peer_is_given_up() {
    let (mut pair, a, _) = opened();
    for link in &mut pair.links {
        link.filter = Box::new(|_| false);
    }
    pair.run(secs(3600));
    assert_eq!(pair.snapshot(0, a).state, State::Open, "silence alone is allowed");
    pair.a.send(pair.now, a, &b"x"[..], SendOptions::default()).unwrap();
    pair.run(secs(299));
    assert_eq!(pair.snapshot(0, a).state, State::Open);
    pair.run(secs(2));
    assert_eq!(pair.closed(0), Some(Close::Timeout));
    let (mut pair, a, _) = opened();
    pair.links[1].filter = Box::new(|_| false);
    pair.a.close(pair.now, a).unwrap();
    pair.run(secs(59));
    assert_eq!(pair.snapshot(0, a).state, State::Closing);
    assert!((4..12).contains(&pair.count("Close")), "{}", pair.count("Close"));
    pair.run(secs(2));
    assert_eq!(pair.closed(0), Some(Close::Timeout));
}

/// RFC 4340 section 8.5, step 2: a peer that restarted knows no connection; its Reset ends it.
#[test]
fn a_peer_that_restarted_resets() {
    let (mut pair, a, _) = opened();
    pair.b = host(99, Limits::default(), Settings::default());
    pair.b.listen(server(), &[SERVICE], None).unwrap();
    pair.a.send(pair.now, a, &b"x"[..], SendOptions::default()).unwrap();
    pair.run(secs(5));
    let Some(Close::Reset(reset)) = pair.closed(0) else {
        panic!("{:?} {:#?}", pair.events, pair.log)
    };
    assert_eq!(reset.code, ResetCode::NoConnection);
    assert!(!pair.events[1].iter().any(|event| matches!(event, Event::Closed(..))));
}

/// A close sends what is queued first, and not for ever.
#[test]
fn a_close_waits_for_the_queue_for_a_while() {
    let quick = Settings { close_timeout: secs(5), send_queue: 500, ..Settings::default() };
    let mut pair = Pair::new(quick, quick, ms(10));
    let (a, b) = pair.open();
    pair.run(ms(100));
    for n in 0..200u8 {
        pair.a.send(pair.now, a, vec![n], SendOptions::default()).unwrap();
    }
    pair.a.close(pair.now, a).unwrap();
    pair.run(secs(2));
    assert_eq!(std::iter::from_fn(|| pair.b.recv(b).ok().flatten()).count(), 200);
    assert_eq!(pair.closed(0), Some(Close::Finished));
    let mut pair = Pair::new(quick, quick, ms(10));
    let (a, _) = pair.open();
    pair.run(ms(100));
    pair.links[0].filter = Box::new(|flying| !flying.packet().header.kind.may_carry_data());
    for n in 0..200u8 {
        pair.a.send(pair.now, a, vec![n], SendOptions::default()).unwrap();
    }
    pair.a.close(pair.now, a).unwrap();
    pair.run(secs(12));
    assert_eq!(pair.closed(0), Some(Close::Finished));
}
