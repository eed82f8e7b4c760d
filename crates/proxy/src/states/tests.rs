use super::*;

const ALICE: &[u8] = b"sip:alice@mesh";
const BOB: &[u8] = b"sip:bob@mesh";
const NOW: Time = Time::from_secs(1_000);

fn at(seconds: u64) -> Time {
    NOW + Duration::from_secs(seconds)
}

type Seen = Mutex<Vec<(u8, Vec<u8>)>>;

/// States whose notifications are collected.
fn observed() -> (States, Arc<Seen>) {
    let (states, seen) = (States::new([9; 16]), Arc::<Seen>::default());
    let sink = seen.clone();
    states.set_sink(Arc::new(move |watcher, aor| {
        sink.lock().unwrap().push((watcher, aor.to_vec()));
        true
    }));
    (states, seen)
}

fn taken(seen: &Seen) -> Vec<(u8, Vec<u8>)> {
    std::mem::take(&mut seen.lock().unwrap())
}

fn phases(states: &States, aor: &[u8]) -> Vec<(Direction, Phase)> {
    let dialogs = states.all(NOW, aor, true).0.dialogs;
    dialogs.iter().map(|dialog| (dialog.direction, dialog.phase)).collect()
}

#[test]
fn a_call_is_followed_from_invite_to_bye() {
    let (states, seen) = observed();
    states.watch(ALICE, 3);
    assert_eq!(taken(&seen), [(OTHER_SERVERS, ALICE.to_vec())]);
    states.begin_call(NOW, 7, ALICE, Direction::Recipient);
    states.begin_call(NOW, 7, BOB, Direction::Initiator);
    assert_eq!(phases(&states, ALICE), [(Direction::Recipient, Phase::Trying)]);
    states.ring(7);
    states.ring(7);
    assert_eq!(phases(&states, BOB), [(Direction::Initiator, Phase::Early)]);
    states.answer(NOW, 7, 8, Some(ALICE));
    assert_eq!(phases(&states, ALICE), [(Direction::Recipient, Phase::Confirmed)]);
    states.end_call(7);
    assert_eq!(phases(&states, ALICE).len(), 1, "the call has another key now");
    states.end_call(8);
    assert_eq!((phases(&states, ALICE), phases(&states, BOB)), (vec![], vec![]));
    // Trying, early, confirmed, ended; bob is not watched.
    assert_eq!(taken(&seen), vec![(3, ALICE.to_vec()); 4]);
    assert_eq!(states.calls(), 0);
    states.unwatch(ALICE, 3);
    assert!(states.lock().users.is_empty());
}

#[test]
fn the_callee_who_answers_is_in_the_call_and_no_other() {
    let states = States::new([9; 16]);
    const CAROL: &[u8] = b"sip:carol@mesh";
    states.begin_call(NOW, 7, CAROL, Direction::Initiator);
    states.begin_call(NOW, 7, ALICE, Direction::Recipient);
    states.begin_call(NOW, 7, BOB, Direction::Recipient);
    states.ring(7);
    states.answer(NOW, 7, 8, Some(BOB));
    assert_eq!(phases(&states, ALICE), []);
    assert_eq!(phases(&states, BOB), [(Direction::Recipient, Phase::Confirmed)]);
    assert_eq!(phases(&states, CAROL), [(Direction::Initiator, Phase::Confirmed)]);
    states.leave_call(8, BOB);
    assert_eq!(phases(&states, BOB), []);
    states.end_call(8);
    assert!(states.lock().users.is_empty() && states.calls() == 0);
    // A phone that comes in the middle of a call, and comes again.
    states.adopt_call(NOW, 9, ALICE);
    states.adopt_call(NOW, 9, ALICE);
    assert_eq!(phases(&states, ALICE), [(Direction::Initiator, Phase::Confirmed)]);
}

#[test]
fn a_user_without_phones_has_no_calls_and_a_call_is_not_shown_for_ever() {
    let states = States::new([9; 16]);
    states.begin_call(NOW, 7, ALICE, Direction::Initiator);
    states.answer(NOW, 7, 8, Some(ALICE));
    assert!(states.all(NOW, ALICE, false).0.dialogs.is_empty());
    let (state, next) = states.all(NOW, ALICE, true);
    assert_eq!((state.dialogs.len(), next), (1, Some(NOW + MAX_CALL)));
    assert!(states.all(NOW + MAX_CALL, ALICE, true).0.dialogs.is_empty());
}

#[test]
fn what_a_watcher_was_not_notified_of_is_found() {
    let states = States::new([9; 16]);
    states.set_sink(Arc::new(|watcher, _| watcher != 3));
    states.watch(ALICE, 3);
    states.watch(ALICE, 4);
    states.begin_call(NOW, 7, ALICE, Direction::Recipient);
    states.end_call(7);
    assert_eq!(states.take_missed(3), BTreeSet::from([ALICE.into()]));
    assert!(states.take_missed(3).is_empty() && states.take_missed(4).is_empty());
}

#[test]
fn one_user_does_not_fill_the_table() {
    let states = States::new([9; 16]);
    for key in 0..1_000 {
        states.begin_call(NOW, key, ALICE, Direction::Initiator);
    }
    assert_eq!(states.calls(), MAX_CALLS_OF_USER);
    assert_eq!(states.all(NOW, ALICE, true).0.dialogs.len(), MAX_DIALOGS);
}

/// A BYE may be lost: its call takes room for as long as it would be shown, and no longer.
#[test]
fn calls_whose_end_nobody_has_seen_make_room() {
    let states = States::new([9; 16]);
    let aor = |n: usize| format!("sip:{}@mesh", n / MAX_CALLS_OF_USER).into_bytes();
    for n in 0..MAX_CALLS + 10 {
        states.begin_call(NOW, n as u64, aor(n), Direction::Initiator);
    }
    assert_eq!(states.calls(), MAX_CALLS);
    states.begin_call(NOW + MAX_CALL, 1 << 40, aor(0), Direction::Initiator);
    assert_eq!((states.calls(), states.lock().users.len()), (1, 1));
    assert_eq!(states.all(NOW + MAX_CALL, &aor(0), true).0.dialogs.len(), 1);
}

/// Whoever begins to watch, and ceases to, at any step of a call: the tables hold nothing afterwards.
#[test]
fn nothing_is_left_of_calls_that_have_ended() {
    for step in 0..6 {
        let (states, seen) = observed();
        let watch = |now: usize| {
            if now == step {
                states.watch(BOB, 1);
            } else if now == step + 2 {
                states.unwatch(BOB, 1);
            }
        };
        watch(0);
        states.begin_call(NOW, 7, ALICE, Direction::Initiator);
        watch(1);
        states.begin_call(NOW, 7, BOB, Direction::Recipient);
        watch(2);
        states.ring(7);
        watch(3);
        states.answer(NOW, 7, 8, Some(BOB));
        watch(4);
        states.end_call(8);
        (5..8).for_each(watch);
        let changes = taken(&seen).iter().filter(|(watcher, _)| *watcher == 1).count();
        assert_eq!(changes, [1, 2, 2, 2, 1, 0][step], "{step}");
        let tables = states.lock();
        assert!(tables.users.is_empty() && tables.calls.len() == 0 && tables.watched == 0);
    }
}

#[test]
fn reports_of_other_servers_are_added_until_they_expire() {
    let (states, seen) = observed();
    states.watch(ALICE, 0);
    states.begin_call(NOW, 7, ALICE, Direction::Recipient);
    taken(&seen);
    let dialog = Dialog { id: 5, direction: Direction::Initiator, phase: Phase::Confirmed };
    let there = UserState { is_registered: true, dialogs: vec![dialog], publications: vec![] };
    states.set_elsewhere(ALICE, 1, there.clone().into(), at(60));
    states.set_elsewhere(ALICE, 1, there.clone().into(), at(90));
    assert_eq!(taken(&seen), [(0, ALICE.to_vec())], "only the first was a change");
    let (state, next) = states.all(at(60), ALICE, false);
    assert_eq!((state, next), (there.clone(), Some(at(90))));
    assert_eq!(states.local(NOW, ALICE, false).0, UserState::default());
    assert!(!states.all(at(90), ALICE, false).0.is_registered);
    states.end_elsewhere(ALICE, 1, Reason::Updated);
    assert_eq!(taken(&seen), [(0, ALICE.to_vec())]);
    for server in 0..100 {
        states.set_elsewhere(ALICE, server, there.clone().into(), at(60));
    }
    assert_eq!(states.all(NOW, ALICE, false).0.dialogs.len(), MAX_SERVERS);
}

fn publication(note: &str) -> Publication {
    Publication { is_open: true, activity: Activity::None, note: note.into() }
}

fn change(replaces: Option<u64>, note: Option<&str>, expires: Option<u64>, tag: u64) -> Change {
    Change { replaces, publication: note.map(publication), expires: expires.map(at), tag }
}

fn notes(states: &States, now: Time) -> Vec<Box<str>> {
    let publications = states.all(now, ALICE, true).0.publications;
    publications.into_iter().map(|publication| publication.note).collect()
}

/// RFC 3903 section 4.
#[test]
fn a_publication_is_refreshed_modified_and_removed_by_its_tag() {
    let states = States::new([9; 16]);
    states.publish(NOW, ALICE, change(None, Some("a"), Some(60), 1)).unwrap();
    states.publish(NOW, ALICE, change(Some(1), None, Some(120), 2)).unwrap();
    assert_eq!(notes(&states, at(119)), ["a".into()]);
    assert!(notes(&states, at(120)).is_empty());
    let stale = states.publish(NOW, ALICE, change(Some(1), Some("b"), Some(60), 3));
    assert_eq!(stale, Err(PublishError::NoSuchTag));
    states.publish(NOW, ALICE, change(Some(2), Some("b"), Some(60), 4)).unwrap();
    assert_eq!(notes(&states, NOW), ["b".into()]);
    states.publish(NOW, ALICE, change(None, Some("other phone"), Some(60), 5)).unwrap();
    assert_eq!(notes(&states, NOW), ["other phone".into(), "b".into()]);
    states.publish(NOW, ALICE, change(Some(4), None, None, 6)).unwrap();
    states.publish(NOW, ALICE, change(Some(5), None, None, 7)).unwrap();
    assert!(states.lock().users.is_empty());
    assert_eq!(states.lock().publishers, 0);
}

#[test]
fn the_latest_publications_of_a_user_are_stored() {
    let states = States::new([9; 16]);
    for tag in 0..100 {
        states.publish(NOW, ALICE, change(None, Some(&tag.to_string()), Some(60), tag)).unwrap();
    }
    assert_eq!(notes(&states, NOW), ["99".into(), "98".into(), "97".into(), "96".into()]);
    assert_eq!(states.lock().publishers, 1);
}

#[test]
fn publications_that_have_expired_make_room() {
    let states = States::new([9; 16]);
    let aor = |n: usize| format!("sip:{n}@mesh").into_bytes();
    for n in 0..MAX_PUBLISHERS {
        states.publish(NOW, &aor(n), change(None, Some("a"), Some(60), 1)).unwrap();
    }
    let more = |now| states.publish(now, ALICE, change(None, Some("a"), Some(600), 1));
    assert_eq!(more(NOW), Err(PublishError::Full));
    assert_eq!(more(at(60)), Ok(()));
    assert_eq!(states.lock().users.len(), 1);
}
