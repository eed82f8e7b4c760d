//! The keys of a hostile router's links, learnt by passing through its handshakes once more.

use ringway_mesh::crypto::stand_in::Keys;
use ringway_mesh::crypto::{CodeKey, Crypto, NetworkKey, Purpose, Role, StandIn};
use ringway_mesh::id::Instance;
use ringway_mesh::wire::handshake::LinkPayload;
use ringway_mesh::wire::{Conf, Control, DataView, Init, Kind, Resp, SEAL};
use ringway_mesh::{Identity, NodeId};
use std::collections::{BTreeMap, VecDeque};

/// Length in octets of a key in a handshake.
const KEY: usize = 32;
/// Handshakes that are remembered.
const MAX_OPENINGS: usize = 64;

/// A handshake under way.
struct Opening {
    peer: u16,
    is_ours: bool,
    initiator: u32,
    responder: u32,
    first: Vec<u8>,
    second: Vec<u8>,
}

/// A link.
struct Link {
    keys: Keys,
    code: CodeKey,
    sent: u32,
    data_sent: u32,
}

/// What every neighbour of a router knows of it.
#[derive(Clone, Copy)]
pub(super) struct Acquaintance {
    pub(super) id: NodeId,
    pub(super) instance: Instance,
    pub(super) hello_key: CodeKey,
}

/// The links of a hostile router.
pub(super) struct LinkKeys {
    identity: Identity,
    openings: VecDeque<Opening>,
    /// By neighbour, and its number for the link.
    links: BTreeMap<(u16, u32), Link>,
    /// The neighbour's number for its newest link.
    newest: BTreeMap<u16, u32>,
    /// By neighbour.
    pub(super) known: BTreeMap<u16, Acquaintance>,
}

impl LinkKeys {
    pub(super) fn new(identity: Identity) -> Self {
        LinkKeys {
            identity,
            openings: VecDeque::new(),
            links: BTreeMap::new(),
            newest: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// Returns the neighbours with a link.
    pub(super) fn peers(&self) -> Vec<u16> {
        self.newest.keys().copied().collect()
    }

    /// Notes a packet of a handshake with a neighbour.
    pub(super) fn note(&mut self, peer: u16, is_sent: bool, bytes: &[u8]) {
        match Kind::of(bytes) {
            Ok(Kind::Init) => {
                let Ok(init) = Init::parse(bytes) else { return };
                let (initiator, first) = (init.sender, init.noise.to_vec());
                let (is_ours, second) = (is_sent, Vec::new());
                if self.openings.len() >= MAX_OPENINGS {
                    self.openings.pop_front();
                }
                let opening = Opening { peer, is_ours, initiator, responder: 0, first, second };
                self.openings.push_back(opening);
            }
            Ok(Kind::Resp) => {
                let Ok(resp) = Resp::parse(bytes) else { return };
                let is_it = |opening: &&mut Opening| {
                    opening.peer == peer
                        && opening.is_ours != is_sent
                        && opening.initiator == resp.receiver
                };
                if let Some(opening) = self.openings.iter_mut().find(is_it) {
                    (opening.responder, opening.second) = (resp.sender, resp.noise.to_vec());
                }
                if !is_sent {
                    self.meet(peer, resp.noise.get(2 * KEY + SEAL..));
                }
            }
            Ok(Kind::Conf) => {
                let Ok(conf) = Conf::parse(bytes) else { return };
                let is_it = |opening: &&Opening| {
                    opening.peer == peer
                        && opening.is_ours == is_sent
                        && opening.responder == conf.receiver
                        && !opening.second.is_empty()
                };
                if let Some(opening) = self.openings.iter().find(is_it) {
                    let is_ours = opening.is_ours;
                    let index = if is_ours { opening.responder } else { opening.initiator };
                    let link = finish(&self.identity, opening, conf.noise);
                    if let Some(link) = link.filter(|_| !self.links.contains_key(&(peer, index))) {
                        self.links.insert((peer, index), link);
                        self.newest.insert(peer, index);
                    }
                }
                if !is_sent {
                    self.meet(peer, conf.noise.get(KEY + SEAL..));
                }
            }
            _ => {}
        }
    }

    fn meet(&mut self, peer: u16, sealed: Option<&[u8]>) {
        let end = sealed.and_then(|sealed| sealed.len().checked_sub(SEAL));
        let Some((sealed, end)) = sealed.zip(end) else { return };
        if let Ok(payload) = LinkPayload::parse(&sealed[..end]) {
            let (id, hello_key) = (payload.proof.id(), CodeKey(payload.hello_key));
            let instance = payload.instance;
            self.known.insert(peer, Acquaintance { id, instance, hello_key });
        }
    }

    /// Writes a CONTROL packet with items to a neighbour, over the link that has a number for it or the newest one.
    pub(super) fn seal(
        &mut self,
        peer: u16,
        index: Option<u32>,
        items: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let index = index.or_else(|| self.newest.get(&peer).copied());
        let Some((index, link)) =
            index.and_then(|index| Some((index, self.links.get_mut(&(peer, index))?)))
        else {
            return false;
        };
        out.clear();
        Control { flags: 0, receiver: index, counter: link.sent, sealed: items }.emit(out);
        let header: [u8; Control::HEADER] = core::array::from_fn(|at| out[at]);
        StandIn::seal(&link.keys, link.sent.into(), &header, out, Control::HEADER);
        link.sent += 1;
        true
    }

    /// Completes a data packet to a neighbour.
    pub(super) fn complete(&mut self, peer: u16, bytes: &mut [u8]) -> bool {
        let Ok(mut data) = DataView::parse(bytes) else { return false };
        let index = data.receiver();
        let key = match self.links.contains_key(&(peer, index)) {
            true => (peer, index),
            false => (peer, self.newest.get(&peer).copied().unwrap_or_default()),
        };
        let Some(link) = self.links.get_mut(&key) else { return false };
        data.set_link(key.1, link.data_sent);
        link.data_sent += 1;
        let code = data.code(&link.code);
        data.set_code(code);
        true
    }
}

/// Passes through a handshake again: with the seed and the contents that were seen it yields the same keys.
fn finish(identity: &Identity, opening: &Opening, third: &[u8]) -> Option<Link> {
    let Opening { first, second, is_ours, .. } = opening;
    let contents = |bytes: &[u8], head: usize| {
        bytes.get(head..bytes.len().checked_sub(SEAL)?).map(<[u8]>::to_vec)
    };
    let (role, seed) = if *is_ours { (Role::Initiator, first) } else { (Role::Responder, second) };
    let seed = *seed.first_chunk::<KEY>()?;
    let network = &NetworkKey::OPEN;
    let mut handshake = StandIn::begin(role, Purpose::Link, identity, network, seed).ok()?;
    let mut out = Vec::new();
    if *is_ours {
        StandIn::write(&mut handshake, &contents(first, KEY)?, &mut out).ok()?;
        StandIn::read(&mut handshake, second, &mut out).ok()?;
        StandIn::write(&mut handshake, &contents(third, KEY + SEAL)?, &mut out).ok()?;
    } else {
        StandIn::read(&mut handshake, first, &mut out).ok()?;
        StandIn::write(&mut handshake, &contents(second, 2 * KEY + SEAL)?, &mut out).ok()?;
        StandIn::read(&mut handshake, third, &mut out).ok()?;
    }
    let established = StandIn::finish(handshake).ok()?;
    let [code, _] = StandIn::codes(&established.keys);
    Some(Link { keys: established.keys, code, sent: 0, data_sent: 0 })
}
