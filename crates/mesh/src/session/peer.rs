//! One session, and the search for one.

use ringway_sansio::time::{Duration, sooner};
use ringway_sansio::{Random, Time};

use super::fragments::{LEAST_ROOM, PIECE_HEADER, Piece};
use super::renewal::{FIRST_PAUSE, MAX_PAUSE};
use super::track::{STRICT_TRIES, Track};
use super::{ASK_AGAIN, DENIED, FIRST_WAIT, MAX_WAIT, RENEW, SILENT, SessionAction, UNANSWERED};
use crate::config::LEAST_MTU;
use crate::crypto::{Crypto, Purpose, Role};
use crate::icmp::MIN_MTU;
use crate::id::NodeId;
use crate::identity::{KEY, Proof};
use crate::link::ReplayWindow;
use crate::local::LocalRouter;
use crate::wire::bodies::{SESSION_FIRST_PAYLOAD, SESSION_PAYLOAD};
use crate::wire::{DataView, MessageId, Route};

/// First octet of the neighbour in what the second and the third message of a handshake contain.
const NEIGHBOUR: usize = Proof::LENGTH + 6;
/// Words of the window of a session: packets may overtake each other by 4,032.
const WINDOW: usize = 64;
/// Octets of the type of the contents.
const TYPE: usize = 1;
/// Times that a question is asked before it is due.
const MAX_HURRIED: u32 = 24;
/// Times that a CONFIRM is sent.
const CONFIRMS: u32 = 6;
/// Time for each link of a route in which an answer comes, if that is more than [`UNANSWERED`].
const LINK_PATIENCE: Duration = Duration::from_millis(20);
/// Least time until it is sent again.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
/// Least length in octets of the contents of a keep-alive or its answer, unless the route carries less.
const SHORTEST: usize = 128;
/// Packets of a session among which keep-alives are as long as what hosts send.
const EARLY: u64 = 4;
/// Packets after which sent and received are compared.
const MANY: u64 = 8;
/// Time in which a packet must have come by a new route, or four times as long as the search took, up to [`UNANSWERED`].
const PROOF: Duration = Duration::from_millis(700);
/// The same after a route that nothing has come by, up to so many in a row; then each has up to [`UNANSWERED`].
const NEXT_PROOF: Duration = Duration::from_millis(300);
const MANY_FAILURES: u32 = 64;

/// What a packet of a session contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents<'a> {
    /// A packet of a host.
    Packet(&'a [u8]),
    /// A piece of one.
    Piece(Piece<'a>),
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
            Contents::Piece(_) => 5,
        }
    }

    fn parse(bytes: &'a [u8]) -> Option<Contents<'a>> {
        match bytes.split_first()? {
            (0, packet) => Some(Contents::Packet(packet)),
            (3, number) => Some(Contents::KeepAlive(u64::from_be_bytes(*number.first_chunk()?))),
            (4, numbers) => {
                let (number, received) = numbers.split_first_chunk()?;
                let received = u64::from_be_bytes(*received.first_chunk()?);
                Some(Contents::Alive(u64::from_be_bytes(*number), received))
            }
            (5, piece) => Piece::parse(piece).map(Contents::Piece),
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
    /// Whether the route has become longer.
    pub(super) renews: bool,
    /// When the first packet was sent since the last that came.
    pub(super) waiting_since: Option<Time>,
    /// How often an answer was asked for since then.
    asked: u32,
    /// The CONFIRM, until something comes.
    confirm: Option<Confirm>,
    keys: K,
    sent: u64,
    received: u64,
    /// Packets that had been sent when an answer was last asked for.
    sent_before: u64,
    /// Packets sent and received by the peer, when the two were last compared.
    compared: (u64, u64),
    /// When a route that nothing has come by counts as broken.
    prove_by: Option<Time>,
    /// Length in octets of the longest contents that were sent or have come.
    longest: usize,
    /// When something last came after something had been sent: what was sent has probably arrived.
    proved: Option<Time>,
    /// Packets of hosts, or their pieces, that were sent by a route of which it was not known whether it still carries
    /// packets. They are sent again if it does not.
    unsure: Vec<Unsure>,
    /// Whether the next packet is one of them.
    keeps: bool,
    /// Renewals that have failed, and when the next may begin.
    failed_renewals: u32,
    renew_after: Time,
    window: ReplayWindow<WINDOW>,
}

/// What was sent with a number: a packet, or the piece of one with an index and the number of pieces.
struct Unsure {
    nonce: u64,
    piece: Option<(u8, u8)>,
    octets: Vec<u8>,
}

impl Unsure {
    fn contents(&self) -> Contents<'_> {
        let octets = &self.octets[..];
        match self.piece {
            Some((index, count)) => Contents::Piece(Piece { index, count, octets }),
            None => Contents::Packet(octets),
        }
    }

    /// Returns whether it is a packet, or the first piece of one.
    fn is_first(&self) -> bool {
        self.piece.is_none_or(|(index, _)| index == 0)
    }
}

/// The third message of a handshake, which is sent until something comes.
struct Confirm {
    noise: Vec<u8>,
    due: Time,
    wait: Duration,
    sent: u32,
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

impl Path {
    /// Returns whether pieces of a packet are long enough for the least MTU of IPv6, which a route of many labels over narrow
    /// links does not allow.
    pub(super) fn is_wide(&self) -> bool {
        let overhead = DataView::overhead(self.route.labels.nibbles());
        usize::from(self.mtu.max(LEAST_MTU)) >= overhead + LEAST_ROOM
    }

    /// Returns the length in octets of the longest contents of a packet.
    fn room(&self) -> usize {
        let overhead = DataView::overhead(self.route.labels.nibbles());
        usize::from(self.mtu.max(LEAST_MTU)).saturating_sub(overhead).max(LEAST_ROOM)
    }
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
            renews: false,
            waiting_since: None,
            asked: 0,
            confirm: None,
            keys,
            sent: 0,
            received: 0,
            sent_before: 0,
            compared: (0, 0),
            prove_by: None,
            longest: 0,
            proved: None,
            unsure: Vec::new(),
            keeps: false,
            failed_renewals: 0,
            renew_after: now,
            window: ReplayWindow::new(),
        }
    }

    /// Sends the third message of the handshake until something comes.
    pub(super) fn confirmed_by(
        mut self,
        now: Time,
        third: Vec<u8>,
        (round_trip, search_time): (Duration, Duration),
        failures: u32,
    ) -> Self {
        self.initiated = true;
        let proof = match failures {
            0 => PROOF,
            1..MANY_FAILURES => NEXT_PROOF,
            MANY_FAILURES.. => UNANSWERED,
        };
        self.prove_by = Some(now + proof.max(search_time * 4).min(self.patience()));
        let wait = (round_trip * 2).clamp(SHORTEST_WAIT, FIRST_WAIT);
        self.confirm = Some(Confirm { noise: third, due: now + wait, wait, sent: 1 });
        self
    }

    /// Must show in its time that its route works. Packets that show it are as long as those of the session before.
    pub(super) fn on_trial(mut self, now: Time, longest: usize) -> Self {
        (self.prove_by, self.longest) = (Some(now + self.patience()), longest);
        self
    }

    /// Returns the time of sending without an answer after which the route counts as broken.
    fn patience(&self) -> Duration {
        UNANSWERED.max(LINK_PATIENCE * self.path.route.hops().into())
    }

    /// Returns whether it has not shown in its time that its route works.
    pub(super) fn has_failed(&self, now: Time) -> bool {
        self.broken || self.prove_by.is_some_and(|by| by <= now)
    }

    /// Returns when something is due before it has shown that its route works.
    pub(super) fn trial_due(&self) -> Option<Time> {
        let over = if self.broken { Some(self.since) } else { self.prove_by };
        sooner(over, self.confirm.as_ref().map(|confirm| confirm.due))
    }

    /// Returns the length in octets of the longest contents that were sent or have come.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns whether it is on us to renew the session now.
    pub(super) fn is_old(&self, now: Time) -> bool {
        let is_due = self.renews || now.since(self.since) >= RENEW;
        is_due && self.initiated && now >= self.renew_after
    }

    /// A renewal has failed.
    pub(super) fn renewal_failed(&mut self, now: Time) {
        let pause = FIRST_PAUSE * (1 << self.failed_renewals.min(8));
        self.renew_after = now + pause.min(MAX_PAUSE);
        self.failed_renewals = self.failed_renewals.saturating_add(1);
    }

    pub(super) fn has_failed_renewals(&self) -> bool {
        self.failed_renewals > 0
    }

    /// Returns the length in octets of the longest packet that passes, in pieces if need be.
    pub(super) fn mtu(&self) -> u16 {
        (self.room(TYPE) as u16).max(MIN_MTU)
    }

    /// Returns the pieces in which a packet leaves. There are none if it leaves as it is.
    pub(super) fn pieces<'a>(&self, packet: &'a [u8]) -> impl Iterator<Item = Piece<'a>> {
        let is_long = packet.len() > self.room(TYPE);
        Piece::split(packet, self.room(PIECE_HEADER)).take_while(move |_| is_long)
    }

    /// Returns how many octets of a packet pass behind a header in the contents.
    fn room(&self, header: usize) -> usize {
        self.path.room() - header
    }

    /// Goes by another route from now on.
    pub(super) fn follow(&mut self, path: Path) {
        self.path = path;
    }

    /// The route has become longer: another is looked for while it serves.
    pub(super) fn renew(&mut self) {
        self.renews = true;
    }

    /// The route cannot be used any more.
    pub(super) fn break_route(&mut self) {
        self.broken = true;
    }

    /// A link on the way takes packets of at most `mtu` octets.
    pub(super) fn lower_mtu(&mut self, mtu: u16) {
        self.path.mtu = self.path.mtu.min(mtu);
        self.broken |= !self.path.is_wide();
    }

    pub(super) fn has_sent(&self, low: u32) -> bool {
        u64::from(low) < self.sent
    }

    /// A packet of a host is sent next. It is kept until something comes, unless what was sent lately has been answered.
    /// What has come and is answered now shows nothing: each end has a route of its own, and after a detour another one.
    pub(super) fn keep_next(&mut self, now: Time, room: usize) {
        let is_sure = self.proved.is_some_and(|proved| now.since(proved) < SILENT);
        let packets = self.unsure.iter().filter(|unsure| unsure.is_first()).count();
        self.keeps = !is_sure && !self.broken && packets < room;
    }

    /// Removes the first packet of which it is not known whether it has arrived.
    pub(super) fn forget(&mut self) {
        if !self.unsure.is_empty() {
            self.unsure.remove(0);
        }
    }

    /// Returns whether packets that were sent by a broken route are to be sent by another.
    pub(super) fn is_owing(&self) -> bool {
        self.broken && !self.unsure.is_empty()
    }

    /// Removes the packets of which it is not known whether they have arrived. Of one that went in pieces it returns the
    /// first, which is enough to report it.
    pub(super) fn take_unsure(&mut self) -> impl Iterator<Item = Vec<u8>> {
        let first = core::mem::take(&mut self.unsure).into_iter().filter(Unsure::is_first);
        first.map(|unsure| unsure.octets)
    }

    /// Appends the packet at a position of those of which it is not known whether they have arrived. It is the same as before,
    /// so the peer accepts it only once. Returns `false` if there is none.
    pub(super) fn seal_again<C: Crypto<Keys = K>>(
        &mut self,
        at: usize,
        hop_limit: u8,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(unsure) = self.unsure.get(at) else { return false };
        self.write::<C>(unsure.nonce, &unsure.contents(), hop_limit, out);
        true
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
        // What is to end on the way is not missed at the end.
        self.compared.0 += u64::from(u16::from(hop_limit) + 1 < self.path.route.hops());
        // Only what has had this number is sent with it again.
        if self.keeps {
            let kept = match contents {
                Contents::Packet(octets) => Some((None, *octets)),
                Contents::Piece(Piece { index, count, octets }) => {
                    Some((Some((*index, *count)), *octets))
                }
                Contents::KeepAlive(_) | Contents::Alive(..) => None,
            };
            if let Some((piece, octets)) = kept {
                self.unsure.push(Unsure { nonce, piece, octets: octets.to_vec() });
                self.keeps = piece.is_some_and(|(index, count)| index + 1 < count);
            }
        }
        if matches!(contents, Contents::KeepAlive(_)) {
            self.sent_before = nonce;
        }
        let before = out.len() + DataView::overhead(self.path.route.labels.nibbles());
        self.write::<C>(nonce, contents, hop_limit, out);
        if matches!(contents, Contents::Packet(_) | Contents::Piece(_)) {
            self.longest = self.longest.max(out.len() - before);
        }
        DataView::quoted(self.remote, nonce)
    }

    fn write<C: Crypto<Keys = K>>(
        &self,
        nonce: u64,
        contents: &Contents<'_>,
        hop_limit: u8,
        out: &mut Vec<u8>,
    ) {
        let labels = &self.path.route.labels;
        DataView::begin(labels, hop_limit, (self.remote, nonce), out);
        let start = out.len();
        let header: [u8; 12] = core::array::from_fn(|at| out[start - 12 + at]);
        out.push(contents.kind());
        match contents {
            Contents::Packet(packet) => out.extend_from_slice(packet),
            Contents::Piece(piece) => {
                out.push(piece.numbers());
                out.extend_from_slice(piece.octets);
            }
            Contents::KeepAlive(number) => out.extend(number.to_be_bytes()),
            Contents::Alive(number, received) => {
                out.extend(number.to_be_bytes());
                out.extend(received.to_be_bytes());
            }
        }
        // A router on the way cannot drop what hosts send and let pass what shows that it does not.
        if matches!(contents, Contents::KeepAlive(_) | Contents::Alive(..)) {
            let length = if nonce < EARLY { self.longest.max(SHORTEST) } else { 0 };
            let length = length.min(self.room(0)).max(out.len() - start);
            out.resize(start + length, 0);
        }
        C::seal(&self.keys, nonce, &header, out, start);
    }

    pub(super) fn open<'a, C: Crypto<Keys = K>>(
        &mut self,
        now: Time,
        nonce: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<Contents<'a>> {
        if !self.window.is_fresh(nonce) {
            return None;
        }
        let opened = C::open(&self.keys, nonce, header, sealed)?;
        let length = opened.len();
        let contents = Contents::parse(opened)?;
        self.longest = self.longest.max(length);
        self.window.note(nonce);
        self.received += 1;
        // A question does not show that the peer has received anything.
        if !matches!(contents, Contents::KeepAlive(_)) {
            if self.waiting_since.take().is_some() {
                self.proved = Some(now);
            }
            (self.asked, self.confirm) = (0, None);
            self.unsure.clear();
        }
        if let Contents::Alive(_, received) = contents {
            self.compare(received);
        }
        Some(contents)
    }

    /// Compares how many packets the peer has received with how many had been sent when it was asked. A router on the way may
    /// let pass only what shows that it is there.
    fn compare(&mut self, received: u64) {
        let (sent_then, received_then) = self.compared;
        let sent = self.sent_before.saturating_sub(sent_then);
        if sent >= MANY {
            self.broken |= received.saturating_sub(received_then) < sent / 2;
            self.compared = (self.sent_before, received);
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

    /// Returns whether an answer is to be asked for now. A question or its answer may be lost, so there are several.
    pub(super) fn asks(&mut self, now: Time) -> bool {
        let asks = !self.broken && self.asks_at().is_some_and(|at| at <= now);
        self.asked += u32::from(asks);
        asks
    }

    fn asks_at(&self) -> Option<Time> {
        self.waiting_since.map(|since| since + SILENT + ASK_AGAIN * self.asked)
    }

    /// Returns whether there was no answer, and remembers that the route is broken.
    pub(super) fn is_unanswered(&mut self, now: Time) -> bool {
        let patience = self.patience();
        let unanswered = self.waiting_since.is_some_and(|since| now.since(since) >= patience);
        let unproved = !self.is_proved() && self.prove_by.is_some_and(|by| by <= now);
        (unanswered || unproved) && !core::mem::replace(&mut self.broken, true)
    }

    /// Returns the CONFIRM if it is due again.
    pub(super) fn confirm_again(&mut self, now: Time) -> Option<SessionAction> {
        let confirm = self.confirm.as_mut().filter(|confirm| confirm.due <= now)?;
        confirm.sent += 1;
        confirm.wait *= 2;
        confirm.due = now + confirm.wait;
        let (noise, is_last) = (confirm.noise.clone(), confirm.sent > CONFIRMS);
        if is_last {
            self.confirm = None;
            return None;
        }
        let (to, route, receiver) = (self.owner, self.path.route.clone(), self.remote);
        Some(SessionAction::Confirm { to, route, receiver, noise })
    }

    /// Returns when something is due.
    pub(super) fn due(&self) -> Option<Time> {
        let confirm = self.confirm.as_ref().map(|confirm| confirm.due);
        let unanswered = self.waiting_since.map(|since| since + self.patience());
        let waiting = sooner(self.asks_at(), unanswered).filter(|_| !self.broken);
        let prove_by = self.prove_by.filter(|_| !self.broken && !self.is_proved());
        sooner(sooner(confirm, prove_by), waiting)
    }
}

/// A handshake that we have answered.
pub(super) struct Half<C: Crypto> {
    pub(super) index: u32,
    pub(super) remote: u32,
    /// The LOOKUP, and what it was answered.
    pub(super) id: MessageId,
    pub(super) second: Vec<u8>,
    pub(super) handshake: C::Handshake,
    pub(super) path: Path,
    pub(super) since: Time,
    /// Whether it was a LOOKUP_APART.
    pub(super) is_apart: bool,
}

/// What a handshake has shown.
pub(super) struct Established<K> {
    pub(super) keys: K,
    pub(super) owner: NodeId,
    /// The MTU of the way to the owner, as it says.
    pub(super) mtu: u16,
    /// A neighbour of the owner, as it says.
    pub(super) neighbour: Option<NodeId>,
}

/// A search for the owner of a prefix.
pub(super) struct Search {
    pub(super) id: MessageId,
    pub(super) index: u32,
    pub(super) begun: Time,
    /// When the question was last sent.
    pub(super) asked: Time,
    pub(super) tries: u32,
    pub(super) due: Time,
    /// Who has stated that it is not the owner, and when it first did.
    denied: Option<(NodeId, Time)>,
    /// Whether somebody has lied about it, so that it is asked again before it is due, and how often that was done.
    pub(super) hurries: bool,
    hurried: u32,
    seed: [u8; KEY],
}

impl Search {
    /// A search that nothing was sent for.
    pub(super) fn new(now: Time, index: u32, random: &mut dyn Random) -> Self {
        let mut seed = [0; KEY];
        random.fill(&mut seed);
        let id = MessageId(random.next_u64());
        Search {
            id,
            index,
            begun: now,
            asked: now,
            tries: 0,
            due: now,
            denied: None,
            hurries: false,
            hurried: 0,
            seed,
        }
    }

    /// A router has stated that it is not the owner. Returns whether that is believed: it did so some time ago, too. Otherwise
    /// the question goes another way at once, or is asked again when that router would be believed.
    pub(super) fn is_denied(&mut self, now: Time, by: NodeId) -> bool {
        match self.denied {
            Some((signer, at)) if signer == by && now.since(at) >= DENIED => return true,
            Some((signer, at)) if signer == by => self.due = at + DENIED,
            _ => (self.denied, self.due) = (Some((by, now)), now),
        }
        false
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

    /// Somebody on the way has lied: the question is asked again at once, and that does not count. Not too often.
    pub(super) fn hurry(&mut self) {
        self.hurries = self.hurried < MAX_HURRIED;
    }

    /// The question has come back, and there is nobody else to send it to: it is due.
    pub(super) fn ends(&mut self, now: Time) {
        self.due = now;
    }

    /// Returns when something is due.
    pub(super) fn due(&self) -> Time {
        if self.hurries { self.begun } else { self.due }
    }

    /// Returns the question before it is due, if somebody has lied about it.
    pub(super) fn ask_at_once<C: Crypto>(
        &mut self,
        local: &LocalRouter,
        track: Track,
    ) -> Option<SessionAction> {
        if !core::mem::take(&mut self.hurries) {
            return None;
        }
        self.hurried += 1;
        // Routers on the way have learnt from it; but a liar may be where nobody can.
        let by_another = self.hurried.is_multiple_of(2);
        let (_, noise) = self.begin::<C>(local)?;
        let (id, index) = (self.id, self.index);
        let prefix = track.prefix();
        Some(SessionAction::LookUp { prefix, id, index, noise, by_another, via: None })
    }

    /// Returns the question, and notes when it is due again.
    pub(super) fn ask<C: Crypto>(
        &mut self,
        now: Time,
        local: &LocalRouter,
        track: Track,
        by_another: bool,
        via: Option<NodeId>,
    ) -> Option<SessionAction> {
        self.due = now + (FIRST_WAIT * (1 << self.tries.min(8))).min(MAX_WAIT);
        self.tries += 1;
        self.asked = now;
        let (_, noise) = self.begin::<C>(local)?;
        let (id, index, prefix) = (self.id, self.index, track.prefix());
        if track.is_apart() {
            let (links_alone, by_another) =
                (self.tries > STRICT_TRIES, self.tries.is_multiple_of(2));
            return Some(SessionAction::LookUpApart {
                prefix,
                id,
                index,
                noise,
                links_alone,
                by_another,
            });
        }
        Some(SessionAction::LookUp { prefix, id, index, noise, by_another, via })
    }

    /// Ends the handshake with the second message. Returns what it has shown, and the third message.
    /// A message of somebody else changes nothing.
    pub(super) fn finish<C: Crypto>(
        &self,
        local: &LocalRouter,
        noise: &[u8],
        mtu: u16,
    ) -> Option<(Established<C::Keys>, Vec<u8>)> {
        let (mut handshake, _) = self.begin::<C>(local)?;
        let mut second = Vec::new();
        C::read(&mut handshake, noise, &mut second).ok()?;
        let mut third = Vec::new();
        C::write(&mut handshake, &payload(local, mtu, None), &mut third).ok()?;
        Some((establish::<C>(local, handshake, &second)?, third))
    }
}

/// Returns what the second and the third message contain: the sender's proof, its start, the MTU of the way to it, and a
/// neighbour of it or zeros.
pub(super) fn payload(
    local: &LocalRouter,
    mtu: u16,
    neighbour: Option<NodeId>,
) -> [u8; SESSION_PAYLOAD] {
    let mut payload = [0; SESSION_PAYLOAD];
    payload[..Proof::LENGTH].copy_from_slice(&local.identity.proof().to_bytes());
    payload[Proof::LENGTH..][..4].copy_from_slice(&local.instance.0.to_be_bytes());
    payload[Proof::LENGTH + 4..][..2].copy_from_slice(&mtu.to_be_bytes());
    let neighbour = neighbour.unwrap_or(NodeId::new(0));
    payload[NEIGHBOUR..][..8].copy_from_slice(&neighbour.to_bytes());
    payload
}

/// Ends a handshake, and checks that the proof in the peer's payload is of the key that the handshake used.
pub(super) fn establish<C: Crypto>(
    local: &LocalRouter,
    handshake: C::Handshake,
    payload: &[u8],
) -> Option<Established<C::Keys>> {
    let proof = Proof::from_bytes(payload.first_chunk()?);
    let mtu = payload.get(Proof::LENGTH + 4..)?.first_chunk().copied().map(u16::from_be_bytes)?;
    let owner = C::verify_proof(&proof, local.extension_bits).ok()?;
    let established = C::finish(handshake).ok()?;
    let is_key = C::static_key(&proof.key) == Some(established.peer);
    let neighbour = payload.get(NEIGHBOUR..)?.first_chunk().copied().map(u64::from_be_bytes)?;
    let neighbour = Some(NodeId::new(neighbour)).filter(|&id| neighbour != 0 && id != local.id());
    let keys = established.keys;
    (is_key && owner != local.id()).then_some(Established { keys, owner, mtu, neighbour })
}
