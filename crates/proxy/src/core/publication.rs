//! PUBLISH: what a phone publishes of its user's presence (RFC 3903).

use super::refusal::Refusal;
use crate::notifier::pidf;
use crate::registrar::seconds;
use crate::states::{Change, PublishError};
use ringway_sansio::{Duration, Time};
use ringway_sip::header::HeaderId;
use ringway_sip::message::Message;
use ringway_sip::write;

/// Seconds that a publication lasts if the request names no time.
const DEFAULT_EXPIRES: u32 = 3600;
/// Minimum seconds of a publication; a shorter one is answered with 423.
const MIN_EXPIRES: u32 = 60;
/// Maximum seconds of a publication, whatever is asked for.
const MAX_EXPIRES: u32 = 7200;

/// Returns what a PUBLISH changes, and the seconds for which it lasts. The new entity-tag is `tag`.
pub(super) fn change(now: Time, msg: &Message<'_>, tag: u64) -> Result<(Change, u32), Refusal> {
    let asked = msg.first(HeaderId::Expires).and_then(seconds).unwrap_or(DEFAULT_EXPIRES);
    if asked > 0 && asked < MIN_EXPIRES {
        let mut refusal = Refusal::new(423, "Interval Too Brief");
        write::header_decimal(&mut refusal.headers, "Min-Expires", u64::from(MIN_EXPIRES));
        return Err(refusal);
    }
    let expires = asked.min(MAX_EXPIRES);
    let replaces = match msg.first(HeaderId::SipIfMatch) {
        None => None,
        // A tag that this server has not made is of no publication.
        Some(tag) => Some(parse_tag(tag).ok_or_else(|| refusal(PublishError::NoSuchTag))?),
    };
    let publication = match (msg.body(), replaces) {
        ([], None) => return Err(Refusal::new(400, "expected a presence document")),
        ([], Some(_)) => None,
        (body, _) => Some(publication(msg, body)?),
    };
    let until = (expires > 0).then(|| now + Duration::from_secs(u64::from(expires)));
    Ok((Change { replaces, publication, expires: until, tag }, expires))
}

fn publication(msg: &Message<'_>, body: &[u8]) -> Result<crate::states::Publication, Refusal> {
    let kind = msg.first(HeaderId::ContentType).unwrap_or_default();
    let kind = kind.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
    if !kind.eq_ignore_ascii_case(pidf::CONTENT_TYPE) || msg.has(HeaderId::ContentEncoding) {
        let mut refusal = Refusal::new(415, "Unsupported Media Type");
        write::header(&mut refusal.headers, "Accept", pidf::CONTENT_TYPE);
        return Err(refusal);
    }
    if body.len() > pidf::MAX_PUBLISHED {
        return Err(Refusal::new(413, "Request Entity Too Large"));
    }
    pidf::parse(body).ok_or(Refusal::new(400, "expected a presence document"))
}

/// Returns the refusal of a publication that was not stored.
pub(super) fn refusal(error: PublishError) -> Refusal {
    match error {
        PublishError::NoSuchTag => Refusal::new(412, "Conditional Request Failed"),
        PublishError::Full => Refusal::new(503, "Service Unavailable"),
    }
}

/// Returns the header fields of the 200.
pub(super) fn headers(tag: u64, expires: u32) -> Vec<u8> {
    let mut headers = b"SIP-ETag: ".to_vec();
    write::hex(&mut headers, &tag.to_be_bytes());
    headers.extend_from_slice(b"\r\n");
    write::header_decimal(&mut headers, "Expires", u64::from(expires));
    headers
}

fn parse_tag(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}
