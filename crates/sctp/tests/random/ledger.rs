//! The messages that one host has sent to the other, and the invariants of their arrival.
//!
//! Messages have their number as payload protocol identifier, so each is known when it arrives.

use crate::support::pattern;
use ringway_sctp::{Received, SendOptions, UndeliveredMessage};
use std::collections::{BTreeMap, BTreeSet};

/// A message that was sent.
struct Given {
    stream: u16,
    unordered: bool,
    size: usize,
}

/// All messages of one direction.
pub struct Ledger {
    /// Whose messages these are; bytes of the two hosts differ.
    host: usize,
    given: Vec<Given>,
    arrived: BTreeSet<usize>,
    /// The last of each stream that came in order.
    last: BTreeMap<u16, usize>,
    /// What has come of messages in parts, by stream, whether unordered, and number in the stream.
    parts: BTreeMap<(u16, bool, u16), Vec<u8>>,
    returned: BTreeSet<usize>,
    /// Those that came back as never sent.
    unsent: BTreeSet<usize>,
    /// Number of messages reported as lost.
    failed: u64,
}

impl Ledger {
    pub fn new(host: usize) -> Ledger {
        Ledger {
            host,
            given: Vec::new(),
            arrived: BTreeSet::new(),
            last: BTreeMap::new(),
            parts: BTreeMap::new(),
            returned: BTreeSet::new(),
            unsent: BTreeSet::new(),
            failed: 0,
        }
    }

    /// The number and the bytes of the next message.
    pub fn next(&self, size: usize) -> (u32, Vec<u8>) {
        (self.given.len() as u32, self.bytes(self.given.len(), size))
    }

    fn bytes(&self, number: usize, size: usize) -> Vec<u8> {
        pattern(2 * number + self.host, size)
    }

    /// The host has taken it.
    pub fn give(&mut self, options: &SendOptions, size: usize) {
        self.given.push(Given { stream: options.stream, unordered: options.unordered, size });
    }

    /// Notes that messages were reported as lost.
    pub fn fail(&mut self, messages: u32) {
        self.failed += u64::from(messages);
    }

    /// A message came back to its user.
    pub fn take_back(&mut self, message: &UndeliveredMessage) {
        let number = message.ppid as usize;
        let given = &self.given[number];
        assert_eq!((message.stream, message.unordered), (given.stream, given.unordered));
        assert!(message.data == self.bytes(number, given.size), "{number} comes back changed");
        assert!(self.returned.insert(number), "{number} comes back twice");
        if !message.sent {
            assert!(
                !self.arrived.contains(&number),
                "{number} comes back as unsent but has arrived"
            );
            self.unsent.insert(number);
        }
    }

    /// The other host's user has read this.
    pub fn receive(&mut self, received: &Received, bytes: Vec<u8>) {
        assert_eq!(bytes.len(), received.len);
        let key = (received.stream, received.unordered, received.ssn.raw());
        if received.begin && received.end {
            return self.arrive(received, &bytes);
        }
        if received.begin {
            assert!(
                self.parts.insert(key, bytes).is_none(),
                "a message begins twice: {received:?}"
            );
            return;
        }
        let part = self.parts.get_mut(&key);
        let part = part.unwrap_or_else(|| panic!("a part of nothing: {received:?}"));
        part.extend_from_slice(&bytes);
        if received.cut {
            self.parts.remove(&key);
        } else if received.end {
            let whole = self.parts.remove(&key).unwrap();
            self.arrive(received, &whole);
        }
    }

    fn arrive(&mut self, received: &Received, bytes: &[u8]) {
        let number = received.ppid as usize;
        let given = &self.given[number];
        let expected = (given.stream, given.unordered, given.size);
        assert_eq!((received.stream, received.unordered, bytes.len()), expected, "{number}");
        assert!(bytes == self.bytes(number, given.size), "{number} arrives changed");
        assert!(self.arrived.insert(number), "{number} arrives twice");
        assert!(!self.unsent.contains(&number), "{number} came back as unsent and arrives");
        if !received.unordered {
            let before = self.last.insert(received.stream, number);
            assert!(before.is_none_or(|b| b < number), "{number} arrives after {before:?}");
        }
    }

    /// The reader is gone with what it had of messages in parts.
    pub fn forget_reader(&mut self) {
        self.parts.clear();
    }

    /// Checks that each message has arrived or was reported as lost.
    pub fn check_whole(&self) {
        let lost = self.given.len() - self.arrived.len();
        assert!(lost as u64 <= self.failed, "{lost} are lost and {} told", self.failed);
    }
}
