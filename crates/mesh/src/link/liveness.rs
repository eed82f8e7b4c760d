//! When a neighbour is dead.
//!
//! A neighbour that has been silent for a little longer than the interval of its HELLOs is *suspect* and probed four
//! times; without an answer it is dead 0.7 s later, in all under 3 s at the usual interval of 1.9 s. Data that is not
//! acknowledged for 0.15 s makes it suspect, and it is dead 0.7 s later: whoever has traffic does not wait for HELLOs.
//! It is not less, because a slow link may have so much of that traffic in its queue. A message to a neighbour that has not
//! proved for a second that it is there asks for an answer, with the same effect.
//!
//! HELLOs are authenticated by a key that all neighbours of their sender know, so they prove that the sender is there only
//! if they have a report for us. After [`PROOF_INTERVAL`] without such a HELLO or a packet sealed for us alone the neighbour
//! is probed, and only a sealed packet clears it.

use ringway_sansio::Time;
use ringway_sansio::time::{Duration, sooner};

use super::interface::SLOW_INTERVAL;
use crate::moment::Moment;

/// Silence that is forgiven beyond the interval of HELLOs: a tenth of it, and this.
const GRACE: Duration = Duration::from_millis(50);
/// Unit of the interval in a HELLO.
const INTERVAL_UNIT: Duration = Duration::from_millis(20);
/// Interval of HELLOs while nothing changes, in units of 20 ms.
pub const USUAL_INTERVAL: u8 = (SLOW_INTERVAL.as_millis() / INTERVAL_UNIT.as_millis()) as u8;
/// Time without a proof after which a neighbour is probed, times a third of the number of neighbours.
pub const PROOF_INTERVAL: Duration = Duration::from_secs(30);
/// Time of data without an acknowledgement after which a neighbour is suspect.
const MAX_SILENT_DATA: Duration = Duration::from_millis(150);

/// Time in ms after a sealed packet in which messages are sent without asking for an answer.
const TRUSTED: u32 = 1_000;

/// When probes are sent after suspicion, and when the neighbour is dead, in milliseconds.
const PROBES: [u64; 4] = [0, 100, 250, 450];
const DEAD: u64 = 700;

/// A sign of life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    /// A HELLO that any of its neighbours may have sent, and the interval in it, in units of 20 ms.
    Hello(u8),
    /// A HELLO that only the neighbour can have sent.
    OwnHello(u8),
    /// A packet that was sealed for us alone.
    Sealed,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// Send a probe.
    Probe,
    /// The neighbour is dead.
    Dead,
}

/// Whether one neighbour is alive.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// The interval of its HELLOs in units of [`INTERVAL_UNIT`].
    interval: u8,
    heard: Time,
    /// When the last packet came that only the neighbour can have sent.
    proved: Time,
    /// When the last sealed packet came, which is often an answer: in ms, and it wraps after 49 days.
    sealed: u32,
    /// When the first data packet was sent since the last sealed packet came.
    data_since: Moment,
    /// When the neighbour was asked for an answer because a message went to it.
    asked: Moment,
    /// When the neighbour became suspect, if it is; how often it was probed since, and whether only a sealed packet clears
    /// it.
    suspected: Moment,
    probes: u8,
    strict: bool,
    dead: bool,
}

impl Liveness {
    /// A neighbour whose handshake has just ended, and the interval of its HELLOs in units of 20 ms.
    pub fn new(now: Time, interval: u8) -> Liveness {
        Liveness {
            interval,
            heard: now,
            proved: now,
            sealed: millis(now),
            data_since: Moment::NONE,
            asked: Moment::NONE,
            suspected: Moment::NONE,
            probes: 0,
            strict: false,
            dead: false,
        }
    }

    /// Returns whether the neighbour is dead. It stays so; a new handshake makes a new one.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Returns whether the neighbour is being probed.
    pub fn is_suspect(&self) -> bool {
        self.suspected != Moment::NONE
    }

    /// Returns whether the neighbour has left a probe without an answer.
    pub fn is_silent(&self) -> bool {
        self.is_suspect() && self.probes >= 2
    }

    /// The neighbour has been heard.
    pub fn hear(&mut self, now: Time, sign: Sign) {
        self.heard = now;
        match sign {
            // Nobody else can have it waited for longer than it may be.
            Sign::Hello(interval) => {
                self.interval = self.interval.max(interval.min(USUAL_INTERVAL))
            }
            Sign::OwnHello(interval) => (self.interval, self.proved) = (interval, now),
            Sign::Sealed => {
                (self.proved, self.sealed) = (now, millis(now));
                (self.data_since, self.asked) = (Moment::NONE, Moment::NONE);
            }
        }
        if !self.strict || sign == Sign::Sealed {
            self.suspected = Moment::NONE;
        }
    }

    /// Data has been sent to the neighbour.
    pub fn data_sent(&mut self, now: Time) {
        let since = self.data_since.get_or_insert(now);
        if now.since(since) >= MAX_SILENT_DATA {
            self.suspect(now, true);
        }
    }

    /// A message goes to the neighbour. Returns whether it is to be asked for an answer with it, because it has not been
    /// heard for some time: what is sent to somebody who is gone is lost.
    pub fn asks(&mut self, now: Time) -> bool {
        let asks = self.asked == Moment::NONE && millis(now).wrapping_sub(self.sealed) >= TRUSTED;
        if asks {
            self.asked = now.into();
        }
        asks
    }

    /// The system has reported that it cannot send to the neighbour.
    pub fn send_failed(&mut self, now: Time) {
        self.suspect(now, false);
    }

    /// Returns what is due. `neighbours` is how many there are, by which proofs are spread. To be called until `None`.
    pub fn timeout(&mut self, now: Time, neighbours: usize) -> Option<Task> {
        if self.dead {
            return None;
        }
        if !self.is_suspect() {
            if self.asked.get().is_some_and(|asked| now.since(asked) >= MAX_SILENT_DATA) {
                self.asked = Moment::NONE;
                self.suspect(now, true);
            } else if now >= self.silent_at() {
                self.suspect(now, false);
            } else if now >= self.prove_at(neighbours) {
                self.suspect(now, true);
            }
        }
        let since = self.suspected.get()?;
        if now >= since + Duration::from_millis(DEAD) {
            self.dead = true;
            return Some(Task::Dead);
        }
        let due = PROBES.get(usize::from(self.probes)).map(|&at| since + Duration::from_millis(at));
        if due.is_some_and(|due| now >= due) {
            self.probes += 1;
            return Some(Task::Probe);
        }
        None
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self, neighbours: usize) -> Option<Time> {
        if self.dead {
            return None;
        }
        let Some(since) = self.suspected.get() else {
            let answer = self.asked.get().map(|asked| asked + MAX_SILENT_DATA);
            let silent = sooner(Some(self.silent_at()), Some(self.prove_at(neighbours)));
            return sooner(answer, silent);
        };
        let next = PROBES.get(usize::from(self.probes)).copied().unwrap_or(DEAD);
        Some(since + Duration::from_millis(next))
    }

    fn silent_at(&self) -> Time {
        let interval = INTERVAL_UNIT * u32::from(self.interval);
        self.heard + interval + interval / 10 + GRACE
    }

    fn prove_at(&self, neighbours: usize) -> Time {
        self.proved + proof_interval(neighbours)
    }

    /// Begins to probe, or goes on.
    fn suspect(&mut self, now: Time, strict: bool) {
        if !self.dead && !self.is_suspect() {
            (self.suspected, self.probes, self.strict) = (now.into(), 0, strict);
        }
    }
}

/// Returns the time without a proof after which one of so many neighbours is probed.
pub(super) fn proof_interval(neighbours: usize) -> Duration {
    let third = u32::try_from(neighbours).unwrap_or(u32::MAX).max(3);
    (PROOF_INTERVAL / 3).saturating_mul(third)
}

fn millis(now: Time) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Time = Time::from_secs(100);
    /// 1.9 s.
    const INTERVAL: u8 = 95;

    fn at(millis: u64) -> Time {
        START + Duration::from_millis(millis)
    }

    /// Runs until the neighbour is dead or `until`. Returns the times of probes, and of death, in milliseconds.
    fn run(liveness: &mut Liveness, until: Time) -> (Vec<u64>, Option<u64>) {
        let mut probes = Vec::new();
        while let Some(now) = liveness.poll_timeout(3).filter(|&now| now <= until) {
            while let Some(task) = liveness.timeout(now, 3) {
                match task {
                    Task::Probe => probes.push(now.since(START).as_millis() as u64),
                    Task::Dead => return (probes, Some(now.since(START).as_millis() as u64)),
                }
            }
        }
        (probes, None)
    }

    #[test]
    fn a_silent_neighbour_is_probed_four_times_and_dead() {
        let mut liveness = Liveness::new(START, INTERVAL);
        let (probes, dead) = run(&mut liveness, at(10_000));
        assert_eq!((probes, dead), (vec![2_140, 2_240, 2_390, 2_590], Some(2_840)));
        assert!(liveness.is_dead() && liveness.poll_timeout(3).is_none());
        liveness.hear(at(2_900), Sign::Sealed);
        assert!(liveness.is_dead() && liveness.timeout(at(9_999), 3).is_none());
    }

    #[test]
    fn an_answer_clears_suspicion() {
        let mut liveness = Liveness::new(START, INTERVAL);
        assert_eq!(run(&mut liveness, at(2_300)), (vec![2_140, 2_240], None));
        assert!(liveness.is_suspect());
        liveness.hear(at(2_300), Sign::OwnHello(50));
        assert!(!liveness.is_suspect());
        // The interval is 1 s now.
        assert_eq!(run(&mut liveness, at(9_000)).1, Some(2_300 + 1_150 + 700));
    }

    #[test]
    fn traffic_finds_it_within_a_second() {
        let mut liveness = Liveness::new(START, INTERVAL);
        // The link breaks while 10 packets a second are sent. A HELLO on its way does not hide it.
        (0..3).for_each(|packet| liveness.data_sent(at(100 * packet)));
        assert!(liveness.is_suspect());
        liveness.hear(at(200), Sign::Hello(INTERVAL));
        assert_eq!(run(&mut liveness, at(2_000)), (vec![200, 300, 450, 650], Some(900)));
        // A burst is no reason, and acknowledged data is no more looked at.
        let mut liveness = Liveness::new(START, INTERVAL);
        (0..100).for_each(|_| liveness.data_sent(at(5)));
        liveness.hear(at(10), Sign::Sealed);
        (0..100).for_each(|_| liveness.data_sent(at(200)));
        assert!(!liveness.is_suspect());
    }

    #[test]
    fn what_the_system_reports_is_probed_at_once() {
        let mut liveness = Liveness::new(START, INTERVAL);
        assert_eq!(run(&mut liveness, at(2_150)).0, [2_140]);
        liveness.send_failed(at(2_160));
        assert_eq!(run(&mut liveness, at(9_000)), (vec![2_240, 2_390, 2_590], Some(2_840)));
    }

    #[test]
    fn a_borrowed_hello_key_does_not_hide_a_dead_link() {
        let mut liveness = Liveness::new(START, INTERVAL);
        for millis in (0..30_000).step_by(1_900) {
            assert_eq!(run(&mut liveness, at(millis)), (vec![], None));
            liveness.hear(at(millis), Sign::Hello(INTERVAL));
        }
        let (probes, dead) = run(&mut liveness, at(40_000));
        assert_eq!((probes.len(), dead), (4, Some(30_700)));
        // Nor does a long interval, which is somebody else's.
        let mut liveness = Liveness::new(START, INTERVAL);
        liveness.hear(at(0), Sign::OwnHello(50));
        liveness.hear(at(1_000), Sign::Hello(255));
        assert_eq!(liveness.poll_timeout(3), Some(at(1_000 + 2_140)));
        // HELLOs that only the neighbour can have sent are a proof, but no answer.
        liveness.hear(at(2_000), Sign::OwnHello(INTERVAL));
        assert_eq!(liveness.prove_at(3), at(32_000));
        assert!(liveness.asks(at(2_000)));
        // Where there are many neighbours, each is proved more rarely.
        assert_eq!(Liveness::new(START, 255).poll_timeout(12), Some(at(5_660)));
        let mut many = Liveness::new(START, INTERVAL);
        many.hear(at(119_000), Sign::Hello(INTERVAL));
        assert_eq!(many.poll_timeout(12), Some(at(120_000)));
    }

    proptest! {
        /// Whatever was heard before, and whenever the link breaks: it is dead within 3 s, and never while it is heard.
        #[test]
        fn a_silent_link_is_dead_within_three_seconds(
            hellos in proptest::collection::vec(1_700u64..1_900, 1..20),
            silence in 0u64..1_900,
            data: bool,
        ) {
            let (mut liveness, mut now) = (Liveness::new(START, INTERVAL), 0);
            for interval in hellos {
                now += interval;
                prop_assert_eq!(run(&mut liveness, at(now)).1, None);
                liveness.hear(at(now), Sign::Hello(INTERVAL));
                liveness.hear(at(now), Sign::Sealed);
            }
            let broken = now + silence;
            if data {
                (0..4).for_each(|packet| liveness.data_sent(at(broken + 60 * packet)));
            }
            let (_, dead) = run(&mut liveness, at(now + 10_000));
            let limit = if data { broken + 900 } else { now + 3_000 };
            prop_assert!(dead.is_some_and(|dead| dead <= limit), "{:?} after {}", dead, broken);
        }
    }
}
