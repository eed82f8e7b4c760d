//! The server as one router of a mesh: all routers together are one proxy and registrar.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | which interfaces, which network |
//! | [`thread`] | the router, on a thread of its own |
//! | [`exchange`] | what workers ask the directory of users, and its answers |
//! | [`journal`] | registrations are acknowledged when other routers keep them too |
//! | `shares` | what one source may ask at a time |
//! | [`location`] | the location service of workers: this server's, and what is known of others |
//! | [`rules`] | routing rules that routers share |
//! | [`judge`] | credentials that other routers ask this one about |

pub mod exchange;
pub mod journal;
pub mod judge;
pub mod location;
pub mod rules;
pub mod settings;
mod shares;
pub mod thread;

pub use exchange::Exchange;
pub use location::MeshLocation;
pub use settings::{DOMAIN, MeshSettings};
pub use thread::MeshThread;
