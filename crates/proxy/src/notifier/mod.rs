//! The notifier (RFC 6665) of three event packages: registrations (RFC 3680, with GRUUs by RFC 5628), the calls of a user's
//! phones (RFC 4235), and presence (RFC 3856).
//!
//! A pure machine, one for each worker: SUBSCRIBE requests are its input, whole NOTIFY requests its output. It sends
//! nothing itself and has no transactions, and it does not authorise subscribers. What it reports is in the [location
//! service](crate::location) and in the [states of users](crate::states); both report changes of what is subscribed to,
//! and of nothing else.
//!
//! `subscription` is one dialog and its NOTIFY, `package` has the rules of each event package. For registrations `watch` is
//! one address-of-record and the events of its contacts, and `reginfo` the document; `dialog_info` and `pidf` are the
//! documents about states.

mod dialog_info;
mod package;
pub mod pidf;
mod reginfo;
mod sources;
mod subscribe;
mod subscription;
mod watch;
mod xml;

use crate::gruu::Gruus;
use crate::keys::{Keyed, Purpose, Secret};
use crate::location::Change;
use hashbrown::HashMap;
pub use package::{ALLOW_EVENTS, Package};
pub use reginfo::MAX_DOCUMENT;
use ringway_sansio::{Flow, Random, Time, TimerId, TimerWheel};
use ringway_sip::Message;
use siphasher::sip::SipHasher13;
use slab::Slab;
pub use sources::Sources;
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

/// The limits of a notifier.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Minimum seconds of a subscription; a shorter one is answered with 423.
    pub min_expires: u32,
    /// Maximum seconds of a subscription, whatever is asked for.
    pub max_expires: u32,
    /// Maximum number of subscriptions of one worker. One more ends one of the subscriber that has the most, or is answered
    /// with 503 if that is the same subscriber.
    pub max_subscriptions: usize,
    /// Maximum number of subscriptions of one subscriber, of one worker; one more is answered with 403.
    pub max_per_subscriber: usize,
    /// Maximum number of subscriptions of one subscriber to one user, of one worker; one more is answered with 403.
    pub max_per_user: usize,
}

/// Maximum number of subscriptions of all workers of a router of a mesh: each may be to a user who is followed at other
/// routers.
pub const MAX_WATCHED: usize = 16_384;

impl Limits {
    /// Returns the limits of each of so many workers of a router of a mesh.
    pub fn of_router(workers: u8) -> Limits {
        let limits = Limits::default();
        let share = MAX_WATCHED / usize::from(workers.max(1));
        Limits { max_subscriptions: limits.max_subscriptions.min(share), ..limits }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            min_expires: 60,
            max_expires: 7200,
            max_subscriptions: 10_000,
            max_per_subscriber: 400,
            max_per_user: 20,
        }
    }
}

/// A SUBSCRIBE that is authorised.
pub struct SubscribeRequest<'a> {
    /// The flow it came on.
    pub flow: &'a Flow,
    /// The message, which must have passed [`Message::check`].
    pub msg: &'a Message<'a>,
    /// The event package; see [`Package::of_event`].
    pub package: Package,
    /// The address-of-record whose state is asked for: within a dialog that of [`Notifier::dialog_aor`].
    pub aor: &'a [u8],
    /// The address-of-record that the subscriber has asked for; it differs if that is a number of the user.
    pub entity: &'a [u8],
    /// Who subscribes: the user who has proved it, or else the source.
    pub subscriber: &'a [u8],
    /// Whether the subscriber may register at the address-of-record. Only then are temporary GRUUs included (RFC 5628
    /// section 5).
    pub may_register: bool,
    /// The URI of this server within the dialog.
    pub contact: &'a [u8],
    /// Whether the subscriber's Contact leads to this server, as its GRUU does.
    pub leads_here: bool,
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

#[derive(Clone, Debug)]
enum Deadline {
    /// The expiry of a subscription.
    Expiry(usize),
    /// The end of the minimum interval between notifications.
    Interval(usize),
    /// The expiry of the first contact of an address-of-record.
    Contact(Arc<[u8]>),
    /// The time at which the state of a user changes by itself.
    State(Arc<[u8]>),
}

/// A user whose state is watched.
struct StateWatch {
    aor: Arc<[u8]>,
    subscriptions: Vec<usize>,
    timer: TimerId,
}

/// The notifier of one worker.
pub struct Notifier {
    worker: u8,
    limits: Limits,
    gruus: Gruus,
    /// Keys the ids in documents, which must reveal nothing.
    ids: SipHasher13,
    subscriptions: Slab<Subscription>,
    /// Subscriptions by local tag, which is random.
    dialogs: HashMap<Vec<u8>, usize, Keyed>,
    /// The number of subscriptions of each subscriber.
    subscribers: HashMap<Box<[u8]>, usize, Keyed>,
    /// Addresses-of-record whose registrations are watched.
    watches: HashMap<Arc<[u8]>, Watch, Keyed>,
    /// Addresses-of-record whose states are watched.
    state_watches: HashMap<Arc<[u8]>, StateWatch, Keyed>,
    wheel: TimerWheel<Deadline>,
    ready: VecDeque<usize>,
    /// The number of the last NOTIFY.
    serial: u32,
    body: Vec<u8>,
}

impl Notifier {
    /// Returns a notifier without subscriptions for `worker`. `secret` keys the ids in documents; the documents show `gruus`.
    pub fn new(limits: Limits, secret: &Secret, gruus: Gruus, worker: u8, now: Time) -> Self {
        let ids = SipHasher13::new_with_key(&secret.key(Purpose::RegistrationIds));
        let tables = Keyed::new(&secret.key(Purpose::NotifierTables));
        Notifier {
            worker,
            limits,
            gruus,
            ids,
            subscriptions: Slab::new(),
            dialogs: HashMap::with_hasher(tables.clone()),
            subscribers: HashMap::with_hasher(tables.clone()),
            watches: HashMap::with_hasher(tables.clone()),
            state_watches: HashMap::with_hasher(tables),
            wheel: TimerWheel::new(now),
            ready: VecDeque::new(),
            serial: 0,
            body: Vec::new(),
        }
    }

    /// Replaces how GRUUs are made.
    pub fn set_gruus(&mut self, gruus: Gruus) {
        self.gruus = gruus;
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
    pub fn changed(&mut self, now: Time, aor: &[u8], why: Change, sources: Sources<'_>) {
        self.note_state(now, aor);
        self.update(now, aor, Some(why), sources);
    }

    /// Reports that the state of `aor` may have changed, or what other servers report of it.
    pub fn state_changed(&mut self, now: Time, aor: &[u8], sources: Sources<'_>) {
        self.note_state(now, aor);
        if sources.states.shares_contacts() {
            self.update(now, aor, None, sources);
        }
    }

    /// Has the subscriptions to registrations be notified of changes, which have this reason if it is known.
    fn update(&mut self, now: Time, aor: &[u8], why: Option<Change>, sources: Sources<'_>) {
        let Some(watch) = self.watches.get_mut(aor) else { return };
        if watch.update(now, why, sources, &self.ids) {
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

    fn note_state(&mut self, now: Time, aor: &[u8]) {
        let Some(watch) = self.state_watches.get(aor) else { return };
        for index in watch.subscriptions.clone() {
            self.subscriptions[index].note_change(None);
            self.schedule(now, index);
        }
    }

    /// Appends the next NOTIFY that is due to `buf`; returns `None` if none is.
    pub fn poll_notify(
        &mut self,
        now: Time,
        sources: Sources<'_>,
        buf: &mut Vec<u8>,
    ) -> Option<Notify> {
        while let Some(index) = self.ready.pop_front() {
            let Some(subscription) = self.subscriptions.get_mut(index) else { continue };
            let Some(full) = subscription.dequeue() else { continue };
            self.body.clear();
            let is_due = match subscription.package {
                Package::Reg => self.write_reginfo(now, index, full),
                Package::Dialog | Package::Presence => self.write_state(now, index, full, sources),
            };
            if !is_due {
                // The change has been reverted meanwhile.
                continue;
            }
            self.serial = self.serial.wrapping_add(1);
            let subscription = &mut self.subscriptions[index];
            let notify = subscription.write_notify(now, index, self.serial, &self.body, buf);
            self.drop_reported(index);
            return Some(notify);
        }
        None
    }

    /// Writes the document about registrations that is due for a subscription. Returns whether it is to be sent.
    fn write_reginfo(&mut self, now: Time, index: usize, full: bool) -> bool {
        let subscription = &mut self.subscriptions[index];
        let Some(watch) = self.watches.get(&subscription.aor) else { return false };
        let document = subscription.document(now, watch, full, &self.gruus);
        let has_contacts = document.write(&mut self.body);
        subscription.note_document(watch.serial, has_contacts)
    }

    /// Writes the document about a user's state that is due for a subscription. Returns whether it is to be sent.
    fn write_state(&mut self, now: Time, index: usize, full: bool, sources: Sources<'_>) -> bool {
        let subscription = &mut self.subscriptions[index];
        let (mut state, next) = sources.state(now, &subscription.aor);
        match subscription.package {
            Package::Dialog => {
                let version = subscription.version;
                dialog_info::write(&mut self.body, &subscription.entity, version, &state);
            }
            _ => {
                pidf::write(&mut self.body, &subscription.entity, &state);
                pidf::reduce(&mut state);
            }
        }
        if let Some(watch) = self.state_watches.get_mut(&subscription.aor) {
            self.wheel.cancel(watch.timer);
            let deadline = || Deadline::State(watch.aor.clone());
            watch.timer = next.map_or(TimerId::NONE, |at| self.wheel.set(at, deadline()));
        }
        subscription.note_state(full, state)
    }

    /// Drops the ended contacts that have been reported to every subscriber.
    fn drop_reported(&mut self, index: usize) {
        let subscription = &self.subscriptions[index];
        let Some(watch) = self.watches.get_mut(&subscription.aor) else { return };
        let seen = watch.subscriptions.iter().filter_map(|&i| self.subscriptions.get(i));
        let seen = seen.map(Subscription::seen).min();
        watch.drop_reported(seen.unwrap_or(u64::MAX));
    }

    /// Processes the final status of a NOTIFY: 408 without a response, 503 if it could not be sent (RFC 3261 section
    /// 8.1.3.1).
    pub fn handle_notify_response(
        &mut self,
        now: Time,
        id: NotifyId,
        status: u16,
        sources: Sources<'_>,
    ) {
        let index = id.index as usize;
        let Some(subscription) = self.subscriptions.get_mut(index) else { return };
        match subscription.note_answer(id.serial, status) {
            NotifyOutcome::Nothing => {}
            NotifyOutcome::Last => self.remove(index, sources),
            NotifyOutcome::Next => self.schedule(now, index),
        }
    }

    /// Returns the time at which [`Notifier::handle_timeout`] must be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.wheel.next()
    }

    /// Processes everything that is due. Afterwards [`Notifier::poll_notify`] may return a NOTIFY.
    pub fn handle_timeout(&mut self, now: Time, sources: Sources<'_>) {
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
                    self.changed(now, &aor, Change::Expired, sources);
                }
                Deadline::State(aor) => {
                    if let Some(watch) = self.state_watches.get_mut(&aor) {
                        watch.timer = TimerId::NONE;
                    }
                    self.note_state(now, &aor);
                }
            }
        }
    }

    /// Queues a subscription with a due notification, now or at the time it is allowed.
    fn schedule(&mut self, now: Time, index: usize) {
        let wheel = &mut self.wheel;
        let timer = |at| wheel.set(at, Deadline::Interval(index));
        if self.subscriptions[index].schedule(now, timer) {
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

    fn remove(&mut self, index: usize, sources: Sources<'_>) {
        let subscription = self.subscriptions.remove(index);
        for timer in subscription.timers() {
            self.wheel.cancel(timer);
        }
        self.dialogs.remove(&subscription.dialog.local_tag);
        if let Some(count) = self.subscribers.get_mut(&subscription.subscriber) {
            *count -= 1;
            if *count == 0 {
                self.subscribers.remove(&subscription.subscriber);
            }
        }
        self.stop_watching(index, &subscription.aor, sources);
        if self.subscriptions.is_empty() {
            // The memory of many subscriptions is released once they have ended.
            self.subscriptions = Slab::new();
            self.dialogs.shrink_to_fit();
            self.subscribers.shrink_to_fit();
            self.watches.shrink_to_fit();
            self.state_watches.shrink_to_fit();
            self.ready = VecDeque::new();
        }
    }

    /// Removes a subscription from the watch of its address-of-record, which ends with the last one.
    fn stop_watching(&mut self, index: usize, aor: &[u8], sources: Sources<'_>) {
        if let Some(watch) = self.watches.get_mut(aor) {
            watch.subscriptions.retain(|i| *i != index);
            if watch.subscriptions.is_empty() {
                self.wheel.cancel(watch.timer);
                self.watches.remove(aor);
            }
        }
        if let Some(watch) = self.state_watches.get_mut(aor) {
            watch.subscriptions.retain(|i| *i != index);
            if watch.subscriptions.is_empty() {
                self.wheel.cancel(watch.timer);
                self.state_watches.remove(aor);
            }
        }
        let (of_reg, of_state) =
            (self.watches.contains_key(aor), self.state_watches.contains_key(aor));
        if !(of_state || of_reg && sources.states.shares_contacts()) {
            sources.states.unwatch(aor, self.worker);
        }
        if !of_reg && !of_state {
            sources.store.unwatch(aor, self.worker);
        }
    }

    /// Processes a SUBSCRIBE. Its sender must be authorised to see what it asks for.
    ///
    /// Appends to `headers` the header fields of the response, complete with CRLF. After a 2xx,
    /// [`Notifier::poll_notify`] returns a NOTIFY, which must follow the response.
    pub fn subscribe(
        &mut self,
        now: Time,
        request: &SubscribeRequest<'_>,
        sources: Sources<'_>,
        random: &mut dyn Random,
        headers: &mut Vec<u8>,
    ) -> SubscribeOutcome {
        match self.accept(now, request, sources, random, headers) {
            Ok(to_tag) => SubscribeOutcome { status: 200, reason: "OK", to_tag },
            Err((status, reason)) => SubscribeOutcome { status, reason, to_tag: None },
        }
    }
}

#[cfg(test)]
mod tests;
