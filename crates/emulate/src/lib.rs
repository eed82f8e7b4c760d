//! A link between two real interfaces: the body of `ringway emulate`.
//!
//! [`ringway_link`] decides about each packet, as it does in the simulator; here the decisions are carried out in real
//! time. [`Direction`] is a machine without a clock or a socket, which holds the packets of one direction; `lane` puts it
//! between the two ends of `ports`, `realtime` is the loop that runs lanes, each in a thread of its own, and `daemon` what is
//! around them: the control socket, the log and a command behind the link. The same seed and the same packets have the same log
//! in both worlds.
//!
//! ## Modules
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | what an operator chooses, in a file and by flags |
//! | [`parameters`] | parameters of a link as words |
//! | `ways`, `direction` | both directions; the machine of one |
//! | `frame`, `frames` | what a packet says; the packets that are held |
//! | `statistics`, [`report`] | what was done, and how exactly |
//! | `realtime`, `lane`, `ports` | the loop; a direction in it; packet sockets and TUN devices |
//! | `interfaces` | whether the interfaces are up |
//! | [`control`] | questions and answers on a Unix socket |
//! | `log` | the files of the log |
//! | `namespace` | a command behind the link |
//! | `daemon` | an emulation from its start to its end |

#![forbid(unsafe_code)]

pub mod control;
mod daemon;
mod direction;
mod frame;
mod frames;
mod interfaces;
mod lane;
mod log;
mod namespace;
pub mod parameters;
mod ports;
mod realtime;
pub mod report;
pub mod settings;
mod statistics;
mod ways;

pub use daemon::{Ended, RunError, run};
pub use direction::{Arrival, Direction, Prepared, Transmit};
pub use namespace::{HOST, NamespaceError};
pub use report::Report;
pub use settings::{Ends, Flags, Settings};
pub use ways::{Changes, LinkSettings, Way};
