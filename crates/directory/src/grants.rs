//! Permissions of other homes for this router.
//!
//! A home can give out as many as it wants, for users that it invents. So one home may fill only a part of the table, and
//! what was permitted longest ago makes room.

use std::collections::{BTreeMap, BTreeSet};

use ringway_mesh::NodeId;

use crate::config::Config;
use crate::statement::Grant;

/// The last grant of each user of another home.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grants {
    by_name: BTreeMap<Box<str>, (u64, Grant)>,
    /// The names of each home, by the order in which they came.
    of_home: BTreeMap<NodeId, BTreeSet<(u64, Box<str>)>>,
    last: u64,
}

impl Grants {
    /// Returns the grant for a user.
    pub(crate) fn get(&self, name: &str) -> Option<&Grant> {
        self.by_name.get(name).map(|(_, grant)| grant)
    }

    /// Stores a verified grant. Returns the user that had to make room, if one had to.
    pub(crate) fn insert(&mut self, config: &Config, name: &str, grant: Grant) -> Option<Box<str>> {
        self.remove(name);
        let home = grant.home.id();
        let own = self.of_home.get(&home).map_or(0, BTreeSet::len);
        let evicted = if own >= config.grants_of_home {
            self.oldest(home)
        } else if self.by_name.len() >= config.grants {
            let largest = self.of_home.iter().max_by_key(|(_, names)| names.len());
            largest.map(|(&home, _)| home).and_then(|home| self.oldest(home))
        } else {
            None
        };
        evicted.iter().for_each(|name| self.remove(name));
        self.last += 1;
        self.by_name.insert(name.into(), (self.last, grant));
        self.of_home.entry(home).or_default().insert((self.last, name.into()));
        evicted
    }

    /// Removes the grant for a user.
    pub(crate) fn remove(&mut self, name: &str) {
        let Some((order, grant)) = self.by_name.remove(name) else { return };
        let home = grant.home.id();
        if let Some(names) = self.of_home.get_mut(&home) {
            names.remove(&(order, name.into()));
            if names.is_empty() {
                self.of_home.remove(&home);
            }
        }
    }

    fn oldest(&self, home: NodeId) -> Option<Box<str>> {
        self.of_home.get(&home)?.first().map(|(_, name)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_mesh::crypto::StandIn;
    use ringway_mesh::identity::{Identity, Search};
    use ringway_sansio::SplitMix;

    fn home(seed: u64) -> Identity {
        Search::new(0, &mut SplitMix::new(seed)).step(1).unwrap()
    }

    fn grant(home: &Identity, name: &str) -> Grant {
        Grant::sign::<StandIn>(home, name, NodeId::new(1), (9, 9))
    }

    #[test]
    fn a_home_that_invents_users_displaces_its_own() {
        let config = Config { grants: 6, grants_of_home: 4, ..Config::default() };
        let (hostile, honest, other) = (home(1), home(2), home(3));
        let mut grants = Grants::default();
        assert_eq!(grants.insert(&config, "alice@mesh", grant(&honest, "alice@mesh")), None);
        for number in 0..100 {
            let name = format!("user{number}@mesh");
            grants.insert(&config, &name, grant(&hostile, &name));
        }
        assert_eq!((grants.by_name.len(), grants.of_home.len()), (5, 2));
        assert!(grants.get("alice@mesh").is_some() && grants.get("user95@mesh").is_none());
        // The table is full then, and the home with most makes room.
        for name in ["bob@mesh", "carol@mesh"] {
            grants.insert(&config, name, grant(&other, name));
        }
        assert_eq!(grants.by_name.len(), 6);
        assert!(grants.get("alice@mesh").is_some() && grants.get("user96@mesh").is_none());
        grants.remove("alice@mesh");
        assert!(grants.get("alice@mesh").is_none());
        assert_eq!(grants.of_home.values().map(BTreeSet::len).sum::<usize>(), 5);
    }
}
