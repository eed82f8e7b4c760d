//! Messages between two programs over SCTP in UDP, with several addresses on each side.
//!
//! ```text
//! messages receive 127.0.0.2,127.0.0.4                  waits, and prints each message
//! messages send 127.0.0.1,127.0.0.3 127.0.0.2,127.0.0.4 sends ten messages on two streams
//! ```
//!
//! The receiver uses the default UDP port 9899, the sender any port.
#![allow(clippy::print_stdout)]

use ringway_sctp_tokio::{
    Association, Close, Config, Connect, EndedError, Event, Over, Reliability, SendOptions, Stack,
};
use std::net::IpAddr;
use std::time::Duration;

/// The SCTP port of the receiver.
const PORT: u16 = 7000;

/// The payload protocol identifier of the messages.
const TEXT: u32 = 1;

const USAGE: &str = "expected: receive OURS | send OURS THEIRS, each ADDRESS[,ADDRESS..]";

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Prints the events of an association, until its end.
async fn watch(association: Association) {
    while let Some(event) = association.event().await {
        match event {
            Event::Path { remote, state } => println!("path to {remote}: {state:?}"),
            Event::SendFailed { messages } => println!("{messages} messages will not arrive"),
            Event::Changed(change) => println!("changed: {change:?}"),
            Event::Closed(Close::Finished) => println!("ended in order"),
            Event::Closed(why) => println!("ended: {why:?}"),
            other => println!("{other:?}"),
        }
    }
}

/// Prints the messages of an association, until its end.
async fn receive(association: Association) -> Result<(), EndedError> {
    tokio::spawn(watch(association.clone()));
    while let Some(message) = association.recv().await? {
        let text = String::from_utf8_lossy(&message.bytes);
        let order = if message.unordered { "unordered" } else { "in order" };
        println!("stream {}, {order}, kind {}: {text}", message.stream, message.ppid);
    }
    Ok(())
}

async fn listen(ours: &[IpAddr]) -> Outcome {
    let stack = Stack::new(Config::new(Over::udp(ours)))?;
    let listener = stack.listen(ours, PORT, None)?;
    println!("waiting");
    loop {
        let association = listener.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = receive(association).await {
                println!("{error}");
            }
        });
    }
}

async fn send(ours: &[IpAddr], theirs: &[IpAddr]) -> Outcome {
    let stack = Stack::new(Config::new(Over::Udp { locals: ours.to_vec(), port: 0 }))?;
    let association = stack.connect(&Connect::new(ours, theirs, PORT)).await?;
    let watching = tokio::spawn(watch(association.clone()));
    for number in 0..10 {
        let options = SendOptions {
            stream: number % 2,
            ppid: TEXT,
            // Every third message is unordered, and has a lifetime of one second.
            unordered: number % 3 == 0,
            reliability: match number % 3 {
                0 => Reliability::Lifetime(Duration::from_secs(1)),
                _ => Reliability::Full,
            },
            ..SendOptions::default()
        };
        association.send(format!("message {number}"), &options).await?;
    }
    for path in association.paths()? {
        println!("{} -> {}: {:?}, rtt {:?}", path.local, path.remote, path.state, path.srtt);
    }
    let totals = association.statistics()?.totals;
    println!("{} packets sent, {} received", totals.packets_sent, totals.packets_received);
    // All messages are delivered before the association ends.
    association.shutdown().await?;
    Ok(watching.await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let list = |text: &str| text.split(',').map(str::parse).collect::<Result<Vec<IpAddr>, _>>();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", ours] => listen(&list(ours)?).await,
        ["send", ours, theirs] => send(&list(ours)?, &list(theirs)?).await,
        _ => Err(USAGE.into()),
    }
}
