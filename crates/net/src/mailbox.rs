//! How other threads reach a worker: a bounded queue that never blocks its writer.

use crate::limits::MAILBOX;
use ringway_flow::{Counters, Mail as FlowMail};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// What travels to a worker.
pub(crate) enum Mail<P> {
    /// For the handler.
    Post(P),
    /// For its flows.
    Flow(FlowMail),
    /// An ICMP message about a datagram of this worker, which the kernel queued at another's socket.
    Refused(Box<Quoted>),
}

/// What an ICMP message says of a datagram.
pub(crate) struct Quoted {
    /// Where the datagram was going.
    pub(crate) to: SocketAddr,
    /// Its first bytes.
    pub(crate) bytes: Box<[u8]>,
}

/// The way to one worker from anywhere. Cheap to copy.
pub struct Mailbox<P> {
    sender: mpsc::Sender<Mail<P>>,
    counters: Arc<Counters>,
}

impl<P> Clone for Mailbox<P> {
    fn clone(&self) -> Self {
        Mailbox { sender: self.sender.clone(), counters: self.counters.clone() }
    }
}

impl<P> Mailbox<P> {
    /// Posts an item to the worker's handler. `false` when [`MAILBOX`] items wait already, or the
    /// worker has ended: the item is dropped and counted.
    pub fn try_post(&self, item: P) -> bool {
        self.try_send(Mail::Post(item)).is_ok()
    }

    pub(crate) fn try_send(&self, mail: Mail<P>) -> Result<(), Mail<P>> {
        self.sender.try_send(mail).map_err(|error| {
            self.counters.mailbox_full.add_shared(1);
            error.into_inner()
        })
    }
}

/// The worker's end.
pub(crate) struct Inbox<P>(mpsc::Receiver<Mail<P>>);

impl<P> Inbox<P> {
    /// Takes up to `most` items.
    pub(crate) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<Mail<P>>,
        most: usize,
    ) -> Poll<usize> {
        self.0.poll_recv_many(cx, into, most)
    }
}

/// A mailbox and its other end.
pub(crate) fn mailbox<P>(counters: Arc<Counters>) -> (Mailbox<P>, Inbox<P>) {
    let (sender, receiver) = mpsc::channel(MAILBOX);
    (Mailbox { sender, counters }, Inbox(receiver))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mailbox_refuses_and_counts() {
        let counters = Arc::new(Counters::default());
        let (mailbox, inbox) = mailbox(counters.clone());
        for n in 0..MAILBOX {
            assert!(mailbox.try_post(n));
        }
        assert!(!mailbox.try_post(0));
        assert_eq!(counters.mailbox_full.get(), 1);
        drop(inbox);
        assert!(!mailbox.try_post(0));
    }
}
