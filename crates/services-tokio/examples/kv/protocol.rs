//! The messages: a kind, the length of a key, the key, and a value.

use bytes::Bytes;
use ringway_services_tokio::Error;

/// Octets of a key.
const MAX_KEY: usize = 255;

/// The priority of connections with requests, and of those with watches.
pub(crate) const URGENT: u32 = 10;
pub(crate) const PATIENT: u32 = 200;

/// A message of the protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// Sets a value.
    Put(String, Bytes),
    /// Asks for a value.
    Get(String),
    /// Asks for all changes from now on.
    Watch,
    /// A value, or a change.
    Value(String, Bytes),
    /// There is no value for the key, or what was asked for is done.
    Done,
}

impl Message {
    /// Returns the message in octets. A key beyond its limit is cut, which its reader cannot distinguish from another one; the
    /// client refuses it before.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, key, value): (u8, &str, &[u8]) = match self {
            Message::Put(key, value) => (1, key, value),
            Message::Get(key) => (2, key, &[]),
            Message::Watch => (3, "", &[]),
            Message::Value(key, value) => (4, key, value),
            Message::Done => (5, "", &[]),
        };
        let key = &key.as_bytes()[..key.len().min(MAX_KEY)];
        [&[kind, key.len() as u8], key, value].concat()
    }

    /// Reads a message.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Message> {
        let (kind, length) = (*bytes.first()?, usize::from(*bytes.get(1)?));
        let key = String::from_utf8(bytes.get(2..2 + length)?.to_vec()).ok()?;
        let value = bytes.slice(2 + length..);
        Some(match kind {
            1 => Message::Put(key, value),
            2 => Message::Get(key),
            3 => Message::Watch,
            4 => Message::Value(key, value),
            5 => Message::Done,
            _ => return None,
        })
    }
}

/// Returns whether a key fits into a message.
pub(crate) fn is_key(key: &str) -> bool {
    key.len() <= MAX_KEY
}

/// An error of the protocol or of its transport.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Transport(#[from] Error),
    #[error("expected another message, got {0:?}")]
    Unexpected(Option<Message>),
    #[error("expected a key of at most {MAX_KEY} octets")]
    Key,
}
