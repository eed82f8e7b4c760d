//! The real world of Ringway: sockets, and the loop that lets a pure protocol run over them.
//!
//! One [`Endpoint`] a worker thread owns that worker's sockets and runs its [`Handler`]: UDP received and sent
//! in batches, TCP, TLS, WebSockets (RFC 7118). These are the pipes of [`ringway_flow`], which makes messages
//! of their bytes. Everything a peer can make grow is bounded by [`Limits`] and counted in [`Counters`].
//! Server location (RFC 3263) is in [`locate`], in the background: it never makes a worker wait.
//!
//! [`sctp`] runs SCTP, for any program and as one more carrier of SIP.
//!
//! Read [`handler`] first, then [`endpoint`].

mod bind;
pub mod clock;
pub mod endpoint;
pub mod error;
pub mod handler;
pub mod limits;
mod listen;
pub mod locate;
pub mod mailbox;
mod origin;
mod pipes;
mod random;
pub mod route;
pub mod sctp;
mod share;
pub mod shared;
mod sockets;
mod stream;
mod sys;
pub mod tls;
pub mod tun;
mod udp;

pub use clock::Clock;
pub use endpoint::{Config, Endpoint, bind};
pub use error::BindError;
pub use handler::Handler;
pub use listen::Bind;
pub use mailbox::Mailbox;
pub use origin::{Origin, Origins};
pub use random::ChaCha;
pub use ringway_flow::{Counter, Counters, Limits};
pub use route::{LocalAddresses, source_for};
pub use shared::Control;
pub use stream::port::{MAX_SCTP_MESSAGE, sctp_settings};
pub use sys::{limit_memory_retention, trim_memory};
pub use tls::{ClientCertificates, Identity, Roots, TlsClient, TlsError, TlsServer};
pub use tun::Tun;
