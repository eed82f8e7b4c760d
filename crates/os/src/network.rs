//! Changes of the host's addresses and links, reported by the kernel over netlink (rtnetlink(7)).
#![allow(unsafe_code)]

use crate::options::set_option;
use crate::watch::{Watched, watch};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use tokio::io::Interest;

/// Bytes read at once; the kernel sends no larger messages.
const BUFFER: usize = 32 << 10;

/// Sizes in bytes: a message's header, the fixed part of address and link messages, and an attribute's
/// header.
const HEADER: usize = size_of::<libc::nlmsghdr>();
const ADDRESS: usize = 8;
const LINK: usize = 16;
const ATTRIBUTE: usize = 4;

/// Attributes of an address message. `IFA_LOCAL` is the interface's own address where the link is a
/// point-to-point one.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// Flags of an address whose duplicate address detection is not complete, or failed.
const TENTATIVE: u8 = (libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED) as u8;

/// Reports addresses of the host that are added or removed, or whose links go up or down.
pub struct NetworkMonitor {
    io: Watched<Socket>,
    buffer: Vec<u8>,
    /// The addresses of each interface.
    addresses: HashMap<u32, Vec<IpAddr>>,
    /// Interfaces that cannot carry packets now.
    down: Vec<u32>,
    /// Changes that are not reported yet.
    changes: VecDeque<(IpAddr, bool)>,
    request: Request,
    /// Notifications were lost: everything is requested once more.
    lost: bool,
}

/// A request to the kernel whose answer is not complete.
#[derive(PartialEq, Eq)]
enum Request {
    None,
    /// The first request: its answer is the initial state and reports no change.
    First,
    /// All addresses once more, because notifications were lost. Those absent from the answer are removed.
    Addresses(HashSet<(u32, IpAddr)>),
    /// Then all links.
    Links,
}

impl NetworkMonitor {
    /// Opens a monitor of the network namespace of the thread. To be called within a runtime.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub fn open() -> io::Result<NetworkMonitor> {
        const GROUPS: libc::c_int =
            libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        let protocol = Protocol::from(libc::NETLINK_ROUTE);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
        socket.set_nonblocking(true)?;
        // SAFETY: `sockaddr_nl` is a plain C structure for which all zeroes is a value.
        let mut name: libc::sockaddr_nl = unsafe { MaybeUninit::zeroed().assume_init() };
        name.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        name.nl_groups = GROUPS as u32;
        // SAFETY: the pointer is to a live structure and the length is its own.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const name).cast(),
                size_of::<libc::sockaddr_nl>() as libc::socklen_t,
            )
        };
        if bound != 0 {
            return Err(io::Error::last_os_error());
        }
        // A burst of changes larger than this is reported by ENOBUFS, and requested again.
        let _ = set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 1 << 18);
        let mut monitor = NetworkMonitor {
            io: watch(socket, Interest::READABLE)?,
            buffer: vec![0; BUFFER],
            addresses: HashMap::new(),
            down: Vec::new(),
            changes: VecDeque::new(),
            request: Request::First,
            lost: false,
        };
        monitor.send_request(libc::RTM_GETADDR)?;
        Ok(monitor)
    }

    /// Requests all addresses or all links of the host.
    fn send_request(&mut self, kind: u16) -> io::Result<()> {
        // A link request is longer than an address request, whose rest is then read as no attributes.
        let mut request = [0u8; HEADER + LINK];
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        request[..4].copy_from_slice(&((HEADER + LINK) as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.io.get_ref().send(&request).map(|_| ())
    }

    /// Returns the next address that became usable (`true`) or unusable. `None` when the kernel reports
    /// no more changes.
    pub async fn next(&mut self) -> Option<(IpAddr, bool)> {
        loop {
            if let Some(changes) = self.changes.pop_front() {
                return Some(changes);
            }
            let mut ready = self.io.readable().await.ok()?;
            let mut buffer = std::mem::take(&mut self.buffer);
            let mut reader: &Socket = self.io.get_ref();
            match io::Read::read(&mut reader, &mut buffer) {
                Ok(0) => return None,
                Ok(got) => self.handle(&buffer[..got]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.lost = true;
                    if self.request == Request::None {
                        self.request_again();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            self.buffer = buffer;
        }
    }

    /// Requests the present state, because notifications were lost.
    fn request_again(&mut self) {
        self.lost = false;
        self.request = match self.send_request(libc::RTM_GETADDR) {
            Ok(()) => Request::Addresses(HashSet::new()),
            Err(_) => Request::None,
        };
    }

    /// Handles the end of a request's answer.
    fn complete_request(&mut self) {
        if let Request::Addresses(seen) = std::mem::replace(&mut self.request, Request::None) {
            for (index, known) in &mut self.addresses {
                let present = |ip: &IpAddr| seen.contains(&(*index, *ip));
                if !self.down.contains(index) {
                    let gone = known.iter().filter(|ip| !present(ip));
                    self.changes.extend(gone.map(|ip| (*ip, false)));
                }
                known.retain(present);
            }
            if self.send_request(libc::RTM_GETLINK).is_ok() {
                self.request = Request::Links;
            }
        }
        if self.lost && self.request == Request::None {
            self.request_again();
        }
    }

    /// Handles the messages of one read.
    fn handle(&mut self, mut bytes: &[u8]) {
        while bytes.len() >= HEADER {
            let length = number(bytes, 0) as usize;
            let kind = u16::from_ne_bytes([bytes[4], bytes[5]]);
            let Some(message) = bytes.get(HEADER..length) else { return };
            match kind {
                libc::RTM_NEWADDR => self.address(message, true),
                libc::RTM_DELADDR => self.address(message, false),
                libc::RTM_NEWLINK | libc::RTM_DELLINK => self.link(message, kind),
                _ if i32::from(kind) == libc::NLMSG_DONE => self.complete_request(),
                _ => {}
            }
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
    }

    fn address(&mut self, message: &[u8], present: bool) {
        let Some(attributes) = message.get(ADDRESS..) else { return };
        let index = number(message, 4);
        let mut found = None;
        for (kind, value) in Attributes(attributes) {
            let ip = match *value {
                [a, b, c, d] => IpAddr::from([a, b, c, d]),
                _ => match <[u8; 16]>::try_from(value) {
                    Ok(octets) => IpAddr::from(octets),
                    Err(_) => continue,
                },
            };
            // On a point-to-point link IFA_ADDRESS is the remote end and IFA_LOCAL the local one.
            if kind == IFA_LOCAL || (kind == IFA_ADDRESS && found.is_none()) {
                found = Some(ip);
            }
        }
        let Some(ip) = found else { return };
        // Nothing may be sent from an address that another host may have.
        let present = present && message[2] & TENTATIVE == 0;
        let known = self.addresses.entry(index).or_default();
        let was = known.contains(&ip);
        known.retain(|other| *other != ip);
        if present {
            known.push(ip);
        }
        match &mut self.request {
            Request::First => return,
            Request::Addresses(seen) if present => drop(seen.insert((index, ip))),
            Request::Addresses(seen) => drop(seen.remove(&(index, ip))),
            Request::Links | Request::None => {}
        }
        if was != present && !self.down.contains(&index) {
            self.changes.push_back((ip, present));
        }
    }

    fn link(&mut self, message: &[u8], kind: u16) {
        if message.len() < LINK {
            return;
        }
        let (index, flags) = (number(message, 4), number(message, 8));
        let works = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
        let up = kind == libc::RTM_NEWLINK && flags & works == works;
        let was = !self.down.contains(&index);
        if up == was {
            return;
        }
        self.down.retain(|other| *other != index);
        if !up && kind == libc::RTM_NEWLINK {
            self.down.push(index);
        }
        let addresses = self.addresses.get(&index).into_iter().flatten();
        self.changes.extend(addresses.map(|ip| (*ip, up)));
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// Iterates over attributes: kind and value.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        let head = bytes.get(..ATTRIBUTE)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]);
        let value = bytes.get(ATTRIBUTE..length)?;
        self.0 = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    }
}
