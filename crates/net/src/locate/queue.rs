//! Questions to the DNS that are under way, and whose turn is next.
//!
//! Each question is charged to the source on whose behalf it is asked. Sources take turns; each has a share
//! of the questions asked at once, of those that wait for their turn, and of the callers that wait for
//! answers ([`Shares`]). So names that are slow to resolve hold up only those who ask for them.

use super::order::Query;
use crate::share::Shares;
use ringway_sansio::Hop;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use tokio::sync::oneshot;

/// Questions asked at once, and those of one source.
pub const MAX_ASKED: usize = 512;
/// See [`MAX_ASKED`].
pub const MAX_ASKED_OF_SOURCE: usize = 32;
/// Questions that wait for their turn, and those of one source.
pub const MAX_QUEUED: usize = 4_096;
/// See [`MAX_QUEUED`].
pub const MAX_QUEUED_OF_SOURCE: usize = 64;
/// Callers that wait for answers, and those of one source.
pub const MAX_WAITING: usize = 16_384;
/// See [`MAX_WAITING`].
pub const MAX_WAITING_OF_SOURCE: usize = 1_024;

/// Who waits for an answer.
pub(crate) struct Waiter {
    /// As [`source_of`](ringway_flow::source_of) has it.
    pub(crate) source: IpAddr,
    /// Decides the order of servers of equal standing.
    pub(crate) seed: u64,
    pub(crate) done: Box<dyn FnOnce(Vec<Hop>) + Send>,
}

/// A share is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refused;

enum Stage {
    /// Waits for its turn, which is granted by this.
    Queued(oneshot::Sender<()>),
    Asked,
}

struct Question {
    /// Whom it is charged to.
    source: IpAddr,
    stage: Stage,
    waiters: Vec<Waiter>,
}

/// The questions under way.
pub(crate) struct Queue {
    questions: HashMap<Query, Question>,
    asked: Shares,
    queued: Shares,
    waiting: Shares,
    /// What waits for its turn, by source, and the sources in the order of their turns.
    queues: HashMap<IpAddr, VecDeque<Query>>,
    turns: VecDeque<IpAddr>,
}

impl Queue {
    /// Asks at most `asked` questions at once.
    pub(crate) fn new(asked: usize) -> Self {
        Queue {
            questions: HashMap::new(),
            asked: Shares::new(asked.min(MAX_ASKED), MAX_ASKED_OF_SOURCE),
            queued: Shares::new(MAX_QUEUED, MAX_QUEUED_OF_SOURCE),
            waiting: Shares::new(MAX_WAITING, MAX_WAITING_OF_SOURCE),
            queues: HashMap::new(),
            turns: VecDeque::new(),
        }
    }

    pub(crate) fn contains(&self, query: &Query) -> bool {
        self.questions.contains_key(query)
    }

    /// How many questions are under way.
    pub(crate) fn len(&self) -> usize {
        self.questions.len()
    }

    /// Enters a new question; `turn` is sent to when it may be asked.
    pub(crate) fn begin(
        &mut self,
        query: &Query,
        waiter: Option<Waiter>,
        source: IpAddr,
        turn: oneshot::Sender<()>,
    ) -> Result<(), Refused> {
        if waiter.as_ref().is_some_and(|w| !self.waiting.take(w.source)) {
            return Err(Refused);
        }
        let stage = if !self.queues.contains_key(&source) && self.asked.take(source) {
            grant(turn)
        } else if self.queued.take(source) {
            self.push(source, query);
            Stage::Queued(turn)
        } else {
            waiter.iter().for_each(|w| self.waiting.release(w.source));
            return Err(Refused);
        };
        let waiters = Vec::from_iter(waiter);
        self.questions.insert(query.clone(), Question { source, stage, waiters });
        Ok(())
    }

    /// Waits for a question that is under way. If that waits for the turn of a source that asks more than
    /// this one, it is charged to this one from now on.
    pub(crate) fn join(&mut self, query: &Query, waiter: Waiter) -> Result<(), Refused> {
        let source = waiter.source;
        let Some(question) = self.questions.get_mut(query) else { return Err(Refused) };
        if !self.waiting.take(source) {
            return Err(Refused);
        }
        question.waiters.push(waiter);
        if matches!(question.stage, Stage::Queued(_)) {
            self.charge(query, source);
        }
        Ok(())
    }

    /// Charges a question that waits for its turn to another source, if it is sooner asked then.
    fn charge(&mut self, query: &Query, to: IpAddr) {
        let Some(question) = self.questions.get_mut(query) else { return };
        let from = question.source;
        let ask = !self.queues.contains_key(&to) && self.asked.take(to);
        if !ask && (self.queued.of(to) + 1 >= self.queued.of(from) || !self.queued.take(to)) {
            return;
        }
        question.source = to;
        if ask {
            let stage = std::mem::replace(&mut question.stage, Stage::Asked);
            question.stage = granted(stage);
        }
        self.pull(from, query);
        if !ask {
            self.push(to, query);
        }
    }

    /// Takes those who wait for a question, which goes on.
    pub(crate) fn take_waiters(&mut self, query: &Query) -> Vec<Waiter> {
        let Some(question) = self.questions.get_mut(query) else { return Vec::new() };
        let waiters = std::mem::take(&mut question.waiters);
        waiters.iter().for_each(|w| self.waiting.release(w.source));
        waiters
    }

    /// A question has ended, asked or not: returns who waits for it, and lets others have their turn.
    pub(crate) fn finish(&mut self, query: &Query) -> Vec<Waiter> {
        let waiters = self.take_waiters(query);
        if let Some(question) = self.questions.remove(query) {
            match question.stage {
                Stage::Asked => self.asked.release(question.source),
                Stage::Queued(_) => self.pull(question.source, query),
            }
        }
        self.advance();
        waiters
    }

    /// Gives turns for as long as there is a source that may have one.
    fn advance(&mut self) {
        let mut passed = 0;
        while passed < self.turns.len() && self.asked.left() > 0 {
            let Some(source) = self.turns.pop_front() else { return };
            self.turns.push_back(source);
            if !self.asked.take(source) {
                passed += 1;
                continue;
            }
            passed = 0;
            let Some(query) = self.queues.get(&source).and_then(|q| q.front()).cloned() else {
                self.asked.release(source);
                return;
            };
            self.pull(source, &query);
            if let Some(question) = self.questions.get_mut(&query) {
                let stage = std::mem::replace(&mut question.stage, Stage::Asked);
                question.stage = granted(stage);
            }
        }
    }

    fn push(&mut self, source: IpAddr, query: &Query) {
        let queue = self.queues.entry(source).or_insert_with(|| {
            self.turns.push_back(source);
            VecDeque::new()
        });
        queue.push_back(query.clone());
    }

    /// Takes a question out of the queue of its source.
    fn pull(&mut self, source: IpAddr, query: &Query) {
        let Some(queue) = self.queues.get_mut(&source) else { return };
        let Some(index) = queue.iter().position(|q| q == query) else { return };
        queue.remove(index);
        self.queued.release(source);
        if queue.is_empty() {
            self.queues.remove(&source);
            self.turns.retain(|s| *s != source);
        }
    }
}

fn grant(turn: oneshot::Sender<()>) -> Stage {
    // Whoever waited for it has ended otherwise, and says so by `finish`.
    let _ = turn.send(());
    Stage::Asked
}

fn granted(stage: Stage) -> Stage {
    match stage {
        Stage::Queued(turn) => grant(turn),
        Stage::Asked => Stage::Asked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(host: &str) -> Query {
        Query { host: host.into(), port: None, transport: None, secure: false }
    }

    fn ip(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    fn waiter(source: IpAddr) -> Waiter {
        Waiter { source, seed: 0, done: Box::new(|_| {}) }
    }

    struct World(Queue, Vec<(Query, oneshot::Receiver<()>)>);

    impl World {
        fn new() -> Self {
            World(Queue::new(MAX_ASKED), Vec::new())
        }

        fn ask(&mut self, source: IpAddr, host: &str) -> bool {
            let (turn, granted) = oneshot::channel();
            let query = query(host);
            let begun = self.0.begin(&query, Some(waiter(source)), source, turn).is_ok();
            if begun {
                self.1.push((query, granted));
            }
            begun
        }

        /// Those that may be asked since this was called last.
        fn granted(&mut self) -> Vec<String> {
            let mut granted = Vec::new();
            self.1.retain_mut(|(query, turn)| {
                let now = turn.try_recv().is_ok();
                if now {
                    granted.push(query.host.to_string());
                }
                !now
            });
            granted
        }
    }

    #[test]
    fn a_source_asks_its_share_queues_its_share_and_holds_up_nobody() {
        let mut w = World::new();
        let taken = (0..1_500).filter(|n| w.ask(ip(1), &format!("slow{n}"))).count();
        assert_eq!(taken, MAX_ASKED_OF_SOURCE + MAX_QUEUED_OF_SOURCE);
        assert_eq!(w.granted().len(), MAX_ASKED_OF_SOURCE);
        for n in 2..100 {
            assert!(w.ask(ip(n), &format!("good{n}")));
            assert_eq!(w.granted(), [format!("good{n}")]);
        }
    }

    #[test]
    fn sources_take_turns() {
        let mut w = World(Queue::new(2), Vec::new());
        for n in 0..6 {
            assert!(w.ask(ip(1), &format!("a{n}")));
        }
        assert_eq!(w.granted(), ["a0"]);
        assert!(w.ask(ip(2), "b0") && w.ask(ip(2), "b1") && w.ask(ip(3), "c0"));
        assert_eq!(w.granted(), ["b0"]);
        let mut order = Vec::new();
        let mut asked = vec!["a0".to_owned(), "b0".to_owned()];
        while let Some(next) = asked.pop() {
            w.0.finish(&query(&next));
            let granted = w.granted();
            order.extend(granted.clone());
            asked.extend(granted);
        }
        assert_eq!(order, ["b1", "c0", "a1", "a2", "a3", "a4", "a5"]);
        assert!(w.0.questions.is_empty() && w.0.queues.is_empty() && w.0.turns.is_empty());
        assert_eq!((w.0.asked.used(), w.0.queued.used(), w.0.waiting.used()), (0, 0, 0));
    }

    /// Somebody who puts a name behind many slow ones keeps it from nobody else.
    #[test]
    fn a_name_is_asked_in_the_turn_of_whoever_waits_least_for_it() {
        let mut w = World::new();
        for n in 0..60 {
            assert!(w.ask(ip(1), &format!("slow{n}")));
        }
        assert!(w.ask(ip(1), "wanted"));
        w.granted();
        assert_eq!(w.0.join(&query("wanted"), waiter(ip(2))), Ok(()));
        assert_eq!(w.granted(), ["wanted"]);
        assert_eq!(w.0.finish(&query("wanted")).len(), 2);
        for n in 0..60 {
            w.0.finish(&query(&format!("slow{n}")));
        }
        assert_eq!((w.0.asked.used(), w.0.queued.used(), w.0.len()), (0, 0, 0));
    }

    #[test]
    fn callers_that_wait_are_bounded() {
        let mut w = World::new();
        assert!(w.ask(ip(1), "x"));
        let joined = (0..MAX_WAITING).filter(|_| w.0.join(&query("x"), waiter(ip(1))).is_ok());
        assert_eq!(joined.count(), MAX_WAITING_OF_SOURCE - 1);
        assert!(!w.ask(ip(1), "y"), "none more of this source");
        assert_eq!(w.0.join(&query("x"), waiter(ip(2))), Ok(()));
        assert_eq!(w.0.take_waiters(&query("x")).len(), MAX_WAITING_OF_SOURCE + 1);
        assert!(w.0.contains(&query("x")));
        assert_eq!(w.0.waiting.used(), 0);
        assert!(w.0.finish(&query("x")).is_empty());
    }
}
