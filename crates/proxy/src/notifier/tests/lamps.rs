//! Calls and presence of a user (RFC 4235, RFC 3856).

use super::*;
use crate::states::{Activity, Change as Published, Direction, Publication};

impl World {
    pub(super) fn watch(&mut self, call_id: &str, package: &str) -> String {
        let lines = format!("Contact: <sip:app.example.com>\nEvent: {package}\nExpires: 600");
        let (answer, _) = self.send(call_id, 10, "<sip:joe@example.com>", &lines);
        assert_eq!(answer.status, 200, "{}", answer.reason);
        let tag = String::from_utf8(answer.to_tag.unwrap()).unwrap();
        format!("<sip:joe@example.com>;tag={tag}")
    }

    /// Passes the changes on, as the server does.
    pub(super) fn state_changed(&mut self) {
        let sources = Sources { store: &self.store, states: &self.states };
        self.events.state_changed(self.now, AOR, sources);
    }

    /// Registers joe.
    fn register(&mut self) {
        self.bind(&[contact("sip:joe@pc34.example.com", 1)]);
    }

    /// Returns the state of each dialog that the next NOTIFY reports.
    fn lamp(&mut self) -> Option<Vec<String>> {
        let sent = self.notification()?;
        let doc = xml::parse(sent.body());
        assert_eq!(doc.attribute("entity"), "sip:joe@example.com");
        Some(doc.all("state").map(|state| state.text.clone()).collect())
    }

    /// Returns whether the user is open, and the note, by the next NOTIFY.
    fn presence(&mut self) -> Option<(bool, Activity, String)> {
        let sent = self.notification()?;
        let read = pidf::parse(sent.body().as_bytes()).unwrap();
        Some((read.is_open, read.activity, read.note.to_string()))
    }
}

/// RFC 4235 section 3: the lamp of a user who is called, answers, and hangs up.
#[test]
fn a_lamp_follows_a_call() {
    let mut w = World::new();
    w.register();
    w.watch("c", "dialog");
    let sent = w.poll().unwrap();
    assert_eq!(sent.header("Event"), Some("dialog"));
    assert_eq!(sent.header("Content-Type"), Some("application/dialog-info+xml"));
    assert_eq!(sent.header("Subscription-State"), Some("active;expires=600"));
    w.answer(&sent, 200);
    assert_eq!(w.lamp(), None);
    let mut states = Vec::new();
    w.states.begin_call(w.now, 7, AOR, Direction::Recipient);
    for step in 0..4 {
        w.state_changed();
        // RFC 4235 section 3.10.
        w.pass(1);
        states.push(w.lamp().unwrap());
        match step {
            0 => w.states.ring(7),
            1 => w.states.answer(w.now, 7, 8, Some(AOR)),
            _ => w.states.end_call(8),
        }
    }
    assert_eq!(states, [["trying"], ["early"], ["confirmed"], ["terminated"]]);
    w.state_changed();
    w.pass(5);
    assert_eq!(w.lamp(), None, "nothing has changed");
}

#[test]
fn changes_within_a_second_are_reported_together() {
    let mut w = World::new();
    w.register();
    w.watch("c", "dialog");
    assert_eq!(w.lamp().unwrap(), ["terminated"]);
    for key in 0..5 {
        w.states.begin_call(w.now, key, AOR, Direction::Initiator);
        w.state_changed();
        assert_eq!(w.lamp(), None);
    }
    w.pass(1);
    assert_eq!(w.lamp().unwrap(), vec!["trying"; 5]);
    assert_eq!(w.lamp(), None);
}

/// A state that has changed and changed back is not reported.
#[test]
fn what_the_subscriber_knows_is_not_reported_again() {
    let mut w = World::new();
    w.register();
    w.watch("c", "dialog");
    w.lamp();
    w.states.begin_call(w.now, 1, AOR, Direction::Initiator);
    w.state_changed();
    w.states.end_call(1);
    w.state_changed();
    w.pass(5);
    assert_eq!(w.lamp(), None);
    // After a NOTIFY that was not accepted the subscriber may not know.
    w.states.begin_call(w.now, 2, AOR, Direction::Initiator);
    w.state_changed();
    let sent = w.poll().unwrap();
    w.answer(&sent, 500);
    w.state_changed();
    w.pass(1);
    assert_eq!(w.lamp().unwrap(), ["trying"]);
}

#[test]
fn presence_is_registration_then_what_is_published_then_calls() {
    let mut w = World::new();
    w.watch("c", "presence");
    assert_eq!(w.presence().unwrap(), (false, Activity::None, "".into()));
    w.register();
    w.pass(5);
    assert_eq!(w.presence().unwrap(), (true, Activity::None, "".into()));
    let lunch = Publication { is_open: true, activity: Activity::Meal, note: "<lunch>".into() };
    let expires = w.now + Duration::from_secs(100);
    let published =
        Published { replaces: None, publication: Some(lunch), expires: Some(expires), tag: 1 };
    w.states.publish(w.now, AOR, published).unwrap();
    w.state_changed();
    w.pass(5);
    assert_eq!(w.presence().unwrap(), (true, Activity::Meal, "<lunch>".into()));
    w.states.begin_call(w.now, 1, AOR, Direction::Initiator);
    w.state_changed();
    w.pass(5);
    assert_eq!(w.presence().unwrap().1, Activity::OnThePhone);
    // The document shows no phases, and no second call.
    w.states.ring(1);
    w.states.begin_call(w.now, 2, AOR, Direction::Initiator);
    w.state_changed();
    w.pass(5);
    assert_eq!(w.presence(), None);
    w.states.end_call(2);
    w.states.end_call(1);
    w.state_changed();
    w.pass(5);
    assert_eq!(w.presence().unwrap().1, Activity::Meal);
    // The publication expires by itself, and then the registration.
    w.pass(100);
    assert_eq!(w.presence().unwrap(), (true, Activity::None, "".into()));
    let lines = "Contact: <sip:app.example.com>\nEvent: presence\nExpires: 7200";
    w.send("d", 1, "<sip:joe@example.com>", lines);
    while w.presence().is_some() {}
    w.pass(3600);
    assert!(!w.presence().unwrap().0);
}

#[test]
fn watches_end_with_the_last_subscription() {
    let mut w = World::new();
    let lamp = w.watch("c", "dialog");
    let presence = w.watch("d", "presence");
    let registration = w.subscribe("e", 600);
    while w.notification().is_some() {}
    assert!(w.states.is_watched(AOR));
    for (call_id, to, package) in [("c", lamp, "dialog"), ("d", presence, "presence")] {
        let other = if package == "dialog" { "presence" } else { "dialog" };
        let lines = |package| format!("Contact: <sip:a.example.com>\nEvent: {package}\nExpires: 0");
        assert_eq!(w.send(call_id, 11, &to, &lines(other)).0.status, 481);
        assert_eq!(w.send(call_id, 12, &to, &lines(package)).0.status, 200);
        while w.notification().is_some() {}
    }
    assert!(!w.states.is_watched(AOR));
    w.register();
    w.pass(5);
    assert!(w.notification().is_some(), "registrations are still watched");
    w.refresh("e", 12, &registration, 0);
    while w.notification().is_some() {}
    assert!(w.events.is_empty() && w.events.subscribers.is_empty());
    assert_eq!(w.events.poll_timeout(), None);
}
