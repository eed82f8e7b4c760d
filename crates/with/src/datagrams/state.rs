//! What is known of the program's sockets, of the associations that carry their datagrams, and of the flows between the two.

use super::flow::{Carrier, Flow, read_proxy, read_stand_in};
use super::sockets::{Borrowed, ProgramSocket, ProgramSockets};
use super::translations::Translations;
use ringway_transport::Holdings;
use ringway_with_wire::address::unmapped;
use ringway_with_wire::datagrams::{Kind, carrying};
use ringway_with_wire::translation::{EVERY_SOCKET, Key};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

/// Flows at once, each with a proxy. The datagrams of one more travel by UDP.
const MAX_FLOWS: usize = 256;
/// Associations that peers have opened.
const MAX_ACCEPTED: usize = 256;
/// Time between two looks for sockets that the program has closed.
const SWEEP: Duration = Duration::from_secs(1);
/// Time for which an association without flows is kept: the program's next socket may use it.
const IDLE: Duration = Duration::from_secs(30);
/// Time for which a proxy's address is translated after its end: datagrams from it may wait in the program's socket.
pub(super) const RETIRED: Duration = Duration::from_secs(10);
/// Proxies that are kept so, each with a descriptor. The oldest makes room.
pub(super) const MAX_RETIRED: usize = 256;

/// A peer, and the address that the program has bound its socket to.
pub(super) type Route = (SocketAddr, Option<IpAddr>);

/// The association towards a peer.
pub(super) enum Stage {
    /// It is being opened, for these sockets.
    Opening(BTreeSet<u64>),
    Standing(Arc<Carrier>),
}

/// A flow with the sockets that it belongs to.
pub(super) struct Entry {
    pub(super) flow: Arc<Flow>,
    sockets: BTreeSet<u64>,
    reader: AbortHandle,
    /// What reads from the peer by UDP instead of sockets that are connected to the proxy.
    stand_ins: BTreeMap<u64, AbortHandle>,
}

/// All of it.
pub(super) struct State {
    pub(super) translations: Translations,
    pub(super) sockets: ProgramSockets,
    /// Associations that were opened here.
    pub(super) routes: BTreeMap<Route, Stage>,
    /// All associations, by their numbers.
    pub(super) carriers: BTreeMap<u64, Arc<Carrier>>,
    /// The flows, by the association's number and the port of the end that has opened it.
    pub(super) flows: BTreeMap<(u64, u16), Entry>,
    pub(super) listeners: BTreeMap<SocketAddr, Vec<AbortHandle>>,
    last_sweep: Instant,
    flow_room: Holdings,
    carrier_room: Holdings,
    /// The proxies of flows that have ended. Nobody else gets their ports while the program may still have their addresses.
    retired: VecDeque<(Instant, SocketAddr, Arc<UdpSocket>)>,
    carried: u64,
}

impl State {
    pub(super) fn new() -> io::Result<State> {
        Ok(State {
            translations: Translations::new()?,
            sockets: ProgramSockets::default(),
            routes: BTreeMap::new(),
            carriers: BTreeMap::new(),
            flows: BTreeMap::new(),
            listeners: BTreeMap::new(),
            last_sweep: Instant::now(),
            flow_room: Holdings::new(MAX_FLOWS),
            carrier_room: Holdings::new(MAX_ACCEPTED),
            retired: VecDeque::new(),
            carried: 0,
        })
    }

    /// Returns the number of the next association.
    pub(super) fn next_number(&mut self) -> u64 {
        self.carried += 1;
        self.carried
    }

    /// Adds an association. Returns `false` if its peer has opened too many.
    pub(super) fn add(&mut self, carrier: &Arc<Carrier>) -> bool {
        if carrier.route.is_none() && !self.carrier_room.take(carrier.link.peer.ip()) {
            return false;
        }
        self.carriers.insert(carrier.number, carrier.clone());
        true
    }

    /// Drops an association that has ended, with its flows.
    pub(super) fn remove(&mut self, carrier: &Carrier) {
        let flows = self.flows.range((carrier.number, 0)..=(carrier.number, u16::MAX));
        let ports: Vec<u16> = flows.map(|((_, port), _)| *port).collect();
        for port in ports {
            self.close(carrier.number, port, false);
        }
        if self.carriers.remove(&carrier.number).is_none() {
            return;
        }
        if carrier.route.is_none() {
            self.carrier_room.release(carrier.link.peer.ip());
        }
        self.leave_route(carrier);
    }

    /// Opens a flow between an association and sockets of the program, or adds these to the one that there is.
    ///
    /// # Errors
    /// There is no room, or a socket that is connected to the peer cannot be connected anew.
    pub(super) fn open(
        &mut self,
        carrier: &Arc<Carrier>,
        port: u16,
        sockets: &[(u64, ProgramSocket)],
    ) -> io::Result<()> {
        let key = (carrier.number, port);
        let flow = match self.flows.get(&key) {
            Some(entry) => entry.flow.clone(),
            None => {
                if !self.take_room(carrier) {
                    return Err(io::ErrorKind::QuotaExceeded.into());
                }
                match Flow::new(carrier, port) {
                    Ok(flow) => Arc::new(flow),
                    Err(error) => {
                        self.release_room(carrier);
                        return Err(error);
                    }
                }
            }
        };
        let is_new = !self.flows.contains_key(&key);
        if is_new {
            let reverse = Key { socket: EVERY_SOCKET, address: flow.at };
            self.translations.set(reverse, Some(flow.peer));
            let reader = tokio::spawn(read_proxy(flow.clone())).abort_handle();
            let (flow, sockets, stand_ins) = (flow.clone(), BTreeSet::new(), BTreeMap::new());
            let entry = Entry { flow, sockets, reader, stand_ins };
            self.flows.insert(key, entry);
            if carrier.route.is_some() {
                carrier.link.report(Kind::Open, port);
            }
        }
        let joined = self.join(key, &flow, sockets);
        if joined.is_err() && is_new {
            self.close(key.0, key.1, false);
        }
        joined
    }

    /// Has sockets send to the proxy of a flow, and receive from it.
    fn join(
        &mut self,
        key: (u64, u16),
        flow: &Arc<Flow>,
        sockets: &[(u64, ProgramSocket)],
    ) -> io::Result<()> {
        for (inode, socket) in sockets {
            let Some(entry) = self.flows.get_mut(&key) else { continue };
            let row = Key { socket: *inode, address: flow.peer };
            // One that was there before may have been connected since.
            let is_known = !entry.sockets.insert(*inode);
            if is_known && socket.connected.is_none() && self.translations.has(&row) {
                continue;
            }
            if socket.connected == Some(flow.peer) && !flow.is_confirmed() {
                continue;
            }
            flow.take_from(unmapped(socket.local).ip());
            if !self.translations.set(row, Some(flow.at)) {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            if socket.connected == Some(flow.peer) {
                let borrowed = Borrowed::connected_to(*inode, socket.owner, flow.peer)?;
                flow.deliver_to(unmapped(borrowed.local()?).ip());
                // Without it, what the peer has sent by UDP just now is lost.
                let stand_in = borrowed.stand_in().ok();
                borrowed.connect(flow.at)?;
                if let Some(stand_in) = stand_in
                    && let Some(entry) = self.flows.get_mut(&key)
                {
                    let reader = tokio::spawn(read_stand_in(stand_in, flow.clone()));
                    entry.stand_ins.insert(*inode, reader.abort_handle());
                }
            }
        }
        Ok(())
    }

    /// Takes note that the peer has confirmed a flow: sockets that are connected to it may use it.
    pub(super) fn confirm(&mut self, key: (u64, u16)) {
        let Some(entry) = self.flows.get(&key) else { return };
        let flow = entry.flow.clone();
        if !flow.confirm() {
            return;
        }
        let known = |inode: &u64| Some((*inode, self.sockets.get(*inode)?.clone()));
        let sockets: Vec<_> = entry.sockets.iter().filter_map(known).collect();
        if self.join(key, &flow, &sockets).is_err() {
            self.close(key.0, key.1, true);
        }
    }

    /// Adds a socket to the flows of its local address that peers have opened. One that is connected to its peer once more is
    /// connected to the proxy once more.
    pub(super) fn adopt(&mut self, inode: u64, socket: &ProgramSocket) {
        let flows = self.flows.values().filter(|entry| {
            let Flow { carrier, peer, .. } = &*entry.flow;
            let at = SocketAddr::new(carrier.link.local.ip(), carrier.port);
            let found = self.sockets.at(at, *peer);
            carrier.route.is_none() && found.iter().any(|(other, _)| *other == inode)
                || socket.connected == Some(*peer) && entry.sockets.contains(&inode)
        });
        let flows: Vec<_> = flows.map(|entry| entry.flow.clone()).collect();
        for flow in flows {
            let (number, port) = flow.key();
            // One that cannot be connected to the proxy would receive nothing more.
            if self.join((number, port), &flow, &[(inode, socket.clone())]).is_err() {
                self.close(number, port, true);
            }
        }
    }

    /// Ends a flow: what the program sends to the peer travels by UDP then.
    pub(super) fn close(&mut self, number: u64, port: u16, reports: bool) {
        let Some(entry) = self.flows.remove(&(number, port)) else { return };
        let Entry { flow, sockets, reader, stand_ins } = entry;
        for inode in sockets {
            let key = Key { socket: inode, address: flow.peer };
            // Both ends may have opened an association at once.
            let mut others = self
                .flows
                .values()
                .filter(|entry| entry.flow.peer == flow.peer && entry.sockets.contains(&inode));
            let other = others.next().map(|entry| entry.flow.at);
            if other.is_some() || flow.carrier.route.is_some() {
                // A socket that has begun is asked about again.
                self.translations.set(key, other);
            } else {
                self.translations.remove(&key);
            }
            if let Some(socket) = self.sockets.get(inode) {
                socket.connect_to_peer(inode, &flow);
            }
        }
        reader.abort();
        stand_ins.values().for_each(AbortHandle::abort);
        if reports {
            flow.carrier.link.report(Kind::Close, port);
        }
        self.release_room(&flow.carrier);
        self.retired.push_back((Instant::now(), flow.at, flow.proxy.clone()));
        if self.retired.len() > MAX_RETIRED {
            self.release_oldest();
        }
        if self.flows.range((number, 0)..=(number, u16::MAX)).next().is_none() {
            flow.carrier.is_idle_now();
        }
    }

    /// Drops the proxy that has been kept for the longest time after its end.
    fn release_oldest(&mut self) {
        if let Some((_, at, _)) = self.retired.pop_front() {
            self.translations.remove(&Key { socket: EVERY_SOCKET, address: at });
        }
    }

    /// Returns how many proxies are kept after their end.
    #[cfg(test)]
    pub(super) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Returns whether it is time to look for sockets that the program has closed.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.last_sweep) >= SWEEP;
        if due {
            self.last_sweep = now;
        }
        due
    }

    /// Takes note that a socket is not connected any more. Its flows are of the port that it had, which one that the program
    /// has bound may have still.
    pub(super) fn disconnect(&mut self, inode: u64, local: SocketAddr) {
        let Some(mut socket) = self.sockets.get(inode).cloned() else { return };
        let stays = socket.bound.is_some() && socket.local.port() == local.port();
        if !stays {
            self.sockets.remove(inode);
            self.drop_socket(inode);
            self.close_empty();
        }
        if socket.bound.is_none() {
            return;
        }
        (socket.local, socket.connected) = (local, None);
        self.sockets.set(inode, socket.clone());
        for entry in self.flows.values_mut().filter(|entry| entry.sockets.contains(&inode)) {
            entry.flow.take_from(unmapped(local).ip());
            if let Some(stand_in) = entry.stand_ins.remove(&inode) {
                stand_in.abort();
            }
        }
        self.adopt(inode, &socket);
    }

    /// Drops a socket that the program has closed.
    fn drop_socket(&mut self, inode: u64) {
        self.translations.remove_socket(inode);
        for entry in self.flows.values_mut() {
            if !entry.sockets.remove(&inode) {
                continue;
            }
            if let Some(stand_in) = entry.stand_ins.remove(&inode) {
                stand_in.abort();
            }
            // If it exists all the same, it goes on by UDP.
            if let Some(socket) = self.sockets.get(inode) {
                socket.connect_to_peer(inode, &entry.flow);
            }
        }
        self.sockets.remove(inode);
    }

    /// Ends the flows without sockets.
    fn close_empty(&mut self) {
        let empty = self.flows.iter().filter(|(_, entry)| entry.sockets.is_empty());
        let empty: Vec<(u64, u16)> = empty.map(|(key, _)| *key).collect();
        for (number, port) in empty {
            self.close(number, port, true);
        }
    }

    /// Has flows leave addresses that this host does not have any more.
    fn follow_addresses(&mut self) {
        let flows = self.flows.values().filter(|entry| !entry.flow.follow_address());
        let lost: Vec<(u64, u16)> = flows.map(|entry| entry.flow.key()).collect();
        for (number, port) in lost {
            self.close(number, port, true);
        }
    }

    /// Drops sockets that the program has closed, and flows without any. Returns listeners that nobody has any more.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<AbortHandle> {
        for inode in self.sockets.gone() {
            self.drop_socket(inode);
        }
        self.close_empty();
        self.follow_addresses();
        while let Some((since, ..)) = self.retired.front()
            && now.saturating_duration_since(*since) >= RETIRED
        {
            self.release_oldest();
        }
        let sockets = &self.sockets;
        let over = self.listeners.keys().filter(|at| !sockets.is_bound_at(**at));
        let over: Vec<SocketAddr> = over.copied().collect();
        over.iter().filter_map(|at| self.listeners.remove(at)).flatten().collect()
    }

    /// Takes the listeners whose port of SCTP in UDP is that of an address. The next sweep looks whether they can listen again.
    pub(super) fn release_port(&mut self, wanted: SocketAddr) -> Vec<AbortHandle> {
        let meets =
            |ip: IpAddr| ip == wanted.ip() || ip.is_unspecified() || wanted.ip().is_unspecified();
        let listeners = self.listeners.iter_mut();
        let held =
            listeners.filter(|(at, _)| at.port() == carrying(wanted.port()) && meets(at.ip()));
        held.flat_map(|(_, tasks)| std::mem::take(tasks)).collect()
    }

    /// Returns associations that have had no flows for a while. Nothing that begins uses them any more.
    pub(super) fn take_idle(&mut self, now: Instant) -> Vec<Arc<Carrier>> {
        let is_idle = |carrier: &&Arc<Carrier>| {
            let flows = self.flows.range((carrier.number, 0)..=(carrier.number, u16::MAX));
            // The end that has opened it uses it for what begins, and so ends it first.
            let limit = if carrier.route.is_some() { IDLE } else { 2 * IDLE };
            flows.count() == 0 && now.saturating_duration_since(carrier.idle_since()) >= limit
        };
        let idle: Vec<_> = self.carriers.values().filter(is_idle).cloned().collect();
        idle.iter().for_each(|carrier| self.leave_route(carrier));
        idle
    }

    /// Has what begins for the peer of an association open another one.
    fn leave_route(&mut self, carrier: &Carrier) {
        if let Some(route) = carrier.route
            && let Some(Stage::Standing(standing)) = self.routes.get(&route)
            && standing.number == carrier.number
        {
            self.routes.remove(&route);
        }
    }

    fn take_room(&mut self, carrier: &Carrier) -> bool {
        match carrier.route {
            Some(_) => self.flow_room.take_local(),
            None => self.flow_room.take(carrier.link.peer.ip()),
        }
    }

    fn release_room(&mut self, carrier: &Carrier) {
        match carrier.route {
            Some(_) => self.flow_room.release_local(),
            None => self.flow_room.release(carrier.link.peer.ip()),
        }
    }
}
