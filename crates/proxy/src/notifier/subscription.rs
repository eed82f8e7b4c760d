//! One subscription: its dialog, the reported state, and its NOTIFY (RFC 6665 section 4.2.2).

use super::package::Package;
use super::reginfo::Document;
use super::watch::Watch;
use crate::gruu::Gruus;
use crate::states::UserState;
use ringway_sansio::{Flow, Time, TimerId};
use ringway_sip::message::Method;
use ringway_sip::write::{self, Party, Request};
use std::net::IpAddr;
use std::sync::Arc;

/// Identifies a NOTIFY of one notifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotifyId {
    /// Index of the subscription.
    pub(super) index: u32,
    /// Distinguishes one NOTIFY from another.
    pub(super) serial: u32,
}

/// A NOTIFY to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notify {
    /// Identifies it in [`handle_notify_response`](super::Notifier::handle_notify_response).
    pub id: NotifyId,
    /// URI of the next hop (RFC 3261 section 8.1.2).
    pub next_hop: Box<[u8]>,
    /// The offset of Via in the buffer: after the request line.
    pub via_at: usize,
    /// The flow to send it over, if the subscriber has no proxy before it and its Contact may not be reachable. Without
    /// one it is sent to the next hop.
    pub flow: Option<Flow>,
    /// The subscriber's address: look-ups are charged to it.
    pub source: IpAddr,
}

/// The notification that is due for a subscriber.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    Nothing,
    /// The changes since the last one.
    Changes,
    /// The full state.
    Full,
    /// The full state, for the last time.
    Last,
}

/// The state of the dialog (RFC 3261 section 12), from this server's side.
pub(super) struct Dialog {
    pub(super) call_id: Box<[u8]>,
    pub(super) local_tag: Vec<u8>,
    pub(super) remote_tag: Box<[u8]>,
    /// URI of From in our requests.
    pub(super) local: Box<[u8]>,
    /// URI of To in our requests.
    pub(super) remote: Box<[u8]>,
    /// Remote target URI.
    pub(super) target: Box<[u8]>,
    /// Route set, joined by `, `.
    pub(super) route: Box<[u8]>,
    /// The `id` of Event, or empty.
    pub(super) event_id: Box<[u8]>,
    /// Our Contact URI.
    pub(super) contact: Box<[u8]>,
    pub(super) flow: Option<Flow>,
    /// The source address of the last SUBSCRIBE.
    pub(super) source: IpAddr,
    pub(super) remote_cseq: u32,
    pub(super) local_cseq: u32,
}

impl Dialog {
    /// Returns the octets of all texts.
    pub(super) fn len(&self) -> usize {
        [
            &self.call_id,
            &self.remote_tag,
            &self.local,
            &self.remote,
            &self.target,
            &self.route,
            &self.event_id,
            &self.contact,
        ]
        .iter()
        .map(|text| text.len())
        .sum()
    }
}

/// One subscription.
pub(super) struct Subscription {
    pub(super) package: Package,
    /// The address-of-record that is watched.
    pub(super) aor: Arc<[u8]>,
    /// The address-of-record by which the subscriber knows it: that, or a number of the user.
    pub(super) entity: Box<[u8]>,
    /// Who has subscribed: subscriptions are shared among subscribers.
    pub(super) subscriber: Box<[u8]>,
    /// Whether the subscriber may register here.
    may_register: bool,
    pub(super) dialog: Dialog,
    /// Version of the next document.
    pub(super) version: u64,
    /// The document of the last notification about a user's state, but for its version.
    reported: Option<UserState>,
    /// Serial number of the last change that has been reported.
    seen: u64,
    expires: Time,
    due: Due,
    /// Whether a notification was not accepted, so that the next must be full.
    lost: bool,
    /// Number of the NOTIFY that is not answered yet. The next one waits for it: they must arrive in order.
    in_flight: Option<u32>,
    /// Whether it is in the queue of those that are ready.
    queued: bool,
    /// Whether the NOTIFY that ends it has been sent.
    ended: bool,
    /// Whether it makes room for another subscriber's.
    evicted: bool,
    /// The time of the last notification.
    last: Option<Time>,
    expiry: TimerId,
    interval: TimerId,
}

/// The consequence of a response to a NOTIFY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotifyOutcome {
    /// None: it was no response to the awaited NOTIFY.
    Nothing,
    /// The subscription has ended.
    Last,
    /// The next one may be sent.
    Next,
}

impl Subscription {
    /// Returns a subscription to `aor` without any notification yet; see [`Subscription::prolong`].
    pub(super) fn new(
        now: Time,
        (package, aor): (Package, Arc<[u8]>),
        (entity, subscriber): (Box<[u8]>, Box<[u8]>),
        may_register: bool,
        dialog: Dialog,
    ) -> Subscription {
        Subscription {
            package,
            aor,
            entity,
            subscriber,
            may_register,
            dialog,
            version: 0,
            reported: None,
            seen: 0,
            expires: now,
            due: Due::Nothing,
            lost: false,
            in_flight: None,
            queued: false,
            ended: false,
            evicted: false,
            last: None,
            expiry: TimerId::NONE,
            interval: TimerId::NONE,
        }
    }

    /// Returns the serial number of the last change that has been reported.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns whether its last NOTIFY has not been answered yet.
    pub(super) fn waits_for_answer(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Returns whether all changes have been reported to the subscriber.
    #[cfg(test)]
    pub(super) fn is_up_to_date(&self) -> bool {
        self.due == Due::Nothing && !self.waits_for_answer() && !self.lost
    }

    /// Returns its timers, which end with it.
    pub(super) fn timers(&self) -> [TimerId; 2] {
        [self.expiry, self.interval]
    }

    /// Returns whether it has ended, or will when its last NOTIFY is answered.
    pub(super) fn is_over(&self) -> bool {
        self.due == Due::Last || self.ended
    }

    /// Extends it until `expires`, for which `timer` is set, or ends it now without one. A NOTIFY is due in both cases
    /// (RFC 6665 section 4.2.1.2 and section 4.4.3).
    pub(super) fn prolong(&mut self, expires: Time, timer: Option<TimerId>) {
        self.expires = expires;
        self.due = if timer.is_some() { Due::Full } else { Due::Last };
        self.expiry = timer.unwrap_or(TimerId::NONE);
    }

    /// Sets whether the sender of the last SUBSCRIBE may register here.
    pub(super) fn set_may_register(&mut self, may_register: bool) {
        self.may_register = may_register;
    }

    /// Ends it by expiry (RFC 6665 section 4.2.1.4).
    pub(super) fn expire(&mut self) {
        self.expiry = TimerId::NONE;
        self.due = Due::Last;
    }

    /// Ends it to make room for another subscriber's.
    pub(super) fn evict(&mut self) {
        self.evicted = true;
        self.due = Due::Last;
    }

    /// Ends the minimum interval between two notifications.
    pub(super) fn end_interval(&mut self) {
        self.interval = TimerId::NONE;
    }

    /// Records a change. `dropped` is the serial number up to which changes have been dropped.
    pub(super) fn note_change(&mut self, dropped: Option<u64>) {
        if !self.is_over() {
            self.due = self.due.max(Due::Changes);
            self.lost |= dropped.is_some_and(|upto| self.seen < upto);
        }
    }

    /// Returns whether to queue it as ready now. If it must wait, `timer` is set for the time at which it may be.
    pub(super) fn schedule(&mut self, now: Time, timer: impl FnOnce(Time) -> TimerId) -> bool {
        if self.due == Due::Nothing || self.waits_for_answer() || self.queued {
            return false;
        }
        // A SUBSCRIBE is answered at once (RFC 6665 section 4.2.1.2).
        let interval = self.package.min_interval();
        let earliest = self.last.filter(|_| self.due == Due::Changes).map(|at| at + interval);
        if let Some(at) = earliest.filter(|&at| at > now) {
            if self.interval == TimerId::NONE {
                self.interval = timer(at);
            }
            return false;
        }
        self.queued = true;
        true
    }

    /// Removes it from the queue. Returns whether the full state is due; `None` if nothing is to be sent.
    pub(super) fn dequeue(&mut self) -> Option<bool> {
        self.queued = false;
        let nothing = self.due == Due::Nothing || self.waits_for_answer();
        (!nothing).then_some(self.due > Due::Changes || self.lost)
    }

    /// Returns the next document for the subscriber.
    pub(super) fn document<'d>(
        &self,
        now: Time,
        watch: &'d Watch,
        full: bool,
        gruus: &'d Gruus,
    ) -> Document<'d> {
        let &Subscription { version, seen: since, may_register, .. } = self;
        Document { watch, version, full, since, may_register, now, gruus }
    }

    /// Records that a document up to this serial number has been written; `has_contacts` is whether it contains any.
    /// Returns whether it is to be sent.
    pub(super) fn note_document(&mut self, serial: u64, has_contacts: bool) -> bool {
        self.seen = serial;
        let needless = !has_contacts && self.due == Due::Changes;
        if needless {
            self.due = Due::Nothing;
        }
        !needless
    }

    /// Records the state of the user that the next document is about. Returns whether it is to be sent: the present state may
    /// be the one that the subscriber has.
    pub(super) fn note_state(&mut self, full: bool, state: UserState) -> bool {
        let needless = !full && self.reported.as_ref() == Some(&state);
        if needless {
            self.due = Due::Nothing;
        }
        self.reported = Some(state);
        !needless
    }

    /// Processes the response to the NOTIFY of this number.
    pub(super) fn note_answer(&mut self, serial: u32, status: u16) -> NotifyOutcome {
        if self.in_flight != Some(serial) || status < 200 {
            return NotifyOutcome::Nothing;
        }
        self.in_flight = None;
        if self.ended || ends_subscription(status) {
            return NotifyOutcome::Last;
        }
        // RFC 6665 section 4.2.2: a failure is no reason to notify again; the next notification reports what was lost.
        self.lost |= status >= 300;
        NotifyOutcome::Next
    }

    /// Appends a NOTIFY with `body` to `buf` and records that it is in flight.
    pub(super) fn write_notify(
        &mut self,
        now: Time,
        index: usize,
        serial: u32,
        body: &[u8],
        buf: &mut Vec<u8>,
    ) -> Notify {
        let last = self.due == Due::Last;
        let dialog = &mut self.dialog;
        dialog.local_cseq += 1;
        let mut event = self.package.name().as_bytes().to_vec();
        if !dialog.event_id.is_empty() {
            event.extend_from_slice(b";id=");
            event.extend_from_slice(&dialog.event_id);
        }
        let mut state = b"active;expires=".to_vec();
        if last {
            // RFC 6665 section 4.1.3.
            let reason: &[u8] = if self.evicted { b"giveup" } else { b"timeout" };
            state = [b"terminated;reason=", reason].concat();
        } else {
            write::decimal(&mut state, self.expires.since(now).as_secs());
        }
        let from = Party { display: b"", uri: &dialog.local, tag: &dialog.local_tag };
        let to = Party { display: b"", uri: &dialog.remote, tag: &dialog.remote_tag };
        let request = Request {
            route: &dialog.route,
            contact: &dialog.contact,
            fields: &[
                ("Event", &event),
                ("Subscription-State", &state),
                ("Content-Type", self.package.content_type()),
            ],
            body,
            ..Request::new(
                Method::Notify,
                &dialog.target,
                from,
                to,
                &dialog.call_id,
                dialog.local_cseq,
            )
        };
        let (via_at, next_hop) = (request.emit(buf), request.next_hop().into());
        self.version += 1;
        self.due = Due::Nothing;
        self.lost = false;
        self.in_flight = Some(serial);
        self.last = Some(now);
        self.ended = last;
        let id = NotifyId { index: index as u32, serial };
        Notify { id, via_at, next_hop, flow: dialog.flow, source: dialog.source }
    }
}

/// Returns whether a status ends the subscription (RFC 6665 section 4.2.2); so does the absence of a response.
fn ends_subscription(status: u16) -> bool {
    matches!(status, 404 | 405 | 408 | 410 | 416 | 480..=485 | 489 | 501 | 604)
}
