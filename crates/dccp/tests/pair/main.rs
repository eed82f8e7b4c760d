//! Two hosts over links in virtual time.

#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod ccid2;
mod ccid3;
mod closing;
mod encapsulation;
mod features;
mod handshake;
mod hostile;
mod random;
mod recovery;
mod transfer;
