//! Server location against a name server of the test's own (RFC 3263).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, NAPTR, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use ringway_net::Clock;
use ringway_net::locate::{Hop, Locator, LocatorConfig, Query};
use ringway_sansio::Transport;
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn name(text: &str) -> Name {
    let mut name = Name::from_str(text).unwrap();
    name.set_fqdn(true);
    name
}

#[derive(Default)]
struct Zone {
    records: Mutex<HashMap<(String, RecordType), Vec<RData>>>,
    asked: AtomicUsize,
    broken: AtomicBool,
    stop: AtomicBool,
}

impl Zone {
    fn add(&self, at: &str, kind: RecordType, data: RData) {
        let key = (at.to_owned(), kind);
        self.records.lock().unwrap().entry(key).or_default().push(data);
    }

    fn a(&self, at: &str, ip: &str) {
        self.add(at, RecordType::A, RData::A(A(ip.parse().unwrap())));
    }

    fn srv(&self, at: &str, priority: u16, port: u16, target: &str) {
        let srv = SRV::new(priority, 1, port, name(target));
        self.add(at, RecordType::SRV, RData::SRV(srv));
    }

    fn naptr(&self, at: &str, order: u16, services: &str, replacement: &str) {
        let services = services.as_bytes().into();
        let naptr =
            NAPTR::new(order, 1, (*b"s").into(), services, Box::default(), name(replacement));
        self.add(at, RecordType::NAPTR, RData::NAPTR(naptr));
    }

    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let question = Message::from_vec(question).ok()?;
        let query = question.queries.first()?.clone();
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut answer = Message::response(question.metadata.id, OpCode::Query);
        answer.metadata.recursion_available = true;
        answer.add_query(query.clone());
        if self.broken.load(Ordering::Relaxed) {
            answer.metadata.response_code = ResponseCode::ServFail;
            return answer.to_vec().ok();
        }
        let at = query.name().to_ascii().to_lowercase().trim_end_matches('.').to_owned();
        let records = self.records.lock().unwrap();
        for data in records.get(&(at.clone(), query.query_type())).into_iter().flatten() {
            answer.add_answer(Record::from_rdata(query.name().clone(), 300, data.clone()));
        }
        if !records.keys().any(|(name, _)| *name == at) {
            answer.metadata.response_code = ResponseCode::NXDomain;
        }
        answer.to_vec().ok()
    }
}

struct World {
    zone: Arc<Zone>,
    locator: Arc<Locator>,
    runtime: Option<tokio::runtime::Runtime>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl World {
    fn new(fill: impl FnOnce(&Zone)) -> Self {
        World::with(&[Transport::Udp, Transport::Tcp, Transport::Tls], fill)
    }

    fn with(transports: &[Transport], fill: impl FnOnce(&Zone)) -> Self {
        let zone = Arc::new(Zone::default());
        fill(&zone);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let server = socket.local_addr().unwrap();
        let serving = zone.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2_048];
            while !serving.stop.load(Ordering::Relaxed) {
                if let Ok((n, from)) = socket.recv_from(&mut buffer)
                    && let Some(answer) = serving.answer(&buffer[..n])
                {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let config = LocatorConfig {
            servers: vec![server],
            transports: transports.to_vec(),
            ipv4: true,
            ipv6: true,
        };
        let locator = Locator::new(config, Clock::new(), runtime.handle().clone()).unwrap();
        World { zone, locator, runtime: Some(runtime), thread: Some(thread) }
    }

    fn locate(&self, query: Query) -> Vec<Hop> {
        let (sender, receiver) = channel();
        let done = move |hops| sender.send(hops).unwrap();
        match self.locator.locate(query, 1, done) {
            Some(hops) => hops,
            None => receiver.recv_timeout(PATIENCE).unwrap(),
        }
    }

    fn hops(&self, query: Query) -> Vec<String> {
        self.locate(query).iter().map(|h| format!("{} {}", h.transport, h.addr)).collect()
    }

    fn asked(&self) -> usize {
        self.zone.asked.load(Ordering::Relaxed)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.zone.stop.store(true, Ordering::Relaxed);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        let _ = self.thread.take().unwrap().join();
    }
}

fn query(host: &str) -> Query {
    Query { host: host.into(), port: None, transport: None, secure: false }
}

/// RFC 4168 section 6: SIP+D2S and SIPS+D2S in NAPTR, `_sip._sctp` and `_sips._sctp` in SRV.
#[test]
fn servers_over_sctp_are_found() {
    let all = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Sctp, Transport::TlsSctp];
    let world = World::with(&all, |z| {
        z.naptr("naptr.example", 10, "SIP+D2S", "_sip._sctp.naptr.example");
        z.naptr("naptr.example", 10, "SIPS+D2S", "_sips._sctp.naptr.example");
        z.naptr("naptr.example", 20, "SIP+D2U", "_sip._udp.naptr.example");
        z.srv("_sip._sctp.naptr.example", 1, 5080, "a.naptr.example");
        z.srv("_sips._sctp.naptr.example", 1, 5081, "a.naptr.example");
        z.a("a.naptr.example", "127.0.0.1");
        z.srv("_sips._sctp.srv.example", 1, 5091, "a.naptr.example");
    });
    let secure = |host| Query { secure: true, ..query(host) };
    assert_eq!(
        world.hops(query("naptr.example")),
        ["SCTP 127.0.0.1:5080", "TLS-SCTP 127.0.0.1:5081"]
    );
    assert_eq!(world.hops(secure("naptr.example")), ["TLS-SCTP 127.0.0.1:5081"]);
    let hops = world.locate(secure("srv.example"));
    assert_eq!((hops.len(), hops[0].transport), (1, Transport::TlsSctp));
    assert_eq!(hops[0].name.as_deref(), Some("srv.example"), "RFC 5922 section 7.3");
    let named = Query { transport: Some(Transport::Sctp), ..query("naptr.example") };
    assert_eq!(world.hops(named), ["SCTP 127.0.0.1:5080"]);
}

#[test]
fn naptr_leads_to_srv_and_that_to_addresses() {
    let world = World::new(|z| {
        z.naptr("example.com", 10, "SIP+D2T", "_sip._tcp.example.com");
        z.naptr("example.com", 20, "SIP+D2U", "_sip._udp.example.com");
        z.srv("_sip._tcp.example.com", 2, 5070, "b.example.com");
        z.srv("_sip._tcp.example.com", 1, 5080, "A.example.com");
        z.a("a.example.com", "127.0.0.1");
        z.a("a.example.com", "127.0.0.2");
        z.a("b.example.com", "127.0.0.3");
    });
    let expected = ["TCP 127.0.0.1:5080", "TCP 127.0.0.2:5080", "TCP 127.0.0.3:5070"];
    assert_eq!(world.hops(query("Example.COM")), expected);
    // Remembered: whatever the case, without another question.
    let asked = world.asked();
    assert_eq!(world.hops(query("example.com")), expected);
    assert_eq!(world.asked(), asked);
}

#[test]
fn without_naptr_srv_of_each_transport_and_without_srv_addresses() {
    let world = World::new(|z| {
        z.srv("_sip._tcp.srv.example", 1, 5070, "host.example");
        z.a("host.example", "127.0.0.1");
        z.a("plain.example", "127.0.0.2");
    });
    assert_eq!(world.hops(query("srv.example")), ["TCP 127.0.0.1:5070"]);
    assert_eq!(world.hops(query("plain.example")), ["UDP 127.0.0.2:5060"]);
    let secure = Query { secure: true, ..query("plain.example") };
    let hops = world.locate(secure);
    assert_eq!((hops[0].transport, hops[0].addr.port()), (Transport::Tls, 5061));
    assert_eq!(hops[0].name.as_deref(), Some("plain.example"));
    let port = Query { port: Some(5099), ..query("plain.example") };
    assert_eq!(world.hops(port), ["UDP 127.0.0.2:5099"]);
}

#[test]
fn what_is_not_there_is_nowhere_and_remembered() {
    let world = World::new(|_| {});
    assert!(world.locate(query("nothing.example")).is_empty());
    let asked = world.asked();
    assert!(world.locate(query("nothing.example")).is_empty());
    assert_eq!(world.asked(), asked);
    // Addresses need no name server at all, and neither do names that cannot be.
    assert_eq!(world.hops(query("192.0.2.1")), ["UDP 192.0.2.1:5060"]);
    assert!(world.locate(query("bad..name")).is_empty());
    assert_eq!(world.asked(), asked);
}

#[test]
fn both_families_ipv6_first() {
    let world = World::new(|z| {
        z.a("dual.example", "127.0.0.1");
        let v6 = RData::AAAA(AAAA("::1".parse().unwrap()));
        z.add("dual.example", RecordType::AAAA, v6);
    });
    let expected = ["UDP [::1]:5060", "UDP 127.0.0.1:5060"];
    assert_eq!(world.hops(query("dual.example")), expected);
}

/// RFC 3263 section 4.3.
#[test]
fn a_failed_hop_is_tried_last() {
    let world = World::new(|z| {
        z.a("x.example", "127.0.0.1");
        z.a("x.example", "127.0.0.2");
    });
    let first: SocketAddr = "127.0.0.1:5060".parse().unwrap();
    let second: SocketAddr = "127.0.0.2:5060".parse().unwrap();
    let order = || world.locate(query("x.example")).iter().map(|h| h.addr).collect::<Vec<_>>();
    assert_eq!(order(), [first, second]);
    world.locator.failed(Transport::Udp, first, None);
    assert_eq!(order(), [second, first]);
    world.locator.failed(Transport::Udp, second, None);
    assert_eq!(order(), [first, second]);
    world.locator.answered(Transport::Udp, second);
    assert_eq!(order(), [second, first]);
}

#[test]
fn many_callers_share_one_question() {
    let world = World::new(|z| z.a("x.example", "127.0.0.1"));
    let once = {
        world.locate(Query { port: Some(1), ..query("x.example") });
        world.asked()
    };
    let (sender, receiver) = channel();
    let wanted = Query { port: Some(2), ..query("x.example") };
    let mut at_once = 0;
    for n in 0..200 {
        let sender = sender.clone();
        let done = move |hops: Vec<Hop>| sender.send(hops.len()).unwrap();
        at_once += usize::from(world.locator.locate(wanted.clone(), n, done).is_some());
    }
    for _ in at_once..200 {
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), 1);
    }
    assert_eq!(world.asked(), 2 * once);
}

/// Whoever wrote the hosts file need not ask DNS, and waits for no name server that is away.
#[test]
fn the_hosts_file_comes_before_dns() {
    let world = World::new(|_| {});
    world.zone.broken.store(true, Ordering::Relaxed);
    let hops = world.hops(query("localhost"));
    assert!(hops.contains(&"UDP 127.0.0.1:5060".to_owned()), "{hops:?}");
    assert_eq!(world.asked(), 0);
}

#[test]
fn a_name_server_that_fails_is_answered_with_nothing_in_time() {
    let world = World::new(|z| z.a("x.example", "127.0.0.1"));
    world.zone.broken.store(true, Ordering::Relaxed);
    assert!(world.locate(query("x.example")).is_empty());
}
