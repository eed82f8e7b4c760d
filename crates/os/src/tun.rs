//! A TUN device: whole IP packets to and from the kernel, for a protocol above IP.
//!
//! Opening one needs CAP_NET_ADMIN. The device carries no link header and no packet information. Its
//! addresses and routes are configured elsewhere, with `ip`. Reading and writing never block; the
//! descriptor serves to wait for readiness.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// An open TUN device. Dropping it removes the device, unless that is persistent.
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
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives until the call returns, and
        // the name in it ends with a zero because it is shorter than its field.
        let status = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
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
