//! Changes and lists of users while no server runs: straight to the database.

use super::shared::{Change, Changed};
use super::source::Source;
use ringway_users::Domains;

/// A database of users, asked by a command.
pub(crate) struct UsersClient {
    source: Source,
    #[cfg_attr(not(feature = "cluster"), allow(dead_code))]
    domains: Domains,
}

impl UsersClient {
    pub(crate) fn new(source: Source, domains: Domains) -> Self {
        UsersClient { source, domains }
    }

    /// Carries out a change.
    ///
    /// # Errors
    /// Says why it could not be carried out, and whether it may have been nevertheless.
    #[cfg(feature = "cluster")]
    pub(crate) fn change(&self, change: &Change) -> Result<Changed, String> {
        match self.source.read_only() {
            Some(why) => Err(why),
            None => runtime()?.block_on(super::driver::change_once(&self.source, change)),
        }
    }

    /// Returns every user with its realm, ordered by realm and name.
    ///
    /// # Errors
    /// Says why they cannot be read.
    #[cfg(feature = "cluster")]
    pub(crate) fn list(&self) -> Result<Vec<(String, String)>, String> {
        let list = async {
            let mut session = super::session::Session::connect_to_write(&self.source).await?;
            let mut names = Names(Vec::new());
            session.read_all(&self.domains, &mut names).await?;
            Ok::<_, String>(names.0)
        };
        let listed = async { tokio::time::timeout(LIST_LIMIT, list).await };
        let late = |_| format!("no answer within {} s", LIST_LIMIT.as_secs());
        let mut names = runtime()?
            .block_on(listed)
            .map_err(late)
            .and_then(|listed| listed)
            .map_err(|why| format!("the database of users cannot be read ({why})"))?;
        names.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
        // A user may have several rows, and Redis may return one several times.
        names.dedup();
        Ok(names)
    }

    /// There is no database in a build without the feature `cluster`.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "cluster"))]
    pub(crate) fn change(&self, _: &Change) -> Result<Changed, String> {
        match self.source {}
    }

    /// There is no database in a build without the feature `cluster`.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "cluster"))]
    pub(crate) fn list(&self) -> Result<Vec<(String, String)>, String> {
        match self.source {}
    }
}

/// Time in which all users are listed.
#[cfg(feature = "cluster")]
const LIST_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

#[cfg(feature = "cluster")]
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| format!("users: {e}"))
}

/// The names of all users.
#[cfg(feature = "cluster")]
struct Names(Vec<(String, String)>);

#[cfg(feature = "cluster")]
impl super::read::Sink for Names {
    fn page(&mut self, rows: Vec<super::read::Found>, _: bool) {
        self.0.extend(rows.into_iter().flatten().map(|entry| (entry.user, entry.realm)));
    }

    fn missing(&mut self) -> Vec<(String, String)> {
        Vec::new()
    }
}
