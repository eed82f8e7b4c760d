//! Changes of streams and addresses, as the user is notified of them.

use std::net::IpAddr;

/// Maximum number of changes that the user has not read. At this limit the peer's requests are refused.
pub(super) const MAX_CHANGES: usize = 32;

/// A change of an association's streams or addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// Streams were reset (RFC 6525): the next ordered message of each has number 0. Messages from
    /// before are read first. An empty list stands for all.
    StreamsReset {
        /// Whether they are the peer's streams and not the local ones.
        incoming: bool,
        /// Numbers of the streams.
        streams: Box<[u16]>,
    },
    /// All streams of both endpoints and their TSNs were reset (RFC 6525).
    EverythingReset,
    /// The number of streams has changed (RFC 6525).
    Streams {
        /// Number of streams that the local endpoint may send on.
        outbound: u16,
        /// Number of streams that the peer may send on.
        inbound: u16,
    },
    /// The peer accepts packets from an added local address (RFC 5061).
    AddressAdded(IpAddr),
    /// A local address is deleted.
    AddressDeleted(IpAddr),
    /// The peer was requested to send to a local address.
    PrimaryRequested(IpAddr),
    /// The peer refuses to add, delete or prefer a local address.
    AddressRefused {
        /// The address.
        address: IpAddr,
        /// The code of an error cause (RFC 5061 section 4.3).
        code: u16,
    },
    /// The peer has added an address, which is verified before it is used.
    PeerAddressAdded(IpAddr),
    /// The peer has deleted an address.
    PeerAddressDeleted(IpAddr),
    /// The peer prefers a path to one of its addresses.
    PeerPrimary(IpAddr),
    /// The peer refuses to reset or add streams, with a result of RFC 6525 table 3.
    ReconfigRefused(u32),
}
