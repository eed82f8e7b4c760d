//! From the program's messages to queues, datagrams and other workers.

use super::Flows;
use crate::connection::Connection;
use crate::fresh::is_fresh;
use crate::key::Key;
use crate::mail::{Carry, Mail, Report};
use crate::pipes::Pipes;
use ringway_sansio::{CloseReason, Flow, Program, Target, Transport};
use std::net::SocketAddr;
use std::sync::Arc;

/// The beginning of a response.
const RESPONSE: &[u8] = b"SIP/";

/// The peer that a message is for.
#[derive(Clone, Copy)]
struct To<'a> {
    transport: Transport,
    remote: SocketAddr,
    name: Option<&'a Arc<str>>,
}

impl To<'_> {
    fn target(&self) -> Target {
        let To { transport, remote, name } = *self;
        Target::Peer { transport, remote, name: name.cloned() }
    }
}

impl<P: Program, W: Pipes> Flows<P, W> {
    pub(super) fn send_outbox(&mut self) {
        let mut outbox = std::mem::take(&mut self.outbox);
        let mut datagrams = false;
        for (send, bytes) in outbox.iter() {
            if send.to.transport().is_datagram() {
                datagrams = true;
                continue;
            }
            let report = Report { worker: self.worker, number: send.report };
            self.send(&send.to, bytes, report, false);
        }
        for &flow in outbox.closes() {
            self.end_flushed(flow, CloseReason::Stopped);
        }
        if datagrams {
            self.pipes.send_datagrams(self.now, &outbox, &mut self.failed);
        }
        outbox.clear();
        self.outbox = outbox;
    }

    /// Sends what another worker handed over.
    pub(super) fn carried(&mut self, carry: &Carry) {
        for (target, bytes, report) in carry.iter() {
            self.send(target, bytes, report, true);
        }
    }

    fn send(&mut self, to: &Target, bytes: &[u8], report: Report, handed_over: bool) {
        match to {
            Target::Flow(flow) => self.send_on(flow, bytes, report),
            Target::Peer { transport, remote, name } => {
                let to = To { transport: *transport, remote: *remote, name: name.as_ref() };
                self.send_to(to, bytes, report, handed_over);
            }
        }
    }

    /// Queues a message on a connection of this worker, or hands it over to the worker that owns it.
    pub(super) fn send_on(&mut self, flow: &Flow, bytes: &[u8], report: Report) {
        if flow.id.worker() != self.worker {
            self.hand_over(flow.id.worker(), Target::Flow(*flow), bytes, report);
            return;
        }
        let limit = self.limits().write_queue;
        // An identifier that another server has drawn may be one of ours, with another peer.
        let is_it = |c: &&mut Connection<_>| c.takes_messages() && c.flow.remote == flow.remote;
        let Some(connection) = self.table.get_mut(flow.id).filter(is_it) else {
            self.not_sent(report);
            return;
        };
        // Half of the room is for what belongs to something begun.
        let fresh = is_fresh(bytes);
        let is_request = report.number != 0 && !bytes.starts_with(RESPONSE);
        let asked = is_request.then_some(self.now);
        if connection.queue.push(bytes, report, asked, if fresh { limit / 2 } else { limit }) {
            self.pipes.wake(flow.id, &connection.handle);
            return;
        }
        if !fresh {
            // Nobody waits for a slow reader.
            self.end(flow.id, CloseReason::SlowReader, None);
        }
        self.not_sent(report);
    }

    fn hand_over(&mut self, worker: u8, target: Target, bytes: &[u8], report: Report) {
        if !self.handover.push(worker, target, bytes, report) {
            self.not_sent(report);
        }
    }

    pub(super) fn post_handed_over(&mut self) {
        for worker in 0..self.handover.workers() {
            let Some(carry) = self.handover.take(worker) else { continue };
            let count = carry.len() as u64;
            // Below the number of workers, which an identifier of 8 bits bounds.
            match self.pipes.post(worker as u8, Mail::Carry(carry)) {
                Ok(()) => self.counters.sends_handed_over.add(count),
                Err(Mail::Carry(carry)) => {
                    carry.iter().for_each(|(_, _, report)| self.not_sent(report));
                }
                Err(_) => {}
            }
        }
    }

    /// Queues a message for a peer on a connection that is open to it, or on a new one. A message that was
    /// handed over already stays here, unless only another worker can open the connection.
    fn send_to(&mut self, to: To<'_>, bytes: &[u8], report: Report, handed_over: bool) {
        let To { transport, remote, name } = to;
        let key = Key::new(transport, remote, name);
        let opened = self.table.find(&key).and_then(|id| self.flow(id));
        if let Some(flow) = opened {
            self.send_on(&flow, bytes, report);
            return;
        }
        let known = self.common.directory().find(transport, remote, name.map(|n| &**n));
        if let Some(flow) = known {
            let ours = flow.id.worker() == self.worker;
            if !ours && !handed_over {
                // Its worker knows whether it is ending.
                self.hand_over(flow.id.worker(), to.target(), bytes, report);
                return;
            }
            // One that is ending takes nothing more; another is opened then (RFC 3261 section 18.2.2).
            if !ours || self.table.get(flow.id).is_some_and(|c| c.takes_messages()) {
                self.send_on(&flow, bytes, report);
                return;
            }
        }
        let opener = self.pipes.opener(self.now, transport, remote);
        if let Some(opener) = opener.filter(|opener| *opener != self.worker) {
            self.hand_over(opener, to.target(), bytes, report);
            return;
        }
        match self.open(key, transport, remote, name) {
            Some(flow) => self.send_on(&flow, bytes, report),
            None => self.not_sent(report),
        }
    }
}
