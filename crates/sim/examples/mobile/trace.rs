//! Why packets do not arrive: every transmission and reception of what carries one, and the verdict on each.

use ringway_mesh::wire::data::DataView;
use ringway_mesh::wire::{Control, Item, Items, Kind, Message, Routed, SEAL};
use ringway_mesh::{NodeId, Router, crypto::StandIn};
use ringway_sansio::Time;
use ringway_sim::graph::Pair;
use ringway_sim::graph::{DataNode, Delivery, Destination, GraphNode, MeshNode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// What a packet that is watched belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    /// A packet of data, by its number.
    Data(u32),
    /// A LOOKUP and its answers, by the number of the message.
    Search(u64),
    /// A CONFIRM, by its sender and receiver.
    Confirm(NodeId, NodeId),
}

/// What a node did with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// It sent it to a node.
    Out(u32),
    /// It received it from a node.
    In(u32),
}

/// A step of what is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) at: Time,
    pub(super) node: u32,
    pub(super) act: Act,
    /// The kind of message; `None` for data.
    pub(super) message: Option<Message>,
    /// Whether a message has returned.
    pub(super) returned: bool,
}

/// All that was seen.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) steps: BTreeMap<Thing, Vec<Step>>,
    /// Searches by their origin and target.
    pub(super) searches: BTreeMap<(NodeId, NodeId), Vec<u64>>,
    /// Data that has arrived.
    pub(super) delivered: BTreeSet<u32>,
    /// Packets and octets sent, by what they contain.
    pub(super) sent: BTreeMap<String, [u64; 2]>,
}

impl Trace {
    /// Counts a packet that is sent.
    fn count(&mut self, bytes: &[u8]) {
        let kind = Kind::of(bytes);
        let mut name = kind.map_or("bad".into(), |kind| format!("{kind:?}"));
        if kind == Ok(Kind::Control) {
            let items = bytes.get(Control::HEADER..bytes.len().saturating_sub(SEAL));
            if let Some(item) = Items::new(items.unwrap_or_default()).flatten().next() {
                name = match item {
                    Item::Routed(body) => Routed::parse(body).map_or("bad".into(), |routed| {
                        let flags = routed.flags;
                        let greedy = if flags.returned {
                            " returned"
                        } else if flags.greedy {
                            " greedy"
                        } else {
                            ""
                        };
                        format!("{:?}{greedy}", routed.message)
                    }),
                    Item::Error(_) => "Error".into(),
                    Item::Broken { .. } => "Broken".into(),
                    Item::Probe => "Probe".into(),
                    Item::Slot(_) => "Slot".into(),
                    Item::Feedback => "Feedback".into(),
                    _ => "other".into(),
                };
            }
        }
        let [packets, octets] = self.sent.entry(name).or_default();
        *packets += 1;
        *octets += bytes.len() as u64;
    }

    /// Notes a packet, if it is of what is watched.
    fn note(&mut self, at: Time, node: u32, act: Act, bytes: &[u8]) {
        match Kind::of(bytes) {
            Ok(Kind::Data) => {
                let mut copy = bytes.to_vec();
                let Ok(mut data) = DataView::parse(&mut copy) else { return };
                let (_, sealed, _) = data.sealed();
                // The type, the header of IPv6, and the number.
                if let Some(number) = sealed.get(41..45).filter(|_| sealed[0] == 0) {
                    let number = u32::from_be_bytes(number.try_into().unwrap_or_default());
                    let step = Step { at, node, act, message: None, returned: false };
                    self.steps.entry(Thing::Data(number)).or_default().push(step);
                }
            }
            Ok(Kind::Control) => {
                let items = bytes.get(Control::HEADER..bytes.len().saturating_sub(SEAL));
                for item in Items::new(items.unwrap_or_default()).flatten() {
                    if let Item::Routed(body) = item
                        && let Ok(message) = Routed::parse(body)
                    {
                        self.note_message(at, node, act, &message);
                    }
                }
            }
            _ => {}
        }
    }

    fn note_message(&mut self, at: Time, node: u32, act: Act, message: &Routed<'_>) {
        let thing = match message.message {
            Message::LookUp | Message::LookUpAck | Message::NotResponsible => {
                Thing::Search(message.id.0)
            }
            Message::Confirm => Thing::Confirm(message.origin, message.target),
            _ => return,
        };
        let (returned, kind) = (message.flags.returned, Some(message.message));
        let steps = self.steps.entry(thing).or_default();
        if steps.is_empty() && message.message == Message::LookUp {
            let pair = (message.origin, message.target);
            self.searches.entry(pair).or_default().push(message.id.0);
        }
        steps.push(Step { at, node, act, message: kind, returned });
    }
}

/// A router of which all packets are seen.
pub(super) struct Watched {
    node: MeshNode,
    number: u32,
    trace: Arc<Mutex<Trace>>,
}

impl Watched {
    pub(super) fn new(node: MeshNode, number: u32, trace: &Arc<Mutex<Trace>>) -> Self {
        Watched { node, number, trace: trace.clone() }
    }

    pub(super) fn router(&self) -> &Router<StandIn> {
        self.node.router()
    }

    fn note(&self, now: Time, act: Act, bytes: &[u8]) {
        if let Ok(mut trace) = self.trace.lock() {
            trace.note(now, self.number, act, bytes);
        }
    }
}

impl GraphNode for Watched {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        self.note(now, Act::In(from.into()), bytes);
        self.node.handle_packet(now, from, bytes);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.node.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.node.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        let to = self.node.poll_transmit(now, bytes)?;
        if let Ok(mut trace) = self.trace.lock() {
            trace.count(bytes);
        }
        if let Destination::Neighbour(to) = to {
            self.note(now, Act::Out(to.into()), bytes);
        }
        Some(to)
    }

    fn heap_bytes(&self) -> usize {
        self.node.heap_bytes()
    }
}

impl DataNode for Watched {
    fn send_data(&mut self, now: Time, to: u32, number: u32, len: u16) {
        self.node.send_data(now, to, number, len);
    }

    fn poll_delivery(&mut self) -> Option<Delivery> {
        let delivery = self.node.poll_delivery()?;
        if let Ok(mut trace) = self.trace.lock() {
            trace.delivered.insert(delivery.number);
        }
        Some(delivery)
    }
}

/// Where nodes were, now and then.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) range: f64,
    /// Positions of all nodes, by time.
    pub(super) at: Vec<(Time, Vec<[f64; 2]>)>,
}

impl Places {
    /// Returns whether two nodes heard each other.
    fn near(&self, at: Time, one: u32, other: u32) -> bool {
        let index = self.at.partition_point(|(time, _)| *time <= at).saturating_sub(1);
        let Some((_, places)) = self.at.get(index) else { return false };
        let [[x, y], [to_x, to_y]] = [one, other].map(|node| places[node as usize]);
        (x - to_x).hypot(y - to_y) <= self.range
    }
}

/// How a way of something ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A transmission was not received.
    Lost { at: Time, from: u32, to: u32 },
    /// A node received it and sent nothing.
    Stopped(u32),
}

/// Returns the ends of some steps.
fn ends(steps: &[Step]) -> Vec<End> {
    let mut ends = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let mut rest = steps[index + 1..].iter();
        match step.act {
            Act::Out(to) => {
                if !rest.any(|other| other.node == to && other.act == Act::In(step.node)) {
                    ends.push(End::Lost { at: step.at, from: step.node, to });
                }
            }
            Act::In(_) => {
                let is_out = |other: &Step| {
                    other.node == step.node
                        && other.at == step.at
                        && matches!(other.act, Act::Out(_))
                };
                if !rest.any(is_out) {
                    ends.push(End::Stopped(step.node));
                }
            }
        }
    }
    ends
}

/// Returns what became of a packet that did not arrive.
pub(super) fn verdict(
    trace: &Trace,
    places: &Places,
    number: u32,
    pair: Pair,
    ids: (NodeId, NodeId),
) -> String {
    let loss = |end: Option<&End>| match end {
        Some(End::Lost { at, from, to }) => {
            let first = if *from == pair.from { "first " } else { "" };
            let is_near = places.near(*at, *from, *to);
            format!("{first}link {}", if is_near { "lost it, in range" } else { "is out of range" })
        }
        Some(End::Stopped(node)) if *node == pair.to => "not accepted at its end".into(),
        Some(End::Stopped(node)) if *node == pair.from => "back at its sender".into(),
        Some(End::Stopped(_)) => "dropped by a router".into(),
        None => "nothing seen".into(),
    };
    let searches = trace.searches.get(&(ids.0, ids.1.prefix().key()));
    let searches = searches.into_iter().flatten().map(|id| &trace.steps[&Thing::Search(*id)]);
    let steps: Vec<Step> = searches.flatten().copied().collect();
    let of = |message: Message| -> Vec<Step> {
        steps.iter().copied().filter(|step| step.message == Some(message)).collect()
    };
    if let Some(data) = trace.steps.get(&Thing::Data(number)) {
        let age = if steps.is_empty() { "old" } else { "new" };
        return format!("{age} session: {}", loss(ends(data).first()));
    }
    let came = |steps: &[Step], node| {
        steps.iter().any(|step| step.node == node && matches!(step.act, Act::In(_)))
    };
    let (asked, answers) = (of(Message::LookUp), of(Message::LookUpAck));
    if asked.is_empty() {
        return "no search".into();
    }
    if came(&answers, pair.from) {
        return "answered, and not sent".into();
    }
    if !answers.is_empty() {
        return format!("answer: {}", loss(ends(&answers).last()));
    }
    if came(&asked, pair.to) {
        return "not answered by its owner".into();
    }
    let tries = asked
        .iter()
        .filter(|step| step.node == pair.from && matches!(step.act, Act::Out(_)) && !step.returned);
    let is_denied = if came(&of(Message::NotResponsible), pair.from) { ", denied" } else { "" };
    let tries = tries.count().min(3);
    format!("LOOKUP {tries}+{is_denied}: {}", loss(ends(&asked).last()))
}
