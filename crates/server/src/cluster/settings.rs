//! `[cluster]`: how other nodes reach this one, and what the database must have before a registration is acknowledged.

use std::path::PathBuf;

use crate::config::Listen;

/// The node that this server is, if its store is a database that nodes share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterSettings {
    /// The address by which other nodes reach this one; the first listener for UDP or TCP without.
    pub address: Option<Listen>,
    /// Number of replicas that must have a registration before it is acknowledged.
    pub replicas: u32,
    /// File of users and of the registrations of this node; in the state directory without.
    pub file: Option<PathBuf>,
    /// Trust anchors for the certificate of the database, in PEM; those of the host without.
    pub roots: Option<PathBuf>,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        ClusterSettings { address: None, replicas: 1, file: None, roots: None }
    }
}
