//! Which document a request of HTTP is answered with. A server only has to send it.
//!
//! | path | document |
//! |---|---|
//! | `/phonebook` | by the User-Agent: that of the vendor; else XML as Yealink's if it is accepted and JSON is not, else JSON |
//! | `/phonebook.json` | [`json`] |
//! | `/phonebook/yealink.xml` | [`yealink`] |
//! | `/phonebook/snom.xml` | [`snom`] |
//! | `/phonebook/cisco.xml`, `/phonebook/cisco-menu.xml` | [`cisco`] |
//! | `/phonebook/grandstream/phonebook.xml` | [`grandstream`], at the name that its phones append to a path |

use ringway_sansio::Time;

use crate::book::Book;
use crate::formats::{Query, cisco, grandstream, json, snom, yealink};

/// Maximum length of a Host header field in octets.
const MAX_HOST: usize = 255;

/// What a request asks for. Method and body do not matter: some phones send POST.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request<'a> {
    /// The path of the URL.
    pub path: &'a str,
    /// What follows the question mark.
    pub query: &'a str,
    /// The Host header field. With it, links to other pages have full URLs.
    pub host: Option<&'a str>,
    /// Whether the connection is secured.
    pub is_tls: bool,
    /// The Accept header field.
    pub accept: Option<&'a str>,
    /// The User-Agent header field.
    pub user_agent: Option<&'a str>,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// 200, 400 or 404.
    pub status: u16,
    /// The Content-Type header field.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    fn of(status: u16, content_type: &'static str, body: String) -> Response {
        Response { status, content_type, body: body.into_bytes() }
    }
}

/// A document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Json,
    Yealink,
    Snom,
    Cisco,
    CiscoMenu,
    Grandstream,
}

/// Paths of documents.
const PATHS: [(&str, Format); 6] = [
    ("/phonebook.json", Format::Json),
    ("/phonebook/yealink.xml", Format::Yealink),
    ("/phonebook/snom.xml", Format::Snom),
    ("/phonebook/cisco.xml", Format::Cisco),
    ("/phonebook/cisco-menu.xml", Format::CiscoMenu),
    ("/phonebook/grandstream/phonebook.xml", Format::Grandstream),
];

/// What the User-Agent of a vendor's phones has in it, in lower case.
const VENDORS: [(&str, Format); 4] = [
    ("yealink", Format::Yealink),
    ("snom", Format::Snom),
    ("cisco", Format::Cisco),
    ("grandstream", Format::Grandstream),
];

/// Returns whether a path is one of the phonebook.
pub fn is_path(path: &str) -> bool {
    path == "/phonebook" || PATHS.iter().any(|(of, _)| *of == path)
}

/// Answers a request.
pub fn respond(request: &Request<'_>, book: &Book, now: Time) -> Response {
    let plain = "text/plain; charset=utf-8";
    let Some(format) = format(request) else {
        return Response::of(404, plain, "there is no such phonebook\n".into());
    };
    let query = match Query::parse(request.query) {
        Ok(query) => query,
        Err(error) => return Response::of(400, plain, format!("{error}\n")),
    };
    let url = |format| format!("{}{}", base(request), path(format));
    let body = match format {
        Format::Json => {
            return Response::of(200, "application/json", json::write(book, &query, now));
        }
        Format::Yealink => yealink::write(book, &query),
        Format::Snom => snom::write(book, &query, &url(format)),
        Format::Cisco => cisco::write(book, &query, &url(format)),
        Format::CiscoMenu => cisco::menu(&url(Format::Cisco)),
        Format::Grandstream => grandstream::write(book, &query),
    };
    Response::of(200, "text/xml; charset=utf-8", body)
}

fn format(request: &Request<'_>) -> Option<Format> {
    if request.path != "/phonebook" {
        return PATHS.iter().find(|(path, _)| *path == request.path).map(|(_, format)| *format);
    }
    let agent = request.user_agent.unwrap_or_default().to_ascii_lowercase();
    if let Some((_, format)) = VENDORS.iter().find(|(vendor, _)| agent.contains(vendor)) {
        return Some(*format);
    }
    let accept = request.accept.unwrap_or_default().to_ascii_lowercase();
    let xml = accept.contains("xml") && !accept.contains("json");
    Some(if xml { Format::Yealink } else { Format::Json })
}

fn path(format: Format) -> &'static str {
    PATHS.iter().find(|(_, of)| *of == format).map_or("/phonebook", |(path, _)| path)
}

/// Returns the scheme and the host of links, or nothing if the Host header field is not a plain one.
fn base(request: &Request<'_>) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-.:[]".contains(&b);
    match request.host {
        Some(host) if !host.is_empty() && host.len() <= MAX_HOST && host.bytes().all(plain) => {
            format!("{}://{host}", if request.is_tls { "https" } else { "http" })
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::{entry, sample};
    use proptest::prelude::*;

    fn root(request: &Request<'_>) -> String {
        let response = respond(request, &sample(), Time::from_secs(1));
        let text = String::from_utf8(response.body).unwrap();
        match response.content_type {
            "text/xml; charset=utf-8" => {
                let start = text.split_once("?>\n<").unwrap().1;
                start.split_once('>').unwrap().0.to_string()
            }
            kind => format!("{} {kind}", response.status),
        }
    }

    #[test]
    fn each_path_has_its_document() {
        let root = |path| root(&Request { path, ..Request::default() });
        assert_eq!(root("/phonebook.json"), "200 application/json");
        assert_eq!(root("/phonebook/yealink.xml"), "YealinkIPPhoneDirectory");
        assert_eq!(root("/phonebook/snom.xml"), "SnomIPPhoneDirectory");
        assert_eq!(root("/phonebook/cisco.xml"), "CiscoIPPhoneDirectory");
        assert_eq!(root("/phonebook/cisco-menu.xml"), "CiscoIPPhoneMenu");
        assert_eq!(root("/phonebook/grandstream/phonebook.xml"), "AddressBook");
        assert_eq!(root("/phonebook/other.xml"), "404 text/plain; charset=utf-8");
        assert!(is_path("/phonebook") && is_path("/phonebook/snom.xml") && !is_path("/"));
    }

    #[test]
    fn one_path_is_answered_by_the_user_agent() {
        let root = |user_agent, accept| {
            root(&Request { path: "/phonebook", user_agent, accept, ..Request::default() })
        };
        assert_eq!(root(Some("Yealink SIP-T46U 108.86.0.45"), None), "YealinkIPPhoneDirectory");
        assert_eq!(
            root(Some("Mozilla/4.0 (compatible; snomD785-SIP 10.1)"), None),
            "SnomIPPhoneDirectory"
        );
        assert_eq!(root(Some("Cisco/SPA504G"), None), "CiscoIPPhoneDirectory");
        assert_eq!(root(Some("Grandstream Model HW GXP2170"), None), "AddressBook");
        assert_eq!(root(Some("curl/7.88"), None), "200 application/json");
        assert_eq!(root(None, Some("text/xml, */*")), "YealinkIPPhoneDirectory");
    }

    #[test]
    fn links_name_the_host_unless_it_is_hostile() {
        let book = Book::new((0..40).map(|n| entry(&format!("u{n}"), &n.to_string(), "")));
        let next = |host, is_tls| {
            let path = "/phonebook/cisco.xml";
            let request = Request { path, host, is_tls, ..Request::default() };
            let body = String::from_utf8(respond(&request, &book, Time::ZERO).body).unwrap();
            let (before, _) = body.split_once("?page=1").unwrap();
            before.rsplit_once("<URL>").unwrap().1.to_string()
        };
        assert_eq!(
            next(Some("[2001:db8::1]:8060"), false),
            "http://[2001:db8::1]:8060/phonebook/cisco.xml"
        );
        assert_eq!(next(Some("mesh"), true), "https://mesh/phonebook/cisco.xml");
        assert_eq!(next(Some("a/<b>"), false), "/phonebook/cisco.xml");
        assert_eq!(next(None, false), "/phonebook/cisco.xml");
    }

    #[test]
    fn a_bad_query_is_refused_in_words() {
        let request = Request { path: "/phonebook", query: "page=x", ..Request::default() };
        let response = respond(&request, &sample(), Time::ZERO);
        assert_eq!(response.status, 400);
        assert_eq!(response.body, b"expected a number from 0 to 10000 for page\n");
    }

    proptest! {
        /// Whatever users call themselves, every document of theirs is well-formed.
        #[test]
        fn hostile_names_make_no_hostile_documents(
            names in prop::collection::vec((any::<String>(), any::<String>(), "[a-z]{1,8}"), 0..6),
        ) {
            let entries = names.iter().map(|(name, number, user)| entry(user, number, name));
            let book = Book::new(entries);
            for (path, format) in PATHS {
                let request = Request { path, query: "all", ..Request::default() };
                let body = String::from_utf8(respond(&request, &book, Time::ZERO).body).unwrap();
                match format {
                    Format::Json => {
                        prop_assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok());
                    }
                    _ => _ = crate::formats::xml::tests::read(&body),
                }
            }
        }
    }
}
