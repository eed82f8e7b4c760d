//! Numbers that wrap: TSN, SSN, MID. They are compared by serial number arithmetic (RFC 9260 section
//! 1.6).

use core::fmt;

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident($raw:ty, $signed:ty)) => {
        $(#[$doc])*
        /// There is no `Ord`: the later of two numbers is the one less than half the number space
        /// ahead, which is not transitive.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name($raw);

        impl $name {
            /// Creates it from the number on the wire.
            pub const fn new(raw: $raw) -> Self {
                $name(raw)
            }

            /// Returns the number on the wire.
            pub const fn raw(self) -> $raw {
                self.0
            }

            /// Returns whether this is before `other`.
            pub const fn before(self, other: $name) -> bool {
                (self.0.wrapping_sub(other.0) as $signed) < 0
            }

            /// Returns whether this is after `other`.
            pub const fn after(self, other: $name) -> bool {
                other.before(self)
            }

            /// Returns the number `count` after this one.
            pub const fn plus(self, count: $raw) -> $name {
                $name(self.0.wrapping_add(count))
            }

            /// Returns the number `count` before this one.
            pub const fn minus(self, count: $raw) -> $name {
                $name(self.0.wrapping_sub(count))
            }

            /// Returns the distance ahead of `other`; negative when this is before it.
            pub const fn distance(self, other: $name) -> $signed {
                self.0.wrapping_sub(other.0) as $signed
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

serial! {
    /// Transmission Sequence Number: one for each DATA chunk, 32 bits.
    Tsn(u32, i32)
}
serial! {
    /// Stream Sequence Number: one for each ordered message of a stream, 16 bits.
    Ssn(u16, i16)
}
serial! {
    /// Message Identifier of RFC 8260 section 2.1: one for each message of a stream, 32 bits.
    Mid(u32, i32)
}

/// Maps TSNs to positions, which do not wrap. Both queues use positions inside, so that ranges and maps
/// sort. The first TSN of an association is at [`Line::ORIGIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    first: Tsn,
}

impl Line {
    /// The position of the first TSN. It is far from zero, so that earlier TSNs have positions too.
    pub(crate) const ORIGIN: u64 = 1 << 32;

    /// Creates the line on which `first` is the first TSN.
    pub(crate) const fn new(first: Tsn) -> Line {
        Line { first }
    }

    /// Returns the TSN at a position.
    pub(crate) const fn tsn(self, position: u64) -> Tsn {
        self.first.plus(position.wrapping_sub(Self::ORIGIN) as u32)
    }

    /// Returns the position of a TSN that is nearest to `near`.
    pub(crate) const fn position(self, tsn: Tsn, near: u64) -> u64 {
        near.wrapping_add_signed(tsn.distance(self.tsn(near)) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 9260 section 1.6: across the wrap of 2^32 and of 2^16.
    #[test]
    fn compares_across_the_wrap() {
        let end = Tsn::new(u32::MAX);
        assert!(end.before(end.plus(1)) && end.plus(2).after(end));
        assert_eq!(end.plus(2).raw(), 1);
        assert_eq!(Tsn::new(1).minus(2), end);
        assert!(Ssn::new(u16::MAX).before(Ssn::new(0)));
        assert_eq!(Ssn::new(2).distance(Ssn::new(u16::MAX)), 3);
        assert!(!Mid::new(7).before(Mid::new(7)));
    }

    proptest! {
        #[test]
        fn less_than_half_the_circle_ahead_is_after(raw in any::<u32>(), step in 1u32..(1 << 31)) {
            let (a, b) = (Tsn::new(raw), Tsn::new(raw).plus(step));
            prop_assert!(a.before(b) && b.after(a) && !b.before(a));
            prop_assert_eq!(b.distance(a), step as i32);
            prop_assert_eq!(b.minus(step), a);
        }

        #[test]
        fn a_line_goes_both_ways(first in any::<u32>(), on in 0u64..(1 << 40), by in -1000i64..1000) {
            let line = Line::new(Tsn::new(first));
            let near = Line::ORIGIN + on;
            let position = near.wrapping_add_signed(by);
            prop_assert_eq!(line.position(line.tsn(position), near), position);
        }
    }
}
