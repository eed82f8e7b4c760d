//! Associations between Ringway's SCTP and others', opened and shut down from either side, with
//! messages of a byte to a megabyte both ways over a wire that loses, reorders and duplicates, and in
//! `options` all else that both ends can do.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod dcsctp;
mod end;
mod options;
mod ours;
mod proto;
mod script;
mod tap;
mod wire;

use end::{Kind, Offer};
use wire::{BAD, GOOD, Line, World};

const SIZES: [usize; 9] = [1, 3, 100, 1100, 1452, 5000, 65_536, 300_000, 1_000_000];

/// Opened from either side, closed by `closer` or, if none is named, by who did not open.
fn meet(peer: Kind, closer: Option<Kind>, line: Line) {
    for kinds in [[Kind::Ringway, peer], [peer, Kind::Ringway]] {
        let mut world = World::new(kinds, [Offer::default(); 2], line, 7 + line.lost);
        let posts = script::sizes(&SIZES);
        for came in world.exchange([&posts, &posts]) {
            assert_eq!(script::check(&posts, &came), 0);
        }
        world.close(closer.map_or(1, |closer| usize::from(kinds[1] == closer)));
    }
}

#[test]
fn dcsctp_over_a_good_wire() {
    meet(Kind::DcSctp, None, GOOD);
}

#[test]
fn dcsctp_over_a_bad_wire() {
    meet(Kind::DcSctp, None, BAD);
}

// The SHUTDOWN of sctp-proto 0.10.8 bears a TSN of its own sending in place of the last that it has
// received (RFC 9260 section 3.3.8), so that it acknowledges, as often as not, what was never sent.
// That is answered with an ABORT, here as in other implementations: only Ringway shuts down.

#[test]
fn sctp_proto_over_a_good_wire() {
    meet(Kind::Proto, Some(Kind::Ringway), GOOD);
}

#[test]
fn sctp_proto_over_a_bad_wire() {
    meet(Kind::Proto, Some(Kind::Ringway), BAD);
}
