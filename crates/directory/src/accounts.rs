//! The users of this router, and those that are registered here.

use std::collections::{BTreeMap, BTreeSet};

use ringway_mesh::NodeId;
use ringway_sansio::Time;

use crate::deputies::Secret;
use crate::grants::Grants;
use crate::statement::{Account, Grant};

/// A user of this router.
#[derive(Clone, Debug)]
pub(crate) struct OwnAccount {
    pub account: Account,
    /// What deputies check credentials with.
    pub secret: Secret,
    /// Whether enough routers keep the record.
    pub stored: bool,
    /// The home that claims the same name, if there is one.
    pub rival: Option<NodeId>,
    /// Whether it has a marked name besides, as the other was first.
    pub is_marked: bool,
    /// When others that claim the name are looked for again; the key in `audits`.
    pub audit: Time,
}

/// A user that is registered at this router.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    pub preference: u16,
    pub grant: Option<Grant>,
    /// Whether enough routers keep the record.
    pub stored: bool,
}

/// Both.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    pub(crate) own: BTreeMap<Box<str>, OwnAccount>,
    pub(crate) registered: BTreeMap<Box<str>, Registered>,
    /// Users of this router by the time at which others that claim their names are looked for.
    pub(crate) audits: BTreeSet<(Time, Box<str>)>,
    /// Permissions of other homes.
    pub(crate) grants: Grants,
}

impl Accounts {
    /// Returns the users of this router.
    pub fn own(&self) -> impl Iterator<Item = (&str, &Account)> {
        self.own.iter().map(|(name, own)| (&**name, &own.account))
    }

    /// Returns whether a user was added here.
    pub fn is_own(&self, name: &str) -> bool {
        self.own.contains_key(name)
    }

    /// Returns the users that are registered here, and whether enough routers keep the record of each.
    pub fn registered(&self) -> impl Iterator<Item = (&str, bool)> {
        self.registered.iter().map(|(name, registered)| (&**name, registered.stored))
    }

    /// Returns the names of this router that another home claims too.
    pub fn contested(&self) -> impl Iterator<Item = (&str, NodeId)> {
        self.own.iter().filter_map(|(name, own)| Some((&**name, own.rival?)))
    }
}
