//! The system calls no safe crate offers in the shape needed here: receiving and sending many
//! datagrams in one call, reading which of them an ICMP message refused, and asking what a socket
//! keeps. With the files below it and `tun`, the only place of the project's servers with `unsafe` in it. Sockets are
//! borrowed; nothing is remembered but buffers.
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

pub(crate) use icmp::{Cause, Refusal, next_refusal};
pub(crate) use moderation::{ErrorQueue, Timer, watch_errors, watch_packets, watch_timer};
pub(crate) use network::NetworkNews;
pub(crate) use options::{Memory, enlarge_buffers, memory, path_mtu, set_option, unread};
pub(crate) use process::max_files;
pub use process::{give_memory_back, keep_memory_small};
pub(crate) use receive::{RECEIVE_BATCH, ReceiveBatch, Reception};
pub(crate) use send::{After, Datagram, SEND_BATCH, SendBatch};
pub(crate) use watch::{watch_both, watch_reading, watch_tun};
