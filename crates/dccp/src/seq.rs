//! Sequence numbers: 48 bits that wrap, and their short form of 24 bits (RFC 4340 sections 3.1 and 7.6).

use core::fmt;

const BITS: u32 = 48;
const MASK: u64 = (1 << BITS) - 1;
/// Number of bits of a short sequence number.
const SHORT_BITS: u32 = 24;
/// The largest short sequence number.
pub(crate) const SHORT_MASK: u64 = (1 << SHORT_BITS) - 1;

/// A sequence number. There is no `Ord`: the later of two numbers is the one less than 2^47 ahead, which
/// is not transitive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(u64);

impl Seq {
    /// Creates it from the number on the wire. Bits above the 48th are cut.
    pub const fn new(raw: u64) -> Seq {
        Seq(raw & MASK)
    }

    /// Returns the number on the wire.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the lowest 24 bits.
    pub const fn short(self) -> u32 {
        (self.0 & SHORT_MASK) as u32
    }

    /// Returns the number with these lowest 24 bits that is nearest to `reference` (RFC 4340 section
    /// 7.6).
    pub const fn extend(short: u32, reference: Seq) -> Seq {
        let ahead = (short as u64).wrapping_sub(reference.0) & SHORT_MASK;
        if ahead < 1 << (SHORT_BITS - 1) {
            reference.plus(ahead)
        } else {
            reference.minus((1 << SHORT_BITS) - ahead)
        }
    }

    /// Returns the distance ahead of `other`; negative when this is before it.
    pub const fn distance(self, other: Seq) -> i64 {
        ((self.0.wrapping_sub(other.0) << (64 - BITS)) as i64) >> (64 - BITS)
    }

    /// Returns whether this is before `other`.
    pub const fn before(self, other: Seq) -> bool {
        self.distance(other) < 0
    }

    /// Returns whether this is after `other`.
    pub const fn after(self, other: Seq) -> bool {
        other.before(self)
    }

    /// Returns whether this is within `low` and `high`, both included.
    pub const fn within(self, low: Seq, high: Seq) -> bool {
        !self.before(low) && !self.after(high)
    }

    /// Returns the later of two.
    pub const fn max(self, other: Seq) -> Seq {
        if self.before(other) { other } else { self }
    }

    /// Returns the number `count` after this one.
    pub const fn plus(self, count: u64) -> Seq {
        Seq::new(self.0.wrapping_add(count))
    }

    /// Returns the number `count` before this one.
    pub const fn minus(self, count: u64) -> Seq {
        Seq::new(self.0.wrapping_sub(count))
    }

    /// Returns the next number.
    pub const fn next(self) -> Seq {
        self.plus(1)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 4340 section 3.1: circular comparison across the wrap of 2^48.
    #[test]
    fn compares_across_the_wrap() {
        let end = Seq::new(MASK);
        assert!(end.before(end.next()) && end.next().after(end));
        assert_eq!(end.plus(3).raw(), 2);
        assert_eq!(Seq::new(1).minus(2), end);
        assert!(end.next().within(end, end.plus(1)));
        assert_eq!(Seq::new(1 << 60 | 5), Seq::new(5));
    }

    /// RFC 4340 section 7.6: a short number is extended to the nearest number.
    #[test]
    fn short_numbers_are_extended() {
        let reference = Seq::new(0x1_00ff_fffe);
        assert_eq!(Seq::extend(0x00_0001, reference), Seq::new(0x1_0100_0001));
        assert_eq!(
            Seq::extend(0xff_fff0, Seq::new(0x1_0000_0001)),
            Seq::new(0x0_00ff_fff0 + 0xff00_0000)
        );
    }

    proptest! {
        #[test]
        fn less_than_half_the_circle_ahead_is_after(raw in any::<u64>(), step in 1u64..(1 << 47)) {
            let (a, b) = (Seq::new(raw), Seq::new(raw).plus(step));
            prop_assert!(a.before(b) && b.after(a) && !b.before(a));
            prop_assert_eq!(b.distance(a), step as i64);
            prop_assert_eq!(a.distance(b), -(step as i64));
            prop_assert_eq!(b.minus(step), a);
            prop_assert_eq!(a.max(b), b);
        }

        #[test]
        fn extending_reverses_shortening(raw in any::<u64>(), by in -(1i64 << 23)..(1 << 23)) {
            let reference = Seq::new(raw);
            let it = Seq::new(raw.wrapping_add_signed(by));
            prop_assert_eq!(Seq::extend(it.short(), reference), it);
        }
    }
}
