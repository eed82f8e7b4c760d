//! Deserializers for values that serde does not know: with a unit, with bounds, or one of a few
//! words.

use super::span::Span;
use serde::de::{self, Unexpected};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Deserializes a duration within bounds.
pub(super) fn duration<'de, D: Deserializer<'de>>(
    from: D,
    range: RangeInclusive<Span>,
) -> Result<Duration, D::Error> {
    struct Visitor(RangeInclusive<Span>);
    impl de::Visitor<'_> for Visitor {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(
                "a duration in quotes with its unit, such as \"500ms\", \"32s\", \"5m\", \"1h\", \"7d\"",
            )
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            let wrong = |()| E::invalid_value(Unexpected::Str(text), &self);
            let span: Span = text.parse().map_err(wrong)?;
            if self.0.contains(&span) {
                return Ok(span.0);
            }
            let (min, max) = (self.0.start(), self.0.end());
            Err(E::custom(format!("expected a duration from {min} to {max}, got {span}")))
        }
    }
    from.deserialize_any(Visitor(range))
}

/// Deserializes an integer within bounds; `unit` names its unit in error messages.
pub(super) fn integer<'de, D, N>(
    from: D,
    unit: &str,
    range: RangeInclusive<N>,
) -> Result<N, D::Error>
where
    D: Deserializer<'de>,
    N: TryFrom<i64> + PartialOrd + fmt::Display,
{
    struct Visitor<'u, N>(&'u str, RangeInclusive<N>);
    impl<N: TryFrom<i64> + PartialOrd + fmt::Display> de::Visitor<'_> for Visitor<'_, N> {
        type Value = N;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Visitor(unit, range) = self;
            write!(f, "a whole number of {unit}, {} to {}", range.start(), range.end())
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<N, E> {
            match N::try_from(number) {
                Ok(read) if self.1.contains(&read) => Ok(read),
                _ => Err(E::invalid_value(Unexpected::Signed(number), &self)),
            }
        }
    }
    from.deserialize_any(Visitor(unit, range))
}

/// Deserializes an array of tables.
pub(super) fn tables<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Visitor<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("tables, each under its name in [[ ]]")
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut tables = Vec::new();
            while let Some(table) = from.next_element()? {
                tables.push(table);
            }
            Ok(tables)
        }
    }
    from.deserialize_any(Visitor(PhantomData))
}

/// Deserializes a string that is parsed by `FromStr`.
pub(super) fn text<'de, D, T>(from: D, expected: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    struct Visitor<T>(&'static str, PhantomData<T>);
    impl<T: FromStr<Err = String>> de::Visitor<'_> for Visitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    from.deserialize_any(Visitor(expected, PhantomData))
}

/// A value that is one of a few words.
pub(crate) trait Word: Sized + Copy + 'static {
    /// Each word with its value.
    const WORDS: &'static [(&'static str, Self)];
}

/// Returns the words in quotes, separated for an error message.
fn words<T: Word>() -> String {
    let words: Vec<String> = T::WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    words.join(" or ")
}

/// Finds a word, ignoring case.
pub(crate) fn find_word<T: Word>(text: &str) -> Result<T, String> {
    let found = T::WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| format!("expected {}, got {text:?}", words::<T>()))
}

/// Deserializes one of a few words.
pub(super) fn word<'de, D: Deserializer<'de>, T: Word>(from: D) -> Result<T, D::Error> {
    struct Visitor<T>(PhantomData<T>);
    impl<T: Word> de::Visitor<'_> for Visitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&words::<T>())
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            find_word(text).map_err(E::custom)
        }
    }
    from.deserialize_any(Visitor(PhantomData))
}
