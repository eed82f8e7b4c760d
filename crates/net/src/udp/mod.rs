//! UDP: one socket for each worker and listener, received in batches and sent in batches.
//!
//! Nothing is allocated for a datagram: it is passed up as a slice of the receive buffers and sent from
//! a slice of the outbox. Responses are sent from the address that the peer used (`IP_PKTINFO`), and
//! datagrams above the path's MTU are fragmented, as RFC 3261 section 18.1.1 expects of responses.
//!
//! `port` is one socket, `ports` all sockets of a worker.

mod outstanding;
mod port;
mod ports;
mod shed;

pub(crate) use outstanding::{Ledger, QUOTE};
pub(crate) use port::UdpPort;
pub(crate) use ports::{Refused, UdpPorts};
