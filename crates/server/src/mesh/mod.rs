//! The server as one router of a mesh: all routers together are one proxy and registrar.
//!
//! What is known of other routers, and what waits for them, is in `ringway_onesip`.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | which interfaces, which network |
//! | [`thread`] | the router, on a thread of its own |
//! | [`exchange`] | the channels between workers and the directory of users |
//! | [`lists`] | who there is in the whole mesh, for the phonebook |

pub mod exchange;
pub mod lists;
pub mod settings;
pub mod thread;

pub use exchange::Exchange;
pub use settings::{DOMAIN, MeshSettings};
pub use thread::MeshThread;
