//! One datagram per message.

use super::{Carrier, CarrierEvent};
use crate::headers;
use ringway_sansio::{Addressing, Endpoint, Flow, FlowId, Target, Time, Transport};
use std::collections::VecDeque;
use std::net::SocketAddr;

pub(super) struct Udp {
    local: SocketAddr,
    came: VecDeque<(SocketAddr, Vec<u8>)>,
    waiting: VecDeque<(Addressing, Vec<u8>)>,
}

impl Udp {
    pub(super) fn new(local: SocketAddr) -> Self {
        Udp { local, came: VecDeque::new(), waiting: VecDeque::new() }
    }
}

impl Carrier for Udp {
    fn send(&mut self, _: Time, to: &Target, _: u64, bytes: &[u8]) -> bool {
        let mut packet = Vec::with_capacity(headers::UDP_HEADER + bytes.len());
        let fits = headers::UDP_HEADER + bytes.len() <= usize::from(u16::MAX);
        if fits {
            let addressing = headers::write_udp(&mut packet, self.local, to.remote(), bytes);
            self.waiting.push_back((addressing, packet));
        }
        fits
    }

    fn poll(&mut self, _: Time) -> Option<CarrierEvent> {
        let (remote, bytes) = self.came.pop_front()?;
        let (id, transport, local) = (FlowId::new(0, 0), Transport::Udp, self.local);
        Some(CarrierEvent::Message(Flow { id, transport, local, remote }, bytes))
    }

    fn retransmits(&self) -> u64 {
        0
    }
}

impl Endpoint for Udp {
    fn handle_packet(&mut self, _: Time, addressing: Addressing, payload: &[u8]) {
        if let Some((port, data)) = headers::read_udp(&addressing, payload) {
            self.came.push_back((SocketAddr::new(addressing.source, port), data.to_vec()));
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
