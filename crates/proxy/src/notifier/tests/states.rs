//! Contacts and what is reported of them (RFC 3680 sections 4.7, 4.10 and 5, RFC 5628).

use super::*;

const INSTANCE: &[u8] = b"urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";

/// RFC 3680 section 6: the call flow of the standard.
#[test]
fn a_registration_is_reported() {
    let mut w = World::new();
    w.subscribe("c", 600);
    let sent = w.notification().unwrap();
    assert_eq!((sent.version(), sent.states()), (0, ("full".into(), "init".into())));
    w.pass(60);
    w.bind(&[contact("sip:joe@pc34.example.com", 9976)]);
    let sent = w.notification().unwrap();
    assert_eq!((sent.version(), sent.states()), (1, ("partial".into(), "active".into())));
    assert_eq!(sent.contacts(), [reported("sip:joe@pc34.example.com", "active", "registered")]);
    let doc = xml::parse(sent.body());
    assert_eq!(doc.attribute("xmlns"), "urn:ietf:params:xml:ns:reginfo");
    let contact = doc.all("contact").next().unwrap();
    assert_eq!(contact.attribute("duration-registered"), "0");
    assert_eq!(contact.attribute("expires"), "3540");
    assert_eq!(contact.attribute("cseq"), "9976");
    assert_eq!(contact.attribute("callid"), "0123456789012345678901234567890123456789");
    assert_eq!(doc.all("registration").next().unwrap().attribute("aor"), "sip:joe@example.com");
}

/// RFC 3680 section 4.7.1: every event that can happen here.
#[test]
fn events_of_a_contact() {
    let mut w = World::new();
    w.subscribe("c", 7000);
    w.notification();
    let a = contact("sip:joe@a", 1);
    let b = contact("sip:joe@b", 1);
    let step = |w: &mut World, bindings: &[BindingView<'_>]| {
        w.pass(10);
        w.bind(bindings);
        w.notification().map(|sent| (sent.contacts(), sent.states().1)).unwrap_or_default()
    };
    let (contacts, _) = step(&mut w, &[a, b]);
    assert_eq!(contacts.len(), 2);
    let refreshed = BindingView { cseq: 2, ..a };
    let (contacts, state) = step(&mut w, &[refreshed, b]);
    assert_eq!(contacts, [reported("sip:joe@a", "active", "refreshed")]);
    assert_eq!(state, "active");
    let shortened = BindingView { expires: w.now + Duration::from_secs(100), ..b };
    let (contacts, _) = step(&mut w, &[refreshed, shortened]);
    assert_eq!(contacts, [reported("sip:joe@b", "active", "shortened")]);
    // Nothing that is reported: no notification.
    let moved = BindingView { flow: Some(w.flow), ..refreshed };
    assert!(step(&mut w, &[moved, shortened]).0.is_empty());
    let (contacts, state) = step(&mut w, &[shortened]);
    assert_eq!(contacts, [reported("sip:joe@a", "terminated", "unregistered")]);
    assert_eq!(state, "active");
    // The timer of the notifier finds what expires, without anybody telling.
    w.pass(100);
    let sent = w.notification().unwrap();
    assert_eq!(sent.contacts(), [reported("sip:joe@b", "terminated", "expired")]);
    assert_eq!(sent.states().1, "terminated");
    assert!(w.poll().is_none());
    let (contacts, _) = step(&mut w, &[contact("sip:joe@a", 5)]);
    assert_eq!(contacts, [reported("sip:joe@a", "active", "registered")]);
}

/// RFC 3680 section 4.7.1: the server took it away, and wants it back.
#[test]
fn a_contact_whose_flow_closed_is_deactivated() {
    let mut w = World::new();
    w.subscribe("c", 600);
    w.notification();
    w.pass(10);
    let flow = Flow { transport: Transport::Wss, ..w.flow };
    w.bind(&[BindingView { flow: Some(flow), ..contact("sip:joe@a", 1) }]);
    w.notification();
    w.pass(10);
    w.store.flow_closed(flow.id, w.now);
    let sources = Sources { store: &w.store, states: &w.states };
    w.events.changed(w.now, AOR, Change::FlowClosed, sources);
    let sent = w.notification().unwrap();
    assert_eq!(sent.contacts(), [reported("sip:joe@a", "terminated", "deactivated")]);
}

/// RFC 3680 section 4.10: changes are reported together, no more often than every five seconds.
#[test]
fn notifications_are_not_too_frequent() {
    let mut w = World::new();
    w.subscribe("c", 600);
    w.notification();
    w.pass(1);
    w.bind(&[contact("sip:joe@a", 1)]);
    assert!(w.poll().is_none());
    w.bind(&[contact("sip:joe@a", 2), contact("sip:joe@b", 1)]);
    w.pass(3);
    assert!(w.poll().is_none());
    w.pass(1);
    let sent = w.notification().unwrap();
    assert_eq!(
        sent.contacts(),
        [
            reported("sip:joe@a", "active", "refreshed"),
            reported("sip:joe@b", "active", "registered")
        ]
    );
    // A SUBSCRIBE is answered at once all the same (RFC 6665 section 4.2.1.2).
    w.subscribe("d", 600);
    assert!(w.notification().is_some());
}

/// What came and went between two notifications leaves no trace but its end.
#[test]
fn a_contact_that_came_and_went() {
    let mut w = World::new();
    w.subscribe("c", 600);
    w.notification();
    w.bind(&[contact("sip:joe@a", 1)]);
    w.bind(&[]);
    w.pass(5);
    let sent = w.notification().unwrap();
    assert_eq!(sent.contacts(), [reported("sip:joe@a", "terminated", "unregistered")]);
    assert!(w.events.watches[AOR].contacts.is_empty());
}

/// RFC 6665 section 4.2.2: one NOTIFY at a time, so that they arrive in order.
#[test]
fn a_notify_waits_for_the_answer_to_the_last() {
    let mut w = World::new();
    w.subscribe("c", 600);
    let first = w.poll().unwrap();
    w.pass(20);
    w.bind(&[contact("sip:joe@a", 1)]);
    assert!(w.poll().is_none());
    w.answer(&first, 200);
    assert_eq!(w.notification().unwrap().contacts().len(), 1);
}

/// Each subscriber hears of each change once, and those that have ended are then forgotten.
#[test]
fn subscribers_are_notified_one_by_one() {
    let mut w = World::new();
    w.subscribe("c1", 600);
    w.notification();
    w.bind(&[contact("sip:joe@a", 1)]);
    w.pass(3);
    w.subscribe("c2", 600);
    let sent = w.notification().unwrap();
    assert_eq!(sent.contacts(), [reported("sip:joe@a", "active", "registered")]);
    w.pass(2);
    assert_eq!(w.notification().unwrap().header("Call-ID"), Some("c1"));
    w.bind(&[]);
    w.pass(5);
    let both: Vec<_> = (0..2).map(|_| w.notification().unwrap().contacts()).collect();
    assert_eq!(both[0], [reported("sip:joe@a", "terminated", "unregistered")]);
    assert_eq!(both[0], both[1]);
    assert!(w.poll().is_none() && w.events.watches[AOR].contacts.is_empty());
}

/// A subscriber that is far behind is sent the state instead of its history.
#[test]
fn ended_contacts_are_bounded() {
    let mut w = World::new();
    w.subscribe("c", 600);
    let first = w.poll().unwrap();
    for i in 0..200 {
        w.bind(&[contact(&format!("sip:joe@h{i}"), 1)]);
    }
    assert!(w.events.watches[AOR].contacts.len() <= MAX_ENDED + 1);
    w.pass(5);
    w.answer(&first, 200);
    let sent = w.notification().unwrap();
    assert_eq!(sent.states(), ("full".into(), "active".into()));
    assert_eq!(sent.contacts(), [reported("sip:joe@h199", "active", "registered")]);
}

/// Only subscribed addresses-of-record are watched, and only while they are.
#[test]
fn the_store_is_watched_while_there_are_subscribers() {
    let mut w = World::new();
    let heard = Arc::new(std::sync::Mutex::new(0));
    let count = heard.clone();
    w.store.set_sink(Arc::new(move |worker, _: &[u8], _| {
        assert_eq!(worker, 3);
        *count.lock().unwrap() += 1;
    }));
    w.bind(&[contact("sip:joe@a", 1)]);
    let to = w.subscribe("c", 600);
    w.notification();
    w.bind(&[contact("sip:joe@a", 2)]);
    assert_eq!(*heard.lock().unwrap(), 1);
    w.refresh("c", 11, &to, 0);
    w.notification();
    w.bind(&[contact("sip:joe@a", 3)]);
    assert_eq!(*heard.lock().unwrap(), 1);
    assert!(w.events.is_empty() && w.events.poll_timeout().is_none());
}

/// RFC 5628 section 5 and section 7.
#[test]
fn gruus_are_reported() {
    let mut w = World::new();
    let gruu = BindingView {
        instance: INSTANCE,
        reg_id: 2,
        outbound: true,
        epoch: 77,
        first_cseq: 54301,
        q: 800,
        params: b";methods=\"INVITE, BYE\";x=<y>;z",
        ..contact("sip:joe@a", 54321)
    };
    w.bind(&[gruu]);
    w.subscribe("c", 600);
    let sent = w.notification().unwrap();
    let doc = xml::parse(sent.body());
    let c = doc.all("contact").next().unwrap();
    assert_eq!(c.attribute("q"), "0.8");
    let params: Vec<_> =
        c.all("unknown-param").map(|p| (p.attribute("name"), p.text.as_str())).collect();
    assert_eq!(
        params,
        [
            ("+sip.instance", "\"<urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6>\""),
            ("reg-id", "2"),
            ("methods", "\"INVITE, BYE\""),
        ]
    );
    let public = c.all("gr:pub-gruu").next().unwrap().attribute("uri");
    assert_eq!(public, "sip:joe@example.com;gr=urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6");
    assert!(!c.has("duration-registered"));
    // Temporary GRUUs only for those who may register (RFC 5628 section 5).
    assert_eq!(c.all("gr:temp-gruu").count(), 0);
    w.may_register = true;
    w.subscribe("d", 600);
    let sent = w.notification().unwrap();
    let doc = xml::parse(sent.body());
    assert_eq!(doc.attribute("xmlns:gr"), "urn:ietf:params:xml:ns:gruuinfo");
    let temporary = doc.all("gr:temp-gruu").next().unwrap();
    assert_eq!(temporary.attribute("first-cseq"), "54301");
    let mut aor = Vec::new();
    let uri = ringway_sip::Uri::parse(temporary.attribute("uri").as_bytes()).unwrap();
    let resolved = w.events.gruus.resolve(&uri, &mut aor);
    assert_eq!(resolved, crate::gruu::Resolution::Gruu(crate::gruu::Gruu::Temporary(77)));
    assert_eq!(aor, AOR);
}

/// RFC 3680 section 5.1: ids stay the same for the same contact and differ otherwise.
#[test]
fn ids_are_stable_and_differ() {
    let mut w = World::new();
    let ids = |sent: &Sent| -> Vec<String> {
        xml::parse(sent.body()).all("contact").map(|c| c.attribute("id").to_owned()).collect()
    };
    let flow =
        |reg_id, uri| BindingView { instance: INSTANCE, reg_id, outbound: true, ..contact(uri, 1) };
    w.bind(&[contact("sip:joe@a", 1), flow(1, "sip:joe@a"), flow(2, "sip:joe@a")]);
    w.subscribe("c", 600);
    let first = ids(&w.notification().unwrap());
    assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    w.pass(10);
    let again = BindingView { cseq: 2, ..contact("sip:joe@a", 2) };
    w.bind(&[again, flow(1, "sip:joe@elsewhere"), flow(2, "sip:joe@a")]);
    let second = ids(&w.notification().unwrap());
    assert_eq!(second, first[..2]);
}

/// The length of a document is bounded, whatever is registered.
#[test]
fn a_document_is_bounded() {
    let mut w = World::new();
    let params = format!(";x=\"{}\"", "<".repeat(3000));
    let uris: Vec<_> = (0..20).map(|i| format!("sip:joe@h{i}")).collect();
    let all: Vec<_> = uris
        .iter()
        .map(|uri| BindingView { params: params.as_bytes(), ..contact(uri, 1) })
        .collect();
    w.bind(&all[..15]);
    w.subscribe("c", 600);
    let sent = w.notification().unwrap();
    assert!(sent.body().len() < MAX_DOCUMENT + 100);
    assert_eq!(sent.contacts().len(), MAX_DOCUMENT / 12_200);
}

proptest! {
    /// Whatever bytes a binding holds, the document is well-formed.
    #[test]
    fn documents_are_well_formed(
        bindings in prop::collection::vec(crate::location::tests::any_binding(), 0..4),
    ) {
        let mut w = World::new();
        w.may_register = true;
        let views: Vec<_> = bindings
            .iter()
            .map(|b| BindingView { expires: Time::from_secs(1_700_000_100), ..b.view() })
            .collect();
        w.bind(&views);
        w.subscribe("c", 600);
        let sent = w.poll_unchecked();
        let doc = xml::parse(sent.split_once("\r\n\r\n").unwrap().1);
        prop_assert!(doc.all("contact").count() <= views.len());
    }
}
