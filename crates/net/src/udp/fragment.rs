//! When a datagram may be fragmented on its way.
//!
//! Without DF the kernel draws an identification for every IPv4 datagram, in case a router must take
//! it apart; with DF (and nothing that may take it apart here either) it does not (RFC 6864 section
//! 4.1), and that is a few hundredths of all it does for a datagram. So what every path carries whole
//! leaves with DF, and what is larger without it, so that it is fragmented here or on the way: a
//! path whose routers do not tell its MTU would swallow it otherwise, each time it is sent again.
//!
//! IPv6 has no identification in a datagram that is whole, and no router takes one apart: its sockets
//! stay as they are.

use crate::sys::{Datagram, set_option};
use libc::{IP_MTU_DISCOVER, IP_PMTUDISC_DO, IP_PMTUDISC_DONT, IPPROTO_IP};
use socket2::Socket;
use std::os::fd::AsFd;

/// Bytes of the largest datagram sent with DF. RFC 9000 section 14 has all of QUIC rest on paths that
/// carry as much with DF.
const WHOLE: usize = 1_200;

/// Datagrams small enough for DF that go before it is set again: a change is a system call.
const CALM: usize = 32;

/// Whether a socket sets DF.
#[derive(Debug)]
pub(crate) struct Fragment {
    df: bool,
    /// Datagrams since the last one that went, or had to go, without DF. `None` if the socket is left
    /// alone.
    small: Option<usize>,
}

impl Fragment {
    /// Of a socket that does not set DF. `ipv4`: whether it may.
    pub(crate) fn new(ipv4: bool) -> Self {
        Fragment { df: false, small: ipv4.then_some(CALM) }
    }

    /// To be called before these are sent.
    pub(crate) fn prepare(&mut self, socket: &Socket, batch: &[Datagram<'_>]) {
        let Some(small) = self.small else { return };
        if batch.iter().any(|datagram| datagram.bytes.len() > WHOLE) {
            self.allow(socket);
            return;
        }
        if !self.df {
            self.small = Some(small.saturating_add(batch.len()));
            if small >= CALM {
                self.df =
                    set_option(socket.as_fd(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO).is_ok();
            }
        }
    }

    /// Lets datagrams be fragmented, as when one has been refused for the path's MTU. Gives whether
    /// they were not allowed to be: then the refused one is worth another try.
    pub(crate) fn allow(&mut self, socket: &Socket) -> bool {
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
    fn what_is_large_goes_without_df_and_a_calm_brings_it_back() {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let mut fragment = Fragment::new(true);
        fragment.prepare(&socket, &datagrams(1, WHOLE));
        assert!(fragment.df);
        let mut mixed = datagrams(3, 10);
        mixed.extend(datagrams(1, WHOLE + 1));
        fragment.prepare(&socket, &mixed);
        assert!(!fragment.df);
        fragment.prepare(&socket, &datagrams(CALM, 10));
        assert!(!fragment.df);
        fragment.prepare(&socket, &datagrams(1, 10));
        assert!(fragment.df);
        assert!(fragment.allow(&socket) && !fragment.df);
        assert!(!fragment.allow(&socket));
    }

    #[test]
    fn other_sockets_are_left_alone() {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, None).unwrap();
        let mut fragment = Fragment::new(false);
        fragment.prepare(&socket, &datagrams(2 * CALM, 10));
        assert!(!fragment.df && !fragment.allow(&socket));
    }
}
