//! The connections of one worker, by their flow's identifier and by the peer that they were opened to.

use crate::connection::Connection;
use crate::key::Key;
use ringway_sansio::{FlowId, Time};
use slab::Slab;
use std::collections::BTreeMap;

/// Bits of a flow's serial number that index the table. The bits above count connections, so that an
/// identifier is never used again.
const INDEX_BITS: u32 = 20;

/// Maximum number of connections of one worker.
pub(crate) const MAX_CONNECTIONS: usize = 1 << INDEX_BITS;

/// Serial numbers below this one are those of datagram listeners.
const FIRST_SERIAL: u64 = 1;

/// One worker's connections.
pub(crate) struct Table<T> {
    worker: u8,
    slab: Slab<Connection<T>>,
    /// Connections that we opened.
    keys: BTreeMap<Key, FlowId>,
    serial: u64,
}

impl<T> Table<T> {
    /// Returns an empty table. Serial numbers begin with `start`, so that an identifier kept on disk by an
    /// earlier process names no connection of this one.
    pub(crate) fn new(worker: u8, start: Time) -> Self {
        let serial = FIRST_SERIAL + (start.as_millis() >> 6);
        Table { worker, slab: Slab::new(), keys: BTreeMap::new(), serial }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Inserts a connection with a new identifier. Returns `None` if the table is full.
    pub(crate) fn insert(&mut self, make: impl FnOnce(FlowId) -> Connection<T>) -> Option<FlowId> {
        if self.slab.len() >= MAX_CONNECTIONS {
            return None;
        }
        let entry = self.slab.vacant_entry();
        let id = FlowId::new(self.worker, self.serial << INDEX_BITS | entry.key() as u64);
        self.serial += 1;
        let connection = make(id);
        if let Some(key) = &connection.key {
            self.keys.insert(key.clone(), id);
        }
        entry.insert(connection);
        Some(id)
    }

    pub(crate) fn get(&self, id: FlowId) -> Option<&Connection<T>> {
        self.slab.get(index(id)).filter(|c| c.flow.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut Connection<T>> {
        self.slab.get_mut(index(id)).filter(|c| c.flow.id == id)
    }

    /// Returns the connection that we opened under a key, if it still takes messages.
    pub(crate) fn find(&self, key: &Key) -> Option<FlowId> {
        let id = *self.keys.get(key)?;
        self.get(id).filter(|c| c.takes_messages()).map(|c| c.flow.id)
    }

    pub(crate) fn remove(&mut self, id: FlowId) -> Option<Connection<T>> {
        self.get(id)?;
        let connection = self.slab.remove(index(id));
        if let Some(key) = &connection.key
            && self.keys.get(key) == Some(&id)
        {
            self.keys.remove(key);
        }
        Some(connection)
    }

    /// Returns the identifiers of all connections, in the order of their slots.
    pub(crate) fn ids(&self) -> Vec<FlowId> {
        self.slab.iter().map(|(_, c)| c.flow.id).collect()
    }
}

fn index(id: FlowId) -> usize {
    (id.to_u64() & ((1 << INDEX_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::{CloseReason, Flow, Transport};

    fn connection(id: FlowId, key: Option<Key>) -> Connection<()> {
        let flow = Flow {
            id,
            transport: Transport::Tcp,
            local: "127.0.0.1:5060".parse().unwrap(),
            remote: "127.0.0.1:40000".parse().unwrap(),
        };
        Connection::new(flow, None, key, Time::from_secs(1_000))
    }

    #[test]
    fn an_identifier_is_never_used_again() {
        let mut t = Table::new(3, Time::from_secs(1_700_000_000));
        let a = t.insert(|id| connection(id, None)).unwrap();
        assert_eq!(a.worker(), 3);
        assert!(t.remove(a).is_some());
        let b = t.insert(|id| connection(id, None)).unwrap();
        assert_eq!(index(a), index(b));
        assert_ne!(a, b);
        assert!(t.get_mut(a).is_none() && t.remove(a).is_none());
        assert!(t.get_mut(b).is_some());
    }

    #[test]
    fn a_later_connection_takes_the_key_and_keeps_it() {
        let mut t = Table::new(0, Time::ZERO);
        let key = Key::new(Transport::Tcp, "192.0.2.1:5060".parse().unwrap(), None);
        let a = t.insert(|id| connection(id, Some(key.clone()))).unwrap();
        t.get_mut(a).unwrap().end(CloseReason::Peer, None);
        assert_eq!(t.find(&key), None);
        let b = t.insert(|id| connection(id, Some(key.clone()))).unwrap();
        t.remove(a);
        assert_eq!(t.find(&key), Some(b));
    }
}
