//! Messages for users who are registered nowhere (RFC 3428 section 7: a relay that stores a message answers 202): which of
//! them may be kept, what is kept of them, and the request that is made of that when the user has returned.

use super::names::user_of;
use super::node::Node;
use super::proof::Proof;
use super::request::IncomingRequest;
use super::turn::Turn;
use crate::question::{MessageToKeep, Question};
use crate::registrar::date;
use ringway_sansio::Time;
use ringway_sip::header::HeaderId;
use ringway_sip::message::{self, Message, Method};
use ringway_sip::uri::Uri;
use ringway_sip::write;

/// The maximum length of what is kept of a message, in octets. RFC 3428 section 8 allows a request of 1,300 octets.
pub const MAX_KEPT: usize = 1_500;

/// The maximum time for which a message is kept, in seconds.
const MAX_LIFETIME: u32 = 86_400;

/// The hops that a message may still make when it is delivered.
const MAX_FORWARDS: u8 = 70;

/// Notices that somebody is writing (RFC 3994): of no use to whoever returns later.
const COMPOSING: &[u8] = b"application/im-iscomposing+xml";

/// Returns the question to the world whether a message for a user without contacts can be kept; `None` if it must not be:
/// it is within a dialog, its sender is not proved to be the user of its From, it is too long, or void at once.
pub(super) fn question(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    uri: &Uri<'_>,
    domain: usize,
    proof: &Proof,
) -> Option<Question> {
    let msg = incoming.msg;
    let Proof::Digest { realm, user } = proof else { return None };
    if !t.store.keeps_messages()
        || msg.method() != Method::Message
        || !incoming.may_ask_to_keep(t.now)
        || msg.to().is_ok_and(|to| to.tag().is_some())
    {
        return None;
    }
    let sender = t.node.identity.domain(realm.as_bytes())?;
    let from = t.node.aor(user, sender);
    let lifetime = match msg.first(HeaderId::Expires) {
        Some(value) => std::str::from_utf8(value).ok()?.trim().parse().ok()?,
        None => MAX_LIFETIME,
    };
    let composing = msg
        .first(HeaderId::ContentType)
        .is_some_and(|kind| kind.to_ascii_lowercase().starts_with(COMPOSING));
    let to = t.node.aor(user_of(uri)?, domain);
    let mut octets = Vec::with_capacity(MAX_KEPT);
    write_kept(&mut octets, msg, &to, t.now);
    let fits = lifetime > 0 && !composing && octets.len() <= MAX_KEPT;
    (fits && t.node.is_from(msg, &from)).then(|| {
        Question::Keep(Box::new(MessageToKeep {
            to: to.to_vec().into(),
            from: from.to_vec().into(),
            lifetime: lifetime.min(MAX_LIFETIME),
            octets: octets.into(),
        }))
    })
}

/// Returns whether a header field is kept: those about the message and its parties, none about its way.
fn is_kept(id: HeaderId) -> bool {
    matches!(
        id,
        HeaderId::From
            | HeaderId::To
            | HeaderId::CallId
            | HeaderId::CSeq
            | HeaderId::Date
            | HeaderId::Expires
            | HeaderId::Require
            | HeaderId::ContentType
            | HeaderId::ContentEncoding
            | HeaderId::ContentLanguage
            | HeaderId::ContentDisposition
            | HeaderId::MimeVersion
            | HeaderId::Subject
            | HeaderId::InReplyTo
            | HeaderId::ReplyTo
            | HeaderId::Priority
            | HeaderId::Organization
    )
}

/// Appends what is kept of a message: a request without what belongs to its way. The time at which it came is added as its
/// Date if it has none (RFC 3261 section 20.17: from what the recipient sees when it was sent).
fn write_kept(out: &mut Vec<u8>, msg: &Message<'_>, to: &[u8], now: Time) {
    write_start(out, to);
    write_fields(out, msg);
    if !msg.has(HeaderId::Date) {
        out.extend_from_slice(b"Date: ");
        date(out, now);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(msg.body());
}

fn write_start(out: &mut Vec<u8>, to: &[u8]) {
    out.extend_from_slice(b"MESSAGE ");
    out.extend_from_slice(to);
    out.extend_from_slice(b" SIP/2.0\r\n");
}

fn write_fields(out: &mut Vec<u8>, msg: &Message<'_>) {
    for slot in msg.headers().iter().filter(|slot| is_kept(slot.id)) {
        out.extend_from_slice(msg.line(slot));
    }
}

/// Returns the request that delivers a message to the user of the address-of-record `to`; `None` if the octets are no such
/// message of the user of `from`. They come from another router: nothing but the header fields that are kept is taken from
/// them.
pub(super) fn request(node: &Node, to: &[u8], from: &[u8], octets: &[u8]) -> Option<Vec<u8>> {
    let kept = message::parse(octets).ok()?;
    let is_whole = kept.method() == Method::Message
        && kept.to().is_ok_and(|to| to.tag().is_none())
        && node.is_from(&kept, from);
    if !is_whole || octets.len() > MAX_KEPT {
        return None;
    }
    let mut out = Vec::with_capacity(octets.len() + 256);
    write_start(&mut out, to);
    // Its own Via stands for the one of the sender, whose transaction has ended.
    out.extend_from_slice(b"Via: SIP/2.0/UDP ");
    write::addr(&mut out, node.inside().remote);
    out.extend_from_slice(b";branch=z9hG4bKkept\r\n");
    write::header_decimal(&mut out, "Max-Forwards", MAX_FORWARDS.into());
    write_fields(&mut out, &kept);
    write::end(&mut out, kept.body());
    let is_good = message::parse(&out).is_ok_and(|request| request.check().is_ok());
    is_good.then_some(out)
}
