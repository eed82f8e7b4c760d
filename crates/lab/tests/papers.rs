//! Papers are run again alike, and say what they should.

#![allow(clippy::unwrap_used)]

use ringway_lab::papers::{Reproduction, find};

/// The same seed gives the same figures to the last bit. A claim that comes out otherwise than it
/// should is a fault, whichever way.
#[test]
fn a_paper_is_repeated_and_its_claims_can_fail() {
    let pang = || find("pang").unwrap().run(12_345, 1).unwrap();
    let text = |r: &Reproduction| serde_json::to_string(r).unwrap();
    let mut first = pang();
    assert_eq!(text(&first), text(&pang()));
    assert!(first.claims.iter().all(|c| c.expected || !c.why.is_empty()));
    for expected in [true, false] {
        let before = first.outside().len();
        let claim = first.claims.iter_mut().find(|c| c.expected == expected && c.is_right());
        claim.unwrap().holds = !expected;
        assert_eq!(first.outside().len(), before + 1);
    }
}
