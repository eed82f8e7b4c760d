//! All routers of a mesh as one SIP server, in virtual time: what `ringway serve --mesh` runs, without its sockets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`users`] | names, passwords and homes of users |
//! | [`phones`] | the phones at a router |
//! | [`outcomes`] | what became of their calls and messages |
//! | [`node`] | a router: mesh, directory, what stands between them and the proxy, the proxy, and its phones |
//! | `states` | what users do, carried between routers |
//! | [`hostile`] | routers that lie |
//! | [`network`] | routers in a graph |
//! | [`scale`] | how many users a mesh bears, beside other systems |

pub mod hostile;
pub mod network;
pub mod node;
pub mod outcomes;
pub mod phones;
pub mod scale;
mod states;
pub mod users;

pub use network::{Network, Settings};
pub use node::{Makings, SipLog, SipRouter, SipStep};
pub use outcomes::Call;
pub(crate) use phones::address as phone_address;
pub use phones::{PhoneTimes, Phones};
pub use users::Roster;
