//! Processes that do not belong to the program.

use crate::{OVER_SCTP, run};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Command, Stdio};

#[test]
fn whoever_lacks_the_secret_gets_no_answer() {
    let (observed, printed) = run(OVER_SCTP, "asker");
    assert_eq!(observed, "the broker answers 0 octets", "{printed}");
}

#[test]
fn a_stranger_at_a_listening_socket_is_not_accepted() {
    let (observed, printed) = run(OVER_SCTP, "squatter");
    assert_eq!(observed, "the stranger sees an end: true\nthe peer is served: hello", "{printed}");
}

/// In the program: asks the broker without the secret. The broker's name is in the environment, as its first field.
pub(crate) fn ask_without_the_secret(note: &mut dyn FnMut(String)) {
    let value = std::env::var("RINGWAY_WITH").unwrap();
    let octet = |at: usize| u8::from_str_radix(&value[at..at + 2], 16).unwrap();
    let mut name = b"ringway".to_vec();
    name.extend((0..8).map(|index| octet(2 * index)));
    name.push(b'b');
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let mut broker = UnixStream::connect_addr(&address).unwrap();
    // A request for addresses with a secret of zeros.
    let mut request = b"RWW\x01".to_vec();
    request.extend([0; 16]);
    request.extend(34_u32.to_be_bytes());
    request.extend([6, 0]);
    request.extend([0; 8]);
    broker.write_all(&request).unwrap();
    let mut answer = Vec::new();
    // It may be closed before all is read.
    let _ = broker.read_to_end(&mut answer);
    note(format!("the broker answers {} octets", answer.len()));
}

/// In the program: a process without the library connects to its listening socket, past the broker, before a peer does.
pub(crate) fn squat(note: &mut dyn FnMut(String)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let inherited: OwnedFd = listener.as_fd().try_clone_to_owned().unwrap();
    let mut stranger = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture", "--test-threads=1"])
        .env_remove("LD_PRELOAD")
        .env(crate::ROLE, "program stranger")
        .env(crate::NOTES, "/proc/self/fd/1")
        .stdin(Stdio::from(inherited))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = stranger.stdout.take().unwrap();
    let mut printed = [0; 1];
    // Until the stranger has connected.
    while output.read(&mut printed).unwrap() == 1 && printed != [b'!'] {}
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.write_all(b"hello").unwrap();
    drop(peer);
    let (mut accepted, _) = listener.accept().unwrap();
    let mut text = String::new();
    accepted.read_to_string(&mut text).unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    note(format!("the stranger sees an end: {}", rest.contains("an end")));
    note(format!("the peer is served: {text}"));
    assert!(stranger.wait().unwrap().success());
}

/// In the stranger: connects to the socket that is its standard input, by the name that the kernel has for it.
pub(crate) fn intrude(note: &mut dyn FnMut(String)) {
    let listener = UnixListener::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let address = listener.local_addr().unwrap();
    let mut stream = UnixStream::connect_addr(&address).unwrap();
    std::io::stdout().write_all(b"connected!").unwrap();
    std::io::stdout().flush().unwrap();
    let mut octets = Vec::new();
    let got = stream.read_to_end(&mut octets);
    note(if got.is_err() || octets.is_empty() { "an end" } else { "data" }.to_owned());
}
