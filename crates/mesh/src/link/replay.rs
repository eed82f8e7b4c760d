//! Refusal of packets that come twice.
//!
//! Packets of a link are numbered with 64 bits, of which 32 are on the wire; the rest follows from the highest number so
//! far (RFC 4303 appendix A2). The window is a ring of bits as in RFC 6479, so that it moves without shifting.

/// Bits of a word.
const BITS: u64 = 64;

/// The numbers of the packets that have come lately, in `WORDS` words of 64 bits.
#[derive(Clone, Debug)]
pub struct ReplayWindow<const WORDS: usize> {
    /// One above the highest number so far.
    next: u64,
    words: [u64; WORDS],
}

impl<const WORDS: usize> ReplayWindow<WORDS> {
    /// How far a packet may be behind the newest: one word of the ring is being refilled.
    pub const SIZE: u64 = (WORDS as u64 - 1) * BITS;

    /// The window before the first packet, number 0.
    pub const fn new() -> Self {
        ReplayWindow { next: 0, words: [0; WORDS] }
    }

    /// Returns whether no packet has come.
    pub fn is_unused(&self) -> bool {
        self.next == 0
    }

    /// Returns the number with these low 32 bits that is closest to the newest.
    pub fn expand(&self, low: u32) -> u64 {
        let newest = self.next.saturating_sub(1);
        let ahead = i64::from(low.wrapping_sub(newest as u32) as i32);
        // Before the first 2^31 packets there is nothing to be behind of.
        newest.checked_add_signed(ahead).unwrap_or(u64::from(low))
    }

    /// Returns whether a packet with this number may be opened: it is new, or has not come yet.
    pub fn is_fresh(&self, number: u64) -> bool {
        if number >= self.next {
            return true;
        }
        self.next - number <= Self::SIZE && self.words[Self::word(number)] & bit(number) == 0
    }

    /// Notes a packet that has been opened. Only then, or a forged one could move the window.
    pub fn note(&mut self, number: u64) {
        if number >= self.next {
            // Words that are passed are of numbers too old now.
            let (from, to) = (self.next.wrapping_sub(1) / BITS, number / BITS);
            let passed = if self.next == 0 { WORDS as u64 } else { (to - from).min(WORDS as u64) };
            (0..passed).for_each(|back| self.words[Self::word((to - back.min(to)) * BITS)] = 0);
            self.next = number.saturating_add(1);
        }
        self.words[Self::word(number)] |= bit(number);
    }

    fn word(number: u64) -> usize {
        (number / BITS % WORDS as u64) as usize
    }
}

impl<const WORDS: usize> Default for ReplayWindow<WORDS> {
    fn default() -> Self {
        ReplayWindow::new()
    }
}

fn bit(number: u64) -> u64 {
    1 << (number % BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    type Window = ReplayWindow<32>;

    #[test]
    fn numbers_are_expanded_around_the_newest() {
        let mut window = ReplayWindow::<4>::new();
        assert_eq!(window.expand(5), 5);
        assert_eq!(window.expand(u32::MAX), u64::from(u32::MAX));
        window.note(0x1_0000_0002);
        assert_eq!(window.expand(3), 0x1_0000_0003);
        assert_eq!(window.expand(u32::MAX), 0xffff_ffff);
        window.note(0x1_ffff_fff0);
        assert_eq!(window.expand(1), 0x2_0000_0001);
    }

    proptest! {
        /// Beside a set of all numbers: nothing is accepted twice, and nothing within the window is refused.
        #[test]
        fn each_number_is_accepted_once(
            steps in proptest::collection::vec(prop_oneof![-3_000i64..200, -100i64..3_000], 1..400),
            start in 0u64..5_000,
        ) {
            let (mut window, mut seen, mut at) = (Window::new(), BTreeSet::new(), start);
            for step in steps {
                at = at.saturating_add_signed(step);
                let newest = seen.last().copied().unwrap_or(0);
                let is_new = !seen.contains(&at);
                let is_old = at + Window::SIZE <= newest;
                prop_assert_eq!(window.expand(at as u32), at);
                prop_assert_eq!(window.is_fresh(at), is_new && !is_old, "{} after {}", at, newest);
                if window.is_fresh(at) {
                    window.note(at);
                    seen.insert(at);
                }
            }
        }
    }
}
