//! Errors of opening listeners.

use crate::listen::Bind;
use ringway_sansio::Transport;
use ringway_sctp_tokio::{OpenError, SystemError};
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// A listener could not be opened. Prints as one line: transport, address, reason.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// The system refused the address.
    Address {
        /// The requested transport.
        transport: Transport,
        /// The requested address.
        addr: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// A secure listener needs a certificate and none is configured.
    NoCertificate {
        /// The requested transport.
        transport: Transport,
        /// The requested address.
        addr: SocketAddr,
    },
    /// SCTP cannot be used there.
    Sctp {
        /// The requested listener.
        bind: Box<Bind>,
        /// The reason.
        error: OpenError,
    },
    /// The number of workers is out of range.
    Workers {
        /// The requested number.
        requested: usize,
        /// The maximum.
        max: usize,
    },
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::Address { transport, addr, error } => {
                write!(f, "{}://{addr}: {}", transport.uri(), plain(error))
            }
            BindError::NoCertificate { transport, addr } => {
                write!(f, "{}://{addr}: no certificate is configured", transport.uri())
            }
            BindError::Sctp { bind, error } => match error {
                // In UDP the error may concern another port than the one of the URI.
                OpenError::System(SystemError { what, error, .. })
                    if bind.encapsulation.is_some() =>
                {
                    write!(f, "{bind}: {what}: {}", plain(error))
                }
                OpenError::System(SystemError { error, .. })
                    if error.kind() != io::ErrorKind::PermissionDenied =>
                {
                    write!(f, "{bind}: {}", plain(error))
                }
                error => write!(f, "{bind}: {error}"),
            },
            BindError::Workers { requested, max } => {
                write!(f, "workers: expected 1 to {max}, got {requested}")
            }
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BindError::Address { error, .. } => Some(error),
            BindError::Sctp { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Returns the text of an I/O error without its number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address in use".into(),
        io::ErrorKind::AddrNotAvailable => "no such address on this host".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_has_transport_address_and_reason() {
        let error = BindError::Address {
            transport: Transport::Udp,
            addr: "0.0.0.0:5060".parse().unwrap(),
            error: io::ErrorKind::AddrInUse.into(),
        };
        assert_eq!(error.to_string(), "udp://0.0.0.0:5060: address in use");
        let error = BindError::NoCertificate {
            transport: Transport::Tls,
            addr: "[::1]:5061".parse().unwrap(),
        };
        assert_eq!(error.to_string(), "tls://[::1]:5061: no certificate is configured");
    }
}
