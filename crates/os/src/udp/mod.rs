//! Parts of a UDP socket that sends and receives in batches: when it sets DF ([`Fragment`]), what waits for room
//! ([`Waiting`]), and how much waits to be read ([`Gauge`]). And a socket for the protocols of a link
//! ([`LinkSocket`]).

mod backlog;
mod fragment;
mod link;
mod waiting;

pub use backlog::Gauge;
pub use fragment::Fragment;
pub use link::{LINK_HOP_LIMIT, LinkSocket, Sharing};
pub use waiting::{WAITING_BYTES, Waiting};
