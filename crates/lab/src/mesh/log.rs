//! What passes over the links of a small network.

use ringway_mesh::NodeId;
use ringway_mesh::icmp::Ipv6Header;
use ringway_mesh::wire::{Control, Item, Items, Kind, Message, Routed, SEAL};
use ringway_sansio::Time;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The contents of a packet on a link.
#[derive(Clone, Debug, PartialEq)]
pub enum Contents {
    /// A packet of a host, between it and its router.
    Ipv6 {
        /// Its source.
        source: Ipv6Addr,
        /// Its destination.
        destination: Ipv6Addr,
    },
    /// A packet of a host, between routers.
    Data,
    /// A message of the overlay.
    Routed {
        /// Its type.
        message: Message,
        /// Its number, by which it is known on its way.
        id: u64,
        /// Its target.
        target: NodeId,
    },
    /// The report that a message was not delivered, and the number of that.
    Error {
        /// Number of the message.
        quoted: u64,
    },
    /// Anything between neighbours.
    Link,
}

/// A packet that has arrived over a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Time of arrival.
    pub at: Time,
    /// The node that sent it.
    pub from: u32,
    /// The node that received it.
    pub to: u32,
    /// Its octets, without the headers below it.
    pub octets: usize,
    /// Its contents.
    pub contents: Contents,
}

/// Packets that have arrived at any node. Those of one node are in the order of their arrival.
pub type Log = Arc<Mutex<Vec<Step>>>;

/// Creates an empty log.
pub fn shared_log() -> Log {
    Arc::new(Mutex::new(Vec::new()))
}

/// Locks what nodes share. Worlds of the laboratory run in one thread, so nobody waits.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the contents of a packet. What routers seal has its contents in plain text, for the stand-in of their
/// cryptography conceals nothing.
pub(super) fn contents(packet: &[u8]) -> Contents {
    match Kind::of(packet) {
        Ok(Kind::Data) => Contents::Data,
        Ok(Kind::Control) => control(packet).unwrap_or(Contents::Link),
        Ok(_) => Contents::Link,
        Err(_) => Ipv6Header::parse(packet).map_or(Contents::Link, |header| Contents::Ipv6 {
            source: header.source,
            destination: header.destination,
        }),
    }
}

/// Returns the first message of a CONTROL packet that travels further than the link.
fn control(packet: &[u8]) -> Option<Contents> {
    let sealed = Control::parse(packet).ok()?.sealed;
    let items = sealed.get(..sealed.len().checked_sub(SEAL)?)?;
    Items::new(items).map_while(Result::ok).find_map(|item| match item {
        Item::Routed(body) => {
            let routed = Routed::parse(body).ok()?;
            let (message, id, target) = (routed.message, routed.id.0, routed.target);
            Some(Contents::Routed { message, id, target })
        }
        Item::Error(report) => Some(Contents::Error { quoted: report.quoted }),
        _ => None,
    })
}
