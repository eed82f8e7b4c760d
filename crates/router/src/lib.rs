#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | what an operator chooses |
//! | [`state`] | the identity and the network key in files |
//! | [`advertise`] | router advertisements for the hosts of a LAN, and their times |
//! | [`device`] | the TUN device and its address |
//! | [`interfaces`] | which interfaces there are now |
//! | [`users`] | the directory of users, and a SIP server beside the router |
//! | [`daemon`] | the loop that joins them with the router |
//! | `traffic` | the path of packets between the kernel and the router |
//! | `trains` | packets that are sent together |
//! | `lan` | the hosts of a LAN |
//! | `services` | DNS, multicast DNS and DHCP on a LAN |
//! | [`control`] | questions and answers on a Unix socket |
//! | [`probes`] | pings and traces |
//! | [`status`] | what a router reports of itself |
//! | [`http`], `metrics` | the same for scrapers |
//! | `notify` | the service manager |

#![forbid(unsafe_code)]

pub mod advertise;
pub mod control;
pub mod daemon;
pub mod device;
pub mod http;
pub mod interfaces;
mod lan;
mod metrics;
mod notify;
pub mod probes;
mod services;
pub mod settings;
mod socket;
pub mod state;
pub mod status;
mod traffic;
mod trains;
pub mod users;

pub use daemon::{StartError, run, run_with};
pub use settings::Settings;
