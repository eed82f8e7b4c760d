//! The UDP sockets of one worker, and the datagrams it has sent recently.

use super::outstanding::{Ledger, Outstanding};
use super::port::UdpPort;
use ringway_flow::Counters;
use ringway_os::{Datagram, LocalAddresses, SEND_BATCH, SendBatch};
use ringway_sansio::{FlowId, Outbox, Target, Time, Transport};
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Delay before datagrams are sent again for which the socket had no room.
const WAITING_RETRY: Duration = Duration::from_millis(1);

/// The route of a message that is not sent by a UDP socket.
const ELSEWHERE: u16 = u16::MAX;

/// The sender of a datagram that an ICMP message quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// This message of the worker was not delivered.
    Ours(u64),
    /// The datagram was another worker's.
    Other(u8),
    /// The quote matches no recent datagram: it is late, too short, or forged.
    Unknown,
}

/// The UDP sockets of one worker.
pub(crate) struct UdpPorts {
    /// By index of the listener; `None` for those that are not UDP.
    ports: Vec<Option<UdpPort>>,
    worker: u8,
    counters: Arc<Counters>,
    outstanding: Outstanding,
    ledger: Arc<Ledger>,
    /// For each message of the outbox the index of its listener, or [`ELSEWHERE`].
    routes: Vec<u16>,
    send_buffers: SendBatch,
}

impl UdpPorts {
    pub(crate) fn new(
        ports: Vec<Option<UdpPort>>,
        worker: u8,
        counters: Arc<Counters>,
        ledger: Arc<Ledger>,
    ) -> Self {
        let outstanding = Outstanding::new(ledger.clone(), worker);
        let (routes, send_buffers) = (Vec::new(), SendBatch::new());
        UdpPorts { ports, worker, counters, outstanding, ledger, routes, send_buffers }
    }

    /// Returns the number of listeners, those that are not UDP included.
    pub(crate) fn len(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&UdpPort> {
        self.ports.get(index)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut UdpPort> {
        self.ports.get_mut(index)?.as_mut()
    }

    /// Returns whether datagrams wait for room in a socket.
    pub(crate) fn has_waiting(&self) -> bool {
        self.ports.iter().flatten().any(UdpPort::has_waiting)
    }

    /// Returns the time at which waiting datagrams are sent again.
    pub(crate) fn retry_at(&self, now: Time) -> Option<Time> {
        self.has_waiting().then(|| now + WAITING_RETRY)
    }

    /// Sends the datagrams that wait for room. Appends the report numbers of those that failed.
    pub(crate) fn send_waiting(&mut self, failed: &mut Vec<u64>) {
        for port in self.ports.iter_mut().flatten() {
            let sent = port.send_waiting(&mut self.send_buffers, failed);
            self.counters.udp_sent.add(sent);
        }
    }

    /// Sends the datagrams of an outbox. Appends the report numbers of those that failed, zeros included.
    pub(crate) fn send(
        &mut self,
        now: Time,
        outbox: &Outbox,
        local: &mut LocalAddresses,
        failed: &mut Vec<u64>,
    ) {
        let mut routes = std::mem::take(&mut self.routes);
        let mut used: SmallVec<[u16; 8]> = SmallVec::new();
        routes.clear();
        for send in outbox.sends() {
            let route = match &send.to {
                Target::Flow(flow) if flow.transport.is_datagram() => self.port_of(flow.id),
                Target::Peer { transport: Transport::Udp, remote, .. } => {
                    let listener = local.choose(now, Transport::Udp, remote.ip());
                    listener.map_or(ELSEWHERE, |index| index as u16)
                }
                _ => ELSEWHERE,
            };
            if route == ELSEWHERE {
                if send.to.transport().is_datagram() {
                    self.counters.udp_not_sent.add(1);
                    failed.push(send.report);
                }
            } else if !used.contains(&route) {
                used.push(route);
            }
            routes.push(route);
        }
        for route in used {
            self.send_by(outbox, &routes, route, failed);
        }
        self.routes = routes;
    }

    /// Sends the datagrams of an outbox that use one socket.
    fn send_by(&mut self, outbox: &Outbox, routes: &[u16], route: u16, failed: &mut Vec<u64>) {
        let Some(Some(port)) = self.ports.get_mut(usize::from(route)) else { return };
        let mut batch: SmallVec<[Datagram<'_>; SEND_BATCH]> = SmallVec::new();
        let mut reports: SmallVec<[u64; SEND_BATCH]> = SmallVec::new();
        let mut mine = outbox.iter().zip(routes).filter(|(_, r)| **r == route).map(|(s, _)| s);
        loop {
            batch.clear();
            reports.clear();
            for (send, bytes) in mine.by_ref().take(SEND_BATCH) {
                let (to, from) = match &send.to {
                    Target::Flow(flow) => (flow.remote, port.source(flow.local)),
                    Target::Peer { remote, .. } => (*remote, None),
                };
                if send.report != 0 {
                    self.outstanding.insert(to, bytes, send.report);
                }
                batch.push(Datagram::new(bytes, to, from));
                reports.push(send.report);
            }
            if batch.is_empty() {
                return;
            }
            let before = failed.len();
            let sent = port.send(&mut self.send_buffers, &batch, &reports, failed);
            self.counters.udp_sent.add(sent.sent);
            if sent.waited > 0 {
                self.counters.udp_waited.add(sent.waited);
            }
            if failed.len() > before {
                self.counters.udp_not_sent.add((failed.len() - before) as u64);
            }
        }
    }

    /// Returns the index of a datagram flow's listener. All workers have the same listeners in the same
    /// order, so a flow of another worker can be used here too.
    fn port_of(&self, id: FlowId) -> u16 {
        let serial = FlowId::new(0, id.to_u64()).to_u64();
        let index = usize::try_from(serial).unwrap_or(usize::MAX);
        // Listeners are fewer than sockets of a process.
        self.get(index).map_or(ELSEWHERE, |_| index as u16)
    }

    /// Returns the sender of a datagram to `to` that ICMP reports as undeliverable and that begins with
    /// `quote`.
    pub(crate) fn refused(&mut self, to: SocketAddr, quote: &[u8]) -> Refused {
        if let Some(report) = self.outstanding.take(to, quote) {
            return Refused::Ours(report);
        }
        let owner = self.ledger.owner(quote).filter(|owner| *owner != self.worker);
        owner.map_or(Refused::Unknown, Refused::Other)
    }

    /// Returns the report number of this worker's datagram whose ICMP message another worker read.
    pub(crate) fn refused_elsewhere(&mut self, to: SocketAddr, quote: &[u8]) -> Option<u64> {
        self.outstanding.take(to, quote)
    }
}
