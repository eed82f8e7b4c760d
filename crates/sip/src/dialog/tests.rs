use super::*;
use crate::message::parse;
use crate::write::Request;

const INVITE: &str = "INVITE sip:bob@biloxi.com SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\n\
    Record-Route: <sip:p2;lr>, <sip:p1;lr;x=y>;z\r\nMax-Forwards: 70\r\n\
    From: Alice <sip:alice@atlanta.com>;tag=at\r\nTo: Bob <sip:bob@biloxi.com>\r\nCall-ID: c\r\n\
    CSeq: 314159 INVITE\r\nContact: <sip:alice@pc33.atlanta.com>\r\nContent-Length: 0\r\n\r\n";

fn response(status: u16, tag: &str, method: &str, more: &str) -> String {
    format!(
        "SIP/2.0 {status} x\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\n{more}\
        From: Alice <sip:alice@atlanta.com>;tag=at\r\nTo: Bob <sip:bob@biloxi.com>{tag}\r\n\
        Call-ID: c\r\nCSeq: 314159 {method}\r\nContent-Length: 0\r\n\r\n"
    )
}

const ROUTES: &str = "Record-Route: <sip:p2;lr>\r\nRecord-Route: <sip:p1;lr>\r\n";

fn request(dialog: &mut Dialog, method: Method<'_>) -> String {
    let mut buf = Vec::new();
    let via = b"SIP/2.0/UDP h;branch=z9hG4bKn";
    Request { via, ..dialog.request(method).unwrap() }.emit(&mut buf);
    parse(&buf).unwrap().check().unwrap();
    String::from_utf8(buf).unwrap()
}

/// RFC 3261 section 12.1.1 and section 12.2.1.1, from the side that was called.
#[test]
fn the_called_side() {
    let invite = parse(INVITE.as_bytes()).unwrap();
    let mut dialog = Dialog::new_uas(&invite, 180, b"bt", false).unwrap();
    assert_eq!(dialog.state(), State::Early);
    dialog.answered(200);
    assert_eq!(dialog.state(), State::Confirmed);
    assert_eq!((dialog.local_cseq(), dialog.remote_cseq()), (None, Some(314159)));
    assert_eq!(dialog.ack(1).next_hop(), b"sip:p2;lr");
    assert_eq!(
        request(&mut dialog, Method::Bye),
        "BYE sip:alice@pc33.atlanta.com SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKn\r\n\
        Route: <sip:p2;lr>\r\nRoute: <sip:p1;lr;x=y>;z\r\nMax-Forwards: 70\r\n\
        From: <sip:bob@biloxi.com>;tag=bt\r\nTo: <sip:alice@atlanta.com>;tag=at\r\n\
        Call-ID: c\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n"
    );
    assert!(request(&mut dialog, Method::Options).contains("CSeq: 2 OPTIONS\r\n"));
    let mut routes = Vec::new();
    record_routes(&mut routes, &invite);
    assert_eq!(routes, b"Record-Route: <sip:p2;lr>, <sip:p1;lr;x=y>;z\r\n");
}

/// RFC 3261 section 12.1.2: the route set is reversed; section 13.2.2.4: the ACK.
#[test]
fn the_calling_side() {
    let invite = parse(INVITE.as_bytes()).unwrap();
    let text =
        response(200, ";tag=bt", "INVITE", &format!("{ROUTES}Contact: <sip:bob@192.0.2.4>\r\n"));
    let mut dialog = Dialog::new_uac(&invite, &parse(text.as_bytes()).unwrap(), false).unwrap();
    assert_eq!((dialog.local_cseq(), dialog.remote_cseq()), (Some(314159), None));
    let mut ack = Vec::new();
    Request { via: b"SIP/2.0/UDP h;branch=z9hG4bKa", ..dialog.ack(314159) }.emit(&mut ack);
    assert_eq!(
        String::from_utf8(ack).unwrap(),
        "ACK sip:bob@192.0.2.4 SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKa\r\n\
        Route: <sip:p1;lr>\r\nRoute: <sip:p2;lr>\r\nMax-Forwards: 70\r\n\
        From: <sip:alice@atlanta.com>;tag=at\r\nTo: <sip:bob@biloxi.com>;tag=bt\r\nCall-ID: c\r\n\
        CSeq: 314159 ACK\r\nContent-Length: 0\r\n\r\n"
    );
    assert!(request(&mut dialog, Method::Bye).contains("CSeq: 314160 BYE\r\n"));
}

/// The example of RFC 3261 section 12.2.1.1 for a strict router.
#[test]
fn strict_routing() {
    let invite = parse(INVITE.as_bytes()).unwrap();
    let more = "Record-Route: <sip:proxy4>, <sip:proxy3;lr>, <sip:proxy2>, \
        <sip:proxy1;method=BYE;x=y?a=b>\r\nContact: <sip:user@remoteua>\r\n";
    let text = response(200, ";tag=bt", "INVITE", more);
    let mut dialog = Dialog::new_uac(&invite, &parse(text.as_bytes()).unwrap(), false).unwrap();
    let text = request(&mut dialog, Method::Info);
    assert!(text.starts_with("INFO sip:proxy1;x=y SIP/2.0\r\n"), "{text}");
    let routes = "Route: <sip:proxy2>\r\nRoute: <sip:proxy3;lr>\r\nRoute: <sip:proxy4>\r\n\
        Route: <sip:user@remoteua>\r\n";
    assert!(text.contains(routes), "{text}");
    assert_eq!(dialog.ack(1).next_hop(), b"sip:proxy1;method=BYE;x=y?a=b");
}

/// RFC 3261 section 19.1.1, table 1: what a Contact may hold and a Request-URI may not.
#[test]
fn a_contact_with_header_fields() {
    let invite = INVITE.replace("pc33.atlanta.com>", "pc33.atlanta.com;method=X;y?a=b>");
    let invite = parse(invite.as_bytes()).unwrap();
    let mut dialog = Dialog::new_uas(&invite, 200, b"bt", false).unwrap();
    assert!(request(&mut dialog, Method::Bye).starts_with("BYE sip:alice@pc33.atlanta.com;y SIP"));
    let answer = response(200, ";tag=bt", "INVITE", "Contact: <sip:x>\r\n");
    let answer = parse(answer.as_bytes()).unwrap();
    let error = Dialog::new_uas(&answer, 200, b"t", false);
    assert_eq!(error, Err(DialogError::NotEstablishing));
}

/// RFC 3261 section 12.2.2: order of requests, target refresh, end.
#[test]
fn requests_of_the_peer() {
    let invite = parse(INVITE.as_bytes()).unwrap();
    let mut dialog = Dialog::new_uas(&invite, 200, b"bt", false).unwrap();
    let peer = |seq: u32, method: &str, contact: &str| {
        format!(
            "{method} sip:bob@192.0.2.4 SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK{seq}\r\n\
            From: <sip:alice@atlanta.com>;tag=at\r\nTo: <sip:bob@biloxi.com>;tag=bt\r\n\
            Call-ID: c\r\nCSeq: {seq} {method}\r\nContact: <{contact}>\r\n\r\n"
        )
    };
    let mut take = |seq, method, contact: &str, accept: bool| {
        let text = peer(seq, method, contact);
        let message = parse(text.as_bytes()).unwrap();
        dialog.receive(&message).map_err(|e| e.status())?;
        if accept {
            dialog.accept(&message).unwrap();
        }
        Ok::<_, u16>((dialog.remote_target().to_vec(), dialog.state()))
    };
    let old = b"sip:alice@pc33.atlanta.com".to_vec();
    let new = b"sip:new".to_vec();
    assert_eq!(take(314159, "ACK", "sip:x", true), Ok((old.clone(), State::Confirmed)));
    assert_eq!(take(314159, "INFO", "sip:x", true), Err(500));
    assert_eq!(take(314170, "INFO", "sip:x", true), Ok((old.clone(), State::Confirmed)));
    // A refresh that is refused changes nothing but the count.
    assert_eq!(take(314171, "INVITE", "sip:x", false), Ok((old, State::Confirmed)));
    assert_eq!(take(314171, "UPDATE", "sip:x", true), Err(500));
    assert_eq!(take(314172, "UPDATE", "sip:new", true), Ok((new.clone(), State::Confirmed)));
    assert_eq!(take(314173, "BYE", "sip:x", true), Ok((new, State::Terminated)));
    assert_eq!(take(314174, "INFO", "sip:x", true), Err(481));
    let foreign = peer(1, "INFO", "sip:x").replace(";tag=bt", ";tag=other");
    let message = parse(foreign.as_bytes()).unwrap();
    assert_eq!(dialog.receive(&message), Err(DialogError::Foreign));
}

/// RFC 3261 section 13.2.2.4: the 2xx decides the route set anew; section 12.2.1.2.
#[test]
fn responses_of_the_peer() {
    let invite = parse(INVITE.as_bytes()).unwrap();
    let early = response(180, ";tag=bt", "INVITE", "Record-Route: <sip:early;lr>\r\n");
    let mut dialog = Dialog::new_uac(&invite, &parse(early.as_bytes()).unwrap(), false).unwrap();
    assert_eq!(dialog.remote_target(), b"sip:bob@biloxi.com");
    let mut take = |status, method, more: &str| {
        let text = response(status, ";tag=bt", method, more);
        dialog.response(&parse(text.as_bytes()).unwrap()).unwrap();
        let routes: Vec<_> = dialog.route_set().map(<[u8]>::to_vec).collect();
        (dialog.state(), dialog.remote_target().to_vec(), routes.len())
    };
    let contact = "Contact: <sip:one>\r\n";
    assert_eq!(take(183, "INVITE", contact), (State::Early, b"sip:one".to_vec(), 1));
    let confirmed = take(200, "INVITE", &format!("{ROUTES}Contact: <sip:two>\r\n"));
    assert_eq!(confirmed, (State::Confirmed, b"sip:two".to_vec(), 2));
    // Once confirmed, the route set stays as it is (section 12.2).
    assert_eq!(take(200, "INVITE", contact), (State::Confirmed, b"sip:one".to_vec(), 2));
    assert_eq!(take(200, "INFO", "Contact: <sip:x>\r\n").1, b"sip:one");
    assert_eq!(take(500, "INVITE", "").0, State::Confirmed);
    assert_eq!(take(481, "INFO", "").0, State::Terminated);
}

/// RFC 3261 section 13.2.2: several early dialogs, several 2xx, and a failure.
#[test]
fn forked_calls() {
    let invite = parse(INVITE.as_bytes()).unwrap();
    let mut dialogs = Dialogs::new();
    let mut take = |status, tag: &str| {
        let text = response(status, tag, "INVITE", "Contact: <sip:x>\r\n");
        dialogs.response(&invite, &parse(text.as_bytes()).unwrap(), false).unwrap()
    };
    assert_eq!(take(100, ";tag=a"), Effect::None);
    assert_eq!(take(180, ""), Effect::None);
    assert_eq!(take(180, ";tag=a"), Effect::New(0));
    assert_eq!(take(183, ";tag=b"), Effect::New(1));
    assert_eq!(take(200, ";tag=a"), Effect::Known(0));
    assert_eq!(take(200, ";tag=a"), Effect::Known(0));
    assert_eq!(take(200, ";tag=c"), Effect::New(2));
    dialogs.end_early();
    let states: Vec<_> = dialogs.all().iter().map(Dialog::state).collect();
    assert_eq!(states, [State::Confirmed, State::Terminated, State::Confirmed]);

    let mut dialogs = Dialogs::new();
    let mut take = |status, tag: &str| {
        let text = response(status, tag, "INVITE", "Contact: <sip:x>\r\n");
        dialogs.response(&invite, &parse(text.as_bytes()).unwrap(), false).unwrap()
    };
    for i in 0..MAX_FORKS {
        assert_eq!(take(180, &format!(";tag={i}")), Effect::New(i));
    }
    assert_eq!(take(180, ";tag=more"), Effect::TooMany);
    assert_eq!(take(486, ";tag=0"), Effect::Failed);
    assert!(dialogs.all().iter().all(|d| d.state() == State::Terminated));
}

/// RFC 3261 section 12.1: what makes no dialog; null tags of RFC 2543.
#[test]
fn what_makes_a_dialog() {
    let invite = parse(INVITE.as_bytes()).unwrap();
    for status in [100, 300, 486] {
        let error = Dialog::new_uas(&invite, status, b"t", false);
        assert_eq!(error, Err(DialogError::NotEstablishing));
    }
    let options = INVITE.replace("INVITE", "OPTIONS");
    let error = Dialog::new_uas(&parse(options.as_bytes()).unwrap(), 200, b"t", false);
    assert_eq!(error, Err(DialogError::NotEstablishing));
    let bare = INVITE.replace("Contact", "X-Contact");
    let error = Dialog::new_uas(&parse(bare.as_bytes()).unwrap(), 200, b"t", false);
    assert_eq!(error.unwrap_err().status(), 400);
    let open = INVITE.replace(";z", ";z=\"");
    let error = Dialog::new_uas(&parse(open.as_bytes()).unwrap(), 200, b"t", false);
    assert_eq!(error.unwrap_err().status(), 400);
    let old = INVITE.replace(";tag=at", "");
    let mut dialog = Dialog::new_uas(&parse(old.as_bytes()).unwrap(), 200, b"t", false).unwrap();
    assert!(request(&mut dialog, Method::Bye).contains("To: <sip:alice@atlanta.com>\r\n"));
    let secure = INVITE.replace("INVITE sip:", "INVITE sips:");
    let secure = parse(secure.as_bytes()).unwrap();
    assert!(Dialog::new_uas(&secure, 200, b"t", true).unwrap().is_secure());
    assert!(!Dialog::new_uas(&secure, 200, b"t", false).unwrap().is_secure());
}
