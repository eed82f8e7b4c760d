//! Acknowledgement (A).

use super::*;

/// A 9.1: the first DATA is acknowledged at once.
#[test]
fn a_v_9_1() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 10");
    s.expect("SACK 1");
}

/// A 9.2: one SACK acknowledges all that came in a packet.
#[test]
fn a_v_9_2() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 10 + DATA 2 BE 0:1 10 + DATA 3 BE 1:0 10");
    s.expect("SACK 3");
    s.expect_nothing();
}

/// A 9.3: a gap is reported at once, and so is its end.
#[test]
fn a_o_9_3() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 10");
    s.expect("SACK 1");
    s.give("DATA 3 BE 0:2 10");
    s.expect("SACK 1 3-3");
    s.give("DATA 2 BE 0:1 10");
    s.expect("SACK 3");
}
