//! Names of header fields: one number for each that Ringway knows, however it is written.

/// A header field name. Full and compact forms in any case give the same id (RFC 3261
/// section 7.3.1, section 7.3.3).
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

const TABLE: usize = 512;

/// Ids by hash of their full name, stored plus one; next free place where two meet.
static BY_NAME: [u8; TABLE] = by_name();
/// Ids by compact form, stored plus one.
static BY_LETTER: [u8; 128] = by_letter();
/// The full names in lower case, as `words` gives them.
static WORDS: [Words; HeaderId::COUNT - 1] = by_words();

/// A name of up to 32 octets in little-endian words, filled up with zeros: comparing two of them
/// takes no call and no loop.
type Words = [u64; 4];

/// The longest name that can be one of ours.
const MAX_NAME: usize = 32;

/// Length and three letters tell all these names apart, whatever their case; the factors were
/// searched for that.
#[inline(always)]
const fn place(name: &[u8]) -> usize {
    let n = name.len();
    let first = (name[0] | 0x20) as usize;
    let middle = (name[n / 2] | 0x20) as usize;
    let last = (name[n - 1] | 0x20) as usize;
    (n * 96 + first * 23 + middle * 113 + last * 170) % TABLE
}

/// The letters of a word in lower case, eight at a time.
#[inline(always)]
const fn lower(w: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let low = w & (0x7f * ONES);
    let from_a = low + (0x80 - b'A' as u64) * ONES;
    let above_z = low + (0x7f - b'Z' as u64) * ONES;
    let upper = (from_a ^ above_z) & !w & (0x80 * ONES);
    w | (upper >> 2)
}

/// `N` octets from `at` on, as far as there are, in a little-endian word.
#[inline(always)]
fn load<const N: usize>(name: &[u8], at: usize) -> u64 {
    let mut word = [0u8; 8];
    if let Some(octets) = name.get(at..at + N) {
        word[..N].copy_from_slice(octets);
    }
    u64::from_le_bytes(word)
}

/// The words of a name of 2 to 32 octets. The last word is loaded so that it ends where the name
/// ends; what it shares with the word before is shifted out, or the same.
#[inline(always)]
fn words(name: &[u8]) -> Words {
    let n = name.len();
    let word = |at| lower(load::<8>(name, at));
    let tail = || lower(load::<8>(name, n - 8) >> (8 * (n.wrapping_neg() % 8)));
    match n {
        0..=3 => [lower(load::<2>(name, 0) | load::<1>(name, n - 1) << (8 * (n - 1))), 0, 0, 0],
        4..=7 => [lower(load::<4>(name, 0) | load::<4>(name, n - 4) << (8 * (n - 4))), 0, 0, 0],
        8 => [word(0), 0, 0, 0],
        9..=16 => [word(0), tail(), 0, 0],
        17..=24 => [word(0), word(8), tail(), 0],
        _ => [word(0), word(8), word(16), tail()],
    }
}

const fn by_words() -> [Words; HeaderId::COUNT - 1] {
    let mut table = [[0; 4]; HeaderId::COUNT - 1];
    let mut i = 0;
    while i < ROWS.len() {
        let name = ROWS[i].1.as_bytes();
        assert!(name.len() >= 2 && name.len() <= MAX_NAME);
        let mut j = 0;
        while j < name.len() {
            table[i][j / 8] |= (name[j].to_ascii_lowercase() as u64) << (8 * (j % 8));
            j += 1;
        }
        i += 1;
    }
    table
}

const fn by_name() -> [u8; TABLE] {
    let mut table = [0u8; TABLE];
    let mut i = 0;
    while i < ROWS.len() {
        let mut at = place(ROWS[i].1.as_bytes());
        while table[at] != 0 {
            at = (at + 1) % TABLE;
        }
        table[at] = i as u8 + 1;
        i += 1;
    }
    table
}

const fn by_letter() -> [u8; 128] {
    let mut table = [0u8; 128];
    let mut i = 0;
    while i < ROWS.len() {
        let letter = ROWS[i].2;
        if letter != 0 {
            table[letter as usize] = i as u8 + 1;
            table[letter.to_ascii_uppercase() as usize] = i as u8 + 1;
        }
        i += 1;
    }
    table
}

impl HeaderId {
    /// How many ids there are, [`HeaderId::Other`] among them.
    pub const COUNT: usize = HeaderId::Other as usize + 1;

    /// The id of a name, without white space around it.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        if name.len() < 2 || name.len() > MAX_NAME {
            return match name {
                &[b] if b < 128 => Self::stored(BY_LETTER[b as usize]),
                _ => HeaderId::Other,
            };
        }
        let words = words(name);
        let mut at = place(name);
        loop {
            let stored = BY_NAME[at];
            if stored == 0 {
                return HeaderId::Other;
            }
            if WORDS[stored as usize - 1] == words {
                return ROWS[stored as usize - 1].0;
            }
            at = (at + 1) % TABLE;
        }
    }

    #[inline]
    fn stored(place: u8) -> Self {
        if place == 0 { HeaderId::Other } else { ROWS[place as usize - 1].0 }
    }

    /// The full name as the standard writes it; empty for [`HeaderId::Other`].
    pub fn name(self) -> &'static str {
        ROWS.get(self as usize).map_or("", |row| row.1)
    }

    /// The compact form, where there is one (RFC 3261 section 7.3.3).
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

    /// The table gives an answer at the first place it looks.
    #[test]
    fn no_names_share_a_place() {
        let displaced = ROWS
            .iter()
            .enumerate()
            .filter(|(i, row)| BY_NAME[place(row.1.as_bytes())] as usize != i + 1)
            .count();
        assert_eq!(displaced, 0, "{displaced} names are not where their hash says");
    }
}
