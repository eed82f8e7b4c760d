//! The handshake of a link: INIT, RESP, CONF and COOKIE.
//!
//! The messages of the Noise pattern XXpsk0 are octets here. INIT is padded so that its answer is never longer: a forged
//! source address gains nothing.
//!
//! ```text
//! INIT,   192 octets: 0 kind  1 flags  2 zero (2)  4 sender index (4)  8 cookie (16)  24 first message (168)
//! RESP,   183 octets: 0 kind  1 flags  2 zero (2)  4 sender index (4)  8 receiver index (4)  12 second message (171)
//! CONF,   147 octets: 0 kind  1 flags  2 zero (2)  4 receiver index (4)  8 third message (139)
//! COOKIE,  40 octets: 0 kind  1 zero (3)  4 receiver index (4)  8 cookie (16)  24 code of the INIT (16)
//! ```

use ringway_sansio::Malformed;

use super::{Kind, Reader, SEAL, packet_reader};
use crate::id::{Instance, NodeId};
use crate::identity::Proof;

/// Length in octets of a public key of Diffie-Hellman.
const POINT: usize = 32;
/// Length in octets of a cookie and of the code of an INIT.
pub const COOKIE: usize = 16;
/// Length in octets of what the first message contains.
pub const INIT_PAYLOAD: usize = 120;
/// Length in octets of what the second and the third message contain.
pub const LINK_PAYLOAD: usize = Proof::LENGTH + 4 + HELLO_KEY + 2 + 4 + 1;
/// Length in octets of the key of a router's HELLOs.
pub const HELLO_KEY: usize = 16;

/// Length in octets of the first message: a key, and what it contains sealed.
pub const FIRST: usize = POINT + INIT_PAYLOAD + SEAL;
/// Length in octets of the second message: a key, the sealed static key, and what it contains sealed.
pub const SECOND: usize = POINT + THIRD;
/// Length in octets of the third message: the sealed static key, and what it contains sealed.
pub const THIRD: usize = POINT + SEAL + LINK_PAYLOAD + SEAL;

/// INIT: a router wants a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Init<'a> {
    /// Flags; none are defined.
    pub flags: u8,
    /// The sender's number for the link.
    pub sender: u32,
    /// What a COOKIE has asked to be repeated, or zero.
    pub cookie: [u8; COOKIE],
    /// The first message.
    pub noise: &'a [u8],
}

impl<'a> Init<'a> {
    /// Length in octets.
    pub const LENGTH: usize = 24 + FIRST;

    /// Parses a packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Init<'a>, Malformed> {
        let mut reader = packet_reader(Kind::Init, "expected an INIT of 192 octets", bytes)?;
        let [flags, _, _] = reader.array()?;
        let init = Init {
            flags,
            sender: reader.u32()?,
            cookie: reader.array()?,
            noise: reader.take(FIRST)?,
        };
        reader.end()?;
        Ok(init)
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend([Kind::Init.octet(), self.flags, 0, 0]);
        out.extend(self.sender.to_be_bytes());
        out.extend(self.cookie);
        out.extend_from_slice(self.noise);
    }
}

/// RESP: the answer to an INIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resp<'a> {
    /// Flags; none are defined.
    pub flags: u8,
    /// The sender's number for the link.
    pub sender: u32,
    /// The receiver's, from its INIT.
    pub receiver: u32,
    /// The second message.
    pub noise: &'a [u8],
}

impl<'a> Resp<'a> {
    /// Length in octets.
    pub const LENGTH: usize = 12 + SECOND;

    /// Parses a packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Resp<'a>, Malformed> {
        let mut reader = packet_reader(Kind::Resp, "expected a RESP of 183 octets", bytes)?;
        let [flags, _, _] = reader.array()?;
        let (sender, receiver) = (reader.u32()?, reader.u32()?);
        let resp = Resp { flags, sender, receiver, noise: reader.take(SECOND)? };
        reader.end()?;
        Ok(resp)
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend([Kind::Resp.octet(), self.flags, 0, 0]);
        out.extend(self.sender.to_be_bytes());
        out.extend(self.receiver.to_be_bytes());
        out.extend_from_slice(self.noise);
    }
}

/// CONF: the last message; both ends have proved who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conf<'a> {
    /// Flags; none are defined.
    pub flags: u8,
    /// The receiver's number for the link.
    pub receiver: u32,
    /// The third message.
    pub noise: &'a [u8],
}

impl<'a> Conf<'a> {
    /// Length in octets.
    pub const LENGTH: usize = 8 + THIRD;

    /// Parses a packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Conf<'a>, Malformed> {
        let mut reader = packet_reader(Kind::Conf, "expected a CONF of 147 octets", bytes)?;
        let [flags, _, _] = reader.array()?;
        let conf = Conf { flags, receiver: reader.u32()?, noise: reader.take(THIRD)? };
        reader.end()?;
        Ok(conf)
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend([Kind::Conf.octet(), self.flags, 0, 0]);
        out.extend(self.receiver.to_be_bytes());
        out.extend_from_slice(self.noise);
    }
}

/// COOKIE: a busy router asks for the INIT again, with proof that its sender receives at its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie {
    /// The receiver's number for the link, from its INIT.
    pub receiver: u32,
    /// What the next INIT must carry.
    pub cookie: [u8; COOKIE],
    /// Code over the INIT, so that only who saw it can send this.
    pub code: [u8; COOKIE],
}

impl Cookie {
    /// Length in octets.
    pub const LENGTH: usize = 8 + 2 * COOKIE;

    /// Parses a packet.
    pub fn parse(bytes: &[u8]) -> Result<Cookie, Malformed> {
        let mut reader = packet_reader(Kind::Cookie, "expected a COOKIE of 40 octets", bytes)?;
        reader.take(3)?;
        let receiver = reader.u32()?;
        let cookie = Cookie { receiver, cookie: reader.array()?, code: reader.array()? };
        reader.end()?;
        Ok(cookie)
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend([Kind::Cookie.octet(), 0, 0, 0]);
        out.extend(self.receiver.to_be_bytes());
        out.extend(self.cookie);
        out.extend(self.code);
    }
}

/// What the first message contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitPayload {
    /// The sender, unverified: of two that ask each other at once, the lower one's handshake goes on.
    pub id: NodeId,
    /// The sender's start.
    pub instance: Instance,
    /// Number of its newest HELLO.
    pub hello: u16,
}

impl InitPayload {
    /// Parses the opened octets; the padding is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<InitPayload, Malformed> {
        let mut reader = Reader::new("expected the contents of an INIT", bytes);
        let payload = InitPayload {
            id: NodeId::new(reader.u64()?),
            instance: Instance(reader.u32()?),
            hello: reader.u16()?,
        };
        reader.take(INIT_PAYLOAD - 14)?;
        reader.end()?;
        Ok(payload)
    }

    /// Returns the octets to seal, with their padding.
    pub fn to_bytes(self) -> [u8; INIT_PAYLOAD] {
        let mut bytes = [0; INIT_PAYLOAD];
        bytes[..8].copy_from_slice(&self.id.to_bytes());
        bytes[8..12].copy_from_slice(&self.instance.0.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.hello.to_be_bytes());
        bytes
    }
}

/// What the second and the third message contain: who the sender is, and what the receiver must know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPayload {
    /// The sender's proof, unverified.
    pub proof: Proof,
    /// The sender's start.
    pub instance: Instance,
    /// The key of its HELLOs.
    pub hello_key: [u8; HELLO_KEY],
    /// Largest packet that it receives over this link.
    pub mtu: u16,
    /// Its clock in us, by which its HELLOs are stamped; it wraps.
    pub stamp: u32,
}

impl LinkPayload {
    /// Parses the opened octets.
    pub fn parse(bytes: &[u8]) -> Result<LinkPayload, Malformed> {
        let mut reader = Reader::new("expected the contents of a RESP or CONF", bytes);
        let payload = LinkPayload {
            proof: Proof::from_bytes(&reader.array()?),
            instance: Instance(reader.u32()?),
            hello_key: reader.array()?,
            mtu: reader.u16()?,
            stamp: reader.u32()?,
        };
        reader.take(1)?;
        reader.end()?;
        Ok(payload)
    }

    /// Returns the octets to seal.
    pub fn to_bytes(&self) -> [u8; LINK_PAYLOAD] {
        let mut bytes = [0; LINK_PAYLOAD];
        let (proof, rest) = bytes.split_at_mut(Proof::LENGTH);
        proof.copy_from_slice(&self.proof.to_bytes());
        rest[..4].copy_from_slice(&self.instance.0.to_be_bytes());
        rest[4..20].copy_from_slice(&self.hello_key);
        rest[20..22].copy_from_slice(&self.mtu.to_be_bytes());
        rest[22..26].copy_from_slice(&self.stamp.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_is_never_longer_than_its_question() {
        assert_eq!((Init::LENGTH, Resp::LENGTH, Conf::LENGTH, Cookie::LENGTH), (192, 183, 147, 40));
        const { assert!(Resp::LENGTH <= Init::LENGTH && Cookie::LENGTH <= Init::LENGTH) };
        const { assert!(Conf::LENGTH <= Resp::LENGTH) };
    }

    #[test]
    fn a_packet_of_another_length_is_refused() {
        let mut out = Vec::new();
        Cookie { receiver: 1, cookie: [2; COOKIE], code: [3; COOKIE] }.emit(&mut out);
        let short = Cookie::parse(&out[..39]).unwrap_err();
        assert_eq!(short.to_string(), "expected a COOKIE of 40 octets, got the end at octet 39");
        out.push(0);
        assert_eq!(
            Cookie::parse(&out).unwrap_err().to_string(),
            "expected the end, got 1 at octet 40"
        );
        assert!(
            Init::parse(&out).is_err() && Resp::parse(&out).is_err() && Conf::parse(&out).is_err()
        );
    }

    proptest! {
        #[test]
        fn packets_are_parsed_back(
            numbers: (u32, u32, u8, [u8; COOKIE]),
            noise in proptest::collection::vec(any::<u8>(), FIRST.max(SECOND)),
        ) {
            let (sender, receiver, flags, cookie) = numbers;
            let mut out = Vec::new();
            let init = Init { flags, sender, cookie, noise: &noise[..FIRST] };
            init.emit(&mut out);
            prop_assert_eq!((out.len(), Init::parse(&out)), (Init::LENGTH, Ok(init)));
            out.clear();
            let resp = Resp { flags, sender, receiver, noise: &noise[..SECOND] };
            resp.emit(&mut out);
            prop_assert_eq!((out.len(), Resp::parse(&out)), (Resp::LENGTH, Ok(resp)));
            out.clear();
            let conf = Conf { flags, receiver, noise: &noise[..THIRD] };
            conf.emit(&mut out);
            prop_assert_eq!((out.len(), Conf::parse(&out)), (Conf::LENGTH, Ok(conf)));
            out.clear();
            let cookie = Cookie { receiver, cookie, code: [7; COOKIE] };
            cookie.emit(&mut out);
            prop_assert_eq!((out.len(), Cookie::parse(&out)), (Cookie::LENGTH, Ok(cookie)));
        }

        #[test]
        fn contents_are_parsed_back(id: u64, instance: u32, hello: u16, key: [u8; 32], rest: ([u8; 16], u16, u32)) {
            let payload = InitPayload { id: NodeId::new(id), instance: Instance(instance), hello };
            prop_assert_eq!(InitPayload::parse(&payload.to_bytes()), Ok(payload));
            let payload = LinkPayload {
                proof: Proof { key, modifier: rest.0 },
                instance: Instance(instance),
                hello_key: rest.0,
                mtu: rest.1,
                stamp: rest.2,
            };
            prop_assert_eq!(LinkPayload::parse(&payload.to_bytes()), Ok(payload));
            prop_assert!(LinkPayload::parse(&payload.to_bytes()[1..]).is_err());
        }

        #[test]
        fn any_octets_are_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 1u8..6) {
            if let Some(first) = bytes.first_mut() {
                *first = 0x10 | kind;
            }
            let parsed = usize::from(Init::parse(&bytes).is_ok())
                + usize::from(Resp::parse(&bytes).is_ok())
                + usize::from(Conf::parse(&bytes).is_ok())
                + usize::from(Cookie::parse(&bytes).is_ok());
            prop_assert!(parsed <= 1);
        }
    }
}
