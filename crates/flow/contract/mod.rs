//! The contract of flows: what a program above them may rely on, in every world.
//!
//! The cases are written once, for a [`Bed`]. `ringway-net` runs them against real sockets, `ringway-sim`
//! against the virtual world; [`cases!`] makes a test of each.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

pub mod cases;
pub mod probe;

pub use probe::{Event, Probe};
use ringway_flow::Limits;
use ringway_sansio::{Target, Transport};
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Hosts that run probes, and peers that are no Ringway, in one world.
pub trait Bed: Sized {
    /// A connection of a peer that is no Ringway.
    type Raw;

    /// Starts a host for each element, with so many workers, which all use the same transport and limits.
    fn start(transport: Transport, limits: Limits, workers: &[usize]) -> Self;

    /// Returns the address of a host.
    fn address(&self, host: usize) -> SocketAddr;

    /// Returns the events of a host.
    fn events(&self, host: usize) -> &Receiver<Event>;

    /// Lets time pass.
    fn pass(&mut self, time: Duration);

    /// Has a worker send a message.
    fn send(&mut self, host: usize, worker: usize, to: Target, report: u64, bytes: &[u8]);

    /// Returns a counter of a host, all workers together.
    fn count(&mut self, host: usize, name: &str) -> u64;

    /// Connects to a host over TCP.
    fn connect(&mut self, host: usize) -> Self::Raw;

    /// Returns the address at which peers accept connections over TCP.
    fn listen(&mut self) -> SocketAddr;

    /// Returns the next connection to that address.
    fn accept(&mut self) -> Self::Raw;

    /// Writes to a connection.
    fn write(&mut self, raw: &mut Self::Raw, bytes: &[u8]);

    /// Reads what has come on a connection. Returns `None` once it is closed and all is read.
    fn read(&mut self, raw: &mut Self::Raw) -> Option<Vec<u8>>;

    /// Closes a connection.
    fn close(&mut self, raw: Self::Raw);

    /// Has a peer that is no Ringway open an association to a host and send a message; the next time, a
    /// successor of it that knows nothing of the first, from the same address and port.
    fn associate(&mut self, host: usize, bytes: &[u8]);

    /// Returns the next event that `want` accepts; others are dropped.
    fn wait<T>(&mut self, host: usize, want: impl Fn(&Event) -> Option<T>) -> T {
        for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
            while let Ok(event) = self.events(host).try_recv() {
                if let Some(found) = want(&event) {
                    return found;
                }
            }
            self.pass(STEP);
        }
        panic!("an event that was expected did not come");
    }

    /// Returns the next message of a host, and its flow.
    fn wait_message(&mut self, host: usize) -> (ringway_sansio::Flow, Vec<u8>) {
        self.wait(host, |event| match event {
            Event::Message { flow, bytes, .. } => Some((*flow, bytes.clone())),
            _ => None,
        })
    }

    /// Returns so many bytes of a connection.
    fn read_exactly(&mut self, raw: &mut Self::Raw, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
            bytes.extend(self.read(raw).expect("an open connection"));
            if bytes.len() >= count {
                return bytes;
            }
            self.pass(STEP);
        }
        panic!("expected {count} bytes, got {}", bytes.len());
    }

    /// Returns the bytes of a connection until it is closed.
    fn read_to_end(&mut self, raw: &mut Self::Raw) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
            match self.read(raw) {
                Some(more) => bytes.extend(more),
                None => return bytes,
            }
            self.pass(STEP);
        }
        panic!("a connection that was expected to be closed is open");
    }

    /// Waits until a counter has a value.
    fn wait_count(&mut self, host: usize, name: &str, value: u64) {
        for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
            if self.count(host, name) == value {
                return;
            }
            self.pass(STEP);
        }
        assert_eq!(self.count(host, name), value, "{name}");
    }
}

/// How long a test waits for something that should happen, on however busy a machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two looks.
const STEP: Duration = Duration::from_millis(2);

/// Returns a request with a Call-ID and a body of `n` bytes.
pub fn request(method: &str, call: &str, n: usize) -> Vec<u8> {
    let mut m = format!(
        "{method} sip:a@b SIP/2.0\r\nVia: SIP/2.0/TCP c;branch=z9hG4bK{call}\r\n\
         Call-ID: {call}\r\nContent-Length: {n}\r\n\r\n"
    )
    .into_bytes();
    m.resize(m.len() + n, b'x');
    m
}

/// Makes a test of each case, for a bed.
macro_rules! cases {
    ($bed:ty: $($name:ident)*) => {
        $(#[test]
        fn $name() {
            contract::cases::$name::<$bed>();
        })*
    };
    ($bed:ty) => {
        cases! { $bed:
            a_connection_is_shared_and_found_again
            a_message_that_cannot_be_sent_is_reported
            a_message_on_an_unknown_flow_is_reported
            messages_are_framed_however_the_stream_is_cut
            a_malformed_message_is_answered_and_the_next_is_taken
            a_ping_is_answered_by_a_pong
            a_connection_without_a_message_is_closed
            the_oldest_silent_connection_makes_room
            a_program_closes_a_connection
            a_message_that_comes_too_slowly_is_refused
            silence_closes_a_connection_and_keep_alives_prevent_it
            a_slow_reader_is_closed_and_what_waited_is_reported
            a_request_on_a_connection_that_closes_is_cut_off_and_fails_over
            a_message_on_another_workers_connection_is_handed_over
            what_fails_at_another_worker_is_reported
            an_association_is_shared_by_both_ends_and_all_workers
            a_peer_that_restarts_is_another_flow
        }
    };
}
