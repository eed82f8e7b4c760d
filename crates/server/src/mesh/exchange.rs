//! What workers ask the directory of users, and its answers.
//!
//! Workers call from their threads and never wait: a question is a command to the thread of the router, and its answer is a
//! post to the worker. What has been answered is remembered for a moment, so that a request that goes on finds it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ringway_directory::statement;
use ringway_directory::{Account, CredentialsCheck, Grant, Located, Verdict, Whereabouts};
use ringway_mesh::{NodeId, Prefix};
use ringway_net::{Clock, IngressFilter, Mailbox};
use ringway_proxy::location::CommitTag;
use ringway_proxy::{AskId, CredentialsVerdict, Question, Reply};
use ringway_router::users::{Command, Report};
use ringway_sansio::Time;
use tokio::sync::mpsc;
use tracing::{error, warn};

use super::shares::Shares;
use crate::post::{Post, post_with_retry_async};

/// Time for which it is known where a user is.
const LOCATION_AGE: Duration = Duration::from_secs(2);
/// Time for which it is known who may send as a user.
const SENDER_AGE: Duration = Duration::from_secs(60);
/// Names of which it is known where they are.
const MAX_KNOWN: usize = 16_384;
/// Questions where users are, and checks of credentials, that requests wait for; shared among their sources.
const MAX_QUESTIONS: usize = 1_024;
const MAX_CHECKS: usize = 256;

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

/// A request that waits for an answer.
#[derive(Clone, Copy)]
struct Waiting {
    worker: u8,
    id: AskId,
    source: IpAddr,
}

struct State {
    id: Option<NodeId>,
    /// The index of the TUN device.
    interface: u32,
    known: HashMap<Box<str>, Known>,
    locating: HashMap<Box<str>, Vec<Waiting>>,
    questions: Shares,
    verifying: HashMap<u64, Waiting>,
    checks: Shares,
    last: u64,
    present: HashMap<Box<str>, Presence>,
    pending: HashMap<CommitTag, Pending>,
    /// Users that are not registered here any more, of which there was no room to notify the directory.
    unsent: Vec<Box<str>>,
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

/// Keeps the permission of a user's home beyond the end of the process: the user with its domain, and the octets; none
/// removes it.
pub type GrantKeeper = Box<dyn Fn(&str, Option<&[u8]>) + Send + Sync>;

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
            state: Mutex::new(State {
                id: None,
                interface: 0,
                known: HashMap::new(),
                locating: HashMap::new(),
                questions: Shares::new(MAX_QUESTIONS),
                verifying: HashMap::new(),
                checks: Shares::new(MAX_CHECKS),
                last: 0,
                present: HashMap::new(),
                pending: HashMap::new(),
                unsent: Vec::new(),
            }),
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

    /// Returns the id of this router, once it is known.
    pub fn id(&self) -> Option<NodeId> {
        self.lock().id
    }

    /// Returns the address of this router in the mesh, once it is known.
    pub fn address(&self) -> Option<Ipv6Addr> {
        self.lock().id.map(|id| id.prefix().router())
    }

    /// Returns the address-of-record of a user of this server that is named with the mark of this router: the same name was
    /// added elsewhere before.
    pub fn unmarked(&self, aor: &[u8]) -> Option<Vec<u8>> {
        // Few names have it, and this is asked for every call.
        aor.contains(&b'~').then_some(())?;
        let name = statement::unmarked(self.name_of(aor)?, self.lock().id?)?;
        Some(format!("sip:{name}").into_bytes())
    }

    /// Returns what datagrams are to be dropped, once the address is known: those of routers that do not come by the mesh.
    pub fn ingress(&self) -> Option<IngressFilter> {
        let state = self.lock();
        let local = state.id?.prefix().router();
        let guards = |source| Prefix::of(&source).is_some_and(|prefix| prefix.router() == source);
        Some(IngressFilter { local, interface: state.interface, guards })
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

    /// Answers a question of a worker for a request from `source` now, or later by a post.
    pub fn ask(&self, worker: u8, id: AskId, question: Question, source: IpAddr) -> Option<Reply> {
        let waiting = Waiting { worker, id, source };
        match question {
            Question::Location { aor } => self.locate(waiting, &aor),
            Question::Credentials(query) => {
                let check = CredentialsCheck {
                    name: format!("{}@{}", text(&query.user), text(&query.realm)).into(),
                    method: text(&query.method).into(),
                    credentials: query.value.as_ref().into(),
                };
                self.verify(waiting, check)
            }
        }
    }

    fn locate(&self, waiting: Waiting, aor: &[u8]) -> Option<Reply> {
        let Some(name) = self.name_of(aor) else { return Some(Reply::Unavailable) };
        let mut state = self.lock();
        if !state.questions.take(waiting.source) {
            return Some(Reply::Unavailable);
        }
        if let Some(others) = state.locating.get_mut(name) {
            others.push(waiting);
            return None;
        }
        if !self.send(Command::Locate { name: name.into() }) {
            state.questions.release(waiting.source);
            return Some(Reply::Unavailable);
        }
        state.locating.insert(name.into(), vec![waiting]);
        None
    }

    fn verify(&self, waiting: Waiting, check: CredentialsCheck) -> Option<Reply> {
        let mut state = self.lock();
        if !state.checks.take(waiting.source) {
            return Some(Reply::Unavailable);
        }
        state.last += 1;
        let tag = state.last;
        if !self.send(Command::Verify { check, tag }) {
            state.checks.release(waiting.source);
            return Some(Reply::Unavailable);
        }
        state.verifying.insert(tag, waiting);
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
        let mut state = self.lock();
        if !state.unsent.is_empty() {
            self.send_unsent(&mut state);
        }
        drop(state);
        match report {
            Report::Ready { id, interface } => {
                let mut state = self.lock();
                (state.id, state.interface) = (Some(id), interface);
            }
            Report::Located { name, whereabouts } => self.located(name, whereabouts),
            Report::Verified { tag, verdict } => {
                let mut state = self.lock();
                let Some(waiting) = state.verifying.remove(&tag) else { return };
                state.checks.release(waiting.source);
                drop(state);
                let reply = match verdict {
                    Some(Verdict::Right) => Reply::Credentials(CredentialsVerdict::Right),
                    Some(Verdict::Wrong) => Reply::Credentials(CredentialsVerdict::Wrong),
                    Some(Verdict::NoSuchUser) => Reply::Credentials(CredentialsVerdict::NoSuchUser),
                    None => Reply::Unavailable,
                };
                self.post(waiting, reply);
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
            Report::Granted { name, grant, evicted } => {
                let mut octets = Vec::with_capacity(Grant::LENGTH);
                grant.write(&mut octets);
                if let Some(keep) = self.keeper.get() {
                    keep(&name, Some(&octets));
                    evicted.iter().for_each(|name| keep(name, None));
                }
            }
            _ => {}
        }
    }

    fn located(&self, name: Box<str>, whereabouts: Whereabouts) {
        let mut state = self.lock();
        let waiting = state.locating.remove(&name).unwrap_or_default();
        waiting.iter().for_each(|waiting| state.questions.release(waiting.source));
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
        waiting.into_iter().for_each(|waiting| self.post(waiting, reply));
    }

    /// Answers a request that waits; what does not arrive is given up by its worker after a while.
    fn post(&self, waiting: Waiting, reply: Reply) {
        if let Some(mailbox) = self.mailbox(waiting.worker) {
            mailbox.try_post(Post::Answered(waiting.id, reply));
        }
    }

    fn mailbox(&self, worker: u8) -> Option<&Mailbox<Post>> {
        self.mailboxes.get()?.get(usize::from(worker))
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

    /// Takes a permission that was kept, at the start: waits for room. Returns whether it has not ended.
    pub fn announce_grant(&self, name: &str, octets: &[u8], now: Time) -> bool {
        let Ok(grant) = Grant::parse(octets) else { return false };
        if grant.has_ended(now) {
            return false;
        }
        let _ = self.commands.blocking_send(Command::SetGrant { name: name.into(), grant });
        true
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
            state.unsent.push(name.into());
            self.send_unsent(&mut state);
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

    /// Notifies the directory of users that are not registered here any more, as far as there is room.
    fn send_unsent(&self, state: &mut State) {
        while let Some(name) = state.unsent.pop() {
            // Whoever has registered again meanwhile has sent that.
            if !state.present.contains_key(&name)
                && !self.send(Command::Unregister { name: name.clone() })
            {
                return state.unsent.push(name);
            }
        }
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
        for tag in over {
            let Some(mailbox) = self.mailbox(tag.worker) else { continue };
            let make = move || Post::Committed([tag.id].into(), stored);
            if !mailbox.try_post(make()) {
                // A REGISTER waits for it, but packets of others must not wait for a slow worker.
                tokio::spawn(post_with_retry_async(mailbox.clone(), make));
            }
        }
    }
}

fn text(octets: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(octets)
}
