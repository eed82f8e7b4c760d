//! Databases that have lost a part of what they had, or into which others have written.

use super::servers::{Postgres, Redis};
use super::{Changed, Expected, Node, names, put};
use crate::config::StoreKind;
use crate::store::{Hashes, Others, Store, UserStore};
use crate::users::shared::Change;
use ringway_net::Clock;
use ringway_users::Domains;
use std::path::Path;
use std::time::Duration;

const ALL: &str = "ringway:{users}:all";
const CHANGES: &str = "ringway:{users}:changes";
const NUMBER: &str = "ringway:{users}:number";

impl Node {
    fn on_redis(redis: &Redis, dir: &Path) -> Self {
        let cluster = format!("[cluster]\nfile = \"{}/node.redb\"\nreplicas = 0\n", dir.display());
        let section = format!("[users]\nsource = \"store\"\n{cluster}");
        let node = Node::start_on(&format!("store = \"{}\"", redis.uri()), &section);
        node.until_read();
        node
    }

    /// Has everything be read once more.
    fn read_again(&self) {
        let reads = self.users.numbers().reads;
        self.users.set_domains(Domains::new([("a.org", Vec::new())]));
        self.until("everything is not read again", |node| node.users.numbers().reads > reads);
    }

    fn put_new(&self, names: &[String]) {
        assert!(matches!(self.put(names, Expected::New), Changed::Done(_)));
    }

    fn withheld(&self) -> u64 {
        self.users.numbers().withheld
    }
}

#[test]
fn redis_that_has_lost_its_users_alone_removes_nobody() {
    let (redis, dir) = (Redis::start(), tempfile::tempdir().unwrap());
    let node = Node::on_redis(&redis, dir.path());
    node.put_new(&names("u", 30));
    redis.cli(&["DEL", ALL]);
    node.read_again();
    assert_eq!((node.store.users().len(), node.withheld()), (30, 30));
    node.stop();
}

/// A change of a user that is not there is no removal either, unless that is noted.
#[test]
fn redis_that_has_lost_its_users_reports_no_removals() {
    let (redis, dir) = (Redis::start(), tempfile::tempdir().unwrap());
    let node = Node::on_redis(&redis, dir.path());
    node.put_new(&names("u", 30));
    redis.cli(&["DEL", ALL]);
    redis.cli(&["INCR", NUMBER]);
    redis.cli(&["ZADD", CHANGES, "31", "u7@a.org"]);
    node.put_new(&["new".into()]);
    node.until_count(31);
    node.stop();
}

#[test]
fn removals_that_redis_has_noted_are_believed() {
    let (redis, dirs) = (Redis::start(), [0, 1].map(|_| tempfile::tempdir().unwrap()));
    let [first, second] = [0, 1].map(|index| Node::on_redis(&redis, dirs[index].path()));
    let many = names("u", 20);
    first.put_new(&many);
    second.until_count(20);
    second.stop();
    many[..15].iter().for_each(|name| assert!(matches!(first.remove(name), Changed::Done(_))));
    // One of them is there again.
    first.put_new(&many[..1]);
    let second = Node::on_redis(&redis, dirs[1].path());
    second.until_count(6);
    assert_eq!(second.withheld(), 0);
    first.stop();
    second.stop();
}

#[test]
fn redis_that_has_lost_everything_is_noticed_on_a_connection_that_stays() {
    let (redis, dirs) = (Redis::start(), [0, 1].map(|_| tempfile::tempdir().unwrap()));
    let [first, second] = [0, 1].map(|index| Node::on_redis(&redis, dirs[index].path()));
    first.put_new(&names("u", 30));
    // Otherwise it has lost nothing.
    second.until_count(30);
    redis.cli(&["FLUSHALL"]);
    first.until("the loss is not noticed", |node| node.withheld() == 30);
    first.put_new(&["new".into()]);
    second.until_count(31);
    first.stop();
    second.stop();
}

#[test]
fn numbers_that_others_write_hide_no_change_in_redis() {
    let (redis, dirs) = (Redis::start(), [0, 1].map(|_| tempfile::tempdir().unwrap()));
    let [first, second] = [0, 1].map(|index| Node::on_redis(&redis, dirs[index].path()));
    first.put_new(&names("u", 3));
    second.until_count(3);
    redis.cli(&["ZADD", CHANGES, "+inf", "x"]);
    redis.cli(&["PUBLISH", "ringway:users", ""]);
    // So that it is read before the next change.
    second.read_again();
    first.put_new(&names("v", 3));
    second.until_count(6);
    // More than a page between two numbers.
    let fractions = "for i = 1, 2000 do redis.call('ZADD', KEYS[1], 6 + i / 4000, 'x' .. i) end";
    redis.cli(&["EVAL", fractions, "1", CHANGES]);
    first.put_new(&names("w", 3));
    second.until_count(9);
    first.stop();
    second.stop();
}

#[test]
fn postgresql_that_was_restored_is_noticed_on_a_connection_that_stays() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let node = Node::start(dir.path(), &postgres.section(""));
    node.until_read();
    node.put_new(&names("u", 30));
    postgres.run(
        "ALTER TABLE ringway.users DISABLE TRIGGER USER; DELETE FROM ringway.users WHERE change > 5; \
         ALTER TABLE ringway.users ENABLE TRIGGER USER",
    );
    node.until("the loss is not noticed", |node| node.withheld() == 25);
    node.stop();
}

#[test]
fn a_time_without_end_concerns_its_user_only() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let node = Node::start(dir.path(), &postgres.section(""));
    node.until_read();
    node.put_new(&names("u", 1));
    let endless = "UPDATE ringway.users SET password_set = 'infinity'";
    let is_taken = postgres.psql(endless).wait().unwrap().success();
    // The database of a program without the check.
    postgres.run("ALTER TABLE ringway.users DROP CONSTRAINT IF EXISTS users_password_set_check");
    postgres.run(endless);
    node.put_new(&names("v", 1));
    node.until_count(2);
    node.read_again();
    assert_eq!(node.users.numbers().outages, 0, "{:?}", node.users.numbers());
    assert!(!is_taken, "a time without end is taken");
    node.stop();
}

/// Functions of another role, which may create some, are not called with the rights of Ringway's.
#[test]
fn functions_of_another_role_are_not_called() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let function = |name: &str, arguments: &str, result: &str| {
        format!(
            "CREATE FUNCTION public.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'called: {name}'; END $$; "
        )
    };
    let mut create = "CREATE ROLE mallory; GRANT CREATE, USAGE ON SCHEMA public TO mallory; \
                      SET ROLE mallory; "
        .to_owned();
    for (name, arguments, result) in [
        ("convert_to", "text, text", "bytea"),
        ("to_timestamp", "bigint", "timestamptz"),
        ("pg_advisory_xact_lock", "text", "void"),
        ("is_same", "oid, regclass", "boolean"),
        ("has_column_privilege", "oid, smallint, name", "boolean"),
    ] {
        create.push_str(&function(name, arguments, result));
    }
    create.push_str(
        "CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.is_same)",
    );
    postgres.run(&create);
    let node = Node::start(dir.path(), &postgres.section(""));
    node.until_read();
    node.put_new(&names("u", 1));
    assert!(matches!(node.put(&names("u", 1), Expected::Existing), Changed::Done(_)));
    assert!(matches!(node.remove("u0"), Changed::Done(_)));
    node.stop();
    postgres.run("CREATE TABLE subscriber (username text, domain text, password text)");
    postgres.run("INSERT INTO subscriber VALUES ('101', 'a.org', 'secret')");
    for table in ["subscriber", "public.subscriber"] {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(dir.path(), &postgres.section(&format!("table = \"{table}\"\n")));
        node.until_count(1);
        node.stop();
    }
}

/// In a database without an encoding, a name may be of any octets.
#[test]
fn a_column_whose_name_is_no_text_concerns_nobody() {
    let (postgres, dir) = (Postgres::start_encoded("SQL_ASCII"), tempfile::tempdir().unwrap());
    postgres.run("CREATE TABLE subscriber (username text, domain text, \"Password\" text)");
    postgres.run("INSERT INTO subscriber VALUES ('101', 'a.org', 'secret')");
    let add = "EXECUTE 'ALTER TABLE subscriber ADD \"' || E'\\xff' || '\" text'";
    postgres.run(&format!("DO $$ BEGIN {add}; END $$"));
    let node = Node::start(dir.path(), &postgres.section("table = \"subscriber\"\n"));
    node.until_count(1);
    node.stop();
}

#[test]
fn a_column_of_another_type_ends_a_read_and_not_the_thread() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let other = |kind: &str| {
        postgres.run(&format!("ALTER TABLE ringway.schema_version ALTER version TYPE {kind}"));
    };
    Node::start(dir.path(), &postgres.section("")).until_read();
    other("bigint");
    let node = Node::start(tempfile::tempdir().unwrap().path(), &postgres.section(""));
    node.until("no failure is shown", |node| !node.users.numbers().why.is_empty());
    let why = node.users.numbers().why;
    assert!(why.contains("error deserializing column 0"), "{why}");
    other("integer");
    node.until_read();
    node.stop();
}

/// The way from own users to a database: those that are not in it yet stay, however few they become.
#[test]
fn users_of_before_stay_until_the_database_has_them() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let kind = StoreKind::Redb(dir.path().join("node.redb"));
    let now = Clock::new().now();
    let own = Store::open(&kind, now, Duration::ZERO, &mut |_| None, Others::None).unwrap();
    let many = names("u", 9);
    for name in &many {
        own.set_user(name, "a.org", Hashes::new(name, "a.org", "own")).unwrap();
    }
    own.flush();
    drop(own);
    let node = Node::start(dir.path(), &postgres.section(""));
    node.until_read();
    assert_eq!(node.withheld(), 9);
    for (done, name) in (1..).zip(&many[..6]) {
        node.put_new(std::slice::from_ref(name));
        node.read_again();
        assert_eq!((node.store.users().len(), node.withheld()), (9, 9 - done));
    }
    assert!(matches!(node.users.change(Change::Prune), Ok(Changed::Done(_))));
    assert_eq!((node.store.users().len(), node.withheld()), (6, 0));
    // Later, a few may be gone without a note.
    postgres.run(
        "ALTER TABLE ringway.users DISABLE TRIGGER USER; DELETE FROM ringway.users WHERE username = 'u0'; \
         ALTER TABLE ringway.users ENABLE TRIGGER USER",
    );
    node.read_again();
    assert_eq!((node.store.users().len(), node.withheld()), (5, 0));
    node.stop();
}

/// What a command prints when the database has refused a change, and when it is not known whether it has made it.
#[test]
fn a_failed_change_in_postgresql_says_whether_it_was_made() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let node = Node::start(dir.path(), &postgres.section(""));
    node.until_read();
    let fails = |body: &str, trigger: &str, then: &str| {
        postgres.run(&format!(
            "CREATE OR REPLACE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; \
             RETURN NULL; END $$; CREATE {trigger} EXECUTE FUNCTION public.fail()"
        ));
        let why = node.users.change(put(&names("u", 1), Expected::New)).unwrap_err();
        assert!(why.ends_with(then), "{why}");
        postgres.run("DROP TRIGGER fail ON ringway.users");
        assert_eq!(postgres.value("SELECT count(*) FROM ringway.users"), "0");
    };
    let before = "TRIGGER fail BEFORE INSERT ON ringway.users FOR EACH STATEMENT";
    fails("RAISE 'not today'", before, "not today (SQLSTATE P0001): nothing was changed");
    let end = "PERFORM pg_terminate_backend(pg_backend_pid())";
    fails(end, before, ": nothing was changed");
    let commit = "CONSTRAINT TRIGGER fail AFTER INSERT ON ringway.users DEFERRABLE INITIALLY DEFERRED FOR EACH ROW";
    fails("RAISE 'not today'", commit, "not today (SQLSTATE P0001): nothing was changed");
    fails(end, commit, ": the change may have been made");
    node.stop();
}

#[test]
fn a_failed_change_in_redis_says_whether_it_was_made() {
    let (redis, dir) = (Redis::start(), tempfile::tempdir().unwrap());
    let node = Node::on_redis(&redis, dir.path());
    redis.cli(&["SET", NUMBER, "x"]);
    let why = node.users.change(put(&names("u", 2), Expected::New)).unwrap_err();
    assert!(why.ends_with(": nothing was changed"), "{why}");
    redis.cli(&["DEL", NUMBER]);
    // It is written last.
    redis.cli(&["SET", CHANGES, "x"]);
    let why = node.users.change(put(&names("u", 2), Expected::New)).unwrap_err();
    assert!(why.ends_with(": nothing was changed"), "{why}");
    redis.cli(&["DEL", CHANGES]);
    // The second number would be too large.
    redis.cli(&["SET", NUMBER, &(i64::MAX - 1).to_string()]);
    let why = node.users.change(put(&names("u", 2), Expected::New)).unwrap_err();
    assert!(why.ends_with(": nothing was changed"), "{why}");
    assert_eq!(redis.cli(&["HLEN", ALL]), "0");
    redis.cli(&["DEL", NUMBER]);
    node.put_new(&names("u", 2));
    node.until_count(2);
    node.stop();
}

/// An import of many users has more than the 5 s of one.
#[test]
fn a_long_change_in_redis_has_its_time() {
    let (redis, dir) = (Redis::start(), tempfile::tempdir().unwrap());
    let node = Node::on_redis(&redis, dir.path());
    let many = put(&names("u", 8000), Expected::New);
    redis.cli(&["CLIENT", "PAUSE", "5500", "WRITE"]);
    assert!(matches!(node.users.change(many), Ok(Changed::Done(_))));
    node.until_count(8000);
    node.stop();
}
