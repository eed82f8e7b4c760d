//! One subscription: its dialog, what was reported to it, and its NOTIFY (RFC 6665 section 4.2.2).

use super::document::CONTENT_TYPE;
use ringway_sansio::{Flow, Time, TimerId};
use ringway_sip::message::Method;
use ringway_sip::write::{self, Party, Request};
use std::net::IpAddr;
use std::sync::Arc;

/// Names a NOTIFY of one notifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotifyId {
    /// Index of the subscription.
    pub(super) index: u32,
    /// Tells one NOTIFY from another.
    pub(super) serial: u32,
}

/// A NOTIFY to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notify {
    /// Names it in [`handle_notify_response`](super::RegEvents::handle_notify_response).
    pub id: NotifyId,
    /// URI of the next hop (RFC 3261 section 8.1.2).
    pub next_hop: Box<[u8]>,
    /// Where in the buffer Via belongs: after the request line.
    pub via_at: usize,
    /// The flow to send it over while it lasts, where the subscriber reached us without a proxy and
    /// its Contact may lead nowhere. Otherwise, and if that flow is gone: topmost Route, else
    /// Request-URI.
    pub flow: Option<Flow>,
    /// The subscriber's address: look-ups are charged to it.
    pub source: IpAddr,
}

/// What a subscriber is owed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    Nothing,
    /// What has changed since.
    Changes,
    /// The state as it is.
    Full,
    /// The state as it is, for the last time.
    Last,
}

/// The state of the dialog (RFC 3261 section 12), from our side.
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
    /// Address the last SUBSCRIBE came from.
    pub(super) source: IpAddr,
    pub(super) remote_cseq: u32,
    pub(super) local_cseq: u32,
}

impl Dialog {
    /// Octets of all texts.
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

pub(super) struct Subscription {
    pub(super) aor: Arc<[u8]>,
    /// Whether the subscriber may register here.
    pub(super) own: bool,
    pub(super) dialog: Dialog,
    /// Version of the next document.
    pub(super) version: u64,
    /// Serial number of the last change that has been reported.
    pub(super) seen: u64,
    pub(super) expires: Time,
    pub(super) due: Due,
    /// Whether a notification was not understood, so that the next must be full.
    pub(super) lost: bool,
    /// Number of the NOTIFY that is not answered yet. The next one waits for that: they must arrive
    /// in order.
    pub(super) in_flight: Option<u32>,
    /// Whether it waits in the queue of those that are ready.
    pub(super) queued: bool,
    /// Whether the NOTIFY that ends it has been sent.
    pub(super) ended: bool,
    /// When the last notification was sent.
    pub(super) last: Option<Time>,
    pub(super) expiry: TimerId,
    pub(super) interval: TimerId,
}

impl Subscription {
    /// Whether it has ended, or will when its last NOTIFY is answered.
    pub(super) fn is_over(&self) -> bool {
        self.due == Due::Last || self.ended
    }

    /// Appends a NOTIFY with `body` to `buf` and notes that it is on its way.
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
        let mut event = b"reg".to_vec();
        if !dialog.event_id.is_empty() {
            event.extend_from_slice(b";id=");
            event.extend_from_slice(&dialog.event_id);
        }
        let mut state = b"active;expires=".to_vec();
        if last {
            state = b"terminated;reason=timeout".to_vec();
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
                ("Content-Type", CONTENT_TYPE),
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
