//! How many connections there may be, and what share of them each source has.

use crate::limits::Limits;
use ringway_sansio::Transport;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv6Addr};

/// Returns the source that a share belongs to: an IPv4 address, or the /64 of an IPv6 address, because one
/// customer of an IPv6 network commonly has a whole /64 to take addresses from.
pub fn source_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// Counts connections against the limits.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Number of connections for which there are file descriptors.
    files: usize,
    total: usize,
    /// Of these, associations of SCTP, which take no file descriptor each.
    associations: usize,
    sources: BTreeMap<IpAddr, u32>,
}

fn is_association(transport: Transport) -> bool {
    matches!(transport, Transport::Sctp | Transport::TlsSctp)
}

/// The limit for which a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The one on all connections.
    Total,
    /// The one on connections of a source.
    Source,
}

impl Admission {
    /// Returns a count of zero connections, with so many file descriptors for them.
    pub(crate) fn new(files: usize) -> Self {
        Admission { files, total: 0, associations: 0, sources: BTreeMap::new() }
    }

    /// Counts a connection in, with its source if it is an accepted one. So that a few sources cannot shut out
    /// all others, each has a share of what there is, and a small one once half of it is taken.
    pub(crate) fn admit(
        &mut self,
        limits: &Limits,
        transport: Transport,
        source: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let streams = !is_association(transport);
        let room = if streams { self.files } else { usize::MAX };
        let all = limits.connections.min(room);
        let used = self.total - if all < limits.connections { self.associations } else { 0 };
        let reserved = if source.is_some() { all / 8 } else { 0 };
        if self.total >= limits.connections || used >= all - reserved {
            return Err(Refusal::Total);
        }
        if let Some(source) = source {
            let share = if used < all / 2 { all / 4 } else { all / 64 };
            let share = share.max(1).min(limits.connections_per_source);
            let count = self.sources.entry(source_of(source)).or_default();
            if *count as usize >= share {
                if *count == 0 {
                    self.sources.remove(&source_of(source));
                }
                return Err(Refusal::Source);
            }
            *count += 1;
        }
        self.total += 1;
        self.associations += usize::from(!streams);
        Ok(())
    }

    /// Counts a connection out.
    pub(crate) fn release(&mut self, transport: Transport, source: Option<IpAddr>) {
        self.total = self.total.saturating_sub(1);
        if is_association(transport) {
            self.associations = self.associations.saturating_sub(1);
        }
        if let Some(source) = source
            && let Entry::Occupied(mut count) = self.sources.entry(source_of(source))
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: Transport = Transport::Tcp;

    #[test]
    fn a_source_has_its_share_and_a_prefix_is_one_source() {
        let limits = Limits { connections: 3, connections_per_source: 1, ..Limits::default() };
        let mut a = Admission::new(usize::MAX);
        let ip = |s: &str| Some(s.parse::<IpAddr>().unwrap());
        assert_eq!(a.admit(&limits, TCP, ip("2001:db8::1")), Ok(()));
        assert_eq!(a.admit(&limits, TCP, ip("2001:db8::2")), Err(Refusal::Source));
        assert_eq!(a.admit(&limits, TCP, ip("192.0.2.1")), Ok(()));
        assert_eq!(a.admit(&limits, TCP, None), Ok(()));
        assert_eq!(a.admit(&limits, TCP, ip("192.0.2.2")), Err(Refusal::Total));
        a.release(TCP, ip("2001:db8::1"));
        assert_eq!(a.admit(&limits, TCP, ip("2001:db8::2")), Ok(()));
        a.release(TCP, ip("2001:db8::2"));
        a.release(TCP, ip("192.0.2.1"));
        a.release(TCP, None);
        assert!(a.total == 0 && a.sources.is_empty());
    }

    /// Admits as many as there may be from a source.
    fn fill(a: &mut Admission, limits: &Limits, source: u8) -> usize {
        let source = Some(IpAddr::from([192, 0, 2, source]));
        (0..).take_while(|_| a.admit(limits, TCP, source).is_ok()).count()
    }

    #[test]
    fn a_few_sources_take_half_and_leave_room_for_many() {
        let limits = Limits { connections: 640, connections_per_source: 999, ..Limits::default() };
        let mut a = Admission::new(usize::MAX);
        let taken: Vec<usize> = (0..4).map(|n| fill(&mut a, &limits, n)).collect();
        assert_eq!(taken, [160, 160, 10, 10]);
        assert!((4..26).all(|n| fill(&mut a, &limits, n) == 10));
        // All but an eighth, which is for those we open.
        assert_eq!((a.total, fill(&mut a, &limits, 99)), (560, 0));
        assert_eq!((0..100).filter(|_| a.admit(&limits, TCP, None).is_ok()).count(), 80);
    }

    #[test]
    fn few_files_are_shared_out() {
        let limits = Limits::default();
        let mut a = Admission::new(16);
        let taken: Vec<usize> = (0..9).map(|n| fill(&mut a, &limits, n)).collect();
        assert_eq!(taken, [4, 4, 1, 1, 1, 1, 1, 1, 0]);
        // Associations take no file each, and take none from those that do.
        let sctp = Some(IpAddr::from([198, 51, 100, 1]));
        assert_eq!(a.admit(&limits, Transport::Sctp, sctp), Ok(()));
        a.release(TCP, Some([192, 0, 2, 7].into()));
        assert_eq!(fill(&mut a, &limits, 10), 1);
        a.release(Transport::Sctp, sctp);
        assert_eq!(a.associations, 0);
        assert_eq!(a.sources.len(), 8, "nothing is remembered of who was refused");
        assert_eq!(fill(&mut Admission::new(1), &limits, 1), 1);
    }

    #[test]
    fn an_ipv6_prefix_is_one_source() {
        let of = |s: &str| source_of(s.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("192.0.2.1"), of("192.0.2.1"));
    }
}
