//! What a notifier reports.

use crate::location::LocationStore;
use crate::states::{States, UserState};
use ringway_sansio::Time;

/// What a notifier reports.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// Registrations.
    pub store: &'a dyn LocationStore,
    /// Calls and publications.
    pub states: &'a States,
}

impl Sources<'_> {
    /// Returns the state of a user at all servers, and the time at which it next changes by itself.
    pub(super) fn state(&self, now: Time, aor: &[u8]) -> (UserState, Option<Time>) {
        let mut expiry: Option<Time> = None;
        let count = self.store.lookup(aor, now, &mut |binding| {
            expiry = Some(expiry.map_or(binding.expires, |expiry| expiry.max(binding.expires)));
        });
        let (state, next) = self.states.all(now, aor, count > 0);
        (state, next.into_iter().chain(expiry).min())
    }
}
