//! Sockets of UDP, which stay sockets of the kernel: only addresses are translated.
//!
//! For a peer whose datagrams the broker carries by another protocol it has a proxy, a socket on the loopback interface. The
//! broker's table says which (`ringway_with_wire::translation`). It is mapped into this process, so that a datagram costs no
//! request. The first one to a peer does: unless something has come from there, the broker opens an association.

use crate::descriptor::Descriptor;
use crate::errno::Result;
use crate::system::{self, Named};
use crate::{address, broker, environment};
use libc::{c_int, sockaddr, socklen_t};
use ringway_with_wire::address::unmapped;
use ringway_with_wire::request::{Action, Datagrams, Usage};
use ringway_with_wire::translation::{EVERY_SOCKET, Key, OCTETS, ROWS, WORDS};
use ringway_with_wire::{Environment, SocketId};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The address of proxies for peers of IPv4. Those for peers of IPv6 have that of the loopback interface.
const PROXIES: Ipv4Addr = Ipv4Addr::new(127, 82, 0, 1);
/// The index of the loopback interface, which the kernel creates first in each network namespace.
const LOOPBACK: u32 = 1;
/// The time for a reply of the broker. Without it the datagram travels by UDP.
const PATIENCE: libc::timeval = libc::timeval { tv_sec: 1, tv_usec: 0 };

/// Tries, a millisecond each, to bind a socket to a port that the broker releases.
const TRIES: usize = 1_000;

/// The interface that a socket is bound to: SO_BINDTOIFINDEX of asm-generic/socket.h.
const BOUND_TO: c_int = 62;

/// The broker's table, once it is mapped.
static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// Whether the broker has none.
static ABSENT: AtomicBool = AtomicBool::new(false);
/// Sockets and peers from which something has come. One that makes room for another is no more than a question to the broker.
static HEARD: [AtomicU64; 1 << 12] = [const { AtomicU64::new(0) }; 1 << 12];

/// Returns the table. `None` where sockets of UDP are not served.
fn table() -> Option<&'static [AtomicU64; ROWS * WORDS]> {
    let broker = environment::get().filter(|broker| broker.datagrams)?;
    let mut mapped = TABLE.load(Ordering::Acquire);
    if mapped.is_null() {
        if ABSENT.load(Ordering::Relaxed) {
            return None;
        }
        let Ok(new) = map(broker) else {
            ABSENT.store(true, Ordering::Relaxed);
            return None;
        };
        let none = std::ptr::null_mut();
        mapped = match TABLE.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                system::unmap(new.cast(), OCTETS);
                other
            }
        };
    }
    // SAFETY: so many octets are mapped, for as long as the process runs; the kernel has aligned them, and what is in them
    // is a value whatever the broker writes.
    Some(unsafe { &*mapped.cast() })
}

/// Returns whether datagrams may be carried at all.
pub(crate) fn is_served() -> bool {
    table().is_some()
}

/// Maps the table before the program runs: later it may not be allowed to.
pub(crate) fn prepare() {
    table();
}

fn map(broker: Environment) -> Result<*mut AtomicU64> {
    let fd = broker::table(&of(broker))?;
    let mapped = system::map(fd, OCTETS);
    system::close(fd);
    Ok(mapped?.cast())
}

/// Returns what requests about no socket of the broker's are made with.
fn of(broker: Environment) -> Descriptor {
    Descriptor { broker, ipv6: false, id: SocketId(0), ends: None }
}

fn look_up(key: Key) -> Option<Option<SocketAddr>> {
    let table = table()?;
    key.rows().find_map(|row| {
        let words = std::array::from_fn(|word| table[row * WORDS + word].load(Ordering::Relaxed));
        key.read(&words)
    })
}

/// Returns whether datagrams of a peer may travel otherwise: it is one host, and another.
fn is_eligible(peer: SocketAddr) -> bool {
    let one_of_many = match peer.ip() {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_broadcast() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    one_of_many && !peer.ip().is_multicast() && !peer.ip().is_unspecified() && peer.port() != 0
}

fn is_proxy(address: SocketAddr) -> bool {
    address.ip() == PROXIES || address.ip() == Ipv6Addr::LOCALHOST
}

fn heard(key: &Key) -> &'static AtomicU64 {
    &HEARD[key.fingerprint() as usize % HEARD.len()]
}

fn is_udp(fd: c_int) -> bool {
    let is = |option, value| system::integer_option(fd, option) == Ok(value);
    is(libc::SO_TYPE, libc::SOCK_DGRAM) && is(libc::SO_PROTOCOL, libc::IPPROTO_UDP)
}

/// Reports what a socket does. Returns `None` if it is none of UDP.
fn report(fd: c_int, inode: u64, usage: Usage) -> Option<()> {
    if !is_udp(fd) {
        return None;
    }
    // A socket of one interface does not reach a proxy. Kernels before 5.1 do not say.
    if system::integer_option(fd, BOUND_TO).is_ok_and(|interface| interface != 0) {
        return None;
    }
    let mut local = local(fd)?;
    if local.port() == 0 && usage != Usage::Disconnected {
        // The kernel would choose a port with the first datagram.
        system::bind_to(fd, &address::named(local, local.is_ipv6())).ok()?;
        local = self::local(fd)?;
    }
    ask(fd, inode, local, usage).map(|_| ())
}

/// Sends a report. Returns `None` if there is no reply.
fn ask(fd: c_int, inode: u64, local: SocketAddr, usage: Usage) -> Option<broker::Answer> {
    let broker = environment::get()?;
    let descriptor = u32::try_from(fd).ok()?;
    let action = Action::Datagrams(Datagrams { inode, descriptor, local, usage });
    broker::ask(&of(broker), action, Some(&PATIENCE)).ok()
}

fn local(fd: c_int) -> Option<SocketAddr> {
    address::of(&system::getsockname(fd).ok()?)
}

/// Returns the address to send to instead of the one that the program has named.
///
/// # Safety
/// The pointer is null or to so many octets.
pub(crate) unsafe fn target(fd: c_int, to: *const sockaddr, length: socklen_t) -> Option<Named> {
    table()?;
    // SAFETY: the caller's.
    let to = unsafe { address::read(to, length) }.ok()?;
    let peer = unmapped(to);
    if !is_eligible(peer) {
        return None;
    }
    let key = Key { socket: system::inode(fd).ok()?, address: peer };
    let found = match look_up(key) {
        None if heard(&key).load(Ordering::Relaxed) == key.fingerprint() => None,
        None => {
            report(fd, key.socket, Usage::Sends(peer))?;
            look_up(key)
        }
        found => found,
    };
    found.flatten().map(|proxy| address::named(proxy, to.is_ipv6()))
}

/// Returns whether a message names the interface to send from (ip(7), IP_PKTINFO, and ipv6(7)), which then is not that of a
/// proxy.
///
/// # Safety
/// As sendmsg(2).
pub(crate) unsafe fn names_interface(message: &libc::msghdr) -> bool {
    if table().is_none() {
        return false;
    }
    let end = (message.msg_control as usize).saturating_add(message.msg_controllen);
    // SAFETY: the caller's: the control data is what the program has written, and what is too short is not read.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let (data, length) = (libc::CMSG_DATA(header), (*header).cmsg_len);
            // The kernel refuses a header that states more than there is.
            let length = length.min(end - header as usize);
            let has = |octets: usize| length >= libc::CMSG_LEN(octets as u32) as usize;
            let interface = match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if has(size_of::<libc::in_pktinfo>()) => {
                    data.cast::<libc::in_pktinfo>().read_unaligned().ipi_ifindex as u32
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if has(size_of::<libc::in6_pktinfo>()) => {
                    data.cast::<libc::in6_pktinfo>().read_unaligned().ipi6_ifindex
                }
                _ => 0,
            };
            if interface != 0 && interface != LOOPBACK {
                return true;
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    false
}

/// Writes the peer over the address of the proxy that stands for it, where the kernel has written that. Takes note of other
/// peers: they have begun, and decide.
///
/// # Safety
/// The pointer is null or to so many octets, which can be written.
pub(crate) unsafe fn received_from(fd: c_int, from: *mut sockaddr, length: socklen_t) {
    if table().is_none() {
        return;
    }
    // SAFETY: the caller's.
    let Ok(source) = (unsafe { address::read(from, length) }) else { return };
    if let Some(peer) = shown(source) {
        let named = address::named(peer, source.is_ipv6());
        let count = named.octets().len().min(length as usize);
        // SAFETY: the caller's: there is room for so many octets.
        unsafe { std::ptr::copy_nonoverlapping(named.octets().as_ptr(), from.cast(), count) };
    } else if is_eligible(unmapped(source))
        && let Ok(socket) = system::inode(fd)
    {
        let key = Key { socket, address: unmapped(source) };
        if look_up(key).is_none() {
            heard(&key).store(key.fingerprint(), Ordering::Relaxed);
        }
    }
}

/// Returns the peer that an address of the kernel's stands for.
pub(crate) fn shown(address: SocketAddr) -> Option<SocketAddr> {
    let address = unmapped(address);
    if !is_proxy(address) {
        return None;
    }
    look_up(Key { socket: EVERY_SOCKET, address }).flatten()
}

/// Reports a socket that the program has bound. The result of bind(2) stays.
pub(crate) fn bound(fd: c_int) {
    if table().is_none() {
        return;
    }
    if let (Some(local), Ok(inode)) = (local(fd), system::inode(fd))
        && !unmapped(local).ip().is_loopback()
    {
        report(fd, inode, Usage::Bound);
    }
}

/// Binds a socket to an address that is in use, if it is the broker that has its port: for SCTP in UDP, which it releases.
/// Returns whether the socket is bound.
pub(crate) fn bind_instead(fd: c_int, to: SocketAddr, mut bind: impl FnMut() -> bool) -> bool {
    let Ok(inode) = system::inode(fd) else { return false };
    let is_released =
        || ask(fd, inode, to, Usage::Wants).is_some_and(|answer| answer.value().is_ok());
    if table().is_none() || !is_udp(fd) || !is_released() {
        return false;
    }
    // The broker closes its socket a moment later, and may have taken the port again by then.
    (0..TRIES).any(|_| {
        bind() || {
            system::pause();
            is_released();
            false
        }
    })
}

/// Reports a socket that the program has disconnected (connect(2) with AF_UNSPEC).
pub(crate) fn disconnected(fd: c_int) {
    if table().is_some()
        && let Ok(inode) = system::inode(fd)
    {
        report(fd, inode, Usage::Disconnected);
    }
}

/// Reports a socket that the program has connected. The broker connects it to a proxy when there is one.
pub(crate) fn connected(fd: c_int) {
    if table().is_none() {
        return;
    }
    let peer = system::getpeername(fd).ok().and_then(|peer| address::of(&peer)).map(unmapped);
    if let (Some(peer), Ok(socket)) = (peer, system::inode(fd))
        && is_eligible(peer)
    {
        let key = Key { socket, address: peer };
        let answers = heard(&key).load(Ordering::Relaxed) == key.fingerprint();
        report(fd, socket, Usage::Connected { peer, answers });
    }
}
