//! What the host lacks of the protocols, found out by opening a socket of each.

use crate::error::Error;
use ringway_os::netlink::Netlink;
use ringway_os::{IPPROTO_MPTCP, IPPROTO_UDPLITE};
use ringway_sctp_tokio::StackSockets;
use ringway_services::{Availability, Protocol, Service};
use socket2::{Domain, Socket, Type};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

/// Services that protocols could provide and that are not carried out.
const NOT_CARRIED: [(Service, &[Protocol], &str); 2] = [
    (
        Service::ZeroRttMsg,
        &[Protocol::Tcp, Protocol::Tls, Protocol::Mptcp],
        "zeroRttMsg is required, and 0-RTT data is not carried over it",
    ),
    (
        Service::SoftErrorNotify,
        &[Protocol::Tcp, Protocol::Tls],
        "softErrorNotify is required, and the system keeps the soft errors of TCP to itself",
    ),
];

/// Returns what the host has without what is not carried out.
pub(crate) fn carried(availability: Availability) -> Availability {
    let lacks = NOT_CARRIED.iter().flat_map(|(service, of, reason)| {
        of.iter().map(move |protocol| (*protocol, *service, *reason))
    });
    lacks.fold(availability, |availability, (protocol, service, reason)| {
        availability.without_service(protocol, service, reason)
    })
}

/// Exists when the kernel's SCTP is loaded. Opening a socket to find out would load it, and end this project's above IP.
const KERNELS_SCTP: &str = "/proc/net/sctp";

/// Returns what is lacking, if it is. That there are no descriptors left is not known to last, and attempts report it.
fn lack<T>(opened: Result<T, Error>) -> Option<String> {
    let error = opened.err().filter(|error| !error.is_exhaustion())?;
    Some(match &error {
        Error::System { error, .. } => error.to_string(),
        _ => error.to_string(),
    })
}

/// Returns why each protocol cannot be used here.
pub(crate) fn lacking() -> HashMap<Protocol, String> {
    let socket = |kind, number: i32| {
        let open = |domain| Socket::new(domain, kind, Some(number.into()));
        let opened = open(Domain::IPV4).or_else(|_| open(Domain::IPV6));
        lack(opened.map_err(|error| Error::system("socket", error)))
    };
    let raw = StackSockets::raw().map_err(|error| Error::system("SCTP", error.into()));
    let checks = [
        (Protocol::Mptcp, socket(Type::STREAM, IPPROTO_MPTCP)),
        (Protocol::UdpLite, socket(Type::DGRAM, IPPROTO_UDPLITE)),
        (Protocol::Sctp, lack(raw)),
        (
            Protocol::SctpKernel,
            (!Path::new(KERNELS_SCTP).exists()).then(|| "the kernel's SCTP is not loaded".into()),
        ),
    ];
    checks.into_iter().filter_map(|(protocol, error)| Some((protocol, error?))).collect()
}

/// Returns the usable addresses of an interface.
pub(crate) fn addresses_of(interface: &str) -> Vec<IpAddr> {
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let (Ok(link), Ok(addresses)) = (netlink.link(interface), netlink.addresses()) else {
        return Vec::new();
    };
    let own = addresses.into_iter().filter(|one| one.interface == link.index && one.is_usable());
    own.map(|address| address.ip).collect()
}
