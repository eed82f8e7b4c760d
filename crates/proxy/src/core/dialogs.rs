//! Requests within dialogs that this proxy has built: how they are recognised, and how the mark in our
//! Record-Route follows the dialog.
//!
//! See [`mark`](crate::mark) for what a mark binds. What cannot be bound when the mark is made is
//! remembered for all workers ([`Shared`](crate::shared::Shared)): dialogs that are over, and parties
//! that have moved. After a restart both are forgotten; then a party that has moved must authenticate
//! like anybody else, and a mark of a dialog that is over holds until its time has come.

use super::request::{InDialog, IncomingRequest};
use super::trust::Trust;
use crate::mark::{DialogId, MARK_LEN, MAX_DIALOG, Mark, Marks, Side, TargetHash};
use crate::shared::Shared;
use ringway_sansio::{Duration, Flow, Time};
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::message::{Message, Method};
use ringway_sip::uri::Uri;
use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::Arc;

/// Stands between a flow token and a mark; no character of either.
pub(super) const MARK_AFTER: u8 = b'.';

/// Whether the target of a request within a dialog is the other party's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TargetMatch {
    /// It is another, and a flow leads to the party.
    No,
    /// It is what the party has claimed.
    Claimed,
    /// It is where the party has been found.
    Verified,
}

/// How long requests may still cross the BYE of a dialog: a transaction (RFC 3261 section 17.1.2.2).
const GRACE: Duration = Duration::from_secs(32);

/// A user part of ours taken apart: flow token and mark.
pub(super) fn split_user(user: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memrchr(MARK_AFTER, user) {
        Some(at) => (&user[..at], &user[at + 1..]),
        None => (&[], user),
    }
}

/// What stands between the scheme and the `@` of a URI. If that is no user part, it has no mark that holds.
fn user_part(uri: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'@', uri).unwrap_or(0);
    let start = memchr::memchr(b':', &uri[..end]).map_or(end, |colon| colon + 1);
    &uri[start..end]
}

/// Methods that may be sent within a dialog (RFC 3261 section 12.2, RFC 3262, 3311, 3428, 3515, 6086,
/// 6665). No other has a right by its mark.
fn is_in_dialog(method: Method<'_>) -> bool {
    matches!(
        method,
        Method::Ack
            | Method::Bye
            | Method::Info
            | Method::Invite
            | Method::Message
            | Method::Notify
            | Method::Options
            | Method::Prack
            | Method::Refer
            | Method::Subscribe
            | Method::Update
    )
}

/// Methods whose Contact moves the sender's target (RFC 3261 section 12.2, RFC 3311, RFC 6665).
pub(super) fn refreshes_target(method: Method<'_>) -> bool {
    matches!(method, Method::Invite | Method::Update | Method::Subscribe | Method::Notify)
}

fn tag_of<'a>(address: Result<NameAddr<'a>, ringway_sip::message::Malformed>) -> &'a [u8] {
    address.ok().and_then(|address| address.tag()).unwrap_or_default()
}

/// The dialogs that this proxy has built. It keeps nothing of them but what a mark cannot say.
pub(super) struct Dialogs {
    marks: Marks,
    shared: Arc<Shared>,
}

impl Dialogs {
    pub(super) fn new(marks: Marks, shared: Arc<Shared>) -> Dialogs {
        Dialogs { marks, shared }
    }

    /// The mark beside `token` in a Route of a request, if it holds for the request's dialog.
    pub(super) fn read_mark(
        &self,
        now: Time,
        msg: &Message<'_>,
        token: &[u8],
        text: &[u8],
    ) -> Option<Mark> {
        self.marks.read(text, token, now, |side| {
            let (from, to) = (tag_of(msg.from()), tag_of(msg.to()));
            match side {
                Side::Callee => {
                    DialogId { call_id: msg.call_id(), caller_tag: to, callee_tag: b"" }
                }
                _ => DialogId { call_id: msg.call_id(), caller_tag: from, callee_tag: to },
            }
        })
    }

    /// The hash of where a request goes: to this Route, or else to its Request-URI.
    pub(super) fn target(&self, route: Option<&[u8]>, bytes: &[u8], uri: &Uri<'_>) -> TargetHash {
        match route {
            Some(route) => self.marks.target(route),
            None => self.marks.target_of(bytes, Some(uri), uri.host_ip()),
        }
    }

    /// Whether a request by a mark that holds is one of its dialog: an in-dialog method, with a To tag,
    /// to the target of the other party, of a dialog that is not over. Returns what it is not, or the dialog
    /// and whether its target is the other party's, so that it may be followed where the flow is gone.
    /// `over_flow` says that a token beside the mark names a flow.
    pub(super) fn recognise(
        &self,
        now: Time,
        incoming: &IncomingRequest<'_>,
        mark: &Mark,
        target: TargetHash,
        over_flow: bool,
    ) -> Result<(InDialog, TargetMatch), &'static str> {
        let msg = incoming.msg;
        let (from, to) = (tag_of(msg.from()), tag_of(msg.to()));
        if from.is_empty() || to.is_empty() || !is_in_dialog(msg.method()) {
            return Err("a dialog's Route on a request of no dialog");
        }
        let (began, by_caller) = (mark.began, mark.side != Side::Callee);
        let dialog = InDialog { began, by_caller, key: self.key(msg.call_id(), from, to) };
        if self.is_refused(now, mark.side, msg.call_id(), from, to)
            || self.is_ended(now, dialog.key)
        {
            return Err("a dialog's Route after the dialog");
        }
        let moved = || {
            let key = self.moved_key(msg.call_id(), to, &target);
            self.shared.moved.get(key, now).is_some()
        };
        // Over a flow the request reaches the peer that the token names, whatever its Request-URI.
        let target_match = if target == mark.target {
            if mark.verified { TargetMatch::Verified } else { TargetMatch::Claimed }
        } else if moved() {
            TargetMatch::Verified
        } else if over_flow {
            TargetMatch::No
        } else {
            return Err("a dialog's Route to another target");
        };
        Ok((dialog, target_match))
    }

    /// Whether the request that was to begin a dialog has been refused.
    fn is_refused(&self, now: Time, side: Side, call_id: &[u8], from: &[u8], to: &[u8]) -> bool {
        let caller = match side {
            Side::Callee => to,
            Side::EarlyCaller => from,
            // It has come with a 2xx.
            Side::Caller => return false,
        };
        self.shared.revoked.get(self.key(call_id, caller, b""), now).is_some()
    }

    /// Whether a BYE has ended the dialog of this key, and nothing of it can be under way any more.
    fn is_ended(&self, now: Time, key: u64) -> bool {
        let ended = self.shared.revoked.get_with_age(key, now, MAX_DIALOG);
        ended.is_some_and(|(_, age)| age >= GRACE)
    }

    /// Notes where a party of a dialog is now: `msg` is a request of a dialog of ours, or the 2xx to
    /// one, that came from `flow`. Only the address it came from is believed; behind a NAT or another
    /// proxy, flow and Route lead there as before.
    pub(super) fn refresh_target(&self, now: Time, flow: &Flow, msg: &Message<'_>) {
        let Some(Ok(contact)) = msg.items(HeaderId::Contact).next().map(NameAddr::parse) else {
            return;
        };
        let literal = Uri::parse(contact.uri).ok().and_then(|uri| uri.host_ip());
        if literal.is_none_or(|ip| ip.to_canonical() != flow.remote.ip().to_canonical()) {
            return;
        }
        let tag = if msg.is_request() { tag_of(msg.from()) } else { tag_of(msg.to()) };
        let key = self.moved_key(msg.call_id(), tag, &self.marks.target(contact.uri));
        self.shared.moved.put(key, 1, now, MAX_DIALOG);
    }

    /// The mark for the callee of a request that may begin a dialog: its requests go to the topmost
    /// Record-Route of the proxies before us, or else to the caller's Contact.
    fn callee_mark(&self, now: Time, trust: &Trust, msg: &Message<'_>, from: &Flow) -> Mark {
        let next = [HeaderId::RecordRoute, HeaderId::Contact]
            .into_iter()
            .find_map(|id| NameAddr::parse(msg.items(id).next()?).ok());
        let next = next.map_or(&b""[..], |next| next.uri);
        let (target, verified) = self.target_at(trust, next, from.remote.ip());
        Mark { side: Side::Callee, began: now, target, verified }
    }

    /// Writes the marks of one request that may begin a dialog, each beside the flow token of its
    /// Record-Route value.
    pub(super) fn callee_marks<'a>(
        &'a self,
        now: Time,
        trust: &Trust,
        msg: &'a Message<'_>,
        from: &Flow,
    ) -> impl Fn(&[u8]) -> [u8; MARK_LEN] + 'a {
        let mark = self.callee_mark(now, trust, msg, from);
        let caller_tag = tag_of(msg.from());
        let dialog = DialogId { call_id: msg.call_id(), caller_tag, callee_tag: b"" };
        move |token| self.marks.text(&mark, &dialog, token)
    }

    /// The hash of where a party says it is, and whether it is there: it sends from there, or is trusted.
    /// What it only claims may be target_match, but not to where it would have no right to send.
    fn target_at(&self, trust: &Trust, uri: &[u8], from: IpAddr) -> (TargetHash, bool) {
        let parsed = Uri::parse(uri).ok();
        let literal = parsed.as_ref().and_then(Uri::host_ip);
        let verified = literal.is_some_and(|ip| ip.to_canonical() == from.to_canonical())
            || trust.is_trusted(from);
        (self.marks.target_of(uri, parsed.as_ref(), literal), verified)
    }

    /// Puts the caller's marks in the place of the callee's in a response to go back, which is in `buf`
    /// (RFC 3261 section 16.7 item 8). They are of one length. `ruled` says that a routing rule has led to
    /// where the response comes from.
    pub(super) fn mark_for_caller(
        &self,
        now: Time,
        trust: &Trust,
        msg: &Message<'_>,
        from: &Flow,
        ruled: bool,
        buf: &mut [u8],
    ) {
        let (call_id, caller_tag) = (msg.call_id(), tag_of(msg.from()));
        let callee_tag = tag_of(msg.to());
        if callee_tag.is_empty() {
            return;
        }
        let contact = msg.items(HeaderId::Contact).next().and_then(|c| NameAddr::parse(c).ok());
        let mut next: &[u8] = contact.map_or(b"", |contact| contact.uri);
        for item in msg.items(HeaderId::RecordRoute) {
            let Ok(route) = NameAddr::parse(item) else { return };
            let (token, old) = split_user(user_part(route.uri));
            let callee = DialogId { call_id, caller_tag, callee_tag: b"" };
            let found = self.marks.read(old, token, now, |_| callee);
            let Some(mark) = found.filter(|mark| mark.side == Side::Callee) else {
                next = route.uri;
                continue;
            };
            let side = if msg.status() >= 200 { Side::Caller } else { Side::EarlyCaller };
            let (target, there) = self.target_at(trust, next, from.remote.ip());
            let mark = Mark { side, target, verified: ruled || there, ..mark };
            let text = self.marks.text(&mark, &DialogId { callee_tag, ..callee }, token);
            // A mark is the end of a user part.
            let end = memchr::memchr_iter(b'@', buf).find(|&at| buf[..at].ends_with(old));
            if let Some(end) = end {
                buf[end - text.len()..end].copy_from_slice(&text);
            }
        }
    }

    /// The dialog of a request that began one never came about: its marks are void.
    pub(super) fn note_refusal(&self, now: Time, msg: &Message<'_>) {
        let key = self.key(msg.call_id(), tag_of(msg.from()), b"");
        self.shared.revoked.put(key, 1, now, MAX_DIALOG);
    }

    /// A BYE has been answered: the marks of its dialog, which has this key, become void when nothing of
    /// it can be under way any more.
    pub(super) fn note_end(&self, now: Time, key: u64) {
        if self.shared.revoked.get(key, now).is_none() {
            self.shared.revoked.put(key, 1, now, MAX_DIALOG);
        }
    }

    /// A request begins a dialog anew by the Call-ID and tag of one that was refused, as one with
    /// credentials does (RFC 3261 section 8.1.3.5).
    pub(super) fn note_begin(&self, msg: &Message<'_>) {
        self.shared.revoked.remove(self.key(msg.call_id(), tag_of(msg.from()), b""));
    }

    /// The key of a dialog, whichever of its tags comes first.
    fn key(&self, call_id: &[u8], one: &[u8], other: &[u8]) -> u64 {
        let mut h = self.shared.revoked.hasher();
        for field in [call_id, one.max(other), one.min(other)] {
            h.write(field);
            h.write_u8(b'\n');
        }
        h.finish()
    }

    fn moved_key(&self, call_id: &[u8], tag: &[u8], target: &TargetHash) -> u64 {
        let mut h = self.shared.moved.hasher();
        h.write(call_id);
        h.write_u8(b'\n');
        h.write(tag);
        h.write_u8(b'\n');
        h.write(target.bytes());
        h.finish()
    }
}
