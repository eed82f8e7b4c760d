//! Durations as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration as text: `"500ms"`, `"32s"`, `"5m"`, `"1h"`, `"7d"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    pub(crate) const fn ms(n: u64) -> Self {
        Span(Duration::from_millis(n))
    }

    pub(crate) const fn secs(n: u64) -> Self {
        Span(Duration::from_secs(n))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let (n, unit) = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")]
            .into_iter()
            .find(|(size, _)| ms >= *size && ms.is_multiple_of(*size))
            .map_or((ms, "ms"), |(size, unit)| (ms / size, unit));
        write!(f, "{n}{unit}")
    }
}

impl FromStr for Span {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let scale = match unit.trim() {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000u64,
            _ => return Err(()),
        };
        let number = number.parse::<u64>().ok().and_then(|n| n.checked_mul(scale));
        number.map(Span::ms).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_round_trip_as_text() {
        for text in ["500ms", "32s", "5m", "1h", "7d"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["", "5", "s", "-1s", "1.5s", "1w", "99999999999999999999s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
