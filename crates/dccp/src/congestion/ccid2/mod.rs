//! CCID 2: TCP-like congestion control (RFC 4341).

mod receiver;
mod sender;

pub use receiver::{MAX_ACK_DELAY, TcpLikeReceiver};
pub use sender::{MAX_CWND, TcpLikeSender};
