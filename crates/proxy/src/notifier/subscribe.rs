//! SUBSCRIBE: its requirements, and the subscription it begins, extends or ends (RFC 6665 section 4.2.1).

use super::package::Package;
use super::subscription::{Dialog, Subscription};
use super::watch::Watch;
use super::{Deadline, MAX_DIALOG, Notifier, RETRY_AFTER, Sources, StateWatch, SubscribeRequest};
use crate::registrar::{is_behind_nat, seconds, unsupported};
use ringway_sansio::{Duration, Flow, Random, Time, TimerId};
use ringway_sip::header::Params;
use ringway_sip::{HeaderId, Message, NameAddr, Uri, write};
use std::sync::Arc;

/// An interval of at least this is never too brief (RFC 6665 section 4.2.1.1).
const ONE_HOUR: u32 = 3600;
type Fault = (u16, &'static str);

impl Notifier {
    pub(super) fn accept(
        &mut self,
        now: Time,
        request: &SubscribeRequest<'_>,
        sources: Sources<'_>,
        random: &mut dyn Random,
        headers: &mut Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let msg = request.msg;
        check_required(msg, headers)?;
        check_accept(msg, request.package, headers)?;
        let expires = self.granted(request, headers)?;
        let in_dialog = msg.to().is_ok_and(|to| to.tag().is_some());
        let to_tag = if in_dialog {
            self.refresh(now, request, expires)?;
            None
        } else {
            Some(self.begin(now, request, expires, sources, random, headers)?)
        };
        write::header_decimal(headers, "Expires", u64::from(expires));
        headers.extend_from_slice(b"Contact: <");
        headers.extend_from_slice(request.contact);
        headers.extend_from_slice(b">\r\n");
        Ok(to_tag)
    }

    /// Returns the seconds the subscription lasts.
    fn granted(&self, request: &SubscribeRequest<'_>, headers: &mut Vec<u8>) -> Result<u32, Fault> {
        let asked = request.msg.first(HeaderId::Expires).and_then(seconds);
        let asked = asked.unwrap_or(request.package.default_expires());
        if asked > 0 && asked < ONE_HOUR && asked < self.limits.min_expires {
            write::header_decimal(headers, "Min-Expires", u64::from(self.limits.min_expires));
            return Err((423, "Interval Too Brief"));
        }
        Ok(asked.min(self.limits.max_expires))
    }

    /// Returns the subscription of the dialog of a request.
    pub(super) fn find_dialog(&self, request: &Message<'_>) -> Option<usize> {
        let (to, from) = (request.to().ok()?, request.from().ok()?);
        let index = *self.dialogs.get(to.tag()?)?;
        let dialog = &self.subscriptions[index].dialog;
        let same = *dialog.call_id == *request.call_id()
            && *dialog.remote_tag == *from.tag().unwrap_or_default();
        same.then_some(index)
    }

    /// Refreshes a subscription (RFC 6665 section 4.2.1.4).
    fn refresh(
        &mut self,
        now: Time,
        request: &SubscribeRequest<'_>,
        expires: u32,
    ) -> Result<(), Fault> {
        let (msg, gone) = (request.msg, (481, "Subscription Does Not Exist"));
        let index = self.find_dialog(msg).ok_or(gone)?;
        let subscription = &mut self.subscriptions[index];
        let same = subscription.package == request.package
            && *subscription.dialog.event_id == *event_id(msg);
        if subscription.is_over() || !same {
            return Err(gone);
        }
        let cseq = msg.cseq().map_err(|e| (e.status, e.reason))?.seq;
        // RFC 3261 section 12.2.2.
        if cseq <= subscription.dialog.remote_cseq {
            return Err((500, "CSeq: expected a higher number than before"));
        }
        // A target refresh (RFC 3261 section 12.2.2): Contact may have changed.
        if msg.has(HeaderId::Contact) {
            let target = target(msg)?;
            if target.len() + subscription.dialog.len() > MAX_DIALOG {
                return Err((400, "expected a shorter dialog"));
            }
            subscription.dialog.target = target.into();
        }
        subscription.dialog.remote_cseq = cseq;
        subscription.dialog.contact = request.contact.into();
        subscription.dialog.flow = way_back(request);
        subscription.dialog.source = request.flow.remote.ip();
        subscription.set_may_register(request.may_register);
        self.set_expiry(now, index, expires);
        Ok(())
    }

    fn begin(
        &mut self,
        now: Time,
        request: &SubscribeRequest<'_>,
        expires: u32,
        sources: Sources<'_>,
        random: &mut dyn Random,
        headers: &mut Vec<u8>,
    ) -> Result<Vec<u8>, Fault> {
        let &SubscribeRequest { package, entity, subscriber, .. } = request;
        let held = self.subscribers.get(subscriber).copied().unwrap_or(0);
        if held >= self.limits.max_per_subscriber
            || self.held_of(request) >= self.limits.max_per_user
        {
            return Err((403, "Too Many Subscriptions"));
        }
        let tag = new_tag(self.worker, random);
        let dialog = new_dialog(request, &tag, random)?;
        if self.subscriptions.len() >= self.limits.max_subscriptions && !self.evict(now, held) {
            write::header_decimal(headers, "Retry-After", RETRY_AFTER);
            return Err((503, "Too Many Subscriptions"));
        }
        let aor = self.watch(now, request, sources);
        let parties = (entity.into(), subscriber.into());
        let subscription =
            Subscription::new(now, (package, aor.clone()), parties, request.may_register, dialog);
        let index = self.subscriptions.insert(subscription);
        self.dialogs.insert(tag.clone(), index);
        *self.subscribers.entry(subscriber.into()).or_default() += 1;
        if package == Package::Reg {
            if let Some(watch) = self.watches.get_mut(&aor) {
                watch.subscriptions.push(index);
            }
        } else if let Some(watch) = self.state_watches.get_mut(&aor) {
            watch.subscriptions.push(index);
        }
        self.set_expiry(now, index, expires);
        Ok(tag)
    }

    /// Returns the number of subscriptions of a request's subscriber to the same package of the same user.
    fn held_of(&self, request: &SubscribeRequest<'_>) -> usize {
        let indices = match request.package {
            Package::Reg => self.watches.get(request.aor).map(|watch| &watch.subscriptions),
            _ => self.state_watches.get(request.aor).map(|watch| &watch.subscriptions),
        };
        let all = indices.into_iter().flatten().map(|&index| &self.subscriptions[index]);
        let same = |s: &&Subscription| {
            s.package == request.package && *s.subscriber == *request.subscriber
        };
        all.filter(same).count()
    }

    /// Makes room for a subscriber that has `held` subscriptions: ends one of the subscriber that has the most. Returns
    /// whether that one has more. An ended subscription takes room until its last NOTIFY is answered, so the limit is
    /// exceeded by those that end.
    fn evict(&mut self, now: Time, held: usize) -> bool {
        let Some((greatest, count)) = self.subscribers.iter().max_by_key(|(_, count)| **count)
        else {
            return false;
        };
        if *count <= held + 1 {
            return false;
        }
        let of_greatest = |s: &Subscription| s.subscriber == *greatest;
        let victim = self.subscriptions.iter().find(|(_, s)| of_greatest(s) && !s.is_over());
        let Some((index, _)) = victim else { return false };
        let subscription = &mut self.subscriptions[index];
        subscription.evict();
        self.wheel.cancel(subscription.timers()[0]);
        self.schedule(now, index);
        true
    }

    /// Begins to watch the address-of-record, unless it is watched already.
    fn watch(
        &mut self,
        now: Time,
        request: &SubscribeRequest<'_>,
        sources: Sources<'_>,
    ) -> Arc<[u8]> {
        let aor = request.aor;
        // Watched first and read afterwards, so that no change between the two is missed.
        sources.store.watch(aor, self.worker);
        if request.package != Package::Reg {
            if let Some(watch) = self.state_watches.get(aor) {
                return watch.aor.clone();
            }
            sources.states.watch(aor, self.worker);
            let aor: Arc<[u8]> = aor.into();
            let watch =
                StateWatch { aor: aor.clone(), subscriptions: Vec::new(), timer: TimerId::NONE };
            self.state_watches.insert(aor.clone(), watch);
            return aor;
        }
        if let Some(watch) = self.watches.get(aor) {
            return watch.aor.clone();
        }
        if sources.states.shares_contacts() {
            sources.states.watch(aor, self.worker);
        }
        let watch = Watch::new(aor, now, sources, &self.ids);
        let aor = watch.aor.clone();
        self.watches.insert(aor.clone(), watch);
        self.set_contact_timer(&aor);
        aor
    }

    /// Extends a subscription, or ends it with `expires` 0. A NOTIFY is due in both cases (RFC 6665 section 4.2.1.2 and
    /// section 4.4.3).
    fn set_expiry(&mut self, now: Time, index: usize, expires: u32) {
        let subscription = &mut self.subscriptions[index];
        let [expiry, _] = subscription.timers();
        self.wheel.cancel(expiry);
        let until = now + Duration::from_secs(u64::from(expires));
        let timer = (expires > 0).then(|| self.wheel.set(until, Deadline::Expiry(index)));
        subscription.prolong(until, timer);
        self.schedule(now, index);
    }
}

/// Returns the dialog that a SUBSCRIBE begins (RFC 3261 section 12.1.1).
fn new_dialog(
    request: &SubscribeRequest<'_>,
    tag: &[u8],
    random: &mut dyn Random,
) -> Result<Dialog, Fault> {
    let (msg, flow) = (request.msg, request.flow);
    let from = msg.from().map_err(|e| (e.status, e.reason))?;
    let cseq = msg.cseq().map_err(|e| (e.status, e.reason))?.seq;
    let mut route = Vec::new();
    for element in msg.items(HeaderId::RecordRoute) {
        if !route.is_empty() {
            route.extend_from_slice(b", ");
        }
        write::unfolded(&mut route, element);
    }
    let dialog = Dialog {
        call_id: msg.call_id().into(),
        local_tag: tag.to_vec(),
        remote_tag: from.tag().unwrap_or_default().into(),
        local: msg.to().map_err(|e| (e.status, e.reason))?.uri.into(),
        remote: from.uri.into(),
        target: target(msg)?.into(),
        route: route.into(),
        event_id: event_id(msg).into(),
        contact: request.contact.into(),
        flow: way_back(request),
        source: flow.remote.ip(),
        remote_cseq: cseq,
        // RFC 3261 section 8.1.1.5: below 2^31; each request increments it by one.
        local_cseq: (random.next_u64() & 0xffff) as u32,
    };
    if dialog.len() > MAX_DIALOG {
        return Err((400, "expected a shorter dialog"));
    }
    Ok(dialog)
}

fn check_required(request: &Message<'_>, headers: &mut Vec<u8>) -> Result<(), Fault> {
    let mut refused = false;
    for option in unsupported(request) {
        write::header(headers, "Unsupported", option);
        refused = true;
    }
    if refused { Err((420, "Bad Extension")) } else { Ok(()) }
}

/// Returns the `id` of Event; empty if it has none (RFC 6665 section 8.2.1).
fn event_id<'a>(request: &Message<'a>) -> &'a [u8] {
    let value = request.first(HeaderId::Event).unwrap_or_default();
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    Params::new(&value[end..]).get(b"id").flatten().unwrap_or_default()
}

/// Checks Accept. A subscriber that lists formats must accept the only one there is (RFC 3680 section 4.5, RFC 4235
/// section 3.5, RFC 3856 section 6.5).
fn check_accept(
    request: &Message<'_>,
    package: Package,
    headers: &mut Vec<u8>,
) -> Result<(), Fault> {
    if !request.has(HeaderId::Accept) {
        return Ok(());
    }
    let format = package.content_type();
    let accepted = request.items(HeaderId::Accept).any(|range| {
        let end = memchr::memchr(b';', range).unwrap_or(range.len());
        let range = range[..end].trim_ascii();
        [format, b"application/*", b"*/*"].iter().any(|t| t.eq_ignore_ascii_case(range))
    });
    if accepted {
        return Ok(());
    }
    write::header(headers, "Accept", format);
    Err((406, "Not Acceptable"))
}

/// Returns the remote target.
fn target<'a>(request: &Message<'a>) -> Result<&'a [u8], Fault> {
    let fault = (400, "Contact: expected one SIP URI");
    let mut contacts = request.items(HeaderId::Contact);
    let (Some(contact), None) = (contacts.next(), contacts.next()) else { return Err(fault) };
    let uri = NameAddr::parse(contact).map_err(|_| fault)?.uri;
    if Uri::parse(uri).is_ok_and(|uri| uri.is_sip()) { Ok(uri) } else { Err(fault) }
}

/// Returns the flow back to a subscriber without a proxy between whose Contact may not be reachable: over a connection,
/// through a NAT, or if it is a GRUU, which this server stands for itself (RFC 5627 section 4.4).
fn way_back(request: &SubscribeRequest<'_>) -> Option<Flow> {
    let (msg, flow) = (request.msg, request.flow);
    let direct = msg.items(HeaderId::Via).nth(1).is_none();
    let nat = msg.top_via().is_ok_and(|via| is_behind_nat(via.host, flow));
    (direct && (nat || request.leads_here || !flow.transport.is_datagram())).then_some(*flow)
}

/// Returns a tag that contains its worker: `re`, two digits of the worker, 64 random bits.
fn new_tag(worker: u8, random: &mut dyn Random) -> Vec<u8> {
    let mut tag = b"re".to_vec();
    write::hex(&mut tag, &[worker]);
    write::hex(&mut tag, &random.next_u64().to_be_bytes());
    tag
}

pub(super) fn worker_of_tag(tag: &[u8]) -> Option<u8> {
    let digits = tag.strip_prefix(b"re").filter(|rest| rest.len() == 18)?;
    let digits = std::str::from_utf8(&digits[..2]).ok()?;
    u8::from_str_radix(digits, 16).ok()
}
