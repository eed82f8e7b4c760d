//! A process with a low limit of open files, and peers that open as many connections as they can.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod support;

use ringway_flow::limits::reserved_files;
use ringway_sansio::Transport;
use socket2::{Domain, Socket, Type};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{PATIENCE, Server, listen, sip};

const FILES: u64 = 64;
const INSIDE: &str = "RINGWAY_TEST_FILES";
const TEST: &str = "connections_leave_files_for_everything_else";

/// The server, in a separate process. It prints its address and then, for each line it reads, the number of
/// files it can still open and the counts of refused connections.
fn serve() {
    let mut config = listen(&[(Transport::Tcp, "127.0.0.1:0")]);
    config.workers = 2;
    let server = Server::start_with(config, |probe| probe.tell = false);
    println!("\nat {}", server.addr(0));
    // Failures to accept while this test itself holds all files are not counted.
    let mut own = 0;
    for line in std::io::stdin().lines() {
        line.unwrap();
        let failed = server.count("accept_failed") - own;
        let files: Vec<_> = (0..FILES).map_while(|_| File::open("/dev/null").ok()).collect();
        let refused = ["refused_files", "refused_full", "refused_source"].map(|c| server.count(c));
        let left = files.len();
        drop(files);
        own = server.count("accept_failed") - failed;
        println!("\nat {left} {} {failed}", refused.iter().sum::<u64>());
    }
}

/// Returns a connection from an address of the loopback network.
fn connect(from: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 4, from], 0)).into()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect_timeout(&to.into(), PATIENCE).unwrap();
    socket.into()
}

/// Whether a server answers within several attempts: the first ones may only evict older connections.
fn is_served(from: u8, to: SocketAddr) -> bool {
    (0..10).any(|_| {
        let mut stream = connect(from, to);
        let mut answer = vec![0; sip("x", 3).len()];
        stream.write_all(&sip("x", 3)).is_ok() && stream.read_exact(&mut answer).is_ok()
    })
}

/// A flood of connections, silent or active, from few addresses or from many, leaves file descriptors for
/// management, the store and DNS; accept never fails, and a new peer is served.
#[test]
fn connections_leave_files_for_everything_else() {
    if std::env::var_os(INSIDE).is_some() {
        return serve();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([TEST, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // SAFETY: between fork and exec one system call is made, with memory on the stack.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: FILES, rlim_max: FILES };
            match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let mut server = command.spawn().unwrap();
    let (mut ask, lines) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let mut lines = BufReader::new(lines).lines().map_while(Result::ok);
    let mut told = || lines.find_map(|l| Some(l.strip_prefix("at ")?.to_owned())).unwrap();
    let to: SocketAddr = told().parse().unwrap();
    for (sources, speak) in [(1, false), (1, true), (100, false), (100, true)] {
        let mut held = Vec::new();
        for n in 0..200 {
            let mut stream = connect(1 + n % sources, to);
            if speak {
                // Writing to a refused connection fails.
                let _ = stream.write_all(&sip("x", 3));
            }
            held.push(stream);
        }
        let served = is_served(200, to) || sources > 1 && speak;
        assert!(served, "somebody new is not served, {sources} sources, speaking: {speak}");
        ask.write_all(b"\n").unwrap();
        let told = told();
        let numbers: Vec<usize> = told.split(' ').map(|n| n.parse().unwrap()).collect();
        println!("{sources} sources, speaking {speak}: files left, refused, failed {numbers:?}");
        assert!(numbers[0] + 4 >= reserved_files(FILES as usize), "few files are left");
        assert!(numbers[1] > 0, "none was refused");
        assert_eq!(numbers[2], 0, "accepting failed");
    }
    drop(ask);
    assert!(server.wait().unwrap().success());
}
