//! The thread that forwards media.
//!
//! A packet is sent from the memory that it was received into; the kernel's copies are the only ones. Each socket is read
//! for a bounded number of packets in turn, so that a flood at one port delays the others by no more than that, and is
//! dropped by the kernel when its own buffer is full.

use super::sockets::Sockets;
use super::{Published, SharedRelay};
use ringway_media::{Command, Forwarder, Port, Rate, Route};
use ringway_os::{After, ChaCha, Clock, Datagram, ReceiveBatch, SendBatch};
use ringway_sansio::Time;
use smallvec::SmallVec;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Packets that are read from a socket in its turn.
const TURN: usize = 16;
/// Commands that are taken under one lock.
const COMMANDS: usize = 64;
/// The interval of timers, and of reports of which streams have media. Both may be late by it.
const TICK: Duration = Duration::from_secs(1);

/// The state of the thread.
pub(super) struct Thread {
    shared: Arc<SharedRelay>,
    sockets: Sockets,
    clock: Clock,
    random: ChaCha,
    packets: Packets,
    next_tick: Time,
}

/// What forwards packets.
struct Packets {
    forwarder: Forwarder,
    received: ReceiveBatch,
    sent: SendBatch,
}

impl Thread {
    pub(super) fn new(
        shared: Arc<SharedRelay>,
        ports: &RangeInclusive<u16>,
        rate: Rate,
        clock: Clock,
    ) -> io::Result<Thread> {
        let packets = Packets {
            forwarder: Forwarder::new(rate),
            received: ReceiveBatch::new(),
            sent: SendBatch::new(),
        };
        Ok(Thread {
            sockets: Sockets::new(ports, &shared.wake)?,
            shared,
            clock,
            random: ChaCha::from_os()?,
            packets,
            next_tick: clock.now() + TICK,
        })
    }

    /// Forwards until the relay is dropped.
    pub(super) fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            let timeout = self.timeout();
            let Thread { sockets, packets, clock, shared, .. } = &mut self;
            let mut now = None;
            let is_woken = sockets.wait(timeout, |sockets, port| {
                let now = *now.get_or_insert_with(|| clock.now());
                packets.forward(now, sockets, port, &shared.published);
            });
            if is_woken {
                // What comes from now on wakes it again.
                let _ = self.shared.wake.read();
                self.shared.woken.store(false, Ordering::Release);
            }
            self.carry_out(is_woken);
        }
    }

    /// Returns how long to wait for packets: until the next tick, or without a limit if nothing has a deadline.
    fn timeout(&self) -> Option<Duration> {
        let has_deadline =
            !self.packets.forwarder.is_empty() || self.shared.lock().poll_timeout().is_some();
        has_deadline.then(|| self.next_tick.since(self.clock.now()))
    }

    /// Does what is due besides packets.
    fn carry_out(&mut self, is_woken: bool) {
        let now = self.clock.now();
        let is_due = now >= self.next_tick;
        if is_due {
            self.next_tick = now + TICK;
            let active = self.packets.forwarder.take_active();
            let mut relay = self.shared.lock();
            relay.media_seen(now, active);
            relay.handle_timeout(now);
        }
        if is_woken || is_due {
            self.take_commands(now);
            self.bind_ports();
        }
    }

    fn take_commands(&mut self, now: Time) {
        let mut commands = Vec::with_capacity(COMMANDS);
        loop {
            {
                let mut relay = self.shared.lock();
                commands.extend(std::iter::from_fn(|| relay.poll_command()).take(COMMANDS));
            }
            if commands.is_empty() {
                return;
            }
            for command in commands.drain(..) {
                self.packets.forwarder.handle(now, &command);
                if let Command::Unbind(port) = command {
                    self.sockets.close(port);
                }
            }
        }
    }

    /// Binds the ports that are wanted. The lock is not held meanwhile.
    pub(super) fn bind_ports(&mut self) {
        loop {
            let wanted = self.shared.lock().wanted_port(&mut self.random);
            let Some(port) = wanted else { return };
            let bound = self.sockets.bind(port);
            if let Err(error) = &bound {
                tracing::debug!(port = port.number, %error, "a media port could not be bound");
                self.sockets.close(port);
            }
            self.shared.lock().port_bound(self.clock.now(), port, bound.is_ok());
        }
    }
}

impl Packets {
    /// Forwards packets that have come to a port. They are counted before they are sent.
    fn forward(&mut self, now: Time, sockets: &Sockets, port: Port, published: &Published) {
        let Packets { forwarder, received, sent } = self;
        let Some(socket) = sockets.get(port) else { return };
        // An error of the socket is one of an earlier packet.
        let Ok(count) = received.receive_at_most(socket.as_fd(), TURN) else { return };
        let (mut batch, mut out) = (SmallVec::<[Datagram<'_>; TURN]>::new(), port);
        for reception in (0..count).filter_map(|index| received.get(index)) {
            for bytes in reception.datagrams() {
                let routed =
                    forwarder.receive(now, port, reception.local, reception.remote, bytes.len());
                let Ok(Route { port, from, to }) = routed else { continue };
                // All packets of a port go on by one other port, so this is one batch.
                if out != port {
                    published.add_not_sent(send(sockets, sent, out, &batch));
                    batch.clear();
                    out = port;
                }
                batch.push(Datagram::new(bytes, to, Some(from)));
            }
        }
        published.publish(forwarder.counters());
        published.add_not_sent(send(sockets, sent, out, &batch));
    }
}

/// Sends packets from a port. Returns how many the system refused.
fn send(sockets: &Sockets, buffers: &mut SendBatch, from: Port, batch: &[Datagram<'_>]) -> u64 {
    if batch.is_empty() {
        return 0;
    }
    let Some(socket) = sockets.get(from) else { return batch.len() as u64 };
    let mut refused = 0;
    buffers.send(socket.as_fd(), batch, |_, _| {
        // Media that comes late is worth nothing: a full buffer is loss as on any link.
        refused += 1;
        After::Skip
    });
    refused
}
