//! Tests of the requests, of who may send them, and of the responses.

use super::*;
use crate::calls::{Calls, Cdr};
use crate::config::StoreKind;
use crate::observe::control::{Control, ControlDirectory, ControlSocket, directory_for};
use crate::observe::{Board, Facts, Snapshot};
use crate::store::{Hashes, Others, Store, UserStore};
use crate::users::shared::{MAX_CHANGES, PRUNE_COMMAND_LIMIT, SharedUsers};
use ringway_proxy::location::{CommitTag, LocationStore};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;

struct Server {
    monitor: Arc<Monitor>,
    /// The control socket.
    control: Control,
    /// Address of the pages.
    pages: SocketAddr,
    _socket: (ControlSocket, tempfile::TempDir),
}

impl Server {
    fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.control.request(method, path, body).unwrap().unwrap()
    }
}

/// Sends a request over TCP; returns the status and everything after the head.
fn request_page(
    server: SocketAddr,
    method: &str,
    path: &str,
    host: &str,
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\n{{}}")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((head[9..12].parse().unwrap(), body.to_owned()))
}

/// Starts a management server without workers; the board is filled when it asks.
fn start(kind: &StoreKind) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr: SocketAddr = listener.local_addr().unwrap();
    let board = Arc::new(Board::new(2));
    let store = Arc::new(
        Store::open(
            kind,
            Time::from_secs(1),
            Duration::from_secs(3600),
            &mut |_| None,
            Others::None,
        )
        .unwrap(),
    );
    let filled = board.clone();
    let request = move || {
        for worker in 0..2 {
            let mut s = Snapshot::default();
            s.stats.requests = 5 + worker as u64;
            s.stats.sessions = 4;
            s.stats.sessions_established = 2;
            s.stats.sessions_redirected = 1;
            s.stats.sessions_refused = 1;
            s.stats.session_request_delay.add(Duration::from_millis(3));
            s.tables.contexts = 3;
            filled.publish(worker, s);
        }
    };
    let net = |worker: usize, visit: &mut dyn FnMut(&'static str, &'static str, u64)| {
        visit("udp_received", "Datagrams received.", 10 * (worker as u64 + 1));
        visit("connections", "Connections open now, in either direction.", 1);
    };
    let facts = Facts {
        domains: vec![("a.org".into(), vec!["127.0.0.1".into()])],
        listen: vec!["udp://127.0.0.1:5060".into()],
        store: kind.to_string(),
        auth: "digest",
        algorithms: vec!["MD5"],
    };
    let monitor = Arc::new(Monitor::new(
        board,
        Box::new(request),
        Box::new(net),
        Box::new(|| (1, 2, 3)),
        store,
        Calls::start(Cdr::start(None).unwrap(), || Time::from_secs(2)).unwrap(),
        Box::new(|| 7),
        facts,
    ));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ringway.redb");
    let directory = ControlDirectory::open(&directory_for(&file)).unwrap();
    let (control, socket) = directory.listen().unwrap();
    let o = monitor.clone();
    std::thread::spawn(move || {
        serve(Some(listener), Some(control), o, Box::new(|| Time::from_secs(2)))
    });
    let control = Control::of(&StoreKind::Redb(file)).unwrap();
    Server { monitor, control, pages: addr, _socket: (socket, dir) }
}

fn binding() -> ringway_proxy::location::BindingView<'static> {
    ringway_proxy::location::BindingView {
        contact: b"sip:101@192.0.2.9",
        params: b"",
        q: 1000,
        expires: Time::from_secs(3600),
        path: b"",
        instance: b"",
        reg_id: 0,
        flow: None,
        call_id: b"c",
        cseq: 1,
        first_cseq: 0,
        outbound: false,
        epoch: 0,
        nat: false,
    }
}

#[test]
fn users_are_added_changed_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let s = start(&StoreKind::Redb(dir.path().join("x.redb")));
    let put = |user: &str, realm: &str, new: bool| {
        let body = serde_json::json!({"user": user, "realm": realm, "password": "p", "new": new});
        s.request("PUT", "/users", &body.to_string())
    };
    assert_eq!(put("101", "a.org", true), (200, r#"{"new":true}"#.into()));
    assert_eq!(put("101", "a.org", true).0, 409);
    assert_eq!(put("101", "a.org", false), (200, r#"{"new":false}"#.into()));
    assert_eq!(put("9", "a.org", false).0, 404);
    let (status, what) = put("101", "b.org", true);
    assert_eq!((status, &what[..]), (400, r#"{"error":"\"b.org\" is not a local domain"}"#));
    assert_eq!(put("a b", "a.org", true).0, 400);
    let list = s.request("GET", "/users", "");
    assert_eq!(list, (200, r#"[{"user":"101","realm":"a.org"}]"#.into()));
    let name = r#"{"user":"101","realm":"a.org"}"#;
    assert_eq!(s.request("DELETE", "/users", name).0, 200);
    assert_eq!(s.request("DELETE", "/users", name).0, 404);
}

/// Otherwise a database that does not answer would hold up all that is managed here.
#[test]
fn changes_that_wait_for_a_database_are_bounded() {
    let s = start(&StoreKind::Memory);
    let (users, database) = SharedUsers::without_answers();
    s.monitor.store.set_shared(users.clone());
    let put = |name: usize| {
        let body = serde_json::json!({
            "user": name.to_string(), "realm": "a.org", "password": "p", "new": true
        });
        s.request("PUT", "/users", &body.to_string())
    };
    let until = |waiting: (usize, usize)| {
        while users.waiting() != waiting {
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    std::thread::scope(|scope| {
        let changes: Vec<_> = (0..MAX_CHANGES)
            .map(|i| {
                let put = &put;
                scope.spawn(move || put(i))
            })
            .collect();
        until((MAX_CHANGES, 0));
        let hashed = r#"{"replace":true,"users":[]}"#;
        let refused = [
            put(99),
            s.request("DELETE", "/users", r#"{"user":"101","realm":"a.org"}"#),
            s.request("POST", "/users", hashed),
        ];
        for (status, why) in refused {
            let text = "16 changes wait for it already: nothing was changed";
            assert!(status == 503 && why.contains(text), "{status} {why}");
        }
        let prune = scope.spawn(|| s.request("POST", "/users/prune", ""));
        until((MAX_CHANGES, 1));
        let (status, why) = s.request("POST", "/users/prune", "");
        assert!(status == 503 && why.contains("another command removes"), "{status} {why}");
        assert_eq!(s.request("GET", "/users", "").0, 200);
        drop(database);
        for waited in changes.into_iter().chain([prune]) {
            let (status, why) = waited.join().unwrap();
            assert!(status == 503 && why.contains("may have been made"), "{status} {why}");
        }
    });
    assert_eq!(users.waiting(), (0, 0));
}

#[test]
fn a_request_is_answered_before_its_command_ends() {
    assert!(PRUNE_LIMIT + Duration::from_secs(1) < limit(PRUNE));
    assert!(limit(PRUNE) < PRUNE_COMMAND_LIMIT);
    assert_eq!(limit("/users"), REQUEST_TIMEOUT);
}

/// RFC 7616 section 3.4.2: a hash belongs to one name, realm and algorithm.
#[test]
fn hashed_users_are_added_all_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let s = start(&StoreKind::Redb(dir.path().join("x.redb")));
    let user = |user: &str, realm: &str, hash: (&str, usize)| {
        let hashes = serde_json::json!({ hash.0: "ab".repeat(hash.1) });
        serde_json::json!({"user": user, "realm": realm, "hashes": hashes})
    };
    let post = |replace: bool, users: &[serde_json::Value]| {
        let body = serde_json::json!({"replace": replace, "users": users});
        s.request("POST", "/users", &body.to_string())
    };
    let two = [user("101", "a.org", ("MD5", 16)), user("102", "a.org", ("SHA-256", 32))];
    assert_eq!(post(false, &two), (200, r#"{"unstated":0}"#.into()));
    let both = [user("102", "a.org", ("MD5", 16)), user("103", "a.org", ("MD5", 16))];
    let (status, what) = post(false, &both);
    assert_eq!((status, &what[..]), (409, r#"{"error":"user 102@a.org exists already"}"#));
    for wrong in [
        user("a b", "a.org", ("MD5", 16)),
        user("104", "b.org", ("MD5", 16)),
        user("104", "a.org", ("MD5", 15)),
        user("104", "a.org", ("SHA1", 20)),
        serde_json::json!({"user": "104", "realm": "a.org", "hashes": {}}),
        serde_json::json!({"user": "104"}),
    ] {
        let (status, what) = post(true, &[user("105", "a.org", ("MD5", 16)), wrong]);
        assert_eq!(status, 400, "{what}");
        assert!(!what.contains("abab"), "{what}");
    }
    let list = s.request("GET", "/users", "").1;
    assert!(list.contains("101") && list.contains("102"), "{list}");
    assert!(!list.contains("103") && !list.contains("105"), "{list}");
    assert_eq!(post(true, &both).0, 200);
    assert_eq!(s.monitor.store.users().len(), 3);
    assert_eq!(request_page(s.pages, "POST", "/users", "localhost").unwrap().0, 404);
}

/// Other requests keep their limit.
#[test]
fn a_large_import_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let s = start(&StoreKind::Redb(dir.path().join("x.redb")));
    let name = |i: usize| format!("{i:0>120}");
    let user = |i| serde_json::json!({"user": name(i), "realm": "a.org", "hashes": {"MD5": "ab".repeat(16)}});
    let users: Vec<_> = (0..5_000).map(user).collect();
    let body = serde_json::json!({"replace": false, "users": users}).to_string();
    assert!(body.len() > 10 * MAX_ORDER);
    assert_eq!(s.request("POST", "/users", &body).0, 200);
    assert_eq!(s.monitor.store.users().len(), 5_000);
}

#[test]
fn a_server_without_short_numbers_has_none_to_reclaim() {
    let s = start(&StoreKind::Memory);
    for (body, expected) in [
        (r#""show""#, 404),
        (r#"{"retire":{"mark":42}}"#, 404),
        (r#"{"reclaim":{"lost":[1],"others":[2],"unchecked":false}}"#, 404),
        (r#"{"reclaim":{"lost":[1]}}"#, 400),
        (r#"{"retire":{"mark":-1}}"#, 400),
        ("", 400),
    ] {
        assert_eq!(s.request("POST", "/numbers", body).0, expected, "{body}");
    }
    assert_eq!(request_page(s.pages, "POST", "/numbers", "localhost").unwrap().0, 404);
}

#[test]
fn a_removed_user_is_no_longer_called() {
    let s = start(&StoreKind::Memory);
    let store = &s.monitor.store;
    store.set_user("101", "a.org", Hashes::new("101", "a.org", "p")).unwrap();
    let tag = CommitTag { worker: 0, id: 0 };
    store.location().update(b"sip:101@a.org", Time::from_secs(1), tag, &mut |edit| {
        edit.put(&binding()).unwrap();
        edit.commit();
    });
    assert_eq!(store.location().records(), 1);
    s.request("DELETE", "/users", r#"{"user":"101","realm":"a.org"}"#);
    assert_eq!(store.location().records(), 0);
}

/// Every registration is listed once, over several pages, or those of one user.
#[test]
fn registrations_and_calls_are_listed_in_pages() {
    let s = start(&StoreKind::Memory);
    let location = s.monitor.store.location();
    for i in 0..MAX_PAGE * 5 / 2 {
        let aor = format!("sip:{i}@a.org");
        let tag = CommitTag { worker: 0, id: 0 };
        location.update(aor.as_bytes(), Time::from_secs(1), tag, &mut |edit| {
            edit.put(&binding()).unwrap();
            edit.commit();
        });
    }
    let mut users = Vec::new();
    let (mut request, mut pages) = (PageRequest::default(), 0);
    loop {
        let body = serde_json::to_string(&request).unwrap();
        let (status, text) = s.request("GET", "/registrations", &body);
        assert_eq!(status, 200, "{text}");
        let page: Page<Registration> = serde_json::from_str(&text).unwrap();
        assert!(page.items.len() <= MAX_PAGE);
        users.extend(page.items.into_iter().map(|r| r.user));
        pages += 1;
        request.after = page.next;
        if request.after.is_none() {
            break;
        }
    }
    users.sort();
    users.dedup();
    assert_eq!((users.len(), pages), (MAX_PAGE * 5 / 2, 3));
    for user in ["7", "7@a.org", "sip:7@A.org"] {
        let (_, text) = s.request("GET", "/registrations", &format!(r#"{{"user":"{user}"}}"#));
        let page: Page<Registration> = serde_json::from_str(&text).unwrap();
        assert_eq!(page.items.len(), 1, "{user}");
        let item = &page.items[0];
        assert_eq!((item.user.as_str(), item.expires_seconds), ("7@a.org", 3598));
        assert_eq!(item.contact, "sip:101@192.0.2.9");
    }
    for body in [r#"{"after":"x"}"#, r#"{"after":"1.zz"}"#, r#"{"other":1}"#, "{"] {
        let (status, _) = s.request("GET", "/registrations", body);
        assert!((400..500).contains(&status), "{body}");
    }
    let (status, text) = s.request("GET", "/calls", "{}");
    assert_eq!((status, text.as_str()), (200, r#"{"items":[],"next":null}"#));
    assert_eq!(request_page(s.pages, "GET", "/registrations", "localhost").unwrap().0, 404);
    assert_eq!(request_page(s.pages, "GET", "/calls", "localhost").unwrap().0, 404);
}

#[test]
fn management_over_tcp_is_read_only() {
    let s = start(&StoreKind::Memory);
    for method in ["GET", "PUT", "DELETE"] {
        let (status, _) = request_page(s.pages, method, "/users", "127.0.0.1").unwrap();
        assert_eq!(status, 404, "{method}");
    }
    assert_eq!(
        request_page(s.pages, "GET", "/healthz", "localhost:8060").unwrap(),
        (200, "ok\n".into())
    );
    assert_eq!(request_page(s.pages, "GET", "/healthz", "evil.example").unwrap().0, 421);
    assert!(is_loopback("127.0.0.1:8060") && is_loopback("[::1]:8060") && is_loopback("localhost"));
    assert!(!is_loopback("evil.example:8060") && !is_loopback("192.0.2.1") && !is_loopback(""));
}

#[test]
fn malformed_requests_are_refused() {
    let s = start(&StoreKind::Memory);
    let big = format!(r#"{{"user":"{}"}}"#, "x".repeat(MAX_BODY));
    let (status, _) = s.request("PUT", "/users", &big);
    assert!((400..500).contains(&status), "{status}");
    assert_eq!(s.request("PUT", "/users", "{not json").0, 400);
    assert_eq!(s.request("GET", "/nothing", "").0, 404);
}

/// Connections that send nothing, and some that send byte by byte, exclude nobody: on TCP the
/// oldest of them is closed, and the control socket has its own limit.
#[test]
fn slow_connections_do_not_block_others() {
    let s = start(&StoreKind::Memory);
    let slow: Vec<TcpStream> = (0..4 * connections::MAX_CONNECTIONS)
        .map(|i| {
            let mut stream = TcpStream::connect(s.pages).unwrap();
            if i % 2 == 0 {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc").unwrap();
            }
            stream
        })
        .collect();
    let began = std::time::Instant::now();
    assert_eq!(request_page(s.pages, "GET", "/healthz", "localhost").unwrap().0, 200);
    assert_eq!(s.request("GET", "/status", "").0, 200);
    assert!(began.elapsed() < connections::HEAD_TIMEOUT, "{:?}", began.elapsed());
    let displaced = s.monitor.connections.displaced.load(Relaxed);
    assert!(displaced >= 3 * connections::MAX_CONNECTIONS as u64, "{displaced}");
    // The others are closed when their head is overdue.
    let mut last = &slow[slow.len() - 1];
    last.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut text = String::new();
    last.read_to_string(&mut text).unwrap();
    assert!(began.elapsed() >= connections::HEAD_TIMEOUT / 2, "{:?}: {text}", began.elapsed());
}

#[test]
fn health_reports_the_reason() {
    let s = start(&StoreKind::Memory);
    assert_eq!(s.request("GET", "/healthz", ""), (200, "ok\n".into()));
    s.monitor.set_phase(Phase::Draining);
    assert_eq!(s.request("GET", "/healthz", ""), (503, "draining\n".into()));
    let dir = tempfile::tempdir().unwrap();
    let s = start(&StoreKind::Redb(dir.path().join("x.redb")));
    let failed: &AtomicBool = &s.monitor.store.writer_stats().unwrap().failed;
    failed.store(true, Relaxed);
    assert_eq!(s.request("GET", "/healthz", "").0, 503);
}

#[test]
fn status_sums_all_workers() {
    let s = start(&StoreKind::Memory);
    let (code, text) = s.request("GET", "/status", "");
    assert_eq!(code, 200);
    let status: Status = serde_json::from_str(&text).unwrap();
    assert_eq!(status.counters["requests"], 11);
    assert_eq!(status.counters["udp_received"], 30);
    assert_eq!(status.tables["contexts"], 6);
    assert_eq!((status.phase.as_str(), status.workers), ("serving", 2));
    // RFC 6076 section 4.6: redirected attempts do not count.
    assert!((status.ratios["session_establishment_ratio"] - 4.0 / 6.0).abs() < 1e-9);
    assert!((status.ratios["session_establishment_effectiveness_ratio"] - 1.0).abs() < 1e-9);
    assert!(status.resident_bytes > 1 << 20);
    let text = status.text();
    assert!(
        text.contains("a.org (also 127.0.0.1)") && text.contains("6 requests in memory"),
        "{text}"
    );
}

/// Parses one sample of the text format: name, labels, value.
fn parse(line: &str) -> (String, String, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
        None => (series, ""),
    };
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    assert!(name.starts_with("ringway_") && name.chars().all(fine), "{line}");
    (name.to_owned(), labels.to_owned(), value.parse().unwrap())
}

/// Checks the text format: every sample belongs to a described metric of its type, no series
/// appears twice, histograms rise to their count, and the text ends with `# EOF`.
#[test]
fn metrics_are_well_formed() {
    use std::collections::{HashMap, HashSet};
    let dir = tempfile::tempdir().unwrap();
    let s = start(&StoreKind::Redb(dir.path().join("x.redb")));
    let (code, text) = s.request("GET", "/metrics", "");
    assert_eq!(code, 200);
    assert!(text.ends_with("# EOF\n"));
    let mut kinds: HashMap<String, String> = HashMap::new();
    let mut seen = HashSet::new();
    let mut values = HashMap::new();
    let mut bucket: Option<(String, f64, f64)> = None;
    for line in text.lines().filter(|l| *l != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            continue;
        }
        if line.starts_with("# HELP ") || line.starts_with("# UNIT ") {
            assert!(line.split(' ').count() > 3);
            continue;
        }
        let (name, labels, value) = parse(line);
        assert!(seen.insert((name.clone(), labels.clone())), "{line} twice");
        let stem = ["_total", "_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .filter(|stem| kinds.contains_key(*stem))
            .unwrap_or(&name);
        match kinds.get(stem).map(String::as_str) {
            Some("counter") => assert!(name.ends_with("_total"), "{line}"),
            Some("gauge") => assert_eq!(stem, name, "{line}"),
            Some("histogram") if name.ends_with("_bucket") => {
                let le = labels.strip_prefix("le=\"").unwrap().strip_suffix('"').unwrap();
                let le = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
                if let Some((stem_before, le_before, before)) = &bucket
                    && stem_before == stem
                {
                    assert!(le > *le_before && value >= *before, "{line}");
                }
                bucket = Some((stem.to_owned(), le, value));
            }
            Some("histogram") => {}
            kind => panic!("{line}: {kind:?}"),
        }
        values.insert(format!("{name}{{{labels}}}"), value);
    }
    assert_eq!(values["ringway_requests_total{worker=\"1\"}"], 6.0);
    assert_eq!(values["ringway_connections{worker=\"0\"}"], 1.0);
    assert_eq!(values["ringway_contexts{worker=\"0\"}"], 3.0);
    assert_eq!(values["ringway_session_request_delay_seconds_count{}"], 2.0);
    assert_eq!(values["ringway_session_request_delay_seconds_bucket{le=\"+Inf\"}"], 2.0);
    assert_eq!(values["ringway_session_request_delay_seconds_bucket{le=\"0.0025\"}"], 0.0);
    assert_eq!(values["ringway_log_lines_dropped_total{}"], 7.0);
    assert!(values.contains_key("ringway_session_establishment_ratio{}"));
    assert!(values.contains_key("ringway_store_commit_seconds_total{}"));
}
