//! What the database of users must do, on servers of PostgreSQL and Redis that are started here.

mod hostile;
mod servers;

use super::UsersThread;
use super::apply::Applier;
use super::read::{Complete, Sink};
use super::shared::{Change, Changed, Ends, Expected, Shared, SharedUsers};
use super::source::{Source, domains};
use crate::config::{Settings, StoreKind};
use crate::manage::{MissingStore, UserManager};
use crate::setup;
use crate::store::{HashedUser, Hashes, OfflineStore, Others, Store};
use ringway_net::Clock;
use ringway_proxy::auth::Users;
use ringway_users::{Domains, script};
use servers::{Postgres, Redis, free_port};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One server's users.
struct Node {
    store: Arc<Store>,
    users: SharedUsers,
    thread: UsersThread,
}

impl Node {
    /// Starts with users of a file, and a section of the configuration.
    fn start(file: &Path, section: &str) -> Self {
        let store = file.join("node.redb");
        Self::start_on(&format!("store = \"redb:{}\"", store.display()), section)
    }

    fn start_on(store: &str, section: &str) -> Self {
        let text = format!("domains = [\"a.org\"]\n{store}\n{section}");
        let settings = Settings::parse("", &text).unwrap();
        let clock = Clock::new();
        let kind = setup::store(&settings).unwrap();
        let store =
            Store::open(&kind, clock.now(), Duration::ZERO, &mut |_| None, Others::None).unwrap();
        let store = Arc::new(store);
        let source = Source::of(&settings).unwrap().unwrap();
        let domains = domains(&setup::domains(&settings, None));
        let (thread, users) = UsersThread::start(source, domains, &store, clock).unwrap();
        Node { store, users, thread }
    }

    fn until(&self, what: &str, condition: impl Fn(&Node) -> bool) {
        let began = Instant::now();
        while !condition(self) {
            let numbers = self.users.numbers();
            assert!(began.elapsed() < Duration::from_secs(30), "{what}: {numbers:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn until_read(&self) {
        self.until("the database is not read", |node| node.users.numbers().present);
    }

    fn until_count(&self, count: usize) {
        self.until(&format!("not {count} users"), |node| node.store.users().len() == count);
    }

    fn put(&self, names: &[String], expected: Expected) -> Changed {
        self.users.change(put(names, expected)).unwrap()
    }

    fn remove(&self, name: &str) -> Changed {
        self.users.change(Change::Remove(name.to_owned(), "a.org".to_owned())).unwrap()
    }

    fn knows(&self, name: &str, password: Expected) -> bool {
        let hashes = Hashes::new(name, "a.org", &format!("{password:?}"));
        let known = self.store.users().get(name.as_bytes(), b"a.org");
        known.is_some_and(|known| known.proves_as(&hashes))
    }

    /// Stops as a server does.
    fn stop(mut self) {
        self.until("not saved", |node| node.users.numbers().unsaved == 0);
        self.thread.stop();
        self.store.flush();
    }
}

fn put(names: &[String], expected: Expected) -> Change {
    let user = |name: &String| HashedUser {
        user: name.clone(),
        realm: "a.org".to_owned(),
        hashes: Hashes::new(name, "a.org", &format!("{expected:?}")),
    };
    Change::Put(names.iter().map(user).collect(), expected)
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

/// What holds for any database. `section` names it.
fn contract(section: &str, store: Option<&str>) {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let start = |index: usize| match store {
        Some(store) => Node::start_on(
            &format!("store = \"{store}\""),
            &format!(
                "{section}[cluster]\nfile = \"{}/node.redb\"\nreplicas = 0\n",
                dirs[index].path().display()
            ),
        ),
        None => Node::start(dirs[index].path(), section),
    };
    let (first, second) = (start(0), start(1));
    first.until_read();
    second.until_read();

    // More than fits into one page of changes, and into one of everything.
    let many = names("u", 2500);
    let began = Instant::now();
    assert!(matches!(first.put(&many, Expected::New), Changed::Done(_)));
    second.until_count(many.len());
    eprintln!(
        "2500 users are known at another server {:?} after the change began",
        began.elapsed()
    );
    let third = start(2);
    third.until_count(many.len());

    // All or none.
    assert_eq!(
        second.put(&["new".into(), "u7".into()], Expected::New),
        Changed::Exists("u7@a.org".into())
    );
    assert_eq!(
        second.put(&["u7".into(), "new".into()], Expected::Existing),
        Changed::Missing("new@a.org".into())
    );
    assert!(first.knows("u7", Expected::New) && !first.store.users().exists(b"new", b"a.org"));

    // A new password is known where it was set when the change is done, and soon elsewhere.
    assert!(matches!(second.put(&["u7".into()], Expected::Existing), Changed::Done(_)));
    assert!(second.knows("u7", Expected::Existing));
    first.until("the old password", |node| node.knows("u7", Expected::Existing));
    assert!(matches!(second.put(&["u8".into(), "new".into()], Expected::Any), Changed::Done(_)));
    first.until("the old password", |node| {
        node.knows("u8", Expected::Any) && node.knows("new", Expected::Any)
    });

    // A server that was away believes that users are gone if that is noted, however many there were.
    second.stop();
    for name in &many[..40] {
        assert!(matches!(first.remove(name), Changed::Done(_)));
    }
    assert_eq!(first.remove(&many[0]), Changed::Missing("u0@a.org".into()));
    assert!(matches!(first.put(&many[..1], Expected::New), Changed::Done(_)));
    let second = start(1);
    assert_eq!(second.store.load_summary().users, many.len() + 1);
    second.until_count(many.len() + 1 - 39);
    assert!(second.store.users().exists(b"u0", b"a.org"));
    third.until_count(many.len() + 1 - 39);
    for node in [first, second, third] {
        let numbers = node.users.numbers();
        assert_eq!((numbers.outages, numbers.withheld, numbers.unusable), (0, 0, 0), "{numbers:?}");
        node.stop();
    }
}

#[test]
fn postgresql_keeps_the_contract() {
    let postgres = Postgres::start();
    contract(&postgres.section(""), None);
}

#[test]
fn redis_keeps_the_contract() {
    let redis = Redis::start();
    contract("[users]\nsource = \"store\"\n", Some(&redis.uri()));
}

/// A number that is lower than one that was read would never be read.
#[test]
fn changes_become_visible_in_the_order_of_their_numbers() {
    let postgres = Postgres::start();
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &postgres.section(""));
    node.until_read();
    let insert = |name: &str| {
        format!(
            "INSERT INTO ringway.users (domain, username, ha1_md5) VALUES ('a.org', '{name}', '{}')",
            "0".repeat(32)
        )
    };
    let earlier =
        postgres.psql(&format!("BEGIN; {}; SELECT pg_sleep(0.5); COMMIT;", insert("earlier")));
    std::thread::sleep(Duration::from_millis(150));
    let later = postgres.psql(&insert("later"));
    for mut psql in [later, earlier] {
        assert!(psql.wait().unwrap().success());
    }
    node.until_count(2);
    node.stop();
}

#[test]
fn servers_that_start_at_once_create_the_tables_once() {
    let postgres = Postgres::start();
    let dirs: Vec<_> = (0..6).map(|_| tempfile::tempdir().unwrap()).collect();
    let section = postgres.section("");
    let nodes: Vec<Node> = dirs.iter().map(|dir| Node::start(dir.path(), &section)).collect();
    for node in &nodes {
        node.until_read();
        assert_eq!(node.users.numbers().why, "");
    }
    nodes.into_iter().for_each(Node::stop);
    assert_eq!(postgres.value("SELECT count(*) FROM ringway.schema_version"), "1");
}

#[test]
fn a_table_with_too_many_users_is_refused() {
    let postgres = Postgres::start();
    postgres.run("CREATE TABLE subscriber (username text, domain text, password text)");
    postgres.run("INSERT INTO subscriber VALUES ('101', 'a.org', 'secret')");
    let dir = tempfile::tempdir().unwrap();
    let node =
        Node::start(dir.path(), &postgres.section("table = \"subscriber\"\nrefresh = \"1s\"\n"));
    node.until_count(1);
    postgres.run(
        "DROP TABLE subscriber; CREATE VIEW subscriber AS SELECT i::text AS username, 'a.org' AS domain, \
         'secret' AS password FROM generate_series(1, 1000001) AS i",
    );
    node.until("too many users are read", |node| !node.users.numbers().present);
    let why = node.users.numbers().why;
    assert_eq!(why, "table public.subscriber: expected at most 1000000 users, got more");
    assert_eq!(node.store.users().len(), 1);
    node.stop();
}

/// A host may be down, or be a replica.
#[test]
fn the_first_host_that_takes_changes_is_used() {
    let (replica, primary) =
        (Postgres::start_with(&["default_transaction_read_only=on"]), Postgres::start());
    let section = primary.section("");
    let down = free_port();
    let section = section.replace("@", &format!("@127.0.0.1:{down},127.0.0.1:{},", replica.port()));
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &section);
    node.until_read();
    assert!(matches!(node.put(&names("u", 1), Expected::New), Changed::Done(_)));
    assert_eq!(primary.value("SELECT username FROM ringway.users"), "u0");
    node.stop();
}

/// A read that breaks off shows a part of the users only.
#[test]
fn a_read_that_breaks_off_removes_nobody() {
    let postgres = Postgres::start();
    postgres.run("CREATE TABLE subscriber (username text, domain text, password text)");
    postgres
        .run("INSERT INTO subscriber SELECT i, 'a.org', 'x' FROM generate_series(1, 2500) AS i");
    let dir = tempfile::tempdir().unwrap();
    let section = postgres.section("table = \"subscriber\"\nrefresh = \"1s\"\n");
    let node = Node::start(dir.path(), &section);
    node.until_count(2500);
    let reads = node.users.numbers().reads;
    // The last pages fail.
    postgres.run(
        "ALTER TABLE subscriber RENAME TO all_of_them; CREATE VIEW subscriber AS SELECT username, domain, \
         CASE WHEN username = '2400' THEN (1 / (length(username) - 4))::text ELSE password END AS password \
         FROM all_of_them",
    );
    node.until("the read succeeds", |node| node.users.numbers().why.contains("division by zero"));
    assert_eq!(node.store.users().len(), 2500);
    postgres.run("DROP VIEW subscriber; ALTER TABLE all_of_them RENAME TO subscriber");
    postgres.run("DELETE FROM subscriber WHERE username = '1'");
    node.until_count(2499);
    // It is counted once the users are removed.
    node.until("the read is not counted", |node| node.users.numbers().reads > reads);
    node.stop();
}

/// Otherwise its users would have hashes of a realm that no server here asks for.
#[test]
fn a_command_without_a_server_has_the_domain_of_the_store() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let file = dir.path().join("node.redb");
    OfflineStore::open_or_create(&file).unwrap().set_domain("renamed.example.org").unwrap();
    let config = dir.path().join("ringway.toml");
    let store = format!("store = \"redb:{}\"", file.display());
    std::fs::write(&config, format!("{store}\n{}", postgres.section(""))).unwrap();
    let sources = setup::Sources { config: Some(config), ..setup::Sources::default() };
    let users = UserManager::open(&sources, MissingStore::Create).unwrap();
    let user = users.set("101", Some("a password".to_owned()), true).unwrap();
    assert_eq!(user.realm, "renamed.example.org");
    assert_eq!(postgres.value("SELECT domain FROM ringway.users"), "renamed.example.org");
    assert_eq!(users.list().unwrap().len(), 1);
    // It says which users are meant, so it is not passed over.
    let _server = OfflineStore::open(&file).unwrap();
    let refused = UserManager::open(&sources, MissingStore::Create).err().unwrap();
    assert!(refused[0].ends_with("which has no control socket here"), "{refused:?}");
}

/// A scan of Redis may return a user twice.
#[test]
fn a_row_that_is_returned_twice_is_one_row() {
    let clock = Clock::new();
    let kind = StoreKind::Memory;
    let store = Store::open(&kind, clock.now(), Duration::ZERO, &mut |_| None, Others::None);
    let store = Arc::new(store.unwrap());
    let domains = Domains::new([("a.org", Vec::new())]);
    let shared = Arc::new(Shared::new("a database".to_owned(), None, domains, clock));
    let mut applier = Applier::new(store.clone(), shared.clone(), clock);
    let value = script::value([Some("0".repeat(32)), None, None], 1);
    let mut read = |repeats| {
        applier.begin();
        for _ in 0..2 {
            applier.page(vec![script::entry(b"101@a.org", value.as_bytes())], repeats);
        }
        applier.finish(&Complete { position: 1, noted: Vec::new() }, false);
        (store.users().len(), shared.numbers().unusable)
    };
    assert_eq!(read(true), (1, 0));
    assert_eq!(read(false), (1, 1));
}

/// Otherwise users would stay as they are for ever, and nobody would see why.
#[test]
fn a_thread_that_has_ended_is_seen_in_the_status() {
    let domains = Domains::new([("a.org", Vec::new())]);
    let shared = Arc::new(Shared::new("a database".to_owned(), None, domains, Clock::new()));
    shared.numbers().present = true;
    let ends = Ends(shared.clone());
    let thread = std::thread::spawn(move || {
        let _ends = ends;
        panic!("as a mistake would have it");
    });
    assert!(thread.join().is_err());
    let (users, requests) = SharedUsers::new(shared);
    drop(requests);
    let status = users.status();
    assert!(!status.present && status.failure.contains("has ended"), "{}", status.failure);
    let why = users.change(put(&names("u", 1), Expected::Any)).unwrap_err();
    assert!(why.contains("has ended: nothing was changed"), "{why}");
}
