//! Keeps account of every packet of every flow, for all transports: packets sent, dropped by
//! reason, delivered, and still in flight.

use super::statistics::{BoundedSamples, TimeStatistics};
use ringway_link::{DropReason, LinkConfig};
use ringway_sansio::{Addressing, Time};
use ringway_sim::{Reason, Record, Recorder, Step};
use std::collections::BTreeMap;

/// Counts of the packets in one direction of a flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// Packets sent by the sender.
    pub(crate) sent: u64,
    /// Packets that arrived, copies included, and their bytes with IP headers.
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) dropped: BTreeMap<Reason, u64>,
    /// Packets that entered queues, and that left them by being sent or dropped.
    queued: u64,
    unqueued: u64,
    /// Packets sent on a wire, and packets received from a wire or dropped on it.
    left: u64,
    ended: u64,
    pub(crate) first_sent: Option<Time>,
    pub(crate) last_arrival: Option<Time>,
    pub(crate) delay: TimeStatistics,
}

impl Account {
    /// Returns the number of packets in queues or on a wire.
    pub(crate) fn in_flight(&self) -> u64 {
        (self.queued + self.left).saturating_sub(self.unqueued + self.ended)
    }

    /// Returns the number of dropped packets.
    pub(crate) fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Returns the number of packets that links duplicated: those that came out less those that
    /// went in.
    pub(crate) fn copied(&self) -> u64 {
        (self.in_flight() + self.delivered + self.dropped_total()).saturating_sub(self.sent)
    }
}

/// Step of a numbered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Sent,
    Arrived,
    Lost,
}

/// Which packets of the forward direction count, and from when their delay counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedPackets {
    /// All packets, from when each was sent.
    Packets,
    /// SCTP packets with data, from when their TSN was first sent. Two papers count like this.
    Data,
}

/// State of a flow of which only packets with data count.
#[derive(Debug, Default)]
struct DataOnly {
    /// Time of the first transmission of each TSN, starting with TSN 1.
    first: Vec<Time>,
    /// Packets without data (`None`), and retransmissions with the time of their first
    /// transmission.
    others: BTreeMap<u64, Option<Time>>,
}

impl DataOnly {
    /// Records a new packet when it is sent.
    fn note(&mut self, record: &Record, payload: &[u8]) {
        let tsn = payload.get(16..20).filter(|_| payload[12] == 0);
        let Some(tsn) = tsn else {
            self.others.insert(record.packet, None);
            return;
        };
        let index = tsn.iter().fold(0, |n, b| n << 8 | *b as usize).saturating_sub(1);
        match self.first.get(index) {
            Some(first) => drop(self.others.insert(record.packet, Some(*first))),
            None => self.first.push(record.born),
        }
    }

    /// Returns the time from which the delay of a packet counts; `None` if it does not count.
    fn since(&self, record: &Record) -> Option<Time> {
        self.others.get(&record.packet).copied().unwrap_or(Some(record.born))
    }
}

/// The accounts of a flow, and the data of its probes.
#[derive(Debug)]
pub(crate) struct FlowLedger {
    /// Ports of the sender and of the receiver.
    ports: [u16; 2],
    /// The direction from sender to receiver, and the reverse direction.
    pub(crate) there: Account,
    pub(crate) back: Account,
    /// Arrival time and delay of each packet.
    pub(crate) delays: Option<BoundedSamples<(Time, u64)>>,
    /// Steps of numbered packets.
    pub(crate) sequence: Option<BoundedSamples<(Time, u64, Mark)>>,
    /// Numbers of packets in flight by the world's packet id; used with `sequence`.
    numbers: BTreeMap<u64, u64>,
    /// Bytes that arrived in each interval.
    pub(crate) bins: Option<(u64, Vec<u64>)>,
    data: Option<DataOnly>,
}

/// Maximum number of intervals of a throughput probe; later packets count in the last one.
const MAX_BINS: usize = 1 << 20;

impl FlowLedger {
    pub(crate) fn new(ports: [u16; 2], counted: CountedPackets) -> Self {
        FlowLedger {
            ports,
            there: Account::default(),
            back: Account::default(),
            delays: None,
            sequence: None,
            numbers: BTreeMap::new(),
            bins: None,
            data: (counted == CountedPackets::Data).then(DataOnly::default),
        }
    }
}

/// The recorder that keeps all accounts of a world.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) flows: Vec<FlowLedger>,
    /// Flow and direction by the ports of the packet when it was sent.
    by_ports: BTreeMap<[u16; 2], (usize, bool)>,
    /// The same by the world's hash of addresses and ports, which damage in transit does not
    /// change; `None` if two flows share a hash.
    by_hash: BTreeMap<u32, Option<(usize, bool)>>,
    /// The last packet whose sending was recorded: every packet is recorded when it is sent.
    last: u64,
    /// Interfaces that go up and down, with the packets that wait there and how often each does.
    waiting_packets: BTreeMap<u32, BTreeMap<u64, u32>>,
    /// The nodes at the two ends of each flow.
    ends: Vec<[u32; 2]>,
    /// By interface: its link, whose settings do not change, and the bytes it has sent or begun to
    /// send.
    wires: Vec<Option<(LinkConfig, u64)>>,
}

impl Ledger {
    /// Adds a flow between two nodes; flows are numbered in this order.
    pub(crate) fn add(&mut self, flow: FlowLedger, ends: [u32; 2]) {
        let [from, to] = flow.ports;
        self.by_ports.insert([from, to], (self.flows.len(), true));
        self.by_ports.insert([to, from], (self.flows.len(), false));
        self.flows.push(flow);
        self.ends.push(ends);
    }

    /// Marks an interface that may go down and drop its waiting packets. An interface that keeps
    /// them drops only packets that arrive while it is down, and those never waited.
    pub(crate) fn track_waiting(&mut self, interface: u32) {
        self.waiting_packets.entry(interface).or_default();
    }

    /// Starts counting the bytes sent by an interface whose link settings never change.
    pub(crate) fn count_bytes(&mut self, interface: u32, config: &LinkConfig) {
        let index = interface as usize;
        if self.wires.len() <= index {
            self.wires.resize(index + 1, None);
        }
        self.wires[index] = Some((config.clone(), 0));
    }

    /// Returns the bytes a link has sent or begun to send, with the overhead it adds and without
    /// the bytes it strips, including packets that were lost afterwards; `None` if they are not
    /// counted.
    pub(crate) fn sent_bytes(&self, interface: u32) -> Option<u64> {
        self.wires.get(interface as usize)?.as_ref().map(|wire| wire.1)
    }

    /// Returns the flow of a packet and whether its direction is forward. Damage may change a
    /// packet's ports after it was sent, but not when it is new.
    fn find(&mut self, record: &Record, payload: &[u8], is_new: bool) -> Option<(usize, bool)> {
        if !is_new && let Some(Some(found)) = self.by_hash.get(&record.flow) {
            return Some(*found);
        }
        let ports = payload.first_chunk::<4>()?;
        let ports = [[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_be_bytes);
        let found = *self.by_ports.get(&ports)?;
        if is_new {
            let known = self.by_hash.entry(record.flow).or_insert(Some(found));
            if *known != Some(found) {
                *known = None;
            }
        }
        Some(found)
    }

    /// Returns whether a packet that a link dropped while down had been waiting for it.
    fn waited(&mut self, record: &Record) -> bool {
        let waiting = record.interface.and_then(|i| self.waiting_packets.get_mut(&i));
        waiting.is_some_and(|w| remove_one(w, record.packet))
    }
}

fn remove_one(waiting: &mut BTreeMap<u64, u32>, packet: u64) -> bool {
    let Some(count) = waiting.get_mut(&packet) else { return false };
    *count -= 1;
    if *count == 0 {
        waiting.remove(&packet);
    }
    true
}

impl Recorder for Ledger {
    fn record(&mut self, record: &Record, _: &Addressing, payload: &[u8]) {
        if record.step == Step::Dequeue
            && let Some(interface) = record.interface
            && let Some(Some((config, bytes))) = self.wires.get_mut(interface as usize)
        {
            *bytes += config.sent_bytes(u64::from(record.size));
        }
        let is_new = record.packet > self.last;
        self.last = self.last.max(record.packet);
        let waiting_packets = match (record.step, record.interface) {
            (Step::Enqueue | Step::Dequeue | Step::Drop(_), Some(interface)) => {
                self.waiting_packets.get_mut(&interface)
            }
            _ => None,
        };
        if let Some(waiting) = waiting_packets {
            match record.step {
                Step::Enqueue => *waiting.entry(record.packet).or_default() += 1,
                Step::Dequeue => drop(remove_one(waiting, record.packet)),
                Step::Drop(Reason::Link(DropReason::QueueFull | DropReason::QueueEarly)) => {
                    remove_one(waiting, record.packet);
                }
                _ => {}
            }
        }
        let Some((index, there)) = self.find(record, payload, is_new) else { return };
        let was_waiting = match record.step {
            Step::Drop(Reason::Link(DropReason::QueueFull | DropReason::QueueEarly)) => true,
            Step::Drop(Reason::Link(DropReason::Down)) => self.waited(record),
            _ => false,
        };
        let far = self.ends[index][usize::from(there)];
        let flow = &mut self.flows[index];
        let mut since = record.born;
        if there && let Some(data) = &mut flow.data {
            if is_new {
                data.note(record, payload);
            }
            let Some(first) = data.since(record) else { return };
            since = first;
        }
        let account = if there { &mut flow.there } else { &mut flow.back };
        if is_new {
            account.sent += 1;
            account.first_sent.get_or_insert(record.born);
            if there && let Some(sequence) = &mut flow.sequence {
                flow.numbers.insert(record.packet, account.sent);
                sequence.push((record.born, account.sent, Mark::Sent));
            }
        }
        match record.step {
            Step::Enqueue => account.queued += 1,
            Step::Dequeue => account.unqueued += 1,
            Step::Leave { .. } => account.left += 1,
            Step::Receive => {
                account.ended += 1;
                if record.node == far {
                    arrive(flow, record, there, since);
                }
            }
            Step::Drop(reason) => {
                account.unqueued += u64::from(was_waiting);
                account.ended += u64::from(reason == Reason::Link(DropReason::Cut));
                if reason == Reason::NoEndpoint {
                    // It arrived at its node, but damage had changed the port.
                    account.delivered -= 1;
                    account.delivered_bytes -= u64::from(record.size);
                }
                *account.dropped.entry(reason).or_default() += 1;
                if there
                    && let Some(sequence) = &mut flow.sequence
                    && let Some(number) = flow.numbers.remove(&record.packet)
                {
                    sequence.push((record.at, number, Mark::Lost));
                }
            }
        }
    }
}

/// Records the arrival of a packet; its delay counts from `since`.
fn arrive(flow: &mut FlowLedger, record: &Record, there: bool, since: Time) {
    let account = if there { &mut flow.there } else { &mut flow.back };
    account.delivered += 1;
    account.delivered_bytes += u64::from(record.size);
    account.last_arrival = Some(record.at);
    let delay = record.at.since(since).as_nanos() as u64;
    account.delay.push(delay);
    if !there {
        return;
    }
    if let Some(delays) = &mut flow.delays {
        delays.push((record.at, delay));
    }
    if let Some((every, bins)) = &mut flow.bins {
        let bin = ((record.at.as_nanos() / *every) as usize).min(MAX_BINS - 1);
        if bins.len() <= bin {
            bins.resize(bin + 1, 0);
        }
        bins[bin] += u64::from(record.size);
    }
    if let Some(sequence) = &mut flow.sequence
        && let Some(number) = flow.numbers.remove(&record.packet)
    {
        sequence.push((record.at, number, Mark::Arrived));
    }
}
