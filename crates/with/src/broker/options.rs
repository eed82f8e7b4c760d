//! Socket options. The kernel's TCP knows their values, bounds and errors: they are set and read on the socket of TCP
//! that the broker has for each of the program's.

use super::socket::{Socket, State};
use crate::network::Information;
use libc::c_int;
use ringway_os::{TCP_INFO, plain_option, set_plain_option};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Octets of `struct tcp_info` that are reported; what is behind the known fields is zero.
const TCP_INFO_LENGTH: usize = 232;
/// `TCP_ESTABLISHED` of linux/tcp.h.
const ESTABLISHED: u8 = 1;

type Errno = i32;

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Returns whether an option takes a right that a process may have dropped and the broker not.
fn is_privileged(level: c_int, option: c_int) -> bool {
    matches!(
        (level, option),
        (libc::SOL_SOCKET, libc::SO_MARK | libc::SO_BINDTODEVICE | libc::SO_PRIORITY)
            | (libc::IPPROTO_IP, libc::IP_TRANSPARENT)
    )
}

/// Sets an option.
pub(super) fn set(
    socket: &mut Socket,
    level: u32,
    option: u32,
    value: &[u8],
    is_same_user: bool,
) -> Result<(), Errno> {
    let (level, option) = (level as c_int, option as c_int);
    if is_privileged(level, option) && !is_same_user {
        return Err(libc::EPERM);
    }
    if (level, option) == (libc::SOL_SOCKET, libc::SO_LINGER) {
        // The kernel has checked it for the program's own socket, whose value it keeps.
        let integer = |at: usize| {
            let octets = value.get(at..at + 4)?.try_into().ok()?;
            Some(c_int::from_ne_bytes(octets))
        };
        let (Some(on), Some(seconds)) = (integer(0), integer(4)) else { return Err(libc::EINVAL) };
        socket.counts.resets_on_close.store(on != 0 && seconds == 0, Ordering::Relaxed);
        return Ok(());
    }
    let tcp = socket.tcp().map_err(|error| errno(&error))?;
    set_plain_option(tcp.as_fd(), level, option, value).map_err(|error| errno(&error))
}

/// Reads an option into a buffer of a length.
pub(super) fn get(
    socket: &mut Socket,
    level: u32,
    option: u32,
    length: u32,
) -> Result<Vec<u8>, Errno> {
    let (level, option, length) = (level as c_int, option as c_int, length as usize);
    let information = match &socket.state {
        State::Connected { observer, .. } => observer.information(),
        _ => None,
    };
    if let (Some(information), libc::IPPROTO_TCP) = (information, level) {
        let value = match option {
            TCP_INFO => Some(tcp_info(&information).to_vec()),
            libc::TCP_MAXSEG => Some(information.mss.to_ne_bytes().to_vec()),
            _ => None,
        };
        if let Some(mut value) = value {
            value.truncate(length);
            return Ok(value);
        }
    }
    let tcp = socket.tcp().map_err(|error| errno(&error))?;
    plain_option(tcp.as_fd(), level, option, length).map_err(|error| errno(&error))
}

/// Returns the octets of `struct tcp_info` (linux/tcp.h).
fn tcp_info(information: &Information) -> [u8; TCP_INFO_LENGTH] {
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    let mut out = [0; TCP_INFO_LENGTH];
    out[0] = ESTABLISHED;
    let fields = [
        (8, micros(information.rto)),
        (16, information.mss),
        (20, information.mss),
        (24, information.unacknowledged),
        (60, information.mtu),
        (68, micros(information.rtt)),
        (76, information.ssthresh),
        (80, information.cwnd),
        (84, information.mss),
        (100, information.retransmissions),
        (148, micros(information.rtt)),
    ];
    for (at, value) in fields {
        out[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    const TCP: u32 = libc::IPPROTO_TCP as u32;

    #[test]
    fn options_are_those_of_tcp() {
        let mut socket = Socket::new(true);
        let on = 1_i32.to_ne_bytes();
        set(&mut socket, TCP, libc::TCP_NODELAY as u32, &on, false).unwrap();
        assert_eq!(get(&mut socket, TCP, libc::TCP_NODELAY as u32, 4).unwrap(), on);
        assert_eq!(set(&mut socket, TCP, 9_999, &on, true), Err(libc::ENOPROTOOPT));
        assert_eq!(
            set(&mut socket, TCP, libc::TCP_KEEPCNT as u32, &[0; 4], true),
            Err(libc::EINVAL)
        );
        let v6_only = libc::IPV6_V6ONLY as u32;
        assert_eq!(get(&mut socket, libc::IPPROTO_IPV6 as u32, v6_only, 4).unwrap().len(), 4);
    }

    #[test]
    fn a_right_that_the_process_has_dropped_is_not_the_brokers() {
        let mut socket = Socket::new(false);
        let level = libc::SOL_SOCKET as u32;
        let mark = libc::SO_MARK as u32;
        assert_eq!(set(&mut socket, level, mark, &[1, 0, 0, 0], false), Err(libc::EPERM));
    }

    #[test]
    fn lingering_for_no_time_is_a_reset() {
        let mut socket = Socket::new(false);
        let level = libc::SOL_SOCKET as u32;
        let mut linger = [0; 8];
        linger[0] = 1;
        set(&mut socket, level, libc::SO_LINGER as u32, &linger, false).unwrap();
        assert!(socket.counts.resets_on_close.load(Ordering::Relaxed));
        linger[4] = 5;
        set(&mut socket, level, libc::SO_LINGER as u32, &linger, false).unwrap();
        assert!(!socket.counts.resets_on_close.load(Ordering::Relaxed));
    }

    #[test]
    fn the_structure_has_its_fields_where_the_kernel_has_them() {
        let information = Information {
            rtt: Duration::from_millis(3),
            mss: 1_424,
            retransmissions: 7,
            ..Information::default()
        };
        let octets = tcp_info(&information);
        let at = |at: usize| u32::from_ne_bytes(octets[at..at + 4].try_into().unwrap());
        assert_eq!(octets[offset_of!(libc::tcp_info, tcpi_state)], ESTABLISHED);
        assert_eq!(at(offset_of!(libc::tcp_info, tcpi_rtt)), 3_000);
        assert_eq!(at(offset_of!(libc::tcp_info, tcpi_snd_mss)), 1_424);
        assert_eq!(at(offset_of!(libc::tcp_info, tcpi_total_retrans)), 7);
        assert_eq!(at(offset_of!(libc::tcp_info, tcpi_pmtu)), 0);
    }
}
