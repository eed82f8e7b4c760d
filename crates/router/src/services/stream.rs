//! Clients that ask the DNS by TCP. A source has a share of the connections, and each has a time.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringway_lan::dns::{Dns, Stream, Transport, frame};
use ringway_os::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Connections at once, and those of one source.
const MAX_CLIENTS: usize = 64;
const MAX_OF_SOURCE: usize = 4;
/// Queries of one connection.
const MAX_QUERIES: usize = 100;
/// Time for each query and its answer (RFC 7766 section 6.2.3).
const PATIENCE: Duration = Duration::from_secs(10);
/// Octets that are read at once.
const PIECE: usize = 1_024;

/// The connections.
#[derive(Debug, Default)]
pub(super) struct Clients(Vec<(IpAddr, AbortHandle)>);

impl Clients {
    /// Serves a client, or closes its connection if there are too many. To be called within a runtime.
    pub(super) fn accept(
        &mut self,
        clock: Clock,
        stream: TcpStream,
        from: SocketAddr,
        dns: &Arc<Mutex<Dns>>,
    ) {
        self.0.retain(|(_, task)| !task.is_finished());
        let source = from.ip();
        let of_source = self.0.iter().filter(|(other, _)| *other == source).count();
        if self.0.len() >= MAX_CLIENTS || of_source >= MAX_OF_SOURCE {
            return;
        }
        let dns = dns.clone();
        let task = tokio::spawn(async move {
            // A client that goes away early, or does not read, loses its answer.
            let _ = serve(clock, stream, source, &dns).await;
        });
        self.0.push((source, task.abort_handle()));
    }

    /// Closes all connections.
    pub(super) fn close(&mut self) {
        self.0.drain(..).for_each(|(_, task)| task.abort());
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.close();
    }
}

/// Answers the queries of a connection, until the client ends it or there is one without an answer.
async fn serve(
    clock: Clock,
    mut stream: TcpStream,
    source: IpAddr,
    dns: &Mutex<Dns>,
) -> io::Result<()> {
    let mut queries = Stream::default();
    for _ in 0..MAX_QUERIES {
        let read = next_query(&mut stream, &mut queries);
        let Some(query) = timeout(PATIENCE, read).await?? else { return Ok(()) };
        let answer = {
            let mut dns = dns.lock().unwrap_or_else(PoisonError::into_inner);
            dns.answer(clock.now(), source, &query, Transport::Tcp)
        };
        let Some(answer) = answer.and_then(|answer| frame(&answer)) else { return Ok(()) };
        timeout(PATIENCE, stream.write_all(&answer)).await??;
    }
    Ok(())
}

/// Returns the next query; `None` at the end of the connection, or where no query can be.
async fn next_query(stream: &mut TcpStream, queries: &mut Stream) -> io::Result<Option<Vec<u8>>> {
    let mut piece = [0; PIECE];
    loop {
        match queries.next_message() {
            Ok(Some(query)) => return Ok(Some(query)),
            Ok(None) => {}
            Err(_) => return Ok(None),
        }
        match stream.read(&mut piece).await? {
            0 => return Ok(None),
            count => queries.push(&piece[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_lan::{Ipv4Lan, SipService, Site};
    use ringway_mesh::NodeId;
    use tokio::net::TcpListener;

    const QUERY: &[u8] = b"\0\x1a\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03sip\x04mesh\0\0\x01\0\x01";

    /// A client and its connection to a server that takes it for another.
    async fn connect(clients: &mut Clients, source: &str, dns: &Arc<Mutex<Dns>>) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        clients.accept(Clock::new(), stream, SocketAddr::new(source.parse().unwrap(), 40_000), dns);
        client
    }

    async fn ask(client: &mut TcpStream, octets: &[u8]) -> Vec<u8> {
        // The connection may be closed already.
        let _ = client.write_all(octets).await;
        let mut length = [0; 2];
        if client.read_exact(&mut length).await.is_err() {
            return Vec::new();
        }
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        client.read_exact(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn queries_are_answered_in_order_and_connections_are_shared() {
        let site = Site::new(NodeId::new(1), SipService::default(), Some(Ipv4Lan::DEFAULT));
        let dns = Arc::new(Mutex::new(Dns::new(&site.unwrap())));
        let mut clients = Clients::default();
        let mut one = connect(&mut clients, "10.50.60.9", &dns).await;
        for _ in 0..3 {
            assert!(ask(&mut one, QUERY).await.ends_with(&[10, 50, 60, 1]));
        }
        assert_eq!(ask(&mut one, &[255, 255, 0]).await, b"", "no query is so long");
        let mut outside = connect(&mut clients, "192.0.2.1", &dns).await;
        assert_eq!(ask(&mut outside, QUERY).await, b"");
        let mut many = Vec::new();
        for _ in 0..6 {
            many.push(connect(&mut clients, "10.50.60.8", &dns).await);
        }
        let mut answered = 0;
        for client in &mut many {
            answered += usize::from(!ask(client, QUERY).await.is_empty());
        }
        assert_eq!(answered, MAX_OF_SOURCE);
        let mut other = connect(&mut clients, "10.50.60.7", &dns).await;
        assert!(!ask(&mut other, QUERY).await.is_empty());
        clients.close();
        assert_eq!(ask(&mut other, QUERY).await, b"");
    }
}
