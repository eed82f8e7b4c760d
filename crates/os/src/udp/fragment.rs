//! Setting DF on IPv4 datagrams.
//!
//! Without DF the kernel generates an identification for every IPv4 datagram, in case a router must
//! fragment it. With DF it does not (RFC 6864 section 4.1), which saves a few hundredths of its work for
//! a datagram. So datagrams that every path carries whole are sent with DF, and larger ones without it, so
//! that they are fragmented here or on the path. A path whose routers do not report its MTU would
//! otherwise drop them, and all their retransmissions.
//!
//! IPv6 has no identification in a whole datagram, and routers do not fragment: its sockets are left
//! unchanged.

use crate::{Datagram, set_option};
use libc::{IP_MTU_DISCOVER, IP_PMTUDISC_DO, IP_PMTUDISC_DONT, IPPROTO_IP};
use socket2::Socket;
use std::os::fd::AsFd;

/// Size of the largest datagram sent with DF, in bytes. QUIC requires paths that carry as much with DF
/// (RFC 9000 section 14).
const MAX_WITH_DF: usize = 1_200;

/// Number of small datagrams before DF is set again, because a change is a system call.
const SMALL_BEFORE_DF: usize = 32;

/// Whether a socket sets DF on its datagrams.
#[derive(Debug)]
pub struct Fragment {
    df: bool,
    /// The number of small datagrams since the last one that had to be sent without DF. `None` if the socket
    /// is left unchanged.
    small: Option<usize>,
}

impl Fragment {
    /// Creates the state of a socket that does not set DF yet, and never does unless `ipv4`.
    pub fn new(ipv4: bool) -> Self {
        Fragment { df: false, small: ipv4.then_some(SMALL_BEFORE_DF) }
    }

    /// Sets or clears DF. To be called before `batch` is sent.
    pub fn prepare(&mut self, socket: &Socket, batch: &[Datagram<'_>]) {
        let Some(small) = self.small else { return };
        if batch.iter().any(|datagram| datagram.bytes.len() > MAX_WITH_DF) {
            self.allow(socket);
            return;
        }
        if !self.df {
            self.small = Some(small.saturating_add(batch.len()));
            if small >= SMALL_BEFORE_DF {
                self.df =
                    set_option(socket.as_fd(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO).is_ok();
            }
        }
    }

    /// Clears DF, as when a datagram has been refused because of the path's MTU. Returns whether DF was set:
    /// then sending that datagram again may succeed.
    pub fn allow(&mut self, socket: &Socket) -> bool {
        if self.small.is_some() {
            self.small = Some(0);
        }
        let df = self.df;
        self.df = df
            && set_option(socket.as_fd(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT).is_err();
        df && !self.df
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};

    fn datagrams(count: usize, size: usize) -> Vec<Datagram<'static>> {
        let bytes = Box::leak(vec![0; size].into_boxed_slice());
        let to = "192.0.2.1:5060".parse().unwrap();
        vec![Datagram::new(bytes, to, None); count]
    }

    #[test]
    fn large_datagrams_clear_df_and_small_ones_set_it_again() {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let mut fragment = Fragment::new(true);
        fragment.prepare(&socket, &datagrams(1, MAX_WITH_DF));
        assert!(fragment.df);
        let mut mixed = datagrams(3, 10);
        mixed.extend(datagrams(1, MAX_WITH_DF + 1));
        fragment.prepare(&socket, &mixed);
        assert!(!fragment.df);
        fragment.prepare(&socket, &datagrams(SMALL_BEFORE_DF, 10));
        assert!(!fragment.df);
        fragment.prepare(&socket, &datagrams(1, 10));
        assert!(fragment.df);
        assert!(fragment.allow(&socket) && !fragment.df);
        assert!(!fragment.allow(&socket));
    }

    #[test]
    fn ipv6_sockets_are_left_unchanged() {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, None).unwrap();
        let mut fragment = Fragment::new(false);
        fragment.prepare(&socket, &datagrams(2 * SMALL_BEFORE_DF, 10));
        assert!(!fragment.df && !fragment.allow(&socket));
    }
}
