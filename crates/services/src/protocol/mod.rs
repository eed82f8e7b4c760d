//! The candidate protocols and what each of them provides. `table.rs` has the facts, with their sources.

mod table;

use crate::properties::value::words;
use crate::properties::{Preference, Service};
use core::time::Duration;

words! {
    /// A protocol, or a stack of them, that can carry a connection.
    ///
    /// Where two fit equally well, the earlier one is chosen: what more networks let through comes first.
    Protocol, "tcp, tls, quic, mptcp, udp, udp-lite, sctp, sctp-udp, sctp-kernel, quic-datagram or dccp-udp" {
        /// TCP (RFC 9293).
        Tcp = "tcp",
        /// TLS over TCP (RFC 8446).
        Tls = "tls",
        /// A stream of QUIC (RFC 9000).
        Quic = "quic",
        /// Multipath TCP (RFC 8684).
        Mptcp = "mptcp",
        /// UDP (RFC 768).
        Udp = "udp",
        /// UDP-Lite (RFC 3828).
        UdpLite = "udp-lite",
        /// This project's SCTP over UDP (RFC 6951).
        SctpUdp = "sctp-udp",
        /// This project's SCTP right above IP (RFC 9260).
        Sctp = "sctp",
        /// The SCTP of the kernel (RFC 6458).
        SctpKernel = "sctp-kernel",
        /// Datagrams of a QUIC connection (RFC 9221).
        QuicDatagram = "quic-datagram",
        /// DCCP over UDP (RFC 4340, RFC 6773).
        DccpUdp = "dccp-udp",
    }
}

/// Whether and how a protocol provides a service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Provision {
    /// Always; it cannot be switched off.
    Always,
    /// It can be switched on and off; `on` is what happens without a preference.
    Settable {
        /// Whether it is on by default.
        on: bool,
    },
    /// Not by the protocol, but by this crate's framing above it, which the peer must use too.
    Framed,
    /// Never.
    Never,
}

/// One fact about a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fact {
    /// The service.
    pub service: Service,
    /// Whether and how it is provided.
    pub provision: Provision,
    /// Where that is written.
    pub source: &'static str,
}

/// What a candidate provides, service by service: what a connection reports once it is established (RFC 9622 section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Provided(u32);

impl Provided {
    /// Returns whether a service is provided.
    pub const fn has(self, service: Service) -> bool {
        self.0 >> service as u32 & 1 == 1
    }

    pub(crate) fn set(&mut self, service: Service, provided: bool) {
        let bit = 1 << service as u32;
        self.0 = if provided { self.0 | bit } else { self.0 & !bit };
    }

    /// Returns whether a service is provided, by the name of its property; `None` if there is none of that name.
    pub fn get(self, name: &str) -> Option<bool> {
        name.parse().ok().map(|service| self.has(service))
    }

    /// Returns the services that are provided.
    pub fn services(self) -> impl Iterator<Item = Service> {
        Service::ALL.iter().copied().filter(move |service| self.has(*service))
    }
}

/// How large messages may be, in octets (RFC 9622 section 8.1.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageLimits {
    /// `singularTransmissionMsgMaxLen`: the largest message in one packet; `None` where messages are not packets.
    pub singular_transmission_msg_max_len: Option<u32>,
    /// `sendMsgMaxLen`; `None` for a byte stream without framing, on which there are no messages.
    pub send_msg_max_len: Option<u32>,
    /// `recvMsgMaxLen`; `None` as above. What is larger is received in parts, or was never sent.
    pub recv_msg_max_len: Option<u32>,
}

/// Octets of an IPv4 header without options, and of the IPv6 header.
const IP_HEADERS: [u32; 2] = [20, 40];
/// Octets of a UDP and of a UDP-Lite header.
const UDP_HEADER: u32 = 8;
/// Octets of the SCTP common header and of a DATA chunk's header, rounded up to I-DATA's (RFC 8260 section 2.1).
const SCTP_HEADERS: u32 = 12 + 20;
/// Octets of a DCCP-Data packet's header with a long sequence number (RFC 4340 section 5.1).
const DCCP_HEADER: u32 = 16;
/// Octets of a QUIC short header with the longest connection ID, a DATAGRAM frame's head and the authentication tag.
const QUIC_HEADERS: u32 = 1 + 20 + 4 + 3 + 16;
/// The largest payload of an IP packet behind an IPv4 header.
const MAX_DATAGRAM: u32 = 65_535 - 20;

impl Protocol {
    /// Returns its name in a sentence.
    pub const fn title(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Tls => "TLS over TCP",
            Protocol::Quic => "QUIC",
            Protocol::Mptcp => "MPTCP",
            Protocol::Udp => "UDP",
            Protocol::UdpLite => "UDP-Lite",
            Protocol::Sctp => "SCTP",
            Protocol::SctpUdp => "SCTP over UDP",
            Protocol::SctpKernel => "the kernel's SCTP",
            Protocol::QuicDatagram => "QUIC DATAGRAM",
            Protocol::DccpUdp => "DCCP over UDP",
        }
    }

    /// Returns all facts about it, in the order of [`Service::ALL`].
    pub const fn facts(self) -> &'static [Fact; Service::COUNT] {
        table::facts(self)
    }

    /// Returns the fact about a service.
    pub const fn fact(self, service: Service) -> &'static Fact {
        &self.facts()[service as usize]
    }

    /// Returns whether a message may arrive several times although it was sent once (RFC 9622 section 9.1.3.4).
    pub const fn may_duplicate(self) -> bool {
        matches!(self, Protocol::Udp | Protocol::UdpLite)
    }

    /// Returns whether there is a handshake. Without one an attempt succeeds at once, whether or not there is a peer.
    pub const fn has_handshake(self) -> bool {
        !matches!(self, Protocol::Udp | Protocol::UdpLite)
    }

    /// Returns whether it is SCTP, whatever carries it.
    pub const fn is_sctp(self) -> bool {
        matches!(self, Protocol::Sctp | Protocol::SctpUdp | Protocol::SctpKernel)
    }

    /// Returns the number of round trips until data can be sent on a new connection without state of earlier ones.
    pub const fn round_trips(self) -> u32 {
        match self {
            Protocol::Udp | Protocol::UdpLite => 0,
            Protocol::Tcp
            | Protocol::Mptcp
            | Protocol::Quic
            | Protocol::QuicDatagram
            | Protocol::DccpUdp => 1,
            Protocol::Tls | Protocol::Sctp | Protocol::SctpUdp | Protocol::SctpKernel => 2,
        }
    }

    /// Returns the time that establishing a connection takes, from the time of a round trip.
    pub fn setup_time(self, rtt: Duration) -> Duration {
        rtt.saturating_mul(self.round_trips())
    }

    /// Returns the limits of messages on a path of this MTU, framed or not, if `largest` is the caller's own limit.
    pub fn message_limits(
        self,
        mtu: u32,
        is_ipv4: bool,
        framed: bool,
        largest: u32,
    ) -> MessageLimits {
        let headers = match self {
            Protocol::Udp | Protocol::UdpLite => UDP_HEADER,
            Protocol::Sctp | Protocol::SctpKernel => SCTP_HEADERS,
            Protocol::SctpUdp => SCTP_HEADERS + UDP_HEADER,
            Protocol::DccpUdp => DCCP_HEADER + UDP_HEADER,
            Protocol::QuicDatagram => QUIC_HEADERS + UDP_HEADER,
            Protocol::Tcp | Protocol::Tls | Protocol::Mptcp | Protocol::Quic => {
                return MessageLimits {
                    singular_transmission_msg_max_len: None,
                    send_msg_max_len: framed.then_some(largest),
                    recv_msg_max_len: framed.then_some(largest),
                };
            }
        };
        let packet = mtu.saturating_sub(IP_HEADERS[usize::from(!is_ipv4)] + headers);
        let send = match self {
            // The network layer fragments (RFC 9622 section 9.1.3.9).
            Protocol::Udp | Protocol::UdpLite => MAX_DATAGRAM - UDP_HEADER,
            // RFC 4340 section 14 and RFC 9221 section 5: what exceeds a packet is refused.
            Protocol::DccpUdp | Protocol::QuicDatagram => packet,
            _ => largest,
        };
        MessageLimits {
            singular_transmission_msg_max_len: Some(packet),
            send_msg_max_len: Some(send.min(largest)),
            recv_msg_max_len: Some(if self.is_sctp() {
                largest
            } else {
                MAX_DATAGRAM.min(largest)
            }),
        }
    }

    /// Returns whether framing is used: a byte stream carries messages if the program wants their boundaries, and
    /// several connections if it requires that.
    pub(crate) fn is_framed(
        self,
        preference: impl Fn(Service) -> Preference,
        may_frame: bool,
    ) -> bool {
        let is_framed = |service| self.fact(service).provision == Provision::Framed;
        let boundaries = matches!(
            preference(Service::PreserveMsgBoundaries),
            Preference::Require | Preference::Prefer
        );
        may_frame
            && (boundaries && is_framed(Service::PreserveMsgBoundaries)
                || preference(Service::Multistreaming) == Preference::Require
                    && is_framed(Service::Multistreaming))
    }

    /// Returns what a connection will have under these preferences.
    pub(crate) fn provides(
        self,
        preference: impl Fn(Service) -> Preference,
        framed: bool,
    ) -> Provided {
        let mut provided = Provided::default();
        for fact in self.facts() {
            let preference = preference(fact.service);
            let on = match fact.provision {
                Provision::Always => true,
                Provision::Never => false,
                Provision::Settable { on } => match preference {
                    Preference::Require | Preference::Prefer => true,
                    Preference::Avoid | Preference::Prohibit => false,
                    Preference::NoPreference => on,
                },
                // One stream of a framed connection can be all that is used; its messages have boundaries anyway.
                Provision::Framed => {
                    let unwanted = matches!(preference, Preference::Avoid | Preference::Prohibit);
                    framed && !(fact.service == Service::Multistreaming && unwanted)
                }
            };
            provided.set(fact.service, on);
        }
        provided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_each_service_once_with_a_source() {
        for protocol in Protocol::ALL {
            for (fact, service) in protocol.facts().iter().zip(Service::ALL) {
                assert_eq!(fact.service, *service, "{protocol}");
                assert!(fact.source.starts_with("RFC "), "{protocol} {service}");
            }
        }
    }

    /// RFC 9622 section 6.2: after connecting, a service is there or not.
    #[test]
    fn what_is_provided_is_read_by_name() {
        let none = |_| Preference::NoPreference;
        let provided = Protocol::Sctp.provides(none, false);
        assert_eq!(provided.get("multistreaming"), Some(true));
        assert_eq!(provided.get("ringway.partialByTime"), Some(false));
        assert_eq!(provided.get("colour"), None);
        assert!(provided.services().any(|service| service == Service::Reliability));
        let avoided = Protocol::Sctp.provides(|_| Preference::Avoid, false);
        assert!(!avoided.has(Service::Reliability) && avoided.has(Service::PreserveMsgBoundaries));
    }

    /// RFC 9622 section 6.2: the defaults can be had from TCP.
    #[test]
    fn tcp_provides_the_defaults() {
        for service in Service::ALL {
            if service.default_preference(crate::Role::Initiate) == Preference::Require {
                assert_eq!(Protocol::Tcp.fact(*service).provision, Provision::Always, "{service}");
            }
        }
    }

    #[test]
    fn message_limits_follow_from_the_headers() {
        let limits = |protocol: Protocol, v4, framed| {
            let limits = protocol.message_limits(1_500, v4, framed, 1 << 20);
            (limits.singular_transmission_msg_max_len, limits.send_msg_max_len)
        };
        assert_eq!(limits(Protocol::Udp, true, false), (Some(1_472), Some(65_507)));
        assert_eq!(limits(Protocol::UdpLite, false, false).0, Some(1_452));
        assert_eq!(limits(Protocol::Sctp, true, false), (Some(1_448), Some(1 << 20)));
        assert_eq!(limits(Protocol::Tcp, true, false), (None, None));
        assert_eq!(limits(Protocol::Tls, true, true), (None, Some(1 << 20)));
        let dccp = limits(Protocol::DccpUdp, true, false);
        assert_eq!((dccp.0, dccp.1), (Some(1_456), Some(1_456)));
        let recv = |protocol: Protocol| {
            protocol.message_limits(1_500, true, true, 1 << 20).recv_msg_max_len
        };
        assert_eq!([recv(Protocol::Udp), recv(Protocol::Sctp)], [Some(65_515), Some(1 << 20)]);
        assert_eq!(Protocol::Udp.message_limits(10, true, false, 99).send_msg_max_len, Some(99));
    }
}
