#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`], [`identity`] | who a router is, and which addresses follow from it |
//! | [`metric`] | distance and responsibility: the ring, and XOR beside it |
//! | [`config`], [`budget`] | every limit, and what control messages may cost |
//! | [`wire`] | the formats; [`wire::labels`] first |
//! | [`crypto`] | signatures, handshakes and seals |
//! | [`link`] | what a neighbour is made of |
//! | [`forward`] | what happens to a packet at a router |
//! | [`routes`] | contacts, and requests under way |
//! | [`ring`] | how routers sort themselves |
//! | [`session`], [`icmp`] | packets of hosts: keys and routes from router to router, and errors |
//! | [`router`] | all of it joined to one machine |

#![forbid(unsafe_code)]

pub mod budget;
pub mod config;
pub mod crypto;
pub mod forward;
pub mod icmp;
pub mod id;
pub mod identity;
pub mod link;
pub mod local;
pub mod metric;
mod moment;
pub mod output;
pub mod ring;
pub mod router;
pub mod routes;
pub mod session;
pub mod wire;

pub use config::{Config, Limits};
pub use id::{Instance, NodeId, Prefix, Sequence};
pub use identity::{Identity, Proof};
pub use local::LocalRouter;
pub use metric::{Ring, Space, Xor};
pub use ring::{Action, Overlay};
pub use router::{Event, Router};
