//! One session, and the search for one.

use ringway_sansio::time::{Duration, sooner};
use ringway_sansio::{Random, Time};

use super::{FIRST_WAIT, MAX_WAIT, SILENT, SessionAction, UNANSWERED};
use crate::crypto::{Crypto, Purpose, Role};
use crate::id::{NodeId, Prefix};
use crate::identity::{KEY, Proof};
use crate::link::ReplayWindow;
use crate::local::LocalRouter;
use crate::wire::bodies::{SESSION_FIRST_PAYLOAD, SESSION_PAYLOAD};
use crate::wire::{DataView, MessageId, Route};

/// Words of the window of a session: packets may overtake each other by 4,032.
const WINDOW: usize = 64;
/// Octets of the type of the contents.
const TYPE: usize = 1;
/// Times that a CONFIRM is sent.
const CONFIRMS: u32 = 5;
/// Packets after which sent and received are compared.
const MANY: u64 = 8;
/// Time in which a packet must have come by a new route, or four times as long as the search took.
const PROOF: Duration = Duration::from_millis(700);
/// Least MTU of IPv6 in octets (RFC 8200 section 5).
const MIN_MTU: u16 = 1_280;

/// What a packet of a session contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents<'a> {
    /// A packet of a host.
    Packet(&'a [u8]),
    /// Asks for an answer. The number is 0, or that of a probe.
    KeepAlive(u64),
    /// The answer, with the number of the question, and how many packets of the session have come.
    Alive(u64, u64),
}

impl<'a> Contents<'a> {
    fn kind(&self) -> u8 {
        match self {
            Contents::Packet(_) => 0,
            Contents::KeepAlive(_) => 3,
            Contents::Alive(..) => 4,
        }
    }

    fn parse(bytes: &'a [u8]) -> Option<Contents<'a>> {
        match bytes.split_first()? {
            (0, packet) => Some(Contents::Packet(packet)),
            (3, number) => Some(Contents::KeepAlive(u64::from_be_bytes(number.try_into().ok()?))),
            (4, numbers) if numbers.len() == 16 => {
                let (number, received) = numbers.split_first_chunk()?;
                let received = u64::from_be_bytes(received.try_into().ok()?);
                Some(Contents::Alive(u64::from_be_bytes(*number), received))
            }
            _ => None,
        }
    }
}

/// A session with the owner of a prefix.
pub(super) struct Session<K> {
    pub(super) index: u32,
    /// The owner's number for the session.
    pub(super) remote: u32,
    pub(super) owner: NodeId,
    pub(super) path: Path,
    pub(super) since: Time,
    /// Whether we have looked the owner up, so that it is on us to renew.
    pub(super) initiated: bool,
    pub(super) broken: bool,
    /// When the first packet was sent since the last that came.
    pub(super) waiting_since: Option<Time>,
    asked: bool,
    /// The CONFIRM, when it is due again, and how often it was sent, until something comes.
    confirm: Option<(Vec<u8>, Time, u32)>,
    keys: K,
    sent: u64,
    received: u64,
    /// Packets sent and received by the peer, when the two were last compared.
    compared: (u64, u64),
    /// When a route that nothing has come by counts as broken.
    prove_by: Option<Time>,
    window: ReplayWindow<WINDOW>,
}

/// The way to the owner of a prefix.
#[derive(Clone)]
pub(super) struct Path {
    pub(super) route: Route,
    /// Smallest MTU of the links on the way.
    pub(super) mtu: u16,
    /// The mark that routers on the way have of the route.
    pub(super) mark: u32,
}

impl<K> Session<K> {
    /// A session with `owner`, whose number for it is `remote`.
    pub(super) fn new(
        now: Time,
        owner: NodeId,
        (index, remote): (u32, u32),
        keys: K,
        path: Path,
    ) -> Self {
        Session {
            index,
            remote,
            owner,
            path,
            since: now,
            initiated: false,
            broken: false,
            waiting_since: None,
            asked: false,
            confirm: None,
            keys,
            sent: 0,
            received: 0,
            compared: (0, 0),
            prove_by: None,
            window: ReplayWindow::new(),
        }
    }

    /// Sends the third message of the handshake until something comes.
    pub(super) fn confirmed_by(mut self, now: Time, third: Vec<u8>, round_trip: Duration) -> Self {
        self.initiated = true;
        self.prove_by = Some(now + PROOF.max(round_trip * 4));
        self.confirm = Some((third, now + FIRST_WAIT, 1));
        self
    }

    /// Returns the length in octets of the longest packet that passes.
    pub(super) fn mtu(&self) -> u16 {
        let overhead = DataView::overhead(self.path.route.labels.nibbles()) + TYPE;
        self.path.mtu.saturating_sub(overhead as u16)
    }

    /// Returns the MTU of a way that carries what IPv6 needs with these labels.
    pub(super) fn needed(labels: u16) -> u16 {
        MIN_MTU + (DataView::overhead(labels) + TYPE) as u16
    }

    /// The route cannot be used any more.
    pub(super) fn break_route(&mut self) {
        self.broken = true;
    }

    /// A link on the way takes packets of at most `mtu` octets. Less than IPv6 needs is not believed.
    pub(super) fn lower_mtu(&mut self, mtu: u16) {
        let least = Self::needed(self.path.route.labels.nibbles());
        self.path.mtu = self.path.mtu.min(mtu.max(least));
    }

    pub(super) fn has_sent(&self, low: u32) -> bool {
        u64::from(low) < self.sent
    }

    /// Appends a packet. Returns what a report about it quotes.
    pub(super) fn seal<C: Crypto<Keys = K>>(
        &mut self,
        contents: &Contents<'_>,
        hop_limit: u8,
        out: &mut Vec<u8>,
    ) -> u64 {
        let nonce = self.sent;
        self.sent += 1;
        let labels = &self.path.route.labels;
        DataView::begin(labels, hop_limit, (self.remote, nonce), out);
        let start = out.len();
        let header: [u8; 12] = core::array::from_fn(|at| out[start - 12 + at]);
        out.push(contents.kind());
        match contents {
            Contents::Packet(packet) => out.extend_from_slice(packet),
            Contents::KeepAlive(number) => out.extend(number.to_be_bytes()),
            Contents::Alive(number, received) => {
                out.extend(number.to_be_bytes());
                out.extend(received.to_be_bytes());
            }
        }
        C::seal(&self.keys, nonce, &header, out, start);
        DataView::quoted(self.remote, nonce)
    }

    pub(super) fn open<'a, C: Crypto<Keys = K>>(
        &mut self,
        nonce: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<Contents<'a>> {
        if !self.window.is_fresh(nonce) {
            return None;
        }
        let contents = Contents::parse(C::open(&self.keys, nonce, header, sealed)?)?;
        self.window.note(nonce);
        self.received += 1;
        (self.waiting_since, self.asked, self.confirm) = (None, false, None);
        if let Contents::Alive(_, received) = contents {
            self.compare(received);
        }
        Some(contents)
    }

    /// Compares how many packets the peer has received with what was sent since it last said so. A router on the way may let
    /// pass only what shows that it is there.
    fn compare(&mut self, received: u64) {
        let (sent_before, received_before) = self.compared;
        let sent = self.sent.saturating_sub(sent_before);
        if sent >= MANY {
            self.broken |= received.saturating_sub(received_before) < sent / 2;
            self.compared = (self.sent, received);
        }
    }

    /// Returns how many packets have come.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns whether a packet has shown that the route carries packets in both directions.
    pub(super) fn is_proved(&self) -> bool {
        self.received > 0
    }

    /// Returns whether an answer is to be asked for now; only once.
    pub(super) fn asks(&mut self, now: Time) -> bool {
        let silent = self.waiting_since.is_some_and(|since| now.since(since) >= SILENT);
        silent && !self.broken && !core::mem::replace(&mut self.asked, true)
    }

    /// Returns whether there was no answer, and remembers that the route is broken.
    pub(super) fn is_unanswered(&mut self, now: Time) -> bool {
        let unanswered = self.waiting_since.is_some_and(|since| now.since(since) >= UNANSWERED);
        let unproved = !self.is_proved() && self.prove_by.is_some_and(|by| by <= now);
        (unanswered || unproved) && !core::mem::replace(&mut self.broken, true)
    }

    /// Returns the CONFIRM if it is due again.
    pub(super) fn confirm_again(&mut self, now: Time) -> Option<SessionAction> {
        let (noise, due, sent) = self.confirm.as_mut().filter(|(_, due, _)| *due <= now)?;
        *sent += 1;
        *due = now + FIRST_WAIT * (1 << *sent);
        let (noise, is_last) = (noise.clone(), *sent > CONFIRMS);
        if is_last {
            self.confirm = None;
            return None;
        }
        let (to, route, receiver) = (self.owner, self.path.route.clone(), self.remote);
        Some(SessionAction::Confirm { to, route, receiver, noise })
    }

    /// Returns when something is due.
    pub(super) fn due(&self) -> Option<Time> {
        let confirm = self.confirm.as_ref().map(|&(_, due, _)| due);
        let patience = if self.asked { UNANSWERED } else { SILENT };
        let waiting = self.waiting_since.filter(|_| !self.broken);
        let prove_by = self.prove_by.filter(|_| !self.broken && !self.is_proved());
        sooner(sooner(confirm, prove_by), waiting.map(|since| since + patience))
    }
}

/// A search for the owner of a prefix.
pub(super) struct Search {
    pub(super) id: MessageId,
    pub(super) index: u32,
    pub(super) begun: Time,
    pub(super) tries: u32,
    pub(super) due: Time,
    /// Who has stated that it is not the owner.
    pub(super) denied_by: Option<NodeId>,
    seed: [u8; KEY],
}

impl Search {
    /// A search that nothing was sent for.
    pub(super) fn new(now: Time, index: u32, random: &mut dyn Random) -> Self {
        let mut seed = [0; KEY];
        random.fill(&mut seed);
        let id = MessageId(random.next_u64());
        Search { id, index, begun: now, tries: 0, due: now, denied_by: None, seed }
    }

    /// Begins the handshake: it is the same each time, and any answer may be the first that is true. Returns the handshake
    /// and the first message.
    fn begin<C: Crypto>(&self, local: &LocalRouter) -> Option<(C::Handshake, Vec<u8>)> {
        let (identity, network) = (&local.identity, &local.network);
        let mut handshake =
            C::begin(Role::Initiator, Purpose::Session, identity, network, self.seed).ok()?;
        let mut noise = Vec::new();
        C::write(&mut handshake, &[0; SESSION_FIRST_PAYLOAD], &mut noise).ok()?;
        Some((handshake, noise))
    }

    /// Returns the question, and notes when it is due again. From the second time on it goes `by_another` way.
    pub(super) fn ask<C: Crypto>(
        &mut self,
        now: Time,
        local: &LocalRouter,
        prefix: Prefix,
        by_another: bool,
    ) -> Option<SessionAction> {
        let by_another = by_another || self.tries > 0;
        self.due = now + (FIRST_WAIT * (1 << self.tries.min(8))).min(MAX_WAIT);
        self.tries += 1;
        let (_, noise) = self.begin::<C>(local)?;
        let (id, index) = (self.id, self.index);
        Some(SessionAction::LookUp { prefix, id, index, noise, by_another })
    }

    /// Ends the handshake with the second message. Returns the keys, the owner, and the third message. A message of
    /// somebody else changes nothing.
    pub(super) fn finish<C: Crypto>(
        &self,
        local: &LocalRouter,
        noise: &[u8],
        mtu: u16,
    ) -> Option<(C::Keys, NodeId, Vec<u8>)> {
        let (mut handshake, _) = self.begin::<C>(local)?;
        let mut second = Vec::new();
        C::read(&mut handshake, noise, &mut second).ok()?;
        let mut third = Vec::new();
        C::write(&mut handshake, &payload(local, mtu), &mut third).ok()?;
        let (keys, owner, _) = establish::<C>(local, handshake, &second)?;
        Some((keys, owner, third))
    }
}

/// Returns what the second and the third message contain: the sender's proof, its start, and the MTU of the way to it.
pub(super) fn payload(local: &LocalRouter, mtu: u16) -> [u8; SESSION_PAYLOAD] {
    let mut payload = [0; SESSION_PAYLOAD];
    payload[..Proof::LENGTH].copy_from_slice(&local.identity.proof().to_bytes());
    payload[Proof::LENGTH..][..4].copy_from_slice(&local.instance.0.to_be_bytes());
    payload[Proof::LENGTH + 4..][..2].copy_from_slice(&mtu.to_be_bytes());
    payload
}

/// Ends a handshake, and checks that the proof in the peer's payload is of the key that the handshake used.
pub(super) fn establish<C: Crypto>(
    local: &LocalRouter,
    handshake: C::Handshake,
    payload: &[u8],
) -> Option<(C::Keys, NodeId, u16)> {
    let proof = Proof::from_bytes(payload.first_chunk()?);
    let mtu = payload.get(Proof::LENGTH + 4..)?.first_chunk().copied().map(u16::from_be_bytes)?;
    let owner = C::verify_proof(&proof, local.extension_bits).ok()?;
    let established = C::finish(handshake).ok()?;
    let is_key = C::static_key(&proof.key) == Some(established.peer);
    (is_key && owner != local.id()).then_some((established.keys, owner, mtu))
}
