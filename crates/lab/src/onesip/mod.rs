//! All routers of a mesh as one SIP server, in virtual time: what `ringway serve --mesh` runs, without its sockets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`users`] | names, passwords and homes of users |
//! | [`phones`] | the phones at a router |
//! | [`node`] | a router: mesh, directory, what stands between them and the proxy, the proxy, and its phones |
//! | [`hostile`] | routers that lie |
//! | [`network`] | routers in a graph |
//! | [`scale`] | how many users a mesh bears, beside other systems |

pub mod hostile;
pub mod network;
pub mod node;
pub mod phones;
pub mod scale;
pub mod users;

pub use network::{Network, Settings};
pub use node::{Makings, SipLog, SipRouter, SipStep};
pub(crate) use phones::address as phone_address;
pub use phones::{Call, PhoneTimes, Phones};
pub use users::Roster;
