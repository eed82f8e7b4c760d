//! The real world of Ringway: sockets, and the loop that lets a pure protocol run over them.
//!
//! One [`Endpoint`] a worker thread owns that worker's sockets and runs its [`Handler`]: UDP received and sent
//! in batches, TCP, TLS, WebSockets (RFC 7118). These are the pipes of [`ringway_flow`], which makes messages
//! of their bytes. Everything a peer can make grow is bounded by [`Limits`] and counted in [`Counters`].
//! Server location (RFC 3263) is in [`locate`], in the background: it never makes a worker wait.
//!
//! SCTP, one more carrier of SIP, is run by [`ringway_sctp_tokio`].
//!
//! The system calls below all this are in [`ringway_os`].
//!
//! Read [`handler`] first, then [`endpoint`].

#![forbid(unsafe_code)]

mod bind;
pub mod endpoint;
pub mod error;
pub mod handler;
mod ingress;
pub mod limits;
mod listen;
pub mod locate;
pub mod mailbox;
mod origin;
mod pipes;
mod share;
pub mod shared;
mod sockets;
mod stream;
pub mod tls;
mod udp;

pub use endpoint::{Config, Endpoint, bind};
pub use error::BindError;
pub use handler::Handler;
pub use ingress::IngressFilter;
pub use listen::Bind;
pub use mailbox::Mailbox;
pub use origin::{Origin, Origins};
pub use ringway_flow::{Counter, Counters, Limits};
// Types of this room's own signatures; what else the system offers is in `ringway_os` itself.
pub use ringway_os::{Clock, LocalAddresses, Tun};
pub use shared::Control;
pub use stream::port::{MAX_SCTP_MESSAGE, TwoAddresses, sctp_settings};
pub use tls::{ClientCertificates, Identity, Roots, TlsClient, TlsError, TlsServer};
