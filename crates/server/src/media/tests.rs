//! Media between real sockets of both families on the loopback interface.

use super::*;
use ringway_media::Leg;
use ringway_sip::message;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

const V4: &str = "127.0.0.1";
const V6: &str = "::1";
/// A packet that is not to come must not come within this time.
const NOTHING: Duration = Duration::from_millis(50);

/// A relay, and the two parties of a call through it.
struct Call {
    media: Media,
    relay: Arc<SharedRelay>,
    clock: Clock,
    caller: UdpSocket,
    callee: UdpSocket,
}

fn leg(address: &str) -> Leg {
    let ip: IpAddr = address.parse().unwrap();
    Leg { local: ip, remote: ip, many: false }
}

fn sdp(socket: &UdpSocket) -> String {
    let at = socket.local_addr().unwrap();
    let kind = if at.is_ipv4() { "IP4" } else { "IP6" };
    format!(
        "v=0\r\no=- 1 1 IN {kind} {0}\r\ns=-\r\nc=IN {kind} {0}\r\nt=0 0\r\nm=audio {1} RTP/AVP 0\r\n",
        at.ip(),
        at.port()
    )
}

fn text(start: &str, method: &str, tag: &str, body: &str) -> Vec<u8> {
    format!(
        "{start}\r\nFrom: <sip:a@x>;tag=a\r\nTo: <sip:b@x>{tag}\r\nCall-ID: 1\r\nCSeq: 1 {method}\r\n\
         Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Returns the address of the stream in a description.
fn media_of(body: &[u8]) -> SocketAddr {
    let session = ringway_sip::sdp::Session::parse(body).unwrap();
    let media = &session.media[0];
    SocketAddr::new(session.connection(media).unwrap().ip().unwrap(), media.port)
}

fn bind(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

impl Call {
    fn start(ports: RangeInclusive<u16>) -> Call {
        let clock = Clock::new();
        let config = Config { ports, ..Config::default() };
        let media = Media::start(config, [3; 16], clock).unwrap();
        let relay = media.relay();
        Call { media, relay, clock, caller: bind(V4), callee: bind(V6) }
    }

    fn request(&self, method: &str, tag: &str, body: &str) -> Option<Vec<u8>> {
        let bytes = text(&format!("{method} sip:b@x SIP/2.0"), method, tag, body);
        let message = &message::parse(&bytes).unwrap();
        let branch = tag.is_empty().then_some(1);
        let forwarded = Forwarded { message, from: leg(V4), to: leg(V6), branch };
        self.relay.request(self.clock.now(), &forwarded).unwrap()
    }

    fn response(&self, method: &str, body: &str) -> Option<Vec<u8>> {
        let bytes = text("SIP/2.0 200 OK", method, ";tag=b", body);
        let message = &message::parse(&bytes).unwrap();
        let branch = (method == "INVITE").then_some(1);
        let forwarded = Forwarded { message, from: leg(V6), to: leg(V4), branch };
        self.relay.response(self.clock.now(), &forwarded)
    }

    /// Sets the call up. Returns where the caller and the callee send to.
    fn agree(&self) -> (SocketAddr, SocketAddr) {
        let offer = self.request("INVITE", "", &sdp(&self.caller)).unwrap();
        let answer = self.response("INVITE", &sdp(&self.callee)).unwrap();
        (media_of(&answer), media_of(&offer))
    }

    /// Waits until something is counted.
    fn await_that(&self, what: impl Fn(&Snapshot) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !what(&self.relay.snapshot()) {
            assert!(Instant::now() < end, "{:?}", self.relay.snapshot());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Sends a packet until it comes, because the thread may learn of a call a moment later.
fn exchange(from: &UdpSocket, to: SocketAddr, at: &UdpSocket, text: &[u8]) -> SocketAddr {
    let mut buffer = [0; 2_000];
    at.set_read_timeout(Some(NOTHING)).unwrap();
    for _ in 0..200 {
        from.send_to(text, to).unwrap();
        if let Ok((len, source)) = at.recv_from(&mut buffer) {
            assert_eq!(&buffer[..len], text);
            return source;
        }
    }
    panic!("{to} forwards nothing");
}

fn is_silent(at: &UdpSocket) -> bool {
    at.set_read_timeout(Some(NOTHING)).unwrap();
    at.recv_from(&mut [0; 16]).is_err()
}

#[test]
fn media_goes_both_ways_between_families() {
    let call = Call::start(21_000..=21_999);
    let (to_callee, to_caller) = call.agree();
    assert!(to_callee.is_ipv4() && to_caller.is_ipv6());
    // The source is the port that was announced, as symmetric RTP requires (RFC 4961).
    assert_eq!(exchange(&call.caller, to_callee, &call.callee, b"there"), to_caller);
    assert_eq!(exchange(&call.callee, to_caller, &call.caller, &[7; 1_400]), to_callee);
    let packets = call.relay.snapshot().packets;
    assert!(packets.forwarded >= 2 && packets.octets >= 1_405, "{packets:?}");
}

#[test]
fn strangers_get_nothing_through() {
    let call = Call::start(22_000..=22_999);
    let (to_callee, to_caller) = call.agree();
    exchange(&call.caller, to_callee, &call.callee, b"there");
    exchange(&call.callee, to_caller, &call.caller, b"back");
    while !is_silent(&call.callee) || !is_silent(&call.caller) {}
    let before = call.relay.snapshot().packets;
    let stranger = bind("127.0.0.2");
    // Every port of the range, and those of the call from a foreign port of the right host.
    for port in 22_000..23_000 {
        stranger.send_to(b"scan", (V4, port)).unwrap();
    }
    bind(V4).send_to(b"other", to_callee).unwrap();
    bind(V6).send_to(b"other", to_caller).unwrap();
    call.await_that(|now| {
        now.packets.stranger >= before.stranger + 4 && now.packets.no_stream > 100
    });
    assert!(is_silent(&call.callee) && is_silent(&call.caller) && is_silent(&stranger));
    assert_eq!(call.relay.snapshot().packets.forwarded, before.forwarded);
    exchange(&call.caller, to_callee, &call.callee, b"still there");
}

#[test]
fn nothing_is_forwarded_before_the_answer_and_after_the_end() {
    let call = Call::start(23_000..=23_999);
    let offer = call.request("INVITE", "", &sdp(&call.caller)).unwrap();
    call.callee.send_to(b"early", media_of(&offer)).unwrap();
    call.await_that(|now| now.packets.no_stream == 1);
    let answer = call.response("INVITE", &sdp(&call.callee)).unwrap();
    exchange(&call.callee, media_of(&offer), &call.caller, b"now");
    call.request("BYE", ";tag=b", "");
    call.response("BYE", "");
    assert_eq!(call.relay.snapshot().tables.streams, 0);
    call.await_that(|now| now.tables.commands == 0);
    let before = call.relay.snapshot().packets.no_stream;
    while !is_silent(&call.caller) {}
    call.caller.send_to(b"late", media_of(&answer)).unwrap();
    call.await_that(|now| now.packets.no_stream > before);
    assert!(is_silent(&call.callee));
}

#[test]
fn ports_are_bound_ahead_and_those_of_others_are_passed_over() {
    // Four pairs, of which another program has a half.
    let taken = (24_000..25_000)
        .step_by(8)
        .find_map(|port| UdpSocket::bind((V4, port + 3)).ok().map(|socket| (port, socket)));
    let (first, _socket) = taken.unwrap();
    let call = Call::start(first..=first + 7);
    assert_eq!(call.relay.snapshot().tables.ready, [3, 4]);
    let (to_callee, to_caller) = call.agree();
    exchange(&call.caller, to_callee, &call.callee, b"there");
    assert_eq!(to_callee.port() / 2 * 2, to_callee.port());
    assert_ne!(to_callee.port(), first + 2);
    assert_eq!(call.relay.snapshot().tables.ready, [2, 3]);
    drop(call.media);
    assert!(UdpSocket::bind(to_callee).is_ok() && UdpSocket::bind(to_caller).is_ok());
}

#[test]
fn a_range_without_a_free_port_is_an_error() {
    let taken = UdpSocket::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port() & !1;
    let config = Config { ports: port..=port + 1, ..Config::default() };
    let error = Media::start(config, [0; 16], Clock::new()).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
