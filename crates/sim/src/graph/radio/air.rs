//! What happens to packets in the air.

use super::RadioConfig;
use super::grid::Grid;
use super::motion::Way;
use crate::error::Error;
use crate::events::{EventQueue, Order};
use crate::graph::engine::{Arrival, Carrier, Engine, Medium, Timer, mix};
use crate::graph::node::{Destination, GraphNode};
use crate::graph::random::uniform;
use crate::graph::store::{Head, MAX_LEN, MAX_PACKETS, Store};
use crate::interrupt::{self, Interrupt};
use ringway_sansio::{Duration, SplitMix, Time};
use std::collections::VecDeque;

/// Maximum number of packets that wait at a node; one more is dropped.
pub const MAX_QUEUE: usize = 64;
/// Time after which a packet is heard by carrier sense, which is a slot of IEEE 802.11a.
pub const SLOT: Duration = Duration::from_micros(9);
/// Time for which a node hears nothing before it sends, without the random part (DIFS).
pub const GAP: Duration = Duration::from_micros(34);
/// Slots of the random part, which is zero up to and without this, for the first try. Each further one doubles it
/// up to the second number.
pub const WINDOW: [u32; 2] = [16, 1024];
/// Part of the range by which a node may have left its cell.
const SLACK: f64 = 0.125;
/// A node that does not exist.
const NOBODY: u32 = u32::MAX;

/// What happens at a node.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Its timer is due.
    Timer,
    /// It may begin to send.
    Attempt,
    /// Its packet has been sent.
    End,
}

/// A packet that is to be sent.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    packet: u32,
    to: Destination,
    /// How often it was sent before.
    tries: u8,
}

/// A node's part of the air.
#[derive(Debug)]
struct Station {
    /// Packets that wait.
    queue: VecDeque<Waiting>,
    /// Whether an attempt is pending.
    has_attempt: bool,
    /// The packet that is being sent.
    sending: Option<Waiting>,
    /// The nodes that hear it.
    receivers: Vec<u32>,
    /// Number of packets heard at present.
    signals: u32,
    /// The sender of the only one of them, as long as nothing disturbed it.
    clean: u32,
    /// When the last of them ends, and when the last does that was there a slot before the newest.
    busy_until: Time,
    older_until: Time,
    newest: Time,
}

/// The air between nodes.
#[derive(Debug)]
pub struct Air {
    config: RadioConfig,
    events: EventQueue<(Event, u32)>,
    store: Store,
    stations: Vec<Station>,
    ways: Vec<Way>,
    grid: Grid,
    /// The time until which nodes are near their cells.
    fresh_until: Time,
    /// Positions at the time of the grid.
    positions: Vec<[f64; 2]>,
    collisions: u64,
    airtime: Duration,
}

impl Air {
    pub(super) fn new(config: RadioConfig, positions: &[[f64; 2]], seed: u64) -> Self {
        let station = |_| Station {
            queue: VecDeque::new(),
            has_attempt: false,
            sending: None,
            receivers: Vec::new(),
            signals: 0,
            clean: NOBODY,
            busy_until: Time::ZERO,
            older_until: Time::ZERO,
            newest: Time::ZERO,
        };
        let seed = mix(seed, NOBODY);
        let way =
            |(node, position): (u32, &[f64; 2])| Way::new(seed, node, *position, config.motion);
        let mut air = Air {
            config,
            events: EventQueue::new(),
            store: Store::new(),
            stations: positions.iter().map(station).collect(),
            ways: (0..).zip(positions).map(way).collect(),
            grid: Grid::default(),
            fresh_until: Time::ZERO,
            positions: Vec::new(),
            collisions: 0,
            airtime: Duration::ZERO,
        };
        air.refresh(Time::ZERO);
        air
    }

    pub(super) fn collisions(&self) -> u64 {
        self.collisions
    }

    pub(super) fn airtime(&self) -> Duration {
        self.airtime
    }

    pub(super) fn position(&mut self, node: u32, now: Time) -> [f64; 2] {
        self.ways[node as usize].position(now, self.config.side, self.config.motion)
    }

    /// Puts all nodes into their cells, for as long as none can leave its cell far behind.
    fn refresh(&mut self, now: Time) {
        let RadioConfig { side, range, motion, .. } = self.config;
        self.positions.clear();
        self.positions.extend(self.ways.iter_mut().map(|way| way.position(now, side, motion)));
        self.grid.fill(side, range * (1.0 + SLACK), &self.positions);
        self.fresh_until = match motion {
            None => Time::from_nanos(u64::MAX),
            Some(motion) => {
                let nanos = (SLACK * range / motion.max_speed * 1e9) as u64;
                Time::from_nanos(now.as_nanos().saturating_add(nanos))
            }
        };
    }

    /// Returns the nodes within the range of a node, in order.
    pub(super) fn neighbours(&mut self, node: u32, now: Time) -> Vec<u32> {
        if now > self.fresh_until {
            self.refresh(now);
        }
        let RadioConfig { side, range, motion, .. } = self.config;
        let [x, y] = self.position(node, now);
        let (grid, ways) = (&self.grid, &mut self.ways);
        let near = grid.near([x, y], range * (1.0 + SLACK)).filter(|other| *other != node);
        let mut near: Vec<u32> = near
            .filter(|other| {
                let [to_x, to_y] = ways[*other as usize].position(now, side, motion);
                let [dx, dy] = [to_x - x, to_y - y];
                dx * dx + dy * dy <= range * range
            })
            .collect();
        near.sort_unstable();
        near
    }

    /// Adds the event of a node's next attempt, a random time after `from`.
    fn schedule<N>(&mut self, engine: &mut Engine<N>, node: u32, from: Time) {
        let station = &mut self.stations[node as usize];
        let Some(Waiting { tries, .. }) = station.queue.front().copied() else { return };
        if station.has_attempt || station.sending.is_some() {
            return;
        }
        station.has_attempt = true;
        let count = engine.count(node);
        let wait = match self.config.carrier_sense {
            false => Duration::ZERO,
            true => {
                let share = uniform(&mut SplitMix::new(engine.bits(node, count)));
                let window = (WINDOW[0] << tries.min(16)).min(WINDOW[1]);
                GAP + SLOT.mul_f64(share * f64::from(window))
            }
        };
        self.events.push(from + wait, Order::new(node, count), (Event::Attempt, node));
    }

    /// Begins to send, unless the air is busy.
    fn attempt<N: GraphNode>(&mut self, engine: &mut Engine<N>, node: u32) {
        let now = engine.now;
        let station = &mut self.stations[node as usize];
        station.has_attempt = false;
        if engine.node(node).is_none() {
            station.queue.drain(..).for_each(|waiting| self.store.release(waiting.packet));
            return;
        }
        let is_new = now.since(station.newest) < SLOT;
        let busy_until = if is_new { station.older_until } else { station.busy_until };
        if self.config.carrier_sense && busy_until > now {
            return self.schedule(engine, node, busy_until);
        }
        let Some(waiting) = station.queue.pop_front() else { return };
        station.sending = Some(waiting);
        // It cannot receive meanwhile.
        if core::mem::replace(&mut station.clean, NOBODY) != NOBODY {
            self.collisions += 1;
        }
        let bytes = u64::from(self.store.head(waiting.packet).len);
        let airtime = self.config.overhead + Duration::from_nanos(self.config.rate.nanos(bytes));
        self.airtime += airtime;
        let end = now + airtime.max(Duration::from_nanos(1));
        let receivers = self.neighbours(node, now);
        for receiver in &receivers {
            self.disturb(*receiver, node, now, end);
        }
        self.stations[node as usize].receivers = receivers;
        let count = engine.count(node);
        self.events.push(end, Order::new(node, count), (Event::End, node));
    }

    /// A packet begins to be heard at a node.
    fn disturb(&mut self, receiver: u32, sender: u32, now: Time, end: Time) {
        let station = &mut self.stations[receiver as usize];
        let is_alone = station.signals == 0 && station.sending.is_none();
        if core::mem::replace(&mut station.clean, if is_alone { sender } else { NOBODY }) != NOBODY
        {
            self.collisions += 1;
        }
        self.collisions += u64::from(!is_alone);
        station.signals += 1;
        if station.newest == Time::ZERO || now.since(station.newest) >= SLOT {
            (station.older_until, station.newest) = (station.busy_until, now);
        }
        station.busy_until = station.busy_until.max(end);
    }

    /// A packet has been sent: those that heard it undisturbed receive it.
    fn end<N: GraphNode>(&mut self, engine: &mut Engine<N>, node: u32) -> Result<(), Error> {
        let station = &mut self.stations[node as usize];
        let receivers = core::mem::take(&mut station.receivers);
        let Some(sent) = station.sending.take() else { return Ok(()) };
        let Head { sender, count, .. } = self.store.head(sent.packet);
        let bits = mix(engine.bits(sender, count), sent.tries.into());
        let original = self.store.bytes_mut(sent.packet).to_vec();
        let mut copy = Vec::new();
        let mut is_received = false;
        for receiver in &receivers {
            let station = &mut self.stations[*receiver as usize];
            station.signals -= 1;
            let is_clean = station.clean == node;
            if is_clean {
                station.clean = NOBODY;
            }
            let only = match sent.to {
                Destination::Neighbour(index) => Some(u32::from(index)),
                Destination::Neighbours => None,
            };
            if only.is_some_and(|only| only != *receiver) {
                continue;
            }
            let lost = uniform(&mut SplitMix::new(mix(bits, *receiver)));
            if is_clean && lost >= self.config.loss.get() {
                // A node that does not run acknowledges nothing.
                is_received = engine.node(*receiver).is_some();
                copy.clone_from(&original);
                let (from, link) = (node as u16, *receiver);
                let arrival = Arrival { from, bytes: &mut copy, bits, link };
                engine.receive(self, *receiver, arrival)?;
            } else if only.is_none() {
                engine.totals.lost += 1;
            }
        }
        self.finish(engine, node, sent, is_received);
        let now = engine.now;
        self.schedule(engine, node, now);
        Ok(())
    }

    /// Sends a packet for one node again that was not received, or releases it.
    fn finish<N>(&mut self, engine: &mut Engine<N>, node: u32, sent: Waiting, is_received: bool) {
        let is_for_one = matches!(sent.to, Destination::Neighbour(_));
        if is_for_one && !is_received && sent.tries < self.config.retries {
            let again = Waiting { tries: sent.tries + 1, ..sent };
            return self.stations[node as usize].queue.push_front(again);
        }
        engine.totals.lost += u64::from(is_for_one && !is_received);
        self.store.release(sent.packet);
    }
}

impl<N> Carrier<N> for Air {
    fn send(&mut self, engine: &mut Engine<N>, node: u32, to: Destination) -> Result<(), Error> {
        let exists = match to {
            Destination::Neighbour(index) => usize::from(index) < self.stations.len(),
            Destination::Neighbours => true,
        };
        if !exists || engine.scratch.len() > MAX_LEN {
            engine.totals.refused += 1;
            return Ok(());
        }
        if self.stations[node as usize].queue.len() == MAX_QUEUE {
            engine.totals.dropped += 1;
            return Ok(());
        }
        engine.count_sent(node);
        let count = engine.count(node);
        let packet = self.store.insert(node, count, &engine.scratch).ok_or(Error::TooMany {
            what: "packets of one size at a time",
            max: MAX_PACKETS as u64,
        })?;
        self.stations[node as usize].queue.push_back(Waiting { packet, to, tries: 0 });
        let now = engine.now;
        self.schedule(engine, node, now);
        Ok(())
    }

    fn add_timer(&mut self, node: u32, timer: Timer) {
        self.events.push(timer.at, Order::new(node, timer.count), (Event::Timer, node));
    }
}

impl<N: GraphNode> Medium<N> for Air {
    fn run(&mut self, engines: &mut [Engine<N>], end: Time) -> Result<(), Error> {
        // Whoever hears a packet hears it at once, so there is one shard.
        let [engine] = engines else { return Ok(()) };
        let interrupt = Interrupt::current();
        let mut happened = 0u64;
        while let Some((at, (event, node))) = self.events.pop(end) {
            if happened & interrupt::EVENTS == 0 {
                interrupt.check()?;
            }
            happened += 1;
            engine.set_now(at);
            match event {
                Event::Timer => engine.timer(self, node)?,
                Event::Attempt => {
                    engine.count_event()?;
                    self.attempt(engine, node);
                }
                Event::End => {
                    engine.count_event()?;
                    self.end(engine, node)?;
                }
            }
        }
        engine.set_now(engine.now.max(end));
        Ok(())
    }

    fn pump(&mut self, engines: &mut [Engine<N>], index: usize, node: u32) -> Result<(), Error> {
        engines[index].pump(self, node)
    }

    fn add_timer(&mut self, _: usize, node: u32, timer: Timer) {
        Carrier::<N>::add_timer(self, node, timer);
    }

    fn in_flight(&self) -> u64 {
        self.store.in_use()
    }

    fn memory(&self) -> [usize; 3] {
        let queues = self.stations.iter().map(|station| {
            station.queue.capacity() * size_of::<Waiting>()
                + station.receivers.capacity() * size_of::<u32>()
        });
        let links = self.stations.capacity() * size_of::<Station>()
            + self.ways.capacity() * size_of::<Way>()
            + self.positions.capacity() * size_of::<[f64; 2]>()
            + self.grid.memory()
            + queues.sum::<usize>();
        [links, self.events.memory(), self.store.memory()]
    }
}
