//! Sessions with a database, whichever it is, and what they read.

use super::source::Source;
use super::{Change, Changed, postgres, redis};
use ringway_users::{Domains, Entry, Position, Refusal};
use tokio::sync::mpsc;

/// A row as a user, or the reason why it is none.
pub(super) type Found = Result<Entry, Refusal>;

/// Takes everything that is read.
pub(super) trait Sink: Send {
    /// Takes a page of rows.
    fn page(&mut self, rows: Vec<Found>);

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

/// A connection.
pub(super) enum Session {
    Postgres(Box<postgres::Session>),
    Redis(Box<redis::Session>),
}

impl Session {
    /// Connects. Changes are reported to `heard` from then on, which is closed when the connection is lost.
    pub(super) async fn connect(
        source: &Source,
        heard: mpsc::Sender<()>,
    ) -> Result<Self, String> {
        Ok(match source {
            Source::Postgres(server) => Session::Postgres(Box::new(server.connect(heard).await?)),
            Source::Redis(server) => Session::Redis(Box::new(server.connect(Some(heard)).await?)),
        })
    }

    /// Connects for one change.
    pub(super) async fn connect_to_write(source: &Source) -> Result<Self, String> {
        Ok(match source {
            Source::Postgres(server) => {
                Session::Postgres(Box::new(server.connect(mpsc::channel(1).0).await?))
            }
            Source::Redis(server) => Session::Redis(Box::new(server.connect(None).await?)),
        })
    }

    /// Reads everything, in pages.
    pub(super) async fn read_all(
        &mut self,
        domains: &Domains,
        sink: &mut dyn Sink,
    ) -> Result<Complete, String> {
        match self {
            Session::Postgres(session) => session.read_all(domains, sink).await,
            Session::Redis(session) => session.read_all(sink).await,
        }
    }

    /// Reads the changes after one, some at a time.
    pub(super) async fn read_changes(&mut self, after: Position) -> Result<Changes, String> {
        match self {
            Session::Postgres(session) => session.read_changes(after).await,
            Session::Redis(session) => session.read_changes(after).await,
        }
    }

    /// Carries out a change.
    pub(super) async fn write(&mut self, change: &Change) -> Result<Changed, String> {
        match self {
            Session::Postgres(session) => session.write(change).await,
            Session::Redis(session) => session.write(change).await,
        }
    }
}
