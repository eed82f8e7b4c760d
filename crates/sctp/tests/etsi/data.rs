//! Data (D).

use super::*;

/// D 8.1: a message that fits goes in one chunk.
#[test]
fn d_v_8_1() {
    let mut s = Script::accepted(plain());
    s.send(0, 1452);
    s.expect("DATA 1 BE 0:0 1452");
    s.expect_nothing();
}

/// D 8.2: one that does not fit goes in several, of one stream sequence number.
#[test]
fn d_v_8_2() {
    let mut s = Script::accepted(plain());
    s.send(0, 4000);
    s.expect("DATA 1 B 0:0 1452");
    s.expect("DATA 2  0:0 1452");
    s.expect("DATA 3 E 0:0 1096");
}

/// D 8.3: fragments that come are put together.
#[test]
fn d_v_8_3() {
    let mut sender = Script::accepted(plain());
    sender.send(0, 4000);
    let fragments: Vec<Vec<u8>> =
        core::iter::from_fn(|| sender.take()).map(|(_, bytes)| bytes).collect();
    let mut s = Script::accepted(plain());
    for (n, bytes) in fragments.iter().enumerate() {
        let [Chunk::Data(d)] = chunks(bytes)[..] else { panic!() };
        let mut packet = Vec::new();
        let tsn = s.peer_tsn.plus(n as u32);
        ringway_sctp::wire::Data { tsn, ..d }.emit(&mut packet);
        let tag = s.tag;
        give_chunks(&mut s, tag, &packet);
    }
    assert_eq!(s.read(), [4000]);
}

/// D 8.4: what is acknowledged is not sent again.
#[test]
fn d_v_8_4() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("SACK 1");
    s.wait(secs(100));
    s.expect_nothing();
    assert_eq!(snapshot(&s).unacknowledged, 0);
}

/// D 8.5: what is not acknowledged is sent again when T3-rtx runs out.
#[test]
fn d_i_8_5() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.wait(ms(999));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("DATA 1 BE 0:0 10");
}

/// D 8.6: a duplicate is reported, and delivered to the user once.
#[test]
fn d_o_8_6() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 10");
    s.expect("SACK 1");
    s.give("DATA 1 BE 0:0 10");
    s.expect("SACK 1 dup 1");
    s.give("DATA 1 BE 0:0 10 + DATA 1 BE 0:0 10");
    s.expect("SACK 1 dup 1 dup 1");
    assert_eq!(s.read(), [10]);
}

/// A window of zero, and `sizes` to send: the probes, each as a line.
fn probes(sizes: &[usize], first: usize) -> Vec<String> {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("SACK 1 w 0");
    for &size in sizes {
        s.send(0, size);
    }
    let mut lines = Vec::new();
    for _ in 0..4 {
        s.wait(secs(8));
        while let Some((_, line)) = s.line() {
            lines.push(line);
        }
        s.give("SACK 1 w 0");
    }
    assert!(lines.len() >= 4, "{lines:?}");
    assert!(lines.iter().all(|l| l.ends_with(&format!(" {first}"))), "{lines:?}");
    lines
}

/// D 8.7: a window of zero is probed with one chunk, always the same.
#[test]
fn d_o_8_7() {
    assert!(probes(&[500, 600], 500).iter().all(|line| line == "DATA 2 BE 0:1 500"));
}

/// D 8.8: so it is where that chunk is a fragment.
#[test]
fn d_o_8_8() {
    assert!(probes(&[4000], 1452).iter().all(|line| line == "DATA 2 B 0:1 1452"));
}

/// D 8.9: what is sent again goes before what is new.
#[test]
fn d_v_8_9() {
    let mut s = Script::accepted(Settings { initial_cwnd: Some(6000), ..plain() });
    for _ in 0..8 {
        s.send(0, 1400);
    }
    s.collect();
    s.sent.clear();
    s.give("SACK 0 2-2");
    s.give("SACK 0 2-3");
    s.sent.clear();
    s.give("SACK 0 2-4");
    assert!(s.line().unwrap().1.starts_with("DATA 1 BE 0:0 1400"));
}

/// D 8.10: a SACK counts from whichever address of the peer's it comes.
#[test]
fn d_v_8_10() {
    let mut s = Script::two_paths(plain());
    s.send(0, 10);
    s.expect_to(B1, "DATA 1 BE 0:0 10");
    s.give_from(B2, A1, "SACK 1");
    s.wait(secs(20));
    s.expect_nothing();
    assert_eq!(snapshot(&s).unacknowledged, 0);
}

/// D 8.11: DATA without data is answered with ABORT (No User Data).
#[test]
fn d_i_8_11() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 0");
    let (_, bytes) = s.take().unwrap();
    let tsn = s.peer_tsn.raw().to_be_bytes();
    let cause = [&[0, 9, 0, 8][..], &tsn].concat();
    assert!(matches!(chunks(&bytes)[..], [Chunk::Abort { causes, .. }] if causes == cause));
}

/// D 8.12: a SACK whose cumulative TSN ack is older than one that came before is dropped.
#[test]
fn d_o_8_12() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.send(0, 11);
    s.collect();
    s.sent.clear();
    s.give("SACK 1");
    s.give("SACK 0 2-2");
    assert_eq!(snapshot(&s).unacknowledged, 1, "the gap of the old SACK does not count");
    s.wait(secs(1));
    s.expect("DATA 2 BE 0:1 11");
}

/// D 8.13 and 8.14: a message of the greatest size goes out, and comes in. Here the buffers bound
/// it.
#[test]
fn d_v_8_13() {
    let mut pair = Pair::new(plain(), plain(), ms(5));
    let (a, b) = pair.open();
    let most = Settings::default().send_buffer - ringway_sctp::MESSAGE_COST;
    let bytes = pattern(0, most);
    pair.send(a, 0, &bytes);
    let (mut got, mut out) = (Vec::new(), Vec::new());
    while got.len() < most {
        assert!(pair.step(at(5_000_000)));
        while let Ok(Some(_)) = pair.b.recv(b, &mut out) {
            got.append(&mut out);
        }
    }
    assert_eq!(got, bytes);
}

/// D 8.15: a message larger than the user has room for. The purpose has it answered with ABORT; here
/// it is delivered in parts (RFC 9260 section 6.9), and nothing is kept beyond the buffer.
#[test]
fn d_v_8_15() {
    let small = Settings { receive_buffer: 20_000, ..plain() };
    let mut pair = Pair::new(plain(), small, ms(5));
    let (a, b) = pair.open();
    let bytes = pattern(0, 300_000);
    pair.send(a, 0, &bytes);
    let (mut got, mut out, mut parts) = (Vec::new(), Vec::new(), 0);
    while got.len() < bytes.len() {
        assert!(pair.step(at(5_000_000)));
        while let Ok(Some(part)) = pair.b.recv(b, &mut out) {
            assert_eq!((part.begin, part.end), (parts == 0, got.len() + out.len() == bytes.len()));
            parts += 1;
            got.append(&mut out);
        }
    }
    assert!(got == bytes && parts > 1);
}
