//! Connections that were closed here and whose peer has not read everything: the time that each has, and the share of a
//! source.
//!
//! The program is done with such a connection, and only its peer decides how long it stays. One that reads a little now and
//! then is served for as long as nobody else needs the room.

use crate::alarm::Alarm;
use crate::limits::LINGER;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// The part of the room that one source may use.
const PART: usize = 4;
/// Bits of an IPv6 address that do not distinguish sources.
const HOST_BITS: u32 = 64;

/// Numbers that change as the peer reads.
pub(crate) type Progress = (u64, u64);

/// The closed connections of a system that have been read for longer than [`LINGER`].
#[derive(Debug)]
pub(crate) struct Draining {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    entries: BTreeMap<u64, Entry>,
    evicted: u64,
}

#[derive(Debug)]
struct Entry {
    source: IpAddr,
    /// When the peer has read last.
    read: Instant,
    /// The task that notices that the entry has gone.
    waker: Waker,
}

impl Draining {
    /// Returns room for so many connections.
    pub(crate) fn new(max: usize) -> Arc<Draining> {
        Arc::new(Draining { max, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of connections that had to make room.
    pub(crate) fn evicted(&self) -> u64 {
        self.lock().evicted
    }

    /// Adds a connection. It may be the one that has to make room.
    fn enter(&self, source: IpAddr, read: Instant, waker: &Waker) -> u64 {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.entries.insert(id, Entry { source, read, waker: waker.clone() });
        if state.held(source) > (self.max / PART).max(1) {
            state.evict(source);
        } else if state.entries.len() > self.max
            && let Some(largest) = state.largest()
        {
            state.evict(largest);
        }
        id
    }

    /// Notes when the peer has read last. Returns whether the connection is still there.
    fn refresh(&self, id: u64, read: Instant, waker: &Waker) -> bool {
        let mut state = self.lock();
        let Some(entry) = state.entries.get_mut(&id) else { return false };
        entry.read = read;
        entry.waker.clone_from(waker);
        true
    }
}

impl State {
    fn held(&self, source: IpAddr) -> usize {
        self.entries.values().filter(|entry| entry.source == source).count()
    }

    /// Returns the source that has the most.
    fn largest(&self) -> Option<IpAddr> {
        let mut held: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for entry in self.entries.values() {
            *held.entry(entry.source).or_default() += 1;
        }
        held.into_iter().max_by_key(|(_, held)| *held).map(|(source, _)| source)
    }

    /// Removes the connection of a source whose peer has read least recently.
    fn evict(&mut self, source: IpAddr) {
        let of_source = self.entries.iter().filter(|(_, entry)| entry.source == source);
        let Some(id) = of_source.min_by_key(|(_, entry)| entry.read).map(|(id, _)| *id) else {
            return;
        };
        if let Some(entry) = self.entries.remove(&id) {
            self.evicted += 1;
            entry.waker.wake();
        }
    }
}

/// Returns the address that stands for a source: an IPv4 address in either of its forms, or a network of IPv6.
fn source(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> HOST_BITS << HOST_BITS).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// What is decided of the end of a transport connection when it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    table: Arc<Draining>,
    source: IpAddr,
    /// The time in which the peer must read more of what was sent before the end.
    within: Duration,
}

impl Closing {
    /// Returns what applies to the connections of a peer.
    pub(crate) fn new(table: &Arc<Draining>, peer: IpAddr, within: Duration) -> Closing {
        Closing { table: table.clone(), source: source(peer), within }
    }

    /// Begins the time of a connection that is being closed. To be called within a runtime.
    pub(crate) fn begin(&self) -> Drain {
        let now = Instant::now();
        let alarm = Alarm::new();
        Drain { closing: self.clone(), began: now, read: now, progress: None, entry: None, alarm }
    }
}

/// The end of one connection.
#[derive(Debug)]
pub(crate) struct Drain {
    closing: Closing,
    began: Instant,
    read: Instant,
    progress: Option<Progress>,
    entry: Option<u64>,
    alarm: Alarm,
}

impl Drain {
    /// Waits until the connection is to be aborted: its peer has read nothing for the time that it has, or others need the
    /// room. To be called again when the progress changes.
    pub(crate) fn poll(&mut self, progress: Progress, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_at(Instant::now(), progress, cx)
    }

    fn poll_at(&mut self, now: Instant, progress: Progress, cx: &mut Context<'_>) -> Poll<()> {
        if self.progress.replace(progress) != Some(progress) {
            self.read = now;
        }
        let due = self.read + self.closing.within;
        if due <= now {
            return Poll::Ready(());
        }
        let counts = self.began + LINGER;
        let table = &self.closing.table;
        match self.entry {
            Some(id) if !table.refresh(id, self.read, cx.waker()) => return Poll::Ready(()),
            None if counts <= now => {
                self.entry = Some(table.enter(self.closing.source, self.read, cx.waker()));
            }
            _ => {}
        }
        let wakes = if self.entry.is_some() { due } else { due.min(counts) };
        self.alarm.set(Some(wakes), cx);
        Poll::Pending
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        if let Some(id) = self.entry {
            self.closing.table.lock().entries.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn enter(table: &Draining, peer: &str, read: Instant) -> u64 {
        table.enter(source(ip(peer)), read, Waker::noop())
    }

    fn is_there(table: &Draining, id: u64) -> bool {
        table.lock().entries.contains_key(&id)
    }

    #[test]
    fn a_source_beyond_its_share_loses_what_is_read_least_recently() {
        let (table, now) = (Draining::new(8), Instant::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        let other = enter(&table, "192.0.2.9", now);
        let first = enter(&table, "192.0.2.1", later(1));
        let second = enter(&table, "::ffff:192.0.2.1", later(2));
        assert!(table.refresh(first, later(3), Waker::noop()));
        let third = enter(&table, "192.0.2.1", later(4));
        assert!(is_there(&table, first) && is_there(&table, third) && is_there(&table, other));
        assert!(!table.refresh(second, later(5), Waker::noop()));
        assert_eq!(table.evicted(), 1);
    }

    #[test]
    fn the_source_with_the_most_makes_room_when_all_is_used() {
        let (table, now) = (Draining::new(8), Instant::now());
        let network = ["2001:db8::1", "2001:db8::2"].map(|peer| enter(&table, peer, now));
        let others: Vec<_> = (1..=7).map(|n| enter(&table, &format!("192.0.2.{n}"), now)).collect();
        assert_eq!(network.map(|id| is_there(&table, id)), [false, true]);
        assert!(others.into_iter().all(|id| is_there(&table, id)));
    }

    /// The time counts from what was read last; a connection takes room only when it stays for longer than others need.
    #[tokio::test]
    async fn what_is_not_read_in_time_ends() {
        let table = Draining::new(8);
        let mut drain = Closing::new(&table, ip("192.0.2.1"), 2 * LINGER).begin();
        let (began, mut cx) = (drain.began, Context::from_waker(Waker::noop()));
        let mut poll = |times, progress| {
            let is_over = drain.poll_at(began + times * LINGER, progress, &mut cx).is_ready();
            (is_over, table.lock().entries.len())
        };
        assert_eq!(poll(0, (0, 0)), (false, 0));
        assert_eq!(poll(1, (1, 0)), (false, 1));
        assert_eq!(poll(2, (1, 0)), (false, 1));
        assert_eq!(poll(3, (1, 0)), (true, 1));
        drop(drain);
        assert_eq!(table.lock().entries.len(), 0);
        assert_eq!(table.evicted(), 0);
    }
}
