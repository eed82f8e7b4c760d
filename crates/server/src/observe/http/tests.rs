//! What may be asked, by whom, and what the answers look like.

use super::*;
use crate::config::StoreKind;
use crate::observe::{Board, Facts, Snapshot};
use crate::store::Store;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;

struct Server {
    observed: Arc<Observed>,
    control: Control,
}

/// A management server without workers: the board is filled when it asks.
fn start(kind: &StoreKind) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr: SocketAddr = listener.local_addr().unwrap();
    let board = Arc::new(Board::new(2));
    let store = Arc::new(Store::open(kind, Time::from_secs(1), &mut |_| None).unwrap());
    let filled = board.clone();
    let ask = move || {
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
    };
    let observed = Arc::new(Observed::new(
        board,
        Box::new(ask),
        Box::new(net),
        Box::new(|| (1, 2, 3)),
        store,
        Box::new(|| 7),
        facts,
    ));
    let control = Control::new(addr).unwrap();
    let (o, c) = (observed.clone(), control.clone());
    std::thread::spawn(move || serve(listener, o, c, Box::new(|| Time::from_secs(2))));
    Server { observed, control }
}

#[test]
fn users_are_made_changed_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let s = start(&StoreKind::Redb(dir.path().join("x.redb")));
    let put = |user: &str, realm: &str, new: bool| {
        let body = serde_json::json!({"user": user, "realm": realm, "password": "p", "new": new});
        s.control.ask("PUT", "/users", &body.to_string()).unwrap()
    };
    assert_eq!(put("101", "a.org", true), (200, r#"{"new":true}"#.into()));
    assert_eq!(put("101", "a.org", true).0, 409);
    assert_eq!(put("101", "a.org", false), (200, r#"{"new":false}"#.into()));
    assert_eq!(put("9", "a.org", false).0, 404);
    let (status, what) = put("101", "b.org", true);
    assert_eq!((status, &what[..]), (400, r#"{"error":"\"b.org\" is not a domain of ours"}"#));
    assert_eq!(put("a b", "a.org", true).0, 400);
    let list = s.control.ask("GET", "/users", "").unwrap();
    assert_eq!(list, (200, r#"[{"user":"101","realm":"a.org"}]"#.into()));
    let name = r#"{"user":"101","realm":"a.org"}"#;
    assert_eq!(s.control.ask("DELETE", "/users", name).unwrap().0, 200);
    assert_eq!(s.control.ask("DELETE", "/users", name).unwrap().0, 404);
}

#[test]
fn a_removed_user_is_no_longer_called() {
    let s = start(&StoreKind::Memory);
    let store = &s.observed.store;
    store.set_user("101", "a.org", Hashes::new("101", "a.org", "p")).unwrap();
    let tag = CommitTag { worker: 0, id: 0 };
    store.location().update(b"sip:101@a.org", Time::from_secs(1), tag, &mut |edit| {
        let binding = ringway_proxy::location::BindingView {
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
        };
        edit.put(&binding).unwrap();
        edit.commit();
    });
    assert_eq!(store.location().records(), 1);
    s.control.ask("DELETE", "/users", r#"{"user":"101","realm":"a.org"}"#).unwrap();
    assert_eq!(store.location().records(), 0);
}

#[test]
fn nobody_without_the_token_or_from_a_web_page() {
    let s = start(&StoreKind::Memory);
    let stranger = Control { token: "0".repeat(32), ..s.control.clone() };
    for method in ["GET", "PUT", "DELETE"] {
        assert_eq!(stranger.ask(method, "/users", "{}").unwrap().0, 401, "{method}");
    }
    assert!(is_loopback("127.0.0.1:8060") && is_loopback("[::1]:8060") && is_loopback("localhost"));
    assert!(!is_loopback("evil.example:8060") && !is_loopback("192.0.2.1") && !is_loopback(""));
    assert_eq!(stranger.ask("GET", "/status", "").unwrap().0, 401, "another server was expected");
    let big = format!(r#"{{"user":"{}"}}"#, "x".repeat(MAX_BODY));
    let (status, _) = s.control.ask("PUT", "/users", &big).unwrap();
    assert!((400..500).contains(&status), "{status}");
    assert_eq!(s.control.ask("PUT", "/users", "{not json").unwrap().0, 400);
    assert_eq!(s.control.ask("GET", "/nothing", "").unwrap().0, 404);
}

#[test]
fn health_tells_why_not() {
    let s = start(&StoreKind::Memory);
    assert_eq!(s.control.ask("GET", "/healthz", "").unwrap(), (200, "ok\n".into()));
    s.observed.set_phase(Phase::Draining);
    assert_eq!(s.control.ask("GET", "/healthz", "").unwrap(), (503, "draining\n".into()));
    let dir = tempfile::tempdir().unwrap();
    let s = start(&StoreKind::Redb(dir.path().join("x.redb")));
    let failed: &AtomicBool = &s.observed.store.writer_stats().unwrap().failed;
    failed.store(true, Relaxed);
    assert_eq!(s.control.ask("GET", "/healthz", "").unwrap().0, 503);
}

#[test]
fn status_adds_up() {
    let s = start(&StoreKind::Memory);
    let (code, text) = s.control.ask("GET", "/status", "").unwrap();
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

/// One sample of the text format: name, labels, value.
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

/// A small checker of the text format: every sample belongs to a described metric of its kind, no
/// series appears twice, histograms rise to their count, and the text is ended.
#[test]
fn metrics_are_well_formed() {
    use std::collections::{HashMap, HashSet};
    let dir = tempfile::tempdir().unwrap();
    let s = start(&StoreKind::Redb(dir.path().join("x.redb")));
    let (code, text) = s.control.ask("GET", "/metrics", "").unwrap();
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
