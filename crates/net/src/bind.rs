//! Opening the sockets of all workers at once, before any of them runs.
//!
//! The first worker's socket is bound without `SO_REUSEPORT`, so that an address already in use is
//! an error even when another process of the same user uses it; the option is set right after, and the other
//! workers join. A port that the system chose for the first is thereby the port of all.

use crate::error::BindError;
use ringway_sansio::{Listener, Transport};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;

/// Maximum number of connections that the kernel queues until they are accepted; the system may reduce it to
/// `net.core.somaxconn`.
const ACCEPT_BACKLOG: i32 = 4096;

/// One listener with a socket for every worker.
pub(crate) struct Bound {
    pub(crate) listener: Listener,
    /// Indexed by worker.
    pub(crate) sockets: Vec<Socket>,
}

/// Opens `workers` sockets for one listener.
pub(crate) fn bind(
    transport: Transport,
    addr: SocketAddr,
    workers: usize,
) -> Result<Bound, BindError> {
    let failed = |error| BindError::Address { transport, addr, error };
    let first = open(transport, addr, false).map_err(failed)?;
    let mut actual = addr;
    let chosen = first.local_addr().map_err(failed)?.as_socket().map_or(0, |a| a.port());
    actual.set_port(chosen);
    if workers > 1 {
        first.set_reuse_port(true).map_err(failed)?;
    }
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(open(transport, actual, true).map_err(failed)?);
    }
    if !transport.is_datagram() {
        for socket in &sockets {
            socket.listen(ACCEPT_BACKLOG).map_err(failed)?;
        }
    }
    Ok(Bound { listener: Listener { transport, addr: actual }, sockets })
}

fn open(transport: Transport, addr: SocketAddr, shared: bool) -> io::Result<Socket> {
    let (kind, protocol) = if transport.is_datagram() {
        (Type::DGRAM, Protocol::UDP)
    } else {
        (Type::STREAM, Protocol::TCP)
    };
    let socket = Socket::new(Domain::for_address(addr), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if addr.is_ipv6() {
        // IPv4 has separate listeners, so that no peer has a mapped address.
        socket.set_only_v6(true)?;
    }
    if !transport.is_datagram() {
        // Connections of an earlier process may still be in TIME-WAIT.
        socket.set_reuse_address(true)?;
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&addr.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_one_port_and_others_may_not() {
        for transport in [Transport::Udp, Transport::Tcp] {
            for addr in ["127.0.0.1:0", "[::1]:0"] {
                let bound = bind(transport, addr.parse().unwrap(), 3).unwrap();
                let port = bound.listener.addr.port();
                assert_ne!(port, 0);
                for socket in &bound.sockets {
                    let addr = socket.local_addr().unwrap().as_socket().unwrap();
                    assert_eq!(addr, bound.listener.addr);
                }
                let error = bind(transport, bound.listener.addr, 2).err().unwrap();
                assert!(error.to_string().ends_with(": address in use"), "{error}");
            }
        }
    }

    #[test]
    fn a_foreign_address_is_an_error() {
        let error = bind(Transport::Udp, "192.0.2.77:5060".parse().unwrap(), 1).err().unwrap();
        assert_eq!(error.to_string(), "udp://192.0.2.77:5060: no such address on this host");
    }
}
