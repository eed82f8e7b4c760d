//! The event packages of this server between the notifier and the transactions: the authorisation of subscribers, the
//! sending of NOTIFY requests, and what phones publish.

use super::ids::{ClientUser, ResolveUser};
use super::locator::{Destination, Locator, Lookup};
use super::names::user_of;
use super::node::Aor;
use super::proof::Proof;
use super::publication;
use super::refusal::Refusal;
use super::request::IncomingRequest;
use super::turn::Turn;
use crate::gruu::Gruus;
use crate::keys::Secret;
use crate::location::Change;
use crate::notifier::{Limits, Notifier, Notify, NotifyId, Package, Sources, SubscribeRequest};
use ringway_sansio::{Hop, Time, Transport};
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::message::{self, Message};
use ringway_sip::transaction::{Branch, Kind};
use ringway_sip::uri::Uri;
use ringway_sip::write;
use slab::Slab;

/// The notifier and its NOTIFY requests.
pub(super) struct Subscriptions {
    notifier: Notifier,
    /// NOTIFY requests that wait for server location.
    parked: Slab<(Notify, Vec<u8>)>,
}

/// What a SUBSCRIBE asks for.
pub(super) struct Subject {
    pub package: Package,
    /// The address-of-record of its Request-URI.
    pub entity: Aor,
    /// The address-of-record of the user whom that stands for.
    pub aor: Aor,
}

impl Subscriptions {
    pub(super) fn new(
        limits: Limits,
        secret: &Secret,
        gruus: Gruus,
        worker: u8,
        now: Time,
    ) -> Subscriptions {
        let notifier = Notifier::new(limits, secret, gruus, worker, now);
        Subscriptions { notifier, parked: Slab::new() }
    }

    /// Replaces how GRUUs are made.
    pub(super) fn set_gruus(&mut self, gruus: Gruus) {
        self.notifier.set_gruus(gruus);
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
        self.notifier.handle_timeout(t.now, sources(t));
        self.send(t);
    }

    /// Reports that the registrations of `aor` have changed.
    pub(super) fn changed(&mut self, t: &mut Turn<'_>, aor: &[u8], why: Change) {
        self.notifier.changed(t.now, aor, why, sources(t));
        self.send(t);
    }

    /// Reports that the calls of `aor`, or what its phones have published, may have changed, or what other servers report.
    pub(super) fn state_changed(&mut self, t: &mut Turn<'_>, aor: &[u8]) {
        self.notifier.state_changed(t.now, aor, sources(t));
        self.send(t);
    }

    /// Returns the address-of-record that the dialog of a request is about, if it is one of the notifier.
    pub(super) fn dialog_aor(&self, msg: &Message<'_>) -> Option<Aor> {
        self.notifier.dialog_aor(msg).map(Aor::from_slice)
    }

    /// Processes a SUBSCRIBE to a user at a domain of ours. The user and trusted peers are authorised for registrations,
    /// all users of this server for the rest.
    pub(super) fn subscribe(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        subject: &Subject,
        proof: &Proof,
    ) -> Result<(), Refusal> {
        let (msg, flow) = (incoming.msg, incoming.flow);
        let is_of_reg = subject.package == Package::Reg;
        let may = match proof {
            Proof::Trusted | Proof::Dialog => true,
            Proof::Digest { .. } => !is_of_reg || t.node.is_from(msg, &subject.aor),
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
        let contact = contact(incoming, subject.package);
        let subscriber = match proof {
            Proof::Digest { realm, user } => [&**user, b"@", realm.as_bytes()].concat(),
            _ => flow.remote.ip().to_canonical().to_string().into_bytes(),
        };
        let request = SubscribeRequest {
            flow,
            msg,
            package: subject.package,
            aor: &subject.aor,
            entity: &subject.entity,
            subscriber: &subscriber,
            may_register: is_of_reg,
            contact: &contact,
            leads_here: leads_here(t, incoming),
        };
        let mut headers = Vec::new();
        let sources = sources(t);
        let done = self.notifier.subscribe(t.now, &request, sources, t.random, &mut headers);
        let local_tag = t.node.tag(msg);
        let tag = Some(done.to_tag.as_deref().unwrap_or(&local_tag));
        let (start, buf) = (t.out.buffer().len(), t.out.buffer());
        write::response(buf, msg, Some(flow), done.status, done.reason, tag, &headers, &[]);
        t.tx.respond(t.now, server, done.status, t.out, start);
        self.send(t);
        Ok(())
    }

    /// Processes a PUBLISH (RFC 3903 section 6). A user publishes of nobody else.
    pub(super) fn publish(
        &self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        subject: &Subject,
        proof: &Proof,
    ) -> Result<(), Refusal> {
        let is_user = match proof {
            Proof::Trusted => true,
            Proof::Digest { .. } => t.node.is_from(incoming.msg, &subject.aor),
            _ => false,
        };
        if !is_user {
            t.stats.forbidden += 1;
            return Err(Refusal::new(403, "Forbidden"));
        }
        let tag = t.random.next_u64();
        let (change, seconds) = publication::change(t.now, incoming.msg, tag)?;
        let done = t.node.shared.states.publish(t.now, &subject.aor, change);
        done.map_err(publication::refusal)?;
        let headers = publication::headers(tag, seconds);
        let (msg, server) = (incoming.msg, incoming.server());
        t.reply(incoming.flow, msg, incoming.via, server, (200, "OK"), &headers);
        Ok(())
    }

    /// Sends the NOTIFY requests that are due.
    fn send(&mut self, t: &mut Turn<'_>) {
        let mut bytes = Vec::new();
        let sources = sources(t);
        while let Some(notify) = self.notifier.poll_notify(t.now, sources, &mut bytes) {
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
        self.notifier.handle_notify_response(t.now, id, status, sources(t));
    }
}

/// Returns what the notifier reports.
fn sources<'a>(t: &Turn<'a>) -> Sources<'a> {
    Sources { store: t.store, states: &t.node.shared.states }
}

/// Returns the event package of a SUBSCRIBE or a PUBLISH that this server may have.
pub(super) fn package_of(msg: &Message<'_>) -> Option<Package> {
    Package::of_event(msg.first(HeaderId::Event)?)
}

/// Returns what a SUBSCRIBE that begins a dialog asks for: the user of its Request-URI, or the one whose number that is.
pub(super) fn subject(t: &Turn<'_>, package: Package, uri: &Uri<'_>, domain: usize) -> Subject {
    let entity = t.node.aor(user_of(uri).unwrap_or_default(), domain);
    let mut aliases: Vec<Aor> = Vec::new();
    if package != Package::Reg {
        t.store.aliases(&entity, t.now, &mut |aor, _| aliases.push(Aor::from_slice(aor)));
    }
    // A number that several users answer for is nobody's.
    let aor = match aliases.as_slice() {
        [only] => only.clone(),
        _ => entity.clone(),
    };
    Subject { package, entity, aor }
}

/// Returns whether the Contact of a request is an address at a domain of ours.
fn leads_here(t: &Turn<'_>, incoming: &IncomingRequest<'_>) -> bool {
    let contact = incoming.msg.items(HeaderId::Contact).next();
    let contact = contact.and_then(|contact| NameAddr::parse(contact).ok());
    let uri = contact.and_then(|contact| Uri::parse(contact.uri).ok());
    uri.is_some_and(|uri| t.node.own_domain(&uri, incoming.flow, true).is_some())
}

/// Returns the Contact URI of this server in a dialog of the notifier.
fn contact(incoming: &IncomingRequest<'_>, package: Package) -> Vec<u8> {
    let flow = incoming.flow;
    let mut contact = [b"sip:", package.name().as_bytes(), b"@"].concat();
    write::addr(&mut contact, flow.local);
    if flow.transport != Transport::Udp {
        contact.extend_from_slice(b";transport=");
        contact.extend_from_slice(flow.transport.uri().as_bytes());
    }
    contact
}

/// Returns the worker whose notifier has the dialog of a SUBSCRIBE; `None` if it is within no dialog of a notifier.
pub(super) fn worker_of(msg: &Message<'_>) -> Option<u8> {
    Notifier::worker_of_tag(msg.to().ok()?.tag()?)
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
