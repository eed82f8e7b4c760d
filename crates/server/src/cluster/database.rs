//! Connections with Redis or Valkey.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Cmd, RedisError, Value};
use ringway_cluster::config::{LEASE, REPLICA_LIMIT};
use ringway_cluster::config::{MAX_NODES, MAX_NODES_PER_USER};
use ringway_cluster::record::{self, Message};
use ringway_cluster::secrets::{self, StoredSecret};
use ringway_cluster::{
    Command, Found, Lease, NodeName, Probed, Publication, Reading, Report, Shard, Written,
};

use ringway_proxy::config::NodeKey;
use ringway_proxy::keys::{MAX_SHARED, SharedSecret};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::client::RedisClient;
use super::membership::Membership;
use super::topology::{self, Redirect, is_moved, redirect};

/// Time that a server has for what was redirected to it. What waits behind it has its own deadline.
const REDIRECT_LIMIT: Duration = Duration::from_millis(250);
/// Time for which nothing is redirected to a server that did not answer.
const SILENT_PAUSE: Duration = Duration::from_secs(3);
/// Maximum number of servers to which parts of one command are redirected.
const MAX_REDIRECTS: usize = 4;

/// Why a command has failed.
pub(super) type Failure = String;

/// A database, and this node in it.
pub(super) struct Database {
    client: RedisClient,
    name: NodeName,
    key: NodeKey,
    replicas: u32,
    /// The primaries of a database of many, as they were reported last.
    primaries: Mutex<Vec<Shard>>,
    /// Notified when an answer shows that the map of slots is old.
    pub(super) stale: Notify,
}

/// A connection with a primary, and with those to which it has redirected.
pub(super) struct Session {
    connection: MultiplexedConnection,
    redirected: BTreeMap<Shard, MultiplexedConnection>,
    /// Servers that did not answer what was redirected to them, and until when nothing is.
    silent: BTreeMap<Shard, Instant>,
}

/// What has become of a command.
pub(super) struct Done {
    /// What is reported to the node.
    pub(super) report: Report,
    /// Why the database has refused it, or a part of it.
    pub(super) refused: Option<Failure>,
}

fn text(e: &RedisError) -> Failure {
    e.to_string()
}

/// Returns the host and port of a server of many.
fn address(server: &Shard) -> Option<(&str, u16)> {
    (!server.is_whole()).then_some((&*server.host, server.port))
}

impl Database {
    /// Returns the database, without connecting.
    ///
    /// # Errors
    /// Fails for trust anchors that cannot be read.
    pub(super) fn new(membership: &Membership, key: NodeKey) -> Result<Self, String> {
        let Membership { database: uri, roots, name, replicas } = membership.clone();
        let client = RedisClient::new(uri, roots).map_err(|e| format!("store {e}"))?;
        let (primaries, stale) = (Mutex::default(), Notify::new());
        Ok(Database { client, name, key, replicas, primaries, stale })
    }

    /// Returns whether it has many primaries.
    pub(super) fn is_sharded(&self) -> bool {
        self.client.uri().cluster
    }

    /// Connects with the primary that a shard is.
    pub(super) async fn connect(&self, shard: &Shard) -> Result<Session, Failure> {
        let connection = self.connect_with(shard).await?;
        Ok(Session { connection, redirected: BTreeMap::new(), silent: BTreeMap::new() })
    }

    /// Connects with a server.
    pub(super) async fn connect_with(
        &self,
        server: &Shard,
    ) -> Result<MultiplexedConnection, Failure> {
        self.client.connect(address(server)).await
    }

    /// Subscribes to a channel, at another server of many for each `turn`.
    pub(super) async fn subscribe(&self, turn: usize, channel: &str) -> Result<PubSub, RedisError> {
        self.client.subscribe(address(&self.server(turn)), channel).await
    }

    /// Connects with the primary, or with another server of many for each `turn`: the bus carries to all what is published at
    /// any.
    pub(super) async fn connect_with_any(
        &self,
        turn: usize,
    ) -> Result<MultiplexedConnection, Failure> {
        self.connect_with(&self.server(turn)).await
    }

    fn server(&self, turn: usize) -> Shard {
        match self.is_sharded() {
            true => {
                let servers = self.servers();
                servers[turn % servers.len()].clone()
            }
            false => Shard::whole(),
        }
    }

    /// Returns the servers of a database of many: its primaries, and those of the URI.
    pub(super) fn servers(&self) -> Vec<Shard> {
        let mut servers = self.primaries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (host, port) in &self.client.uri().hosts {
            let seed = Shard { host: host.as_str().into(), port: *port };
            if !servers.contains(&seed) {
                servers.push(seed);
            }
        }
        servers
    }

    /// The primaries were reported.
    pub(super) fn set_primaries(&self, primaries: &[Shard]) {
        *self.primaries.lock().unwrap_or_else(PoisonError::into_inner) = primaries.to_vec();
    }

    /// Has the database carry out a command of this node. A command that the database refuses is reported as failed, with
    /// the reason.
    pub(super) async fn carry_out(
        &self,
        session: &mut Session,
        command: &Command,
    ) -> Result<Done, Failure> {
        let waits = waits_for_replicas(command);
        let cmds = self.commands(command);
        let mut answers = self.send(&mut session.connection, cmds, waits, false).await?;
        if answers.iter().any(|(value, _)| is_moved(value)) && self.is_sharded() {
            self.stale.notify_one();
            self.follow(session, command, &mut answers).await;
        }
        let refused = answers.iter().find_map(|(value, _)| match value {
            Value::ServerError(e) if !is_moved(value) => Some(e.to_string()),
            _ => None,
        });
        Ok(Done { report: report(command, &answers), refused })
    }

    /// Sends the parts of a command that were redirected to where they belong. What is not answered there, or by an error,
    /// stays as it is: it is sent again by the new map.
    async fn follow(&self, session: &mut Session, command: &Command, answers: &mut [(Value, u32)]) {
        if matches!(command, Command::Probe { .. }) {
            return;
        }
        let mut parts: BTreeMap<Redirect, Vec<usize>> = BTreeMap::new();
        for (i, (value, _)) in answers.iter().enumerate() {
            if let Some(redirect) = redirect(command.shard(), value) {
                parts.entry(redirect).or_default().push(i);
            }
        }
        session.silent.retain(|_, until| Instant::now() < *until);
        parts.retain(|redirect, _| !session.silent.contains_key(&redirect.to));
        for (Redirect { to, asking }, part) in parts.into_iter().take(MAX_REDIRECTS) {
            let mut cmds: Vec<_> = self.commands(command).into_iter().map(Some).collect();
            let cmds = part.iter().filter_map(|i| cmds[*i].take()).collect();
            let kept = session.redirected.remove(&to);
            let work = async {
                let mut connection = match kept {
                    Some(connection) => connection,
                    None => self.connect_with(&to).await?,
                };
                let waits = waits_for_replicas(command);
                let answers = self.send(&mut connection, cmds, waits, asking).await?;
                Ok::<_, Failure>((connection, answers))
            };
            let Ok(Ok((connection, part_answers))) = timeout(REDIRECT_LIMIT, work).await else {
                session.silent.insert(to, Instant::now() + SILENT_PAUSE);
                continue;
            };
            for (i, answer) in part.into_iter().zip(part_answers) {
                if !matches!(answer.0, Value::ServerError(_)) {
                    answers[i] = answer;
                }
            }
            if session.redirected.len() < MAX_REDIRECTS {
                session.redirected.insert(to, connection);
            }
        }
    }

    /// Sends commands. Returns the answers, each with the number of replicas that have what was written before.
    async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        cmds: Vec<Cmd>,
        waits: bool,
        asking: bool,
    ) -> Result<Vec<(Value, u32)>, Failure> {
        let mut pipeline = redis::pipe();
        let answers = cmds.len();
        for cmd in cmds {
            if asking {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(cmd);
        }
        if waits {
            // Acknowledged by replicas are the changes of this connection: WAIT must be on the same one, and is.
            pipeline.cmd("WAIT").arg(self.replicas).arg(millis(REPLICA_LIMIT));
        }
        let count = pipeline.len();
        let sent = connection.send_packed_commands(&pipeline, 0, count).await;
        let mut values = sent.map_err(|e| text(&e))?;
        if values.len() != count {
            return Err(format!("{} answers to {count} commands", values.len()));
        }
        let replicas = match waits.then(|| values.pop()).flatten() {
            None => 0,
            Some(Value::Int(replicas)) => u32::try_from(replicas).unwrap_or_default(),
            // A replica that was the primary refuses it. What it has redirected is followed nevertheless.
            Some(Value::ServerError(_)) if values.iter().any(is_moved) => 0,
            Some(Value::ServerError(e)) => return Err(e.to_string()),
            Some(_) => return Err("no answer to WAIT".to_owned()),
        };
        // Before each is that to ASKING.
        let step = values.len() / answers.max(1);
        let each = values.into_iter().skip(step.saturating_sub(1)).step_by(step.max(1));
        Ok(each.map(|value| (value, replicas)).collect())
    }

    /// Returns what is sent for a command.
    fn commands(&self, command: &Command) -> Vec<Cmd> {
        let name = self.name.to_string();
        match command {
            Command::Renew { boot, .. } => {
                let heard = Message::Renewed { node: self.name, boot: *boot }.to_bytes();
                let mut cmd = eval(record::RENEW, record::LEASES.as_bytes());
                cmd.arg(&name)
                    .arg(record::VERSION)
                    .arg(boot)
                    .arg(millis(LEASE))
                    .arg(record::CHANNEL)
                    .arg(heard)
                    .arg(MAX_NODES)
                    .arg(self.key.text());
                vec![cmd]
            }
            Command::Leave { boot, .. } => {
                let mut cmd = eval(record::LEAVE, record::LEASES.as_bytes());
                let heard = Message::Left(self.name).to_bytes();
                cmd.arg(&name).arg(boot).arg(record::CHANNEL).arg(heard);
                vec![cmd]
            }
            Command::Publish { boot, changes, .. } => {
                let one = |change: &Publication| {
                    let heard = Message::User(change.user.clone()).to_bytes();
                    let mut cmd = eval(record::PUBLISH, &record::key(&change.user));
                    cmd.arg(&name)
                        .arg(record::VERSION)
                        .arg(boot)
                        .arg(change.seq)
                        .arg(millis(change.lifetime))
                        .arg(change.q_text())
                        .arg(record::CHANNEL)
                        .arg(heard)
                        .arg(change.phones.to_string());
                    cmd
                };
                changes.iter().map(one).collect()
            }
            Command::Read { users, .. } => {
                let one = |user: &[u8]| {
                    let mut cmd = eval(record::READ, &record::key(user));
                    cmd.arg(MAX_NODES_PER_USER);
                    cmd
                };
                users.iter().map(|user| one(user)).collect()
            }
            Command::Share { known, .. } => {
                let Some(new) = new_secret() else { return Vec::new() };
                let mut cmd = eval(secrets::SHARE, secrets::SECRETS.as_bytes());
                cmd.arg(record::VERSION)
                    .arg(secrets::text(&new))
                    .arg(millis(secrets::ROTATION))
                    .arg(millis(secrets::NOTICE))
                    .arg(MAX_SHARED);
                for one in known {
                    cmd.arg(&one.arguments());
                }
                vec![cmd]
            }
            Command::Probe { slot, .. } => vec![topology::probe(*slot)],
        }
    }
}

/// Returns a secret; `None` if there are no random numbers.
fn new_secret() -> Option<SharedSecret> {
    let mut secret = SharedSecret([0; 32]);
    getrandom::fill(&mut secret.0).ok()?;
    Some(secret)
}

fn waits_for_replicas(command: &Command) -> bool {
    match command {
        Command::Renew { .. } | Command::Publish { .. } => true,
        Command::Share { .. } | Command::Probe { .. } => true,
        Command::Leave { .. } | Command::Read { .. } => false,
    }
}

/// Returns what the answers to a command are, each with the number of replicas.
fn report(command: &Command, answers: &[(Value, u32)]) -> Report {
    let first = answers.first();
    match command {
        Command::Renew { .. } => {
            let leases = first.and_then(|(value, replicas)| Some((texts(value)?, *replicas)));
            Report::Renewed(leases.map(|(parts, replicas)| (Lease::parse(&parts), replicas)))
        }
        Command::Leave { .. } => Report::Left(matches!(first, Some((Value::Int(_), _)))),
        Command::Publish { shard, .. } => {
            let results = answers.iter().map(|(value, replicas)| written(value, *replicas));
            Report::Published(shard.clone(), results.collect())
        }
        Command::Read { shard, .. } => {
            Report::Read(shard.clone(), answers.iter().map(|(value, _)| reading(value)).collect())
        }
        Command::Share { .. } => {
            let parts = first.and_then(|(value, _)| texts(value));
            Report::Shared(parts.map(|parts| StoredSecret::parse(&parts)))
        }
        Command::Probe { shard, .. } => {
            let probed = match first {
                Some((Value::Okay, replicas)) => Probed::Stored(*replicas),
                Some((value, _)) if is_moved(value) => Probed::Moved,
                _ => Probed::Failed,
            };
            Report::Probed(shard.clone(), probed)
        }
    }
}

/// Returns what an answer of [`record::PUBLISH`] means.
fn written(value: &Value, replicas: u32) -> Written {
    match value {
        Value::Int(1) => Written::Stored(replicas),
        Value::Int(_) => Written::Unusable,
        _ if is_moved(value) => Written::Moved,
        _ => match text_of(value).and_then(|boot| boot.parse().ok()) {
            Some(boot) => Written::Outrun { boot },
            None => Written::Failed,
        },
    }
}

/// Returns what an answer of [`record::READ`] means.
fn reading(value: &Value) -> Reading {
    match value {
        Value::Int(_) => Reading::Unusable,
        _ if is_moved(value) => Reading::Moved,
        _ => texts(value).map_or(Reading::Failed, |parts| Reading::Found(Found::parse(&parts))),
    }
}

/// Returns the call of a script with one key. The text is sent each time: a server that has just become the primary does not
/// know it.
fn eval(script: &str, key: &[u8]) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(script).arg(1).arg(key);
    cmd
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the texts of an answer; `None` if it is another one. What is no text stands as an empty one.
fn texts(value: &Value) -> Option<Vec<&str>> {
    let Value::Array(parts) = value else { return None };
    Some(parts.iter().map(|part| text_of(part).unwrap_or_default()).collect())
}

fn text_of(part: &Value) -> Option<&str> {
    let Value::BulkString(bytes) = part else { return None };
    std::str::from_utf8(bytes).ok()
}
