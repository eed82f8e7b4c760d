//! The counters of a worker, written by the one thread that runs it and read by any.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes and any thread reads, so that an addition costs no more than one to a
/// plain integer.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to the number. Only for the thread that writes it.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds to a number that several threads write, all of them by this function.
    pub fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Sets the number. Only for the thread that writes it.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The counters of one worker.
        #[derive(Default, Debug)]
        pub struct Counters { $($(#[doc = $doc])* pub $name: Counter,)* }

        impl Counters {
            /// Visits every counter with its name, its description and its value, in a fixed order.
            pub fn visit(&self, visit: &mut dyn FnMut(&'static str, &'static str, u64)) {
                $(visit(stringify!($name), concat!($($doc,)*).trim(), self.$name.get());)*
            }
        }
    };
}

counters! {
    /// Datagrams received.
    udp_received,
    /// Datagrams sent.
    udp_sent,
    /// Receive system calls that gave datagrams.
    udp_batches,
    /// Receive batches that came full.
    udp_full_batches,
    /// Datagrams the system dropped because a receive buffer was full, seen when batches come full.
    udp_dropped,
    /// Datagrams the system discarded, most of them new requests it was told to shed, seen when batches
    /// come full.
    udp_shed,
    /// Keep-alive datagrams: CRLF, empty, and STUN binding requests.
    udp_keepalives,
    /// Datagrams that could not be sent.
    udp_not_sent,
    /// Datagrams reported undeliverable by ICMP.
    udp_refused,
    /// Of these, handed over to the worker that sent the datagram.
    udp_refused_handed_over,
    /// Of these, quoting nothing that was sent lately: late, too short, or forged.
    udp_refused_unknown,
    /// Datagrams that were dropped because their source is guarded and they came by another interface.
    udp_spoofed,
    /// Datagrams that waited because the socket's send buffer was full.
    udp_waited,
    /// Bytes of receive buffer the system granted, all UDP sockets together.
    udp_receive_buffer,
    /// Connections open now, in either direction.
    connections,
    /// Connections accepted.
    accepted,
    /// Connections opened by us.
    connected,
    /// Connections we failed to open.
    connect_failed,
    /// TLS or WebSocket handshakes that failed.
    handshake_failed,
    /// Connections refused: limit on all connections.
    refused_full,
    /// Connections refused: limit on one source address.
    refused_source,
    /// Connections refused or not opened: what is left of file descriptors is reserved.
    refused_files,
    /// WebSockets refused: opened by a page of an origin that is not allowed.
    refused_origin,
    /// Accept calls that failed, as when file descriptors run out.
    accept_failed,
    /// Messages received over connections.
    stream_received,
    /// Of these, malformed: answered if they can be, and the connection goes on.
    stream_malformed,
    /// Messages sent over connections.
    stream_sent,
    /// Messages that could not be sent over a connection.
    stream_not_sent,
    /// Requests whose sender was not told of their connection's end, because too many had left after
    /// them.
    stream_unwatched,
    /// Keep-alives received over connections.
    stream_keepalives,
    /// Connections closed: nothing heard for too long.
    closed_idle,
    /// Connections closed: no complete first message in time, or too many such.
    closed_half_open,
    /// Connections closed: a message came too slowly.
    closed_slow,
    /// Connections closed: the peer did not read, its write queue was full or stuck.
    closed_slow_reader,
    /// Connections closed: what came could not be framed, or too much of it was malformed.
    closed_malformed,
    /// Messages handed over to the worker that owns the connection.
    sends_handed_over,
    /// Items and messages not taken because the mailbox of this worker was full.
    mailbox_full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_visited_with_its_words() {
        let counters = Counters::default();
        counters.udp_received.add(3);
        let mut seen = Vec::new();
        counters.visit(&mut |name, words, value| seen.push((name, words, value)));
        assert_eq!(seen[0], ("udp_received", "Datagrams received.", 3));
        assert!(seen.iter().all(|(name, words, _)| !name.is_empty() && words.ends_with('.')));
    }
}
