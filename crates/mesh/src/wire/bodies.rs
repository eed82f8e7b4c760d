//! What messages between routers contain.
//!
//! | type | body | octets without lists |
//! |---|---|---|
//! | CONNECT, CONNECT_ACK | proof (48), sequence (8), instance (4), flags (1), count (1), hints, signature (64) | 126 |
//! | INTRODUCE | hint; nobody has proved it, so the receiver connects to find out | 14 |
//! | LOOKUP | index (4), first message of a session (64) | 68 |
//! | LOOKUP_ACK | index (4), receiver index (4), second message of a session (159) | 167 |
//! | LOOKUP_APART | LOOKUP's, flags (1: 1 links alone, 2 uncut), tags of the route (1), tags of the way (1), tags of 4 octets | 71 |
//! | CONFIRM | receiver index (4), third message of a session (127) | 131 |
//! | PAYLOAD | application (2), proof (48), octets, signature (64) | 114 |
//! | NOT_RESPONSIBLE | proof (48), sequence (8), signature (64) | 120 |
//!
//! A **hint** names another router and the way to it: id (8), cost (2), links back (2), nibbles (2), labels. The way turns
//! off the receiver's route to the sender at a router so many links before its end, of which the first label is. With no links
//! back that is the sender itself. So two routes that have links in common are joined where they part, and no part of the
//! way is gone to and fro.

use ringway_sansio::Malformed;
use smallvec::SmallVec;

use super::routed::Message;
use super::{Labels, Reader, SEAL, SIGNATURE, read_labels};
use crate::id::{Instance, NodeId, Sequence, Tag};
use crate::identity::Proof;

/// Maximum number of hints in a message.
pub const MAX_HINTS: usize = 16;
/// Maximum number of octets of a PAYLOAD.
pub const MAX_PAYLOAD: usize = 1_000;
/// Maximum number of tags of the route that a LOOKUP_APART avoids: of the routers on it, and of its end.
pub const MAX_AVOIDED: usize = 32;
/// Maximum number of routers that a LOOKUP_APART comes to.
pub const MAX_PASSED: usize = 64;
/// Length in octets of what the first message of a session contains, zeros.
pub const SESSION_FIRST_PAYLOAD: usize = 16;
/// Length in octets of what the second and the third message of a session contain.
pub const SESSION_PAYLOAD: usize = 63;
/// Length in octets of the first message of a session: a key, and the payload sealed.
pub const SESSION_FIRST: usize = 32 + SESSION_FIRST_PAYLOAD + SEAL;
/// Length in octets of the second message of a session: a key, a sealed key, and the payload sealed.
pub const SESSION_SECOND: usize = 32 + 32 + SEAL + SESSION_PAYLOAD + SEAL;
/// Length in octets of the third message of a session: a sealed key, and the payload sealed.
pub const SESSION_THIRD: usize = 32 + SEAL + SESSION_PAYLOAD + SEAL;

/// A router, and the way to it from a router on the receiver's route to the sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hint {
    /// The router.
    pub id: NodeId,
    /// Cost of what is behind the router where the way turns off.
    pub cost: u16,
    /// Links at the end of the receiver's route to the sender that the way does not take.
    pub back: u16,
    /// Labels from there on, that of the router where it turns off first.
    pub onward: Labels,
}

impl Hint {
    fn parse(reader: &mut Reader<'_>) -> Result<Hint, Malformed> {
        let (id, cost) = (NodeId::new(reader.u64()?), reader.u16()?);
        let (back, nibbles) = (reader.u16()?, reader.u16()?);
        Ok(Hint { id, cost, back, onward: read_labels(reader, nibbles)? })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_bytes());
        out.extend(self.cost.to_be_bytes());
        out.extend(self.back.to_be_bytes());
        out.extend(self.onward.nibbles().to_be_bytes());
        out.extend_from_slice(self.onward.as_bytes());
    }
}

/// The hints of a message.
pub type Hints = SmallVec<[Hint; 2]>;

fn parse_hints(reader: &mut Reader<'_>) -> Result<Hints, Malformed> {
    let count = reader.u8()?;
    if usize::from(count) > MAX_HINTS {
        return Err(reader.fault("expected at most 16 hints"));
    }
    (0..count).map(|_| Hint::parse(reader)).collect()
}

fn emit_hints(hints: &[Hint], out: &mut Vec<u8>) {
    let hints = &hints[..hints.len().min(MAX_HINTS)];
    out.push(hints.len() as u8);
    hints.iter().for_each(|hint| hint.emit(out));
}

/// Tags of routers.
pub type Tags = SmallVec<[Tag; 8]>;

/// What a LOOKUP_APART avoids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Avoided {
    /// Whether only the links of the route are avoided, and not its routers.
    pub links_alone: bool,
    /// Whether the record is not cut: it is longer, and whoever comes back to a router comes back to each before it.
    pub uncut: bool,
    /// Tags of the routers of the route in order, without its origin, and of its end; at most [`MAX_AVOIDED`].
    pub route: Tags,
    /// Tags of the routers that it has come to, at most [`MAX_PASSED`].
    pub passed: Tags,
}

impl Avoided {
    fn parse(reader: &mut Reader<'_>) -> Result<Avoided, Malformed> {
        let [flags, route, passed] = reader.array()?;
        if usize::from(route) > MAX_AVOIDED || usize::from(passed) > MAX_PASSED {
            return Err(reader.fault("expected at most 32 tags to avoid and 64 of the way"));
        }
        let mut tags = |count| -> Result<Tags, Malformed> {
            (0..count).map(|_| reader.u32().map(Tag)).collect()
        };
        let (links_alone, uncut) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Avoided { links_alone, uncut, route: tags(route)?, passed: tags(passed)? })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let counts = [&self.route, &self.passed].map(|tags| tags.len() as u8);
        out.push(u8::from(self.links_alone) | u8::from(self.uncut) << 1);
        out.extend(counts);
        let tags = self.route.iter().chain(&self.passed);
        tags.for_each(|tag| out.extend(tag.0.to_be_bytes()));
    }
}

fn parse_sequence(reader: &mut Reader<'_>) -> Result<Sequence, Malformed> {
    Ok(Sequence { epoch: reader.u32()?, count: reader.u32()? })
}

fn emit_sequence(sequence: Sequence, out: &mut Vec<u8>) {
    out.extend(sequence.epoch.to_be_bytes());
    out.extend(sequence.count.to_be_bytes());
}

/// CONNECT and its answer: the identity of the sender, and contacts for the receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The sender's proof, unverified.
    pub proof: Proof,
    /// The order of the sender's statements.
    pub sequence: Sequence,
    /// The sender's start.
    pub instance: Instance,
    /// The sender's part of the ring has not changed for some time.
    pub settled: bool,
    /// The sender is an end of the line and looks for the other.
    pub wrap: bool,
    /// The sender's contacts that are closest to the receiver.
    pub hints: Hints,
}

/// The contents of a message, but for the code or the signature at its end.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Body<'a> {
    /// CONNECT and CONNECT_ACK.
    Connect(Connect),
    /// INTRODUCE: the receiver should connect to this router.
    Introduce(Hint),
    /// LOOKUP.
    LookUp {
        /// The sender's number for the session.
        index: u32,
        /// The first message of the session.
        noise: &'a [u8],
        /// The key that the router for whom the message is sends it on to.
        onward: Option<NodeId>,
    },
    /// LOOKUP_APART.
    LookUpApart {
        /// The sender's number for the session.
        index: u32,
        /// The first message of the session.
        noise: &'a [u8],
        /// What is avoided.
        avoided: Avoided,
    },
    /// LOOKUP_ACK.
    LookUpAck {
        /// The sender's number for the session.
        index: u32,
        /// The receiver's, from its LOOKUP.
        receiver: u32,
        /// The second message of the session.
        noise: &'a [u8],
    },
    /// CONFIRM.
    Confirm {
        /// The receiver's number for the session, from its LOOKUP_ACK.
        receiver: u32,
        /// The third message of the session.
        noise: &'a [u8],
    },
    /// PAYLOAD.
    Payload {
        /// The application.
        application: u16,
        /// The sender's proof, unverified.
        proof: Proof,
        /// At most [`MAX_PAYLOAD`].
        octets: &'a [u8],
    },
    /// NOT_RESPONSIBLE: a signed statement.
    Statement {
        /// The sender's proof, unverified.
        proof: Proof,
        /// The order of the sender's statements.
        sequence: Sequence,
    },
}

/// The end of a body, by which its sender is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seal {
    /// Nothing: the contents are sealed by themselves, or only a hint.
    None,
    /// A signature.
    Signature([u8; SIGNATURE]),
}

impl<'a> Body<'a> {
    /// Parses the body of a message. Returns the octets that the seal covers, and the seal.
    pub fn parse(
        message: Message,
        bytes: &'a [u8],
    ) -> Result<(Body<'a>, &'a [u8], Seal), Malformed> {
        let mut reader = Reader::new("expected the whole body of a message", bytes);
        let body = Body::contents(message, &mut reader)?;
        let covered = &bytes[..reader.position()];
        let seal = match message {
            Message::LookUp
            | Message::LookUpApart
            | Message::LookUpAck
            | Message::Confirm
            | Message::Introduce => Seal::None,
            _ => Seal::Signature(reader.array()?),
        };
        reader.end()?;
        Ok((body, covered, seal))
    }

    fn contents(message: Message, reader: &mut Reader<'a>) -> Result<Body<'a>, Malformed> {
        Ok(match message {
            Message::Connect | Message::ConnectAck => {
                let proof = Proof::from_bytes(&reader.array()?);
                let sequence = parse_sequence(reader)?;
                let instance = Instance(reader.u32()?);
                let flags = reader.u8()?;
                Body::Connect(Connect {
                    proof,
                    sequence,
                    instance,
                    settled: flags & 1 != 0,
                    wrap: flags & 2 != 0,
                    hints: parse_hints(reader)?,
                })
            }
            Message::Introduce => Body::Introduce(Hint::parse(reader)?),
            Message::LookUp => {
                let (index, noise) = (reader.u32()?, reader.take(SESSION_FIRST)?);
                let onward = match reader.is_at_end() {
                    true => None,
                    false => Some(NodeId::new(reader.u64()?)),
                };
                Body::LookUp { index, noise, onward }
            }
            Message::LookUpApart => {
                let (index, noise) = (reader.u32()?, reader.take(SESSION_FIRST)?);
                Body::LookUpApart { index, noise, avoided: Avoided::parse(reader)? }
            }
            Message::LookUpAck => {
                let (index, receiver) = (reader.u32()?, reader.u32()?);
                Body::LookUpAck { index, receiver, noise: reader.take(SESSION_SECOND)? }
            }
            Message::Confirm => {
                Body::Confirm { receiver: reader.u32()?, noise: reader.take(SESSION_THIRD)? }
            }
            Message::Payload => {
                let application = reader.u16()?;
                let proof = Proof::from_bytes(&reader.array()?);
                let octets = reader.rest_before(SIGNATURE)?;
                if octets.len() > MAX_PAYLOAD {
                    return Err(reader.fault("expected a PAYLOAD of at most 1000 octets"));
                }
                Body::Payload { application, proof, octets }
            }
            Message::NotResponsible => {
                let proof = Proof::from_bytes(&reader.array()?);
                Body::Statement { proof, sequence: parse_sequence(reader)? }
            }
        })
    }

    /// Appends the contents, which the seal is computed over and appended to.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Body::Connect(connect) => {
                out.extend(connect.proof.to_bytes());
                emit_sequence(connect.sequence, out);
                out.extend(connect.instance.0.to_be_bytes());
                let flags = [(connect.settled, 1), (connect.wrap, 2)];
                out.push(flags.iter().map(|&(is, bit)| if is { bit } else { 0 }).sum());
                emit_hints(&connect.hints, out);
            }
            Body::Introduce(hint) => hint.emit(out),
            Body::LookUp { index, noise, onward } => {
                out.extend(index.to_be_bytes());
                out.extend_from_slice(noise);
                out.extend(onward.iter().flat_map(|key| key.to_bytes()));
            }
            Body::LookUpApart { index, noise, avoided } => {
                out.extend(index.to_be_bytes());
                out.extend_from_slice(noise);
                avoided.emit(out);
            }
            Body::LookUpAck { index, receiver, noise } => {
                out.extend(index.to_be_bytes());
                out.extend(receiver.to_be_bytes());
                out.extend_from_slice(noise);
            }
            Body::Confirm { receiver, noise } => {
                out.extend(receiver.to_be_bytes());
                out.extend_from_slice(noise);
            }
            Body::Payload { application, proof, octets } => {
                out.extend(application.to_be_bytes());
                out.extend(proof.to_bytes());
                out.extend_from_slice(octets);
            }
            Body::Statement { proof, sequence } => {
                out.extend(proof.to_bytes());
                emit_sequence(*sequence, out);
            }
        }
    }
}

impl Seal {
    /// Appends the seal.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Seal::None => {}
            Seal::Signature(signature) => out.extend(signature),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::labels::tests::labels;
    use super::super::{Route, Slot};
    use super::*;
    use proptest::prelude::*;

    const ALL: [Message; 9] = [
        Message::Connect,
        Message::ConnectAck,
        Message::Introduce,
        Message::LookUp,
        Message::LookUpAck,
        Message::Payload,
        Message::NotResponsible,
        Message::Confirm,
        Message::LookUpApart,
    ];

    fn hint() -> Hint {
        let onward = Route::direct(Slot(7)).onward(Slot(8)).unwrap();
        Hint { id: NodeId::new(5), cost: 6, back: 7, onward }
    }

    fn seal(message: Message) -> Seal {
        match message {
            Message::LookUp
            | Message::LookUpApart
            | Message::LookUpAck
            | Message::Confirm
            | Message::Introduce => Seal::None,
            _ => Seal::Signature([9; SIGNATURE]),
        }
    }

    fn body(message: Message, hints: Hints, octets: &[u8]) -> Body<'_> {
        let proof = Proof { key: [1; 32], modifier: [2; 16] };
        let sequence = Sequence { epoch: 3, count: 4 };
        let hint = || hints.first().cloned().unwrap_or_else(hint);
        match message {
            Message::Connect | Message::ConnectAck => {
                let (instance, settled, wrap) = (Instance(5), true, false);
                Body::Connect(Connect { proof, sequence, instance, settled, wrap, hints })
            }
            Message::Introduce => Body::Introduce(hint()),
            Message::LookUp => {
                let onward = octets.first().map(|&octet| NodeId::new(octet.into()));
                Body::LookUp { index: 1, noise: &[3; SESSION_FIRST], onward }
            }
            Message::LookUpApart => {
                let tags = |most| octets.iter().take(most).map(|&octet| Tag(octet.into()));
                let avoided = Avoided {
                    links_alone: octets.len() % 2 == 1,
                    uncut: octets.len() % 4 > 1,
                    route: tags(MAX_AVOIDED).collect(),
                    passed: tags(MAX_PASSED).collect(),
                };
                Body::LookUpApart { index: 1, noise: &[3; SESSION_FIRST], avoided }
            }
            Message::LookUpAck => {
                Body::LookUpAck { index: 1, receiver: 2, noise: &[3; SESSION_SECOND] }
            }
            Message::Confirm => Body::Confirm { receiver: 2, noise: &[3; SESSION_THIRD] },
            Message::Payload => Body::Payload { application: 10, proof, octets },
            Message::NotResponsible => Body::Statement { proof, sequence },
        }
    }

    fn written(message: Message, body: &Body<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        body.emit(&mut out);
        seal(message).emit(&mut out);
        out
    }

    #[test]
    fn lengths_are_those_of_the_table() {
        let empty = Hint { id: NodeId::new(1), cost: 0, back: 0, onward: Labels::default() };
        let length = |message| {
            let hints = match message {
                Message::Introduce => Hints::from_elem(empty.clone(), 1),
                _ => Hints::new(),
            };
            written(message, &body(message, hints, &[])).len()
        };
        assert_eq!(ALL.map(length), [126, 126, 14, 68, 167, 114, 120, 131, 71]);
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let hints = Hints::from_elem(hint(), MAX_HINTS);
        let mut out = written(Message::Connect, &body(Message::Connect, hints, &[]));
        out[61] += 1;
        let refused = Body::parse(Message::Connect, &out).unwrap_err();
        assert_eq!(refused.to_string(), "expected at most 16 hints, got octet 0x11 at octet 61");
        let long = [0; MAX_PAYLOAD + 1];
        let out = written(Message::Payload, &body(Message::Payload, Hints::new(), &long));
        let refused = Body::parse(Message::Payload, &out).unwrap_err().to_string();
        assert!(refused.starts_with("expected a PAYLOAD of at most 1000 octets"), "{refused}");
        assert!(Body::parse(Message::Payload, &out[..113]).is_err());
        let tags = Tags::from_elem(Tag(1), MAX_AVOIDED + 1);
        let avoided = Avoided { route: tags, ..Avoided::default() };
        let body = Body::LookUpApart { index: 1, noise: &[3; SESSION_FIRST], avoided };
        let out = written(Message::LookUpApart, &body);
        let refused = Body::parse(Message::LookUpApart, &out).unwrap_err().to_string();
        assert!(refused.starts_with("expected at most 32 tags to avoid"), "{refused}");
    }

    proptest! {
        #[test]
        fn bodies_are_parsed_back(
            hints in proptest::collection::vec((any::<u64>(), any::<[u16; 2]>(), labels()), 0..4),
            octets in proptest::collection::vec(any::<u8>(), 0..MAX_PAYLOAD),
        ) {
            let hint = |(id, [cost, back], onward): (u64, [u16; 2], Labels)| {
                Hint { id: NodeId::new(id), cost, back, onward }
            };
            let hints: Hints = hints.into_iter().map(hint).collect();
            for message in ALL {
                let body = body(message, hints.clone(), &octets);
                let out = written(message, &body);
                let (read, covered, end) = Body::parse(message, &out).unwrap();
                prop_assert_eq!((read, end), (body.clone(), seal(message)));
                let mut unsealed = Vec::new();
                body.emit(&mut unsealed);
                prop_assert_eq!(covered, &unsealed[..]);
            }
        }

        #[test]
        fn any_octets_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), message in 0..ALL.len()) {
            let _ = Body::parse(ALL[message], &bytes);
        }
    }
}
