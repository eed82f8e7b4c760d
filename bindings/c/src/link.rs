//! Connections as commands find them.

use crate::fault::Fault;
use ringway_services_tokio::{Connection, TransportProperties};
use tokio::sync::Notify;

/// A connection, as commands find it.
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) abort: Notify,
}

impl Link {
    pub(crate) fn new(connection: Connection) -> Link {
        Link { connection, abort: Notify::new() }
    }

    /// Sets a property that can be changed while there is a connection.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<(), Fault> {
        let Link { connection, .. } = self;
        let mut all = TransportProperties {
            connection: connection.properties(),
            message: connection.message_defaults(),
            ..TransportProperties::default()
        };
        let before = all.clone();
        let invalid = |error| Fault::new(libc::EINVAL, format!("{error}"));
        all.set(name, value).map_err(invalid)?;
        if all.message != before.message {
            connection.set_message_defaults(all.message.clone());
        }
        let (new, old) = (&all.connection, &before.connection);
        if new.conn_priority != old.conn_priority {
            connection.set_priority(new.conn_priority);
        }
        if new.recv_checksum_len != old.recv_checksum_len {
            let set = connection.set_receive_coverage(new.recv_checksum_len.0);
            set?;
        }
        let reached = TransportProperties {
            connection: connection.properties(),
            message: connection.message_defaults(),
            ..before
        };
        if reached != all {
            let text = format!("{name} cannot be changed while there is a connection");
            return Err(Fault::new(libc::EISCONN, text));
        }
        Ok(())
    }

    pub(crate) fn property(&self, name: &str) -> Result<String, Fault> {
        let text = || format!("no property is named \"{name}\"");
        self.connection.property(name).ok_or_else(|| Fault::new(libc::EINVAL, text()))
    }
}
