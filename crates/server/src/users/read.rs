//! What is read of a database.

use ringway_users::{Entry, Position, Refusal};

/// A row as a user, or the reason why it is none.
pub(super) type Found = Result<Entry, Refusal>;

/// Takes everything that is read.
pub(super) trait Sink: Send {
    /// Takes a page of rows. With `repeats`, the database may return one several times, so that a user who was found
    /// already is no second row of that user.
    fn page(&mut self, rows: Vec<Found>, repeats: bool);

    /// Returns the users, with their realms, that were known and not read.
    fn missing(&mut self) -> Vec<(String, String)>;
}

/// What was read to its end.
pub(super) struct Complete {
    /// The number of the last change in it.
    pub(super) position: Position,
    /// Missing users whose removal is noted.
    pub(super) noted: Vec<(String, String)>,
}

/// A change that was read.
pub(super) enum ReadChange {
    /// A user that was set, or a row that is none.
    Set(Found),
    /// A user that was removed, with its realm.
    Removed(String, String),
}

/// Changes in their order.
pub(super) struct Changes {
    /// The changes.
    pub(super) changes: Vec<ReadChange>,
    /// The number of the last one.
    pub(super) position: Position,
    /// Whether others follow.
    pub(super) more: bool,
}
