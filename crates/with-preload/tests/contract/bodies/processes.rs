//! Descriptors in several processes.

use super::{Note, pair};
use crate::calls::{self, recv, send};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

/// Runs something in a child, which ends with it. Returns its exit status.
fn fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls nothing that another thread could hold a lock of: what it does is system calls.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(child()),
            pid => {
                let mut status = 0;
                libc::waitpid(pid, &raw mut status, 0);
                libc::WEXITSTATUS(status)
            }
        }
    }
}

pub(super) fn processes(note: Note<'_>) {
    // A child uses what its parent has opened; the connection ends with the last descriptor.
    let (ours, theirs) = pair();
    note(format!("a child: {}", fork(|| i32::from(send(&ours, b"child", 0) != "5"))));
    note(format!("they read {}", recv(&theirs, 9, 0)));
    // SAFETY: no argument is a pointer; the descriptor is new.
    let copy = unsafe { OwnedFd::from_raw_fd(libc::dup(ours.as_raw_fd())) };
    drop(ours);
    note(format!("a copy sends {}", send(&copy, b"copy", 0)));
    note(format!("they read {}", recv(&theirs, 9, 0)));
    drop(copy);
    note(format!("then they read {}", recv(&theirs, 9, 0)));

    // A child accepts at its parent's socket, and answers with the address of the peer.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let local = ours.local_addr().unwrap();
    let child = fork(|| {
        let Ok((mut stream, from)) = listener.accept() else { return 1 };
        let same = from == local && stream.peer_addr().is_ok_and(|peer| peer == local);
        i32::from(!same || stream.write_all(b"accepted").is_err())
    });
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    note(format!("a child that accepts: {child}, {text}"));

    // Another program, with the connection as its standard input and output.
    let (mut ours, theirs) = pair();
    let (input, output) = (theirs.as_fd().try_clone_to_owned().unwrap(), OwnedFd::from(theirs));
    let mut cat =
        Command::new("cat").stdin(Stdio::from(input)).stdout(Stdio::from(output)).spawn().unwrap();
    ours.write_all(b"through another program").unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    note(format!("cat: {text}, {}", cat.wait().unwrap()));

    // A program that was executed opens connections, and knows the addresses of one that it has inherited.
    let (_ours, theirs) = pair();
    let script = "import socket; s = socket.socket(fileno=0); \
                  print(s.family.name, s.type.name, s.getsockname()[0], s.getpeername()[0]); \
                  l = socket.create_server(('127.0.0.1', 0)); \
                  c = socket.create_connection(l.getsockname()); a, _ = l.accept(); \
                  c.sendall(b'python'); c.close(); print(a.recv(99).decode(), a.recv(99) == b'')";
    let python = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .output()
        .unwrap();
    note(String::from_utf8_lossy(&[python.stdout, python.stderr].concat()).into_owned());

    // Workers that accept at one socket.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    // SAFETY: as in `fork`.
    let workers: Vec<_> = (0..3)
        .map(|_| unsafe {
            match libc::fork() {
                0 => {
                    for _ in 0..4 {
                        let served =
                            listener.accept().and_then(|(mut one, _)| one.write_all(b"ok"));
                        if served.is_err() {
                            libc::_exit(1);
                        }
                    }
                    libc::_exit(0)
                }
                pid => pid,
            }
        })
        .collect();
    drop(listener);
    let mut served = 0;
    for _ in 0..12 {
        let mut text = String::new();
        TcpStream::connect(at).unwrap().read_to_string(&mut text).unwrap();
        served += usize::from(text == "ok");
    }
    let mut statuses = Vec::new();
    for pid in workers {
        let mut status = 0;
        // SAFETY: the status is alive.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        statuses.push(status);
    }
    note(format!("three workers serve {served}: {statuses:?}"));
    let (ours, theirs) = pair();
    calls::poll(&ours, libc::POLLOUT, 0);
    drop(theirs);
}

pub(super) fn kill_itself() {
    // SAFETY: no argument is a pointer.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Executes a file that is the header of a statically linked program, by a shell and by itself.
pub(super) fn static_program(note: Note<'_>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("static-program");
    let mut header = vec![0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[18] = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    std::fs::write(&file, header).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file, executable).unwrap();
    note(format!("by itself: {}", Command::new(&file).status().is_err()));
    let mut shell = Command::new("sh");
    shell.args(["-c", "static-program; exec static-program"]);
    let shell = shell.env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()));
    note(format!("by a shell: {}", shell.stderr(Stdio::null()).status().unwrap().success()));
    note(format!("another: {}", Command::new("true").status().unwrap().success()));
}
