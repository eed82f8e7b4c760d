//! A TUN device with several queues, whose packets may stand for several.
#![allow(unsafe_code)]

use super::attach;
use super::header::{VNET_HEADER, VnetHeader};
use smallvec::SmallVec;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Size of a buffer for any packet of a device: the header, an IPv6 header, and the longest payload after it.
pub const PACKET_BUFFER: usize = VNET_HEADER + 40 + 65_535;

/// What the kernel may leave to the program: checksums and segmentation of TCP; and of UDP, in that of Linux 6.2 and
/// later, which offers it for IPv6 only together with IPv4.
const TCP_OFFLOAD: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
const UDP_OFFLOAD: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// Vectors of a packet that are kept without allocation.
const PARTS: usize = super::MAX_COALESCED + 2;

/// One queue of a TUN device with offload: IP packets with a [`VnetHeader`] before each. The kernel gives all packets
/// of a flow to the same queue. Reading and writing never block.
///
/// Opening needs CAP_NET_ADMIN. The device is removed with its last queue, unless it is persistent. It is configured
/// with [`Netlink`](crate::netlink::Netlink).
#[derive(Debug)]
pub struct TunQueue {
    file: File,
    name: String,
    udp: bool,
}

impl TunQueue {
    /// Opens a device in the network namespace of the thread, with this number of queues. `name` has 1 to 15 octets;
    /// in `rw%d` the kernel replaces `%d` by the first number that is free.
    ///
    /// # Errors
    /// `InvalidInput` for another name; else the error of open(2), TUNSETIFF or TUNSETOFFLOAD, as when the process
    /// lacks CAP_NET_ADMIN, or the device exists with another kind of queue.
    pub fn open(name: &str, queues: usize) -> io::Result<Vec<TunQueue>> {
        const FLAGS: libc::c_int = libc::IFF_MULTI_QUEUE | libc::IFF_VNET_HDR;
        let (file, name) = attach(name, FLAGS)?;
        let udp = match offload(&file, TCP_OFFLOAD | UDP_OFFLOAD) {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                offload(&file, TCP_OFFLOAD)?;
                false
            }
            Err(error) => return Err(error),
        };
        let mut all = vec![TunQueue { file, name: name.clone(), udp }];
        for _ in 1..queues {
            let (file, name) = attach(&name, FLAGS)?;
            all.push(TunQueue { file, name, udp });
        }
        Ok(all)
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the kernel leaves the segmentation of UDP to the program too.
    pub fn has_udp_segmentation(&self) -> bool {
        self.udp
    }

    /// Reads one packet and its description. The buffer has [`PACKET_BUFFER`] octets; what does not fit a smaller one
    /// is lost.
    ///
    /// # Errors
    /// `WouldBlock` when there is none, `InvalidData` for a description that is not understood; else the error of
    /// read(2).
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<(VnetHeader, &'a mut [u8])> {
        let length = (&self.file).read(buffer)?;
        let (head, packet) = buffer[..length]
            .split_first_chunk_mut::<VNET_HEADER>()
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let header = VnetHeader::parse(head).map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("TUN: {}: {}", error.reason, error.got),
            )
        })?;
        Ok((header, packet))
    }

    /// Passes one packet, in parts, to the kernel.
    ///
    /// # Errors
    /// `WouldBlock` when its queue is full, `InvalidInput` for a description that does not fit the packet, `WriteZero`
    /// when the kernel took part of the packet; else the error of writev(2).
    pub fn write(&self, header: &VnetHeader, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let header = header.to_bytes();
        let mut vectors = SmallVec::<[IoSlice<'_>; PARTS]>::new();
        vectors.push(IoSlice::new(&header));
        vectors.extend_from_slice(parts);
        let length: usize = vectors.iter().map(|part| part.len()).sum();
        let written = (&self.file).write_vectored(&vectors)?;
        if written == length { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

impl AsRawFd for TunQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl AsFd for TunQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Tells the kernel what it may leave to the program.
fn offload(file: &File, features: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    let status = unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(features))
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
