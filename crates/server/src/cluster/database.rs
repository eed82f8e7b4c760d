//! Connections with Redis or Valkey.

use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Pipeline, RedisError, Value};
use ringway_cluster::config::{LEASE, REPLICA_LIMIT};
use ringway_cluster::config::{MAX_NODES, MAX_NODES_PER_USER};
use ringway_cluster::record::{self, Message};
use ringway_cluster::{Command, Found, Lease, NodeName, Reading, Report, Written};

use ringway_proxy::config::NodeKey;

use super::client::RedisClient;
use super::membership::Membership;

/// Why a command has failed.
pub(super) type Failure = String;

/// A database, and this node in it.
pub(super) struct Database {
    client: RedisClient,
    name: NodeName,
    key: NodeKey,
    replicas: u32,
}

/// A connection with the primary.
pub(super) struct Session(MultiplexedConnection);

fn text(e: &RedisError) -> Failure {
    e.to_string()
}

impl Database {
    /// Returns the database, without connecting.
    ///
    /// # Errors
    /// Fails for trust anchors that cannot be read.
    pub(super) fn new(membership: &Membership, key: NodeKey) -> Result<Self, String> {
        let Membership { database: uri, roots, name, replicas } = membership.clone();
        let client = RedisClient::new(uri, roots).map_err(|e| format!("store {e}"))?;
        Ok(Database { client, name, key, replicas })
    }

    /// Connects with the primary.
    pub(super) async fn connect(&self) -> Result<Session, Failure> {
        self.client.connect().await.map(Session)
    }

    /// Subscribes to changes.
    pub(super) async fn subscribe(&self) -> Result<PubSub, Failure> {
        self.client.subscribe(record::CHANNEL).await
    }

    /// Has the database carry out a command of this node. A command that the database refuses is reported as failed, with
    /// the reason.
    pub(super) async fn carry_out(
        &self,
        session: &mut Session,
        command: &Command,
    ) -> Result<(Report, Option<Failure>), Failure> {
        let pipeline = self.pipeline(command);
        let count = pipeline.len();
        let sent = session.0.send_packed_commands(&pipeline, 0, count).await;
        let values = sent.map_err(|e| text(&e))?;
        if values.len() != count {
            return Err(format!("{} answers to {count} commands", values.len()));
        }
        let refused = values.iter().find_map(|value| match value {
            Value::ServerError(e) => Some(e.to_string()),
            _ => None,
        });
        match report(command, values) {
            Some(report) => Ok((report, refused)),
            None => Err(refused.unwrap_or_else(|| "no answer to WAIT".to_owned())),
        }
    }

    /// Returns what is sent for a command.
    fn pipeline(&self, command: &Command) -> Pipeline {
        let name = self.name.to_string();
        let mut pipeline = redis::pipe();
        match command {
            Command::Renew { boot } => {
                let heard = Message::Renewed { node: self.name, boot: *boot }.to_bytes();
                eval(&mut pipeline, record::RENEW, record::LEASES.as_bytes())
                    .arg(&name)
                    .arg(record::VERSION)
                    .arg(boot)
                    .arg(millis(LEASE))
                    .arg(record::CHANNEL)
                    .arg(heard)
                    .arg(MAX_NODES)
                    .arg(self.key.text());
            }
            Command::Leave { boot } => {
                eval(&mut pipeline, record::LEAVE, record::LEASES.as_bytes())
                    .arg(&name)
                    .arg(boot)
                    .arg(record::CHANNEL)
                    .arg(Message::Left(self.name).to_bytes());
            }
            Command::Publish { boot, changes } => {
                for change in changes {
                    let heard = Message::User(change.user.clone()).to_bytes();
                    eval(&mut pipeline, record::PUBLISH, &record::key(&change.user))
                        .arg(&name)
                        .arg(record::VERSION)
                        .arg(boot)
                        .arg(change.seq)
                        .arg(millis(change.lifetime))
                        .arg(change.q_text())
                        .arg(record::CHANNEL)
                        .arg(heard);
                }
            }
            Command::Read(users) => {
                for user in users {
                    eval(&mut pipeline, record::READ, &record::key(user)).arg(MAX_NODES_PER_USER);
                }
            }
        }
        if waits_for_replicas(command) {
            // Acknowledged by replicas are the changes of this connection: WAIT must be on the same one, and is.
            pipeline.cmd("WAIT").arg(self.replicas).arg(millis(REPLICA_LIMIT));
        }
        pipeline
    }
}

fn waits_for_replicas(command: &Command) -> bool {
    matches!(command, Command::Renew { .. } | Command::Publish { .. })
}

/// Returns what the answers to a command are; `None` if that to WAIT is missing.
fn report(command: &Command, mut values: Vec<Value>) -> Option<Report> {
    let replicas = match waits_for_replicas(command).then(|| values.pop()) {
        None => 0,
        Some(Some(Value::Int(replicas))) => u32::try_from(replicas).unwrap_or_default(),
        Some(_) => return None,
    };
    Some(match command {
        Command::Renew { .. } => {
            let leases = values.first().and_then(texts);
            Report::Renewed(leases.map(|parts| (Lease::parse(&parts), replicas)))
        }
        Command::Leave { .. } => Report::Left(matches!(values.first(), Some(Value::Int(_)))),
        Command::Publish { .. } => {
            Report::Published(values.iter().map(|value| written(value, replicas)).collect())
        }
        Command::Read(_) => Report::Read(values.iter().map(reading).collect()),
    })
}

/// Returns what an answer of [`record::PUBLISH`] means.
fn written(value: &Value, replicas: u32) -> Written {
    match value {
        Value::Int(1) => Written::Stored(replicas),
        Value::Int(_) => Written::Unusable,
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
        _ => texts(value).map_or(Reading::Failed, |parts| Reading::Found(Found::parse(&parts))),
    }
}

/// Adds the call of a script with one key. The text is sent each time: a server that has just become the primary does not
/// know it.
fn eval<'a>(pipeline: &'a mut Pipeline, script: &str, key: &[u8]) -> &'a mut Pipeline {
    pipeline.cmd("EVAL").arg(script).arg(1).arg(key)
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
