//! Contacts that other servers have reported.

use super::*;
use crate::gruu::{Gruu, Resolution};
use crate::states::{Report, ServerContact, UserState};

impl World {
    fn sharing() -> Self {
        let w = World::new();
        w.states.share_contacts();
        w
    }

    /// Server 7 reports these contacts for an hour, and the workers are notified.
    fn report(&mut self, contacts: &[BindingView<'_>]) {
        let state = UserState { is_registered: true, ..UserState::default() };
        let mut report = Report::from(state);
        for binding in contacts {
            let expires = Time::from_secs(1_700_003_600);
            let expires =
                if binding.expires.as_secs() > 1_700_000_000 { binding.expires } else { expires };
            let binding = BindingView { expires, ..*binding };
            report.add(ServerContact::new(&binding).unwrap());
        }
        let expires = self.now + Duration::from_secs(7_200);
        self.states.set_elsewhere(AOR, 7, report, expires);
        self.state_changed();
    }

    fn end(&mut self, why: Change) {
        self.states.end_elsewhere(AOR, 7, why);
        self.state_changed();
    }

    fn next(&mut self) -> Vec<(String, String, String)> {
        self.pass(6);
        self.notification().map_or(Vec::new(), |sent| sent.contacts())
    }
}

/// RFC 3680 section 4.7.1.
#[test]
fn contacts_of_another_server_have_the_events_of_their_registrations() {
    let mut w = World::sharing();
    w.bind(&[contact("sip:joe@a", 1)]);
    w.subscribe("c", 600);
    assert_eq!(w.next(), [reported("sip:joe@a", "active", "registered")]);
    w.report(&[contact("sip:joe@b", 1)]);
    assert_eq!(w.next(), [reported("sip:joe@b", "active", "registered")]);
    w.report(&[contact("sip:joe@b", 2)]);
    assert_eq!(w.next(), [reported("sip:joe@b", "active", "refreshed")]);
    w.report(&[contact("sip:joe@b", 2), contact("sip:joe@c", 1)]);
    assert_eq!(w.next(), [reported("sip:joe@c", "active", "registered")]);
    w.report(&[contact("sip:joe@c", 1)]);
    assert_eq!(w.next(), [reported("sip:joe@b", "terminated", "unregistered")]);
    w.end(Change::Updated);
    assert_eq!(w.next(), [reported("sip:joe@c", "terminated", "unregistered")]);
}

/// RFC 3680 section 4.7.1: a phone whose server is gone is to register again.
#[test]
fn contacts_of_a_server_that_is_gone_are_deactivated() {
    for (why, event) in [
        (Change::ServerGone, "deactivated"),
        (Change::FlowClosed, "deactivated"),
        (Change::Expired, "expired"),
        (Change::Updated, "unregistered"),
    ] {
        let mut w = World::sharing();
        w.subscribe("c", 600);
        w.notification();
        w.report(&[contact("sip:joe@b", 1)]);
        w.next();
        w.end(why);
        assert_eq!(w.next(), [reported("sip:joe@b", "terminated", event)]);
    }
}

#[test]
fn a_contact_of_another_server_expires_though_nothing_is_reported() {
    let mut w = World::sharing();
    w.subscribe("c", 600);
    w.notification();
    let expires = w.now + Duration::from_secs(30);
    w.report(&[BindingView { expires, ..contact("sip:joe@b", 1) }]);
    w.next();
    w.pass(20);
    assert!(w.poll().is_none());
    assert_eq!(w.next(), [reported("sip:joe@b", "terminated", "expired")]);
}

#[test]
fn a_lifetime_that_was_counted_anew_is_no_change() {
    let mut w = World::sharing();
    w.subscribe("c", 600);
    w.notification();
    for (seconds, millis) in [(3_600, 0), (3_594, 300), (3_587, 0)] {
        let expires = w.now + Duration::from_secs(seconds) + Duration::from_millis(millis);
        w.report(&[BindingView { expires, ..contact("sip:joe@b", 1) }]);
        let expected = if seconds == 3_600 { 1 } else { 0 };
        assert_eq!(w.next().len(), expected, "{seconds}");
    }
}

#[test]
fn a_phone_that_has_moved_is_one_contact() {
    let mut w = World::sharing();
    let phone = |cseq, uri| BindingView {
        instance: b"urn:uuid:1",
        reg_id: 1,
        outbound: true,
        ..contact(uri, cseq)
    };
    let soon = w.now + Duration::from_secs(300);
    w.bind(&[BindingView { expires: soon, ..phone(1, "sip:joe@a") }]);
    w.subscribe("c", 600);
    w.notification();
    w.report(&[phone(7, "sip:joe@b")]);
    assert_eq!(w.next(), [reported("sip:joe@b", "active", "refreshed")]);
    // The binding that it has left behind ends: nobody is notified of that.
    w.pass(300);
    assert_eq!(w.next(), []);
}

/// Which of both is processed first: that the flow has closed is known by the second.
#[test]
fn a_contact_of_this_server_waits_for_the_reason_of_its_end() {
    let mut w = World::sharing();
    w.subscribe("c", 600);
    w.notification();
    let flow = Flow { transport: Transport::Wss, ..w.flow };
    w.bind(&[BindingView { flow: Some(flow), ..contact("sip:joe@a", 1) }]);
    w.next();
    w.store.flow_closed(flow.id, w.now);
    w.state_changed();
    assert_eq!(w.next(), []);
    let sources = Sources { store: &w.store, states: &w.states };
    w.events.changed(w.now, AOR, Change::FlowClosed, sources);
    assert_eq!(w.next(), [reported("sip:joe@a", "terminated", "deactivated")]);
}

/// RFC 5628 section 5.
#[test]
fn a_temporary_gruu_of_another_server_is_for_who_may_register() {
    for may_register in [true, false] {
        let mut w = World { may_register, ..World::sharing() };
        w.subscribe("c", 600);
        w.notification();
        w.report(&[BindingView {
            instance: b"urn:uuid:1",
            first_cseq: 5,
            epoch: 77,
            ..contact("sip:joe@b", 9)
        }]);
        w.pass(6);
        let sent = w.notification().unwrap();
        let doc = xml::parse(sent.body());
        assert_eq!(doc.all("gr:pub-gruu").count(), 1);
        let shown: Vec<_> = doc.all("gr:temp-gruu").collect();
        assert_eq!(shown.len(), usize::from(may_register));
        if let [temporary] = &shown[..] {
            // Nodes share the secret that it is made with: that of the instance resolves wherever it was made.
            let uri = temporary.attribute("uri");
            let parsed = ringway_sip::Uri::parse(uri.as_bytes()).unwrap();
            let mut aor = Vec::new();
            let keys = crate::keys::Keyring::of(Secret::new(&[6; 32]));
            let gruus = Gruus::new(&keys, None);
            let resolved = gruus.resolve(&parsed, &mut aor);
            assert_eq!(resolved, Resolution::Gruu(Gruu::Temporary(77)));
            assert_eq!(aor, AOR);
            assert_eq!(temporary.attribute("first-cseq"), "5");
        }
    }
}

#[test]
fn who_watches_registrations_watches_those_at_other_servers() {
    let mut w = World::sharing();
    let to = w.subscribe("c", 600);
    w.notification();
    assert!(w.states.is_watched(AOR));
    let lamp = w.watch("d", "dialog");
    w.notification();
    assert_eq!(w.refresh("c", 11, &to, 0), 200);
    w.notification();
    assert!(w.states.is_watched(AOR), "the lamp watches");
    w.send("d", 11, &lamp, "Contact: <sip:app.example.com>\nEvent: dialog\nExpires: 0");
    w.notification();
    assert!(!w.states.is_watched(AOR));
    // Routers of a mesh do not report contacts.
    let mut w = World::new();
    w.subscribe("c", 600);
    assert!(!w.states.is_watched(AOR));
}

#[test]
fn the_contacts_of_all_users_have_a_bound() {
    let w = World::sharing();
    let long = "a".repeat(4_000);
    let mut report = Report::default();
    for n in 0..2 {
        let uri = format!("sip:{n}{long}");
        report.add(ServerContact::new(&contact(&uri, 1)).unwrap());
    }
    let expires = w.now + Duration::from_secs(60);
    let users = crate::states::MAX_ELSEWHERE_OCTETS / 8_000 + 10;
    let shown = |aor: &[u8]| {
        let mut count = 0;
        w.states.contacts_elsewhere(w.now, aor, &mut |_| count += 1);
        count
    };
    for user in 0..users {
        w.states.set_elsewhere(format!("sip:{user}@h").as_bytes(), 7, report.clone(), expires);
    }
    assert_eq!((shown(b"sip:0@h"), shown(format!("sip:{}@h", users - 1).as_bytes())), (2, 0));
    assert!(w.states.without_room() > 0);
    for user in 0..users {
        w.states.end_elsewhere(format!("sip:{user}@h").as_bytes(), 7, Change::Updated);
    }
    w.states.set_elsewhere(b"sip:new@h", 7, report, expires);
    assert_eq!(shown(b"sip:new@h"), 2);
}
