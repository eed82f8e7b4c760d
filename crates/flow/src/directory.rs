//! The connections that a worker may use although another owns them, and their aliases (RFC 5923).

use crate::limits::{ADDRESSES_PER_FLOW, ALIASES_PER_FLOW};
use ringway_sansio::{Flow, FlowId, Transport};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;

/// The connections that are found by an address although the worker that looks opened none to it.
#[derive(Default, Debug)]
pub(crate) struct Directory {
    /// Accepted connections by the peer's address, and their aliases.
    entries: BTreeMap<(Transport, SocketAddr), Known>,
    /// For each of these connections, the keys of its entries and the domains its peer proved.
    flows: BTreeMap<FlowId, Held>,
}

#[derive(Debug)]
struct Known {
    flow: Flow,
    alias: bool,
}

#[derive(Debug)]
struct Held {
    domains: Vec<Box<str>>,
    keys: Vec<SocketAddr>,
}

impl Directory {
    /// Inserts a connection.
    pub(crate) fn insert(&mut self, flow: Flow, domains: Vec<Box<str>>) {
        self.entries.insert((flow.transport, flow.remote), Known { flow, alias: false });
        self.flows.insert(flow.id, Held { domains, keys: vec![flow.remote] });
    }

    /// Notes that an association reaches its peer at a further address too. It never replaces another
    /// connection.
    pub(crate) fn reaches(&mut self, flow: &Flow, addr: SocketAddr) {
        let Some(held) = self.flows.get_mut(&flow.id) else { return };
        if held.keys.len() <= ADDRESSES_PER_FLOW
            && let Entry::Vacant(entry) = self.entries.entry((flow.transport, addr))
        {
            entry.insert(Known { flow: *flow, alias: false });
            held.keys.push(addr);
        }
    }

    /// Removes a connection with all its aliases.
    pub(crate) fn remove(&mut self, flow: &Flow) {
        let Some(held) = self.flows.remove(&flow.id) else { return };
        for addr in held.keys {
            if let Entry::Occupied(entry) = self.entries.entry((flow.transport, addr))
                && entry.get().flow.id == flow.id
            {
                entry.remove();
            }
        }
    }

    /// Lets messages for `addr` use this connection from now on (RFC 5923 section 8.2). Returns `false`, and
    /// changes nothing, unless it is TLS and its peer proved a name (section 9.2), or if `addr` has another
    /// connection.
    pub(crate) fn alias(&mut self, flow: &Flow, addr: SocketAddr) -> bool {
        let Some(held) = self.flows.get_mut(&flow.id) else { return false };
        if flow.transport != Transport::Tls || held.domains.is_empty() {
            return false;
        }
        match self.entries.entry((flow.transport, addr)) {
            Entry::Occupied(entry) => entry.get().flow.id == flow.id,
            Entry::Vacant(_) if held.keys.len() > ALIASES_PER_FLOW => false,
            Entry::Vacant(entry) => {
                entry.insert(Known { flow: *flow, alias: true });
                held.keys.push(addr);
                true
            }
        }
    }

    /// Returns the connection to use for a peer, if there is one. An alias serves only a name that its peer
    /// proved (RFC 5923 section 8.2), and so does a secure connection when a name is asked for.
    pub(crate) fn find(
        &self,
        transport: Transport,
        remote: SocketAddr,
        name: Option<&str>,
    ) -> Option<Flow> {
        let known = self.entries.get(&(transport, remote))?;
        if transport.is_secure() {
            let proved = name.is_some_and(|name| {
                let domains = self.flows.get(&known.flow.id).map_or(&[][..], |h| &h.domains);
                domains.iter().any(|d| d.eq_ignore_ascii_case(name))
            });
            if !proved && (known.alias || name.is_some()) {
                return None;
            }
        }
        Some(known.flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(serial: u64, transport: Transport, remote: &str) -> Flow {
        Flow {
            id: FlowId::new(1, serial),
            transport,
            local: "127.0.0.1:5061".parse().unwrap(),
            remote: remote.parse().unwrap(),
        }
    }

    /// RFC 5923 sections 8.2 and 9.2.
    #[test]
    fn an_alias_needs_a_proved_name_and_serves_only_that_name() {
        let mut d = Directory::default();
        let (a, b) = (
            flow(1, Transport::Tls, "192.0.2.1:40000"),
            flow(2, Transport::Tls, "192.0.2.2:40000"),
        );
        let addr = "192.0.2.1:5061".parse().unwrap();
        d.insert(a, vec!["p1.example.com".into()]);
        d.insert(b, vec![]);
        assert!(!d.alias(&b, addr));
        assert!(d.alias(&a, addr));
        assert_eq!(d.find(Transport::Tls, addr, Some("P1.example.com")), Some(a));
        assert_eq!(d.find(Transport::Tls, addr, Some("p2.example.com")), None);
        assert_eq!(d.find(Transport::Tls, addr, None), None);
        assert_eq!(d.find(Transport::Tls, b.remote, None), Some(b));
        assert_eq!(d.find(Transport::Tls, b.remote, Some("p2.example.com")), None);
        d.remove(&a);
        assert_eq!(d.find(Transport::Tls, addr, Some("p1.example.com")), None);
        d.remove(&b);
        assert!(d.entries.is_empty() && d.flows.is_empty());
    }

    #[test]
    fn an_alias_never_replaces_a_connection() {
        let mut d = Directory::default();
        let (a, b) =
            (flow(1, Transport::Tls, "192.0.2.1:40000"), flow(2, Transport::Tls, "192.0.2.1:5061"));
        d.insert(a, vec!["a.example".into()]);
        d.insert(b, vec![]);
        assert!(!d.alias(&a, b.remote));
        for port in 1..=ALIASES_PER_FLOW as u16 {
            assert!(d.alias(&a, SocketAddr::new(a.remote.ip(), port)));
        }
        assert!(!d.alias(&a, SocketAddr::new(a.remote.ip(), 999)));
        assert_eq!(d.find(Transport::Tcp, b.remote, None), None);
    }
}
