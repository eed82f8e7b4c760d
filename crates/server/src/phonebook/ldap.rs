//! A connection of LDAP: octets go to the machine of `ringway_phonebook::ldap`, and come from it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ringway_net::Clock;
use ringway_phonebook::Book;
use ringway_phonebook::ldap::{Connection, Directory, Progress};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::PhonebookCounts;
use super::library::Library;

/// Octets that are read at once.
const READ: usize = 4_096;

/// Serves a connection.
pub(super) async fn serve(
    stream: TcpStream,
    directory: Arc<Directory>,
    library: Arc<Library>,
    counts: Arc<PhonebookCounts>,
    clock: Clock,
) {
    counts.connections.fetch_add(1, Relaxed);
    // A fault of the peer ends its connection and concerns no other.
    let _ = run(stream, &directory, &library, clock).await;
}

async fn run(
    mut stream: TcpStream,
    directory: &Directory,
    library: &Library,
    clock: Clock,
) -> io::Result<()> {
    let mut connection = Connection::new(clock.now());
    let mut book = Arc::<Book>::default();
    let mut buffer = [0; READ];
    loop {
        let progress = connection.work(clock.now(), directory, &book);
        let (room, has_output) = (connection.room().min(READ), !connection.output().is_empty());
        match progress {
            Progress::Closing => return finish(&mut stream, &mut connection, clock).await,
            Progress::Working => {
                // Others have their turn.
                tokio::task::yield_now().await;
                write_some(&stream, &mut connection, clock)?;
                continue;
            }
            Progress::Waiting => {}
        }
        let due = connection.poll_timeout().unwrap_or_else(|| clock.now());
        tokio::select! {
            ready = stream.readable(), if room > 0 => {
                ready?;
                match stream.try_read(&mut buffer[..room]) {
                    Ok(0) => return Ok(()),
                    Ok(length) => {
                        book = library.book().await;
                        connection.receive(clock.now(), &buffer[..length]);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            ready = stream.writable(), if has_output => {
                ready?;
                write_some(&stream, &mut connection, clock)?;
            }
            () = tokio::time::sleep_until(clock.instant(due).into()) => {}
        }
    }
}

/// Writes what there is room for.
fn write_some(stream: &TcpStream, connection: &mut Connection, clock: Clock) -> io::Result<()> {
    if connection.output().is_empty() {
        return Ok(());
    }
    match stream.try_write(connection.output()) {
        Ok(length) => connection.sent(clock.now(), length),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Writes the rest and closes. Who does not read is not waited for long.
async fn finish(
    stream: &mut TcpStream,
    connection: &mut Connection,
    clock: Clock,
) -> io::Result<()> {
    const LAST: std::time::Duration = std::time::Duration::from_secs(5);
    let rest = connection.output().to_vec();
    let _ = tokio::time::timeout(LAST, stream.write_all(&rest)).await;
    connection.sent(clock.now(), rest.len());
    Ok(())
}
