//! SIP in the virtual world: phones that register and call each other through Ringway's own proxy,
//! over flows of UDP, TCP or SCTP that `ringway_sim` supplies.
//!
//! The proxy is `ringway_proxy`'s, as `ringway serve` runs it; the phones stand on the transactions
//! and dialogs of `ringway_sip`. [`bed`] builds the world, [`phone`] says what phones do and note.

pub mod bed;
pub mod phone;
mod proxy;

pub use bed::{Bed, Calls};
pub use phone::Call;

#[cfg(test)]
mod tests;
