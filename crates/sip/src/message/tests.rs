use super::*;

const INVITE: &[u8] = b"INVITE sip:bob@biloxi.com SIP/2.0\r\n\
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

/// RFC 3261 section 24.2, message F1.
#[test]
fn an_invite_in_its_parts() {
    let m = parse(INVITE).unwrap();
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
