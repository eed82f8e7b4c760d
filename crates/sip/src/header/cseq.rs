//! CSeq (RFC 3261 section 20.16).

use crate::method::Method;
use crate::syntax::{TOKEN, digits, number, spaces, span};
use ringway_sansio::{Got, Malformed};

/// The value of a CSeq header field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CSeq<'a> {
    /// Sequence number, below 2^31 (RFC 3261 section 8.1.1.5).
    pub seq: u32,
    /// Method, which must equal that of the start line in a request.
    pub method: Method<'a>,
}

impl<'a> CSeq<'a> {
    /// Parses a field value.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let (seq, end) = digits(value, 0);
        if end == 0 {
            return Err(Malformed::here("CSeq: expected a sequence number", value, 0));
        }
        // RFC 3261 section 8.1.1.5; RFC 4475 section 3.1.2.4 has one above it.
        if seq >= 1 << 31 {
            let number = number(&value[..end], u64::MAX).unwrap_or(u64::MAX);
            return Err(Malformed::bad(
                "CSeq: expected a number below 2^31",
                Got::Number(number),
                0,
            ));
        }
        let start = spaces(value, end);
        // Only a method may follow, and a known one is a token.
        let method = Method::parse(&value[start..]);
        if start > end && !matches!(method, Method::Other(_)) {
            return Ok(CSeq { seq: seq as u32, method });
        }
        let stop = span(value, start, TOKEN);
        if start == end || stop == start {
            return Err(Malformed::here("CSeq: expected a method", value, start));
        }
        if stop != value.len() {
            return Err(Malformed::here("CSeq: expected the end", value, stop));
        }
        Ok(CSeq { seq: seq as u32, method })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3261 section 20.16; leading zeros as in RFC 4475 section 3.1.1.1.
    #[test]
    fn number_and_method() {
        let c = CSeq::parse(b"4711 INVITE").unwrap();
        assert_eq!((c.seq, c.method), (4711, Method::Invite));
        let c = CSeq::parse(b"0009\r\n  INVITE").unwrap();
        assert_eq!((c.seq, c.method), (9, Method::Invite));
        assert_eq!(CSeq::parse(b"2147483647 BYE").unwrap().seq, 2147483647);
    }

    #[test]
    fn faults_are_reported() {
        for bad in [&b"2147483648 BYE"[..], b"36893488147419103232 BYE", b"BYE", b"1", b"1BYE"] {
            assert_eq!(CSeq::parse(bad).unwrap_err().status, 400);
        }
        assert!(CSeq::parse(b"1 BYE x").is_err());
        assert!(CSeq::parse(b"1 BY(E").is_err());
        assert!(CSeq::parse(b"-1 BYE").is_err());
    }
}
