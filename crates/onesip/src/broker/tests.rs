use super::*;
use ringway_directory::{Account, Alias, Home};

const ALICE: &str = "alice@mesh";
const AOR: &[u8] = b"sip:alice@mesh";
const NOW: Time = Time::from_secs(1_000);

/// Ids whose prefixes differ.
fn id(number: u64) -> NodeId {
    NodeId::new(number << 32)
}

/// A broker, and the commands that found room.
struct Desk {
    broker: Broker,
    sent: Vec<Command>,
    room: usize,
}

impl Desk {
    fn new() -> Desk {
        let mut broker = Broker::new("mesh", Transport::Udp);
        broker.set_id(id(1));
        Desk { broker, sent: Vec::new(), room: usize::MAX }
    }

    fn turn<T>(&mut self, call: impl FnOnce(&mut Broker, Send<'_>) -> T) -> T {
        let Desk { broker, sent, room } = self;
        call(broker, &mut |command| {
            let fits = sent.len() < *room;
            if fits {
                sent.push(command);
            }
            fits
        })
    }

    fn ask(&mut self, worker: u8, source: u16) -> Option<Reply> {
        let source = IpAddr::from([0xfd01, 0, 0, source, 0, 0, 0, 1]);
        let question = Question::Location { aor: AOR.into() };
        self.turn(|broker, send| broker.ask((worker, AskId::default()), question, source, send))
    }

    fn located(&mut self, now: Time, whereabouts: Whereabouts) {
        let report = Report::Located { name: ALICE.into(), whereabouts };
        self.turn(|broker, send| broker.handle(now, report, send));
    }

    fn registered(&mut self, stored: bool) {
        let report = Report::Registered { name: ALICE.into(), stored };
        self.turn(|broker, send| broker.handle(NOW, report, send));
    }

    fn changed(&mut self, is_present: bool, id: Option<u64>) -> bool {
        let tag = id.map(tag);
        self.turn(|broker, send| broker.changed(ALICE, is_present, tag, send))
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.broker.poll_event()).collect()
    }
}

fn tag(id: u64) -> CommitTag {
    CommitTag { worker: 2, id }
}

fn committed(id: u64, stored: bool) -> Event {
    Event::Committed { tag: tag(id), stored }
}

fn answered(worker: u8, reply: Reply) -> Event {
    Event::Answered { worker, id: AskId::default(), reply }
}

fn located(home: u64, routers: &[u64]) -> Located {
    let home = Home { router: id(home), account: Account::default() };
    let routers = routers.iter().map(|&router| (id(router), 1_000)).collect();
    Located { home: Some(home), routers, aliases: Vec::new() }
}

fn is_register(command: &Command) -> bool {
    matches!(command, Command::Register { .. })
}

fn is_unregister(command: &Command) -> bool {
    matches!(command, Command::Unregister { .. })
}

#[test]
fn all_who_ask_for_one_user_are_answered_by_one_question() {
    let mut desk = Desk::new();
    assert_eq!((desk.ask(1, 1), desk.ask(2, 2)), (None, None));
    assert_eq!(desk.sent.len(), 1);
    desk.located(NOW, Whereabouts::Found(located(5, &[1, 6])));
    assert_eq!(desk.events(), [answered(1, Reply::Located), answered(2, Reply::Located)]);
    let mut visited = Vec::new();
    let visit = &mut |router: Ipv6Addr, _: u16| visited.push(router);
    assert_eq!(desk.broker.visit(ALICE, NOW, visit), Some(true));
    // This router is not another one.
    assert_eq!(visited, [id(6).prefix().router()]);
    assert_eq!(desk.broker.counts().questions, 0);
}

#[test]
fn what_is_known_ages() {
    let mut desk = Desk::new();
    desk.located(NOW, Whereabouts::Found(located(5, &[6])));
    let exists = |desk: &Desk, at| desk.broker.visit(ALICE, at, &mut |_, _| {});
    assert_eq!(exists(&desk, NOW + LOCATION_AGE), Some(true));
    assert_eq!(exists(&desk, NOW + LOCATION_AGE + Duration::from_millis(1)), None);
    let speaks = |desk: &Desk, router: u64, at| {
        desk.broker.speaks_for(id(router).prefix().router().into(), ALICE, at)
    };
    let later = NOW + SENDER_AGE;
    assert_eq!([5, 6, 7].map(|router| speaks(&desk, router, NOW)), [true, true, false].map(Some));
    // That a router may not is known for a shorter time: the user may have come there.
    assert_eq!([5, 7].map(|router| speaks(&desk, router, later)), [Some(true), None]);
    assert_eq!(speaks(&desk, 5, later + Duration::from_millis(1)), None);
    assert_eq!(desk.broker.speaks_for([192, 0, 2, 1].into(), ALICE, NOW), Some(false));
}

#[test]
fn a_question_without_room_is_refused_at_once_and_takes_no_share() {
    let mut desk = Desk::new();
    desk.room = 0;
    for _ in 0..2 * MAX_QUESTIONS {
        assert_eq!(desk.ask(1, 1), Some(Reply::Unavailable));
    }
    desk.room = usize::MAX;
    assert_eq!(desk.ask(1, 1), None);
    desk.located(NOW, Whereabouts::Unavailable);
    assert_eq!(desk.events(), [answered(1, Reply::Unavailable)]);
    assert_eq!(desk.broker.visit(ALICE, NOW, &mut |_, _| {}), None);
}

#[test]
fn one_source_leaves_questions_for_others() {
    let mut desk = Desk::new();
    let asked = (0..2 * MAX_QUESTIONS).filter(|_| desk.ask(1, 1).is_none()).count();
    assert!(asked < MAX_QUESTIONS / 2, "{asked}");
    assert_eq!(desk.ask(1, 2), None);
}

#[test]
fn a_registration_is_acknowledged_when_the_disk_and_the_mesh_have_it() {
    for mesh_first in [false, true] {
        let mut desk = Desk::new();
        assert!(desk.changed(true, Some(7)));
        if mesh_first {
            desk.registered(true);
            assert_eq!(desk.events(), []);
            assert!(desk.broker.disk(tag(7), true));
        } else {
            assert!(!desk.broker.disk(tag(7), true));
            desk.registered(true);
            assert_eq!(desk.events(), [committed(7, true)]);
        }
        // A refresh waits for the disk alone.
        assert!(!desk.changed(true, Some(8)) && desk.broker.disk(tag(8), true));
        assert_eq!(desk.broker.counts().pending, 0);
        assert_eq!(desk.sent.len(), 1);
    }
}

#[test]
fn what_cannot_be_stored_is_refused_and_goes_on_being_tried() {
    let mut desk = Desk::new();
    assert!(desk.changed(true, Some(7)));
    assert!(!desk.broker.disk(tag(7), true));
    desk.registered(false);
    assert_eq!(desk.events(), [committed(7, false)]);
    // What the disk refuses needs no other routers.
    assert!(desk.changed(true, Some(8)) && desk.broker.disk(tag(8), false));
    assert!(desk.changed(true, Some(9)));
    desk.broker.cancel(tag(9));
    assert_eq!(desk.broker.counts().pending, 0);
    desk.registered(true);
    assert_eq!(desk.events(), []);
    assert_eq!(desk.broker.counts().stored, 1);
}

/// A user who leaves before enough routers keep the record: nothing waits for ever.
#[test]
fn a_registration_that_is_withdrawn_is_answered() {
    let mut desk = Desk::new();
    assert!(desk.changed(true, Some(7)));
    assert!(!desk.broker.disk(tag(7), true));
    assert!(!desk.changed(false, Some(8)));
    let withdrawn = Event::Withdrawn { name: ALICE.into() };
    assert_eq!(desk.events(), [committed(7, false), withdrawn]);
    assert_eq!(desk.broker.counts(), Counts::default());
    assert!(is_unregister(&desk.sent[1]));
}

#[test]
fn the_directory_learns_of_a_user_who_has_left_when_there_is_room() {
    let mut desk = Desk::new();
    desk.changed(true, None);
    desk.room = 1;
    for _ in 0..100 {
        desk.changed(false, None);
    }
    assert_eq!((desk.sent.len(), desk.broker.unsent.len()), (1, 1));
    desk.room = usize::MAX;
    desk.located(NOW, Whereabouts::Unavailable);
    assert!(desk.sent.len() == 2 && is_unregister(&desk.sent[1]));
    // Who has come back meanwhile is not withdrawn.
    desk.changed(true, None);
    desk.room = desk.sent.len();
    desk.changed(false, None);
    desk.room = usize::MAX;
    desk.changed(true, None);
    desk.located(NOW, Whereabouts::Unavailable);
    assert!(desk.sent[2..].iter().all(is_register) && desk.broker.unsent.is_empty());
}

#[test]
fn names_of_other_domains_are_not_asked_for() {
    let mut desk = Desk::new();
    for aor in [&b"sip:alice@example.org"[..], b"sip:alice", b"alice@mesh", b"sip:\xff@mesh"] {
        assert_eq!(desk.broker.name_of(aor), None);
        let question = Question::Location { aor: aor.into() };
        let source = [192, 0, 2, 1].into();
        let reply =
            desk.turn(|broker, send| broker.ask((1, AskId::default()), question, source, send));
        assert_eq!(reply, Some(Reply::Unavailable));
    }
    assert!(desk.sent.is_empty());
}

#[test]
fn what_is_known_is_bounded() {
    let mut desk = Desk::new();
    let fill = |desk: &mut Desk, now: Time, prefix: &str| {
        for number in 0..MAX_KNOWN + 10 {
            let name = format!("{prefix}{number}@mesh").into();
            let whereabouts = Whereabouts::Found(located(5, &[6]));
            let report = Report::Located { name, whereabouts };
            desk.turn(|broker, send| broker.handle(now, report, send));
        }
    };
    fill(&mut desk, NOW, "a");
    assert_eq!(desk.broker.counts().known, MAX_KNOWN);
    fill(&mut desk, NOW + LOCATION_AGE * 2, "b");
    assert_eq!(desk.broker.counts().known, MAX_KNOWN);
    let later = NOW + LOCATION_AGE * 2;
    assert_eq!(desk.broker.visit("b0@mesh", later, &mut |_, _| {}), Some(true));
}

#[test]
fn rules_are_asked_for_once_and_age() {
    let mut desk = Desk::new();
    let ask = |desk: &mut Desk, worker| {
        let (id, source) = ((worker, AskId::default()), [192, 0, 2, 1].into());
        desk.turn(|broker, send| broker.ask(id, Question::Rules, source, send))
    };
    assert_eq!(desk.broker.shared_rules(NOW), None);
    assert_eq!((ask(&mut desk, 1), ask(&mut desk, 2)), (None, None));
    assert_eq!(desk.sent, [Command::AskRules { domain: "mesh".into() }]);
    let rule = SharedRule { user: "0".into(), ..SharedRule::default() };
    let rules = Some(vec![(id(1), vec![rule.clone()]), (id(2), vec![rule])]);
    desk.turn(|broker, send| broker.handle(NOW, Report::Rules { rules }, send));
    assert_eq!(desk.events(), [answered(1, Reply::Located), answered(2, Reply::Located)]);
    // This router's own rules are in its configuration.
    let known = desk.broker.shared_rules(NOW + RULES_AGE);
    assert_eq!(known.map(|rules| rules.rules[0].next_hops.len()), Some(1));
    let later = NOW + RULES_AGE + Duration::from_millis(1);
    assert_eq!(desk.broker.shared_rules(later), None);
    assert_eq!(ask(&mut desk, 1), None);
    desk.turn(|broker, send| broker.handle(later, Report::Rules { rules: None }, send));
    assert_eq!(desk.events(), [answered(1, Reply::Unavailable)]);
    assert_eq!(desk.broker.counts().questions, 0);
}

#[test]
fn a_number_stands_for_its_users() {
    let mut desk = Desk::new();
    let alias = |name: &str, is_first| Alias { name: name.into(), is_first };
    let aliases = vec![alias("bob@mesh", false), alias("carol@mesh", true)];
    let located = Located { aliases, ..Located::default() };
    desk.located(NOW, Whereabouts::Found(located));
    let aliases = |at| {
        let mut found = Vec::new();
        desk.broker.aliases(ALICE, at, &mut |name, q| found.push((name.to_owned(), q)));
        found
    };
    assert_eq!(aliases(NOW), [("bob@mesh".into(), 500), ("carol@mesh".into(), 1_000)]);
    assert_eq!(aliases(NOW + LOCATION_AGE * 2), []);
}

#[test]
fn only_routers_are_guarded() {
    let prefix = id(7).prefix();
    assert!(is_router(prefix.router()) && is_router(prefix.second()));
    for other in ["fd00::3", "2001:db8::1", "fe80::1"] {
        assert!(!is_router(other.parse().unwrap_or(Ipv6Addr::UNSPECIFIED)), "{other}");
    }
}

/// Returns the question whether a message of bob to a name can be kept.
fn to_keep(to: &str) -> Question {
    Question::Keep(Box::new(MessageToKeep {
        to: to.as_bytes().into(),
        from: b"sip:bob@mesh"[..].into(),
        lifetime: 60,
        octets: b"hello"[..].into(),
    }))
}

fn keep(desk: &mut Desk, to: &str, source: u8) -> Option<Reply> {
    let source = IpAddr::from([192, 0, 2, source]);
    let id = (3, AskId::default());
    desk.turn(|broker, send| broker.ask(id, to_keep(to), source, send))
}

#[test]
fn a_message_is_kept_for_a_user_who_exists() {
    let mut desk = Desk::new();
    assert_eq!(keep(&mut desk, "sip:alice@mesh", 1), Some(Reply::Unavailable));
    desk.located(NOW, Whereabouts::Found(located(5, &[])));
    assert_eq!(keep(&mut desk, "sip:alice@mesh", 1), None);
    let Some(Command::Keep { tag, mail }) = desk.sent.pop() else { panic!("nothing to keep") };
    let Mail { to, from, lifetime, octets } = mail;
    assert_eq!((&*to, &*from, lifetime, &*octets), (ALICE, "bob@mesh", 60, &b"hello"[..]));
    for (is_kept, reply) in [(true, Reply::Kept), (false, Reply::Unavailable)] {
        assert_eq!(keep(&mut desk, "sip:alice@mesh", 1), None);
        let Some(Command::Keep { tag, .. }) = desk.sent.pop() else { panic!("nothing to keep") };
        desk.turn(|broker, send| broker.handle(NOW, Report::Kept { tag, is_kept }, send));
        assert_eq!(desk.events(), [answered(3, reply)]);
    }
    desk.turn(|broker, send| broker.handle(NOW, Report::Kept { tag, is_kept: true }, send));
    assert_eq!(desk.events().len(), 1);
    assert_eq!(desk.broker.counts().questions, 0);
}

/// A message to the number of a user is kept for the user; one to a service number is not.
#[test]
fn a_message_to_a_number_is_kept_for_its_user() {
    let mut desk = Desk::new();
    let mut alice = located(5, &[]);
    alice.home.as_mut().unwrap().account.number = "204".into();
    desk.located(NOW, Whereabouts::Found(alice));
    for number in ["204", "112"] {
        let alias = Alias { name: ALICE.into(), is_first: true };
        let located = Located { aliases: vec![alias], ..Located::default() };
        let whereabouts = Whereabouts::Found(located);
        let report = Report::Located { name: format!("{number}@mesh").into(), whereabouts };
        desk.turn(|broker, send| broker.handle(NOW, report, send));
    }
    assert_eq!(keep(&mut desk, "sip:112@mesh", 1), Some(Reply::Unavailable));
    assert_eq!(keep(&mut desk, "sip:204@mesh", 1), None);
    assert!(matches!(desk.sent.pop(), Some(Command::Keep { mail, .. }) if &*mail.to == ALICE));
}

#[test]
fn one_source_cannot_have_all_messages_kept() {
    let mut desk = Desk::new();
    desk.located(NOW, Whereabouts::Found(located(5, &[])));
    let kept = (0..MAX_KEEPS).filter(|_| keep(&mut desk, "sip:alice@mesh", 1).is_none()).count();
    assert!((MAX_KEEPS / 8..MAX_KEEPS / 4 + 1).contains(&kept), "{kept}");
    assert_eq!(keep(&mut desk, "sip:alice@mesh", 2), None);
}

/// What is delivered is found by the request that follows, and what becomes of it is reported when there is room.
#[test]
fn what_becomes_of_a_message_is_reported() {
    let mut desk = Desk::new();
    let (id, to, from) = (DeliveryId(7), ALICE.into(), "bob@mesh".into());
    let (located, octets) = (located(5, &[6]), b"hello"[..].into());
    let delivery = Delivery { id, to, from, accepted: 1, located, octets };
    let report = Report::Deliver(delivery.clone());
    desk.turn(|broker, send| broker.handle(NOW, report, send));
    assert_eq!(desk.events(), [Event::Deliver(delivery)]);
    assert_eq!(desk.broker.visit(ALICE, NOW, &mut |_, _| {}), Some(true));
    desk.room = 0;
    for status in [200, 603, 415, 480, 408, 403, 500] {
        desk.turn(|broker, send| broker.delivered(id, status, send));
    }
    assert!(desk.sent.is_empty());
    desk.room = usize::MAX;
    desk.changed(false, None);
    let outcomes = desk.sent.iter().filter_map(|command| match command {
        Command::Delivered { is_done, .. } => Some(*is_done),
        _ => None,
    });
    assert_eq!(outcomes.collect::<Vec<_>>(), [true, true, true, false, false, false, false]);
}

#[test]
fn the_home_of_a_user_is_known_for_a_while() {
    let mut desk = Desk::new();
    let is_home = |desk: &Desk, router: u64, at| {
        desk.broker.is_home(id(router).prefix().router().into(), ALICE, at)
    };
    assert_eq!(is_home(&desk, 5, NOW), None);
    desk.located(NOW, Whereabouts::Found(located(5, &[6])));
    assert_eq!([5, 6].map(|router| is_home(&desk, router, NOW)), [true, false].map(Some));
    assert_eq!(desk.broker.is_home([192, 0, 2, 1].into(), ALICE, NOW), Some(false));
    assert_eq!(is_home(&desk, 5, NOW + SENDER_AGE + Duration::from_millis(1)), None);
}
