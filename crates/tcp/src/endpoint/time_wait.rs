//! Connections in TIME-WAIT: the minimum of state to answer for them, in a bounded table.

use crate::segment::{Flags, Header, Options, Timestamps};
use crate::seq::Seq;
use ringway_sansio::Time;
use ringway_transport::Key;
use std::net::SocketAddr;

const NIL: u32 = u32::MAX;

/// A connection that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) key: Key,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) snd_nxt: Seq,
    pub(super) rcv_nxt: Seq,
    pub(super) window: u16,
    /// The offset of the local clock and TS.Recent.
    pub(super) stamps: Option<(u32, u32)>,
    pub(super) until: Time,
}

impl Waiting {
    /// Returns the acknowledgment that answers a repeated FIN (RFC 9293 section 3.10.7.4).
    pub(super) fn acknowledgment(&self, now: Time) -> Header {
        let timestamps = self.stamps.map(|(offset, recent)| Timestamps {
            value: (now.as_millis() as u32).wrapping_add(offset),
            echo: recent,
        });
        Header {
            source: self.local.port(),
            destination: self.remote.port(),
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: Flags::ACK,
            window: self.window,
            options: Options { timestamps, ..Options::default() },
        }
    }
}

#[derive(Debug)]
struct Node {
    waiting: Waiting,
    before: u32,
    after: u32,
}

/// All connections in TIME-WAIT, in the order in which they end. All wait equally long, so that is the
/// order of their arrival, and a restarted one goes last.
#[derive(Debug)]
pub(super) struct TimeWait {
    nodes: Vec<Node>,
    free: Vec<u32>,
    first: u32,
    last: u32,
}

impl TimeWait {
    pub(super) fn new() -> Self {
        TimeWait { nodes: Vec::new(), free: Vec::new(), first: NIL, last: NIL }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    pub(super) fn get(&self, index: u32) -> &Waiting {
        &self.nodes[index as usize].waiting
    }

    /// Returns the one that ends first.
    pub(super) fn first(&self) -> Option<(u32, &Waiting)> {
        (self.first != NIL).then(|| (self.first, self.get(self.first)))
    }

    pub(super) fn insert(&mut self, waiting: Waiting) -> u32 {
        let node = Node { waiting, before: NIL, after: NIL };
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.link(index);
        index
    }

    pub(super) fn remove(&mut self, index: u32) -> Waiting {
        self.unlink(index);
        self.free.push(index);
        *self.get(index)
    }

    /// Restarts the wait of one (RFC 9293 section 3.10.7.4).
    pub(super) fn restart(&mut self, index: u32, until: Time) {
        self.unlink(index);
        self.nodes[index as usize].waiting.until = until;
        self.link(index);
    }

    fn link(&mut self, index: u32) {
        let last = self.last;
        let node = &mut self.nodes[index as usize];
        node.before = last;
        node.after = NIL;
        if last == NIL {
            self.first = index;
        } else {
            self.nodes[last as usize].after = index;
        }
        self.last = index;
    }

    fn unlink(&mut self, index: u32) {
        let Node { before, after, .. } = self.nodes[index as usize];
        if before == NIL {
            self.first = after;
        } else {
            self.nodes[before as usize].after = after;
        }
        if after == NIL {
            self.last = before;
        } else {
            self.nodes[after as usize].before = before;
        }
    }
}
