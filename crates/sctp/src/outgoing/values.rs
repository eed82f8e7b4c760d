//! Values of streams for schedulers (RFC 8260), and the priorities by which messages are evicted (RFC
//! 7496 section 4.2).

use super::{MESSAGE_COST, NONE, Outgoing};
use crate::settings::Settings;
use bytes::Bytes;

impl Outgoing {
    /// Sets the scheduler's value of a stream.
    pub(crate) fn set_value(&mut self, stream: u16, value: u16) {
        match self.values.binary_search_by_key(&stream, |entry| entry.0) {
            Ok(at) => self.values[at].1 = value,
            Err(at) => self.values.insert(at, (stream, value)),
        }
        self.scheduler.set_value(stream, value);
    }

    /// Hands the waiting messages to a new scheduler.
    pub(super) fn schedule_anew(&mut self, settings: &Settings) {
        self.scheduler = settings.scheduling.make();
        for &(stream, value) in &self.values {
            self.scheduler.set_value(stream, value);
        }
        // Keys grow with the order of arrival while nothing was acknowledged.
        for (_, message) in self.messages.iter().filter(|(_, message)| message.cut == 0) {
            self.scheduler.queued(message.stream, message.data.len());
        }
    }

    /// Makes room for a message of some priority by evicting messages of lower ones that were not
    /// begun. Their entries in the queues are skipped later. Returns `true` if there is room now.
    pub(super) fn evict_lower_priorities(
        &mut self,
        priority: u16,
        cost: usize,
        limit: usize,
    ) -> bool {
        // Evicted messages may have to be returned, and the returned ones have their own bound.
        if self.returned.bytes() > limit {
            return false;
        }
        let (mut bytes, mut count) = (self.buffer.bytes(), self.buffer.count(self.messages.len()));
        let mut lower = self.priorities.keys().rev().take_while(|(value, _)| *value > priority);
        let mut ways = 0;
        // First it is checked that there will be room, so that no message is evicted in vain.
        while bytes.max(count * MESSAGE_COST) + cost > limit && count > 0 {
            let Some((_, key)) = lower.next() else { return false };
            bytes -= self.messages[*key as usize].data.len();
            count -= 1;
            ways += 1;
        }
        for _ in 0..ways {
            let Some(((_, key), ())) = self.priorities.pop_last() else { return true };
            self.return_message(key);
            let message = &mut self.messages[key as usize];
            let len = message.data.len();
            message.data = Bytes::new();
            self.buffer.evict(len);
            self.partial.count(true);
        }
        true
    }

    /// Removes the first message of a stream from its queue unsent.
    pub(super) fn drop_head(&mut self, stream: u16) {
        let queue = &mut self.queues[usize::from(stream)];
        let message = self.messages.remove(queue.head as usize);
        queue.take_head(message.next);
        self.scheduler.removed(stream, message.next != NONE);
        self.buffer.entry_removed(message.is_emptied());
        self.buffer.drop_waiting(message.data.len() - message.cut as usize);
    }
}
