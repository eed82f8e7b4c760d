//! Changes of a configuration at set times.

use crate::config::{Change, LinkConfig};
use crate::quantity::Span;
use ringway_sansio::Time;

/// Where a schedule stands.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// When the next change is due.
    next: Option<Time>,
    /// Which one it is.
    index: usize,
    /// When the present period began.
    start: Time,
    period: Span,
}

impl Schedule {
    pub(crate) fn new(changes: &[Change], period: Span, start: Time) -> Self {
        Schedule { next: changes.first().map(|c| start + c.at.into()), index: 0, start, period }
    }

    /// When the next change is due.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.next
    }

    /// Makes the next change.
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
