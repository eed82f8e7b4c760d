#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`flow`] for what a transport looks like from above, [`program`] for what uses it, [`outbox`] for how bytes leave,
//! [`packet`] for what a protocol right above IP sees, [`timer`] and [`deadlines`] for how a machine with many deadlines keeps them,
//! [`pcapng`] for the captures that both worlds write, [`reader`] for how binary formats are read.

#![forbid(unsafe_code)]

pub mod deadlines;
pub mod flow;
pub mod malformed;
pub mod outbox;
pub mod packet;
pub mod pcapng;
pub mod program;
pub mod random;
pub mod reader;
pub mod ring_queue;
pub mod time;
pub mod timer;

pub use deadlines::Deadlines;
pub use flow::{Flow, FlowId, Hop, Listener, Transport};
pub use malformed::{Got, Malformed};
pub use outbox::{Outbox, Send, Target};
pub use packet::{Addressing, Ecn, Endpoint, Icmp};
pub use program::{Backlog, CloseReason, Peer, Program, SHED_ALL};
pub use random::{Random, SplitMix};
pub use reader::Reader;
pub use ring_queue::RingQueue;
pub use time::{Duration, Time};
pub use timer::{TimerId, TimerWheel};
