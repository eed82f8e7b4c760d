//! Requests that the server answers itself, REGISTER and SUBSCRIBE apart: OPTIONS, redirection, refusals.

use super::refusal::Refusal;
use super::request::IncomingRequest;
use super::target::RequestTarget;
use super::turn::Turn;
use crate::notifier::ALLOW_EVENTS;
use crate::shared::REQUEST_LIFETIME;
use ringway_sansio::{Flow, Target};
use ringway_sip::header::HeaderId;
use ringway_sip::message::{self, Message, Method, Start};
use ringway_sip::write;
use std::hash::Hasher;

/// The methods of requests to the server itself.
const ALLOW: &[u8] = b"Allow: OPTIONS, REGISTER, SUBSCRIBE, PUBLISH\r\n";

/// The capabilities of the server, for OPTIONS (RFC 3261 section 11.2).
const CAPABILITIES: &[u8] =
    b"Allow: OPTIONS, REGISTER, SUBSCRIBE, INVITE, ACK, CANCEL, BYE, MESSAGE, \
NOTIFY, REFER, INFO, UPDATE, PRACK, PUBLISH\r\nAccept: application/sdp, application/pidf+xml\r\n\
Accept-Encoding: identity\r\nAccept-Language: en\r\nAllow-Events: reg, dialog, presence\r\n\
Supported: path, outbound, gruu\r\n";

/// Answers a request whose Request-URI is the server, without a user.
pub(super) fn serve(t: &mut Turn<'_>, incoming: &IncomingRequest<'_>) -> Result<(), Refusal> {
    let msg = incoming.msg;
    match msg.method() {
        Method::Ack => {}
        // RFC 3261 section 8.2.2.3: an extension that is required and not understood.
        _ if msg.has(HeaderId::Require) => {
            return Err(Refusal::bad_extension(msg.items(HeaderId::Require)));
        }
        Method::Options if is_merged(t, incoming) => {
            t.stats.looped += 1;
            return Err(Refusal::new(482, "Loop Detected"));
        }
        Method::Options => t.refuse(incoming, 200, "OK", CAPABILITIES),
        Method::Other(_) => {
            let headers = ALLOW.to_vec();
            return Err(Refusal { status: 501, reason: "Not Implemented", headers });
        }
        Method::Bye | Method::Update | Method::Info | Method::Prack | Method::Notify => {
            return Err(Refusal::new(481, "Call/Transaction Does Not Exist"));
        }
        Method::Invite | Method::Message | Method::Refer | Method::Publish => {
            return Err(Refusal::new(404, "Not Found"));
        }
        _ => {
            let headers = ALLOW.to_vec();
            return Err(Refusal { status: 405, reason: "Method Not Allowed", headers });
        }
    }
    Ok(())
}

/// Returns whether the same request has come by another path (RFC 3261 section 8.2.2.2): without a To tag, with the
/// From tag, Call-ID and CSeq of a request with another branch.
fn is_merged(t: &Turn<'_>, incoming: &IncomingRequest<'_>) -> bool {
    let (msg, requests) = (incoming.msg, &t.node.shared.requests);
    let from = msg.from().ok().and_then(|from| from.tag()).unwrap_or_default();
    if from.is_empty() || msg.to().is_ok_and(|to| to.tag().is_some()) {
        return false;
    }
    let mut h = requests.hasher();
    for field in [b"merged", msg.call_id(), from] {
        h.write(field);
        h.write_u8(b'\n');
    }
    h.write_u32(msg.cseq().map_or(0, |cseq| cseq.seq));
    let (key, branch) = (h.finish(), incoming.key.to_u64() as u8);
    let before = requests.get(key, t.now);
    requests.put(key, before.unwrap_or(branch), t.now, REQUEST_LIFETIME);
    before.is_some_and(|before| before != branch)
}

/// Returns the refusal for a service that a phone asks for at its own address (waiting messages, its dialogs, PUBLISH)
/// and that the server does not have. The request is not sent back to the phone.
pub(super) fn no_such_service() -> Refusal {
    // RFC 6665 section 4.2.1.1 and RFC 3903 section 6.
    let mut headers = Vec::new();
    write::header(&mut headers, "Allow-Events", ALLOW_EVENTS);
    Refusal { status: 489, reason: "Bad Event", headers }
}

/// Redirects the request (RFC 3261 section 8.3): lists the contacts with their q, best first.
pub(super) fn redirect(
    t: &mut Turn<'_>,
    incoming: &IncomingRequest<'_>,
    targets: &[RequestTarget],
) {
    let mut headers = Vec::with_capacity(64 * targets.len());
    for target in targets {
        headers.extend_from_slice(b"Contact: <");
        headers.extend_from_slice(&target.uri);
        headers.extend_from_slice(b">;q=");
        headers.extend_from_slice(if target.q >= 1000 { b"1." } else { b"0." });
        let digits = target.q % 1000;
        for d in [digits / 100, digits / 10 % 10, digits % 10] {
            headers.push(b'0' + d as u8);
        }
        headers.extend_from_slice(b"\r\n");
    }
    if incoming.msg.method() == Method::Invite
        && incoming.msg.to().is_ok_and(|to| to.tag().is_none())
    {
        t.stats.sessions += 1;
        t.stats.sessions_redirected += 1;
    }
    t.refuse(incoming, 302, "Moved Temporarily", &headers);
}

/// Answers 400 to a request whose topmost Via cannot be parsed, so that RFC 3261 section 18.2.2 does not apply. The
/// response is sent to the source of the request, if the request has what a response must repeat.
pub(super) fn refuse_without_via(t: &mut Turn<'_>, flow: &Flow, msg: &Message<'_>, reason: &str) {
    let needed = [HeaderId::Via, HeaderId::From, HeaderId::To, HeaderId::CallId, HeaderId::CSeq];
    if msg.method() == Method::Ack || !needed.iter().all(|id| msg.has(*id)) {
        t.stats.garbage += 1;
        return;
    }
    t.stats.malformed += 1;
    let tag = t.node.tag(msg);
    t.out.push(Target::Flow(*flow), 0, |buf| {
        write::response(buf, msg, Some(flow), 400, reason, Some(&tag), &[], &[]);
    });
}

/// Answers a request whose framing on a stream is broken (RFC 3261 section 18.3), as far as it can be parsed.
pub(super) fn refuse_malformed(
    t: &mut Turn<'_>,
    flow: &Flow,
    head: &[u8],
    status: u16,
    reason: &str,
) {
    t.stats.malformed += 1;
    let Ok(msg) = message::parse(head) else { return };
    let (Ok(via), Start::Request { method, .. }) = (msg.top_via(), msg.start()) else { return };
    if method != Method::Ack && msg.first(HeaderId::CSeq).is_some() {
        t.reply(flow, &msg, &via, None, (status, reason), &[]);
    }
}
