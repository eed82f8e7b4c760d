//! New requests.

use proptest::prelude::*;
use ringway_sip::header::Items;
use ringway_sip::message::{Method, parse};
use ringway_sip::write::{self, Party, Request};
use ringway_sip::{HeaderId, NameAddr};

/// The texts of a request.
#[derive(Clone, Debug)]
struct Texts {
    method: Vec<u8>,
    target: Vec<u8>,
    via: Vec<u8>,
    routes: Vec<Vec<u8>>,
    from: [Vec<u8>; 3],
    to: [Vec<u8>; 3],
    call_id: Vec<u8>,
    contact: Vec<u8>,
    fields: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
}

impl Texts {
    /// Emits the request after some octets, and returns what was appended.
    fn emit(&self, cseq: u32, max_forwards: u8) -> Vec<u8> {
        let route = self.routes.join(&b", "[..]);
        let fields: Vec<_> = self.fields.iter().map(|(name, value)| (*name, &value[..])).collect();
        let [from, to] =
            [&self.from, &self.to].map(|[display, uri, tag]| Party { display, uri, tag });
        let method = Method::parse(&self.method);
        let request = Request {
            via: &self.via,
            route: &route,
            max_forwards,
            contact: &self.contact,
            fields: &fields,
            body: &self.body,
            ..Request::new(method, &self.target, from, to, &self.call_id, cseq)
        };
        let mut buf = b"before".to_vec();
        let fields_at = request.emit(&mut buf);
        assert!(buf[..fields_at].ends_with(b" SIP/2.0\r\n"));
        buf.split_off("before".len())
    }

    /// The names of the header fields, in order.
    fn names(&self) -> Vec<&'static str> {
        let mut names = if self.via.is_empty() { vec![] } else { vec!["Via"] };
        // With a strict router, the target takes the place of its Route.
        let route = self.routes.join(&b", "[..]);
        names.extend(Items::new(&route).filter(|element| !element.is_empty()).map(|_| "Route"));
        names.extend(["Max-Forwards", "From", "To", "Call-ID", "CSeq"]);
        names.extend((!self.contact.is_empty()).then_some("Contact"));
        names.extend(self.fields.iter().map(|(name, _)| *name));
        names.push("Content-Length");
        names
    }
}

type TextStrategy = BoxedStrategy<Vec<u8>>;

fn matching(pattern: &'static str) -> TextStrategy {
    pattern.prop_map(String::into_bytes).boxed()
}

/// Requests whose method, target and header fields are of these texts.
fn texts(
    [method, target, via, route]: [TextStrategy; 4],
    party: [TextStrategy; 3],
    [call_id, contact, value]: [TextStrategy; 3],
) -> impl Strategy<Value = Texts> {
    const NAMES: &[&str] = &["Subject", "X-Other", "User-Agent", "Authorization"];
    let field = (prop::sample::select(NAMES), value);
    let body = prop_oneof![matching("(\r\n)?Via: x\r\n\r\n"), any::<Vec<u8>>()];
    (
        (method, target, via, prop::collection::vec(route, 0..5)),
        (party.clone(), party),
        (call_id, contact, prop::collection::vec(field, 0..4), body),
    )
        .prop_map(|((method, target, via, routes), (from, to), rest)| {
            let (call_id, contact, fields, body) = rest;
            Texts { method, target, via, routes, from, to, call_id, contact, fields, body }
        })
}

/// Requests as the standard wants them.
fn sound() -> impl Strategy<Value = Texts> {
    const URI: &str =
        "sips?:(([a-z0-9.!]|%41){1,9}@)?([a-z]{1,9}|\\[::1\\])(:506[0-9])?(;(lr|x=[a-z]))?";
    let method =
        prop_oneof![matching("INVITE|NOTIFY|REGISTER|BYE"), matching("[A-Za-z.!%*_+`'~-]{1,9}")];
    let via = matching("SIP/2\\.0/(UDP|TCP) [a-z]{1,9}(:5060)?;branch=z9hG4bK[a-z0-9]{1,9}");
    let route = matching("(\"[a-z ,;<>]{0,5}\" )?<sip:[a-z]{1,9}(;lr)?>(;p=\"[a-z,<>]{0,5}\")?");
    let contact = prop_oneof![Just(Vec::new()), matching(URI)].boxed();
    texts(
        [method.boxed(), matching(URI), via, route],
        [matching("\\PC{0,9}"), matching(URI), matching("([a-zA-Z0-9.!%*_+`'~-]{1,9})?")],
        [
            matching("[a-zA-Z0-9<>()\\[\\]/?-]{1,9}(@[a-z.]{1,9})?"),
            contact,
            matching("([!-~]([ -~]{0,9}[!-~])?)?"),
        ],
    )
}

/// Requests whose texts try to break out.
fn hostile() -> impl Strategy<Value = Texts> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "\r\n",
            "\r",
            "\n",
            "\r\n\r\n",
            "\r\n ",
            "\0",
            " ",
            ":",
            ",",
            ";",
            "<",
            ">",
            "\"",
            "\\",
            "sip:a",
            "<sip:a>",
            ";lr",
            "?a=b",
            ";method=x",
            "Via: x",
            "\r\nContent-Length: 9\r\n\r\n",
            " SIP/2.0\r\n",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    let any = prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat()).boxed();
    let [a, b, c, d, e, f, g, h, i, j] = std::array::from_fn(|_| any.clone());
    texts([a, b, c, d], [e, f, g], [h, i, j])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// RFC 3261 section 8.1.1 and section 12.2.1.1: what is emitted is read back.
    #[test]
    fn a_request_is_read_back(texts in sound(), cseq in 0u32..1 << 31, max_forwards: u8) {
        let bytes = texts.emit(cseq, max_forwards);
        let message = parse(&bytes).unwrap();
        prop_assert_eq!(message.check(), Ok(()), "{}", String::from_utf8_lossy(&bytes));
        let names: Vec<_> = message.headers().iter().map(|slot| message.name(slot)).collect();
        prop_assert_eq!(names, texts.names().iter().map(|name| name.as_bytes()).collect::<Vec<_>>());
        prop_assert_eq!(message.method(), Method::parse(&texts.method));
        let routes: Vec<_> = message.items(HeaderId::Route).map(<[u8]>::to_vec).collect();
        match texts.routes.first().map(|route| NameAddr::parse(route).unwrap()) {
            Some(strict) if !strict.uri.ends_with(b";lr") => {
                prop_assert_eq!(message.request_uri(), strict.uri);
                let target = [b"<", &texts.target[..], b">"].concat();
                prop_assert_eq!(routes, [&texts.routes[1..], &[target]].concat());
            }
            _ => {
                prop_assert_eq!(message.request_uri(), &texts.target[..]);
                prop_assert_eq!(&routes, &texts.routes);
            }
        }
        prop_assert_eq!(message.top_via().unwrap().element, &texts.via[..]);
        prop_assert_eq!(message.max_forwards(), Ok(Some(max_forwards)));
        for (party, [display, uri, tag]) in [(message.from(), &texts.from), (message.to(), &texts.to)] {
            let party = party.unwrap();
            let mut quoted = Vec::new();
            if !display.is_empty() {
                write::quoted(&mut quoted, display);
            }
            prop_assert_eq!((party.display, party.uri), (&quoted[..], &uri[..]));
            prop_assert_eq!(party.tag().unwrap_or_default(), &tag[..]);
        }
        prop_assert_eq!(message.call_id(), &texts.call_id[..]);
        let read = message.cseq().unwrap();
        prop_assert_eq!((read.seq, read.method), (cseq, message.method()));
        let contact = message.first(HeaderId::Contact).map(|value| NameAddr::parse(value).unwrap().uri);
        prop_assert_eq!(contact.unwrap_or_default(), &texts.contact[..]);
        let fields = message.headers().iter().rev().skip(1).take(texts.fields.len()).rev();
        for (slot, (_, value)) in fields.zip(&texts.fields) {
            prop_assert_eq!(message.value(slot), &value[..]);
        }
        prop_assert_eq!(message.body(), &texts.body[..]);
    }

    /// RFC 3261 section 7.3.1: no text adds a header field, or ends the header section.
    #[test]
    fn no_text_breaks_out_of_its_header_field(texts in hostile()) {
        let bytes = texts.emit(1, 70);
        let head = bytes.strip_suffix(&texts.body[..]).unwrap().strip_suffix(b"\r\n\r\n").unwrap();
        let lines: Vec<_> = head.split(|&b| b == b'\n').collect();
        let (last, others) = lines.split_last().unwrap();
        prop_assert!(others.iter().all(|line| line.ends_with(b"\r")));
        prop_assert_eq!(head.iter().filter(|&&b| b == b'\r').count(), others.len());
        let length = format!("Content-Length: {}", texts.body.len());
        prop_assert_eq!(*last, length.as_bytes());
        let names = texts.names();
        prop_assert_eq!(lines.len(), 1 + names.len());
        for (line, name) in lines[1..].iter().zip(&names) {
            prop_assert!(line.starts_with(&[name.as_bytes(), b": "].concat()));
        }
        if let Ok(message) = parse(&bytes) {
            prop_assert_eq!(message.headers().len(), names.len());
            prop_assert_eq!(message.body(), &texts.body[..]);
            if let Some(slot) = message.first_slot(HeaderId::CallId) {
                let mut call_id = Vec::new();
                write::unfolded(&mut call_id, &texts.call_id);
                prop_assert_eq!(message.value(slot).trim_ascii(), call_id.trim_ascii());
            }
        }
    }
}
