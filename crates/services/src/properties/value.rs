//! Values of properties as text: the words of RFC 9622, numbers, durations.

use core::time::Duration;
use thiserror::Error;

/// A text that is not a value of its property.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("expected {expected}, got \"{got}\"")]
pub struct ValueError {
    /// The values that the property can have.
    pub expected: &'static str,
    /// The text.
    pub got: String,
}

/// A type whose values are written as text.
pub(crate) trait Value: Sized {
    /// What a text must be.
    const EXPECTED: &'static str;
    /// Returns the value of a text.
    fn read(text: &str) -> Option<Self>;
    /// Returns the text of a value.
    fn write(&self) -> String;
}

/// Returns the value of a text, or an error that names both.
pub(crate) fn parse<T: Value>(text: &str) -> Result<T, ValueError> {
    let text = text.trim();
    T::read(text).ok_or_else(|| ValueError { expected: T::EXPECTED, got: text.to_string() })
}

/// Defines an enumeration whose values are known by a word, compared without case.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $expected:literal {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All values, in the order of their definition.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// Returns the word for it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }

        impl $crate::properties::value::Value for $name {
            const EXPECTED: &'static str = $expected;

            fn read(text: &str) -> Option<Self> {
                $name::ALL.iter().copied().find(|value| value.name().eq_ignore_ascii_case(text))
            }

            fn write(&self) -> String {
                self.name().to_string()
            }
        }

        impl core::str::FromStr for $name {
            type Err = $crate::properties::value::ValueError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::properties::value::parse(text)
            }
        }
    };
}
pub(crate) use words;

impl Value for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(text: &str) -> Option<Self> {
        text.to_ascii_lowercase().parse().ok()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Value for u32 {
    const EXPECTED: &'static str = "a whole number that is not negative";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// A time: seconds, or a number with the unit `s` or `ms`.
impl Value for Duration {
    const EXPECTED: &'static str = "a time such as 250ms or 5s";

    fn read(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (number, per_second) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
            (Some(number), _) => (number, 1_000),
            (None, Some(number)) => (number, 1),
            (None, None) => (text.as_str(), 1),
        };
        let number: u64 = number.trim_end().parse().ok()?;
        Some(if per_second == 1 {
            Duration::from_secs(number)
        } else {
            Duration::from_millis(number)
        })
    }

    fn write(&self) -> String {
        if self.subsec_millis() == 0 {
            format!("{}s", self.as_secs())
        } else {
            format!("{}ms", self.as_millis())
        }
    }
}

/// Defines a value that may be absent, which RFC 9622 gives a word of its own.
macro_rules! or_word {
    ($(#[$doc:meta])* $name:ident($inner:ty), $word:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub Option<$inner>);

        impl $crate::properties::value::Value for $name {
            const EXPECTED: &'static str = $expected;

            fn read(text: &str) -> Option<Self> {
                if text.eq_ignore_ascii_case($word) {
                    return Some($name(None));
                }
                <$inner as $crate::properties::value::Value>::read(text).map(|value| $name(Some(value)))
            }

            fn write(&self) -> String {
                self.0.as_ref().map_or_else(|| $word.to_string(), $crate::properties::value::Value::write)
            }
        }
    };
}

or_word! {
    /// A number of octets that a checksum covers; `None` is `fullCoverage`.
    Coverage(u32), "fullCoverage", "a number of octets or fullCoverage"
}
or_word! {
    /// A time; `None` is `disabled`.
    Timeout(Duration), "disabled", "a time such as 250ms or 5s, or disabled"
}
or_word! {
    /// A time that a message may wait; `None` is `infinite`.
    Lifetime(Duration), "infinite", "a time such as 250ms or 5s, or infinite"
}
or_word! {
    /// A number; `None` is `unlimited`.
    Limit(u32), "unlimited", "a whole number that is not negative, or unlimited"
}
or_word! {
    /// A choice that follows from the selection properties unless it is made; `None` is `inherited`.
    Inherited(bool), "inherited", "true, false or inherited"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["250ms", "5s", "disabled"] {
            assert_eq!(parse::<Timeout>(text).unwrap().write(), text);
        }
        for text in ["0", "20", "fullCoverage"] {
            assert_eq!(parse::<Coverage>(text).unwrap().write(), text);
        }
        assert_eq!(parse::<Lifetime>(" 2 ").unwrap().0, Some(Duration::from_secs(2)));
        assert_eq!(parse::<Inherited>("TRUE").unwrap().0, Some(true));
    }

    #[test]
    fn what_is_no_value_is_named_beside_what_was_expected() {
        let fault = parse::<Limit>("-1").unwrap_err();
        assert_eq!(
            fault.to_string(),
            "expected a whole number that is not negative, or unlimited, got \"-1\""
        );
        for text in ["", "5 minutes", "ms", "1.5s"] {
            assert!(parse::<Duration>(text).is_err(), "{text}");
        }
    }
}
