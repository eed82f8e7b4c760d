//! What the system says besides packets: ICMP messages, and addresses that come and go.

use super::carrier::ErrorSource;
use super::core::{Core, Shared};
use crate::sys::{Cause, IcmpError, NetworkMonitor, next_icmp_error};
use ringway_sansio::{Addressing, Icmp};
use ringway_sctp::PROTOCOL;
use std::net::IpAddr;
use std::sync::Arc;

/// How much of a packet an ICMP message is asked for: an IPv6 header, which stands before the quote
/// of a raw socket, the SCTP header, and the beginning of an INIT.
const QUOTE: usize = 128;

/// Bytes of an IPv6 header.
const IPV6_HEADER: usize = 40;

/// ICMP messages read before others get their turn.
const A_TURN: usize = 64;

/// Listens for ICMP messages about what was sent from a socket.
pub(super) async fn hear(shared: Arc<Shared>, (errors, bound): ErrorSource) {
    let mut quote = [0; QUOTE];
    // From then on a new message ends the next wait.
    while errors.wait().await.is_ok() {
        let mut heard = 0;
        while let Some(refusal) = next_icmp_error(errors.socket(), &mut quote) {
            if let Some((sent, icmp, quoted)) = understand(&refusal, bound, &quote) {
                shared.with(|core| core.refused(&sent, icmp, quoted));
            }
            heard += 1;
            if heard % A_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// What an ICMP message says in the protocol's words, and of which packet.
fn understand<'a>(
    refusal: &IcmpError,
    bound: Option<IpAddr>,
    quote: &'a [u8],
) -> Option<(Addressing, Icmp, &'a [u8])> {
    let to = refusal.to?;
    let icmp = match refusal.cause {
        Cause::PortUnreachable if to.port() != 0 => Icmp::ProtocolUnreachable,
        Cause::ProtocolUnreachable if to.port() == 0 => Icmp::ProtocolUnreachable,
        Cause::PortUnreachable | Cause::ProtocolUnreachable | Cause::Unreachable => {
            Icmp::Unreachable
        }
        Cause::TooBig(mtu) => Icmp::TooBig(mtu),
        Cause::Other => return None,
    };
    let mut quoted = &quote[..refusal.quoted];
    // A raw IPv6 socket quotes the IPv6 header too.
    if let IpAddr::V6(ip) = to.ip()
        && quoted.get(IPV6_HEADER - 16..IPV6_HEADER) == Some(&ip.octets())
    {
        quoted = &quoted[IPV6_HEADER..];
    }
    let source = bound.or(refusal.local)?;
    let sent = Addressing { udp_port: to.port(), ..Addressing::new(source, to.ip(), PROTOCOL) };
    Some((sent, icmp, quoted))
}

/// Listens for addresses and links that come and go.
pub(super) async fn watch(shared: Arc<Shared>, mut news: NetworkMonitor) {
    while let Some((address, there)) = news.next().await {
        shared.with(|core| core.address_changed(address, there));
    }
}

impl Core {
    /// An ICMP message came for a packet that was sent.
    pub(super) fn refused(&mut self, sent: &Addressing, icmp: Icmp, quoted: &[u8]) {
        self.icmp += 1;
        self.sctp.handle_icmp(self.clock.now(), sent, icmp, quoted);
        self.hear();
        self.kick();
    }

    /// One of the host's addresses cannot be used any more, or can again: the paths from it are
    /// asked at once. From an address that is not there nothing can be sent, which fails the path.
    pub(super) fn address_changed(&mut self, address: IpAddr, there: bool) {
        let mut down = self.down_addresses.load().as_ref().clone();
        down.retain(|ip| *ip != address);
        if !there {
            down.push(address);
        }
        self.down_addresses.store(Arc::new(down));
        for (_, entry) in &self.entries {
            let ours = self.sctp.addresses(entry.id).is_ok_and(|(ours, _)| ours.contains(&address));
            let Some(snapshot) = ours.then(|| self.sctp.snapshot(entry.id).ok()).flatten() else {
                continue;
            };
            for path in snapshot.paths.iter().filter(|path| path.local == address) {
                let _ = self.sctp.request_heartbeat(entry.id, path.remote);
            }
        }
        self.hear();
        self.kick();
    }
}
