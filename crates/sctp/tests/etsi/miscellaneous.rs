//! Miscellaneous (M): chunks of unknown types, before DATA.

use super::*;

/// The answer to an unknown chunk whose two highest bits are `bits`, and whether the DATA behind it
/// was read.
fn unknown(bits: u8) -> (Option<String>, bool) {
    let mut s = Script::accepted(plain());
    s.give(&format!("UNKNOWN {} + DATA 1 BE 0:0 10", bits << 6 | 0x3c));
    let answer = s.line().map(|(_, line)| line);
    (answer, !s.read().is_empty())
}

/// M 10.1: highest bits 11: reported, and the rest is processed.
#[test]
fn m_i_10_1() {
    assert_eq!(unknown(0b11), (Some("ERROR 6 + SACK 1".into()), true));
}

/// M 10.2: highest bits 00: not reported, and the rest is ignored.
#[test]
fn m_i_10_2() {
    assert_eq!(unknown(0b00), (None, false));
}

/// M 10.3: highest bits 01: reported, and the rest is ignored.
#[test]
fn m_i_10_3() {
    assert_eq!(unknown(0b01), (Some("ERROR 6".into()), false));
}

/// M 10.4: highest bits 10: not reported, and the rest is processed.
#[test]
fn m_i_10_4() {
    assert_eq!(unknown(0b10), (Some("SACK 1".into()), true));
}
