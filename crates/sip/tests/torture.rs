//! The torture messages of RFC 4475 and RFC 5118 against the parser: the table in
//! `torture/verdicts.toml`, then what single messages are there to show.

#![allow(clippy::unwrap_used)]

use ringway_sip::header::{HeaderId, NameAddr, Via};
use ringway_sip::message::{Got, Message, Method, Start, parse};
use ringway_sip::{Scheme, Uri};
use std::path::PathBuf;

struct Case {
    name: String,
    section: String,
    octets: Vec<u8>,
    request: bool,
    method: String,
    parse: String,
    status: Option<i64>,
    answers: usize,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/torture")
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("verdicts.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let cases = table["message"].as_array().unwrap().iter().map(|m| {
        let text = |key: &str| m[key].as_str().unwrap().to_owned();
        Case {
            name: text("name"),
            section: text("section"),
            octets: std::fs::read(folder().join(text("file"))).unwrap(),
            request: text("kind") == "request",
            method: text("method"),
            parse: text("parse"),
            status: m.get("status").and_then(|s| s.as_integer()),
            answers: m["answer"].as_array().unwrap().len(),
        }
    });
    cases.collect()
}

fn octets(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(format!("{name}.dat"))).unwrap()
}

/// Runs `look` on a message that must be well formed.
fn valid(name: &str, look: impl FnOnce(&Message<'_>)) {
    let octets = octets(name);
    let message = parse(&octets).unwrap_or_else(|e| panic!("{name}: {e}"));
    message.check().unwrap_or_else(|e| panic!("{name}: {e}"));
    look(&message);
}

fn values(message: &Message<'_>, id: HeaderId) -> Vec<String> {
    message.items(id).map(|v| String::from_utf8_lossy(v).into_owned()).collect()
}

/// All 49 messages of RFC 4475 and the messages of the ten sections of RFC 5118.
#[test]
fn every_message_has_its_verdict() {
    let cases = cases();
    assert_eq!(cases.iter().filter(|c| c.section.starts_with("RFC 4475")).count(), 49);
    assert_eq!(cases.iter().filter(|c| c.section.starts_with("RFC 5118")).count(), 12);
    for case in &cases {
        let name = format!("{} ({})", case.name, case.section);
        assert!(case.answers > 0, "{name}");
        let message = match parse(&case.octets) {
            Ok(message) => message,
            Err(fault) => {
                assert_eq!(case.parse, "unparsable", "{name}: {fault}");
                continue;
            }
        };
        assert_eq!(message.is_request(), case.request, "{name}");
        match message.check() {
            Ok(()) => {
                assert_eq!((case.parse.as_str(), case.status), ("valid", None), "{name}");
                assert_eq!(message.method().as_bytes(), case.method.as_bytes(), "{name}");
            }
            Err(fault) => {
                assert_eq!(case.parse, "malformed", "{name}: {fault}");
                assert_eq!(case.status, Some(fault.status as i64), "{name}: {fault}");
            }
        }
        // Every octet is accounted for: start line, header fields, empty line, body.
        let lines: usize = message.headers().iter().map(|s| message.line(s).len()).sum();
        let head = message.start_line().len() + lines;
        let rest = &message.bytes()[head..];
        assert!(rest.is_empty() || rest.starts_with(b"\r\n"), "{name}");
    }
}

/// RFC 4475 section 3.1.1.1.
#[test]
fn wsinv() {
    valid("wsinv", |m| {
        assert_eq!(m.to().unwrap().tag(), Some(&b"1918181833n"[..]));
        assert_eq!(m.from().unwrap().display, br#""J Rosenberg \\\"""#);
        assert_eq!(m.from().unwrap().tag(), Some(&b"98asjd8"[..]));
        assert_eq!(m.max_forwards(), Ok(Some(68)));
        assert_eq!((m.cseq().unwrap().seq, m.method()), (9, Method::Invite));
        assert_eq!(m.first(HeaderId::Subject), Some(&b""[..]));
        let vias: Vec<_> = m.items(HeaderId::Via).map(|v| Via::parse(v).unwrap()).collect();
        assert_eq!(
            vias.iter().map(|v| v.host).collect::<Vec<_>>(),
            [&b"192.0.2.2"[..], b"spindle.example.com", b"192.168.255.111"]
        );
        assert_eq!(
            vias.iter().map(|v| v.branch).collect::<Vec<_>>(),
            [&b"390skdjuw"[..], b"z9hG4bK9ikj8", b"z9hG4bK30239"]
        );
        assert_eq!(m.named(b"UnknownHeaderWithUnusualValue").next(), Some(&b";;,,;;,;"[..]));
        let contact = NameAddr::parse(m.first(HeaderId::Contact).unwrap()).unwrap();
        assert_eq!(contact.param(b"newparam"), Some(Some(&b"newvalue"[..])));
        assert_eq!(contact.param(b"secondparam"), Some(None));
        assert_eq!(contact.param(b"q"), Some(Some(&b"0.33"[..])));
        assert_eq!(m.body().len(), 150);
    });
}

/// RFC 4475 section 3.1.1.2: % is no escape in a method, and a NUL in quotes ends nothing.
#[test]
fn intmeth() {
    valid("intmeth", |m| {
        assert!(matches!(m.method(), Method::Other(_)));
        let uri = Uri::parse(m.request_uri()).unwrap();
        assert_eq!(uri.user, Some(&b"1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*"[..]));
        assert_eq!(uri.password, Some(&b"&it+has=1,weird!*pas$wo~d_too.(doesn't-it)"[..]));
        assert_eq!(uri.host, b"example.com");
        assert_eq!(m.to().unwrap().display, b"\"BEL:\\\x07 NUL:\\\x00 DEL:\\\x7f\"");
        assert_eq!(m.from().unwrap().display, b"token1~` token2'+_ token3*%!.-");
        assert_eq!(m.from().unwrap().tag(), Some(&b"_token~1'+`*%!-."[..]));
        assert!(m.call_id().ends_with(b"@word`~)(><:\\/\"][?}{"));
    });
}

/// RFC 4475 section 3.1.1.3: unescaping is never done twice.
#[test]
fn esc01() {
    valid("esc01", |m| {
        let uri = Uri::parse(m.request_uri()).unwrap();
        assert_eq!(uri.user, Some(&b"sips%3Auser%40example.com"[..]));
        let to = Uri::parse(m.to().unwrap().uri).unwrap();
        assert!(to.equivalent(&Uri::parse(b"sip:user@example.com").unwrap()));
        let contact = NameAddr::parse(m.first(HeaderId::Contact).unwrap()).unwrap();
        let contact = Uri::parse(contact.uri).unwrap();
        let same = Uri::parse(b"sip:caller@host5.example.net;lr;name=value%2541").unwrap();
        let other = Uri::parse(b"sip:caller@host5.example.net;lr;name=valueA").unwrap();
        assert!(contact.equivalent(&same) && !contact.equivalent(&other));
    });
}

/// RFC 4475 section 3.1.1.4: two contacts, different by a NUL.
#[test]
fn escnull() {
    valid("escnull", |m| {
        let contacts: Vec<_> = m.items(HeaderId::Contact).collect();
        let uris: Vec<_> =
            contacts.iter().map(|c| Uri::parse(NameAddr::parse(c).unwrap().uri).unwrap()).collect();
        assert_eq!(uris.len(), 2);
        assert!(!uris[0].equivalent(&uris[1]));
        let mut aor = Vec::new();
        Uri::parse(m.to().unwrap().uri).unwrap().aor(&mut aor);
        assert_eq!(aor, b"sip:null-%00-null@example.com");
    });
}

/// RFC 4475 section 3.1.1.5: `C%6Fntact` is another header field, `RE%47IST%45R` another method.
#[test]
fn esc02() {
    valid("esc02", |m| {
        assert_eq!(m.method(), Method::Other(b"RE%47IST%45R"));
        assert_eq!(
            values(m, HeaderId::Contact),
            ["<sip:alias1@host1.example.com>", "<sip:alias3@host3.example.com>"]
        );
        assert_eq!(m.to().unwrap().display, b"\"%Z%45\"");
    });
}

/// RFC 4475 section 3.1.1.7.
#[test]
fn longreq() {
    valid("longreq", |m| {
        assert_eq!(m.all(HeaderId::Via).count(), 34);
        assert_eq!(m.from().unwrap().tag().map(<[u8]>::len), Some(2 + 150 + 3));
        assert_eq!(m.body().len(), 150);
    });
}

/// RFC 4475 section 3.1.1.8: the octets after the message are not of it.
#[test]
fn dblreq() {
    valid("dblreq", |m| {
        assert!(m.body().is_empty());
        assert!(m.whole().ends_with(b"Content-Length: 0\r\n\r\n"));
        assert_eq!(m.method(), Method::Register);
    });
}

/// RFC 4475 section 3.1.1.9.
#[test]
fn semiuri() {
    valid("semiuri", |m| {
        let uri = Uri::parse(m.request_uri()).unwrap();
        assert_eq!(
            (uri.user, uri.host),
            (Some(&b"user;par=u%40example.net"[..]), &b"example.com"[..])
        );
        assert_eq!(m.items(HeaderId::Accept).count(), 6);
    });
}

/// RFC 4475 section 3.1.1.10.
#[test]
fn transports() {
    valid("transports", |m| {
        let transports: Vec<_> =
            m.items(HeaderId::Via).map(|v| Via::parse(v).unwrap().transport).collect();
        assert_eq!(transports, [&b"UDP"[..], b"SCTP", b"TLS", b"UNKNOWN", b"TCP"]);
    });
}

/// RFC 4475 section 3.1.1.11: a binary body is only counted.
#[test]
fn mpart01() {
    valid("mpart01", |m| {
        assert_eq!(m.body().len(), 553);
        assert!(m.body().contains(&0));
    });
}

/// RFC 4475 sections 3.1.1.12 and 3.1.1.13.
#[test]
fn reasons() {
    valid("unreason", |m| {
        let Start::Response { status: 200, reason } = m.start() else { panic!() };
        assert!(reason.starts_with(b"= 2**3 * 5**2 \xd0\xbd"));
    });
    valid("noreason", |m| {
        assert_eq!(m.start(), Start::Response { status: 100, reason: b"" });
    });
}

/// RFC 4475 section 3.1.2.15: its archive lacks the empty line, but its names are bad as well.
#[test]
fn baddn() {
    let octets = octets("baddn");
    let m = parse(&octets).unwrap();
    assert_eq!(m.check().unwrap_err().got, Got::End);
    assert!(m.from().is_err() && m.to().is_err());
    let whole = [&octets[..], b"\r\n"].concat();
    assert_eq!(parse(&whole).unwrap().check().unwrap_err().got, Got::Byte(b','));
}

/// RFC 4475 section 3.2.1: the cookie alone is no branch of RFC 3261.
#[test]
fn badbranch() {
    valid("badbranch", |m| assert!(!m.top_via().unwrap().has_cookie()));
}

/// RFC 4475 sections 3.3.2 to 3.3.4.
#[test]
fn schemes() {
    valid("unkscm", |m| {
        let uri = Uri::parse(m.request_uri()).unwrap();
        assert_eq!(uri.scheme, Scheme::Other(b"nobodyKnowsThisScheme"));
    });
    valid("novelsc", |m| {
        let uri = Uri::parse(m.request_uri()).unwrap();
        assert_eq!(uri.scheme, Scheme::Other(b"soap.beep"));
    });
    valid("unksm2", |m| {
        let to = Uri::parse(m.to().unwrap().uri).unwrap();
        assert_eq!((to.scheme, to.is_sip()), (Scheme::Other(b"isbn"), false));
    });
}

/// RFC 4475 section 3.3.5.
#[test]
fn bext01() {
    valid("bext01", |m| {
        let both = |id| values(m, id).len();
        assert_eq!((both(HeaderId::Require), both(HeaderId::ProxyRequire)), (2, 2));
    });
}

/// RFC 4475 sections 3.3.12 to 3.3.14: whose parameter it is.
#[test]
fn contact_parameters() {
    let contact = |name: &str, look: &dyn Fn(&NameAddr<'_>, &Uri<'_>)| {
        valid(name, |m| {
            let contact = NameAddr::parse(m.first(HeaderId::Contact).unwrap()).unwrap();
            look(&contact, &Uri::parse(contact.uri).unwrap());
        });
    };
    contact("cparam01", &|c, uri| {
        assert_eq!((c.param(b"unknownparam"), uri.param(b"unknownparam")), (Some(None), None));
    });
    contact("cparam02", &|c, uri| {
        assert_eq!((c.param(b"unknownparam"), uri.param(b"unknownparam")), (None, Some(None)));
    });
    contact("regescrt", &|_, uri| {
        let mut headers = uri.header_fields();
        assert_eq!(headers.next(), Some((&b"Route"[..], &b"%3Csip:sip.example.com%3E"[..])));
    });
}

/// RFC 4475 section 3.4.1.
#[test]
fn inv2543() {
    valid("inv2543", |m| {
        assert_eq!(m.top_via().unwrap().branch, b"");
        assert_eq!(m.from().unwrap().tag(), None);
        assert_eq!(m.max_forwards(), Ok(None));
        assert!(m.body().starts_with(b"v=0\r\n"));
    });
}

/// RFC 5118 sections 4.3 and 4.4.
#[test]
fn ports_beside_addresses() {
    valid("port-ambiguous", |m| {
        let uri = Uri::parse(m.request_uri()).unwrap();
        assert_eq!((uri.host, uri.port), (&b"[2001:db8::10:5070]"[..], None));
    });
    valid("port-unambiguous", |m| {
        let uri = Uri::parse(m.request_uri()).unwrap();
        assert_eq!((uri.host, uri.port), (&b"[2001:db8::10]"[..], Some(5070)));
    });
}

/// RFC 5118 section 4.5: with and without brackets.
#[test]
fn received_addresses() {
    for name in ["via-received-param-with-delim", "via-received-param-no-delim"] {
        valid(name, |m| {
            let received = m.top_via().unwrap().received.unwrap();
            let address = ringway_sip::uri::host_ip(received);
            assert_eq!(address, Some("2001:db8::9:255".parse().unwrap()), "{name}");
        });
    }
}

/// RFC 5118 sections 4.9 and 4.10.
#[test]
fn mapped_addresses_and_the_colon_too_many() {
    valid("ipv4-mapped-ipv6", |m| {
        let via = m.top_via().unwrap();
        assert_eq!((via.host, via.port), (&b"[::ffff:192.0.2.10]"[..], Some(19823)));
    });
    let address = Some("2001:db8::192.0.2.1".parse().unwrap());
    for name in ["ipv6-bug-abnf-3-colons", "ipv6-correct-abnf-2-colons"] {
        valid(name, |m| {
            assert_eq!(Uri::parse(m.request_uri()).unwrap().host_ip(), address, "{name}");
        });
    }
}
