//! Percent escapes (RFC 3261 section 19.1.2).

use crate::syntax::{hex, is};

/// Returns the octet at the start of `bytes` without its escape, and how many octets it took.
#[inline]
pub(crate) fn octet(bytes: &[u8]) -> (u8, usize) {
    if bytes[0] == b'%'
        && let [_, high, low, ..] = *bytes
        && let (Some(high), Some(low)) = (hex(high), hex(low))
    {
        return (high << 4 | low, 3);
    }
    (bytes[0], 1)
}

/// Appends `bytes` to `out` without escapes. A `%` that begins no escape is unchanged.
pub fn unescape_into(bytes: &[u8], out: &mut Vec<u8>) {
    let mut i = 0;
    while i < bytes.len() {
        let (b, n) = octet(&bytes[i..]);
        out.push(b);
        i += n;
    }
}

/// Appends `text`, which contains no escapes, to `out` for the user part of a SIP URI: everything that must be escaped
/// is, in upper case, and nothing else.
pub fn escape_into(text: &[u8], out: &mut Vec<u8>) {
    for &b in text {
        push(b, crate::syntax::USER, out);
    }
}

/// Appends one octet, escaped unless it is of `class`.
#[inline]
pub(crate) fn push(b: u8, class: u16, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if is(b, class) {
        out.push(b);
    } else {
        let (high, low) = (DIGITS[(b >> 4) as usize], DIGITS[(b & 15) as usize]);
        out.extend_from_slice(&[b'%', high, low]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_go_and_come_back() {
        let mut out = Vec::new();
        unescape_into(b"%61lice%40%zz%", &mut out);
        assert_eq!(out, b"alice@%zz%");
        let mut back = Vec::new();
        escape_into(b"alice@\x00;x", &mut back);
        assert_eq!(back, b"alice%40%00;x");
    }
}
