//! Fills the location table with a million registrations of typical size and prints the memory that each
//! takes (from `/proc/self/statm`), and the time of a lookup, a refresh and a scan for expired
//! bindings on one thread. Run it with `cargo run --profile quick --example contacts`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ringway_proxy::location::{BindingView, CommitTag, LocationStore, MemoryStore};
use ringway_sansio::{Duration, Flow, FlowId, Random, SplitMix, Time, Transport};
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

const CONTACTS: u64 = 1_000_000;
const TAG: CommitTag = CommitTag { worker: 0, id: 0 };

fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    (pages * 4096) as f64
}

/// Returns the texts of the `i`-th user.
struct User {
    aor: Vec<u8>,
    contact: Vec<u8>,
    call_id: Vec<u8>,
}

impl User {
    fn new() -> Self {
        User { aor: Vec::new(), contact: Vec::new(), call_id: Vec::new() }
    }

    fn become_nth(&mut self, i: u64) {
        self.aor.clear();
        write!(self.aor, "sip:user{i:06}@example.com").unwrap();
        self.contact.clear();
        write!(self.contact, "sip:user{i:06}@192.0.2.17:5060;transport=udp").unwrap();
        self.call_id.clear();
        write!(self.call_id, "{:040x}", u128::from(i) << 64 | 0xabcd_ef01).unwrap();
    }

    fn binding(&self, i: u64, now: Time) -> BindingView<'_> {
        BindingView {
            contact: &self.contact,
            params: b"",
            q: 1000,
            expires: now + Duration::from_secs(3600),
            path: b"",
            instance: b"",
            reg_id: 0,
            flow: Some(Flow {
                id: FlowId::new(0, 1),
                transport: Transport::Udp,
                local: "192.0.2.1:5060".parse().unwrap(),
                remote: ([192, 0, 2, i as u8], 5060).into(),
            }),
            call_id: &self.call_id,
            cseq: 1,
            outbound: false,
            nat: false,
            epoch: 0,
            first_cseq: 0,
        }
    }
}

fn each(label: &str, nanos: u128) {
    println!("{label:<28}{:>8} ns", nanos / u128::from(CONTACTS));
}

/// Times lookups and refreshes of users chosen at random among the first `users`.
fn measure(store: &MemoryStore, user: &mut User, users: u64, now: Time) {
    println!("among {users} users");
    let mut random = SplitMix::new(users);
    let start = Instant::now();
    for _ in 0..CONTACTS {
        user.become_nth(random.next_u64() % users);
        black_box(&user.aor);
    }
    let choosing = start.elapsed().as_nanos();

    let start = Instant::now();
    for _ in 0..CONTACTS {
        user.become_nth(random.next_u64() % users);
        let found = store.lookup(&user.aor, now, &mut |b| {
            black_box(b.contact);
        });
        assert_eq!(found, 1);
    }
    each("  lookup", start.elapsed().as_nanos() - choosing);

    let start = Instant::now();
    for _ in 0..CONTACTS {
        let i = random.next_u64() % users;
        user.become_nth(i);
        store.update(&user.aor, now, TAG, &mut |edit| {
            let old = edit.current().next().unwrap();
            edit.put(&BindingView { cseq: old.cseq + 1, ..user.binding(i, now) }).unwrap();
            edit.commit();
        });
    }
    each("  refresh", start.elapsed().as_nanos() - choosing);
}

fn main() {
    let now = Time::from_secs(1_700_000_000);
    let mut user = User::new();
    let before = resident();
    let store = MemoryStore::new([3; 16]);

    let start = Instant::now();
    for i in 0..CONTACTS {
        user.become_nth(i);
        store.update(&user.aor, now, TAG, &mut |edit| {
            edit.put(&user.binding(i, now)).unwrap();
            edit.commit();
        });
    }
    each("register, first time", start.elapsed().as_nanos());
    let bytes = (resident() - before) / CONTACTS as f64;
    println!("{:<28}{bytes:>8.0} bytes", "resident, each contact");

    // A thousand users fit the processor's cache, which shows the cost of the code. All of them do not, which
    // adds the cost of memory.
    let later = now + Duration::from_secs(1800);
    for users in [1000, CONTACTS] {
        measure(&store, &mut user, users, later);
    }

    let start = Instant::now();
    assert_eq!(store.expire(later, usize::MAX), 0);
    each("walk, nothing expired", start.elapsed().as_nanos());

    let end = later + Duration::from_secs(3600);
    let start = Instant::now();
    assert_eq!(store.expire(end, usize::MAX), CONTACTS as usize);
    each("walk, everything expired", start.elapsed().as_nanos());
    println!("{:<28}{:>8} records", "left", store.records());
    let bytes = (resident() - before) / CONTACTS as f64;
    println!("{:<28}{bytes:>8.0} bytes", "resident, each former one");
}
