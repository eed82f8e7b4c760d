//! The system calls that no safe crate offers in the form needed here: receiving and sending many
//! datagrams in one call, reading ICMP messages about them, and querying a socket's buffers. This
//! module, the files below it and `tun` are the only code of the servers with `unsafe`. Sockets are
//! borrowed; the only state is buffers.
#![allow(unsafe_code)]

mod icmp;
mod moderation;
mod name;
mod network;
mod options;
mod process;
mod receive;
pub(crate) mod sctp;
mod send;
mod watch;

pub(crate) use icmp::{Cause, IcmpError, next_icmp_error};
pub(crate) use moderation::{ErrorQueue, Timer, watch_errors, watch_packets, watch_timer};
pub(crate) use network::NetworkMonitor;
pub(crate) use options::{Memory, enlarge_buffers, memory, path_mtu, set_option, unread};
pub(crate) use process::max_files;
pub use process::{limit_memory_retention, trim_memory};
pub(crate) use receive::{RECEIVE_BATCH, ReceiveBatch, Reception};
pub(crate) use send::{After, Datagram, SEND_BATCH, SendBatch};
pub(crate) use watch::{watch_both, watch_reading, watch_tun};
