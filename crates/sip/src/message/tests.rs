use super::*;
use crate::limits::*;

const INVITE: &str = "INVITE sip:bob@biloxi.com SIP/2.0\r\n\
    Via: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bKnashds8\r\n\
    Max-Forwards: 70\r\n\
    To: Bob <sip:bob@biloxi.com>\r\n\
    From: Alice <sip:alice@atlanta.com>;tag=1928301774\r\n\
    Call-ID: a84b4c76e66710\r\n\
    CSeq: 314159 INVITE\r\n\
    Contact: <sip:alice@pc33.atlanta.com>\r\n\
    Content-Type: application/sdp\r\n\
    Content-Length: 4\r\n\
    \r\n\
    v=0\nrest";

fn faults(text: impl AsRef<[u8]>) -> Malformed {
    parse(text.as_ref()).unwrap().check().unwrap_err()
}

/// Returns the message with one line exchanged for another.
fn with(line: &str, other: &str) -> String {
    assert!(INVITE.contains(line));
    INVITE.replacen(line, other, 1)
}

/// RFC 3261 section 24.2, message F1.
#[test]
fn an_invite_in_its_parts() {
    let m = parse(INVITE.as_bytes()).unwrap();
    m.check().unwrap();
    assert!(m.is_request());
    assert_eq!((m.method(), m.status()), (Method::Invite, 0));
    assert_eq!(m.request_uri(), b"sip:bob@biloxi.com");
    assert_eq!(m.start_line(), b"INVITE sip:bob@biloxi.com SIP/2.0\r\n");
    assert_eq!(m.top_via().unwrap().branch, b"z9hG4bKnashds8");
    assert_eq!(m.from().unwrap().tag(), Some(&b"1928301774"[..]));
    assert_eq!(m.to().unwrap().tag(), None);
    assert_eq!(m.call_id(), b"a84b4c76e66710");
    assert_eq!(m.cseq().unwrap().seq, 314159);
    assert_eq!(m.max_forwards().unwrap(), Some(70));
    assert_eq!(m.headers().len(), 9);
    // RFC 3261 section 18.3: what follows the body in a datagram is not of the message.
    assert_eq!(m.body(), b"v=0\n");
    assert_eq!(m.bytes().len() - m.whole().len(), 4);
}

/// A view that is kept is the view that was made.
#[test]
fn views_are_the_same_the_second_time() {
    let other = "Via: SIP/2.0/TCP [2001:db8::1]:5070;received=1.2.3.4;rport=7;maddr=x;branch=z9;q , \
        SIP/2.0/UDP y\r\nX-Via: ";
    for text in [with("Via: ", other), with(";tag=1928301774", ";tag"), INVITE.to_owned()] {
        let m = parse(text.as_bytes()).unwrap();
        for view in [Message::from, Message::to] {
            let first = view(&m).unwrap();
            assert_eq!(view(&m), Ok(first));
            assert_eq!(NameAddr::parse(first.element), Ok(first));
        }
        let first = m.top_via().unwrap();
        assert_eq!(m.top_via(), Ok(first));
        assert_eq!(Via::parse(first.element), Ok(first));
    }
}

/// RFC 3261 section 24.2, message F8.
#[test]
fn a_response_in_its_parts() {
    let m = parse(
        b"\r\n\r\nSIP/2.0 180 Ringing \xc3\xa9\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1, SIP/2.0/UDP b\r\n\
        v:SIP/2.0/UDP c\r\nTo: <sip:b@b>;tag=1\r\nFrom: <sip:a@a>;tag=2\r\nCall-ID: x\r\n\
        CSeq: 1 INVITE\r\n\r\n",
    )
    .unwrap();
    m.check().unwrap();
    assert_eq!(m.start(), Start::Response { status: 180, reason: b"Ringing \xc3\xa9" });
    assert_eq!((m.status(), m.method(), m.request_uri()), (180, Method::Invite, &b""[..]));
    let hosts: Vec<_> = m.items(HeaderId::Via).map(|v| Via::parse(v).unwrap().host).collect();
    assert_eq!(hosts, [b"a", b"b", b"c"]);
    assert_eq!(m.all(HeaderId::Via).count(), 2);
    assert_eq!(m.body(), b"");
    assert!(m.bytes().starts_with(b"SIP/2.0"));
}

/// RFC 3261 section 7.3.1: folds, any case, compact forms, unknown fields octet for octet.
#[test]
fn header_fields_keep_their_octets() {
    let text = b"OPTIONS sip:b SIP/2.0\r\nX-Odd  :\t;;,\r\n\tmore  \r\ns :\r\nSUBJECT:a:b\r\nx-oDD:2\r\n\r\n";
    let m = parse(text).unwrap();
    let [odd, empty, subject, again] = m.headers() else { panic!("four header fields") };
    assert_eq!((odd.id, empty.id), (HeaderId::Other, HeaderId::Subject));
    assert_eq!(m.line(odd), b"X-Odd  :\t;;,\r\n\tmore  \r\n");
    assert_eq!((m.name(odd), m.value(odd)), (&b"X-Odd"[..], &b";;,\r\n\tmore"[..]));
    assert_eq!((m.name(empty), m.value(empty)), (&b"s"[..], &b""[..]));
    assert_eq!(m.value(subject), b"a:b");
    assert_eq!(m.line(again), b"x-oDD:2\r\n");
    assert_eq!(m.named(b"x-odd").count(), 2);
    assert_eq!(m.named(b"subject").count(), 2);
    let lines: Vec<u8> = m.headers().iter().flat_map(|s| m.line(s)).copied().collect();
    assert_eq!([m.start_line(), &lines, b"\r\n"].concat(), text);
}

#[test]
fn what_is_not_sip_is_refused() {
    for not in [
        &b""[..],
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"INVITE sip:a@b\r\n\r\n",
        b"INVITE\r\n\r\n",
        b"INVITE \r\n\r\n",
        b"INVITE\t \r\n\r\n",
        b" INVITE sip:a@b SIP/2.0\r\n\r\n",
        b"INVITE sip:a@b SIP/2.0",
        b"SIP/2.0 4294967301 x\r\n\r\n",
        b"SIP/2.0 99 x\r\n\r\n",
        b"SIP/2.0 700 x\r\n\r\n",
        b"SIP/2.0 20 x\r\n\r\n",
        b"SIP/2.0\r\n\r\n",
        b"\x00\x01\x00\x00",
    ] {
        assert!(parse(not).is_err(), "{not:?}");
    }
    let long = [INVITE.as_bytes(), &vec![b'x'; MAX_MESSAGE]].concat();
    assert_eq!(parse(&long).unwrap_err().status, 513);
}

/// RFC 3261 section 7.1, section 21.5.6.
#[test]
fn start_lines_with_faults_still_parse() {
    for (line, status) in [
        ("INVITE sip:bob@biloxi.com SIP/3.0", 505),
        ("INVITE sip:bob@biloxi.com SIP/2.0.1", 400),
        ("INVITE sip:bob@biloxi.com SIP/x", 400),
        ("INVITE sip:bob@biloxi.com SIP/2.0 ", 400),
        ("INVITE  sip:bob@biloxi.com SIP/2.0", 400),
        ("INVITE sip:bob@biloxi.com  SIP/2.0", 400),
        ("INVITE\tsip:bob@biloxi.com SIP/2.0", 400),
        ("INVITE SIP/2.0", 400),
        ("INVITE <sip:bob@biloxi.com> SIP/2.0", 400),
        ("INVITE sip:bob@biloxi.com?a=b SIP/2.0", 400),
        ("INVITE sip:bob @biloxi.com SIP/2.0", 400),
    ] {
        assert_eq!(
            faults(with("INVITE sip:bob@biloxi.com SIP/2.0", line)).status,
            status,
            "{line}"
        );
    }
    parse(with("SIP/2.0\r", "sip/2.0\r").as_bytes()).unwrap().check().unwrap();
}

#[test]
fn every_mandatory_field_is_missed() {
    for name in ["Via", "To", "From", "Call-ID", "CSeq"] {
        let fault = faults(with(&format!("\r\n{name}:"), "\r\nX-Was:"));
        assert_eq!((fault.status, fault.got), (400, Got::Missing), "{name}");
        assert!(fault.reason.starts_with(name), "{fault}");
    }
}

#[test]
fn faults_say_what_and_where() {
    let text = with("CSeq: 314159", "CSeq: x");
    let fault = faults(&text);
    assert_eq!(fault.at, text.find("x INVITE").unwrap());
    assert!(fault.to_string().starts_with("CSeq: expected a sequence number, got 'x' at octet"));
}

#[test]
fn fields_with_faults_are_refused() {
    for (line, other) in [
        ("CSeq: 314159 INVITE", "CSeq: 314159 BYE"),
        ("CSeq: 314159 INVITE", "CSeq: 2147483648 INVITE"),
        ("Max-Forwards: 70", "Max-Forwards: 256"),
        ("Max-Forwards: 70", "Max-Forwards: x"),
        ("Max-Forwards: 70", "Max-Forwards: 70\r\nMax-Forwards: 70"),
        ("Call-ID: a84b4c76e66710", "Call-ID:"),
        ("Call-ID: a84b4c76e66710", "Call-ID: a b"),
        ("Call-ID: a84b4c76e66710", "Call-ID: a@"),
        ("Call-ID: a84b4c76e66710", "Call-ID: a@b@c"),
        ("Call-ID: a84b4c76e66710", "Call-ID: a\r\ni: b"),
        (";tag=1928301774", ";tag=1;tag=2"),
        (";tag=1928301774", ";tag"),
        (";tag=1928301774", ";tag=\"x\""),
        ("To: Bob <sip:bob@biloxi.com>", "To: Bob <sip:bob@biloxi.com"),
        ("To: Bob <sip:bob@biloxi.com>", "To: Bob < sip:bob@biloxi.com >"),
        ("To: Bob <sip:bob@biloxi.com>", "To:"),
        ("Contact: <sip:alice@pc33.atlanta.com>", "Contact:"),
        ("Contact: <sip:alice@pc33.atlanta.com>", "Contact: <sip:a@b>,,<sip:c@d>"),
        ("Contact: <sip:alice@pc33.atlanta.com>", "Contact: *, <sip:a@b>"),
        ("Contact: ", "Route: sip:a@b\r\nContact: "),
        ("Contact: ", "Route: <sip:a@b>;;\r\nContact: "),
        ("Contact: ", "Record-Route:\r\nContact: "),
        ("Contact: ", "Require: a,,b\r\nContact: "),
        ("Contact: ", "Require: a b\r\nContact: "),
        ("Contact: ", "Min-Expires: soon\r\nContact: "),
        ("Contact: ", "no colon here\r\nContact: "),
        ("Contact: ", ": no name\r\nContact: "),
        ("Contact: ", "b@d: name\r\nContact: "),
        ("Contact: ", "Q: a\0b\r\nContact: "),
        ("Contact: ", "Q: a\x7fb\r\nContact: "),
        ("Contact: ", "Q: a\rb\r\nContact: "),
        ("Contact: ", "Q: a\nContact: "),
        ("application/sdp", "application"),
        ("application/sdp", "application/sdp;;"),
        ("Content-Length: 4", "Content-Length: -4"),
        ("Content-Length: 4", "Content-Length: 0x4"),
        ("Content-Length: 4", "Content-Length:"),
        ("Content-Length: 4", "Content-Length: 9"),
        ("Content-Length: 4", "Content-Length: 4\r\nl: 3"),
        ("Via: SIP/2.0/UDP pc33.atlanta.com", "Via:"),
        ("pc33.atlanta.com;", "pc33.atlanta.com:x;"),
    ] {
        assert_eq!(faults(with(line, other)).status, 400, "{other}");
    }
    let fold_of_nothing = with("SIP/2.0\r\n", "SIP/2.0\r\n ;x\r\n");
    assert_eq!(faults(fold_of_nothing).status, 400);
    let open_end = &INVITE[..INVITE.find("\r\n\r\n").unwrap() + 2];
    assert_eq!(faults(open_end).status, 400);
}

/// RFC 4475 sections 3.1.1.1, 3.1.1.2, 3.1.2.12, 3.4.1: unusual, but to be let pass.
#[test]
fn unusual_fields_pass() {
    for (line, other) in [
        ("Via: SIP", "Via  : SIP"),
        (";branch=z9hG4bKnashds8", ""),
        (";tag=1928301774", ""),
        ("Max-Forwards: 70\r\n", ""),
        ("Max-Forwards: 70", "Max-Forwards: 0068"),
        ("To: Bob", "To: \"BEL:\\\x07 NUL:\\\0 DEL:\\\x7f\""),
        ("To: Bob", "To: \u{411}\u{43e}\u{431}"),
        ("Content-Length: 4\r\n", ""),
        ("Contact: <sip:alice@pc33.atlanta.com>", "m: *"),
        ("Contact: ", "Date: Fri, 01 Jan 2010 16:00:00 EST\r\nContact: "),
        ("Contact: ", "Expires: 1000000000000000000000000\r\nContact: "),
        ("Contact: ", "Supported:\r\nContact: "),
        ("Contact: ", "Q:;;,,;\r\n \t\r\n \u{e9}\"<\r\nContact: "),
    ] {
        let text = with(line, other);
        parse(text.as_bytes()).unwrap().check().unwrap_or_else(|e| panic!("{other}: {e}"));
    }
}

/// Each limit, and the status that answers what is beyond it.
#[test]
fn limits_are_enforced_and_answered() {
    let via = "Via: SIP/2.0/UDP a\r\n";
    for (line, other, status) in [
        ("bob@biloxi.com SIP", format!("{}@b SIP", "b".repeat(MAX_REQUEST_URI)), 414),
        ("INVITE sip", format!("{} sip", "M".repeat(MAX_METHOD + 1)), 400),
        ("To: Bob <", format!("To: Bob <sip:{}@b>;x=<", "b".repeat(MAX_URI)), 400),
        ("Via: ", format!("{}Via: ", via.repeat(MAX_VIAS)), 483),
        ("Contact: ", format!("Contact: {}", "<sip:b>,".repeat(MAX_CONTACTS)), 513),
        ("Contact: ", format!("{}Contact: ", "Route: <sip:b>\r\n".repeat(MAX_ROUTES + 1)), 513),
        ("Contact: ", format!("{}Contact: ", "Q: 1\r\n".repeat(MAX_HEADERS)), 513),
        ("Contact: ", format!("Q: {}\r\nContact: ", "x".repeat(MAX_LINE)), 513),
        (
            "Contact: ",
            format!("{}Contact: ", format!("Q: {}\r\n", "x".repeat(8000)).repeat(5)),
            513,
        ),
        ("Contact: ", format!("Require: a{}\r\nContact: ", ",a".repeat(MAX_TOKENS)), 400),
        ("Contact: ", format!("Server: {}\r\nContact: ", "(".repeat(MAX_NESTING + 1)), 400),
        ("Call-ID: ", format!("Call-ID: {}", "x".repeat(MAX_CALL_ID)), 400),
        (";tag=", format!(";tag={}", "x".repeat(MAX_TAG)), 400),
        (";tag=", format!("{};tag=", ";x".repeat(MAX_PARAMS)), 400),
        ("Content-Length: 4", format!("Content-Length: {}", MAX_BODY + 1), 413),
        ("Content-Length: 4", format!("Content-Length: {}", u128::MAX), 413),
    ] {
        let fault = faults(with(line, &other));
        assert_eq!(fault.status, status, "{fault}");
    }
    // At the limit all is well.
    let vias = with("Via: ", &format!("{}Via: ", via.repeat(MAX_VIAS - 1)));
    parse(vias.as_bytes()).unwrap().check().unwrap();
    let fields = with("Contact: ", &format!("{}Contact: ", "Q: 1\r\n".repeat(MAX_HEADERS - 9)));
    let m = parse(fields.as_bytes()).unwrap();
    assert_eq!(m.headers().len(), MAX_HEADERS);
    m.check().unwrap();
    assert_eq!(m.named(b"q").count(), MAX_HEADERS - 9);
}
