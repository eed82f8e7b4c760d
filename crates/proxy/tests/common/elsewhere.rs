//! Other servers of the same domain, as the world of the proxy under test knows them.

use super::{DOMAIN, Peer, World};
use ringway_proxy::auth::Users;
use ringway_proxy::config::Config;
use ringway_proxy::location::{
    BindingView, Commit, CommitTag, Elsewhere, LocationStore, MemoryStore, RecordEdit, ServerView,
    instance_hash,
};
use ringway_proxy::routes::{RouteTable, Rule};
use ringway_proxy::{
    AskId, CredentialsQuestion, CredentialsVerdict, KeptMessage, MessageToKeep, Question, Reply,
};
use ringway_sansio::{Flow, FlowId, Time};
use ringway_sip::digest::{Algorithm, Credentials, Ha1, verify};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

/// An open question about a user of other servers.
#[derive(Clone, Debug)]
pub struct Asked {
    pub worker: u8,
    pub id: AskId,
    pub question: Question,
    pub source: IpAddr,
}

impl Asked {
    /// Returns the question about credentials.
    pub fn credentials(&self) -> &CredentialsQuestion {
        match &self.question {
            Question::Credentials(question) => question,
            other => panic!("expected a question about credentials, got {other:?}"),
        }
    }

    /// Returns the message that is to be kept.
    pub fn message(&self) -> &MessageToKeep {
        match &self.question {
            Question::Keep(message) => message,
            other => panic!("expected a message to keep, got {other:?}"),
        }
    }

    /// Returns what a server says that has the password.
    pub fn verdict(&self, password: &str) -> CredentialsVerdict {
        let CredentialsQuestion { user, realm, algorithm, method, value } = self.credentials();
        let credentials = Credentials::parse(value).expect("credentials");
        assert_eq!(*credentials.user(), **user);
        let ha1 = Ha1::new(*algorithm, user, realm, password.as_bytes());
        match verify(&credentials, method, b"", &ha1) {
            true => CredentialsVerdict::Right,
            false => CredentialsVerdict::Wrong,
        }
    }

    /// Returns the address-of-record of a question for its location.
    pub fn aor(&self) -> String {
        match &self.question {
            Question::Location { aor } => String::from_utf8(aor.to_vec()).unwrap(),
            other => panic!("expected a question for a location, got {other:?}"),
        }
    }
}

/// A server at which a user is registered.
#[derive(Clone, Debug)]
pub struct Server {
    path: String,
    q: u16,
    ends: Time,
    instances: Vec<u64>,
    others: bool,
}

impl Server {
    fn new(path: String, q: u16) -> Server {
        Server { path, q, ends: Time::ZERO, instances: Vec::new(), others: true }
    }

    /// A server that has these phones until this time, and perhaps others.
    pub fn with_phones(peer: Peer, ends: Time, phones: &[&str], others: bool) -> Server {
        let hash = |instance: &&str| instance_hash(instance.as_bytes());
        let instances = phones.iter().map(hash).collect();
        Server { ends, instances, others, ..Server::new(format!("<sip:{};lr>", peer.addr), 1000) }
    }
}

/// What is known of one address-of-record.
#[derive(Clone, Debug)]
enum Fact {
    Unknown,
    Known { exists: bool, servers: Vec<Server> },
}

/// The knowledge of the world. What is not noted does not exist elsewhere.
#[derive(Default)]
pub struct Knowledge {
    facts: BTreeMap<String, Fact>,
    /// What each server may send as: by its address and an address-of-record. `None` is not known yet.
    speakers: BTreeMap<(IpAddr, String), Option<bool>>,
    /// Whether messages may be kept.
    keeps: bool,
    /// Whether a server is the home of a user. `None` is not known yet.
    homes: BTreeMap<(IpAddr, String), Option<bool>>,
    /// Users whose password is elsewhere.
    users: Vec<String>,
    /// The users that a name stands for, with their q.
    aliases: BTreeMap<String, Vec<(String, u16)>>,
    /// The rules that other servers share: `None` is not known yet.
    rules: Option<Option<Arc<RouteTable>>>,
}

/// The bindings of this server, and the knowledge of others.
pub struct Store {
    pub local: Arc<MemoryStore>,
    pub knowledge: Arc<Mutex<Knowledge>>,
}

/// Number of registrations that may wait for the store of a [`World`].
pub const MAX_WAITING: usize = 1_000;

impl LocationStore for Store {
    fn max_waiting(&self) -> usize {
        MAX_WAITING
    }

    fn lookup(&self, aor: &[u8], now: Time, visit: &mut dyn FnMut(&BindingView<'_>)) -> usize {
        self.local.lookup(aor, now, visit)
    }

    fn elsewhere(&self, aor: &[u8], _: Time, visit: &mut dyn FnMut(&ServerView<'_>)) -> Elsewhere {
        let knowledge = self.knowledge.lock().unwrap();
        match knowledge.facts.get(&*String::from_utf8_lossy(aor)) {
            None => Elsewhere::Known { exists: false },
            Some(Fact::Unknown) => Elsewhere::Unknown,
            Some(Fact::Known { exists, servers }) => {
                for Server { path, q, ends, instances, others } in servers {
                    let (path, q, ends, others) = (path.as_bytes(), *q, *ends, *others);
                    visit(&ServerView { path, q, ends, instances, others });
                }
                Elsewhere::Known { exists: *exists }
            }
        }
    }

    fn speaks_for(&self, server: IpAddr, aor: &[u8], _: Time) -> Option<bool> {
        let key = (server, String::from_utf8_lossy(aor).into_owned());
        self.knowledge.lock().unwrap().speakers.get(&key).copied().unwrap_or(Some(false))
    }

    fn is_home(&self, server: IpAddr, aor: &[u8], _: Time) -> Option<bool> {
        let key = (server, String::from_utf8_lossy(aor).into_owned());
        self.knowledge.lock().unwrap().homes.get(&key).copied().unwrap_or(Some(false))
    }

    fn path_to(&self, server: Ipv6Addr) -> Option<Box<[u8]>> {
        Some(format!("<sip:[{server}]:5060;lr>").into_bytes().into())
    }

    fn keeps_messages(&self) -> bool {
        self.knowledge.lock().unwrap().keeps
    }

    fn aliases(&self, aor: &[u8], _: Time, visit: &mut dyn FnMut(&[u8], u16)) {
        let knowledge = self.knowledge.lock().unwrap();
        let users = knowledge.aliases.get(&*String::from_utf8_lossy(aor));
        users.into_iter().flatten().for_each(|(user, q)| visit(user.as_bytes(), *q));
    }

    fn shared_rules(&self, _: Time) -> Option<Arc<RouteTable>> {
        self.knowledge.lock().unwrap().rules.clone().unwrap_or_else(|| Some(Arc::default()))
    }

    fn update(
        &self,
        aor: &[u8],
        now: Time,
        tag: CommitTag,
        edit: &mut dyn FnMut(&mut RecordEdit<'_>),
    ) -> Commit {
        self.local.update(aor, now, tag, edit)
    }

    fn expire(&self, now: Time, budget: usize) -> usize {
        self.local.expire(now, budget)
    }

    fn connections(&self, worker: u8, visit: &mut dyn FnMut(&Flow)) {
        self.local.connections(worker, visit);
    }

    fn flow_closed(&self, flow: FlowId, now: Time) -> usize {
        self.local.flow_closed(flow, now)
    }

    fn watch(&self, aor: &[u8], worker: u8) {
        self.local.watch(aor, worker);
    }

    fn unwatch(&self, aor: &[u8], worker: u8) {
        self.local.unwatch(aor, worker);
    }

    fn records(&self) -> usize {
        self.local.records()
    }

    fn contacts(&self) -> usize {
        self.local.contacts()
    }
}

/// The users of this server.
pub struct People {
    pub knowledge: Arc<Mutex<Knowledge>>,
}

impl Users for People {
    fn ha1(&self, user: &[u8], realm: &[u8], algorithm: Algorithm) -> Option<Ha1> {
        let password = super::PASSWORD.as_bytes();
        self.exists(user, realm).then(|| Ha1::new(algorithm, user, realm, password))
    }

    fn exists(&self, user: &[u8], _realm: &[u8]) -> bool {
        let known = String::from_utf8_lossy(user);
        let elsewhere = self.knowledge.lock().unwrap().users.iter().any(|user| **user == known);
        matches!(user, b"alice" | b"bob" | b"carol") && !elsewhere
    }

    fn may_be_elsewhere(&self, user: &[u8], _realm: &[u8]) -> bool {
        let known = String::from_utf8_lossy(user);
        self.knowledge.lock().unwrap().users.iter().any(|user| **user == known)
    }
}

fn aor(user: &str) -> String {
    format!("sip:{user}@{DOMAIN}")
}

impl World {
    fn note_fact(&self, user: &str, fact: Fact) {
        self.knowledge.lock().unwrap().facts.insert(aor(user), fact);
    }

    /// The world must be asked for this user.
    pub fn unknown(&self, user: &str) {
        self.note_fact(user, Fact::Unknown);
    }

    /// The user is registered at these servers, with this q.
    pub fn elsewhere(&self, user: &str, servers: &[(Peer, u16)]) {
        let path = |peer: &Peer| format!("<sip:{};lr>", peer.addr);
        let servers = servers.iter().map(|(peer, q)| Server::new(path(peer), *q)).collect();
        self.note_fact(user, Fact::Known { exists: true, servers });
    }

    /// Another server has the user, or none has, and the user is registered nowhere.
    pub fn registered_nowhere(&self, user: &str, exists: bool) {
        self.note_fact(user, Fact::Known { exists, servers: Vec::new() });
    }

    /// The user is registered at servers with these values of Path.
    pub fn elsewhere_by(&self, user: &str, paths: &[&str]) {
        let servers = paths.iter().map(|path| Server::new(path.to_string(), 1000)).collect();
        self.note_fact(user, Fact::Known { exists: true, servers });
    }

    /// The user is registered at these servers, with these phones.
    pub fn with_phones(&self, user: &str, servers: Vec<Server>) {
        self.note_fact(user, Fact::Known { exists: true, servers });
    }

    /// Replaces the configuration of the first worker.
    pub fn reconfigure(&mut self, config: Config) {
        self.cores[0].reconfigure(self.now, Arc::new(config));
    }

    /// The leases of these nodes have ended.
    pub fn nodes_gone(&mut self, gone: &[Peer]) {
        let gone: Vec<_> = gone.iter().map(Peer::remote).collect();
        let (now, mut out) = (self.now, std::mem::take(&mut self.out));
        self.cores[0].handle_nodes_gone(now, &gone, &mut out);
        self.out = out;
        self.pump(0);
    }

    /// The first worker ends.
    pub fn end_requests(&mut self) {
        let (now, mut out) = (self.now, std::mem::take(&mut self.out));
        self.cores[0].end_requests(now, &mut out);
        self.out = out;
        self.pump(0);
    }

    /// Whether a server may send as this user; `None`: the world must be asked.
    pub fn speaks(&self, server: Peer, user: &str, may: Option<bool>) {
        let key = (server.remote().ip(), aor(user));
        self.knowledge.lock().unwrap().speakers.insert(key, may);
    }

    /// Whether a server is the home of this user; `None`: the world must be asked.
    pub fn home(&self, server: Peer, user: &str, is_home: Option<bool>) {
        let key = (server.remote().ip(), aor(user));
        self.knowledge.lock().unwrap().homes.insert(key, is_home);
    }

    /// Messages for users who are away may be kept.
    pub fn keeps(&self) {
        self.knowledge.lock().unwrap().keeps = true;
    }

    /// Has the core deliver a message that was kept.
    pub fn deliver_kept(&mut self, id: u64, (from, to): (&str, &str), octets: &[u8]) {
        let (from, to) = (aor(from), aor(to));
        let kept = KeptMessage { to: to.as_bytes(), from: from.as_bytes(), octets };
        let (now, mut out) = (self.now, std::mem::take(&mut self.out));
        self.cores[0].deliver(now, id, &kept, &mut out);
        self.out = out;
        self.pump(0);
    }

    /// A name stands for these users, with this q.
    pub fn alias(&self, name: &str, users: &[(&str, u16)]) {
        let users = users.iter().map(|&(user, q)| (aor(user), q)).collect();
        self.knowledge.lock().unwrap().aliases.insert(aor(name), users);
    }

    /// Other servers share these rules; `None`: the world must be asked.
    pub fn shared(&self, rules: Option<Vec<Rule>>) {
        let rules = rules.map(|rules| Arc::new(RouteTable { rules }));
        self.knowledge.lock().unwrap().rules = Some(rules);
    }

    /// The password of this user is at another server.
    pub fn at_home_elsewhere(&self, user: &str) {
        self.knowledge.lock().unwrap().users.push(user.into());
    }

    /// The next question that the core has asked.
    pub fn asked(&mut self) -> Asked {
        assert!(!self.asks.is_empty(), "no question was asked\n{}", self.ladder());
        self.asks.remove(0)
    }

    /// Replies to a question.
    pub fn reply(&mut self, asked: &Asked, reply: Reply) {
        self.note(&format!("{:?}: {reply:?}", asked.question));
        let (now, mut out) = (self.now, std::mem::take(&mut self.out));
        self.cores[asked.worker as usize].handle_answered(now, asked.id, reply, &mut out);
        self.out = out;
        self.pump(asked.worker);
    }
}
