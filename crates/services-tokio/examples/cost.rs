//! What the API costs beside plain sockets: moves messages from one task to another over loopback and prints the processor
//! time of the process for each, in nanoseconds. `interop/bench/services` runs it.
//!
//! ```text
//! cost tcp|udp services|plain|buffered MESSAGES SIZE
//! ```
//!
//! `plain` writes each message by a call of its own, as `services` does for datagrams; `buffered` collects messages of TCP
//! before it writes them. Both put a length before each message of TCP and read through a buffer.
#![allow(clippy::print_stdout, reason = "it is a program")]

use bytes::Bytes;
use ringway_services_tokio::{
    LocalEndpoint, Preconnection, Protocol, RemoteEndpoint, SecurityParameters, System,
    TransportProperties,
};
use std::error::Error;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Messages of UDP that are under way at once, fewer than the system's buffer holds.
const BURST: u64 = 32;
const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Returns the time that the process has spent on a processor, in nanoseconds.
fn processor() -> Outcome<u64> {
    let mut all = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        all += text.split(' ').next().ok_or("no figure")?.parse::<u64>()?;
    }
    Ok(all)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [protocol, kind, count, size] = words[..] else {
        return Err("expected tcp|udp services|plain|buffered MESSAGES SIZE".into());
    };
    let (count, size) = (count.parse()?, size.parse()?);
    let spent = match (protocol, kind) {
        ("tcp", "services") => services(Protocol::Tcp, count, size).await?,
        ("udp", "services") => services(Protocol::Udp, count, size).await?,
        ("tcp", "plain") => tcp(count, size, 0).await?,
        ("tcp", "buffered") => tcp(count, size, 64 * 1024).await?,
        ("udp", "plain") => udp(count, size).await?,
        _ => return Err("expected tcp or udp, and services, plain or (of tcp) buffered".into()),
    };
    println!("{:.1}", spent as f64 / count as f64);
    Ok(())
}

async fn services(protocol: Protocol, count: u64, size: usize) -> Outcome<u64> {
    let system = System::new();
    let new = || {
        let properties = match protocol {
            Protocol::Udp => TransportProperties::unreliable_datagram(),
            _ => TransportProperties::reliable_message(),
        };
        let new = Preconnection::new(&system, properties, SecurityParameters::disabled());
        let others = Protocol::ALL.iter().filter(|other| **other != protocol);
        others.fold(new, |new, other| new.without(*other))
    };
    let listener = new().from(LocalEndpoint::address(HERE)).listen().await?;
    let at = SocketAddr::new(HERE.ip(), listener.port());
    let client = new().to(RemoteEndpoint::address(at)).initiate().await?;
    let message = Bytes::from(vec![7; size]);
    client.send(message.clone()).await?;
    let server = listener.accept().await?;
    server.receive().await?;

    let before = processor()?;
    if protocol == Protocol::Udp {
        for _ in 0..count / BURST {
            for _ in 0..BURST {
                client.send(message.clone()).await?;
            }
            for _ in 0..BURST {
                server.receive().await?.ok_or("an end")?;
            }
        }
        return Ok(processor()? - before);
    }
    let send = async {
        for _ in 0..count {
            client.send(message.clone()).await?;
        }
        Ok::<_, ringway_services_tokio::Error>(())
    };
    let receive = async {
        for _ in 0..count {
            server.receive().await?;
        }
        Ok(())
    };
    tokio::try_join!(send, receive)?;
    Ok(processor()? - before)
}

async fn tcp(count: u64, size: usize, buffer: usize) -> Outcome<u64> {
    let listener = TcpListener::bind(HERE).await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let (server, _) = listener.accept().await?;
    let message = vec![7; size];
    let mut writer = BufWriter::with_capacity(buffer, client);
    let mut reader = BufReader::with_capacity(64 * 1024, server);

    let before = processor()?;
    let send = tokio::spawn(async move {
        let mut octets = Vec::new();
        for _ in 0..count {
            octets.clear();
            octets.extend_from_slice(&(message.len() as u32).to_be_bytes());
            octets.extend_from_slice(&message);
            writer.write_all(&octets).await?;
        }
        writer.flush().await?;
        Ok::<_, std::io::Error>(writer)
    });
    for _ in 0..count {
        let length = reader.read_u32().await? as usize;
        let mut message = vec![0; length];
        reader.read_exact(&mut message).await?;
        std::hint::black_box(Bytes::from(message));
    }
    send.await??;
    Ok(processor()? - before)
}

async fn udp(count: u64, size: usize) -> Outcome<u64> {
    let server = UdpSocket::bind(HERE).await?;
    let client = UdpSocket::bind(HERE).await?;
    client.connect(server.local_addr()?).await?;
    let message = vec![7; size];
    let mut buffer = vec![0; 65_535];

    let before = processor()?;
    for _ in 0..count / BURST {
        for _ in 0..BURST {
            client.send(&message).await?;
        }
        for _ in 0..BURST {
            let (length, _) = server.recv_from(&mut buffer).await?;
            std::hint::black_box(Bytes::copy_from_slice(&buffer[..length]));
        }
    }
    Ok(processor()? - before)
}
