//! A subscribed address-of-record, and the events of its contacts: the state machines of RFC 3680 section 4.7.1,
//! derived from the location service.

use crate::location::{BindingView, Bindings, Change, LocationStore, RecordEdit};
use ringway_sansio::{Time, TimerId};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::sync::Arc;

/// The maximum number of ended contacts not yet reported to a subscriber, for one address-of-record. Beyond it, that
/// subscriber is sent the full state instead.
pub const MAX_ENDED: usize = 64;

/// The event that brought a contact into its state (RFC 3680 section 4.7.1). `created`, `probation` and `rejected` are
/// acts of an administrator that do not exist here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Registered,
    Refreshed,
    Shortened,
    Expired,
    Deactivated,
    Unregistered,
}

impl Event {
    pub(super) fn as_bytes(self) -> &'static [u8] {
        match self {
            Event::Registered => b"registered",
            Event::Refreshed => b"refreshed",
            Event::Shortened => b"shortened",
            Event::Expired => b"expired",
            Event::Deactivated => b"deactivated",
            Event::Unregistered => b"unregistered",
        }
    }

    pub(super) fn is_active(self) -> bool {
        matches!(self, Event::Registered | Event::Refreshed | Event::Shortened)
    }
}

/// A present or an ended contact.
pub(super) struct Contact {
    pub(super) id: u64,
    /// A record with this binding alone.
    record: Vec<u8>,
    pub(super) event: Event,
    /// The serial number of its last change.
    pub(super) changed: u64,
    /// The time of its registration, if known.
    pub(super) since: Option<Time>,
}

impl Contact {
    pub(super) fn binding(&self) -> Option<BindingView<'_>> {
        Bindings::new(&self.record, Time::ZERO).next()
    }
}

pub(super) struct Watch {
    pub(super) aor: Arc<[u8]>,
    /// Identifies the registration in documents.
    pub(super) id: u64,
    /// Contacts in the order of the location service, ended ones last.
    pub(super) contacts: Vec<Contact>,
    /// The serial number of the last change.
    pub(super) serial: u64,
    pub(super) subscriptions: Vec<usize>,
    /// The timer for the first contact that expires.
    pub(super) timer: TimerId,
}

impl Watch {
    pub(super) fn new(aor: &[u8], now: Time, store: &dyn LocationStore, ids: &SipHasher13) -> Self {
        let mut watch = Watch {
            aor: aor.into(),
            id: ids.hash(aor),
            contacts: Vec::new(),
            serial: 0,
            subscriptions: Vec::new(),
            timer: TimerId::NONE,
        };
        watch.update(now, Change::Updated, store, ids);
        // The times of these registrations are not known.
        watch.contacts.iter_mut().for_each(|c| c.since = None);
        watch
    }

    /// Reads the bindings and determines the event of each contact. Returns whether there is any to report.
    pub(super) fn update(
        &mut self,
        now: Time,
        why: Change,
        store: &dyn LocationStore,
        ids: &SipHasher13,
    ) -> bool {
        let serial = self.serial + 1;
        let mut before = std::mem::take(&mut self.contacts);
        let mut any = false;
        store.lookup(&self.aor, now, &mut |binding| {
            let id = identity(ids, binding);
            let old = before.iter().position(|c| c.id == id).map(|at| before.swap_remove(at));
            let contact = follow(old, id, binding, serial, now);
            any |= contact.changed == serial;
            self.contacts.push(contact);
        });
        // Contacts that were not found have ended. They are sorted, for the same bytes from the same history.
        before.sort_by_key(|c| (c.changed, c.id));
        for mut contact in before {
            if contact.event.is_active() {
                let expired = contact.binding().is_none_or(|b| b.expires <= now);
                contact.event = match why {
                    _ if expired => Event::Expired,
                    Change::FlowClosed => Event::Deactivated,
                    Change::Updated | Change::Expired => Event::Unregistered,
                };
                contact.changed = serial;
                any = true;
            }
            self.contacts.push(contact);
        }
        if any {
            self.serial = serial;
        }
        any
    }

    /// Returns the time at which the first contact expires.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        let active = self.contacts.iter().filter(|c| c.event.is_active());
        active.filter_map(Contact::binding).map(|b| b.expires).min()
    }

    /// Drops ended contacts that have been reported to every subscriber: all have seen the change of this serial
    /// number.
    pub(super) fn drop_reported(&mut self, seen: u64) {
        self.contacts.retain(|c| c.event.is_active() || c.changed > seen);
    }

    /// Drops the oldest ended contacts beyond [`MAX_ENDED`]. Returns the serial number up to which any was dropped: a
    /// subscriber that has seen less must be sent the full state.
    pub(super) fn bound(&mut self) -> Option<u64> {
        let mut ended: Vec<u64> =
            self.contacts.iter().filter(|c| !c.event.is_active()).map(|c| c.changed).collect();
        let excess = ended.len().checked_sub(MAX_ENDED).filter(|n| *n > 0)?;
        ended.sort_unstable();
        let limit = ended[excess - 1];
        self.contacts.retain(|c| c.event.is_active() || c.changed > limit);
        Some(limit)
    }
}

/// Returns a contact after the location service has returned it as `binding`.
fn follow(
    old: Option<Contact>,
    id: u64,
    binding: &BindingView<'_>,
    serial: u64,
    now: Time,
) -> Contact {
    let mut record = Vec::new();
    let mut copy = RecordEdit::new(&[], Time::ZERO, &mut record);
    // What came from one record fits into another.
    let _ = copy.put(binding);
    copy.commit();
    copy.finish();
    let event = match &old {
        Some(old) if old.event.is_active() => {
            old.binding().map_or(Some(Event::Registered), |old| difference(&old, binding))
        }
        _ => Some(Event::Registered),
    };
    match (old, event) {
        (Some(old), None) => Contact { record, ..old },
        (Some(old), Some(event)) => {
            let since = if event == Event::Registered { Some(now) } else { old.since };
            Contact { id, record, event, changed: serial, since }
        }
        (None, _) => {
            Contact { id, record, event: Event::Registered, changed: serial, since: Some(now) }
        }
    }
}

/// Returns the event of a contact that existed before and still does; `None` if there is nothing to report.
fn difference(old: &BindingView<'_>, new: &BindingView<'_>) -> Option<Event> {
    let by_register = (old.call_id, old.cseq) != (new.call_id, new.cseq);
    if by_register {
        return Some(Event::Refreshed);
    }
    if new.expires < old.expires {
        return Some(Event::Shortened);
    }
    let same = BindingView { flow: old.flow, nat: old.nat, ..*new } == *old;
    (!same).then_some(Event::Refreshed)
}

/// Returns the identity of a binding (RFC 3680 section 5.1): its URI, or its instance and reg-id.
fn identity(ids: &SipHasher13, binding: &BindingView<'_>) -> u64 {
    let mut hasher = *ids;
    if binding.outbound {
        hasher.write(&binding.instance.to_ascii_lowercase());
        hasher.write_u32(binding.reg_id);
    } else {
        hasher.write(binding.contact);
    }
    hasher.write_u8(u8::from(binding.outbound));
    hasher.finish()
}
