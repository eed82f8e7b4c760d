//! Messages to send, and whether those that came are right.

use super::end::{Limit, Post};
use ringway_sansio::{Random, SplitMix};
use std::collections::BTreeMap;

/// In the first byte of a message that is not ordered.
const UNORDERED: u8 = 0x80;

/// A message whose bytes tell its number, as far as they go.
pub(crate) fn post(number: usize, stream: u16, size: usize, unordered: bool, limit: Limit) -> Post {
    let byte = |i: usize| (i.wrapping_mul(31) ^ (i >> 8) ^ number.wrapping_mul(7)) as u8;
    let mut data: Vec<u8> = (0..size).map(byte).collect();
    data[0] = number as u8 & !UNORDERED | if unordered { UNORDERED } else { 0 };
    if let Some(place) = data.get_mut(1..5) {
        place.copy_from_slice(&(number as u32).to_be_bytes());
    }
    Post { stream, unordered, limit, data }
}

/// Ordered messages of these sizes, on two streams.
pub(crate) fn sizes(sizes: &[usize]) -> Vec<Post> {
    let one = |(n, &size)| post(n, n as u16 % 2, size, false, Limit::Never);
    sizes.iter().enumerate().map(one).collect()
}

/// Messages of one byte to a few packets on so many streams, every fourth unordered.
pub(crate) fn mixed(count: usize, streams: u16, seed: u64) -> Vec<Post> {
    limited(count, streams, seed, Limit::Never, usize::MAX)
}

/// The same with a limit, none larger than `most`; at the end of each stream comes an ordered one that has
/// no limit.
pub(crate) fn limited(
    count: usize,
    streams: u16,
    seed: u64,
    limit: Limit,
    most: usize,
) -> Vec<Post> {
    let mut dice = SplitMix::new(seed);
    let mut list: Vec<Post> = (0..count)
        .map(|n| {
            let stream = (dice.next_u64() % u64::from(streams)) as u16;
            let most = most.min([40, 1000, 6000][n % 3]);
            let size = 1 + dice.next_u64() as usize % most;
            post(n, stream, size, n % 4 == 3, limit)
        })
        .collect();
    let last = |stream| post(count + usize::from(stream), stream, 20, false, Limit::Never);
    list.extend((0..streams).map(last));
    list
}

/// How many messages of each stream have to come.
pub(crate) struct Lasting(BTreeMap<(u16, Vec<u8>), usize>);

pub(crate) fn lasting(posts: &[Post]) -> Lasting {
    let mut counts = BTreeMap::new();
    for post in posts.iter().filter(|post| post.limit == Limit::Never) {
        *counts.entry((post.stream, post.data.clone())).or_default() += 1;
    }
    Lasting(counts)
}

impl Lasting {
    pub(crate) fn within(&self, came: &[(u16, Vec<u8>)]) -> bool {
        if came.len() < self.0.values().sum() {
            return false;
        }
        let mut left = self.0.clone();
        for message in came {
            if let Some(count) = left.get_mut(message) {
                *count = count.saturating_sub(1);
            }
        }
        left.values().all(|&count| count == 0)
    }
}

/// What came on a stream: what was ordered as it came, what was not in the order of its bytes.
pub(crate) type Delivered = BTreeMap<u16, (Vec<Vec<u8>>, Vec<Vec<u8>>)>;

pub(crate) fn delivered(came: &[(u16, Vec<u8>)]) -> Delivered {
    let mut all = Delivered::new();
    for (stream, data) in came {
        let (ordered, unordered) = all.entry(*stream).or_default();
        if data[0] & UNORDERED == 0 { ordered } else { unordered }.push(data.clone());
    }
    for (_, unordered) in all.values_mut() {
        unordered.sort();
    }
    all
}

/// Whether each message came whole, at most once and in its stream's order, and all that have no limit;
/// how many of the others did not come.
pub(crate) fn check(posts: &[Post], came: &[(u16, Vec<u8>)]) -> usize {
    let mut missing = vec![true; posts.len()];
    let mut next: BTreeMap<u16, usize> = BTreeMap::new();
    for (stream, data) in came {
        let fits = |&n: &usize| missing[n] && posts[n].stream == *stream && posts[n].data == *data;
        let ordered = data[0] & UNORDERED == 0;
        let first = if ordered { next.get(stream).copied().unwrap_or(0) } else { 0 };
        let found = (first..posts.len()).find(fits);
        let found = found.unwrap_or_else(|| panic!("{} bytes on {stream}: wrong", data.len()));
        missing[found] = false;
        if ordered {
            next.insert(*stream, found + 1);
        }
    }
    let lost: Vec<&Post> =
        posts.iter().zip(missing).filter(|(_, missing)| *missing).map(|(post, _)| post).collect();
    assert!(lost.iter().all(|post| post.limit != Limit::Never));
    lost.len()
}
