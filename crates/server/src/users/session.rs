//! Sessions with a database, whichever it is.

use super::read::{Changes, Complete, Sink};
use super::shared::{Change, Changed, Failure};
use super::source::Source;
use super::{postgres, redis};
use ringway_users::{Domains, Position};
use tokio::sync::mpsc;

/// A connection.
pub(super) enum Session {
    Postgres(Box<postgres::Session>),
    Redis(Box<redis::Session>),
}

impl Session {
    /// Connects. Changes are reported to `heard` from then on, which is closed when the connection is lost.
    pub(super) async fn connect(source: &Source, heard: mpsc::Sender<()>) -> Result<Self, String> {
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
    pub(super) async fn write(&mut self, change: &Change) -> Result<Changed, Failure> {
        match self {
            Session::Postgres(session) => session.write(change).await,
            Session::Redis(session) => session.write(change).await,
        }
    }
}
