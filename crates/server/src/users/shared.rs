//! What others ask of the thread of the database, and see of it. Knows nothing of the store, which has it.

use crate::store::users::HashedUser;
use ringway_net::Clock;
use ringway_sansio::Time;
use ringway_users::{Domains, Position};
use serde::{Deserialize, Serialize};
use std::sync::mpsc::{RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

/// Maximum number of changes that wait for the database. Each has a connection of its own.
pub(crate) const MAX_CHANGES: usize = 16;
/// The same of requests to remove missing users, which wait until everything is read.
pub(crate) const MAX_PRUNES: usize = 1;
/// Time in which a change is answered. Longer than all of its steps.
const ANSWER_LIMIT: Duration = Duration::from_secs(11);
/// Time in which everything is read.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(300);
/// Time in which missing users are removed: everything is read before.
pub(crate) const PRUNE_LIMIT: Duration = READ_LIMIT.saturating_add(Duration::from_secs(5));
/// Time that a command waits for it.
pub(crate) const PRUNE_COMMAND_LIMIT: Duration =
    PRUNE_LIMIT.saturating_add(Duration::from_secs(10));
/// Time in which a change of few users is carried out.
#[cfg(feature = "cluster")]
const CHANGE_LIMIT: Duration = Duration::from_secs(5);
/// Further time for each user of a change.
#[cfg(feature = "cluster")]
const USER_LIMIT: Duration = Duration::from_micros(500);
/// Time that a start waits for the first read.
const START_LIMIT: Duration = Duration::from_secs(3);

/// Which of the users of a change must exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// None.
    New,
    /// All.
    Existing,
    /// It does not matter.
    Any,
}

/// A change of users.
#[derive(Clone, Debug)]
pub enum Change {
    /// Sets the hashes of users, all or none.
    Put(Vec<HashedUser>, Expected),
    /// Removes a user with its realm.
    Remove(String, String),
    /// Removes all that the database does not have any more, however many.
    Prune,
}

impl Change {
    /// Returns the time in which it is carried out.
    #[cfg(feature = "cluster")]
    pub(super) fn limit(&self) -> Duration {
        match self {
            Change::Put(users, _) => CHANGE_LIMIT + USER_LIMIT * users.len() as u32,
            Change::Remove(..) => CHANGE_LIMIT,
            Change::Prune => PRUNE_LIMIT,
        }
    }

    /// Returns the time in which it is answered.
    fn answer_limit(&self) -> Duration {
        match self {
            Change::Put(..) | Change::Remove(..) => ANSWER_LIMIT,
            Change::Prune => PRUNE_LIMIT + Duration::from_secs(1),
        }
    }
}

/// What has become of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changed {
    /// The database has it.
    Done(Position),
    /// A user exists already, so nothing was changed.
    Exists(String),
    /// A user does not exist, so nothing was changed.
    Missing(String),
}

impl Changed {
    /// Returns whether the database has the change.
    ///
    /// # Errors
    /// Says why it was not made.
    pub fn done(self) -> Result<(), String> {
        match self {
            Changed::Done(_) => Ok(()),
            Changed::Exists(name) => Err(format!("user {name} exists already")),
            Changed::Missing(name) => Err(format!("user {name} does not exist")),
        }
    }
}

/// Why a change could not be carried out, and what has become of it.
#[cfg(feature = "cluster")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// Nothing was changed.
    Unchanged(String),
    /// The answer to the change is missing or has another form.
    Unknown(String),
    /// The change was made, though not as safely as expected.
    Made(String),
}

#[cfg(feature = "cluster")]
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (why, then) = match self {
            Failure::Unchanged(why) => (why, "nothing was changed"),
            Failure::Unknown(why) => (why, "the change may have been made"),
            Failure::Made(why) => (why, "the change was made, and may be lost"),
        };
        write!(f, "the database of users: {why}: {then}")
    }
}

/// What is known of the database, and what was counted.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Whether it has answered last.
    pub present: bool,
    /// When it was read last.
    pub refreshed: Option<Time>,
    /// Rows that were no users when everything was read.
    pub unusable: u64,
    /// Users that the database does not have any more, and that stay.
    pub withheld: u64,
    /// Users whose change is not in the file yet.
    pub unsaved: u64,
    /// Times at which the database became absent.
    pub outages: u64,
    /// Times that everything was read.
    pub reads: u64,
    /// Users that were set or removed for the database.
    pub applied: u64,
    /// Changes that could not be carried out.
    pub failed: u64,
    /// Why the database was absent last.
    pub why: String,
}

/// The database of users in the status.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UsersStatus {
    /// The database, without its password, and the table.
    pub name: String,
    /// Whether it has answered last.
    pub present: bool,
    /// Seconds since it was read last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Why it was absent last.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub failure: String,
    /// Rows that are no users.
    pub unusable: u64,
    /// Users that it does not have any more, and that stay.
    pub withheld: u64,
}

impl UsersStatus {
    /// Describes it in one line.
    pub(crate) fn text(&self) -> String {
        let age = match (self.present, self.age_seconds) {
            (true, Some(age)) => format!("read {age} s ago"),
            (false, Some(age)) => format!("DOES NOT ANSWER since {age} s ({})", self.failure),
            (_, None) => format!("WAS NEVER READ ({})", self.failure),
        };
        let mut out = format!("of {}, {age}", self.name);
        if self.unusable > 0 {
            out.push_str(&format!(", {} rows are no users", self.unusable));
        }
        if self.withheld > 0 {
            out.push_str(&format!(", {} users are missing there and stay", self.withheld));
        }
        out
    }
}

/// A change, and who waits for it.
pub(super) struct Request {
    pub(super) change: Change,
    pub(super) reply: SyncSender<Result<Changed, String>>,
}

/// What the thread and others share.
pub(super) struct Shared {
    /// The database, for people.
    pub(super) name: String,
    /// Why users cannot be changed here.
    read_only: Option<String>,
    numbers: Mutex<Numbers>,
    clock: Clock,
    /// The domains of this server, for rows of other programs.
    domains: Mutex<Arc<Domains>>,
    /// Has the thread read everything.
    pub(super) ask: Notify,
    /// The first read has ended, well or not.
    first: (Mutex<bool>, Condvar),
}

impl Shared {
    pub(super) fn new(
        name: String,
        read_only: Option<String>,
        domains: Domains,
        clock: Clock,
    ) -> Self {
        Shared {
            name,
            read_only,
            numbers: Mutex::default(),
            clock,
            domains: Mutex::new(Arc::new(domains)),
            ask: Notify::new(),
            first: Default::default(),
        }
    }

    pub(super) fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "cluster")]
    pub(super) fn domains(&self) -> Arc<Domains> {
        self.domains.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[cfg(feature = "cluster")]
    pub(super) fn end_first(&self) {
        *self.first.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.first.1.notify_all();
    }
}

/// Has the status show that the thread has ended, also by a panic, which would leave all users as they are for ever.
#[cfg(feature = "cluster")]
pub(super) struct Ends(pub(super) Arc<Shared>);

#[cfg(feature = "cluster")]
impl Drop for Ends {
    fn drop(&mut self) {
        let mut numbers = self.0.numbers();
        numbers.present = false;
        "the thread of the database has ended: restart the server".clone_into(&mut numbers.why);
        drop(numbers);
        self.0.end_first();
        if std::thread::panicking() {
            tracing::error!("the database of users is not read any more: restart the server");
        }
    }
}

/// Where users are changed, and what is known of the database.
#[derive(Clone)]
pub struct SharedUsers {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    changes: Arc<Semaphore>,
    prunes: Arc<Semaphore>,
}

/// The right to wait for the database. It is held as long as the change is waited for.
pub(crate) struct Admission {
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    fn of(permit: OwnedSemaphorePermit) -> Self {
        Admission { _permit: permit }
    }
}

impl SharedUsers {
    /// Returns the database, and where its thread takes requests.
    pub(super) fn new(shared: Arc<Shared>) -> (Self, mpsc::Receiver<Request>) {
        let (requests, receiver) = mpsc::channel(MAX_CHANGES + MAX_PRUNES);
        let changes = Arc::new(Semaphore::new(MAX_CHANGES));
        let prunes = Arc::new(Semaphore::new(MAX_PRUNES));
        (SharedUsers { shared, requests, changes, prunes }, receiver)
    }

    /// Admits a change, unless too many wait. Does not wait itself.
    ///
    /// # Errors
    /// Says how many wait.
    pub(crate) fn admit(&self) -> Result<Admission, String> {
        self.changes.clone().try_acquire_owned().map(Admission::of).map_err(|_| {
            self.shared.numbers().failed += 1;
            format!(
                "the database of users is busy: {MAX_CHANGES} changes wait for it already: nothing was changed"
            )
        })
    }

    /// Admits a request to remove missing users, unless one waits.
    ///
    /// # Errors
    /// Says that one waits.
    pub(crate) fn admit_prune(&self) -> Result<Admission, String> {
        self.prunes.clone().try_acquire_owned().map(Admission::of).map_err(|_| {
            self.shared.numbers().failed += 1;
            "another command removes missing users already".to_owned()
        })
    }

    /// Carries out a change, and waits until the database has it. A worker must not call it. It is admitted before.
    ///
    /// # Errors
    /// Says why it could not be carried out, and whether it may have been nevertheless.
    pub fn change(&self, change: Change) -> Result<Changed, String> {
        if let (Some(why), false) = (&self.shared.read_only, matches!(change, Change::Prune)) {
            return Err(why.clone());
        }
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        let limit = change.answer_limit();
        self.requests.try_send(Request { change, reply }).map_err(|e| match e {
            TrySendError::Full(_) => "the database of users is busy: nothing was changed",
            TrySendError::Closed(_) => {
                "the thread of the database of users has ended: nothing was changed"
            }
        })?;
        let result = answer.recv_timeout(limit).unwrap_or_else(|e| {
            Err(match e {
                RecvTimeoutError::Timeout => {
                    "the database of users does not answer: the change may have been made, or may follow"
                }
                RecvTimeoutError::Disconnected => {
                    "the thread of the database of users has ended: the change may have been made"
                }
            }
            .to_owned())
        });
        if result.is_err() {
            self.shared.numbers().failed += 1;
        }
        result
    }

    /// Returns what is known of the database, and what was counted.
    pub fn numbers(&self) -> Numbers {
        self.shared.numbers().clone()
    }

    /// Returns how long ago the database was read; `None` if it never was.
    pub fn age(&self) -> Option<Duration> {
        let now = self.shared.clock.now();
        self.shared.numbers().refreshed.map(|then| now.since(then))
    }

    /// Returns the database for the status.
    pub fn status(&self) -> UsersStatus {
        let (numbers, age) = (self.numbers(), self.age());
        UsersStatus {
            name: self.shared.name.clone(),
            present: numbers.present,
            age_seconds: age.map(|age| age.as_secs()),
            failure: if numbers.present { String::new() } else { numbers.why },
            unusable: numbers.unusable,
            withheld: numbers.withheld,
        }
    }

    /// Sets the domains of this server. Rows of other programs are read again.
    pub fn set_domains(&self, domains: Domains) {
        *self.shared.domains.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(domains);
        self.shared.ask.notify_one();
    }

    /// Waits until the database was read, or could not be, but not for long. With `insists` it may be tried several times.
    /// Returns whether it was read.
    pub(crate) fn wait_for_first(&self, insists: bool) -> bool {
        let (lock, ended) = &self.shared.first;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |ended: &mut bool| !*ended || (insists && !self.shared.numbers().present);
        drop(ended.wait_timeout_while(guard, START_LIMIT, goes_on));
        self.shared.numbers().present
    }
}

#[cfg(test)]
impl SharedUsers {
    /// Returns a database that answers nothing until what is returned besides is dropped.
    pub(crate) fn without_answers() -> (Self, Box<dyn std::any::Any + Send>) {
        let shared = Shared::new("a database".to_owned(), None, Domains::default(), Clock::new());
        let (users, requests) = SharedUsers::new(Arc::new(shared));
        (users, Box::new(requests))
    }

    /// Returns the numbers of changes and of requests to remove missing users that wait.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let (changes, prunes) = (&self.changes, &self.prunes);
        (MAX_CHANGES - changes.available_permits(), MAX_PRUNES - prunes.available_permits())
    }
}
