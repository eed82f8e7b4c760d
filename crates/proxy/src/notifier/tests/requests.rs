//! SUBSCRIBE and the dialog (RFC 6665 sections 4.2.1 and 4.4).

use super::*;

/// RFC 6665 section 4.2.1.2: a NOTIFY follows at once, on the dialog of the answer.
#[test]
fn a_subscription_begins_with_a_notify() {
    let mut w = World::new();
    let to = w.subscribe("9987@app", 600);
    let sent = w.poll().unwrap();
    assert!(sent.text.starts_with("NOTIFY sip:app.example.com SIP/2.0\nMax-Forwards: 70\n"));
    assert_eq!(sent.header("From"), Some(&to[..]));
    assert_eq!(sent.header("To"), Some("<sip:app.example.com>;tag=123aa9"));
    assert_eq!(sent.header("Call-ID"), Some("9987@app"));
    assert_eq!(sent.header("Contact"), Some("<sip:192.0.2.1:5060>"));
    assert_eq!(sent.header("Event"), Some("reg"));
    assert_eq!(sent.header("Subscription-State"), Some("active;expires=600"));
    assert_eq!(sent.header("Content-Type"), Some("application/reginfo+xml"));
    assert_eq!(sent.header("Content-Length"), Some(&*sent.body().len().to_string()));
    assert_eq!(sent.header("Route"), None);
    assert_eq!(sent.states(), ("full".into(), "init".into()));
    assert!(w.poll().is_none());
    assert_eq!(w.events.len(), 1);
}

/// RFC 3261 section 12.2.1.1: the CSeq of a dialog counts up by one.
#[test]
fn cseq_and_version_count_up() {
    let mut w = World::new();
    w.subscribe("c", 600);
    let first = w.notification().unwrap();
    let number = |s: &Sent| -> u32 {
        s.header("CSeq").unwrap().strip_suffix(" NOTIFY").unwrap().parse().unwrap()
    };
    assert_eq!(first.version(), 0);
    for i in 1..4 {
        w.pass(10);
        w.bind(&[contact("sip:joe@h", i)]);
        let sent = w.notification().unwrap();
        assert_eq!((number(&sent), sent.version()), (number(&first) + i, u64::from(i)));
    }
}

/// RFC 3261 sections 12.1.1 and 12.2.1.1: a loose route is followed.
#[test]
fn a_route_set_is_stored() {
    let mut w = World::new();
    let lines = "Record-Route: <sip:p1;lr>, <sip:p2;lr>\nRecord-Route: <sip:p3;lr>\n\
                 Contact: <sip:app@h;x=1>\nEvent: reg;id=7\nExpires: 60";
    assert_eq!(w.send("c", 1, "<sip:joe@example.com>", lines).0.status, 200);
    let sent = w.notification().unwrap();
    assert!(sent.text.starts_with("NOTIFY sip:app@h;x=1 SIP/2.0\n"));
    assert_eq!(sent.routes(), ["<sip:p1;lr>", "<sip:p2;lr>", "<sip:p3;lr>"]);
    assert_eq!(sent.header("Event"), Some("reg;id=7"));
}

/// RFC 3261 section 12.2.1.1: a strict router gets the request addressed to itself.
#[test]
fn a_strict_router_is_obeyed() {
    for (record_route, routes) in [
        ("<sip:p1>, <sip:p2;lr>", &["<sip:p2;lr>", "<sip:app@h>"][..]),
        ("<sip:p1>", &["<sip:app@h>"]),
    ] {
        let mut w = World::new();
        let lines =
            format!("Record-Route: {record_route}\nContact: <sip:app@h>\nEvent: reg\nExpires: 60");
        w.send("c", 1, "<sip:joe@example.com>", &lines);
        let sent = w.notification().unwrap();
        assert!(sent.text.starts_with("NOTIFY sip:p1 SIP/2.0\n"));
        assert_eq!(sent.routes(), routes);
        assert_eq!(&*sent.notify.next_hop, b"sip:p1");
    }
}

/// RFC 6665 section 4.4.3: a fetch is a subscription that ends at once.
#[test]
fn a_fetch_returns_the_full_state_once() {
    let mut w = World::new();
    w.bind(&[contact("sip:joe@h", 1)]);
    w.subscribe("c", 0);
    let sent = w.poll().unwrap();
    assert_eq!(sent.header("Subscription-State"), Some("terminated;reason=timeout"));
    assert_eq!(sent.states(), ("full".into(), "active".into()));
    assert_eq!(sent.contacts(), [reported("sip:joe@h", "active", "registered")]);
    assert_eq!(w.events.len(), 1);
    w.answer(&sent, 200);
    assert!(w.events.is_empty() && w.events.watches.is_empty());
}

/// RFC 6665 section 4.2.1.4.
#[test]
fn a_refresh_extends_and_reports_the_full_state() {
    let mut w = World::new();
    let to = w.subscribe("c", 100);
    w.notification();
    w.pass(80);
    assert_eq!(w.refresh("c", 11, &to, 100), 200);
    let sent = w.notification().unwrap();
    assert_eq!(sent.header("Subscription-State"), Some("active;expires=100"));
    assert_eq!(sent.states().0, "full");
    w.pass(80);
    assert!(w.poll().is_none());
    w.pass(20);
    let sent = w.notification().unwrap();
    assert_eq!(sent.header("Subscription-State"), Some("terminated;reason=timeout"));
    assert!(w.events.is_empty());
}

/// RFC 6665 section 4.2.1.4: Expires 0 within the dialog.
#[test]
fn unsubscribing_sends_one_last_notify() {
    let mut w = World::new();
    let to = w.subscribe("c", 100);
    w.notification();
    assert_eq!(w.refresh("c", 11, &to, 0), 200);
    // It is over: nothing more can be asked of it.
    assert_eq!(w.refresh("c", 12, &to, 100), 481);
    let sent = w.notification().unwrap();
    assert_eq!(sent.header("Subscription-State"), Some("terminated;reason=timeout"));
    assert_eq!((w.events.len(), w.poll().is_none()), (0, true));
    assert_eq!(w.refresh("c", 13, &to, 100), 481);
}

/// The last NOTIFY waits for the answer to the one before and is sent all the same.
#[test]
fn unsubscribing_while_a_notify_is_on_its_way() {
    let mut w = World::new();
    let to = w.subscribe("c", 100);
    let first = w.poll().unwrap();
    assert_eq!(w.refresh("c", 11, &to, 0), 200);
    assert!(w.poll().is_none());
    w.answer(&first, 200);
    let last = w.poll().unwrap();
    assert!(last.header("Subscription-State").unwrap().starts_with("terminated"));
    // An answer that came twice means nothing.
    w.answer(&first, 481);
    assert_eq!(w.events.len(), 1);
    w.answer(&last, 200);
    assert!(w.events.is_empty());
}

/// RFC 3261 section 12.2.2 and RFC 6665 section 4.1.2.2.
#[test]
fn requests_within_no_dialog_or_out_of_order() {
    let mut w = World::new();
    let to = w.subscribe("c", 100);
    w.notification();
    assert_eq!(w.refresh("c", 11, "<sip:joe@example.com>;tag=other", 100), 481);
    assert_eq!(w.refresh("d", 11, &to, 100), 481);
    assert_eq!(w.refresh("c", 10, &to, 100), 500);
    assert_eq!(w.refresh("c", 11, &to, 100), 200);
    assert_eq!(w.refresh("c", 11, &to, 100), 500);
    let other_event = "Contact: <sip:app.example.com>\nEvent: reg;id=9\nExpires: 60";
    assert_eq!(w.send("c", 12, &to, other_event).0.status, 481);
}

/// RFC 3261 section 12.2.2: Contact of a refresh is the new target.
#[test]
fn a_refresh_may_move_the_target() {
    let mut w = World::new();
    let to = w.subscribe("c", 100);
    w.notification();
    let lines = "Contact: <sip:elsewhere@h>\nEvent: reg\nExpires: 100";
    assert_eq!(w.send("c", 11, &to, lines).0.status, 200);
    assert!(w.notification().unwrap().text.starts_with("NOTIFY sip:elsewhere@h SIP/2.0\n"));
    let lines = "Event: reg\nExpires: 100";
    assert_eq!(w.send("c", 12, &to, lines).0.status, 200);
    assert!(w.notification().unwrap().text.starts_with("NOTIFY sip:elsewhere@h SIP/2.0\n"));
}

/// RFC 6665 section 4.2.1.1, RFC 3680 section 4.5.
#[test]
fn what_is_refused() {
    let mut w = World::new();
    let base = "Contact: <sip:app@h>\n";
    for (lines, status, header) in [
        ("Event: reg\nExpires: 59", 423, "Min-Expires: 60"),
        ("Event: reg\nAccept: text/plain", 406, "Accept: application/reginfo+xml"),
        ("Event: reg\nRequire: eventlist", 420, "Unsupported: eventlist"),
    ] {
        let (answer, headers) = w.send("c", 1, "<sip:joe@example.com>", &format!("{base}{lines}"));
        assert_eq!((answer.status, headers.trim_end()), (status, header), "{lines}");
    }
    for lines in ["Event: reg", "Event: reg\nContact: <mailto:a@b>", "Event: reg\nContact: *"] {
        assert_eq!(w.send("c", 1, "<sip:joe@example.com>", lines).0.status, 400, "{lines}");
    }
    assert!(w.events.is_empty() && w.events.watches.is_empty() && w.poll().is_none());
}

/// RFC 3680 sections 4.4 and 4.5.
#[test]
fn defaults_of_the_package() {
    let mut w = World::new();
    let lines = "Contact: <sip:app@h>\nEvent: REG ;id=1\nAccept: a/b, application/*;q=0.5";
    let (answer, headers) = w.send("c", 1, "<sip:joe@example.com>", lines);
    assert_eq!(answer.status, 200);
    assert!(headers.contains("Expires: 3761\n"));
    let lines = "Contact: <sip:app@h>\nEvent: reg\nExpires: 99999999999";
    assert!(w.send("d", 1, "<sip:joe@example.com>", lines).1.contains("Expires: 7200\n"));
}

#[test]
fn subscriptions_are_bounded() {
    let mut w = World::with(Limits { max_per_user: 2, ..Default::default() });
    w.subscribe("c1", 100);
    w.subscribe("c2", 100);
    let lines = "Contact: <sip:app@h>\nEvent: reg\nExpires: 100";
    assert_eq!(w.send("c3", 1, "<sip:joe@example.com>", lines).0.status, 403);
    let mut w = World::with(Limits { max_per_subscriber: 1, ..Default::default() });
    w.subscribe("c1", 100);
    assert_eq!(w.send("c3", 1, "<sip:joe@example.com>", lines).0.status, 403);
}

/// Room is shared among subscribers: who has many makes room for who has few.
#[test]
fn a_subscriber_with_many_makes_room_for_others() {
    let mut w = World::with(Limits { max_subscriptions: 4, ..Default::default() });
    let answer_all = |w: &mut World| {
        let mut reasons = Vec::new();
        while let Some(sent) = w.notification() {
            reasons.push(sent.header("Subscription-State").unwrap().to_owned());
        }
        reasons
    };
    for n in 0..4 {
        w.subscribe(&format!("c{n}"), 100);
    }
    answer_all(&mut w);
    let lines = "Contact: <sip:app@h>\nEvent: reg\nExpires: 100";
    let (answer, headers) = w.send("c5", 1, "<sip:joe@example.com>", lines);
    assert_eq!((answer.status, headers.as_str()), (503, "Retry-After: 60\n"));
    w.subscriber = "eve@example.com";
    for n in 0..2 {
        w.subscribe(&format!("e{n}"), 100);
        let ended = |state: &String| state == "terminated;reason=giveup";
        assert_eq!(answer_all(&mut w).iter().filter(|state| ended(state)).count(), 1);
    }
    let (answer, _) = w.send("e3", 1, "<sip:joe@example.com>", lines);
    assert_eq!(answer.status, 503, "both have two");
    w.pass(200);
    answer_all(&mut w);
    assert!(w.events.is_empty() && w.events.subscribers.is_empty());
    assert_eq!(w.events.poll_timeout(), None);
}

#[test]
fn the_texts_of_a_dialog_are_bounded() {
    let mut w = World::new();
    let long = format!("<sip:{}@p;lr>", "x".repeat(1900));
    let lines = format!(
        "Record-Route: {long}\nRecord-Route: {long}\nRecord-Route: {long}\nRecord-Route: {long}\n\
         Record-Route: {long}\nContact: <sip:app@h>\nEvent: reg"
    );
    assert_eq!(w.send("c", 1, "<sip:joe@example.com>", &lines).0.status, 400);
    assert!(w.events.is_empty() && w.events.watches.is_empty());
}

/// A tag contains the worker whose notifier has the dialog.
#[test]
fn a_tag_names_its_worker() {
    let mut w = World::new();
    let to = w.subscribe("c", 100);
    let tag = to.split("tag=").nth(1).unwrap();
    assert_eq!(Notifier::worker_of_tag(tag.as_bytes()), Some(3));
    for other in ["", "re", "re03", "xx030000000000000000", "rezz0000000000000000"] {
        assert_eq!(Notifier::worker_of_tag(other.as_bytes()), None);
    }
}

/// RFC 3581, RFC 7118: the way back is the way it came, where Contact leads nowhere.
#[test]
fn a_subscriber_behind_a_nat_is_notified_over_its_flow() {
    let mut w = World::new();
    w.subscribe("c1", 100);
    assert_eq!(w.notification().unwrap().notify.flow, None);
    w.flow.remote = "198.51.100.9:999".parse().unwrap();
    w.subscribe("c2", 100);
    assert_eq!(w.notification().unwrap().notify.flow, Some(w.flow));
    w.flow.remote = "192.0.2.40:5060".parse().unwrap();
    w.flow.transport = Transport::Tcp;
    w.subscribe("c3", 100);
    assert_eq!(w.notification().unwrap().notify.flow, Some(w.flow));
}

/// RFC 6665 section 4.2.2: these failures end a subscription, and no other.
#[test]
fn a_failed_notify() {
    for status in [404, 405, 408, 410, 416, 480, 481, 482, 483, 484, 485, 489, 501, 604] {
        let mut w = World::new();
        w.subscribe("c", 100);
        let sent = w.poll().unwrap();
        w.answer(&sent, status);
        assert!(w.events.is_empty(), "{status}");
    }
    for status in [500, 503, 400, 403, 302] {
        let mut w = World::new();
        w.subscribe("c", 100);
        let sent = w.poll().unwrap();
        w.answer(&sent, 100);
        assert!(w.events.subscriptions[0].waits_for_answer());
        w.answer(&sent, status);
        assert_eq!(w.events.len(), 1, "{status}");
        // It is no reason to notify again; the next change is reported in full.
        w.pass(10);
        assert!(w.poll().is_none());
        w.bind(&[contact("sip:joe@h", 1)]);
        assert_eq!(w.notification().unwrap().states().0, "full");
    }
}

/// An answer to a NOTIFY of a subscription that has gone does not hit the one in its place.
#[test]
fn a_late_response_does_not_affect_another_subscription() {
    let mut w = World::new();
    w.subscribe("c1", 100);
    let old = w.poll().unwrap();
    w.answer(&old, 481);
    w.subscribe("c2", 100);
    let new = w.poll().unwrap();
    assert_ne!(old.notify.id, new.notify.id);
    w.answer(&old, 481);
    assert_eq!(w.events.len(), 1);
}
