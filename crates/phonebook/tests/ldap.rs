//! Connections of LDAP, as packet tables: octets in, messages out.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use lber::common::TagClass;
use lber::structure::{PL, StructureTag};
use proptest::prelude::*;
use ringway_phonebook::ldap::connection::IDLE;
use ringway_phonebook::ldap::filter::{Filter, Substrings};
use ringway_phonebook::ldap::{Connection, Directory, MAX_OUTPUT, MAX_QUEUED, Progress, ber};
use ringway_phonebook::{Book, Entry};
use ringway_sansio::Time;
use ringway_sansio::time::Duration;

const NOW: Time = Time::from_secs(1_000);

fn primitive(class: TagClass, id: u64, octets: &[u8]) -> StructureTag {
    StructureTag { class, id, payload: PL::P(octets.to_vec()) }
}

fn constructed(class: TagClass, id: u64, parts: Vec<StructureTag>) -> StructureTag {
    StructureTag { class, id, payload: PL::C(parts) }
}

fn text(text: &str) -> StructureTag {
    primitive(TagClass::Universal, 4, text.as_bytes())
}

fn number(id: u64, value: u8) -> StructureTag {
    primitive(TagClass::Universal, id, &[value])
}

fn sequence(parts: Vec<StructureTag>) -> StructureTag {
    constructed(TagClass::Universal, 16, parts)
}

fn message(id: u8, operation: StructureTag) -> Vec<u8> {
    let mut out = Vec::new();
    ber::write(&mut out, sequence(vec![number(2, id), operation]));
    out
}

fn bind(id: u8, version: u8, password: &str) -> Vec<u8> {
    let simple = primitive(TagClass::Context, 0, password.as_bytes());
    message(id, constructed(TagClass::Application, 0, vec![number(2, version), text(""), simple]))
}

/// A search: its base, scope, size limit, filter and attributes.
fn search(
    id: u8,
    base: &str,
    scope: u8,
    size: u8,
    filter: &Filter,
    attributes: &[&str],
) -> Vec<u8> {
    let attributes = attributes.iter().map(|name| text(name)).collect();
    let parts = vec![
        text(base),
        number(10, scope),
        number(10, 0),
        number(2, size),
        number(2, 0),
        primitive(TagClass::Universal, 1, &[0]),
        filter.to_element(),
        sequence(attributes),
    ];
    message(id, constructed(TagClass::Application, 3, parts))
}

fn starts(attribute: &str, value: &str) -> Filter {
    let parts = Substrings { initial: Some(value.into()), ..Substrings::default() };
    Filter::Substrings(attribute.into(), parts)
}

fn all() -> Filter {
    Filter::Present("objectClass".into())
}

fn book(count: usize) -> Arc<Book> {
    let entry = |n: usize| Entry {
        user: format!("user{n:04}"),
        number: Some((20_000 + n).to_string()),
        name: Some(format!("Name{n:04} Family")),
        domain: "mesh".into(),
        present: true,
    };
    let absent = Entry { present: false, ..entry(9_999) };
    Arc::new(Book::new((0..count).map(entry).chain([absent])))
}

/// A client and what it has received.
struct Client {
    connection: Connection,
    directory: Directory,
    book: Arc<Book>,
    now: Time,
}

impl Client {
    fn new(count: usize) -> Client {
        let connection = Connection::new(NOW);
        Client { connection, directory: Directory::new("mesh"), book: book(count), now: NOW }
    }

    fn work(&mut self) -> Progress {
        self.connection.work(self.now, &self.directory, &self.book)
    }

    /// Sends octets and returns the answers, each in a line: number, tag, and its texts and codes.
    fn ask(&mut self, octets: &[u8]) -> Vec<String> {
        let (mut rest, mut received) = (octets, Vec::new());
        loop {
            let taken = self.connection.receive(self.now, rest);
            rest = &rest[taken..];
            let progress = self.work();
            received.extend_from_slice(self.connection.output());
            let length = self.connection.output().len();
            self.connection.sent(self.now, length);
            let is_done = progress == Progress::Waiting && length == 0 && rest.is_empty();
            if progress == Progress::Closing || is_done {
                break;
            }
        }
        read(&received)
    }
}

fn read(mut octets: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    while !octets.is_empty() {
        let length = ber::frame(octets).unwrap().unwrap();
        let mut parts = ber::parse(&octets[..length]).unwrap().expect_constructed().unwrap();
        octets = &octets[length..];
        let operation = parts.pop().unwrap();
        let id = parts.pop().unwrap().expect_primitive().unwrap();
        let tag = operation.id;
        lines.push(format!("{} {tag}:{}", id[0], content(operation)));
    }
    lines
}

fn content(element: StructureTag) -> String {
    match element.payload {
        PL::C(parts) => parts.into_iter().map(content).collect(),
        PL::P(octets) if matches!(element.id, 2 | 10) && element.class == TagClass::Universal => {
            format!(" {octets:?}")
        }
        PL::P(octets) => format!(" {}", String::from_utf8(octets).unwrap()),
    }
}

#[test]
fn a_phone_binds_searches_by_name_and_unbinds() {
    let mut client = Client::new(30);
    assert_eq!(client.ask(&bind(1, 3, "")), ["1 1: [0]  "]);
    let filter = Filter::Or(vec![starts("cn", "name001"), starts("sn", "name001")]);
    let answers = client.ask(&search(2, "dc=mesh", 2, 3, &filter, &["cn", "telephoneNumber"]));
    assert_eq!(
        answers,
        [
            "2 4: uid=user0010,dc=mesh cn Name0010 Family telephoneNumber 20010",
            "2 4: uid=user0011,dc=mesh cn Name0011 Family telephoneNumber 20011",
            "2 4: uid=user0012,dc=mesh cn Name0012 Family telephoneNumber 20012",
            "2 5: [4]  ",
        ]
    );
    let filter = starts("telephoneNumber", "2 002");
    assert_eq!(client.ask(&search(3, "", 2, 0, &filter, &["1.1"])).len(), 11);
    client.ask(&message(4, primitive(TagClass::Application, 2, &[])));
    assert_eq!(client.work(), Progress::Closing);
}

#[test]
fn any_simple_bind_is_anonymous_and_sasl_is_refused() {
    let mut client = Client::new(1);
    assert_eq!(client.ask(&bind(1, 3, "secret")), ["1 1: [0]  "]);
    assert_eq!(client.ask(&bind(2, 2, "")), ["2 1: [0]  "]);
    assert_eq!(client.ask(&bind(3, 1, "")), ["3 1: [2]  expected version 2 or 3"]);
    let sasl = constructed(TagClass::Context, 3, vec![text("PLAIN")]);
    let sasl = constructed(TagClass::Application, 0, vec![number(2, 3), text(""), sasl]);
    assert_eq!(client.ask(&message(4, sasl)), ["4 1: [7]  SASL is not supported"]);
}

#[test]
fn the_root_and_the_schema_describe_the_tree() {
    let mut client = Client::new(1);
    let root =
        client.ask(&search(1, "", 0, 0, &all(), &["namingContexts", "supportedLDAPVersion"]));
    assert_eq!(root, ["1 4:  namingContexts dc=mesh supportedLDAPVersion 2 3", "1 5: [0]  "]);
    assert_eq!(client.ask(&search(2, "", 0, 0, &all(), &[]))[0], "2 4:  objectClass top");
    let schema = client.ask(&search(3, "CN=subschema", 0, 0, &all(), &["attributeTypes"]));
    assert!(schema[0].contains("( 2.5.4.20 NAME 'telephoneNumber' "), "{schema:?}");
    let base = client.ask(&search(4, "DC=Mesh", 0, 0, &all(), &["*", "+"]));
    assert_eq!(
        base[0],
        "4 4: dc=mesh objectClass top dcObject organization dc mesh o mesh \
                         subschemaSubentry cn=Subschema"
    );
}

#[test]
fn scopes_and_bases_are_told_apart() {
    let mut client = Client::new(3);
    let mut count = |base: &str, scope| {
        let answers = client.ask(&search(1, base, scope, 0, &all(), &["1.1"]));
        (answers.len() - 1, answers.last().unwrap().clone())
    };
    let (done, none) = ("1 5: [0]  ".to_string(), "1 5: [32] dc=mesh ".to_string());
    assert_eq!(count("dc=mesh", 0), (1, done.clone()));
    assert_eq!(count("dc=mesh", 1), (3, done.clone()));
    assert_eq!(count("dc=mesh", 2), (4, done.clone()));
    assert_eq!(count("", 1), (0, done.clone()));
    assert_eq!(count("UID=User0001, DC=mesh", 0), (1, done.clone()));
    assert_eq!(count("uid=user0001,dc=mesh", 2), (1, done.clone()));
    assert_eq!(count("uid=user0001,dc=mesh", 1), (0, done));
    assert_eq!(count("uid=user9999,dc=mesh", 0), (0, none.clone()), "who is absent is not listed");
    assert_eq!(count("ou=people,dc=mesh", 2), (0, none));
    assert_eq!(count("dc=other", 2), (0, "1 5: [32]  ".into()));
    assert_eq!(count("mesh", 2), (0, "1 5: [34]  ".into()));
}

#[test]
fn what_would_change_something_is_refused() {
    let mut client = Client::new(1);
    for (tag, answer) in [(6, 7), (8, 9), (12, 13), (14, 15)] {
        let refused = format!("1 {answer}: [53]  the phonebook can only be searched");
        assert_eq!(
            client.ask(&message(1, constructed(TagClass::Application, tag, vec![]))),
            [refused]
        );
    }
    let delete = primitive(TagClass::Application, 10, b"uid=user0000,dc=mesh");
    assert_eq!(client.ask(&message(1, delete)), ["1 11: [53]  the phonebook can only be searched"]);
    let start_tls = primitive(TagClass::Context, 0, b"1.3.6.1.4.1.1466.20037");
    let extended = message(2, constructed(TagClass::Application, 23, vec![start_tls]));
    assert_eq!(client.ask(&extended), ["2 24: [2]  no extended operation is known"]);
}

#[test]
fn a_critical_control_is_refused_and_another_is_ignored() {
    let mut client = Client::new(1);
    let mut with = |critical: &[u8]| {
        let mut parts = vec![text("1.2.840.113556.1.4.319")];
        parts.extend((!critical.is_empty()).then(|| primitive(TagClass::Universal, 1, critical)));
        parts.push(text("value"));
        let controls = constructed(TagClass::Context, 0, vec![sequence(parts)]);
        let simple = primitive(TagClass::Context, 0, b"");
        let bind = constructed(TagClass::Application, 0, vec![number(2, 3), text(""), simple]);
        let mut out = Vec::new();
        ber::write(&mut out, sequence(vec![number(2, 1), bind, controls]));
        client.ask(&out)
    };
    assert_eq!(with(&[0xff]), ["1 1: [12]  no control is known"]);
    assert_eq!(with(&[0]), ["1 1: [0]  "]);
    assert_eq!(with(&[]), ["1 1: [0]  "]);
}

#[test]
fn a_search_is_bounded_in_entries_octets_and_time() {
    let mut client = Client::new(5_000);
    let answers = client.ask(&search(1, "dc=mesh", 2, 0, &all(), &[]));
    assert_eq!((answers.len(), answers.last().unwrap().as_str()), (1_001, "1 5: [4]  "));
    // Nobody reads: no more is made.
    client.connection.receive(NOW, &search(2, "dc=mesh", 2, 0, &all(), &[]));
    let mut calls = 0;
    while client.work() == Progress::Working {
        calls += 1;
        assert!(calls < 100);
    }
    let waiting = client.connection.output().len();
    assert!((MAX_OUTPUT..MAX_OUTPUT + 2_000).contains(&waiting), "{waiting}");
    // A filter that nothing meets takes many turns, and so a time limit can end it.
    let mut client = Client::new(5_000);
    let mut late = search(3, "dc=mesh", 2, 0, &starts("cn", "x"), &[]);
    let limit = late.windows(6).position(|six| six == [2, 1, 0, 2, 1, 0]).unwrap() + 5;
    late[limit] = 1;
    client.connection.receive(NOW, &late);
    assert_eq!(client.work(), Progress::Working);
    client.now = NOW + Duration::from_secs(1);
    assert_eq!(client.ask(&[]), ["3 5: [3]  "]);
}

#[test]
fn an_abandoned_search_has_no_more_answers() {
    let mut client = Client::new(5_000);
    let nothing = starts("cn", "x");
    let abandon = |id: u8| message(9, primitive(TagClass::Application, 16, &[id]));
    client.connection.receive(NOW, &search(1, "dc=mesh", 2, 0, &nothing, &[]));
    assert_eq!(client.work(), Progress::Working);
    // One that waits is abandoned too; one that is not known does not matter.
    let waiting = search(2, "dc=mesh", 2, 0, &nothing, &[]);
    let last = bind(3, 3, "");
    let octets = [waiting, abandon(1), abandon(2), abandon(77), last].concat();
    assert_eq!(client.ask(&octets), ["3 1: [0]  "]);
}

#[test]
fn requests_wait_in_a_bounded_queue() {
    let mut client = Client::new(1);
    let many = bind(1, 3, "").repeat(MAX_QUEUED * 40);
    let taken = client.connection.receive(NOW, &many);
    assert!(taken < many.len() && client.connection.room() == 0);
    assert_eq!(client.ask(&many[taken..]).len(), MAX_QUEUED * 40);
}

#[test]
fn octets_that_are_no_ldap_end_the_connection_with_a_notice() {
    let notice = "0 24: [2]  expected a SEQUENCE, got octet 0x16 at octet 0 1.3.6.1.4.1.1466.20036";
    let mut client = Client::new(1);
    assert_eq!(client.ask(&[0x16, 3, 1, 0, 0]), [notice]);
    assert_eq!((client.work(), client.connection.room()), (Progress::Closing, 0));
    for bad in [
        message(0, primitive(TagClass::Application, 2, &[])),
        message(1, primitive(TagClass::Application, 30, &[])),
        message(1, primitive(TagClass::Context, 2, &[])),
        message(1, constructed(TagClass::Application, 3, vec![])),
        vec![0x30, 3, 2, 1, 1],
        vec![0x30, 0x84, 0x7f, 0xff, 0xff, 0xff],
    ] {
        let mut client = Client::new(1);
        let answers = client.ask(&bad);
        assert_eq!(answers.len(), 1);
        assert!(answers[0].starts_with("0 24: [2]"), "{answers:?}");
        assert_eq!(client.work(), Progress::Closing);
    }
}

#[test]
fn an_idle_connection_ends() {
    let mut client = Client::new(1);
    client.now += Duration::from_secs(100);
    client.ask(&bind(1, 3, ""));
    assert_eq!(client.connection.poll_timeout(), Some(client.now + IDLE));
    client.now += IDLE;
    assert_eq!(client.work(), Progress::Closing);
}

proptest! {
    /// A stream has the same answers however it is cut.
    #[test]
    fn answers_do_not_depend_on_how_the_stream_is_cut(size in 1..400_usize, broken in 0..400_usize, octet: u8) {
        let filter = Filter::Not(Box::new(starts("cn", "name000")));
        let mut stream = [
            bind(1, 3, "x"),
            search(2, "dc=mesh", 1, 5, &filter, &["*"]),
            search(3, "", 0, 0, &all(), &["+"]),
        ]
        .concat();
        if let Some(at) = stream.get_mut(broken) {
            *at = octet;
        }
        let whole = Client::new(20).ask(&stream);
        let mut client = Client::new(20);
        let parts: Vec<String> = stream.chunks(size).flat_map(|part| client.ask(part)).collect();
        prop_assert_eq!(parts, whole);
    }

    /// Whatever comes, what is sent are whole messages.
    #[test]
    fn hostile_octets_have_bounded_answers(stream in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut client = Client::new(5);
        prop_assert!(client.ask(&[bind(1, 3, ""), stream].concat()).len() < 300);
    }
}
