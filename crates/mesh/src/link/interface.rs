//! Interfaces, and when a router sends its HELLO by each.
//!
//! HELLOs begin quickly and become slower: 0.1, 0.2, 0.4 and 0.8 s after the first, then every second until nothing has
//! changed for 30 s, then every 1.9 s. A stranger brings the next one forward, at most ten times a second, so that
//! two routers know of each other after one round trip. All are up to a tenth early, so that neighbours that have started
//! together do not stay together.

use core::net::SocketAddr;

use ringway_sansio::time::Duration;
use ringway_sansio::{Random, Time};

use crate::budget::TokenBucket;

/// Interval of HELLOs while nothing changes.
pub const SLOW_INTERVAL: Duration = Duration::from_millis(1_900);
/// Interval after a change.
const FAST_INTERVAL: Duration = Duration::from_millis(1_000);
/// Time for which a change makes HELLOs faster.
const FAST: Duration = Duration::from_secs(30);
/// First intervals of a new interface.
const START: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];
/// Least interval, whatever strangers do.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Unit of the interval in a HELLO.
const UNIT: Duration = Duration::from_millis(20);
/// Handshakes a second that strangers on an interface can cause, and at once.
const HANDSHAKE_RATE: u32 = 20;
const HANDSHAKE_BURST: u32 = 64;

/// How routers are found on an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Discovery {
    /// Everybody on the link hears the HELLOs.
    Multicast,
    /// The interface stands for the network between; routers are named, or name us.
    Named(Vec<SocketAddr>),
}

/// An interface as its owner configures it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceConfig {
    /// The number by which packets name it.
    pub index: u32,
    /// How routers are found on it.
    pub discovery: Discovery,
    /// Largest UDP payload in octets.
    pub mtu: u16,
}

/// An interface and the schedule of its HELLOs.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) config: InterfaceConfig,
    /// Number of the newest HELLO.
    pub(super) sequence: u16,
    /// Number of HELLOs sent.
    pub(super) sent: u64,
    /// When the next is due.
    pub(super) due: Time,
    last: Time,
    changed: Time,
    /// Where the reports of the next HELLO begin.
    turn: usize,
    /// What strangers may cost.
    pub(super) handshakes: TokenBucket,
}

impl Interface {
    pub(super) fn new(now: Time, config: InterfaceConfig, random: &mut dyn Random) -> Interface {
        let handshakes = TokenBucket::new(HANDSHAKE_RATE, HANDSHAKE_BURST, now);
        let sequence = random.next_u64() as u16;
        // Routers that are started together do not speak together.
        let due = now + part(Duration::from_millis(20), random);
        Interface { config, sequence, sent: 0, due, last: now, changed: now, turn: 0, handshakes }
    }

    /// Takes over another configuration. The numbers of HELLOs go on, by which neighbours count losses.
    pub(super) fn replace(&mut self, now: Time, config: InterfaceConfig) {
        self.config = config;
        self.change(now);
    }

    /// Something has changed: HELLOs are faster for some time.
    pub(super) fn change(&mut self, now: Time) {
        self.changed = now;
        self.due = self.due.min((self.last + FAST_INTERVAL).max(now));
    }

    /// Somebody should hear of us soon.
    pub(super) fn hurry(&mut self, now: Time, random: &mut dyn Random) {
        let soon = now + part(Duration::from_millis(10), random);
        self.due = self.due.min((self.last + MIN_INTERVAL).max(soon));
    }

    /// Notes that a HELLO is sent now and returns the interval to the next in units of 20 ms, rounded up.
    pub(super) fn say_hello(&mut self, now: Time, random: &mut dyn Random) -> u8 {
        let interval = match START.get(usize::try_from(self.sent).unwrap_or(usize::MAX)) {
            Some(&interval) => interval,
            None if self.is_fast(now) => FAST_INTERVAL,
            None => SLOW_INTERVAL,
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.sent += 1;
        self.last = now;
        self.due = now + (interval - part(interval / 10, random));
        interval.as_millis().div_ceil(UNIT.as_millis()).min(255) as u8
    }

    /// Returns which of `count` neighbours is the first to be reported of, when `at_once` of them are in each HELLO.
    pub(super) fn take_turn(&mut self, count: usize, at_once: usize) -> usize {
        let turn = self.turn.checked_rem(count).unwrap_or(0);
        self.turn = turn + at_once;
        turn
    }

    pub(super) fn is_fast(&self, now: Time) -> bool {
        now.since(self.changed) < FAST
    }
}

/// Returns a random part of a duration.
fn part(whole: Duration, random: &mut dyn Random) -> Duration {
    whole.mul_f64((random.next_u64() >> 11) as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::SplitMix;

    const NOW: Time = Time::from_secs(100);

    fn interface(random: &mut SplitMix) -> Interface {
        let config = InterfaceConfig { index: 2, discovery: Discovery::Multicast, mtu: 1_452 };
        Interface::new(NOW, config, random)
    }

    #[test]
    fn hellos_begin_quickly_and_become_slower() {
        let mut random = SplitMix::new(4);
        let mut interface = interface(&mut random);
        let mut times = Vec::new();
        while interface.due < NOW + Duration::from_secs(60) {
            let now = interface.due;
            let units = interface.say_hello(now, &mut random);
            let wait = interface.due.since(now);
            assert!(
                wait <= UNIT * u32::from(units)
                    && wait * 10 >= UNIT * u32::from(units) * 9 - UNIT * 9
            );
            times.push(now.since(NOW).as_millis());
        }
        let before = |end| times.iter().filter(|&&time| time < end).count();
        assert!(times[0] <= 20 && before(1_600) == 5, "{times:?}");
        assert!((30..=36).contains(&before(30_000)) && times.len() < 54, "{times:?}");
        interface.change(NOW + Duration::from_secs(60));
        assert!(interface.is_fast(NOW + Duration::from_secs(61)));
    }

    #[test]
    fn strangers_bring_a_hello_forward_ten_times_a_second() {
        let mut random = SplitMix::new(5);
        let mut interface = interface(&mut random);
        let (mut now, mut sent) = (NOW + Duration::from_secs(50), 0);
        interface.say_hello(now, &mut random);
        for _ in 0..10_000 {
            now += Duration::from_micros(100);
            interface.hurry(now, &mut random);
            if interface.due <= now {
                interface.say_hello(now, &mut random);
                sent += 1;
            }
        }
        assert!((5..=10).contains(&sent), "{sent}");
    }
}
