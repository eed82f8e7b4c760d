//! Nodes of a cluster: they report contacts, and it is known which of them live and which users have moved.

use ringway_proxy::location::BindingView;
use ringway_proxy::states::ServerContact;

use super::*;

fn nodes(number: u64) -> Net {
    Net::with(Config::of_node(), number)
}

impl Net {
    /// A node ends without notice, and the others learn of it.
    fn die(&mut self, number: u64) {
        self.at(number).is_up = false;
        self.directory.values_mut().for_each(|at| _ = at.remove(&id(number)));
        let now = self.now;
        for server in self.servers.values_mut().filter(|server| server.is_up) {
            server.following.retain(now, &|server| server != id(number));
        }
    }

    /// A change of a user is reported to all nodes.
    fn report_change(&mut self, name: &str) {
        let now = self.now;
        self.servers.values_mut().for_each(|server| server.following.moved(now, name));
    }

    fn contacts(&self, number: u64, of: u64) -> Vec<String> {
        let report = self.servers[&id(number)].reports.get(&(ALICE.into(), id(of)));
        let contacts = report.into_iter().flat_map(|(report, _)| &report.contacts);
        let uri = |contact: &ServerContact| contact.binding().unwrap().contact.to_vec();
        contacts.map(|contact| String::from_utf8(uri(contact)).unwrap()).collect()
    }
}

fn with_contacts(uris: &[&str], expires: Time) -> Report {
    let mut report = Report::from(idle());
    for uri in uris {
        let binding = BindingView {
            contact: uri.as_bytes(),
            params: b"",
            q: 1000,
            expires,
            path: b"",
            instance: b"urn:uuid:1",
            reg_id: 1,
            flow: None,
            call_id: b"call",
            cseq: 1,
            outbound: true,
            nat: false,
            epoch: 7,
            first_cseq: 1,
        };
        report.add(ServerContact::new(&binding).unwrap());
    }
    report
}

#[test]
fn contacts_are_reported_with_the_state_and_their_reason_to_end() {
    let mut net = nodes(2);
    let expires = net.now + Duration::from_secs(3_600);
    net.set(2, ALICE, with_contacts(&["sip:a@1"], expires));
    net.watch(1, ALICE);
    net.until(LATENCY, |net| net.contacts(1, 2) == ["sip:a@1"]);
    let key = (ALICE.into(), id(2));
    let (report, _) = &net.servers[&id(1)].reports[&key];
    let binding = report.contacts[0].binding().unwrap();
    // Counted from when it was received.
    assert_eq!(binding.expires.since(expires), DELAY);
    assert_eq!(binding.epoch, 7);
    net.run(MIN_INTERVAL);
    net.set(2, ALICE, with_contacts(&["sip:a@1", "sip:a@2"], expires));
    net.until(LATENCY, |net| net.contacts(1, 2).len() == 2);
    net.run(Duration::from_secs(1));
    net.set(2, ALICE, Report { ended: Change::FlowClosed, ..Report::default() });
    net.until(LATENCY, |net| net.contacts(1, 2).is_empty());
    assert_eq!(net.at(1).ends, [(ALICE.into(), id(2), Change::FlowClosed)]);
}

#[test]
fn what_does_not_change_is_not_sent_again() {
    let mut net = nodes(2);
    let expires = net.now + Duration::from_secs(3_600);
    net.set(2, ALICE, with_contacts(&["sip:a@1"], expires));
    net.watch(1, ALICE);
    net.run(Duration::from_secs(5));
    let before = net.sent;
    for _ in 0..60 {
        let now = net.now;
        net.at(2).following.changed(now, ALICE);
        net.run(Duration::from_secs(1));
    }
    assert!(net.sent - before <= 8, "{}", net.sent - before);
}

#[test]
fn what_a_node_that_dies_has_reported_ends_at_once() {
    let mut net = nodes(3);
    let expires = net.now + Duration::from_secs(3_600);
    net.set(2, ALICE, with_contacts(&["sip:a@1"], expires));
    net.watch(1, ALICE);
    net.watch(2, "bob@mesh");
    net.set(1, "bob@mesh", idle());
    net.run(Duration::from_secs(30));
    assert_eq!(net.at(1).following.counts().followers, 1);
    net.die(2);
    net.run(DELAY);
    assert_eq!(net.at(1).ends, [(ALICE.into(), id(2), Change::ServerGone)]);
    assert_eq!(net.at(1).following.counts().followers, 0, "it follows nobody any more");
    // The phone registers at another node.
    net.set(3, ALICE, with_contacts(&["sip:a@3"], expires));
    net.report_change(ALICE);
    net.until(MOVE_DELAY + LATENCY, |net| net.contacts(1, 3) == ["sip:a@3"]);
    net.run(Duration::from_secs(60));
    assert!(net.contacts(1, 2).is_empty());
}

#[test]
fn a_later_run_of_a_node_is_another_server() {
    let mut net = nodes(2);
    let expires = net.now + Duration::from_secs(3_600);
    net.set(2, ALICE, with_contacts(&["sip:a@1"], expires));
    net.watch(1, ALICE);
    net.run(Duration::from_secs(5));
    net.die(2);
    net.servers.insert(id(12), Server::with(Config::of_node(), 12, 1));
    net.set(12, ALICE, with_contacts(&["sip:a@1"], expires));
    net.report_change(ALICE);
    net.until(MOVE_DELAY + LATENCY, |net| net.contacts(1, 12) == ["sip:a@1"]);
}

#[test]
fn a_user_who_registers_at_one_more_node_is_seen_soon_though_located_lately() {
    let mut net = nodes(3);
    net.set(2, ALICE, idle());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(30));
    let located = net.located;
    net.set(3, ALICE, on_the_phone());
    net.report_change(ALICE);
    let after =
        net.until(Duration::from_secs(1), |net| net.shown(1, ALICE, 3) == Some(&on_the_phone()));
    assert!(after <= MOVE_DELAY + DELAY * 3, "{after:?}");
    assert_eq!(net.shown(1, ALICE, 2), Some(&idle()));
    // One who moves all the time is not located all the time.
    for _ in 0..1_000 {
        net.report_change(ALICE);
        net.run(Duration::from_millis(10));
    }
    assert!(net.located - located <= 30, "{}", net.located - located);
}

/// What the node reports itself has the reason, and comes before it is found that the user is not there.
#[test]
fn a_user_who_leaves_is_first_reported_by_the_node() {
    let mut net = nodes(2);
    net.set(2, ALICE, idle());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(30));
    net.set(2, ALICE, Report { ended: Change::Expired, ..Report::default() });
    net.report_change(ALICE);
    net.run(Duration::from_secs(1));
    assert_eq!(net.at(1).ends, [(ALICE.into(), id(2), Change::Expired)]);
}

#[test]
fn a_change_while_the_user_is_being_located_has_the_user_located_again() {
    let mut following = of(Config::of_node(), 1);
    let mut random = SplitMix::new(1);
    let mut due = |following: &mut Following<NodeId>, now| {
        following.handle_timeout(now, &mut |_| (idle().into(), None), &mut random);
        std::iter::from_fn(|| following.poll_event())
            .filter(|event| matches!(event, Event::Locate { .. }))
            .count()
    };
    following.set_watched(START, ALICE, true);
    assert_eq!(due(&mut following, START), 1);
    following.moved(START, ALICE);
    following.may_have_moved(START);
    let now = START + Duration::from_millis(400);
    assert_eq!(due(&mut following, now), 0, "the first question is not answered");
    following.located(now, ALICE, Some(&[]));
    assert_eq!(due(&mut following, START + MOVE_INTERVAL), 1);
    following.located(START + MOVE_INTERVAL, ALICE, Some(&[]));
    assert_eq!(due(&mut following, START + MOVE_INTERVAL * 2), 0);
}

#[test]
fn after_a_gap_what_was_missed_is_read() {
    let mut net = nodes(3);
    net.set(2, ALICE, idle());
    net.watch(1, ALICE);
    net.run(Duration::from_secs(30));
    // Nothing arrives for so long that states are not repeated any more.
    net.loses = 1;
    net.set(2, ALICE, on_the_phone());
    net.set(3, ALICE, idle());
    net.run(Duration::from_secs(100));
    assert_eq!(net.shown(1, ALICE, 2), Some(&idle()), "what was known stays meanwhile");
    net.loses = 0;
    let now = net.now;
    let node = net.at(1);
    node.following.renew(now);
    node.following.may_have_moved(now);
    net.until(LATENCY, |net| {
        net.shown(1, ALICE, 2) == Some(&on_the_phone()) && net.shown(1, ALICE, 3) == Some(&idle())
    });
}

#[test]
fn lost_messages_of_nodes_are_repaired() {
    for loses in [2, 3] {
        let mut net = nodes(2);
        net.loses = loses;
        let expires = net.now + Duration::from_secs(36_000);
        net.watch(1, ALICE);
        for round in 0..50 {
            let uri = format!("sip:a@{round}");
            net.set(2, ALICE, with_contacts(&[&uri], expires));
            net.report_change(ALICE);
            net.until(Duration::from_secs(8), |net| net.contacts(1, 2) == [uri.clone()]);
            net.run(Duration::from_millis(3_700));
        }
    }
}

#[test]
fn a_node_may_follow_all_that_it_may_watch() {
    let mut net = nodes(2);
    let names: Vec<String> = (0..4_000).map(|user| format!("user{user}@mesh")).collect();
    for name in &names {
        net.set(2, name, idle());
        net.watch(1, name);
    }
    net.run(Duration::from_secs(60));
    assert!(names.iter().all(|name| net.shown(1, name, 2) == Some(&idle())));
    assert_eq!(net.at(2).following.counts().refused, 0);
    // Renewing all of them takes few messages.
    let before = net.sent;
    net.run(Duration::from_secs(60));
    assert!(net.sent - before <= 3 * 2 * 20, "{}", net.sent - before);
}
