//! The registration event package (RFC 3680, with GRUUs by RFC 5628) and its notifier (RFC 6665).
//!
//! A pure machine, one for each worker: SUBSCRIBE requests are its input, whole NOTIFY requests its output. It sends
//! nothing itself and has no transactions, and it does not authorise subscribers. The bindings are in the [location
//! service](crate::location), which reports changes to the subscribed addresses-of-record, and to no others.
//!
//! `subscription` is one dialog and its NOTIFY, `watch` is one address-of-record and the events of its contacts,
//! `document` is the body.

mod document;
mod subscribe;
mod subscription;
mod watch;

use crate::gruu::Gruus;
use crate::keys::{Purpose, Secret};
use crate::location::{Change, LocationStore};
pub use document::MAX_DOCUMENT;
use hashbrown::HashMap;
use ringway_sansio::{Duration, Flow, Random, Time, TimerId, TimerWheel};
use ringway_sip::Message;
use siphasher::sip::SipHasher13;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
pub use subscription::{Notify, NotifyId};
use subscription::{NotifyOutcome, Subscription};
pub use watch::MAX_ENDED;
use watch::Watch;

/// The maximum length of all texts of one dialog together, in bytes; more is answered with 400.
pub const MAX_DIALOG: usize = 8192;
/// Seconds after which a subscriber may try again when the notifier is full.
const RETRY_AFTER: u64 = 60;

/// The operator's configuration.
#[derive(Clone, Debug)]
pub struct RegEventConfig {
    /// Seconds a subscription lasts if the request names no time (RFC 3680 section 4.4).
    pub default_expires: u32,
    /// Minimum seconds of a subscription; a shorter one is answered with 423.
    pub min_expires: u32,
    /// Maximum seconds of a subscription, whatever is asked for.
    pub max_expires: u32,
    /// Maximum number of subscriptions of one worker; one more is answered with 503.
    pub max_subscriptions: usize,
    /// Maximum number of subscriptions to one address-of-record, of one worker; one more is answered with 403.
    pub max_per_user: usize,
    /// Minimum time between two notifications of changes to one subscriber (RFC 3680 section 4.10).
    pub min_interval: Duration,
}

impl Default for RegEventConfig {
    fn default() -> Self {
        RegEventConfig {
            default_expires: 3761,
            min_expires: 60,
            max_expires: 7200,
            max_subscriptions: 10_000,
            max_per_user: 20,
            min_interval: Duration::from_secs(5),
        }
    }
}

/// The response to a SUBSCRIBE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscribeOutcome {
    /// The status of the response.
    pub status: u16,
    /// Its reason phrase; for an error of the request, what was expected.
    pub reason: &'static str,
    /// The tag that To must have if it has none yet: that of the dialog, if one began.
    pub to_tag: Option<Vec<u8>>,
}

/// The keyed hash of the tables: addresses-of-record and tags come from the network.
#[derive(Clone)]
struct Keyed(SipHasher13);

impl std::hash::BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}

#[derive(Clone, Debug)]
enum Deadline {
    /// The expiry of a subscription.
    Expiry(usize),
    /// The end of the minimum interval between notifications.
    Interval(usize),
    /// The expiry of the first contact of an address-of-record.
    Contact(Arc<[u8]>),
}

/// The notifier of one worker.
pub struct RegEvents {
    worker: u8,
    config: RegEventConfig,
    gruus: Gruus,
    /// Keys the ids in documents, which must reveal nothing.
    ids: SipHasher13,
    subscriptions: Slab<Subscription>,
    /// Subscriptions by local tag, which is random.
    dialogs: HashMap<Vec<u8>, usize, Keyed>,
    watches: HashMap<Arc<[u8]>, Watch, Keyed>,
    wheel: TimerWheel<Deadline>,
    ready: VecDeque<usize>,
    /// The number of the last NOTIFY.
    serial: u32,
    body: Vec<u8>,
}

impl RegEvents {
    /// Returns a notifier without subscriptions for `worker`. `secret` keys GRUUs (see [`Gruus::new`]) and the ids in
    /// documents.
    pub fn new(config: RegEventConfig, secret: &Secret, worker: u8, now: Time) -> Self {
        let ids = SipHasher13::new_with_key(&secret.key(Purpose::RegistrationIds));
        let tables = Keyed(SipHasher13::new_with_key(&secret.key(Purpose::NotifierTables)));
        RegEvents {
            worker,
            config,
            gruus: Gruus::new(secret),
            ids,
            subscriptions: Slab::new(),
            dialogs: HashMap::with_hasher(tables.clone()),
            watches: HashMap::with_hasher(tables),
            wheel: TimerWheel::new(now),
            ready: VecDeque::new(),
            serial: 0,
            body: Vec::new(),
        }
    }

    /// Replaces the configuration, from the next request on.
    pub fn reconfigure(&mut self, config: RegEventConfig) {
        self.config = config;
    }

    /// Returns the number of subscriptions, including those whose last NOTIFY is not answered yet.
    pub fn len(&self) -> usize {
        self.subscriptions.len()
    }

    /// Returns whether there is no subscription.
    pub fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
    }

    /// Returns the worker whose notifier made this tag, so that a request within its dialog can be handed over; `None`
    /// if no notifier did.
    pub fn worker_of_tag(tag: &[u8]) -> Option<u8> {
        subscribe::worker_of_tag(tag)
    }

    /// Returns the address-of-record of the dialog of a request; `None` if there is no such dialog (481).
    pub fn dialog_aor(&self, request: &Message<'_>) -> Option<&[u8]> {
        let index = self.find_dialog(request)?;
        Some(&self.subscriptions[index].aor)
    }

    /// Reports that the registrations of `aor` have changed.
    pub fn changed(&mut self, now: Time, aor: &[u8], why: Change, store: &dyn LocationStore) {
        let Some(watch) = self.watches.get_mut(aor) else { return };
        if watch.update(now, why, store, &self.ids) {
            let dropped = watch.bound();
            for &index in &watch.subscriptions {
                self.subscriptions[index].note_change(dropped);
            }
            let notified: Vec<usize> = watch.subscriptions.clone();
            for index in notified {
                self.schedule(now, index);
            }
        }
        self.set_contact_timer(aor);
    }

    /// Appends the next NOTIFY that is due to `buf`; returns `None` if none is.
    pub fn poll_notify(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Notify> {
        while let Some(index) = self.ready.pop_front() {
            let Some(subscription) = self.subscriptions.get_mut(index) else { continue };
            let Some(full) = subscription.dequeue() else { continue };
            let Some(watch) = self.watches.get_mut(&subscription.aor) else { continue };
            self.body.clear();
            let document = subscription.document(now, watch, full, &self.gruus);
            let has_contacts = document.write(&mut self.body);
            if !subscription.note_document(watch.serial, has_contacts) {
                // The change has been reverted meanwhile.
                continue;
            }
            self.serial = self.serial.wrapping_add(1);
            let notify = subscription.write_notify(now, index, self.serial, &self.body, buf);
            let seen = watch.subscriptions.iter().filter_map(|&i| self.subscriptions.get(i));
            let seen = seen.map(Subscription::seen).min();
            watch.drop_reported(seen.unwrap_or(u64::MAX));
            return Some(notify);
        }
        None
    }

    /// Processes the final status of a NOTIFY: 408 without a response, 503 if it could not be sent (RFC 3261 section
    /// 8.1.3.1).
    pub fn handle_notify_response(
        &mut self,
        now: Time,
        id: NotifyId,
        status: u16,
        store: &dyn LocationStore,
    ) {
        let index = id.index as usize;
        let Some(subscription) = self.subscriptions.get_mut(index) else { return };
        match subscription.note_answer(id.serial, status) {
            NotifyOutcome::Nothing => {}
            NotifyOutcome::Last => self.remove(index, store),
            NotifyOutcome::Next => self.schedule(now, index),
        }
    }

    /// Returns the time at which [`RegEvents::handle_timeout`] must be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.wheel.next()
    }

    /// Processes everything that is due. Afterwards [`RegEvents::poll_notify`] may return a NOTIFY.
    pub fn handle_timeout(&mut self, now: Time, store: &dyn LocationStore) {
        while let Some(deadline) = self.wheel.expire(now) {
            match deadline {
                Deadline::Expiry(index) => {
                    self.subscriptions[index].expire();
                    self.schedule(now, index);
                }
                Deadline::Interval(index) => {
                    self.subscriptions[index].end_interval();
                    self.schedule(now, index);
                }
                Deadline::Contact(aor) => {
                    if let Some(watch) = self.watches.get_mut(&aor) {
                        watch.timer = TimerId::NONE;
                    }
                    self.changed(now, &aor, Change::Expired, store);
                }
            }
        }
    }

    /// Queues a subscription with a due notification, now or at the time it is allowed.
    fn schedule(&mut self, now: Time, index: usize) {
        let (wheel, min_interval) = (&mut self.wheel, self.config.min_interval);
        let timer = |at| wheel.set(at, Deadline::Interval(index));
        if self.subscriptions[index].schedule(now, min_interval, timer) {
            self.ready.push_back(index);
        }
    }

    /// Sets the timer for the next contact of `aor` that expires.
    fn set_contact_timer(&mut self, aor: &[u8]) {
        let Some(watch) = self.watches.get_mut(aor) else { return };
        self.wheel.cancel(watch.timer);
        watch.timer = match watch.next_expiry() {
            Some(at) => self.wheel.set(at, Deadline::Contact(watch.aor.clone())),
            None => TimerId::NONE,
        };
    }

    fn remove(&mut self, index: usize, store: &dyn LocationStore) {
        let subscription = self.subscriptions.remove(index);
        for timer in subscription.timers() {
            self.wheel.cancel(timer);
        }
        self.dialogs.remove(&subscription.dialog.local_tag);
        let Some(watch) = self.watches.get_mut(&subscription.aor) else { return };
        watch.subscriptions.retain(|i| *i != index);
        if watch.subscriptions.is_empty() {
            self.wheel.cancel(watch.timer);
            self.watches.remove(&subscription.aor);
            store.unwatch(&subscription.aor, self.worker);
        }
        if self.subscriptions.is_empty() {
            // The memory of many subscriptions is released once they have ended.
            self.subscriptions = Slab::new();
            self.dialogs.shrink_to_fit();
            self.watches.shrink_to_fit();
            self.ready = VecDeque::new();
        }
    }

    /// Processes a SUBSCRIBE for Event `reg`, or any other event (489). The message must have passed
    /// [`Message::check`]. The sender must be authorised to see the registrations of `aor`: that of the Request-URI, or
    /// [`RegEvents::dialog_aor`] within a dialog. `may_register` is whether it may register there as well; only then
    /// are temporary GRUUs included (RFC 5628 section 5). `contact` is the URI of this server within the dialog.
    ///
    /// Appends to `headers` the header fields of the response, complete with CRLF. After a 2xx,
    /// [`RegEvents::poll_notify`] returns a NOTIFY, which must follow the response.
    pub fn subscribe(
        &mut self,
        now: Time,
        flow: &Flow,
        request: &Message<'_>,
        aor: &[u8],
        may_register: bool,
        contact: &[u8],
        store: &dyn LocationStore,
        random: &mut dyn Random,
        headers: &mut Vec<u8>,
    ) -> SubscribeOutcome {
        let subscriber = subscribe::Subscriber { now, flow, aor, may_register, contact };
        match self.accept(&subscriber, request, store, random, headers) {
            Ok(to_tag) => SubscribeOutcome { status: 200, reason: "OK", to_tag },
            Err((status, reason)) => SubscribeOutcome { status, reason, to_tag: None },
        }
    }
}

#[cfg(test)]
mod tests;
