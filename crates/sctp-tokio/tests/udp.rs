//! The asynchronous API of SCTP over UDP on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use ringway_sctp_tokio::{
    ACCEPT_QUEUE, AddAddressError, Association, Change, Close, Config, Connect, ConnectError,
    EndedError, Event, ListenError, Over, PathState, RETURNED_BYTES, Reliability, Scheduling,
    SendError, SendOptions, Settings, Stack, UnusableAddress,
};
use std::collections::VecDeque;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const PORT: u16 = 5060;

/// The time-out of a test, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

fn ip(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("in time") })
}

fn stack(locals: &[IpAddr], settings: Settings) -> Stack {
    let over = Over::Udp { locals: locals.to_vec(), port: 0 };
    Stack::new(Config { settings, ..Config::new(over) }).unwrap()
}

/// Two stacks with an association: the one that connected and the one that listened.
async fn pair(locals: [&[IpAddr]; 2], settings: Settings) -> [Association; 2] {
    let (a, b) = (stack(locals[0], settings), stack(locals[1], settings));
    let listener = b.listen(locals[1], PORT, None).unwrap();
    let connect = Connect {
        encapsulation: b.udp_port().unwrap(),
        ..Connect::new(locals[0], locals[1], PORT)
    };
    let (ours, theirs) = tokio::join!(a.connect(&connect), listener.accept());
    [ours.unwrap(), theirs.unwrap()]
}

fn on(stream: u16) -> SendOptions {
    SendOptions { stream, ..SendOptions::default() }
}

#[test]
fn messages_travel_with_stream_and_ppid_and_the_end_is_told() {
    run(async {
        let [a, b] = pair([&[ip(1)], &[ip(2)]], Settings::default()).await;
        let options = SendOptions { stream: 7, ppid: 99, unordered: true, ..on(7) };
        a.send("hello", &options).await.unwrap();
        let message = b.recv().await.unwrap().unwrap();
        assert_eq!((message.stream, message.ppid, message.unordered), (7, 99, true));
        assert!(message.is_whole() && message.bytes == "hello");
        b.send(vec![1; 100_000], &on(0)).await.unwrap();
        assert_eq!(a.recv().await.unwrap().unwrap().bytes, vec![1; 100_000]);
        assert_eq!(b.ports().unwrap().0, PORT);
        assert_eq!(a.paths().unwrap()[0].remote, ip(2));
        a.shutdown().await.unwrap();
        assert_eq!(b.recv().await.unwrap(), None);
        assert!(matches!(a.send("late", &on(0)).await, Err(SendError::Closed(Close::Finished))));
        let mut events = Vec::new();
        while let Some(event) = b.event().await {
            events.push(event);
        }
        assert_eq!(events.last(), Some(&Event::Closed(Close::Finished)));
        assert!(events.contains(&Event::PeerShutdown), "{events:?}");
    });
}

/// A writer waits for room and a reader for messages; their packets are sent in trains.
#[test]
fn a_bulk_transfer_goes_in_trains() {
    const COUNT: usize = 20_000;
    run(async {
        let (a, b) = (stack(&[ip(1)], Settings::default()), stack(&[ip(2)], Settings::default()));
        let listener = b.listen(&[ip(2)], PORT, None).unwrap();
        let encapsulation = b.udp_port().unwrap();
        let connect = Connect { encapsulation, ..Connect::new(&[ip(1)], &[ip(2)], PORT) };
        let ours = a.connect(&connect).await.unwrap();
        let theirs = listener.accept().await.unwrap();
        let reader = tokio::spawn(async move {
            let (mut messages, mut read) = (Vec::new(), 0);
            while theirs.recv_many(&mut messages, 1000).await.unwrap() > 0 {
                for message in messages.drain(..) {
                    assert_eq!(message.bytes[..8], (read as u64).to_be_bytes());
                    assert_eq!(message.bytes.len(), 1000);
                    read += 1;
                }
            }
            read
        });
        let mut queue = VecDeque::new();
        for number in 0..COUNT as u64 {
            let mut bytes = vec![0; 1000];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            queue.push_back((on(1), bytes.into()));
        }
        while !queue.is_empty() {
            ours.send_many(&mut queue).await.unwrap();
        }
        ours.shutdown().await.unwrap();
        assert_eq!(reader.await.unwrap(), COUNT);
        let (sent, received) = (a.traffic(), b.traffic());
        assert!(sent.sent_in_trains > sent.sent / 2, "{sent:?}");
        assert!(received.received_in_trains > received.received / 2, "{received:?}");
    });
}

/// Messages that are not read fill the window of their association and of no other.
#[test]
fn a_slow_reader_closes_only_its_own_window() {
    run(async {
        let settings = Settings { receive_buffer: 20_000, ..Settings::default() };
        let (a, b) = (stack(&[ip(1)], settings), stack(&[ip(2)], settings));
        let listener = b.listen(&[ip(2)], PORT, None).unwrap();
        let encapsulation = b.udp_port().unwrap();
        let connect = Connect { encapsulation, ..Connect::new(&[ip(1)], &[ip(2)], PORT) };
        let slow = a.connect(&connect).await.unwrap();
        let slow_end = listener.accept().await.unwrap();
        let mut given = 0;
        while slow.try_send(vec![0; 1000], &on(0)).is_ok() {
            given += 1;
        }
        let quick = a.connect(&connect).await.unwrap();
        let quick_end = listener.accept().await.unwrap();
        for _ in 0..100 {
            quick.send(vec![0; 1000], &on(0)).await.unwrap();
            quick_end.recv().await.unwrap().unwrap();
        }
        assert!(slow_end.statistics().unwrap().unread <= 21_000);
        for _ in 0..given {
            slow_end.recv().await.unwrap().unwrap();
        }
    });
}

#[test]
fn several_addresses_make_several_paths() {
    run(async {
        let [a, b] = pair([&[ip(1), ip(3)], &[ip(2), ip(4)]], Settings::default()).await;
        // The listening side verifies the addresses of the INIT; the connecting side knows its peer's.
        while !matches!(b.event().await.unwrap(), Event::Path { remote, .. } if remote == ip(3)) {}
        assert_eq!(a.paths().unwrap().len(), 2);
        a.set_primary(ip(4)).unwrap();
        a.send("by the other", &on(0)).await.unwrap();
        b.recv().await.unwrap().unwrap();
        assert!(a.paths().unwrap().iter().any(|p| p.primary && p.remote == ip(4)));
        assert!(a.set_primary(ip(9)).is_err());
    });
}

/// With one socket for all addresses, packets are sent from the local address of their path.
#[test]
fn a_wildcard_sends_from_each_paths_address() {
    run(async {
        let any = IpAddr::from([0, 0, 0, 0]);
        let (a, b) = (stack(&[any], Settings::default()), stack(&[any], Settings::default()));
        let listener = b.listen(&[any], PORT, None).unwrap();
        let encapsulation = b.udp_port().unwrap();
        let connect = Connect { encapsulation, ..Connect::new(&[ip(7)], &[ip(8)], PORT) };
        let ours = a.connect(&connect).await.unwrap();
        let theirs = listener.accept().await.unwrap();
        ours.send("x", &on(0)).await.unwrap();
        assert_eq!(theirs.recv().await.unwrap().unwrap().bytes, "x");
        let paths = theirs.paths().unwrap();
        assert_eq!((paths[0].local, paths[0].remote), (ip(8), ip(7)));
    });
}

#[test]
fn ipv6_works_too() {
    run(async {
        let here = [IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
        let [a, b] = pair([&here, &here], Settings::default()).await;
        a.send("six", &on(0)).await.unwrap();
        assert_eq!(b.recv().await.unwrap().unwrap().bytes, "six");
    });
}

/// RFC 9260 section 9: dropping the last handle shuts the association down; abort ends it at once and sends a
/// reason.
#[test]
fn dropping_ends_in_order_and_abort_at_once() {
    run(async {
        let [a, b] = pair([&[ip(1)], &[ip(2)]], Settings::default()).await;
        a.send("last", &on(0)).await.unwrap();
        let clone = a.clone();
        drop(a);
        clone.send("words", &on(0)).await.unwrap();
        drop(clone);
        assert_eq!(b.recv().await.unwrap().unwrap().bytes, "last");
        assert_eq!(b.recv().await.unwrap().unwrap().bytes, "words");
        assert_eq!(b.recv().await.unwrap(), None);
        let [a, b] = pair([&[ip(1)], &[ip(2)]], Settings::default()).await;
        a.abort(b"enough").unwrap();
        let Err(EndedError::Closed(Close::Aborted { code: 12, reason })) = b.recv().await else {
            panic!("no abort");
        };
        assert_eq!(reason, "enough");
        assert!(matches!(a.recv().await, Err(EndedError::Closed(_))));
    });
}

/// When a flush completes, everything sent before it has been passed to the system.
#[test]
fn a_flush_sees_an_abort_off() {
    run(async {
        let (a, b) = (stack(&[ip(1)], Settings::default()), stack(&[ip(2)], Settings::default()));
        let listener = b.listen(&[ip(2)], PORT, None).unwrap();
        let encapsulation = b.udp_port().unwrap();
        let connect = Connect { encapsulation, ..Connect::new(&[ip(1)], &[ip(2)], PORT) };
        let ours = a.connect(&connect).await.unwrap();
        let theirs = listener.accept().await.unwrap();
        a.flush().await;
        let before = a.traffic().sent;
        ours.abort(b"gone").unwrap();
        assert_eq!(a.traffic().sent, before);
        a.flush().await;
        assert_eq!(a.traffic().sent, before + 1);
        assert!(matches!(theirs.recv().await, Err(EndedError::Closed(Close::Aborted { .. }))));
    });
}

#[test]
fn nobody_listens_and_nobody_is_there() {
    run(async {
        let settings = Settings {
            rto_initial: Duration::from_millis(20),
            rto_min: Duration::from_millis(20),
            rto_max: Duration::from_millis(40),
            max_init_retransmits: 2,
            ..Settings::default()
        };
        let (a, b) = (stack(&[ip(1)], settings), stack(&[ip(2)], settings));
        let encapsulation = b.udp_port().unwrap();
        let connect = Connect { encapsulation, ..Connect::new(&[ip(1)], &[ip(2)], PORT) };
        let error = a.connect(&connect).await.unwrap_err();
        assert!(matches!(error, ConnectError::Closed(Close::Aborted { .. })), "{error}");
        let nowhere = Connect { encapsulation: 9, ..connect };
        // ICMP reports that the UDP port is unreachable (RFC 6951 section 5.5).
        let error = a.connect(&nowhere).await.unwrap_err();
        assert!(matches!(error, ConnectError::Closed(Close::Aborted { code: 0, .. })), "{error}");
        assert!(a.traffic().icmp > 0);
    });
}

#[test]
fn a_port_is_given_once() {
    run(async {
        let a = stack(&[ip(1)], Settings::default());
        let first = a.listen(&[ip(1)], PORT, None).unwrap();
        let error = a.listen(&[ip(1)], PORT, None).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        drop(first);
        a.listen(&[ip(1)], PORT, None).unwrap();
        let over = Over::Udp { locals: vec![ip(1)], port: a.udp_port().unwrap() };
        let error = Stack::new(Config::new(over)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        assert!(error.to_string().starts_with("sctp over udp at 127.0.0.1:"), "{error}");
    });
}

/// RFC 3758: abandoned messages are reported.
#[test]
fn a_message_given_up_is_told() {
    run(async {
        let settings = Settings { receive_buffer: 2_000, ..Settings::default() };
        let [a, _b] = pair([&[ip(1)], &[ip(2)]], settings).await;
        let short = Reliability::Lifetime(Duration::from_millis(10));
        let options = SendOptions { reliability: short, ..on(0) };
        for _ in 0..20 {
            a.send(vec![0; 1000], &options).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        a.send("more", &options).await.unwrap();
        loop {
            if let Event::SendFailed { messages } = a.event().await.unwrap() {
                assert!(messages > 0);
                break;
            }
        }
    });
}

/// RFC 9260 section 11.1.14: a message that was not sent is returned, and unread ones have a bound.
#[test]
fn undelivered_messages_are_returned() {
    run(async {
        let settings = Settings {
            receive_buffer: 2_000,
            send_buffer: 8 << 20,
            return_undelivered: true,
            ..Settings::default()
        };
        let [a, _b] = pair([&[ip(1)], &[ip(2)]], settings).await;
        let short = Reliability::Lifetime(Duration::from_millis(10));
        let options = SendOptions { reliability: short, ppid: 7, ..on(0) };
        const MESSAGES: u32 = 16;
        for n in 0..MESSAGES {
            a.send(vec![n as u8; 200_000], &options).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        a.send("more", &options).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (mut returned, mut missed) = (Vec::new(), 0);
        while returned.last() != Some(&(MESSAGES - 1)) {
            match a.event().await.unwrap() {
                Event::Returned(message) => {
                    assert_eq!((message.ppid, message.data.len()), (7, 200_000));
                    returned.push(message.data[0].into());
                }
                Event::Missed(events) => missed += events,
                _ => {}
            }
        }
        assert!(returned.len() * 200_000 <= RETURNED_BYTES, "{returned:?}");
        assert!(missed > 0 && returned.is_sorted(), "{missed} {returned:?}");
    });
}

/// RFC 4895 section 4.1: a key that both ends have is used, and a key in use is not deleted.
#[test]
fn keys_are_set_used_and_deleted() {
    run(async {
        let settings = Settings { dynamic_addresses: true, ..Settings::default() };
        let [a, b] = pair([&[ip(1)], &[ip(2)]], settings).await;
        assert!(a.use_auth_key(7).is_err(), "not set yet");
        for end in [&a, &b] {
            end.set_auth_key(7, b"a secret of both").unwrap();
            end.use_auth_key(7).unwrap();
        }
        // Only an authenticated ASCONF adds an address (RFC 5061 section 4.1.1).
        a.add_address(ip(3)).unwrap();
        while !matches!(a.event().await, Some(Event::Changed(Change::AddressAdded(_)))) {}
        assert!(a.delete_auth_key(7).is_err(), "in use");
    });
}

/// RFC 4895 needs the consent of both ends.
#[test]
fn a_key_is_refused_where_the_peer_authenticates_nothing() {
    run(async {
        let [a, _b] = pair([&[ip(1)], &[ip(2)]], Settings::default()).await;
        let error = a.set_auth_key(7, b"a secret").unwrap_err();
        assert!(error.to_string().contains("does not support"), "{error}");
    });
}

/// RFC 8260 section 3.4: with priorities, the stream of the smallest value goes first.
#[test]
fn the_value_of_a_stream_decides_its_turn() {
    run(async {
        let settings = Settings { scheduling: Scheduling::Priority, ..Settings::default() };
        let [a, b] = pair([&[ip(1)], &[ip(2)]], settings).await;
        a.set_stream_value(1, 9).unwrap();
        a.set_stream_value(2, 1).unwrap();
        assert!(a.set_stream_value(u16::MAX, 1).is_err());
        // All are queued before the stack's task has a turn, as there is one thread.
        for stream in [1, 2] {
            for _ in 0..3 {
                a.try_send("x", &on(stream)).unwrap();
            }
        }
        let mut order = Vec::new();
        while order.len() < 6 {
            order.push(b.recv().await.unwrap().unwrap().stream);
        }
        assert_eq!(order, [2, 2, 2, 1, 1, 1]);
    });
}

/// The stack's task ends when all handles are dropped.
#[test]
fn a_stack_ends_with_its_last_user() {
    run(async {
        let b = stack(&[ip(2)], Settings::default());
        let port = b.udp_port().unwrap();
        drop(b);
        let over = Over::Udp { locals: vec![ip(2)], port };
        loop {
            match Stack::new(Config::new(over.clone())) {
                Ok(_) => break,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    });
}

/// No wake-up is lost on a runtime with several threads.
#[test]
fn many_tasks_on_several_threads_lose_nothing() {
    const ASSOCIATIONS: usize = 40;
    const MESSAGES: usize = 300;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let work = async {
        // The buffers are so small that both ends wait repeatedly.
        let settings =
            Settings { send_buffer: 8_000, receive_buffer: 8_000, ..Settings::default() };
        let (a, b) = (stack(&[ip(1)], settings), stack(&[ip(2)], settings));
        let listener = b.listen(&[ip(2)], PORT, None).unwrap();
        let encapsulation = b.udp_port().unwrap();
        let mut tasks = Vec::new();
        for _ in 0..ASSOCIATIONS {
            let stack = a.clone();
            tasks.push(tokio::spawn(async move {
                let to = Connect { encapsulation, ..Connect::new(&[ip(1)], &[ip(2)], PORT) };
                let association = stack.connect(&to).await.unwrap();
                let back = association.clone();
                let reading = tokio::spawn(async move {
                    let (mut read, mut bytes) = (0, Vec::new());
                    while let Some(got) = back.recv_into(&mut bytes).await.unwrap() {
                        assert!(got.begin && got.end && got.len == 500);
                        bytes.clear();
                        read += 1;
                        if read == MESSAGES {
                            break;
                        }
                    }
                    read
                });
                for n in 0..MESSAGES {
                    association.send(vec![n as u8; 500], &on((n % 8) as u16)).await.unwrap();
                }
                let read = reading.await.unwrap();
                association.shutdown().await.unwrap();
                read
            }));
        }
        for _ in 0..ASSOCIATIONS {
            let association = listener.accept().await.unwrap();
            tasks.push(tokio::spawn(async move {
                let mut echoed = 0;
                while let Some(message) = association.recv().await.unwrap() {
                    association.send(message.bytes, &on(message.stream)).await.unwrap();
                    echoed += 1;
                }
                echoed
            }));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), MESSAGES);
        }
        assert_eq!((a.counters().aborts, b.counters().aborts), (0, 0));
    };
    runtime.unwrap().block_on(async {
        tokio::time::timeout(PATIENCE, work).await.expect("in time");
    });
}

/// Waits for an event for which `wanted` returns true.
async fn event(of: &Association, wanted: impl Fn(&Event) -> bool) {
    loop {
        let event = of.event().await.expect("not over yet");
        if wanted(&event) {
            return;
        }
    }
}

/// RFC 5061 in UDP (RFC 6951): an added address gets a socket, and the association continues on it alone.
#[test]
fn an_address_is_added_and_the_first_deleted() {
    run(async {
        let settings = Settings { dynamic_addresses: true, ..Settings::default() };
        let [a, b] = pair([&[ip(1)], &[ip(2)]], settings).await;
        let own: IpAddr = "127.0.9.3".parse().unwrap();
        a.add_address(own).unwrap();
        event(&a, |e| *e == Event::Changed(Change::AddressAdded(own))).await;
        event(&b, |e| *e == Event::Path { remote: own, state: PathState::Active }).await;
        b.set_primary(own).unwrap();
        a.delete_address(ip(1)).unwrap();
        event(&b, |e| *e == Event::Changed(Change::PeerAddressDeleted(ip(1)))).await;
        for n in 0..20u8 {
            a.send(vec![n; 5_000], &on(0)).await.unwrap();
            assert_eq!(b.recv().await.unwrap().unwrap().bytes, vec![n; 5_000]);
            b.send(vec![n; 5_000], &on(0)).await.unwrap();
            assert_eq!(a.recv().await.unwrap().unwrap().bytes, vec![n; 5_000]);
        }
        let paths = b.paths().unwrap();
        assert!(paths.len() == 1 && paths[0].remote == own, "{paths:?}");
        assert_eq!(a.paths().unwrap()[0].local, own);
        a.shutdown().await.unwrap();
    });
}

#[test]
fn addresses_that_cannot_be_used_are_refused_with_words() {
    run(async {
        let settings = Settings { dynamic_addresses: true, ..Settings::default() };
        let [a, _b] = pair([&[ip(1)], &[ip(2)]], settings).await;
        let error = a.add_address("192.0.2.9".parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable, "{error}");
        let error = a.add_address("fe80::1".parse().unwrap()).unwrap_err();
        assert!(
            matches!(error, AddAddressError::Address(UnusableAddress::LinkLocal(_))),
            "{error}"
        );
        let stack = stack(&[ip(1)], settings);
        let error = stack.listen(&[ip(1), ip(8)], PORT, None).unwrap_err();
        let ListenError::Address(UnusableAddress::NotLocal(got)) = error else { panic!("{error}") };
        assert_eq!(got, ip(8));
        let error = stack.open(&Connect::new(&[ip(8)], &[ip(2)], PORT)).unwrap_err();
        let ConnectError::Address(UnusableAddress::NotLocal(got)) = error else {
            panic!("{error}")
        };
        assert_eq!(got, ip(8));
        let there = "fe80::2".parse().unwrap();
        let error = stack.open(&Connect::new(&[ip(1)], &[there], PORT)).unwrap_err();
        let ConnectError::Address(UnusableAddress::LinkLocal(got)) = error else {
            panic!("{error}")
        };
        assert_eq!(got, there);
    });
}

/// RFC 9260 section 11.1.5: an association that is being shut down accepts no messages; tasks that wait for room
/// get an error, whether the peer reads or not.
#[test]
fn a_waiting_sender_hears_of_the_shutdown() {
    run(async {
        let settings =
            Settings { send_buffer: 50_000, receive_buffer: 20_000, ..Settings::default() };
        let [a, _b] = pair([&[ip(1)], &[ip(2)]], settings).await;
        while a.try_send(vec![0; 1000], &on(0)).is_ok() {}
        let sending = async { while a.send(vec![0; 1000], &on(0)).await.is_ok() {} };
        let ending = async {
            // The sender waits by then.
            tokio::task::yield_now().await;
            a.begin_shutdown();
        };
        tokio::join!(sending, ending);
    });
}

/// One call receives many small messages, in order, into one buffer.
#[test]
fn small_messages_are_read_together() {
    run(async {
        let [a, b] = pair([&[ip(1)], &[ip(2)]], Settings::default()).await;
        for n in 0..200u8 {
            a.send(vec![n; 1 + usize::from(n)], &on(u16::from(n % 3))).await.unwrap();
        }
        a.begin_shutdown();
        let (mut bytes, mut received) = (Vec::new(), Vec::new());
        while b.recv_many_into(&mut bytes, &mut received, 64).await.unwrap() > 0 {}
        let expected: Vec<u8> = (0..200u8).flat_map(|n| vec![n; 1 + usize::from(n)]).collect();
        assert_eq!((received.len(), bytes), (200, expected));
        assert!(received.iter().enumerate().all(|(n, r)| (r.len, r.end) == (n + 1, true)));
    });
}

/// A waker that does nothing.
struct Sleeper;

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {}
}

/// A future that is dropped while it waits, as in `select!` or at a time-out, is no longer woken.
#[test]
fn who_gave_up_waiting_is_forgotten() {
    run(async {
        let [a, _b] = pair([&[ip(1)], &[ip(2)]], Settings::default()).await;
        let sleeper = Arc::new(Sleeper);
        let waker = Waker::from(sleeper.clone());
        for _ in 0..10 {
            let mut cx = Context::from_waker(&waker);
            let mut reading = Box::pin(a.recv());
            assert!(reading.as_mut().poll(&mut cx).is_pending());
            let mut watching = Box::pin(async { while a.event().await.is_some() {} });
            assert!(watching.as_mut().poll(&mut cx).is_pending());
        }
        drop(waker);
        assert_eq!(Arc::strong_count(&sleeper), 1);
    });
}

/// Dropping a connect leaves no association, which would send INITs for a minute.
#[test]
fn a_connect_that_was_given_up_is_over() {
    run(async {
        // Receives everything and never answers.
        let silent = std::net::UdpSocket::bind((ip(2), 0)).unwrap();
        let stack = stack(&[ip(1)], Settings::default());
        let encapsulation = silent.local_addr().unwrap().port();
        let connect = Connect { encapsulation, ..Connect::new(&[ip(1)], &[ip(2)], PORT) };
        for _ in 0..10 {
            let given_up = tokio::time::timeout(Duration::from_millis(1), stack.connect(&connect));
            assert!(given_up.await.is_err());
            assert_eq!(stack.associations(), 0);
        }
    });
}

/// An association that ended before it was accepted, without data, takes no slot of the accept queue; one with
/// data is still accepted and read.
#[test]
fn only_what_lives_or_brought_something_is_accepted() {
    run(async {
        let (a, b) = (stack(&[ip(1)], Settings::default()), stack(&[ip(2)], Settings::default()));
        let listener = b.listen(&[ip(2)], PORT, None).unwrap();
        let encapsulation = b.udp_port().unwrap();
        let connect = Connect { encapsulation, ..Connect::new(&[ip(1)], &[ip(2)], PORT) };
        for _ in 0..10 {
            a.connect(&connect).await.unwrap().abort(b"gone").unwrap();
        }
        let speaks = a.connect(&connect).await.unwrap();
        speaks.send("last words", &on(0)).await.unwrap();
        speaks.shutdown().await.unwrap();
        let _lives = a.connect(&connect).await.unwrap();
        let first = listener.accept().await.unwrap();
        assert_eq!(first.recv().await.unwrap().unwrap().bytes, "last words");
        assert!(first.recv().await.unwrap().is_none());
        assert!(listener.accept().await.unwrap().statistics().is_ok());
    });
}

/// One source that opens associations which no program accepts leaves room in the queue for another.
#[test]
fn one_source_leaves_room_in_the_accept_queue() {
    const SHARE: usize = ACCEPT_QUEUE - ACCEPT_QUEUE / 8;
    run(async {
        let b = stack(&[ip(9)], Settings::default());
        let listener = b.listen(&[ip(9)], PORT, None).unwrap();
        let encapsulation = b.udp_port().unwrap();
        let stacks = [10, 11].map(|last| stack(&[ip(last)], Settings::default()));
        let open = async |which: usize| {
            let from = ip(10 + which as u8);
            let connect = Connect { encapsulation, ..Connect::new(&[from], &[ip(9)], PORT) };
            stacks[which].connect(&connect).await
        };
        let mut held = Vec::new();
        for _ in 0..SHARE {
            held.push(open(0).await.unwrap());
        }
        // Its ABORT comes before or after the program sees it established.
        if let Ok(refused) = open(0).await {
            assert!(refused.recv().await.is_err());
        }
        assert_eq!(b.refused(), 1);
        held.push(open(1).await.unwrap());
        // An association that is accepted leaves the queue, and one that ends does, too.
        for _ in 0..2 {
            listener.accept().await.unwrap();
        }
        held.push(open(0).await.unwrap());
        held[5].abort(b"enough").unwrap();
        while b.associations() >= SHARE {
            tokio::task::yield_now().await;
        }
        held.push(open(0).await.unwrap());
        assert_eq!(b.refused(), 1);
    });
}
