//! SIP in the virtual world: phones that register and call each other through Ringway's own proxy,
//! over flows of UDP, TCP or SCTP that `ringway_sim` provides.
//!
//! The proxy is that of `ringway_proxy`, as in `ringway serve`. The phones use the transactions and
//! dialogs of `ringway_sip`. [`bed`] builds the world, [`phone`] implements the phones.

pub mod bed;
pub mod chain;
pub mod phone;
mod proxy;

pub use bed::{Calls, TestBed};
pub use chain::Chain;
pub use phone::Call;

#[cfg(test)]
mod tests;
