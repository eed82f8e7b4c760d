//! Many connections to one listener, which share an association over SCTP, and know nothing of each other.

use super::Note;
use crate::calls::error;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// More than an association has streams.
const CONNECTIONS: usize = 70;
/// More than one connection has room for that is not read.
const MUCH: usize = 24 << 20;

pub(super) fn sharing(note: Note<'_>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mut ours = Vec::new();
    let mut theirs: BTreeMap<SocketAddr, TcpStream> = BTreeMap::new();
    for _ in 0..CONNECTIONS {
        ours.push(TcpStream::connect(at).unwrap());
        let (accepted, from) = listener.accept().unwrap();
        theirs.insert(from, accepted);
    }
    let mut theirs: Vec<_> =
        ours.iter().map(|one| theirs.remove(&one.local_addr().unwrap())).collect();
    note(format!("each has its own port: {}", theirs.iter().all(Option::is_some)));
    let mut theirs: Vec<_> = theirs.iter_mut().filter_map(Option::take).collect();

    // The first is not read, and stops no other.
    let unread = ours[0].try_clone().unwrap();
    let writer = std::thread::spawn(move || (&unread).write_all(&vec![7; MUCH]).is_ok());
    std::thread::sleep(std::time::Duration::from_millis(200));
    note(format!("the unread one waits: {}", !writer.is_finished()));
    echo(note, "beside the unread one", &mut ours[1..], &mut theirs[1..]);

    // The end of one direction, a close and a reset concern one connection each.
    ours[2].shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    note(format!("half closed: {:?}", theirs[2].read_to_string(&mut text)));
    theirs[2].write_all(b"still").unwrap();
    theirs[2].shutdown(Shutdown::Write).unwrap();
    note(format!("the other half: {:?}, {text}", ours[2].read_to_string(&mut text)));
    let closed = (ours.remove(3), theirs.remove(3));
    drop(closed.0);
    note(format!("closed: {:?}", { closed.1 }.read(&mut [0])));
    let reset = (ours.remove(3), theirs.remove(3));
    socket2::SockRef::from(&reset.0).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(reset.0);
    note(format!("reset: {}", error(&{ reset.1 }.read(&mut [0]).unwrap_err())));
    echo(note, "beside the ended ones", &mut ours[3..], &mut theirs[3..]);

    // New ones take what is free again, and so on, in any order.
    for _ in 0..2 * CONNECTIONS {
        let mut one = TcpStream::connect(at).unwrap();
        let (mut other, from) = listener.accept().unwrap();
        assert_eq!(from, one.local_addr().unwrap());
        one.write_all(b"short").unwrap();
        drop(one);
        text.clear();
        other.read_to_string(&mut text).unwrap();
        assert_eq!(text, "short");
    }
    // Without their listener they go on.
    drop(listener);
    echo(note, "without the listener", &mut ours[3..], &mut theirs[3..]);
    let mut left = MUCH;
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        let count = theirs[0].read(&mut buffer).unwrap();
        assert!(count > 0 && buffer[..count].iter().all(|octet| *octet == 7), "{left} are missing");
        left -= count;
    }
    note(format!("read at last: {}", writer.join().unwrap()));
    while TcpStream::connect(at).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let refused = TcpStream::connect(at).unwrap_err();
    note(format!("nobody listens: {}", error(&refused)));
}

/// Has each pair exchange something in both directions.
fn echo(note: Note<'_>, when: &str, ours: &mut [TcpStream], theirs: &mut [TcpStream]) {
    let mut done = 0;
    for (index, (one, other)) in ours.iter_mut().zip(theirs).enumerate() {
        let text = format!("{index:5}");
        let mut got = [0; 5];
        one.write_all(text.as_bytes()).unwrap();
        other.read_exact(&mut got).unwrap();
        other.write_all(&got).unwrap();
        one.read_exact(&mut got).unwrap();
        done += usize::from(got == *text.as_bytes());
    }
    note(format!("{when}: {done}"));
}
