//! Packets and items that hostile routers make up.

use super::keys::Acquaintance;
use ringway_mesh::crypto::{CodeKey, Crypto, Domain, NetworkKey, Purpose, Role, StandIn};
use ringway_mesh::id::{Instance, Sequence};
use ringway_mesh::metric::Space;
use ringway_mesh::wire::bodies::{Connect, SESSION_FIRST_PAYLOAD, SESSION_PAYLOAD, Seal};
use ringway_mesh::wire::control::{Code, ErrorReport};
use ringway_mesh::wire::handshake::{COOKIE, InitPayload};
use ringway_mesh::wire::hello::{Hello, MAX_REPORTS, Report};
use ringway_mesh::wire::{
    Body, Hint, Hints, Init, Item, Labels, Message, MessageId, Record, Route, Routed, Slot,
};
use ringway_mesh::{Identity, NodeId, Proof, Ring};
use ringway_sansio::{Random, SplitMix};

/// Appends an item; one that is too long is left out.
pub(super) fn put(item: &Item<'_>, out: &mut Vec<u8>) {
    let _ = item.emit(out);
}

/// Returns a message as an item, as it is.
pub(super) fn written(message: &Routed<'_>) -> Vec<u8> {
    let (mut body, mut item) = (Vec::new(), Vec::new());
    message.emit(&mut body);
    put(&Item::Routed(&body), &mut item);
    item
}

/// Returns a message as an item, signed by `identity` if its kind is.
pub(super) fn message(identity: &Identity, message: Routed<'_>, body: &Body<'_>) -> Vec<u8> {
    let mut contents = Vec::new();
    body.emit(&mut contents);
    if matches!(body, Body::Connect(_) | Body::Statement { .. }) {
        let mut signed = Vec::new();
        message.put_signed(&contents, &mut signed);
        Seal::Signature(StandIn::sign(identity, Domain::Message, &signed)).emit(&mut contents);
    }
    written(&Routed { body: &contents, ..message })
}

/// Returns a message from `origin` that goes on by the ring from the neighbour `at`.
pub(super) fn greedy<'a>(
    kind: Message,
    origin: NodeId,
    target: NodeId,
    at: NodeId,
    random: &mut SplitMix,
) -> Routed<'a> {
    let id = MessageId(random.next_u64());
    let mut message = Routed::new(kind, id, origin, target, &Route::direct(Slot(0)), &[]);
    (message.flags.greedy, message.best) = (true, Ring::distance(at, target));
    message
}

/// Returns the body of a CONNECT of `identity`.
pub(super) fn connect(identity: &Identity, hints: Hints) -> Connect {
    Connect {
        proof: *identity.proof(),
        sequence: Sequence { epoch: u32::MAX, count: 1 },
        instance: Instance(1),
        settled: true,
        wrap: false,
        hints,
    }
}

/// Returns hints of routers that do not exist, on both sides of `around`.
pub(super) fn false_hints(around: NodeId, count: usize, random: &mut SplitMix) -> Hints {
    let hint = |_| {
        let (span, labels) = (random.next_u64() >> (8 + random.next_u64() % 40), random.next_u64());
        let raw = around.raw();
        let id = if labels & 1 == 0 { raw.wrapping_add(span) } else { raw.wrapping_sub(span) };
        let mut onward = Labels::default();
        for label in 0..1 + labels % 4 {
            // Short enough for any route.
            let _ = onward.push(Slot((labels >> (8 * label + 8)) as u16 & 7), Slot(0));
        }
        Hint { id: NodeId::new(id), cost: 0, back: 0, onward }
    };
    (0..count).map(hint).collect()
}

/// Returns the answer to a request that came from a neighbour, along the way that it has recorded.
fn back<'a>(request: &Routed<'_>, kind: Message, origin: NodeId) -> Option<Routed<'a>> {
    let record = request.record.as_ref()?;
    let mut answer =
        Routed::new(kind, request.id, origin, request.origin, &Route::direct(Slot(0)), &[]);
    answer.labels = record.labels().clone();
    (answer.at, answer.flags.reverse, answer.record) = (answer.labels.nibbles(), true, None);
    Some(answer)
}

/// Returns the statement that nobody has the prefix that a LOOKUP is for.
pub(super) fn denial(identity: &Identity, request: &Routed<'_>) -> Option<Vec<u8>> {
    let answer = back(request, Message::NotResponsible, identity.id())?;
    let sequence = Sequence { epoch: u32::MAX, count: 2 };
    Some(message(identity, answer, &Body::Statement { proof: *identity.proof(), sequence }))
}

/// Returns a CONNECT_ACK in the name of the target of a CONNECT, signed by `identity`.
pub(super) fn false_ack(identity: &Identity, request: &Routed<'_>) -> Option<Vec<u8>> {
    let answer = back(request, Message::ConnectAck, request.target)?;
    Some(message(identity, answer, &Body::Connect(connect(identity, Hints::new()))))
}

/// Returns a LOOKUP_ACK by `identity`, with a handshake of its own.
pub(super) fn false_session(
    identity: &Identity,
    request: &Routed<'_>,
    random: &mut SplitMix,
) -> Option<Vec<u8>> {
    let Ok((Body::LookUp { index, noise, .. }, ..)) = Body::parse(request.message, request.body)
    else {
        return None;
    };
    let mut seed = [0; 32];
    random.fill(&mut seed);
    let (role, network) = (Role::Responder, &NetworkKey::OPEN);
    let mut handshake = StandIn::begin(role, Purpose::Session, identity, network, seed).ok()?;
    let (mut first, mut second, mut payload) = (Vec::new(), Vec::new(), [0; SESSION_PAYLOAD]);
    StandIn::read(&mut handshake, noise, &mut first).ok()?;
    payload[..Proof::LENGTH].copy_from_slice(&identity.proof().to_bytes());
    payload[Proof::LENGTH + 4..][..2].copy_from_slice(&1_452u16.to_be_bytes());
    StandIn::write(&mut handshake, &payload, &mut second).ok()?;
    let answer = back(request, Message::LookUpAck, request.target)?;
    let body = Body::LookUpAck { index: random.next_u64() as u32, receiver: index, noise: &second };
    Some(message(identity, answer, &body))
}

/// Returns a LOOKUP of a handshake that nobody will continue.
pub(super) fn look_up(
    identity: &Identity,
    target: NodeId,
    at: NodeId,
    random: &mut SplitMix,
) -> Option<Vec<u8>> {
    let mut seed = [0; 32];
    random.fill(&mut seed);
    let (role, network) = (Role::Initiator, &NetworkKey::OPEN);
    let mut handshake = StandIn::begin(role, Purpose::Session, identity, network, seed).ok()?;
    let mut noise = Vec::new();
    StandIn::write(&mut handshake, &[0; SESSION_FIRST_PAYLOAD], &mut noise).ok()?;
    let mut request = greedy(Message::LookUp, identity.id(), target, at, random);
    request.flags.closest = true;
    let index = random.next_u64() as u32;
    Some(message(identity, request, &Body::LookUp { index, noise: &noise, onward: None }))
}

/// Returns a recorded CONNECT as if its origin were this router: with no way behind it, and at no cost.
pub(super) fn hijack(recorded: &[u8], at: NodeId) -> Option<Vec<u8>> {
    let mut routed = Routed::parse(recorded).ok()?;
    (routed.labels, routed.at, routed.hop_limit) = (Labels::default(), 0, u16::MAX);
    (routed.flags.greedy, routed.flags.reverse, routed.path_cost) = (true, false, 0);
    routed.best = Ring::distance(at, routed.key());
    routed.record = Some(Record::new(routed.origin.tag(routed.id.0)));
    Some(written(&routed))
}

/// Returns an ERROR to the sender of a packet that came from a neighbour, as if it could not be forwarded.
pub(super) fn report(reverse: bool, at: u16, quoted: u64, labels: &Labels) -> Vec<u8> {
    let (mut item, code, labels) = (Vec::new(), Code::LinkDown, labels.clone());
    let (reverse, by) = (!reverse, NodeId::default());
    put(&Item::Error(ErrorReport { reverse, at, code, value: 0, quoted, by, labels }), &mut item);
    item
}

/// Returns the next HELLO of a neighbour, whose key all its neighbours know. It states that nothing comes from some.
pub(super) fn false_hello(
    known: &Acquaintance,
    (stamp, sequence): (u32, u16),
    deaf_to: &[NodeId],
) -> Vec<u8> {
    let mut hello = hello(known.id, known.instance, (stamp, sequence));
    let report = |id: &NodeId| Report { tag: id.tag(0).0 as u16, received: 0, echo: 0, held: 0 };
    hello.reports = deaf_to.iter().map(report).collect();
    let mut out = Vec::new();
    // It does not have the keys of their links.
    let keys = [CodeKey([0; 16]); MAX_REPORTS];
    hello.emit(&mut out, &keys, |signed| known.hello_key.code(signed));
    out
}

/// Returns a HELLO of a router that does not exist.
pub(super) fn stray_hello(random: &mut SplitMix) -> Vec<u8> {
    let (id, instance) = (NodeId::new(random.next_u64()), Instance(random.next_u64() as u32));
    let mut out = Vec::new();
    hello(id, instance, (random.next_u64() as u32, 1)).emit(&mut out, &[], |_| [7; 8]);
    out
}

fn hello(id: NodeId, instance: Instance, (stamp, sequence): (u32, u16)) -> Hello {
    Hello { interval: u8::MAX, id, instance, sequence, stamp, reports: Default::default() }
}

/// Returns an INIT of a router that does not exist.
pub(super) fn init(identity: &Identity, random: &mut SplitMix) -> Option<Vec<u8>> {
    let mut seed = [0; 32];
    random.fill(&mut seed);
    let (role, network) = (Role::Initiator, &NetworkKey::OPEN);
    let mut handshake = StandIn::begin(role, Purpose::Link, identity, network, seed).ok()?;
    let payload = InitPayload {
        id: NodeId::new(random.next_u64()),
        instance: Instance(random.next_u64() as u32),
        hello: 1,
    };
    let (mut noise, mut out) = (Vec::new(), Vec::new());
    StandIn::write(&mut handshake, &payload.to_bytes(), &mut noise).ok()?;
    let sender = random.next_u64() as u32;
    Init { flags: 0, sender, cookie: [0; COOKIE], noise: &noise }.emit(&mut out);
    Some(out)
}
