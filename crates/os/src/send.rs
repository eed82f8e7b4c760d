//! Sending many datagrams in one system call, each alone or as a train that the system or the card
//! splits into datagrams of equal size.
#![allow(unsafe_code)]

use crate::name::{Name, encode_name};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum number of datagrams passed to the kernel in one call.
pub const SEND_BATCH: usize = 64;

/// One datagram to send, or a train of them.
#[derive(Clone, Copy)]
pub struct Datagram<'a> {
    /// The payload.
    pub bytes: &'a [u8],
    /// The destination.
    pub to: SocketAddr,
    /// The source address, where the socket is bound to a wildcard.
    pub from: Option<IpAddr>,
    /// The two ECN bits; 0 keeps the socket's own.
    pub ecn: u8,
    /// The size in bytes of each datagram of a train but the last, which may be shorter; 0 for a single datagram.
    pub segment: u16,
}

impl<'a> Datagram<'a> {
    /// Returns a single datagram, with the socket's own ECN bits.
    pub fn new(bytes: &'a [u8], to: SocketAddr, from: Option<IpAddr>) -> Self {
        Datagram { bytes, to, from, ecn: 0, segment: 0 }
    }
}

/// The action after an error for a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// Skip it and continue with the next.
    Skip,
    /// The error was an older one of the socket: send it again.
    Retry,
    /// Stop here.
    Stop,
}

/// Size of a buffer for the control messages of one datagram: a source address of either family, the
/// ECN bits, and the segment size of a train.
const CONTROL: usize = 88;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

struct Arrays {
    headers: [libc::mmsghdr; SEND_BATCH],
    vectors: [libc::iovec; SEND_BATCH],
    names: [Name; SEND_BATCH],
    controls: [Control; SEND_BATCH],
}

/// Reusable buffers for `sendmmsg`.
pub struct SendBatch(Box<Arrays>);

// SAFETY: the pointers in the headers are only read by `send`, which writes them first; between
// calls they are not dereferenced.
unsafe impl Send for SendBatch {}

impl Default for SendBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl SendBatch {
    /// Creates empty buffers.
    pub fn new() -> Self {
        // SAFETY: all four are plain C structures or byte arrays for which all zeroes is a value
        // (null pointers, zero lengths).
        SendBatch(Box::new(unsafe { MaybeUninit::<Arrays>::zeroed().assume_init() }))
    }

    /// Sends `batch` in as few calls as the kernel allows, at most [`SEND_BATCH`] datagrams of it. Calls
    /// `on_error` with the index and error code (`errno`) of each datagram that the kernel refuses. Returns the
    /// number of datagrams sent or skipped, which is less than all only after [`After::Stop`].
    pub fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        batch: &[Datagram<'_>],
        on_error: impl FnMut(usize, i32) -> After,
    ) -> usize {
        self.send_with(fd, batch, 0, on_error)
    }

    /// Sends like [`send`](SendBatch::send), and confirms that the neighbours on the link that the datagrams go to are
    /// reachable, because they were heard lately (`MSG_CONFIRM`). The system then has no need to ask them
    /// (RFC 4861 section 7.3.1).
    pub fn send_confirming(
        &mut self,
        fd: BorrowedFd<'_>,
        batch: &[Datagram<'_>],
        on_error: impl FnMut(usize, i32) -> After,
    ) -> usize {
        self.send_with(fd, batch, libc::MSG_CONFIRM, on_error)
    }

    fn send_with(
        &mut self,
        fd: BorrowedFd<'_>,
        batch: &[Datagram<'_>],
        flags: libc::c_int,
        mut on_error: impl FnMut(usize, i32) -> After,
    ) -> usize {
        let count = batch.len().min(SEND_BATCH);
        let arrays = &mut *self.0;
        for (i, datagram) in batch.iter().take(SEND_BATCH).enumerate() {
            prepare(
                datagram,
                &mut arrays.headers[i].msg_hdr,
                &mut arrays.vectors[i],
                &mut arrays.names[i],
                &mut arrays.controls[i],
            );
        }
        let mut done = 0;
        while done < count {
            // SAFETY: headers[done..count] were filled above for this call; every pointer in them
            // points into `arrays`, which is not moved or changed until the loop ends, or into
            // `batch`, whose bytes are borrowed for the whole function. The kernel only reads
            // through them, and writes `msg_len` of the headers, which are borrowed mutably.
            let sent = unsafe {
                libc::sendmmsg(
                    fd.as_raw_fd(),
                    arrays.headers[done..count].as_mut_ptr(),
                    (count - done) as libc::c_uint,
                    libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | flags,
                )
            };
            if sent > 0 {
                done += sent as usize;
                continue;
            }
            let code = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            if code == libc::EINTR {
                continue;
            }
            match on_error(done, code) {
                After::Skip => done += 1,
                After::Retry => {}
                After::Stop => break,
            }
        }
        done
    }
}

/// Fills a message header with pointers to the other parts.
fn prepare(
    datagram: &Datagram<'_>,
    header: &mut libc::msghdr,
    vector: &mut libc::iovec,
    name: &mut Name,
    control: &mut Control,
) {
    // The kernel does not write through `iov_base` when sending.
    vector.iov_base = datagram.bytes.as_ptr().cast_mut().cast();
    vector.iov_len = datagram.bytes.len();
    header.msg_iov = vector;
    header.msg_iovlen = 1 as _;
    header.msg_name = (name as *mut Name).cast();
    header.msg_namelen = encode_name(datagram.to, name);
    header.msg_controllen = 0;
    header.msg_control = std::ptr::null_mut();
    if datagram.from.is_some() || datagram.ecn != 0 || datagram.segment != 0 {
        header.msg_controllen = encode_control(datagram, control) as _;
        header.msg_control = control.0.as_mut_ptr().cast();
    }
    header.msg_flags = 0;
}

/// Writes the control messages of a datagram. Returns their length.
fn encode_control(datagram: &Datagram<'_>, control: &mut Control) -> usize {
    let mut used = 0;
    match datagram.from {
        Some(IpAddr::V4(ip)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            used = append(control, used, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(ip)) => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: 0,
            };
            used = append(control, used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        None => {}
    }
    if datagram.ecn != 0 {
        let bits = libc::c_int::from(datagram.ecn);
        let (level, kind) = if datagram.to.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_TOS)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        };
        used = append(control, used, level, kind, bits);
    }
    if datagram.segment != 0 {
        used = append(control, used, libc::SOL_UDP, libc::UDP_SEGMENT, datagram.segment);
    }
    used
}

/// Writes one control message after `used` bytes. Returns the bytes used including it.
fn append<T: Copy>(
    control: &mut Control,
    used: usize,
    level: libc::c_int,
    kind: libc::c_int,
    value: T,
) -> usize {
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
    let (space, len) = unsafe {
        let size = size_of::<T>() as u32;
        (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size))
    };
    assert!(used + space <= CONTROL, "room for every control message");
    // SAFETY: the message with its header lies within the buffer, as was just checked. `used` is
    // a sum of CMSG_SPACEs and the buffer is aligned to 8, so the header is aligned as `cmsghdr`
    // requires; the payload is written unaligned.
    unsafe {
        let at = control.0.as_mut_ptr().add(used).cast::<libc::cmsghdr>();
        (*at).cmsg_level = level;
        (*at).cmsg_type = kind;
        (*at).cmsg_len = len as _;
        libc::CMSG_DATA(at).cast::<T>().write_unaligned(value);
    }
    used + space
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReceiveBatch, set_option};
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn the_control_buffer_has_room_for_all_control_messages() {
        let mut control = Control([0; CONTROL]);
        for address in ["127.0.0.1:1", "[::1]:1"] {
            let to: SocketAddr = address.parse().unwrap();
            let all = Datagram { bytes: &[], to, from: Some(to.ip()), ecn: 3, segment: 9 };
            assert!(encode_control(&all, &mut control) <= CONTROL);
        }
    }

    #[test]
    fn a_datagram_too_large_does_not_stop_the_others() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        let to = receiver.local_addr().unwrap();
        let large = vec![0u8; 65_600];
        let parts: [&[u8]; 3] = [b"one", &large, b"three"];
        let batch: Vec<_> = parts.iter().map(|bytes| Datagram::new(bytes, to, None)).collect();
        let mut errors = Vec::new();
        let done = SendBatch::new().send(sender.as_fd(), &batch, |i, code| {
            errors.push((i, code));
            After::Skip
        });
        assert_eq!((done, errors), (3, vec![(1, libc::EMSGSIZE)]));
        let mut buffer = [0; 16];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 3);
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 5);
    }

    #[test]
    fn the_source_address_is_the_requested_one() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        let from = "127.0.0.7".parse().unwrap();
        let batch = [Datagram::new(b"x", receiver.local_addr().unwrap(), Some(from))];
        assert_eq!(SendBatch::new().send(sender.as_fd(), &batch, |_, _| After::Skip), 1);
        assert_eq!(receiver.recv_from(&mut [0; 4]).unwrap().1.ip(), from);
    }

    /// A train arrives as one reception, with its ECN bits, and is split again.
    #[test]
    fn a_train_is_one_message_both_ways() {
        use libc::{IP_RECVTOS, IPPROTO_IP, IPPROTO_IPV6, IPV6_RECVTCLASS, SOL_UDP, UDP_GRO};
        for (address, level, option) in
            [("127.0.0.1:0", IPPROTO_IP, IP_RECVTOS), ("[::1]:0", IPPROTO_IPV6, IPV6_RECVTCLASS)]
        {
            let receiver = UdpSocket::bind(address).unwrap();
            set_option(receiver.as_fd(), SOL_UDP, UDP_GRO, 1).unwrap();
            set_option(receiver.as_fd(), level, option, 1).unwrap();
            let sender = UdpSocket::bind(address).unwrap();
            let bytes: Vec<u8> = (0..250u8).collect();
            let to = receiver.local_addr().unwrap();
            let train = Datagram { bytes: &bytes, to, ecn: 2, segment: 100, from: None };
            let done = SendBatch::new().send(sender.as_fd(), &[train], |_, code| panic!("{code}"));
            assert_eq!(done, 1);
            let mut batch = ReceiveBatch::new();
            assert_eq!(batch.receive(receiver.as_fd()).unwrap(), 1);
            let reception = batch.get(0).unwrap();
            assert_eq!(reception.ecn, 2);
            let segments: Vec<_> = reception.datagrams().collect();
            assert_eq!(segments, [&bytes[..100], &bytes[100..200], &bytes[200..]]);
        }
    }
}
