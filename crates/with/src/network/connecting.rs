//! Opening a connection: attempts over several protocols race, in the order of the services.

use super::below::Below;
use super::transport::{Connection, Transport};
use super::{ConnectError, Network, tcp};
use crate::locking::lock;
use ringway_sansio::{Duration, Time};
use ringway_services::endpoint::Remote;
use ringway_services::memory::Outcome;
use ringway_services::race::{Action, AttemptId, Settings};
use ringway_services::{Availability, Candidate, Protocol, Race, RemoteEndpoint, Service};
use ringway_with_wire::address::unmapped;
use socket2::Socket;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::task::{AbortHandle, JoinSet};

/// Time of an attempt, above that of the kernel's TCP (tcp(7), tcp_syn_retries), which so has the last word.
const ATTEMPT: Duration = Duration::from_secs(140);
/// A peer that has not answered after so many times what the winner took has not the protocol, rather than a slow path.
const SILENCE: u32 = 4;

/// What a connection is to be opened with.
pub(crate) struct Opening {
    /// The peer as the program has named it.
    pub(crate) peer: SocketAddr,
    /// A socket of TCP with the program's options, bound if the program has bound it.
    pub(crate) socket: Socket,
    /// The address that the program has bound.
    pub(crate) bound: Option<SocketAddr>,
}

/// A running attempt.
struct Attempt {
    task: AbortHandle,
    candidate: Candidate,
    since: Time,
}

impl Network {
    /// Opens a connection over the best protocol that the peer has.
    pub(crate) async fn connect(
        self: &Arc<Network>,
        opening: Opening,
    ) -> Result<Connection, ConnectError> {
        let peer = destination(opening.peer);
        let preconnection = self.services.to(RemoteEndpoint::address(peer));
        let host = self.towards(peer.ip(), self.host.clone());
        let ranked = {
            let mut memory = lock(&self.memory);
            memory.expire(self.clock.now());
            preconnection.candidates(self.clock.now(), &host, &memory)
        };
        let ranked = ranked.map_err(|unfit| ConnectError {
            errno: libc::EPROTONOSUPPORT,
            reason: unfit.to_string().replace('\n', " "),
        })?;
        let settings =
            Settings { attempt_timeout: ATTEMPT, timeout: ATTEMPT, ..Settings::default() };
        let race = Race::new(self.clock.now(), ranked, settings);
        self.race(race, opening).await
    }

    /// Returns what this host has for a peer, of what it has for any.
    pub(super) fn towards(&self, peer: IpAddr, host: Availability) -> Availability {
        let link_local = |ip: Ipv6Addr| ip.is_unicast_link_local();
        match peer {
            // A raw socket of this host keeps the kernel from refusing what nobody listens to.
            peer if peer.is_loopback() => {
                host.without(Protocol::Sctp, "on the loopback interface it travels in UDP")
            }
            IpAddr::V6(ip) if link_local(ip) => {
                let reason = "its addresses have no interface (RFC 4007)";
                host.without(Protocol::Sctp, reason).without(Protocol::SctpUdp, reason)
            }
            _ => host,
        }
    }

    async fn race(
        self: &Arc<Network>,
        mut race: Race,
        opening: Opening,
    ) -> Result<Connection, ConnectError> {
        let opening = Arc::new(opening);
        let mut tasks = JoinSet::new();
        let mut attempts: HashMap<AttemptId, Attempt> = HashMap::new();
        let mut done: HashMap<AttemptId, Connection> = HashMap::new();
        let mut errors: Vec<(Protocol, io::Error)> = Vec::new();
        loop {
            while let Some(action) = race.poll_action() {
                match action {
                    Action::Start(id, candidate) => {
                        let task = self.clone().attempt(id, candidate.clone(), opening.clone());
                        let (task, since) = (tasks.spawn(task), self.clock.now());
                        attempts.insert(id, Attempt { task, candidate, since });
                    }
                    Action::Cancel(id) => {
                        if let Some(attempt) = attempts.get(&id) {
                            attempt.task.abort();
                        }
                        done.remove(&id);
                    }
                    Action::Won(id) => {
                        if let Some(mut connection) = done.remove(&id) {
                            self.remember(&race, id, &attempts);
                            connection.reason = reason(&race);
                            return Ok(connection);
                        }
                    }
                    // Nothing is remembered: a peer that cannot be reached at all says nothing about a protocol.
                    Action::Lost(error) => {
                        let errno = errno(&errors);
                        return Err(ConnectError { errno, reason: error.to_string() });
                    }
                    // The peer is an address.
                    Action::Resolve(_) => {}
                }
            }
            let Some(timeout) = race.poll_timeout() else {
                let reason = "the attempts have ended without a result".to_owned();
                return Err(ConnectError { errno: libc::ETIMEDOUT, reason });
            };
            let timeout = tokio::time::sleep_until(self.clock.instant(timeout).into());
            tokio::select! {
                Some(joined) = tasks.join_next() => {
                    // A task that was aborted has nothing to report.
                    let Ok((id, result)) = joined else { continue };
                    match result {
                        Ok(connection) => {
                            done.insert(id, connection);
                            race.succeeded(self.clock.now(), id);
                        }
                        Err(error) => {
                            race.failed(self.clock.now(), id, &error.to_string());
                            if let Some(attempt) = attempts.get(&id) {
                                errors.push((attempt.candidate.protocol, error));
                            }
                        }
                    }
                }
                () = timeout => race.handle_timeout(self.clock.now()),
            }
        }
    }

    async fn attempt(
        self: Arc<Network>,
        id: AttemptId,
        candidate: Candidate,
        opening: Arc<Opening>,
    ) -> (AttemptId, io::Result<Connection>) {
        let Remote::Address(peer) = candidate.remote else {
            return (id, Err(io::ErrorKind::InvalidInput.into()));
        };
        let below = match candidate.protocol {
            Protocol::Sctp => Below::Ip,
            Protocol::SctpUdp => Below::Udp,
            _ => {
                // A socket of IPv6 connects to a mapped address.
                let connected = match opening.socket.try_clone() {
                    Ok(socket) => tcp::connect(socket, opening.peer).await,
                    Err(error) => Err(error),
                };
                return (id, connected.map(|tcp| Connection::of(tcp, Transport::Tcp, "")));
            }
        };
        let several = candidate.provides.has(Service::Multihoming);
        let reserve = || tcp::reserve(&opening.socket);
        let connected = self.stacks.connect(below, peer, opening.bound, several, reserve).await;
        (id, connected.map(|sctp| Connection::of(sctp, Transport::Sctp, "")))
    }

    /// Remembers who won, and who was silent for so long that the peer has it not.
    fn remember(&self, race: &Race, winner: AttemptId, attempts: &HashMap<AttemptId, Attempt>) {
        let (now, mut memory) = (self.clock.now(), lock(&self.memory));
        race.remember(now, &mut memory);
        let Some(won) = attempts.get(&winner) else { return };
        let took = now.since(won.since);
        for (id, attempt) in attempts {
            let key = &attempt.candidate.key;
            let silent = now.since(attempt.since) >= took.saturating_mul(SILENCE);
            // One that has failed is remembered already.
            if *id != winner && silent && memory.recall(now, key) != Some(Outcome::Failed) {
                memory.record(now, key.clone(), Outcome::Failed);
            }
        }
    }
}

/// Returns the address that a program means: an unspecified one is this host (ip(7)), a mapped one is of IPv4.
fn destination(peer: SocketAddr) -> SocketAddr {
    let mut peer = unmapped(peer);
    if peer.ip().is_unspecified() {
        peer.set_ip(match peer.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    peer
}

/// Returns why the winner won.
fn reason(race: &Race) -> String {
    race.explanation().chosen().map(ToString::to_string).unwrap_or_default()
}

/// Returns the error that a socket of TCP would have: that of TCP if it was tried.
fn errno(errors: &[(Protocol, io::Error)]) -> i32 {
    let by_tcp = errors.iter().find(|(protocol, _)| *protocol == Protocol::Tcp);
    let error = by_tcp.or(errors.last());
    error.and_then(|(_, error)| error.raw_os_error()).unwrap_or(libc::ETIMEDOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_peer_is_this_host() {
        let of = |text: &str| destination(text.parse().unwrap()).to_string();
        assert_eq!(of("0.0.0.0:80"), "127.0.0.1:80");
        assert_eq!(of("[::]:80"), "[::1]:80");
        assert_eq!(of("[::ffff:192.0.2.1]:80"), "192.0.2.1:80");
        assert_eq!(of("192.0.2.1:80"), "192.0.2.1:80");
    }

    #[test]
    fn the_error_is_that_of_tcp() {
        let error = |errno| io::Error::from_raw_os_error(errno);
        let both = [
            (Protocol::Tcp, error(libc::EHOSTUNREACH)),
            (Protocol::SctpUdp, error(libc::ECONNREFUSED)),
        ];
        assert_eq!(errno(&both), libc::EHOSTUNREACH);
        assert_eq!(errno(&both[1..]), libc::ECONNREFUSED);
        assert_eq!(errno(&[]), libc::ETIMEDOUT);
    }
}
