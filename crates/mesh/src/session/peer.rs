//! One session, and the search for one.

use ringway_sansio::time::sooner;
use ringway_sansio::{Random, Time};

use super::{FIRST_WAIT, SILENT, SessionAction, TRIES, UNANSWERED};
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
/// Least MTU of IPv6 in octets (RFC 8200 section 5).
const MIN_MTU: u16 = 1_280;

/// What a packet of a session contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents<'a> {
    /// A packet of a host.
    Packet(&'a [u8]),
    /// Asks for an answer. The number is 0, or that of a probe.
    KeepAlive(u64),
    /// The answer, with the number of the question.
    Alive(u64),
}

impl<'a> Contents<'a> {
    fn kind(&self) -> u8 {
        match self {
            Contents::Packet(_) => 0,
            Contents::KeepAlive(_) => 3,
            Contents::Alive(_) => 4,
        }
    }

    fn parse(bytes: &'a [u8]) -> Option<Contents<'a>> {
        match bytes.split_first()? {
            (0, packet) => Some(Contents::Packet(packet)),
            (3, number) => Some(Contents::KeepAlive(u64::from_be_bytes(number.try_into().ok()?))),
            (4, number) => Some(Contents::Alive(u64::from_be_bytes(number.try_into().ok()?))),
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
            window: ReplayWindow::new(),
        }
    }

    /// Sends the third message of the handshake until something comes.
    pub(super) fn confirmed_by(mut self, now: Time, third: Vec<u8>) -> Self {
        self.initiated = true;
        self.confirm = Some((third, now + FIRST_WAIT, 1));
        self
    }

    /// Returns the length in octets of the longest packet that passes.
    pub(super) fn mtu(&self) -> u16 {
        let overhead = DataView::overhead(self.path.route.labels.nibbles()) + TYPE;
        self.path.mtu.saturating_sub(overhead as u16)
    }

    /// The route cannot be used any more.
    pub(super) fn break_route(&mut self) {
        self.broken = true;
    }

    /// A link on the way takes packets of at most `mtu` octets. Less than IPv6 needs is not believed.
    pub(super) fn lower_mtu(&mut self, mtu: u16) {
        let overhead = DataView::overhead(self.path.route.labels.nibbles()) + TYPE;
        let least = MIN_MTU + overhead as u16;
        self.path.mtu = self.path.mtu.min(mtu.max(least));
    }

    pub(super) fn has_sent(&self, low: u32) -> bool {
        u64::from(low) < self.sent
    }

    /// Appends a packet. Returns what a report about it quotes.
    pub(super) fn seal<C: Crypto<Keys = K>>(
        &mut self,
        prefix: Prefix,
        contents: &Contents<'_>,
        hop_limit: u8,
        out: &mut Vec<u8>,
    ) -> u64 {
        let nonce = self.sent;
        self.sent += 1;
        let labels = &self.path.route.labels;
        DataView::begin(prefix, labels, hop_limit, (self.remote, nonce), out);
        let start = out.len();
        let header: [u8; 12] = core::array::from_fn(|at| out[start - 12 + at]);
        out.push(contents.kind());
        match contents {
            Contents::Packet(packet) => out.extend_from_slice(packet),
            Contents::KeepAlive(number) | Contents::Alive(number) => {
                out.extend(number.to_be_bytes());
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
        (self.waiting_since, self.asked, self.confirm) = (None, false, None);
        Some(contents)
    }

    /// Returns whether an answer is to be asked for now; only once.
    pub(super) fn asks(&mut self, now: Time) -> bool {
        let silent = self.waiting_since.is_some_and(|since| now.since(since) >= SILENT);
        silent && !self.broken && !core::mem::replace(&mut self.asked, true)
    }

    /// Returns whether there was no answer, and remembers that the route is broken.
    pub(super) fn is_unanswered(&mut self, now: Time) -> bool {
        let unanswered = self.waiting_since.is_some_and(|since| now.since(since) >= UNANSWERED);
        unanswered && !core::mem::replace(&mut self.broken, true)
    }

    /// Returns the CONFIRM if it is due again.
    pub(super) fn confirm_again(&mut self, now: Time) -> Option<SessionAction> {
        let (noise, due, sent) = self.confirm.as_mut().filter(|(_, due, _)| *due <= now)?;
        *sent += 1;
        *due = now + FIRST_WAIT * (1 << *sent);
        let (noise, is_last) = (noise.clone(), *sent > TRIES);
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
        sooner(confirm, waiting.map(|since| since + patience))
    }
}

/// A search for the owner of a prefix.
pub(super) struct Search<C: Crypto> {
    pub(super) id: MessageId,
    pub(super) index: u32,
    pub(super) tries: u32,
    pub(super) begun: Time,
    pub(super) due: Time,
    handshake: Option<C::Handshake>,
    noise: Vec<u8>,
}

impl<C: Crypto> Search<C> {
    /// Begins a handshake.
    pub(super) fn begin(
        now: Time,
        local: &LocalRouter,
        index: u32,
        random: &mut dyn Random,
    ) -> Option<Self> {
        let mut seed = [0; KEY];
        random.fill(&mut seed);
        let (identity, network) = (&local.identity, &local.network);
        let mut handshake =
            C::begin(Role::Initiator, Purpose::Session, identity, network, seed).ok()?;
        let mut noise = Vec::new();
        C::write(&mut handshake, &[0; SESSION_FIRST_PAYLOAD], &mut noise).ok()?;
        let (id, handshake) = (MessageId(random.next_u64()), Some(handshake));
        Some(Search { id, index, tries: 0, begun: now, due: now, handshake, noise })
    }

    /// Returns the question, and notes when it is due again.
    pub(super) fn ask(&mut self, now: Time, prefix: Prefix) -> SessionAction {
        self.due = now + FIRST_WAIT * (1 << self.tries);
        self.tries += 1;
        let (id, index, noise) = (self.id, self.index, self.noise.clone());
        SessionAction::LookUp { prefix, id, index, noise }
    }

    /// Ends the handshake with the second message. Returns the keys, the owner, and the third message. A forged message
    /// changes nothing.
    pub(super) fn finish(
        &mut self,
        local: &LocalRouter,
        noise: &[u8],
        mtu: u16,
    ) -> Option<(C::Keys, NodeId, Vec<u8>)> {
        let mut second = Vec::new();
        C::read(self.handshake.as_mut()?, noise, &mut second).ok()?;
        let mut handshake = self.handshake.take()?;
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

/// Waits grow to 4.8 s.
const _: () = assert!(FIRST_WAIT.as_millis() << (TRIES - 1) == 4_800);
