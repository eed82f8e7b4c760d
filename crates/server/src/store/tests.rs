//! Tests of the whole store: its contents after it was closed or could not be written.

use super::*;
use ringway_proxy::auth::Users;
use ringway_proxy::location::{BindingView, Commit, CommitTag, LocationStore};
use ringway_sansio::Time;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The longest registration.
const HOUR: Duration = Duration::from_secs(3600);
/// Time limit for an expected event, sufficient on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

fn open(path: &Path) -> Store {
    Store::open(&StoreKind::Redb(path.to_owned()), now(), HOUR, &mut |_| None, Others::None)
        .unwrap()
}

fn now() -> Time {
    Time::from_secs(1_800_000_000)
}

fn binding() -> BindingView<'static> {
    BindingView {
        contact: b"sip:101@192.0.2.9:5060",
        params: b"",
        q: 1000,
        expires: now() + Duration::from_secs(3600),
        path: b"",
        instance: b"",
        reg_id: 0,
        flow: None,
        call_id: b"call",
        cseq: 1,
        first_cseq: 1,
        outbound: false,
        epoch: 0,
        nat: false,
    }
}

fn register(store: &Store, aor: &str, id: u64) -> Commit {
    let tag = CommitTag { worker: (id % 3) as u8, id };
    store.location().update(aor.as_bytes(), now(), tag, &mut |edit| {
        edit.put(&binding()).unwrap();
        edit.commit();
    })
}

fn found(store: &Store, aor: &str) -> usize {
    store.location().lookup(aor.as_bytes(), now(), &mut |_| ())
}

/// Collects the reports of the commit sink.
#[derive(Clone, Default)]
struct CommitReports(Arc<Mutex<Vec<(u8, u64, bool)>>>);

impl CommitReports {
    fn attach(store: &Store) -> Self {
        let reports = CommitReports::default();
        let list = reports.0.clone();
        store.set_commit_sink(Arc::new(move |worker, ids, ok| {
            list.lock().unwrap().extend(ids.iter().map(|id| (worker, *id, ok)));
        }));
        reports
    }

    fn wait(&self, n: usize) -> Vec<(u8, u64, bool)> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let list = self.0.lock().unwrap().clone();
            if list.len() >= n || Instant::now() > until {
                return list;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The table is a pure structure; the server's threads share it.
#[test]
fn workers_share_the_table() {
    let s = MemoryStore::new([7; 16]);
    std::thread::scope(|scope| {
        for worker in 0..4u8 {
            let s = &s;
            scope.spawn(move || {
                for i in 0..500u32 {
                    let aor = (i % 50).to_le_bytes();
                    s.update(&aor, now(), CommitTag { worker, id: 1 }, &mut |edit| {
                        let id = [worker];
                        for b in edit.current().filter(|b| b.call_id != id) {
                            edit.put(&b).unwrap();
                        }
                        edit.put(&BindingView { call_id: &id, cseq: i, ..binding() }).unwrap();
                        edit.commit();
                    });
                    s.lookup(&aor, now(), &mut |_| {});
                    s.expire(now(), 10);
                }
            });
        }
    });
    assert_eq!((s.records(), s.contacts()), (50, 200));
}

#[test]
fn a_durable_registration_is_loaded_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state/x.redb");
    let store = open(&path);
    let reports = CommitReports::attach(&store);
    for i in 0..500 {
        assert_eq!(register(&store, &format!("sip:{i}@a.org"), i), Commit::Pending);
    }
    let mut list = reports.wait(500);
    list.sort_by_key(|t| t.1);
    assert_eq!(list.len(), 500);
    assert!(list.iter().enumerate().all(|(i, t)| *t == ((i % 3) as u8, i as u64, true)));
    let stats = store.writer_stats().unwrap();
    assert_eq!(stats.changes.load(std::sync::atomic::Ordering::Relaxed), 500);
    drop(store);
    let store = open(&path);
    assert_eq!(store.load_summary().contacts, 500);
    assert_eq!(found(&store, "sip:499@a.org"), 1);
}

#[test]
fn the_store_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state/x.redb");
    drop(open(&path));
    let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[test]
fn keys_and_users_are_kept_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let mut store = open(&path);
    let secret = store.secret();
    store.set_domain("a.org").unwrap();
    assert!(store.set_user("101", "a.org", Hashes::new("101", "a.org", "one")).unwrap());
    assert!(!store.set_user("101", "a.org", Hashes::new("101", "a.org", "two")).unwrap());
    assert!(store.set_user("102", "a.org", Hashes::new("102", "a.org", "x")).unwrap());
    assert!(store.remove_user("102", "a.org").unwrap());
    assert!(!store.remove_user("102", "a.org").unwrap());
    drop(store);
    let store = open(&path);
    assert_eq!((store.secret(), store.domain()), (secret, Some("a.org")));
    assert_eq!(store.list_users().unwrap(), [("101".to_owned(), "a.org".to_owned())]);
}

fn hashed(user: &str) -> HashedUser {
    let hashes = Hashes::new(user, "a.org", "p");
    HashedUser { user: user.to_owned(), realm: "a.org".to_owned(), hashes }
}

#[test]
fn many_users_are_added_in_one_transaction_or_none_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let check = |store: &dyn UserStore, first: usize| {
        let names = |from: usize| (from..from + 3).map(|i| hashed(&i.to_string())).collect();
        assert_eq!(store.set_users(names(first), false), Ok(0));
        let error = store.set_users(names(first + 2), false).unwrap_err();
        assert_eq!(error, format!("user {}@a.org exists already", first + 2));
        assert_eq!(store.list_users().unwrap().len(), first % 10 + 3);
        assert_eq!(store.set_users(names(first + 2), true), Ok(0));
        assert_eq!(store.list_users().unwrap().len(), first % 10 + 5);
        assert_eq!(store.set_users(Vec::new(), false), Ok(0));
    };
    let store = open(&path);
    check(&store, 100);
    let commits = store.writer_stats().unwrap().commits.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(commits, 3, "one of them without a change");
    drop(store);
    check(&OfflineStore::open(&path).unwrap(), 205);
    let store = open(&path);
    assert_eq!(store.load_summary().users, 10);
    check(&Store::open(&StoreKind::Memory, now(), HOUR, &mut |_| None, Others::None).unwrap(), 100);
}

#[test]
fn a_store_in_use_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let store = open(&path);
    let e = OfflineStore::open(&path).err().unwrap();
    assert!(matches!(e, StoreError::Locked(_)), "{e}");
    assert_eq!(e.to_string(), format!("store {}: in use by another process", path.display()));
    drop(store);
    let rest = OfflineStore::open_or_create(&path).unwrap();
    assert!(rest.set_user("7", "a.org", Hashes::new("7", "a.org", "p")).unwrap());
    drop(rest);
    assert!(open(&path).users().exists(b"7", b"a.org"));
}

#[test]
fn a_file_that_is_no_store_is_refused_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let text = "This is somebody's thesis. ".repeat(1000);
    std::fs::write(&path, &text).unwrap();
    let e = OfflineStore::open(&path).err().unwrap();
    assert!(e.to_string().starts_with(&format!("store {}: ", path.display())), "{e}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    let e = OfflineStore::open(dir.path()).err().unwrap();
    assert!(matches!(e, StoreError::Io(..)), "{e}");
}

#[test]
fn corrupt_records_are_skipped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let store = open(&path);
    let reports = CommitReports::attach(&store);
    register(&store, "sip:1@a.org", 1);
    reports.wait(1);
    drop(store);
    let file = StoreFile::open(&path, false).unwrap();
    file.put(Table::Bindings, b"sip:2@a.org", b"\xffnonsense").unwrap();
    file.put(Table::Users, b"no realm", b"x").unwrap();
    drop(file);
    let store = open(&path);
    assert_eq!(
        store.load_summary(),
        LoadSummary { users: 0, contacts: 1, expired: 0, corrupt: 2, shortened: 0 }
    );
}

#[test]
fn expired_records_are_removed_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let store = open(&path);
    let reports = CommitReports::attach(&store);
    register(&store, "sip:1@a.org", 1);
    reports.wait(1);
    drop(store);
    let later = now() + Duration::from_secs(3601);
    let kind = StoreKind::Redb(path.clone());
    let store = Store::open(&kind, later, HOUR, &mut |_| None, Others::None).unwrap();
    assert_eq!(store.load_summary().expired, 1);
    drop(store);
    assert_eq!(StoreFile::open(&path, false).unwrap().len(Table::Bindings).unwrap(), 0);
}

/// A server whose clock was five years ahead left bindings that last five years.
#[test]
fn a_binding_is_shortened_to_the_longest_registration() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let store = open(&path);
    let reports = CommitReports::attach(&store);
    register(&store, "sip:1@a.org", 1);
    reports.wait(1);
    drop(store);
    let years = Duration::from_secs(5 * 365 * 86_400);
    let earlier = Time::from_secs(now().as_secs() - years.as_secs());
    let reopen = |now: Time| {
        let kind = StoreKind::Redb(path.clone());
        Store::open(&kind, now, HOUR, &mut |_| None, Others::None).unwrap()
    };
    let store = reopen(earlier);
    let loaded = LoadSummary { contacts: 1, shortened: 1, ..LoadSummary::default() };
    assert_eq!(store.load_summary(), loaded);
    let expires = |store: &Store, now: Time| {
        let mut out = Vec::new();
        store.location().lookup(b"sip:1@a.org", now, &mut |b| out.push(b.expires));
        out
    };
    assert_eq!(expires(&store, earlier), [earlier + HOUR]);
    drop(store);
    // The file is corrected too: a start shortly after does not extend them by another hour.
    let later = earlier + Duration::from_secs(600);
    let store = reopen(later);
    assert_eq!((store.load_summary().shortened, expires(&store, later)), (0, vec![earlier + HOUR]));
}

#[test]
fn opening_does_not_create_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/x.redb");
    let error = OfflineStore::open(&path).err().unwrap();
    assert!(error.to_string().contains("No such file"), "{error}");
    check_creatable(&path).unwrap();
    assert!(!dir.path().join("new").exists());
    let made = OfflineStore::open_or_create(&path).unwrap();
    assert!(made.list_users().unwrap().is_empty());
    drop(made);
    assert!(!open(&path).is_new(), "users would be made");
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert!(check_creatable(&dir.path().join("file/x.redb")).is_err());
    assert!(check_creatable(Path::new("/proc/x/y.redb")).is_err());
}

#[test]
fn a_store_in_memory_commits_at_once() {
    let store = Store::open(&StoreKind::Memory, now(), HOUR, &mut |_| None, Others::None).unwrap();
    assert_eq!(register(&store, "sip:1@a.org", 1), Commit::Done);
    assert!(store.writer_stats().is_none());
    assert!(store.set_user("1", "a.org", Hashes::new("1", "a.org", "p")).unwrap());
    assert!(store.users().exists(b"1", b"a.org"));
}

/// A disk that can be made to refuse writes.
#[derive(Debug)]
struct Disk {
    inner: redb::backends::FileBackend,
    full: Arc<std::sync::atomic::AtomicBool>,
}

impl Disk {
    fn check(&self) -> std::io::Result<()> {
        if self.full.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl redb::StorageBackend for Disk {
    fn len(&self) -> std::io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.check()?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.check()?;
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.check()?;
        self.inner.write(offset, data)
    }

    fn close(&self) -> std::io::Result<()> {
        self.inner.close()
    }
}

/// An old copy of what a router remembers of short numbers would make numbers collide.
#[test]
fn a_backup_has_no_short_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let (path, restored) = (dir.path().join("x.redb"), dir.path().join("y.redb"));
    let store = open(&path);
    store.set_user("1", "a.org", Hashes::new("1", "a.org", "p")).unwrap();
    store.keep_numbers(7, b"numbers").unwrap();
    let mut backup = Vec::new();
    store.snapshot().unwrap().write(&mut backup).unwrap();
    drop(store);
    assert_eq!(open(&path).numbers_kept(7), Some(&b"numbers"[..]));
    restore(&mut &backup[..], &restored, false).unwrap();
    let store = open(&restored);
    assert!(store.users().exists(b"1", b"a.org"));
    assert_eq!(store.numbers_kept(7), None);
}

/// Opens a store on a disk that can be full.
pub(crate) fn on_disk(
    path: &Path,
    full: &Arc<std::sync::atomic::AtomicBool>,
    exchange: Option<Arc<Exchange>>,
) -> Store {
    let (path, full) = (path.to_owned(), full.clone());
    let reopen: Reopen = Box::new(move || {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .unwrap();
        let inner = redb::backends::FileBackend::new(file).unwrap();
        let disk = Disk { inner, full: full.clone() };
        let db = redb::Database::builder()
            .create_with_backend(disk)
            .map_err(|e| StoreError::Damaged(path.clone(), e.to_string()))?;
        StoreFile::from_database(&path, db)
    });
    let file = reopen().unwrap();
    let lifetime = Lifetime { now: now(), latest: now() + HOUR };
    Store::load(
        file,
        [7; 16],
        lifetime,
        &mut |_| None,
        reopen,
        exchange.map_or(Others::None, Others::Mesh),
    )
    .unwrap()
}

/// With a full disk, registrations fail and calls use the bindings in memory. Once there is space
/// again, the failed changes are written and registrations are accepted.
#[test]
fn a_full_disk_refuses_changes_and_recovers() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let full = Arc::new(AtomicBool::new(false));
    let store = on_disk(&path, &full, None);
    let reports = CommitReports::attach(&store);
    let failed = || store.writer_stats().unwrap().failed.load(SeqCst);

    assert_eq!(register(&store, "sip:1@a.org", 1), Commit::Pending);
    assert_eq!(reports.wait(1), [(1, 1, true)]);
    full.store(true, SeqCst);
    assert_eq!(register(&store, "sip:2@a.org", 2), Commit::Pending);
    assert_eq!(reports.wait(2)[1], (2, 2, false), "a registration must not be confirmed");
    let until = Instant::now() + TIMEOUT;
    while !failed() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(register(&store, "sip:3@a.org", 3), Commit::Refused);
    assert_eq!(found(&store, "sip:1@a.org"), 1, "calls go on");
    assert!(store.set_user("1", "a.org", Hashes::new("1", "a.org", "p")).is_err());
    assert!(store.set_users(vec![hashed("1"), hashed("2")], false).is_err());
    assert!(!store.users().exists(b"1", b"a.org"));

    full.store(false, SeqCst);
    let until = Instant::now() + TIMEOUT;
    while failed() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(register(&store, "sip:4@a.org", 4), Commit::Pending);
    assert_eq!(reports.wait(3)[2], (1, 4, true));
    drop(store);
    let store = open(&path);
    assert_eq!(store.load_summary().contacts, 3, "1, 4, and 2, which memory had all the time");
    assert_eq!(store.load_summary().users, 0);
}

/// An import that fails changes nothing, and registrations go on.
#[test]
fn a_full_disk_refuses_many_users_and_nothing_else() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let full = Arc::new(AtomicBool::new(false));
    let store = on_disk(&path, &full, None);
    let reports = CommitReports::attach(&store);
    let users = || (0..1_000).map(|i| hashed(&i.to_string())).collect();
    full.store(true, SeqCst);
    assert!(store.set_users(users(), false).is_err());
    full.store(false, SeqCst);
    assert!(!store.writer_stats().unwrap().failed.load(SeqCst));
    assert!(store.users().is_empty());
    assert_eq!(register(&store, "sip:1@a.org", 1), Commit::Pending);
    assert_eq!(reports.wait(1), [(1, 1, true)]);
    assert_eq!(store.set_users(users(), false), Ok(0));
    drop(store);
    let store = open(&path);
    assert_eq!((store.load_summary().users, store.load_summary().contacts), (1_000, 1));
}

/// Two threads register continuously while the store is backed up. The backup contains every
/// registration that was confirmed before it began, and each record in it is complete.
#[test]
fn a_backup_under_load_has_all_confirmed_registrations() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("x.redb"));
    let reports = CommitReports::attach(&store);
    store.set_user("101", "a.org", Hashes::new("101", "a.org", "p")).unwrap();
    let stop = AtomicBool::new(false);
    let aor = |id: u64| format!("sip:{id}@a.org");
    let backups: Vec<(usize, Vec<u8>)> = std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                for id in (thread..).step_by(2).take_while(|_| !stop.load(Relaxed)) {
                    while register(store, &aor(id), id) == Commit::Refused {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    if id % 64 < 2 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
        let backups = (1..=4).map(|round| {
            // The last registrations are made after the journal was emptied once.
            let confirmed = reports.wait(round * MAX_JOURNAL / 3).len();
            let mut bytes = Vec::new();
            store.snapshot().unwrap().write(&mut bytes).unwrap();
            (confirmed, bytes)
        });
        let backups = backups.collect();
        stop.store(true, Relaxed);
        backups
    });
    let reports = reports.wait(0);
    for (round, (confirmed, bytes)) in backups.into_iter().enumerate() {
        let path = dir.path().join(format!("{round}.redb"));
        restore(&mut &bytes[..], &path, false).unwrap();
        let restored = open(&path);
        assert_eq!((restored.load_summary().corrupt, restored.secret()), (0, store.secret()));
        assert!(restored.users().exists(b"101", b"a.org"));
        let lost = reports[..confirmed].iter().filter(|t| found(&restored, &aor(t.1)) == 0).count();
        assert_eq!(
            lost,
            0,
            "of {confirmed} confirmed, {} restored",
            restored.load_summary().contacts
        );
    }
}

#[test]
fn a_restore_does_not_replace_without_force() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let store = open(&path);
    let mut bytes = Vec::new();
    store.snapshot().unwrap().write(&mut bytes).unwrap();
    let again = |replace| restore(&mut &bytes[..], &path, replace).err().map(|e| e.to_string());
    assert!(again(false).unwrap().contains("exists"));
    assert!(again(true).unwrap().contains("in use by another process"));
    drop(store);
    assert!(again(false).unwrap().contains("exists"));
    assert_eq!(again(true), None);
    // A restore may replace a damaged store.
    std::fs::write(&path, "This is somebody's thesis. ".repeat(1000)).unwrap();
    assert_eq!(again(true), None);
    assert!(open(&path).list_users().unwrap().is_empty());
}

fn unregister(store: &Store, aor: &str, id: u64) -> Commit {
    let tag = CommitTag { worker: 0, id };
    store.location().update(aor.as_bytes(), now(), tag, &mut |edit| edit.commit())
}

/// More changes than the journal holds, some of them to the same records: the last change of each
/// record counts, wherever in the file it is.
#[test]
fn a_full_journal_is_applied_with_the_last_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let store = open(&path);
    let reports = CommitReports::attach(&store);
    let aor = |i: usize| format!("sip:{}@a.org", i % 12_000);
    let mut queued = 0;
    for i in 0..MAX_JOURNAL + 10_000 {
        while register(&store, &aor(i), i as u64) == Commit::Refused {
            std::thread::sleep(Duration::from_millis(1));
        }
        queued += 1;
    }
    for i in (0..12_000).step_by(3) {
        while unregister(&store, &aor(i), 0) == Commit::Refused {
            std::thread::sleep(Duration::from_millis(1));
        }
        queued += 1;
    }
    let list = reports.wait(queued);
    assert!(list.len() == queued && list.iter().all(|t| t.2));
    drop(store);
    let store = open(&path);
    assert_eq!(
        store.load_summary(),
        LoadSummary { users: 0, contacts: 8_000, expired: 0, corrupt: 0, shortened: 0 }
    );
    assert_eq!((found(&store, &aor(3)), found(&store, &aor(4))), (0, 1));
}
