//! The real world of Ringway: sockets, and the loop that lets a pure protocol run over them.
//!
//! One [`Endpoint`] a worker thread owns that worker's listeners and connections and runs its
//! [`Handler`]: UDP received and sent in batches, TCP and TLS with SIP's framing, WebSockets
//! (RFC 7118). What the handler puts into its outbox leaves once the batch is done. Everything a peer
//! can make grow is bounded by [`Limits`] and counted in [`Counters`]. Server location (RFC 3263) is
//! in [`locate`], beside the road: it never makes a worker wait.
//!
//! [`sctp`] runs SCTP, for any program and as one more carrier of SIP.
//!
//! This crate knows how messages are framed, not what they say: of a message over SCTP it reads the
//! Call-ID, to choose a stream, and else no header field. Read
//! [`handler`] first, then [`endpoint`].

mod bind;
pub mod clock;
pub mod counters;
pub mod endpoint;
pub mod error;
mod fresh;
pub mod handler;
mod hub;
pub mod limits;
pub mod locate;
pub mod mailbox;
mod origin;
mod random;
pub mod route;
pub mod sctp;
mod share;
pub mod shared;
mod stream;
mod sys;
pub mod tls;
pub mod tun;
mod udp;

pub use bind::Bind;
pub use clock::Clock;
pub use counters::{Counter, Counters};
pub use endpoint::{Config, Endpoint, bind};
pub use error::BindError;
pub use handler::{Backlog, CloseReason, Handler, Peer, SHED_ALL};
pub use limits::Limits;
pub use mailbox::Mailbox;
pub use origin::{Origin, Origins};
pub use random::ChaCha;
pub use route::{Listener, LocalAddresses, source_for};
pub use shared::Control;
pub use stream::sctp::{MAX_SCTP_MESSAGE, sctp_settings};
pub use sys::{give_memory_back, keep_memory_small};
pub use tls::{ClientCertificates, Identity, Roots, TlsClient, TlsError, TlsServer};
pub use tun::Tun;
