//! Server location (RFC 3263) with a name server that is part of the test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, NAPTR, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use ringway_net::Clock;
use ringway_net::locate::{
    Locator, LocatorConfig, MAX_ASKED_OF_SOURCE, MAX_QUEUED_OF_SOURCE, MAX_TURN_WAIT, MIN_LIFETIME,
    Query, STALE_AFTER,
};
use ringway_sansio::Hop;
use ringway_sansio::Transport;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The source of queries, where it does not matter.
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

const PATIENCE: Duration = Duration::from_secs(60);

fn name(text: &str) -> Name {
    let mut name = Name::from_str(text).unwrap();
    name.set_fqdn(true);
    name
}

/// The TTL of answers, in seconds.
const TTL: u32 = 300;

#[derive(Default)]
struct Zone {
    records: Mutex<HashMap<(String, RecordType), Vec<RData>>>,
    asked: AtomicUsize,
    broken: AtomicBool,
    /// Queries for names below this one are not answered.
    silent: Mutex<Option<&'static str>>,
    ttl: AtomicU32,
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
        if self.silent.lock().unwrap().is_some_and(|below| at.ends_with(below)) {
            return None;
        }
        let ttl = self.ttl.load(Ordering::Relaxed);
        let records = self.records.lock().unwrap();
        for data in records.get(&(at.clone(), query.query_type())).into_iter().flatten() {
            answer.add_answer(Record::from_rdata(query.name().clone(), ttl, data.clone()));
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
        let zone = Arc::new(Zone { ttl: TTL.into(), ..Zone::default() });
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
            ..LocatorConfig::default()
        };
        let locator = Locator::new(config, Clock::new(), runtime.handle().clone()).unwrap();
        World { zone, locator, runtime: Some(runtime), thread: Some(thread) }
    }

    fn locate(&self, query: Query) -> Vec<Hop> {
        let (sender, receiver) = channel();
        let done = move |hops| sender.send(hops).unwrap();
        match self.locator.locate(query, SOURCE, 1, done) {
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
    // The cache ignores case, and needs no second query.
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
    // Addresses and invalid names are not queried.
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
        at_once += usize::from(world.locator.locate(wanted.clone(), SOURCE, n, done).is_some());
    }
    for _ in at_once..200 {
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), 1);
    }
    assert_eq!(world.asked(), 2 * once);
}

/// Names in the hosts file are resolved without DNS, even when no name server answers.
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

impl World {
    /// From now on queries for names below this one are not answered.
    fn silence(&self, below: &'static str) {
        *self.zone.silent.lock().unwrap() = Some(below);
    }

    /// Queries many names at once; returns how many were answered immediately, each with no addresses.
    fn flood(&self, source: IpAddr, count: usize, below: &str) -> usize {
        let ask = |n| self.locator.locate(query(&format!("h{n}.{below}")), source, 1, |_| {});
        let refused = (0..count).filter_map(ask).inspect(|hops| assert!(hops.is_empty()));
        refused.count()
    }

    /// Queries on behalf of a source; returns the answer and the time it took.
    fn timed(&self, source: IpAddr, query: Query) -> (Vec<Hop>, Duration) {
        let (sender, receiver) = channel();
        let begun = Instant::now();
        let done = move |hops| sender.send(hops).unwrap();
        let at_once = self.locator.locate(query, source, 1, done);
        let hops = at_once.unwrap_or_else(|| receiver.recv_timeout(PATIENCE).unwrap());
        (hops, begun.elapsed())
    }
}

/// Much shorter than the time-out of a query.
const SOON: Duration = Duration::from_secs(3);

/// Slow names of one source do not delay those of another, in either order; an IPv6 source is a /64.
#[test]
fn slow_names_hold_up_only_those_who_ask_for_them() {
    let world = World::new(|z| {
        for n in 0..20 {
            z.a(&format!("h{n}.good.example"), "127.0.0.1");
        }
    });
    world.silence("slow.example");
    let refused = world.flood(SOURCE, 1_500, "slow.example");
    assert_eq!(refused, 1_500 - MAX_ASKED_OF_SOURCE - MAX_QUEUED_OF_SOURCE);
    assert_eq!(world.locator.counts().refused, refused as u64);
    for n in 0..20 {
        let other = IpAddr::from([198, 51, 100, n]);
        let (hops, took) = world.timed(other, query(&format!("h{n}.good.example")));
        assert_eq!(hops.len(), 1, "{n}");
        assert!(took < SOON, "{took:?}");
    }
    // All addresses of a prefix are one source; those of another prefix are a second one.
    let of_prefix = |prefix: u16, n: u16| Ipv6Addr::from([0x2001, 0xdb8, 0, prefix, 0, 0, 0, n]);
    for n in 0..200 {
        let below = format!("{n}.slow.example");
        world.flood(of_prefix(1, n).into(), 1, &below);
    }
    let (_, under_way, _) = world.locator.sizes();
    assert!(under_way <= 2 * (MAX_ASKED_OF_SOURCE + MAX_QUEUED_OF_SOURCE), "{under_way}");
    let (hops, took) = world.timed(of_prefix(2, 1).into(), query("h7.good.example"));
    assert!(hops.len() == 1 && took < SOON, "{took:?}");
}

/// Many sources that query slow names leave room for a source that queries a name that is answered.
#[test]
fn many_sources_leave_room_for_another() {
    let world = World::new(|z| z.a("good.example", "127.0.0.1"));
    world.silence("slow.example");
    for n in 0..120 {
        world.flood(IpAddr::from([203, 0, 113, n]), 100, &format!("{n}.slow.example"));
    }
    let (hops, took) = world.timed(SOURCE, query("good.example"));
    assert_eq!(hops.len(), 1);
    assert!(took < SOON, "{took:?}");
}

/// A source whose queue of slow names contains a name does not delay that name for other sources.
#[test]
fn a_name_in_the_queue_of_a_slow_source_is_found_for_another() {
    let world = World::new(|z| z.a("good.example", "127.0.0.1"));
    world.silence("slow.example");
    world.flood(SOURCE, 80, "slow.example");
    assert!(world.locator.locate(query("good.example"), SOURCE, 1, |_| {}).is_none());
    let (hops, took) = world.timed([198, 51, 100, 1].into(), query("good.example"));
    assert!(hops.len() == 1 && took < SOON, "{took:?}");
    // A name that was never queried is not reported as nonexistent.
    let world = World::new(|z| z.a("good.example", "127.0.0.1"));
    world.silence("slow.example");
    world.flood(SOURCE, 80, "slow.example");
    let (hops, took) = world.timed(SOURCE, query("good.example"));
    assert!(hops.is_empty() && took < MAX_TURN_WAIT + SOON, "{took:?}");
    let (hops, _) = world.timed([198, 51, 100, 1].into(), query("good.example"));
    assert_eq!(hops.len(), 1);
}

/// RFC 8767: an expired answer is used when DNS does not answer (after a short wait, then at once), when DNS
/// fails, and when the source's share of queries is used up.
#[test]
fn an_expired_answer_is_used_when_dns_is_slow_or_fails() {
    let world = World::new(|z| {
        for n in 0..3 {
            z.a(&format!("h{n}.example"), "127.0.0.1");
        }
    });
    world.zone.ttl.store(0, Ordering::Relaxed);
    for n in 0..3 {
        assert_eq!(world.hops(query(&format!("h{n}.example"))), ["UDP 127.0.0.1:5060"]);
    }
    std::thread::sleep(MIN_LIFETIME + Duration::from_millis(100));
    world.silence("example");
    let (hops, took) = world.timed(SOURCE, query("h0.example"));
    assert_eq!(hops.len(), 1);
    assert!(took >= STALE_AFTER && took < SOON, "{took:?}");
    // The query continues, and no request waits for it.
    let (hops, took) = world.timed(SOURCE, query("h0.example"));
    assert!(hops.len() == 1 && took < STALE_AFTER, "{took:?}");
    world.flood(SOURCE, 200, "slow.example");
    let (hops, took) = world.timed(SOURCE, query("h1.example"));
    assert!(hops.len() == 1 && took < STALE_AFTER, "no share is left: {took:?}");
    *world.zone.silent.lock().unwrap() = None;
    world.zone.broken.store(true, Ordering::Relaxed);
    let (hops, _) = world.timed([198, 51, 100, 1].into(), query("h2.example"));
    assert_eq!(hops.len(), 1);
    assert_eq!(world.locator.counts().stale, 4);
}
