//! What makes the SIP server of a router one of many that are one: it stands between the workers of a proxy
//! (`ringway_proxy`) and the router's directory of users (`ringway_directory`), and waits for neither.
//!
//! | module | what it does |
//! |---|---|
//! | [`broker`] | the questions of workers, what is known of their answers, registrations that are not acknowledged yet |
//! | [`exchange`] | the same, shared by threads |
//! | [`follow`] | what users do at other routers, and what these are reported of users here |
//! | [`location`] | the location service of workers: this server's, and what is known of others |
//! | [`journal`] | registrations are acknowledged when other routers keep them too |
//! | [`judge`] | credentials that other routers ask this one about |
//! | [`rules`] | routing rules that routers share |
//! | `shares` | what one source may ask at a time |
//!
//! Nothing here opens a socket or reads a clock. `ringway serve --mesh` carries commands and answers by channels, and the
//! laboratory by queues in virtual time.

#![forbid(unsafe_code)]

pub mod broker;
pub mod exchange;
pub mod follow;
pub mod journal;
pub mod judge;
pub mod location;
pub mod rules;
mod shares;

pub use broker::{Broker, Counts, Event};
pub use exchange::{Exchange, World};
pub use journal::MeshJournal;
pub use judge::{Judge, secret_of};
pub use location::{MeshLocation, MeshUsers};

use std::net::Ipv6Addr;

use ringway_sansio::Transport;

/// Port at which routers are SIP servers for each other.
pub const SIP_PORT: u16 = 5060;

/// Returns the SIP URI by which another router is reached.
fn router_uri(router: Ipv6Addr, transport: Transport) -> String {
    let parameter = match transport {
        Transport::Tcp => ";transport=tcp",
        Transport::Sctp => ";transport=sctp",
        // RFC 3263 section 4.1: that is the default for a literal address.
        _ => "",
    };
    format!("sip:[{router}]:{SIP_PORT}{parameter}")
}
