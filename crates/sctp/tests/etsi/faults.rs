//! Fault handling (FH).

use super::*;

/// FH 5.1.1: a peer that is silent on all its addresses is unreachable after Association.Max.Retrans
/// retransmissions, which went to all of them.
#[test]
fn fh_i_5_1_1() {
    let settings = Settings { association_max_retrans: 5, rto_max: secs(2), ..plain() };
    let mut s = Script::two_paths(settings);
    s.send(0, 10);
    s.expect_to(B1, "DATA 1 BE 0:0 10");
    let (mut again, mut to) = (0, std::collections::HashSet::new());
    while !s.sctp.is_empty() {
        s.wait(ms(10));
        while let Some((address, line)) = s.line() {
            if line.starts_with("DATA") {
                again += 1;
                to.insert(address);
            }
        }
        if end(&mut s).is_some() {
            break;
        }
    }
    assert_eq!((again, to.len()), (5, 2));
}

/// FH 5.1.2: the count of errors starts over with each acknowledgement.
#[test]
fn fh_i_5_1_2() {
    let settings = Settings { association_max_retrans: 3, rto_max: secs(2), ..plain() };
    let mut s = Script::accepted(settings);
    for tsn in 1..=10 {
        s.send(0, 10);
        let line = format!("DATA {tsn} BE 0:{} 10", tsn - 1);
        s.expect(&line);
        for _ in 0..3 {
            s.wait(secs(2));
            s.expect(&line);
        }
        s.give(&format!("SACK {tsn}"));
        assert_eq!(snapshot(&s).errors, 0);
    }
    assert_eq!(end(&mut s), None);
}

/// FH 5.2: a HEARTBEAT is answered with what it brought.
#[test]
fn fh_v_5_2() {
    let mut s = Script::accepted(plain());
    s.give("HEARTBEAT");
    let (_, bytes) = s.take().unwrap();
    assert!(matches!(chunks(&bytes)[..], [Chunk::HeartbeatAck(&[0, 1, 0, 8, 1, 2, 3, 4])]));
}

/// FH 5.3.1: a packet out of the blue is answered with ABORT that bears its tag.
#[test]
fn fh_o_5_3_1() {
    let mut s = closed();
    s.give_tagged(4711, B1, A1, "DATA 1 BE 0:0 10");
    let (_, bytes) = s.take().unwrap();
    assert_eq!(Packet::parse(&bytes).unwrap().tag, 4711);
    assert!(matches!(chunks(&bytes)[..], [Chunk::Abort { reflected: true, .. }]));
}

/// FH 5.3.2: but for ABORT.
#[test]
fn fh_o_5_3_2() {
    let mut s = closed();
    s.give_tagged(4711, B1, A1, "ABORT");
    s.expect_nothing();
}

/// FH 5.3.3: SHUTDOWN ACK is answered with SHUTDOWN COMPLETE.
#[test]
fn fh_o_5_3_3() {
    let mut s = closed();
    s.give_tagged(4711, B1, A1, "SHUTDOWN_ACK");
    s.expect("SHUTDOWN_COMPLETE T");
}

/// FH 5.3.4: SHUTDOWN COMPLETE with nothing.
#[test]
fn fh_o_5_3_4() {
    let mut s = closed();
    s.give_tagged(4711, B1, A1, "SHUTDOWN_COMPLETE");
    s.expect_nothing();
}

/// FH 5.3.5: what comes from an address that is not of one host is dropped.
#[test]
fn fh_o_5_3_5() {
    let mut s = closed();
    s.give_init();
    s.take_init_ack();
    s.addresses = vec![[224, 0, 0, 1].into()];
    s.echo("");
    s.expect_nothing();
    assert_eq!(s.sctp.len(), 0);
}
