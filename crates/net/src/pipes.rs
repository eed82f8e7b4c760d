//! The sockets of a worker as the pipes of its flows.

use crate::handler::Handler;
use crate::mailbox::Mail;
use crate::sockets::Sockets;
use crate::stream;
use ringway_flow::{Mail as FlowMail, Open, Pipes};
use ringway_sansio::{FlowId, Outbox, Time, Transport};
use std::net::SocketAddr;
use std::task::Waker;

impl<H: Handler> Pipes for Sockets<H> {
    /// Of the connection's task.
    type Handle = Option<Waker>;

    fn open(&mut self, now: Time, id: FlowId, open: Open) -> Option<SocketAddr> {
        match open.transport {
            Transport::Tcp | Transport::Tls => stream::open(self, now, id, open),
            Transport::Sctp | Transport::TlsSctp => stream::sctp::open(self, now, id, open),
            _ => None,
        }
    }

    fn wake(&mut self, _: FlowId, handle: &Option<Waker>) {
        if let Some(waker) = handle {
            waker.wake_by_ref();
        }
    }

    fn send_datagrams(&mut self, now: Time, outbox: &Outbox, failed: &mut Vec<u64>) {
        Sockets::send_datagrams(self, now, outbox, failed);
    }

    fn post(&mut self, worker: u8, mail: FlowMail) -> Result<(), FlowMail> {
        let Some(mailbox) = self.shared().mailboxes.get(usize::from(worker)) else {
            return Err(mail);
        };
        mailbox.try_send(Mail::Flow(mail)).or_else(|unsent| match unsent {
            Mail::Flow(mail) => Err(mail),
            _ => Ok(()),
        })
    }

    fn opener(&mut self, now: Time, transport: Transport, remote: SocketAddr) -> Option<u8> {
        let is_sctp = matches!(transport, Transport::Sctp | Transport::TlsSctp);
        let listener = is_sctp.then(|| self.listener_for(now, transport, remote))??;
        self.listening().owner(listener)
    }

    fn rearm(&mut self, next: impl FnOnce() -> Option<Time>) {
        Sockets::rearm(self, next);
    }
}
