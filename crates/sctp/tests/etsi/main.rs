//! The test purposes of ETSI TS 102 369, one test each, in its order and under its names: `as` for
//! association set-up, `at` termination, `imh` invalid messages, `dm` duplicates, `fh` faults, `e`
//! errors, `bdc` bundling, `d` data, `a` acknowledgement, `m` the rest, `rt` the retransmission timer.
//! In a name `v` stands for valid, `i` for invalid and `o` for inopportune.
//!
//! The purposes were written for RFC 2960. Where RFC 9260 differs, the test follows RFC 9260 and its
//! comment names the difference. Host and script are those of the packet tables in `tests/tables`.

#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod acknowledgement;
mod bundling;
mod data;
mod duplicates;
mod errors;
mod faults;
mod invalid;
mod miscellaneous;
mod setup;
mod termination;
mod timer;

use ringway_sctp::wire::chunk::{Chunk, kind};
use ringway_sctp::wire::{Init, InitParameters, Packet, Parameter, Writer};
use ringway_sctp::{Close, Event, Settings, Snapshot};
use support::*;

/// A host whose round trip is short and which sends no heartbeats of its own accord.
fn plain() -> Settings {
    Settings { heartbeat_interval: None, rto_min: ms(200), ..Settings::default() }
}

/// A host that listens, without associations.
fn closed() -> Script {
    let mut s = Script::new(plain());
    s.listen(&[A1]);
    s
}

/// A host in COOKIE-ECHOED.
fn echoed() -> Script {
    let mut s = Script::connecting(plain());
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    s
}

/// A host in SHUTDOWN-SENT.
fn shutdown_sent() -> Script {
    let mut s = Script::accepted(plain());
    shutdown(&mut s);
    s.expect("SHUTDOWN 0");
    s
}

/// A host in SHUTDOWN-ACK-SENT.
fn shutdown_ack_sent() -> Script {
    let mut s = Script::accepted(plain());
    s.give("SHUTDOWN 0");
    s.expect("SHUTDOWN_ACK");
    s
}

fn snapshot(s: &Script) -> Snapshot {
    s.sctp.snapshot(s.id()).unwrap()
}

fn shutdown(s: &mut Script) {
    let (now, id) = (s.now, s.id());
    s.sctp.shutdown(now, id).unwrap();
}

/// How the association ended, if it has.
fn end(s: &mut Script) -> Option<Close> {
    s.events().into_iter().find_map(|event| match event {
        Event::Closed(_, why) => Some(why),
        _ => None,
    })
}

/// Delivers an INIT or INIT ACK with further parameters, given as bytes.
fn give_raw(
    s: &mut Script,
    chunk_kind: u8,
    fixed: &Init<'_>,
    parameters: &InitParameters,
    more: &[u8],
) {
    let tag = if chunk_kind == kind::INIT { 0 } else { s.tag };
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 65_535, s.ports.1, s.ports.0, tag);
    parameters.emit(writer.chunks(), chunk_kind, fixed);
    writer.chunks().extend_from_slice(more);
    let length = writer.chunks().len() - 12;
    writer.chunks()[14..16].copy_from_slice(&(length as u16).to_be_bytes());
    writer.finish();
    s.give_bytes(B1, A1, &out);
}

/// Delivers a packet whose chunks are given as bytes.
fn give_chunks(s: &mut Script, tag: u32, chunks: &[u8]) {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 65_535, s.ports.1, s.ports.0, tag);
    writer.chunks().extend_from_slice(chunks);
    writer.finish();
    s.give_bytes(B1, A1, &out);
}

/// The chunks of a packet, whole.
fn chunks(bytes: &[u8]) -> Vec<Chunk<'_>> {
    Packet::parse(bytes).unwrap().chunks().map(|c| c.unwrap().parse().unwrap()).collect()
}

/// Parameters that an INIT ACK reports as unrecognized.
fn unrecognized(init: &Init<'_>) -> Vec<Vec<u8>> {
    init.parameters()
        .filter_map(|p| match p.unwrap() {
            Parameter::Unrecognized(whole) => Some(whole.to_vec()),
            _ => None,
        })
        .collect()
}
