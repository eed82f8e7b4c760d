//! One direction: a link, and the packets in it.

use crate::frame::Headers;
use crate::frames::{Frames, Held};
use crate::report::{Amount, DirectionReport, Errors};
use crate::statistics::{Spacing, Statistics};
use ringway_link::{
    Change, ConfigError, Departure, DropReason, InFlight, Link, LinkConfig, Logged, LossPosition,
    Outlet, Packet, Streams,
};
use ringway_os::tun::{Checksum, VNET_HEADER, VnetHeader, complete_checksum};
use ringway_sansio::time::sooner;
use ringway_sansio::{Ecn, Time};
use std::collections::VecDeque;

/// A packet that arrives at a link, in parts.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The header of the link that it came by; empty where there is none, as behind a TUN device.
    pub link: &'a [u8],
    /// The headers of the packet, where they are apart from the payload.
    pub headers: &'a [u8],
    /// The payload, or the whole packet.
    pub payload: &'a [u8],
    /// The state of the transport's checksum, with positions from the start of the packet.
    pub checksum: Checksum,
}

/// A packet that is to be sent now.
#[derive(Debug)]
pub struct Transmit {
    buffer: Vec<u8>,
    /// Octets that count.
    size: usize,
    arrived: Time,
    decided: Time,
    spacing: Spacing,
}

impl Transmit {
    /// Returns the description of the packet (`virtio_net_hdr`), the header of its link, and the packet.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the time at which it was to be sent.
    pub fn decided(&self) -> Time {
        self.decided
    }
}

/// One direction of an emulated link, as a machine without a clock or a socket.
///
/// A packet is handed over with the time of its arrival; [`Direction::poll_transmit`] returns it when it is to be sent at
/// the other end. Decisions depend on the seed and on what has arrived when, and on nothing else.
pub struct Direction {
    link: Link,
    name: String,
    start: Time,
    /// The time up to which everything is decided.
    now: Time,
    world: World,
    /// The log of what is decided, if there is one.
    log: Option<String>,
}

/// A change of a direction that was found valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    change: Change,
    /// The parameters with the change.
    valid: LinkConfig,
}

/// What the link's decisions apply to.
struct World {
    frames: Frames,
    flight: InFlight,
    /// Packets that have arrived and were not asked for yet.
    ready: VecDeque<Departure>,
    statistics: Statistics,
    /// Whether loss is decided after the link.
    loses_late: bool,
    /// A copy that will be queued, for which no loss is decided.
    copy: Option<u32>,
}

impl Direction {
    /// Creates an empty direction that starts at `start`. The link's random streams are named after `name`, as those of a
    /// link in the simulator are.
    ///
    /// # Errors
    /// A configuration that is not valid.
    pub fn new(
        config: LinkConfig,
        name: &str,
        streams: &Streams,
        start: Time,
    ) -> Result<Direction, ConfigError> {
        let link = Link::new(config, name, streams, start)?;
        let world = World {
            frames: Frames::default(),
            flight: InFlight::new(),
            ready: VecDeque::new(),
            statistics: Statistics::new(start),
            loses_late: false,
            copy: None,
        };
        let name = name.to_owned();
        let mut direction = Direction { link, name, start, now: start, world, log: None };
        direction.note_parameters();
        Ok(direction)
    }

    /// Begins a log of everything that is decided from now on.
    pub fn start_log(&mut self) {
        self.log = Some(String::new());
    }

    /// Returns what was logged since the last call: the lines of [`Logged`].
    pub fn take_log(&mut self) -> String {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Handles a packet that has arrived at `now`. A time before that of an earlier call is replaced by that.
    pub fn handle_packet(&mut self, now: Time, arrival: &Arrival<'_>) {
        let now = now.max(self.now);
        self.advance(now);
        let mut buffer = self.world.frames.buffer();
        buffer.extend_from_slice(&[0; VNET_HEADER]);
        buffer.extend_from_slice(arrival.link);
        buffer.extend_from_slice(arrival.headers);
        buffer.extend_from_slice(arrival.payload);
        let link = arrival.link.len();
        let packet = &buffer[VNET_HEADER + link..];
        let headers = Headers::read(arrival.link, packet);
        let size = headers.size(arrival.link, packet);
        self.world.statistics.counts.received.add(size);
        let checksum = arrival.checksum;
        let spacing = Spacing::default();
        let held = Held { buffer, link, size, checksum, headers, arrived: now, spacing };
        let id = match self.world.frames.insert(held) {
            Ok(id) => id,
            Err(buffer) => {
                self.world.statistics.counts.no_room += 1;
                self.world.frames.recycle(buffer);
                return;
            }
        };
        // A packet without octets is one to no link.
        let packet = Packet::new(id, size.max(1) as u32, headers.flow, headers.ecn);
        let (link, mut outlet) = self.parts();
        link.offer(now, packet, &mut outlet);
    }

    /// Returns the next packet that is to be sent at `now` or was to be sent before.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        self.advance(now.max(self.now));
        let departure = self.world.ready.pop_front()?;
        let mut held = self.world.frames.take(departure.packet.id)?;
        let headers = held.headers;
        if departure.packet.ecn == Ecn::Ce && headers.ecn != Ecn::Ce {
            self.world.statistics.counts.marked += 1;
            headers.mark(held.packet_mut());
        }
        if let Some(bit) = departure.flip {
            // The receiver is to notice it.
            let checksum = std::mem::take(&mut held.checksum);
            complete_checksum(held.packet_mut(), checksum);
            self.world.statistics.counts.corrupted += 1;
            headers.invert(held.packet_mut(), bit);
        }
        let checksum = moved(held.checksum, held.link);
        let description = VnetHeader { checksum, segmentation: None };
        held.buffer[..VNET_HEADER].copy_from_slice(&description.to_bytes());
        let Held { buffer, size, arrived, spacing, .. } = held;
        Some(Transmit { buffer, size, arrived, decided: departure.arrives, spacing })
    }

    /// Notes that a packet was sent at `now`.
    pub fn sent(&mut self, now: Time, packet: Transmit) {
        let statistics = &mut self.world.statistics;
        statistics.send(now, packet.size, packet.arrived, packet.decided);
        statistics.rate.send(now, packet.size, packet.spacing);
        self.world.frames.recycle(packet.buffer);
    }

    /// Notes that the system has refused to send a packet.
    pub fn refused(&mut self, packet: Transmit, reason: &'static str) {
        self.world.statistics.refuse(reason);
        self.world.frames.recycle(packet.buffer);
    }

    /// Returns the time of the next [`Direction::poll_transmit`]; `None` while nothing is under way.
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.world.ready.is_empty() {
            return Some(self.now);
        }
        sooner(self.link.poll_timeout(), self.world.flight.next())
    }

    /// Checks that a change would leave valid parameters.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn prepare(&self, change: &Change) -> Result<Prepared, ConfigError> {
        let mut valid = self.link.config().clone();
        change.apply(&mut valid);
        valid.check()?;
        Ok(Prepared { change: change.clone(), valid })
    }

    /// Makes a change at `now`. If the schedule has since changed parameters in such a way that the result would not be
    /// valid, they become what they would have been then: the change of the other direction is made too.
    pub fn set(&mut self, now: Time, prepared: Prepared) {
        let now = now.max(self.now);
        self.advance(now);
        let Prepared { change, valid } = prepared;
        let (link, mut outlet) = self.parts();
        let changed = link.reconfigure(now, &mut outlet, |config| change.apply(config));
        if changed.is_err() {
            // It does not fail: the schedule stays what it was when they were checked.
            let _ = link.reconfigure(now, &mut outlet, |config| *config = valid);
        }
        self.note_parameters();
    }

    /// Returns the state of the direction at `now`, without the names of the interfaces.
    pub fn report(&mut self, now: Time) -> DirectionReport {
        self.advance(now.max(self.now));
        let statistics = &mut self.world.statistics;
        let mut lost = statistics.not_sent();
        lost.insert("no room".to_owned(), statistics.counts.no_room);
        DirectionReport {
            from: String::new(),
            to: String::new(),
            link: self.name.clone(),
            received: statistics.counts.received,
            sent: statistics.counts.sent,
            queue: Amount {
                packets: self.link.queue_len() as u64,
                octets: self.link.queue_bytes(),
            },
            in_flight: (self.world.flight.len() + self.world.ready.len()) as u64,
            dropped: statistics.dropped(),
            copied: statistics.counts.copied,
            corrupted: statistics.counts.corrupted,
            marked: statistics.counts.marked,
            lost,
            delay: statistics.delay(),
            recent_delay: statistics.recent(now),
            error: Errors {
                delay: statistics.error(),
                rate: statistics.rate.error(),
                loss: statistics.loss.error(),
            },
            parameters: self.link.config().clone(),
        }
    }

    /// Decides everything that is due at `now`, at the time for which it is due. Times do not go back.
    fn advance(&mut self, now: Time) {
        self.now = now;
        loop {
            let due = sooner(self.link.poll_timeout(), self.world.flight.next());
            let Some(at) = due.filter(|at| *at <= now) else { break };
            let (link, mut outlet) = self.parts();
            link.poll(at, &mut outlet);
            while let Some(departure) = outlet.world.flight.pop(at) {
                let cut = link.can_be_cut() && link.is_cut(at, departure.started, &mut outlet);
                if cut {
                    outlet.dropped(at, departure.packet, DropReason::Cut);
                } else {
                    outlet.world.ready.push_back(departure);
                }
            }
        }
        self.note_parameters();
    }

    /// Notes what the statistics need to know of the parameters, which a schedule may have changed.
    fn note_parameters(&mut self) {
        let config = self.link.config();
        let loss = &config.loss;
        // Marks instead of losses are not counted as losses.
        let mean = if config.loss_marks { 0.0 } else { loss.mean() };
        self.world.statistics.loss.configure(mean, loss.is_independent());
        self.world.loses_late = config.loss_at == LossPosition::AfterLink;
    }

    fn parts(&mut self) -> (&mut Link, Decisions<'_>) {
        let Direction { link, world, log, start, .. } = self;
        (link, Decisions { world, log: log.as_mut(), start: *start })
    }
}

/// Returns a checksum whose positions count from `before` octets before those of `checksum`.
fn moved(checksum: Checksum, before: usize) -> Checksum {
    match checksum {
        // The sum fits: a packet has no more than 65,535 octets, and whose checksum begins behind its headers.
        Checksum::Partial { start, offset } => {
            Checksum::Partial { start: start.saturating_add(before as u16), offset }
        }
        Checksum::Complete => Checksum::Complete,
    }
}

impl core::fmt::Debug for Direction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Direction").field("link", &self.link).field("now", &self.now).finish()
    }
}

impl Outlet for World {
    fn departs(&mut self, departure: Departure) {
        if self.loses_late {
            self.statistics.loss.decide(false);
        }
        let Departure { packet, started, sent, arrives, .. } = departure;
        let spacing = self.statistics.rate.decide(started, sent, arrives);
        if let Some(held) = self.frames.get_mut(packet.id) {
            held.spacing = spacing;
        }
        self.flight.push(departure);
    }

    fn dropped(&mut self, _: Time, packet: Packet, reason: DropReason) {
        if reason == DropReason::Loss {
            self.statistics.loss.decide(true);
        }
        self.statistics.drop(reason);
        if let Some(held) = self.frames.take(packet.id) {
            self.frames.recycle(held.buffer);
        }
    }

    fn copy(&mut self, packet: Packet) -> Option<u32> {
        let original = self.frames.get(packet.id)?.clone();
        let copy = self.frames.insert(original).ok();
        match copy {
            Some(_) => self.statistics.counts.copied += 1,
            None => self.statistics.counts.no_room += 1,
        }
        self.copy = copy;
        copy
    }

    fn bytes(&mut self, packet: &Packet) -> &[u8] {
        let Some(held) = self.frames.get(packet.id) else { return &[] };
        held.packet().get(usize::from(held.headers.transport)..).unwrap_or_default()
    }

    fn enqueued(&mut self, _: Time, packet: Packet) {
        if self.copy == Some(packet.id) {
            self.copy = None;
        } else if !self.loses_late {
            self.statistics.loss.decide(false);
        }
    }
}

/// The world as the link sees it: logged or not.
struct Decisions<'a> {
    world: &'a mut World,
    log: Option<&'a mut String>,
    start: Time,
}

/// Passes a call on, through the log if there is one.
macro_rules! pass {
    ($self:ident, $($call:tt)+) => {
        match &mut $self.log {
            Some(lines) => Logged::new($self.world, lines, $self.start).$($call)+,
            None => $self.world.$($call)+,
        }
    };
}

impl Outlet for Decisions<'_> {
    #[inline]
    fn departs(&mut self, departure: Departure) {
        pass!(self, departs(departure));
    }

    fn dropped(&mut self, at: Time, packet: Packet, reason: DropReason) {
        pass!(self, dropped(at, packet, reason));
    }

    fn copy(&mut self, packet: Packet) -> Option<u32> {
        pass!(self, copy(packet))
    }

    fn bytes(&mut self, packet: &Packet) -> &[u8] {
        self.world.bytes(packet)
    }

    #[inline]
    fn enqueued(&mut self, at: Time, packet: Packet) {
        pass!(self, enqueued(at, packet));
    }

    #[inline]
    fn dequeued(&mut self, at: Time, packet: Packet) {
        pass!(self, dequeued(at, packet));
    }
}

#[cfg(test)]
mod tests;
