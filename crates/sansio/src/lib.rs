//! The contract between a protocol and the world it runs in.
//!
//! A Ringway protocol is a state machine that is handed the time, bytes and a source of randomness,
//! and is asked what to send, when to wake and what happened. It never opens a socket, reads a clock
//! or starts a thread. This crate holds the few types both sides must agree on and nothing else: no
//! protocol and no input or output. Read [`flow`] for what a transport looks like from above,
//! [`outbox`] for how bytes leave, [`packet`] for what a protocol right above IP sees, [`timer`] and
//! [`deadlines`] for how a machine with many deadlines keeps them, [`pcapng`] for the captures that both worlds write.

#![forbid(unsafe_code)]

pub mod deadlines;
pub mod flow;
pub mod outbox;
pub mod packet;
pub mod pcapng;
pub mod random;
pub mod time;
pub mod timer;

pub use deadlines::Deadlines;
pub use flow::{Flow, FlowId, Transport};
pub use outbox::{Outbox, Send, Target};
pub use packet::{Addressing, Ecn, Endpoint, Icmp};
pub use random::{Random, SplitMix};
pub use time::{Duration, Time};
pub use timer::{TimerId, TimerWheel};
