//! The reasons why calls are refused: a type for each kind of call, with the variants that it can return.
//!
//! Each is caused by the caller, by a limit, or by the state of the association. None is a fault of the peer; how an
//! association ends is reported by [`Close`](crate::Close).

use std::net::IpAddr;

/// A setting is out of its bounds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {what} of {low} to {high}, got {got}")]
#[non_exhaustive]
pub struct SettingError {
    /// The setting.
    pub what: &'static str,
    /// Minimum value.
    pub low: u64,
    /// Maximum value.
    pub high: u64,
    /// The value given.
    pub got: u64,
}

/// The reason why [`Endpoint::listen`](crate::Endpoint::listen) is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A setting is out of its bounds.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The addresses or the port cannot be used.
    #[error("expected a port, and 1 to {max} unicast addresses or one unspecified address")]
    Address {
        /// Maximum number of addresses.
        max: usize,
    },
    /// Another listener has one of the addresses and the port.
    #[error("the address and port are already in use")]
    InUse,
    /// [`Limits::listeners`](crate::Limits::listeners) is reached.
    #[error("the limit of {limit} listeners is reached")]
    Full {
        /// The limit.
        limit: usize,
    },
}

/// The reason why [`Endpoint::connect`](crate::Endpoint::connect) is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting is out of its bounds.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The addresses cannot be used, alone or together.
    #[error(
        "expected 1 to {max} unicast addresses on each side with a family in common, and ports"
    )]
    Address {
        /// Maximum number of addresses on one side.
        max: usize,
    },
    /// An association has one of the pairs of addresses and ports.
    #[error("the address and port are already in use")]
    InUse,
    /// No ephemeral port is free.
    #[error("no ephemeral port is free")]
    NoPort,
    /// No verification tag was free in several draws.
    #[error("no verification tag is free")]
    NoTag,
    /// [`Limits::associations`](crate::Limits::associations) is reached.
    #[error("the limit of {limit} associations is reached")]
    Full {
        /// The limit.
        limit: usize,
    },
}

/// The reason why [`Association::send`](crate::Association::send) is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The association is being shut down, or has ended.
    #[error("the association is closing and accepts no more messages")]
    Closing,
    /// The send buffer has no room for the message now. [`AssociationEvent::Writable`](crate::AssociationEvent::Writable)
    /// follows.
    #[error("the send buffer has room for {room} bytes, the message has {got}")]
    NoRoom {
        /// Number of bytes that fit now.
        room: usize,
        /// Length of the message.
        got: usize,
    },
    /// The message is larger than the send buffer, or empty.
    #[error("expected a message of 1 to {limit} bytes, got {got}")]
    Size {
        /// Size of the send buffer.
        limit: usize,
        /// Length of the message.
        got: usize,
    },
    /// The stream does not exist.
    #[error("expected a stream below {streams}, got {got}")]
    Stream {
        /// Number of streams.
        streams: u16,
        /// The stream given.
        got: u16,
    },
    /// The stream is being reset (RFC 6525). [`Change::StreamsReset`](crate::Change) follows.
    #[error("the stream is being reset and accepts no messages")]
    Resetting,
}

/// The peer has no such address, or it is not verified yet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{remote}: expected a verified address of the peer")]
#[non_exhaustive]
pub struct NoPath {
    /// The address.
    pub remote: IpAddr,
}

/// The stream does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a stream below {streams}, got {got}")]
#[non_exhaustive]
pub struct NoStream {
    /// Number of streams.
    pub streams: u16,
    /// The stream given.
    pub got: u16,
}

/// The reason why a change of the local addresses is refused (RFC 5061).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The association is not established.
    #[error("the association is not established")]
    NotEstablished,
    /// Both endpoints have to support it.
    #[error("the peer does not support changes of addresses (RFC 5061)")]
    NotSupported,
    /// The address cannot be added, deleted or preferred.
    #[error(
        "{address}: expected a unicast address to add, at most {max}, or one of the association that is not the last"
    )]
    Address {
        /// The address.
        address: IpAddr,
        /// Maximum number of addresses.
        max: usize,
    },
    /// [`MAX_ADDRESS_REQUESTS`](crate::MAX_ADDRESS_REQUESTS) are queued.
    #[error("the limit of {limit} requests is reached")]
    Full {
        /// The limit.
        limit: usize,
    },
}

/// The reason why streams are not reset or added (RFC 6525).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The association is not established.
    #[error("the association is not established")]
    NotEstablished,
    /// Both endpoints have to support it.
    #[error("the peer does not support re-configuration (RFC 6525)")]
    NotSupported,
    /// A stream does not exist, or there would be more than 65,535.
    #[error(transparent)]
    Stream(#[from] NoStream),
    /// A limit is reached.
    #[error("the limit of {limit} {what} is reached")]
    Full {
        /// The items that are limited.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

/// The reason why a key is not set (RFC 4895).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetKeyError {
    /// Both endpoints have to support it.
    #[error("the peer does not support authenticated chunks (RFC 4895)")]
    NotSupported,
    /// The association has as many keys as it may have.
    #[error("the limit of {limit} keys is reached")]
    Full {
        /// The limit.
        limit: usize,
    },
}

/// The reason why a key is not used or deleted (RFC 4895).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Both endpoints have to support it.
    #[error("the peer does not support authenticated chunks (RFC 4895)")]
    NotSupported,
    /// No key has this identifier, or the key to delete is in use.
    #[error("expected the identifier of a key that is set and not in use, got {got}")]
    Key {
        /// The identifier.
        got: u16,
    },
}

/// The association does not exist or no longer exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no association has this id")]
pub struct NoAssociation;

/// The listener does not exist or no longer exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no listener has this id")]
pub struct NoListener;

/// The reason why a call of an association by its id is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The association does not exist or no longer exists.
    #[error("no association has this id")]
    NoAssociation,
    /// The association refuses the call.
    #[error(transparent)]
    Refused(#[from] E),
}
