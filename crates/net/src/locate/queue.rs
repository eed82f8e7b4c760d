//! Questions to DNS in progress, and the order of those that wait.
//!
//! Each question is charged to the source on whose behalf it is asked. Sources take turns. Each has a share
//! of the concurrent questions, of the questions that wait for their turn, and of the callers that wait for
//! answers ([`Shares`]). So names that are slow to resolve delay only the sources that ask for them.

use super::order::Query;
use crate::share::Shares;
use ringway_sansio::Hop;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use tokio::sync::oneshot;

/// Maximum number of concurrent questions.
pub const MAX_ASKED: usize = 512;
/// Maximum number of concurrent questions of one source.
pub const MAX_ASKED_OF_SOURCE: usize = 32;
/// Maximum number of questions that wait for their turn.
pub const MAX_QUEUED: usize = 4_096;
/// Maximum number of questions of one source that wait for their turn.
pub const MAX_QUEUED_OF_SOURCE: usize = 64;
/// Maximum number of callers that wait for answers.
pub const MAX_WAITING: usize = 16_384;
/// Maximum number of callers of one source that wait for answers.
pub const MAX_WAITING_OF_SOURCE: usize = 1_024;

/// A caller that waits for an answer.
pub(crate) struct Waiter {
    /// As returned by [`source_of`](ringway_flow::source_of).
    pub(crate) source: IpAddr,
    /// Decides the order of servers of equal priority.
    pub(crate) seed: u64,
    pub(crate) done: Box<dyn FnOnce(Vec<Hop>) + Send>,
}

/// The error of a share that is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShareExhausted;

enum Stage {
    /// Waits for its turn, which this grants.
    Queued(oneshot::Sender<()>),
    Asked,
}

struct Question {
    /// The source that it is charged to.
    source: IpAddr,
    stage: Stage,
    waiters: Vec<Waiter>,
}

/// The questions in progress.
pub(crate) struct Queue {
    questions: HashMap<Query, Question>,
    asked: Shares,
    queued: Shares,
    waiting: Shares,
    /// The questions that wait for their turn, by source, and the sources in the order of their turns.
    queues: HashMap<IpAddr, VecDeque<Query>>,
    turns: VecDeque<IpAddr>,
}

impl Queue {
    /// Creates a queue with at most `asked` concurrent questions.
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

    /// Returns the number of questions in progress.
    pub(crate) fn len(&self) -> usize {
        self.questions.len()
    }

    /// Adds a new question; `turn` is notified when it may be asked.
    pub(crate) fn begin(
        &mut self,
        query: &Query,
        waiter: Option<Waiter>,
        source: IpAddr,
        turn: oneshot::Sender<()>,
    ) -> Result<(), ShareExhausted> {
        if waiter.as_ref().is_some_and(|w| !self.waiting.take(w.source)) {
            return Err(ShareExhausted);
        }
        let stage = if !self.queues.contains_key(&source) && self.asked.take(source) {
            grant(turn)
        } else if self.queued.take(source) {
            self.push(source, query);
            Stage::Queued(turn)
        } else {
            waiter.iter().for_each(|w| self.waiting.release(w.source));
            return Err(ShareExhausted);
        };
        let waiters = Vec::from_iter(waiter);
        self.questions.insert(query.clone(), Question { source, stage, waiters });
        Ok(())
    }

    /// Adds a caller to a question in progress. If the question waits for the turn of a source that asks more
    /// than the caller's, it is charged to the caller's from now on.
    pub(crate) fn join(&mut self, query: &Query, waiter: Waiter) -> Result<(), ShareExhausted> {
        let source = waiter.source;
        let Some(question) = self.questions.get_mut(query) else { return Err(ShareExhausted) };
        if !self.waiting.take(source) {
            return Err(ShareExhausted);
        }
        question.waiters.push(waiter);
        if matches!(question.stage, Stage::Queued(_)) {
            self.charge(query, source);
        }
        Ok(())
    }

    /// Charges a question that waits for its turn to another source, if its turn comes sooner then.
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

    /// Removes and returns the callers of a question, which continues.
    pub(crate) fn take_waiters(&mut self, query: &Query) -> Vec<Waiter> {
        let Some(question) = self.questions.get_mut(query) else { return Vec::new() };
        let waiters = std::mem::take(&mut question.waiters);
        waiters.iter().for_each(|w| self.waiting.release(w.source));
        waiters
    }

    /// Removes a question that has ended, asked or not. Returns its callers, and grants the next turns.
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

    /// Grants turns for as long as there is a source that may have one.
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

    /// Removes a question from the queue of its source.
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
    // If the receiver is dropped, the question has ended otherwise, and `finish` follows.
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

        /// The questions that were granted a turn since the last call.
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
    fn a_source_asks_and_queues_its_share_and_delays_no_other() {
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

    /// A source that queues a name behind many slow ones does not delay it for others.
    #[test]
    fn a_name_is_asked_in_the_earliest_turn_of_its_sources() {
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
