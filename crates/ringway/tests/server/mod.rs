//! A running server in a test.

#![allow(dead_code)] // Each test program uses a part of it.

use crate::workdir::Workdir;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Time limit for an expected event, sufficient on a busy machine.
pub(crate) const WITHIN: Duration = Duration::from_secs(60);

impl Workdir {
    /// Runs a command that must succeed; returns its standard output.
    pub(crate) fn fine(&self, args: &[&str]) -> String {
        self.ends(0, args).0
    }

    /// Runs a command that must fail with exit status 1; returns its standard error.
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        self.ends(1, args).1
    }

    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        let mut all = vec!["serve", "--workers", "2"];
        all.extend(args);
        self.started(self.command(&all))
    }

    /// Starts a server by this command and waits until it can be managed.
    pub(crate) fn started(&self, mut command: Command) -> Server {
        let server = Server { child: Some(command.spawn().unwrap()) };
        let control = self.path("ringway/ringway.control/socket");
        let until = Instant::now() + WITHIN;
        while !control.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(control.exists(), "the server did not start: {}", server.end().1);
        server
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.fine(&["status", "--json"])).unwrap()
    }
}

pub(crate) struct Server {
    pub(crate) child: Option<Child>,
}

impl Server {
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Ends the server if it still runs; returns standard output and error.
    pub(crate) fn end(mut self) -> (String, String) {
        let mut child = self.child.take().unwrap();
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    }

    /// Waits for the server to end by itself; returns exit status, standard output and error.
    pub(crate) fn wait(mut self) -> (Option<i32>, String, String) {
        let mut child = self.child.take().unwrap();
        let until = Instant::now() + WITHIN;
        while child.try_wait().unwrap().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let code = child.try_wait().unwrap().map(|status| status.code());
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (code.expect("it did not end"), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Registers a user of `a.test` over UDP; returns the response.
pub(crate) fn register(server: SocketAddr, user: &str) -> String {
    exchange(server, user, &format!("Contact: <sip:{user}@LOCAL>\r\n"))
}

fn exchange(server: SocketAddr, user: &str, contact: &str) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(WITHIN)).unwrap();
    let local = socket.local_addr().unwrap();
    let contact = contact.replace("LOCAL", &local.to_string());
    let request = format!(
        "REGISTER sip:a.test SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK{user}\r\n\
         From: <sip:{user}@a.test>;tag=1\r\nTo: <sip:{user}@a.test>\r\nCall-ID: {user}{local}\r\n\
         CSeq: 1 REGISTER\r\n{contact}Max-Forwards: 70\r\n\
         Content-Length: 0\r\n\r\n"
    );
    socket.send_to(request.as_bytes(), server).unwrap();
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// Returns the registrations of a user of `a.test`: the response to a REGISTER without Contact.
pub(crate) fn fetch(server: SocketAddr, user: &str) -> String {
    exchange(server, user, "")
}
