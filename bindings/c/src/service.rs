//! The services that pi_socket(3) is given, and the properties that they stand for.

use crate::fault::Fault;
use libc::c_int;
use ringway_services_tokio::{Preference, Provided, Service, TransportProperties};

/// A handshake before data is sent.
pub const PI_CONNECTION: c_int = 0x1;
/// A slow receiver slows the sender.
pub const PI_FLOW_CONTROL: c_int = 0x2;
/// The sender adapts to the network.
pub const PI_CONGESTION_CONTROL: c_int = 0x4;
/// Small messages may wait for others (Nagle's algorithm).
pub const PI_PDU_HANDLING: c_int = 0x8;
/// Checksums may cover a part of a message.
pub const PI_PARTIAL_CHECKSUM: c_int = 0x10;
/// All data arrives, once.
pub const PI_RELIABLE: c_int = 0x20;
/// Each message may state whether it has to arrive.
pub const PI_PARTIALLY_RELIABLE: c_int = 0x40;
/// Messages keep their boundaries. Either this or PI_BYTES is given.
pub const PI_MESSAGES: c_int = 0x80;
/// A stream of octets.
pub const PI_BYTES: c_int = 0x100;
/// Data arrives in order.
pub const PI_ORDERED: c_int = 0x200;
/// Several addresses of each end.
pub const PI_MULTIHOMING: c_int = 0x400;
/// Several streams in one association.
pub const PI_MULTISTREAMING: c_int = 0x800;

/// Messages that arrive, in order: PI_MESSAGES, PI_RELIABLE, PI_ORDERED and PI_CONGESTION_CONTROL.
pub const PI_RELIABLE_MESSAGES: c_int = 0x2a4;
/// A stream of octets as that of TCP: PI_BYTES, PI_RELIABLE, PI_ORDERED and PI_CONGESTION_CONTROL.
pub const PI_RELIABLE_BYTES: c_int = 0x324;
/// Messages that may be lost, repeated and reordered: PI_MESSAGES.
pub const PI_DATAGRAMS: c_int = 0x80;

/// The services that are required where their bit is set, and left open where it is not.
const REQUIRED: [(c_int, Service); 6] = [
    (PI_CONNECTION, Service::ConnectionOriented),
    (PI_FLOW_CONTROL, Service::FlowControl),
    (PI_CONGESTION_CONTROL, Service::CongestionControl),
    (PI_PDU_HANDLING, Service::Bundling),
    (PI_PARTIALLY_RELIABLE, Service::PerMsgReliability),
    (PI_MULTIHOMING, Service::Multihoming),
];
const ALL: c_int = 0xfff;

/// Returns the properties that the services stand for, as docs/services.md lists them.
pub(crate) fn properties(services: c_int) -> Result<TransportProperties, Fault> {
    let has = |bits| services & bits != 0;
    if services & !ALL != 0 || has(PI_MESSAGES) == has(PI_BYTES) {
        let text = "expected services of ringway_pi.h with either PI_MESSAGES or PI_BYTES";
        return Err(Fault::new(libc::EINVAL, format!("{text}, got {services:#x}")));
    }
    let boundaries = if has(PI_MESSAGES) { Preference::Require } else { Preference::Prohibit };
    let mut properties =
        TransportProperties::new().with(Service::PreserveMsgBoundaries, boundaries);
    for (bit, service) in REQUIRED {
        let preference = if has(bit) { Preference::Require } else { Preference::NoPreference };
        properties = properties.with(service, preference);
    }
    if has(PI_MULTISTREAMING) {
        properties = properties.require(Service::Multistreaming);
    } else if has(PI_BYTES) {
        properties = properties.with(Service::Multistreaming, Preference::NoPreference);
    }
    if has(PI_PARTIAL_CHECKSUM) {
        properties = properties.avoid(Service::FullChecksumSend).avoid(Service::FullChecksumRecv);
    }
    if !has(PI_ORDERED) {
        properties = properties.avoid(Service::PreserveOrder);
    }
    if !has(PI_RELIABLE | PI_PARTIALLY_RELIABLE) {
        properties = properties.avoid(Service::Reliability);
        // Who asks for no reliability has messages that may arrive twice, as datagrams may.
        properties.message.safely_replayable = true;
    }
    Ok(properties)
}

/// Returns the bits of what a connection has.
pub(crate) fn bits(provided: Provided) -> c_int {
    let has = |service, bit| if provided.has(service) { bit } else { 0 };
    let by_table = REQUIRED.iter().map(|(bit, service)| has(*service, *bit)).sum::<c_int>();
    let full = provided.has(Service::FullChecksumSend) && provided.has(Service::FullChecksumRecv);
    by_table
        | has(Service::Reliability, PI_RELIABLE)
        | has(Service::PreserveOrder, PI_ORDERED)
        | has(Service::Multistreaming, PI_MULTISTREAMING)
        | if full { 0 } else { PI_PARTIAL_CHECKSUM }
        | if provided.has(Service::PreserveMsgBoundaries) { PI_MESSAGES } else { PI_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_services_are_the_profiles_of_the_rfc() {
        let stated = |services, name| properties(services).unwrap().get(name).unwrap();
        for name in ["reliability", "preserveOrder", "preserveMsgBoundaries", "congestionControl"] {
            assert_eq!(stated(PI_RELIABLE_MESSAGES, name), "require", "{name}");
        }
        assert_eq!(stated(PI_RELIABLE_BYTES, "preserveMsgBoundaries"), "prohibit");
        assert_eq!(stated(PI_DATAGRAMS, "reliability"), "avoid");
        assert_eq!(stated(PI_DATAGRAMS, "congestionControl"), "noPreference");
        assert!(properties(PI_DATAGRAMS).unwrap().message.safely_replayable);
        assert_eq!(stated(PI_MESSAGES | PI_MULTIHOMING, "ringway.multihoming"), "require");
    }

    #[test]
    fn names_of_services_are_the_sums_of_their_bits() {
        let common = PI_RELIABLE | PI_ORDERED | PI_CONGESTION_CONTROL;
        assert_eq!(PI_RELIABLE_MESSAGES, PI_MESSAGES | common);
        assert_eq!(PI_RELIABLE_BYTES, PI_BYTES | common);
        assert_eq!(PI_DATAGRAMS, PI_MESSAGES);
    }

    #[test]
    fn contradictions_and_unknown_bits_are_refused() {
        for services in [0, PI_RELIABLE, PI_MESSAGES | PI_BYTES, PI_BYTES | 0x1000, -1] {
            assert_eq!(properties(services).unwrap_err().errno, libc::EINVAL, "{services:#x}");
        }
    }
}
