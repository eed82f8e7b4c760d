//! Who there is, and who is registered where, in the whole mesh: lists that the router makes when they are asked for.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ringway_directory::{Account, ListEnd, Listed, Location, Stated, Subject};
use ringway_directory::{Command, Report};
use ringway_mesh::NodeId;
use ringway_sansio::Time;
use tokio::sync::{mpsc, watch};

use crate::numbers::inbox::Inbox;

/// Time after which a list without an end is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time for which a list that was whole adds what later ones lack that were not: the lifetime of a location.
const WHOLE_AGE: Duration = Duration::from_secs(600);
/// Statements that are known of one subject.
const MAX_STATED: usize = 20_000;

/// The statements of one subject.
struct Gathered<T> {
    /// When the list under way was begun.
    begun: Option<Time>,
    found: Vec<Stated<T>>,
    last: Arc<Vec<Stated<T>>>,
    ended: Option<Time>,
    /// When one ended that was whole.
    whole: Option<Time>,
}

impl<T> Default for Gathered<T> {
    fn default() -> Self {
        Gathered { begun: None, found: Vec::new(), last: Arc::default(), ended: None, whole: None }
    }
}

impl<T: Clone> Gathered<T> {
    /// Returns whether to begin a list now.
    fn begin(&mut self, now: Time) -> bool {
        if self.begun.is_some_and(|begun| now.since(begun) < PATIENCE) {
            return false;
        }
        self.begun = Some(now);
        self.found.clear();
        true
    }

    fn add(&mut self, mut more: Vec<Stated<T>>) {
        if self.begun.is_some() {
            more.truncate(MAX_STATED.saturating_sub(self.found.len()));
            self.found.append(&mut more);
        }
    }

    fn end(&mut self, now: Time, is_whole: bool) {
        if self.begun.take().is_none() {
            return;
        }
        let mut found = std::mem::take(&mut self.found);
        if is_whole {
            self.whole = Some(now);
        } else if self.whole.is_some_and(|whole| now.since(whole) < WHOLE_AGE) {
            found.extend(self.last.iter().cloned());
            // The first is the later one. A list that is whole has no other.
            found.sort_by(|a, b| (&a.name, a.router).cmp(&(&b.name, b.router)));
            found.dedup_by(|a, b| (&a.name, a.router) == (&b.name, b.router));
            found.truncate(MAX_STATED);
        }
        (self.last, self.ended) = (Arc::new(found), Some(now));
    }
}

#[derive(Default)]
struct State {
    accounts: Gathered<Account>,
    locations: Gathered<Location>,
}

impl State {
    fn is_under_way(&self, now: Time) -> bool {
        let begun = [self.accounts.begun, self.locations.begun];
        begun.into_iter().flatten().any(|begun| now.since(begun) < PATIENCE)
    }
}

/// The lists.
pub struct Lists {
    commands: mpsc::Sender<Command>,
    state: Mutex<State>,
    /// Counts lists that have ended.
    ended: watch::Sender<u64>,
    /// Learns which routers have users.
    homes: OnceLock<Arc<Inbox>>,
}

impl Lists {
    /// The lists of a router that takes these commands.
    pub fn new(commands: mpsc::Sender<Command>) -> Self {
        let ended = watch::Sender::new(0);
        Lists { commands, state: Mutex::default(), ended, homes: OnceLock::new() }
    }

    /// Sets who learns which routers have users. Only the first call has an effect.
    pub(crate) fn set_homes(&self, inbox: Arc<Inbox>) {
        let _ = self.homes.set(inbox);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a list, unless one is under way.
    pub fn request(&self, subject: Subject, now: Time) {
        let mut state = self.lock();
        let is_new = match subject {
            Subject::Accounts => state.accounts.begin(now),
            Subject::Locations => state.locations.begin(now),
        };
        if is_new && self.commands.try_send(Command::List { subject }).is_err() {
            match subject {
                Subject::Accounts => state.accounts.begun = None,
                Subject::Locations => state.locations.begun = None,
            }
        }
    }

    /// Takes a report of the router.
    pub fn handle(&self, report: Report, now: Time) {
        let mut state = self.lock();
        match report {
            Report::Listed(Listed::Accounts(more)) => return state.accounts.add(more),
            Report::Listed(Listed::Locations(more)) => return state.locations.add(more),
            // Another list is under way, or too many.
            Report::ListEnded { subject: Subject::Accounts, end: None } => {
                state.accounts.begun = None
            }
            Report::ListEnded { subject: Subject::Locations, end: None } => {
                state.locations.begun = None;
            }
            Report::ListEnded { subject: Subject::Accounts, end: Some(end) } => {
                state.accounts.end(now, end == ListEnd::Whole);
                if let Some(inbox) = self.homes.get() {
                    let accounts = &state.accounts.last;
                    let mut homes: Vec<NodeId> = accounts.iter().map(|one| one.router).collect();
                    homes.sort();
                    homes.dedup();
                    inbox.homes(homes, accounts.len());
                }
            }
            Report::ListEnded { subject: Subject::Locations, end: Some(end) } => {
                state.locations.end(now, end == ListEnd::Whole);
            }
            _ => return,
        }
        drop(state);
        self.ended.send_modify(|count| *count += 1);
    }

    /// Returns who there is, as of the last list.
    pub fn accounts(&self) -> Arc<Vec<Stated<Account>>> {
        self.lock().accounts.last.clone()
    }

    /// Returns who is registered where, as of the last list.
    pub fn locations(&self) -> Arc<Vec<Stated<Location>>> {
        self.lock().locations.last.clone()
    }

    /// Has both lists not be older than `age`: waits until new ones have ended, or for `patience`.
    pub async fn refresh(&self, now: Time, age: Duration, patience: Duration) {
        let mut ended = self.ended.subscribe();
        let is_old = |at: Option<Time>| at.is_none_or(|at| now.since(at) >= age);
        let (accounts, locations) = {
            let state = self.lock();
            (is_old(state.accounts.ended), is_old(state.locations.ended))
        };
        if accounts {
            self.request(Subject::Accounts, now);
        }
        if locations {
            self.request(Subject::Locations, now);
        }
        let both =
            async { while self.lock().is_under_way(now) && ended.changed().await.is_ok() {} };
        // What is there by then has to do.
        let _ = tokio::time::timeout(patience, both).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(name: &str, router: u64, password_set: u32) -> Stated<Account> {
        let value = Account { password_set, ..Account::default() };
        Stated { name: name.into(), router: NodeId::new(router), value }
    }

    fn lists() -> (Lists, mpsc::Receiver<Command>) {
        let (commands, commanded) = mpsc::channel(8);
        (Lists::new(commands), commanded)
    }

    fn list(lists: &Lists, now: u64, found: &[Stated<Account>], end: ListEnd) {
        let now = Time::from_secs(now);
        lists.request(Subject::Accounts, now);
        lists.handle(Report::Listed(Listed::Accounts(found.to_vec())), now);
        lists.handle(Report::ListEnded { subject: Subject::Accounts, end: Some(end) }, now);
    }

    fn names(lists: &Lists) -> Vec<String> {
        let accounts = lists.accounts();
        let line = |one: &Stated<Account>| format!("{} {}", one.name, one.value.password_set);
        let mut lines: Vec<String> = accounts.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn what_a_partial_list_lacks_stays_for_a_while() {
        let (lists, _commanded) = lists();
        let (alice, bob) = (stated("alice@mesh", 1, 5), stated("bob@mesh", 2, 5));
        list(&lists, 100, &[bob.clone(), alice.clone()], ListEnd::Whole);
        assert_eq!(names(&lists), ["alice@mesh 5", "bob@mesh 5"]);
        list(&lists, 200, &[stated("alice@mesh", 1, 6)], ListEnd::Partial);
        assert_eq!(names(&lists), ["alice@mesh 6", "bob@mesh 5"]);
        list(&lists, 701, &[stated("alice@mesh", 1, 7)], ListEnd::Partial);
        assert_eq!(names(&lists), ["alice@mesh 7"]);
        list(&lists, 800, &[bob], ListEnd::Whole);
        assert_eq!(names(&lists), ["bob@mesh 5"]);
    }

    #[test]
    fn one_list_is_under_way_at_a_time_and_one_without_an_end_is_given_up() {
        let (lists, mut commanded) = lists();
        let mut asked = |now| {
            lists.request(Subject::Accounts, Time::from_secs(now));
            commanded.try_recv().is_ok()
        };
        assert!(asked(100) && !asked(101) && !asked(219) && asked(220));
        lists.handle(Report::ListEnded { subject: Subject::Accounts, end: None }, Time::ZERO);
        assert!(asked(221));
    }

    #[tokio::test]
    async fn who_asks_waits_for_new_lists_but_not_for_ever() {
        let (lists, mut commanded) = lists();
        let lists = Arc::new(lists);
        let (now, age) = (Time::from_secs(100), Duration::from_secs(30));
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(600));
        lists.refresh(now, age, short).await;
        let waiting = {
            let lists = lists.clone();
            tokio::spawn(async move { lists.refresh(now, age, long).await })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        for subject in [Subject::Accounts, Subject::Locations] {
            assert_eq!(commanded.try_recv(), Ok(Command::List { subject }));
            lists.handle(Report::ListEnded { subject, end: Some(ListEnd::Whole) }, now);
        }
        waiting.await.unwrap();
        // They are new enough.
        lists.refresh(now + Duration::from_secs(29), age, long).await;
        assert!(commanded.try_recv().is_err());
    }
}
