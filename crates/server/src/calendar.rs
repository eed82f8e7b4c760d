//! Dates and times as text, for people and for other programs.

use ringway_sansio::Time;

/// Returns the number of days from 1970-01-01 to the first day of a month; `None` before 1970.
pub(crate) fn days_before(year: u64, month: u64) -> Option<u64> {
    const DAYS: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let leaps = leap_days(year.checked_sub(1)?).checked_sub(leap_days(1969))?;
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let this = u64::from(leap && month > 2);
    Some((year - 1970) * 365 + leaps + DAYS[month as usize - 1] + this)
}

/// Formats seconds since 1970 as `2026-11-22 17:05:00 UTC`.
pub(crate) fn date(seconds: u64) -> String {
    let (day, clock) = split(seconds);
    format!("{day} {clock} UTC")
}

/// Formats a time according to RFC 3339 with milliseconds: `2026-11-22T17:05:00.123Z`.
pub(crate) fn timestamp(time: Time) -> String {
    let (day, clock) = split(time.as_secs());
    format!("{day}T{clock}.{:03}Z", time.as_millis() % 1000)
}

/// Splits seconds since 1970 into the texts of the date and of the time of day.
fn split(seconds: u64) -> (String, String) {
    let (days, clock) = (seconds / 86_400, seconds % 86_400);
    let fits = |year: u64, month: u64| days_before(year, month).is_some_and(|d| d <= days);
    let mut year = 1970 + days / 366;
    while fits(year + 1, 1) {
        year += 1;
    }
    let month = (1..=12).rev().find(|m| fits(year, *m)).unwrap_or(1);
    let day = days - days_before(year, month).unwrap_or(days) + 1;
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    (format!("{year}-{month:02}-{day:02}"), format!("{hour:02}:{minute:02}:{second:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted() {
        assert_eq!(timestamp(Time::from_millis(1_795_367_100_045)), "2026-11-22T17:05:00.045Z");
        assert_eq!(date(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
