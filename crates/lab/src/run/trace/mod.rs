//! The way of every packet over every link, for `ringway lab view`.
//!
//! A [`Hop`] is a packet at one link: when it came, how long it waited, was sent and was in flight, and why it was lost.
//! The first [`MAX_HOPS`] of a run are kept.

mod wire;

pub use wire::{Content, PacketKind};

use fnv::FnvHashMap;
use ringway_link::{DropReason, LinkConfig};
use ringway_sansio::{Addressing, Duration};
use ringway_sim::{Reason, Record, Recorder, Step};
use std::collections::BTreeMap;
use wire::Numbers;

/// Maximum number of hops of a run that are kept, the first ones.
pub const MAX_HOPS: usize = 1 << 20;
/// Maximum number of times at which a link goes down that are known.
const MAX_CUTS: usize = 4096;
/// End of the list of a packet's open hops.
const NONE: u32 = u32::MAX;

/// A packet at one link, or where it was dropped between links. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// Number of the packet.
    pub packet: u64,
    /// Number of the link and whether the packet goes from its first node to its second; `None` for a node.
    pub link: Option<(u32, bool)>,
    /// Number of the node that it leaves.
    pub node: u32,
    /// Time at which it was offered to the link.
    pub at: u64,
    /// Time for which it waited; `None` if it still did in the end.
    pub waited: Option<u64>,
    /// Time from its first bit to its last.
    pub sending: Option<u64>,
    /// Time from the sending of its last bit to its arrival, or to its loss in flight.
    pub flying: Option<u64>,
    /// Why it was lost, at the end of these times.
    pub lost: Option<Reason>,
    /// The next hop of a copy of this packet at this link.
    next: u32,
}

/// A packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracedPacket {
    /// Number of its flow, and whether it goes from the flow's sender to its receiver.
    pub flow: Option<(u32, bool)>,
    /// Bytes with the IP header.
    pub size: u32,
    /// What its header contains.
    pub content: Content,
}

/// The recorder of hops.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Hops in the order of their times.
    pub hops: Vec<Hop>,
    /// Packets; the first has number 1.
    pub packets: Vec<TracedPacket>,
    /// Number of hops beyond the limit.
    pub left_out: u64,
    limit: usize,
    /// Number of links.
    links: u32,
    /// Link and direction of each interface.
    lanes: Vec<(u32, bool)>,
    /// Times at which each interface goes down, in ascending order.
    cuts: Vec<Vec<u64>>,
    /// Flow and direction by ports, and the numbers of both directions of each flow.
    by_ports: BTreeMap<[u16; 2], (u32, bool)>,
    numbers: Vec<[Numbers; 2]>,
    /// By interface and packet: the oldest of its hops there that has not ended.
    open: FnvHashMap<(u32, u64), u32>,
}

impl Trace {
    /// Creates a trace of at most `limit` hops.
    pub(super) fn new(limit: usize) -> Self {
        Trace {
            hops: Vec::new(),
            packets: Vec::new(),
            left_out: 0,
            limit,
            links: 0,
            lanes: Vec::new(),
            cuts: Vec::new(),
            by_ports: BTreeMap::new(),
            numbers: Vec::new(),
            open: FnvHashMap::default(),
        }
    }

    /// Adds a link; `interfaces` are the numbers of those at its first and its second end. Links are numbered in this
    /// order.
    pub(super) fn add_link(&mut self, interfaces: [u32; 2], configs: [&LinkConfig; 2]) {
        let number = self.links;
        self.links += 1;
        for (end, (interface, config)) in interfaces.into_iter().zip(configs).enumerate() {
            let index = interface as usize;
            if self.lanes.len() <= index {
                self.lanes.resize(index + 1, (NONE, true));
                self.cuts.resize(index + 1, Vec::new());
            }
            self.lanes[index] = (number, end == 0);
            self.cuts[index] = cuts(config);
        }
    }

    /// Adds a flow between two ports; flows are numbered in this order.
    pub(super) fn add_flow(&mut self, [from, to]: [u16; 2]) {
        let number = self.numbers.len() as u32;
        self.by_ports.insert([from, to], (number, true));
        self.by_ports.insert([to, from], (number, false));
        self.numbers.push(Default::default());
    }

    /// Records a packet that was not seen before. All are, in the order of their numbers, when they are sent.
    fn note(&mut self, record: &Record, protocol: u8, payload: &[u8]) {
        if record.packet as usize <= self.packets.len() || self.hops.len() >= self.limit {
            return;
        }
        self.packets.resize_with(record.packet as usize - 1, TracedPacket::default);
        let ports = payload
            .first_chunk::<4>()
            .map(|p| [u16::from_be_bytes([p[0], p[1]]), u16::from_be_bytes([p[2], p[3]])]);
        let flow = ports.and_then(|ports| self.by_ports.get(&ports).copied());
        let content = flow.map_or_else(Content::default, |(flow, there)| {
            let [sent, received] = &mut self.numbers[flow as usize];
            match there {
                true => wire::read(protocol, payload, sent, received),
                false => wire::read(protocol, payload, received, sent),
            }
        });
        self.packets.push(TracedPacket { flow, size: record.size, content });
    }

    /// Adds a hop; returns its index, if there is room.
    fn begin(&mut self, record: &Record, lost: Option<Reason>) -> Option<u32> {
        if self.hops.len() >= self.limit {
            self.left_out += 1;
            return None;
        }
        let lane = record.interface.and_then(|i| self.lanes.get(i as usize)).copied();
        self.hops.push(Hop {
            packet: record.packet,
            link: lane.filter(|lane| lane.0 != NONE),
            node: record.node,
            at: record.at.as_nanos(),
            waited: None,
            sending: None,
            flying: None,
            lost,
            next: NONE,
        });
        Some(self.hops.len() as u32 - 1)
    }

    /// Opens a hop: further steps of the packet at this interface are its.
    fn open(&mut self, record: &Record) {
        let Some(interface) = record.interface else { return };
        let Some(index) = self.begin(record, None) else { return };
        let first = *self.open.entry((interface, record.packet)).or_insert(index);
        if first != index {
            let mut last = first;
            while self.hops[last as usize].next != NONE {
                last = self.hops[last as usize].next;
            }
            self.hops[last as usize].next = index;
        }
    }

    /// Returns the oldest open hop of a packet at an interface that is in a state.
    fn find(&self, interface: u32, packet: u64, is: impl Fn(&Hop) -> bool) -> Option<u32> {
        let mut index = *self.open.get(&(interface, packet))?;
        while index != NONE {
            let hop = &self.hops[index as usize];
            if is(hop) {
                return Some(index);
            }
            index = hop.next;
        }
        None
    }

    /// Ends an open hop.
    fn close(&mut self, interface: u32, packet: u64, index: u32) {
        let next = std::mem::replace(&mut self.hops[index as usize].next, NONE);
        match self.open.get_mut(&(interface, packet)) {
            Some(first) if *first == index && next == NONE => {
                self.open.remove(&(interface, packet));
            }
            Some(first) if *first == index => *first = next,
            Some(first) => {
                let mut before = *first;
                while before != NONE && self.hops[before as usize].next != index {
                    before = self.hops[before as usize].next;
                }
                if before != NONE {
                    self.hops[before as usize].next = next;
                }
            }
            None => {}
        }
    }

    /// Records a loss by a link.
    fn lose(&mut self, record: &Record, interface: u32, reason: DropReason) {
        let state: fn(&Hop) -> bool = match reason {
            DropReason::QueueFull | DropReason::QueueEarly | DropReason::Down => is_waiting,
            DropReason::Cut => is_flying,
            _ => is_sending,
        };
        let lost = Some(Reason::Link(reason));
        let Some(index) = self.find(interface, record.packet, state) else {
            // It did not get as far as the queue.
            if let Some(index) = self.begin(record, lost) {
                self.hops[index as usize].waited = Some(0);
            }
            return;
        };
        let at = record.at.as_nanos();
        let cut = self.cuts.get(interface as usize).map_or(&[][..], Vec::as_slice);
        let hop = &mut self.hops[index as usize];
        hop.lost = lost;
        match reason {
            DropReason::Cut => {
                // It is reported when it would have arrived, and was lost when the link went down.
                let left = hop.at + hop.waited.unwrap_or(0);
                let went = cut.get(cut.partition_point(|cut| *cut < left));
                let gone = went.filter(|went| **went <= at).map_or(at, |went| *went) - left;
                let sending = hop.sending.unwrap_or(0).min(gone);
                (hop.sending, hop.flying) = (Some(sending), Some(gone - sending));
            }
            _ if hop.waited.is_none() => hop.waited = Some(at.saturating_sub(hop.at)),
            _ => hop.sending = Some(at.saturating_sub(hop.at + hop.waited.unwrap_or(0))),
        }
        self.close(interface, record.packet, index);
    }
}

fn is_waiting(hop: &Hop) -> bool {
    hop.waited.is_none()
}

fn is_sending(hop: &Hop) -> bool {
    hop.waited.is_some() && hop.sending.is_none()
}

fn is_flying(hop: &Hop) -> bool {
    hop.flying.is_some()
}

/// Returns the times at which a link goes down, in its first period.
fn cuts(config: &LinkConfig) -> Vec<u64> {
    let nanos = |span: ringway_link::Span| Duration::from(span).as_nanos() as u64;
    let goes_down = config.schedule.iter().filter(|change| change.up == Some(false));
    let first: Vec<u64> = goes_down.map(|change| nanos(change.at)).collect();
    let period = nanos(config.schedule_period);
    if period == 0 || first.is_empty() {
        return first;
    }
    let periods = (0..).map(|n| period.saturating_mul(n));
    periods
        .flat_map(|began| first.iter().map(move |at| began.saturating_add(*at)))
        .take(MAX_CUTS)
        .collect()
}

impl Recorder for Trace {
    fn record(&mut self, record: &Record, addressing: &Addressing, payload: &[u8]) {
        self.note(record, addressing.protocol, payload);
        let Some(interface) = record.interface else {
            if let Step::Drop(reason) = record.step {
                self.begin(record, Some(reason));
            }
            return;
        };
        let packet = record.packet;
        match record.step {
            Step::Enqueue => self.open(record),
            Step::Dequeue => {
                if let Some(index) = self.find(interface, packet, is_waiting) {
                    let hop = &mut self.hops[index as usize];
                    hop.waited = Some(record.at.as_nanos().saturating_sub(hop.at));
                }
            }
            Step::Leave { sent, arrives } => {
                if let Some(index) = self.find(interface, packet, is_sending) {
                    let hop = &mut self.hops[index as usize];
                    hop.sending = Some(sent.since(record.at).as_nanos() as u64);
                    hop.flying = Some(arrives.since(sent).as_nanos() as u64);
                }
            }
            Step::Receive => {
                // The packet left the interface at the other end, whose number differs in the last bit.
                let from = interface ^ 1;
                if let Some(index) = self.find(from, packet, is_flying) {
                    self.close(from, packet, index);
                }
            }
            Step::Drop(Reason::Link(reason)) => self.lose(record, interface, reason),
            Step::Drop(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::Time;

    fn record(at: u64, packet: u64, interface: Option<u32>, step: Step) -> Record {
        let at = Time::from_nanos(at);
        Record { at, step, node: 0, interface, packet, born: at, size: 100, flow: 1, hops: 64 }
    }

    fn addressing() -> Addressing {
        let any = std::net::Ipv4Addr::UNSPECIFIED.into();
        Addressing::new(any, any, 17)
    }

    fn trace(limit: usize, records: &[(u64, u64, u32, Step)]) -> Trace {
        let mut trace = Trace::new(limit);
        let link = LinkConfig::default();
        trace.add_link([0, 1], [&link, &link]);
        trace.add_flow([1, 2]);
        for &(at, packet, interface, step) in records {
            trace.record(&record(at, packet, Some(interface), step), &addressing(), &[0, 1, 0, 2]);
        }
        trace
    }

    fn leave(sent: u64, arrives: u64) -> Step {
        Step::Leave { sent: Time::from_nanos(sent), arrives: Time::from_nanos(arrives) }
    }

    /// A copy has the number of its original; the steps of both differ in their states.
    #[test]
    fn copies_have_hops_of_their_own() {
        let all = trace(
            9,
            &[
                (10, 1, 0, Step::Enqueue),
                (10, 1, 0, Step::Enqueue),
                (10, 1, 0, Step::Dequeue),
                (10, 1, 0, leave(15, 20)),
                (15, 1, 0, Step::Dequeue),
                (20, 1, 1, Step::Receive),
                (15, 1, 0, leave(21, 27)),
                (27, 1, 1, Step::Receive),
                (30, 1, 1, Step::Enqueue),
            ],
        );
        let parts = |hop: &Hop| (hop.link, hop.waited, hop.sending, hop.flying);
        let expected = [
            (Some((0, true)), Some(0), Some(5), Some(5)),
            (Some((0, true)), Some(5), Some(6), Some(6)),
            (Some((0, false)), None, None, None),
        ];
        assert_eq!(all.hops.iter().map(parts).collect::<Vec<_>>(), expected);
        assert_eq!(all.open.len(), 1, "what has arrived is not open");
        assert_eq!(all.packets[0].flow, Some((0, true)));
    }

    /// Hops beyond the limit are counted.
    #[test]
    fn the_first_hops_are_kept() {
        let steps = |packet| (packet, packet, 0, Step::Enqueue);
        let all = trace(3, &[1, 2, 3, 4, 5].map(steps));
        assert_eq!((all.hops.len(), all.packets.len(), all.left_out), (3, 3, 2));
    }

    /// A packet is lost in the queue, before it, on the wire, or between links.
    #[test]
    fn losses_end_hops() {
        let drop = |reason| Step::Drop(Reason::Link(reason));
        let mut all = trace(
            9,
            &[
                (10, 1, 0, Step::Enqueue),
                (14, 1, 0, drop(DropReason::QueueEarly)),
                (20, 2, 0, drop(DropReason::Loss)),
                (30, 3, 0, Step::Enqueue),
                (31, 3, 0, Step::Dequeue),
                (36, 3, 0, drop(DropReason::Loss)),
            ],
        );
        all.record(&record(40, 3, None, Step::Drop(Reason::NoRoute)), &addressing(), &[]);
        let parts = |hop: &Hop| (hop.waited, hop.sending, hop.lost.map(Reason::as_str));
        let expected = [
            (Some(4), None, Some("dropped early by the queue")),
            (Some(0), None, Some("random loss")),
            (Some(1), Some(5), Some("random loss")),
            (None, None, Some("no route")),
        ];
        assert_eq!(all.hops.iter().map(parts).collect::<Vec<_>>(), expected);
        assert!(all.open.is_empty() && all.hops[3].link.is_none());
    }
}
