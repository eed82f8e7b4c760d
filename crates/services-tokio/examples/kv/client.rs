//! The client: a connection for requests, and one for each watch.

use crate::protocol::{Fault, Message, PATIENT, URGENT, is_key};
use bytes::Bytes;
use ringway_services_tokio::{Connection, Explanation, Preconnection};

/// A client.
pub(crate) struct Client {
    requests: Connection,
}

/// Changes of the values.
pub(crate) struct Watch {
    connection: Connection,
}

impl Client {
    pub(crate) async fn open(preconnection: &Preconnection) -> Result<Client, Fault> {
        let requests = preconnection.initiate().await?;
        requests.set_priority(URGENT);
        Ok(Client { requests })
    }

    pub(crate) fn explain(&self) -> &Explanation {
        self.requests.explain()
    }

    pub(crate) async fn put(&self, key: &str, value: &[u8]) -> Result<(), Fault> {
        let put = Message::Put(checked(key)?, Bytes::copy_from_slice(value));
        match ask(&self.requests, &put).await? {
            Some(Message::Done) => Ok(()),
            other => Err(Fault::Unexpected(other)),
        }
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<Bytes>, Fault> {
        match ask(&self.requests, &Message::Get(checked(key)?)).await? {
            Some(Message::Value(_, value)) => Ok(Some(value)),
            Some(Message::Done) => Ok(None),
            other => Err(Fault::Unexpected(other)),
        }
    }

    /// Watches all changes from now on, by a connection of its own in the same group.
    pub(crate) async fn watch(&self) -> Result<Watch, Fault> {
        let connection = self.requests.clone().await?;
        connection.set_priority(PATIENT);
        match ask(&connection, &Message::Watch).await? {
            Some(Message::Done) => Ok(Watch { connection }),
            other => Err(Fault::Unexpected(other)),
        }
    }
}

impl Watch {
    /// Returns the next change; `None` when there will be no more.
    pub(crate) async fn next(&self) -> Result<Option<(String, Bytes)>, Fault> {
        match receive(&self.connection).await? {
            Some(Message::Value(key, value)) => Ok(Some((key, value))),
            None => Ok(None),
            other => Err(Fault::Unexpected(other)),
        }
    }

    /// Cancels the watch. The requests of the client go on.
    pub(crate) fn cancel(self) {
        self.connection.abort();
    }
}

fn checked(key: &str) -> Result<String, Fault> {
    if is_key(key) { Ok(key.to_string()) } else { Err(Fault::Key) }
}

async fn ask(connection: &Connection, request: &Message) -> Result<Option<Message>, Fault> {
    connection.send(request.encode()).await?;
    receive(connection).await
}

async fn receive(connection: &Connection) -> Result<Option<Message>, Fault> {
    let Some(message) = connection.receive().await? else { return Ok(None) };
    Ok(Some(Message::decode(&message.bytes).ok_or(Fault::Unexpected(None))?))
}
