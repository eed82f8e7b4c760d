//! What workers ask the directory of users, and its answers.
//!
//! Workers call from their threads and never wait: a question is a command to the thread of the router, and its answer is a
//! post to the worker. What has been answered is remembered for a moment, so that a request that goes on finds it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ringway_directory::{Account, CredentialsCheck, Grant, Located, Verdict, Whereabouts};
use ringway_mesh::{NodeId, Prefix};
use ringway_net::{Clock, Mailbox};
use ringway_proxy::location::CommitTag;
use ringway_proxy::{AskId, CredentialsVerdict, Question, Reply};
use ringway_router::users::{Command, Report};
use ringway_sansio::Time;
use tokio::sync::mpsc;
use tracing::{error, warn};

use crate::post::{Post, post_with_retry};

/// Time for which it is known where a user is.
const LOCATION_AGE: Duration = Duration::from_secs(2);
/// Time for which it is known who may send as a user.
const SENDER_AGE: Duration = Duration::from_secs(60);
/// Names of which it is known where they are.
const MAX_KNOWN: usize = 16_384;
/// Workers that wait for one name.
const MAX_WAITING: usize = 4_096;
/// Verifications that workers wait for.
const MAX_VERIFICATIONS: usize = 256;

struct Known {
    located: Located,
    at: Time,
}

/// A user that is registered here.
#[derive(Default)]
struct Presence {
    /// Whether enough routers keep the record.
    stored: bool,
    /// Changes that are acknowledged when they do.
    waiting: Vec<CommitTag>,
}

/// What a change of a registration still waits for.
#[derive(Clone, Copy, Default)]
struct Pending {
    disk: bool,
    mesh: bool,
}

#[derive(Default)]
struct State {
    id: Option<NodeId>,
    known: HashMap<Box<str>, Known>,
    locating: HashMap<Box<str>, Vec<(u8, AskId)>>,
    verifying: HashMap<u64, (u8, AskId)>,
    last: u64,
    present: HashMap<Box<str>, Presence>,
    pending: HashMap<CommitTag, Pending>,
}

/// What is counted of the mesh.
#[derive(Clone, Copy, Default, Debug)]
pub struct MeshCounts {
    /// Users that are registered here.
    pub present: usize,
    /// Those whose record enough routers keep.
    pub stored: usize,
    /// Registrations that wait for it.
    pub pending: usize,
    /// Questions under way.
    pub questions: usize,
}

/// Keeps the permission of a user's home: the user with its domain, and the octets.
pub type GrantKeeper = Box<dyn Fn(&str, &[u8]) + Send + Sync>;

/// The connection of all workers with the directory.
pub struct Exchange {
    domain: Box<str>,
    clock: Clock,
    commands: mpsc::Sender<Command>,
    mailboxes: OnceLock<Vec<Mailbox<Post>>>,
    keeper: OnceLock<GrantKeeper>,
    state: Mutex<State>,
}

impl Exchange {
    /// An exchange for the users of a domain.
    pub fn new(domain: &str, clock: Clock, commands: mpsc::Sender<Command>) -> Self {
        Exchange {
            domain: domain.into(),
            clock,
            commands,
            mailboxes: OnceLock::new(),
            keeper: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Sets where workers receive answers. Only the first call has an effect.
    pub fn set_mailboxes(&self, mailboxes: Vec<Mailbox<Post>>) {
        let _ = self.mailboxes.set(mailboxes);
    }

    /// Sets what keeps permissions of other homes beyond the end of the process; it must not wait. Only the first call has
    /// an effect.
    pub fn set_keeper(&self, keeper: GrantKeeper) {
        let _ = self.keeper.set(keeper);
    }

    /// Returns the domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns what is counted.
    pub fn counts(&self) -> MeshCounts {
        let state = self.lock();
        MeshCounts {
            present: state.present.len(),
            stored: state.present.values().filter(|presence| presence.stored).count(),
            pending: state.pending.len(),
            questions: state.locating.len() + state.verifying.len(),
        }
    }

    /// Returns the address of this router in the mesh, once it is known.
    pub fn address(&self) -> Option<Ipv6Addr> {
        self.lock().id.map(|id| id.prefix().router())
    }

    /// Returns the user of an address-of-record of the domain, with the domain.
    pub fn name_of<'a>(&self, aor: &'a [u8]) -> Option<&'a str> {
        let name = std::str::from_utf8(aor.strip_prefix(b"sip:")?).ok()?;
        let (_, domain) = name.rsplit_once('@')?;
        (*domain == *self.domain).then_some(name)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the tables is complete before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command. Returns whether there was room.
    fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Answers a question of a worker now, or later by a post.
    pub fn ask(&self, worker: u8, id: AskId, question: Question) -> Option<Reply> {
        match question {
            Question::Location { aor } => self.locate(worker, id, &aor),
            Question::Credentials(query) => {
                let check = CredentialsCheck {
                    name: format!("{}@{}", text(&query.user), text(&query.realm)).into(),
                    method: text(&query.method).into(),
                    credentials: query.value.as_ref().into(),
                };
                self.verify(worker, id, check)
            }
        }
    }

    fn locate(&self, worker: u8, id: AskId, aor: &[u8]) -> Option<Reply> {
        let Some(name) = self.name_of(aor) else { return Some(Reply::Unavailable) };
        let mut state = self.lock();
        if let Some(waiting) = state.locating.get_mut(name) {
            if waiting.len() >= MAX_WAITING {
                return Some(Reply::Unavailable);
            }
            waiting.push((worker, id));
            return None;
        }
        if !self.send(Command::Locate { name: name.into() }) {
            return Some(Reply::Unavailable);
        }
        state.locating.insert(name.into(), vec![(worker, id)]);
        None
    }

    fn verify(&self, worker: u8, id: AskId, check: CredentialsCheck) -> Option<Reply> {
        let mut state = self.lock();
        if state.verifying.len() >= MAX_VERIFICATIONS {
            return Some(Reply::Unavailable);
        }
        state.last += 1;
        let tag = state.last;
        if !self.send(Command::Verify { check, tag }) {
            return Some(Reply::Unavailable);
        }
        state.verifying.insert(tag, (worker, id));
        None
    }

    /// Visits the routers other than this one at which a user is registered. Returns whether the user exists; `None` if that
    /// must be asked for.
    pub fn visit(
        &self,
        name: &str,
        now: Time,
        visit: &mut dyn FnMut(Ipv6Addr, u16),
    ) -> Option<bool> {
        let state = self.lock();
        let known = state.known.get(name).filter(|known| now.since(known.at) <= LOCATION_AGE)?;
        for &(router, preference) in &known.located.routers {
            if Some(router) != state.id {
                visit(router.prefix().router(), preference);
            }
        }
        Some(known.located.home.is_some())
    }

    /// Returns whether a router may send as a user; `None` if that must be asked for.
    pub fn speaks_for(&self, router: IpAddr, name: &str, now: Time) -> Option<bool> {
        let IpAddr::V6(address) = router else { return Some(false) };
        let prefix = Prefix::of(&address)?;
        let state = self.lock();
        let known = state.known.get(name).filter(|known| now.since(known.at) <= SENDER_AGE)?;
        let Located { home, routers } = &known.located;
        let at_home = home.as_ref().is_some_and(|home| prefix.contains(home.router));
        if at_home || routers.iter().any(|&(at, _)| prefix.contains(at)) {
            return Some(true);
        }
        // The user may have come there a moment ago.
        (now.since(known.at) <= LOCATION_AGE).then_some(false)
    }

    /// Handles what the directory reports. Called on the thread of the router.
    pub fn handle(&self, report: Report) {
        match report {
            Report::Ready { id } => self.lock().id = Some(id),
            Report::Located { name, whereabouts } => self.located(name, whereabouts),
            Report::Verified { tag, verdict } => {
                let Some((worker, id)) = self.lock().verifying.remove(&tag) else { return };
                let reply = match verdict {
                    Some(Verdict::Right) => Reply::Credentials(CredentialsVerdict::Right),
                    Some(Verdict::Wrong) => Reply::Credentials(CredentialsVerdict::Wrong),
                    Some(Verdict::NoSuchUser) => Reply::Credentials(CredentialsVerdict::NoSuchUser),
                    None => Reply::Unavailable,
                };
                self.post(worker, || Post::Answered(id, reply));
            }
            Report::Registered { name, stored } => self.registered(&name, stored),
            Report::Contested { name, by, marked } => {
                let what = "is also the name of a user that was added on another router";
                match marked {
                    Some(marked) => {
                        error!(
                            "{name} {what}, {by}, before: here the user is {marked} from now on"
                        );
                    }
                    None => warn!("{name} {what}, {by}, later"),
                }
            }
            Report::Granted { name, grant } => {
                let mut octets = Vec::with_capacity(Grant::LENGTH);
                grant.write(&mut octets);
                if let Some(keep) = self.keeper.get() {
                    keep(&name, &octets);
                }
            }
            Report::Judge { .. } => {}
        }
    }

    fn located(&self, name: Box<str>, whereabouts: Whereabouts) {
        let mut state = self.lock();
        let waiting = state.locating.remove(&name).unwrap_or_default();
        let reply = match whereabouts {
            Whereabouts::Found(located) => {
                let at = self.clock.now();
                if state.known.len() >= MAX_KNOWN {
                    state.known.retain(|_, known| at.since(known.at) <= LOCATION_AGE);
                }
                if state.known.len() < MAX_KNOWN {
                    state.known.insert(name, Known { located, at });
                }
                Reply::Located
            }
            Whereabouts::Unavailable => Reply::Unavailable,
        };
        drop(state);
        for (worker, id) in waiting {
            self.post(worker, || Post::Answered(id, reply));
        }
    }

    /// Posts to a worker; what does not arrive is given up by the worker after a while.
    fn post(&self, worker: u8, make: impl Fn() -> Post) {
        let mailboxes = self.mailboxes.get().map_or(&[][..], Vec::as_slice);
        if let Some(mailbox) = mailboxes.get(usize::from(worker)) {
            mailbox.try_post(make());
        }
    }

    /// A user of this server was added, or has a new password.
    pub fn set_account(&self, user: &str, realm: &str, account: Account) -> bool {
        *realm != *self.domain
            || self.send(Command::SetAccount { name: format!("{user}@{realm}").into(), account })
    }

    /// A user of this server was removed.
    pub fn remove_account(&self, user: &str, realm: &str) -> bool {
        *realm != *self.domain
            || self.send(Command::RemoveAccount { name: format!("{user}@{realm}").into() })
    }

    /// Has the mesh know a user of this server, at the start: waits for room.
    pub fn announce_account(&self, user: &str, realm: &str, account: Account) {
        if *realm == *self.domain {
            let name = format!("{user}@{realm}").into();
            // The router has ended: so will the server.
            let _ = self.commands.blocking_send(Command::SetAccount { name, account });
        }
    }

    /// Takes a permission that was kept, at the start: waits for room.
    pub fn announce_grant(&self, name: &str, octets: &[u8]) {
        if let Ok(grant) = Grant::parse(octets) {
            let _ = self.commands.blocking_send(Command::SetGrant { name: name.into(), grant });
        }
    }

    /// Has the mesh know that a user was registered here before the start: waits for room.
    pub fn announce(&self, aor: &[u8]) {
        let Some(name) = self.name_of(aor) else { return };
        self.lock().present.entry(name.into()).or_default();
        let command = Command::Register { name: name.into(), preference: 1_000 };
        let _ = self.commands.blocking_send(command);
    }

    /// Returns whether commands find room.
    pub fn has_room(&self) -> bool {
        self.commands.capacity() > 0
    }

    /// The registrations of a user have changed: whether there are any now, and the change that is acknowledged when it is
    /// safe. Returns whether the change must wait for that; [`Exchange::disk`] follows then.
    pub fn changed(&self, name: &str, is_present: bool, tag: Option<CommitTag>) -> bool {
        let mut state = self.lock();
        if !is_present {
            if state.present.remove(name).is_some_and(|presence| !presence.waiting.is_empty()) {
                warn!("{name} has withdrawn a registration before it was stored");
            }
            self.send(Command::Unregister { name: name.into() });
            return false;
        }
        let State { present, pending, .. } = &mut *state;
        let is_new = !present.contains_key(name);
        let presence = present.entry(name.into()).or_default();
        let waits = !presence.stored;
        if let (true, Some(tag)) = (waits, tag) {
            presence.waiting.push(tag);
            pending.insert(tag, Pending::default());
        }
        if is_new || waits {
            self.send(Command::Register { name: name.into(), preference: 1_000 });
        }
        waits && tag.is_some()
    }

    /// The disk has a change, or has refused it. Returns the changes among these that wait for nothing any more; those that
    /// do are left out.
    pub fn disk(&self, worker: u8, ids: &[u64], ok: bool) -> Vec<u64> {
        let mut state = self.lock();
        let is_over = |id: &&u64| {
            let tag = CommitTag { worker, id: **id };
            let Some(pending) = state.pending.get_mut(&tag) else { return true };
            pending.disk = true;
            if ok && !pending.mesh {
                return false;
            }
            state.pending.remove(&tag);
            true
        };
        ids.iter().filter(is_over).copied().collect()
    }

    /// A change that was announced by [`Exchange::changed`] is not made.
    pub fn forget(&self, tag: CommitTag) {
        self.lock().pending.remove(&tag);
    }

    /// Enough routers keep the record of a user, or do not yet.
    fn registered(&self, name: &str, stored: bool) {
        let mut state = self.lock();
        let Some(presence) = state.present.get_mut(name) else { return };
        presence.stored |= stored;
        let waiting = std::mem::take(&mut presence.waiting);
        let mut over = Vec::new();
        for tag in waiting {
            let Some(pending) = state.pending.get_mut(&tag) else { continue };
            pending.mesh = true;
            if pending.disk || !stored {
                state.pending.remove(&tag);
                over.push(tag);
            }
        }
        drop(state);
        let mailboxes = self.mailboxes.get().map_or(&[][..], Vec::as_slice);
        for tag in over {
            if let Some(mailbox) = mailboxes.get(usize::from(tag.worker)) {
                post_with_retry(mailbox, || Post::Committed([tag.id].into(), stored));
            }
        }
    }
}

fn text(octets: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(octets)
}
