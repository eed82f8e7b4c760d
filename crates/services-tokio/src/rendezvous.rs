//! Connections that both ends open at once (RFC 9622 section 7.3).
//!
//! Both ends bind the same port to listen and to connect, so that all attempts between them are one connection of TCP,
//! the end that completes it. Which end then opens streams of even numbers is decided by the addresses.

use crate::connection::Connection;
use crate::dial;
use crate::error::Error;
use crate::group::{Admitted, Sink};
use crate::listener::bind_tcp;
use crate::resolve;
use crate::system::System;
use crate::transport::{self, Established, Request, Transport};
use ringway_services::framing::Side;
use ringway_services::race::Question;
use ringway_services::{Candidate, Explanation, Family, Preconnection as Policy, Remote, Role};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The pause before an attempt that was refused is repeated, because the peer was not there yet.
const PAUSE: Duration = Duration::from_millis(100);

/// Opens a connection.
pub(crate) async fn open(system: &System, request: &Request) -> Result<Connection, Error> {
    let policy = &request.policy;
    let availability = system.availability(policy, Role::Rendezvous);
    let ranked = policy.rendezvous(system.now(), &availability, &Default::default())?;
    if policy.local.port.is_none() {
        return Err(Error::system(
            "rendezvous without a local port",
            io::ErrorKind::InvalidInput.into(),
        ));
    }
    let explanation = ranked.explanation;
    let mut candidates = Vec::new();
    for candidate in ranked.candidates {
        candidates.extend(addresses(candidate).await);
    }
    let with_handshake: Vec<_> =
        candidates.iter().filter(|one| one.protocol.has_handshake()).cloned().collect();
    let without = candidates.iter().find(|one| !one.protocol.has_handshake());
    let is_datagram = candidates.first().is_some_and(|one| !one.protocol.has_handshake());
    let limit = system.limits().race.timeout;
    let raced = match with_handshake.is_empty() || is_datagram {
        true => Err(Error::lost("the name of the peer has no address")),
        false => timeout(limit, streams(policy, with_handshake))
            .await
            .unwrap_or_else(|_| Err(Error::lost("the peer did not connect in time"))),
    };
    let established = match (raced, without) {
        (Err(_), Some(candidate)) => {
            let peer = transport::peer(policy, candidate).ok_or(Error::Closed)?;
            dial::datagrams(&peer, policy, candidate.clone(), true)?
        }
        (raced, _) => raced?,
    };
    deliver(system, request, established, explanation).await
}

/// Returns the candidates of each address of a candidate's name.
async fn addresses(candidate: Candidate) -> Vec<Candidate> {
    let Remote::Name { host, port } = candidate.remote.clone() else { return vec![candidate] };
    let mut all = Vec::new();
    for family in Family::ALL {
        let question =
            Question { host: host.clone(), family, interface: candidate.interface.clone() };
        for ip in resolve::addresses(&question).await.unwrap_or_default() {
            let mut one = candidate.clone();
            one.remote = Remote::Address(SocketAddr::new(ip, port));
            all.push(one);
        }
    }
    all
}

/// Connects to and accepts from the peer until one succeeds.
async fn streams(policy: &Policy, candidates: Vec<Candidate>) -> Result<Established, Error> {
    let mut tasks = JoinSet::new();
    for candidate in candidates {
        let Remote::Address(remote) = candidate.remote else { continue };
        let address = candidate.local_address.unwrap_or(crate::options::any(remote));
        let address = SocketAddr::new(address, candidate.local_port.unwrap_or(0));
        let listener = bind_tcp(std::slice::from_ref(&candidate), address, None, true)
            .map_err(|error| Error::system(format!("listen at {address}"), error))?;
        let policy = policy.clone();
        tasks.spawn(accept(listener, remote, candidate.clone()));
        tasks.spawn(async move {
            loop {
                let peer = transport::peer(&policy, &candidate).ok_or(Error::Closed)?;
                match dial::connect(&peer, &policy, candidate.clone(), true).await {
                    Ok((stream, candidate)) => return established(stream, candidate),
                    Err(_) => sleep(PAUSE).await,
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        if let Ok(Ok(established)) = done {
            return Ok(established);
        }
    }
    Err(Error::lost("no attempt of the rendezvous connected"))
}

async fn accept(
    listener: TcpListener,
    peer: SocketAddr,
    candidate: Candidate,
) -> Result<Established, Error> {
    loop {
        match listener.accept().await {
            // Anyone may connect to the port; only the peer is waited for.
            Ok((stream, remote)) if remote == peer => return established(stream, candidate),
            Ok(_) => {}
            Err(_) => sleep(PAUSE).await,
        }
    }
}

fn established(stream: tokio::net::TcpStream, candidate: Candidate) -> Result<Established, Error> {
    let failed = |error| Error::system("the addresses of the connection", error);
    let (local, remote) =
        (stream.local_addr().map_err(failed)?, stream.peer_addr().map_err(failed)?);
    Ok(Established { transport: Transport::Stream(Box::new(stream)), local, remote, candidate })
}

/// Makes the connection of a transport connection: the end with the lower address opens it.
async fn deliver(
    system: &System,
    request: &Request,
    established: Established,
    explanation: Explanation,
) -> Result<Connection, Error> {
    let Request { policy, framer, .. } = request;
    let is_lower = established.local < established.remote;
    let side = if is_lower { Side::Initiator } else { Side::Responder };
    let is_framed = established.candidate.framed
        && framer.is_none()
        && matches!(established.transport, Transport::Stream(_));
    let (framer, sink) = (framer.as_ref(), Sink::group());
    let admitted = Admitted { policy, framer, sink, permit: None, side };
    let group = system.accepted(established, explanation, admitted)?;
    if is_framed && is_lower {
        return system.join(&group).await;
    }
    group.deliver_single();
    group.accept().await
}
