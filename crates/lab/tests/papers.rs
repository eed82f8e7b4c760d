//! Papers are run again alike, and say what they should.

#![allow(clippy::unwrap_used)]

use ringway_lab::papers::{Claim, Reproduction, find};

/// A claim that surely comes out otherwise than it should is a fault, whichever way; one of which too
/// few replications can tell is none. The same figures come out on one thread and on two, to the last
/// bit.
#[test]
fn a_paper_is_repeated_and_its_claims_can_fail() {
    let pang = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| find("pang").unwrap().run(12_345, 2).unwrap())
    };
    let text = |r: &Reproduction| {
        (serde_json::to_string(r).unwrap(), format!("{:?} {:?}", r.charts, r.sheet()))
    };
    let mut first = pang(1);
    assert_eq!(text(&first), text(&pang(2)));
    assert!(first.claims.iter().all(|c| c.expected || !c.why.is_empty()));
    // Fast retransmission is worth what Pang says of it where enough is sent and not too much lost.
    let dialled = first.measured.iter().find(|m| m.source == "Table 5.3, without people").unwrap();
    let calls = |row, transport| dialled.get(row, transport).unwrap().ours;
    assert!(calls("5 % in each direction", "SCTP") > 1.2 * calls("5 % in each direction", "UDP"));
    assert!(calls("20 % in each direction", "SCTP") < calls("20 % in each direction", "UDP"));
    for expected in [true, false] {
        let before = first.outside().len();
        let is_one = |c: &&mut Claim| c.expected == expected && c.sure && c.is_right();
        first.claims.iter_mut().find(is_one).unwrap().holds = !expected;
        assert_eq!(first.outside().len(), before + 1);
        let is_one = |c: &&mut Claim| c.expected == expected && !c.is_right();
        first.claims.iter_mut().find(is_one).unwrap().sure = false;
        assert_eq!(first.outside().len(), before);
    }
}
