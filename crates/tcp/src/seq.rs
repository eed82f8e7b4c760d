//! Sequence numbers: 32 bits that wrap, compared by RFC 9293 section 3.4.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A sequence number. There is no `Ord`: the later of two numbers is the one less than 2^31 ahead,
/// which is not transitive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(u32);

impl Seq {
    /// Creates it from the number on the wire.
    pub const fn new(raw: u32) -> Self {
        Seq(raw)
    }

    /// Returns the number on the wire.
    pub const fn to_u32(self) -> u32 {
        self.0
    }

    /// Returns whether this is before `other`.
    pub const fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Returns whether this is after `other`.
    pub const fn after(self, other: Seq) -> bool {
        other.before(self)
    }

    /// Returns whether this is `other` or before it.
    pub const fn upto(self, other: Seq) -> bool {
        !other.before(self)
    }

    /// Returns whether this is `other` or after it.
    pub const fn from(self, other: Seq) -> bool {
        !self.before(other)
    }

    /// Returns the later of two.
    pub const fn max(self, other: Seq) -> Seq {
        if self.before(other) { other } else { self }
    }

    /// Returns the earlier of two.
    pub const fn min(self, other: Seq) -> Seq {
        if other.before(self) { other } else { self }
    }

    /// Returns the distance ahead of `other`; 0 when this is not ahead.
    pub const fn ahead_of(self, other: Seq) -> u32 {
        if self.before(other) { 0 } else { self.0.wrapping_sub(other.0) }
    }

    /// Returns the number `count` before this one.
    pub const fn back(self, count: u32) -> Seq {
        Seq(self.0.wrapping_sub(count))
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    fn add(self, count: u32) -> Seq {
        Seq(self.0.wrapping_add(count))
    }
}

impl AddAssign<u32> for Seq {
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl Sub<Seq> for Seq {
    type Output = u32;
    /// Returns the distance from `other` up to this, modulo 2^32.
    fn sub(self, other: Seq) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 9293 section 3.4: arithmetic modulo 2^32, also across the wrap.
    #[test]
    fn compares_across_the_wrap() {
        let end = Seq::new(u32::MAX - 1);
        assert!(end.before(end + 4));
        assert_eq!((end + 4).to_u32(), 2);
        assert_eq!(end + 4 - end, 4);
        assert_eq!(end.max(Seq::new(1)), Seq::new(1));
        assert_eq!(end.min(Seq::new(1)), end);
        assert_eq!(end.ahead_of(Seq::new(1)), 0);
    }

    proptest! {
        #[test]
        fn less_than_half_the_circle_ahead_is_after(raw in any::<u32>(), step in 1u32..(1 << 31)) {
            let (a, b) = (Seq::new(raw), Seq::new(raw) + step);
            prop_assert!(a.before(b) && b.after(a) && a.upto(b) && b.from(a) && !b.upto(a));
            prop_assert_eq!(b - a, step);
            prop_assert_eq!(b.ahead_of(a), step);
            prop_assert_eq!(b.back(step), a);
            prop_assert_eq!((a.max(b), a.min(b)), (b, a));
        }

        #[test]
        fn a_number_is_upto_and_from_itself(raw in any::<u32>()) {
            let a = Seq::new(raw);
            prop_assert!(a.upto(a) && a.from(a) && !a.before(a) && !a.after(a));
        }
    }
}
