//! What programs do with sockets. Each body notes what it observes; what differs by chance, such as port numbers, is not
//! noted.

mod accepting;
mod data;
mod opening;
mod processes;
mod sharing;
mod values;

use crate::calls::error;
use crate::strangers;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Takes what is observed.
pub(crate) type Note<'a> = &'a mut dyn FnMut(String);

/// Runs a body. Returns what it has observed.
pub(crate) fn run(body: &str) -> Vec<String> {
    let mut observed = Vec::new();
    let note: Note<'_> = &mut |line: String| observed.push(line);
    match body {
        "stream" => data::stream(note),
        "messages" => data::messages(note),
        "resets" => data::resets(note),
        "threads" => data::threads(note),
        "times" => data::times(note),
        "refused" => opening::refused(note),
        "waiting" => opening::waiting(note),
        "mistakes" => opening::mistakes(note),
        "numbers" => opening::numbers(note),
        "uring" => opening::uring(note),
        "accepting" => accepting::accepting(note),
        "names" => accepting::names(note),
        "options" => values::options(note),
        "processes" => processes::processes(note),
        "sharing" => sharing::sharing(note),
        "static" => processes::static_program(note),
        "exits" => std::process::exit(7),
        "killed" => processes::kill_itself(),
        "asker" => strangers::ask_without_the_secret(note),
        "squatter" => strangers::squat(note),
        "stranger" => strangers::intrude(note),
        other => panic!("{other}: expected a body"),
    }
    observed
}

/// A connection with itself: both ends, the first of which has connected.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    (ours, theirs)
}

/// A port at which nobody listens.
fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    // With services the port is closed soon after its socket.
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    port
}

/// The kind of an address, without its port.
fn shown(address: std::io::Result<SocketAddr>) -> String {
    match address {
        Ok(address) => format!("{}, port 0: {}", address.ip(), address.port() == 0),
        Err(fault) => error(&fault),
    }
}
