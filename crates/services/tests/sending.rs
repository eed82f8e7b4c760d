//! Properties of messages against what a connection provides (RFC 9622 section 9.1.3).

#![allow(clippy::unwrap_used)]

use ringway_sansio::Time;
use ringway_services::properties::{Coverage, Inherited, Limit};
use ringway_services::sending::{SendError, Sending};
use ringway_services::{
    Availability, Candidate, Memory, MessageProperties, Preconnection, Protocol, RemoteEndpoint,
    SecurityParameters, Service, TransportProperties,
};

fn candidate(protocol: Protocol, mut properties: TransportProperties) -> Candidate {
    properties.message.safely_replayable = true;
    let peer = RemoteEndpoint::address("192.0.2.1:80".parse().unwrap()).with_protocol(protocol);
    let preconnection = Preconnection::new(properties, SecurityParameters::disabled()).to(peer);
    let ranked = preconnection.candidates(Time::ZERO, &Availability::all(), &Memory::new());
    ranked.unwrap().best().unwrap().clone()
}

fn send(
    candidate: &Candidate,
    length: usize,
    change: impl Fn(&mut MessageProperties),
) -> Result<Sending, SendError> {
    let mut message = MessageProperties::default();
    change(&mut message);
    let limits = candidate.protocol.message_limits(1_500, true, candidate.framed, 1 << 20);
    Sending::new(&message, &Default::default(), candidate, limits, length)
}

/// RFC 9622 sections 9.1.3.3 and 9.1.3.7.
#[test]
fn a_message_takes_over_what_its_connection_has() {
    let tcp = send(&candidate(Protocol::Tcp, TransportProperties::new()), 1, |_| {}).unwrap();
    assert!(tcp.ordered && tcp.reliable);
    let datagram = candidate(Protocol::DccpUdp, TransportProperties::unreliable_datagram());
    let dccp = send(&datagram, 1, |_| {}).unwrap();
    assert!(!dccp.ordered && !dccp.reliable);
}

/// RFC 9622 section 9.1.3.7.
#[test]
fn reliability_differs_only_where_it_was_asked_for() {
    let unreliable =
        |message: &mut MessageProperties| message.msg_reliable = Inherited(Some(false));
    let tcp = candidate(Protocol::Tcp, TransportProperties::new());
    assert_eq!(send(&tcp, 1, unreliable), Err(SendError::AlwaysReliable));
    let sctp = candidate(Protocol::Sctp, TransportProperties::new());
    assert_eq!(send(&sctp, 1, unreliable), Err(SendError::AlwaysReliable));
    let partial = TransportProperties::new().prefer(Service::PerMsgReliability);
    assert!(!send(&candidate(Protocol::Sctp, partial), 1, unreliable).unwrap().reliable);
    let reliable = |message: &mut MessageProperties| message.msg_reliable = Inherited(Some(true));
    let datagram = candidate(Protocol::DccpUdp, TransportProperties::unreliable_datagram());
    assert_eq!(send(&datagram, 1, reliable), Err(SendError::NotReliable));
    let ordered = |message: &mut MessageProperties| message.msg_ordered = Inherited(Some(true));
    assert_eq!(send(&datagram, 1, ordered), Err(SendError::NotOrdered));
}

/// RFC 9622 section 9.1.3.4.
#[test]
fn udp_takes_only_what_may_be_repeated() {
    let udp = candidate(Protocol::Udp, TransportProperties::unreliable_datagram());
    assert_eq!(send(&udp, 1, |_| {}), Err(SendError::MayDuplicate));
    assert!(send(&udp, 1, |message| message.safely_replayable = true).is_ok());
}

/// RFC 9622 sections 8.1.11.5 and 9.1.3.10.
#[test]
fn large_messages_are_refused() {
    let udp = candidate(Protocol::Udp, TransportProperties::unreliable_datagram());
    let whole = |message: &mut MessageProperties| message.safely_replayable = true;
    assert!(send(&udp, 65_507, whole).is_ok());
    assert!(matches!(send(&udp, 65_508, whole), Err(SendError::TooLarge { max: 65_507, .. })));
    let single = |message: &mut MessageProperties| {
        (message.safely_replayable, message.no_segmentation) = (true, true);
    };
    assert!(send(&udp, 1_472, single).is_ok());
    assert!(matches!(send(&udp, 1_473, single), Err(SendError::NotSingular { max: 1_472, .. })));
}

/// RFC 7496 section 3.1 and RFC 9622 section 9.1.3.6.
#[test]
fn limits_of_retransmissions_and_coverage_need_a_connection_that_has_them() {
    let limited =
        |message: &mut MessageProperties| message.msg_max_retransmissions = Limit(Some(2));
    let sctp = candidate(Protocol::Sctp, TransportProperties::new());
    assert_eq!(send(&sctp, 1, limited), Err(SendError::NoRetransmissionLimit));
    let asked = TransportProperties::new().require(Service::PartialByRetransmissions);
    let sending = send(&candidate(Protocol::Sctp, asked), 1, limited).unwrap();
    assert_eq!(sending.max_retransmissions, Some(2));

    let partial = |message: &mut MessageProperties| {
        (message.safely_replayable, message.msg_checksum_len) = (true, Coverage(Some(20)));
    };
    let datagram = TransportProperties::unreliable_datagram();
    let full = candidate(Protocol::UdpLite, datagram.clone());
    assert_eq!(send(&full, 1, partial).unwrap().checksum, Coverage(None));
    let lite = candidate(Protocol::UdpLite, datagram.avoid(Service::FullChecksumSend));
    assert_eq!(send(&lite, 1, partial).unwrap().checksum, Coverage(Some(20)));
}
