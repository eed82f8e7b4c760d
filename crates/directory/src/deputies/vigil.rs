//! What a deputy does while others say that a home is silent: it probes the home itself, and only when there was no answer
//! for a while it sends its share to the deputy that asks for it, or, if it is the one that a router asks to check credentials, uses
//! the shares of the others.

use std::collections::BTreeMap;

use ringway_dht::LookUpId;
use ringway_mesh::crypto::Crypto;
use ringway_mesh::{Identity, NodeId, Prefix, Proof};
use ringway_sansio::Time;

use super::shares::{Deputies, Share};
use crate::config::Config;
use crate::private::{CredentialsCheck, Private, PrivateMessage};
use crate::statement::Account;
use crate::verifications::JudgementId;

/// Maximum number of deputies that wait for the share of this one.
const MAX_ASKERS: usize = super::shares::MAX_DEPUTIES - 1;

/// Credentials that are to be checked for a silent home.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub id: JudgementId,
    pub router: NodeId,
    pub check: CredentialsCheck,
    /// The look-up of the account.
    pub look_up: Option<LookUpId>,
    /// The account, as the home states it.
    pub account: Option<Account>,
}

/// What is known of the record of the home's deputies.
#[derive(Clone, Debug)]
enum Known {
    LookingUp(LookUpId),
    Found(Box<Deputies>, Proof),
}

/// A home that is watched.
#[derive(Clone, Debug)]
struct Vigil {
    begun: Time,
    again: Time,
    request: u32,
    known: Known,
    /// Deputies that want the share of this one, with their requests.
    askers: Vec<(NodeId, u32)>,
    checks: Vec<Waiting>,
    /// Shares of other deputies.
    shares: BTreeMap<NodeId, Share>,
}

/// The key of a delegate that was put together.
struct Key {
    delegate: Identity,
    home: Proof,
    used: Time,
}

/// Credentials that can be checked now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    pub id: JudgementId,
    pub router: NodeId,
    pub check: CredentialsCheck,
    /// What the home has sealed for its delegate.
    pub secret: Vec<u8>,
    /// Second in which the password was set.
    pub password_set: u32,
}

/// All homes that are watched, and the keys of their delegates.
#[derive(Default)]
pub(crate) struct Vigils {
    watched: BTreeMap<NodeId, Vigil>,
    keys: BTreeMap<NodeId, Key>,
}

impl Vigils {
    /// Returns whether a home is watched.
    pub(crate) fn has(&self, home: NodeId) -> bool {
        self.watched.contains_key(&home)
    }

    /// Begins to watch a home. `look_up` is that of the record of its deputies. Returns whether there is room.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        config: &Config,
        home: NodeId,
        (look_up, request): (LookUpId, u32),
        out: &mut Vec<PrivateMessage>,
    ) -> bool {
        if self.watched.len() >= config.vigils {
            return false;
        }
        let vigil = Vigil {
            begun: now,
            again: now + config.repeat,
            request,
            known: Known::LookingUp(look_up),
            askers: Vec::new(),
            checks: Vec::new(),
            shares: BTreeMap::new(),
        };
        out.push(vigil.probe(home));
        self.watched.insert(home, vigil);
        true
    }

    /// Another deputy wants the share of this one.
    pub(crate) fn ask(&mut self, home: NodeId, deputy: NodeId, request: u32) {
        let Some(vigil) = self.watched.get_mut(&home) else { return };
        vigil.askers.retain(|(asker, _)| *asker != deputy);
        if vigil.askers.len() < MAX_ASKERS {
            vigil.askers.push((deputy, request));
        }
    }

    /// A router wants credentials checked.
    pub(crate) fn check(&mut self, home: NodeId, check: Waiting) {
        if let Some(vigil) = self.watched.get_mut(&home) {
            vigil.checks.push(check);
        }
    }

    /// Returns the home whose deputies, or one of whose accounts, a look-up is for.
    pub(crate) fn of_look_up(&self, id: LookUpId) -> Option<NodeId> {
        let is_of = |vigil: &Vigil| {
            matches!(vigil.known, Known::LookingUp(known) if known == id)
                || vigil.checks.iter().any(|check| check.look_up == Some(id))
        };
        self.watched.iter().find(|(_, vigil)| is_of(vigil)).map(|(&home, _)| home)
    }

    /// A look-up has ended: with the record of the deputies that the home has signed, or with an account that it states. Returns
    /// the judgements that are given up, to be asked for again.
    pub(crate) fn found(
        &mut self,
        id: LookUpId,
        home: NodeId,
        deputies: Option<(Deputies, Proof)>,
        account: Option<Account>,
    ) -> Vec<JudgementId> {
        let Some(vigil) = self.watched.get_mut(&home) else { return Vec::new() };
        if let Known::LookingUp(known) = vigil.known
            && known == id
        {
            let Some((deputies, proof)) = deputies else {
                let vigil = self.watched.remove(&home);
                return vigil.into_iter().flat_map(|vigil| vigil.checks).map(|of| of.id).collect();
            };
            // The key of a delegate before opens nothing any more.
            if self.keys.get(&home).is_some_and(|key| key.delegate.proof().key != deputies.key) {
                self.keys.remove(&home);
            }
            vigil.known = Known::Found(Box::new(deputies), proof);
            return Vec::new();
        }
        match vigil.checks.iter().position(|check| check.look_up == Some(id)) {
            Some(at) if account.is_some() => {
                vigil.checks[at].account = account;
                vigil.checks[at].look_up = None;
                Vec::new()
            }
            Some(at) => vec![vigil.checks.swap_remove(at).id],
            None => Vec::new(),
        }
    }

    /// A router has answered a probe. A home that does is not silent: nothing is shared, and what was put together is
    /// forgotten. Returns whether it was a home that is watched.
    pub(crate) fn probed(&mut self, from: Prefix, request: u32) -> bool {
        let mut watched = self.watched.iter();
        let home = watched
            .find(|(home, vigil)| from.contains(**home) && vigil.request == request)
            .map(|(&home, _)| home);
        home.is_some_and(|home| {
            self.watched.remove(&home);
            self.keys.remove(&home);
            true
        })
    }

    /// Another deputy sends its share.
    pub(crate) fn released(&mut self, from: Prefix, request: u32, share: &Share) {
        let vigil = self.watched.values_mut().find(|vigil| vigil.request == request);
        let Some(vigil) = vigil else { return };
        let Known::Found(deputies, _) = &vigil.known else { return };
        let deputy = deputies.each.iter().map(|(id, _)| *id).find(|id| from.contains(*id));
        if let Some(deputy) = deputy.filter(|deputy| deputies.is_of(*deputy, share)) {
            vigil.shares.insert(deputy, *share);
        }
    }

    /// Does for a home what can be done now. Returns credentials that can be checked.
    pub(crate) fn go_on<C: Crypto>(
        &mut self,
        now: Time,
        config: &Config,
        (own, home): (&Identity, NodeId),
        out: &mut Vec<PrivateMessage>,
    ) -> Vec<Ready> {
        let Some(vigil) = self.watched.get_mut(&home) else { return Vec::new() };
        let Known::Found(deputies, proof) = &vigil.known else { return Vec::new() };
        let proof = *proof;
        if !deputies.has(own.id()) {
            self.watched.remove(&home);
            return Vec::new();
        }
        if now.since(vigil.begun) >= config.deputy_silence {
            vigil.release::<C>(own, out);
            if !vigil.checks.is_empty()
                && !self.keys.contains_key(&home)
                && let Some(delegate) = vigil.combine::<C>(own)
            {
                self.keys.insert(home, Key { delegate, home: proof, used: now });
            }
        }
        let Some(key) = self.keys.get_mut(&home) else { return Vec::new() };
        key.used = now;
        let known = |check: &mut Waiting| check.account.is_some();
        let known: Vec<Waiting> = vigil.checks.extract_if(.., known).collect();
        known.into_iter().filter_map(|check| check.ready::<C>(&key.delegate)).collect()
    }

    /// Returns what signs for a silent home: the delegate, and what the home proves itself with.
    pub(crate) fn key(&self, home: NodeId) -> Option<(&Identity, &Proof)> {
        self.keys.get(&home).map(|key| (&key.delegate, &key.home))
    }

    /// Returns the homes that are watched.
    pub(crate) fn homes(&self) -> Vec<NodeId> {
        self.watched.keys().copied().collect()
    }

    /// Does what is due.
    pub(crate) fn timeout(
        &mut self,
        now: Time,
        config: &Config,
        own: NodeId,
        out: &mut Vec<PrivateMessage>,
    ) {
        self.keys.retain(|_, key| now.since(key.used) < config.delegate_memory);
        self.watched.retain(|_, vigil| now.since(vigil.begun) < config.deputy_patience);
        for (&home, vigil) in &mut self.watched {
            if vigil.again > now {
                continue;
            }
            vigil.again = now + config.repeat;
            if now.since(vigil.begun) < config.deputy_silence {
                out.push(vigil.probe(home));
            }
            if !self.keys.contains_key(&home) {
                vigil.ask_others(own, home, out);
            }
        }
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self, config: &Config) -> Option<Time> {
        let vigils = self.watched.values().map(|vigil| vigil.again);
        vigils.chain(self.keys.values().map(|key| key.used + config.delegate_memory)).min()
    }

    /// Asks the other deputies of a home for their shares, if credentials are to be checked.
    pub(crate) fn ask_others(&self, own: NodeId, home: NodeId, out: &mut Vec<PrivateMessage>) {
        if let Some(vigil) = self.watched.get(&home).filter(|_| !self.keys.contains_key(&home)) {
            vigil.ask_others(own, home, out);
        }
    }
}

impl Vigil {
    fn probe(&self, home: NodeId) -> PrivateMessage {
        let octets = Private::Probe { request: self.request }.to_octets();
        PrivateMessage { to: home.prefix(), octets }
    }

    fn ask_others(&self, own: NodeId, home: NodeId, out: &mut Vec<PrivateMessage>) {
        let Known::Found(deputies, _) = &self.known else { return };
        if self.checks.is_empty() || !deputies.has(own) {
            return;
        }
        let octets = Private::Release { request: self.request, router: own, home }.to_octets();
        let silent = deputies.each.iter().map(|(id, _)| *id);
        for deputy in silent.filter(|id| *id != own && !self.shares.contains_key(id)) {
            out.push(PrivateMessage { to: deputy.prefix(), octets: octets.clone() });
        }
    }

    /// Sends the share of this deputy to those that have asked for it.
    fn release<C: Crypto>(&mut self, own: &Identity, out: &mut Vec<PrivateMessage>) {
        let Known::Found(deputies, _) = &self.known else { return };
        for (deputy, request) in self.askers.drain(..).filter(|(id, _)| deputies.has(*id)) {
            if let Some(share) = deputies.open::<C>(own) {
                let octets = Private::Released { request, share }.to_octets();
                out.push(PrivateMessage { to: deputy.prefix(), octets });
            }
        }
    }

    fn combine<C: Crypto>(&self, own: &Identity) -> Option<Identity> {
        let Known::Found(deputies, _) = &self.known else { return None };
        let shares = self.shares.values().copied().chain(deputies.open::<C>(own));
        deputies.combine(&shares.collect::<Vec<Share>>())
    }
}

impl Waiting {
    fn ready<C: Crypto>(self, delegate: &Identity) -> Option<Ready> {
        let account = self.account?;
        let secret = C::open_sealed(delegate, &account.replica?.sealed)?;
        let Waiting { id, router, check, .. } = self;
        Some(Ready { id, router, check, secret, password_set: account.password_set })
    }
}
