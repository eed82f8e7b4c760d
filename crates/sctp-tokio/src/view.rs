//! What the users of an association see of it between two calls: its events, its end, and the tasks that wait.

use super::limits::{EVENT_QUEUE, RETURNED_BYTES};
use super::message::Event;
use super::waiters::{Wait, Waiters, Wakes};
use ringway_sctp::Close;
use std::collections::VecDeque;
use std::task::Context;

/// The users' view of an association.
#[derive(Default)]
pub(super) struct View {
    up: bool,
    /// [`Event::Up`] is not read yet. Most associations have no other event, and many users never read it,
    /// so it needs no queue.
    unread_up: bool,
    closed: Option<Close>,
    /// The last handle was dropped.
    orphan: bool,
    events: VecDeque<Event>,
    missed: u32,
    /// Bytes of the messages in `events` that were returned.
    returned_bytes: usize,
    readers: Waiters,
    writers: Waiters,
    watchers: Waiters,
}

impl View {
    /// Returns whether the association was established.
    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// Returns the reason of the end, once there is one.
    pub(super) fn closed(&self) -> Option<&Close> {
        self.closed.as_ref()
    }

    /// Returns whether the last handle was dropped.
    pub(super) fn is_orphan(&self) -> bool {
        self.orphan
    }

    /// Notes that a listener accepted the association, which its user knows without an event.
    pub(super) fn accept(&mut self) {
        self.up = true;
    }

    /// Notes that the association is established.
    pub(super) fn set_up(&mut self, wakes: &mut Wakes) {
        if std::mem::replace(&mut self.up, true) {
            return;
        }
        self.unread_up = true;
        self.wake(Wait::Event, wakes);
        self.wake(Wait::Write, wakes);
    }

    /// Adds an event.
    pub(super) fn report(&mut self, event: Event, wakes: &mut Wakes) {
        self.push_event(event);
        self.wake(Wait::Event, wakes);
    }

    /// Notes the end of the association, and wakes all tasks that wait for it.
    pub(super) fn close(&mut self, why: Close, wakes: &mut Wakes) {
        self.push_event(Event::Closed(why.clone()));
        self.closed = Some(why);
        self.wake_all(wakes);
    }

    /// Notes that the last handle was dropped, and drops the events.
    pub(super) fn abandon(&mut self) {
        self.orphan = true;
        self.events = VecDeque::new();
        self.returned_bytes = 0;
    }

    fn push_event(&mut self, event: Event) {
        if self.orphan {
            return;
        }
        self.returned_bytes += returned_bytes(&event);
        self.events.push_back(event);
        if self.events.len() > EVENT_QUEUE {
            self.drop_event(0);
        }
        while self.returned_bytes > RETURNED_BYTES
            && let Some(index) = self.events.iter().position(|event| returned_bytes(event) > 0)
        {
            self.drop_event(index);
        }
    }

    fn drop_event(&mut self, index: usize) {
        if let Some(event) = self.events.remove(index) {
            self.returned_bytes -= returned_bytes(&event);
            self.missed += 1;
        }
    }

    /// Removes and returns the next event; first [`Event::Up`], then [`Event::Missed`].
    pub(super) fn take_event(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.unread_up) {
            return Some(Event::Up);
        }
        if self.missed > 0 {
            return Some(Event::Missed(std::mem::take(&mut self.missed)));
        }
        let event = self.events.pop_front();
        self.returned_bytes -= event.as_ref().map_or(0, returned_bytes);
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        event
    }

    /// Adds a task to those that wait.
    pub(super) fn add_waiter(&mut self, wait: Wait, cx: &Context<'_>) {
        self.waiters(wait).add(cx);
    }

    /// Removes a task from those that wait, and wakes it.
    pub(super) fn cancel_wait(&mut self, wait: Wait, waker: &std::task::Waker, wakes: &mut Wakes) {
        wakes.extend(self.waiters(wait).remove(waker));
    }

    /// Wakes the tasks that wait for a condition.
    pub(super) fn wake(&mut self, wait: Wait, wakes: &mut Wakes) {
        wakes.extend(self.waiters(wait).drain());
    }

    /// Wakes all tasks that wait.
    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) {
        for wait in [Wait::Read, Wait::Write, Wait::Event] {
            self.wake(wait, wakes);
        }
    }

    fn waiters(&mut self, wait: Wait) -> &mut Waiters {
        match wait {
            Wait::Read => &mut self.readers,
            Wait::Write => &mut self.writers,
            Wait::Event => &mut self.watchers,
        }
    }
}

/// Returns the bytes that an event holds of a returned message.
fn returned_bytes(event: &Event) -> usize {
    if let Event::Returned(message) = event { message.data.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_events_are_dropped_and_counted() {
        let (mut view, mut wakes) = (View::default(), Wakes::new());
        view.set_up(&mut wakes);
        for _ in 0..EVENT_QUEUE + 3 {
            view.report(Event::Restarted, &mut wakes);
        }
        view.close(Close::Finished, &mut wakes);
        assert_eq!(view.take_event(), Some(Event::Up));
        assert_eq!(view.take_event(), Some(Event::Missed(4)));
        let rest: Vec<_> = std::iter::from_fn(|| view.take_event()).collect();
        assert_eq!(rest.len(), EVENT_QUEUE);
        assert_eq!(rest.last(), Some(&Event::Closed(Close::Finished)));
    }

    #[test]
    fn nobody_reads_the_events_of_an_orphan() {
        let (mut view, mut wakes) = (View::default(), Wakes::new());
        view.report(Event::PeerShutdown, &mut wakes);
        view.abandon();
        view.close(Close::Finished, &mut wakes);
        assert_eq!(view.take_event(), None);
        assert_eq!(view.closed(), Some(&Close::Finished));
    }
}
