//! Bytes, their ends, and the flags of messages.

use super::{Note, pair};
use crate::calls::{self, error, recv, send, set_option};
use std::io::{Read, Write};
use std::mem::zeroed;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

pub(super) fn stream(note: Note<'_>) {
    let (mut ours, mut theirs) = pair();
    ours.write_all(b"question").unwrap();
    let mut text = [0; 8];
    theirs.read_exact(&mut text).unwrap();
    note(format!("it reads {}", String::from_utf8_lossy(&text)));
    ours.shutdown(Shutdown::Write).unwrap();
    note(format!("it reads {} at the end", theirs.read(&mut text).unwrap()));
    note(format!(
        "events after the end: {}",
        calls::poll(&theirs, libc::POLLIN | libc::POLLRDHUP, 5000)
    ));
    note(format!("write after its own end: {}", send(&ours, b"x", 0)));
    // The other direction is open still.
    let large: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    let copy = large.clone();
    let writer = thread::spawn(move || {
        theirs.write_all(&copy).unwrap();
        theirs
    });
    let mut got = Vec::new();
    ours.read_to_end_of(&mut got, large.len());
    note(format!("3,000,000 octets are the same: {}", got == large));
    let theirs = writer.join().unwrap();
    drop(theirs);
    note(format!("then it reads {}", ours.read(&mut text).unwrap()));
    note(format!(
        "events when both have ended: {}",
        calls::poll(&ours, libc::POLLIN | libc::POLLRDHUP, 5000)
    ));
    // From a file, which the kernel sends by itself.
    let (ours, mut theirs) = pair();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    // SAFETY: the offset may be null.
    let sent =
        unsafe { libc::sendfile(ours.as_raw_fd(), file.as_raw_fd(), std::ptr::null_mut(), 9_000) };
    drop(ours);
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).unwrap();
    note(format!("sendfile: {sent}, {} octets came", got.len()));
    // Much, and closed at once: all of it arrives.
    let (mut ours, mut theirs) = pair();
    let writer = thread::spawn(move || ours.write_all(&[7; 500_000]).unwrap());
    let mut got = Vec::new();
    thread::sleep(Duration::from_millis(50));
    theirs.read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    note(format!("{} octets of a socket that was closed came", got.len()));
}

/// Reads a number of octets.
trait ReadOf {
    fn read_to_end_of(&mut self, out: &mut Vec<u8>, length: usize);
}

impl<R: Read> ReadOf for R {
    fn read_to_end_of(&mut self, out: &mut Vec<u8>, length: usize) {
        out.resize(length, 0);
        self.read_exact(out).unwrap();
    }
}

pub(super) fn messages(note: Note<'_>) {
    let (ours, theirs) = pair();
    theirs.set_nonblocking(true).unwrap();
    note(format!("nothing there: {}", recv(&theirs, 9, 0)));
    note(format!("errors: {}", recv(&theirs, 9, libc::MSG_ERRQUEUE)));
    note(format!("send: {}", send(&ours, b"abcdefghij", 0)));
    calls::poll(&theirs, libc::POLLIN, 5000);
    note(format!("peek: {}", recv(&theirs, 4, libc::MSG_PEEK)));
    note(format!("peek again: {}", recv(&theirs, 4, libc::MSG_PEEK)));
    note(format!("discard: {}", recv(&theirs, 2, libc::MSG_TRUNC).split(':').next().unwrap_or("")));
    note(format!("read: {}", recv(&theirs, 3, libc::MSG_DONTWAIT)));
    theirs.set_nonblocking(false).unwrap();
    let later = ours.try_clone().unwrap();
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        send(&later, b"klmno", 0)
    });
    note(format!("wait for all: {}", recv(&theirs, 10, libc::MSG_WAITALL)));
    note(format!("in a thread: {}", writer.join().unwrap()));

    // An address is ignored by a socket that is connected.
    let to = calls::loopback(9);
    let (at, length) = ((&raw const to).cast(), calls::length(&to));
    let fd = ours.as_raw_fd();
    // SAFETY: all pointers are to live values of these lengths.
    unsafe {
        let sent = libc::sendto(fd, b"to".as_ptr().cast(), 2, 0, at, length);
        note(format!("sendto: {}", calls::result(sent)));
        let mut parts = [libc::iovec { iov_base: b"msg".as_ptr().cast_mut().cast(), iov_len: 3 }];
        let mut message: libc::msghdr = zeroed();
        (message.msg_name, message.msg_namelen) = (at.cast_mut().cast(), length);
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), 1);
        note(format!("sendmsg: {}", calls::result(libc::sendmsg(fd, &raw const message, 0))));
        let mut from: libc::sockaddr_storage = zeroed();
        let mut from_length = calls::length(&from);
        let mut text = [0_u8; 5];
        let (at, room) = (text.as_mut_ptr().cast(), text.len());
        let got = libc::recvfrom(
            theirs.as_raw_fd(),
            at,
            room,
            libc::MSG_WAITALL,
            (&raw mut from).cast(),
            &raw mut from_length,
        );
        note(format!(
            "recvfrom: {got}, {}, address of {from_length}",
            String::from_utf8_lossy(&text)
        ));
        send(&ours, b"again", 0);
        let mut parts = [libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: 5 }];
        let mut message: libc::msghdr = zeroed();
        (message.msg_name, message.msg_namelen) = ((&raw mut from).cast(), calls::length(&from));
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), 1);
        let got = libc::recvmsg(theirs.as_raw_fd(), &raw mut message, libc::MSG_WAITALL);
        let (namelen, control) = (message.msg_namelen, message.msg_controllen);
        note(format!("recvmsg: {got}, address of {namelen}, control of {control}"));
        // sockaddr_in has 16 octets, and so has the room of many programs.
        for (sender, receiver) in [(&ours, &theirs), (&theirs, &ours)] {
            for room in [0, 1, 2, 8, 16, 28] {
                send(sender, b"again", 0);
                message.msg_namelen = room;
                let got = libc::recvmsg(receiver.as_raw_fd(), &raw mut message, libc::MSG_WAITALL);
                note(format!("recvmsg: {got}, address of {} in {room}", message.msg_namelen));
            }
        }
        let mut many: [libc::mmsghdr; 2] = zeroed();
        for one in &mut many {
            (one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen) = (parts.as_mut_ptr(), 1);
        }
        note(format!("sendmmsg: {}", calls::result(libc::sendmmsg(fd, many.as_mut_ptr(), 2, 0))));
    }
    note(format!("they came: {}", recv(&theirs, 10, libc::MSG_WAITALL)));
}

pub(super) fn resets(note: Note<'_>) {
    let abort = libc::linger { l_onoff: 1, l_linger: 0 };
    // A reset by the option, seen by who has connected and by who has accepted.
    for by_first in [true, false] {
        let (ours, theirs) = pair();
        let (closing, mut left) = if by_first { (ours, theirs) } else { (theirs, ours) };
        set_option(&closing, libc::SOL_SOCKET, libc::SO_LINGER, &abort);
        drop(closing);
        let mut text = [0; 4];
        let read = left.read(&mut text);
        note(format!("read after a reset: {}", read.map_or_else(|e| error(&e), |n| n.to_string())));
        note(format!("the next read: {}", recv(&left, 4, 0)));
        note(format!("write after a reset: {}", send(&left, b"x", 0)));
    }
    // Unread data makes a close a reset.
    let (ours, theirs) = pair();
    send(&ours, b"unread", 0);
    calls::poll(&theirs, libc::POLLIN, 5000);
    drop(theirs);
    note(format!("read after a close with unread data: {}", recv(&ours, 4, 0)));
    // Data for a socket that is closed is answered by a reset.
    let (ours, theirs) = pair();
    drop(theirs);
    note(format!("read: {}", recv(&ours, 4, 0)));
    note(format!("first write: {}", send(&ours, b"x", 0)));
    let mut writes = Vec::new();
    for _ in 0..200 {
        thread::sleep(Duration::from_millis(10));
        writes.push(send(&ours, b"x", 0));
        if writes.last().is_some_and(|write| write == "EPIPE") {
            break;
        }
    }
    note(format!("then: {}", writes.last().unwrap()));
}

pub(super) fn threads(note: Note<'_>) {
    let threads: Vec<_> = (0..16_u8)
        .map(|number| {
            thread::spawn(move || {
                let (mut ours, mut theirs) = pair();
                let writer = thread::spawn(move || {
                    let data = vec![number; 400_000];
                    ours.write_all(&data).unwrap();
                    ours.shutdown(Shutdown::Write).unwrap();
                    let mut back = Vec::new();
                    ours.read_to_end(&mut back).unwrap();
                    back == data
                });
                let mut got = Vec::new();
                theirs.read_to_end(&mut got).unwrap();
                theirs.write_all(&got).unwrap();
                drop(theirs);
                writer.join().unwrap()
            })
        })
        .collect();
    let whole = threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|whole| *whole);
    note(format!("{} of 16 connections had all come back", whole.count()));
}

pub(super) fn times(note: Note<'_>) {
    let (mut ours, theirs) = pair();
    ours.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let mut text = [0; 4];
    note(format!("read: {}", error(&ours.read(&mut text).unwrap_err())));
    note(format!(
        "the timeout: {:?}",
        ours.read_timeout().unwrap().map(|time| time >= Duration::from_millis(30))
    ));
    // A peer that does not read stops the writer.
    ours.set_nonblocking(true).unwrap();
    let mut refused = false;
    for _ in 0..100_000 {
        let sent = send(&ours, &[0; 10_000], 0);
        if sent.starts_with('E') {
            refused = sent == "EAGAIN";
            // What is on its way still makes room.
            thread::sleep(Duration::from_millis(200));
            if calls::poll(&ours, libc::POLLOUT, 0).is_empty() {
                break;
            }
        }
    }
    note(format!("a full socket refuses: {refused}"));
    note(format!("events of a full socket: {:?}", calls::poll(&ours, libc::POLLOUT, 0)));
    drop(theirs);
}
