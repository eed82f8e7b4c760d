//! The wire between two ends.

use super::end::{End, Ended, Kind, Offer, Post, make};
use super::script;
use super::tap::Tap;
use ringway_sansio::{Duration, Random, SplitMix, Time};

/// The port at both ends: the others' default.
pub(crate) const PORT: u16 = 5000;

/// What the wire does to packets, in percent of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// Held back for up to 15 ms, so that others overtake them.
    pub(crate) late: u64,
}

pub(crate) const GOOD: Line = Line { lost: 0, doubled: 0, late: 0 };
pub(crate) const BAD: Line = Line { lost: 3, doubled: 2, late: 10 };
pub(crate) const WORSE: Line = Line { lost: 10, doubled: 5, late: 20 };
pub(crate) const WORST: Line = Line { lost: 20, doubled: 5, late: 30 };
/// Nothing is lost, much comes late or twice.
pub(crate) const TWISTED: Line = Line { lost: 0, doubled: 20, late: 50 };

struct Flying {
    at: Time,
    serial: u64,
    to: usize,
    bytes: Vec<u8>,
}

/// Two ends; the first opens the association.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) ends: [Box<dyn End>; 2],
    /// What each end sent.
    pub(crate) taps: [Tap; 2],
    /// What came to each end, by stream.
    pub(crate) inbox: [Vec<(u16, Vec<u8>)>; 2],
    /// What the wire does from now on.
    pub(crate) line: Line,
    /// How long it takes from one message given to the next; all at once if not set.
    pub(crate) pace: Option<Duration>,
    /// When the next is given.
    next: Option<Time>,
    flying: Vec<Flying>,
    dice: SplitMix,
    serial: u64,
}

impl World {
    /// An association that stands.
    pub(crate) fn new(kinds: [Kind; 2], offers: [Offer; 2], line: Line, seed: u64) -> World {
        let end = |side: usize| make(kinds[side], side, seed, offers[side]);
        let mut world = World {
            now: Time::from_secs(1000),
            ends: [end(0), end(1)],
            taps: Default::default(),
            inbox: Default::default(),
            line,
            pace: None,
            next: None,
            flying: Vec::new(),
            dice: SplitMix::new(seed + 1),
            serial: 0,
        };
        world.ends[1].open(world.now, false);
        world.ends[0].open(world.now, true);
        world.until("no association", |world| world.ends.iter().all(|end| end.is_up()));
        world
    }

    fn chance(&mut self, percent: u64) -> bool {
        percent > 0 && self.dice.next_u64() % 100 < percent
    }

    fn launch(&mut self, from: usize, bytes: &[u8]) {
        self.taps[from].packet(bytes);
        if self.chance(self.line.lost) {
            return;
        }
        let copies = 1 + usize::from(self.chance(self.line.doubled));
        for _ in 0..copies {
            let late = if self.chance(self.line.late) { self.dice.next_u64() % 15 } else { 0 };
            let at = self.now + Duration::from_millis(10 + late);
            self.serial += 1;
            let flying = Flying { at, serial: self.serial, to: 1 - from, bytes: bytes.to_vec() };
            self.flying.push(flying);
        }
    }

    fn flush(&mut self) {
        for side in 0..2 {
            for bytes in self.ends[side].take(self.now) {
                self.launch(side, &bytes);
            }
            let came = self.ends[side].received();
            self.inbox[side].extend(came);
        }
    }

    fn next_packet(&mut self) -> Option<Flying> {
        let due = |&i: &usize| self.flying[i].at <= self.now;
        let earliest = |&i: &usize| (self.flying[i].at, self.flying[i].serial);
        let index = (0..self.flying.len()).filter(due).min_by_key(earliest)?;
        Some(self.flying.swap_remove(index))
    }

    /// Until something happens.
    pub(crate) fn step(&mut self) {
        self.flush();
        let flying = self.flying.iter().map(|f| f.at).min();
        let deadlines = [flying, self.next, self.ends[0].deadline(), self.ends[1].deadline()];
        let next = deadlines.into_iter().flatten().min().expect("something is to happen");
        self.now = self.now.max(next);
        while let Some(packet) = self.next_packet() {
            self.ends[packet.to].give(self.now, &packet.bytes);
            self.flush();
        }
        for end in &mut self.ends {
            if end.deadline().is_some_and(|at| at <= self.now) {
                end.wake(self.now);
            }
        }
        self.flush();
    }

    /// Until that is so; it takes an hour at most.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&mut World) -> bool) {
        let limit = self.now + Duration::from_secs(3600);
        while !done(self) {
            assert!(self.now < limit, "{what}: {:?}", self.ended());
            self.step();
        }
    }

    fn ended(&self) -> [Option<Ended>; 2] {
        [self.ends[0].ended(), self.ends[1].ended()]
    }

    /// Until whatever acknowledgements are on their way have arrived.
    pub(crate) fn rest(&mut self) {
        let until = self.now + Duration::from_secs(5);
        while self.now < until {
            self.step();
        }
    }

    /// Gives each end its messages, as there is room, until all that is never given up has come; what
    /// came to each end.
    pub(crate) fn exchange(&mut self, posts: [&[Post]; 2]) -> [Vec<(u16, Vec<u8>)>; 2] {
        let mut left = posts;
        let wanted = posts.map(script::lasting);
        self.until("messages are missing", |world| {
            world.alive();
            world.give_both(&mut left);
            let given = left.iter().all(|posts| posts.is_empty());
            given && (0..2).all(|side| wanted[1 - side].within(&world.inbox[side]))
        });
        core::mem::take(&mut self.inbox)
    }

    fn give_both(&mut self, left: &mut [&[Post]; 2]) {
        if self.next.is_some_and(|at| self.now < at) {
            return;
        }
        for (side, posts) in left.iter_mut().enumerate() {
            let most = if self.pace.is_some() { posts.len().min(1) } else { posts.len() };
            *posts = &posts[self.give(side, &posts[..most])..];
        }
        let more = left.iter().any(|posts| !posts.is_empty());
        self.next = self.pace.filter(|_| more).map(|gap| self.now + gap);
    }

    /// Gives an end messages while it has room; how many.
    pub(crate) fn give(&mut self, side: usize, posts: &[Post]) -> usize {
        posts.iter().take_while(|post| self.ends[side].send(self.now, post)).count()
    }

    fn alive(&self) {
        assert_eq!(self.ended(), [None, None]);
    }

    /// Ends the association in order, over a wire that is good by then: where a SHUTDOWN COMPLETE is lost,
    /// what comes after it is answered with an ABORT (RFC 9260 section 8.4), and one end tells of that.
    pub(crate) fn close(&mut self, closer: usize) {
        self.line = GOOD;
        self.rest();
        self.ends[closer].shutdown(self.now);
        self.until_over();
        for ended in self.ended().into_iter().flatten() {
            assert!(matches!(ended, Ended::Orderly | Ended::Somehow), "{ended:?}");
        }
    }

    pub(crate) fn until_over(&mut self) {
        self.until("not over", |world| world.ended().iter().all(Option::is_some));
    }
}
