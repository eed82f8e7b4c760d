//! Keeps account of every packet of every flow, whatever transport sent it: sent, dropped and why,
//! delivered, and what is left under way.

use super::thinned::{Spread, Thinned};
use ringway_link::{DropReason, LinkConfig};
use ringway_sansio::{Addressing, Time};
use ringway_sim::{Reason, Record, Recorder, Step};
use std::collections::BTreeMap;

/// What became of packets in one direction of a flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// Packets the sender sent.
    pub(crate) sent: u64,
    /// Packets that arrived, copies included, and their bytes with IP headers.
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) dropped: BTreeMap<Reason, u64>,
    /// Put into queues, and taken out of them to be sent or dropped from them.
    queued: u64,
    unqueued: u64,
    /// Sent on a wire, and received from one or cut on it.
    left: u64,
    ended: u64,
    pub(crate) first_sent: Option<Time>,
    pub(crate) last_arrival: Option<Time>,
    pub(crate) delay: Spread,
}

impl Account {
    /// Packets that wait or are on a wire.
    pub(crate) fn in_flight(&self) -> u64 {
        (self.queued + self.left).saturating_sub(self.unqueued + self.ended)
    }

    /// Packets that are gone.
    pub(crate) fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Packets that links have made of others: what came out less what went in.
    pub(crate) fn copied(&self) -> u64 {
        (self.in_flight() + self.delivered + self.dropped_total()).saturating_sub(self.sent)
    }
}

/// What happens to a numbered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Sent,
    Arrived,
    Lost,
}

/// Which packets there count, and from when on a delay does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// All, each from when it was sent.
    Packets,
    /// Those of SCTP with data in them, from when their TSN was first sent: so two papers counted.
    Data,
}

/// What is known of the packets of a flow of which only those with data count.
#[derive(Debug, Default)]
struct DataOnly {
    /// When each TSN was first sent; they count from 1.
    first: Vec<Time>,
    /// Packets without data, and what was sent again, by when it was first.
    others: BTreeMap<u64, Option<Time>>,
}

impl DataOnly {
    /// Notes a new packet, as it was sent.
    fn note(&mut self, record: &Record, payload: &[u8]) {
        let tsn = payload.get(16..20).filter(|_| payload[12] == 0);
        let Some(tsn) = tsn else {
            self.others.insert(record.packet, None);
            return;
        };
        let place = tsn.iter().fold(0, |n, b| n << 8 | *b as usize).saturating_sub(1);
        match self.first.get(place) {
            Some(first) => drop(self.others.insert(record.packet, Some(*first))),
            None => self.first.push(record.born),
        }
    }

    /// From when on the delay of a packet counts; `None` for one that does not count.
    fn since(&self, record: &Record) -> Option<Time> {
        self.others.get(&record.packet).copied().unwrap_or(Some(record.born))
    }
}

/// A flow as a ledger finds it, with what probes ask for besides.
#[derive(Debug)]
pub(crate) struct FlowLedger {
    /// Port of the end that sends, and of the other.
    ports: [u16; 2],
    /// From the sender to the receiver, and back.
    pub(crate) there: Account,
    pub(crate) back: Account,
    /// Delay of each packet: when it arrived, its delay.
    pub(crate) delays: Option<Thinned<(Time, u64)>>,
    /// What happened to which packet.
    pub(crate) sequence: Option<Thinned<(Time, u64, Mark)>>,
    /// Numbers of packets under way, by the world's own; kept with `sequence`.
    numbers: BTreeMap<u64, u64>,
    /// Bytes that arrived in each step of time.
    pub(crate) bins: Option<(u64, Vec<u64>)>,
    data: Option<DataOnly>,
}

/// Most steps of a throughput probe; what comes later counts for the last.
const MAX_BINS: usize = 1 << 20;

impl FlowLedger {
    pub(crate) fn new(ports: [u16; 2], counted: Counted) -> Self {
        FlowLedger {
            ports,
            there: Account::default(),
            back: Account::default(),
            delays: None,
            sequence: None,
            numbers: BTreeMap::new(),
            bins: None,
            data: (counted == Counted::Data).then(DataOnly::default),
        }
    }
}

/// The recorder of a world that keeps all accounts.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) flows: Vec<FlowLedger>,
    /// Flow and direction by the ports as they were sent.
    by_ports: BTreeMap<[u16; 2], (usize, bool)>,
    /// The same by the world's hash of addresses and ports, which no damage on the way changes;
    /// `None` where two share one.
    by_hash: BTreeMap<u32, Option<(usize, bool)>>,
    /// The last packet that was seen to be sent: every packet makes a record as it is.
    last: u64,
    /// Interfaces that go up and down, and which packets wait there how often.
    shaky: BTreeMap<u32, BTreeMap<u64, u32>>,
    /// The node each end of a flow is on.
    ends: Vec<[u32; 2]>,
    /// By interface: its link as it is all the time, and the bytes it has sent or begun to send.
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

    /// Says that an interface may go down and lose the packets that wait for it. One that keeps them
    /// loses only those that come while it is down, which never waited.
    pub(crate) fn goes_down(&mut self, interface: u32) {
        self.shaky.entry(interface).or_default();
    }

    /// Says that bytes are to be counted that an interface's link sends, which never changes.
    pub(crate) fn counts(&mut self, interface: u32, config: &LinkConfig) {
        let index = interface as usize;
        if self.wires.len() <= index {
            self.wires.resize(index + 1, None);
        }
        self.wires[index] = Some((config.clone(), 0));
    }

    /// Bytes a link has sent or begun to send, with all that it adds to packets and takes from them,
    /// also for packets that were lost after it; `None` where they are not counted.
    pub(crate) fn sent_bytes(&self, interface: u32) -> Option<u64> {
        self.wires.get(interface as usize)?.as_ref().map(|wire| wire.1)
    }

    /// Which flow a packet belongs to, and whether it goes there or back. A damaged packet may have
    /// other ports than it was sent with; what is new has not met damage yet.
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

    /// Whether a packet that a link dropped for being down was waiting for it.
    fn waited(&mut self, record: &Record) -> bool {
        let waiting = record.interface.and_then(|i| self.shaky.get_mut(&i));
        waiting.is_some_and(|w| take_one(w, record.packet))
    }
}

fn take_one(waiting: &mut BTreeMap<u64, u32>, packet: u64) -> bool {
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
        let shaky = match (record.step, record.interface) {
            (Step::Enqueue | Step::Dequeue | Step::Drop(_), Some(interface)) => {
                self.shaky.get_mut(&interface)
            }
            _ => None,
        };
        if let Some(waiting) = shaky {
            match record.step {
                Step::Enqueue => *waiting.entry(record.packet).or_default() += 1,
                Step::Dequeue => drop(take_one(waiting, record.packet)),
                Step::Drop(Reason::Link(DropReason::QueueFull | DropReason::QueueEarly)) => {
                    take_one(waiting, record.packet);
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
            Step::Leave(_) => account.left += 1,
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
                    // It came to its node, but damage has changed the port.
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

/// A packet has come to its end; its delay counts from `since`.
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
