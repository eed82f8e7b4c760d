//! One host against a script: packet tables, a behaviour each, in the order of RFC 9260. TSNs are
//! relative to the initial ones, which are 1; `give` delivers a packet, `expect` compares the next one
//! sent.

#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod closing;
mod data;
mod ecn;
mod faults;
mod final_acks;
mod floods;
mod interleaved;
mod loss;
mod lower_layer;
mod mtu;
mod opening;
mod partial;
mod rack;
mod reconfig;
mod returned;
mod shares;

use ringway_sctp::{Settings, Snapshot};
use support::*;

/// A host whose round trip is short and which sends no heartbeats of its own accord.
fn plain() -> Settings {
    Settings { heartbeat_interval: None, rto_min: ms(200), ..Settings::default() }
}

fn snapshot(script: &Script) -> Snapshot {
    script.sctp.snapshot(script.id()).unwrap()
}
