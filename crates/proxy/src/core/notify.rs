//! The registration event package (RFC 3680) between the notifier and the transactions: who may
//! subscribe, and how its NOTIFY requests are sent.

use super::branch::{Found, Way};
use super::preroute::Routed;
use super::validate::{Proof, Refusal, same_user};
use super::{Core, Event, MAX_RESOLVING, Pass};
use crate::location::Change;
use crate::regevent::{Notify, RegEvents};
use ringway_sansio::{Hop, Outbox, Target, Time, Transport};
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::message;
use ringway_sip::transaction::{Branch, ClientEvent, Kind};
use ringway_sip::uri::Uri;
use ringway_sip::write;

/// Marks the users' numbers of client transactions that carry a NOTIFY of ours.
pub(super) const NOTIFY: u64 = 1 << 63;

/// Marks the numbers of NOTIFY requests that wait for server location.
pub(super) const PARKED_NOTIFY: u64 = 1 << 62;

/// The number of a server transaction that has no response context.
const NO_CONTEXT: u64 = u64::MAX >> 1;

impl Core {
    /// Whether a SUBSCRIBE belongs to a dialog of the notifier; if it is another worker's, it is
    /// handed over.
    pub(super) fn is_own_subscription(&mut self, pass: &Pass<'_>) -> Option<bool> {
        let tag = pass.msg.to().ok()?.tag()?;
        let worker = RegEvents::worker_of_tag(tag)?;
        if worker == self.worker || worker >= self.workers {
            return Some(true);
        }
        self.stats.handed_over += 1;
        let bytes = pass.msg.bytes().to_vec();
        self.events.push_back(Event::HandOver { worker, flow: *pass.flow, bytes });
        Some(false)
    }

    /// A SUBSCRIBE to the registrations of a user of ours: only that user and trusted peers may.
    pub(super) fn subscribe(
        &mut self,
        pass: &Pass<'_>,
        routed: &Routed<'_>,
        domain: usize,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let proof = self.authorise(pass, routed, true)?;
        let mut aor = Vec::with_capacity(64);
        match self.regevents.dialog_aor(pass.msg) {
            Some(known) => aor.extend_from_slice(known),
            None => {
                let user = super::targets::user_of(&routed.uri).unwrap_or_default();
                self.write_aor(user, domain, &mut aor);
            }
        }
        let may = match proof {
            Proof::Trusted | Proof::Dialog => true,
            Proof::Digest { .. } => self.is_from(pass, &aor),
            Proof::None => false,
        };
        if !may {
            self.stats.forbidden += 1;
            return Err(Refusal::new(403, "Forbidden"));
        }
        let (reply, port) = self.reply_to(pass.flow, pass.via);
        let Some(server) = self.tx.open(pass.key, Kind::NonInvite, reply, port, NO_CONTEXT) else {
            self.stats.limits_hit += 1;
            return Err(Refusal::new(503, "Service Unavailable"));
        };
        let mut contact = b"sip:reg@".to_vec();
        write::addr(&mut contact, pass.flow.local);
        if pass.flow.transport != Transport::Udp {
            contact.extend_from_slice(b";transport=");
            contact.extend_from_slice(pass.flow.transport.uri().as_bytes());
        }
        let (store, mut headers) = (self.store.clone(), Vec::new());
        let done = self.regevents.subscribe(
            pass.now,
            pass.flow,
            pass.msg,
            &aor,
            true,
            &contact,
            &*store,
            &mut *self.random,
            &mut headers,
        );
        let own = self.own.tag(pass.msg.call_id());
        let tag = done.to_tag.as_deref().unwrap_or(&own);
        let start = out.buffer().len();
        let (msg, flow) = (pass.msg, Some(pass.flow));
        write::response(
            out.buffer(),
            msg,
            flow,
            done.status,
            done.reason,
            Some(tag),
            &headers,
            &[],
        );
        self.tx.respond(pass.now, server, done.status, out, start);
        self.send_notifications(pass.now, out);
        Ok(())
    }

    /// Whether From names the user of this address-of-record.
    pub(super) fn is_from(&self, pass: &Pass<'_>, aor: &[u8]) -> bool {
        let Ok(from) = pass.msg.from() else { return false };
        let (Ok(from), Ok(aor)) = (Uri::parse(from.uri), Uri::parse(aor)) else { return false };
        let mut plain = Vec::new();
        ringway_sip::uri::unescape_into(aor.user.unwrap_or_default(), &mut plain);
        self.own.domain(from.host) == self.own.domain(aor.host)
            && from.user.is_some_and(|user| same_user(user, &plain))
    }

    /// The registrations of `aor` have changed, on whichever worker.
    pub fn handle_changed(&mut self, now: Time, aor: &[u8], why: Change, out: &mut Outbox) {
        let store = self.store.clone();
        self.regevents.changed(now, aor, why, &*store);
        self.send_notifications(now, out);
    }

    /// Sends what the notifier has to say.
    pub(super) fn send_notifications(&mut self, now: Time, out: &mut Outbox) {
        let mut bytes = Vec::new();
        while let Some(notify) = self.regevents.poll_notify(now, &mut bytes) {
            let bytes = std::mem::take(&mut bytes);
            let found = match notify.flow {
                Some(flow) => Found::Way(Way {
                    target: Target::Flow(flow),
                    transport: flow.transport,
                    local: flow.local,
                    flow: Some(flow),
                    any_size: true,
                }),
                None => self.locate_notify(&bytes),
            };
            match found {
                Found::Way(way) => self.send_notify(now, &notify, &bytes, way, out),
                Found::Name(target) if self.resolving < MAX_RESOLVING => {
                    self.resolving += 1;
                    let source = notify.source;
                    let id = PARKED_NOTIFY | self.parked_notifies.insert((notify, bytes)) as u64;
                    self.events.push_back(Event::Resolve { id, target, source });
                }
                _ => self.notify_failed(now, notify.id),
            }
        }
    }

    fn locate_notify(&mut self, bytes: &[u8]) -> Found {
        let Ok(msg) = message::parse(bytes) else { return Found::Nowhere };
        let next = match msg.items(HeaderId::Route).next().map(NameAddr::parse) {
            Some(Ok(route)) => route.uri,
            Some(Err(_)) => return Found::Nowhere,
            None => msg.request_uri(),
        };
        let target = msg.request_uri();
        Uri::parse(next).map_or(Found::Nowhere, |uri| self.locate_uri(&uri, target))
    }

    /// Where a NOTIFY goes has been found out.
    pub(super) fn unpark_notify(&mut self, now: Time, id: u64, hops: &[Hop], out: &mut Outbox) {
        let index = (id & !PARKED_NOTIFY) as usize;
        let Some((notify, bytes)) = self.parked_notifies.try_remove(index) else { return };
        match hops.first().cloned().and_then(|hop| self.way_to_hop(hop)) {
            Some(way) => self.send_notify(now, &notify, &bytes, way, out),
            None => self.notify_failed(now, notify.id),
        }
    }

    fn send_notify(
        &mut self,
        now: Time,
        notify: &Notify,
        bytes: &[u8],
        way: Way,
        out: &mut Outbox,
    ) {
        let client = self.tx.reserve(&mut *self.random);
        let start = out.buffer().len();
        let buf = out.buffer();
        buf.extend_from_slice(&bytes[..notify.via_at]);
        buf.extend_from_slice(b"Via: SIP/2.0/");
        buf.extend_from_slice(way.transport.via().as_bytes());
        buf.push(b' ');
        write::addr(buf, way.local);
        buf.extend_from_slice(b";branch=");
        Branch { worker: self.worker, client, spiral: 0 }.write(buf);
        buf.extend_from_slice(b";rport\r\n");
        buf.extend_from_slice(&bytes[notify.via_at..]);
        let user = NOTIFY | self.notifies.insert(notify.id) as u64;
        self.tx.send(now, client, Kind::NonInvite, way.target, user, out, start);
    }

    /// If a client transaction carried a NOTIFY: tells the notifier what became of it.
    pub(super) fn notification_answer(
        &mut self,
        now: Time,
        event: ClientEvent,
        status: u16,
    ) -> bool {
        if event.user & NOTIFY == 0 {
            return false;
        }
        if status >= 200
            && let Some(id) = self.notifies.try_remove((event.user & !NOTIFY) as usize)
        {
            let store = self.store.clone();
            self.regevents.handle_notify_response(now, id, status, &*store);
        }
        true
    }

    fn notify_failed(&mut self, now: Time, id: u64) {
        let store = self.store.clone();
        self.regevents.handle_notify_response(now, id, 408, &*store);
    }
}
