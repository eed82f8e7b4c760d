//! Many associations of one endpoint at once, on a runtime with several threads.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use ringway_sctp_tokio::{
    Association, Close, Config, Connect, EndedError, Listener, Over, SendOptions, Settings, Stack,
};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::task::JoinSet;

const PORT: u16 = 5060;

/// The time-out of a test, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

const THREADS: usize = 4;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    runtime
        .unwrap()
        .block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("in time") })
}

fn stack(local: IpAddr, settings: Settings) -> Stack {
    let over = Over::Udp { locals: vec![local], port: 0 };
    Stack::new(Config { settings, ..Config::new(over) }).unwrap()
}

/// How the side that opens an association treats it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    /// Sends, and shuts down.
    Shutdown,
    /// Sends, waits for all echoes, and aborts.
    Abort,
    /// Sends, and drops its handle.
    Drop,
    /// Waits until the other side aborts.
    Aborted,
}

const LIVES: [Life; 4] = [Life::Shutdown, Life::Abort, Life::Drop, Life::Aborted];

/// Associations of each task that opens some, one after the other.
const ROUNDS: usize = 12;
const TASKS: usize = 16;
const MESSAGES: usize = 20;

fn message(life: Life, number: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; 100 + 97 * number];
    bytes[0] = LIVES.iter().position(|other| *other == life).unwrap() as u8;
    bytes
}

/// Opens an association, sends on several streams, checks the echoes, and ends it. Returns whether it was aborted without a
/// reason.
async fn live(stack: &Stack, connect: &Connect, life: Life) -> bool {
    let association = stack.connect(connect).await.unwrap();
    for number in 0..MESSAGES {
        let options = SendOptions { stream: (number % 5) as u16, ..SendOptions::default() };
        association.send(message(life, number), &options).await.unwrap();
    }
    if life == Life::Drop {
        return false;
    }
    let mut next = HashMap::new();
    for _ in 0..MESSAGES {
        let echo = association.recv().await.unwrap().unwrap();
        let number = next.entry(echo.stream).or_insert(usize::from(echo.stream));
        assert_eq!(echo.bytes, message(life, *number));
        *number += 5;
    }
    match life {
        Life::Shutdown => association.shutdown().await.unwrap(),
        Life::Abort => association.abort(b"enough").unwrap(),
        Life::Aborted => {
            let end = association.recv().await.unwrap_err();
            let end = end.to_string();
            let is_without_reason = end.contains("without a cause");
            assert!(is_without_reason || end.contains("by the other side"), "{end}");
            return is_without_reason;
        }
        Life::Drop => {}
    }
    false
}

/// Echoes what arrives until the end. Returns the kind of life and the number of messages.
async fn echo(association: Association) -> (Life, usize) {
    let (mut life, mut messages) = (None, 0);
    loop {
        let message = match association.recv().await {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(EndedError::Closed(Close::Aborted { .. })) => break,
            Err(error) => panic!("{life:?}: {error}"),
        };
        let kind = LIVES[usize::from(message.bytes[0])];
        assert_eq!(*life.get_or_insert(kind), kind, "messages of two associations");
        messages += 1;
        let options = SendOptions { stream: message.stream, ..SendOptions::default() };
        // Refused once the peer shuts down.
        let _ = association.send(message.bytes, &options).await;
        if kind == Life::Aborted && messages == MESSAGES {
            // Once the echoes are acknowledged.
            while association.statistics().is_ok_and(|now| now.unacknowledged > 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            association.abort(b"by the other side").unwrap();
        }
    }
    (life.unwrap(), messages)
}

async fn accept_all(listener: Listener, count: usize) -> HashMap<u8, usize> {
    let mut served = JoinSet::new();
    for _ in 0..count {
        served.spawn(echo(listener.accept().await.unwrap()));
    }
    let mut lives = HashMap::new();
    while let Some(result) = served.join_next().await {
        let (life, messages) = result.unwrap();
        assert_eq!(messages, MESSAGES, "{life:?}");
        *lives.entry(life as u8).or_insert(0) += 1;
    }
    lives
}

/// Associations of one endpoint open, send, shut down, abort and are dropped at once, and both sides agree on each.
#[test]
fn associations_open_send_and_end_at_once() {
    run(async {
        // The buffers are so small that both ends wait repeatedly.
        let settings =
            Settings { send_buffer: 8_000, receive_buffer: 8_000, ..Settings::default() };
        let (a, b) = (stack(ip(21), settings), stack(ip(22), settings));
        let listener = b.listen(&[ip(22)], PORT, None).unwrap();
        let encapsulation = b.udp_port().unwrap();
        let connect = Connect { encapsulation, ..Connect::new(&[ip(21)], &[ip(22)], PORT) };
        let accepting = tokio::spawn(accept_all(listener, TASKS * ROUNDS));
        let mut opening = JoinSet::new();
        for task in 0..TASKS {
            let (a, connect) = (a.clone(), connect.clone());
            opening.spawn(async move {
                let mut without_reason = 0;
                for round in 0..ROUNDS {
                    let life = LIVES[(task + round) % LIVES.len()];
                    without_reason += usize::from(live(&a, &connect, life).await);
                }
                without_reason
            });
        }
        let mut without_reason = 0;
        while let Some(result) = opening.join_next().await {
            without_reason += result.unwrap();
        }
        let lives = accepting.await.unwrap();
        let each = TASKS * ROUNDS / LIVES.len();
        // Seldom, what arrives after the end is answered first, by an ABORT without a reason (RFC 9260 section 8.4).
        assert!(without_reason <= each / 10, "{without_reason} of {each} ABORTs had no reason");
        assert_eq!(lives, LIVES.iter().map(|life| (*life as u8, each)).collect());
        // Those that were dropped end by themselves.
        while a.associations() + b.associations() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // A packet that arrives after the end of its association is answered by an ABORT too (RFC 9260 section 8.4).
        let (a, b) = (a.counters(), b.counters());
        let aborts = a.aborts + b.aborts - a.stray - b.stray;
        assert!(aborts <= 2 * each as u64 && a.aborts + b.aborts >= 2 * each as u64, "{a:?} {b:?}");
    });
}

/// Calls from several threads for one association, while its peer ends it.
#[test]
fn calls_of_one_association_race_with_its_end() {
    run(async {
        let (a, b) = (stack(ip(23), Settings::default()), stack(ip(24), Settings::default()));
        let listener = b.listen(&[ip(24)], PORT, None).unwrap();
        let encapsulation = b.udp_port().unwrap();
        let connect = Connect { encapsulation, ..Connect::new(&[ip(23)], &[ip(24)], PORT) };
        for round in 0..50 {
            let (ours, theirs) = tokio::join!(a.connect(&connect), listener.accept());
            let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
            let mut tasks = JoinSet::new();
            for _ in 0..THREADS {
                let ours = ours.clone();
                tasks.spawn(async move {
                    while ours.send(vec![0; 300], &SendOptions::default()).await.is_ok() {
                        let _ = (ours.statistics(), ours.ports(), ours.request_heartbeat(ip(24)));
                    }
                });
            }
            let reading = ours.clone();
            tasks.spawn(async move { while let Ok(Some(_)) = reading.recv().await {} });
            let watching = ours.clone();
            tasks.spawn(async move { while watching.event().await.is_some() {} });
            for _ in 0..20 {
                theirs.recv().await.unwrap().unwrap();
            }
            if round % 2 == 0 {
                theirs.abort(b"enough").unwrap();
            } else {
                drop(theirs);
            }
            while let Some(result) = tasks.join_next().await {
                result.unwrap();
            }
        }
    });
}

/// The last users of a stack are dropped while its associations are still ending.
#[test]
fn a_stack_with_several_drivers_ends_with_its_last_user() {
    run(async {
        let b = stack(ip(26), Settings::default());
        let listener = b.listen(&[ip(26)], PORT, None).unwrap();
        let encapsulation = b.udp_port().unwrap();
        let connect = Connect { encapsulation, ..Connect::new(&[ip(25)], &[ip(26)], PORT) };
        let a = stack(ip(25), Settings::default());
        let port = a.udp_port().unwrap();
        for _ in 0..10 {
            let ours = a.connect(&connect).await.unwrap();
            ours.send("last words", &SendOptions::default()).await.unwrap();
        }
        drop(a);
        for _ in 0..10 {
            let theirs = listener.accept().await.unwrap();
            assert_eq!(theirs.recv().await.unwrap().unwrap().bytes, "last words");
            assert_eq!(theirs.recv().await.unwrap(), None);
        }
        let over = Over::Udp { locals: vec![ip(25)], port };
        while Stack::new(Config::new(over.clone())).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Another socket of the same user, even one that would share the port, takes no part in it.
#[test]
fn a_port_with_several_sockets_is_given_once() {
    run(async {
        let a = stack(ip(27), Settings::default());
        let over = Over::Udp { locals: vec![ip(27)], port: a.udp_port().unwrap() };
        let error = Stack::new(Config::new(over)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    });
}
