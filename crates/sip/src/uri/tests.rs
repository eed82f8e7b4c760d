use super::*;

fn parse(text: &str) -> Uri<'_> {
    Uri::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The examples of RFC 3261 section 19.1.3.
#[test]
fn all_parts_are_found() {
    let u = parse("sip:alice:secretword@atlanta.com;transport=tcp");
    assert_eq!(u.user, Some(&b"alice"[..]));
    assert_eq!(u.password, Some(&b"secretword"[..]));
    assert_eq!((u.host, u.port), (&b"atlanta.com"[..], None));
    assert_eq!(u.transport(), Some(Transport::Tcp));
    let u = parse("sips:alice@atlanta.com?subject=project%20x&priority=urgent");
    assert_eq!(u.scheme, Scheme::Sips);
    assert_eq!(u.headers, b"subject=project%20x&priority=urgent");
    let u = parse("sip:+1-212-555-1212:1234@gateway.com;user=phone");
    assert_eq!(u.user, Some(&b"+1-212-555-1212"[..]));
    assert_eq!(u.param(b"USER"), Some(Some(&b"phone"[..])));
    let u = parse("sip:atlanta.com;method=REGISTER?to=alice%40atlanta.com");
    assert_eq!((u.user, u.host), (None, &b"atlanta.com"[..]));
    let u = parse("sip:alice;day=tuesday@atlanta.com");
    assert_eq!(u.user, Some(&b"alice;day=tuesday"[..]));
    let u = parse("sip:alice@192.0.2.4:5070");
    assert_eq!(u.host_ip(), Some("192.0.2.4".parse().unwrap()));
    assert_eq!(u.port, Some(5070));
}

/// RFC 5118 section 4.1 and section 4.3.
#[test]
fn ipv6_references() {
    let u = parse("sip:[2001:db8::10]:5070;lr");
    assert_eq!((u.host, u.port), (&b"[2001:db8::10]"[..], Some(5070)));
    assert!(u.is_loose_router());
    let u = parse("sip:[2001:db8::10:5070]");
    assert_eq!((u.host, u.port), (&b"[2001:db8::10:5070]"[..], None));
    assert!(Uri::parse(b"sip:2001:db8::10").is_err());
}

/// RFC 3966 section 6.
#[test]
fn telephone_numbers() {
    let u = parse("tel:+1-201-555-0123;ext=42");
    assert_eq!((u.scheme, u.user), (Scheme::Tel, Some(&b"+1-201-555-0123"[..])));
    assert_eq!(u.param(b"ext"), Some(Some(&b"42"[..])));
    let u = parse("tel:863-1234;phone-context=+1-914-555");
    assert_eq!(u.param(b"phone-context"), Some(Some(&b"+1-914-555"[..])));
    assert!(Uri::parse(b"tel:").is_err());
    assert!(Uri::parse(b"tel:+").is_err());
    assert!(Uri::parse(b"tel:+abc").is_err());
}

/// RFC 4475 section 3.3.2: a scheme nobody knows is still a URI.
#[test]
fn other_schemes() {
    let u = parse("nobodyKnowsThisScheme:totallyopaquecontent");
    assert_eq!(u.scheme, Scheme::Other(b"nobodyKnowsThisScheme"));
    assert_eq!(u.opaque, b"totallyopaquecontent");
    assert_eq!(parse("soap.beep://192.0.2.103:3002").opaque, b"//192.0.2.103:3002");
    assert_eq!(parse("SIP:a@b").scheme, Scheme::Sip);
}

#[test]
fn faults_are_reported() {
    for bad in [
        "",
        "sip",
        "sip:",
        ":a@b",
        "sip:@b",
        "sip:a@",
        "sip:a@b@c",
        "sip:a b@c",
        "sip:a@b c",
        "sip:a%zz@b",
        "sip:a@b;",
        "sip:a@b;;x",
        "sip:a@b?",
        "sip:a@b?x",
        "sip:a@b?x=y&",
        "sip:a@b;x=y z",
        "sip:a@b>",
        "<sip:a@b>",
        "1sip:a@b",
        "http:",
        "http://a b",
    ] {
        assert!(Uri::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    let long = format!("sip:{}@b", "a".repeat(MAX_URI));
    assert!(Uri::parse(long.as_bytes()).is_err());
    let many = format!("sip:b{}", ";a".repeat(MAX_PARAMS + 1));
    assert!(Uri::parse(many.as_bytes()).is_err());
}

/// The sets that RFC 3261 section 19.1.4 calls equivalent.
#[test]
fn equivalent_sets() {
    for set in [
        &["sip:%61lice@atlanta.com;transport=TCP", "sip:alice@AtLanTa.CoM;Transport=tcp"][..],
        &["sip:carol@chicago.com", "sip:carol@chicago.com;newparam=5"],
        &["sip:carol@chicago.com", "sip:carol@chicago.com;security=on"],
        &["sip:carol@chicago.com;newparam=5", "sip:carol@chicago.com;security=on"],
        &[
            "sip:biloxi.com;transport=tcp;method=REGISTER?to=sip:bob%40biloxi.com",
            "sip:biloxi.com;method=REGISTER;transport=tcp?to=sip:bob%40biloxi.com",
        ],
        &[
            "sip:alice@atlanta.com?subject=project%20x&priority=urgent",
            "sip:alice@atlanta.com?priority=urgent&subject=project%20x",
        ],
        &["sip:a@b;x=1;x=2", "sip:a@b;x=1"],
        &["sip:a@[2001:db8::1]", "sip:a@[2001:DB8:0:0::1]"],
        &["tel:+1-201-555-0123", "tel:+1(201)5550123"],
        &["tel:123;ext=1-2;phone-context=+1", "tel:123;phone-context=+1;ext=12"],
    ] {
        for a in set {
            for b in set {
                assert!(parse(a).equivalent(&parse(b)), "{a} {b}");
            }
        }
    }
}

/// The sets that RFC 3261 section 19.1.4 calls not equivalent.
#[test]
fn different_sets() {
    for (a, b) in [
        ("SIP:ALICE@AtLanTa.CoM;Transport=udp", "sip:alice@AtLanTa.CoM;Transport=UDP"),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com:5060"),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com;transport=udp"),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com:6000;transport=tcp"),
        ("sip:carol@chicago.com", "sip:carol@chicago.com?Subject=next%20meeting"),
        ("sip:bob@phone21.boxesbybob.com", "sip:bob@192.0.2.4"),
        ("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;security=off"),
        ("sip:bob@biloxi.com", "sips:bob@biloxi.com"),
        ("sip:bob@biloxi.com", "sip:biloxi.com"),
        ("sip:bob@biloxi.com", "sip:bob:pw@biloxi.com"),
        ("sip:bob@biloxi.com;maddr=1.2.3.4", "sip:bob@biloxi.com"),
        ("sip:bob%3Bx@biloxi.com", "sip:bob;x@biloxi.com"),
        ("sip:a@b;x=1;x=2", "sip:a@b;x=2;x=1"),
        ("sip:a@b?x=y&x=y", "sip:a@b?x=y&x=z"),
        ("tel:+12015550123", "tel:+12015550124"),
        ("tel:+12015550123", "tel:+12015550123;ext=1"),
        ("tel:+12015550123", "sip:+12015550123@b"),
    ] {
        assert!(!parse(a).equivalent(&parse(b)), "{a} {b}");
        assert!(!parse(b).equivalent(&parse(a)), "{b} {a}");
    }
}

/// RFC 3261 section 10.3 step 5.
#[test]
fn address_of_record() {
    let aor = |text: &str| {
        let mut out = Vec::new();
        parse(text).aor(&mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(aor("sips:%61lice:pw@ATLANTA.com.:5061;transport=tls?a=b"), "sip:alice@atlanta.com");
    assert_eq!(aor("sip:Alice@atlanta.com:5060"), "sip:Alice@atlanta.com");
    assert_eq!(aor("sips:alice@atlanta.com:5060"), "sip:alice@atlanta.com");
    assert_eq!(aor("sip:alice@atlanta.com:5061"), "sip:alice@atlanta.com:5061");
    assert_eq!(aor("sip:alice@atlanta.com:5070"), "sip:alice@atlanta.com:5070");
    assert_eq!(aor("sip:null-%00-%40@a"), "sip:null-%00-%40@a");
    assert_eq!(aor("sip:a%c3%a9@a"), "sip:a%C3%A9@a");
    assert_eq!(aor("sip:a@[2001:DB8:0:0::1]"), "sip:a@[2001:db8::1]");
    assert_eq!(aor("sip:*21*5#@a"), "sip:*21*5%23@a");
    assert_eq!(aor("sip:*21*5%23@a"), "sip:*21*5%23@a");
    assert_eq!(aor("sip:Example.COM"), "sip:example.com");
    assert_eq!(aor("tel:+1-(201).555"), "tel:+1201555");
}
