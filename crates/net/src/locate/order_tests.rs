//! RFC 3263, paragraph by paragraph.

use super::order::*;
use ringway_sansio::{Hop, SplitMix, Transport};
use std::net::SocketAddr;

const OURS: [Transport; 3] = [Transport::Udp, Transport::Tcp, Transport::Tls];

fn query(host: &str) -> Query {
    Query { host: host.into(), port: None, transport: None, secure: false }
}

fn sips(host: &str) -> Query {
    Query { secure: true, ..query(host) }
}

fn server(transport: Transport, host: &str, port: u16) -> Server {
    Server { transport, host: host.into(), port }
}

fn service(transport: Transport, name: &str) -> Service {
    Service { transport, name: name.into() }
}

fn naptr(order: u16, preference: u16, services: &str, replacement: &str) -> Naptr {
    Naptr {
        order,
        preference,
        flags: (*b"s").into(),
        services: services.as_bytes().into(),
        regexp: (*b"").into(),
        replacement: replacement.into(),
    }
}

fn srv(priority: u16, weight: u16, target: &str) -> Srv {
    Srv { priority, weight, port: 5060, target: target.into() }
}

/// Section 4.1, second paragraph: a transport in the URI is used, with SRV of that transport
/// (section 4.2, fourth paragraph).
#[test]
fn an_explicit_transport_is_used() {
    let q = Query { transport: Some(Transport::Tcp), ..query("example.com") };
    assert_eq!(
        first_step(&q, &OURS),
        Step::Services(
            vec![service(Transport::Tcp, "_sip._tcp.example.com")],
            server(Transport::Tcp, "example.com", 5060)
        )
    );
    let q = Query { transport: Some(Transport::Sctp), ..query("example.com") };
    assert_eq!(first_step(&q, &OURS), Step::Nowhere);
}

/// Section 4.1, third paragraph, and 4.2, second: a literal address needs no query; UDP for SIP,
/// TLS for SIPS; the port of the URI or the default one.
#[test]
fn a_literal_address_is_known() {
    let known = |q: Query| match first_step(&q, &OURS) {
        Step::Known(hop) => (hop.transport, hop.addr.to_string(), hop.name),
        other => panic!("{other:?}"),
    };
    assert_eq!(known(query("192.0.2.1")), (Transport::Udp, "192.0.2.1:5060".into(), None));
    assert_eq!(known(sips("192.0.2.1")), (Transport::Tls, "192.0.2.1:5061".into(), None));
    assert_eq!(known(query("[2001:db8::1]")), (Transport::Udp, "[2001:db8::1]:5060".into(), None));
    let q = Query { port: Some(5070), transport: Some(Transport::Tcp), ..query("2001:db8::1") };
    assert_eq!(known(q), (Transport::Tcp, "[2001:db8::1]:5070".into(), None));
    let q = Query { transport: Some(Transport::Tls), ..query("192.0.2.1") };
    assert_eq!(known(q), (Transport::Tls, "192.0.2.1:5061".into(), None));
}

/// Section 4.1, third paragraph, and 4.2, third: a port means addresses, without SRV, even when it
/// is the default one.
#[test]
fn an_explicit_port_means_addresses() {
    let q = Query { port: Some(5060), ..query("example.com") };
    let expected = server(Transport::Udp, "example.com", 5060);
    assert_eq!(first_step(&q, &OURS), Step::Addresses(expected));
    let q = Query { port: Some(5099), ..sips("example.com") };
    let expected = server(Transport::Tls, "example.com", 5099);
    assert_eq!(first_step(&q, &OURS), Step::Addresses(expected));
    let q = Query { port: Some(5099), transport: Some(Transport::Tcp), ..query("example.com") };
    let expected = server(Transport::Tcp, "example.com", 5099);
    assert_eq!(first_step(&q, &OURS), Step::Addresses(expected));
}

/// RFC 3261 section 26.2.2: with `sips`, TCP is TLS and UDP is impossible.
#[test]
fn sips_is_never_in_the_clear() {
    let q = Query { transport: Some(Transport::Tcp), ..sips("example.com") };
    assert_eq!(
        first_step(&q, &OURS),
        Step::Services(
            vec![service(Transport::Tls, "_sips._tcp.example.com")],
            server(Transport::Tls, "example.com", 5061)
        )
    );
    let q = Query { transport: Some(Transport::Udp), ..sips("192.0.2.1") };
    assert_eq!(first_step(&q, &OURS), Step::Nowhere);
    assert_eq!(first_step(&sips("192.0.2.1"), &[Transport::Udp, Transport::Tcp]), Step::Nowhere);
    let q = Query { transport: Some(Transport::Ws), ..sips("192.0.2.1") };
    assert_eq!(first_step(&q, &OURS), Step::Nowhere);
}

/// Section 4.1, fourth paragraph.
#[test]
fn a_bare_name_asks_naptr() {
    assert_eq!(first_step(&query("example.com"), &OURS), Step::Naptr);
    assert_eq!(first_step(&sips("example.com"), &OURS), Step::Naptr);
}

/// The example of section 4.1: a client with TCP and UDP takes TCP.
#[test]
fn the_lowest_supported_order_decides() {
    let records = [
        naptr(50, 50, "SIPS+D2T", "_sips._tcp.example.com"),
        naptr(90, 50, "SIP+D2T", "_sip._tcp.example.com"),
        naptr(100, 50, "SIP+D2U", "_sip._udp.example.com"),
    ];
    let clear = [Transport::Udp, Transport::Tcp];
    assert_eq!(
        after_naptr(&query("example.com"), &clear, &records),
        Step::Services(
            vec![service(Transport::Tcp, "_sip._tcp.example.com")],
            server(Transport::Tcp, "example.com", 5060)
        )
    );
    // A SIP URI may be served over TLS where DNS prefers it.
    assert_eq!(
        after_naptr(&query("example.com"), &OURS, &records),
        Step::Services(
            vec![service(Transport::Tls, "_sips._tcp.example.com")],
            server(Transport::Tls, "example.com", 5061)
        )
    );
}

/// RFC 3403 section 4.1: equal order, by preference, all of them; another domain will do
/// (section 4.1, eighth paragraph).
#[test]
fn equal_orders_are_tried_by_preference() {
    let records = [
        naptr(10, 20, "sip+d2u", "_sip._udp.other.org"),
        naptr(10, 10, "SIP+D2T", "_sip._tcp.other.org"),
        naptr(20, 1, "SIPS+D2T", "_sips._tcp.other.org"),
    ];
    let Step::Services(services, _) = after_naptr(&query("example.com"), &OURS, &records) else {
        panic!("services")
    };
    assert_eq!(
        services,
        [
            service(Transport::Tcp, "_sip._tcp.other.org"),
            service(Transport::Udp, "_sip._udp.other.org")
        ]
    );
}

/// Section 4.1, sixth paragraph: SIPS discards records of other services; unusable ones are discarded.
#[test]
fn records_that_do_not_apply_are_discarded() {
    let mut broken = naptr(1, 1, "SIP+D2T", "_sip._tcp.example.com");
    broken.regexp = (*b"!^.*$!sip:a@b!").into();
    let mut address = naptr(1, 1, "SIP+D2T", "example.com");
    address.flags = (*b"a").into();
    let records = [
        broken,
        address,
        naptr(1, 1, "E2U+sip", "_sip._udp.example.com"),
        naptr(1, 1, "SIP+D2S", "_sip._sctp.example.com"),
        naptr(1, 1, "SIP+D2U", ""),
        naptr(2, 1, "SIP+D2U", "_sip._udp.here"),
        naptr(3, 1, "SIPS+D2T", "_sips._tcp.here"),
    ];
    let chosen = |q: Query| match after_naptr(&q, &OURS, &records) {
        Step::Services(services, _) => services,
        other => panic!("{other:?}"),
    };
    assert_eq!(chosen(query("example.com")), [service(Transport::Udp, "_sip._udp.here")]);
    assert_eq!(chosen(sips("example.com")), [service(Transport::Tls, "_sips._tcp.here")]);
}

/// Section 4.1, ninth and last paragraphs.
#[test]
fn without_naptr_the_default_services_are_queried() {
    assert_eq!(
        after_naptr(&query("example.com"), &OURS, &[]),
        Step::Services(
            vec![
                service(Transport::Udp, "_sip._udp.example.com"),
                service(Transport::Tcp, "_sip._tcp.example.com")
            ],
            server(Transport::Udp, "example.com", 5060)
        )
    );
    assert_eq!(
        after_naptr(&sips("example.com"), &OURS, &[]),
        Step::Services(
            vec![service(Transport::Tls, "_sips._tcp.example.com")],
            server(Transport::Tls, "example.com", 5061)
        )
    );
}

fn found(records: Vec<Srv>) -> Records {
    let addresses = records
        .iter()
        .enumerate()
        .map(|(n, r)| (r.target.clone(), vec![[192, 0, 2, n as u8].into()]))
        .collect();
    Records { services: vec![(Transport::Udp, records)], server: None, addresses }
}

/// RFC 2782: priorities in order whatever the weights.
#[test]
fn priorities_are_tried_in_order() {
    let found = found(vec![srv(20, 9, "c"), srv(10, 0, "a"), srv(30, 100, "d"), srv(10, 0, "b")]);
    for seed in 0..50 {
        let hops = found.hops(&query("example.com"), &mut SplitMix::new(seed));
        let last: Vec<u8> = hops.iter().map(|h| h.addr.to_string().as_bytes()[8]).collect();
        assert!(last[..2].contains(&b'1') && last[..2].contains(&b'3'));
        assert_eq!(last[2..], *b"02");
    }
}

/// RFC 2782: among equals, the chance of being first is the share of the weight.
#[test]
fn weights_share_the_load() {
    let found = found(vec![srv(1, 75, "a"), srv(1, 25, "b"), srv(1, 0, "c")]);
    let mut first = [0; 3];
    let mut random = SplitMix::new(7);
    for _ in 0..4_000 {
        let hops = found.hops(&query("example.com"), &mut random);
        assert_eq!(hops.len(), 3);
        let n = hops[0].addr.ip().to_string().as_bytes()[8] - b'0';
        first[n as usize] += 1;
    }
    assert!((2_800..3_200).contains(&first[0]), "{first:?}");
    assert!((800..1_200).contains(&first[1]), "{first:?}");
    assert!((1..200).contains(&first[2]), "{first:?}");
}

/// RFC 2782: a target of "." means that the service is not offered.
#[test]
fn a_service_that_is_not_offered_has_no_servers() {
    assert_eq!(usable_srv(vec![srv(0, 0, "")]), []);
    let many: Vec<Srv> = (0..100).map(|n| srv(100 - n, 0, "x")).collect();
    let kept = usable_srv(many);
    assert_eq!((kept.len(), kept[0].priority), (MAX_SRV, 1));
}

/// Section 4.2: each address in turn, a host's own before the next host's; RFC 5922 section 7.3: the
/// certificate is for the queried domain, not for the target of its records.
#[test]
fn every_address_is_a_hop_with_the_queried_name() {
    let mut found = found(vec![srv(1, 0, "a"), srv(2, 0, "b")]);
    found.services[0].0 = Transport::Tls;
    found.addresses.insert("a".into(), vec![[192, 0, 2, 8].into(), [192, 0, 2, 9].into()]);
    let hops = found.hops(&query("example.com."), &mut SplitMix::new(1));
    let addrs: Vec<String> = hops.iter().map(|h| h.addr.to_string()).collect();
    assert_eq!(addrs, ["192.0.2.8:5060", "192.0.2.9:5060", "192.0.2.1:5060"]);
    assert!(hops.iter().all(|h| h.name.as_deref() == Some("example.com")));
}

#[test]
fn hops_are_bounded_and_distinct() {
    let mut found = found(vec![srv(1, 0, "a"), srv(2, 0, "a")]);
    assert_eq!(found.hops(&query("x"), &mut SplitMix::new(1)).len(), 1);
    let many = (0..=255).map(|n| [192, 0, 2, n].into()).collect();
    found.addresses.insert("a".into(), many);
    assert_eq!(found.hops(&query("x"), &mut SplitMix::new(1)).len(), MAX_HOPS);
}

/// Section 4.3: a failed hop is tried again only after the others, but it is tried.
#[test]
fn failed_hops_are_last() {
    let found = found(vec![srv(1, 0, "a"), srv(2, 0, "b"), srv(3, 0, "c")]);
    let mut hops = found.hops(&query("x"), &mut SplitMix::new(1));
    let all = hops.clone();
    failed_last(&mut hops, |h| *h == all[0]);
    assert_eq!(hops, [all[1].clone(), all[2].clone(), all[0].clone()]);
    hops = all.clone();
    failed_last(&mut hops, |_| true);
    assert_eq!(hops, all);
}

/// With SCTP among them, as listeners of all kinds make them.
const ALL: [Transport; 5] =
    [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Sctp, Transport::TlsSctp];

/// RFC 3263 section 4.1 and RFC 4168 section 6: SIP+D2S and SIPS+D2S are transports like others, and the
/// domain sets their preference.
#[test]
fn sctp_is_chosen_where_the_domain_prefers_it() {
    let records = [
        naptr(10, 3, "SIP+D2U", "_sip._udp.example.com"),
        naptr(10, 1, "SIP+D2S", "_sip._sctp.example.com"),
        naptr(10, 2, "sips+d2s", "_sips._sctp.example.com"),
    ];
    let (plain, secure) = (
        service(Transport::Sctp, "_sip._sctp.example.com"),
        service(Transport::TlsSctp, "_sips._sctp.example.com"),
    );
    assert_eq!(
        after_naptr(&query("example.com"), &ALL, &records),
        Step::Services(
            vec![plain.clone(), secure.clone(), service(Transport::Udp, "_sip._udp.example.com")],
            server(Transport::Sctp, "example.com", 5060)
        )
    );
    assert_eq!(
        after_naptr(&sips("example.com"), &ALL, &records),
        Step::Services(vec![secure], server(Transport::TlsSctp, "example.com", 5061))
    );
    // Where SCTP is not available those records are ignored.
    let step = after_naptr(&query("example.com"), &OURS, &records);
    assert_eq!(step.server(), Some(server(Transport::Udp, "example.com", 5060)));
}

/// RFC 3263 section 4.1: without NAPTR records the services of all transports are queried; section 4.2:
/// of one alone where the URI names it, over TLS for `sips` (RFC 3261 section 26.2.2).
#[test]
fn services_over_sctp_are_queried() {
    let names = |step: Step| match step {
        Step::Services(services, _) => services.into_iter().map(|s| s.name).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        names(after_naptr(&query("a.b"), &ALL, &[])),
        ["_sip._udp.a.b", "_sip._tcp.a.b", "_sip._sctp.a.b"].map(Box::from)
    );
    assert_eq!(
        names(after_naptr(&sips("a.b"), &ALL, &[])),
        ["_sips._tcp.a.b", "_sips._sctp.a.b"].map(Box::from)
    );
    for (transport, secure, name, chosen) in [
        (Transport::Sctp, false, "_sip._sctp.a.b", Transport::Sctp),
        (Transport::Sctp, true, "_sips._sctp.a.b", Transport::TlsSctp),
        (Transport::TlsSctp, false, "_sips._sctp.a.b", Transport::TlsSctp),
        (Transport::TlsSctp, true, "_sips._sctp.a.b", Transport::TlsSctp),
    ] {
        let q = Query { transport: Some(transport), secure, ..query("a.b") };
        let port = if chosen.is_secure() { 5061 } else { 5060 };
        let expected = Step::Services(vec![service(chosen, name)], server(chosen, "a.b", port));
        assert_eq!(first_step(&q, &ALL), expected);
        // A port means no SRV records, a literal address no query at all.
        let q = Query { port: Some(5070), ..q };
        assert_eq!(first_step(&q, &ALL), Step::Addresses(server(chosen, "a.b", 5070)));
        let q = Query { host: "192.0.2.9".into(), port: None, ..q };
        let addr = SocketAddr::new([192, 0, 2, 9].into(), port);
        assert_eq!(first_step(&q, &ALL), Step::Known(Hop { transport: chosen, addr, name: None }));
    }
}
