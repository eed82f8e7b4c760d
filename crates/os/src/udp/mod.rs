//! Parts of a UDP socket that sends and receives in batches: when it sets DF ([`Fragment`]), what waits for room
//! ([`Waiting`]), and how much waits to be read ([`Gauge`]).

mod backlog;
mod fragment;
mod waiting;

pub use backlog::Gauge;
pub use fragment::Fragment;
pub use waiting::{WAITING_BYTES, Waiting};
