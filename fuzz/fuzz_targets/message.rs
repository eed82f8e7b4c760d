//! A datagram: parse, check, every typed view, a response, a dialog, STUN.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_sansio::{Flow, FlowId, Transport};
use ringway_sip::dialog::Dialog;
use ringway_sip::digest::{Algorithm, Challenge, Credentials, Ha1, verify};
use ringway_sip::header::{CSeq, HeaderId, NameAddr, Params, Via};
use ringway_sip::{Method, Uri, message, stun, write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

fuzz_target!(|data: &[u8]| {
    let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5060);
    let mut buf = Vec::new();
    stun::answer(data, remote, &mut buf);
    let Ok(m) = message::parse(data) else { return };

    let mut at = m.start_line().len();
    for slot in m.headers() {
        let (line, value) = (m.line(slot), m.value(slot));
        assert_eq!(&m.bytes()[at..at + line.len()], line);
        assert_eq!(HeaderId::of(m.name(slot)), slot.id);
        at += line.len();
        if let Ok(address) = NameAddr::parse(value) {
            let _ = (address.tag(), address.params().count());
            let _ = Uri::parse(address.uri);
        }
        if let Ok(via) = Via::parse(value) {
            let _ = (via.transport(), via.has_cookie(), via.param(b"ttl"));
        }
        if let Ok(credentials) = Credentials::parse(value) {
            let ha1 = Ha1::new(Algorithm::Md5, &credentials.user(), b"r", b"p");
            verify(&credentials, m.method().as_bytes(), m.body(), &ha1);
        }
        let _ = (CSeq::parse(value), Challenge::parse(value), Params::new(value).count());
        let _ = m.items(slot.id).count();
    }
    let _ = (m.top_via(), m.from(), m.to(), m.cseq(), m.max_forwards(), m.whole());

    let flow = Flow { id: FlowId::new(0, 0), transport: Transport::Udp, local: remote, remote };
    let checked = m.check();
    let status = checked.map_or_else(|fault| fault.status, |()| 200);
    buf.clear();
    write::response(&mut buf, &m, Some(&flow), status, "", Some(b"tag"), b"", b"");
    let answer = message::parse(&buf).expect("what we write can be parsed");
    if checked.is_ok() {
        answer.check().expect("the answer to a good message is good");
        assert_eq!(m.items(HeaderId::Via).count(), answer.items(HeaderId::Via).count());
    }
    if let Ok(mut dialog) = Dialog::new_uas(&m, 200, b"tag", false) {
        let _ = dialog.receive(&m);
        buf.clear();
        if let Ok(bye) = dialog.request(Method::Bye)
            && checked.is_ok()
        {
            write::Request { via: b"SIP/2.0/UDP h;branch=z9hG4bK1", ..bye }.emit(&mut buf);
            let bye = message::parse(&buf).expect("our request can be parsed");
            if bye.bytes().len() < 8000 {
                bye.check().expect("a request in a good dialog is good");
            }
        }
    }
});
