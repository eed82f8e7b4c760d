//! Whole-proxy tests in virtual time, one behaviour a file.
//!
//! Each test reads as the ladder of messages it is about; `common` holds the world it runs in.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects")]
#![allow(unreachable_pub, reason = "what tests share is public to them")]

#[path = "../common/mod.rs"]
mod common;

mod accepted;
mod aliases;
mod amplification;
mod basic_call;
mod best_response;
mod busy;
mod cancel;
mod chaos;
mod credentials;
mod elsewhere;
mod events;
mod fail_over;
mod flows;
mod forking;
mod gateways;
mod gruus;
mod identity;
mod kept;
mod lamps;
mod loops;
mod maddr;
mod marks;
mod media;
mod moved;
mod names;
mod nodes;
mod non_invite;
mod operations;
mod path;
mod phones;
mod presence;
mod record_route;
mod records;
mod redirect;
mod relay;
mod responses;
mod rfc2543;
mod rights;
mod routers;
mod routing;
mod sctp;
mod shared_secrets;
mod shares;
mod source;
mod standard;
mod stateless;
mod strict_router;
mod timers;
mod toll;
mod validation;
mod workers;
