//! What is remembered of attempts (RFC 9623 section 9.2): which protocol worked or failed for a peer behind a network.

use crate::protocol::Protocol;
use core::time::Duration;
use ringway_sansio::Time;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Entries that are kept. The one that was written first is evicted.
pub const MAX_ENTRIES: usize = 4_096;
/// The time for which a success is remembered.
pub const WORKED_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// The time for which a failure is remembered: a network changes (RFC 8305 section 5 does not cache it longer).
pub const FAILED_FOR: Duration = Duration::from_secs(10 * 60);

/// What an attempt is remembered by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The network behind the interface; empty if unknown.
    pub network: String,
    /// The peer's name or address, and its port.
    pub peer: String,
    /// The protocol.
    pub protocol: Protocol,
}

/// The outcome of the last attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A connection stood.
    Worked {
        /// The time of a round trip.
        rtt: Duration,
        /// The peer's address.
        address: IpAddr,
    },
    /// No connection stood.
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Time,
    outcome: Outcome,
}

impl Entry {
    fn expires(&self) -> Time {
        self.at
            + match self.outcome {
                Outcome::Worked { .. } => WORKED_FOR,
                Outcome::Failed => FAILED_FOR,
            }
    }
}

/// Reads a line of [`Memory::to_text`].
fn read_line(line: &str) -> Option<(Key, Entry)> {
    let mut fields = line.split('\t');
    let at = Time::from_nanos(fields.next()?.parse().ok()?);
    let protocol = fields.next()?.parse().ok()?;
    let (peer, network) = (fields.next()?.to_string(), fields.next()?.to_string());
    let outcome = match fields.next() {
        None => Outcome::Failed,
        Some(rtt) => Outcome::Worked {
            rtt: Duration::from_nanos(rtt.parse().ok()?),
            address: fields.next()?.parse().ok()?,
        },
    };
    fields.next().is_none().then_some((Key { network, peer, protocol }, Entry { at, outcome }))
}

/// A bounded table of outcomes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    entries: BTreeMap<Key, Entry>,
    evicted: u64,
}

impl Memory {
    /// Returns an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers the outcome of an attempt, instead of that of an earlier one.
    pub fn record(&mut self, now: Time, key: Key, outcome: Outcome) {
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&key) {
            self.expire(now);
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone())
                && self.entries.len() >= MAX_ENTRIES
            {
                self.entries.remove(&oldest);
                self.evicted += 1;
            }
        }
        self.entries.insert(key, Entry { at: now, outcome });
    }

    /// Returns the outcome of the last attempt, unless it has expired.
    pub fn recall(&self, now: Time, key: &Key) -> Option<Outcome> {
        let entry = self.entries.get(key).filter(|entry| now < entry.expires())?;
        Some(entry.outcome)
    }

    /// Removes what has expired.
    pub fn expire(&mut self, now: Time) {
        self.entries.retain(|_, entry| now < entry.expires());
    }

    /// Removes everything about a network, which has changed.
    pub fn clear_network(&mut self, network: &str) {
        self.entries.retain(|key, _| key.network != network);
    }

    /// Returns all entries as text, a line each, for a file.
    ///
    /// A line has the time of the outcome in nanoseconds, the protocol, the peer and the network, separated by tabs, and
    /// of a success the time of a round trip in nanoseconds and the address.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (Key { network, peer, protocol }, Entry { at, outcome }) in &self.entries {
            let has_separator = |text: &str| text.contains(['\t', '\n', '\r']);
            if has_separator(network) || has_separator(peer) {
                continue;
            }
            text.push_str(&format!("{}\t{protocol}\t{peer}\t{network}", at.as_nanos()));
            if let Outcome::Worked { rtt, address } = outcome {
                text.push_str(&format!("\t{}\t{address}", rtt.as_nanos()));
            }
            text.push('\n');
        }
        text
    }

    /// Adds the entries of a text that have not expired and are not of the future. Of an outcome that is known already the
    /// later one counts. Returns the number of lines that are no entries; they are ignored.
    pub fn add_text(&mut self, now: Time, text: &str) -> usize {
        let mut ignored = 0;
        for line in text.lines() {
            let Some((key, entry)) = read_line(line) else {
                ignored += 1;
                continue;
            };
            let is_later = self.entries.get(&key).is_none_or(|known| known.at < entry.at);
            if is_later && entry.at <= now && now < entry.expires() {
                self.record(entry.at, key, entry.outcome);
            }
        }
        ignored
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of entries that were evicted before they expired.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(peer: &str) -> Key {
        Key { network: "home".into(), peer: peer.into(), protocol: Protocol::Tcp }
    }

    fn worked() -> Outcome {
        let address = "192.0.2.1".parse().unwrap();
        Outcome::Worked { rtt: Duration::from_millis(20), address }
    }

    #[test]
    fn an_outcome_is_remembered_until_it_expires() {
        let mut memory = Memory::new();
        let now = Time::from_secs(1_000);
        memory.record(now, key("a:1"), worked());
        memory.record(now, key("b:1"), Outcome::Failed);
        assert_eq!(memory.recall(now + FAILED_FOR, &key("a:1")), Some(worked()));
        assert_eq!(memory.recall(now, &key("b:1")), Some(Outcome::Failed));
        assert_eq!(memory.recall(now + FAILED_FOR, &key("b:1")), None);
        assert_eq!(memory.recall(now + WORKED_FOR, &key("a:1")), None);
        memory.record(now, key("b:1"), worked());
        memory.expire(now + FAILED_FOR);
        assert_eq!(memory.len(), 2);
        memory.clear_network("home");
        assert!(memory.is_empty());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut memory = Memory::new();
        let now = Time::from_secs(1_000);
        memory.record(now, key("a:1"), worked());
        memory.record(now, key("b:1"), Outcome::Failed);
        let mut read = Memory::new();
        assert_eq!(read.add_text(now, &memory.to_text()), 0);
        assert_eq!(read.recall(now, &key("a:1")), Some(worked()));
        assert_eq!(read.recall(now, &key("b:1")), Some(Outcome::Failed));
        // What is not an entry, has expired or is of the future is not taken.
        let mut empty = Memory::new();
        assert_eq!(empty.add_text(now, "x\n1\ttcp\tp\tn\tz\n\n"), 3);
        assert_eq!(empty.add_text(Time::ZERO, &memory.to_text()), 0);
        assert_eq!(empty.add_text(now + WORKED_FOR, &memory.to_text()), 0);
        assert!(empty.is_empty());
    }

    #[test]
    fn the_oldest_entry_is_evicted() {
        let mut memory = Memory::new();
        for n in 0..=MAX_ENTRIES as u64 {
            memory.record(Time::from_millis(n), key(&n.to_string()), worked());
        }
        assert_eq!((memory.len(), memory.evicted()), (MAX_ENTRIES, 1));
        assert_eq!(memory.recall(Time::from_secs(5), &key("0")), None);
        assert!(memory.recall(Time::from_secs(5), &key("1")).is_some());
    }
}
