//! The header fields of a 200 to REGISTER (RFC 3261 section 10.3 step 8).

use super::bindings::same_instance;
use super::config::RegistrarConfig;
use super::request::RegisterRequest;
use crate::gruu::Gruus;
use crate::location::{BindingView, record::DEFAULT_Q};
use ringway_sansio::Time;
use ringway_sip::write;

/// The form of a list of bindings.
pub(super) struct Listing<'l> {
    pub(super) gruus: &'l Gruus,
    pub(super) aor: &'l [u8],
    pub(super) now: Time,
    /// Whether the user agent supports GRUUs.
    pub(super) gruu: bool,
}

impl Listing<'_> {
    /// Appends a Contact for each binding.
    pub(super) fn write(&self, out: &mut Vec<u8>, bindings: &[BindingView<'_>]) {
        for binding in bindings {
            out.extend_from_slice(b"Contact: <");
            out.extend_from_slice(binding.contact);
            out.extend_from_slice(b">;expires=");
            write::decimal(out, remaining(binding, self.now));
            if binding.q != DEFAULT_Q {
                out.extend_from_slice(b";q=");
                q(out, binding.q);
            }
            if !binding.instance.is_empty() {
                self.instance(out, binding, bindings);
            }
            out.extend_from_slice(binding.params);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the instance and its GRUUs (RFC 5627 section 5.2).
    fn instance(&self, out: &mut Vec<u8>, binding: &BindingView<'_>, all: &[BindingView<'_>]) {
        out.extend_from_slice(b";+sip.instance=\"<");
        out.extend_from_slice(binding.instance);
        out.extend_from_slice(b">\"");
        if binding.reg_id != 0 {
            out.extend_from_slice(b";reg-id=");
            write::decimal(out, u64::from(binding.reg_id));
        }
        if !self.gruu {
            return;
        }
        let start = out.len();
        out.extend_from_slice(b";pub-gruu=\"");
        if !Gruus::write_public(out, self.aor, binding.instance) {
            out.truncate(start);
            return;
        }
        out.push(b'"');
        // The temporary GRUU of an instance is that of its newest binding.
        let newest = all
            .iter()
            .find(|b| same_instance(b.instance, binding.instance))
            .map_or(binding.expires, |b| b.expires);
        let start = out.len();
        out.extend_from_slice(b";temp-gruu=\"");
        if !self.gruus.write_temporary(out, self.aor, binding.epoch, newest) {
            out.truncate(start);
            return;
        }
        out.push(b'"');
    }
}

/// Returns the seconds left, at least one.
fn remaining(binding: &BindingView<'_>, now: Time) -> u64 {
    binding.expires.since(now).as_secs().max(1)
}

/// Appends a `qvalue` that is not 1.
pub(crate) fn q(out: &mut Vec<u8>, thousandths: u16) {
    let q = thousandths.min(999);
    out.extend_from_slice(b"0.");
    let digits = [q / 100, q / 10 % 10, q % 10].map(|d| b'0' + d as u8);
    let length = if digits[2] != b'0' {
        3
    } else if digits[1] != b'0' {
        2
    } else {
        1
    };
    out.extend_from_slice(&digits[..length]);
}

/// Appends the header fields of a response other than its contacts.
pub(super) fn finish(
    out: &mut Vec<u8>,
    register: &RegisterRequest<'_>,
    scratch: &[u8],
    config: &RegistrarConfig,
    date: &[u8],
) {
    // RFC 3327 section 5.3.
    if !register.path.is_empty() {
        write::header(out, "Path", &scratch[register.path.clone()]);
    }
    if !config.service_route.is_empty() {
        write::header(out, "Service-Route", &config.service_route);
    }
    // RFC 5626 section 6.
    if register.outbound && register.supported.outbound {
        write::header(out, "Require", b"outbound");
        if let (Some(seconds), Some(_)) = (config.flow_timer, register.flow) {
            write::header_decimal(out, "Flow-Timer", u64::from(seconds));
        }
    }
    out.extend_from_slice(date);
}

/// The Date header field, written at most once a second.
#[derive(Debug)]
pub(super) struct DateLine {
    second: u64,
    line: Vec<u8>,
}

impl Default for DateLine {
    fn default() -> Self {
        DateLine { second: u64::MAX, line: Vec::new() }
    }
}

impl DateLine {
    pub(super) fn at(&mut self, now: Time) -> &[u8] {
        if self.second != now.as_secs() {
            self.second = now.as_secs();
            self.line.clear();
            self.line.extend_from_slice(b"Date: ");
            date(&mut self.line, now);
            self.line.extend_from_slice(b"\r\n");
        }
        &self.line
    }
}

/// Appends a date in the form of RFC 3261 section 20.17.
pub(crate) fn date(out: &mut Vec<u8>, now: Time) {
    const DAYS: [&[u8]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: [&[u8]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let (days, seconds) = (now.as_secs() / 86_400, now.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    out.extend_from_slice(DAYS[(days % 7) as usize]);
    out.extend_from_slice(b", ");
    two(out, day);
    out.push(b' ');
    out.extend_from_slice(MONTHS[month as usize]);
    out.push(b' ');
    write::decimal(out, year);
    out.push(b' ');
    for (i, part) in [seconds / 3600, seconds / 60 % 60, seconds % 60].into_iter().enumerate() {
        if i > 0 {
            out.push(b':');
        }
        two(out, part);
    }
    out.extend_from_slice(b" GMT");
}

fn two(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&[b'0' + (n / 10) as u8, b'0' + (n % 10) as u8]);
}

/// Returns the year, the month from 0 and the day from 1 for a number of days since 1970-01-01 (Gregorian).
fn civil(days: u64) -> (u64, u64, u64) {
    // Years are counted from March, so that the leap day is the last.
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let in_next = u64::from(month >= 10);
    (era * 400 + year + in_next, (month + 2) % 12, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// RFC 3261 section 20.17.
    #[test]
    fn dates() {
        let at = |secs| text(|out| date(out, Time::from_secs(secs)));
        assert_eq!(at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(at(951_782_399), "Mon, 28 Feb 2000 23:59:59 GMT");
        assert_eq!(at(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(at(1_289_690_940), "Sat, 13 Nov 2010 23:29:00 GMT");
        assert_eq!(at(4_107_542_399), "Sun, 28 Feb 2100 23:59:59 GMT");
        assert_eq!(at(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
    }

    #[test]
    fn the_date_is_cached_for_a_second() {
        let mut line = DateLine::default();
        assert_eq!(line.at(Time::from_millis(999)), b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
        assert_eq!(line.at(Time::from_secs(1)), b"Date: Thu, 01 Jan 1970 00:00:01 GMT\r\n");
    }

    #[test]
    fn q_without_needless_digits() {
        for (q_value, expected) in [(0, "0.0"), (500, "0.5"), (250, "0.25"), (5, "0.005")] {
            assert_eq!(text(|out| q(out, q_value)), expected);
        }
    }
}
