//! Calls between phones, through one router or two, in virtual time.

#![allow(dead_code, unreachable_pub, reason = "not every test binary uses everything")]

use ringway_media::{Config, Family, Forwarded, Forwarder, Leg, Port, Refusal, Relay};
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sip::message;
use ringway_sip::sdp::Session;
use std::net::{IpAddr, SocketAddr};

pub const START: Time = Time::from_secs(1_000_000);

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn leg(local: &str, remote: &str) -> Leg {
    Leg { local: ip(local), remote: ip(remote), many: remote.ends_with("::1") }
}

/// A router: both halves of a relay, and its own address in the mesh.
pub struct Router {
    pub relay: Relay,
    pub forwarder: Forwarder,
    pub random: SplitMix,
    pub now: Time,
}

impl Router {
    pub fn new(config: Config) -> Router {
        let forwarder = Forwarder::new(config.rate);
        let relay = Relay::new(config, [9; 16], START);
        let mut router = Router { relay, forwarder, random: SplitMix::new(5), now: START };
        router.pump();
        router
    }

    pub fn in_mesh(address: &str) -> Router {
        Router::new(Config { ipv6: Some(address.parse().unwrap()), ..Config::default() })
    }

    /// Carries out commands and binds ports, as the thread of the other half does.
    pub fn pump(&mut self) {
        while let Some(command) = self.relay.poll_command() {
            self.forwarder.handle(self.now, &command);
        }
        while let Some(port) = self.relay.wanted_port(&mut self.random) {
            self.relay.port_bound(self.now, port, true);
        }
    }

    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        self.relay.handle_timeout(self.now);
        self.pump();
    }

    /// Returns from where and to where a packet goes on that came to one of its ports.
    pub fn packet(
        &mut self,
        source: SocketAddr,
        to: SocketAddr,
    ) -> Option<(SocketAddr, SocketAddr)> {
        self.packet_of(160, source, to)
    }

    pub fn packet_of(
        &mut self,
        len: usize,
        source: SocketAddr,
        to: SocketAddr,
    ) -> Option<(SocketAddr, SocketAddr)> {
        let port = Port { family: Family::of(to.ip()), number: to.port() };
        let route = self.forwarder.receive(self.now, port, Some(to.ip()), source, len).ok()?;
        Some((SocketAddr::new(route.from, route.port.number), route.to))
    }

    pub fn request(
        &mut self,
        msg: &Msg,
        from: Leg,
        to: Leg,
        branch: Option<u64>,
    ) -> Result<Msg, Refusal> {
        let bytes = msg.bytes();
        let message = &message::parse(&bytes).unwrap();
        let forwarded = Forwarded { message, from, to, branch };
        let body = self.relay.request(self.now, &forwarded)?;
        self.pump();
        Ok(msg.with(body))
    }

    pub fn response(&mut self, msg: &Msg, from: Leg, to: Leg, branch: Option<u64>) -> Msg {
        let bytes = msg.bytes();
        let message = &message::parse(&bytes).unwrap();
        let forwarded = Forwarded { message, from, to, branch };
        let body = self.relay.response(self.now, &forwarded);
        self.pump();
        msg.with(body)
    }
}

/// A message, as far as a relay reads it.
#[derive(Clone, Debug)]
pub struct Msg {
    pub status: u16,
    pub method: &'static str,
    pub call: String,
    pub from: String,
    pub to: String,
    pub cseq: u32,
    pub kind: &'static str,
    pub body: String,
    /// Whether a relay has rewritten the body.
    pub rewritten: bool,
}

pub fn request(method: &'static str, cseq: u32) -> Msg {
    Msg {
        status: 0,
        method,
        call: "call-1".into(),
        from: "alice".into(),
        to: String::new(),
        cseq,
        kind: "application/sdp",
        body: String::new(),
        rewritten: false,
    }
}

impl Msg {
    pub fn to(self, tag: &str) -> Msg {
        Msg { to: tag.into(), ..self }
    }

    pub fn call(self, call: impl Into<String>) -> Msg {
        Msg { call: call.into(), ..self }
    }

    /// Sent by the callee.
    pub fn backwards(self) -> Msg {
        Msg { from: self.to, to: self.from, ..self }
    }

    pub fn body(self, body: impl Into<String>) -> Msg {
        Msg { body: body.into(), ..self }
    }

    /// The response to it.
    pub fn answer(&self, status: u16, tag: &str) -> Msg {
        let to = if self.to.is_empty() { tag.into() } else { self.to.clone() };
        Msg { status, to, body: String::new(), rewritten: false, ..self.clone() }
    }

    fn with(&self, body: Option<Vec<u8>>) -> Msg {
        let rewritten = body.is_some();
        let body = body.map_or(self.body.clone(), |body| String::from_utf8(body).unwrap());
        Msg { body, rewritten, ..self.clone() }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let Msg { method, call, from, cseq, kind, body, .. } = self;
        let start = match self.status {
            0 => format!("{method} sip:bob@mesh SIP/2.0"),
            status => format!("SIP/2.0 {status} X"),
        };
        let to = if self.to.is_empty() { String::new() } else { format!(";tag={}", self.to) };
        let kind =
            if body.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
        format!(
            "{start}\r\nFrom: <sip:alice@mesh>;tag={from}\r\nTo: <sip:bob@mesh>{to}\r\nCall-ID: {call}\r\n\
             CSeq: {cseq} {method}\r\n{kind}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    /// Returns the address of a stream of its description.
    pub fn media(&self, index: usize) -> SocketAddr {
        let session = Session::parse(self.body.as_bytes()).unwrap();
        let media = &session.media[index];
        SocketAddr::new(session.connection(media).unwrap().ip().unwrap(), media.port)
    }
}

/// A description of one audio stream.
pub fn sdp(address: &str) -> String {
    sdp_of(&[address])
}

/// A description of audio streams.
pub fn sdp_of(addresses: &[&str]) -> String {
    let first = addr(addresses[0]).ip();
    let kind = |ip: IpAddr| if ip.is_ipv4() { "IP4" } else { "IP6" };
    let mut text = format!("v=0\r\no=- 1 1 IN {} {first}\r\ns=-\r\nt=0 0\r\n", kind(first));
    for address in addresses {
        let address = addr(address);
        text += &format!(
            "m=audio {} RTP/AVP 0\r\nc=IN {} {}\r\n",
            address.port(),
            kind(address.ip()),
            address.ip()
        );
    }
    text
}

pub const PHONE: &str = "10.50.60.7";
pub const OTHER_PHONE: &str = "10.50.60.8";
pub const LAN: &str = "10.50.60.1";
pub const A: &str = "fd0a::1";
pub const B: &str = "fd0b::1";

/// A path of routers, from the caller's side to the callee's.
pub struct Path {
    pub hops: Vec<(Router, Leg, Leg)>,
    pub branch: u64,
}

impl Path {
    /// An IPv4 phone behind A, and another IPv4 phone with the same address behind B.
    pub fn of_two() -> Path {
        let a = (Router::in_mesh(A), leg(LAN, PHONE), leg(A, B));
        let b = (Router::in_mesh(B), leg(B, A), leg(LAN, PHONE));
        Path { hops: vec![a, b], branch: 77 }
    }

    /// An IPv4 phone behind A, and an IPv6 phone elsewhere in the mesh whose router has nothing to relay.
    pub fn of_one() -> Path {
        let a = (Router::in_mesh(A), leg(LAN, PHONE), leg(A, B));
        let b = (Router::in_mesh(B), leg(B, A), leg(B, "fd0b::77"));
        Path { hops: vec![a, b], branch: 77 }
    }

    pub fn router(&mut self, index: usize) -> &mut Router {
        &mut self.hops[index].0
    }

    pub fn try_request(&mut self, msg: Msg) -> Result<Msg, Refusal> {
        let branch = msg.to.is_empty().then_some(self.branch);
        self.hops
            .iter_mut()
            .try_fold(msg, |msg, (router, from, to)| router.request(&msg, *from, *to, branch))
    }

    /// Sends a request of the caller to the callee. Returns it as it arrives.
    pub fn request(&mut self, msg: Msg) -> Msg {
        self.try_request(msg).unwrap()
    }

    /// Sends a response of the callee to the caller.
    pub fn response(&mut self, msg: Msg) -> Msg {
        let branch = (msg.method == "INVITE").then_some(self.branch);
        self.hops
            .iter_mut()
            .rev()
            .fold(msg, |msg, (router, to, from)| router.response(&msg, *from, *to, branch))
    }

    /// Sends a request of the callee to the caller.
    pub fn request_back(&mut self, msg: Msg) -> Msg {
        self.hops
            .iter_mut()
            .rev()
            .fold(msg, |msg, (router, to, from)| router.request(&msg, *from, *to, None).unwrap())
    }

    /// Sends a response of the caller to the callee.
    pub fn response_back(&mut self, msg: Msg) -> Msg {
        self.hops
            .iter_mut()
            .fold(msg, |msg, (router, from, to)| router.response(&msg, *from, *to, None))
    }

    /// Sets up a call with these descriptions. Returns the offer and the answer as they arrive.
    pub fn call(&mut self, offer: &str, answer: &str) -> (Msg, Msg) {
        let invite = request("INVITE", 1).body(offer);
        let offer = self.request(invite.clone());
        let answer = self.response(invite.answer(200, "bob").body(answer));
        self.request(request("ACK", 1).to("bob"));
        (offer, answer)
    }

    /// Sends a packet from the side of the caller or of the callee. Returns the destination, and the source there.
    pub fn packet(
        &mut self,
        from_caller: bool,
        source: SocketAddr,
        to: SocketAddr,
    ) -> Option<(SocketAddr, SocketAddr)> {
        let mut packet = (source, to);
        let mut order: Vec<_> = (0..self.hops.len()).collect();
        if !from_caller {
            order.reverse();
        }
        for index in order {
            let (router, from, to) = &mut self.hops[index];
            let side = if from_caller { from } else { to };
            // A router that is not addressed only routes.
            if packet.1.ip() == side.local {
                packet = router.packet(packet.0, packet.1)?;
            }
        }
        Some((packet.1, packet.0))
    }

    pub fn wait(&mut self, time: Duration) {
        self.hops.iter_mut().for_each(|(router, ..)| router.wait(time));
    }

    /// Checks that nothing is held any more once ports have rested.
    pub fn check_empty(&mut self) {
        self.wait(Duration::from_secs(31));
        for (router, ..) in &mut self.hops {
            let tables = router.relay.tables();
            assert_eq!((tables.sessions, tables.streams, tables.charged), (0, 0, 0));
            assert!(router.forwarder.is_empty());
        }
    }
}
