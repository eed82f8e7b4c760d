//! The server as a table of messages, some of them as clients send them.

use super::*;
use crate::site::SipService;
use dhcproto::Decodable;
use dhcproto::Decoder;
use dhcproto::v4::{self, OptionCode};
use proptest::prelude::*;
use ringway_mesh::NodeId;

const NOW: Time = Time::from_secs(100);
const LAN: Ipv4Lan = Ipv4Lan::DEFAULT;

fn server_with(encoding: SipEncoding) -> Dhcp4 {
    let site = Site::new(NodeId::new(1), SipService::default(), Some(LAN)).unwrap();
    Dhcp4::new(LAN, Some(&site), encoding)
}

fn server() -> Dhcp4 {
    server_with(SipEncoding::Addresses)
}

fn at(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 50, 60, last)
}

/// A message of the client with a hardware address that ends in `n`.
fn message(n: u8, ciaddr: Ipv4Addr, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, 1, 6, 0, 0x90, 0xb7, 0xdc, n, 0, 0, 0, 0];
    bytes.extend(ciaddr.octets());
    bytes.extend([0; 12]);
    bytes.extend([2, 0, 0, 0, 0, n]);
    bytes.resize(236, 0);
    bytes.extend([99, 130, 83, 99]);
    bytes.extend(options);
    bytes.push(255);
    bytes.resize(bytes.len().max(MIN_MESSAGE), 0);
    bytes
}

const NONE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn with_address(kind: u8, code: u8, address: Ipv4Addr) -> Vec<u8> {
    [&[53, 1, kind, code, 4][..], &address.octets()].concat()
}

/// A request for an address of a server.
fn selecting(n: u8, address: Ipv4Addr, from: Ipv4Addr) -> Vec<u8> {
    let options = [&with_address(3, 50, address)[..], &[54, 4], &from.octets()].concat();
    message(n, NONE, &options)
}

fn init_reboot(n: u8, address: Ipv4Addr) -> Vec<u8> {
    message(n, NONE, &with_address(3, 50, address))
}

fn read(reply: &Reply) -> v4::Message {
    v4::Message::decode(&mut Decoder::new(&reply.bytes)).unwrap()
}

/// Kind, address and destination of an answer.
fn summary(reply: Option<Reply>) -> Option<(MessageType, Ipv4Addr, Ipv4Addr)> {
    let reply = reply?;
    assert_eq!(reply.to.port(), CLIENT_PORT);
    assert!((MIN_MESSAGE..=548).contains(&reply.bytes.len()));
    let message = read(&reply);
    assert_eq!(message.opcode(), v4::Opcode::BootReply);
    let kind = message.opts().msg_type().unwrap();
    Some((kind, message.yiaddr(), *reply.to.ip()))
}

/// What busybox 1.35 sends: `udhcpc -O 120`.
#[test]
fn udhcpc_is_offered_an_address_and_the_sip_server() {
    let options = b"\x35\x01\x01\x39\x02\x02\x40\x37\x08\x01\x03\x06\x0c\x0f\x1c\x2a\x78\
        \x3c\x0cudhcp 1.35.0\x3d\x07\x01\x02\0\0\0\0\x0a";
    let mut server = server();
    let reply = server.handle(NOW, &message(0x0a, NONE, options)).unwrap();
    let offer = read(&reply);
    assert_eq!(*reply.to.ip(), Ipv4Addr::BROADCAST);
    assert_eq!(reply.bytes.len(), MIN_MESSAGE + 14);
    let address = offer.yiaddr();
    assert!(LAN.is_host(address));
    let octets = |code: u8| match offer.opts().get(OptionCode::from(code)) {
        Some(DhcpOption::Unknown(option)) => option.data().to_vec(),
        other => panic!("{code}: {other:?}"),
    };
    // RFC 3361 section 3.2.
    assert_eq!(octets(120), [1, 10, 50, 60, 1]);
    let expected = [
        DhcpOption::SubnetMask([255, 255, 255, 0].into()),
        DhcpOption::Router(vec![at(1)]),
        DhcpOption::DomainNameServer(vec![at(1)]),
        DhcpOption::DomainName("mesh".to_owned()),
        DhcpOption::BroadcastAddr(at(255)),
        DhcpOption::AddressLeaseTime(1_800),
        DhcpOption::MessageType(MessageType::Offer),
        DhcpOption::ServerIdentifier(at(1)),
        DhcpOption::Renewal(900),
        DhcpOption::Rebinding(1_575),
        DhcpOption::ClientIdentifier(vec![1, 2, 0, 0, 0, 0, 0x0a]),
    ];
    for option in &expected {
        assert_eq!(offer.opts().get(option.into()), Some(option));
    }
    assert_eq!(offer.opts().len(), expected.len() + 1);
    let request = server.handle(NOW, &selecting(0x0a, address, at(1)));
    assert_eq!(
        summary(request).map(|(kind, ..)| kind),
        Some(MessageType::Nak),
        "another name, the same hardware"
    );
}

/// What ISC dhclient 4.4 sends: a DISCOVER, and a REQUEST after it was restarted or moved.
#[test]
fn dhclient_keeps_the_address_that_it_had_at_another_router() {
    let discover = b"\x35\x01\x01\x37\x04\x01\x03\x06\x0f\x3d\x07\x01\x02\0\0\0\0\x0a";
    let reboot =
        b"\x35\x01\x03\x32\x04\x0a\x32\x3c\x17\x37\x04\x01\x03\x06\x0f\x3d\x07\x01\x02\0\0\0\0\x0a";
    let mut server = server();
    let reply = server.handle(NOW, &message(0x0a, NONE, reboot)).unwrap();
    assert_eq!(summary(Some(reply.clone())), Some((MessageType::Ack, at(23), Ipv4Addr::BROADCAST)));
    assert!(!read(&reply).opts().contains(OptionCode::from(120)), "it did not ask for it");
    assert_eq!(server.leases().bound(NOW), 1);
    // It is offered the same afterwards.
    let offer = server.handle(NOW, &message(0x0a, NONE, discover));
    assert_eq!(summary(offer), Some((MessageType::Offer, at(23), Ipv4Addr::BROADCAST)));
    // Another host that asks for it is refused at once.
    let taken = server.handle(NOW, &init_reboot(0x0b, at(23)));
    assert_eq!(summary(taken), Some((MessageType::Nak, NONE, Ipv4Addr::BROADCAST)));
    // So is one that comes from a network of another kind.
    let foreign = server.handle(NOW, &init_reboot(0x0c, [192, 168, 1, 7].into()));
    assert_eq!(summary(foreign), Some((MessageType::Nak, NONE, Ipv4Addr::BROADCAST)));
}

/// RFC 2131 section 4.3.2.
#[test]
fn an_address_is_leased_and_extended() {
    let mut server = server();
    let offer = summary(server.handle(NOW, &message(1, NONE, &[53, 1, 1])));
    let Some((MessageType::Offer, address, _)) = offer else { panic!("{offer:?}") };
    let ack = server.handle(NOW, &selecting(1, address, at(1)));
    assert_eq!(summary(ack), Some((MessageType::Ack, address, Ipv4Addr::BROADCAST)));
    // Renewed from the address itself, also after the router has lost its state.
    let later = NOW + LEASE / 2;
    for server in [&mut server, &mut self::server()] {
        let reply = server.handle(later, &message(1, address, &[53, 1, 3])).unwrap();
        assert_eq!(read(&reply).ciaddr(), address);
        assert_eq!(summary(Some(reply)), Some((MessageType::Ack, address, address)));
    }
    assert_eq!(server.leases().bound(NOW + LEASE), 1);
    assert_eq!(server.leases().bound(later + LEASE), 0);
    // From an address of elsewhere, which nothing is sent to.
    let elsewhere = server.handle(later, &message(2, [192, 0, 2, 1].into(), &[53, 1, 3]));
    assert_eq!(summary(elsewhere), Some((MessageType::Nak, NONE, Ipv4Addr::BROADCAST)));
}

#[test]
fn a_client_that_chooses_another_server_frees_the_offer() {
    let mut server = server();
    let reply = server
        .handle(NOW, &message(1, NONE, &[&[53, 1, 1][..], &[50, 4, 10, 50, 60, 77]].concat()));
    assert_eq!(summary(reply).map(|(_, address, _)| address), Some(at(77)));
    assert_eq!(summary(server.handle(NOW, &init_reboot(2, at(77)))).unwrap().0, MessageType::Nak);
    assert!(
        server
            .handle(NOW, &selecting(1, [192, 168, 1, 5].into(), [192, 168, 1, 1].into()))
            .is_none()
    );
    assert_eq!(summary(server.handle(NOW, &init_reboot(2, at(77)))).unwrap().0, MessageType::Ack);
}

/// RFC 2131 sections 4.3.3 to 4.3.5.
#[test]
fn addresses_are_declined_released_and_asked_about() {
    let mut server = server();
    assert!(server.handle(NOW, &init_reboot(1, at(77))).is_some());
    let decline =
        |from| [&with_address(4, 50, at(77))[..], &with_address(4, 54, from)[3..]].concat();
    assert!(server.handle(NOW, &message(1, NONE, &decline(at(9)))).is_none());
    assert_eq!(server.counters().declined, 0, "of another server");
    assert!(server.handle(NOW, &message(1, NONE, &decline(at(1)))).is_none());
    assert_eq!(server.counters().declined, 1);
    assert_eq!(summary(server.handle(NOW, &init_reboot(2, at(77)))).unwrap().0, MessageType::Nak);
    assert!(server.handle(NOW, &init_reboot(1, at(78))).is_some());
    assert!(server.handle(NOW, &message(1, at(78), &with_address(7, 54, at(1)))).is_none());
    assert_eq!(server.leases().bound(NOW), 0);
    // A host with an address of its own asks for the rest.
    let reply = server.handle(NOW, &message(3, at(200), &[53, 1, 8])).unwrap();
    assert!(!read(&reply).opts().contains(OptionCode::AddressLeaseTime));
    assert!(read(&reply).opts().contains(OptionCode::from(120)));
    assert_eq!(summary(Some(reply)), Some((MessageType::Ack, NONE, at(200))));
    assert!(server.handle(NOW, &message(3, [192, 0, 2, 1].into(), &[53, 1, 8])).is_none());
}

/// RFC 3361 section 3.1.
#[test]
fn the_sip_server_is_a_name_if_that_is_chosen() {
    let mut server = server_with(SipEncoding::Names);
    let offer = read(&server.handle(NOW, &message(1, NONE, &[53, 1, 1])).unwrap());
    let Some(DhcpOption::Unknown(option)) = offer.opts().get(OptionCode::from(120)) else {
        panic!()
    };
    assert_eq!(option.data(), b"\0\x03sip\x04mesh\0");
}

#[test]
fn without_a_sip_server_there_is_only_the_network() {
    let mut server = Dhcp4::new(LAN, None, SipEncoding::Addresses);
    let offer = read(&server.handle(NOW, &message(1, NONE, &[53, 1, 1])).unwrap());
    for code in [6, 15, 120] {
        assert!(!offer.opts().contains(OptionCode::from(code)), "{code}");
    }
    assert!(offer.opts().contains(OptionCode::Router));
}

#[test]
fn the_longest_domain_fits() {
    let domain = format!("{0}.{0}", "a".repeat(31));
    let sip = SipService { domain, ..SipService::default() };
    let site = Site::new(NodeId::new(1), sip, Some(LAN)).unwrap();
    let mut server = Dhcp4::new(LAN, Some(&site), SipEncoding::Names);
    let identifier = [&[53, 1, 1, 61, 100][..], &[7; 100]].concat();
    assert!(summary(server.handle(NOW, &message(1, NONE, &identifier))).is_some());
}

#[test]
fn what_is_no_message_of_a_client_here_is_not_answered() {
    let good = message(1, NONE, &[53, 1, 1]);
    let changed = |at: usize, octet: u8| {
        let mut bytes = good.clone();
        bytes[at] = octet;
        bytes
    };
    assert!(server().handle(NOW, &good).is_some());
    for (bytes, why) in [
        (changed(0, 2), "a reply"),
        (changed(2, 17), "a hardware address that is longer than its field"),
        (changed(2, 255), "another"),
        (changed(2, 0), "no name at all"),
        (changed(24, 10), "through a relay agent"),
        (changed(236, 0), "BOOTP"),
        (changed(242, 0), "no kind"),
        (changed(242, 2), "an OFFER"),
        (changed(242, 13), "a LEASEQUERY"),
        (message(1, NONE, &[53, 0]), "an empty kind"),
        (message(1, NONE, &[53, 1, 3]), "a REQUEST for nothing"),
        (message(1, NONE, &[53, 1, 1, 50, 3, 1, 2, 3]), "three octets of an address"),
        (good[..239].to_vec(), "too short"),
        ([good.clone(), vec![0; MAX_MESSAGE]].concat(), "too long"),
        (vec![], "empty"),
    ] {
        let mut server = server();
        assert!(server.handle(NOW, &bytes).is_none(), "{why}");
        assert_eq!(server.counters().dropped, 1, "{why}");
        assert!(server.leases().is_empty(), "{why}");
    }
}

#[test]
fn a_hardware_address_that_asks_too_much_is_not_answered_and_others_are() {
    let mut server = server();
    let mut asked = |n| {
        (0..50).filter(|_| server.handle(NOW, &message(n, NONE, &[53, 1, 1])).is_some()).count()
    };
    assert_eq!((asked(1), asked(2)), (BURST as usize, BURST as usize));
    assert_eq!(server.counters().limited, 60);
}

proptest! {
    #[test]
    fn octets_of_any_kind_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        server().handle(NOW, &bytes);
    }

    /// Options of any kind, in messages that are else well-formed.
    #[test]
    fn options_of_any_kind_are_handled(
        head in prop::collection::vec(any::<u8>(), 44),
        options in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0..20_u8,
    ) {
        let mut bytes = message(1, NONE, &[&[53, 1, kind][..], &options].concat());
        bytes[..44].copy_from_slice(&head);
        bytes[0] = 1;
        if let Some(reply) = server().handle(NOW, &bytes) {
            prop_assert!((MIN_MESSAGE..=800).contains(&reply.bytes.len()));
            let to = *reply.to.ip();
            prop_assert!(to.is_broadcast() || LAN.is_host(to));
        }
    }
}
