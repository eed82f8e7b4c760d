//! Runs C programs that use the library, compiled with the sanitizers of addresses and of undefined behaviour, over every
//! protocol that the host has.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)]

#[path = "../../../crates/services-tokio/examples/kv/client.rs"]
mod client;
#[path = "../../../crates/services-tokio/examples/kv/protocol.rs"]
mod protocol;
#[path = "../../../crates/services-tokio/examples/kv/server.rs"]
mod server;
mod support;

use client::Client;
use ringway_services_tokio::Protocol;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use support::{Build, build, has, is_secure, only, peer, system};

/// Runs a program of tests/c, or of the examples, over a protocol.
fn run(program: &str, protocol: Protocol) {
    let Build { trust, identity, .. } = build();
    let mut command = build().program(program);
    let status = command.arg(protocol.name()).args([trust, identity]).status().unwrap();
    assert!(status.success(), "{program} over {protocol}: {status}");
}

fn every() -> impl Iterator<Item = Protocol> {
    Protocol::ALL.iter().copied().filter(|protocol| has(*protocol))
}

#[test]
fn messages_over_every_protocol() {
    for protocol in every() {
        run("messages", protocol);
    }
}

#[test]
fn bytes_with_plain_sockets() {
    run("bytes", Protocol::Tcp);
}

#[test]
fn readiness_is_true() {
    for protocol in [Protocol::Tcp, Protocol::SctpUdp] {
        run("readiness", protocol);
    }
}

#[test]
fn descriptors_are_duplicated_and_inherited() {
    for protocol in [Protocol::Tcp, Protocol::SctpUdp] {
        run("processes", protocol);
    }
}

#[test]
fn errors_have_numbers_and_texts() {
    run("errors", Protocol::Tcp);
}

/// A server of the key-value service in C, with the port that it listens at.
struct Server(Child, BufReader<ChildStdout>, u16);

impl Server {
    fn start(protocol: Protocol) -> Server {
        let mut command = build().program("kv_server");
        command.args(["-p", protocol.name()]);
        if is_secure(protocol) {
            command.arg("-i").arg(&build().identity);
        }
        let mut child = command.args(["127.0.0.1", "0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let port = line.trim().rsplit(' ').next().unwrap().parse();
        Server(child, output, port.unwrap_or_else(|_| panic!("{protocol}: {line:?}")))
    }

    /// Has it end by itself, so that the sanitizers look for leaks.
    fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(program: &str, protocol: Protocol, port: u16, words: &[&str]) -> String {
    let mut command = build().program(program);
    command.args(["-p", protocol.name()]);
    if is_secure(protocol) {
        command.arg("-t").arg(&build().trust);
    }
    let output = command.arg(format!("127.0.0.1:{port}")).args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} over {protocol}: {} {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_service_in_c_runs_over_every_protocol() {
    for protocol in every() {
        let server = Server::start(protocol);
        ask("kv", protocol, server.2, &[]);
        ask("kv_client", protocol, server.2, &["put", "name", "value"]);
        assert_eq!(ask("kv_client", protocol, server.2, &["get", "name"]), "value\n");
        assert_eq!(ask("kv_client", protocol, server.2, &["get", "none"]), "there is no none\n");
        server.stop();
    }
}

#[tokio::test]
async fn a_client_in_c_speaks_with_a_server_in_rust() {
    for protocol in every() {
        let system = system();
        let listener = only(&system, protocol).from(support::here(0)).listen().await.unwrap();
        let port = listener.port();
        let serving = tokio::spawn(server::serve(listener));
        tokio::task::spawn_blocking(move || ask("kv", protocol, port, &[])).await.unwrap();
        serving.abort();
    }
}

#[tokio::test]
async fn a_client_in_rust_speaks_with_a_server_in_c() {
    for protocol in every() {
        let (server, system) = (Server::start(protocol), system());
        let client = Client::open(&only(&system, protocol).to(peer(server.2))).await.unwrap();
        client.put("colour", b"blue").await.unwrap();
        assert_eq!(client.get("colour").await.unwrap().unwrap(), "blue");
        let (watch, cancelled) = (client.watch().await.unwrap(), client.watch().await.unwrap());
        client.put("shape", b"round").await.unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap().0, "shape");
        cancelled.cancel();
        client.put("size", &[7; 1_000]).await.unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap().0, "size");
        server.stop();
    }
}
