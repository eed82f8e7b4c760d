//! Pang 2003, "SCTP support in SIP proxy server": its experiments in the virtual world.
//!
//! The paper used three machines of 2002, a person who answered the telephone, and an unfinished
//! SCTP implementation. So absolute times are not compared, except those determined by round trips.
//! The comparison is which transport is ahead and by what factor. A [`Claim`] states for each
//! sentence of the paper whether it holds here and whether it is expected to. If it is not, the
//! claim has the reason, and where possible another experiment that demonstrates it.
//!
//! [`throughput`] is section 5.2, [`single`] 5.3, [`multi`] 5.4, [`homing`] 5.5 and Figures 3.10
//! and 3.11, [`files`] Figures 3.7 and 3.8. [`setup`] is the call set-up that Gangurde et al.
//! announce and do not print.

mod files;
mod homing;
mod multi;
mod proxies;
mod setup;
mod single;
mod streams;
mod throughput;

use super::Reproduction;
use super::study::{
    Side, Study, StudyResult, all_above, by_side, difference, or_no_estimate, row, side, values_of,
};
use crate::run::RunError;
use crate::sip::{Calls, TestBed};
use ringway_link::{LinkConfig, Rate, Span, Streams};
use ringway_sim::flows::TransportConfig;

/// Default number of replications.
pub(super) const REPLICATIONS: u64 = 30;

pub(super) fn run(seed: u64, replications: u64) -> Result<Reproduction, RunError> {
    let study = Study { paper: "pang", seed, replications };
    study.reproduce(
        "SIP over SCTP, UDP and TCP: Pang 2003, chapters 3 and 5, and the call set-up of Gangurde et al.",
        &[throughput::run, single::run, multi::run, streams::run, proxies::run, files::run, homing::run, setup::run],
    )
}

/// Runs a test bed once a replication; replication r of every bed uses the same random numbers.
fn beds(study: &Study, bed: &TestBed) -> Result<Vec<Calls>, RunError> {
    study.each(|replication| Ok(bed.run(Streams::new(study.seed, replication))?))
}

/// TCP with the settings of a present-day SIP server.
fn tcp() -> TransportConfig {
    TransportConfig::Tcp(ringway_tcp::Settings { nagle: false, ..Default::default() })
}

/// SCTP with one stream per call.
fn sctp(settings: ringway_sctp::Settings) -> TransportConfig {
    TransportConfig::Sctp(settings, settings.outbound_streams)
}

/// A link of the laboratory's Ethernet.
fn ethernet(delay: Span) -> LinkConfig {
    LinkConfig { rate: Rate(100_000_000), delay, ..LinkConfig::default() }
}

/// The three transports by name.
fn transports() -> [(&'static str, TransportConfig); 3] {
    [("UDP", TransportConfig::Udp), ("TCP", tcp()), ("SCTP", sctp(Default::default()))]
}

/// SCTP that detects losses by time (RACK) and probes the tail.
fn rack() -> (&'static str, TransportConfig) {
    ("SCTP, RACK", sctp(ringway_sctp::Settings { rack: true, ..Default::default() }))
}
