//! Papers are run again alike, and say what they should.

#![allow(clippy::unwrap_used)]

use ringway_lab::papers::{Reproduction, find};

fn pang(seed: u64, replications: u64) -> Reproduction {
    find("pang").unwrap().run(seed, replications).unwrap()
}

/// The same seed gives the same figures to the last bit, another gives others.
#[test]
fn a_paper_is_repeated_to_the_last_bit() {
    let text = |r: &Reproduction| serde_json::to_string(r).unwrap();
    let first = pang(3, 1);
    assert_eq!(text(&first), text(&pang(3, 1)));
    assert_ne!(text(&first), text(&pang(4, 1)));
}

/// A claim that comes out otherwise than it should is a fault.
#[test]
fn a_wrong_claim_is_a_fault() {
    let mut pang = pang(12_345, 2);
    assert_eq!(pang.outside(), Vec::<String>::new());
    let claim = pang.claims.iter_mut().find(|c| c.expected).unwrap();
    claim.holds = false;
    assert_eq!(pang.outside().len(), 1);
    let claim = pang.claims.iter_mut().find(|c| !c.expected).unwrap();
    assert!(!claim.why.is_empty());
    claim.holds = true;
    assert_eq!(pang.outside().len(), 2);
}
