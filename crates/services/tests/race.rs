//! Races in virtual time.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringway_sansio::{Duration, Time};
use ringway_services::memory::Outcome;
use ringway_services::race::{Action, AttemptId, Cause, Question, Race, Settings};
use ringway_services::{
    Availability, Candidate, Family, Interface, Memory, Preconnection, Protocol, RemoteEndpoint,
    SecurityParameters, Service, TransportProperties,
};
use std::collections::BTreeMap;
use std::net::IpAddr;

const NOW: Time = Time::from_secs(1_000);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn millis(from: Time) -> u64 {
    (from - NOW).as_millis() as u64
}

/// What the network does with an attempt, by its protocol and address: an answer after a time, good or bad.
type Network = fn(&Candidate) -> Option<(u64, bool)>;

/// An attempt and the answer to come.
type Attempt = (Candidate, Option<(Time, bool)>);

/// A race with a network, and a log of what it did at which millisecond.
struct Run {
    race: Race,
    now: Time,
    log: Vec<String>,
    running: BTreeMap<AttemptId, Attempt>,
    answers: Vec<(Time, Question, Result<Vec<IpAddr>, String>)>,
    max_running: usize,
}

impl Run {
    fn new(preconnection: &Preconnection, availability: &Availability, memory: &Memory) -> Run {
        let ranked = preconnection.candidates(NOW, availability, memory).unwrap();
        Run {
            race: Race::new(NOW, ranked, Settings::default()),
            now: NOW,
            log: Vec::new(),
            running: BTreeMap::new(),
            answers: Vec::new(),
            max_running: 0,
        }
    }

    fn answer(mut self, at: u64, family: Family, addresses: &[&str]) -> Run {
        let question = Question { host: "example.org".into(), family, interface: None };
        let addresses = addresses.iter().map(|address| ip(address)).collect();
        self.answers.push((NOW + Duration::from_millis(at), question, Ok(addresses)));
        self
    }

    fn drive(mut self, network: Network) -> Run {
        for _ in 0..1_000 {
            self.act(network);
            let due = self.running.values().filter_map(|(_, answer)| *answer).map(|(at, _)| at);
            let next =
                due.chain(self.answers.iter().map(|(at, ..)| *at)).chain(self.race.poll_timeout());
            let Some(next) = next.filter(|_| !self.race.is_over()).min() else { break };
            assert!(next >= self.now, "time goes forward");
            self.now = next;
            self.happen();
        }
        assert!(self.race.is_over());
        self
    }

    fn act(&mut self, network: Network) {
        while let Some(action) = self.race.poll_action() {
            let at = millis(self.now);
            match action {
                Action::Start(id, candidate) => {
                    self.log.push(format!("{at} {} {}", candidate.protocol, candidate.remote));
                    let answer = network(&candidate);
                    let answer =
                        answer.map(|(after, ok)| (self.now + Duration::from_millis(after), ok));
                    self.running.insert(id, (candidate, answer));
                    self.max_running = self.max_running.max(self.running.len());
                }
                Action::Cancel(id) => {
                    assert!(self.running.remove(&id).is_some(), "what runs is cancelled");
                }
                Action::Won(_) => {
                    let winner = self.race.winner().unwrap().1;
                    self.log.push(format!("{at} won {} {}", winner.protocol, winner.remote));
                }
                Action::Lost(error) => self.log.push(format!("{at} {error}")),
                Action::Resolve(question) => self.log.push(format!("{at} ? {}", question.family)),
            }
        }
    }

    fn happen(&mut self) {
        let now = self.now;
        if let Some(index) = self.answers.iter().position(|(at, ..)| *at <= now) {
            let (_, question, answer) = self.answers.remove(index);
            return self.race.resolved(now, &question, answer);
        }
        let due =
            |(_, (_, answer)): &(&AttemptId, &Attempt)| answer.is_some_and(|(at, _)| at <= now);
        if let Some((&id, &(_, Some((_, ok))))) = self.running.iter().find(due) {
            self.running.remove(&id);
            if ok {
                self.race.succeeded(now, id)
            } else {
                self.race.failed(now, id, "refused")
            }
            return;
        }
        self.race.handle_timeout(now);
    }
}

fn peer(protocols: &[Protocol]) -> RemoteEndpoint {
    let peer =
        RemoteEndpoint::address("[2001:db8::1]:80".parse().unwrap()).and_address(ip("192.0.2.1"));
    protocols.iter().fold(peer, |peer, protocol| peer.with_protocol(*protocol))
}

fn name(protocols: &[Protocol]) -> RemoteEndpoint {
    let peer = RemoteEndpoint::host("example.org", 80);
    protocols.iter().fold(peer, |peer, protocol| peer.with_protocol(*protocol))
}

fn to(peer: RemoteEndpoint) -> Preconnection {
    Preconnection::new(TransportProperties::new(), SecurityParameters::disabled()).to(peer)
}

fn run(preconnection: &Preconnection) -> Run {
    Run::new(preconnection, &Availability::all(), &Memory::new())
}

const TCP: &[Protocol] = &[Protocol::Tcp];
const BOTH: &[Protocol] = &[Protocol::Tcp, Protocol::Sctp];

/// RFC 8305 section 5.
#[test]
fn the_other_family_is_tried_after_250_ms() {
    let run = run(&to(peer(TCP)))
        .drive(|one| one.remote.to_string().starts_with('1').then_some((20, true)));
    assert_eq!(
        run.log,
        ["0 tcp [2001:db8::1]:80", "250 tcp 192.0.2.1:80", "270 won tcp 192.0.2.1:80"]
    );
    assert!(run.running.is_empty(), "the slower attempt is cancelled");
}

/// RFC 8305 section 5.
#[test]
fn a_failure_starts_the_next_attempt_at_once() {
    let run = run(&to(peer(TCP))).drive(|one| {
        Some(if one.remote.to_string().starts_with('1') { (20, true) } else { (5, false) })
    });
    assert_eq!(
        run.log,
        ["0 tcp [2001:db8::1]:80", "5 tcp 192.0.2.1:80", "25 won tcp 192.0.2.1:80"]
    );
}

#[test]
fn protocols_and_addresses_take_turns() {
    let run = run(&to(peer(BOTH))).drive(|one| {
        let tcp = one.protocol == Protocol::Tcp && one.remote.to_string().starts_with('1');
        tcp.then_some((20, true))
    });
    assert_eq!(
        run.log,
        [
            "0 sctp [2001:db8::1]:80",
            "250 sctp 192.0.2.1:80",
            "500 tcp [2001:db8::1]:80",
            "750 tcp 192.0.2.1:80",
            "770 won tcp 192.0.2.1:80",
        ]
    );
    let text = run.race.explanation().to_string();
    assert!(text.starts_with("TCP is chosen: it connected first.\nSCTP was slower.\n"), "{text}");
}

/// RFC 8305 section 3.
#[test]
fn ipv4_answers_wait_50_ms_for_ipv6() {
    let fast: Network = |_| Some((10, true));
    let v4_first = run(&to(name(TCP)))
        .answer(10, Family::V4, &["192.0.2.1"])
        .answer(40, Family::V6, &["2001:db8::1"])
        .drive(fast);
    assert_eq!(
        v4_first.log,
        ["0 ? IPv6", "0 ? IPv4", "40 tcp [2001:db8::1]:80", "50 won tcp [2001:db8::1]:80"]
    );
    let v6_late = run(&to(name(TCP)))
        .answer(10, Family::V4, &["192.0.2.1"])
        .answer(90, Family::V6, &["2001:db8::1"])
        .drive(fast);
    assert_eq!(v6_late.log[2..], ["60 tcp 192.0.2.1:80", "70 won tcp 192.0.2.1:80"]);
    let v6_first = run(&to(name(TCP))).answer(10, Family::V6, &["2001:db8::1"]).drive(fast);
    assert_eq!(v6_first.log[2..], ["10 tcp [2001:db8::1]:80", "20 won tcp [2001:db8::1]:80"]);
}

/// RFC 8305 section 5: a late answer joins the attempts that have not started.
#[test]
fn late_addresses_are_sorted_in() {
    let run = run(&to(name(TCP)))
        .answer(10, Family::V4, &["192.0.2.1", "192.0.2.2"])
        .answer(100, Family::V6, &["2001:db8::1", "2001:db8::2"])
        .drive(|_| None);
    assert_eq!(
        run.log[2..6],
        [
            "60 tcp 192.0.2.1:80",
            "310 tcp [2001:db8::1]:80",
            "560 tcp [2001:db8::2]:80",
            "810 tcp 192.0.2.2:80",
        ]
    );
}

#[test]
fn a_name_without_addresses_is_reported() {
    let mut run = run(&to(name(TCP)));
    let question = |family| Question { host: "example.org".into(), family, interface: None };
    run.race.resolved(NOW, &question(Family::V4), Err("no such name".into()));
    run.race.resolved(NOW, &question(Family::V6), Ok(vec![ip("192.0.2.1")]));
    let run = run.drive(|_| None);
    assert_eq!(
        run.log[2],
        "0 no attempt connected; IPv6 addresses of example.org: it has no IPv6 address; \
         IPv4 addresses of example.org: no such name"
    );
}

/// RFC 9623 section 4.3.2: the delay follows from the time that an attempt is expected to take.
#[test]
fn delays_follow_from_the_round_trip() {
    let preconnection = to(peer(TCP));
    let delay = |rtt: u64| {
        let ranked = preconnection.candidates(NOW, &Availability::all(), &Memory::new()).unwrap();
        let mut memory = Memory::new();
        let rtt = Duration::from_millis(rtt);
        let outcome = Outcome::Worked { rtt, address: ip("2001:db8::1") };
        memory.record(NOW, ranked.candidates[0].key.clone(), outcome);
        let run = Run::new(&preconnection, &Availability::all(), &memory).drive(|_| None);
        run.log[1].split_once(' ').unwrap().0.parse::<u64>().unwrap()
    };
    assert_eq!((delay(5), delay(200), delay(5_000)), (100, 400, 2_000));
}

#[test]
fn attempts_and_the_race_time_out() {
    let run = run(&to(peer(TCP))).drive(|_| None);
    assert_eq!(
        run.log[2],
        "10250 no attempt connected; TCP to [2001:db8::1]:80: it timed out; \
         TCP to 192.0.2.1:80: it timed out"
    );
    let mut many = peer(TCP);
    many.addresses = (1..=20).map(|n| ip(&format!("192.0.2.{n}"))).collect();
    let run = self::run(&to(many)).drive(|_| None);
    assert_eq!(run.max_running, Settings::default().max_running);
    assert!(run.log.last().unwrap().starts_with("30000 no attempt connected in time"));
    assert!(run.running.is_empty());
}

/// RFC 9623 section 4.6: UDP is there at once, whether or not there is a peer.
#[test]
fn a_protocol_without_a_handshake_waits_until_those_above_it_have_failed() {
    let mut properties =
        TransportProperties::without_preferences().prefer(Service::ConnectionOriented);
    properties.message.safely_replayable = true;
    let mut preconnection = to(peer(&[Protocol::Tcp, Protocol::Udp]));
    preconnection.properties = properties;
    let run = run(&preconnection).drive(|one| match one.protocol {
        Protocol::Udp => Some((0, true)),
        _ => Some((700, false)),
    });
    assert_eq!(
        run.log,
        [
            "0 tcp [2001:db8::1]:80",
            "250 tcp 192.0.2.1:80",
            "950 udp [2001:db8::1]:80",
            "950 won udp [2001:db8::1]:80",
        ]
    );
    let text = run.race.explanation().to_string();
    assert!(text.contains("TCP failed: refused."), "{text}");
    // What shows nothing about the peer is not remembered as a success.
    let mut memory = Memory::new();
    run.race.remember(NOW, &mut memory);
    assert_eq!(memory.len(), 1);
}

/// RFC 9623 section 4.3.3.
#[test]
fn last_resorts_start_when_all_others_have_failed() {
    let mut preconnection = to(peer(TCP));
    preconnection.properties.set("interface", "avoid:cellular").unwrap();
    let availability = Availability::all()
        .with_interface(Interface::new("wwan0", "cellular", "mobile"))
        .with_interface(Interface::new("wlan0", "wifi", "home"));
    let run = Run::new(&preconnection, &availability, &Memory::new()).drive(|one| {
        Some(if one.interface.as_deref() == Some("wlan0") { (600, false) } else { (5, true) })
    });
    assert_eq!(run.log[2], "850 tcp [2001:db8::1]:80");
    assert_eq!(run.race.winner().unwrap().1.interface.as_deref(), Some("wwan0"));
}

#[test]
fn a_success_after_the_winners_is_cancelled() {
    let ranked = to(peer(TCP)).candidates(NOW, &Availability::all(), &Memory::new()).unwrap();
    let mut race = Race::new(NOW, ranked, Settings::default());
    let Some(Action::Start(first, _)) = race.poll_action() else { panic!() };
    race.handle_timeout(NOW + Duration::from_millis(250));
    let Some(Action::Start(second, _)) = race.poll_action() else { panic!() };
    race.succeeded(NOW, second);
    assert_eq!(race.poll_action(), Some(Action::Cancel(first)));
    assert_eq!(race.poll_action(), Some(Action::Won(second)));
    // The peer's answer was on the way.
    race.succeeded(NOW, first);
    assert_eq!(race.poll_action(), Some(Action::Cancel(first)));
    race.failed(NOW, first, "late");
    assert_eq!((race.poll_action(), race.poll_timeout()), (None, None));
}

#[test]
fn a_cancelled_race_cancels_its_attempts() {
    let mut run = run(&to(peer(TCP)));
    run.act(|_| None);
    run.race.cancel();
    run.act(|_| None);
    assert!(run.running.is_empty() && run.race.is_over() && run.race.poll_timeout().is_none());
}

#[test]
fn outcomes_are_remembered() {
    let preconnection = to(peer(BOTH));
    let network: Network = |one| Some((40, one.protocol == Protocol::Tcp));
    let first = run(&preconnection).drive(network);
    let mut memory = Memory::new();
    first.race.remember(NOW, &mut memory);
    let again = Run::new(&preconnection, &Availability::all(), &memory).drive(network);
    assert_eq!(again.log, ["0 tcp [2001:db8::1]:80", "40 won tcp [2001:db8::1]:80"]);
    assert_eq!(again.race.winner().unwrap().1.rtt, Some(Duration::from_millis(40)));
}

#[test]
fn the_error_names_every_attempt() {
    let ranked = to(peer(TCP)).candidates(NOW, &Availability::all(), &Memory::new()).unwrap();
    let mut race = Race::new(NOW, ranked, Settings::default());
    let mut lost = None;
    while let Some(action) = race.poll_action() {
        match action {
            Action::Start(id, _) => race.failed(NOW, id, "refused"),
            Action::Lost(error) => lost = Some(error),
            other => panic!("{other:?}"),
        }
    }
    let error = lost.unwrap();
    assert_eq!((error.cause, error.attempts.len()), (Cause::AllFailed, 2));
}

proptest! {
    /// Whatever the network does: a race ends in time, within its bounds, with the winner or the error of all.
    #[test]
    fn every_race_ends(seed in any::<u64>(), v6 in 0usize..5, v4 in 0usize..5, late in 0u64..200) {
        let preconnection = to(name(&[Protocol::Tcp, Protocol::Sctp, Protocol::SctpUdp]));
        let v6: Vec<String> = (1..=v6).map(|n| format!("2001:db8::{n}")).collect();
        let v4: Vec<String> = (1..=v4).map(|n| format!("192.0.2.{n}")).collect();
        let v6: Vec<&str> = v6.iter().map(String::as_str).collect();
        let v4: Vec<&str> = v4.iter().map(String::as_str).collect();
        let networks: [Network; 4] = [
            |_| None,
            |one| Some((one.remote.to_string().len() as u64 * 31, false)),
            |one| (one.protocol == Protocol::SctpUdp).then_some((300, true)),
            |one| one.remote.to_string().contains('3').then_some((900, true)),
        ];
        let run = run(&preconnection)
            .answer(seed % 90, Family::V4, &v4)
            .answer(late, Family::V6, &v6)
            .drive(networks[(seed >> 32) as usize % 4]);
        prop_assert!(millis(run.now) <= 30_000);
        prop_assert!(run.max_running <= Settings::default().max_running);
        prop_assert!(run.running.is_empty());
        let winner = run.race.winner().map(|(_, candidate)| candidate.protocol);
        let explained = run.race.explanation().chosen().map(|line| line.protocol);
        prop_assert!(winner.is_none() || winner == explained);
        // Nothing is tried twice.
        let mut starts: Vec<&str> = run.log.iter().filter_map(|line| line.split_once(' ')).map(|(_, what)| what)
            .filter(|what| !what.starts_with(['w', '?', 'n'])).collect();
        let count = starts.len();
        starts.sort_unstable();
        starts.dedup();
        prop_assert_eq!(starts.len(), count);
    }
}
