//! A world: its construction, and the passing of its time.

use crate::error::{Budget, Error};
use crate::events::{EventQueue, MAX_NODES, Order};
use crate::headers;
use crate::interrupt::{self, Interrupt};
use crate::node::{
    Bind, Counters, EndpointId, Interface, InterfaceId, NEVER, NONE, Node, NodeId, Path, Plug,
    Plugged,
};
use crate::packed::{Event, PackedEvent};
use crate::pool::{MAX_PACKETS, Pool, StoredPacket};
use crate::record::{Reason, Recorder, Step};
use crate::routes::Routes;
use crate::wire::{Notifier, Wire};
use ringway_link::loss::LossRule;
use ringway_link::{DropReason, Link, LinkConfig, Outlet as _, Packet, Streams, flow_hash};
use ringway_sansio::{Addressing, RingQueue, Time};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Maximum length of an IP packet.
const MAX_IP: usize = 65_535;

/// The locations of all packets of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Packets sent by endpoints.
    pub sent: u64,
    /// Copies made by links.
    pub copied: u64,
    /// Packets delivered to endpoints.
    pub delivered: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets in queues.
    pub waiting: u64,
    /// Packets that are being sent or in flight.
    pub on_the_way: u64,
}

/// Hosts, links and endpoints in virtual time.
pub struct World {
    streams: Streams,
    now: Time,
    budget: Budget,
    events: EventQueue<PackedEvent>,
    pool: Pool,
    /// The buffer that endpoints write packets into.
    scratch: Vec<u8>,
    nodes: Vec<Node>,
    names: BTreeSet<String>,
    interfaces: Vec<Interface>,
    endpoints: Vec<Plugged>,
    addresses: BTreeMap<IpAddr, u32>,
    /// Each address and its interface, by number.
    address_table: Vec<(IpAddr, u32)>,
    routes: Routes,
    notifier: Notifier,
    census: Census,
    happened: u64,
    hops: u64,
}

impl World {
    /// Creates an empty world at time zero that draws from `streams`.
    pub fn new(streams: Streams) -> Self {
        World {
            streams,
            now: Time::ZERO,
            budget: Budget::default(),
            events: EventQueue::new(),
            pool: Pool::default(),
            scratch: Vec::new(),
            nodes: Vec::new(),
            names: BTreeSet::new(),
            interfaces: Vec::new(),
            endpoints: Vec::new(),
            addresses: BTreeMap::new(),
            address_table: Vec::new(),
            routes: Routes::new(),
            notifier: Notifier::default(),
            census: Census::default(),
            happened: 0,
            hops: 0,
        }
    }

    /// Returns the random streams of this world.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sets the limits of the run.
    pub fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Returns the number of events so far.
    pub fn happened(&self) -> u64 {
        self.happened
    }

    /// Returns the number of links passed by packets.
    pub fn hops(&self) -> u64 {
        self.hops
    }

    /// Adds a node. Its name must be unique, since random streams are named after it.
    pub fn add_node(&mut self, name: &str) -> Result<NodeId, Error> {
        if self.nodes.len() >= MAX_NODES as usize {
            return Err(Error::TooMany { what: "nodes", max: MAX_NODES.into() });
        }
        if !self.names.insert(name.into()) {
            return Err(Error::NameTaken(name.into()));
        }
        self.nodes.push(Node::new(name.into()));
        self.routes.invalidate();
        Ok(NodeId(self.nodes.len() as u32 - 1))
    }

    /// Sets whether a node forwards packets of other nodes, which is the default.
    pub fn set_forwarding(&mut self, node: NodeId, forwards: bool) -> Result<(), Error> {
        self.node_mut(node)?.forwards = forwards;
        Ok(())
    }

    /// Connects two nodes: an interface on each, and a link each way. Interfaces are named `a-b`, and
    /// `a-b-2` for the second between the same two nodes.
    pub fn connect(
        &mut self,
        a: NodeId,
        b: NodeId,
        there: LinkConfig,
        back: LinkConfig,
    ) -> Result<(InterfaceId, InterfaceId), Error> {
        let (first, second) = (self.interfaces.len() as u32, self.interfaces.len() as u32 + 1);
        let out = self.interface(a, b, second, there)?;
        let home = self.interface(b, a, first, back)?;
        self.interfaces.extend([out, home]);
        self.nodes[a.0 as usize].interfaces.push(first);
        self.nodes[b.0 as usize].interfaces.push(second);
        self.routes.invalidate();
        Ok((InterfaceId(first), InterfaceId(second)))
    }

    fn interface(
        &self,
        from: NodeId,
        to: NodeId,
        peer: u32,
        config: LinkConfig,
    ) -> Result<Interface, Error> {
        let (node, peer_node) = (self.node(from)?, self.node(to)?);
        // Both ends have as many links to each other, so the end with fewer links is searched.
        let (few, other) = match node.interfaces.len() <= peer_node.interfaces.len() {
            true => (node, to),
            false => (peer_node, from),
        };
        let same = |&&i: &&u32| self.interfaces[i as usize].peer_node == other.0;
        let others = few.interfaces.iter().filter(same).count();
        let mut name = format!("{}-{}", node.name, peer_node.name);
        if others > 0 {
            name.push_str(&format!("-{}", others + 1));
        }
        let link = Link::new(config, &name, &self.streams, self.now)
            .map_err(|error| Error::Link { link: name.clone(), error })?;
        Ok(Interface {
            node: from.0,
            name,
            addresses: Vec::new(),
            link,
            peer,
            peer_node: to.0,
            cost: 1,
            wake: NEVER,
            counters: Counters::default(),
            flight: RingQueue::default(),
        })
    }

    /// Adds an address to an interface, which may have several.
    pub fn add_address(&mut self, interface: InterfaceId, address: IpAddr) -> Result<(), Error> {
        self.check_interface(interface)?;
        if self.addresses.contains_key(&address) {
            return Err(Error::AddressTaken(address));
        }
        self.addresses.insert(address, self.address_table.len() as u32);
        self.address_table.push((address, interface.0));
        self.interfaces[interface.0 as usize].addresses.push(address);
        self.routes.invalidate();
        Ok(())
    }

    /// Routes packets at `node` to the network `network`/`prefix` out of `interface`. The longest
    /// prefix wins, and any wins over a computed route; prefix 0 is the default route.
    pub fn add_route(
        &mut self,
        node: NodeId,
        network: IpAddr,
        prefix: u8,
        interface: InterfaceId,
    ) -> Result<(), Error> {
        self.check_interface(interface)?;
        if self.interfaces[interface.0 as usize].node != node.0 {
            return Err(Error::Unknown { what: "interface of that node", index: interface.0 });
        }
        self.routes.add(node.0, (network, prefix, interface.0));
        Ok(())
    }

    /// Sets whether shortest paths are computed, which is the default.
    pub fn set_computed_routes(&mut self, computed: bool) {
        self.routes.set_computed(computed);
    }

    /// Sets the cost of a path out of `interface`, by default 1.
    pub fn set_cost(&mut self, interface: InterfaceId, cost: u32) -> Result<(), Error> {
        self.check_interface(interface)?;
        self.interfaces[interface.0 as usize].cost = cost;
        self.routes.invalidate();
        Ok(())
    }

    /// Attaches an endpoint to a node. It is polled at once when the world runs.
    pub fn attach(
        &mut self,
        node: NodeId,
        bind: Bind,
        endpoint: impl Plug,
    ) -> Result<EndpointId, Error> {
        let index = self.endpoints.len() as u32;
        self.node_mut(node)?.bind(bind, index)?;
        let plug = Box::new(endpoint);
        self.endpoints.push(Plugged { node: node.0, plug, timer: NEVER, path: None });
        // Not before the world runs: its packets may need nodes that are not added yet.
        self.ask_at(index, self.now);
        Ok(EndpointId(index))
    }

    /// Returns an endpoint, if it is a `T`.
    pub fn endpoint<T: Plug>(&self, id: EndpointId) -> Option<&T> {
        let plug: &dyn Any = self.endpoints.get(id.0 as usize)?.plug.as_ref();
        plug.downcast_ref()
    }

    /// Calls a function with an endpoint that is a `T`, at the present time, and then polls the
    /// endpoint. Returns `None` if it is no `T`.
    pub fn with_endpoint<T: Plug, R>(
        &mut self,
        id: EndpointId,
        act: impl FnOnce(&mut T, Time) -> R,
    ) -> Result<Option<R>, Error> {
        let now = self.now;
        let Some(plugged) = self.endpoints.get_mut(id.0 as usize) else {
            return Err(Error::Unknown { what: "endpoint", index: id.0 });
        };
        let plug: &mut dyn Any = plugged.plug.as_mut();
        let Some(endpoint) = plug.downcast_mut() else { return Ok(None) };
        let result = act(endpoint, now);
        self.route();
        self.pump(id.0)?;
        Ok(Some(result))
    }

    /// Adds a recorder of every step of every packet from now on. Returns its number.
    pub fn add_recorder(&mut self, recorder: impl Recorder) -> usize {
        self.pool.fill_checksums();
        self.notifier.recorders.push(Box::new(recorder));
        self.notifier.recorders.len() - 1
    }

    /// Returns a recorder, if it is a `T`.
    pub fn recorder<T: Recorder>(&mut self, number: usize) -> Option<&mut T> {
        let recorder: &mut dyn Any = self.notifier.recorders.get_mut(number)?.as_mut();
        recorder.downcast_mut()
    }

    /// Removes a recorder, if it is a `T`. It is no longer notified.
    pub fn take_recorder<T: Recorder>(&mut self, number: usize) -> Option<T> {
        let entry = self.notifier.recorders.get_mut(number)?;
        let is_one = (entry.as_ref() as &dyn Any).is::<T>();
        let taken = is_one.then(|| std::mem::replace(entry, Box::new(DiscardRecorder)))?;
        let taken: Box<dyn Any> = taken;
        taken.downcast().ok().map(|recorder| *recorder)
    }

    /// Returns the link that leaves an interface.
    pub fn link(&self, interface: InterfaceId) -> Option<&Link> {
        self.interfaces.get(interface.0 as usize).map(|i| &i.link)
    }

    /// Changes the link that leaves an interface, now. `change` receives the present configuration.
    pub fn reconfigure(
        &mut self,
        interface: InterfaceId,
        change: impl FnOnce(&mut LinkConfig),
    ) -> Result<(), Error> {
        self.check_interface(interface)?;
        let now = self.now;
        let changed = self.with_link(interface.0, |link, wire| link.reconfigure(now, wire, change));
        changed.map_err(|error| {
            let link = self.interfaces[interface.0 as usize].name.clone();
            Error::Link { link, error }
        })?;
        self.set_wake(interface.0);
        Ok(())
    }

    /// Drops the packets that leave `interface` and that `rule` selects, at the link's position of
    /// loss. After the link, a packet's `queued` is the time when it was queued.
    pub fn lose_if(&mut self, interface: InterfaceId, rule: LossRule) -> Result<(), Error> {
        self.check_interface(interface)?;
        self.interfaces[interface.0 as usize].link.lose_if(rule);
        Ok(())
    }

    /// Returns the counters of an interface.
    pub fn counters(&self, interface: InterfaceId) -> Counters {
        self.interfaces.get(interface.0 as usize).map_or(Counters::default(), |i| i.counters)
    }

    /// Returns the name of a node by its index in records.
    pub fn node_name(&self, index: u32) -> Option<&str> {
        self.nodes.get(index as usize).map(|n| n.name.as_str())
    }

    /// Returns the name of an interface by its index in records.
    pub fn interface_name(&self, index: u32) -> Option<&str> {
        self.interfaces.get(index as usize).map(|i| i.name.as_str())
    }

    /// Returns the addresses of an interface.
    pub fn interface_addresses(&self, interface: InterfaceId) -> &[IpAddr] {
        self.interfaces.get(interface.0 as usize).map_or(&[], |i| &i.addresses)
    }

    /// Returns the locations of all packets: `sent + copied` is the sum of the other four.
    pub fn census(&self) -> Census {
        let counters = self.interfaces.iter().map(|i| i.counters);
        let by_links: u64 = counters.map(|c| c.dropped).sum();
        let waiting = self.interfaces.iter().map(|i| i.link.queue_len() as u64).sum();
        Census {
            copied: self.notifier.copied,
            dropped: self.census.dropped + by_links,
            waiting,
            on_the_way: self.pool.in_use() as u64 - waiting,
            ..self.census
        }
    }

    /// Advances time to `end`: every event due by then is processed.
    pub fn run_until(&mut self, end: Time) -> Result<(), Error> {
        let interrupt = Interrupt::current();
        interrupt.check()?;
        self.route();
        while let Some((at, event)) = self.events.pop(end) {
            self.now = at;
            self.happened += 1;
            if self.happened & interrupt::EVENTS == 0 {
                interrupt.check()?;
            }
            match event.unpack() {
                Event::First { link } => self.first(link)?,
                Event::Arrive { packet, link } => self.arrive(packet, link)?,
                Event::Loop { packet } => {
                    self.account(self.pool.get(packet).node)?;
                    self.deliver(packet)?;
                }
                Event::Wake { link } => {
                    self.account(self.interfaces[link as usize].node)?;
                    self.wake(link);
                }
                Event::Timer { endpoint } => self.timer(endpoint)?,
            }
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Counts an event against the budget.
    #[inline]
    fn account(&mut self, index: u32) -> Result<(), Error> {
        let at_instant = self.nodes[index as usize].count_event(self.now);
        if at_instant > self.budget.per_instant || self.happened > self.budget.events {
            return Err(self.over_budget(index));
        }
        Ok(())
    }

    #[cold]
    fn over_budget(&self, index: u32) -> Error {
        let node = &self.nodes[index as usize];
        if node.events_at_instant() > self.budget.per_instant {
            let (node, max) = (node.name.clone(), self.budget.per_instant);
            return Error::Spin { node, max, at: self.now };
        }
        let busiest = self.nodes.iter().max_by_key(|n| n.events());
        Error::Budget {
            max: self.budget.events,
            at: self.now,
            node: busiest.map_or_else(String::new, |n| n.name.clone()),
            took: busiest.map_or(0, Node::events),
        }
    }

    fn timer(&mut self, endpoint: u32) -> Result<(), Error> {
        self.account(self.endpoints[endpoint as usize].node)?;
        let plugged = &mut self.endpoints[endpoint as usize];
        if plugged.timer != self.now.as_nanos() {
            // It was set for another time since.
            return Ok(());
        }
        plugged.timer = NEVER;
        if plugged.plug.poll_timeout().is_some_and(|at| at <= self.now) {
            plugged.plug.handle_timeout(self.now);
        }
        self.pump(endpoint)
    }

    /// Sends an endpoint's packets, and sets its timer.
    fn pump(&mut self, index: u32) -> Result<(), Error> {
        let mut packets = 0;
        loop {
            let plug = &mut self.endpoints[index as usize].plug;
            let Some(addressing) = plug.poll_transmit(self.now, &mut self.scratch) else { break };
            let Some(packet) = self.pool.take() else {
                let max = MAX_PACKETS as u64;
                return Err(Error::TooMany { what: "packets at a time", max });
            };
            // The returned buffer is empty too, and about as long.
            std::mem::swap(&mut self.pool.get_mut(packet).payload, &mut self.scratch);
            packets += 1;
            if packets > self.budget.burst {
                let node = self.endpoints[index as usize].node as usize;
                let (node, max) = (self.nodes[node].name.clone(), self.budget.burst);
                return Err(Error::Flood { node, max, at: self.now });
            }
            self.send(index, packet, addressing);
        }
        self.scratch.clear();
        if let Some(at) = self.endpoints[index as usize].plug.poll_timeout() {
            self.ask_at(index, at);
        }
        Ok(())
    }

    /// Sets an endpoint's timer, unless it is set for an earlier time: then it is set again at that
    /// time.
    #[inline]
    fn ask_at(&mut self, endpoint: u32, at: Time) {
        let at = at.max(self.now);
        let plugged = &mut self.endpoints[endpoint as usize];
        if at.as_nanos() < plugged.timer {
            plugged.timer = at.as_nanos();
            let node = plugged.node;
            let order = self.order(node);
            self.events.push(at, order, Event::Timer { endpoint }.pack());
        }
    }

    /// Returns the order of the next event that a node requests.
    #[inline]
    fn order(&mut self, node: u32) -> Order {
        let requested = &mut self.nodes[node as usize].requested;
        *requested += 1;
        Order::new(node, *requested)
    }

    /// Sends a packet of an endpoint.
    fn send(&mut self, endpoint: u32, packet: u32, addressing: Addressing) {
        let plugged = &mut self.endpoints[endpoint as usize];
        let node = plugged.node;
        self.census.sent += 1;
        let held = self.pool.get_mut(packet);
        let size = held.payload.len() + headers::ip_header_len(&addressing);
        held.send(addressing, self.census.sent, self.now, size as u32);
        if !self.notifier.recorders.is_empty() {
            held.fill_checksum();
        }
        let ports = ports_of(&held.payload);
        let path = match &plugged.path {
            Some(path) if path.leads(&addressing, ports) => *path,
            _ => {
                let Addressing { source, destination, protocol, .. } = &addressing;
                held.flow = flow_hash(source, destination, *protocol, ports);
                let Some(path) = self.find_path(node, &addressing, ports) else {
                    return self.lose(packet, node, Reason::NoRoute);
                };
                self.endpoints[endpoint as usize].path = Some(path);
                path
            }
        };
        let held = self.pool.get_mut(packet);
        (held.flow, held.destination, held.node) = (path.flow, path.number, path.owner);
        if size > MAX_IP {
            return self.lose(packet, node, Reason::TooLong);
        }
        if path.owner == node {
            let order = self.order(node);
            return self.events.push(self.now, order, Event::Loop { packet }.pack());
        }
        match path.way {
            NONE => self.lose(packet, node, Reason::NoRoute),
            way => self.offer(packet, way),
        }
    }

    /// Finds the path of a flow of packets from its first node.
    #[inline(never)]
    fn find_path(&mut self, node: u32, addressing: &Addressing, ports: u32) -> Option<Path> {
        let number = *self.addresses.get(&addressing.destination)?;
        let owner = self.interfaces[self.address_table[number as usize].1 as usize].node;
        let way = if owner == node {
            NONE
        } else {
            self.first_hop(node, &addressing.source, number, owner)
        };
        let Addressing { source, destination, protocol, .. } = *addressing;
        let flow = flow_hash(&source, &destination, protocol, ports);
        Some(Path { source, destination, protocol, ports, flow, number, owner, way })
    }

    /// Returns the outgoing interface at the packet's first node. Where the source address is on one of
    /// several interfaces and a path leads on from there, it is that interface: a host with several
    /// addresses chooses its path by the source.
    fn first_hop(&mut self, node: u32, source: &IpAddr, number: u32, owner: u32) -> u32 {
        if self.nodes[node as usize].interfaces.len() > 1 {
            let chosen = self.addresses.get(source).map(|&n| self.address_table[n as usize].1);
            let chosen = chosen.filter(|&i| self.interfaces[i as usize].node == node);
            if let Some(way) = chosen {
                let next = self.interfaces[way as usize].peer_node;
                if next == owner {
                    return way;
                }
                let onward = self.next_hop(next, number);
                if onward != NONE && self.interfaces[onward as usize].peer_node != node {
                    return way;
                }
            }
        }
        self.next_hop(node, number)
    }

    /// Returns the outgoing interface at a node to an address by its number, or [`NONE`].
    #[inline]
    fn next_hop(&mut self, node: u32, number: u32) -> u32 {
        self.routes.next_hop(node, number, &self.interfaces, &self.address_table)
    }

    /// Updates the routes.
    fn route(&mut self) {
        if self.routes.update(self.nodes.len(), &self.interfaces, self.address_table.len()) {
            self.endpoints.iter_mut().for_each(|plugged| plugged.path = None);
        }
    }

    /// Calls a function with the link that leaves an interface.
    #[inline]
    fn with_link<R>(&mut self, index: u32, act: impl FnOnce(&mut Link, &mut Wire<'_>) -> R) -> R {
        let Interface { link, counters, flight, node, .. } = &mut self.interfaces[index as usize];
        let mut wire = Wire {
            events: &mut self.events,
            pool: &mut self.pool,
            requested: &mut self.nodes[*node as usize].requested,
            notifier: &mut self.notifier,
            flight,
            counters,
            node: *node,
            interface: index,
        };
        act(link, &mut wire)
    }

    /// Offers a packet to the link that leaves an interface.
    #[inline]
    fn offer(&mut self, packet: u32, way: u32) {
        let now = self.now;
        self.with_link(way, |link, wire| {
            wire.counters.offered += 1;
            let StoredPacket { size, flow, addressing, .. } = wire.pool.get(packet);
            let (size, flow, ecn) = (*size, *flow, addressing.ecn);
            link.offer(now, Packet { id: packet, size, flow, ecn, queued: now }, wire);
        });
        self.set_wake(way);
    }

    fn wake(&mut self, link: u32) {
        if self.interfaces[link as usize].wake != self.now.as_nanos() {
            return;
        }
        self.interfaces[link as usize].wake = NEVER;
        let now = self.now;
        self.with_link(link, |link, wire| link.poll(now, wire));
        self.set_wake(link);
    }

    /// Sets the time of a link's next poll.
    #[inline(always)]
    fn set_wake(&mut self, link: u32) {
        if let Some(at) = self.interfaces[link as usize].link.poll_timeout() {
            self.wake_at(link, at);
        }
    }

    fn wake_at(&mut self, link: u32, at: Time) {
        let at = at.max(self.now);
        let interface = &mut self.interfaces[link as usize];
        if at.as_nanos() < interface.wake {
            interface.wake = at.as_nanos();
            let node = interface.node;
            let order = self.order(node);
            self.events.push(at, order, Event::Wake { link }.pack());
        }
    }

    /// Handles the arrival of the first packet in flight, and adds the event of the next one.
    #[inline]
    fn first(&mut self, link: u32) -> Result<(), Error> {
        let flight = &mut self.interfaces[link as usize].flight;
        let Some(first) = flight.pop_front() else { return Ok(()) };
        if let Some(next) = flight.front() {
            self.events.push(next.arrives, next.order, Event::First { link }.pack());
        }
        self.arrive(first.packet, link)
    }

    /// Handles the arrival of a packet over a link.
    #[inline]
    fn arrive(&mut self, packet: u32, way: u32) -> Result<(), Error> {
        let now = self.now;
        let interface = &self.interfaces[way as usize];
        let (node, peer) = (interface.peer_node, interface.peer);
        let can_be_cut = interface.link.can_be_cut();
        self.account(node)?;
        if can_be_cut && self.is_cut(packet, way) {
            return Ok(());
        }
        self.hops += 1;
        let held = self.pool.get_mut(packet);
        let counters = &mut self.interfaces[peer as usize].counters;
        counters.received += 1;
        counters.received_bytes += u64::from(held.size);
        self.notifier.notify(now, Step::Receive, node, Some(peer), held);
        if held.node == node {
            return self.deliver(packet);
        }
        held.hops -= 1;
        let (hops, number) = (held.hops, held.destination);
        let forwards = self.nodes[node as usize].forwards;
        let next = if forwards { self.next_hop(node, number) } else { NONE };
        match next {
            NONE => self.lose(packet, node, Reason::NoRoute),
            _ if hops == 0 => self.lose(packet, node, Reason::HopLimit),
            next => self.offer(packet, next),
        }
        Ok(())
    }

    /// Returns whether a packet was lost in flight because its link went down; it is dropped then.
    fn is_cut(&mut self, packet: u32, way: u32) -> bool {
        let (now, held) = (self.now, self.pool.get(packet));
        let started = held.started;
        let gone = Packet::new(packet, held.size, held.flow, held.addressing.ecn);
        self.with_link(way, |link, wire| {
            let cut = link.is_cut(now, started, wire);
            if cut {
                wire.dropped(now, gone, DropReason::Cut);
            }
            cut
        })
    }

    /// Delivers a packet to its endpoint.
    #[inline]
    fn deliver(&mut self, packet: u32) -> Result<(), Error> {
        let held = self.pool.get_mut(packet);
        let node = held.node;
        let taker = self.nodes[node as usize].taker(held.addressing.protocol, &held.payload);
        let Some(endpoint) = taker else {
            self.lose(packet, node, Reason::NoEndpoint);
            return Ok(());
        };
        let plug = &mut self.endpoints[endpoint as usize].plug;
        // Mostly it is so already, and the addressing is copied in one piece.
        if held.addressing.offload == held.damaged {
            held.addressing.offload = !held.damaged;
        }
        plug.handle_packet(self.now, held.addressing, &held.payload);
        self.pool.release(packet);
        self.census.delivered += 1;
        self.pump(endpoint)
    }

    /// Drops a packet at a node.
    fn lose(&mut self, packet: u32, node: u32, reason: Reason) {
        self.census.dropped += 1;
        let held = self.pool.get(packet);
        self.notifier.notify(self.now, Step::Drop(reason), node, None, held);
        self.pool.release(packet);
    }

    fn node(&self, id: NodeId) -> Result<&Node, Error> {
        self.nodes.get(id.0 as usize).ok_or(Error::Unknown { what: "node", index: id.0 })
    }

    fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, Error> {
        self.nodes.get_mut(id.0 as usize).ok_or(Error::Unknown { what: "node", index: id.0 })
    }

    fn check_interface(&self, id: InterfaceId) -> Result<(), Error> {
        let known = (id.0 as usize) < self.interfaces.len();
        if known { Ok(()) } else { Err(Error::Unknown { what: "interface", index: id.0 }) }
    }
}

/// A recorder in the slot of a removed one.
struct DiscardRecorder;

impl Recorder for DiscardRecorder {
    fn record(&mut self, _: &crate::Record, _: &Addressing, _: &[u8]) {}
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now)
            .field("nodes", &self.nodes.len())
            .field("pending", &self.events.len())
            .field("census", &self.census())
            .finish_non_exhaustive()
    }
}

/// Returns the ports of a packet, which UDP, TCP and SCTP have in their first four bytes.
#[inline]
fn ports_of(payload: &[u8]) -> u32 {
    payload.first_chunk::<4>().map_or(0, |p| u32::from_be_bytes(*p))
}
