//! The registration event package (RFC 3680) between the notifier and the transactions: the authorisation of
//! subscribers, and the sending of NOTIFY requests.

use super::ids::{ClientUser, ResolveUser};
use super::locator::{Destination, Locator, Lookup};
use super::names::user_of;
use super::proof::Proof;
use super::refusal::Refusal;
use super::request::IncomingRequest;
use super::turn::Turn;
use crate::keys::Secret;
use crate::location::Change;
use crate::regevent::{Notify, NotifyId, RegEvents};
use ringway_sansio::{Hop, Time, Transport};
use ringway_sip::header::HeaderId;
use ringway_sip::message::{self, Message};
use ringway_sip::transaction::{Branch, Kind};
use ringway_sip::uri::Uri;
use ringway_sip::write;
use slab::Slab;

/// The notifier and its NOTIFY requests.
pub(super) struct Subscriptions {
    notifier: RegEvents,
    /// NOTIFY requests that wait for server location.
    parked: Slab<(Notify, Vec<u8>)>,
}

impl Subscriptions {
    pub(super) fn new(secret: &Secret, worker: u8, now: Time) -> Subscriptions {
        let notifier = RegEvents::new(Default::default(), secret, worker, now);
        Subscriptions { notifier, parked: Slab::new() }
    }

    /// Returns the number of subscriptions.
    pub(super) fn len(&self) -> usize {
        self.notifier.len()
    }

    /// Returns the time at which [`Subscriptions::handle_timeout`] should be called next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.notifier.poll_timeout()
    }

    /// Processes everything that is due.
    pub(super) fn handle_timeout(&mut self, t: &mut Turn<'_>) {
        self.notifier.handle_timeout(t.now, t.store);
        self.send(t);
    }

    /// Reports that the registrations of `aor` have changed.
    pub(super) fn changed(&mut self, t: &mut Turn<'_>, aor: &[u8], why: Change) {
        self.notifier.changed(t.now, aor, why, t.store);
        self.send(t);
    }

    /// Processes a SUBSCRIBE to the registrations of the user of a Request-URI at a domain of ours. Only that user and
    /// trusted peers are authorised.
    pub(super) fn subscribe(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        uri: &Uri<'_>,
        domain: usize,
        proof: &Proof,
    ) -> Result<(), Refusal> {
        let (msg, flow) = (incoming.msg, incoming.flow);
        let aor = match self.notifier.dialog_aor(msg) {
            Some(known) => known.into(),
            None => t.node.aor(user_of(uri).unwrap_or_default(), domain),
        };
        let may = match proof {
            Proof::Trusted | Proof::Dialog => true,
            Proof::Digest { .. } => t.node.is_from(msg, &aor),
            Proof::Router { .. } | Proof::None => false,
        };
        if !may {
            t.stats.forbidden += 1;
            return Err(Refusal::new(403, "Forbidden"));
        }
        let (reply, port) = t.node.reply_to(flow, incoming.via);
        let opened = incoming
            .server()
            .or_else(|| t.tx.open(incoming.key, Kind::NonInvite, reply, port, None));
        let Some(server) = opened else {
            t.stats.limits_hit += 1;
            return Err(Refusal::new(503, "Service Unavailable"));
        };
        let mut contact = b"sip:reg@".to_vec();
        write::addr(&mut contact, flow.local);
        if flow.transport != Transport::Udp {
            contact.extend_from_slice(b";transport=");
            contact.extend_from_slice(flow.transport.uri().as_bytes());
        }
        let mut headers = Vec::new();
        let done = self.notifier.subscribe(
            t.now,
            flow,
            msg,
            &aor,
            true,
            &contact,
            t.store,
            t.random,
            &mut headers,
        );
        let local_tag = t.node.tag(msg);
        let tag = Some(done.to_tag.as_deref().unwrap_or(&local_tag));
        let (start, buf) = (t.out.buffer().len(), t.out.buffer());
        write::response(buf, msg, Some(flow), done.status, done.reason, tag, &headers, &[]);
        t.tx.respond(t.now, server, done.status, t.out, start);
        self.send(t);
        Ok(())
    }

    /// Sends the NOTIFY requests that are due.
    fn send(&mut self, t: &mut Turn<'_>) {
        let mut bytes = Vec::new();
        while let Some(notify) = self.notifier.poll_notify(t.now, &mut bytes) {
            let bytes = std::mem::take(&mut bytes);
            let found = match notify.flow {
                Some(flow) => Lookup::Destination(Destination::over(flow)),
                None => locate(t.locator, &notify, &bytes),
            };
            match found {
                Lookup::Destination(destination) => send_notify(t, &notify, &bytes, destination),
                Lookup::Name(target) => {
                    let waiting = ResolveUser::Notify(self.parked.vacant_key() as u32);
                    if t.ask(waiting, target, notify.source) {
                        self.parked.insert((notify, bytes));
                    } else {
                        self.answered(t, notify.id, 408);
                    }
                }
                Lookup::Unreachable => self.answered(t, notify.id, 408),
            }
        }
    }

    /// Sends a waiting NOTIFY to its located next hop.
    pub(super) fn resolved(&mut self, t: &mut Turn<'_>, index: u32, hops: &[Hop]) {
        let Some((notify, bytes)) = self.parked.try_remove(index as usize) else { return };
        match hops.first().cloned().and_then(|hop| t.locator.destination_of(hop)) {
            Some(destination) => send_notify(t, &notify, &bytes, destination),
            None => self.answered(t, notify.id, 408),
        }
    }

    /// Processes the final status of a NOTIFY, received or assumed.
    pub(super) fn answered(&mut self, t: &Turn<'_>, id: NotifyId, status: u16) {
        self.notifier.handle_notify_response(t.now, id, status, t.store);
    }
}

/// Returns whether a SUBSCRIBE is for the event package `reg`.
pub(super) fn is_reg_event(msg: &Message<'_>) -> bool {
    msg.first(HeaderId::Event)
        .is_some_and(|v| v.split(|&b| b == b';').next().unwrap_or_default().trim_ascii() == b"reg")
}

/// Returns the worker whose notifier has the dialog of a SUBSCRIBE; `None` if it is within no dialog of a notifier.
pub(super) fn worker_of(msg: &Message<'_>) -> Option<u8> {
    RegEvents::worker_of_tag(msg.to().ok()?.tag()?)
}

fn locate(locator: &mut Locator, notify: &Notify, bytes: &[u8]) -> Lookup {
    let Ok(msg) = message::parse(bytes) else { return Lookup::Unreachable };
    let next = Uri::parse(&notify.next_hop);
    next.map_or(Lookup::Unreachable, |uri| locator.locate(&uri, msg.request_uri()))
}

fn send_notify(t: &mut Turn<'_>, notify: &Notify, bytes: &[u8], destination: Destination) {
    let client = t.tx.reserve(t.random);
    let start = t.out.buffer().len();
    let buf = t.out.buffer();
    buf.extend_from_slice(&bytes[..notify.via_at]);
    buf.extend_from_slice(b"Via: ");
    let branch = Branch { worker: t.node.worker, client, spiral: 0 };
    write::via(buf, destination.transport, destination.local, |buf| branch.write(buf));
    buf.extend_from_slice(b";rport\r\n");
    buf.extend_from_slice(&bytes[notify.via_at..]);
    let user = ClientUser::Notify(notify.id);
    t.tx.send(t.now, client, Kind::NonInvite, destination.target, user, t.out, start);
}
