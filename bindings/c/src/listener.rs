//! A listener and its descriptor: the descriptors of connections travel through it to whoever accepts them.

use crate::connection;
use crate::control::Reply;
use crate::end::{End, pair};
use crate::fault::Fault;
use crate::table;
use crate::world::World;
use ringway_services_tokio::{Connection, Preconnection};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;

/// Listens, reports the address, and hands over connections until the program closes the descriptor.
pub(crate) async fn open(
    world: Arc<World>,
    key: u64,
    end: End,
    preconnection: Preconnection,
    reply: Reply<SocketAddr>,
) {
    let listener = match preconnection.listen().await {
        Ok(listener) => listener,
        Err(error) => return drop(reply.send(Err(error.into()))),
    };
    let Some((_, first)) = listener.addresses().first() else {
        let text = "nothing to listen with";
        return drop(reply.send(Err(Fault::new(libc::EADDRNOTAVAIL, text))));
    };
    let _ = reply.send(Ok(SocketAddr::new(first.ip(), listener.port())));
    let mut closed = pin!(end.closed());
    loop {
        let connection = tokio::select! {
            connection = listener.accept() => connection,
            () = &mut closed => break,
            () = world.exiting() => break,
        };
        let Ok(connection) = connection else { break };
        // Nothing is accepted while one waits: what is bounded are those of the listener.
        tokio::select! {
            delivered = deliver(&world, &end, connection) => if delivered.is_err() { break },
            () = world.exiting() => break,
        }
    }
    table::remove(key);
}

/// Makes a descriptor for a connection, and waits until there is room for it.
async fn deliver(world: &Arc<World>, listener: &End, connection: Connection) -> io::Result<()> {
    let kind = listener.kind();
    // Where there is no descriptor for it, the connection is closed, and the next one may have more luck.
    let Ok((descriptor, other)) = pair(kind) else { return Ok(()) };
    let (Ok(key), Ok(end)) = (table::key(descriptor.as_fd()), End::new(other, kind)) else {
        return Ok(());
    };
    let info = connection::info(&connection);
    table::accepted(key, kind, info.clone());
    let sent = listener.write_with(|socket| info.send(socket, &descriptor)).await;
    if sent.is_err() {
        // The listener was closed: nobody will accept it.
        table::remove(key);
        return sent;
    }
    tokio::spawn(connection::serve(world.clone(), key, end, connection));
    Ok(())
}
