//! Messages for users who are away: kept by the keepers of the DHT, delivered by the home of the user.
//!
//! The router of the sender seals a message for the home of the recipient, has the keepers keep its parts, and then a list of
//! the messages that it has for this recipient. When a quorum keeps all of it, the message is accepted: it survives the end of
//! this router and of any two keepers. The home looks for lists when it hears that its user is registered, has each message
//! delivered, and notifies the router that keeps it, which withdraws it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@format`] | lists and messages as octets |
//! | `keeping` | messages that this router has kept |
//! | `collecting` | messages for users of this router |
//! | `hints` | what other routers may have this one look up |

pub(crate) mod collecting;
pub mod format;
pub(crate) mod hints;
pub(crate) mod keeping;

use ringway_mesh::NodeId;

use crate::resolve::Located;

/// A message for a user who is away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mail {
    /// The recipient with its domain.
    pub to: Box<str>,
    /// The sender with its domain: a user of this router, or one that has proved here to be that user.
    pub from: Box<str>,
    /// Time in seconds for which it is kept, at most [`MAX_LIFETIME`](ringway_dht::config::MAX_LIFETIME).
    pub lifetime: u32,
    /// The message, which the directory does not read.
    pub octets: Box<[u8]>,
}

/// The number of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeliveryId(pub u64);

/// A message that is to be delivered now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// For the answer.
    pub id: DeliveryId,
    /// The recipient, who is registered.
    pub to: Box<str>,
    /// The sender: the router that has kept the message may send as this user.
    pub from: Box<str>,
    /// Second in which it was accepted.
    pub accepted: u32,
    /// Where the recipient is.
    pub located: Located,
    /// The message as it was handed over.
    pub octets: Box<[u8]>,
}

/// Counts of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MailCounters {
    /// Messages that keepers have.
    pub kept: u64,
    /// Messages that found no room or too few keepers.
    pub refused: u64,
    /// Messages that the recipient has.
    pub delivered: u64,
    /// Messages that were dropped, as they were no messages of whom they name as their sender.
    pub invalid: u64,
}

/// A message by the router that keeps it and its number.
pub(crate) type MailKey = (NodeId, format::MailId);
