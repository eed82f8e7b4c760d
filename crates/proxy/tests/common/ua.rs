//! What user agents and other proxies around the one under test are and do (RFC 3261 sections 8, 9,
//! 12 and 17.1.1.3), as far as a test needs it.

use super::msg::{Msg, uri_of};
use ringway_sansio::{Flow, FlowId, Transport};
use std::net::SocketAddr;

/// An element the proxy under test talks to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its user name.
    pub name: &'static str,
    pub transport: Transport,
    pub addr: &'static str,
    /// Tells its connection; 0 for datagrams.
    pub serial: u64,
}

const fn peer(name: &'static str, transport: Transport, addr: &'static str, serial: u64) -> Peer {
    Peer { name, transport, addr, serial }
}

pub const ALICE: Peer = peer("alice", Transport::Udp, "198.51.100.1:5060", 0);
pub const BOB: Peer = peer("bob", Transport::Udp, "203.0.113.2:5060", 0);
/// Further phones of bob's.
pub const BOB2: Peer = peer("bob2", Transport::Udp, "203.0.113.3:5060", 0);
pub const BOB3: Peer = peer("bob3", Transport::Udp, "203.0.113.4:5060", 0);
/// Another proxy or a gateway.
pub const PROXY: Peer = peer("proxy", Transport::Udp, "192.0.2.50:5060", 0);
/// Other routers of the mesh, and a host behind the first.
pub const ROUTER: Peer = peer("router", Transport::Udp, "[fd02::1]:5060", 0);
pub const ROUTER2: Peer = peer("router2", Transport::Udp, "[fd03::1]:5060", 0);
pub const MESH_HOST: Peer = peer("host", Transport::Udp, "[fd02::5]:5060", 0);
pub const GATEWAY: Peer = peer("gateway", Transport::Udp, "192.0.2.60:5060", 0);
pub const GATEWAY2: Peer = peer("gateway2", Transport::Udp, "192.0.2.61:5060", 0);
/// Phones with connections they opened; their listening port is another.
pub const CAROL_TCP: Peer = peer("carol", Transport::Tcp, "198.51.100.30:40001", 30);
pub const DAVE_TCP: Peer = peer("dave", Transport::Tcp, "203.0.113.31:40002", 31);
/// A gateway, and a phone, with associations they opened.
pub const GATEWAY_SCTP: Peer = peer("trunk", Transport::Sctp, "192.0.2.70:5060", 70);
pub const GRACE_SCTP: Peer = peer("grace", Transport::Sctp, "203.0.113.71:49152", 71);
pub const HEIDI_TLS_SCTP: Peer = peer("heidi", Transport::TlsSctp, "203.0.113.72:49153", 72);
pub const ERIN_WS: Peer = peer("erin", Transport::Ws, "198.51.100.40:50001", 40);
pub const FRANK_TLS: Peer = peer("frank", Transport::Tls, "198.51.100.41:50002", 41);

impl Peer {
    pub fn remote(&self) -> SocketAddr {
        self.addr.parse().unwrap()
    }

    /// The address of the proxy under test that this peer talks to.
    pub fn local(&self) -> SocketAddr {
        super::local(self.transport, self.remote())
    }

    /// The flow as the proxy's worker sees it.
    pub fn flow(&self, worker: u8) -> Flow {
        Flow {
            id: FlowId::new(worker, self.serial),
            transport: self.transport,
            local: self.local(),
            remote: self.remote(),
        }
    }

    /// The same host on another port.
    pub const fn at(self, addr: &'static str) -> Peer {
        Peer { addr, ..self }
    }

    /// Returns the same host as the peer of a TCP connection that the proxy opens.
    pub const fn listening_tcp(self) -> Peer {
        Peer { transport: Transport::Tcp, ..self }
    }

    /// Its Contact URI.
    pub fn contact(&self) -> String {
        let transport = match self.transport {
            Transport::Udp => String::new(),
            other => format!(";transport={}", other.uri()),
        };
        format!("sip:{}@{}{transport}", self.name, self.addr)
    }
}

/// A response to `request` as a UAS makes it (RFC 3261 section 8.2.6).
pub fn response(me: Peer, request: &Msg, status: u16) -> Msg {
    let reason = ringway_sip::write::reason_phrase(status);
    let mut headers = Vec::new();
    let dialog = (101..300).contains(&status) && request.method() != "BYE";
    for (name, value) in &request.headers {
        let copied = ["via", "from", "to", "call-id", "cseq"];
        let lower = name.to_ascii_lowercase();
        if copied.contains(&lower.as_str()) || dialog && lower == "record-route" {
            headers.push((name.clone(), value.clone()));
        }
    }
    let mut msg = Msg { start: format!("SIP/2.0 {status} {reason}"), headers, body: String::new() };
    if status > 100 && msg.tag("To").is_none() {
        let to = format!("{};tag=to-{}", msg.get("To"), me.name);
        msg = msg.set("To", to);
    }
    if dialog { msg.add("Contact", format!("<{}>", me.contact())) } else { msg }
}

/// The ACK for a 300-699 (RFC 3261 section 17.1.1.3).
pub fn ack(invite: &Msg, answer: &Msg) -> Msg {
    follow(invite, "ACK").set("To", answer.get("To"))
}

/// The CANCEL (RFC 3261 section 9.1).
pub fn cancel(invite: &Msg) -> Msg {
    follow(invite, "CANCEL")
}

fn follow(invite: &Msg, method: &str) -> Msg {
    let mut msg = Msg {
        start: format!("{method} {} SIP/2.0", invite.uri()),
        headers: vec![("Via".into(), invite.all("Via")[0].clone())],
        body: String::new(),
    };
    for name in ["Route", "From", "To", "Call-ID"] {
        for value in invite.all(name) {
            msg = msg.add(name, value);
        }
    }
    let number = invite.get("CSeq").split(' ').next().unwrap();
    msg.add("CSeq", format!("{number} {method}")).add("Max-Forwards", "70")
}

/// One side's view of a dialog (RFC 3261 section 12).
#[derive(Clone, Debug)]
pub struct Dialog {
    pub me: Peer,
    pub route: Vec<String>,
    pub target: String,
    pub local: String,
    pub remote: String,
    pub call_id: String,
    pub cseq: u32,
}

impl Dialog {
    /// The caller's, from the INVITE it sent and the 2xx or 1xx it got (section 12.1.2).
    pub fn of_caller(me: Peer, invite: &Msg, answer: &Msg) -> Dialog {
        let mut route = answer.all("Record-Route");
        route.reverse();
        Dialog {
            me,
            route,
            target: answer.uris("Contact")[0].clone(),
            local: answer.get("From").into(),
            remote: answer.get("To").into(),
            call_id: invite.get("Call-ID").into(),
            cseq: 1,
        }
    }

    /// The callee's, from the INVITE it got and the response it sent (section 12.1.1).
    pub fn of_callee(me: Peer, invite: &Msg, answer: &Msg) -> Dialog {
        Dialog {
            me,
            route: invite.all("Record-Route"),
            target: invite.uris("Contact")[0].clone(),
            local: answer.get("To").into(),
            remote: answer.get("From").into(),
            call_id: invite.get("Call-ID").into(),
            cseq: 1,
        }
    }

    /// A request within the dialog (section 12.2.1.1); `branch` makes it a transaction of its own.
    /// The ACK of the INVITE has the INVITE's number.
    pub fn request(&mut self, method: &str, branch: &str) -> Msg {
        if method != "ACK" {
            self.cseq += 1;
        }
        let mut route = self.route.clone();
        let mut uri = self.target.clone();
        if route.first().is_some_and(|r| !uri_of(r).contains(";lr")) {
            // The first proxy is a strict router.
            uri = uri_of(&route.remove(0)).to_string();
            route.push(format!("<{}>", self.target));
        }
        let mut msg = Msg {
            start: format!("{method} {uri} SIP/2.0"),
            headers: vec![("Via".into(), via(self.me, branch))],
            body: String::new(),
        };
        for value in route {
            msg = msg.add("Route", value);
        }
        msg.add("From", &self.local)
            .add("To", &self.remote)
            .add("Call-ID", &self.call_id)
            .add("CSeq", format!("{} {method}", self.cseq))
            .add("Contact", format!("<{}>", self.me.contact()))
            .add("Max-Forwards", "70")
    }
}

/// A Via header field value of this peer's.
pub fn via(me: Peer, branch: &str) -> String {
    format!("SIP/2.0/{} {};branch={branch}", me.transport.via(), me.addr)
}
