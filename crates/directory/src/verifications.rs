//! Credentials that their home is asked about, or a deputy of one that is silent, on both sides.

use std::collections::BTreeMap;

use ringway_dht::{LookUpId, Record};
use ringway_mesh::{NodeId, Prefix, Proof};
use ringway_sansio::{Duration, Time};

use crate::config::Config;
use crate::deputies::shares::Deputies;
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
    /// The home was asked, and is asked again then. It is silent if there is no answer until `silent`.
    Asked { home: NodeId, request: u32, again: Time, silent: Time },
}

/// How far it is with a deputy of the home.
#[derive(Clone, Debug)]
enum Substitute {
    /// The home may answer yet, or states no delegate.
    None,
    /// The record of its deputies is being looked up.
    LookingUp(LookUpId),
    /// One is asked.
    Asked {
        deputy: NodeId,
        request: u32,
        again: Time,
        /// When another one is asked; `None` since it has confirmed that it was.
        until: Option<Time>,
        /// Those that were not asked yet, the next one last.
        others: Vec<NodeId>,
        /// Whether the one before has said that the credentials are wrong.
        is_second: bool,
    },
}

#[derive(Clone, Debug)]
struct Verification {
    check: CredentialsCheck,
    begun: Time,
    state: State,
    /// Whether the home states a delegate.
    has_delegate: bool,
    substitute: Substitute,
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
pub(crate) struct Judgement {
    pub router: NodeId,
    pub request: u32,
    pub name: Box<str>,
    begun: Time,
    /// If this router is a deputy: the home, and the second in which the password was set.
    pub silent: Option<(NodeId, u32)>,
}

/// Verifications under way.
#[derive(Clone, Debug, Default)]
pub struct Verifications {
    asked: BTreeMap<QuestionId, Verification>,
    judged: BTreeMap<JudgementId, Judgement>,
    last: u64,
    /// Homes that were silent when they were asked last.
    silent: BTreeMap<NodeId, Time>,
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
        let (state, substitute) = (State::Locating(question), Substitute::None);
        let begun = now;
        let verification = Verification { check, begun, state, has_delegate: false, substitute };
        self.asked.insert(question, verification);
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
        (home, has_delegate): (NodeId, bool),
        request: u32,
    ) -> Option<PrivateMessage> {
        let since = self.silent.get(&home).map(|&at| now.since(at));
        let is_silent = since.is_some_and(|since| since < config.silence_memory);
        let silent = now + if is_silent { Duration::ZERO } else { config.silence };
        let verification = self.asked.get_mut(&question)?;
        verification.state = State::Asked { home, request, again: now + config.repeat, silent };
        verification.has_delegate = has_delegate;
        Some(verification.message(own, (home, None), request))
    }

    /// The record of the deputies of a home is being looked up.
    pub(crate) fn look_up(&mut self, question: QuestionId, id: LookUpId) {
        if let Some(verification) = self.asked.get_mut(&question) {
            verification.substitute = Substitute::LookingUp(id);
        }
    }

    /// Returns the verification that a look-up is for, and the home.
    pub(crate) fn of_look_up(&self, id: LookUpId) -> Option<(QuestionId, NodeId)> {
        self.asked.iter().find_map(|(&question, verification)| {
            let is_it =
                matches!(verification.substitute, Substitute::LookingUp(known) if known == id);
            verification.home().filter(|_| is_it).map(|home| (question, home))
        })
    }

    /// The deputies of a silent home are known, in the order in which they are to be asked. Asks the first.
    pub(crate) fn found_deputies(
        &mut self,
        (now, config): (Time, &Config),
        own: NodeId,
        question: QuestionId,
        mut deputies: Vec<NodeId>,
        request: u32,
    ) -> Option<PrivateMessage> {
        deputies.retain(|deputy| *deputy != own);
        deputies.reverse();
        let verification = self.asked.get_mut(&question)?;
        let home = verification.home()?;
        let Some(deputy) = deputies.pop() else {
            verification.substitute = Substitute::None;
            verification.has_delegate = false;
            return None;
        };
        let until = Some(now + config.deputy_confirms);
        let again = now + config.repeat;
        verification.substitute =
            Substitute::Asked { deputy, request, again, until, others: deputies, is_second: false };
        Some(verification.message(own, (deputy, Some(home)), request))
    }

    /// A deputy confirms that it was asked. Returns whether it was.
    pub(crate) fn confirmed(&mut self, from: Prefix, asked: u32) -> bool {
        let all = self.asked.values_mut();
        let mut untils = all.filter_map(|verification| match &mut verification.substitute {
            Substitute::Asked { deputy, request, until, .. }
                if *request == asked && from.contains(*deputy) =>
            {
                Some(until)
            }
            _ => None,
        });
        untils.next().map(|until| *until = None).is_some()
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

    /// Handles JUDGED of a home, or of a deputy that was asked instead. Returns the home, and the outcome with the grant as it
    /// came.
    pub(crate) fn judged(
        &mut self,
        (now, config): (Time, &Config),
        from: Prefix,
        answered: u32,
        verdict: Verdict,
        grant: Option<Grant>,
    ) -> Option<(NodeId, Outcome)> {
        let mut asked = self.asked.iter();
        let (id, home, is_silent) = asked.find_map(|(&id, verification)| {
            let State::Asked { home, request, .. } = verification.state else { return None };
            if request == answered && from.contains(home) {
                return Some((id, home, false));
            }
            match &verification.substitute {
                Substitute::Asked { deputy, request, .. }
                    if *request == answered && from.contains(*deputy) =>
                {
                    Some((id, home, true))
                }
                _ => None,
            }
        })?;
        match is_silent {
            true => self.note_silent(now, config, home),
            false => _ = self.silent.remove(&home),
        }
        // One deputy alone does not shut a user out.
        let is_doubtful = is_silent && verdict != Verdict::Right;
        if is_doubtful && self.asked.get_mut(&id)?.ask_another(now, config) {
            return None;
        }
        let name = self.asked.remove(&id)?.check.name;
        Some((home, Outcome { id, verdict: Some(verdict), name, grant }))
    }

    /// A home was silent: it is not waited for again soon.
    fn note_silent(&mut self, now: Time, config: &Config, home: NodeId) {
        if self.silent.len() >= config.silent_homes {
            let oldest = self.silent.iter().min_by_key(|(_, at)| **at).map(|(&home, _)| home);
            oldest.iter().for_each(|home| _ = self.silent.remove(home));
        }
        self.silent.insert(home, now);
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
        let judgement = Judgement { router, request, name: name.into(), begun: now, silent: None };
        self.judged.insert(id, judgement);
        Some(id)
    }

    /// Notes that a judgement is for a home that is silent.
    pub(crate) fn set_silent(&mut self, id: JudgementId, home: NodeId, password_set: u32) {
        if let Some(judgement) = self.judged.get_mut(&id) {
            judgement.silent = Some((home, password_set));
        }
    }

    /// Removes a judgement.
    pub(crate) fn take(&mut self, id: JudgementId) -> Option<Judgement> {
        self.judged.remove(&id)
    }

    /// Does what is due: repeats questions into `out`, and returns those that are given up, and the homes that are silent, each
    /// with the verification that its deputies are wanted for.
    pub(crate) fn timeout(
        &mut self,
        now: Time,
        config: &Config,
        own: NodeId,
        out: &mut Vec<PrivateMessage>,
    ) -> (Vec<Outcome>, Vec<(QuestionId, NodeId)>) {
        self.judged.retain(|_, judgement| now.since(judgement.begun) < config.deputy_patience);
        let (mut ended, mut silent) = (Vec::new(), Vec::new());
        for (&id, verification) in &mut self.asked {
            if now.since(verification.begun) >= verification.patience(config) {
                ended.push(id);
                continue;
            }
            out.extend(verification.repeat(now, config, own));
            if verification.lacks_deputies(now)
                && let Some(home) = verification.home()
            {
                silent.push((id, home));
            }
        }
        (ended.into_iter().filter_map(|id| self.end(id, None)).collect(), silent)
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self, config: &Config) -> Option<Time> {
        let asked = self.asked.values().map(|verification| verification.due(config));
        let judged = self.judged.values().map(|judgement| judgement.begun + config.deputy_patience);
        asked.chain(judged).min()
    }
}

impl Verification {
    fn home(&self) -> Option<NodeId> {
        match self.state {
            State::Locating(_) => None,
            State::Asked { home, .. } => Some(home),
        }
    }

    fn patience(&self, config: &Config) -> Duration {
        match self.substitute {
            Substitute::Asked { .. } => config.deputy_patience,
            _ => config.patience,
        }
    }

    /// Returns whether the deputies of the home are to be looked up.
    fn lacks_deputies(&self, now: Time) -> bool {
        let is_silent = matches!(self.state, State::Asked { silent, .. } if silent <= now);
        is_silent && self.has_delegate && matches!(self.substitute, Substitute::None)
    }

    /// Has another deputy asked, the first time that one says no. Returns whether there is one.
    fn ask_another(&mut self, now: Time, config: &Config) -> bool {
        let Substitute::Asked { deputy, again, until, others, is_second, .. } =
            &mut self.substitute
        else {
            return false;
        };
        let next = others.pop().filter(|_| !*is_second);
        if let Some(next) = next {
            (*deputy, *again, *is_second) = (next, now, true);
            *until = Some(now + config.deputy_confirms);
        }
        next.is_some()
    }

    /// Returns what is sent again now: to the home, and to a deputy, or to the next one.
    fn repeat(&mut self, now: Time, config: &Config, own: NodeId) -> Vec<PrivateMessage> {
        let mut out = Vec::new();
        let wait = now.since(self.begun).max(config.repeat);
        if let State::Asked { home, request, again, silent } = self.state
            && again <= now
        {
            self.state = State::Asked { home, request, again: now + wait, silent };
            out.push(self.message(own, (home, None), request));
        }
        let home = self.home();
        if let Substitute::Asked { deputy, request, again, until, others, .. } =
            &mut self.substitute
        {
            if until.is_some_and(|until| until <= now)
                && let Some(next) = others.pop()
            {
                (*deputy, *again) = (next, now);
                *until = Some(now + config.deputy_confirms);
            }
            if *again <= now {
                *again = now + config.repeat * if until.is_some() { 1 } else { 4 };
                let (deputy, request) = (*deputy, *request);
                out.push(self.message(own, (deputy, home), request));
            }
        }
        out
    }

    fn due(&self, config: &Config) -> Time {
        let end = self.begun + self.patience(config);
        let home = match self.state {
            State::Locating(_) => end,
            State::Asked { again, silent, .. } => match self.substitute {
                Substitute::None if self.has_delegate => again.min(silent),
                _ => again,
            },
        };
        let deputy = match &self.substitute {
            Substitute::Asked { again, until, others, .. } => {
                let next = until.filter(|_| !others.is_empty());
                next.map_or(*again, |until| until.min(*again))
            }
            _ => end,
        };
        end.min(home).min(deputy)
    }

    /// Returns the question to a home, or to a deputy of a silent one.
    fn message(
        &self,
        own: NodeId,
        (to, silent): (NodeId, Option<NodeId>),
        request: u32,
    ) -> PrivateMessage {
        let check = Private::Check { silent, request, router: own, check: self.check.clone() };
        PrivateMessage { to: to.prefix(), octets: check.to_octets() }
    }
}

/// Returns the deputies of a home, in the order in which they are to be asked, and what the home proves itself with.
pub(crate) fn deputies_of(records: &[Record], home: NodeId) -> Option<(Deputies, Proof)> {
    let own = records.iter().find(|record| record.proof().id() == home)?;
    Some((Deputies::parse(own.value()).ok()?, own.proof()))
}
