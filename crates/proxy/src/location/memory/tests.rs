use super::super::tests::{Owned, any_binding, binding, flow};
use super::*;
use proptest::prelude::*;
use ringway_sansio::Transport;
use std::collections::BTreeMap;

const TAG: CommitTag = CommitTag { worker: 0, id: 1 };

fn secs(n: u64) -> Time {
    Time::from_secs(n)
}

fn store() -> MemoryStore {
    MemoryStore::new([7; 16])
}

fn set(store: &MemoryStore, aor: &[u8], bindings: &[BindingView<'_>]) -> Commit {
    store.update(aor, Time::ZERO, TAG, &mut |edit| {
        for b in bindings {
            edit.put(b).unwrap();
        }
        edit.commit();
    })
}

fn contacts(store: &MemoryStore, aor: &[u8], now: Time) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let count = store.lookup(aor, now, &mut |b| all.push(b.contact.to_vec()));
    assert_eq!(count, all.len());
    all
}

fn expire_all(store: &MemoryStore, now: Time) -> usize {
    store.expire(now, 1 << 20)
}

#[test]
fn bindings_are_shown_in_the_order_written() {
    let s = store();
    set(
        &s,
        b"sip:a@x",
        &[
            BindingView { contact: b"sip:2@h", ..binding() },
            BindingView { contact: b"sip:1@h", ..binding() },
        ],
    );
    assert_eq!(contacts(&s, b"sip:a@x", secs(1)), [b"sip:2@h", b"sip:1@h"]);
    assert!(contacts(&s, b"sip:b@x", secs(1)).is_empty());
}

#[test]
fn an_edit_without_commit_changes_nothing() {
    let s = store();
    set(&s, b"sip:a@x", &[binding()]);
    let commit = s.update(b"sip:a@x", secs(1), TAG, &mut |edit| {
        edit.put(&BindingView { contact: b"sip:other@h", ..binding() }).unwrap();
    });
    assert_eq!(commit, Commit::Done);
    assert_eq!(contacts(&s, b"sip:a@x", secs(1)), [binding().contact]);
}

#[test]
fn an_address_that_is_too_long_is_refused() {
    let s = store();
    let commit = s.update(&[b'x'; MAX_AOR + 1], secs(1), TAG, &mut |_| panic!("called"));
    assert_eq!(commit, Commit::Refused);
}

#[test]
fn expired_records_leave_the_table_in_bounded_steps() {
    let s = store();
    for i in 0..2000u32 {
        let b = BindingView { expires: secs(100 + u64::from(i % 2) * 100), ..binding() };
        set(&s, &i.to_le_bytes(), &[b]);
    }
    assert_eq!((s.records(), s.contacts()), (2000, 2000));
    assert_eq!(expire_all(&s, secs(99)), 0);
    assert!(contacts(&s, &0u32.to_le_bytes(), secs(150)).is_empty());
    let first = s.expire(secs(150), 100);
    assert!(first <= 100);
    assert_eq!(first + expire_all(&s, secs(150)), 1000);
    assert_eq!((s.records(), s.contacts()), (1000, 1000));
    expire_all(&s, secs(200));
    assert_eq!((s.records(), s.contacts()), (0, 0));
    assert!(s.shards.iter().all(|s| s.read().unwrap().table.allocation_size() == 0));
}

#[test]
fn expiry_keeps_the_live_bindings_of_a_record() {
    let s = store();
    set(
        &s,
        b"a",
        &[
            BindingView { expires: secs(10), contact: b"sip:old@h", ..binding() },
            BindingView { expires: secs(20), contact: b"sip:new@h", ..binding() },
        ],
    );
    assert_eq!(expire_all(&s, secs(15)), 1);
    assert_eq!(contacts(&s, b"a", secs(0)), [b"sip:new@h"]);
}

/// RFC 5626 section 7: when a flow fails, every binding over it is invalid, whosever it is.
#[test]
fn a_closed_flow_takes_its_bindings_along() {
    let s = store();
    let tcp = Some(flow(5, Transport::Tcp));
    let other = Some(flow(6, Transport::Tcp));
    let ob = BindingView { instance: b"urn:x", reg_id: 1, outbound: true, ..binding() };
    set(
        &s,
        b"a",
        &[
            BindingView { contact: b"sip:gone@h", flow: tcp, ..ob },
            BindingView { contact: b"sip:kept@h", flow: tcp, ..binding() },
            BindingView { contact: b"sip:other@h", flow: other, ..ob },
        ],
    );
    set(&s, b"b", &[BindingView { flow: tcp, ..ob }]);
    assert_eq!(s.flows.len(), 3);
    assert_eq!(s.flow_closed(FlowId::new(0, 5), secs(1)), 3);
    assert_eq!(contacts(&s, b"a", secs(1)), [&b"sip:kept@h"[..], b"sip:other@h"]);
    s.lookup(b"a", secs(1), &mut |b| {
        assert_eq!(b.flow.is_some(), b.contact == b"sip:other@h");
    });
    assert_eq!((s.records(), s.contacts()), (1, 2));
    assert_eq!(s.flow_closed(FlowId::new(0, 5), secs(1)), 0);
    assert_eq!(s.flow_closed(FlowId::new(0, 6), secs(1)), 1);
    assert_eq!(s.flows.len(), 0);
}

/// RFC 7118 section 5: a WebSocket to a client cannot be opened.
#[test]
fn a_websocket_binding_ends_with_its_connection() {
    let s = store();
    set(&s, b"a", &[BindingView { flow: Some(flow(5, Transport::Wss)), ..binding() }]);
    assert_eq!(s.flow_closed(FlowId::new(0, 5), secs(1)), 1);
    assert_eq!(s.records(), 0);
}

#[test]
fn datagram_flows_are_not_indexed() {
    let s = store();
    set(&s, b"a", &[BindingView { flow: Some(flow(5, Transport::Udp)), ..binding() }]);
    assert_eq!(s.flows.len(), 0);
}

#[test]
fn only_watched_records_are_reported() {
    let s = store();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = heard.clone();
    s.set_sink(Arc::new(move |worker, aor: &[u8], why| {
        sink.lock().unwrap().push((worker, aor.to_vec(), why));
    }));
    s.watch(b"a", 1);
    s.watch(b"a", 1);
    s.watch(b"a", 3);
    set(&s, b"b", &[binding()]);
    set(&s, b"a", &[BindingView { expires: secs(5), ..binding() }]);
    assert_eq!(
        *heard.lock().unwrap(),
        [(1, b"a".to_vec(), Change::Updated), (3, b"a".to_vec(), Change::Updated)]
    );
    s.unwatch(b"a", 1);
    expire_all(&s, secs(6));
    assert_eq!(heard.lock().unwrap()[2..], [(3, b"a".to_vec(), Change::Expired)]);
    s.unwatch(b"a", 3);
    set(&s, b"a", &[binding()]);
    assert_eq!(heard.lock().unwrap().len(), 3);
}

type Disk = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is on the disk, the tags seen, whether to refuse.
type Heard = (Disk, Vec<Option<CommitTag>>, bool);

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Heard>>);

impl Journal for Recorder {
    fn record(&self, aor: &[u8], record: Option<&[u8]>, tag: Option<CommitTag>) -> Commit {
        let mut all = self.0.lock().unwrap();
        if all.2 {
            return Commit::Refused;
        }
        match record {
            Some(record) => all.0.insert(aor.to_vec(), record.to_vec()),
            None => all.0.remove(aor),
        };
        all.1.push(tag);
        Commit::Pending
    }
}

#[test]
fn a_journal_sees_every_change_and_fills_a_new_table() {
    let recorder = Recorder::default();
    let s = MemoryStore::with_journal([1; 16], Box::new(recorder.clone()));
    let udp = Some(flow(1, Transport::Udp));
    let tcp = Some(flow(2, Transport::Tcp));
    let ob = BindingView { instance: b"urn:x", reg_id: 1, outbound: true, ..binding() };
    assert_eq!(set(&s, b"a", &[BindingView { flow: udp, ..ob }]), Commit::Pending);
    set(&s, b"b", &[BindingView { flow: tcp, ..ob }]);
    set(&s, b"c", &[BindingView { flow: tcp, ..binding() }]);
    set(&s, b"d", &[BindingView { expires: secs(5), ..binding() }]);
    set(&s, b"e", &[binding()]);
    set(&s, b"e", &[]);
    expire_all(&s, secs(5));
    let (disk, tags, _) = recorder.0.lock().unwrap().clone();
    assert_eq!(disk.keys().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    assert_eq!(tags.iter().flatten().count(), 6);
    assert_eq!(tags.len(), 7);

    let fresh = store();
    let mut loaded = Vec::new();
    for (aor, bytes) in &disk {
        let kept = fresh.load(aor, bytes, secs(6), &mut |f| {
            f.transport.is_datagram().then(|| Flow { id: FlowId::new(9, 9), ..*f })
        });
        loaded.push(kept.unwrap());
    }
    assert_eq!(loaded, [1, 0, 1]);
    fresh.lookup(b"a", secs(6), &mut |b| assert_eq!(b.flow.unwrap().id, FlowId::new(9, 9)));
    fresh.lookup(b"c", secs(6), &mut |b| assert_eq!(b.flow, None));
    assert!(fresh.load(b"z", b"garbage", secs(6), &mut |_| None).is_err());
}

#[test]
fn a_refused_change_is_not_made() {
    let recorder = Recorder::default();
    let s = MemoryStore::with_journal([1; 16], Box::new(recorder.clone()));
    set(&s, b"a", &[BindingView { expires: secs(5), ..binding() }]);
    recorder.0.lock().unwrap().2 = true;
    assert_eq!(set(&s, b"a", &[]), Commit::Refused);
    assert_eq!(set(&s, b"b", &[binding()]), Commit::Refused);
    assert_eq!((s.records(), s.contacts()), (1, 1));
    assert_eq!(expire_all(&s, secs(6)), 0);
    recorder.0.lock().unwrap().2 = false;
    assert_eq!(expire_all(&s, secs(6)), 1);
}

#[derive(Clone, Debug)]
enum Op {
    Set(u8, Vec<Owned>),
    Add(u8, Owned),
    Abort(u8, Owned),
    Pass(u64),
    Expire,
    Close(u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0u8..6, prop::collection::vec(any_binding(), 0..3)).prop_map(|(a, b)| Op::Set(a, b)),
        (0u8..6, any_binding()).prop_map(|(a, b)| Op::Add(a, b)),
        (0u8..6, any_binding()).prop_map(|(a, b)| Op::Abort(a, b)),
        (0u64..20_000).prop_map(Op::Pass),
        Just(Op::Expire),
        (0u64..6).prop_map(Op::Close),
    ]
}

/// What the store must be seen to hold: for each address the bindings that were put and are live.
#[derive(Default)]
struct Model {
    now: u64,
    all: BTreeMap<u8, Vec<(Owned, bool)>>,
}

impl Model {
    fn view((owned, flow_lost): &(Owned, bool)) -> BindingView<'_> {
        let view = owned.view();
        if *flow_lost { BindingView { flow: None, ..view } } else { view }
    }

    fn drop_expired(&mut self) {
        let now = Time::from_millis(self.now);
        for all in self.all.values_mut() {
            all.retain(|b| Self::view(b).expires > now);
        }
    }

    fn apply(&mut self, op: Op) {
        self.drop_expired();
        match op {
            Op::Set(a, bindings) => {
                self.all.insert(a, bindings.into_iter().map(|b| (b, false)).collect());
            }
            Op::Add(a, b) => self.all.entry(a).or_default().push((b, false)),
            Op::Pass(ms) => self.now += ms,
            Op::Close(serial) => {
                let closed = Some(FlowId::new(0, serial));
                for all in self.all.values_mut() {
                    all.retain(|b| {
                        let view = Self::view(b);
                        view.connection() != closed || !view.is_flow_bound()
                    });
                    for b in all.iter_mut() {
                        b.1 |= Self::view(b).connection() == closed;
                    }
                }
            }
            Op::Abort(..) | Op::Expire => {}
        }
        self.drop_expired();
    }
}

proptest! {
    #[test]
    fn behaves_like_a_sorted_map(ops in prop::collection::vec(any_op(), 1..60)) {
        let s = store();
        let mut model = Model::default();
        for op in ops {
            let now = Time::from_millis(model.now);
            match &op {
                Op::Set(a, bindings) => {
                    s.update(&[*a], now, TAG, &mut |edit| {
                        for b in bindings {
                            edit.put(&b.view()).unwrap();
                        }
                        edit.commit();
                    });
                }
                Op::Add(a, b) | Op::Abort(a, b) => {
                    s.update(&[*a], now, TAG, &mut |edit| {
                        for old in edit.current() {
                            edit.put(&old).unwrap();
                        }
                        edit.put(&b.view()).unwrap();
                        if matches!(op, Op::Add(..)) {
                            edit.commit();
                        }
                    });
                }
                Op::Pass(_) => {}
                Op::Expire => {
                    expire_all(&s, now);
                    let live: usize = model.all.values().map(Vec::len).sum();
                    prop_assert_eq!(s.contacts(), live);
                    prop_assert_eq!(
                        s.records(),
                        model.all.values().filter(|v| !v.is_empty()).count()
                    );
                }
                Op::Close(serial) => {
                    s.flow_closed(FlowId::new(0, *serial), now);
                }
            }
            model.apply(op);
            let now = Time::from_millis(model.now);
            for a in 0..6 {
                let mut seen = Vec::new();
                s.lookup(&[a], now, &mut |b| seen.push(format!("{b:?}")));
                let expected: Vec<_> = model
                    .all
                    .get(&a)
                    .into_iter()
                    .flatten()
                    .map(|b| format!("{:?}", Model::view(b)))
                    .collect();
                prop_assert_eq!(seen, expected);
            }
        }
        // Nothing is left behind once everything has expired.
        expire_all(&s, secs(1_000_000));
        prop_assert_eq!((s.records(), s.contacts(), s.flows.len()), (0, 0, 0));
    }
}

/// Pages of any size: each record that stays is visited exactly once, though others come and go.
#[test]
fn a_listing_visits_each_record_once() {
    let aor = |i: usize| format!("sip:{i}@x").into_bytes();
    for limit in [1, 7, 250, 5_000] {
        let s = store();
        for i in 0..1_000 {
            set(&s, &aor(i), &[binding(), BindingView { contact: b"sip:2@h", ..binding() }]);
        }
        set(&s, b"sip:expired@x", &[BindingView { expires: secs(1), ..binding() }]);
        let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let (mut cursor, mut pages) = (None, 0);
        loop {
            let before: usize = seen.values().sum();
            cursor = s.list(cursor.as_ref(), limit, secs(2), &mut |aor, _| {
                *seen.entry(aor.to_vec()).or_default() += 1;
            });
            assert!(seen.values().sum::<usize>() - before <= 2 * limit);
            pages += 1;
            // Others come, so that the table grows, and every second of the first ones goes.
            if pages <= 400 {
                set(&s, &aor(10_000 + pages), &[binding()]);
                set(&s, &aor(2 * pages), &[]);
            }
            if cursor.is_none() {
                break;
            }
        }
        for i in (1..1_000).step_by(2) {
            assert_eq!(seen.get(&aor(i)), Some(&2), "{i} with {limit} a page");
        }
        assert!(seen.values().all(|n| *n <= 2) && !seen.contains_key(&b"sip:expired@x"[..]));
    }
}
