//! Registrations are acknowledged when the database has them too.

use std::sync::Arc;

use ringway_proxy::location::{Bindings, Commit, CommitTag, Journal};
use ringway_sansio::Time;

use crate::hub::{Hub, World};
use crate::presence::Presence;

/// A journal that publishes who is registered here, above the journal of the disk, if there is one.
pub struct ClusterJournal<W> {
    /// The connection with the database.
    pub hub: Arc<Hub<W>>,
    /// The disk.
    pub disk: Option<Box<dyn Journal>>,
}

impl<W: World> Journal for ClusterJournal<W> {
    fn record(&self, aor: &[u8], record: Option<&[u8]>, tag: Option<CommitTag>) -> Commit {
        if tag.is_some() && !self.hub.takes_registrations(aor) {
            return Commit::Refused;
        }
        // Published first: the disk may have the change before this function returns.
        let before = self.hub.changed(aor, record.and_then(presence), tag);
        let commit = self.disk.as_ref().map_or(Commit::Done, |disk| disk.record(aor, record, tag));
        let Some(tag) = tag else { return commit };
        match commit {
            Commit::Refused => {
                self.hub.cancel(aor, before, tag);
                Commit::Refused
            }
            Commit::Done if !self.hub.on_disk(tag.worker, &[tag.id], true).is_empty() => {
                Commit::Done
            }
            Commit::Done | Commit::Pending => Commit::Pending,
        }
    }
}

/// Returns what other nodes know of a record; `None` of one without bindings.
pub fn presence(record: &[u8]) -> Option<Presence> {
    let mut bindings = Bindings::new(record, Time::ZERO);
    let mut presence = Presence::of(&bindings.next()?);
    bindings.for_each(|binding| presence.add(&binding));
    Some(presence)
}
