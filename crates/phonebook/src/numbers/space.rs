//! Which numbers there are, to which network one belongs, and how a number is dialled.
//!
//! A block is ten numbers that differ in their last digit; it is named by the digits before that one. Block 23 is the
//! numbers 230 to 239, block 200 the numbers 2000 to 2009. As no number begins with 0, the names of blocks are unique.

use core::fmt;

use super::ranges::{Range, Ranges};

/// Numbers in a block.
pub const BLOCK: u32 = 10;
/// Minimum number of digits that a space may be configured with.
pub const MIN_DIGITS: u8 = 2;
/// Maximum number of digits that a space may be configured with.
pub const MAX_DIGITS: u8 = 8;
/// The digit before a mark. No short number begins with it.
const MARK_DIGIT: u8 = b'1';
/// Digits of a mark.
const MARK_DIGITS: usize = 4;
/// Number of marks.
const MARKS: u64 = 10_000;

/// The short numbers of a network. All routers of a network are configured with the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    min_digits: u8,
    max_digits: u8,
    first_digit: u8,
}

/// Digits of which no space can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected 2 to 8 digits, the minimum not above the maximum, and a first digit from 2 to 9; \
     got {min_digits} to {max_digits} digits and the first digit {first_digit}"
)]
pub struct SpaceError {
    min_digits: u8,
    max_digits: u8,
    first_digit: u8,
}

impl Space {
    /// Returns the space of all numbers with `min_digits` to `max_digits` digits that begin with `first_digit` or a higher
    /// one.
    ///
    /// # Errors
    /// Digits outside of [`MIN_DIGITS`] and [`MAX_DIGITS`], or a first digit of 0 or 1: numbers that begin so are for lines
    /// outside, emergency calls and marks.
    pub fn new(min_digits: u8, max_digits: u8, first_digit: u8) -> Result<Space, SpaceError> {
        let good = MIN_DIGITS <= min_digits
            && min_digits <= max_digits
            && max_digits <= MAX_DIGITS
            && (2..=9).contains(&first_digit);
        match good {
            true => Ok(Space { min_digits, max_digits, first_digit }),
            false => Err(SpaceError { min_digits, max_digits, first_digit }),
        }
    }

    /// Returns all blocks.
    pub fn blocks(&self) -> Ranges {
        let power = |digits: u8| 10_u32.pow(u32::from(digits));
        (self.min_digits..=self.max_digits)
            .map(|digits| Range {
                first: u32::from(self.first_digit) * power(digits - 2),
                last: power(digits - 1) - 1,
            })
            .collect()
    }

    /// Returns whether a number is one of the space.
    pub fn contains(&self, number: u32) -> bool {
        let block = number / BLOCK;
        self.blocks().covers(Range { first: block, last: block })
    }
}

impl Default for Space {
    /// Three to five digits that begin with 2 to 9.
    fn default() -> Self {
        Space { min_digits: 3, max_digits: 5, first_digit: 2 }
    }
}

/// The identity of a network: when it was created, and a random number. The smaller one is the canonical network when two
/// meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag {
    /// Seconds since the epoch.
    pub created: u64,
    /// Drawn by the router that created the network.
    pub random: u64,
}

impl Tag {
    /// Returns the mark of the network's numbers in other networks, below 10,000.
    pub fn mark(&self) -> u16 {
        (self.random % MARKS) as u16
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.created, self.random)
    }
}

/// A number of a network. No two users ever have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShortNumber {
    /// The network.
    pub tag: Tag,
    /// The number as it is dialled within.
    pub number: u32,
}

impl ShortNumber {
    /// Returns the digits by which the number is dialled from a network: the number itself within its own, and elsewhere 1,
    /// the four digits of its network's mark, and the number.
    pub fn dialled_from(&self, home: Option<Tag>) -> String {
        match home == Some(self.tag) {
            true => self.number.to_string(),
            false => format!("1{:04}{}", self.tag.mark(), self.number),
        }
    }
}

/// What a user has dialled, if it may be a short number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialled {
    /// A number of the caller's network.
    Plain(u32),
    /// A number of a network with this mark.
    Marked(u16, u32),
}

impl Dialled {
    /// Parses the user part of a SIP URI. Returns `None` if it is no short number of the space.
    pub fn parse(space: &Space, text: &str) -> Option<Dialled> {
        let digits = text.as_bytes();
        if digits.len() > 1 + MARK_DIGITS + usize::from(MAX_DIGITS)
            || !digits.iter().all(u8::is_ascii_digit)
        {
            return None;
        }
        let number = |text: &str| text.parse().ok().filter(|&number| space.contains(number));
        match digits.first()? {
            &MARK_DIGIT => {
                let (mark, rest) = text.get(1..)?.split_at_checked(MARK_DIGITS)?;
                Some(Dialled::Marked(
                    mark.parse().ok()?,
                    number(rest).filter(|_| !rest.starts_with('0'))?,
                ))
            }
            b'0' => None,
            _ => number(text).map(Dialled::Plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_space_has_88_800_numbers_in_blocks_of_ten() {
        let blocks = Space::default().blocks();
        assert_eq!(blocks.count(), 8_880);
        let ranges: Vec<_> = blocks.iter().map(|range| (range.first, range.last)).collect();
        assert_eq!(ranges, [(20, 99), (200, 999), (2_000, 9_999)]);
        let space = Space::default();
        let within = [200, 999, 2_000, 99_999].map(|number| space.contains(number));
        let outside = [0, 99, 199, 1_000, 1_999, 19_999, 100_000, u32::MAX];
        assert_eq!(within, [true; 4]);
        assert_eq!(outside.map(|number| space.contains(number)), [false; 8]);
    }

    #[test]
    fn spaces_that_begin_with_0_or_1_are_refused() {
        for (min, max, first) in [(3, 5, 0), (3, 5, 1), (3, 5, 10), (1, 3, 2), (5, 4, 2), (3, 9, 2)]
        {
            assert!(Space::new(min, max, first).is_err(), "{min} {max} {first}");
        }
        assert_eq!(Space::new(2, 2, 9).map(|space| space.blocks().count()), Ok(1));
        let text = Space::new(3, 9, 2).unwrap_err().to_string();
        assert!(text.ends_with("got 3 to 9 digits and the first digit 2"), "{text}");
    }

    #[test]
    fn a_number_is_dialled_plainly_at_home_and_marked_elsewhere() {
        let space = Space::default();
        let (home, other) = (Tag { created: 5, random: 70_042 }, Tag { created: 9, random: 1 });
        let number = ShortNumber { tag: home, number: 200 };
        assert_eq!(number.dialled_from(Some(home)), "200");
        assert_eq!(number.dialled_from(Some(other)), "10042200");
        assert_eq!(Dialled::parse(&space, "200"), Some(Dialled::Plain(200)));
        assert_eq!(Dialled::parse(&space, "10042200"), Some(Dialled::Marked(42, 200)));
        for text in [
            "",
            "1",
            "112",
            "0200",
            "2",
            "199",
            "1004200",
            "100420200",
            "200a",
            "+200",
            "99999999999999",
        ] {
            assert_eq!(Dialled::parse(&space, text), None, "{text}");
        }
    }
}
