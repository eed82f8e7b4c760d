//! Lists of what all routers of the network state, as for a phonebook.

use ringway_dht::{Record, ScanId};
use ringway_mesh::NodeId;

use crate::config::{KIND_ACCOUNT, KIND_LOCATION, MAX_NAME};
use crate::statement::{Account, Location};

/// What is listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Subject {
    /// The accounts.
    Accounts,
    /// The locations.
    Locations,
}

impl Subject {
    pub(crate) const fn kind(self) -> u8 {
        match self {
            Subject::Accounts => KIND_ACCOUNT,
            Subject::Locations => KIND_LOCATION,
        }
    }
}

/// How a list has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListEnd {
    /// Nothing is missing that was stored before.
    Whole,
    /// Some routers could not be asked, or there is more than a list has.
    Partial,
}

/// What a router states. That the router has signed it is verified; whether it may state it is for
/// [`resolve`](crate::resolve).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stated<T> {
    /// The user with its domain.
    pub name: Box<str>,
    /// The router.
    pub router: NodeId,
    /// What it states.
    pub value: T,
}

/// A part of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listed {
    /// Accounts.
    Accounts(Vec<Stated<Account>>),
    /// Locations.
    Locations(Vec<Stated<Location>>),
}

/// Lists under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists(Vec<(ScanId, Subject)>);

impl Lists {
    /// Returns whether a list is under way.
    pub(crate) fn has(&self, subject: Subject) -> bool {
        self.0.iter().any(|(_, of)| *of == subject)
    }

    pub(crate) fn begin(&mut self, id: ScanId, subject: Subject) {
        self.0.push((id, subject));
    }

    pub(crate) fn subject(&self, id: ScanId) -> Option<Subject> {
        self.0.iter().find(|(of, _)| *of == id).map(|(_, subject)| *subject)
    }

    /// Removes a list. Returns what it was of.
    pub(crate) fn end(&mut self, id: ScanId) -> Option<Subject> {
        let at = self.0.iter().position(|(of, _)| *of == id)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// Returns what records state that the DHT has verified. What is no statement, or was withdrawn, is left out.
pub(crate) fn listed(subject: Subject, records: &[Record]) -> Listed {
    match subject {
        Subject::Accounts => Listed::Accounts(stated(records, |value| Account::parse(value).ok())),
        Subject::Locations => {
            Listed::Locations(stated(records, |value| Location::parse(value).ok()))
        }
    }
}

fn stated<T>(records: &[Record], parse: impl Fn(&[u8]) -> Option<T>) -> Vec<Stated<T>> {
    let read = |record: &Record| {
        let name = core::str::from_utf8(record.name()).ok()?;
        // A marked name is longer than MAX_NAME by its mark.
        let value = parse(record.value()).filter(|_| name.len() <= MAX_NAME + 5)?;
        Some(Stated { name: name.into(), router: record.proof().id(), value })
    };
    records.iter().filter_map(read).collect()
}
