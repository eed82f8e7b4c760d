//! The speed of the event queue: with 100,000 pending events, the first is removed and one is added,
//! repeatedly. Arguments: `buckets` (the queue of this crate), `heap` (the standard library's binary
//! heap) or `quad` (a flat heap of four children), and the number of repetitions.
//!
//! Counted under `valgrind --tool=callgrind`; two operations each time.

use ringway_link::random::Xoshiro256pp;
use ringway_sansio::{Random, Time};
use ringway_sim::events::{EventQueue, Order};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use std::io::Write;

const PENDING: u64 = 100_000;
const NODES: u64 = 1000;

type Key = (Time, Order);
type What = [u32; 3];

trait Queue {
    fn put(&mut self, key: Key, what: What);
    fn take(&mut self) -> Option<(Time, What)>;
}

struct Buckets(EventQueue<What>);

impl Queue for Buckets {
    fn put(&mut self, key: Key, what: What) {
        self.0.push(key.0, key.1, what);
    }
    fn take(&mut self) -> Option<(Time, What)> {
        self.0.pop(Time::from_nanos(u64::MAX))
    }
}

struct Heap(BinaryHeap<Reverse<(Key, What)>>);

impl Queue for Heap {
    fn put(&mut self, key: Key, what: What) {
        self.0.push(Reverse((key, what)));
    }
    fn take(&mut self) -> Option<(Time, What)> {
        self.0.pop().map(|Reverse((key, what))| (key.0, what))
    }
}

/// Four children a node: fewer levels, more comparisons in each.
struct Quad(Vec<(Key, What)>);

impl Queue for Quad {
    fn put(&mut self, key: Key, what: What) {
        let heap = &mut self.0;
        let mut position = heap.len();
        heap.push((key, what));
        while position > 0 && key < heap[(position - 1) / 4].0 {
            heap[position] = heap[(position - 1) / 4];
            position = (position - 1) / 4;
        }
        heap[position] = (key, what);
    }
    fn take(&mut self) -> Option<(Time, What)> {
        let heap = &mut self.0;
        let last = heap.pop()?;
        let Some(&first) = heap.first() else { return Some((last.0.0, last.1)) };
        let mut position = 0;
        loop {
            let children = 4 * position + 1..heap.len().min(4 * position + 5);
            let Some(min) = children.min_by_key(|&c| heap[c].0) else { break };
            if heap[min].0 >= last.0 {
                break;
            }
            heap[position] = heap[min];
            position = min;
        }
        heap[position] = last;
        Some((first.0.0, first.1))
    }
}

fn run(queue: &mut impl Queue, times: u64) -> u64 {
    let mut random = Xoshiro256pp::from_number(1);
    let mut count = 0;
    // Up to 0.1 s ahead, as packets on wide-area links are.
    let mut later = |now: Time| {
        count += 1;
        let at = Time::from_nanos(now.as_nanos() + random.next_u64() % 100_000_000);
        ((at, Order::new((count % NODES) as u32, count)), [count as u32, 0, 0])
    };
    for _ in 0..PENDING {
        let (key, what) = later(Time::ZERO);
        queue.put(key, what);
    }
    let mut check = 0;
    for _ in 0..times {
        let Some((now, what)) = queue.take() else { break };
        check ^= now.as_nanos().rotate_left(what[0] % 64);
        let (key, what) = later(now);
        queue.put(key, what);
    }
    check
}

fn main() -> Result<(), Box<dyn Error>> {
    let kind = std::env::args().nth(1).unwrap_or_else(|| "buckets".into());
    let times: u64 = std::env::args().nth(2).unwrap_or_else(|| "1000000".into()).parse()?;
    let begun = std::time::Instant::now();
    let check = match kind.as_str() {
        "buckets" => run(&mut Buckets(EventQueue::new()), times),
        "heap" => run(&mut Heap(BinaryHeap::new()), times),
        "quad" => run(&mut Quad(Vec::new()), times),
        other => return Err(format!("expected buckets, heap or quad, got {other}").into()),
    };
    let seconds = begun.elapsed().as_secs_f64();
    writeln!(
        std::io::stdout(),
        "{{\"queue\": \"{kind}\", \"operations\": {}, \"check\": {check}, \"seconds\": {seconds:.3}}}",
        2 * times
    )?;
    Ok(())
}
