//! Names of header fields: an id for each that Ringway knows, in any notation.

use crate::syntax::{ONES, word};

/// A header field name. Full and compact forms in any case have the same id (RFC 3261 section 7.3.1, section 7.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum HeaderId {
    /// `Via`, RFC 3261 section 20.42.
    Via,
    /// `From`, RFC 3261 section 20.20.
    From,
    /// `To`, RFC 3261 section 20.39.
    To,
    /// `Call-ID`, RFC 3261 section 20.8.
    CallId,
    /// `CSeq`, RFC 3261 section 20.16.
    CSeq,
    /// `Max-Forwards`, RFC 3261 section 20.22.
    MaxForwards,
    /// `Contact`, RFC 3261 section 20.10.
    Contact,
    /// `Route`, RFC 3261 section 20.34.
    Route,
    /// `Record-Route`, RFC 3261 section 20.30.
    RecordRoute,
    /// `Content-Length`, RFC 3261 section 20.14.
    ContentLength,
    /// `Content-Type`, RFC 3261 section 20.15.
    ContentType,
    /// `Expires`, RFC 3261 section 20.19.
    Expires,
    /// `Min-Expires`, RFC 3261 section 20.23.
    MinExpires,
    /// `Require`, RFC 3261 section 20.32.
    Require,
    /// `Proxy-Require`, RFC 3261 section 20.29.
    ProxyRequire,
    /// `Supported`, RFC 3261 section 20.37.
    Supported,
    /// `Unsupported`, RFC 3261 section 20.40.
    Unsupported,
    /// `Authorization`, RFC 3261 section 20.7.
    Authorization,
    /// `Proxy-Authorization`, RFC 3261 section 20.28.
    ProxyAuthorization,
    /// `WWW-Authenticate`, RFC 3261 section 20.44.
    WwwAuthenticate,
    /// `Proxy-Authenticate`, RFC 3261 section 20.27.
    ProxyAuthenticate,
    /// `Authentication-Info`, RFC 3261 section 20.6.
    AuthenticationInfo,
    /// `Proxy-Authentication-Info`, RFC 7615.
    ProxyAuthenticationInfo,
    /// `Path`, RFC 3327.
    Path,
    /// `Service-Route`, RFC 3608.
    ServiceRoute,
    /// `Allow`, RFC 3261 section 20.5.
    Allow,
    /// `Event`, RFC 6665.
    Event,
    /// `Subscription-State`, RFC 6665.
    SubscriptionState,
    /// `Allow-Events`, RFC 6665.
    AllowEvents,
    /// `Date`, RFC 3261 section 20.17.
    Date,
    /// `User-Agent`, RFC 3261 section 20.41.
    UserAgent,
    /// `Server`, RFC 3261 section 20.35.
    Server,
    /// `Retry-After`, RFC 3261 section 20.33.
    RetryAfter,
    /// `Subject`, RFC 3261 section 20.36.
    Subject,
    /// `Accept`, RFC 3261 section 20.1.
    Accept,
    /// `Accept-Encoding`, RFC 3261 section 20.2.
    AcceptEncoding,
    /// `Accept-Language`, RFC 3261 section 20.3.
    AcceptLanguage,
    /// `Alert-Info`, RFC 3261 section 20.4.
    AlertInfo,
    /// `Call-Info`, RFC 3261 section 20.9.
    CallInfo,
    /// `Content-Disposition`, RFC 3261 section 20.11.
    ContentDisposition,
    /// `Content-Encoding`, RFC 3261 section 20.12.
    ContentEncoding,
    /// `Content-Language`, RFC 3261 section 20.13.
    ContentLanguage,
    /// `Error-Info`, RFC 3261 section 20.18.
    ErrorInfo,
    /// `In-Reply-To`, RFC 3261 section 20.21.
    InReplyTo,
    /// `MIME-Version`, RFC 3261 section 20.24.
    MimeVersion,
    /// `Organization`, RFC 3261 section 20.25.
    Organization,
    /// `Priority`, RFC 3261 section 20.26.
    Priority,
    /// `Reply-To`, RFC 3261 section 20.31.
    ReplyTo,
    /// `Timestamp`, RFC 3261 section 20.38.
    Timestamp,
    /// `Warning`, RFC 3261 section 20.43.
    Warning,
    /// `RAck`, RFC 3262.
    RAck,
    /// `RSeq`, RFC 3262.
    RSeq,
    /// `Refer-To`, RFC 3515.
    ReferTo,
    /// `Referred-By`, RFC 3892.
    ReferredBy,
    /// `Refer-Sub`, RFC 4488.
    ReferSub,
    /// `Replaces`, RFC 3891.
    Replaces,
    /// `Join`, RFC 3911.
    Join,
    /// `Target-Dialog`, RFC 4538.
    TargetDialog,
    /// `Session-Expires`, RFC 4028.
    SessionExpires,
    /// `Min-SE`, RFC 4028.
    MinSe,
    /// `SIP-ETag`, RFC 3903.
    SipEtag,
    /// `SIP-If-Match`, RFC 3903.
    SipIfMatch,
    /// `Identity`, RFC 8224.
    Identity,
    /// `Privacy`, RFC 3323.
    Privacy,
    /// `P-Asserted-Identity`, RFC 3325.
    PAssertedIdentity,
    /// `P-Preferred-Identity`, RFC 3325.
    PPreferredIdentity,
    /// `Reason`, RFC 3326.
    Reason,
    /// `History-Info`, RFC 7044.
    HistoryInfo,
    /// `Diversion`, RFC 5806.
    Diversion,
    /// `Flow-Timer`, RFC 5626.
    FlowTimer,
    /// `Max-Breadth`, RFC 5393.
    MaxBreadth,
    /// `Accept-Contact`, RFC 3841.
    AcceptContact,
    /// `Reject-Contact`, RFC 3841.
    RejectContact,
    /// `Request-Disposition`, RFC 3841.
    RequestDisposition,
    /// `User-to-User`, RFC 7433.
    UserToUser,
    /// `Session-ID`, RFC 7989.
    SessionId,
    /// Any other name.
    Other,
}

/// Id, full name, compact form or zero.
type Row = (HeaderId, &'static str, u8);

const ROWS: [Row; HeaderId::COUNT - 1] = [
    (HeaderId::Via, "Via", b'v'),
    (HeaderId::From, "From", b'f'),
    (HeaderId::To, "To", b't'),
    (HeaderId::CallId, "Call-ID", b'i'),
    (HeaderId::CSeq, "CSeq", 0),
    (HeaderId::MaxForwards, "Max-Forwards", 0),
    (HeaderId::Contact, "Contact", b'm'),
    (HeaderId::Route, "Route", 0),
    (HeaderId::RecordRoute, "Record-Route", 0),
    (HeaderId::ContentLength, "Content-Length", b'l'),
    (HeaderId::ContentType, "Content-Type", b'c'),
    (HeaderId::Expires, "Expires", 0),
    (HeaderId::MinExpires, "Min-Expires", 0),
    (HeaderId::Require, "Require", 0),
    (HeaderId::ProxyRequire, "Proxy-Require", 0),
    (HeaderId::Supported, "Supported", b'k'),
    (HeaderId::Unsupported, "Unsupported", 0),
    (HeaderId::Authorization, "Authorization", 0),
    (HeaderId::ProxyAuthorization, "Proxy-Authorization", 0),
    (HeaderId::WwwAuthenticate, "WWW-Authenticate", 0),
    (HeaderId::ProxyAuthenticate, "Proxy-Authenticate", 0),
    (HeaderId::AuthenticationInfo, "Authentication-Info", 0),
    (HeaderId::ProxyAuthenticationInfo, "Proxy-Authentication-Info", 0),
    (HeaderId::Path, "Path", 0),
    (HeaderId::ServiceRoute, "Service-Route", 0),
    (HeaderId::Allow, "Allow", 0),
    (HeaderId::Event, "Event", b'o'),
    (HeaderId::SubscriptionState, "Subscription-State", 0),
    (HeaderId::AllowEvents, "Allow-Events", b'u'),
    (HeaderId::Date, "Date", 0),
    (HeaderId::UserAgent, "User-Agent", 0),
    (HeaderId::Server, "Server", 0),
    (HeaderId::RetryAfter, "Retry-After", 0),
    (HeaderId::Subject, "Subject", b's'),
    (HeaderId::Accept, "Accept", 0),
    (HeaderId::AcceptEncoding, "Accept-Encoding", 0),
    (HeaderId::AcceptLanguage, "Accept-Language", 0),
    (HeaderId::AlertInfo, "Alert-Info", 0),
    (HeaderId::CallInfo, "Call-Info", 0),
    (HeaderId::ContentDisposition, "Content-Disposition", 0),
    (HeaderId::ContentEncoding, "Content-Encoding", b'e'),
    (HeaderId::ContentLanguage, "Content-Language", 0),
    (HeaderId::ErrorInfo, "Error-Info", 0),
    (HeaderId::InReplyTo, "In-Reply-To", 0),
    (HeaderId::MimeVersion, "MIME-Version", 0),
    (HeaderId::Organization, "Organization", 0),
    (HeaderId::Priority, "Priority", 0),
    (HeaderId::ReplyTo, "Reply-To", 0),
    (HeaderId::Timestamp, "Timestamp", 0),
    (HeaderId::Warning, "Warning", 0),
    (HeaderId::RAck, "RAck", 0),
    (HeaderId::RSeq, "RSeq", 0),
    (HeaderId::ReferTo, "Refer-To", b'r'),
    (HeaderId::ReferredBy, "Referred-By", b'b'),
    (HeaderId::ReferSub, "Refer-Sub", 0),
    (HeaderId::Replaces, "Replaces", 0),
    (HeaderId::Join, "Join", 0),
    (HeaderId::TargetDialog, "Target-Dialog", 0),
    (HeaderId::SessionExpires, "Session-Expires", b'x'),
    (HeaderId::MinSe, "Min-SE", 0),
    (HeaderId::SipEtag, "SIP-ETag", 0),
    (HeaderId::SipIfMatch, "SIP-If-Match", 0),
    (HeaderId::Identity, "Identity", b'y'),
    (HeaderId::Privacy, "Privacy", 0),
    (HeaderId::PAssertedIdentity, "P-Asserted-Identity", 0),
    (HeaderId::PPreferredIdentity, "P-Preferred-Identity", 0),
    (HeaderId::Reason, "Reason", 0),
    (HeaderId::HistoryInfo, "History-Info", 0),
    (HeaderId::Diversion, "Diversion", 0),
    (HeaderId::FlowTimer, "Flow-Timer", 0),
    (HeaderId::MaxBreadth, "Max-Breadth", 0),
    (HeaderId::AcceptContact, "Accept-Contact", b'a'),
    (HeaderId::RejectContact, "Reject-Contact", b'j'),
    (HeaderId::RequestDisposition, "Request-Disposition", b'd'),
    (HeaderId::UserToUser, "User-to-User", 0),
    (HeaderId::SessionId, "Session-ID", 0),
];

/// The number of slots of the table by name: a power of two.
const TABLE: usize = 256;

/// A slot: the id of a name, [`HeaderId::Other`] for none, and its length.
type Slot = (HeaderId, u8);

/// Ids by hash of their full name.
static BY_NAME: [Slot; TABLE] = by_name();
/// Ids by compact form.
static BY_LETTER: [HeaderId; 128] = by_letter();
/// The full names in lower case, as [`Words`].
static WORDS: [Words; HeaderId::COUNT] = by_words();

/// The first eight octets of a name, padded with zeros, and its last eight if it is longer. With the length they are
/// the whole of a name of up to [`PLAIN`] octets, and comparing them needs no call and no loop.
#[derive(Clone, Copy)]
struct Words {
    first: u64,
    last: u64,
}

/// The maximum length of a name that its words contain completely.
const PLAIN: usize = 16;

/// The bit that distinguishes capitals from small letters, in every octet.
const CASE: u64 = 0x20 * ONES;

impl Words {
    /// Returns the slot of a name: different for all our names, in any case. The factor was searched for that.
    #[inline(always)]
    const fn slot(self) -> usize {
        let both = (self.first | CASE) ^ (self.last | CASE).rotate_left(5);
        (both.wrapping_mul(0xd5ce_be42_ce0a_e6b1) >> 56) as usize
    }

    /// Returns whether a word is the `known` one, which is in lower case, without regard to the case of letters: those
    /// octets of `known` that have the bit above [`CASE`].
    #[inline(always)]
    const fn same(word: u64, known: u64) -> bool {
        word | (known >> 1 & CASE) == known
    }
}

const fn by_words() -> [Words; HeaderId::COUNT] {
    let mut table = [Words { first: 0, last: 0 }; HeaderId::COUNT];
    let mut i = 0;
    while i < ROWS.len() {
        let name = ROWS[i].1.as_bytes();
        assert!(ROWS[i].0 as usize == i && name.len() >= 2);
        let mut j = 0;
        while j < name.len() {
            let octet = name[j].to_ascii_lowercase() as u64;
            if j < 8 {
                table[i].first |= octet << (8 * j);
            }
            if name.len() > 8 && j >= name.len() - 8 {
                table[i].last |= octet << (8 * (j + 8 - name.len()));
            }
            j += 1;
        }
        i += 1;
    }
    table
}

const fn by_name() -> [Slot; TABLE] {
    let mut table = [(HeaderId::Other, 0); TABLE];
    let words = by_words();
    let mut i = 0;
    while i < ROWS.len() {
        let place = words[i].slot();
        assert!(table[place].1 == 0, "two names share a place");
        table[place] = (ROWS[i].0, ROWS[i].1.len() as u8);
        i += 1;
    }
    table
}

const fn by_letter() -> [HeaderId; 128] {
    let mut table = [HeaderId::Other; 128];
    let mut i = 0;
    while i < ROWS.len() {
        let (id, _, letter) = ROWS[i];
        if letter != 0 {
            table[letter as usize] = id;
            table[letter.to_ascii_uppercase() as usize] = id;
        }
        i += 1;
    }
    table
}

impl HeaderId {
    /// The number of ids, including [`HeaderId::Other`].
    pub const COUNT: usize = HeaderId::Other as usize + 1;

    /// Returns the id of a name, without white space around it.
    pub fn of(name: &[u8]) -> Self {
        let words = Words {
            first: word(name, 0),
            last: if name.len() > 8 { word(name, name.len() - 8) } else { 0 },
        };
        match name {
            [letter] => Self::of_letter(*letter),
            _ => match Self::of_words(words, name.len()) {
                id if name.len() <= PLAIN || id.is_named(name) => id,
                _ => HeaderId::Other,
            },
        }
    }

    /// Returns the id of a name of fewer than eight octets, passed as a word with zeros above it.
    #[inline(always)]
    pub(crate) fn of_word(name: u64, length: usize) -> Self {
        if length == 1 {
            return Self::of_letter(name as u8);
        }
        let words = Words { first: name, last: 0 };
        let (id, known) = BY_NAME[words.slot()];
        // They have the same length, so the last words are both zero.
        let same = known as usize == length && Words::same(name, WORDS[id as usize].first);
        if same { id } else { HeaderId::Other }
    }

    #[inline(always)]
    fn of_letter(letter: u8) -> Self {
        BY_LETTER.get(letter as usize).copied().unwrap_or(HeaderId::Other)
    }

    /// Returns the one id that a name of these words and this length can have.
    #[inline(always)]
    fn of_words(words: Words, length: usize) -> Self {
        let (id, known) = BY_NAME[words.slot()];
        let Words { first, last } = WORDS[id as usize];
        let same = Words::same(words.first, first) && Words::same(words.last, last);
        if known as usize == length && same { id } else { HeaderId::Other }
    }

    fn is_named(self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.name().as_bytes())
    }

    /// Returns the full name as in the standard; empty for [`HeaderId::Other`].
    pub fn name(self) -> &'static str {
        ROWS.get(self as usize).map_or("", |row| row.1)
    }

    /// Returns the compact form, if there is one (RFC 3261 section 7.3.3).
    pub fn compact(self) -> Option<u8> {
        ROWS.get(self as usize).map(|row| row.2).filter(|&letter| letter != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3261 section 7.3.1: names are case-insensitive; section 7.3.3: compact forms.
    #[test]
    fn every_name_finds_its_id_in_any_form() {
        for (i, (id, name, letter)) in ROWS.iter().enumerate() {
            assert_eq!(*id as usize, i);
            assert_eq!(HeaderId::of(name.as_bytes()), *id);
            assert_eq!(HeaderId::of(name.to_ascii_uppercase().as_bytes()), *id);
            assert_eq!(HeaderId::of(name.to_ascii_lowercase().as_bytes()), *id);
            assert_eq!(id.name(), *name);
            if *letter != 0 {
                assert_eq!(HeaderId::of(&[*letter]), *id);
                assert_eq!(HeaderId::of(&[letter.to_ascii_uppercase()]), *id);
            }
        }
    }

    #[test]
    fn other_names_are_other() {
        for name in [
            &b""[..],
            b"q",
            b"Z",
            b"Vi",
            b"Viaa",
            b"X-Unknown",
            b"Fron",
            b"\xff\xff",
            b"Call\rID",
            b"Call-ID\0",
        ] {
            assert_eq!(HeaderId::of(name), HeaderId::Other);
        }
        assert_eq!(HeaderId::Other.name(), "");
    }

    /// A name differs from ours in one octet, in the middle of a long one too, or in its length.
    #[test]
    fn nearly_a_name_is_another() {
        for (id, name, _) in &ROWS {
            for at in 0..name.len() {
                let mut other = name.as_bytes().to_vec();
                for octet in 0..=255u8 {
                    other[at] = octet;
                    let same = other.eq_ignore_ascii_case(name.as_bytes());
                    assert_eq!(HeaderId::of(&other) == *id, same, "{other:?}");
                    if name.len() < 8 {
                        let id = HeaderId::of_word(word(&other, 0), name.len());
                        assert_eq!(id, HeaderId::of(&other));
                    }
                }
            }
            for cut in 2..name.len() {
                assert_ne!(HeaderId::of(&name.as_bytes()[..cut]), *id);
                let longer = [&name[..cut], name].concat();
                assert_ne!(HeaderId::of(longer.as_bytes()), *id);
            }
        }
    }
}
