//! How far routers are from each other on the ring, and who is near enough to a key to be one of its keepers.
//!
//! Ids are hashes, so the gaps between routers are exponentially distributed around one mean. A router measures it by the
//! routers beside itself, and by those that others state to be beside them: one *sample* for each question, of the first who
//! has answered. The median of samples is the spacing; half of the samples have to be false to move it.
//!
//! The farthest keeper is the second before the owner: three gaps from the key. [`FACTORS`] has how many times the spacing
//! it is from the key with a probability below 10^-6. Fewer samples are less certain, so the factor is larger.

use std::collections::VecDeque;

use ringway_mesh::NodeId;
use ringway_sansio::time::{Duration, Time};

use crate::neighbours::behind;

/// Maximum number of samples; the factor for as many hardly differs from that of a spacing which is known exactly (20).
const MAX_SAMPLES: usize = 31;
/// Time after which a sample counts no more: the network may have become another.
const MAX_AGE: Duration = Duration::from_secs(600);
/// By the number of samples, how many spacings a keeper is from its key at most.
const FACTORS: [(usize, u64); 6] = [(31, 24), (15, 27), (9, 31), (5, 41), (3, 62), (1, 244)];

/// The spacing of routers, by samples of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scale {
    samples: VecDeque<(Time, u64)>,
}

/// The spacing of routers, and how far a keeper may be from its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Measure {
    pub(crate) spacing: u64,
    pub(crate) reach: u64,
    /// How far a router may be from a key for those beside it to lead to its keepers in a few steps.
    vicinity: u64,
}

impl Scale {
    /// Takes the spacing around a router that has answered.
    pub(crate) fn note(&mut self, now: Time, spacing: u64) {
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now, spacing));
    }

    /// Returns the measure of the ring. `own` is the spacing around this router, which is known at once when the network
    /// falls apart: then it counts, however small the others are.
    pub(crate) fn measure(&mut self, now: Time, own: u64) -> Measure {
        while self.samples.front().is_some_and(|&(at, _)| now.since(at) > MAX_AGE) {
            self.samples.pop_front();
        }
        let (count, factor) = FACTORS
            .into_iter()
            .find(|&(count, _)| count <= 1 + self.samples.len())
            .unwrap_or((1, u64::MAX));
        let latest = self.samples.iter().rev().map(|&(_, spacing)| spacing);
        let mut counted: Vec<u64> = latest.take(count - 1).chain([own]).collect();
        counted.sort_unstable();
        let spacing = counted[count / 2].max(own);
        let (reach, vicinity) =
            (spacing.saturating_mul(factor), spacing.saturating_mul(factor / 3));
        Measure { spacing, reach, vicinity }
    }
}

impl Measure {
    /// Returns whether a router is so near to a key that those beside it lead to its keepers.
    pub(crate) fn is_beside(&self, id: NodeId, key: NodeId) -> bool {
        distance(id, key) <= self.vicinity
    }

    /// Returns whether a router is near enough to a key to be one of its keepers.
    pub(crate) fn is_near(&self, id: NodeId, key: NodeId) -> bool {
        distance(id, key) <= self.reach
    }
}

fn distance(id: NodeId, key: NodeId) -> u64 {
    behind(id, key).min(behind(key, id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbours::{Leaves, keepers};
    use ringway_sansio::{Random, SplitMix};

    const NOW: Time = Time::from_secs(9);

    fn ring(count: usize, random: &mut SplitMix) -> Vec<NodeId> {
        let mut ids: Vec<NodeId> = (0..count).map(|_| NodeId::new(random.next_u64())).collect();
        ids.sort();
        ids
    }

    fn spacing_around(ids: &[NodeId], at: usize) -> u64 {
        let id = |steps: usize| ids[(at + steps) % ids.len()];
        let last = ids.len();
        let before = [id(last - 1), id(last - 2)].into_iter().collect();
        Leaves { before, behind: [id(1), id(2)].into_iter().collect() }.spacing()
    }

    #[test]
    fn keepers_are_near_enough_whatever_is_known_of_the_ring() {
        let mut random = SplitMix::new(5);
        for size in [5, 6, 10, 60, 1_000] {
            for samples in [0, 2, 8, 40] {
                for _ in 0..300 {
                    let ids = ring(size, &mut random);
                    let mut pick = || (random.next_u64() % size as u64) as usize;
                    let mut scale = Scale::default();
                    (0..samples).for_each(|_| scale.note(NOW, spacing_around(&ids, pick())));
                    let measure = scale.measure(NOW, spacing_around(&ids, pick()));
                    let key = NodeId::new(random.next_u64());
                    let keepers = keepers(&mut ids.clone(), key);
                    assert!(keepers.iter().all(|&id| measure.is_near(id, key)));
                }
            }
        }
    }

    #[test]
    fn of_a_thousand_routers_few_are_near_enough_to_a_key() {
        let mut random = SplitMix::new(6);
        let (mut near, mut all) = (0, 0);
        for _ in 0..100 {
            let ids = ring(1_000, &mut random);
            let mut scale = Scale::default();
            for _ in 0..31 {
                let at = (random.next_u64() % 1_000) as usize;
                scale.note(NOW, spacing_around(&ids, at));
            }
            let measure = scale.measure(NOW, spacing_around(&ids, 7));
            let key = NodeId::new(random.next_u64());
            near += ids.iter().filter(|&&id| measure.is_near(id, key)).count();
            all += ids.len();
        }
        assert!(near * 100 < all * 8, "{near} of {all}");
    }

    #[test]
    fn who_is_in_a_small_part_of_a_network_accepts_who_is_left() {
        let mut scale = Scale::default();
        (0..31).for_each(|_| scale.note(NOW, 1 << 50));
        let key = NodeId::new(1 << 63);
        let far = NodeId::new((1 << 63) + (1 << 60));
        assert!(!scale.measure(NOW, 1 << 50).is_near(far, key));
        assert!(scale.measure(NOW, 1 << 60).is_near(far, key));
        // A minority of false samples moves nothing.
        (0..15).for_each(|_| scale.note(NOW, 0));
        assert_eq!(scale.measure(NOW, 1 << 50).spacing, 1 << 50);
        (0..15).for_each(|_| scale.note(NOW, u64::MAX));
        assert_eq!(scale.measure(NOW, 1 << 50).spacing, 1 << 50);
        // Alone, everybody is near enough.
        let later = NOW + Duration::from_secs(601);
        assert!(scale.measure(later, u64::MAX).is_near(NodeId::new(0), key));
    }
}
