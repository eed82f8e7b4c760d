//! The book of the moment. It is made when somebody asks, and not again for some seconds.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ringway_directory::Account;
use ringway_mesh::NodeId;
use ringway_mesh::identity::HASH_EXTENSION_BITS;
use ringway_phonebook::Book;
use ringway_phonebook::book::MAX_ENTRIES;
use ringway_sansio::Time;
use tokio::sync::Mutex;

use super::entries::Known;
use super::{PhonebookCounts, Sources};

/// Time for which a book is as good as a new one.
const BOOK_AGE: Duration = Duration::from_secs(5);
/// Time for which lists of the mesh are as good as new ones, at least and for each user: each costs messages at all routers.
const LIST_AGE: Duration = Duration::from_secs(30);
const LIST_AGE_OF_USER: Duration = Duration::from_millis(30);
/// Time for which a request waits for lists. What is there by then has to do.
const PATIENCE: Duration = Duration::from_secs(3);

/// Makes books.
pub(super) struct Library {
    sources: Sources,
    counts: Arc<PhonebookCounts>,
    /// Those who ask while one is made wait for it.
    current: Mutex<Option<(Time, Arc<Book>)>>,
}

impl Library {
    pub(super) fn new(sources: Sources, counts: Arc<PhonebookCounts>) -> Self {
        Library { sources, counts, current: Mutex::default() }
    }

    /// Returns the book.
    pub(super) async fn book(&self) -> Arc<Book> {
        let clock = self.sources.clock;
        let mut current = self.current.lock().await;
        if let Some((made, book)) = &*current
            && clock.now().since(*made) < BOOK_AGE
        {
            return book.clone();
        }
        if let Some((_, lists)) = &self.sources.mesh {
            let users = u32::try_from(lists.accounts().len()).unwrap_or(u32::MAX);
            let age = LIST_AGE.max(LIST_AGE_OF_USER.saturating_mul(users));
            lists.refresh(clock.now(), age, PATIENCE).await;
        }
        let book = Arc::new(self.make(clock.now()));
        *current = Some((clock.now(), book.clone()));
        book
    }

    /// Returns the users of this server; of more than a book has, only those who are registered.
    fn users(&self, registered: &HashSet<Box<str>>) -> Vec<(Box<str>, Account)> {
        let Sources { domain, store, .. } = &self.sources;
        if store.users().len() <= MAX_ENTRIES {
            let users = store.accounts().into_iter().filter(|(_, realm, _)| realm == domain);
            return users
                .map(|(user, realm, of)| (format!("{user}@{realm}").into(), of.0))
                .collect();
        }
        let account = |name: &str| {
            let (user, realm) = name.rsplit_once('@').filter(|(_, realm)| realm == domain)?;
            Some((name.into(), store.account(user, realm)?.0))
        };
        registered.iter().filter_map(|name| account(name)).collect()
    }

    fn make(&self, now: Time) -> Book {
        let Sources { domain, store, mesh, .. } = &self.sources;
        let (accounts, locations) = match mesh {
            Some((_, lists)) => (lists.accounts(), lists.locations()),
            None => Default::default(),
        };
        let own = mesh.as_ref().and_then(|(exchange, _)| exchange.id());
        let mut registered: HashSet<Box<str>> = HashSet::new();
        store.each_registered(now, &mut |aor| {
            let name = aor.strip_prefix(b"sip:").and_then(|name| std::str::from_utf8(name).ok());
            let name = name.filter(|_| registered.len() < MAX_ENTRIES);
            registered.extend(name.map(Box::from));
        });
        let known = Known {
            domain,
            // Nobody has this id.
            own: own.unwrap_or(NodeId::new(0)),
            bits: HASH_EXTENSION_BITS,
            users: self.users(&registered),
            registered,
            accounts: &accounts,
            locations: &locations,
        };
        let (book, dropped) = known.book(now);
        self.counts.entries.store(book.listed().len() as u64, Relaxed);
        self.counts.dropped.store(dropped as u64, Relaxed);
        book
    }
}
