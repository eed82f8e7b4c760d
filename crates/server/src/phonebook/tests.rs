//! The phonebook of a server without a mesh, on sockets of the loopback interface.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ringway_proxy::location::{BindingView, CommitTag, LocationStore};

use super::*;
use crate::config::StoreKind;
use crate::store::{Hashes, Others, UserStore};

struct Served {
    http: SocketAddr,
    ldap: SocketAddr,
    counts: Arc<PhonebookCounts>,
}

fn served() -> Served {
    let clock = Clock::new();
    let hour = Duration::from_secs(3_600);
    let store =
        Store::open(&StoreKind::Memory, clock.now(), hour, &mut |_| None, Others::None).unwrap();
    for (user, realm) in [("101", "a.org"), ("alice", "a.org"), ("bob", "other.org")] {
        store.set_user(user, realm, Hashes::new(user, realm, "p")).unwrap();
    }
    let tag = CommitTag { worker: 0, id: 1 };
    store.location().update(b"sip:101@a.org", clock.now(), tag, &mut |edit| {
        let binding = BindingView {
            contact: b"sip:101@192.0.2.9",
            params: b"",
            q: 1_000,
            expires: clock.now() + hour,
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
        };
        edit.put(&binding).unwrap();
        edit.commit();
    });
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [http, ldap] = [0, 1].map(|index: usize| listeners[index].local_addr().unwrap());
    let endpoints = listeners.map(|listener| {
        let address = listener.local_addr().unwrap();
        Some((BookEndpoint::At(address), Some(listener)))
    });
    let counts = Arc::<PhonebookCounts>::default();
    let sources = Sources { domain: "a.org".into(), store: Arc::new(store), mesh: None, clock };
    start(endpoints, sources, counts.clone()).unwrap();
    Served { http, ldap, counts }
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Sends a request and returns the whole answer.
fn ask(to: SocketAddr, request: &str) -> String {
    let mut stream = connect(to);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn get(to: SocketAddr, path: &str) -> String {
    ask(to, &format!("GET {path} HTTP/1.1\r\nHost: a.org\r\n\r\n"))
}

#[test]
fn users_of_the_main_domain_are_listed_and_nothing_else_is_served() {
    let Served { http, .. } = served();
    let answer = get(http, "/phonebook.json?all");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let entries: serde_json::Value = serde_json::from_str(body).unwrap();
    let users = entries["entries"].as_array().unwrap();
    let users: Vec<&str> = users.iter().filter_map(|one| one["user"].as_str()).collect();
    assert_eq!(users, ["101", "alice"]);
    let present = get(http, "/phonebook/yealink.xml");
    assert!(present.contains("<Telephone>101</Telephone>") && !present.contains("alice"));
    for path in ["/metrics", "/status", "/users", "/registrations", "/backup", "/", "/phonebook/x"]
    {
        assert!(get(http, path).starts_with("HTTP/1.1 404"), "{path}");
    }
    assert!(ask(http, "PUT /phonebook HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 405"));
}

/// A head without an end, or one that is too long, is not answered with a document, and others are served meanwhile.
#[test]
fn a_host_with_many_connections_leaves_room_for_nobody_but_itself() {
    let Served { http, ldap, counts } = served();
    let long = format!("GET /phonebook.json HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    assert!(!ask(http, &long).starts_with("HTTP/1.1 200"));
    let many = format!("GET /phonebook.json HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(1_000));
    assert!(!ask(http, &many).starts_with("HTTP/1.1 200"));
    let mut open: Vec<TcpStream> = (0..100).map(|_| connect(http)).collect();
    open.extend((0..100).map(|_| connect(ldap)));
    for stream in &mut open {
        let _ = stream.write_all(b"\x30");
    }
    let counted = || (counts.refused.load(Relaxed), counts.connections.load(Relaxed));
    while counted().0 < 2 * (100 - 16) || counted().1 < 16 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((counted(), counts.displaced.load(Relaxed)), ((2 * (100 - 16), 16), 0));
    drop(open);
    // Whose connections have ended is served again.
    while !get(http, "/phonebook.json").starts_with("HTTP/1.1 200") {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// RFC 4511 section 4.2 and 4.5: a bind and a search in one segment, then an unbind.
#[test]
fn a_search_by_ldap_finds_who_is_registered() {
    let Served { ldap, .. } = served();
    let mut stream = connect(ldap);
    let bind = b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00";
    let search = b"\x30\x25\x02\x01\x02\x63\x20\x04\x00\x0a\x01\x02\x0a\x01\x00\x02\x01\x00\x02\x01\x00\x01\x01\x00\x87\x0bobjectClass\x30\x00";
    let mut search = search.to_vec();
    // The length of the text decides those around it: objectClass has 11 octets.
    let inner = search.len() - 2;
    search[1] = inner as u8;
    search[6] = (inner - 5) as u8;
    stream.write_all(&[&bind[..], &search].concat()).unwrap();
    let mut answer: Vec<u8> = Vec::new();
    let mut buffer = [0; 4_096];
    // The message with the result of the search, number 2 and type 0x65, is the last.
    while !answer.windows(4).any(|four| four == b"\x02\x01\x02\x65") {
        match stream.read(&mut buffer).unwrap() {
            0 => panic!("ended after {answer:?}"),
            length => answer.extend(&buffer[..length]),
        }
    }
    let has = |text: &[u8]| answer.windows(text.len()).any(|part| part == text);
    assert!(has(b"uid=101,dc=a,dc=org") && !has(b"alice"));
    stream.write_all(b"\x30\x05\x02\x01\x03\x42\x00").unwrap();
    assert_eq!(stream.read(&mut buffer).unwrap(), 0, "an unbind ends the connection");
}
