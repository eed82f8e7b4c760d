//! A connection and its descriptor: what is written to one goes to the other.

use crate::end::End;
use crate::fault::Fault;
use crate::link::Link;
use crate::packet::{Header, Info, MAX_MESSAGE, Written};
use crate::table::{self, Kind};
use crate::world::World;
use bytes::Bytes;
use ringway_services_tokio::{Connection, Error};
use std::future::{Future, pending};
use std::io;
use std::sync::Arc;

/// How the service of a descriptor ends.
enum Outcome {
    /// The program has closed it.
    Closed,
    Aborted,
    Broken(Fault),
}

/// Returns what every process may know of a connection.
pub(crate) fn info(connection: &Connection) -> Info {
    let max = connection.message_limits().send_msg_max_len;
    Info {
        local: connection.local_address(),
        remote: connection.remote_address(),
        max: max.map_or(MAX_MESSAGE, |max| (max as usize).min(MAX_MESSAGE)),
        services: crate::service::bits(connection.provides()),
        protocol: connection.protocol().name().to_string(),
    }
}

/// Opens a connection for a descriptor, and serves it.
pub(crate) async fn open(
    world: Arc<World>,
    key: u64,
    end: End,
    connecting: impl Future<Output = Result<Connection, Error>>,
) {
    let connected = tokio::select! {
        connected = connecting => connected,
        () = end.closed() => return table::remove(key),
        () = world.exiting() => return,
    };
    match connected {
        Ok(connection) => {
            // The program may write as soon as it can.
            table::connected(key, info(&connection));
            end.make_writable();
            serve(world, key, end, connection).await;
        }
        Err(error) => refuse(key, &end, error.into()),
    }
}

/// Reports to a descriptor that nothing has connected.
pub(crate) fn refuse(key: u64, end: &End, fault: Fault) {
    // In this order: who sees the descriptor ready sees the error, too.
    table::failed(key, fault);
    end.end();
    end.make_writable();
}

/// Serves a descriptor until it is closed or the connection ends.
pub(crate) async fn serve(world: Arc<World>, key: u64, end: End, connection: Connection) {
    let link = Arc::new(Link::new(connection));
    world.add(key, link.clone());
    let connection = &link.connection;
    let outcome = tokio::select! {
        fault = deliver(&end, connection) => Outcome::Broken(fault),
        outcome = send(&world, key, &end, connection) => outcome,
        () = link.abort.notified() => Outcome::Aborted,
    };
    match outcome {
        Outcome::Closed => {
            // Of a descriptor whose both directions have ended it is not known whether it is closed.
            if end.has_ended_writing() {
                table::ended(key)
            } else {
                table::remove(key)
            }
            // The program has left, and nobody is there to learn of an error.
            let _ = connection.close().await;
        }
        Outcome::Aborted => {
            connection.abort();
            table::failed(key, Fault::new(libc::ECONNABORTED, "the connection was aborted here"));
            end.end();
        }
        Outcome::Broken(fault) => {
            table::failed(key, fault);
            end.end();
        }
    }
    world.remove(key);
}

/// Writes to the descriptor what the peer sends, until the connection breaks.
async fn deliver(end: &End, connection: &Connection) -> Fault {
    loop {
        match connection.receive().await {
            Ok(Some(message)) => {
                if end.write(&message).await.is_err() {
                    // The program has closed it; what it has written before still goes.
                    return pending().await;
                }
            }
            Ok(None) => {
                end.end_writing();
                return pending().await;
            }
            Err(error) => return error.into(),
        }
    }
}

/// Sends what the program writes, until it closes the descriptor or the connection breaks.
async fn send(world: &World, key: u64, end: &End, connection: &Connection) -> Outcome {
    let mut is_exiting = false;
    let mut has_sent_last = false;
    loop {
        let read = if is_exiting {
            end.try_read().map_err(io::Error::from)
        } else {
            tokio::select! {
                read = end.read() => read,
                () = world.exiting() => {
                    is_exiting = true;
                    continue;
                }
            }
        };
        let sent = match read {
            Ok(Some(written)) => {
                send_one(end.kind(), connection, written, &mut has_sent_last).await
            }
            Ok(None) if is_exiting || end.is_closed() => return Outcome::Closed,
            Ok(None) => {
                // The program has ended its direction.
                if !has_sent_last && let Err(error) = connection.send_final(Bytes::new()).await {
                    return Outcome::Broken(error.into());
                }
                end.closed().await;
                return Outcome::Closed;
            }
            Err(_) => return Outcome::Closed,
        };
        match sent {
            Ok(()) => {}
            // Such a message is one that may be lost.
            Err(error) if error.errno == libc::ETIME => {}
            // It concerns the message alone.
            Err(error)
                if [libc::EMSGSIZE, libc::EINVAL, libc::EOPNOTSUPP].contains(&error.errno) =>
            {
                table::report(key, error);
            }
            Err(error) => return Outcome::Broken(error),
        }
    }
}

async fn send_one(
    kind: Kind,
    connection: &Connection,
    written: Written,
    has_sent_last: &mut bool,
) -> Result<(), Fault> {
    let (header, message) = written?;
    *has_sent_last |= header.is_last;
    let plain = Header { is_end: header.is_end, length: header.length, ..Header::default() };
    let sent = if kind == Kind::Bytes || header == plain {
        connection.send(message).await
    } else {
        let properties = header.properties(connection.message_defaults());
        connection.send_with(message, &properties).await
    };
    sent.map_err(Fault::from)
}
