//! Presence documents, `application/pidf+xml` (RFC 3863, with the person of RFC 4479 and the activities of RFC 4480): the
//! body of a notification of the package `presence`, and of a PUBLISH.
//!
//! Of what a phone publishes, only what other phones show is read: whether the user is open, one activity, and a note.
//! Watchers are sent a document of this server, and nothing that a phone has written goes to them as it is.

use super::xml::{DECLARATION, attribute, escape};
use crate::states::{Activity, Dialog, Direction, MAX_NOTE, Phase, Publication, UserState};
use quick_xml::events::Event;
use quick_xml::reader::Reader;

/// Media type of the documents.
pub const CONTENT_TYPE: &[u8] = b"application/pidf+xml";
/// Maximum length of a document that is read, in octets; more is answered with 413.
pub const MAX_PUBLISHED: usize = 8 * 1024;
/// Maximum depth of elements.
const MAX_DEPTH: usize = 16;

/// Appends the document about the user whom the subscriber knows as `entity`.
pub(super) fn write(out: &mut Vec<u8>, entity: &[u8], state: &UserState) {
    let publications = &state.publications;
    let is_open = state.is_registered
        && (publications.is_empty() || publications.iter().any(|publication| publication.is_open));
    let published = publications.iter().map(|publication| publication.activity);
    let activity = match state.dialogs.is_empty() {
        false => Activity::OnThePhone,
        true => published.into_iter().find(|a| *a != Activity::None).unwrap_or_default(),
    };
    let note = publications.iter().map(|publication| &*publication.note);
    let note = note.into_iter().find(|note| !note.is_empty()).unwrap_or_default();
    out.extend_from_slice(DECLARATION);
    out.extend_from_slice(
        b"<presence xmlns=\"urn:ietf:params:xml:ns:pidf\" \
          xmlns:dm=\"urn:ietf:params:xml:ns:pidf:data-model\" \
          xmlns:rpid=\"urn:ietf:params:xml:ns:pidf:rpid",
    );
    attribute(out, "entity", entity);
    out.extend_from_slice(b"\">\n<tuple id=\"t1\"><status><basic>");
    out.extend_from_slice(if is_open { b"open" } else { b"closed" });
    out.extend_from_slice(b"</basic></status><contact>");
    escape(out, entity);
    out.extend_from_slice(b"</contact>");
    element(out, "note", note);
    out.extend_from_slice(b"</tuple>\n<dm:person id=\"p1\">");
    if let Some(name) = activity.name() {
        for part in ["<rpid:activities><rpid:", name, "/></rpid:activities>"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    element(out, "dm:note", note);
    out.extend_from_slice(b"</dm:person>\n</presence>\n");
}

/// Removes what the document does not show: the phases of calls, and all calls but one. Two states that are the same then
/// have the same document.
pub(super) fn reduce(state: &mut UserState) {
    let shown = Dialog { id: 0, direction: Direction::Initiator, phase: Phase::Confirmed };
    state.dialogs.truncate(1);
    state.dialogs.fill(shown);
}

fn element(out: &mut Vec<u8>, name: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    for (part, is_text) in [("<", false), (name, false), (">", false), (text, true)] {
        if is_text { escape(out, part.as_bytes()) } else { out.extend_from_slice(part.as_bytes()) }
    }
    for part in ["</", name, ">"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Returns what a document states; `None` if it is no presence document, or has a document type declaration.
pub(crate) fn parse(body: &[u8]) -> Option<Publication> {
    let mut reader = Reader::from_reader(body);
    let mut path: Vec<Box<str>> = Vec::new();
    let mut found = Found::default();
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                let name: Box<str> = start.local_name().as_ref().into();
                if path.len() >= MAX_DEPTH
                    || path.is_empty() && (*name != *"presence" || found.is_whole)
                {
                    return None;
                }
                found.enter(&path, &name);
                path.push(name);
            }
            Event::Empty(empty) => {
                let name: Box<str> = empty.local_name().as_ref().into();
                if path.is_empty() && (*name != *"presence" || found.is_whole) {
                    return None;
                }
                found.is_whole |= path.is_empty();
                found.enter(&path, &name);
            }
            Event::End(_) => {
                let ended = path.pop();
                found.has_note |=
                    ended.is_some_and(|name| *name == *"note") && !found.note.is_empty();
                found.is_whole |= path.is_empty();
            }
            Event::Text(text) => found.text(&path, &text),
            Event::GeneralRef(name) => {
                found.text(&path, reference(&name)?.encode_utf8(&mut [0; 4]))
            }
            Event::DocType(_) => return None,
            Event::Eof => break,
            _ => {}
        }
    }
    found.is_whole.then(|| found.publication())
}

/// Returns the character of a reference: one of the five that XML defines, or a number.
fn reference(name: &quick_xml::events::BytesRef<'_>) -> Option<char> {
    if let Some(character) = name.resolve_char_ref().ok()? {
        return Some(character);
    }
    match &**name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => None,
    }
}

/// What has been read of a document.
#[derive(Default)]
struct Found {
    /// Whether any tuple is open; `None` without a tuple.
    is_open: Option<bool>,
    activity: Activity,
    note: String,
    /// Whether a note has ended: further ones repeat it, or are in other languages.
    has_note: bool,
    /// Whether the document element has ended.
    is_whole: bool,
}

impl Found {
    fn enter(&mut self, path: &[Box<str>], name: &str) {
        let in_activities = path.last().is_some_and(|last| **last == *"activities");
        if in_activities && self.activity == Activity::None {
            self.activity = Activity::from_name(name).unwrap_or_default();
        }
    }

    fn text(&mut self, path: &[Box<str>], text: &str) {
        match path.last().map(|name| &**name) {
            Some("basic") => match text.trim() {
                "open" => self.is_open = Some(true),
                "closed" => self.is_open = self.is_open.or(Some(false)),
                _ => {}
            },
            Some("note") if !self.has_note && self.note.len() < MAX_NOTE => {
                self.note.push_str(text)
            }
            _ => {}
        }
    }

    fn publication(self) -> Publication {
        let note = self.note.trim();
        let mut end = note.len().min(MAX_NOTE);
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        // RFC 3863 section 4.1.4: without a status nothing is known; the phone has published, so it is there.
        let is_open = self.is_open.unwrap_or(true);
        Publication { is_open, activity: self.activity, note: note[..end].into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state(publications: Vec<Publication>) -> UserState {
        UserState { is_registered: true, dialogs: Vec::new(), publications }
    }

    /// What linphone publishes, shortened.
    #[test]
    fn the_document_of_a_phone_is_read() {
        let body = br#"<?xml version="1.0" encoding="UTF-8"?>
            <presence xmlns="urn:ietf:params:xml:ns:pidf" entity="sip:alice@mesh"
                xmlns:pp="urn:ietf:params:xml:ns:pidf:data-model" xmlns:rpid="urn:ietf:params:xml:ns:pidf:rpid">
              <tuple id="qmjk2g"><status><basic>open</basic></status>
                <contact priority="0.8">sip:alice@192.0.2.7</contact>
                <timestamp>2026-11-25T10:00:00Z</timestamp></tuple>
              <pp:person id="p"><rpid:activities><rpid:meal/></rpid:activities>
                <pp:note xml:lang="de">Bis 14&#x20;Uhr &amp; kurz</pp:note></pp:person>
            </presence>"#;
        let read = parse(body).unwrap();
        let note = "Bis 14 Uhr & kurz".into();
        assert_eq!(read, Publication { is_open: true, activity: Activity::Meal, note });
    }

    #[test]
    fn what_is_no_presence_document_is_refused() {
        for body in [
            &b""[..],
            b"away",
            b"<dialog-info/>",
            b"<presence>",
            b"<presence></absent>",
            b"<!DOCTYPE presence [<!ENTITY a \"b\">]><presence/>",
            b"<presence><tuple><note>&a;</note></tuple></presence>",
            b"<presence/><presence/>",
        ] {
            assert_eq!(parse(body), None, "{}", String::from_utf8_lossy(body));
        }
        let deep = [b"<presence>".as_slice(), &b"<a>".repeat(100_000)].concat();
        assert_eq!(parse(&deep), None);
    }

    #[test]
    fn calls_come_before_what_is_published() {
        let away = Publication { is_open: true, activity: Activity::Away, note: "".into() };
        let mut document = Vec::new();
        let mut talking = state(vec![away]);
        write(&mut document, b"sip:alice@mesh", &talking);
        assert_eq!(parse(&document).unwrap().activity, Activity::Away);
        let (direction, phase) = (Direction::Recipient, Phase::Confirmed);
        talking.dialogs.push(Dialog { id: 1, direction, phase });
        document.clear();
        write(&mut document, b"sip:alice@mesh", &talking);
        assert_eq!(parse(&document).unwrap().activity, Activity::OnThePhone);
        document.clear();
        write(&mut document, b"sip:alice@mesh", &UserState { is_registered: false, ..talking });
        assert!(!parse(&document).unwrap().is_open);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(open in any::<bool>(), note in "[ -~\u{a0}-\u{ff}]{0,40}") {
            let mut document = Vec::new();
            let note: Box<str> = note.trim().into();
            let publication = Publication { is_open: open, activity: Activity::Busy, note };
            write(&mut document, b"sip:a&b@mesh", &state(vec![publication.clone()]));
            let read = parse(&document).unwrap();
            prop_assert_eq!(read, publication);
        }

        #[test]
        fn no_octets_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&body);
        }
    }
}
