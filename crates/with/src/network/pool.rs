//! The associations that connections to the same port of a peer may share.

use super::associated::{SctpTransport, first};
use super::below::Below;
use super::opened::Opened;
use super::sharing::{Hub, SharedTransport};
use super::unread::Unread;
use crate::locking::lock;
use ringway_sctp_tokio::Association;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// The entries of all peers.
#[derive(Default)]
pub(super) struct Pool(Mutex<BTreeMap<(Below, SocketAddr), Arc<Entry>>>);

/// What there is for one port of a peer. It is locked while an association is being opened, so that connections which
/// begin together share it.
#[derive(Default)]
pub(super) struct Entry(tokio::sync::Mutex<Hubs>);

#[derive(Default)]
struct Hubs {
    hubs: Vec<Arc<Hub>>,
    /// Whether the peer did not share the last one.
    is_alone: bool,
}

/// What a connection gets.
pub(super) enum Acquired {
    /// A stream of an association that stands, which is to be opened.
    Stream(Arc<Hub>, SharedTransport),
    /// It stands, in a new association.
    Association(Opened<SctpTransport>),
}

impl Pool {
    /// Returns the entry for a port of a peer.
    pub(super) fn entry(&self, below: Below, peer: SocketAddr) -> Arc<Entry> {
        let mut entries = lock(&self.0);
        if let Some(entry) = entries.get(&(below, peer)) {
            return entry.clone();
        }
        // Those that nobody uses have nothing worth keeping.
        entries.retain(|_, entry| Arc::strong_count(entry) > 1 || entry.is_in_use());
        entries.entry((below, peer)).or_default().clone()
    }
}

impl Entry {
    fn is_in_use(&self) -> bool {
        self.0.try_lock().map_or(true, |hubs| hubs.hubs.iter().any(|hub| hub.is_open()))
    }

    /// Takes a stream of an association that stands, or opens one.
    pub(super) async fn acquire(
        &self,
        associate: impl Future<Output = io::Result<Association>>,
        below: Below,
        unread: &Unread,
    ) -> io::Result<Acquired> {
        let mut hubs = self.0.lock().await;
        hubs.hubs.retain(|hub| hub.is_open());
        let stream = hubs.hubs.iter().find_map(|hub| Some((hub.clone(), Hub::stream(hub)?)));
        if let Some((hub, transport)) = stream {
            return Ok(Acquired::Stream(hub, transport));
        }
        // Without sharing no attempt need wait for another.
        let waits = (!hubs.is_alone).then_some(hubs);
        let (opened, hub) = first(associate.await?, below, unread).await?;
        let mut hubs = match waits {
            Some(hubs) => hubs,
            None => self.0.lock().await,
        };
        hubs.is_alone = hub.is_none();
        hubs.hubs.extend(hub);
        Ok(Acquired::Association(opened))
    }
}
