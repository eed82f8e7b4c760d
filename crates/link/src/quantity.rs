//! Quantities with units, as written in a configuration: `"35 ms"`, `"1.7 Mbit/s"`, `"1500 B"`, `"1
//! %"`.
//!
//! A number without its unit is an error, because a wrong unit is hard to find. Only a probability may
//! be a bare number, a fraction of one.

use core::fmt;
use ringway_sansio::Duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The reason why a quantity could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, got {got:?}")]
pub struct QuantityError {
    /// The expected format, with an example.
    pub expected: &'static str,
    /// The text.
    pub got: String,
}

/// Splits `35ms` into 35 and `ms`. Returns `None` unless the text starts with a finite number that is
/// not negative.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    Some((value, text[end..].trim_start()))
}

/// Returns `value` times `scale` as a whole number, if it fits one.
fn whole(value: f64, scale: f64) -> Option<u64> {
    let product = (value * scale).round();
    // 2^63 is far beyond any realistic span or rate.
    (product < 9.2e18).then_some(product as u64)
}

/// Returns the largest of `units` that divides `value`, with the quotient.
fn largest<'a>(value: u64, units: &[(u64, &'a str)]) -> (u64, &'a str) {
    let fits = units.iter().find(|(scale, _)| value != 0 && value.is_multiple_of(*scale));
    fits.map_or((value, units[units.len() - 1].1), |(scale, unit)| (value / scale, unit))
}

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    const EXPECTED: &str = "a time with its unit (ns, us, ms, s, min), such as \"35 ms\"";

    /// Creates a span of milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Span(ms * 1_000_000)
    }

    /// Creates a span of seconds.
    pub const fn from_secs(s: u64) -> Self {
        Span(s * 1_000_000_000)
    }

    /// Returns whole nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns seconds with their fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// Parses `35 ms`.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let read = || {
            let (value, unit) = split(text)?;
            let scale = match unit {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "min" => 60e9,
                _ => return None,
            };
            whole(value, scale).map(Span)
        };
        read().ok_or_else(|| QuantityError { expected: Self::EXPECTED, got: text.into() })
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        Duration::from_nanos(span.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
        let (value, unit) = largest(self.0, &units);
        write!(f, "{value} {unit}")
    }
}

/// A bit rate, in bit/s; [`Rate::UNLIMITED`] for a link that takes no time to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

impl Rate {
    const EXPECTED: &str = "a bit rate with its unit (bit/s, kbit/s, Mbit/s, Gbit/s), such as \"1 Mbit/s\", or \"unlimited\"";

    /// Sending takes no time.
    pub const UNLIMITED: Rate = Rate(u64::MAX);

    /// Creates a rate in bit/s.
    pub const fn from_bits(bits: u64) -> Self {
        Rate(bits)
    }

    /// Returns whether sending takes no time.
    pub const fn is_unlimited(self) -> bool {
        self.0 == u64::MAX
    }

    /// Returns the nanoseconds to send `bytes`, rounded to the nearest; `u64::MAX` at rate 0.
    #[inline]
    pub fn nanos(self, bytes: u64) -> u64 {
        if self.is_unlimited() {
            return 0;
        }
        if self.0 == 0 {
            return u64::MAX;
        }
        match bytes.checked_mul(8_000_000_000).and_then(|bits| bits.checked_add(self.0 / 2)) {
            Some(bits) => bits / self.0,
            None => {
                let nanos = (u128::from(bytes) * 8_000_000_000 + u128::from(self.0 / 2))
                    / u128::from(self.0);
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
        }
    }

    /// Parses `1.7 Mbit/s`, `448 kb/s` or `unlimited`.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let read = || {
            if text.trim() == "unlimited" {
                return Some(Rate::UNLIMITED);
            }
            let (value, unit) = split(text)?;
            let unit = unit.strip_suffix("/s").or(unit.strip_suffix("ps")).unwrap_or(unit);
            let scale = match unit.strip_suffix("bit").or(unit.strip_suffix('b'))? {
                "" => 1.0,
                "k" => 1e3,
                "m" | "M" => 1e6,
                "g" | "G" => 1e9,
                _ => return None,
            };
            whole(value, scale).map(Rate)
        };
        read().ok_or_else(|| QuantityError { expected: Self::EXPECTED, got: text.into() })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            return f.write_str("unlimited");
        }
        let units =
            [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s"), (1, "bit/s")];
        let (value, unit) = largest(self.0, &units);
        write!(f, "{value} {unit}")
    }
}

/// A number of bytes; [`Size::UNLIMITED`] where there is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl Size {
    const EXPECTED: &str =
        "a size with its unit (B, kB, MB, KiB, MiB), such as \"1500 B\", or \"unlimited\"";

    /// No bound.
    pub const UNLIMITED: Size = Size(u64::MAX);

    /// Parses `1500 B`, `64 KiB` or `unlimited`.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let read = || {
            if text.trim() == "unlimited" {
                return Some(Size::UNLIMITED);
            }
            let (value, unit) = split(text)?;
            let scale = match unit {
                "B" => 1.0,
                "kB" => 1e3,
                "MB" => 1e6,
                "KiB" => 1024.0,
                "MiB" => 1048576.0,
                _ => return None,
            };
            whole(value, scale).map(Size)
        };
        read().ok_or_else(|| QuantityError { expected: Self::EXPECTED, got: text.into() })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Size::UNLIMITED {
            return f.write_str("unlimited");
        }
        let (value, unit) = largest(self.0, &[(1_000_000, "MB"), (1_000, "kB"), (1, "B")]);
        write!(f, "{value} {unit}")
    }
}

/// A probability or a correlation, 0 to 1, written `"1 %"` or as the fraction `0.01`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Chance(f64);

impl Chance {
    const EXPECTED: &str = "a probability such as \"1 %\", or a fraction from 0 to 1";

    /// Never.
    pub const NEVER: Chance = Chance(0.0);
    /// Always.
    pub const ALWAYS: Chance = Chance(1.0);

    /// Creates a chance from a fraction of one.
    pub fn new(fraction: f64) -> Result<Self, QuantityError> {
        if (0.0..=1.0).contains(&fraction) {
            return Ok(Chance(fraction));
        }
        Err(QuantityError { expected: Self::EXPECTED, got: fraction.to_string() })
    }

    /// Creates a chance from a percentage.
    pub fn percent(percent: f64) -> Result<Self, QuantityError> {
        Self::new(percent / 100.0)
    }

    /// Returns the fraction of one.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Parses `1 %` or `0.01`.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError { expected: Self::EXPECTED, got: text.into() };
        let (value, unit) = split(text).ok_or_else(error)?;
        match unit {
            "%" => Self::percent(value).map_err(|_| error()),
            "" => Self::new(value).map_err(|_| error()),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It is written as a fraction, since a percentage would not always parse to the same number.
        write!(f, "{}", self.0)
    }
}

/// Implements parsing and writing of a quantity as a string.
macro_rules! as_text {
    ($($type:ident),*) => { $(
        impl core::str::FromStr for $type {
            type Err = QuantityError;
            fn from_str(text: &str) -> Result<Self, QuantityError> {
                $type::parse(text)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($type::EXPECTED)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        let wrong = |_| E::invalid_value(de::Unexpected::Str(text), &self);
                        $type::parse(text).map_err(wrong)
                    }
                    fn visit_f64<E: de::Error>(self, value: f64) -> Result<$type, E> {
                        let wrong = |_| E::invalid_value(de::Unexpected::Float(value), &self);
                        $type::parse(&value.to_string()).map_err(wrong)
                    }
                    fn visit_i64<E: de::Error>(self, value: i64) -> Result<$type, E> {
                        let wrong = |_| E::invalid_value(de::Unexpected::Signed(value), &self);
                        $type::parse(&value.to_string()).map_err(wrong)
                    }
                    fn visit_u64<E: de::Error>(self, value: u64) -> Result<$type, E> {
                        let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(value), &self);
                        $type::parse(&value.to_string()).map_err(wrong)
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    )* };
}

as_text!(Span, Rate, Size, Chance);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_scale() {
        assert_eq!(Span::parse("35ms"), Ok(Span(35_000_000)));
        assert_eq!(Span::parse(" 1.5 s "), Ok(Span(1_500_000_000)));
        assert_eq!(Rate::parse("448 kb/s"), Ok(Rate(448_000)));
        assert_eq!(Rate::parse("0.2 Mb/s"), Ok(Rate(200_000)));
        assert_eq!(Rate::parse("1mbit"), Ok(Rate(1_000_000)));
        assert_eq!(Rate::parse("unlimited"), Ok(Rate::UNLIMITED));
        assert_eq!(Size::parse("64 KiB"), Ok(Size(65_536)));
        assert_eq!(Chance::parse("1 %").map(Chance::get), Ok(0.01));
        assert_eq!(Chance::parse("0.25").map(Chance::get), Ok(0.25));
    }

    #[test]
    fn a_missing_unit_is_an_error_that_says_what_was_expected() {
        for text in ["35", "", "ms", "35 m", "-1 ms", "1e30 s", "1..5 s", "99999999999999 min"] {
            assert!(Span::parse(text).is_err(), "{text}");
        }
        assert!(Rate::parse("5 MB/s").is_err());
        assert!(Chance::parse("101 %").is_err());
        assert!(Chance::parse("1 per mille").is_err());
        let error = Span::parse("35").unwrap_err().to_string();
        assert!(error.contains("ms") && error.contains("\"35\""), "{error}");
    }

    #[test]
    fn sending_time_is_rounded_to_the_nearest() {
        assert_eq!(Rate(200_000).nanos(1000), 40_000_000);
        assert_eq!(Rate(3).nanos(1), 2_666_666_667);
        assert_eq!(Rate::UNLIMITED.nanos(1 << 40), 0);
        assert_eq!(Rate(0).nanos(1), u64::MAX);
        assert_eq!(Rate(8).nanos(4_000_000_000), 4_000_000_000_000_000_000);
        assert_eq!(Rate(1).nanos(u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(n in 0u64..1 << 52, p in 0.0f64..=1.0) {
            prop_assert_eq!(Span::parse(&Span(n).to_string()), Ok(Span(n)));
            prop_assert_eq!(Rate::parse(&Rate(n).to_string()), Ok(Rate(n)));
            prop_assert_eq!(Size::parse(&Size(n).to_string()), Ok(Size(n)));
            prop_assert_eq!(Chance::parse(&Chance(p).to_string()), Ok(Chance(p)));
        }
    }
}
