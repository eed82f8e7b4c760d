//! Events of a connection that wait to be read.

use crate::carrier::Event;
use crate::limits::EVENT_QUEUE;
use crate::waiters::Waiters;
use std::collections::VecDeque;
use std::task::{Context, Poll};

/// A bounded queue of events. Numbers of messages add up; of other events the oldest are dropped.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    waiters: Waiters,
}

impl Events {
    pub(crate) fn push(&mut self, event: Event) {
        match (self.queue.back_mut(), &event) {
            (Some(Event::Expired { messages }), Event::Expired { messages: more })
            | (Some(Event::Dropped { messages }), Event::Dropped { messages: more }) => {
                *messages = messages.saturating_add(*more);
            }
            _ => {
                if self.queue.len() >= EVENT_QUEUE {
                    self.queue.pop_front();
                }
                self.queue.push_back(event);
            }
        }
        self.waiters.wake();
    }

    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Event> {
        match self.queue.pop_front() {
            Some(event) => Poll::Ready(event),
            None => {
                self.waiters.add(cx);
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn events_are_bounded_and_numbers_add_up() {
        let mut events = Events::default();
        let cx = Context::from_waker(Waker::noop());
        assert!(events.poll(&cx).is_pending());
        events.push(Event::Expired { messages: 2 });
        events.push(Event::Expired { messages: 3 });
        assert_eq!(events.poll(&cx), Poll::Ready(Event::Expired { messages: 5 }));
        for n in 0..=EVENT_QUEUE {
            events.push(Event::SoftError(n.to_string()));
        }
        assert_eq!(events.poll(&cx), Poll::Ready(Event::SoftError("1".into())));
    }
}
