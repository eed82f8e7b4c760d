//! What the flows of a virtual host ask of its transport.

use crate::headers;
use ringway_flow::{Mail, Open, Pipes};
use ringway_sansio::{FlowId, Outbox, Time, Transport};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Maximum number of bytes of a datagram.
const MAX_DATAGRAM: usize = u16::MAX as usize - headers::UDP_HEADER;

/// A request to the transport.
#[derive(Debug)]
pub(super) enum Request {
    /// To open a connection.
    Open(FlowId, Open),
    /// To give a connection its turn.
    Turn(FlowId),
    /// To pass an item to another worker.
    Mail(u8, Mail),
    /// To send a datagram.
    Datagram(SocketAddr, Vec<u8>),
}

/// The requests of one worker, in order.
#[derive(Debug)]
pub(super) struct Requests {
    transport: Transport,
    local: SocketAddr,
    workers: usize,
    queue: VecDeque<Request>,
}

impl Requests {
    pub(super) fn new(transport: Transport, local: SocketAddr, workers: usize) -> Self {
        Requests { transport, local, workers, queue: VecDeque::new() }
    }

    pub(super) fn next(&mut self) -> Option<Request> {
        self.queue.pop_front()
    }
}

impl Pipes for Requests {
    type Handle = ();

    fn open(&mut self, _: Time, id: FlowId, open: Open) -> Option<SocketAddr> {
        let fits = open.transport == self.transport && !self.transport.is_datagram();
        fits.then(|| self.queue.push_back(Request::Open(id, open)))?;
        Some(self.local)
    }

    fn wake(&mut self, id: FlowId, (): &()) {
        if !matches!(self.queue.back(), Some(Request::Turn(last)) if *last == id) {
            self.queue.push_back(Request::Turn(id));
        }
    }

    fn send_datagrams(&mut self, _: Time, outbox: &Outbox, failed: &mut Vec<u64>) {
        for (send, bytes) in outbox.iter().filter(|(send, _)| send.to.transport().is_datagram()) {
            if self.transport.is_datagram() && bytes.len() <= MAX_DATAGRAM {
                self.queue.push_back(Request::Datagram(send.to.remote(), bytes.to_vec()));
            } else {
                failed.push(send.report);
            }
        }
    }

    fn post(&mut self, worker: u8, mail: Mail) -> Result<(), Mail> {
        if usize::from(worker) >= self.workers {
            return Err(mail);
        }
        self.queue.push_back(Request::Mail(worker, mail));
        Ok(())
    }

    /// One worker has all associations, as it has in the real world: they share a socket.
    fn opener(&mut self, _: Time, transport: Transport, _: SocketAddr) -> Option<u8> {
        (transport == Transport::Sctp).then_some(0)
    }
}
