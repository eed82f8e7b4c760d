//! CCID 3: TCP-friendly rate control (RFC 4342, RFC 5348).

pub mod equation;
mod history;
mod receiver;
mod sender;

pub use receiver::TfrcReceiver;
pub use sender::{MAX_BACKOFF, MAX_SENT, TfrcSender};
