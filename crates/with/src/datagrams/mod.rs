//! The program's sockets of UDP.
//!
//! They stay sockets of the kernel, and what they send to peers without SCTP travels as ever. For a peer whose datagrams
//! travel by SCTP there is a proxy, a socket of UDP on the loopback interface: the library shows it to the program as the
//! peer (`translations`), and connected sockets are connected to it instead (`sockets`). What comes to the proxy is a message
//! of the association, and what comes from the peer is sent by the proxy (`flow`).
//!
//! An association is opened by the side that sends first. That side names the port of its socket in each message, so that
//! the other one shows the same address as by UDP. Until an association stands, and after it has ended, datagrams travel by
//! UDP, so that nothing waits.

mod flow;
mod sockets;
mod state;
#[cfg(test)]
mod tests;
mod translations;

use crate::lines::Lines;
use crate::locking::lock;
use crate::network::{LinkListener, Network};
use bytes::Bytes;
use flow::Carrier;
use ringway_with_wire::address::unmapped;
use ringway_with_wire::datagrams::{Kind, carrying};
use ringway_with_wire::request::{Datagrams as Report, Usage};
use ringway_with_wire::translation::Key;
use state::{Route, Stage, State};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, JoinSet};

/// Associations that are being opened at once. What is sent to other peers meanwhile travels by UDP.
const MAX_OPENING: usize = 64;
/// Time for the datagrams of a program that has ended to arrive.
const END: Duration = Duration::from_secs(2);

/// The sockets of UDP of one program, and what carries their datagrams.
pub(crate) struct Datagrams {
    network: Arc<Network>,
    /// Takes explanations, if they are wanted.
    lines: Option<Lines>,
    state: Mutex<State>,
}

impl Datagrams {
    /// Creates it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(network: Arc<Network>, lines: Option<Lines>) -> io::Result<Datagrams> {
        Ok(Datagrams { network, lines, state: Mutex::new(State::new()?) })
    }

    fn explain(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.lines {
            lines(&line());
        }
    }

    /// Returns the descriptor of the table that the library translates addresses by.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn translations(&self) -> io::Result<OwnedFd> {
        lock(&self.state).translations.readable().try_clone_to_owned()
    }

    /// Takes note of what a process does with a socket. Returns the error of what cannot be noted.
    pub(crate) fn report(self: &Arc<Datagrams>, report: &Report, process: i32) -> Result<(), i32> {
        let &Report { inode, descriptor, local, usage } = report;
        let mut state = lock(&self.state);
        match usage {
            Usage::Disconnected => {
                state.disconnect(inode, local);
                return Ok(());
            }
            Usage::Wants => return self.release_port(&mut state, unmapped(local)),
            _ if local.port() == 0 => return Err(libc::EINVAL),
            _ => {}
        }
        let owner = (process, descriptor);
        let socket = state.sockets.note(inode, local, owner).ok_or(libc::ENOBUFS)?;
        match usage {
            Usage::Bound => socket.bound = Some(unmapped(local).ip()),
            Usage::Sends(_) | Usage::Disconnected | Usage::Wants => {}
            Usage::Connected { peer, .. } => socket.connected = Some(unmapped(peer)),
        }
        let socket = socket.clone();
        match usage {
            Usage::Bound => {
                self.listen(&mut state, unmapped(local));
                state.adopt(inode, &socket);
            }
            Usage::Sends(peer) => self.send(&mut state, inode, unmapped(peer), false),
            Usage::Connected { peer, answers } => {
                state.adopt(inode, &socket);
                let key = Key { socket: inode, address: unmapped(peer) };
                if !answers && !state.translations.has(&key) {
                    self.send(&mut state, inode, unmapped(peer), true);
                }
            }
            Usage::Disconnected | Usage::Wants => {}
        }
        Ok(())
    }

    /// Releases a port of SCTP in UDP that the program needs itself. What it was used for goes on by UDP. The port is free soon
    /// after. Returns an error if it is none of these.
    fn release_port(&self, state: &mut State, wanted: SocketAddr) -> Result<(), i32> {
        let tasks = state.release_port(wanted);
        if tasks.is_empty() {
            return Err(libc::EADDRINUSE);
        }
        tasks.iter().for_each(AbortHandle::abort);
        let port = carrying(wanted.port());
        self.explain(|| format!("datagrams at port {port} by UDP: the program has {wanted}, too"));
        let at_port = |carrier: &&Arc<Carrier>| {
            carrier.route.is_none() && carrier.port == port && !carrier.link.is_over_ip()
        };
        let carriers: Vec<_> = state.carriers.values().filter(at_port).cloned().collect();
        for carrier in carriers {
            carrier.link.abort("the program needs the port");
            state.remove(&carrier);
        }
        Ok(())
    }

    /// Listens for the datagrams of a local address, if nothing does yet.
    fn listen(self: &Arc<Datagrams>, state: &mut State, local: SocketAddr) {
        let tried_before = match state.listeners.get(&local) {
            Some(tasks) if !tasks.is_empty() => return,
            tried => tried.is_some(),
        };
        let (listeners, failures) = self.network.listen_for_datagrams(local);
        for failure in failures.iter().filter(|_| !tried_before) {
            self.explain(|| format!("datagrams at {local} without {failure}"));
        }
        let accept =
            |listener| tokio::spawn(self.clone().accept(listener, local.port())).abort_handle();
        let tasks = listeners.into_iter().map(accept).collect();
        state.listeners.insert(local, tasks);
    }

    /// Accepts associations for the datagrams of a port.
    async fn accept(self: Arc<Datagrams>, listener: LinkListener, port: u16) {
        while let Ok(link) = listener.accept().await {
            let number = lock(&self.state).next_number();
            let carrier = Arc::new(Carrier::new(number, link, None, port));
            if lock(&self.state).add(&carrier) {
                tokio::spawn(self.clone().carry(carrier));
            } else {
                carrier.link.abort("no room for another association");
            }
        }
    }

    /// Sees to what a socket sends to a peer, as its first words or later.
    fn send(
        self: &Arc<Datagrams>,
        state: &mut State,
        inode: u64,
        peer: SocketAddr,
        is_fresh: bool,
    ) {
        let Some(socket) = state.sockets.get(inode) else { return };
        // Another thread may have asked before.
        if state.translations.has(&Key { socket: inode, address: peer }) {
            return;
        }
        let bound = socket.bound.filter(|ip| !ip.is_unspecified());
        // Until something stands it is sent UDP, without asking again.
        state.translations.set(Key { socket: inode, address: peer }, None);
        let route = (peer, bound);
        match state.routes.get_mut(&route) {
            Some(Stage::Opening(sockets)) => {
                sockets.insert(inode);
            }
            Some(Stage::Standing(carrier)) => {
                let carrier = carrier.clone();
                self.use_carrier(state, &carrier, inode, is_fresh);
            }
            None => {
                let opening = state.routes.values();
                let opening = opening.filter(|stage| matches!(stage, Stage::Opening(_))).count();
                let ways = (opening < MAX_OPENING).then(|| self.network.ways(peer)).flatten();
                let Some(ways) = ways else { return };
                state.routes.insert(route, Stage::Opening([inode].into()));
                let datagrams = self.clone();
                tokio::spawn(async move {
                    let opened = datagrams.network.open_link(ways, bound).await;
                    datagrams.opened(route, opened);
                });
            }
        }
    }

    /// Uses an association that was opened here, or goes on by UDP.
    fn opened(self: &Arc<Datagrams>, route: Route, opened: io::Result<crate::network::Link>) {
        let mut state = lock(&self.state);
        let Some(Stage::Opening(sockets)) = state.routes.remove(&route) else { return };
        let link = match opened {
            Ok(link) => link,
            Err(error) => {
                return self.explain(|| format!("datagrams to {} by UDP: {error}", route.0));
            }
        };
        let number = state.next_number();
        let carrier = Arc::new(Carrier::new(number, link, Some(route), route.0.port()));
        state.add(&carrier);
        state.routes.insert(route, Stage::Standing(carrier.clone()));
        self.explain(|| format!("{}: {}", carrier.title(), carrier.link.reason));
        tokio::spawn(self.clone().carry(carrier.clone()));
        for inode in sockets {
            self.use_carrier(&mut state, &carrier, inode, false);
        }
    }

    /// Has a socket's datagrams carried by an association that was opened here. One that has not said a word misses nothing
    /// that comes by UDP, and need not wait for the peer.
    fn use_carrier(&self, state: &mut State, carrier: &Arc<Carrier>, inode: u64, is_fresh: bool) {
        let Some(socket) = state.sockets.get(inode).cloned() else { return };
        let port = socket.local.port();
        if !carrier.believes(port) || carrier.has_refused(port) {
            return;
        }
        let opened = state.open(carrier, port, &[(inode, socket)]);
        if is_fresh && opened.is_ok() {
            state.confirm((carrier.number, port));
        }
        if let Err(error) = opened {
            let peer = carrier.route.map(|(peer, _)| peer);
            if let Some(address) = peer {
                state.translations.set(Key { socket: inode, address }, None);
                self.explain(|| format!("datagrams to {address} from port {port} by UDP: {error}"));
            }
        }
    }

    /// Carries what comes by an association, until it ends.
    async fn carry(self: Arc<Datagrams>, carrier: Arc<Carrier>) {
        let mut messages = Vec::new();
        while carrier.link.receive(&mut messages).await {
            for (kind, port, octets) in messages.drain(..) {
                self.take(&carrier, kind, port, &octets);
            }
        }
        lock(&self.state).remove(&carrier);
        let (sent, received) = (&carrier.sent, &carrier.received);
        let (sent, received) = (sent.load(Ordering::Relaxed), received.load(Ordering::Relaxed));
        // One that has never had a flow was not reported.
        if carrier.route.is_some() || !carrier.is_first_flow() {
            self.explain(|| {
                let (title, seconds) = (carrier.title(), carrier.since.elapsed().as_secs_f64());
                format!("{title} have ended after {seconds:.1} s: {sent} sent, {received} received")
            });
        }
    }

    /// Takes a message.
    fn take(&self, carrier: &Arc<Carrier>, kind: Kind, port: u16, octets: &Bytes) {
        let key = (carrier.number, port);
        let mut state = lock(&self.state);
        if kind == Kind::Close {
            carrier.note_refusal(port);
            return state.close(key.0, key.1, false);
        }
        if !state.flows.contains_key(&key) && !self.begin(&mut state, carrier, port) {
            return carrier.link.report(Kind::Close, port);
        }
        state.confirm(key);
        if kind == Kind::Open {
            if carrier.route.is_none() {
                carrier.link.report(Kind::Open, port);
            }
            return;
        }
        let flow = state.flows.get(&key).map(|entry| entry.flow.clone());
        drop(state);
        if let Some(flow) = flow {
            carrier.received.fetch_add(1, Ordering::Relaxed);
            if !flow.deliver(octets) {
                lock(&self.state).close(key.0, key.1, true);
            }
        }
    }

    /// Opens a flow that the peer has begun. Returns `false` if nobody receives its datagrams here.
    fn begin(&self, state: &mut State, carrier: &Arc<Carrier>, port: u16) -> bool {
        if carrier.route.is_some() {
            return false;
        }
        let peer = SocketAddr::new(carrier.link.peer.ip(), port);
        let local = SocketAddr::new(carrier.link.local.ip(), carrier.port);
        let sockets = state.sockets.at(local, peer);
        let opened = if !carrier.believes(port) {
            Err(io::Error::other("a port below 1,024 is believed over IP only"))
        } else if sockets.is_empty() {
            Err(io::ErrorKind::ConnectionRefused.into())
        } else {
            state.open(carrier, port, &sockets)
        };
        match opened {
            Ok(()) if carrier.is_first_flow() => {
                self.explain(|| format!("{}: {}", carrier.title(), carrier.link.reason));
            }
            Ok(()) => {}
            Err(error) if carrier.is_first_refusal() => {
                self.explain(|| format!("datagrams from {peer} by UDP: {error}"));
            }
            Err(_) => {}
        }
        state.flows.contains_key(&(carrier.number, port))
    }

    /// Drops what belongs to sockets that the program has closed, and looks again at peers that are sent UDP.
    pub(crate) fn sweep(self: &Arc<Datagrams>) {
        let now = Instant::now();
        if lock(&self.state).is_due(now) {
            self.sweep_now(now);
        }
    }

    fn sweep_now(self: &Arc<Datagrams>, now: Instant) {
        let mut state = lock(&self.state);
        for task in state.sweep(now) {
            task.abort();
        }
        for key in state.translations.old(now) {
            self.send(&mut state, key.socket, key.address, false);
        }
        // What had the port may have ended.
        let unserved = state.listeners.iter().filter(|(_, tasks)| tasks.is_empty());
        let unserved: Vec<SocketAddr> = unserved.map(|(local, _)| *local).collect();
        for local in unserved {
            self.listen(&mut state, local);
        }
        for carrier in state.take_idle(now) {
            carrier.link.begin_end();
        }
    }

    /// Returns the number of sockets that the program has bound.
    pub(crate) fn sockets(&self) -> usize {
        lock(&self.state).sockets.bound()
    }

    /// Sends what is left and ends all associations. Processes that are left behind go on by UDP.
    pub(crate) async fn close(&self) {
        let carriers: Vec<_> = {
            let mut state = lock(&self.state);
            state.flows.values().for_each(|entry| entry.flow.drain());
            let keys: Vec<(u64, u16)> = state.flows.keys().copied().collect();
            keys.iter().for_each(|(number, port)| state.close(*number, *port, true));
            state.carriers.values().cloned().collect()
        };
        let mut ends = JoinSet::new();
        for carrier in carriers {
            ends.spawn(async move { carrier.link.end().await });
        }
        let all = async { while ends.join_next().await.is_some() {} };
        // What has not arrived by then is lost.
        let _ = tokio::time::timeout(END, all).await;
    }
}
