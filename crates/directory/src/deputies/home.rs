//! How a home chooses its deputies: at random among routers whose records it keeps for others, and only among those that
//! answer. Whoever has many identities has as many chances: only a network key keeps strangers out.

use ringway_mesh::crypto::Crypto;
use ringway_mesh::identity::KEY;
use ringway_mesh::{Identity, NodeId, Prefix, Proof};
use ringway_sansio::{Duration, Random, Time};

use super::shares::{Deputies, MAX_DEPUTIES, MIN_DEPUTIES, threshold};
use crate::config::Config;
use crate::private::{Private, PrivateMessage};
use crate::statement::Replica;

/// Routers that are probed when deputies are missing.
const CANDIDATES: usize = 2 * MAX_DEPUTIES;
/// Audits in a row that a deputy may miss.
const MAX_MISSED: u8 = 2;

/// A deputy, or a router that may become one.
#[derive(Clone, Copy, Debug)]
struct Deputy {
    proof: Proof,
    id: NodeId,
    missed: u8,
    has_answered: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// An audit begins then.
    Wait(Time),
    /// Who has not answered is probed again then, and the audit ends then.
    Probing { again: Time, end: Time },
}

/// The delegate of this router, and its deputies.
pub(crate) struct Delegation {
    delegate: Identity,
    /// The period of time whose delegate it is.
    period: u64,
    /// The public key of the delegate before.
    before: [u8; KEY],
    deputies: Vec<Deputy>,
    candidates: Vec<Deputy>,
    request: u32,
    step: Step,
    pause: Duration,
    /// Whether no deputy has a share of this delegate yet.
    is_new: bool,
}

impl Delegation {
    /// The delegate of a router, which has it again when it starts anew in the same period.
    pub(crate) fn new(now: Time, config: &Config, own: &Identity) -> Self {
        let (pause, period) = (config.deputies_first, period(now, config));
        Delegation {
            delegate: own.delegate(period),
            period,
            before: own.delegate(period.wrapping_sub(1)).proof().key,
            deputies: Vec::new(),
            candidates: Vec::new(),
            request: 0,
            step: Step::Wait(now + pause),
            pause,
            is_new: false,
        }
    }

    /// Seals what deputies need to check the credentials of a user.
    pub(crate) fn replica<C: Crypto>(
        &self,
        secret: &[u8],
        random: &mut dyn Random,
    ) -> Option<Replica> {
        let (key, before) = (self.delegate.proof().key, self.before);
        let (mut seed, mut sealed) = ([0; 32], Vec::new());
        random.fill(&mut seed);
        let is_sealed = C::seal_for(&key, seed, secret, &mut sealed);
        is_sealed.then(|| Replica { key, before, sealed: sealed.into_boxed_slice() })
    }

    /// Returns whether something is sealed for the delegate, and not for one before.
    pub(crate) fn is_current(&self, replica: &Replica) -> bool {
        replica.key == self.delegate.proof().key
    }

    /// Takes the next delegate when its period has begun; the deputies get shares of its key with the next audit.
    fn renew(&mut self, now: Time, config: &Config, own: &Identity) -> bool {
        let is_over = period(now, config) != self.period;
        if is_over {
            let (deputies, pause) = (core::mem::take(&mut self.deputies), self.pause);
            *self = Delegation {
                deputies,
                pause,
                step: self.step,
                ..Delegation::new(now, config, own)
            };
        }
        is_over
    }

    /// Returns the deputies.
    pub(crate) fn deputies(&self) -> impl Iterator<Item = NodeId> {
        self.deputies.iter().map(|deputy| deputy.id)
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Time {
        match self.step {
            Step::Wait(at) => at,
            Step::Probing { again, end } => again.min(end),
        }
    }

    /// Notes an answer to a probe. Returns whether it is one.
    pub(crate) fn probed(&mut self, from: Prefix, request: u32) -> bool {
        let mut all = self.deputies.iter_mut().chain(&mut self.candidates);
        let of_router = all.find(|deputy| from.contains(deputy.id));
        let is_it = request == self.request && matches!(self.step, Step::Probing { .. });
        match of_router.filter(|_| is_it) {
            Some(deputy) => deputy.has_answered = true,
            None => return false,
        }
        true
    }

    /// Does what is due; `routers` are others. Returns a record that is to be published.
    pub(crate) fn timeout<C: Crypto>(
        &mut self,
        now: Time,
        (config, own): (&Config, &Identity),
        routers: impl Iterator<Item = Proof>,
        random: &mut dyn Random,
        out: &mut Vec<PrivateMessage>,
    ) -> Option<Deputies> {
        match self.step {
            Step::Wait(at) if at <= now => {
                self.is_new |= self.renew(now, config, own);
                self.request = random.next_u64() as u32;
                self.deputies.iter_mut().for_each(|deputy| deputy.has_answered = false);
                self.choose_candidates(routers, random);
                let end = now + config.deputies_answer;
                self.step = Step::Probing { again: now + config.deputies_answer / 2, end };
                self.probe(out);
                None
            }
            Step::Probing { end, .. } if end <= now => self.end_audit::<C>(now, config, random),
            Step::Probing { again, end } if again <= now => {
                self.step = Step::Probing { again: end, end };
                self.probe(out);
                None
            }
            _ => None,
        }
    }

    fn probe(&self, out: &mut Vec<PrivateMessage>) {
        let octets = Private::Probe { request: self.request }.to_octets();
        let silent = self.deputies.iter().chain(&self.candidates);
        for deputy in silent.filter(|deputy| !deputy.has_answered) {
            out.push(PrivateMessage { to: deputy.id.prefix(), octets: octets.clone() });
        }
    }

    /// Draws candidates among routers, each as likely as any other. A full set of deputies that have all answered last time
    /// needs none.
    fn choose_candidates(&mut self, routers: impl Iterator<Item = Proof>, random: &mut dyn Random) {
        self.candidates.clear();
        let is_whole = self.deputies.iter().all(|deputy| deputy.missed == 0);
        if is_whole && self.deputies.len() == MAX_DEPUTIES {
            return;
        }
        let mut seen = 0;
        for proof in routers {
            let id = proof.id();
            if self.deputies.iter().any(|deputy| deputy.id == id) {
                continue;
            }
            let candidate = Deputy { proof, id, missed: 0, has_answered: false };
            seen += 1;
            match self.candidates.len() {
                CANDIDATES => {
                    let at = (random.next_u64() % seen) as usize;
                    if let Some(slot) = self.candidates.get_mut(at) {
                        *slot = candidate;
                    }
                }
                _ => self.candidates.push(candidate),
            }
        }
        // The first deputy is the one that is asked first: no id is to have better chances.
        for at in (1..self.candidates.len()).rev() {
            self.candidates.swap(at, (random.next_u64() % (at as u64 + 1)) as usize);
        }
    }

    /// Keeps the deputies that answer, and takes candidates for the others.
    fn end_audit<C: Crypto>(
        &mut self,
        now: Time,
        config: &Config,
        random: &mut dyn Random,
    ) -> Option<Deputies> {
        for deputy in &mut self.deputies {
            deputy.missed = if deputy.has_answered { 0 } else { deputy.missed + 1 };
        }
        let answering = self.deputies.iter().filter(|deputy| deputy.missed == 0).count();
        let is_urgent = answering <= threshold(self.deputies.len());
        let stays =
            |deputy: &&Deputy| deputy.missed == 0 || !is_urgent && deputy.missed < MAX_MISSED;
        let mut next: Vec<Deputy> = self.deputies.iter().filter(stays).copied().collect();
        let kept = next.len();
        let answered = self.candidates.drain(..).filter(|candidate| candidate.has_answered);
        next.extend(answered.take(MAX_DEPUTIES - kept));
        let is_better = next.len() > kept;
        self.pause = match next.len() {
            MAX_DEPUTIES => config.deputies_audit,
            _ => (self.pause * 2).min(config.deputies_audit),
        };
        self.step = Step::Wait(now + self.pause);
        let is_same = !is_better && kept == self.deputies.len() && !self.is_new;
        if is_same || next.len() < MIN_DEPUTIES {
            return None;
        }
        let proofs: Vec<Proof> = next.iter().map(|deputy| deputy.proof).collect();
        let appointed = Deputies::appoint::<C>(&self.delegate, &proofs, random)?;
        self.deputies = next;
        self.is_new = false;
        Some(appointed)
    }
}

/// Returns the number of a period.
fn period(now: Time, config: &Config) -> u64 {
    now.as_secs() / config.delegate_period.as_secs().max(1)
}
