//! The choice against an oracle that knows nothing of the crate's tables or filters: a table written by hand and the rules
//! in their plainest form.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringway_sansio::Time;
use ringway_services::properties::Multipath;
use ringway_services::{
    Availability, Memory, Preconnection, Preference, Protocol, Ranked, RemoteEndpoint,
    SecurityParameters, Service, TransportProperties, Unfit,
};
use std::collections::BTreeSet;
use std::sync::LazyLock;

const SERVICES: [Service; 19] = [
    Service::Reliability,
    Service::PreserveMsgBoundaries,
    Service::PerMsgReliability,
    Service::PreserveOrder,
    Service::ZeroRttMsg,
    Service::Multistreaming,
    Service::FullChecksumSend,
    Service::FullChecksumRecv,
    Service::CongestionControl,
    Service::KeepAlive,
    Service::SoftErrorNotify,
    Service::ActiveReadBeforeSend,
    Service::ConnectionOriented,
    Service::FlowControl,
    Service::Bundling,
    Service::PartialByTime,
    Service::PartialByRetransmissions,
    Service::Multihoming,
    Service::Security,
];
const BOUNDARIES: usize = 1;
const MULTISTREAMING: usize = 5;
const MULTIHOMING: usize = 17;

/// a: always, s: can be switched, f: by framing, n: never; in the order of `SERVICES`.
const TABLE: [(Protocol, &str); 11] = [
    (Protocol::Tcp, "afnas faaas saaasnnnn"),
    (Protocol::Tls, "afnas faaas saaasnnna"),
    (Protocol::Quic, "afsas saaas nnaasnnna"),
    (Protocol::Mptcp, "afnas faaas naaasnnsn"),
    (Protocol::Udp, "nannn nssnn snnnnnnnn"),
    (Protocol::UdpLite, "nannn nssnn snnnnnnnn"),
    (Protocol::Sctp, "sassn saaas naaassssn"),
    (Protocol::SctpUdp, "sassn saaas naaassssn"),
    (Protocol::SctpKernel, "sassn saaas naaassssn"),
    (Protocol::QuicDatagram, "nannn naaas naansnnna"),
    (Protocol::DccpUdp, "nannn naaan naannnnnn"),
];

/// The same, letter by letter.
static ROWS: LazyLock<Vec<(Protocol, Vec<u8>)>> = LazyLock::new(|| {
    let row = |row: &str| row.bytes().filter(|letter| *letter != b' ').collect::<Vec<u8>>();
    let rows: Vec<_> = TABLE.iter().map(|(protocol, letters)| (*protocol, row(letters))).collect();
    assert!(rows.iter().all(|(_, row)| row.len() == SERVICES.len()));
    rows
});

type Wish = [Preference; SERVICES.len()];

fn fits(row: &[u8], protocol: Protocol, wish: &Wish) -> bool {
    for (letter, preference) in row.iter().zip(wish) {
        if *preference == Preference::Require && *letter == b'n' {
            return false;
        }
        if *preference == Preference::Prohibit && *letter == b'a' {
            return false;
        }
    }
    // Streams on a byte stream need framing, and framing keeps boundaries.
    if row[MULTISTREAMING] == b'f'
        && wish[MULTISTREAMING] == Preference::Require
        && wish[BOUNDARIES] == Preference::Prohibit
    {
        return false;
    }
    // Multipath TCP with one path is TCP.
    protocol != Protocol::Mptcp
        || matches!(wish[MULTIHOMING], Preference::Require | Preference::Prefer)
}

fn ask(wish: &Wish) -> Result<Ranked, Unfit> {
    let mut properties = TransportProperties::without_preferences();
    for (service, preference) in SERVICES.iter().zip(wish) {
        properties.selection.set(*service, *preference);
    }
    properties.message.safely_replayable = true;
    let peer = RemoteEndpoint::address(([192, 0, 2, 1], 5_000).into());
    Preconnection::new(properties, SecurityParameters::new()).to(peer).candidates(
        Time::ZERO,
        &Availability::all(),
        &Memory::new(),
    )
}

/// Asserts that exactly what the oracle allows is a candidate, and that it has what it must.
fn check(wish: &Wish) {
    let expected: BTreeSet<Protocol> = ROWS
        .iter()
        .filter(|(protocol, row)| fits(row, *protocol, wish))
        .map(|(protocol, _)| *protocol)
        .collect();
    let candidates = match ask(wish) {
        Ok(ranked) => ranked.candidates,
        Err(_) => Vec::new(),
    };
    let found: BTreeSet<Protocol> = candidates.iter().map(|one| one.protocol).collect();
    assert_eq!(found, expected, "{wish:?}");
    for candidate in &candidates {
        for (service, preference) in SERVICES.iter().zip(wish) {
            let must = match preference {
                Preference::Require => true,
                Preference::Prohibit => false,
                _ => continue,
            };
            assert_eq!(candidate.provides.has(*service), must, "{service} {candidate:?}");
        }
    }
}

/// Larger sets are sampled: a service excludes a protocol by itself, and hardly one is left of them.
#[test]
fn every_set_of_up_to_five_required_services_gets_what_provides_them_all() {
    for set in 0u32..1 << SERVICES.len() {
        if set.count_ones() > 5 && set % 67 != 0 {
            continue;
        }
        let mut wish = [Preference::NoPreference; SERVICES.len()];
        for (index, preference) in wish.iter_mut().enumerate() {
            if set >> index & 1 == 1 {
                *preference = Preference::Require;
            }
        }
        check(&wish);
    }
}

#[test]
fn every_four_services_are_required_or_prohibited_in_every_way() {
    let count = SERVICES.len();
    for a in 0..count {
        for b in a + 1..count {
            for c in b + 1..count {
                for d in c + 1..count {
                    for ways in 0..16 {
                        let mut wish = [Preference::NoPreference; SERVICES.len()];
                        for (bit, index) in [a, b, c, d].into_iter().enumerate() {
                            wish[index] = match ways >> bit & 1 {
                                0 => Preference::Require,
                                _ => Preference::Prohibit,
                            };
                        }
                        check(&wish);
                    }
                }
            }
        }
    }
}

fn preference() -> impl Strategy<Value = Preference> {
    // A requirement or prohibition of each service would leave nothing.
    prop_oneof![
        1 => Just(Preference::Require),
        3 => Just(Preference::Prefer),
        8 => Just(Preference::NoPreference),
        3 => Just(Preference::Avoid),
        1 => Just(Preference::Prohibit),
    ]
}

fn score(row: &[u8], wish: &Wish) -> usize {
    let is = |index: usize, preferences: &[Preference]| preferences.contains(&wish[index]);
    let framed = row[BOUNDARIES] == b'f'
        && is(BOUNDARIES, &[Preference::Require, Preference::Prefer])
        || row[MULTISTREAMING] == b'f' && is(MULTISTREAMING, &[Preference::Require]);
    let preferred = (0..row.len()).filter(|index| wish[*index] == Preference::Prefer);
    let points = preferred.map(|index| match row[index] {
        b'n' => 0,
        b'f' => usize::from(framed),
        _ => 2,
    });
    points.sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_choice_fits_and_provides_most_of_what_is_preferred(
        wish in proptest::array::uniform19(preference()),
    ) {
        check(&wish);
        if let Ok(ranked) = ask(&wish) {
            let best = ranked.best().unwrap().protocol;
            let of = |protocol| score(&ROWS.iter().find(|(one, _)| *one == protocol).unwrap().1, &wish);
            let most = ranked.candidates.iter().map(|one| of(one.protocol)).max();
            prop_assert_eq!(Some(of(best)), most);
            let chosen = ranked.explanation.chosen().unwrap();
            prop_assert_eq!(chosen.protocol, best);
        }
    }

    /// What is suggested helps.
    #[test]
    fn without_a_suggested_requirement_something_fits(
        wish in proptest::array::uniform19(preference()),
    ) {
        use ringway_services::explain::Requirement;
        let Err(unfit) = ask(&wish) else { return Ok(()) };
        for suggestion in unfit.suggestions {
            let mut properties = TransportProperties::without_preferences();
            for (service, preference) in SERVICES.iter().zip(&wish) {
                properties.selection.set(*service, *preference);
            }
            properties.message.safely_replayable = true;
            match suggestion.requirement {
                Requirement::Service(service, _) => {
                    properties.selection.set(service, Preference::NoPreference);
                }
                Requirement::SinglePath => properties.selection.multipath = Some(Multipath::Active),
                other => prop_assert!(false, "{}", other),
            }
            let peer = RemoteEndpoint::address(([192, 0, 2, 1], 5_000).into());
            let ranked = Preconnection::new(properties, SecurityParameters::new())
                .to(peer)
                .candidates(Time::ZERO, &Availability::all(), &Memory::new());
            let ranked = ranked.unwrap();
            for protocol in suggestion.protocols {
                prop_assert!(ranked.candidates.iter().any(|one| one.protocol == protocol));
            }
        }
    }
}
