//! Associations to open and to accept.

use super::stacks::failed;
use crate::error::Error;
use crate::host::addresses_of;
use crate::limits::Limits;
use crate::options;
use crate::transport::{Established, Peer, Resources, Transport};
use ringway_os::netlink::Netlink;
use ringway_sctp_tokio::{
    Association, Config, Connect, Listener, Over, Scheduling, Settings, Stack,
};
use ringway_services::properties::Scheduler;
use ringway_services::{Candidate, Preconnection as Policy, Protocol, Service};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Addresses of one end that are listed to the peer.
const MAX_ADDRESSES: usize = 16;
/// Times that an unanswered packet is sent again at most, whatever the timeout of the connection.
const MAX_RETRANSMISSIONS: u32 = 32;

/// Returns the settings of an association (RFC 9623 section 10.6).
fn settings(policy: &Policy, candidate: &Candidate, limits: &Limits) -> Settings {
    let properties = &policy.properties.connection;
    let has = |service| candidate.provides.has(service);
    let mut settings = Settings {
        send_buffer: limits.message.max(1 << 20),
        partial_reliability: true,
        interleaving: has(Service::Multistreaming),
        scheduling: match properties.conn_scheduler {
            Scheduler::FirstComeFirstServed => Scheduling::Fcfs,
            Scheduler::RoundRobin => Scheduling::RoundRobin,
            Scheduler::Priority => Scheduling::Priority,
            Scheduler::FairBandwidth => Scheduling::FairCapacity,
            Scheduler::WeightedFairQueueing => Scheduling::WeightedFair,
        },
        ..Settings::default()
    };
    if let Some(timeout) = properties.conn_timeout.0 {
        settings.rto_max = settings.rto_max.min(timeout.max(settings.rto_min));
        settings.association_max_retrans = retransmissions(&settings, timeout);
    }
    if !has(Service::KeepAlive) {
        // Without it only new addresses are verified.
        settings.heartbeat_interval = has(Service::Multihoming).then_some(Duration::from_secs(30));
    } else if let Some(interval) = properties.keep_alive() {
        settings.heartbeat_interval = Some(interval);
    }
    settings
}

/// Returns the number of retransmissions after which a timeout is over (RFC 9260 section 8.1).
fn retransmissions(settings: &Settings, timeout: Duration) -> u32 {
    let (mut rto, mut passed, mut count) = (settings.rto_min, Duration::ZERO, 0);
    while passed < timeout && count < MAX_RETRANSMISSIONS {
        passed += rto;
        rto = (rto * 2).min(settings.rto_max);
        count += 1;
    }
    count.saturating_sub(1)
}

/// Returns the host's addresses that can reach a peer together with `source`.
fn addresses_beside(source: IpAddr) -> Vec<IpAddr> {
    let mut all = vec![source];
    let addresses = Netlink::open().ok().and_then(|mut netlink| netlink.addresses().ok());
    for address in addresses.unwrap_or_default().into_iter().filter(|one| one.is_usable()) {
        let ip = address.ip;
        let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let fits = ip.is_loopback() == source.is_loopback() && !is_link_local;
        if fits && !all.contains(&ip) && all.len() < MAX_ADDRESSES {
            all.push(ip);
        }
    }
    all
}

/// Aborts an association that nobody waits for any longer.
struct Opening(Option<Association>);

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(association) = self.0.take() {
            let _ = association.abort(b"");
        }
    }
}

/// Opens an association.
pub(crate) async fn connect(
    resources: &Resources,
    peer: &Peer<'_>,
    policy: &Policy,
    candidate: Candidate,
) -> Result<Established, Error> {
    let remote = peer.address;
    // SCTP is bound to addresses, not to an interface.
    let family = |ip: &IpAddr| ip.is_ipv4() == remote.is_ipv4();
    let on_interface = |name: &String| addresses_of(name).into_iter().find(family);
    let source =
        candidate.local_address.or_else(|| candidate.interface.as_ref().and_then(on_interface));
    let source = source.map_or_else(|| options::source_for(remote), Ok);
    let source = source.map_err(|error| Error::system("connect", error))?;
    let is_multihomed = candidate.provides.has(Service::Multihoming);
    let locals = if is_multihomed && candidate.local_address.is_none() {
        addresses_beside(source)
    } else {
        vec![source]
    };
    let mut remotes = vec![remote.ip()];
    if is_multihomed {
        let endpoint = policy.remote.iter().find(|one| one.key() == candidate.key.peer);
        let others = endpoint.into_iter().flat_map(|one| one.addresses.iter().copied());
        remotes.extend(others.filter(|ip| *ip != remote.ip()).take(MAX_ADDRESSES - 1));
    }
    let connect = Connect {
        local_port: candidate.local_port.unwrap_or(0),
        encapsulation: peer.udp_port,
        settings: Some(settings(policy, &candidate, &resources.limits)),
        ..Connect::new(&locals, &remotes, remote.port())
    };
    let opened = resources.stacks.open(candidate.protocol, &connect)?;
    let mut opening = Opening(Some(opened));
    if let Some(association) = &opening.0 {
        association.established().await.map_err(failed)?;
    }
    let association = opening.0.take().ok_or(Error::Closed)?;
    let port = association.ports().map_err(failed)?.0;
    let local = SocketAddr::new(source, port);
    Ok(Established { transport: Transport::Sctp(association), local, remote, candidate })
}

/// Listens for associations at a port, over UDP at a UDP port.
pub(crate) fn listen(
    resources: &Resources,
    policy: &Policy,
    candidate: &Candidate,
    addresses: &[IpAddr],
    port: u16,
    udp_port: u16,
) -> Result<(Listener, Stack), Error> {
    let stack = if candidate.protocol == Protocol::SctpUdp {
        Stack::new(Config::new(Over::Udp { locals: addresses.to_vec(), port: udp_port }))
            .map_err(failed)?
    } else {
        resources.stacks.of(candidate.protocol)?
    };
    if candidate.provides.has(Service::Multihoming)
        && let Some(wild) = addresses.iter().find(|ip| ip.is_unspecified())
    {
        // With a wildcard an association would use only the address that its peer has found.
        let others = addresses_beside(*wild);
        stack.join_addresses(&others[1..]);
    }
    let settings = settings(policy, candidate, &resources.limits);
    let listener = stack.listen(addresses, port, Some(settings)).map_err(failed)?;
    Ok((listener, stack))
}
