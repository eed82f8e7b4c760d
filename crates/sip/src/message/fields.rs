//! The strict check of single header fields.

use crate::header::{HeaderId, Items, NameAddr, Via};
use crate::limits::{
    MAX_CALL_ID, MAX_CONTACTS, MAX_NESTING, MAX_ROUTES, MAX_TAG, MAX_TOKENS, MAX_VIAS,
};
use crate::syntax::{DIGIT, TOKEN, WORD, all, find_near, number, spaces, span};
use crate::uri::Uri;
use ringway_sansio::{Got, Malformed};

/// The number of elements so far of header fields that are bounded over a whole message.
#[derive(Default)]
pub(super) struct Counts {
    vias: usize,
    contacts: usize,
    routes: usize,
    record_routes: usize,
    paths: usize,
}

/// Returns whether a second header field of this name is an error, because two values would make the message ambiguous
/// for a server. Header fields that only endpoints read are not checked.
#[inline]
pub(super) fn stands_once(id: HeaderId) -> bool {
    use HeaderId::*;
    matches!(
        id,
        From | To
            | CallId
            | CSeq
            | MaxForwards
            | ContentLength
            | ContentType
            | Expires
            | MinExpires
            | Event
            | SubscriptionState
            | RAck
            | RSeq
            | SipIfMatch
            | MaxBreadth
    )
}

/// Returns whether [`check`] checks the values of this header field.
#[inline(always)]
pub(super) fn is_checked(id: HeaderId) -> bool {
    use HeaderId::*;
    matches!(
        id,
        Via | CallId
            | MaxForwards
            | Contact
            | Route
            | RecordRoute
            | Path
            | ServiceRoute
            | Require
            | ProxyRequire
            | ContentType
            | MinExpires
            | UserAgent
            | Server
            | RetryAfter
    )
}

/// Checks one field value. The first Via, which is passed, From and To are not checked: they have been already.
pub(super) fn check(
    id: HeaderId,
    value: &[u8],
    top_via: &Via<'_>,
    counts: &mut Counts,
) -> Result<(), Malformed> {
    match id {
        HeaderId::Via => vias(value, top_via, &mut counts.vias),
        HeaderId::CallId => call_id(value),
        HeaderId::MaxForwards => max_forwards(value),
        HeaderId::Contact => contacts(value, &mut counts.contacts),
        HeaderId::Route => routes(value, &mut counts.routes),
        HeaderId::RecordRoute => routes(value, &mut counts.record_routes),
        HeaderId::Path | HeaderId::ServiceRoute => routes(value, &mut counts.paths),
        HeaderId::Require | HeaderId::ProxyRequire => tokens(value),
        HeaderId::ContentType => content_type(value),
        HeaderId::MinExpires => min_expires(value),
        HeaderId::UserAgent | HeaderId::Server | HeaderId::RetryAfter => nesting(value),
        _ => Ok(()),
    }
}

/// Returns the error of an element, with its position from the start of the field value.
fn within(value: &[u8], item: &[u8]) -> impl FnOnce(Malformed) -> Malformed + use<> {
    let base = crate::syntax::offset(value, item);
    move |e| e.moved(base)
}

fn too_many(status: u16, reason: &'static str, count: usize) -> Malformed {
    Malformed::with_status(status, reason, Got::Number(count as u64), 0)
}

/// Checks Via (RFC 3261 section 20.42).
fn vias(value: &[u8], top: &Via<'_>, count: &mut usize) -> Result<(), Malformed> {
    if *count == 0 && value.len() == top.element.len() {
        *count = 1;
        return Ok(());
    }
    if value.is_empty() {
        return Err(Malformed::here("Via: expected a protocol name", value, 0));
    }
    for item in Items::new(value) {
        *count += 1;
        if *count > MAX_VIAS {
            return Err(too_many(483, "Via: expected fewer", *count));
        }
        if *count > 1 {
            Via::parse(item).map_err(within(value, item))?;
        }
    }
    Ok(())
}

/// Checks From or To (RFC 3261 section 20.20 and section 20.39). A tag may be absent (RFC 4475 section 3.4.1), but
/// there are never two, and none without a value.
pub(super) fn party(address: &NameAddr<'_>) -> Result<(), Malformed> {
    let value = address.element;
    Uri::parse(address.uri).map_err(within(value, address.uri))?;
    match address.tag() {
        Some(tag) if tag.len() > MAX_TAG => {
            let got = Got::Number(tag.len() as u64);
            Err(Malformed::bad("expected a shorter tag", got, crate::syntax::offset(value, tag)))
        }
        Some(tag) if !all(tag, TOKEN) => {
            let at = crate::syntax::offset(value, tag);
            Err(Malformed::here("expected a token as tag", value, at))
        }
        None if address.has_tag() => {
            let at = crate::syntax::offset(value, address.params);
            Err(Malformed::here("expected a value of the tag", value, at))
        }
        _ => Ok(()),
    }
}

/// Checks Call-ID: `word [ "@" word ]` (RFC 3261 section 20.8).
fn call_id(value: &[u8]) -> Result<(), Malformed> {
    if value.len() > MAX_CALL_ID {
        return Err(too_many(400, "Call-ID: expected fewer octets", value.len()));
    }
    let mut end = span(value, 0, WORD);
    if end > 0 && value.get(end) == Some(&b'@') {
        let host = span(value, end + 1, WORD);
        if host > end + 1 {
            end = host;
        }
    }
    if end == 0 || end != value.len() {
        return Err(Malformed::here("Call-ID: expected a word", value, end));
    }
    Ok(())
}

/// Checks Max-Forwards (RFC 3261 section 20.22).
fn max_forwards(value: &[u8]) -> Result<(), Malformed> {
    match number(value, u8::MAX as u64) {
        Some(_) => Ok(()),
        None => Err(Malformed::here("Max-Forwards: expected 0 to 255", value, 0)),
    }
}

/// Checks Contact (RFC 3261 section 20.10).
fn contacts(value: &[u8], count: &mut usize) -> Result<(), Malformed> {
    if value == b"*" {
        return Ok(());
    }
    if value.is_empty() {
        return Err(Malformed::here("Contact: expected an address", value, 0));
    }
    for item in Items::new(value) {
        *count += 1;
        if *count > MAX_CONTACTS {
            return Err(too_many(513, "Contact: expected fewer", *count));
        }
        let address = NameAddr::parse(item).map_err(within(value, item))?;
        Uri::parse(address.uri).map_err(within(value, address.uri))?;
    }
    Ok(())
}

/// Checks route elements (RFC 3261 section 20.30 and section 20.34, RFC 3327, RFC 3608): always `name-addr`.
fn routes(value: &[u8], count: &mut usize) -> Result<(), Malformed> {
    if value.is_empty() {
        return Err(Malformed::here("route: expected an address", value, 0));
    }
    for item in Items::new(value) {
        *count += 1;
        if *count > MAX_ROUTES {
            return Err(too_many(513, "route: expected fewer", *count));
        }
        let address = NameAddr::parse(item).map_err(within(value, item))?;
        if !address.bracketed {
            let at = crate::syntax::offset(value, item);
            return Err(Malformed::here("route: expected '<'", value, at));
        }
        Uri::parse(address.uri).map_err(within(value, address.uri))?;
    }
    Ok(())
}

/// Checks a list of option tags (RFC 3261 section 20.32).
fn tokens(value: &[u8]) -> Result<(), Malformed> {
    for (i, item) in Items::new(value).enumerate() {
        if i >= MAX_TOKENS {
            return Err(too_many(400, "expected fewer option tags", i + 1));
        }
        let end = span(item, 0, TOKEN);
        if end == 0 || end != item.len() {
            let at = crate::syntax::offset(value, item) + end;
            return Err(Malformed::here("expected an option tag", value, at));
        }
    }
    Ok(())
}

/// Checks `m-type SLASH m-subtype *(SEMI m-parameter)` (RFC 3261 section 20.15).
fn content_type(value: &[u8]) -> Result<(), Malformed> {
    let end = span(value, 0, TOKEN);
    let slash = spaces(value, end);
    if end == 0 || value.get(slash) != Some(&b'/') {
        return Err(Malformed::here("Content-Type: expected a type", value, slash));
    }
    let start = spaces(value, slash + 1);
    let mut at = span(value, start, TOKEN);
    if at == start {
        return Err(Malformed::here("Content-Type: expected a subtype", value, at));
    }
    let mut count = 0;
    while let Some((_, next)) = crate::header::next_param(value, at)? {
        at = next;
        count += 1;
        if count > crate::limits::MAX_PARAMS {
            return Err(too_many(400, "Content-Type: expected fewer parameters", count));
        }
    }
    Ok(())
}

/// Checks Min-Expires (RFC 3261 section 20.23).
fn min_expires(value: &[u8]) -> Result<(), Malformed> {
    if value.is_empty() || !all(value, DIGIT) {
        return Err(Malformed::here("Min-Expires: expected seconds", value, 0));
    }
    Ok(())
}

/// Checks the nesting of comments (RFC 3261 section 25.1): it is bounded for the sake of later readers.
fn nesting(value: &[u8]) -> Result<(), Malformed> {
    // Most values have no comment.
    if find_near(value, 0, b'(').is_none() {
        return Ok(());
    }
    let mut depth = 0usize;
    let mut i = 0;
    while i < value.len() {
        match value[i] {
            b'\\' => i += 1,
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            let got = Got::Number(depth as u64);
            return Err(Malformed::bad("expected fewer nested comments", got, i));
        }
        i += 1;
    }
    Ok(())
}
