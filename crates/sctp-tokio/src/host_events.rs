//! Events from the host besides packets: ICMP messages, and changes of its addresses.

use super::carrier::ErrorSource;
use super::core::Shared;
use ringway_os::{Cause, IcmpError, NetworkMonitor, next_icmp_error};
use ringway_sansio::{Addressing, Icmp};
use ringway_sctp::PROTOCOL;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum length of an ICMP message's quote, in bytes: an IPv6 header, which precedes the quote of a raw
/// socket, the SCTP header, and the start of an INIT.
const QUOTE: usize = 128;

/// Bytes of an IPv6 header.
const IPV6_HEADER: usize = 40;

/// ICMP messages read before other tasks get their turn.
const MESSAGES_A_TURN: usize = 64;

/// Reads ICMP messages about packets sent from a socket.
pub(super) async fn read_icmp(shared: Arc<Shared>, (errors, bound): ErrorSource) {
    let mut quote = [0; QUOTE];
    // After each wait, a new message ends the next one.
    while errors.wait().await.is_ok() {
        let mut count = 0;
        while let Some(error) = next_icmp_error(errors.socket(), &mut quote) {
            if let Some((sent, icmp, quoted)) = translate(&error, bound, &quote) {
                let now = shared.clock.now();
                shared.tables(|tables| tables.handle_icmp(now, &sent, icmp, quoted));
            }
            count += 1;
            if count % MESSAGES_A_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Translates an ICMP message into the protocol's terms. Returns also the packet's addressing and quote.
fn translate<'a>(
    error: &IcmpError,
    bound: Option<IpAddr>,
    quote: &'a [u8],
) -> Option<(Addressing, Icmp, &'a [u8])> {
    let to = error.to?;
    let icmp = match error.cause {
        Cause::PortUnreachable if to.port() != 0 => Icmp::ProtocolUnreachable,
        Cause::ProtocolUnreachable if to.port() == 0 => Icmp::ProtocolUnreachable,
        Cause::PortUnreachable | Cause::ProtocolUnreachable | Cause::Unreachable => {
            Icmp::Unreachable
        }
        Cause::TooBig(mtu) => Icmp::TooBig(mtu),
        Cause::Other => return None,
    };
    let mut quoted = &quote[..error.quoted];
    // A raw IPv6 socket quotes the IPv6 header too.
    if let IpAddr::V6(ip) = to.ip()
        && quoted.get(IPV6_HEADER - 16..IPV6_HEADER) == Some(&ip.octets())
    {
        quoted = &quoted[IPV6_HEADER..];
    }
    let source = bound.or(error.local)?;
    let sent = Addressing { udp_port: to.port(), ..Addressing::new(source, to.ip(), PROTOCOL) };
    Some((sent, icmp, quoted))
}

/// Reads changes of the host's addresses and links.
pub(super) async fn watch_addresses(shared: Arc<Shared>, mut monitor: NetworkMonitor) {
    while let Some((address, usable)) = monitor.next().await {
        shared.tables(|tables| tables.address_changed(address, usable));
    }
}
