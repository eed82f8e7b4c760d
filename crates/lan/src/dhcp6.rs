//! DHCPv6 without addresses (RFC 8415 section 18.2.6 and 18.3.6): a host that has made its own address asks for the SIP
//! server (RFC 3319) and for the server of names (RFC 3646).
//!
//! Messages are read here and not by a library: only three options matter, and a message within a message, or within an
//! option, is not opened, so that no message is deeper than it looks.

use core::net::Ipv6Addr;

use hickory_proto::rr::Name;
use ringway_mesh::NodeId;
use ringway_sansio::Time;

use crate::dhcp4::encode_name;
use crate::dns::below;
use crate::share::Shares;
use crate::site::{ANYCAST, Site};

/// Port of servers (RFC 8415 section 7.2).
pub const SERVER_PORT: u16 = 547;
/// Port of clients.
pub const CLIENT_PORT: u16 = 546;
/// Where clients send to (RFC 8415 section 7.1).
pub const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// Longest message that is read, in octets.
pub const MAX_MESSAGE: usize = 1_452;
/// Options of a message that are read. A client has far fewer.
const MAX_OPTIONS: usize = 32;
/// Longest identifier of a client in octets (RFC 8415 section 11.1).
const MAX_DUID: usize = 130;

/// Kinds of messages (RFC 8415 section 7.3).
const REPLY: u8 = 7;
const INFORMATION_REQUEST: u8 = 11;

/// Codes of options (RFC 8415 section 21, RFC 3319, RFC 3646).
const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const IA_NA: u16 = 3;
const IA_TA: u16 = 4;
const OPTION_REQUEST: u16 = 6;
const IA_PD: u16 = 25;
const SIP_DOMAINS: u16 = 21;
const SIP_ADDRESSES: u16 = 22;
const DNS_SERVERS: u16 = 23;
const DOMAIN_LIST: u16 = 24;
const REFRESH_TIME: u16 = 32;

/// Seconds after which a client asks again (RFC 8415 section 21.23), which is no less than 600.
const REFRESH: u32 = 3_600;

/// Messages a second of one host, and at once.
const RATE: u32 = 2;
const BURST: u32 = 10;

/// The server.
#[derive(Clone, Debug)]
pub struct Dhcp6 {
    server_id: Vec<u8>,
    host: Name,
    domain: Name,
    shares: Shares<Ipv6Addr>,
    /// Requests that were answered.
    answered: u64,
}

impl Dhcp6 {
    /// A server for the hosts of a site.
    pub fn new(site: &Site) -> Dhcp6 {
        Dhcp6 {
            server_id: duid(site.router()),
            host: below(&["sip"], site.domain()),
            domain: site.domain().clone(),
            shares: Shares::new(RATE, BURST),
            answered: 0,
        }
    }

    /// Returns the number of requests that were answered.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Returns the answer to a message from `source`, which is to be sent to the port of clients there.
    pub fn answer(&mut self, now: Time, source: Ipv6Addr, message: &[u8]) -> Option<Vec<u8>> {
        // A client sends from an address of the link (RFC 8415 section 18.2.6).
        if !source.is_unicast_link_local() {
            return None;
        }
        let request = InformationRequest::parse(message)?;
        // RFC 8415 section 16.12.
        let is_ours = request.server.is_none_or(|server| server == self.server_id);
        if !is_ours || !self.shares.allows(now, source) {
            return None;
        }
        self.answered += 1;
        Some(self.reply(&request))
    }

    fn reply(&self, request: &InformationRequest<'_>) -> Vec<u8> {
        let mut out = vec![REPLY];
        out.extend(request.transaction);
        if let Some(client) = request.client {
            put(&mut out, CLIENT_ID, client);
        }
        put(&mut out, SERVER_ID, &self.server_id);
        let name = |name: &Name| encode_name(name).unwrap_or_default();
        for (code, octets) in [
            (SIP_DOMAINS, name(&self.host)),
            (SIP_ADDRESSES, ANYCAST.octets().to_vec()),
            (DNS_SERVERS, ANYCAST.octets().to_vec()),
            (DOMAIN_LIST, name(&self.domain)),
            (REFRESH_TIME, REFRESH.to_be_bytes().to_vec()),
        ] {
            if request.wants(code) && !octets.is_empty() {
                put(&mut out, code, &octets);
            }
        }
        out
    }
}

/// What is read of a message.
struct InformationRequest<'a> {
    transaction: [u8; 3],
    client: Option<&'a [u8]>,
    server: Option<&'a [u8]>,
    /// Codes of the options that are asked for, two octets each; all if none are.
    wanted: Option<&'a [u8]>,
}

impl<'a> InformationRequest<'a> {
    fn parse(message: &'a [u8]) -> Option<InformationRequest<'a>> {
        let &[INFORMATION_REQUEST, a, b, c, ref options @ ..] = message else { return None };
        if message.len() > MAX_MESSAGE {
            return None;
        }
        let mut request =
            InformationRequest { transaction: [a, b, c], client: None, server: None, wanted: None };
        let mut rest = options;
        for _ in 0..MAX_OPTIONS {
            if rest.is_empty() {
                return Some(request);
            }
            let &[c1, c2, l1, l2, ref body @ ..] = rest else { return None };
            let (data, more) = body.split_at_checked(usize::from(u16::from_be_bytes([l1, l2])))?;
            rest = more;
            match u16::from_be_bytes([c1, c2]) {
                CLIENT_ID if (1..=MAX_DUID).contains(&data.len()) => request.client = Some(data),
                CLIENT_ID => return None,
                SERVER_ID => request.server = Some(data),
                OPTION_REQUEST => request.wanted = Some(data),
                // RFC 8415 section 16.12.
                IA_NA | IA_TA | IA_PD => return None,
                _ => {}
            }
        }
        None
    }

    fn wants(&self, code: u16) -> bool {
        let code = code.to_be_bytes();
        self.wanted.is_none_or(|wanted| wanted.chunks_exact(2).any(|one| one == code))
    }
}

/// Writes an option.
fn put(out: &mut Vec<u8>, code: u16, data: &[u8]) {
    let length = u16::try_from(data.len()).unwrap_or(0);
    out.extend(code.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(&data[..usize::from(length)]);
}

/// Returns the identifier of a router as a server: a UUID (RFC 6355) of the kind that everybody may fill (RFC 9562
/// section 5.8), with the router's id.
fn duid(router: NodeId) -> Vec<u8> {
    let [_, a, b, c, d, e, f, g] = router.to_bytes();
    let head = router.to_bytes()[0];
    let mut out = vec![0, 4];
    out.extend(*b"rin");
    out.extend([head, b'g', b'w', 0x80, b'a', 0x80, a, b, c, d, e, f]);
    out.push(g);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::SipService;
    use proptest::prelude::*;

    const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
    const NOW: Time = Time::from_secs(100);

    fn server() -> Dhcp6 {
        let site = Site::new(NodeId::new(0x0123_4567_89ab_cdef), SipService::default(), None);
        Dhcp6::new(&site.unwrap())
    }

    /// What systemd-networkd 252 sends, with the SIP options asked for too.
    fn request(options: &[&[u8]]) -> Vec<u8> {
        let client = [0, 1, 0, 14, 0, 2, 0, 0, 0xab, 0x11, 1, 2, 3, 4, 5, 6, 7, 8];
        let wanted = [0, 6, 0, 10, 0, 21, 0, 22, 0, 23, 0, 24, 0, 32];
        let elapsed = [0, 8, 0, 2, 0, 0];
        [&[11, 0xa1, 0xb2, 0xc3], &client[..], &wanted, &elapsed, &options.concat()].concat()
    }

    /// RFC 8415 section 18.3.6, RFC 3319 section 3, RFC 3646 sections 3 and 4.
    #[test]
    fn a_host_learns_the_sip_server_and_the_server_of_names() {
        let expected = [
            &[7, 0xa1, 0xb2, 0xc3][..],
            &[0, 1, 0, 14, 0, 2, 0, 0, 0xab, 0x11, 1, 2, 3, 4, 5, 6, 7, 8],
            b"\0\x02\0\x12\0\x04rin\x01gw\x80a\x80\x23\x45\x67\x89\xab\xcd\xef",
            b"\0\x15\0\x0a\x03sip\x04mesh\0",
            b"\0\x16\0\x10\xfdringway\0\0\0\0\0\0\0\x01",
            b"\0\x17\0\x10\xfdringway\0\0\0\0\0\0\0\x01",
            b"\0\x18\0\x06\x04mesh\0",
            &[0, 32, 0, 4, 0, 0, 0x0e, 0x10],
        ];
        let answer = server().answer(NOW, HOST, &request(&[])).unwrap();
        assert_eq!(answer, expected.concat());
    }

    #[test]
    fn a_host_gets_what_it_asks_for_and_everything_if_it_asks_for_nothing() {
        let only = |message: &[u8]| server().answer(NOW, HOST, message).unwrap().len();
        let identifiers = 4 + 22;
        assert_eq!(only(&[11, 1, 2, 3, 0, 6, 0, 2, 0, 22]), identifiers + 20);
        assert_eq!(only(&[11, 1, 2, 3, 0, 6, 0, 2, 0, 99]), identifiers);
        assert_eq!(only(&[11, 1, 2, 3]), identifiers + 14 + 20 + 20 + 10 + 8);
    }

    /// RFC 8415 sections 16.12 and 18.2.6.
    #[test]
    fn other_messages_are_not_answered() {
        let mut server = server();
        let own = [&[0, 2, 0, 18][..], &server.server_id.clone()].concat();
        let address = [0, 3, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(server.answer(NOW, HOST, &request(&[&own])).is_some());
        let outside = "2001:db8::1".parse().unwrap();
        assert_eq!(server.answer(NOW, outside, &request(&[])), None, "from another link");
        for (message, why) in [
            (request(&[&[0, 2, 0, 1, 9]]), "another server's"),
            (request(&[&address]), "with addresses"),
            (request(&[&[0, 8, 0, 9, 0]]), "half an option"),
            (request(&[&[0, 8, 0]]), "half a header"),
            (request(&[&[0, 1, 0, 0]]), "no identifier"),
            (request(&[&[0, 8, 0, 0].repeat(40)]), "too many options"),
            ([&[1], &request(&[])[1..]].concat(), "a solicitation"),
            ([&[12], &request(&[])[1..]].concat(), "of a relay"),
            (vec![11, 1, 2], "too short"),
            (vec![], "empty"),
        ] {
            assert_eq!(server.answer(NOW, HOST, &message), None, "{why}");
        }
    }

    #[test]
    fn a_host_that_asks_too_much_is_not_answered_and_others_are() {
        let mut server = server();
        let asked = (0..100).filter(|_| server.answer(NOW, HOST, &request(&[])).is_some());
        assert_eq!(asked.count(), 10);
        let other = "fe80::8".parse().unwrap();
        assert!(server.answer(NOW, other, &request(&[])).is_some());
        assert_eq!(server.answered(), 11);
    }

    proptest! {
        #[test]
        fn octets_of_any_kind_are_read(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in any::<bool>()) {
            if let (true, Some(first)) = (kind, bytes.first_mut()) {
                *first = 11;
            }
            if let Some(answer) = server().answer(NOW, HOST, &bytes) {
                prop_assert!(answer.len() < 400);
            }
        }
    }
}
