//! What a link costs: loss in both directions, and the round trip.
//!
//! A neighbour's HELLOs are numbered, so we know how many of the last 16 have come; it reports how many of ours have.
//! The product of both is the chance that a packet and its answer arrive (ETX, De Couto et al. 2003). A report also
//! contains when our newest HELLO was sent and how long ago it came, so the round trip needs no packet of its own.

use core::num::NonZeroU32;

use crate::wire::hello::Report;

/// Cost of a link without loss and delay.
pub const UNIT: u16 = 256;
/// Part of a link's cost that is a unit of a route's.
pub const PATH_COST: u16 = 8;
/// HELLOs that are looked at.
const HISTORY: u16 = 16;
/// HELLOs that must have been sent before losses count.
const ENOUGH: u16 = 4;
/// Round trips up to this many microseconds cost nothing.
const FREE_ROUND_TRIP: u32 = 1_000;
/// Longer round trips cost no more than this many microseconds.
const MAX_ROUND_TRIP: u32 = 120_000;
/// Microseconds of round trip that cost one.
const ROUND_TRIP_UNIT: u32 = 250;
/// Microseconds in a unit of [`Report::echo`].
const ECHO_UNIT: u32 = 16;
/// Units of an echo in a unit of [`Report::held`].
const HELD_UNIT: u16 = 4;

/// The cost of a link in units of 1/256 of a lossless one. `None` for a link that is not usable.
pub type Cost = Option<u16>;

/// What is known of a link's quality.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkQuality {
    /// The number of the newest HELLO that counts.
    newest: u16,
    /// Whether it is proven that the neighbour has sent that one.
    is_proven: bool,
    /// Which of the last 16 have come, the newest in the lowest bit.
    received: u16,
    /// How many have been sent since the first, at most 16; none before it.
    sent: u8,
    /// Which have come after the newest that counts, the next in the lowest bit.
    ahead: u16,
    /// What it has reported of our HELLOs: which it has of the last that we had sent, and how many these were.
    reported: [u16; 2],
    /// One more than the average of the round trip in microseconds, once it has reported anything.
    round_trip: Option<NonZeroU32>,
}

impl LinkQuality {
    /// Notes the neighbour's HELLO number `sequence`. Returns whether it is new; numbers wrap (RFC 1982), and one that is
    /// behind is late or repeated. Unless it is proven that the neighbour has sent it, another neighbour of it may have:
    /// then it counts when the next proven one has a higher number. Before the first proven one all count.
    pub fn hello(&mut self, sequence: u16, is_proven: bool) -> bool {
        // What came before the first proven one may be anybody's.
        if self.sent == 0 || (is_proven && !self.is_proven) {
            let newest = sequence;
            *self = LinkQuality { newest, is_proven, received: 1, sent: 1, ahead: 0, ..*self };
            return true;
        }
        let distance = sequence.wrapping_sub(self.newest);
        if !(1..1 << 15).contains(&distance) {
            let late = 1u16.checked_shl(distance.wrapping_neg().into()).unwrap_or(0);
            let is_new = self.received & late != late;
            self.received |= late;
            return is_new;
        }
        if !is_proven && self.is_proven {
            let next = 1u16.checked_shl(u32::from(distance) - 1).unwrap_or(0);
            let is_new = next == 0 || self.ahead & next == 0;
            self.ahead |= next;
            return is_new;
        }
        self.advance(distance);
        (self.newest, self.is_proven) = (sequence, is_proven);
        true
    }

    /// Begins to count anew with the next HELLO, whatever its number. What is known until then is that the last one came.
    pub(super) fn restart(&mut self) {
        (self.sent, self.is_proven) = (0, false);
    }

    /// Counts what has come up to a number that is so far ahead. If that is farther than what is noted, the part that is noted
    /// stands for all.
    fn advance(&mut self, distance: u16) {
        let came = self.ahead.reverse_bits() >> HISTORY.saturating_sub(distance) | 1;
        self.received = self.received.checked_shl(distance.into()).unwrap_or(0) | came;
        self.ahead = self.ahead.checked_shr(distance.into()).unwrap_or(0);
        self.sent = u16::from(self.sent).saturating_add(distance).min(HISTORY) as u8;
    }

    /// Notes what the neighbour reports of our HELLOs, of which `sent` have been sent. `now` is our clock in
    /// microseconds, by which our HELLOs are stamped.
    pub fn report(&mut self, now: u32, report: &Report, sent: u16) {
        let now = (now / ECHO_UNIT) as u16;
        // All of it wraps after 1.05 s, which is longer than a round trip.
        let held = report.held.wrapping_mul(HELD_UNIT);
        let sample = u32::from(now.wrapping_sub(report.echo).wrapping_sub(held)) * ECHO_UNIT;
        // A coarse clock may yield a negative difference.
        let sample = if sample > 1 << 19 { 0 } else { sample };
        let round_trip = self.round_trip().map_or(sample, |mean| (7 * mean + sample) / 8);
        self.reported = [report.received, sent.min(HISTORY)];
        self.round_trip = NonZeroU32::new(round_trip.saturating_add(1));
    }

    /// Returns the bitmap to report to the neighbour.
    pub fn received(&self) -> u16 {
        self.received
    }

    /// Returns the mean round trip in microseconds.
    pub fn round_trip(&self) -> Option<u32> {
        self.round_trip.map(|more| more.get() - 1)
    }

    /// Returns the cost. A link is not usable until both ends hear each other, or if fewer than one in eight HELLOs come.
    pub fn cost(&self) -> Cost {
        let round_trip = self.round_trip()?;
        let [received, sent] = self.reported;
        let [reverse, forward] = [(self.received, self.sent.into()), (received, sent)].map(share);
        let (reverse, forward) = (reverse?, forward?);
        // Shares are in 256ths: UNIT / (reverse x forward).
        let loss = u32::from(UNIT) * 256 * 256 / (reverse * forward);
        let delay = round_trip.min(MAX_ROUND_TRIP);
        let delay = delay.saturating_sub(FREE_ROUND_TRIP) / ROUND_TRIP_UNIT;
        Some((loss + delay).min(u32::from(u16::MAX - 1)) as u16)
    }
}

/// Returns which part of the HELLOs has come, in 256ths, or `None` if it is below one in eight.
fn share((bitmap, sent): (u16, u16)) -> Option<u32> {
    let looked_at = sent.max(1);
    let mask = u16::MAX.checked_shr((HISTORY - looked_at.min(HISTORY)).into()).unwrap_or(0);
    let came = (bitmap & mask).count_ones();
    // A link that is new has no losses yet, as long as anything has come.
    let looked_at = if looked_at < ENOUGH { came } else { looked_at.into() };
    let share = (256 * came).checked_div(looked_at)?;
    (share >= 32).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report(received: u16, echo: u16, held: u16) -> Report {
        Report { tag: 0, received, echo, held }
    }

    /// A link on which `lost` of the last 16 HELLOs of the neighbour, and `reported` of ours, were lost.
    fn quality(lost: impl Fn(u16) -> bool, reported: u16, round_trip: u32) -> LinkQuality {
        let mut quality = LinkQuality::default();
        (0..32).filter(|&sequence| !lost(sequence)).for_each(|sequence| {
            quality.hello(sequence, true);
        });
        quality.report(
            1_000_000 + round_trip,
            &report(reported, (1_000_000 / ECHO_UNIT) as u16, 0),
            16,
        );
        quality
    }

    #[test]
    fn a_lossless_link_costs_a_unit() {
        assert_eq!(quality(|_| false, u16::MAX, 500).cost(), Some(UNIT));
        // Half lost in one direction, and in both.
        assert_eq!(quality(|sequence| sequence % 2 == 0, u16::MAX, 500).cost(), Some(2 * UNIT));
        assert_eq!(quality(|sequence| sequence % 2 == 0, 0x5555, 500).cost(), Some(4 * UNIT));
        assert_eq!(quality(|_| false, 1, 500).cost(), None);
    }

    #[test]
    fn a_round_trip_costs_four_a_millisecond_up_to_a_limit() {
        assert_eq!(quality(|_| false, u16::MAX, 11_008).cost(), Some(UNIT + 40));
        assert_eq!(quality(|_| false, u16::MAX, 300_000).cost(), Some(UNIT + 476));
        let mut quality = quality(|_| false, u16::MAX, 8_000);
        assert_eq!(quality.round_trip(), Some(8_000));
        // Held for 640 us, and the clock has wrapped.
        quality.report(16_640, &report(u16::MAX, 0u16.wrapping_sub(0), 10), 16);
        assert_eq!(quality.round_trip(), Some((7 * 8_000 + 16_000) / 8));
    }

    #[test]
    fn a_link_that_only_one_end_hears_is_not_usable() {
        let mut quality = LinkQuality::default();
        quality.hello(7, true);
        assert_eq!(quality.cost(), None);
        quality.report(0, &report(0, 0, 0), 3);
        assert_eq!(quality.cost(), None);
        quality.report(0, &report(0b100, 0, 0), 3);
        assert_eq!(quality.cost(), Some(UNIT));
    }

    #[test]
    fn a_repeated_hello_is_not_new() {
        let mut quality = LinkQuality::default();
        let numbers = [65_534, 65_535, 65_535, 1, 0, 0, 65_534];
        let new = numbers.map(|sequence| quality.hello(sequence, false));
        assert_eq!(new, [true, true, false, true, true, false, false]);
        assert_eq!(quality.received(), 0b1111);
        // Too old to be distinguished from a repeated one.
        assert!(!quality.hello(1u16.wrapping_sub(60), false) && !quality.hello(40_000, false));
        assert_eq!(quality.received(), 0b1111);
        assert!(quality.hello(17, false));
        assert_eq!(quality.received(), 1);
        // Who is proven may be anywhere.
        assert!(quality.hello(40_000, true) && quality.hello(40_001, true));
        assert_eq!(quality.received(), 0b11);
    }

    #[test]
    fn numbers_by_others_count_for_nothing() {
        let mut quality = LinkQuality::default();
        (1..=20).for_each(|sequence| assert!(quality.hello(sequence, true)));
        // Somebody runs ahead in the neighbour's name.
        (28..=500).step_by(8).for_each(|sequence| {
            quality.hello(sequence, false);
        });
        assert_eq!(quality.received(), u16::MAX);
        // The 21st is lost.
        assert!(quality.hello(22, true));
        assert_eq!((quality.newest, quality.received()), (22, 0xfffd));
        (23..60).for_each(|sequence| assert!(quality.hello(sequence, true)));
        assert_eq!(quality.received(), u16::MAX);
        // A recorded one leads nowhere.
        assert!(!quality.hello(50, true));
        assert_eq!((quality.newest, quality.received()), (59, u16::MAX));
    }

    #[test]
    fn numbers_before_a_restart_are_no_losses() {
        let mut quality = quality(|_| false, u16::MAX, 500);
        quality.restart();
        assert_eq!(quality.cost(), Some(UNIT));
        assert!(quality.hello(100, false) && quality.hello(101, true) && quality.hello(102, true));
        assert_eq!((quality.received(), quality.cost()), (0b11, Some(UNIT)));
    }

    proptest! {
        /// HELLOs of which only one in some has a report for us count as if all had one.
        #[test]
        fn a_report_in_turn_shows_what_came_in_between(
            came in proptest::collection::vec(any::<bool>(), 1..200),
            turn in 1..=16usize,
        ) {
            let [mut all, mut some] = [LinkQuality::default(); 2];
            let mut expected = 0;
            for (sequence, _) in came.iter().enumerate().filter(|&(at, &came)| came || at % turn == 0) {
                let is_turn = sequence % turn == 0;
                prop_assert!(all.hello(sequence as u16, true) && some.hello(sequence as u16, is_turn));
                if is_turn {
                    expected = all.received();
                }
                prop_assert_eq!(some.received(), expected);
            }
        }
    }

    proptest! {
        #[test]
        fn any_reports_give_a_cost_or_none(
            steps in proptest::collection::vec((any::<(u16, bool)>(), any::<u32>(), any::<[u16; 3]>(), any::<u16>()), 1..50),
        ) {
            let mut quality = LinkQuality::default();
            for ((sequence, is_proven), now, [received, echo, held], sent) in steps {
                quality.hello(sequence, is_proven);
                quality.report(now, &report(received, echo, held), sent);
                prop_assert!(quality.cost().is_none_or(|cost| (UNIT..u16::MAX).contains(&cost)));
            }
        }
    }
}
