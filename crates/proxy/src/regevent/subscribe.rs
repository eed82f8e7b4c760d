//! SUBSCRIBE: its requirements, and the subscription it begins, extends or ends (RFC 6665 section 4.2.1).

use super::document::CONTENT_TYPE;
use super::subscription::{Dialog, Subscription};
use super::watch::Watch;
use super::{Deadline, MAX_DIALOG, RETRY_AFTER, RegEvents};
use crate::location::LocationStore;
use crate::registrar::{is_behind_nat, seconds, unsupported};
use ringway_sansio::{Duration, Flow, Random, Time};
use ringway_sip::header::Params;
use ringway_sip::{HeaderId, Message, NameAddr, Uri, write};

/// An interval of at least this is never too brief (RFC 6665 section 4.2.1.1).
const ONE_HOUR: u32 = 3600;
type Fault = (u16, &'static str);

/// The sender of a SUBSCRIBE, and its arguments from outside the message.
pub(super) struct Subscriber<'s> {
    pub(super) now: Time,
    pub(super) flow: &'s Flow,
    pub(super) aor: &'s [u8],
    pub(super) may_register: bool,
    pub(super) contact: &'s [u8],
}

impl RegEvents {
    pub(super) fn accept(
        &mut self,
        subscriber: &Subscriber<'_>,
        request: &Message<'_>,
        store: &dyn LocationStore,
        random: &mut dyn Random,
        headers: &mut Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Fault> {
        check_required(request, headers)?;
        let event = event(request, headers)?;
        check_accept(request, headers)?;
        let expires = self.granted(request, headers)?;
        let in_dialog = request.to().is_ok_and(|to| to.tag().is_some());
        let to_tag = if in_dialog {
            self.refresh(subscriber, request, event, expires)?;
            None
        } else {
            Some(self.begin(subscriber, request, event, expires, store, random, headers)?)
        };
        write::header_decimal(headers, "Expires", u64::from(expires));
        headers.extend_from_slice(b"Contact: <");
        headers.extend_from_slice(subscriber.contact);
        headers.extend_from_slice(b">\r\n");
        Ok(to_tag)
    }

    /// Returns the seconds the subscription lasts.
    fn granted(&self, request: &Message<'_>, headers: &mut Vec<u8>) -> Result<u32, Fault> {
        let asked = request.first(HeaderId::Expires).and_then(seconds);
        let asked = asked.unwrap_or(self.config.default_expires);
        if asked > 0 && asked < ONE_HOUR && asked < self.config.min_expires {
            write::header_decimal(headers, "Min-Expires", u64::from(self.config.min_expires));
            return Err((423, "Interval Too Brief"));
        }
        Ok(asked.min(self.config.max_expires))
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
        subscriber: &Subscriber<'_>,
        request: &Message<'_>,
        event: &[u8],
        expires: u32,
    ) -> Result<(), Fault> {
        let gone = (481, "Subscription Does Not Exist");
        let index = self.find_dialog(request).ok_or(gone)?;
        let subscription = &mut self.subscriptions[index];
        if subscription.is_over() || *subscription.dialog.event_id != *event {
            return Err(gone);
        }
        let cseq = request.cseq().map_err(|e| (e.status, e.reason))?.seq;
        // RFC 3261 section 12.2.2.
        if cseq <= subscription.dialog.remote_cseq {
            return Err((500, "CSeq: expected a higher number than before"));
        }
        // A target refresh (RFC 3261 section 12.2.2): Contact may have changed.
        if request.has(HeaderId::Contact) {
            let target = target(request)?;
            if target.len() + subscription.dialog.len() > MAX_DIALOG {
                return Err((400, "expected a shorter dialog"));
            }
            subscription.dialog.target = target.into();
        }
        subscription.dialog.remote_cseq = cseq;
        subscription.dialog.contact = subscriber.contact.into();
        subscription.dialog.flow = way_back(request, subscriber.flow);
        subscription.dialog.source = subscriber.flow.remote.ip();
        subscription.set_may_register(subscriber.may_register);
        self.set_expiry(subscriber.now, index, expires);
        Ok(())
    }

    fn begin(
        &mut self,
        subscriber: &Subscriber<'_>,
        request: &Message<'_>,
        event: &[u8],
        expires: u32,
        store: &dyn LocationStore,
        random: &mut dyn Random,
        headers: &mut Vec<u8>,
    ) -> Result<Vec<u8>, Fault> {
        if self.subscriptions.len() >= self.config.max_subscriptions {
            write::header_decimal(headers, "Retry-After", RETRY_AFTER);
            return Err((503, "Too Many Subscriptions"));
        }
        let others = self.watches.get(subscriber.aor).map_or(0, |w| w.subscriptions.len());
        if others >= self.config.max_per_user {
            return Err((403, "Too Many Subscriptions"));
        }
        let tag = new_tag(self.worker, random);
        let dialog = self.dialog(subscriber, request, event, &tag, random)?;
        let aor = self.watch(subscriber, store);
        let subscription =
            Subscription::new(subscriber.now, aor.clone(), subscriber.may_register, dialog);
        let index = self.subscriptions.insert(subscription);
        self.dialogs.insert(tag.clone(), index);
        if let Some(watch) = self.watches.get_mut(&aor) {
            watch.subscriptions.push(index);
        }
        self.set_expiry(subscriber.now, index, expires);
        Ok(tag)
    }

    /// Begins to watch the address-of-record, unless it is watched already.
    fn watch(
        &mut self,
        subscriber: &Subscriber<'_>,
        store: &dyn LocationStore,
    ) -> std::sync::Arc<[u8]> {
        if let Some(watch) = self.watches.get(subscriber.aor) {
            return watch.aor.clone();
        }
        // Watched first and read afterwards, so that no change between the two is missed.
        store.watch(subscriber.aor, self.worker);
        let watch = Watch::new(subscriber.aor, subscriber.now, store, &self.ids);
        let aor = watch.aor.clone();
        self.watches.insert(aor.clone(), watch);
        self.set_contact_timer(&aor);
        aor
    }

    /// Returns the dialog that a SUBSCRIBE begins (RFC 3261 section 12.1.1).
    fn dialog(
        &self,
        subscriber: &Subscriber<'_>,
        request: &Message<'_>,
        event: &[u8],
        tag: &[u8],
        random: &mut dyn Random,
    ) -> Result<Dialog, Fault> {
        let from = request.from().map_err(|e| (e.status, e.reason))?;
        let cseq = request.cseq().map_err(|e| (e.status, e.reason))?.seq;
        let mut route = Vec::new();
        for element in request.items(HeaderId::RecordRoute) {
            if !route.is_empty() {
                route.extend_from_slice(b", ");
            }
            write::unfolded(&mut route, element);
        }
        let dialog = Dialog {
            call_id: request.call_id().into(),
            local_tag: tag.to_vec(),
            remote_tag: from.tag().unwrap_or_default().into(),
            local: request.to().map_err(|e| (e.status, e.reason))?.uri.into(),
            remote: from.uri.into(),
            target: target(request)?.into(),
            route: route.into(),
            event_id: event.into(),
            contact: subscriber.contact.into(),
            flow: way_back(request, subscriber.flow),
            source: subscriber.flow.remote.ip(),
            remote_cseq: cseq,
            // RFC 3261 section 8.1.1.5: below 2^31; each request increments it by one.
            local_cseq: (random.next_u64() & 0xffff) as u32,
        };
        if dialog.len() > MAX_DIALOG {
            return Err((400, "expected a shorter dialog"));
        }
        Ok(dialog)
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

fn check_required(request: &Message<'_>, headers: &mut Vec<u8>) -> Result<(), Fault> {
    let mut refused = false;
    for option in unsupported(request) {
        write::header(headers, "Unsupported", option);
        refused = true;
    }
    if refused { Err((420, "Bad Extension")) } else { Ok(()) }
}

/// Returns the `id` of an Event that is `reg`; empty if it has none (RFC 6665 section 8.2.1).
fn event<'a>(request: &Message<'a>, headers: &mut Vec<u8>) -> Result<&'a [u8], Fault> {
    let value = request.first(HeaderId::Event).unwrap_or_default();
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    if !value[..end].trim_ascii().eq_ignore_ascii_case(b"reg") {
        headers.extend_from_slice(b"Allow-Events: reg\r\n");
        return Err((489, "Bad Event"));
    }
    Ok(Params::new(&value[end..]).get(b"id").flatten().unwrap_or_default())
}

/// Checks Accept. RFC 3680 section 4.5: a subscriber that lists formats must accept the only one there is.
fn check_accept(request: &Message<'_>, headers: &mut Vec<u8>) -> Result<(), Fault> {
    if !request.has(HeaderId::Accept) {
        return Ok(());
    }
    let accepted = request.items(HeaderId::Accept).any(|range| {
        let end = memchr::memchr(b';', range).unwrap_or(range.len());
        let range = range[..end].trim_ascii();
        [CONTENT_TYPE, b"application/*", b"*/*"].iter().any(|t| t.eq_ignore_ascii_case(range))
    });
    if accepted {
        return Ok(());
    }
    write::header(headers, "Accept", CONTENT_TYPE);
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
/// or through a NAT.
fn way_back(request: &Message<'_>, flow: &Flow) -> Option<Flow> {
    let direct = request.items(HeaderId::Via).nth(1).is_none();
    let nat = request.top_via().is_ok_and(|via| is_behind_nat(via.host, flow));
    (direct && (nat || !flow.transport.is_datagram())).then_some(*flow)
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
