//! What connections over SCTP have in common: how an association travels, its addresses, errors.

use ringway_sansio::Duration;
use ringway_sctp_tokio::Association;
use ringway_with_wire::sharing::STREAMS;
use std::io;
use std::net::SocketAddr;

/// Messages that are taken at once.
pub(super) const MAX_TAKEN: usize = 64;
/// Time that an orderly end may take.
pub(super) const CLOSE: Duration = Duration::from_secs(60);

/// How packets travel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Below {
    Udp,
    Ip,
}

impl Below {
    pub(super) fn title(self) -> &'static str {
        match self {
            Below::Udp => "SCTP in UDP",
            Below::Ip => "SCTP over IP",
        }
    }

    /// Returns how an association travels, with the number of its paths.
    pub(super) fn title_of(self, association: &Association) -> String {
        let title = self.title();
        match association.paths().map_or(0, |paths| paths.len()) {
            0 => title.to_owned(),
            1 => format!("{title}, 1 path"),
            paths => format!("{title}, {paths} paths"),
        }
    }
}

/// Returns an error with the number that the system would have for it.
pub(super) fn failed(error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    if error.raw_os_error().is_some() {
        return error;
    }
    match error.kind() {
        io::ErrorKind::TimedOut => io::Error::from_raw_os_error(libc::ETIMEDOUT),
        io::ErrorKind::AddrNotAvailable => io::Error::from_raw_os_error(libc::EADDRNOTAVAIL),
        // However an association has ended.
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::NotConnected
        | io::ErrorKind::ResourceBusy => io::Error::from_raw_os_error(libc::ECONNRESET),
        _ => error,
    }
}

/// Returns the addresses of an association: the local one and the peer's.
pub(super) fn addresses(association: &Association) -> io::Result<(SocketAddr, SocketAddr)> {
    let paths = association.paths().map_err(failed)?;
    let (local, remote) = association.ports().map_err(failed)?;
    let primary = paths.iter().find(|path| path.primary).or(paths.first());
    let primary = primary.ok_or(io::ErrorKind::NotConnected)?;
    Ok(((primary.local, local).into(), (primary.remote, remote).into()))
}

/// Returns whether the peer shares the association among connections.
pub(super) fn shares(association: &Association) -> bool {
    association.statistics().is_ok_and(|snapshot| snapshot.streams == (STREAMS, STREAMS))
}
