//! The random waypoint model of movement (Johnson and Maltz 1996).

use crate::graph::engine::mix;
use crate::graph::random::uniform;
use ringway_sansio::{Duration, SplitMix, Time};

/// Nodes that go to a random point at a random speed, pause, and go on. Speeds are in metres a second. The lowest is
/// above zero, as otherwise nodes come to a standstill one after another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waypoints {
    /// The lowest speed.
    pub min_speed: f64,
    /// The highest speed.
    pub max_speed: f64,
    /// Time between two ways.
    pub pause: Duration,
}

/// The way of one node. Where it is depends only on the seed and the time.
#[derive(Clone, Debug)]
pub(super) struct Way {
    random: SplitMix,
    from: [f64; 2],
    to: [f64; 2],
    begin: Time,
    arrival: Time,
    /// The time when the next way begins.
    next: Time,
}

impl Way {
    /// Creates a way that begins within the length of a pause.
    pub(super) fn new(seed: u64, node: u32, at: [f64; 2], motion: Option<Waypoints>) -> Self {
        let mut random = SplitMix::new(mix(seed, node));
        let pause = motion.map_or(Duration::ZERO, |motion| motion.pause);
        let next = Time::ZERO + pause.mul_f64(uniform(&mut random));
        Way { random, from: at, to: at, begin: Time::ZERO, arrival: Time::ZERO, next }
    }

    /// Returns the position at a time that is not before that of the last call.
    pub(super) fn position(&mut self, now: Time, side: f64, motion: Option<Waypoints>) -> [f64; 2] {
        let Some(motion) = motion else { return self.to };
        while now >= self.next {
            self.go_on(side, motion);
        }
        if now >= self.arrival {
            return self.to;
        }
        let nanos = |length: Duration| length.as_nanos() as f64;
        let share = nanos(now.since(self.begin)) / nanos(self.arrival.since(self.begin));
        [0, 1].map(|axis| self.from[axis] + share * (self.to[axis] - self.from[axis]))
    }

    fn go_on(&mut self, side: f64, motion: Waypoints) {
        self.from = self.to;
        self.begin = self.next;
        self.to = [0, 1].map(|_| side * uniform(&mut self.random));
        let speeds = motion.max_speed - motion.min_speed;
        let speed = motion.min_speed + speeds * uniform(&mut self.random);
        let [dx, dy] = [0, 1].map(|axis| self.to[axis] - self.from[axis]);
        // At least a nanosecond, so that time goes on.
        let nanos = ((dx * dx + dy * dy).sqrt() / speed * 1e9).max(1.0) as u64;
        self.arrival = self.begin + Duration::from_nanos(nanos);
        self.next = self.arrival + motion.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOTION: Waypoints =
        Waypoints { min_speed: 1.0, max_speed: 5.0, pause: Duration::from_secs(10) };

    #[test]
    fn a_node_moves_no_faster_than_it_may() {
        for node in 0..20 {
            let mut way = Way::new(1, node, [50.0, 50.0], Some(MOTION));
            let mut last = [50.0, 50.0];
            let mut still = 0;
            for second in 0..1_000 {
                let at = way.position(Time::from_secs(second), 200.0, Some(MOTION));
                let [dx, dy] = [0, 1].map(|axis| at[axis] - last[axis]);
                let moved = (dx * dx + dy * dy).sqrt();
                assert!(moved <= 5.0 + 1e-9 && at.iter().all(|c| (0.0..200.0).contains(c)));
                still += u32::from(moved == 0.0);
                last = at;
            }
            assert!((100..600).contains(&still), "{still}");
        }
    }

    #[test]
    fn where_a_node_is_does_not_depend_on_who_asked() {
        let at = |seconds: &[u64]| {
            let mut way = Way::new(3, 7, [0.0, 0.0], Some(MOTION));
            let positions =
                seconds.iter().map(|s| way.position(Time::from_secs(*s), 100.0, Some(MOTION)));
            positions.last()
        };
        let all: Vec<u64> = (0..=5_000).collect();
        assert_eq!(at(&[5_000]), at(&all));
        assert_ne!(at(&[4_000]), at(&[5_000]));
        let mut still = Way::new(3, 7, [1.0, 2.0], None);
        assert_eq!(still.position(Time::from_secs(9), 100.0, None), [1.0, 2.0]);
    }
}
