//! Requests within dialogs that this proxy has record-routed: how they are recognised, and how the mark in our
//! Record-Route follows the dialog.
//!
//! See [`mark`](crate::mark) for what a mark binds. What cannot be bound when the mark is made is stored for all
//! workers ([`Shared`](crate::shared::Shared)): dialogs that have ended, parties that have moved, and ACKs that no mark leads.
//! A restart loses all three. Then a party that has moved must authenticate like any other, and a mark of an ended dialog
//! holds until it expires.

use super::locator::Destination;
use super::names::{default_port, next_host};
use super::node::Node;
use super::request::{AckPath, InDialog, IncomingRequest};
use super::trust::Trust;
use crate::backoff::network;
use crate::detours::MAX_ROUTE;
use crate::local_identity::parse_ip;
use crate::mark::{Beside, DialogId, MARK_LEN, MAX_DIALOG, Mark, MarkKey, Marks, Side, TargetHash};
use crate::shared::{ACK_LIFETIME, Shared, hash_ip, of_source};
use ringway_sansio::{Duration, Flow, Time};
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::message::{Message, Method};
use ringway_sip::uri::Uri;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The separator of a flow token and a mark; no character of either.
pub(super) const MARK_SEPARATOR: u8 = b'.';

/// Whether the target of a request within a dialog is the peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TargetMatch {
    /// It is another target, and a flow leads to the peer.
    No,
    /// It is the target that the peer has claimed.
    Claimed,
    /// It is the address at which the peer has been found.
    Verified,
}

/// What a valid mark says about a request.
pub(super) struct Recognised {
    pub dialog: InDialog,
    pub target_match: TargetMatch,
    /// The route to the other party, if it has moved to another router of the mesh.
    pub detour: Option<Arc<[u8]>>,
}

/// The time for which requests may still cross the BYE of a dialog: a transaction (RFC 3261 section 17.1.2.2).
const GRACE: Duration = Duration::from_secs(32);

/// Splits a user part of ours into flow token and mark.
pub(super) fn split_user(user: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memrchr(MARK_SEPARATOR, user) {
        Some(at) => (&user[..at], &user[at + 1..]),
        None => (&[], user),
    }
}

/// Returns the text between the scheme and the `@` of a URI. If that is no user part, it contains no valid mark.
fn user_part(uri: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'@', uri).unwrap_or(0);
    let start = memchr::memchr(b':', &uri[..end]).map_or(end, |colon| colon + 1);
    &uri[start..end]
}

/// Returns the address that a URI has.
pub(super) fn address(uri: &Uri<'_>) -> Option<SocketAddr> {
    Some((uri.host_ip()?, uri.port.unwrap_or(default_port(uri))).into())
}

/// Returns whether a method may be sent within a dialog (RFC 3261 section 12.2, RFC 3262, 3311, 3428, 3515, 6086,
/// 6665). A mark authorises no other.
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

/// Returns whether the Contact of a method moves the target of its sender (RFC 3261 section 12.2, RFC 3311, RFC 6665).
pub(super) fn refreshes_target(method: Method<'_>) -> bool {
    matches!(method, Method::Invite | Method::Update | Method::Subscribe | Method::Notify)
}

fn tag_of<'a>(address: Result<NameAddr<'a>, ringway_sip::message::Malformed>) -> &'a [u8] {
    address.ok().and_then(|address| address.tag()).unwrap_or_default()
}

/// Returns the Record-Route of a request as the route back to its sender, if it begins with this router.
fn route_through(router: IpAddr, msg: &Message<'_>) -> Option<Vec<u8>> {
    let mut route = Vec::new();
    for item in msg.items(HeaderId::RecordRoute) {
        let uri = NameAddr::parse(item).ok().and_then(|value| Uri::parse(value.uri).ok())?;
        if route.is_empty() {
            let leads_there = parse_ip(next_host(&uri)) == Some(router);
            if !(leads_there && uri.is_sip() && uri.is_loose_router()) {
                return None;
            }
        } else {
            route.extend_from_slice(b", ");
        }
        route.extend_from_slice(item);
        // A value may be folded; it is written as one line.
        if route.len() > MAX_ROUTE || memchr::memchr2(b'\r', b'\n', item).is_some() {
            return None;
        }
    }
    (!route.is_empty()).then_some(route)
}

/// The dialogs that this proxy has record-routed. Only what a mark cannot contain is stored.
pub(super) struct Dialogs {
    marks: Marks,
    shared: Arc<Shared>,
}

impl Dialogs {
    pub(super) fn new(marks: Marks, shared: Arc<Shared>) -> Dialogs {
        Dialogs { marks, shared }
    }

    /// Replaces the keys of marks.
    pub(super) fn set_marks(&mut self, marks: Marks) {
        self.marks = marks;
    }

    /// Reads the mark in a Route of a request; `None` if it is not valid for the request's dialog.
    pub(super) fn read_mark(
        &self,
        now: Time,
        msg: &Message<'_>,
        beside: &Beside<'_>,
        text: &[u8],
    ) -> Option<Mark> {
        self.marks.read(text, beside, now, |side| {
            let (from, to) = (tag_of(msg.from()), tag_of(msg.to()));
            match side {
                Side::Callee => {
                    DialogId { call_id: msg.call_id(), caller_tag: to, callee_tag: b"" }
                }
                _ => DialogId { call_id: msg.call_id(), caller_tag: from, callee_tag: to },
            }
        })
    }

    /// Returns the hash, under this key, of the target of a request: of this Route, or else of its Request-URI.
    pub(super) fn target(
        &self,
        key: MarkKey,
        route: Option<&[u8]>,
        bytes: &[u8],
        uri: &Uri<'_>,
    ) -> TargetHash {
        match route {
            Some(route) => self.marks.target(key, route),
            None => self.marks.target_of(key, bytes, Some(uri), uri.host_ip()),
        }
    }

    /// Returns the dialog of a request with a valid mark, and whether its target is the peer's, so that the request may
    /// be sent there if the flow has closed, or where the peer has moved to. The error is the requirement that it fails: an
    /// in-dialog method, a To tag, the target of the peer, and a dialog that has not ended. `target` returns the hash of the
    /// request's target under a key. `over_flow` is whether a token beside the mark names a flow.
    pub(super) fn recognise(
        &self,
        now: Time,
        incoming: &IncomingRequest<'_>,
        mark: &Mark,
        target: impl Fn(MarkKey) -> TargetHash,
        over_flow: bool,
    ) -> Result<Recognised, &'static str> {
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
            let key = self.moved_key(msg.call_id(), to, &target(MarkKey::OWN));
            self.shared.moved.get(key, now).is_some()
        };
        let detour = self.shared.detours.get(dialog.key, !by_caller, now);
        // Over a flow the request reaches the peer that the token names, whatever its Request-URI; a detour leads to a router
        // that has made a mark of its own for the peer's target.
        let target_match = if detour.is_some() {
            TargetMatch::No
        } else if target(mark.key) == mark.target {
            if mark.verified { TargetMatch::Verified } else { TargetMatch::Claimed }
        } else if moved() {
            TargetMatch::Verified
        } else if over_flow {
            TargetMatch::No
        } else {
            return Err("a dialog's Route to another target");
        };
        Ok(Recognised { dialog, target_match, detour })
    }

    /// Returns whether the request that was to begin a dialog has been refused.
    fn is_refused(&self, now: Time, side: Side, call_id: &[u8], from: &[u8], to: &[u8]) -> bool {
        let caller = match side {
            Side::Callee => to,
            Side::EarlyCaller => from,
            // The mark came with a 2xx.
            Side::Caller => return false,
        };
        self.shared.revoked.get(self.key(call_id, caller, b""), now).is_some()
    }

    /// Returns whether a BYE has ended the dialog of this key, and none of its requests can be in progress any more.
    fn is_ended(&self, now: Time, key: u64) -> bool {
        let ended = self.shared.revoked.get_with_age(key, now, MAX_DIALOG);
        ended.is_some_and(|(_, age)| age >= GRACE)
    }

    /// Records the present target of a party of a dialog: `msg` is a request of a dialog of ours, or the 2xx to one,
    /// that came from `flow`. Only its source address is trusted; behind a NAT or another proxy, flow and Route lead
    /// there as before.
    pub(super) fn refresh_target(&self, now: Time, flow: &Flow, msg: &Message<'_>) {
        let Some(Ok(contact)) = msg.items(HeaderId::Contact).next().map(NameAddr::parse) else {
            return;
        };
        let literal = Uri::parse(contact.uri).ok().and_then(|uri| uri.host_ip());
        if literal.is_none_or(|ip| ip.to_canonical() != flow.remote.ip().to_canonical()) {
            return;
        }
        let tag = if msg.is_request() { tag_of(msg.from()) } else { tag_of(msg.to()) };
        let target = self.marks.target(MarkKey::OWN, contact.uri);
        let key = self.moved_key(msg.call_id(), tag, &target);
        self.shared.moved.put(key, 1, now, MAX_DIALOG);
    }

    /// Records where the sender of a request within a dialog of ours hangs now. If that is another router of the mesh than
    /// when the dialog began, requests to it take the Record-Route of this one from now on, which begins with that router: a
    /// router can direct requests to itself only. Returns whether there was no room without evicting another.
    pub(super) fn follow(
        &self,
        now: Time,
        trust: &Trust,
        incoming: &IncomingRequest<'_>,
        mark: &Mark,
        dialog: &InDialog,
    ) -> bool {
        let party = (dialog.key, dialog.by_caller);
        let router = trust.router(incoming.flow);
        if self.marks.router(mark.key, router) == mark.router_of(dialog.by_caller) {
            self.shared.detours.remove(party.0, party.1);
            return false;
        }
        let route = router.and_then(|router| Some((router, route_through(router, incoming.msg)?)));
        route.is_some_and(|(router, route)| {
            self.shared.detours.put(party, router, &route, now, MAX_DIALOG)
        })
    }

    /// Returns the mark for the callee of a request that may begin a dialog. The target of its requests is the topmost
    /// Record-Route of the proxies before this one, or else the caller's Contact.
    fn callee_mark(
        &self,
        now: Time,
        trust: &Trust,
        msg: &Message<'_>,
        from: &Flow,
        to: &Destination,
    ) -> Mark {
        let next = [HeaderId::RecordRoute, HeaderId::Contact]
            .into_iter()
            .find_map(|id| NameAddr::parse(msg.items(id).next()?).ok());
        let next = next.map_or(&b""[..], |next| next.uri);
        let key = MarkKey::NEW;
        let (target, verified) = self.target_at(key, trust, next, from);
        let to = Flow { local: to.local, remote: to.target.remote(), ..*from };
        let caller_at = self.marks.router(key, trust.router(from));
        let callee_at = self.marks.router(key, trust.router(&to));
        Mark { key, side: Side::Callee, began: now, target, verified, caller_at, callee_at }
    }

    /// Writes the marks of one request that may begin a dialog, each for what stands beside it in its Record-Route value.
    pub(super) fn callee_marks<'a>(
        &'a self,
        now: Time,
        trust: &Trust,
        msg: &'a Message<'_>,
        from: &Flow,
        to: &Destination,
    ) -> impl Fn(&Beside<'_>) -> [u8; MARK_LEN] + use<'a> {
        let mark = self.callee_mark(now, trust, msg, from, to);
        let caller_tag = tag_of(msg.from());
        let dialog = DialogId { call_id: msg.call_id(), caller_tag, callee_tag: b"" };
        move |beside| self.marks.text(&mark, &dialog, beside)
    }

    /// Returns the hash of the target that a party claims, and whether it is verified: the party sends from there, or
    /// is trusted. A claimed target may be used, but not where its sender would have no right to send.
    fn target_at(
        &self,
        key: MarkKey,
        trust: &Trust,
        uri: &[u8],
        from: &Flow,
    ) -> (TargetHash, bool) {
        let parsed = Uri::parse(uri).ok();
        let literal = parsed.as_ref().and_then(Uri::host_ip);
        let verified = literal
            .is_some_and(|ip| ip.to_canonical() == from.remote.ip().to_canonical())
            || trust.trusts(from);
        (self.marks.target_of(key, uri, parsed.as_ref(), literal), verified)
    }

    /// Replaces the callee's marks by the caller's in a response to be forwarded, which is in `buf` (RFC 3261 section
    /// 16.7 item 8). Both have one length. `ruled` is whether the response comes from the target of a routing rule. The values
    /// of other nodes of a cluster have marks under the same key: each replaces its own.
    pub(super) fn mark_for_caller(
        &self,
        now: Time,
        node: &Node,
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
            let parsed = Uri::parse(route.uri).ok();
            let beside = Beside { token, address: parsed.as_ref().and_then(address) };
            let found = self.marks.read(old, &beside, now, |_| callee);
            let is_ours = parsed.is_some_and(|uri| node.is_local(&uri, from));
            let Some(mark) = found.filter(|mark| mark.side == Side::Callee && is_ours) else {
                next = route.uri;
                continue;
            };
            let side = if msg.status() >= 200 { Side::Caller } else { Side::EarlyCaller };
            let (target, there) = self.target_at(mark.key, &node.trust, next, from);
            let mark = Mark { side, target, verified: ruled || there, ..mark };
            let text = self.marks.text(&mark, &DialogId { callee_tag, ..callee }, &beside);
            // A mark is the end of a user part.
            let end = memchr::memchr_iter(b'@', buf).find(|&at| buf[..at].ends_with(old));
            if let Some(end) = end {
                buf[end - text.len()..end].copy_from_slice(&text);
            }
        }
    }

    /// Revokes the marks of a request that began a dialog and was refused.
    pub(super) fn note_refusal(&self, now: Time, msg: &Message<'_>) {
        let key = self.key(msg.call_id(), tag_of(msg.from()), b"");
        self.shared.revoked.put(key, 1, now, MAX_DIALOG);
    }

    /// Revokes the marks of the dialog of this key after its BYE is answered, as soon as none of its requests can be in
    /// progress any more.
    pub(super) fn note_end(&self, now: Time, key: u64) {
        if self.shared.revoked.get(key, now).is_none() {
            self.shared.revoked.put(key, 1, now, MAX_DIALOG);
            self.shared.detours.end(key, now + GRACE);
        }
    }

    /// Removes the refusal of a request that begins a dialog anew with the Call-ID and tag of a refused one, as a
    /// request with credentials does (RFC 3261 section 8.1.3.5).
    pub(super) fn note_begin(&self, msg: &Message<'_>) {
        self.shared.revoked.remove(self.key(msg.call_id(), tag_of(msg.from()), b""));
    }

    /// Returns the way of the ACK of an INVITE with this Route after ours, if it belongs to a dialog that this proxy has not
    /// record-routed. A phone that has come from another proxy in the middle of a call sends one, and its ACK has the Route
    /// of the other proxy as the INVITE has (RFC 3261 section 12.2.1.1), but cannot be challenged as that.
    pub(super) fn ack_path(&self, msg: &Message<'_>, next: Option<&[u8]>) -> Option<AckPath> {
        if msg.method() != Method::Invite || tag_of(msg.to()).is_empty() {
            return None;
        }
        Some(next.map_or(AckPath::Contact, |route| {
            AckPath::Route(self.marks.target(MarkKey::OWN, route))
        }))
    }

    /// Records that an INVITE of `source` is accepted, with the 2xx to it.
    pub(super) fn await_ack(&self, now: Time, source: IpAddr, msg: &Message<'_>, path: AckPath) {
        let contact = || Some(NameAddr::parse(msg.items(HeaderId::Contact).next()?).ok()?.uri);
        let target = match path {
            AckPath::Route(target) => Some(target),
            AckPath::Contact => contact().map(|uri| self.marks.target(MarkKey::OWN, uri)),
        };
        if let Some(key) = target.and_then(|target| self.ack_key(source, msg, &target)) {
            self.shared.awaited.put(key, 1, now, ACK_LIFETIME);
        }
    }

    /// Returns whether an ACK is for a 2xx that was recorded: from the same source, of the same dialog and number, and to
    /// the same target.
    pub(super) fn is_awaited_ack(
        &self,
        now: Time,
        incoming: &IncomingRequest<'_>,
        target: &TargetHash,
    ) -> bool {
        let key = self.ack_key(incoming.flow.remote.ip(), incoming.msg, target);
        key.is_some_and(|key| self.shared.awaited.get(key, now).is_some())
    }

    /// Returns the key of an ACK, from itself or from the 2xx that it is for: both have the tags of the INVITE.
    fn ack_key(&self, source: IpAddr, msg: &Message<'_>, target: &TargetHash) -> Option<u64> {
        let number = msg.cseq().ok()?.seq;
        let mut h = self.shared.awaited.hasher();
        hash_ip(&mut h, network(source));
        let share = h.finish();
        hash_ip(&mut h, source);
        for field in [msg.call_id(), tag_of(msg.from()), tag_of(msg.to())] {
            h.write(field);
            h.write_u8(b'\n');
        }
        h.write_u32(number);
        h.write(target.bytes());
        Some(of_source(share, h.finish()))
    }

    /// Returns the key of a dialog, in whichever order its tags come.
    /// Returns the key of the call that an INVITE may begin.
    pub(super) fn call_key(&self, msg: &Message<'_>) -> u64 {
        self.key(msg.call_id(), tag_of(msg.from()), b"")
    }

    /// Returns the key of the dialog of a message, the same for both directions.
    pub(super) fn dialog_key(&self, msg: &Message<'_>) -> u64 {
        self.key(msg.call_id(), tag_of(msg.from()), tag_of(msg.to()))
    }

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
