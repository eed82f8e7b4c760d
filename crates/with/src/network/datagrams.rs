//! Associations that carry datagrams, with the services that the user has named. A peer that has none is sent UDP, which
//! is no concern of this module.

use super::Network;
use super::below::{Below, addresses};
use super::sctp::{Associate, Associations, datagram_settings};
use crate::locking::lock;
use bytes::Bytes;
use ringway_sansio::Duration;
use ringway_sctp_tokio::{Association, Message, Reliability, SendOptions};
use ringway_services::endpoint::Remote;
use ringway_services::memory::Outcome;
use ringway_services::{Candidate, Protocol, RemoteEndpoint, Service};
use ringway_with_wire::datagrams::{Kind, NOTHING, carrying, is_usable};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Time after which a datagram is abandoned, unless reliability is asked for. A path that fails is left sooner.
const LIFETIME: Duration = Duration::from_millis(500);
/// Time of an attempt. The datagrams travel by UDP meanwhile.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Messages that are taken at once.
const MAX_TAKEN: usize = 64;

/// An association that carries datagrams.
pub(crate) struct Link {
    association: Association,
    below: Below,
    options: SendOptions,
    /// The local address and the peer's, with the ports of SCTP.
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// Why it is used.
    pub(crate) reason: String,
}

/// What a peer is to be reached by, best first.
pub(crate) struct Ways(Vec<(Candidate, String)>);

/// Accepts associations for the datagrams of a port.
pub(crate) struct LinkListener {
    associations: Associations,
    below: Below,
    options: SendOptions,
}

impl Network {
    /// Returns what is to be tried before UDP for datagrams to a peer. `None` if UDP is the best.
    pub(crate) fn ways(&self, peer: SocketAddr) -> Option<Ways> {
        let at = SocketAddr::new(peer.ip(), carrying(peer.port()));
        if !is_usable(at.port()) {
            return None;
        }
        let preconnection = self.services.datagrams_to(RemoteEndpoint::address(at));
        let host = self.towards(peer.ip(), self.datagram_host.clone());
        let now = self.clock.now();
        let mut memory = lock(&self.memory);
        memory.expire(now);
        let ranked = preconnection.candidates(now, &host, &memory).ok()?;
        let lines = &ranked.explanation;
        let reason = lines.chosen().map(ToString::to_string).unwrap_or_default();
        let better = ranked
            .candidates
            .iter()
            .take_while(|candidate| candidate.protocol != Protocol::Udp && !candidate.last_resort);
        let ways: Vec<_> = better.map(|candidate| (candidate.clone(), reason.clone())).collect();
        (!ways.is_empty()).then_some(Ways(ways))
    }

    /// Opens an association, from all addresses of this host or from the one that the program has bound. What a peer has
    /// refused is remembered.
    ///
    /// # Errors
    /// The peer has none of the ways; the error of the last one.
    pub(crate) async fn open_link(&self, ways: Ways, bound: Option<IpAddr>) -> io::Result<Link> {
        let mut error = io::Error::from(io::ErrorKind::InvalidInput);
        for (candidate, reason) in ways.0 {
            let Remote::Address(peer) = candidate.remote else { continue };
            let below = match candidate.protocol {
                Protocol::Sctp => Below::Ip,
                _ => Below::Udp,
            };
            let request = Associate {
                below,
                peer,
                encapsulation: peer.port(),
                bound: bound.map(|ip| SocketAddr::new(ip, 0)),
                several: candidate.provides.has(Service::Multihoming),
                settings: datagram_settings(),
            };
            let since = self.clock.now();
            let opened = tokio::time::timeout(ATTEMPT, self.stacks.associate(&request)).await;
            let opened = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let linked = opened.and_then(|association| {
                Link::new(association, below, self.datagram_options(), reason)
            });
            let now = self.clock.now();
            let outcome = match &linked {
                Ok(_) => Some(Outcome::Worked { rtt: now.since(since), address: peer.ip() }),
                // A peer that cannot be reached at all says nothing about a protocol.
                Err(error) if is_unreachable(error) => None,
                Err(_) => Some(Outcome::Failed),
            };
            if let Some(outcome) = outcome {
                lock(&self.memory).record(now, candidate.key, outcome);
            }
            match linked {
                Ok(link) => return Ok(link),
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    /// Listens for the datagrams of a port, by each protocol that has the services. Returns the listeners, and what those
    /// that do not listen have for a reason.
    pub(crate) fn listen_for_datagrams(
        &self,
        local: SocketAddr,
    ) -> (Vec<LinkListener>, Vec<String>) {
        let at = SocketAddr::new(local.ip(), carrying(local.port()));
        if !is_usable(at.port()) {
            return (Vec::new(), vec![format!("SCTP: its port {} is below 1,024", at.port())]);
        }
        let now = self.clock.now();
        let any = RemoteEndpoint::address(SocketAddr::new(local.ip(), local.port()));
        let preconnection = self.services.datagrams_to(any);
        let ranked = preconnection.listeners(now, &self.datagram_host);
        let (mut listeners, mut failures) = (Vec::new(), Vec::new());
        for candidate in ranked.map(|ranked| ranked.candidates).unwrap_or_default() {
            let below = match candidate.protocol {
                Protocol::SctpUdp => Below::Udp,
                Protocol::Sctp if !local.ip().is_loopback() => Below::Ip,
                _ => continue,
            };
            let settings = datagram_settings();
            let listen = |dual| self.stacks.listen_for(below, at, dual, at.port(), settings);
            // A wildcard of IPv6 includes IPv4, unless the program has a socket for that, too.
            match listen(true).or_else(|_| listen(false)) {
                Ok(associations) => {
                    let options = self.datagram_options();
                    listeners.push(LinkListener { associations, below, options });
                }
                Err(error) => failures.push(format!("{}: {error}", below.title())),
            }
        }
        (listeners, failures)
    }

    fn datagram_options(&self) -> SendOptions {
        let reliability = match self.services.wants(Service::Reliability) {
            true => Reliability::Full,
            false => Reliability::Lifetime(LIFETIME),
        };
        let unordered = !self.services.wants(Service::PreserveOrder);
        SendOptions { reliability, unordered, ..SendOptions::default() }
    }
}

impl LinkListener {
    /// Waits for the next association.
    ///
    /// # Errors
    /// No more will come.
    pub(crate) async fn accept(&self) -> io::Result<Link> {
        loop {
            let association = self.associations.next().await?;
            let reason = "the peer has chosen it".to_owned();
            // One that has ended again has no paths.
            if let Ok(link) = Link::new(association, self.below, self.options, reason) {
                return Ok(link);
            }
        }
    }
}

impl Link {
    fn new(
        association: Association,
        below: Below,
        options: SendOptions,
        reason: String,
    ) -> io::Result<Link> {
        let (local, peer) = addresses(&association)?;
        Ok(Link { association, below, options, local, peer, reason })
    }

    /// Returns how it travels, in words.
    pub(crate) fn title(&self) -> String {
        self.below.title_of(&self.association)
    }

    /// Returns whether the peer needs a right to open it.
    pub(crate) fn is_over_ip(&self) -> bool {
        self.below == Below::Ip
    }

    /// Sends a datagram of a port of the end that has opened the association. It is lost if there is no room.
    pub(crate) fn send(&self, port: u16, datagram: &[u8]) {
        match datagram {
            [] => self.queue(Kind::Empty.ppid(port), Bytes::from_static(NOTHING), self.options),
            _ => {
                let octets = Bytes::copy_from_slice(datagram);
                self.queue(Kind::Datagram.ppid(port), octets, self.options);
            }
        }
    }

    /// Reports that the datagrams of a port are carried from now on, or no more.
    pub(crate) fn report(&self, kind: Kind, port: u16) {
        let options = SendOptions { reliability: Reliability::Full, ..self.options };
        self.queue(kind.ppid(port), Bytes::from_static(NOTHING), options);
    }

    fn queue(&self, ppid: u32, octets: Bytes, options: SendOptions) {
        // What there is no room for is lost, as on any way of datagrams.
        let _ = self.association.try_send(octets, &SendOptions { ppid, ..options });
    }

    /// Waits for messages and appends them, at least one. Returns `false` once the association has ended.
    pub(crate) async fn receive(&self, out: &mut Vec<(Kind, u16, Bytes)>) -> bool {
        let mut messages = Vec::new();
        loop {
            match self.association.recv_many(&mut messages, MAX_TAKEN).await {
                Ok(0) | Err(_) => return false,
                Ok(_) => {}
            }
            for message in messages.drain(..) {
                match read(message) {
                    Ok(Some(read)) => out.push(read),
                    Ok(None) => {}
                    Err(violation) => {
                        // It has ended, if it cannot be aborted.
                        let _ = self.association.abort(violation.as_bytes());
                        return false;
                    }
                }
            }
            if !out.is_empty() {
                return true;
            }
        }
    }

    /// Ends the association once all that was sent has arrived.
    pub(crate) fn begin_end(&self) {
        self.association.begin_shutdown();
    }

    /// As [`Link::begin_end`], and waits for it.
    pub(crate) async fn end(&self) {
        // One that has failed has ended, too.
        let _ = self.association.shutdown().await;
    }

    /// Ends the association at once.
    pub(crate) fn abort(&self, reason: &str) {
        // It has ended, if it cannot be aborted.
        let _ = self.association.abort(reason.as_bytes());
    }
}

fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL)
    )
}

/// Reads a message: what it is, for which port, and its octets. One that the sender has abandoned halfway is lost.
fn read(message: Message) -> Result<Option<(Kind, u16, Bytes)>, String> {
    if message.cut {
        return Ok(None);
    }
    if !message.is_whole() {
        return Err("expected datagrams, got a message that is larger than one".to_owned());
    }
    match Kind::read(message.ppid) {
        Some((Kind::Datagram, port)) => Ok(Some((Kind::Datagram, port, message.bytes))),
        Some((kind, port)) => Ok(Some((kind, port, Bytes::new()))),
        None => {
            let got = message.ppid;
            Err(format!("expected the payload protocol identifier of a datagram, got {got:#x}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::Services;

    /// The port that stands for 16,437 is that of DNS, and a program that has the one need not have the right to the other.
    #[tokio::test]
    async fn sctp_keeps_away_from_ports_below_1024() {
        let services = Services::read(&["multihoming".to_owned()]).unwrap();
        let network = Network::new(services, true, None);
        // Over IP, too, where there is a right to it; the loopback addresses have SCTP in UDP only.
        for local in ["0.0.0.0:16437", "127.0.0.1:16437", "0.0.0.0:17407"] {
            let local: SocketAddr = local.parse().unwrap();
            let (listeners, failures) = network.listen_for_datagrams(local);
            assert!(listeners.is_empty());
            assert_eq!(
                failures,
                [format!("SCTP: its port {} is below 1,024", local.port() - 16_384)]
            );
        }
        for peer in ["127.0.0.1:16437", "192.0.2.1:16384", "192.0.2.1:17407"] {
            assert!(network.ways(peer.parse().unwrap()).is_none(), "{peer}");
        }
        assert!(network.ways("192.0.2.1:17408".parse().unwrap()).is_some());
    }

    #[tokio::test]
    async fn what_is_no_datagram_ends_the_association() {
        let services = Services::read(&["multihoming".to_owned()]).unwrap();
        let network = Network::new(services, true, None);
        let local = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (listeners, failures) = network.listen_for_datagrams(local);
        assert!(failures.is_empty(), "{failures:?}");
        let ways = network.ways(local).unwrap();
        let (near, far) = tokio::join!(network.open_link(ways, None), listeners[0].accept());
        let (near, far) = (near.unwrap(), far.unwrap());
        near.send(5060, b"a datagram");
        let mut messages = Vec::new();
        assert!(far.receive(&mut messages).await);
        assert_eq!(messages, [(Kind::Datagram, 5060, Bytes::from_static(b"a datagram"))]);
        near.queue(0, Bytes::from_static(b"no datagram"), near.options);
        assert!(!far.receive(&mut messages).await);
        assert!(!near.receive(&mut messages).await, "it was aborted");
    }
}
