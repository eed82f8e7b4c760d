//! The kernel's SCTP, behind the same API as the protocol in user space: a socket for each association
//! (RFC 6458 section 4, one-to-one style).

mod association;
mod notice;

pub(super) use association::Association;

use super::config::Connect;
use super::error::{AcceptError, ConnectError, ListenError, OpenError, SystemError};
use ringway_os::sctp as sys;
use ringway_os::{Watched, watch_both};
use ringway_sctp as refusal;
use ringway_sctp::Settings;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

/// Maximum number of associations that the kernel queues until they are accepted.
const BACKLOG: i32 = 4096;

/// Offsets in `sctp_event_subscribe` of the notifications to receive: associations, addresses, the peer's
/// errors, its shutdown, streams reset, all reset, streams added, messages that were not sent.
const SUBSCRIPTIONS: [usize; 8] = [1, 2, 4, 5, 10, 11, 12, 13];

/// Size of that structure in bytes.
const SUBSCRIBE_SIZE: usize = 14;

/// Requests that a peer may make (SCTP_ENABLE_STRRESET_MASK): resetting streams, resetting the association,
/// adding streams.
const REQUESTS: u32 = 7;

/// Converts an error of the system, and explains the one of a kernel without SCTP.
fn fault(what: impl Into<String>, error: io::Error) -> SystemError {
    if matches!(error.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT)) {
        let what = "the kernel has no SCTP (its module sctp is not loaded, or not there)";
        return SystemError::new(what, error);
    }
    SystemError::new(what.into(), error)
}

/// Returns an error unless the kernel has SCTP.
pub(super) fn check() -> Result<(), OpenError> {
    open(&[], &Settings::default()).map_err(|e| fault("the kernel's sctp", e))?;
    Ok(())
}

/// Opens a socket for associations between these addresses with `settings`, as far as the kernel has options for them.
fn open(addresses: &[IpAddr], settings: &Settings) -> io::Result<Socket> {
    let ipv6 = addresses.iter().any(IpAddr::is_ipv6);
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::from(libc::IPPROTO_SCTP)))?;
    if ipv6 && addresses.iter().all(IpAddr::is_ipv6) {
        // Another listener may have the wildcard of IPv4.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    // Associations of an earlier listener may still have the port.
    socket.set_reuse_address(true)?;
    socket.set_send_buffer_size(settings.send_buffer)?;
    socket.set_recv_buffer_size(settings.receive_buffer)?;
    let fd = socket.as_fd();
    let attempts = u16::try_from(settings.max_init_retransmits).unwrap_or(u16::MAX);
    let millis = |d: std::time::Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
    let longest = u16::try_from(millis(settings.rto_max)).unwrap_or(u16::MAX);
    let init = [settings.outbound_streams, settings.inbound_streams, attempts, longest];
    sys::set(fd, sys::INITMSG, &init.map(u16::to_ne_bytes).concat())?;
    let times =
        [0, millis(settings.rto_initial), millis(settings.rto_max), millis(settings.rto_min)];
    sys::set(fd, sys::RTOINFO, &times.map(u32::to_ne_bytes).concat())?;
    for option in [sys::NODELAY, sys::RECVRCVINFO] {
        sys::set(fd, option, &1i32.to_ne_bytes())?;
    }
    sys::set(fd, sys::MAPPED_V4, &0i32.to_ne_bytes())?;
    let mut events = [0; SUBSCRIBE_SIZE];
    SUBSCRIPTIONS.iter().for_each(|offset| events[*offset] = 1);
    // Older kernels have fewer kinds, and accept only the shorter list.
    sys::set(fd, sys::EVENTS, &events).or_else(|_| sys::set(fd, sys::EVENTS, &events[..11]))?;
    if settings.reconfiguration {
        // Association 0, then the mask; refused where the system forbids it for all.
        let _ =
            sys::set(fd, sys::ENABLE_STREAM_RESET, &[0, REQUESTS].map(u32::to_ne_bytes).concat());
    }
    Ok(socket)
}

fn with_port(addresses: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect()
}

/// Binds all of `addresses`. The first is bound first, so that the others get its port.
fn bind(socket: &Socket, addresses: &[IpAddr], port: u16) -> io::Result<u16> {
    let Some((first, others)) = addresses.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected an address, got none"));
    };
    socket.bind(&SocketAddr::new(*first, port).into())?;
    let port = socket.local_addr()?.as_socket().map_or(port, |a| a.port());
    if !others.is_empty() {
        sys::set(socket.as_fd(), sys::BINDX_ADD, &sys::encode_addresses(&with_port(others, port)))?;
    }
    Ok(port)
}

/// A listening socket of the kernel's SCTP.
#[derive(Debug)]
pub(super) struct Listener {
    io: Watched<Socket>,
}

impl Listener {
    pub(super) fn new(
        addresses: &[IpAddr],
        port: u16,
        settings: &Settings,
    ) -> Result<(Listener, u16), ListenError> {
        settings.check().map_err(refusal::ListenError::from)?;
        let failed = |error| fault(format!("sctp port {port}"), error);
        let socket = open(addresses, settings).map_err(failed)?;
        let port = bind(&socket, addresses, port).map_err(failed)?;
        socket.listen(BACKLOG).map_err(failed)?;
        Ok((Listener { io: watch_both(socket).map_err(failed)? }, port))
    }

    pub(super) fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Association, AcceptError>> {
        let failed = |error| fault("accepting an sctp association", error);
        loop {
            let mut ready = ready!(self.io.poll_read_ready(cx)).map_err(failed)?;
            match self.io.get_ref().accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(true).map_err(failed)?;
                    return Poll::Ready(Ok(Association::new(socket, true)?));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Poll::Ready(Err(failed(error).into())),
            }
        }
    }
}

/// Begins to open an association.
pub(super) fn connect(connect: &Connect, settings: &Settings) -> Result<Association, ConnectError> {
    settings.check().map_err(refusal::ConnectError::from)?;
    let failed = |error| fault("opening an sctp association", error);
    let both = [&connect.locals[..], &connect.remotes[..]].concat();
    let socket = open(&both, settings).map_err(failed)?;
    bind(&socket, &connect.locals, connect.local_port).map_err(failed)?;
    let remotes = sys::encode_addresses(&with_port(&connect.remotes, connect.remote_port));
    match sys::set(socket.as_fd(), sys::CONNECTX, &remotes) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(failed(error).into()),
        _ => Ok(Association::new(socket, false)?),
    }
}
