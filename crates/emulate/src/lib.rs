//! A link between two real interfaces: the body of `ringway emulate`.
//!
//! [`ringway_link`] decides about each packet, as it does in the simulator; here the decisions are carried out in real
//! time. [`Emulator`] is a machine without a clock or a socket, which holds the packets of both directions; `realtime` is
//! the loop that runs it between the two ends of `ports`, and `daemon` what is around that loop: the control socket, the
//! log and a command behind the link. The same seed and the same packets have the same log in both worlds.
//!
//! ## Modules
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | what an operator chooses, in a file and by flags |
//! | [`parameters`] | parameters of a link as words |
//! | `emulator`, `direction` | the machine |
//! | `frame`, `frames` | what a packet says; the packets that are held |
//! | `statistics`, [`report`] | what was done, and how exactly |
//! | `realtime`, `ports` | the loop; packet sockets and TUN devices |
//! | [`control`] | questions and answers on a Unix socket |
//! | `log` | the files of the log |
//! | `namespace` | a command behind the link |
//! | `daemon` | an emulation from its start to its end |

#![forbid(unsafe_code)]

pub mod control;
mod daemon;
mod direction;
mod emulator;
mod frame;
mod frames;
mod log;
mod namespace;
pub mod parameters;
mod ports;
mod realtime;
pub mod report;
pub mod settings;
mod statistics;

pub use daemon::{Ended, RunError, run};
pub use direction::{Arrival, Direction, Transmit};
pub use emulator::{Changes, Emulator, LinkSettings, Way};
pub use namespace::{HOST, NamespaceError};
pub use report::Report;
pub use settings::{Ends, Flags, Settings};
