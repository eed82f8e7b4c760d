//! Router advertisements on a LAN (RFC 4861): what hosts learn, and when.
//!
//! Hosts get addresses in the router's /64, and a route to the mesh (RFC 4191). They get no default route unless this
//! router leads to the Internet. Where there is a SIP server, they learn who resolves its name (RFC 8106), that DHCPv6
//! has more (RFC 4861 section 4.2), and that its address is on the link: so a host reaches it that does not take routes
//! from advertisements, such as one of Linux alone. Nothing here does input or output: an advertisement is octets whose checksum the
//! kernel fills in (RFC 3542 section 3.1), and [`Schedule`] is handed the time.

use std::net::Ipv6Addr;

use ringway_mesh::Prefix;
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, Time};

/// Where advertisements go: to all nodes of the link (RFC 4291 section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Where solicitations come to: all routers of the link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Hop limit of both, which shows that they have passed no router (RFC 4861 section 6.1).
pub const HOP_LIMIT: u8 = 255;

/// Kinds of ICMPv6 messages (RFC 4861 sections 4.1, 4.2).
const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;

/// Kinds of options (RFC 4861 section 4.6, RFC 4191 section 2.3, RFC 8106 section 5).
const SOURCE_LINK_ADDRESS: u8 = 1;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;
const ROUTE_INFORMATION: u8 = 24;
const RESOLVERS: u8 = 25;
const SEARCH_LIST: u8 = 31;

/// The hop limit that hosts are to use.
const CURRENT_HOP_LIMIT: u8 = 64;
/// The flag that DHCPv6 has more than addresses (section 4.2).
const OTHER: u8 = 0x40;
/// Flags of a prefix: hosts on it are on the link, and make their own addresses of it (section 4.6.2).
const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;
/// Bits of the router's prefix, and of what all addresses of the mesh begin with (RFC 4193 section 3.1).
const PREFIX_LENGTH: u8 = 64;
const MESH_LENGTH: u8 = 8;
const MESH: [u8; 8] = [0xfd, 0, 0, 0, 0, 0, 0, 0];

/// Seconds for which an address is valid, and preferred, after the last advertisement.
const VALID: u32 = 86_400;
const PREFERRED: u32 = 14_400;
/// Seconds for which routes and resolvers are valid: three times the longest interval (RFC 4861 section 6.2.1, RFC 4191
/// section 4, RFC 8106 section 5.1).
const ROUTE: u32 = 1_800;

/// Intervals of advertisements that nobody asked for (RFC 4861 section 6.2.1).
const MIN_INTERVAL: Duration = Duration::from_secs(200);
const MAX_INTERVAL: Duration = Duration::from_secs(600);
/// The first ones come sooner (section 10).
const INITIAL: u32 = 3;
const MAX_INITIAL_INTERVAL: Duration = Duration::from_secs(16);
/// Time within which a solicitation is answered, and at least between two advertisements (section 10).
const MAX_DELAY: Duration = Duration::from_millis(500);
const MIN_BETWEEN: Duration = Duration::from_secs(3);

/// Who resolves names, and which names hosts need not write in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names {
    /// The address of the resolver, which is on the link, as is its /64.
    pub server: Ipv6Addr,
    /// The domain: labels of 1 to 63 octets, with dots between.
    pub domain: String,
}

/// What is advertised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advertisement {
    /// The router's /64, of which hosts make their addresses.
    pub prefix: Prefix,
    /// The largest packet that hosts are to send, in octets. At least 1,280.
    pub mtu: u32,
    /// The router leads to the Internet: hosts use it as their default router.
    pub gateway: bool,
    /// Who resolves names. DHCPv6 is served there too.
    pub names: Option<Names>,
}

impl Advertisement {
    /// Returns the octets of the advertisement (RFC 4861 section 4.2).
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode(true)
    }

    /// Returns the octets of an advertisement that ends all that the others gave. Hosts keep addresses for two hours
    /// nevertheless, but use them for nothing new (RFC 4862 section 5.5.3 e).
    pub fn to_final_bytes(&self) -> Vec<u8> {
        self.encode(false)
    }

    fn encode(&self, alive: bool) -> Vec<u8> {
        let lifetime = |seconds: u32| if alive { seconds.to_be_bytes() } else { [0; 4] };
        // The lifetime as a default router has two octets.
        let [_, _, router @ ..] = if self.gateway { lifetime(ROUTE) } else { [0; 4] };
        let flags = if self.names.is_some() { OTHER } else { 0 };
        let mut out = vec![ADVERTISEMENT, 0, 0, 0, CURRENT_HOP_LIMIT, flags];
        out.extend(router);
        // How long neighbours are reachable, and when they are asked again, is the hosts' affair.
        out.extend([0; 8]);
        // Lengths of options are in units of 8 octets.
        out.extend([MTU, 1, 0, 0]);
        out.extend(self.mtu.to_be_bytes());
        out.extend([PREFIX_INFORMATION, 4, PREFIX_LENGTH, ON_LINK | AUTONOMOUS]);
        out.extend(lifetime(VALID));
        out.extend(lifetime(PREFERRED));
        out.extend([0; 4]);
        out.extend(self.prefix.network().octets());
        out.extend([ROUTE_INFORMATION, 2, MESH_LENGTH, 0]);
        out.extend(lifetime(ROUTE));
        out.extend(MESH);
        if let Some(names) = &self.names {
            out.extend(names.encode(lifetime(ROUTE)));
        }
        out
    }
}

impl Names {
    /// Returns the options of a resolver and its domain (RFC 8106 section 5), and that the resolver is on the link.
    fn encode(&self, lifetime: [u8; 4]) -> Vec<u8> {
        let mut out = vec![PREFIX_INFORMATION, 4, PREFIX_LENGTH, ON_LINK];
        out.extend([lifetime, lifetime, [0; 4]].concat());
        let [network @ .., _, _, _, _, _, _, _, _] = self.server.octets();
        let network: [u8; 8] = network;
        out.extend(network);
        out.extend([0; 8]);
        out.extend([RESOLVERS, 3, 0, 0]);
        out.extend(lifetime);
        out.extend(self.server.octets());
        // A name as in the DNS (RFC 1035 section 3.1), filled up to whole units with octets that are no names.
        let labels = self.domain.split('.').flat_map(|label| {
            let length = u8::try_from(label.len()).unwrap_or(0);
            core::iter::once(length).chain(label.bytes().take(length.into()))
        });
        let mut name: Vec<u8> = labels.chain([0]).collect();
        name.resize(name.len().next_multiple_of(8), 0);
        let units = u8::try_from(1 + name.len() / 8).unwrap_or(u8::MAX);
        out.extend([SEARCH_LIST, units, 0, 0]);
        out.extend(lifetime);
        out.extend(name);
        out
    }
}

/// Returns whether an ICMPv6 message, whose checksum is right, is a valid router solicitation (RFC 4861 section 6.1.1).
pub fn is_solicitation(source: &Ipv6Addr, hop_limit: u8, message: &[u8]) -> bool {
    let [SOLICITATION, 0, _, _, _, _, _, _, options @ ..] = message else { return false };
    let mut options = options;
    while let [kind, length, ..] = *options {
        let length = usize::from(length) * 8;
        // A host without an address has none for its link either.
        let misplaced = kind == SOURCE_LINK_ADDRESS && source.is_unspecified();
        match options.get(length..) {
            Some(rest) if length > 0 && !misplaced => options = rest,
            _ => return false,
        }
    }
    options.is_empty() && hop_limit == HOP_LIMIT
}

/// When advertisements are sent on one link: from time to time, and soon after a solicitation. However many
/// solicitations come, there are three seconds between two advertisements.
#[derive(Clone, Debug)]
pub struct Schedule {
    next: Time,
    /// When the last was sent.
    last: Option<Time>,
    /// How many of the first ones are still to be sent.
    initial: u32,
}

impl Schedule {
    /// Starts at `now` with an advertisement within half a second.
    pub fn new(now: Time, random: &mut dyn Random) -> Schedule {
        Schedule { next: now + up_to(MAX_DELAY, random), last: None, initial: INITIAL }
    }

    /// Notes a valid solicitation, which is answered to all nodes (RFC 4861 section 6.2.6).
    pub fn handle_solicitation(&mut self, now: Time, random: &mut dyn Random) {
        let earliest = self.last.map_or(now, |last| now.max(last + MIN_BETWEEN));
        self.next = self.next.min(earliest + up_to(MAX_DELAY, random));
    }

    /// Returns the time of the next advertisement.
    pub fn poll_timeout(&self) -> Time {
        self.next
    }

    /// Returns whether an advertisement is to be sent now. If so, the next is planned (RFC 4861 section 6.2.4).
    pub fn handle_timeout(&mut self, now: Time, random: &mut dyn Random) -> bool {
        if now < self.next {
            return false;
        }
        self.initial = self.initial.saturating_sub(1);
        let interval = MIN_INTERVAL + up_to(MAX_INTERVAL - MIN_INTERVAL, random);
        let interval = if self.initial > 0 { interval.min(MAX_INITIAL_INTERVAL) } else { interval };
        (self.last, self.next) = (Some(now), now + interval);
        true
    }
}

/// Returns a random time of less than `limit`, which is not zero.
fn up_to(limit: Duration, random: &mut dyn Random) -> Duration {
    let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random.next_u64() % nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_mesh::NodeId;
    use ringway_sansio::SplitMix;

    const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);

    fn advertisement() -> Advertisement {
        let prefix = NodeId::new(0x0123_4567_89ab_cdef).prefix();
        Advertisement { prefix, mtu: 1_368, gateway: false, names: None }
    }

    /// RFC 4861 section 4.2, section 4.6.2, section 4.6.4; RFC 4191 section 2.3.
    #[test]
    fn an_advertisement_gives_addresses_and_a_route_to_the_mesh() {
        let expected = [
            &[134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[5, 1, 0, 0, 0, 0, 0x05, 0x58],
            &[3, 4, 64, 0xc0, 0, 0x01, 0x51, 0x80, 0, 0, 0x38, 0x40, 0, 0, 0, 0],
            &[0xfd, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0, 0, 0, 0, 0, 0, 0, 0],
            &[24, 2, 8, 0, 0, 0, 0x07, 0x08, 0xfd, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(advertisement().to_bytes(), expected.concat());
        let gateway = Advertisement { gateway: true, ..advertisement() };
        assert_eq!(gateway.to_bytes()[6..8], [0x07, 0x08]);
    }

    #[test]
    fn the_last_advertisement_ends_what_the_others_gave() {
        let gateway = Advertisement { gateway: true, ..advertisement() };
        let (first, last) = (gateway.to_bytes(), gateway.to_final_bytes());
        let differ: Vec<_> = (0..first.len()).filter(|&at| first[at] != last[at]).collect();
        // The lifetimes: of the router, of addresses, and of the route.
        assert_eq!(differ, [6, 7, 29, 30, 31, 34, 35, 62, 63]);
        assert!(differ.iter().all(|&at| last[at] == 0));
        assert_eq!(last.len(), first.len());
    }

    /// RFC 8106 sections 5.1 and 5.2, RFC 4861 sections 4.2 and 4.6.2.
    #[test]
    fn hosts_learn_who_resolves_the_name_of_the_sip_server() {
        let server = "fd72:696e:6777:6179::1".parse().unwrap();
        let names = Some(Names { server, domain: "mesh.example".to_owned() });
        let with = Advertisement { names, ..advertisement() };
        let (plain, bytes) = (advertisement().to_bytes(), with.to_bytes());
        assert_eq!((bytes[5], &bytes[6..plain.len()]), (0x40, &plain[6..]));
        let expected = [
            b"\x03\x04\x40\x80\0\0\x07\x08\0\0\x07\x08\0\0\0\0\xfdringway\0\0\0\0\0\0\0\0",
            &b"\x19\x03\0\0\0\0\x07\x08\xfdringway\0\0\0\0\0\0\0\x01"[..],
            b"\x1f\x03\0\0\0\0\x07\x08\x04mesh\x07example\0\0\0",
        ];
        assert_eq!(bytes[plain.len()..], expected.concat());
        // The last one ends all three.
        let last = with.to_final_bytes();
        let lifetimes =
            [4..8, 8..12, 36..40, 60..64].map(|range| last[plain.len()..][range].to_vec());
        assert_eq!(lifetimes, [[0; 4]; 4]);
    }

    /// RFC 4861 section 6.1.1.
    #[test]
    fn a_solicitation_is_checked() {
        let plain = [133, 0, 1, 2, 0, 0, 0, 0];
        let with = |option: &[u8]| [&plain[..], option].concat();
        let link = [1, 1, 2, 3, 4, 5, 6, 7];
        let none = Ipv6Addr::UNSPECIFIED;
        assert!(is_solicitation(&HOST, 255, &plain));
        assert!(is_solicitation(&none, 255, &plain));
        assert!(is_solicitation(&HOST, 255, &with(&link)));
        assert!(is_solicitation(
            &HOST,
            255,
            &[with(&link), vec![14, 1, 0, 0, 0, 0, 0, 0]].concat()
        ));
        assert!(!is_solicitation(&none, 255, &with(&link)), "no address, but one of the link");
        assert!(!is_solicitation(&HOST, 254, &plain), "from another link");
        assert!(!is_solicitation(&HOST, 255, &plain[..7]), "too short");
        assert!(!is_solicitation(&HOST, 255, &[133, 1, 0, 0, 0, 0, 0, 0]), "another code");
        assert!(!is_solicitation(&HOST, 255, &[134, 0, 0, 0, 0, 0, 0, 0]), "another kind");
        assert!(!is_solicitation(&HOST, 255, &with(&[14, 0, 0, 0, 0, 0, 0, 0])), "an empty option");
        assert!(!is_solicitation(&HOST, 255, &with(&[14, 2, 0, 0, 0, 0, 0, 0])), "half an option");
        assert!(!is_solicitation(&HOST, 255, &with(&[14])), "an octet of an option");
    }

    /// RFC 4861 section 6.2.4.
    #[test]
    fn the_first_three_come_soon_and_the_others_at_random() {
        let mut random = SplitMix::new(1);
        let start = Time::from_secs(1_000);
        let mut schedule = Schedule::new(start, &mut random);
        let mut last = start;
        for n in 0..1_000 {
            let next = schedule.poll_timeout();
            let waited = next.since(last);
            match n {
                0 => assert!(waited <= MAX_DELAY),
                1 | 2 => assert_eq!(waited, MAX_INITIAL_INTERVAL),
                _ => assert!(waited >= MIN_INTERVAL && waited < MAX_INTERVAL, "{n}: {waited:?}"),
            }
            let before = Time::from_nanos(next.as_nanos() - 1);
            assert!(!schedule.handle_timeout(before, &mut random));
            assert!(schedule.handle_timeout(next, &mut random));
            last = next;
        }
    }

    /// RFC 4861 section 6.2.6.
    #[test]
    fn solicitations_are_answered_soon_and_not_too_often() {
        let mut random = SplitMix::new(2);
        let mut schedule = Schedule::new(Time::from_secs(1_000), &mut random);
        let first = schedule.poll_timeout();
        assert!(schedule.handle_timeout(first, &mut random));
        let asked = first + Duration::from_secs(10);
        schedule.handle_solicitation(asked, &mut random);
        let answer = schedule.poll_timeout();
        assert!(answer >= asked && answer < asked + MAX_DELAY);
        assert!(schedule.handle_timeout(answer, &mut random));
        // A host that asks all the time gets an answer every three seconds.
        let (mut now, mut sent) = (answer, 0);
        while now < answer + Duration::from_secs(60) {
            now += Duration::from_millis(10);
            schedule.handle_solicitation(now, &mut random);
            sent += u32::from(schedule.handle_timeout(now, &mut random));
        }
        assert!((17..=20).contains(&sent), "{sent}");
        // An advertisement that is due anyway is not put off by a question.
        let due = schedule.poll_timeout();
        let just_before = Time::from_nanos(due.as_nanos() - 1);
        schedule.handle_solicitation(just_before, &mut random);
        assert_eq!(schedule.poll_timeout(), due);
    }
}
