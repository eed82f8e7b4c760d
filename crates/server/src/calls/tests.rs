//! Tests of the steps that workers report, the table of calls and the records.

use super::*;
use ringway_proxy::CallInfo;
use ringway_sansio::Transport;
use std::sync::atomic::Ordering::Relaxed;

fn info(call: &str, caller: &str, began: Time) -> Arc<CallInfo> {
    let texts: [&[u8]; 5] =
        [call.as_bytes(), b"f", caller.as_bytes(), b"sip:bob@a.org", b"sip:bob@a.org"];
    let source = (Transport::Udp, "192.0.2.1:5060".parse().unwrap());
    Arc::new(CallInfo::new(texts, Some("alice@a.org".into()), source, began))
}

fn event(call: &str, step: CallStep, at: u64) -> CallEvent {
    CallEvent {
        at: Time::from_millis(at),
        step,
        call: info(call, "sip:alice@a.org", Time::from_millis(1_000)),
        to_tag: if matches!(step, CallStep::Began) { "" } else { "t" }.into(),
        destination: Some((Transport::Tcp, "192.0.2.2:5060".parse().unwrap())),
        gateway: None,
    }
}

const ANSWERED: CallStep = CallStep::Answered { status: 200 };
const ENDED: CallStep = CallStep::Ended { by_caller: true };

/// Applies steps and returns the records of the calls that ended.
fn play(table: &mut Table, steps: &[CallEvent]) -> Vec<CallRecord> {
    steps
        .iter()
        .filter_map(|step| match table.step(step, || true) {
            Outcome::Ended(call, to_tag, end) => Some(call.record(&to_tag, end)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_call_is_tracked_from_invite_to_bye() {
    let mut table = Table::default();
    assert!(play(&mut table, &[event("a", CallStep::Began, 1_000)]).is_empty());
    let (calls, next) = table.page(None, 10, Time::from_millis(1_500));
    assert_eq!((calls.len(), next, calls[0].state.as_str()), (1, None, "ringing"));
    assert_eq!((calls[0].age_seconds, calls[0].answered_seconds), (0.5, None));
    assert!(play(&mut table, &[event("a", ANSWERED, 3_250)]).is_empty());
    let (calls, _) = table.page(None, 10, Time::from_millis(5_250));
    assert_eq!((calls[0].state.as_str(), calls[0].answered_seconds), ("answered", Some(2.0)));
    // The BYE was seen by another worker.
    let records = play(&mut table, &[event("a", ENDED, 63_250)]);
    let record = &records[0];
    assert_eq!((record.outcome.as_str(), record.status), ("answered", Some(200)));
    assert_eq!((record.setup_seconds, record.duration_seconds), (Some(2.25), Some(60.0)));
    assert_eq!(record.ended_by.as_deref(), Some("caller"));
    assert_eq!(record.answered.as_deref(), Some("1970-01-01T00:00:03.250Z"));
    assert_eq!(record.source, "udp:192.0.2.1:5060");
    assert_eq!(record.destination.as_deref(), Some("tcp:192.0.2.2:5060"));
    assert_eq!(table.len(), 0);
    let line = serde_json::to_string(record).unwrap();
    assert_eq!(serde_json::from_str::<CallRecord>(&line).unwrap(), *record);
}

#[test]
fn refused_and_cancelled_calls_leave_a_record() {
    let mut table = Table::default();
    let failed = |status| CallStep::Failed { status };
    for (status, outcome) in [(486, "failed"), (487, "cancelled")] {
        let began = event("a", CallStep::Began, 1_000);
        let records = play(&mut table, &[began, event("a", failed(status), 2_000)]);
        assert_eq!((records[0].outcome.as_str(), records[0].status), (outcome, Some(status)));
        assert_eq!((records[0].setup_seconds, records[0].duration_seconds), (Some(1.0), None));
        assert_eq!(table.len(), 0);
    }
    // A late refusal by another branch does not end an answered call.
    let began = event("a", CallStep::Began, 1_000);
    let late = event("a", failed(486), 3_000);
    assert!(play(&mut table, &[began, event("a", ANSWERED, 2_000), late]).is_empty());
    assert_eq!(table.len(), 1);
}

/// RFC 3261 section 13.2.2.4: a forked INVITE that is answered twice makes two dialogs, of which
/// the caller ends one at once. The call ends with the second.
#[test]
fn a_call_answered_twice_ends_with_its_last_dialog() {
    let mut table = Table::default();
    let other = |step, at| CallEvent { to_tag: "u".into(), ..event("a", step, at) };
    let steps = [
        event("a", CallStep::Began, 1_000),
        event("a", ANSWERED, 2_000),
        other(ANSWERED, 2_100),
        other(ENDED, 2_200),
    ];
    assert!(play(&mut table, &steps).is_empty());
    assert_eq!(play(&mut table, &[event("a", ENDED, 4_000)])[0].duration_seconds, Some(2.0));
}

/// Without Record-Route (RFC 3261 section 16.6 item 4) no BYE passes through the proxy.
#[test]
fn without_record_route_a_call_ends_when_answered() {
    let mut table = Table::default();
    table.ends_seen = false;
    let steps = [event("a", CallStep::Began, 1_000), event("a", ANSWERED, 2_000)];
    let record = &play(&mut table, &steps)[0];
    assert_eq!((record.outcome.as_str(), record.setup_seconds), ("answered", Some(1.0)));
    assert_eq!((record.ended.as_deref(), record.duration_seconds, table.len()), (None, None, 0));
}

#[test]
fn a_single_step_makes_a_record() {
    let mut table = Table::default();
    let record = &play(&mut table, &[event("a", ENDED, 4_000)])[0];
    assert_eq!((record.outcome.as_str(), record.duration_seconds), ("answered", None));
    assert!(play(&mut table, &[event("b", ANSWERED, 2_000)]).is_empty());
    assert_eq!(play(&mut table, &[event("b", ENDED, 5_000)])[0].duration_seconds, Some(3.0));
}

#[test]
fn the_table_is_bounded_in_size_and_age() {
    let mut table = Table::default();
    for i in 0..MAX_CALLS + 10 {
        table.step(&event(&i.to_string(), CallStep::Began, 1_000), || false);
    }
    assert_eq!((table.len(), table.untracked), (MAX_CALLS, 10));
    let later = Time::from_millis(1_000) + MAX_AGE;
    let mut after = None;
    let mut seen = 0;
    loop {
        let (calls, next) = table.page(after, 1_000, later);
        assert!(calls.len() <= 1_000);
        seen += calls.len();
        after = next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(seen, MAX_CALLS);
    let young = event("young", CallStep::Began, later.as_millis());
    let young = CallEvent { call: info("young", "sip:alice@a.org", later), ..young };
    assert!(table.expire(Time::from_millis(2_000), false).is_empty());
    let records = table.expire(later, false);
    assert_eq!((records.len(), records[0].outcome.as_str()), (MAX_CALLS, "unknown"));
    table.step(&young, || false);
    assert!(table.expire(later, false).is_empty());
    assert_eq!((table.len(), table.expire(later, true).len()), (1, 1));
}

#[test]
fn steps_are_dropped_when_the_thread_is_slow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cdr");
    let cdr = Cdr::start(Some(path.clone())).unwrap();
    let calls = Calls::start(cdr, || Time::from_millis(2_000)).unwrap();
    // The lock is held as if by a reader that never returns.
    let table = calls.0.table.lock().unwrap();
    let began = std::time::Instant::now();
    for i in 0..MAX_QUEUED_STEPS + 70_000 {
        calls.report(Box::new(event(&i.to_string(), CallStep::Failed { status: 404 }, 1_500)));
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let dropped = calls.counters().dropped.load(Relaxed);
    drop(table);
    assert!(dropped > 0, "{dropped}");
    calls.stop();
    let text = std::fs::read_to_string(&path).unwrap();
    let first: CallRecord = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((first.status, first.outcome.as_str()), (Some(404), "failed"));
}

#[test]
fn logged_calls_per_second_are_limited() {
    let mut budget = Budget::default();
    let logged = (0..10_000).filter(|_| budget.take(Time::from_secs(5))).count();
    assert_eq!(logged, MAX_LOGGED_PER_SECOND as usize);
    assert!(budget.take(Time::from_secs(6)));
}
