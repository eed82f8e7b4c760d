//! Acknowledgements for good: draft-natarajan-tsvwg-sctp-nrsack.

use super::support::*;
use super::{plain, snapshot};
use ringway_sctp::wire::chunk::kind;
use ringway_sctp::{CallError, SendError, Settings};

fn script(settings: Settings) -> Script {
    let mut s = Script::new(Settings { final_acks: true, ..settings });
    s.extensions = vec![kind::NR_SACK];
    s.listen(&[A1]);
    s.give_init();
    assert!(s.take_init_ack().extensions.contains(&kind::NR_SACK));
    s.echo("");
    s.expect("COOKIE_ACK");
    s
}

/// Section 5: a receiver that never drops acknowledged data acknowledges it for good.
#[test]
fn gaps_are_acknowledged_for_good() {
    let mut s = script(plain());
    s.give("DATA 1 BE 0:0 10");
    s.expect("NRSACK 1");
    s.give("DATA 3 BE 0:2 10 + DATA 5 BE 0:4 10");
    s.expect("NRSACK 1 3-3 5-5");
}

/// Section 6: what arrived for good leaves the send buffer at once, if its message is whole, and no
/// later SACK takes it back.
#[test]
fn the_send_buffer_is_freed() {
    let mut s = script(Settings { send_buffer: 5000, initial_cwnd: Some(9000), ..plain() });
    let give = |s: &mut Script| s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1000]);
    for n in 0..5 {
        give(&mut s).unwrap();
        s.expect(&format!("DATA {} BE 0:{n} 1000", n + 1));
    }
    assert!(matches!(give(&mut s), Err(CallError::Refused(SendError::NoRoom { .. }))));
    s.give("NRSACK 0 2-3");
    give(&mut s).unwrap();
    give(&mut s).unwrap();
    assert!(matches!(give(&mut s), Err(CallError::Refused(SendError::NoRoom { .. }))));
    s.sent.clear();
    s.give("NRSACK 0");
    assert_eq!(snapshot(&s).totals.reneged, 0);
    s.give("NRSACK 7");
    assert_eq!((snapshot(&s).unacknowledged, snapshot(&s).paths[0].flight), (0, 0));
    for _ in 0..5 {
        give(&mut s).unwrap();
    }
}

/// Without an agreement the chunk is unknown.
#[test]
fn without_agreement_it_is_unknown() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("NRSACK 1 + HEARTBEAT");
    s.expect_nothing();
    assert_eq!(snapshot(&s).unacknowledged, 1);
}
