//! A subscribed address-of-record, and the events of its contacts: the state machines of RFC 3680 section 4.7.1,
//! derived from the location service and, where servers report contacts to each other, from the
//! [states of users](crate::states).

use super::sources::Sources;
use crate::location::{BindingView, Bindings, Change, RecordEdit};
use ringway_sansio::{Duration, Time, TimerId};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::sync::Arc;

/// The maximum number of ended contacts not yet reported to a subscriber, for one address-of-record. Beyond it, that
/// subscriber is sent the full state instead.
pub const MAX_ENDED: usize = 64;

/// Time by which the expiry of a contact at another server may differ from one report to the next: each is counted from when it
/// was received.
const TOLERANCE: Duration = Duration::from_secs(2);

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
    /// Whether it is at another server.
    elsewhere: bool,
}

/// A contact that is there.
struct Found {
    id: u64,
    record: Vec<u8>,
    expires: Time,
    elsewhere: bool,
}

impl Found {
    fn new(ids: &SipHasher13, binding: &BindingView<'_>, elsewhere: bool) -> Found {
        let mut record = Vec::new();
        let mut copy = RecordEdit::new(&[], Time::ZERO, &mut record);
        // What came from one record fits into another.
        let _ = copy.put(binding);
        copy.commit();
        copy.finish();
        Found { id: identity(ids, binding), record, expires: binding.expires, elsewhere }
    }
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
    pub(super) fn new(aor: &[u8], now: Time, sources: Sources<'_>, ids: &SipHasher13) -> Self {
        let mut watch = Watch {
            aor: aor.into(),
            id: ids.hash(aor),
            contacts: Vec::new(),
            serial: 0,
            subscriptions: Vec::new(),
            timer: TimerId::NONE,
        };
        watch.update(now, Some(Change::Updated), sources, ids);
        // The times of these registrations are not known.
        watch.contacts.iter_mut().for_each(|c| c.since = None);
        watch
    }

    /// Reads the bindings and determines the event of each contact. Returns whether there is any to report. `why` is the
    /// reason for the change; `None` if it is one at another server, and contacts of this one that are gone wait for theirs.
    pub(super) fn update(
        &mut self,
        now: Time,
        why: Option<Change>,
        sources: Sources<'_>,
        ids: &SipHasher13,
    ) -> bool {
        let serial = self.serial + 1;
        let mut before = std::mem::take(&mut self.contacts);
        let mut any = false;
        let (present, ended) = self.read(now, sources, ids);
        for found in present {
            let at = before.iter().position(|c| c.id == found.id);
            let contact = follow(at.map(|at| before.swap_remove(at)), found, serial, now);
            any |= contact.changed == serial;
            self.contacts.push(contact);
        }
        // Contacts that were not found have ended. They are sorted, for the same bytes from the same history.
        before.sort_by_key(|c| (c.changed, c.id));
        for mut contact in before {
            if contact.event.is_active() {
                let is_elsewhere = contact.elsewhere;
                // The clock of another server may be ahead of its report.
                let until = now + if is_elsewhere { TOLERANCE } else { Duration::ZERO };
                let expired = contact.binding().is_none_or(|b| b.expires <= until);
                contact.event = match if is_elsewhere { Some(ended) } else { why } {
                    _ if expired => Event::Expired,
                    None => {
                        self.contacts.push(contact);
                        continue;
                    }
                    // RFC 3680 section 4.7.1: the phone is to register again.
                    Some(Change::FlowClosed | Change::ServerGone) => Event::Deactivated,
                    Some(Change::Expired) if is_elsewhere => Event::Expired,
                    Some(Change::Updated | Change::Expired) => Event::Unregistered,
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

    /// Returns the contacts that are there, here and at other servers, and why contacts of others that are gone are gone. One
    /// that has moved is at several for a while: the one counts that lasts longest.
    fn read(&self, now: Time, sources: Sources<'_>, ids: &SipHasher13) -> (Vec<Found>, Change) {
        let mut present: Vec<Found> = Vec::new();
        sources.store.lookup(&self.aor, now, &mut |binding| {
            present.push(Found::new(ids, binding, false));
        });
        let ended = sources.states.contacts_elsewhere(now, &self.aor, &mut |contact| {
            let Some(binding) = contact.binding().filter(|binding| binding.expires > now) else {
                return;
            };
            let found = Found::new(ids, &binding, true);
            match present.iter_mut().find(|other| other.id == found.id) {
                Some(other) if other.expires < found.expires => *other = found,
                Some(_) => {}
                None => present.push(found),
            }
        });
        (present, ended)
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

/// Returns a contact after it was found.
fn follow(old: Option<Contact>, found: Found, serial: u64, now: Time) -> Contact {
    let Found { id, record, elsewhere, .. } = found;
    let since = |event| match event {
        // When another server was asked for it says nothing of when it was registered there.
        Event::Registered if !elsewhere => Some(now),
        _ => None,
    };
    let Some(old) = old.filter(|old| old.event.is_active()) else {
        let event = Event::Registered;
        return Contact { id, record, event, changed: serial, since: since(event), elsewhere };
    };
    let tolerance = match elsewhere || old.elsewhere {
        true => TOLERANCE,
        false => Duration::ZERO,
    };
    let event = match (old.binding(), Bindings::new(&record, Time::ZERO).next()) {
        (Some(before), Some(after)) => difference(&before, &after, tolerance),
        _ => Some(Event::Registered),
    };
    match event {
        None => Contact { record, elsewhere, ..old },
        Some(event) => {
            let since = if event == Event::Registered { since(event) } else { old.since };
            Contact { id, record, event, changed: serial, since, elsewhere }
        }
    }
}

/// Returns the event of a contact that existed before and still does; `None` if there is nothing to report. Expiries that
/// differ by no more than `tolerance` are one; with any, the contact is or was at another server, of which flow and path
/// are not known.
fn difference(old: &BindingView<'_>, new: &BindingView<'_>, tolerance: Duration) -> Option<Event> {
    let by_register = (old.call_id, old.cseq) != (new.call_id, new.cseq);
    if by_register {
        return Some(Event::Refreshed);
    }
    if new.expires + tolerance < old.expires {
        return Some(Event::Shortened);
    }
    let mut same = BindingView { flow: old.flow, nat: old.nat, ..*new };
    if tolerance > Duration::ZERO {
        same.path = old.path;
        if new.expires <= old.expires + tolerance {
            same.expires = old.expires;
        }
    }
    (same != *old).then_some(Event::Refreshed)
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
