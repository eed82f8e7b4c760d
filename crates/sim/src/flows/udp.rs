//! One datagram per message.

use super::{Stack, Worker};
use crate::headers;
use ringway_flow::Open;
use ringway_sansio::{Addressing, Endpoint, Flow, FlowId, Program, Time, Transport};
use std::collections::VecDeque;
use std::net::SocketAddr;

pub(super) struct Udp {
    local: SocketAddr,
    received: VecDeque<(SocketAddr, Vec<u8>)>,
    waiting: VecDeque<(Addressing, Vec<u8>)>,
}

impl Udp {
    pub(super) fn new(local: SocketAddr) -> Self {
        Udp { local, received: VecDeque::new(), waiting: VecDeque::new() }
    }
}

impl Stack for Udp {
    fn open(&mut self, _: Time, _: FlowId, _: Open) -> bool {
        false
    }

    fn send(&mut self, remote: SocketAddr, bytes: &[u8]) {
        let mut packet = Vec::with_capacity(headers::UDP_HEADER + bytes.len());
        let addressing = headers::write_udp(&mut packet, self.local, remote, bytes);
        self.waiting.push_back((addressing, packet));
    }

    fn handle_events<P: Program>(&mut self, now: Time, workers: &mut [Worker<P>]) {
        let Some(worker) = workers.first_mut() else { return };
        while let Some((remote, bytes)) = self.received.pop_front() {
            let (id, transport, local) = (FlowId::new(0, 0), Transport::Udp, self.local);
            worker.datagram(now, &Flow { id, transport, local, remote }, &bytes);
            worker.flush(now);
        }
    }

    fn turn<P: Program>(&mut self, _: Time, _: FlowId, _: &mut Worker<P>) {}

    fn retransmits(&self) -> u64 {
        0
    }
}

impl Endpoint for Udp {
    fn handle_packet(&mut self, _: Time, addressing: Addressing, payload: &[u8]) {
        if let Some((port, data)) = headers::read_udp(&addressing, payload) {
            self.received.push_back((SocketAddr::new(addressing.source, port), data.to_vec()));
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_transmit(&mut self, _: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        let (addressing, packet) = self.waiting.pop_front()?;
        payload.extend_from_slice(&packet);
        Some(addressing)
    }
}
