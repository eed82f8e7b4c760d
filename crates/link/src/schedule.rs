//! Changes of a configuration at set times.

use crate::config::{Change, LinkConfig};
use crate::quantity::Span;
use ringway_sansio::Time;

/// The position in a schedule.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// The time of the next change.
    next: Option<Time>,
    /// The index of the next change.
    index: usize,
    /// The start of the present period.
    start: Time,
    period: Span,
}

impl Schedule {
    pub(crate) fn new(changes: &[Change], period: Span, start: Time) -> Self {
        Schedule { next: changes.first().map(|c| start + c.at.into()), index: 0, start, period }
    }

    /// Returns the time of the next change.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.next
    }

    /// Applies the next change.
    pub(crate) fn apply(&mut self, changes: &[Change], config: &mut LinkConfig) {
        let Some(change) = changes.get(self.index) else {
            self.next = None;
            return;
        };
        change.apply(config);
        self.index += 1;
        if self.index == changes.len() && self.period != Span(0) {
            self.index = 0;
            self.start += self.period.into();
        }
        self.next = changes.get(self.index).map(|c| self.start + c.at.into());
    }
}
