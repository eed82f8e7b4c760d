#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Descriptors are borrowed; the only state is buffers. Sockets are socket2's, and those that wait are registered
//! with a tokio runtime by the functions whose names begin with `watch`. [`udp`] has the parts of a socket that sends
//! and receives in batches, [`netlink`] the links, addresses and routes of the host, [`tun`] devices whose other end is
//! a program, [`sctp`] the options and messages of the kernel's SCTP. A file with `unsafe` allows it
//! in its first lines.

mod clock;
mod icmp;
mod moderation;
mod name;
pub mod netlink;
mod network;
mod options;
mod packet;
mod plain_option;
mod poll;
mod privileges;
mod process;
mod random;
mod realtime;
mod receive;
mod route;
pub mod sctp;
mod send;
mod transport;
pub mod tun;
pub mod udp;
mod watch;

pub use clock::Clock;
pub use icmp::{Cause, IcmpError, next_icmp_error};
pub use moderation::{ErrorQueue, Timer, watch_errors, watch_packets, watch_timer};
pub use network::NetworkMonitor;
pub use options::{
    Memory, divide_by_word, enlarge_buffers, memory, path_mtu, reset_connection, set_option, unread,
};
pub use packet::{FRAME_BATCH, Frame, FrameBatch, PacketSocket, interface_index};
pub use plain_option::{MAX_OPTION, TCP_INFO, plain_option, set_plain_option};
pub use poll::{has_hung_up, wait_readable};
pub use privileges::{Capability, drop_capabilities};
pub use process::{limit_memory_retention, max_files, trim_memory};
pub use random::ChaCha;
pub use realtime::{enter_new_network, use_exact_timers, use_real_time_priority};
pub use receive::{RECEIVE_BATCH, ReceiveBatch, Reception, ReceptionMut};
pub use route::{LocalAddresses, source_for};
pub use send::{After, Datagram, SEND_BATCH, SendBatch};
pub use transport::{
    IPPROTO_MPTCP, IPPROTO_UDPLITE, UDPLITE_HEADER, is_mptcp_fallback, set_receive_coverage,
    set_send_coverage,
};
pub use tun::Tun;
pub use watch::{Watched, watch_both, watch_reading, watch_tun, watch_tun_queue};
