//! The server: a table, and a task for each connection.

use crate::protocol::{Message, PATIENT, URGENT};
use bytes::Bytes;
use ringway_services_tokio::{Connection, Error, Listener};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast;

/// Values of the table; more are refused by leaving them out.
const MAX_VALUES: usize = 10_000;
/// Changes that a slow watcher may be behind; it misses older ones.
const MAX_CHANGES: usize = 1_000;

struct Table {
    values: Mutex<BTreeMap<String, Bytes>>,
    changes: broadcast::Sender<(String, Bytes)>,
}

impl Table {
    fn put(&self, key: String, value: Bytes) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if values.len() < MAX_VALUES || values.contains_key(&key) {
            values.insert(key.clone(), value.clone());
            let _ = self.changes.send((key, value));
        }
    }

    fn get(&self, key: &str) -> Option<Bytes> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

/// Serves until the listener fails.
pub(crate) async fn serve(listener: Listener) -> Result<(), Error> {
    let (values, changes) = (Mutex::default(), broadcast::channel(MAX_CHANGES).0);
    let table = Arc::new(Table { values, changes });
    loop {
        let connection = listener.accept().await?;
        tokio::spawn(answer(connection, table.clone()));
    }
}

/// Answers a connection until it ends, however it does.
async fn answer(connection: Connection, table: Arc<Table>) -> Result<(), Error> {
    connection.set_priority(URGENT);
    while let Some(message) = connection.receive().await? {
        match Message::decode(&message.bytes) {
            Some(Message::Put(key, value)) => {
                table.put(key, value);
                connection.send(Message::Done.encode()).await?;
            }
            Some(Message::Get(key)) => {
                let value = table.get(&key);
                let answer = value.map_or(Message::Done, |value| Message::Value(key, value));
                connection.send(answer.encode()).await?;
            }
            Some(Message::Watch) => return watch(&connection, &table).await,
            _ => {
                connection.abort();
                return Ok(());
            }
        }
    }
    connection.close().await
}

/// Sends changes until the watch is cancelled.
async fn watch(connection: &Connection, table: &Table) -> Result<(), Error> {
    connection.set_priority(PATIENT);
    let mut changes = table.changes.subscribe();
    connection.send(Message::Done.encode()).await?;
    loop {
        tokio::select! {
            change = changes.recv() => match change {
                Ok((key, value)) => connection.send(Message::Value(key, value).encode()).await?,
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return connection.close().await,
            },
            // Whatever comes, the end or an error, it is over.
            ended = connection.receive() => return ended.map(|_| ()),
        }
    }
}
