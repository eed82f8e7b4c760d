//! Packet sockets: whole frames of an Ethernet interface, in batches, for a program that stands between two interfaces
//! (packet(7)).
//!
//! Before each frame is a [`VnetHeader`], as for a TUN device with offload: a frame may stand for several, and its
//! checksum may be partial, where a veth or the card's driver leaves both to the receiver.
#![allow(unsafe_code)]

use crate::options::{enlarge_buffers, set_option};
use crate::tun::{VNET_HEADER, VnetHeader};
use socket2::{Domain, Socket, Type};
use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Maximum number of frames of one call.
pub const FRAME_BATCH: usize = 64;

/// Size of a buffer for any frame: its description, the longest IP packet, and its headers.
const BUFFER: usize = 65_536 + 512;
/// Size of a buffer for the control messages of a frame: its time and its tag.
const CONTROL: usize = 128;
/// Octets that the kernel keeps of what has come and of what is to be sent.
const MEMORY: usize = 32 << 20;
/// The protocol of a socket that receives nothing (packet(7)).
const NO_PROTOCOL: u16 = 0;

/// A socket that receives all frames that an interface has received, also those for other stations, and sends frames by
/// it. It does not receive what this host sends.
#[derive(Debug)]
pub struct PacketSocket {
    socket: Socket,
    index: u32,
}

impl PacketSocket {
    /// Opens a socket at the interface `name` in the network namespace of the thread.
    ///
    /// # Errors
    /// `NotFound` where there is no such interface, `InvalidInput` for one that is not Ethernet; else the error of the
    /// system call that failed, as when the process lacks CAP_NET_RAW.
    pub fn open(name: &str) -> io::Result<PacketSocket> {
        let opened = PacketSocket::open_sender(name)?;
        let socket = &opened.socket;
        let option = |level, option| set_option(socket.as_fd(), level, option, 1);
        option(libc::SOL_PACKET, libc::PACKET_AUXDATA)?;
        option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)?;
        // Linux before 4.20 does not know it; what is outgoing is skipped by its kind too.
        let _ = option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING);
        bind(socket, opened.index, libc::ETH_P_ALL as u16)?;
        be_promiscuous(socket, opened.index)?;
        Ok(opened)
    }

    /// Opens a socket as [`PacketSocket::open`] does, which only sends: it receives nothing, and has no influence on what the
    /// interface receives.
    ///
    /// # Errors
    /// As [`PacketSocket::open`].
    pub fn open_sender(name: &str) -> io::Result<PacketSocket> {
        let index = interface_index(name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such interface"))?;
        // Without a protocol nothing is received.
        let socket = Socket::new(Domain::from(libc::AF_PACKET), Type::RAW, None)?;
        set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        let _ = enlarge_buffers(&socket, MEMORY);
        bind(&socket, index, NO_PROTOCOL)?;
        if hardware(&socket)? != libc::ARPHRD_ETHER {
            let text = "expected an Ethernet interface";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(PacketSocket { socket, index })
    }

    /// Returns the index of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Sends frames, each with its [`VnetHeader`] before it, in as few calls as the kernel allows, at most
    /// [`FRAME_BATCH`]. Calls `on_error` with the index and the error of each that the kernel refuses. Returns the number
    /// of frames sent or refused.
    pub fn send<'a>(
        &self,
        frames: impl Iterator<Item = &'a [u8]>,
        mut on_error: impl FnMut(usize, io::Error),
    ) -> usize {
        // SAFETY: both are plain C structures for which all zeroes is a value (null pointers, zero lengths).
        let mut headers: [libc::mmsghdr; FRAME_BATCH] =
            unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: as above.
        let mut vectors: [libc::iovec; FRAME_BATCH] =
            unsafe { MaybeUninit::zeroed().assume_init() };
        let mut count = 0;
        for ((frame, header), vector) in frames.zip(&mut headers).zip(&mut vectors) {
            // The kernel does not write through `iov_base` when sending.
            vector.iov_base = frame.as_ptr().cast_mut().cast();
            vector.iov_len = frame.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1 as _;
            count += 1;
        }
        let mut done = 0;
        while done < count {
            // SAFETY: headers[done..count] were filled above; every pointer in them points into `vectors`, which is
            // not moved or changed until the loop ends, and from there to bytes that are borrowed for 'a. The kernel
            // only reads through them, and writes `msg_len` of the headers.
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    headers[done..count].as_mut_ptr(),
                    (count - done) as libc::c_uint,
                    libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                )
            };
            if sent > 0 {
                done += sent as usize;
                continue;
            }
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            on_error(done, error);
            done += 1;
        }
        done
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the index of the interface `name` in the network namespace of the thread. `None` where there is none.
pub fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the pointer is to a live string that ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// Binds a socket to an interface, for frames of a protocol.
fn bind(socket: &Socket, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is a plain C structure for which all zeroes is a value.
    let mut name: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
    name.sll_family = libc::AF_PACKET as libc::c_ushort;
    name.sll_protocol = protocol.to_be();
    name.sll_ifindex = index as libc::c_int;
    // SAFETY: the pointer is to a live structure and the length is its own.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const name).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the kind of hardware of the interface of a socket (`ARPHRD_ETHER` and others).
fn hardware(socket: &Socket) -> io::Result<u16> {
    // SAFETY: as above.
    let mut name: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, to a live structure of that size, and the number written.
    let result =
        unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut name).cast(), &raw mut length) };
    if result == 0 { Ok(name.sll_hatype) } else { Err(io::Error::last_os_error()) }
}

/// Has the interface receive frames for all stations, as long as the socket is open.
fn be_promiscuous(socket: &Socket, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: the pointer is to a live structure and the length is its own.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            size_of::<libc::packet_mreq>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A frame as it was received.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Wall-clock time of its reception by the kernel, since the UNIX epoch.
    pub received: Option<Duration>,
    /// Its description, with positions from the start of `bytes`.
    pub header: VnetHeader,
    /// The tag (IEEE 802.1Q) that the kernel or the card has taken out, which belongs behind the two addresses.
    pub tag: Option<[u8; 4]>,
    /// The frame, from the addresses on.
    pub bytes: &'a [u8],
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// Reusable buffers for frames that are received.
pub struct FrameBatch {
    buffers: Vec<u8>,
    controls: Vec<Control>,
    received: Vec<Received>,
}

/// What the kernel wrote of a frame besides its octets.
#[derive(Clone, Copy)]
struct Received {
    length: usize,
    control: usize,
    outgoing: bool,
    truncated: bool,
}

impl Default for FrameBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameBatch {
    /// Creates empty buffers.
    pub fn new() -> Self {
        FrameBatch {
            buffers: vec![0; BUFFER * FRAME_BATCH],
            controls: vec![Control([0; CONTROL]); FRAME_BATCH],
            received: Vec::with_capacity(FRAME_BATCH),
        }
    }

    /// Receives what is queued at a socket, without waiting. Returns the number of frames, at most [`FRAME_BATCH`];
    /// fewer only when the queue is empty now, or has a frame that the kernel cannot describe.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is queued, `InvalidInput` when a frame was lost that the kernel cannot describe, as it
    /// stands for several of another protocol; else the error of recvmmsg(2), such as ENETDOWN once after the interface
    /// went down.
    pub fn receive(&mut self, socket: &PacketSocket) -> io::Result<usize> {
        self.received.clear();
        // SAFETY: all are plain C structures for which all zeroes is a value.
        let mut headers: [libc::mmsghdr; FRAME_BATCH] =
            unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: as above.
        let mut vectors: [libc::iovec; FRAME_BATCH] =
            unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: as above.
        let mut names: [libc::sockaddr_ll; FRAME_BATCH] =
            unsafe { MaybeUninit::zeroed().assume_init() };
        let parts = self.buffers.chunks_exact_mut(BUFFER).zip(&mut self.controls);
        let kernel = headers.iter_mut().zip(&mut vectors).zip(&mut names);
        for (((header, vector), name), (buffer, control)) in kernel.zip(parts) {
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = buffer.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1 as _;
            header.msg_hdr.msg_name = (&raw mut *name).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL as _;
        }
        let got = loop {
            // SAFETY: every header points at a vector, a name and a control buffer of its own, with their lengths, and
            // each vector at a buffer of its own; all live until the call returns, and the kernel writes within them.
            let got = unsafe {
                libc::recvmmsg(
                    socket.socket.as_raw_fd(),
                    headers.as_mut_ptr(),
                    FRAME_BATCH as libc::c_uint,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                )
            };
            if let Ok(got) = usize::try_from(got) {
                break got.min(FRAME_BATCH);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        };
        self.received.extend(headers[..got].iter().zip(&names).map(|(header, name)| Received {
            length: (header.msg_len as usize).min(BUFFER),
            control: header.msg_hdr.msg_controllen as _,
            outgoing: name.sll_pkttype == libc::PACKET_OUTGOING,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        }));
        Ok(got)
    }

    /// Returns the frames of the last call. `None` stands for one that is not whole or whose description is not
    /// understood. What this host sent itself is left out.
    pub fn frames(&self) -> impl Iterator<Item = Option<Frame<'_>>> {
        let parts = self.buffers.chunks_exact(BUFFER).zip(&self.controls);
        let received = self.received.iter().zip(parts).filter(|(received, _)| !received.outgoing);
        received.map(|(received, (buffer, control))| {
            let whole = buffer[..received.length].split_first_chunk::<VNET_HEADER>();
            let (head, bytes) = whole.filter(|_| !received.truncated)?;
            let header = VnetHeader::parse(head).ok()?;
            let frame = Frame { received: None, header, tag: None, bytes };
            Some(describe(frame, control, received.control.min(CONTROL)))
        })
    }
}

/// Adds to a frame what its control messages say.
fn describe<'a>(mut frame: Frame<'a>, control: &Control, length: usize) -> Frame<'a> {
    // SAFETY: `msghdr` is a plain C structure for which all zeroes is a value.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    // Only read through the functions below.
    header.msg_control = control.0.as_ptr().cast_mut().cast();
    header.msg_controllen = length as _;
    // SAFETY: the header describes an initialised buffer, aligned for `cmsghdr`, of which the kernel filled `length`
    // bytes; the functions stay within them, and each value is read only if its message has room for it.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&raw const header);
        while !at.is_null() {
            let data = libc::CMSG_DATA(at);
            let has = |size: usize| (*at).cmsg_len as usize >= libc::CMSG_LEN(size as u32) as usize;
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) if has(size_of::<libc::timespec>()) => {
                    frame.received = duration(data.cast::<libc::timespec>().read_unaligned());
                }
                (libc::SOL_PACKET, libc::PACKET_AUXDATA)
                    if has(size_of::<libc::tpacket_auxdata>()) =>
                {
                    frame.tag = tag(&data.cast::<libc::tpacket_auxdata>().read_unaligned());
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&raw const header, at);
        }
    }
    frame
}

fn duration(time: libc::timespec) -> Option<Duration> {
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// Returns the tag that was taken out of a frame, as it was in it.
fn tag(data: &libc::tpacket_auxdata) -> Option<[u8; 4]> {
    if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let has_kind = data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let kind = if has_kind { data.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
    let ([a, b], [c, d]) = (kind.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_buffer_has_room_for_all_control_messages() {
        // SAFETY: CMSG_SPACE only computes.
        let space = |size: usize| unsafe { libc::CMSG_SPACE(size as libc::c_uint) as usize };
        let all = space(size_of::<libc::timespec>()) + space(size_of::<libc::tpacket_auxdata>());
        assert!(all <= CONTROL);
    }

    #[test]
    fn a_missing_interface_is_reported() {
        for name in ["rw-missing", "a\0b", ""] {
            assert_eq!(interface_index(name), None);
            assert_eq!(PacketSocket::open(name).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_tag_is_that_of_the_frame() {
        let mut data = libc::tpacket_auxdata {
            tp_status: 0,
            tp_len: 0,
            tp_snaplen: 0,
            tp_mac: 0,
            tp_net: 0,
            tp_vlan_tci: 0x2005,
            tp_vlan_tpid: 0x88a8,
        };
        assert_eq!(tag(&data), None);
        data.tp_status = libc::TP_STATUS_VLAN_VALID;
        assert_eq!(tag(&data), Some([0x81, 0, 0x20, 5]));
        data.tp_status |= libc::TP_STATUS_VLAN_TPID_VALID;
        assert_eq!(tag(&data), Some([0x88, 0xa8, 0x20, 5]));
    }
}
