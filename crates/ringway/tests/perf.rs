//! `ringway perf` from the operator's point of view: two programs on loopback, for each transport.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ports;

use ports::port;
use ringway_sctp_tokio::{Config, Connect, Over, SendOptions, Settings, Stack};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn ringway(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.arg("perf").args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> Output {
    ringway(args).output().unwrap()
}

/// A waiting server, which ends with the test.
struct Server(Child);

impl Server {
    fn start(transport: &str, workdir: &str) -> Server {
        let args =
            ["server", "--transport", transport, "--listen", workdir, "--time", "60", "--json"];
        let mut child = ringway(&args).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(&format!("waiting for {transport} on {workdir}")), "{line}");
        Server(child)
    }

    /// Ends the server; returns its output.
    fn end(mut self) -> Vec<Value> {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let out = BufReader::new(self.0.stdout.take().unwrap());
        let lines = out.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
        lines
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(transport: &str, workdir: &str, sizes: &str, streams: &str) {
    let server = Server::start(transport, workdir);
    let output = run(&[
        "client",
        "--transport",
        transport,
        "--to",
        workdir,
        "--size",
        sizes,
        "--streams",
        streams,
        "--time",
        "0.6",
        "--json",
    ]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["transport"], &report["to"]), (&transport.into(), &workdir.into()));
    let measured = server.end();
    for (row, size) in report["sizes"].as_array().unwrap().iter().zip(sizes.split(',')) {
        let (through, latency) = (&row["throughput"], &row["latency"]);
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
        assert_eq!(row["size"].to_string(), size);
        assert!(number(through, "messages") > 0.0, "{row}");
        assert_eq!(number(through, "bytes"), number(through, "messages") * number(row, "size"));
        if transport != "udp" {
            assert_eq!(through["messages"], through["sent_messages"], "{row}");
        }
        assert!(number(latency, "count") > 0.0 && number(latency, "p50_us") > 1.0, "{row}");
        assert!(number(latency, "max_us") >= number(latency, "p99_us"), "{row}");
        // The server reports the same counts.
        let same = |line: &&Value| line["size"] == row["size"];
        let theirs: f64 = measured.iter().filter(same).map(|line| number(line, "messages")).sum();
        assert_eq!(theirs, number(through, "messages"), "{measured:?}");
    }
}

#[test]
fn a_server_is_reached_by_name_and_sizes_have_units() {
    let port = port();
    let server = Server::start("tcp", &format!("127.0.0.1:{port}"));
    let to = format!("localhost:{port}");
    let words = ["client", "--transport", "tcp", "--to", &to, "--size", "1k,2KiB", "--time", "0.3"];
    let output = run(&[&words[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sizes: Vec<_> =
        report["sizes"].as_array().unwrap().iter().map(|row| &row["size"]).collect();
    assert_eq!(
        (sizes, report["to"].as_str()),
        (vec![&1000.into(), &2048.into()], Some(to.as_str()))
    );
    assert_eq!(server.end().len(), 2);
}

#[test]
fn over_udp() {
    measure("udp", &format!("127.0.0.1:{}", port()), "1,1000,20000", "1");
}

#[test]
fn over_tcp() {
    measure("tcp", &format!("127.0.0.1:{}", port()), "1,1000,300000", "2");
}

#[test]
fn over_sctp_over_udp() {
    let workdir = format!("127.0.0.1:7109?encap={}", port());
    measure("sctp+udp", &workdir, "1,1000,700000", "5");
}

/// A message longer than the limit is not assembled: its association is aborted with the reason.
#[test]
fn a_message_too_long_aborts_its_association() {
    let (host, udp) = (IpAddr::from(Ipv4Addr::LOCALHOST), port());
    let _server = Server::start("sctp+udp", &format!("127.0.0.1:7109?encap={udp}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        let settings = Settings { send_buffer: 16 << 20, ..Settings::default() };
        let over = Over::Udp { locals: vec![host], port: 0 };
        let stack = Stack::new(Config { settings, ..Config::new(over) }).unwrap();
        let connect = Connect { encapsulation: udp, ..Connect::new(&[host], &[host], 7109) };
        let association = stack.connect(&connect).await.unwrap();
        association.send(vec![0; 15 << 20], &SendOptions::default()).await.unwrap();
        association.recv().await
    });
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("expected shorter messages"), "{error}");
}

/// A server without a descriptor for another connection continues, and accepts again once some are
/// closed.
#[test]
fn a_server_without_descriptors_continues() {
    let workdir = format!("127.0.0.1:{}", port());
    let program = env!("CARGO_BIN_EXE_ringway");
    let line =
        format!("ulimit -n 40; exec {program} perf server --transport tcp --listen {workdir}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut server = Server(shell.spawn().unwrap());
    let mut heard = BufReader::new(server.0.stderr.take().unwrap());
    heard.read_line(&mut String::new()).unwrap();
    // The kernel accepts more connections than the server can.
    let many: Vec<_> = (0..80).map(|_| TcpStream::connect(&workdir).unwrap()).collect();
    let echo = |mut stream: &TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // After its length: an echo of two octets.
        stream.write_all(&[0, 0, 0, 2, 1, 7])?;
        stream.read_exact(&mut [0; 6])
    };
    echo(&many[0]).unwrap();
    drop(many);
    echo(&TcpStream::connect(&workdir).unwrap()).unwrap();
}

/// An echo request and its answer.
const ECHO: [&[u8]; 2] = [b"\x01hello", b"\x06hello"];
const BEGIN: &[u8] = b"\x02{\"run\":1,\"size\":100}";

fn socket(workdir: &str) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(workdir).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

fn echo_of(socket: &UdpSocket, question: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 512];
    socket.send(question).unwrap();
    let length = socket.recv(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

/// A peer that forges another server's address must not make the two servers answer each other.
#[test]
fn an_answer_is_not_answered() {
    let workdir = format!("127.0.0.1:{}", port());
    let _server = Server::start("udp", &workdir);
    let socket = socket(&workdir);
    for question in [ECHO[0], BEGIN] {
        let answer = echo_of(&socket, question);
        // As the other server would receive it. The next message answered is the next request.
        socket.send(&answer).unwrap();
        assert_eq!(echo_of(&socket, ECHO[0]), ECHO[1], "{question:?}");
    }
}

/// Four runs of `client --streams 1024` have as many ports as a server tracks clients.
#[test]
fn a_new_client_is_answered_after_many_old_ones() {
    let workdir = format!("127.0.0.1:{}", port());
    let _server = Server::start("udp", &workdir);
    for _ in 0..50 {
        let many: Vec<UdpSocket> = (0..100).map(|_| socket(&workdir)).collect();
        for socket in &many {
            // The answer to Begin is Begun.
            assert_eq!(echo_of(socket, BEGIN)[1..], BEGIN[1..]);
        }
    }
}

/// A host has several addresses.
#[test]
fn udp_is_answered_from_the_queried_address() {
    let port = port();
    let _server = Server::start("udp", &format!("0.0.0.0:{port}"));
    assert_eq!(echo_of(&socket(&format!("127.0.0.7:{port}")), ECHO[0]), ECHO[1]);
}

#[test]
fn results_are_shown_as_a_table() {
    let workdir = format!("127.0.0.1:{}", port());
    let _server = Server::start("tcp", &workdir);
    let output =
        run(&["client", "--transport", "tcp", "--to", &workdir, "--size", "64", "--time", "0.3"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with(&format!("tcp to {workdir}, 1 stream")), "{text}");
    assert!(lines[1].contains("throughput") && lines[1].contains("p99.9 us"), "{text}");
    assert!(lines.len() == 3 && lines[2].trim().starts_with("64 "), "{text}");
    assert!(output.stderr.is_empty(), "progress where there is no terminal");
}

#[test]
fn wrong_usage_has_exit_status_two() {
    for args in [
        &["client"][..],
        &["client", "--transport", "quic"],
        &["client", "--transport", "tcp", "--size", "0"],
        &["client", "--transport", "tcp", "--time", "0"],
        &["client", "--transport", "tcp", "--to", "127.0.0.1"],
        &["client", "--transport", "tcp", "--to", "127.0.0.1,127.0.0.2:5"],
        &["client", "--transport", "udp", "--size", "70000"],
        &["client", "--transport", "sctp", "--to", "127.0.0.1:5?encap=7"],
        &["server", "--transport", "udp", "--listen", "127.0.0.1:5?encap=7"],
    ] {
        let output = run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(!error.is_empty(), "{args:?}");
    }
}

#[test]
fn an_unreachable_server_has_exit_status_one() {
    let workdir = format!("127.0.0.1:{}", port());
    let output = run(&["client", "--transport", "tcp", "--to", &workdir]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&format!("tcp to {workdir}: ")), "{error}");
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let output = run(&["server", "--transport", "tcp", "--listen", &taken]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("tcp on {taken}: ")));
}
