//! News of the host's addresses and links, from the kernel by netlink (rtnetlink(7)).

use super::options::set_option;
use super::watch::watch;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Bytes read at once; the kernel sends no larger messages.
const BUFFER: usize = 32 << 10;

/// Bytes of a message's header, of what follows it in address and link messages, and of an
/// attribute's header.
const HEADER: usize = size_of::<libc::nlmsghdr>();
const ADDRESS: usize = 8;
const LINK: usize = 16;
const ATTRIBUTE: usize = 4;

/// An attribute of an address message: the interface's own address, where that is not the only one.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// Of an address: whether it is its host's alone is not known yet, or known to be false.
const TENTATIVE: u8 = (libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED) as u8;

/// Tells when addresses of the host come and go, or their links do.
pub(crate) struct NetworkNews {
    io: AsyncFd<Socket>,
    buffer: Vec<u8>,
    /// The addresses of each interface.
    addresses: HashMap<u32, Vec<IpAddr>>,
    /// Which interfaces can carry nothing now.
    down: Vec<u32>,
    /// What was heard and is not told yet.
    news: VecDeque<(IpAddr, bool)>,
    asking: Asking,
    /// News were lost: all is asked for once more.
    lost: bool,
}

/// A question to the system whose answer is not complete.
#[derive(PartialEq, Eq)]
enum Asking {
    Nothing,
    /// The first: what its answer says is no news.
    First,
    /// Once more for all addresses, because news were lost. What the answer does not name is gone.
    Addresses(HashSet<(u32, IpAddr)>),
    /// Then for all links.
    Links,
}

impl NetworkNews {
    /// To be called within a runtime.
    pub(crate) fn open() -> io::Result<NetworkNews> {
        const GROUPS: libc::c_int =
            libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        let protocol = Protocol::from(libc::NETLINK_ROUTE);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
        socket.set_nonblocking(true)?;
        // SAFETY: `sockaddr_nl` is a plain C structure for which all zeroes is a value.
        let mut name: libc::sockaddr_nl = unsafe { MaybeUninit::zeroed().assume_init() };
        name.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        name.nl_groups = GROUPS as u32;
        // SAFETY: the pointer is to a live structure and its length is given truly.
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
        // A burst of changes larger than this is told by ENOBUFS, and asked for again.
        let _ = set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 1 << 18);
        let mut news = NetworkNews {
            io: watch(socket, Interest::READABLE)?,
            buffer: vec![0; BUFFER],
            addresses: HashMap::new(),
            down: Vec::new(),
            news: VecDeque::new(),
            asking: Asking::First,
            lost: false,
        };
        news.ask(libc::RTM_GETADDR)?;
        Ok(news)
    }

    /// Asks for all addresses or links there are.
    fn ask(&mut self, what: u16) -> io::Result<()> {
        // A link's is longer than an address's, whose rest is then taken for attributes: none.
        let mut request = [0u8; HEADER + LINK];
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        request[..4].copy_from_slice(&((HEADER + LINK) as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&what.to_ne_bytes());
        request[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.io.get_ref().send(&request).map(|_| ())
    }

    /// The next address that can be used now (`true`), or cannot any more. `None` when the system
    /// tells no more.
    pub(crate) async fn next(&mut self) -> Option<(IpAddr, bool)> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Some(news);
            }
            let mut ready = self.io.readable().await.ok()?;
            let mut buffer = std::mem::take(&mut self.buffer);
            let mut reader: &Socket = self.io.get_ref();
            match io::Read::read(&mut reader, &mut buffer) {
                Ok(0) => return None,
                Ok(got) => self.take(&buffer[..got]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.lost = true;
                    if self.asking == Asking::Nothing {
                        self.ask_again();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            self.buffer = buffer;
        }
    }

    /// Some news were lost: asks how things are.
    fn ask_again(&mut self) {
        self.lost = false;
        self.asking = match self.ask(libc::RTM_GETADDR) {
            Ok(()) => Asking::Addresses(HashSet::new()),
            Err(_) => Asking::Nothing,
        };
    }

    /// The answer to what was asked is complete.
    fn answered(&mut self) {
        if let Asking::Addresses(seen) = std::mem::replace(&mut self.asking, Asking::Nothing) {
            for (index, known) in &mut self.addresses {
                let there = |ip: &IpAddr| seen.contains(&(*index, *ip));
                if !self.down.contains(index) {
                    let gone = known.iter().filter(|ip| !there(ip));
                    self.news.extend(gone.map(|ip| (*ip, false)));
                }
                known.retain(there);
            }
            if self.ask(libc::RTM_GETLINK).is_ok() {
                self.asking = Asking::Links;
            }
        }
        if self.lost && self.asking == Asking::Nothing {
            self.ask_again();
        }
    }

    /// Takes the messages of one reading.
    fn take(&mut self, mut bytes: &[u8]) {
        while bytes.len() >= HEADER {
            let length = number(bytes, 0) as usize;
            let kind = u16::from_ne_bytes([bytes[4], bytes[5]]);
            let Some(message) = bytes.get(HEADER..length) else { return };
            match kind {
                libc::RTM_NEWADDR => self.address(message, true),
                libc::RTM_DELADDR => self.address(message, false),
                libc::RTM_NEWLINK | libc::RTM_DELLINK => self.link(message, kind),
                _ if i32::from(kind) == libc::NLMSG_DONE => self.answered(),
                _ => {}
            }
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
    }

    fn address(&mut self, message: &[u8], there: bool) {
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
            // IFA_LOCAL is ours where IFA_ADDRESS is the other end of a point-to-point link.
            if kind == IFA_LOCAL || (kind == IFA_ADDRESS && found.is_none()) {
                found = Some(ip);
            }
        }
        let Some(ip) = found else { return };
        // Nothing may be sent from one that another host may have.
        let there = there && message[2] & TENTATIVE == 0;
        let known = self.addresses.entry(index).or_default();
        let was = known.contains(&ip);
        known.retain(|other| *other != ip);
        if there {
            known.push(ip);
        }
        match &mut self.asking {
            Asking::First => return,
            Asking::Addresses(seen) if there => drop(seen.insert((index, ip))),
            Asking::Addresses(seen) => drop(seen.remove(&(index, ip))),
            Asking::Links | Asking::Nothing => {}
        }
        if was != there && !self.down.contains(&index) {
            self.news.push_back((ip, there));
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
        self.news.extend(addresses.map(|ip| (*ip, up)));
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// Walks over attributes: kind and value.
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
