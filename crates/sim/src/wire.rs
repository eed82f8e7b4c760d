//! The outlet of a link in the world.

use crate::events::{EventQueue, Order};
use crate::node::{Counters, Flight};
use crate::packed::{Event, PackedEvent};
use crate::pool::{Pool, StoredPacket};
use crate::record::{Reason, Record, Recorder, Step};
use ringway_link::{Departure, DropReason, Outlet, Packet};
use ringway_sansio::{RingQueue, Time};

/// Notifies recorders.
#[derive(Default)]
pub(crate) struct Notifier {
    pub(crate) recorders: Vec<Box<dyn Recorder>>,
    /// Number of copies that links have made.
    pub(crate) copied: u64,
}

impl Notifier {
    #[inline]
    pub(crate) fn notify(
        &mut self,
        at: Time,
        step: Step,
        node: u32,
        interface: Option<u32>,
        held: &StoredPacket,
    ) {
        if !self.recorders.is_empty() {
            self.notify_all(at, step, node, interface, held);
        }
    }

    #[cold]
    fn notify_all(
        &mut self,
        at: Time,
        step: Step,
        node: u32,
        interface: Option<u32>,
        held: &StoredPacket,
    ) {
        let record = Record {
            at,
            step,
            node,
            interface,
            packet: held.serial,
            born: held.born,
            size: held.size,
            flow: held.flow,
            hops: held.hops,
        };
        for recorder in &mut self.recorders {
            recorder.record(&record, &held.addressing, &held.payload);
        }
    }
}

/// The parts of a world that the link leaving one interface uses.
pub(crate) struct Wire<'a> {
    pub(crate) events: &'a mut EventQueue<PackedEvent>,
    pub(crate) pool: &'a mut Pool,
    /// Number of events that the interface's node has requested.
    pub(crate) requested: &'a mut u64,
    pub(crate) flight: &'a mut RingQueue<Flight>,
    pub(crate) notifier: &'a mut Notifier,
    pub(crate) counters: &'a mut Counters,
    pub(crate) node: u32,
    pub(crate) interface: u32,
}

impl Wire<'_> {
    #[inline]
    fn notify(&mut self, at: Time, step: Step, packet: u32) {
        if !self.notifier.recorders.is_empty() {
            let held = self.pool.get(packet);
            self.notifier.notify_all(at, step, self.node, Some(self.interface), held);
        }
    }
}

impl Outlet for Wire<'_> {
    #[inline(always)]
    fn departs(&mut self, departure: Departure) {
        let packet = departure.packet.id;
        let held = self.pool.get_mut(packet);
        held.start(departure.started, departure.packet.ecn);
        if let Some(bit) = departure.flip {
            held.invert(bit);
        }
        self.counters.left += 1;
        self.counters.left_bytes += u64::from(departure.packet.size);
        let step = Step::Leave { sent: departure.sent, arrives: departure.arrives };
        self.notify(departure.started, step, packet);
        *self.requested += 1;
        let order = Order::new(self.node, *self.requested);
        let (arrives, link) = (departure.arrives, self.interface);
        match self.flight.back() {
            // It overtakes packets in flight.
            Some(last) if arrives < last.arrives => {
                self.events.push(arrives, order, Event::Arrive { packet, link }.pack());
            }
            // Only the first packet in flight has an event: a full link costs no more than one event.
            Some(_) => self.flight.push_back(Flight { arrives, order, packet }),
            None => {
                self.flight.push_back(Flight { arrives, order, packet });
                self.events.push(arrives, order, Event::First { link }.pack());
            }
        }
    }

    fn dropped(&mut self, at: Time, packet: Packet, reason: DropReason) {
        self.counters.dropped += 1;
        self.notify(at, Step::Drop(Reason::Link(reason)), packet.id);
        self.pool.release(packet.id);
    }

    fn copy(&mut self, packet: Packet) -> Option<u32> {
        let copy = self.pool.copy(packet.id)?;
        self.counters.offered += 1;
        self.notifier.copied += 1;
        Some(copy)
    }

    fn bytes(&mut self, packet: &Packet) -> &[u8] {
        let held = self.pool.get_mut(packet.id);
        held.fill_checksum();
        &held.payload
    }

    #[inline]
    fn enqueued(&mut self, at: Time, packet: Packet) {
        self.notify(at, Step::Enqueue, packet.id);
    }

    #[inline]
    fn dequeued(&mut self, at: Time, packet: Packet) {
        self.notify(at, Step::Dequeue, packet.id);
    }
}
