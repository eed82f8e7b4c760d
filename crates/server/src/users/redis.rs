//! Sessions with Redis or Valkey, by the scripts of [`ringway_users::script`].

use super::read::{Changes, Complete, ReadChange, Sink};
use super::shared::{Change, Changed, Expected, Failure};
use crate::cluster::client::RedisClient;
use crate::config::DatabaseUri;
use crate::store::users::HashedUser;
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use ringway_users::row::HASHES;
use ringway_users::script::{self, ALL, CHANGES, CHANNEL, MAX_VALUE, NUMBER, REMOVED};
use ringway_users::{MAX_USERS, Position};
use std::fmt;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Time in which one command is answered, or a connection is made.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);
/// Time in which replicas must have a change.
const REPLICA_LIMIT: Duration = Duration::from_millis(500);
/// Number of changes, and about the number of users, that are read at once.
const PAGE: usize = 1000;

/// The number of the last change is none.
const NO_NUMBER: &str = "key ringway:{users}:number: expected a number";

/// A database, not connected yet.
pub struct Server {
    client: RedisClient,
    replicas: u32,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.uri().fmt(f)
    }
}

impl Server {
    /// Returns a database whose changes so many replicas must have.
    ///
    /// # Errors
    /// Fails for trust anchors that cannot be used.
    pub(super) fn new(
        uri: DatabaseUri,
        roots: Option<Vec<u8>>,
        replicas: u32,
    ) -> Result<Self, String> {
        let client = RedisClient::new(uri, roots).map_err(|e| format!("users.source: {e}"))?;
        Ok(Server { client, replicas })
    }

    /// Connects. Changes are reported to `heard` from then on, which is closed when the connection is lost.
    pub(super) async fn connect(&self, heard: Option<mpsc::Sender<()>>) -> Result<Session, String> {
        let connect = async {
            // First, so that nothing is lost between the two.
            let listener = match heard {
                Some(heard) => Some(Ended(self.listen(heard).await?)),
                None => None,
            };
            let connection = self.client.connect(None).await?;
            Ok(Session { connection, replicas: self.replicas, _listener: listener })
        };
        limited(connect).await
    }

    async fn listen(&self, heard: mpsc::Sender<()>) -> Result<JoinHandle<()>, String> {
        let subscription = self.client.subscribe(None, CHANNEL).await;
        let mut messages = subscription.map_err(|e| e.to_string())?.into_on_message();
        Ok(tokio::spawn(async move {
            while messages.next().await.is_some() {
                // One that waits stands for all.
                let _ = heard.try_send(());
            }
        }))
    }
}

/// A task that ends with its session.
struct Ended(JoinHandle<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection with the primary.
pub(super) struct Session {
    connection: MultiplexedConnection,
    replicas: u32,
    _listener: Option<Ended>,
}

impl Session {
    async fn query(&mut self, command: &Cmd) -> Result<Value, String> {
        let send = async { self.connection.send_packed_command(command).await };
        limited(async { send.await.map_err(|e| e.to_string()) }).await
    }

    /// Reads everything, in pages. What changes meanwhile is read again as a change.
    pub(super) async fn read_all(&mut self, sink: &mut dyn Sink) -> Result<Complete, String> {
        let count = self.query(redis::cmd("HLEN").arg(ALL)).await?;
        if number(&count).is_none_or(|count| count > MAX_USERS as i64) {
            return Err(format!("key {ALL}: expected at most {MAX_USERS} users, got more"));
        }
        let position = match self.query(redis::cmd("GET").arg(NUMBER)).await? {
            Value::Nil => 0,
            value => number(&value).ok_or(NO_NUMBER)?,
        };
        let mut cursor = b"0".to_vec();
        loop {
            let mut command = eval(script::READ_ALL);
            command.arg(&cursor).arg(PAGE).arg(MAX_VALUE);
            let values = array(self.query(&command).await?)?;
            let mut values = values.into_iter();
            cursor = octets(values.next())?;
            let mut rows = Vec::new();
            while let Some(name) = values.next() {
                rows.push(script::entry(&octets(Some(name))?, &octets(values.next())?));
            }
            // A scan returns a user twice if the table of users grew or shrank meanwhile.
            sink.page(rows, true);
            if cursor == b"0" {
                break;
            }
        }
        let mut noted = Vec::new();
        for users in sink.missing().chunks(PAGE) {
            let mut command = eval(script::NOTED);
            for (user, realm) in users {
                command.arg(script::name(user, realm));
            }
            let what = array(self.query(&command).await?)?;
            let is_noted = |what: &Value| number(what).is_some_and(|what| what > 0);
            let pairs = users.iter().zip(what);
            noted.extend(pairs.filter(|(_, what)| is_noted(what)).map(|(user, _)| user.clone()));
        }
        Ok(Complete { position, noted })
    }

    /// Reads the changes after one, some at a time.
    pub(super) async fn read_changes(&mut self, after: Position) -> Result<Changes, String> {
        let mut command = eval(script::READ_CHANGES);
        command.arg(after).arg(PAGE).arg(MAX_VALUE);
        let mut values = array(self.query(&command).await?)?.into_iter();
        let last = values.next().as_ref().and_then(number).ok_or(NO_NUMBER)?;
        let (mut changes, mut count, mut end) = (Vec::new(), 0, after);
        while let Some(score) = values.next() {
            let (name, value) = (octets(values.next())?, octets(values.next())?);
            (count, end) = (count + 1, before(&octets(Some(score))?).unwrap_or(end));
            match &*value {
                // Found missing when everything is read.
                b"-" => {}
                b"" => {
                    let (user, realm) = script::from_name(&name);
                    let text = |octets| String::from_utf8_lossy(octets).into_owned();
                    changes.push(ReadChange::Removed(text(user), text(realm)));
                }
                value => changes.push(ReadChange::Set(script::entry(&name, value))),
            }
        }
        if count < PAGE {
            return Ok(Changes { changes, position: last, more: false });
        }
        if end <= after {
            return Err(format!("key {CHANGES}: expected fewer than {PAGE} changes of one number"));
        }
        Ok(Changes { changes, position: end, more: true })
    }

    /// Calls a script that changes users. The caller has a limit for it.
    async fn execute(&mut self, command: &Cmd) -> Result<Value, Failure> {
        match self.connection.send_packed_command(command).await {
            Ok(Value::ServerError(e)) => Err(Failure::Unchanged(e.to_string())),
            Ok(value) => Ok(value),
            // A script that fails has changed no user.
            Err(e) if e.code().is_some() => Err(Failure::Unchanged(e.to_string())),
            Err(e) => Err(Failure::Unknown(e.to_string())),
        }
    }

    /// Carries out a change, and waits for replicas. The caller has a limit for it.
    pub(super) async fn write(&mut self, change: &Change) -> Result<Changed, Failure> {
        let changed = match change {
            Change::Put(users, expected) => self.put(users, *expected).await?,
            Change::Remove(user, realm) => {
                let mut command = eval(script::REMOVE);
                command.arg(script::name(user, realm)).arg(CHANNEL);
                match number(&self.execute(&command).await?) {
                    Some(0) => Changed::Missing(format!("{user}@{realm}")),
                    Some(position) => Changed::Done(position),
                    None => return Err(other_answer()),
                }
            }
            Change::Prune => Changed::Done(0),
        };
        if let (Changed::Done(_), 1..) = (&changed, self.replicas) {
            let mut wait = redis::cmd("WAIT");
            wait.arg(self.replicas).arg(REPLICA_LIMIT.as_millis() as u64);
            let have = self.query(&wait).await.map_err(Failure::Made)?;
            let have = number(&have).unwrap_or_default();
            if have < i64::from(self.replicas) {
                return Err(Failure::Made(format!(
                    "{have} replicas have the change, expected {} (cluster.replicas)",
                    self.replicas
                )));
            }
        }
        Ok(changed)
    }

    async fn put(&mut self, users: &[HashedUser], expected: Expected) -> Result<Changed, Failure> {
        let mode = match expected {
            Expected::New => "new",
            Expected::Existing => "old",
            Expected::Any => "any",
        };
        let mut command = eval(script::PUT);
        command.arg(mode).arg(MAX_USERS).arg(CHANNEL);
        for HashedUser { user, realm, hashes } in users {
            let hex = HASHES.map(|algorithm| {
                let mut hex = Vec::new();
                hashes.get(algorithm)?.write_hex(&mut hex);
                String::from_utf8(hex).ok()
            });
            command.arg(script::name(user, realm));
            command.arg(script::value(hex, hashes.password_set()));
        }
        let answer = array(self.execute(&command).await?).map_err(Failure::Unknown)?;
        let name = || {
            let name = octets(answer.get(1).cloned()).unwrap_or_default();
            String::from_utf8_lossy(&name).into_owned()
        };
        match answer.first().and_then(number) {
            Some(1) => Ok(Changed::Done(answer.get(1).and_then(number).unwrap_or_default())),
            Some(0) => Ok(Changed::Exists(name())),
            Some(-1) => Ok(Changed::Missing(name())),
            Some(-2) => {
                Err(Failure::Unchanged(format!("expected at most {MAX_USERS} users, got more")))
            }
            _ => Err(other_answer()),
        }
    }
}

fn other_answer() -> Failure {
    Failure::Unknown("expected the answer of a script, got another value".to_owned())
}

/// Returns the call of a script with the keys of users. The text is sent each time: a server that has just become the
/// primary does not know it.
fn eval(script: &str) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(4).arg(ALL).arg(CHANGES).arg(NUMBER).arg(REMOVED);
    command
}

/// Returns the last number before that of a change. Others may have the same: they are read with the next page.
fn before(score: &[u8]) -> Option<Position> {
    let score: f64 = std::str::from_utf8(score).ok()?.parse().ok()?;
    Some((score.ceil() as Position).saturating_sub(1))
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::BulkString(octets) => std::str::from_utf8(octets).ok()?.parse().ok(),
        _ => None,
    }
}

fn array(value: Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Array(values) => Ok(values),
        Value::ServerError(e) => Err(e.to_string()),
        _ => Err("expected a list from a script, got another value".to_owned()),
    }
}

fn octets(value: Option<Value>) -> Result<Vec<u8>, String> {
    match value {
        Some(Value::BulkString(octets)) => Ok(octets),
        _ => Err("expected a text from a script, got another value".to_owned()),
    }
}

/// Waits for an answer, but not for long.
async fn limited<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(COMMAND_LIMIT, work).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {} s", COMMAND_LIMIT.as_secs())),
    }
}
