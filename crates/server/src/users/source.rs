//! Which database has the users of this server.

#[cfg(feature = "cluster")]
use crate::config::{NO_USERS_IN_STORE, StoreKind};
use crate::config::{Settings, UserSource};
use ringway_users::Domains;
#[cfg(feature = "cluster")]
use ringway_users::mirror::Follow;
use std::fmt;

/// A database with users, not connected yet.
#[cfg(feature = "cluster")]
pub enum Source {
    /// PostgreSQL.
    Postgres(super::postgres::Server),
    /// Redis or Valkey.
    Redis(super::redis::Server),
}

/// A build without the feature `cluster` has none.
#[cfg(not(feature = "cluster"))]
pub enum Source {}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "cluster")]
        match self {
            Source::Postgres(server) => server.fmt(f),
            Source::Redis(server) => server.fmt(f),
        }
        #[cfg(not(feature = "cluster"))]
        {
            let _ = f;
            match *self {}
        }
    }
}

impl Source {
    /// Returns the database with the users of a server with these settings, if there is one. Does not connect.
    ///
    /// # Errors
    /// One line that says what is missing or contradicts.
    #[cfg(feature = "cluster")]
    pub fn of(settings: &Settings) -> Result<Option<Source>, String> {
        let users = &settings.users;
        if settings.mesh.is_some() && users.source != UserSource::Embedded {
            return Err("users.source: a router of a mesh has users of its own".to_owned());
        }
        let read = |path: &std::path::PathBuf| {
            std::fs::read(path).map_err(|e| format!("users.roots: {}: {e}", path.display()))
        };
        let roots = users.roots.as_ref().map(read).transpose()?;
        match (&users.source, &settings.store) {
            (UserSource::Embedded, _) => Ok(None),
            (UserSource::Postgres(uri), _) => {
                let follow = match users.table {
                    Some(_) => Follow::Everything(users.refresh),
                    None => Follow::Changes,
                };
                let table = users.table.clone();
                super::postgres::Server::new((**uri).clone(), table, follow, roots.as_deref())
                    .map(|server| Some(Source::Postgres(server)))
            }
            (UserSource::Store, Some(StoreKind::Redis(uri))) if !uri.cluster => {
                let of_store = settings.cluster.roots.as_ref().map(read).transpose()?;
                let replicas = settings.cluster.replicas;
                super::redis::Server::new((**uri).clone(), roots.or(of_store), replicas)
                    .map(|server| Some(Source::Redis(server)))
            }
            (UserSource::Store, _) => Err(format!("users.source: {NO_USERS_IN_STORE}")),
        }
    }

    /// Returns none: a build without the feature `cluster` has no such database.
    ///
    /// # Errors
    /// Fails when the settings name one.
    #[cfg(not(feature = "cluster"))]
    pub fn of(settings: &Settings) -> Result<Option<Source>, String> {
        match settings.users.source {
            UserSource::Embedded => Ok(None),
            _ => {
                Err("users.source: this build has no users in a database (feature cluster)"
                    .to_owned())
            }
        }
    }

    /// Returns why users cannot be changed here, if they cannot.
    pub(crate) fn read_only(&self) -> Option<String> {
        #[cfg(feature = "cluster")]
        match self {
            Source::Postgres(server) => server.read_only(),
            Source::Redis(_) => None,
        }
        #[cfg(not(feature = "cluster"))]
        match *self {}
    }

    /// Returns how changes become known.
    #[cfg(feature = "cluster")]
    pub(super) fn follow(&self) -> Follow {
        match self {
            Source::Postgres(server) => server.follow(),
            Source::Redis(_) => Follow::Changes,
        }
    }
}

/// Returns the domains of a server, for rows of other programs.
pub(crate) fn domains(domains: &[ringway_proxy::config::Domain]) -> Domains {
    Domains::new(
        domains
            .iter()
            .map(|domain| (&*domain.name, domain.aliases.iter().map(|alias| &**alias).collect())),
    )
}
