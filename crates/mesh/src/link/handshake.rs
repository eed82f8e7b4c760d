//! Handshakes of links: from a stranger's INIT to a verified neighbour with keys.
//!
//! The table is bounded, and one address has one entry. When it is busy, or when a handshake from that address has begun
//! already, an INIT is answered by a COOKIE, before any Diffie-Hellman: who cannot receive at its address costs a hash and
//! replaces nothing. When both ends have sent an INIT, that of the lower
//! id goes on. RESP is repeated a few times until CONF comes, and CONF whenever RESP does, so either may be lost. If all
//! are, one end believes in a link that the other has not: its probes find that out, and it begins again.

use core::net::SocketAddr;
use std::sync::Arc;

use ringway_sansio::time::Duration;
use ringway_sansio::{Random, Time};

use crate::config::Limits;
use crate::crypto::{CodeKey, Crypto, Established, HandshakeError, NetworkKey, Purpose, Role};
use crate::id::{Instance, NodeId};
use crate::identity::{Identity, IdentityError, KEY};
use crate::wire::handshake::{COOKIE, FIRST, InitPayload, LinkPayload};
use crate::wire::{Conf, Cookie, Init, Resp};

/// First wait for an answer; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Longest wait for an answer.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Times that an INIT is repeated before its handshake ends; the next HELLO may begin another.
const INIT_REPEATS: u32 = 6;
/// Times that a RESP is repeated before its handshake ends.
const RESP_REPEATS: u32 = 4;
/// Time for which a lost CONF can be sent again.
const FINISHED: Duration = Duration::from_secs(5);
/// Lifetime of a secret of cookies. A cookie is good during two of them.
const COOKIE_LIFETIME: Duration = Duration::from_secs(120);

/// Where a neighbour is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkAddress {
    /// The interface by which it is reached.
    pub interface: u32,
    /// Its address.
    pub remote: SocketAddr,
}

/// The description of this router in a handshake.
#[derive(Clone, Copy, Debug)]
pub struct Local<'a> {
    /// Who it is.
    pub identity: &'a Identity,
    /// The key of its network.
    pub network: &'a NetworkKey,
    /// Zero bits that hash extensions must have.
    pub extension_bits: u8,
    /// Its start.
    pub instance: Instance,
    /// Number of its newest HELLO.
    pub hello: u16,
    /// The key of its HELLOs.
    pub hello_key: CodeKey,
    /// Largest packet that it receives over the interface.
    pub mtu: u16,
    /// The clock by which its HELLOs are stamped.
    pub stamp: u32,
}

/// A neighbour that has proved its identity, with the keys of the link.
#[derive(Debug)]
pub struct Verified<K> {
    /// Who it is.
    pub id: NodeId,
    /// Its description of itself.
    pub payload: LinkPayload,
    /// Our number for the link, which its packets carry.
    pub index: u32,
    /// Its number for the link, which ours carry.
    pub remote_index: u32,
    /// The keys.
    pub keys: K,
}

/// Why a packet of a handshake is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It cannot be opened.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// What it contains is malformed.
    #[error(transparent)]
    Malformed(#[from] ringway_sansio::Malformed),
    /// The peer's proof does not hold.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The proof is of another key than the handshake.
    #[error("expected the proof of the key that the handshake used, got another")]
    OtherKey,
    /// The peer has our own identity.
    #[error("another router has this router's identity, its key file may have been copied")]
    OwnIdentity,
    /// No handshake has this number and address.
    #[error("expected the number of a handshake under way, got {0}")]
    Unknown(u32),
    /// Our own INIT goes on instead.
    #[error("both routers have sent an INIT, the one of the lower id goes on")]
    OursGoesOn,
    /// The table is full.
    #[error("no room for another handshake, all {0} are under way")]
    Full(usize),
}

enum State<C: Crypto> {
    /// We have sent an INIT.
    Initiated(Box<Initiated<C>>),
    /// We have sent a RESP.
    Responded(Box<Responded<C>>),
    /// We have sent this CONF, which may be lost.
    Finished { packet: Box<[u8]>, remote: u32 },
}

struct Initiated<C: Crypto> {
    handshake: C::Handshake,
    /// The Noise message of the INIT.
    noise: Vec<u8>,
    cookie: [u8; COOKIE],
}

struct Responded<C: Crypto> {
    handshake: C::Handshake,
    /// The RESP.
    packet: Box<[u8]>,
    remote: u32,
}

struct Entry<C: Crypto> {
    index: u32,
    address: LinkAddress,
    state: State<C>,
    sent: u32,
    due: Time,
}

/// Counts of what did not become a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Handshakes that found no room.
    pub full: u64,
    /// INITs that were answered by a COOKIE.
    pub cookies: u64,
    /// INITs that nobody answered.
    pub unanswered: u64,
    /// Answered INITs of which the CONF never came.
    pub unconfirmed: u64,
}

/// The handshakes under way.
pub struct Handshakes<C: Crypto> {
    limits: Arc<Limits>,
    entries: Vec<Entry<C>>,
    /// The secret of cookies and the one before, and when the newer was drawn.
    secrets: [[u8; 32]; 2],
    drawn: Time,
    /// Counts of what did not become a link.
    pub counters: Counters,
}

impl<C: Crypto> Handshakes<C> {
    /// No handshakes.
    pub fn new(now: Time, limits: impl Into<Arc<Limits>>, random: &mut dyn Random) -> Self {
        let mut secrets = [[0; 32]; 2];
        secrets.iter_mut().for_each(|secret| random.fill(secret));
        Handshakes {
            limits: limits.into(),
            entries: Vec::new(),
            secrets,
            drawn: now,
            counters: Counters::default(),
        }
    }

    /// Begins a handshake and appends its INIT. One that is under way goes on.
    pub fn initiate(
        &mut self,
        now: Time,
        to: LinkAddress,
        local: &Local<'_>,
        random: &mut dyn Random,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        if self.entries.iter().any(|entry| entry.address == to) {
            return Ok(());
        }
        self.check_room()?;
        let mut handshake = begin::<C>(Role::Initiator, local, random)?;
        let payload =
            InitPayload { id: local.identity.id(), instance: local.instance, hello: local.hello };
        let mut noise = Vec::with_capacity(FIRST);
        C::write(&mut handshake, &payload.to_bytes(), &mut noise)?;
        let cookie = [0; COOKIE];
        let state = State::Initiated(Box::new(Initiated { handshake, noise, cookie }));
        let index = self.draw_index(random);
        self.insert(now, to, index, state, random);
        self.put_init(index, out);
        Ok(())
    }

    /// Handles an INIT and appends the RESP or the COOKIE.
    pub fn init(
        &mut self,
        now: Time,
        from: LinkAddress,
        bytes: &[u8],
        local: &Local<'_>,
        random: &mut dyn Random,
        out: &mut Vec<u8>,
    ) -> Result<InitOutcome, Refused> {
        let init = Init::parse(bytes)?;
        let own = self.entries.iter().position(|entry| entry.address == from);
        self.rotate(now, random);
        // Only who receives at an address may replace the handshake that has begun with it.
        let is_busy = self.entries.len() >= self.limits.handshakes_busy;
        if (is_busy || own.is_some())
            && !self.secrets.iter().any(|secret| cookie(secret, from) == init.cookie)
        {
            self.counters.cookies += 1;
            let cookie = cookie(&self.secrets[0], from);
            Cookie { receiver: init.sender, cookie, code: code(bytes) }.emit(out);
            return Ok(InitOutcome::Cookie);
        }
        let mut handshake = begin::<C>(Role::Responder, local, random)?;
        let mut payload = Vec::new();
        C::read(&mut handshake, init.noise, &mut payload)?;
        let asker = InitPayload::parse(&payload)?;
        let is_ours = |at: usize| matches!(self.entries[at].state, State::Initiated(_));
        let is_lower = (local.identity.id(), local.instance.0) < (asker.id, asker.instance.0);
        if own.is_some_and(is_ours) && is_lower {
            return Err(Refused::OursGoesOn);
        }
        // The newest INIT of an address replaces what was there.
        self.entries.retain(|entry| entry.address != from);
        if self.entries.len() >= self.limits.handshakes {
            // The oldest makes way for a router that has shown its address.
            self.counters.full += 1;
            self.entries.remove(0);
        }
        let mut noise = Vec::new();
        C::write(&mut handshake, &link_payload(local).to_bytes(), &mut noise)?;
        let index = self.draw_index(random);
        let start = out.len();
        let remote = init.sender;
        Resp { flags: 0, sender: index, receiver: remote, noise: &noise }.emit(out);
        let packet = out[start..].into();
        let state = State::Responded(Box::new(Responded { handshake, packet, remote }));
        self.insert(now, from, index, state, random);
        Ok(InitOutcome::Answered)
    }

    /// Handles a RESP, appends the CONF and returns the neighbour; or `None` when it came again.
    pub fn resp(
        &mut self,
        now: Time,
        from: LinkAddress,
        bytes: &[u8],
        local: &Local<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Verified<C::Keys>>, Refused> {
        let resp = Resp::parse(bytes)?;
        let at = self.find(resp.receiver, from)?;
        let mut payload = Vec::new();
        match &mut self.entries[at].state {
            State::Finished { packet, remote } if *remote == resp.sender => {
                out.extend_from_slice(packet);
                return Ok(None);
            }
            // A forged RESP leaves the handshake as it was: the true one may still come.
            State::Initiated(state) => C::read(&mut state.handshake, resp.noise, &mut payload)?,
            _ => return Err(Refused::Unknown(resp.receiver)),
        }
        let entry = self.entries.remove(at);
        let State::Initiated(state) = entry.state else {
            return Err(Refused::Unknown(resp.receiver));
        };
        let mut handshake = state.handshake;
        let payload = LinkPayload::parse(&payload)?;
        let mut noise = Vec::new();
        C::write(&mut handshake, &link_payload(local).to_bytes(), &mut noise)?;
        let established = C::finish(handshake)?;
        let verified = verify::<C>(&payload, &established, local);
        let mut packet = Vec::new();
        Conf { flags: 0, receiver: resp.sender, noise: &noise }.emit(&mut packet);
        // Whoever has a copy of our key must know it too.
        if matches!(verified, Ok(_) | Err(Refused::OwnIdentity)) {
            out.extend_from_slice(&packet);
        }
        let id = verified?;
        let (index, remote_index) = (entry.index, resp.sender);
        let state = State::Finished { packet: packet.into(), remote: remote_index };
        self.push(Entry { index, address: from, state, sent: 1, due: now + FINISHED });
        Ok(Some(Verified { id, payload, index, remote_index, keys: established.keys }))
    }

    /// Handles a CONF and returns the neighbour.
    pub fn conf(
        &mut self,
        from: LinkAddress,
        bytes: &[u8],
        local: &Local<'_>,
    ) -> Result<Verified<C::Keys>, Refused> {
        let conf = Conf::parse(bytes)?;
        let at = self.find(conf.receiver, from)?;
        let mut payload = Vec::new();
        match &mut self.entries[at].state {
            State::Responded(state) => C::read(&mut state.handshake, conf.noise, &mut payload)?,
            _ => return Err(Refused::Unknown(conf.receiver)),
        }
        let entry = self.entries.remove(at);
        self.release();
        let State::Responded(state) = entry.state else {
            return Err(Refused::Unknown(conf.receiver));
        };
        let Responded { handshake, remote, .. } = *state;
        let payload = LinkPayload::parse(&payload)?;
        let established = C::finish(handshake)?;
        let id = verify::<C>(&payload, &established, local)?;
        let (index, remote_index) = (entry.index, remote);
        Ok(Verified { id, payload, index, remote_index, keys: established.keys })
    }

    /// A packet that is sealed with the keys of the link with a number has come: its CONF has arrived, so it need not be
    /// repeated any more.
    pub fn confirmed(&mut self, index: u32) {
        let is_it = |entry: &Entry<C>| {
            entry.index == index && matches!(entry.state, State::Finished { .. })
        };
        if let Some(at) = self.entries.iter().position(is_it) {
            self.entries.remove(at);
            self.release();
        }
    }

    /// Handles a COOKIE and appends the INIT that carries it.
    pub fn cookie(
        &mut self,
        from: LinkAddress,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let answer = Cookie::parse(bytes)?;
        let at = self.find(answer.receiver, from)?;
        let mut sent = Vec::new();
        self.put_init(answer.receiver, &mut sent);
        match &mut self.entries[at].state {
            // Each cookie is used once, so that none can be answered for ever.
            State::Initiated(state) if code(&sent) == answer.code => state.cookie = answer.cookie,
            _ => return Err(Refused::Unknown(answer.receiver)),
        }
        self.put_init(answer.receiver, out);
        Ok(())
    }

    /// Appends one packet that is to be sent again and returns where to, or `None` if nothing is due.
    pub fn timeout(
        &mut self,
        now: Time,
        random: &mut dyn Random,
        out: &mut Vec<u8>,
    ) -> Option<LinkAddress> {
        while let Some(at) = self.entries.iter().position(|entry| entry.due <= now) {
            let entry = &mut self.entries[at];
            let ended = match &entry.state {
                State::Initiated(_) => entry.sent > INIT_REPEATS,
                State::Responded(_) => entry.sent > RESP_REPEATS,
                State::Finished { .. } => true,
            };
            if ended {
                match &entry.state {
                    State::Initiated(_) => self.counters.unanswered += 1,
                    State::Responded(_) => self.counters.unconfirmed += 1,
                    State::Finished { .. } => {}
                }
                self.entries.remove(at);
                self.release();
                continue;
            }
            entry.sent += 1;
            entry.due = now + wait(entry.sent, random);
            let (address, index) = (entry.address, entry.index);
            match &entry.state {
                State::Responded(state) => out.extend_from_slice(&state.packet),
                _ => self.put_init(index, out),
            }
            return Some(address);
        }
        None
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.entries.iter().map(|entry| entry.due).min()
    }

    /// Ends the handshake with an address, if one is under way: nobody is there any more.
    pub fn cancel(&mut self, address: LinkAddress) {
        self.entries.retain(|entry| entry.address != address);
        self.release();
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        let state = |entry: &Entry<C>| match &entry.state {
            State::Initiated(state) => size_of::<Initiated<C>>() + state.noise.capacity(),
            State::Responded(state) => size_of::<Responded<C>>() + state.packet.len(),
            State::Finished { packet, .. } => packet.len(),
        };
        let states: usize = self.entries.iter().map(state).sum();
        self.entries.capacity() * size_of::<Entry<C>>() + states
    }

    /// Returns the number of handshakes that this router has begun and nobody has answered.
    pub fn initiated(&self) -> usize {
        let is_ours = |entry: &&Entry<C>| matches!(entry.state, State::Initiated(_));
        self.entries.iter().filter(is_ours).count()
    }

    /// Returns the number of handshakes in the table.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether none is under way.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn check_room(&mut self) -> Result<(), Refused> {
        if self.entries.len() >= self.limits.handshakes {
            self.counters.full += 1;
            return Err(Refused::Full(self.limits.handshakes));
        }
        Ok(())
    }

    fn draw_index(&self, random: &mut dyn Random) -> u32 {
        loop {
            let index = random.next_u64() as u32;
            if self.entries.iter().all(|entry| entry.index != index) {
                return index;
            }
        }
    }

    fn insert(
        &mut self,
        now: Time,
        address: LinkAddress,
        index: u32,
        state: State<C>,
        random: &mut dyn Random,
    ) {
        let due = now + wait(1, random);
        self.push(Entry { index, address, state, sent: 1, due });
    }

    fn push(&mut self, entry: Entry<C>) {
        // Few are under way at once, and very many routers are simulated.
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(4);
        }
        self.entries.push(entry);
    }

    /// Releases the memory of the table when it is empty.
    fn release(&mut self) {
        if self.entries.is_empty() {
            self.entries = Vec::new();
        }
    }

    fn find(&self, index: u32, address: LinkAddress) -> Result<usize, Refused> {
        let is_it = |entry: &Entry<C>| entry.index == index && entry.address == address;
        self.entries.iter().position(is_it).ok_or(Refused::Unknown(index))
    }

    fn put_init(&self, index: u32, out: &mut Vec<u8>) {
        let entry = self.entries.iter().find(|entry| entry.index == index);
        if let Some(Entry { state: State::Initiated(state), .. }) = entry {
            let Initiated { noise, cookie, .. } = &**state;
            Init { flags: 0, sender: index, cookie: *cookie, noise }.emit(out);
        }
    }

    fn rotate(&mut self, now: Time, random: &mut dyn Random) {
        if now.since(self.drawn) >= COOKIE_LIFETIME {
            self.secrets[1] = self.secrets[0];
            random.fill(&mut self.secrets[0]);
            self.drawn = now;
        }
    }
}

/// What became of an INIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitOutcome {
    /// It was answered by a RESP.
    Answered,
    /// It was answered by a COOKIE, because the router is busy.
    Cookie,
}

fn begin<C: Crypto>(
    role: Role,
    local: &Local<'_>,
    random: &mut dyn Random,
) -> Result<C::Handshake, HandshakeError> {
    let mut seed = [0; 32];
    random.fill(&mut seed);
    C::begin(role, Purpose::Link, local.identity, local.network, seed)
}

fn link_payload(local: &Local<'_>) -> LinkPayload {
    LinkPayload {
        proof: *local.identity.proof(),
        instance: local.instance,
        hello_key: local.hello_key.0,
        mtu: local.mtu,
        stamp: local.stamp,
    }
}

/// Checks that the proof is of the key that the handshake used, and of a router other than this one. Returns its id.
fn verify<C: Crypto>(
    payload: &LinkPayload,
    established: &Established<C::Keys>,
    local: &Local<'_>,
) -> Result<NodeId, Refused> {
    let id = C::verify_proof(&payload.proof, local.extension_bits)?;
    let key: Option<[u8; KEY]> = C::static_key(&payload.proof.key);
    if key != Some(established.peer) {
        return Err(Refused::OtherKey);
    }
    if id == local.identity.id() {
        return Err(Refused::OwnIdentity);
    }
    Ok(id)
}

/// Returns the time to wait after the `sent`th time, with up to a quarter more.
fn wait(sent: u32, random: &mut dyn Random) -> Duration {
    let wait = FIRST_WAIT.saturating_mul(1 << (sent - 1).min(10)).min(MAX_WAIT);
    wait + wait.mul_f64((random.next_u64() >> 48) as f64 / f64::from(1 << 18))
}

fn cookie(secret: &[u8; 32], address: LinkAddress) -> [u8; COOKIE] {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    hasher.update(&address.interface.to_be_bytes());
    hasher.update(&address.remote.port().to_be_bytes());
    match address.remote {
        SocketAddr::V4(remote) => hasher.update(&remote.ip().octets()),
        SocketAddr::V6(remote) => hasher.update(&remote.ip().octets()),
    };
    first(hasher.finalize().as_bytes())
}

/// Returns the code over an INIT, which only who has seen it can compute.
fn code(init: &[u8]) -> [u8; COOKIE] {
    first(blake3::hash(init).as_bytes())
}

fn first(digest: &[u8; 32]) -> [u8; COOKIE] {
    core::array::from_fn(|at| digest[at])
}

#[cfg(test)]
mod tests;
