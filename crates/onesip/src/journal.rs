//! Registrations are acknowledged when other routers keep them too.

use std::sync::Arc;

use ringway_proxy::location::{Commit, CommitTag, Journal};

use crate::exchange::{Exchange, World};

/// A journal that reports who is registered to the directory, above the journal of the disk, if there is one.
pub struct MeshJournal<W> {
    /// The directory.
    pub exchange: Arc<Exchange<W>>,
    /// The disk.
    pub disk: Option<Box<dyn Journal>>,
}

impl<W: World> Journal for MeshJournal<W> {
    fn record(&self, aor: &[u8], record: Option<&[u8]>, tag: Option<CommitTag>) -> Commit {
        let disk =
            |tag| self.disk.as_ref().map_or(Commit::Done, |disk| disk.record(aor, record, tag));
        let Some(name) = self.exchange.name_of(aor) else { return disk(tag) };
        if tag.is_some() && !self.exchange.world().has_room() {
            return Commit::Refused;
        }
        // Announced first: the disk may have the change before this function returns.
        let waits = self.exchange.changed(name, record.is_some(), tag);
        let commit = disk(tag);
        let Some(tag) = tag.filter(|_| waits) else { return commit };
        match commit {
            Commit::Refused => self.exchange.cancel(tag),
            Commit::Done => {
                if !self.exchange.disk(tag.worker, &[tag.id], true).is_empty() {
                    return Commit::Done;
                }
            }
            Commit::Pending => {}
        }
        if commit == Commit::Refused { commit } else { Commit::Pending }
    }
}
