//! Credentials that their home is asked about, on both sides.

use std::collections::BTreeMap;

use ringway_mesh::{NodeId, Prefix};
use ringway_sansio::Time;

use crate::config::Config;
use crate::private::{CredentialsCheck, Private, PrivateMessage, Verdict};
use crate::questions::QuestionId;
use crate::statement::Grant;

/// The number of a judgement that another router waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JudgementId(u64);

/// Where a verification stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The home is being looked for.
    Locating(QuestionId),
    /// The home was asked, and is asked again then.
    Asked { home: NodeId, request: u32, again: Time },
}

#[derive(Clone, Debug)]
struct Verification {
    check: CredentialsCheck,
    begun: Time,
    state: State,
}

/// What has come of a verification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Which.
    pub id: QuestionId,
    /// What the home thinks; `None` if it has not answered.
    pub verdict: Option<Verdict>,
    /// The user.
    pub name: Box<str>,
    /// Its permission for this router, verified.
    pub grant: Option<Grant>,
}

/// A check that another router waits for.
#[derive(Clone, Debug)]
struct Judgement {
    router: NodeId,
    request: u32,
    name: Box<str>,
    begun: Time,
}

/// Verifications under way.
#[derive(Clone, Debug, Default)]
pub struct Verifications {
    asked: BTreeMap<QuestionId, Verification>,
    judged: BTreeMap<JudgementId, Judgement>,
    last: u64,
}

impl Verifications {
    /// Returns how many this router has asked for.
    pub fn len(&self) -> usize {
        self.asked.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Begins a verification with the question for its home.
    pub(crate) fn begin(&mut self, now: Time, question: QuestionId, check: CredentialsCheck) {
        let state = State::Locating(question);
        self.asked.insert(question, Verification { check, begun: now, state });
    }

    /// Returns whether a question is that of a verification.
    pub(crate) fn is_of(&self, question: QuestionId) -> bool {
        self.asked.contains_key(&question)
    }

    /// The home has been found: asks it. Returns the message.
    pub(crate) fn ask(
        &mut self,
        (now, config): (Time, &Config),
        own: NodeId,
        question: QuestionId,
        home: NodeId,
        request: u32,
    ) -> Option<PrivateMessage> {
        let verification = self.asked.get_mut(&question)?;
        verification.state = State::Asked { home, request, again: now + config.repeat };
        Some(verification.message(own, home, request))
    }

    /// Ends a verification without an answer, or because there is no such user.
    pub(crate) fn end(
        &mut self,
        question: QuestionId,
        verdict: Option<Verdict>,
    ) -> Option<Outcome> {
        let verification = self.asked.remove(&question)?;
        Some(Outcome { id: question, verdict, name: verification.check.name, grant: None })
    }

    /// Handles JUDGED. Returns the home, and the outcome with the grant as it came.
    pub(crate) fn judged(
        &mut self,
        from: Prefix,
        request: u32,
        verdict: Verdict,
        grant: Option<Grant>,
    ) -> Option<(NodeId, Outcome)> {
        let mut asked = self.asked.iter();
        let (&id, home) = asked.find_map(|(id, verification)| match verification.state {
            State::Asked { home, request: own, .. } if own == request && from.contains(home) => {
                Some((id, home))
            }
            _ => None,
        })?;
        let name = self.asked.remove(&id)?.check.name;
        Some((home, Outcome { id, verdict: Some(verdict), name, grant }))
    }

    /// Another router asks. Returns the number under which its check is judged, or `None` if too many are under way. A
    /// repetition of the same request is judged once.
    pub(crate) fn judge(
        &mut self,
        now: Time,
        config: &Config,
        router: NodeId,
        request: u32,
        name: &str,
    ) -> Option<JudgementId> {
        let is_same = |other: &Judgement| other.router == router && other.request == request;
        let of_router = self.judged.values().filter(|other| other.router == router).count();
        if self.judged.values().any(is_same)
            || self.judged.len() >= config.judgements
            || of_router >= config.judgements / 4
        {
            return None;
        }
        self.last += 1;
        let id = JudgementId(self.last);
        self.judged.insert(id, Judgement { router, request, name: name.into(), begun: now });
        Some(id)
    }

    /// Removes a judgement. Returns the router that waits for it, its request and the user.
    pub(crate) fn take(&mut self, id: JudgementId) -> Option<(NodeId, u32, Box<str>)> {
        self.judged
            .remove(&id)
            .map(|judgement| (judgement.router, judgement.request, judgement.name))
    }

    /// Does what is due: repeats questions into `out`, and returns those that are given up.
    pub(crate) fn timeout(
        &mut self,
        now: Time,
        config: &Config,
        own: NodeId,
        out: &mut Vec<PrivateMessage>,
    ) -> Vec<Outcome> {
        self.judged.retain(|_, judgement| now.since(judgement.begun) < config.patience);
        let mut ended = Vec::new();
        for (&id, verification) in &mut self.asked {
            if now.since(verification.begun) >= config.patience {
                ended.push(id);
            } else if let State::Asked { home, request, again } = verification.state
                && again <= now
            {
                let wait = now.since(verification.begun).max(config.repeat);
                verification.state = State::Asked { home, request, again: now + wait };
                out.push(verification.message(own, home, request));
            }
        }
        ended.into_iter().filter_map(|id| self.end(id, None)).collect()
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self, config: &Config) -> Option<Time> {
        let due = |verification: &Verification| {
            let end = verification.begun + config.patience;
            match verification.state {
                State::Asked { again, .. } => again.min(end),
                State::Locating(_) => end,
            }
        };
        let judged = self.judged.values().map(|judgement| judgement.begun + config.patience);
        self.asked.values().map(due).chain(judged).min()
    }
}

impl Verification {
    fn message(&self, own: NodeId, home: NodeId, request: u32) -> PrivateMessage {
        let check = Private::Check { request, router: own, check: self.check.clone() };
        PrivateMessage { to: home.prefix(), octets: check.to_octets() }
    }
}
