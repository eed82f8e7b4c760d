//! TUN devices: whole IP packets to and from the kernel, for a protocol above IP ([`Tun`]) or a router ([`TunQueue`]).
//!
//! Opening one needs CAP_NET_ADMIN. Reading and writing never block; the descriptor serves to wait for readiness.
//!
//! A router moves large amounts of data, and most of the time for a packet is spent on its way through the host. So a
//! [`TunQueue`] lets the kernel pass super-packets: up to 64 KiB that stand for many packets, without checksums.
//! [`Segments`] are what goes over the links; a [`Coalescer`] makes a super-packet of them again. Both borrow what was
//! received and do no input or output.
#![allow(unsafe_code)]

mod checksum;
mod coalesce;
mod header;
mod queue;
mod split;

pub use checksum::{complete_checksum, verify_checksum};
pub use coalesce::{Coalescer, MAX_COALESCED};
pub use header::{Checksum, Pieces, Segmentation, VNET_HEADER, VnetHeader};
pub use queue::{PACKET_BUFFER, TunQueue};
pub use split::{MAX_HEADERS, Segment, Segments, split_in_place};

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// An open TUN device without offload. Dropping it removes the device, unless that is persistent. The device carries
/// no link header and no packet information. Its addresses and routes are configured elsewhere, with `ip`.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Opens the device `name` in the network namespace of the thread, and creates it if it does not exist.
    /// The name has 1 to 15 bytes.
    ///
    /// # Errors
    /// `InvalidInput` for another name; else the error of open(2) or of TUNSETIFF, as when the process lacks
    /// CAP_NET_ADMIN.
    pub fn open(name: &str) -> io::Result<Tun> {
        let (file, _) = attach(name, 0)?;
        Ok(Tun { file })
    }

    /// Reads one packet. Returns its length in bytes; what does not fit `out` is lost.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; else the error of read(2).
    pub fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(out)
    }

    /// Passes one packet to the kernel.
    ///
    /// # Errors
    /// `WouldBlock` when its queue is full, `WriteZero` when it took part of the packet; else the error of write(2).
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        let written = (&self.file).write(packet)?;
        if written == packet.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens a device, or a further queue of it, with these flags of TUNSETIFF besides those of every TUN device. Returns
/// also its name.
fn attach(name: &str, flags: libc::c_int) -> io::Result<(File, String)> {
    const MAX_NAME: usize = libc::IFNAMSIZ - 1;
    if name.is_empty() || name.len() > MAX_NAME || name.bytes().any(|b| b == 0 || b == b'/') {
        let text = format!("expected a device name of 1 to {MAX_NAME} bytes, got {name:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    // SAFETY: `ifreq` is plain old data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | flags) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives until the call returns, and
    // the name in it ends with a zero because it is shorter than its field.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8));
    Ok((file, name.collect()))
}

#[cfg(test)]
mod offload_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_name_is_refused() {
        for name in ["", "sixteen-bytes-xx", "a/b", "a\0b"] {
            let error = Tun::open(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
    }
}
