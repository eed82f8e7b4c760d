//! Cost of a durable REGISTER in the store alone, without SIP: changes per second, the delay until
//! each is durable, and the CPU time of the store's thread.
//!
//! `cargo bench -p ringway-server --bench store -- [DIRECTORY]` (default: the target directory, so
//! the disk that holds the build). Two threads act as workers. They first submit changes as fast as
//! the queue accepts them, then at fixed rates. Record sizes are those of a phone's registration:
//! about 150 bytes.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use hdrhistogram::Histogram;
use ringway_proxy::location::{BindingView, Commit, CommitTag, LocationStore};
use ringway_sansio::Time;
use ringway_server::config::StoreKind;
use ringway_server::store::{Others, Store};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WORKERS: u64 = 2;
const RUN: Duration = Duration::from_secs(4);

/// The longest registration.
const HOUR: Duration = Duration::from_secs(3600);

fn now() -> Time {
    Time::from_secs(1_800_000_000)
}

struct Bench {
    store: Store,
    started: Instant,
    sent: Arc<Vec<AtomicU64>>,
    delays: Arc<Mutex<Histogram<u64>>>,
    confirmed: Arc<AtomicU64>,
}

const SLOTS: usize = 1 << 20;

impl Bench {
    fn new(store: Store) -> Self {
        let started = Instant::now();
        let sent: Arc<Vec<AtomicU64>> = Arc::new((0..SLOTS).map(|_| AtomicU64::new(0)).collect());
        let delays = Arc::new(Mutex::new(Histogram::new(3).unwrap()));
        let confirmed = Arc::new(AtomicU64::new(0));
        let bench = Bench { store, started, sent, delays, confirmed };
        let (sent, delays, confirmed) =
            (bench.sent.clone(), bench.delays.clone(), bench.confirmed.clone());
        bench.store.set_commit_sink(Arc::new(move |_, ids, ok| {
            assert!(ok);
            let at = started.elapsed().as_micros() as u64;
            let mut delays = delays.lock().unwrap();
            for id in ids {
                let begun = sent[*id as usize % SLOTS].load(Ordering::Relaxed);
                delays.record(at.saturating_sub(begun)).unwrap();
            }
            confirmed.fetch_add(ids.len() as u64, Ordering::Relaxed);
        }));
        bench
    }

    fn register(&self, id: u64, users: u64) -> Commit {
        self.sent[id as usize % SLOTS]
            .store(self.started.elapsed().as_micros() as u64, Ordering::Relaxed);
        let user = (id % users).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let aor = format!("sip:{user:016x}@example.org");
        let contact = format!("sip:{user:016x}@192.0.2.9:5060;transport=udp");
        let tag = CommitTag { worker: (id % WORKERS) as u8, id };
        self.store.location().update(aor.as_bytes(), now(), tag, &mut |edit| {
            let binding = BindingView {
                contact: contact.as_bytes(),
                params: b"",
                q: 1000,
                expires: now() + Duration::from_secs(3600),
                path: b"",
                instance: b"",
                reg_id: 0,
                flow: None,
                call_id: b"3848276298220188511@192.0.2.9",
                cseq: id as u32,
                first_cseq: 0,
                outbound: false,
                epoch: 0,
                nat: false,
            };
            edit.put(&binding).unwrap();
            edit.commit();
        })
    }

    /// Registers `users` in turn for [`RUN`], at `rate` per second or as fast as possible.
    fn run(&self, rate: Option<u64>, users: u64) {
        self.delays.lock().unwrap().reset();
        let before = self.confirmed.load(Ordering::Relaxed);
        let stats = self.store.writer_stats().unwrap();
        let commits = stats.commits.load(Ordering::Relaxed);
        let refused = stats.refused_full.load(Ordering::Relaxed);
        let cpu = cpu_micros();
        let begun = Instant::now();
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    while begun.elapsed() < RUN {
                        if let Some(rate) = rate {
                            let due = begun.elapsed().as_micros() as u64 * rate / 1_000_000;
                            if next.load(Ordering::Relaxed) >= due {
                                std::thread::sleep(Duration::from_millis(1));
                                continue;
                            }
                        }
                        let id = next.fetch_add(1, Ordering::Relaxed);
                        if self.register(id, users) == Commit::Refused {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                    }
                });
            }
        });
        while stats.queued.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let took = begun.elapsed().as_secs_f64();
        let done = self.confirmed.load(Ordering::Relaxed) - before;
        let commits = stats.commits.load(Ordering::Relaxed) - commits;
        let delays = self.delays.lock().unwrap();
        let ms = |q: f64| delays.value_at_quantile(q) as f64 / 1000.0;
        println!(
            "{:>9} users {:>8}/s  durable in ms p50 {:6.1} p99 {:6.1} max {:6.1}  {:>6.0} commits/s of {:>6.1}  {:5.1} us CPU each  {} refused",
            users,
            (done as f64 / took) as u64,
            ms(0.5),
            ms(0.99),
            ms(1.0),
            commits as f64 / took,
            done as f64 / commits.max(1) as f64,
            (cpu_micros() - cpu) as f64 / done.max(1) as f64,
            stats.refused_full.load(Ordering::Relaxed) - refused,
        );
    }
}

/// Returns the CPU time of the store's thread so far, in microseconds.
fn cpu_micros() -> u64 {
    let read = |task: &std::path::Path, file: &str| std::fs::read_to_string(task.join(file)).ok();
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .map(|task| task.path())
        .filter(|task| read(task, "comm").is_some_and(|name| name.trim() == "store"))
        .filter_map(|task| read(&task, "schedstat"))
        .filter_map(|line| line.split(' ').next()?.parse::<u64>().ok())
        .sum::<u64>()
        / 1_000
}

fn main() {
    let directory = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let directory = directory.map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let path = directory.join(format!("bench-{}.redb", std::process::id()));
    let kind = StoreKind::Redb(path.clone());
    let open = || Store::open(&kind, now(), HOUR, &mut |_| None, Others::None).unwrap();
    let bench = Bench::new(open());
    for (rate, users) in [
        (Some(10), 1_000),
        (Some(100), 1_000),
        (Some(1_000), 10_000),
        (Some(10_000), 100_000),
        (None, 10_000),
        (None, 100_000),
    ] {
        bench.run(rate, users);
    }
    drop(bench);
    let begun = Instant::now();
    let store = open();
    println!(
        "opened and loaded {} contacts in {:?}",
        store.load_summary().contacts,
        begun.elapsed()
    );
    drop(store);
    println!("file of {} KiB", std::fs::metadata(&path).unwrap().len() / 1024);
    std::fs::remove_file(&path).unwrap();
}
