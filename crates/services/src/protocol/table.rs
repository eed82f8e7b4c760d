//! What each protocol provides, with the source of each fact.
//!
//! Rows are in the order of [`Service::ALL`]. The primitives behind them are those of RFC 8303 section 4; what a program
//! has to decide of them is listed in RFC 8923 section 4.1, and how they map to properties in RFC 9623 section 10.

use super::Provision::{self, Always, Framed, Never};
use super::{Fact, Protocol};
use crate::properties::Service::{self, *};

const ON: Provision = Provision::Settable { on: true };
const OFF: Provision = Provision::Settable { on: false };

const fn fact(service: Service, provision: Provision, source: &'static str) -> Fact {
    Fact { service, provision, source }
}

type Facts = [Fact; Service::COUNT];

pub(super) const fn facts(protocol: Protocol) -> &'static Facts {
    match protocol {
        Protocol::Tcp => &TCP,
        Protocol::Tls => &TLS,
        Protocol::Quic => &QUIC,
        Protocol::Mptcp => &MPTCP,
        Protocol::Udp => &UDP,
        Protocol::UdpLite => &UDP_LITE,
        Protocol::Sctp | Protocol::SctpUdp | Protocol::SctpKernel => &SCTP,
        Protocol::QuicDatagram => &QUIC_DATAGRAM,
        Protocol::DccpUdp => &DCCP,
    }
}

static TCP: Facts = [
    fact(Reliability, Always, "RFC 9293 section 2.2"),
    fact(PreserveMsgBoundaries, Framed, "RFC 9293 section 2.2: a stream of octets"),
    fact(PerMsgReliability, Never, "RFC 9293 section 2.2: all octets alike"),
    fact(PreserveOrder, Always, "RFC 9293 section 2.2"),
    fact(ZeroRttMsg, OFF, "RFC 7413 section 2"),
    fact(Multistreaming, Framed, "RFC 9293 section 2.2: one stream in each direction"),
    fact(FullChecksumSend, Always, "RFC 9293 section 3.1"),
    fact(FullChecksumRecv, Always, "RFC 9293 section 3.1"),
    fact(CongestionControl, Always, "RFC 5681 section 3"),
    fact(KeepAlive, OFF, "RFC 9293 section 3.8.4"),
    fact(UseTemporaryLocalAddress, ON, "RFC 8981 section 3.1: of the path, not of the protocol"),
    fact(SoftErrorNotify, OFF, "RFC 9293 section 3.9.2.2"),
    fact(ActiveReadBeforeSend, Always, "RFC 9293 section 3.5: either side may send first"),
    fact(ConnectionOriented, Always, "RFC 9293 section 3.5"),
    fact(FlowControl, Always, "RFC 9293 section 3.8.6"),
    fact(Bundling, ON, "RFC 9293 section 3.7.4"),
    fact(PartialByTime, Never, "RFC 8303 section 4.2: not in SEND.TCP"),
    fact(PartialByRetransmissions, Never, "RFC 8303 section 4.2: not in SEND.TCP"),
    fact(Multihoming, Never, "RFC 9293 section 4: a connection is a pair of sockets"),
    fact(Security, Never, "RFC 9293 section 7"),
];

static TLS: Facts = [
    fact(Reliability, Always, "RFC 8446 section 1: over a reliable stream"),
    fact(PreserveMsgBoundaries, Framed, "RFC 8446 section 5.1: record boundaries mean nothing"),
    fact(PerMsgReliability, Never, "RFC 8446 section 1: over a reliable stream"),
    fact(PreserveOrder, Always, "RFC 8446 section 1"),
    fact(ZeroRttMsg, OFF, "RFC 8446 section 2.3"),
    fact(Multistreaming, Framed, "RFC 8446 section 5.1: one stream in each direction"),
    fact(FullChecksumSend, Always, "RFC 8446 section 5.2"),
    fact(FullChecksumRecv, Always, "RFC 8446 section 5.2"),
    fact(CongestionControl, Always, "RFC 5681 section 3"),
    fact(KeepAlive, OFF, "RFC 9293 section 3.8.4"),
    fact(UseTemporaryLocalAddress, ON, "RFC 8981 section 3.1: of the path, not of the protocol"),
    fact(SoftErrorNotify, OFF, "RFC 9293 section 3.9.2.2"),
    fact(
        ActiveReadBeforeSend,
        Always,
        "RFC 8446 section 2: either side may send after the handshake",
    ),
    fact(ConnectionOriented, Always, "RFC 8446 section 2"),
    fact(FlowControl, Always, "RFC 9293 section 3.8.6"),
    fact(Bundling, ON, "RFC 9293 section 3.7.4"),
    fact(PartialByTime, Never, "RFC 8303 section 4.2: not in SEND.TCP"),
    fact(PartialByRetransmissions, Never, "RFC 8303 section 4.2: not in SEND.TCP"),
    fact(Multihoming, Never, "RFC 9293 section 4: a connection is a pair of sockets"),
    fact(Security, Always, "RFC 8446 section 1"),
];

static MPTCP: Facts = [
    fact(Reliability, Always, "RFC 8684 section 3.3.7"),
    fact(PreserveMsgBoundaries, Framed, "RFC 8684 section 3.3: octets without boundaries"),
    fact(PerMsgReliability, Never, "RFC 8684 section 3.3: all octets alike"),
    fact(PreserveOrder, Always, "RFC 8684 section 3.3"),
    fact(ZeroRttMsg, OFF, "RFC 8684 appendix B"),
    fact(Multistreaming, Framed, "RFC 8684 section 3.3: one stream in each direction"),
    fact(FullChecksumSend, Always, "RFC 9293 section 3.1"),
    fact(FullChecksumRecv, Always, "RFC 9293 section 3.1"),
    fact(CongestionControl, Always, "RFC 8684 section 3.3.8"),
    fact(KeepAlive, OFF, "RFC 9293 section 3.8.4"),
    fact(UseTemporaryLocalAddress, ON, "RFC 8981 section 3.1: of the path, not of the protocol"),
    fact(SoftErrorNotify, Never, "RFC 8684 section 3.6: the faults of a subflow stay below"),
    fact(ActiveReadBeforeSend, Always, "RFC 9293 section 3.5: either side may send first"),
    fact(ConnectionOriented, Always, "RFC 8684 section 3.1"),
    fact(FlowControl, Always, "RFC 8684 section 3.3.5"),
    fact(Bundling, ON, "RFC 9293 section 3.7.4"),
    fact(PartialByTime, Never, "RFC 8303 section 4.2: not in SEND.TCP"),
    fact(PartialByRetransmissions, Never, "RFC 8303 section 4.2: not in SEND.TCP"),
    fact(Multihoming, OFF, "RFC 8684 section 2.2"),
    fact(Security, Never, "RFC 8684 section 5: keys of subflows, not of data"),
];

static UDP: Facts = [
    fact(Reliability, Never, "RFC 768"),
    fact(PreserveMsgBoundaries, Always, "RFC 768: a datagram each"),
    fact(PerMsgReliability, Never, "RFC 768: nothing is reliable"),
    fact(PreserveOrder, Never, "RFC 768"),
    fact(ZeroRttMsg, Never, "RFC 768: not reliably"),
    fact(Multistreaming, Never, "RFC 768"),
    fact(FullChecksumSend, ON, "RFC 768, RFC 6935 section 5"),
    fact(FullChecksumRecv, ON, "RFC 8085 section 3.4"),
    fact(CongestionControl, Never, "RFC 8085 section 3.1"),
    fact(KeepAlive, Never, "RFC 8085 section 3.5: left to the program"),
    fact(UseTemporaryLocalAddress, ON, "RFC 8981 section 3.1: of the path, not of the protocol"),
    fact(SoftErrorNotify, OFF, "RFC 8085 section 5.2"),
    fact(ActiveReadBeforeSend, Never, "RFC 768: the peer learns of it by a datagram"),
    fact(ConnectionOriented, Never, "RFC 768"),
    fact(FlowControl, Never, "RFC 768"),
    fact(Bundling, Never, "RFC 768: a datagram each"),
    fact(PartialByTime, Never, "RFC 768: sent once"),
    fact(PartialByRetransmissions, Never, "RFC 768: sent once"),
    fact(Multihoming, Never, "RFC 768"),
    fact(Security, Never, "RFC 8085 section 6"),
];

static UDP_LITE: Facts = [
    fact(Reliability, Never, "RFC 3828 section 1"),
    fact(PreserveMsgBoundaries, Always, "RFC 3828 section 1: a datagram each"),
    fact(PerMsgReliability, Never, "RFC 3828 section 1: nothing is reliable"),
    fact(PreserveOrder, Never, "RFC 3828 section 1"),
    fact(ZeroRttMsg, Never, "RFC 3828 section 1: not reliably"),
    fact(Multistreaming, Never, "RFC 3828 section 1"),
    fact(FullChecksumSend, ON, "RFC 3828 section 3.1"),
    fact(FullChecksumRecv, ON, "RFC 3828 section 3.3"),
    fact(CongestionControl, Never, "RFC 8085 section 3.1"),
    fact(KeepAlive, Never, "RFC 8085 section 3.5: left to the program"),
    fact(UseTemporaryLocalAddress, ON, "RFC 8981 section 3.1: of the path, not of the protocol"),
    fact(SoftErrorNotify, OFF, "RFC 8303 section 4.2: ERROR.UDP-Lite"),
    fact(ActiveReadBeforeSend, Never, "RFC 3828 section 1: the peer learns of it by a datagram"),
    fact(ConnectionOriented, Never, "RFC 3828 section 1"),
    fact(FlowControl, Never, "RFC 3828 section 1"),
    fact(Bundling, Never, "RFC 3828 section 1: a datagram each"),
    fact(PartialByTime, Never, "RFC 3828 section 1: sent once"),
    fact(PartialByRetransmissions, Never, "RFC 3828 section 1: sent once"),
    fact(Multihoming, Never, "RFC 3828 section 1"),
    fact(Security, Never, "RFC 3828 section 6"),
];

static SCTP: Facts = [
    fact(Reliability, ON, "RFC 9260 section 6, RFC 3758 section 4"),
    fact(PreserveMsgBoundaries, Always, "RFC 9260 section 6.9"),
    fact(PerMsgReliability, OFF, "RFC 3758 section 4, RFC 7496 section 3"),
    fact(PreserveOrder, ON, "RFC 9260 section 6.6"),
    fact(ZeroRttMsg, Never, "RFC 9260 section 5.1: data comes with COOKIE ECHO at the earliest"),
    fact(Multistreaming, ON, "RFC 9260 section 1.5.2, RFC 6525"),
    fact(FullChecksumSend, Always, "RFC 9260 section 6.8"),
    fact(FullChecksumRecv, Always, "RFC 9260 section 6.8"),
    fact(CongestionControl, Always, "RFC 9260 section 7"),
    fact(KeepAlive, ON, "RFC 9260 section 8.3"),
    fact(UseTemporaryLocalAddress, ON, "RFC 8981 section 3.1: of the path, not of the protocol"),
    fact(SoftErrorNotify, Never, "RFC 9260 section 10: handled inside the association"),
    fact(ActiveReadBeforeSend, Always, "RFC 9260 section 5.1: either side may send first"),
    fact(ConnectionOriented, Always, "RFC 9260 section 5"),
    fact(FlowControl, Always, "RFC 9260 section 6.2.1"),
    fact(Bundling, ON, "RFC 9260 section 6.10"),
    fact(PartialByTime, OFF, "RFC 3758 section 4"),
    fact(PartialByRetransmissions, OFF, "RFC 7496 section 3.1"),
    fact(Multihoming, OFF, "RFC 9260 section 6.4"),
    fact(Security, Never, "RFC 9260 section 12"),
];

static QUIC: Facts = [
    fact(Reliability, Always, "RFC 9000 section 2.2"),
    fact(PreserveMsgBoundaries, Framed, "RFC 9000 section 2: octets without boundaries"),
    fact(PerMsgReliability, OFF, "RFC 9221 section 5: beside streams, in datagrams"),
    fact(PreserveOrder, Always, "RFC 9000 section 2.2"),
    fact(ZeroRttMsg, OFF, "RFC 9001 section 4.6"),
    fact(Multistreaming, ON, "RFC 9000 section 2"),
    fact(FullChecksumSend, Always, "RFC 9001 section 5.3"),
    fact(FullChecksumRecv, Always, "RFC 9001 section 5.3"),
    fact(CongestionControl, Always, "RFC 9002 section 7"),
    fact(KeepAlive, OFF, "RFC 9000 section 10.1.2"),
    fact(UseTemporaryLocalAddress, ON, "RFC 8981 section 3.1: of the path, not of the protocol"),
    fact(SoftErrorNotify, Never, "RFC 9000 section 14.2.1: ICMP only for the path's MTU"),
    fact(
        ActiveReadBeforeSend,
        Never,
        "RFC 9000 section 2.1: a stream exists for the peer with its first frame",
    ),
    fact(ConnectionOriented, Always, "RFC 9000 section 5"),
    fact(FlowControl, Always, "RFC 9000 section 4"),
    fact(Bundling, OFF, "RFC 9000 section 13"),
    fact(PartialByTime, Never, "RFC 9000 section 13.3: a stream is reset, not a message"),
    fact(
        PartialByRetransmissions,
        Never,
        "RFC 9000 section 13.3: a stream is reset, not a message",
    ),
    fact(Multihoming, Never, "RFC 9000 section 9: one path at a time"),
    fact(Security, Always, "RFC 9001 section 1"),
];

static QUIC_DATAGRAM: Facts = [
    fact(Reliability, Never, "RFC 9221 section 5"),
    fact(PreserveMsgBoundaries, Always, "RFC 9221 section 5: a frame each"),
    fact(PerMsgReliability, Never, "RFC 9221 section 5: nothing is reliable"),
    fact(PreserveOrder, Never, "RFC 9221 section 5"),
    fact(ZeroRttMsg, Never, "RFC 9221 section 5: not reliably"),
    fact(Multistreaming, Never, "RFC 9221 section 5.1: no stream"),
    fact(FullChecksumSend, Always, "RFC 9001 section 5.3"),
    fact(FullChecksumRecv, Always, "RFC 9001 section 5.3"),
    fact(CongestionControl, Always, "RFC 9221 section 5.4"),
    fact(KeepAlive, OFF, "RFC 9000 section 10.1.2"),
    fact(UseTemporaryLocalAddress, ON, "RFC 8981 section 3.1: of the path, not of the protocol"),
    fact(SoftErrorNotify, Never, "RFC 9000 section 14.2.1: ICMP only for the path's MTU"),
    fact(
        ActiveReadBeforeSend,
        Always,
        "RFC 9221 section 5: either side may send after the handshake",
    ),
    fact(ConnectionOriented, Always, "RFC 9000 section 5"),
    fact(FlowControl, Never, "RFC 9221 section 5.3"),
    fact(Bundling, OFF, "RFC 9000 section 13"),
    fact(PartialByTime, Never, "RFC 9221 section 5.2: sent once"),
    fact(PartialByRetransmissions, Never, "RFC 9221 section 5.2: sent once"),
    fact(Multihoming, Never, "RFC 9000 section 9: one path at a time"),
    fact(Security, Always, "RFC 9001 section 1"),
];

static DCCP: Facts = [
    fact(Reliability, Never, "RFC 4340 section 1"),
    fact(PreserveMsgBoundaries, Always, "RFC 4340 section 1: a packet each"),
    fact(PerMsgReliability, Never, "RFC 4340 section 1: nothing is reliable"),
    fact(PreserveOrder, Never, "RFC 4340 section 1"),
    fact(ZeroRttMsg, Never, "RFC 4340 section 8.1: not reliably"),
    fact(Multistreaming, Never, "RFC 4340 section 3.2: one stream of packets in each direction"),
    fact(FullChecksumSend, Always, "RFC 6773 section 3.3: the UDP checksum covers all"),
    fact(FullChecksumRecv, Always, "RFC 6773 section 3.3: the UDP checksum covers all"),
    fact(CongestionControl, Always, "RFC 4340 section 10"),
    fact(KeepAlive, Never, "RFC 4340 section 8: none is defined"),
    fact(UseTemporaryLocalAddress, ON, "RFC 8981 section 3.1: of the path, not of the protocol"),
    fact(SoftErrorNotify, Never, "RFC 6773 section 3.6: handled inside the connection"),
    fact(ActiveReadBeforeSend, Always, "RFC 4340 section 8.1: either side may send first"),
    fact(ConnectionOriented, Always, "RFC 4340 section 8.1"),
    fact(FlowControl, Never, "RFC 4340 section 11.6: a Slow Receiver only hints"),
    fact(Bundling, Never, "RFC 4340 section 1: a packet each"),
    fact(PartialByTime, Never, "RFC 4340 section 1: sent once"),
    fact(PartialByRetransmissions, Never, "RFC 4340 section 1: sent once"),
    fact(Multihoming, Never, "RFC 4340 section 3.2: one address at each end"),
    fact(Security, Never, "RFC 4340 section 18"),
];
