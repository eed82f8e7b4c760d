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
    /// Deputies are asked.
    Asked {
        /// Those that were asked, the last one last.
        asked: Vec<NodeId>,
        /// The one that has said that the credentials are wrong.
        denied: Option<NodeId>,
        /// Those that were not asked yet, the next one last.
        others: Vec<NodeId>,
        request: u32,
        /// When the last one is asked again.
        again: Time,
        /// When the next one is asked.
        until: Time,
        is_confirmed: bool,
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
    /// Homes that were silent when they were asked last, each with the deputy that has answered.
    silent: BTreeMap<NodeId, (Time, NodeId)>,
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
        let since = self.silent.get(&home).map(|&(at, _)| now.since(at));
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
        // The one that has answered before is asked first.
        let last = self.silent.get(&home).map(|&(_, deputy)| deputy);
        deputies.sort_by_key(|deputy| Some(*deputy) == last);
        let Some(deputy) = deputies.pop() else {
            verification.substitute = Substitute::None;
            verification.has_delegate = false;
            return None;
        };
        verification.substitute = Substitute::Asked {
            asked: vec![deputy],
            denied: None,
            others: deputies,
            request,
            again: now + config.repeat,
            until: now + config.deputy_confirms,
            is_confirmed: false,
        };
        Some(verification.message(own, (deputy, Some(home)), request))
    }

    /// A deputy confirms that it was asked. Returns whether it was.
    pub(crate) fn confirmed(
        &mut self,
        (now, config): (Time, &Config),
        from: Prefix,
        of: u32,
    ) -> bool {
        self.asked.values_mut().any(|verification| match &mut verification.substitute {
            Substitute::Asked { asked, request, until, is_confirmed, .. } if *request == of => {
                let is_last = asked.last().is_some_and(|deputy| from.contains(*deputy));
                if is_last && !core::mem::replace(is_confirmed, true) {
                    *until = now + config.deputy_answers;
                }
                asked.iter().any(|deputy| from.contains(*deputy))
            }
            _ => false,
        })
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

    /// Returns the verification that a router answers with JUDGED, and the home of its user: the router is this home, or a
    /// deputy that was asked instead.
    pub(crate) fn of_answer(&self, from: Prefix, answered: u32) -> Option<(QuestionId, NodeId)> {
        self.asked.iter().find_map(|(&id, verification)| {
            let State::Asked { home, request, .. } = verification.state else { return None };
            let is_home = request == answered && from.contains(home);
            let is_deputy = match &verification.substitute {
                Substitute::Asked { asked, request, .. } => {
                    *request == answered && asked.iter().any(|deputy| from.contains(*deputy))
                }
                _ => false,
            };
            (is_home || is_deputy).then_some((id, home))
        })
    }

    /// Returns the user of a verification.
    pub(crate) fn name(&self, id: QuestionId) -> Option<&str> {
        self.asked.get(&id).map(|verification| &*verification.check.name)
    }

    /// A home, or a deputy, has judged; `grant` has been verified. Returns the outcome, if it is one: one deputy alone does not
    /// shut a user out.
    pub(crate) fn judged(
        &mut self,
        (now, config): (Time, &Config),
        (id, from): (QuestionId, Prefix),
        verdict: Verdict,
        grant: Option<Grant>,
    ) -> Option<Outcome> {
        let verification = self.asked.get_mut(&id)?;
        let home = verification.home()?;
        match verification.deputy(from).filter(|_| !from.contains(home)) {
            Some(deputy) => {
                if verdict != Verdict::Right && verification.ask_another(now, config, deputy) {
                    return None;
                }
                self.note_silent(now, config, home, deputy);
            }
            None => _ = self.silent.remove(&home),
        }
        let name = self.asked.remove(&id)?.check.name;
        Some(Outcome { id, verdict: Some(verdict), name, grant })
    }

    /// A home was silent: it is not waited for again soon.
    fn note_silent(&mut self, now: Time, config: &Config, home: NodeId, deputy: NodeId) {
        if self.silent.len() >= config.silent_homes {
            let oldest = self.silent.iter().min_by_key(|(_, (at, _))| *at).map(|(&home, _)| home);
            oldest.iter().for_each(|home| _ = self.silent.remove(home));
        }
        self.silent.insert(home, (now, deputy));
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

    /// Returns the deputy with this prefix that was asked.
    fn deputy(&self, from: Prefix) -> Option<NodeId> {
        match &self.substitute {
            Substitute::Asked { asked, .. } => asked.iter().copied().find(|id| from.contains(*id)),
            _ => None,
        }
    }

    /// A deputy says no: has another one asked, or waits for one that was. Returns whether there is one, and none has said no
    /// before.
    fn ask_another(&mut self, now: Time, config: &Config, by: NodeId) -> bool {
        let Substitute::Asked { asked, denied, others, until, .. } = &mut self.substitute else {
            return false;
        };
        if denied.is_some_and(|other| other != by) || others.is_empty() && asked.len() == 1 {
            return false;
        }
        *denied = Some(by);
        if asked.last() == Some(&by) {
            *until = now;
            self.ask_next(now, config);
        }
        true
    }

    /// Has the next deputy asked when it is time for it.
    fn ask_next(&mut self, now: Time, config: &Config) {
        let Substitute::Asked { asked, others, again, until, is_confirmed, .. } =
            &mut self.substitute
        else {
            return;
        };
        if *until <= now
            && let Some(next) = others.pop()
        {
            asked.push(next);
            (*again, *until, *is_confirmed) = (now, now + config.deputy_confirms, false);
        }
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
        self.ask_next(now, config);
        let home = self.home();
        if let Substitute::Asked { asked, request, again, is_confirmed, .. } = &mut self.substitute
            && *again <= now
            && let Some(&deputy) = asked.last()
        {
            *again = now + config.repeat * if *is_confirmed { 4 } else { 1 };
            let request = *request;
            out.push(self.message(own, (deputy, home), request));
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
            Substitute::Asked { again, until, others, .. } if !others.is_empty() => {
                (*until).min(*again)
            }
            Substitute::Asked { again, .. } => *again,
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
