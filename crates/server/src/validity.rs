//! The validity period of a certificate (RFC 5280 section 4.1.2.5).
//!
//! The libraries that verify certificate chains do not expose these dates. Only as much DER is
//! parsed here as is needed to reach them.

use crate::calendar::{date, days_before};
use ringway_sansio::Time;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Checks that the first certificate of a PEM file is valid at `now`. A file that cannot be read is
/// not reported here.
///
/// # Errors
/// One line that names the file and the date.
pub(crate) fn check(path: &Path, now: Time) -> Result<(), String> {
    let Ok(certificate) = CertificateDer::from_pem_file(path) else { return Ok(()) };
    let Some((not_before, not_after)) = dates(&certificate) else {
        return Err(format!("{}: the certificate has no dates", path.display()));
    };
    let now = now.as_secs();
    if now > not_after {
        return Err(format!("{}: the certificate expired on {}", path.display(), date(not_after)));
    }
    if now < not_before {
        let from = date(not_before);
        return Err(format!("{}: the certificate is not valid before {from}", path.display()));
    }
    Ok(())
}

/// Returns both dates of a certificate in seconds since 1970.
fn dates(certificate: &[u8]) -> Option<(u64, u64)> {
    let (tag, certificate, _) = element(certificate)?;
    let (tbs_tag, tbs, _) = element(certificate)?;
    if (tag, tbs_tag) != (SEQUENCE, SEQUENCE) {
        return None;
    }
    let (first, _, behind) = element(tbs)?;
    let rest = if first == VERSION { element(behind)?.2 } else { behind };
    // This skips the serial number; signature algorithm and issuer follow.
    let rest = element(rest)?.2;
    let rest = element(rest)?.2;
    let (tag, validity, _) = element(rest)?;
    if tag != SEQUENCE {
        return None;
    }
    let (tag, not_before, behind) = element(validity)?;
    let from = seconds(tag, not_before)?;
    let (tag, not_after, _) = element(behind)?;
    Some((from, seconds(tag, not_after)?))
}

/// Splits off one element of DER: its tag, its contents, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (octets, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = octets.iter().fold(0usize, |n, b| n << 8 | usize::from(*b));
            (length, rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// Parses a time (RFC 5280 section 4.1.2.5): `YYMMDDHHMMSSZ`, where 50 to 99 are in the 20th
/// century, or `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, text: &[u8]) -> Option<u64> {
    let text = text.strip_suffix(b"Z")?;
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let two =
        |i: usize| Some(u64::from(*text.get(i)? - b'0') * 10 + u64::from(*text.get(i + 1)? - b'0'));
    let (year, at) = match (tag, text.len()) {
        (UTC_TIME, 12) => (if two(0)? < 50 { 2000 + two(0)? } else { 1900 + two(0)? }, 2),
        (GENERALIZED_TIME, 14) => (two(0)? * 100 + two(2)?, 4),
        _ => return None,
    };
    let (month, day) = (two(at)?, two(at + 2)?);
    let clock = two(at + 4)? * 3600 + two(at + 6)? * 60 + two(at + 8)?;
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    Some(days_before(year, month)?.checked_add(day - 1)? * 86_400 + clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_convert_to_seconds() {
        for (tag, text, at) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "000229120000Z", 951_825_600),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
            (UTC_TIME, "261122170500Z", 1_795_367_100),
        ] {
            assert_eq!(seconds(tag, text.as_bytes()), Some(at), "{text}");
            let digits: String = date(at).chars().filter(char::is_ascii_digit).collect();
            assert!(digits.ends_with(&text[..text.len() - 1]), "{text} {}", date(at));
        }
        for text in ["", "Z", "2611221705Z", "261322170500Z", "261100170500Z", "26112217050aZ"] {
            assert_eq!(seconds(UTC_TIME, text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn dates_are_read_from_a_certificate() {
        let mut params = rcgen::CertificateParams::new(["a.org".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 2);
        params.not_after = rcgen::date_time_ymd(2055, 3, 4);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let der = certificate.der();
        let (from, to) = dates(der).unwrap();
        assert_eq!(date(from), "2020-01-02 00:00:00 UTC");
        assert_eq!(date(to), "2055-03-04 00:00:00 UTC");
        for cut in 0..der.len() {
            assert_eq!(dates(&der[..cut]), None);
        }
    }
}
