//! Paths, endpoints, memory and reasons of a choice.

#![allow(clippy::unwrap_used)]

use ringway_sansio::{Duration, Time};
use ringway_services::memory::Outcome;
use ringway_services::properties::Multipath;
use ringway_services::{
    Availability, Candidate, Interface, LocalEndpoint, Memory, Preconnection, Preference, Protocol,
    Ranked, Remote, RemoteEndpoint, SecurityParameters, Service, TransportProperties,
};
use std::net::IpAddr;

const NOW: Time = Time::from_secs(1_000);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A peer of which TCP and SCTP are known.
fn peer() -> RemoteEndpoint {
    RemoteEndpoint::address("192.0.2.1:5000".parse().unwrap())
        .and_address(ip("2001:db8::1"))
        .with_protocol(Protocol::Tcp)
        .with_protocol(Protocol::Sctp)
}

fn plain(properties: TransportProperties) -> Preconnection {
    Preconnection::new(properties, SecurityParameters::disabled()).to(peer())
}

fn home_and_mobile() -> Availability {
    Availability::all()
        .with_interface(
            Interface::new("wlan0", "wifi", "home")
                .with_address(ip("192.168.1.2"), false)
                .with_address(ip("2001:db8:1::2"), false)
                .with_address(ip("2001:db8:1::abcd"), true),
        )
        .with_interface(
            Interface::new("wwan0", "cellular", "mobile").with_address(ip("10.0.0.2"), false),
        )
}

fn rank(preconnection: &Preconnection, availability: &Availability) -> Ranked {
    preconnection.candidates(NOW, availability, &Memory::new()).unwrap()
}

/// The interface and protocol of each candidate.
fn order(ranked: &Ranked) -> Vec<(&str, &'static str)> {
    let candidates = ranked.candidates.iter();
    candidates.map(|one| (one.interface.as_deref().unwrap_or(""), one.protocol.name())).collect()
}

/// RFC 9622 section 6.2: the defaults; multistreaming is preferred, so SCTP comes before TCP.
#[test]
fn defaults_lead_to_sctp_before_tcp() {
    let ranked = rank(&plain(TransportProperties::new()), &Availability::all());
    assert_eq!(
        ranked.to_string(),
        "1.1.1.1 [192.0.2.1:5000, any, SCTP]\n\
         1.1.1.2 [[2001:db8::1]:5000, any, SCTP]\n\
         1.1.2.1 [192.0.2.1:5000, any, TCP]\n\
         1.1.2.2 [[2001:db8::1]:5000, any, TCP]"
    );
    let text = ranked.explanation.to_string();
    assert!(
        text.starts_with(
            "SCTP is chosen before TCP: it is better at multistreaming, preferred by default.\n\
             TCP comes later: it is worse at multistreaming, preferred by default.\n"
        ),
        "{text}"
    );
    assert!(text.contains(
        "UDP does not fit: reliability is required and never provided (RFC 768); preserveOrder"
    ));
}

/// RFC 9623 section 4.1.3: what is stated weighs more than what is a default.
#[test]
fn a_default_counts_only_for_protocols_that_the_peer_is_known_to_speak() {
    let unknown = RemoteEndpoint::address("192.0.2.1:5000".parse().unwrap());
    let order = |properties, security| {
        let preconnection = Preconnection::new(properties, security).to(unknown.clone());
        let ranked = rank(&preconnection, &Availability::all());
        ranked.candidates.iter().map(|one| one.protocol).collect::<Vec<_>>()
    };
    let defaults = order(TransportProperties::new(), SecurityParameters::disabled());
    assert_eq!(defaults[..2], [Protocol::Tcp, Protocol::SctpUdp]);
    let stated = TransportProperties::new().prefer(Service::Multistreaming);
    assert_eq!(order(stated, SecurityParameters::disabled())[0], Protocol::SctpUdp);
    let datagrams = TransportProperties::unreliable_datagram();
    assert_eq!(order(datagrams.clone(), SecurityParameters::disabled())[0], Protocol::Udp);
    assert_eq!(order(datagrams, SecurityParameters::new())[0], Protocol::QuicDatagram);
}

/// RFC 9622 section 6.2: the path is chosen before the protocol.
#[test]
fn a_preferred_interface_counts_more_than_a_preferred_service() {
    let mut properties = TransportProperties::new();
    properties.set("interface", "prefer:cellular").unwrap();
    let availability = home_and_mobile();
    let ranked = rank(&plain(properties.clone()), &availability);
    assert_eq!(order(&ranked)[..3], [("wwan0", "sctp"), ("wwan0", "tcp"), ("wlan0", "sctp")]);
    // The mobile network has IPv4 only.
    assert_eq!(ranked.candidates.len(), 2 + 4);

    properties.set("interface", "avoid:wifi").unwrap();
    let ranked = rank(&plain(properties.clone()), &availability);
    assert_eq!(ranked.best().unwrap().interface.as_deref(), Some("wwan0"));
    assert!(
        ranked
            .candidates
            .iter()
            .all(|one| one.last_resort == (one.interface.as_deref() == Some("wlan0")))
    );

    properties.set("interface", "prohibit:wlan0").unwrap();
    let ranked = rank(&plain(properties.clone()), &availability);
    assert!(ranked.candidates.iter().all(|one| one.interface.as_deref() == Some("wwan0")));

    properties.set("interface", "require:eth0").unwrap();
    let unfit = plain(properties).candidates(NOW, &availability, &Memory::new()).unwrap_err();
    let suggestion = unfit.suggestions.iter().find(|one| one.protocols.contains(&Protocol::Tcp));
    assert_eq!(suggestion.unwrap().requirement.to_string(), "interface=require:eth0");
}

/// RFC 9622 section 6.2.13.
#[test]
fn temporary_addresses_are_chosen_by_preference() {
    let local = |preference| {
        let properties =
            TransportProperties::new().with(Service::UseTemporaryLocalAddress, preference);
        let ranked = plain(properties).candidates(NOW, &home_and_mobile(), &Memory::new());
        let of = |candidates: Vec<Candidate>| {
            let tcp = |one: &&Candidate| {
                one.protocol == Protocol::Tcp && one.remote.to_string().starts_with('[')
            };
            let one = candidates.iter().find(tcp).cloned()?;
            let is_temporary = one.provides.has(Service::UseTemporaryLocalAddress);
            Some((one.local_address.map(|ip| ip.to_string()), is_temporary))
        };
        (of(ranked.clone().unwrap().candidates), ranked.unwrap().candidates.len())
    };
    let temporary = Some("2001:db8:1::abcd".to_string());
    let stable = Some("2001:db8:1::2".to_string());
    assert_eq!(local(Preference::Prefer), (Some((temporary.clone(), true)), 6));
    // There are none in IPv4.
    assert_eq!(local(Preference::Require), (Some((temporary, true)), 2));
    assert_eq!(local(Preference::NoPreference), (Some((None, false)), 6));
    assert_eq!(local(Preference::Avoid), (Some((stable.clone(), false)), 6));
    assert_eq!(local(Preference::Prohibit), (Some((stable, false)), 6));
}

/// RFC 9622 section 6.2.14: one path unless several are asked for.
#[test]
fn several_paths_use_all_local_addresses() {
    let best = |multipath| {
        let mut properties = TransportProperties::new();
        properties.selection.multipath = multipath;
        let preconnection = plain(properties);
        let ranked = rank(&preconnection, &home_and_mobile());
        let sctp = |one: &&Candidate| {
            one.protocol == Protocol::Sctp && one.remote.to_string().starts_with('[')
        };
        let one = ranked.candidates.iter().find(sctp).cloned().unwrap();
        (one.provides.has(Service::Multihoming), one.local_address)
    };
    assert_eq!(best(None), (false, Some(ip("2001:db8:1::abcd"))));
    assert_eq!(best(Some(Multipath::Active)), (true, None));
}

#[test]
fn a_local_endpoint_binds_address_and_port() {
    let local = LocalEndpoint::address("192.168.1.2:4000".parse().unwrap());
    let ranked = rank(&plain(TransportProperties::new()).from(local), &home_and_mobile());
    assert_eq!(ranked.candidates.len(), 2);
    for candidate in &ranked.candidates {
        assert_eq!(candidate.local_address, Some(ip("192.168.1.2")));
        assert_eq!(candidate.local_port, Some(4_000));
        assert_eq!(candidate.interface.as_deref(), Some("wlan0"));
    }
}

/// RFC 9623 section 9.2.
#[test]
fn what_failed_is_the_last_resort_and_what_worked_breaks_ties() {
    let preconnection = plain(TransportProperties::new());
    let ranked = rank(&preconnection, &Availability::all());
    let mut memory = Memory::new();
    memory.record(NOW, ranked.candidates[0].key.clone(), Outcome::Failed);
    let again = preconnection.candidates(NOW, &Availability::all(), &memory).unwrap();
    assert_eq!(again.best().unwrap().protocol, Protocol::Tcp);
    assert!(again.candidates.iter().all(|one| one.last_resort == (one.protocol == Protocol::Sctp)));
    assert!(
        again
            .explanation
            .to_string()
            .starts_with("TCP is chosen before SCTP: the other failed recently.")
    );

    let later = NOW + ringway_services::memory::FAILED_FOR;
    let again = preconnection.candidates(later, &Availability::all(), &memory).unwrap();
    assert_eq!(again.best().unwrap().protocol, Protocol::Sctp);

    // Without preferences both are equal, until one has worked. Its address goes first.
    let equal = plain(TransportProperties::without_preferences());
    assert_eq!(rank(&equal, &Availability::all()).best().unwrap().protocol, Protocol::Tcp);
    let rtt = Duration::from_millis(20);
    let key = ranked.candidates[0].key.clone();
    memory.record(NOW, key, Outcome::Worked { rtt, address: ip("2001:db8::1") });
    let again = equal.candidates(NOW, &Availability::all(), &memory).unwrap();
    let best = again.best().unwrap();
    assert_eq!((best.protocol, best.rtt), (Protocol::Sctp, Some(rtt)));
    assert_eq!(best.remote, Remote::Address("[2001:db8::1]:5000".parse().unwrap()));

    let text = again.explanation.to_string();
    assert!(text.starts_with("SCTP is chosen before TCP: it worked before."), "{text}");

    // RFC 9622 section 8.1.10: an isolated session does without.
    let mut isolated = equal.clone();
    isolated.properties.connection.isolate_session = true;
    let again = isolated.candidates(NOW, &Availability::all(), &memory).unwrap();
    assert!(again.isolated && again.best().unwrap().rtt.is_none());
}

#[test]
fn messages_over_tcp_need_framing() {
    let messages = TransportProperties::reliable_message();
    let ranked = rank(&plain(messages.clone()).without(Protocol::Sctp), &Availability::all());
    let best = ranked.best().unwrap();
    assert!(best.framed && best.provides.has(Service::PreserveMsgBoundaries));
    let unframed = plain(messages).without(Protocol::Sctp).without_framing();
    let unfit = unframed.candidates(NOW, &Availability::all(), &Memory::new()).unwrap_err();
    let text = unfit.to_string();
    assert!(text.contains("TCP does not fit: preserveMsgBoundaries is required and needs framing"));
    assert!(text.contains("Without the prohibition of framing: TCP."), "{text}");
    assert!(text.contains("Without preserveMsgBoundaries=require: TCP."), "{text}");
    assert!(text.contains("Without the prohibition of SCTP: SCTP."), "{text}");
    // A byte stream is a byte stream unless messages are asked for.
    assert!(!rank(&plain(TransportProperties::new()), &Availability::all()).candidates[2].framed);
}

#[test]
fn what_the_host_lacks_and_the_peer_does_not_speak_is_excluded() {
    let availability = Availability::all().without(Protocol::Sctp, "raw sockets are not permitted");
    let ranked = rank(&plain(TransportProperties::new()), &availability);
    let text = ranked.explanation.to_string();
    assert!(text.starts_with("TCP is chosen: nothing else fits."), "{text}");
    assert!(text.contains("SCTP does not fit: raw sockets are not permitted."), "{text}");
    assert!(text.contains("SCTP over UDP does not fit: no remote endpoint speaks it."), "{text}");
}

/// RFC 9622 section 9.1.3.4.
#[test]
fn udp_needs_messages_that_may_be_repeated() {
    let mut properties = TransportProperties::unreliable_datagram();
    let to =
        RemoteEndpoint::address("192.0.2.1:5000".parse().unwrap()).with_protocol(Protocol::Udp);
    let preconnection = |properties: &TransportProperties| {
        Preconnection::new(properties.clone(), SecurityParameters::disabled()).to(to.clone())
    };
    assert_eq!(rank(&preconnection(&properties), &Availability::all()).candidates.len(), 1);
    properties.message.safely_replayable = false;
    let unfit = preconnection(&properties)
        .candidates(NOW, &Availability::all(), &Memory::new())
        .unwrap_err();
    let suggestion = unfit.suggestions.iter().find(|one| one.protocols == [Protocol::Udp]);
    assert_eq!(suggestion.unwrap().requirement.to_string(), "safelyReplayable=false");
}

/// A protocol that could provide a service, and does not on this host, is no better for it, and excluded if it is required.
#[test]
fn what_a_host_does_not_provide_is_not_counted() {
    let reason = "the host has no 0-RTT data over it";
    let less = Availability::all().without_service(Protocol::Tcp, Service::ZeroRttMsg, reason);
    let first = |host: &Availability| {
        let ranked = rank(&plain(TransportProperties::new().prefer(Service::ZeroRttMsg)), host);
        let best = ranked.best().unwrap();
        (best.protocol, best.provides.has(Service::ZeroRttMsg))
    };
    assert_eq!(first(&Availability::all()), (Protocol::Tcp, true));
    assert_eq!(first(&less), (Protocol::Sctp, false));
    let required = plain(TransportProperties::new().require(Service::ZeroRttMsg));
    let unfit = required.candidates(NOW, &less, &Memory::new()).unwrap_err();
    assert!(unfit.to_string().contains(reason), "{unfit}");
}

/// RFC 9622 section 8.1.6.
#[test]
fn where_delay_counts_messages_do_not_wait_for_each_other() {
    let bundles = |properties: TransportProperties| {
        let ranked = rank(&plain(properties), &Availability::all());
        ranked.best().unwrap().provides.has(Service::Bundling)
    };
    let mut properties = TransportProperties::new();
    assert!(bundles(properties.clone()));
    properties.set("connCapacityProfile", "lowLatencyInteractive").unwrap();
    assert!(!bundles(properties.clone()));
    assert!(bundles(properties.require(Service::Bundling)));
}

/// RFC 9622 section 6.2.14: without several paths MPTCP would be TCP.
#[test]
fn mptcp_is_a_candidate_if_several_paths_are_wanted() {
    let to = RemoteEndpoint::host("example.org", 80)
        .with_protocol(Protocol::Tcp)
        .with_protocol(Protocol::Mptcp);
    let best = |properties| {
        let preconnection = Preconnection::new(properties, SecurityParameters::disabled());
        rank(&preconnection.to(to.clone()), &Availability::all()).best().unwrap().protocol
    };
    let mut properties = TransportProperties::new();
    assert_eq!(best(properties.clone()), Protocol::Tcp);
    assert_eq!(best(properties.clone().prefer(Service::Multihoming)), Protocol::Mptcp);
    properties.selection.multipath = Some(Multipath::Active);
    assert_eq!(best(properties), Protocol::Mptcp);
}

/// RFC 9622 sections 6.3.1 and 6.3.4.
#[test]
fn application_and_security_protocols_restrict_the_candidates() {
    let secure = |security: SecurityParameters| {
        let preconnection = Preconnection::new(TransportProperties::new(), security);
        let ranked =
            rank(&preconnection.to(RemoteEndpoint::host("example.org", 443)), &Availability::all());
        ranked.candidates.iter().map(|one| one.protocol).collect::<Vec<_>>()
    };
    assert_eq!(secure(SecurityParameters::new()), [Protocol::Tls, Protocol::Quic]);
    assert_eq!(secure(SecurityParameters::new().with_alpn(&["h3"])), [Protocol::Quic]);
    assert_eq!(secure(SecurityParameters::new().with_alpn(&["h2"])), [Protocol::Tls]);
    assert_eq!(secure(SecurityParameters::new().with_alpn(&["mine"])).len(), 2);
    let mut tls = SecurityParameters::new();
    tls.set("allowedSecurityProtocols", "tls").unwrap();
    assert_eq!(secure(tls), [Protocol::Tls]);
}

/// RFC 9623 section 4.7.
#[test]
fn a_listener_listens_with_all_that_fits() {
    let mut preconnection =
        Preconnection::new(TransportProperties::reliable_message(), SecurityParameters::disabled())
            .from(LocalEndpoint::port(5_000));
    let listeners = preconnection.listeners(NOW, &home_and_mobile()).unwrap();
    let protocols: Vec<_> = listeners.candidates.iter().map(|one| one.protocol.name()).collect();
    for name in ["sctp", "sctp-udp", "sctp-kernel", "tcp", "mptcp"] {
        assert_eq!(protocols.iter().filter(|other| **other == name).count(), 2, "{name}");
    }
    for candidate in &listeners.candidates {
        assert_eq!((candidate.local_port, &candidate.remote), (Some(5_000), &Remote::Any));
        assert_eq!(candidate.local_address, None);
    }
    preconnection.local.addresses = vec![ip("10.0.0.2")];
    let listeners = preconnection.listeners(NOW, &home_and_mobile()).unwrap();
    assert!(listeners.candidates.iter().all(|one| one.local_address == Some(ip("10.0.0.2"))));
}

#[test]
fn without_a_peer_nothing_fits() {
    let preconnection = Preconnection::new(TransportProperties::new(), SecurityParameters::new());
    let unfit = preconnection.candidates(NOW, &Availability::all(), &Memory::new()).unwrap_err();
    let text = unfit.to_string();
    assert!(text.contains("no remote endpoint has a name or an address"), "{text}");
    assert!(text.ends_with("No single requirement can be dropped to make one fit."), "{text}");
}
