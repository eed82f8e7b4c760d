//! The wire format of netlink(7) and rtnetlink(7): messages, their attributes, and the links and addresses in them.
//!
//! Numbers are in the byte order of the host. A message begins with its length, kind, flags, sequence number and port
//! (16 octets); an attribute begins with its length and kind (4 octets). Both are padded to 4 octets.

use super::{Address, Link};
use std::io;
use std::net::IpAddr;

/// Size of the header of a message, in octets.
pub(super) const HEADER: usize = 16;
/// Size of the header of an attribute, in octets.
const ATTRIBUTE: usize = 4;
/// Size of `ifinfomsg`, the fixed part of a message about a link, in octets.
pub(super) const LINK: usize = 16;
/// Size of `ifaddrmsg`, the fixed part of a message about an address, in octets.
pub(super) const ADDRESS: usize = 8;
/// Bits of an attribute's kind that are flags.
const KIND_FLAGS: u16 = (libc::NLA_F_NESTED | libc::NLA_F_NET_BYTEORDER) as u16;

/// Attributes of a message about an address (linux/if_addr.h). `IFA_LOCAL` is the interface's own address where the
/// link is a point-to-point one.
pub(super) const IFA_ADDRESS: u16 = 1;
pub(super) const IFA_LOCAL: u16 = 2;
pub(super) const IFA_CACHEINFO: u16 = 6;
pub(super) const IFA_FLAGS: u16 = 8;
/// The attribute of an answer with the kernel's explanation of an error (linux/netlink.h).
const NLMSGERR_ATTR_MSG: u16 = 1;
/// Maximum length of an explanation, in octets.
const MAX_EXPLANATION: usize = 256;

/// A message that has been received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    /// What follows the header.
    pub(super) body: &'a [u8],
}

/// Iterates over the messages of one read. Ends after the first message whose length is wrong.
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = io::Result<Message<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.0);
        if bytes.is_empty() {
            return None;
        }
        let length = number(bytes, 0) as usize;
        let Some(body) = bytes.get(HEADER..length) else {
            let text = format!(
                "expected a netlink message of {HEADER} to {} octets, got one of {length}",
                bytes.len()
            );
            return Some(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        };
        self.0 = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        let (kind, flags) = (short(bytes, 4), short(bytes, 6));
        Some(Ok(Message { kind, flags, sequence: number(bytes, 8), body }))
    }
}

/// Iterates over attributes: kind and value. Ends before the first attribute whose length is wrong.
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.0);
        let value = bytes.get(ATTRIBUTE..usize::from(short(bytes, 0)))?;
        self.0 = bytes.get((ATTRIBUTE + value.len()).next_multiple_of(4)..).unwrap_or(&[]);
        Some((short(bytes, 2) & !KIND_FLAGS, value))
    }
}

/// A request that is being written.
pub(super) struct Request(Vec<u8>);

impl Request {
    /// Begins a request with the fixed part of its kind. The kernel acknowledges it, or ends a list by a message.
    pub(super) fn new(kind: u16, flags: libc::c_int, fixed: &[u8]) -> Request {
        let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Request(bytes)
    }

    /// Appends an attribute. Its value has at most 64 octets.
    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        let length = (ATTRIBUTE + value.len()) as u16;
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Returns the octets of the request.
    pub(super) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

/// Parses the body of a message about a link. Returns `None` where it is too short, or about the port of a bridge.
pub(super) fn link(body: &[u8]) -> Option<Link> {
    let attributes = body.get(LINK..)?;
    if body[0] != libc::AF_UNSPEC as u8 {
        return None;
    }
    let mut link =
        Link { index: number(body, 4), flags: number(body, 8), name: String::new(), mtu: 0 };
    for (kind, value) in Attributes(attributes) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_MTU => link.mtu = number(value, 0),
            _ => {}
        }
    }
    Some(link)
}

/// Parses the body of a message about an address. Returns `None` where it is too short, or has no internet address.
pub(super) fn address(body: &[u8]) -> Option<Address> {
    let attributes = body.get(ADDRESS..)?;
    let mut flags = u32::from(body[2]);
    let (mut local, mut other) = (None, None);
    for (kind, value) in Attributes(attributes) {
        match kind {
            IFA_LOCAL => local = ip(value),
            // On a point-to-point link the remote address.
            IFA_ADDRESS => other = ip(value),
            IFA_FLAGS if value.len() >= 4 => flags = number(value, 0),
            _ => {}
        }
    }
    let ip = local.or(other)?;
    Some(Address { interface: number(body, 4), ip, prefix_length: body[1], flags })
}

/// Parses the body of an answer: the error code (`errno`, 0 for success) and the kernel's explanation, if any. The
/// request that it quotes is its header alone (`NETLINK_CAP_ACK`). Returns `None` where the answer is too short.
pub(super) fn answer(message: &Message<'_>) -> Option<(i32, Option<String>)> {
    let code = i32::from_ne_bytes(*message.body.first_chunk::<4>()?);
    let explained = libc::c_int::from(message.flags) & libc::NLM_F_ACK_TLVS != 0;
    let attributes = message.body.get(4 + HEADER..).filter(|_| explained).unwrap_or(&[]);
    let explanation = Attributes(attributes).find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG);
    Some((code.saturating_neg(), explanation.map(|(_, value)| text(value))))
}

/// Reads a text that ends with a zero octet.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len()).min(MAX_EXPLANATION);
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    match *value {
        [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
        _ => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
    }
}

/// Reads a number of 4 octets; 0 where there are fewer.
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

/// Reads a number of 2 octets; 0 where there are fewer.
fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_ne_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message about a link, and one about an address, as the kernel sends them.
    fn samples() -> Vec<u8> {
        let mut fixed = [0u8; LINK];
        fixed[4..8].copy_from_slice(&7u32.to_ne_bytes());
        fixed[8..12].copy_from_slice(&0x1_1043u32.to_ne_bytes());
        let mut bytes = Request::new(libc::RTM_NEWLINK, 0, &fixed)
            .attribute(libc::IFLA_IFNAME, b"mesh0\0")
            .attribute(libc::IFLA_MTU, &1_400u32.to_ne_bytes())
            .finish(3);
        let mut fixed = [libc::AF_INET6 as u8, 64, 0x80, 0, 0, 0, 0, 0];
        fixed[4..].copy_from_slice(&7u32.to_ne_bytes());
        bytes.extend(
            Request::new(libc::RTM_NEWADDR, libc::NLM_F_MULTI, &fixed)
                .attribute(IFA_ADDRESS, &[0xfd; 16])
                .attribute(IFA_FLAGS, &0x282u32.to_ne_bytes())
                .finish(4),
        );
        bytes
    }

    #[test]
    fn links_and_addresses_are_parsed() {
        let bytes = samples();
        let messages: Vec<_> = Messages(&bytes).map(Result::unwrap).collect();
        let kinds: Vec<_> = messages.iter().map(|m| (m.kind, m.sequence)).collect();
        assert_eq!(kinds, [(libc::RTM_NEWLINK, 3), (libc::RTM_NEWADDR, 4)]);
        let found = link(messages[0].body).unwrap();
        assert_eq!((found.index, found.name.as_str(), found.mtu), (7, "mesh0", 1_400));
        assert!(found.is_up() && found.is_running());
        let found = address(messages[1].body).unwrap();
        assert_eq!((found.interface, found.ip), (7, IpAddr::from([0xfd; 16])));
        // The attribute has all flags, the fixed part only the first eight.
        assert_eq!((found.prefix_length, found.flags), (64, 0x282));
    }

    #[test]
    fn on_a_point_to_point_link_the_local_address_is_the_own_one() {
        let bytes =
            Request::new(libc::RTM_NEWADDR, 0, &[libc::AF_INET as u8, 32, 0, 0, 1, 0, 0, 0])
                .attribute(IFA_ADDRESS, &[192, 0, 2, 1])
                .attribute(IFA_LOCAL, &[192, 0, 2, 2])
                .finish(0);
        let message = Messages(&bytes).next().unwrap().unwrap();
        assert_eq!(address(message.body).unwrap().ip, IpAddr::from([192, 0, 2, 2]));
    }

    /// A port that leaves a bridge is reported as a link removed, of another family. The link is still there.
    #[test]
    fn a_port_of_a_bridge_is_no_link() {
        let mut bytes = samples();
        bytes[HEADER] = libc::AF_BRIDGE as u8;
        assert!(link(Messages(&bytes).next().unwrap().unwrap().body).is_none());
    }

    #[test]
    fn an_answer_carries_the_error_and_its_explanation() {
        let mut body = (-libc::EINVAL).to_ne_bytes().to_vec();
        body.extend([0; HEADER]);
        let flags = (libc::NLM_F_ACK_TLVS | libc::NLM_F_CAPPED) as u16;
        let plain = Message { kind: 2, flags: 0, sequence: 1, body: &body };
        assert_eq!(answer(&plain), Some((libc::EINVAL, None)));
        let explained = Request::new(0, 0, &body).attribute(NLMSGERR_ATTR_MSG, b"because\0").0;
        let body = &explained[HEADER..];
        let expected = Some((libc::EINVAL, Some("because".to_owned())));
        assert_eq!(answer(&Message { flags, body, ..plain }), expected);
        assert_eq!(answer(&Message { body: &body[..3], ..plain }), None);
    }

    #[test]
    fn a_length_beyond_the_read_is_an_error() {
        let mut bytes = samples();
        bytes.truncate(40);
        let all: Vec<_> = Messages(&bytes).collect();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].as_ref().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    fn parse(bytes: &[u8]) -> usize {
        let mut count = 0;
        for message in Messages(bytes).flatten() {
            count += 1;
            let _ = (link(message.body), address(message.body), answer(&message));
            count += Attributes(message.body).count();
        }
        count
    }

    proptest! {
        #[test]
        fn random_octets_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(parse(&bytes) <= bytes.len());
            let mut framed = bytes;
            if framed.len() >= HEADER {
                let length = framed.len() as u32;
                framed[..4].copy_from_slice(&length.to_ne_bytes());
            }
            prop_assert!(parse(&framed) <= framed.len());
        }

        #[test]
        fn damaged_messages_do_no_harm(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = samples();
            for (at, octet) in changes {
                let at = at.index(bytes.len());
                bytes[at] = octet;
            }
            let end = cut.index(bytes.len() + 1);
            prop_assert!(parse(&bytes[..end]) <= bytes.len());
        }
    }
}
