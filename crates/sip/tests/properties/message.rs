//! Parsing, checking and answering.

use crate::mutated;
use proptest::prelude::*;
use ringway_sansio::{Flow, FlowId, Transport};
use ringway_sip::digest::{Algorithm, Answer, Challenge, Credentials, Ha1, authorize, verify};
use ringway_sip::header::{HeaderId, NameAddr, Via};
use ringway_sip::message::{Message, parse};
use ringway_sip::{Uri, limits, write};

fn flow() -> Flow {
    Flow {
        id: FlowId::new(0, 0),
        transport: Transport::Udp,
        local: "192.0.2.1:5060".parse().unwrap(),
        remote: "192.0.2.9:7".parse().unwrap(),
    }
}

/// Looks at everything a message has: nothing may panic, and what the views say must fit.
fn look(m: &Message<'_>) {
    // The slots cover the header section exactly, in order, octet for octet.
    let mut at = m.start_line().len();
    for slot in m.headers().iter().take(limits::MAX_HEADERS) {
        let line = m.line(slot);
        assert_eq!(&m.bytes()[at..at + line.len()], line);
        assert!(line.ends_with(b"\n"));
        assert!(line.starts_with(m.name(slot)));
        assert!(line.len() >= m.name(slot).len() + m.value(slot).len());
        assert_eq!(HeaderId::of(m.name(slot)), slot.id);
        at += line.len();
    }
    if m.check().is_ok() {
        assert!(m.bytes()[at..].starts_with(b"\r\n"));
        assert_eq!(&m.bytes()[at + 2..at + 2 + m.body().len()], m.body());
        m.top_via().unwrap();
        m.cseq().unwrap();
        Uri::parse(m.from().unwrap().uri).unwrap();
        Uri::parse(m.to().unwrap().uri).unwrap();
        m.max_forwards().unwrap();
        assert!(!m.call_id().is_empty());
        for id in [HeaderId::Route, HeaderId::RecordRoute, HeaderId::Path] {
            assert!(m.items(id).all(|item| NameAddr::parse(item).is_ok()));
        }
        assert!(m.items(HeaderId::Via).all(|item| Via::parse(item).is_ok()));
    }
    for slot in m.headers() {
        let value = m.value(slot);
        let _ = NameAddr::parse(value)
            .map(|a| (a.tag(), a.params().count(), Uri::parse(a.uri).is_ok()));
        let _ = Via::parse(value).map(|v| (v.transport(), v.has_cookie(), v.param(b"ttl")));
        let _ = ringway_sip::CSeq::parse(value);
        let _ = Credentials::parse(value).map(|c| (c.count(), c.user().len()));
        let _ = Challenge::parse(value);
        let _ = Uri::parse(value).map(|u| (u.host_ip(), u.params().count(), u.equivalent(&u)));
        assert!(m.items(slot.id).count() >= m.all(slot.id).filter(|v| !v.is_empty()).count());
    }
}

/// A response by the plain rules of RFC 3261 section 8.2.6, after `before`.
fn response(
    request: &Message<'_>,
    source: Option<&Flow>,
    status: u16,
    tag: Option<&[u8]>,
) -> Vec<u8> {
    let mut buf = b"before".to_vec();
    write::status_line(&mut buf, status, write::reason_phrase(status));
    for (i, value) in request.all(HeaderId::Via).enumerate() {
        buf.extend_from_slice(b"Via: ");
        match (source, request.top_via()) {
            (Some(flow), Ok(via)) if i == 0 => {
                write::via_element(&mut buf, &via, flow.remote);
                let at = via.element.as_ptr() as usize - value.as_ptr() as usize;
                write::unfolded(&mut buf, &value[at + via.element.len()..]);
            }
            _ => write::unfolded(&mut buf, value),
        }
        buf.extend_from_slice(b"\r\n");
    }
    let mut ids = vec![HeaderId::From, HeaderId::To, HeaderId::CallId, HeaderId::CSeq];
    ids.extend((status == 100).then_some(HeaderId::Timestamp));
    for id in ids {
        let Some(value) = request.first(id) else { continue };
        buf.extend_from_slice(format!("{}: ", id.name()).as_bytes());
        write::unfolded(&mut buf, value);
        if id == HeaderId::To
            && let Some(tag) = tag
            && request.to().is_ok_and(|to| to.tag().is_none())
        {
            buf.extend_from_slice(&[b";tag=", tag].concat());
        }
        buf.extend_from_slice(b"\r\n");
    }
    buf.extend_from_slice(b"X: y\r\nContent-Length: 4\r\n\r\nbody");
    buf
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_octets_are_parsed_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(m) = parse(&bytes) {
            look(&m);
        }
    }

    #[test]
    fn real_messages_are_parsed_without_harm(bytes in mutated()) {
        if let Ok(m) = parse(&bytes) {
            look(&m);
        }
    }

    /// RFC 3261 section 8.2.6: whatever can be parsed can be answered; the answer to what passes
    /// the check passes it too, with the Vias, Call-ID and CSeq of the request.
    #[test]
    fn whatever_parses_can_be_answered(bytes in mutated()) {
        let Ok(request) = parse(&bytes) else { return Ok(()) };
        let mut buf = Vec::new();
        write::response(&mut buf, &request, Some(&flow()), 400, "", Some(b"t"), b"", b"");
        let answer = parse(&buf);
        prop_assert!(answer.is_ok(), "{}", String::from_utf8_lossy(&buf));
        if request.check().is_ok() {
            let answer = answer.unwrap();
            prop_assert_eq!(answer.check(), Ok(()), "{}", String::from_utf8_lossy(&buf));
            prop_assert_eq!(answer.call_id(), request.call_id());
            prop_assert_eq!(answer.cseq().unwrap(), request.cseq().unwrap());
            prop_assert_eq!(answer.items(HeaderId::Via).count(), request.items(HeaderId::Via).count());
            prop_assert!(answer.to().unwrap().tag().is_some());
            let (asked, told) = (request.top_via().unwrap(), answer.top_via().unwrap());
            prop_assert_eq!((asked.host, asked.port, asked.branch), (told.host, told.port, told.branch));
            if asked.rport.is_some() {
                prop_assert_eq!((told.rport, told.received), (Some(Some(7)), Some(&b"192.0.2.9"[..])));
            }
        }
    }

    /// What is copied line by line is what is written piece by piece.
    #[test]
    fn a_response_is_what_its_pieces_say(bytes in mutated(), tag: bool, source: bool, status in 100u16..103) {
        let Ok(request) = parse(&bytes) else { return Ok(()) };
        let (tag, flow) = (tag.then_some(&b"t"[..]), source.then(flow));
        let mut buf = b"before".to_vec();
        write::response(&mut buf, &request, flow.as_ref(), status, "", tag, b"X: y\r\n", b"body");
        let expected = response(&request, flow.as_ref(), status, tag);
        prop_assert_eq!(String::from_utf8_lossy(&buf), String::from_utf8_lossy(&expected));
    }

    /// RFC 7616: what a client proves, the server believes, and nothing else.
    #[test]
    fn digest_round_trip(
        user in "[ -~]{1,20}", realm in "[ -~]{1,20}", password in "\\PC{0,20}", nonce in "[a-zA-Z0-9+/=]{1,40}",
        uri in "sip:[a-z]{1,10}", body in prop::collection::vec(any::<u8>(), 0..100),
        count in 1u32.., algorithm in prop::sample::select(Algorithm::ALL.to_vec()), qop in 0u8..4,
    ) {
        let qop = match (qop, algorithm) {
            (0, Algorithm::Md5) => String::new(),
            (1, _) => ", qop=\"auth-int\"".to_owned(),
            (2, _) => ", qop=\"auth-int, auth\"".to_owned(),
            _ => ", qop=auth".to_owned(),
        };
        let mut quoted = Vec::new();
        write::quoted(&mut quoted, realm.as_bytes());
        let value = format!(
            "Digest realm={}, nonce=\"{nonce}\", algorithm={}{qop}, opaque=\"\"",
            String::from_utf8(quoted).unwrap(), algorithm.name()
        );
        let challenge = Challenge::parse(value.as_bytes()).unwrap();
        prop_assert!(challenge.is_for(realm.as_bytes()));
        let answer = Answer {
            user: user.as_bytes(), password: password.as_bytes(), method: b"INVITE",
            uri: uri.as_bytes(), body: &body, count, cnonce: b"c0ffee",
        };
        let mut line = Vec::new();
        prop_assert!(authorize(&mut line, "Authorization", &challenge, &answer));
        let value = line.strip_prefix(b"Authorization: ").unwrap().strip_suffix(b"\r\n").unwrap();
        let c = Credentials::parse(value).unwrap();
        prop_assert_eq!(&*c.user(), user.as_bytes());
        let ha1 = Ha1::new(algorithm, user.as_bytes(), realm.as_bytes(), password.as_bytes());
        prop_assert!(verify(&c, b"INVITE", &body, &ha1));
        prop_assert!(!verify(&c, b"BYE", &body, &ha1));
        let other = Ha1::new(algorithm, user.as_bytes(), realm.as_bytes(), b"\x00");
        prop_assert!(!verify(&c, b"INVITE", &body, &other));
    }
}
