//! The retransmission timer (RT).

use super::*;

/// RT 11.1: each time it runs out the timeout doubles, up to RTO.Max.
#[test]
fn rt_i_11_1() {
    let mut s = Script::accepted(Settings { rto_max: secs(8), ..plain() });
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    for wait in [1, 2, 4, 8, 8] {
        s.wait(secs(wait) - ms(1));
        s.expect_nothing();
        s.wait(ms(1));
        s.expect("DATA 1 BE 0:0 10");
    }
}

/// RT 11.2: what is sent again goes to another address of the peer's, where there is one.
#[test]
fn rt_i_11_2() {
    let mut s = Script::two_paths(Settings { potentially_failed: None, ..plain() });
    s.send(0, 10);
    s.expect_to(B1, "DATA 1 BE 0:0 10");
    s.wait(snapshot(&s).paths[0].rto);
    s.expect_to(B2, "DATA 1 BE 0:0 10");
}

/// RT 11.3: each address has a timeout of its own: only that of the one that failed doubles.
#[test]
fn rt_i_11_3() {
    let mut s = Script::two_paths(Settings { potentially_failed: None, ..plain() });
    let before: Vec<_> = snapshot(&s).paths.iter().map(|p| p.rto).collect();
    s.send(0, 10);
    s.wait(before[0]);
    let after: Vec<_> = snapshot(&s).paths.iter().map(|p| p.rto).collect();
    assert_eq!(after, [before[0] * 2, before[1]]);
}
