//! The users that numbers stand for: which claims hold, and which of the users is nearest.
//!
//! The home of a user claims a number for it, and the user's account must state the number too. Several homes may claim a
//! *service* number, such as one for emergencies: it stands for all users that are claimed, of which those at the nearest
//! router come first.

use std::collections::BTreeMap;

use ringway_mesh::{NodeId, Prefix};
use ringway_sansio::{Duration, Time};
use smallvec::SmallVec;

use crate::config::{Config, MAX_ALIASES};
use crate::private::{Private, PrivateMessage};
use crate::questions::{QuestionId, Whereabouts};
use crate::resolve::Located;
use crate::statement::{Number, number_name};

/// A user that a number stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alias {
    /// The user with its domain.
    pub name: Box<str>,
    /// Whether the user is called before the others.
    pub is_first: bool,
}

/// A user for which a number is claimed.
#[derive(Clone, Debug)]
struct Candidate {
    by: NodeId,
    user: Box<str>,
    is_service: bool,
    question: Option<QuestionId>,
    /// What the question has found out.
    located: Option<Located>,
}

/// The routers that are asked how far they are, each twice: the first message to a router opens the session that carries it.
#[derive(Clone, Debug)]
struct Probe {
    request: u32,
    until: Time,
    /// When each was asked last, or the time that the answer to the second message took.
    routers: BTreeMap<Prefix, Asked>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    First,
    Second { at: Time },
    Answered { after: Duration },
}

/// A number that is being resolved.
#[derive(Clone, Debug)]
struct Resolution {
    waiting: SmallVec<[QuestionId; 2]>,
    candidates: Vec<Candidate>,
    probe: Option<Probe>,
}

/// A number that has been resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resolved {
    pub name: Box<str>,
    pub waiting: SmallVec<[QuestionId; 2]>,
    pub aliases: Vec<Alias>,
}

/// What happens to a number when one of its users has been located.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing yet.
    Wait,
    /// These messages find out which router is nearest.
    Probe(Vec<PrivateMessage>),
    /// It is resolved.
    Done(Resolved),
}

/// Numbers that are being resolved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    open: BTreeMap<Box<str>, Resolution>,
}

impl Numbers {
    /// Begins to resolve a number that is claimed so. `ask` begins the question where a user is.
    pub(crate) fn begin(
        &mut self,
        name: Box<str>,
        waiting: SmallVec<[QuestionId; 2]>,
        claims: Vec<(NodeId, Number)>,
        mut ask: impl FnMut(&str) -> Option<QuestionId>,
    ) {
        let users = claims.into_iter().flat_map(|(by, number)| {
            let is_service = number.is_service;
            number.users.into_iter().map(move |user| (by, user, is_service))
        });
        let candidates = users.take(MAX_ALIASES).map(|(by, user, is_service)| {
            let question = ask(&user);
            Candidate { by, user, is_service, question, located: None }
        });
        let candidates = candidates.collect();
        self.open.insert(name, Resolution { waiting, candidates, probe: None });
    }

    /// Has a question wait for a number that is being resolved. Returns whether it is.
    pub(crate) fn join(&mut self, name: &str, questions: &[QuestionId]) -> bool {
        let Some(open) = self.open.get_mut(name) else { return false };
        open.waiting.extend_from_slice(questions);
        true
    }

    /// Returns the number for which this question was asked.
    pub(crate) fn of(&self, question: QuestionId) -> Option<Box<str>> {
        let asks = |open: &Resolution| open.candidates.iter().any(|c| c.question == Some(question));
        self.open.iter().find(|(_, open)| asks(open)).map(|(name, _)| name.clone())
    }

    /// Records where a user of a number is, or that this cannot be found out.
    pub(crate) fn note(&mut self, name: &str, question: QuestionId, whereabouts: &Whereabouts) {
        let Some(open) = self.open.get_mut(name) else { return };
        for candidate in open.candidates.iter_mut().filter(|c| c.question == Some(question)) {
            candidate.question = None;
            if let Whereabouts::Found(located) = whereabouts {
                candidate.located = Some(located.clone());
            }
        }
    }

    /// Goes on with a number, of which users may have been located.
    pub(crate) fn step(
        &mut self,
        (now, config): (Time, &Config),
        own: NodeId,
        name: &str,
        request: u32,
    ) -> Step {
        let Some(open) = self.open.get_mut(name) else { return Step::Wait };
        if open.probe.is_some() || open.candidates.iter().any(|c| c.question.is_some()) {
            return Step::Wait;
        }
        retain_valid(&mut open.candidates, name);
        let is_here = |c: &Candidate| c.routers().any(|router| router == own);
        let first = own.prefix();
        if open.candidates.len() < 2 || open.candidates.iter().any(is_here) {
            return self.finish(name, Some(first)).map_or(Step::Wait, Step::Done);
        }
        let mut routers: Vec<Prefix> =
            open.candidates.iter().flat_map(Candidate::routers).map(NodeId::prefix).collect();
        routers.sort_unstable();
        routers.dedup();
        routers.truncate(MAX_ALIASES);
        let messages = routers.iter().map(|&to| message(to, request)).collect();
        let asked = routers.into_iter().map(|router| (router, Asked::First)).collect();
        open.probe = Some(Probe { request, until: now + config.nearest, routers: asked });
        Step::Probe(messages)
    }

    /// Handles the answer of a router to a probe. The number is resolved when all have answered twice.
    pub(crate) fn probed(&mut self, now: Time, from: Prefix, request: u32) -> Step {
        let found = self.open.iter_mut().find_map(|(name, open)| {
            let probe = open.probe.as_mut()?;
            let second = probe.request.wrapping_add(1);
            match (probe.routers.get(&from)?, request) {
                (Asked::First, first) if first == probe.request => {
                    probe.routers.insert(from, Asked::Second { at: now });
                    Some((name.clone(), Some(message(from, second)), false))
                }
                (&Asked::Second { at }, again) if again == second => {
                    probe.routers.insert(from, Asked::Answered { after: now.since(at) });
                    let is_answer = |asked: &Asked| matches!(asked, Asked::Answered { .. });
                    Some((name.clone(), None, probe.routers.values().all(is_answer)))
                }
                _ => None,
            }
        });
        match found {
            Some((_, Some(message), _)) => Step::Probe(vec![message]),
            Some((name, None, true)) => self.finish_near(&name).map_or(Step::Wait, Step::Done),
            _ => Step::Wait,
        }
    }

    /// Ends the search for the nearest router where not all have answered in time.
    pub(crate) fn timeout(&mut self, now: Time) -> Vec<Resolved> {
        let is_over = |probe: &Probe| probe.until <= now;
        let over = self.open.iter().filter(|(_, open)| open.probe.as_ref().is_some_and(is_over));
        let names: Vec<Box<str>> = over.map(|(name, _)| name.clone()).collect();
        names.iter().filter_map(|name| self.finish_near(name)).collect()
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.open.values().filter_map(|open| Some(open.probe.as_ref()?.until)).min()
    }

    /// Ends a resolution with what its routers have answered. One that has answered once is farther than those that have
    /// answered twice.
    fn finish_near(&mut self, name: &str) -> Option<Resolved> {
        let probe = self.open.get(name)?.probe.as_ref()?;
        let distance = |asked: &Asked| match *asked {
            Asked::Answered { after } => Some((0, after)),
            Asked::Second { .. } => Some((1, Duration::ZERO)),
            Asked::First => None,
        };
        let near = probe.routers.iter().filter_map(|(&at, asked)| Some((distance(asked)?, at)));
        let first = near.min().map(|(_, router)| router);
        self.finish(name, first)
    }

    /// Ends a resolution. Users at the router `first` come first.
    fn finish(&mut self, name: &str, first: Option<Prefix>) -> Option<Resolved> {
        let (name, open) = self.open.remove_entry(name)?;
        let mut aliases: Vec<Alias> = Vec::with_capacity(open.candidates.len());
        for candidate in open.candidates {
            if aliases.iter().all(|alias| alias.name != candidate.user) {
                let is_first = first.is_some_and(|first| candidate.is_at(first));
                aliases.push(Alias { name: candidate.user, is_first });
            }
        }
        Some(Resolved { name, waiting: open.waiting, aliases })
    }
}

fn message(to: Prefix, request: u32) -> PrivateMessage {
    PrivateMessage { to, octets: Private::Probe { request }.to_octets() }
}

impl Candidate {
    /// Returns the routers at which the user is registered.
    fn routers(&self) -> impl Iterator<Item = NodeId> {
        self.located.iter().flat_map(|located| located.routers.iter().map(|&(router, _)| router))
    }

    fn is_at(&self, prefix: Prefix) -> bool {
        self.routers().any(|router| prefix.contains(router))
    }

    /// Returns whether the home of the user claims the number.
    fn is_of_home(&self) -> bool {
        let home = self.located.as_ref().and_then(|located| located.home.as_ref());
        home.is_some_and(|home| home.router == self.by)
    }

    /// Returns whether the user's account states the number `name`.
    fn has_number(&self, name: &str) -> bool {
        let home = self.located.as_ref().and_then(|located| located.home.as_ref());
        home.and_then(|home| number_name(&self.user, &home.account.number))
            .is_some_and(|n| n == name)
    }
}

/// Removes claims that do not hold. A user's own number is no service: of several users the one has it whose home has claimed
/// it first.
fn retain_valid(candidates: &mut Vec<Candidate>, name: &str) {
    candidates.retain(Candidate::is_of_home);
    match candidates.iter().position(|claim| !claim.is_service && claim.has_number(name)) {
        Some(first) => {
            candidates.swap(0, first);
            candidates.truncate(1);
        }
        None => candidates.retain(|candidate| candidate.is_service),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::Home;
    use crate::statement::Account;

    const OWN: NodeId = NodeId::new(1 << 60);

    fn router(number: u64) -> NodeId {
        NodeId::new(number << 56)
    }

    fn located(home: NodeId, number: &str, at: &[NodeId]) -> Whereabouts {
        let account = Account { number: number.into(), ..Account::default() };
        let routers = at.iter().map(|&router| (router, 1_000)).collect();
        let home = Some(Home { router: home, account });
        Whereabouts::Found(Located { home, routers, aliases: Vec::new() })
    }

    fn claim(by: NodeId, user: &str, is_service: bool) -> (NodeId, Number) {
        (by, Number { is_service, users: vec![user.into()] })
    }

    /// Resolves a number with claims, and the whereabouts of each user in their order.
    fn resolve(
        numbers: &mut Numbers,
        name: &str,
        claims: Vec<(NodeId, Number)>,
        found: &[Whereabouts],
    ) -> Step {
        let mut last = 0;
        numbers.begin(name.into(), SmallVec::from_slice(&[QuestionId(99)]), claims, |_| {
            last += 1;
            Some(QuestionId(last))
        });
        let config = Config::default();
        for (index, whereabouts) in found.iter().enumerate() {
            let question = QuestionId(index as u64 + 1);
            assert_eq!(numbers.of(question).as_deref(), Some(name));
            numbers.note(name, question, whereabouts);
        }
        numbers.step((Time::ZERO, &config), OWN, name, 7)
    }

    fn names(step: &Step) -> Vec<&str> {
        match step {
            Step::Done(resolved) => resolved.aliases.iter().map(|alias| &*alias.name).collect(),
            other => panic!("not resolved: {other:?}"),
        }
    }

    #[test]
    fn a_number_is_that_of_the_account_that_states_it() {
        let (home, other) = (router(2), router(3));
        let mut numbers = Numbers::default();
        let claims = vec![
            claim(other, "mallory@mesh", true),
            // Not its user, a user without the number, and one that was claimed later.
            claim(other, "alice@mesh", false),
            claim(other, "eve@mesh", false),
            claim(home, "alice@mesh", false),
            claim(other, "carol@mesh", false),
        ];
        let alice = located(home, "204", &[home]);
        let found = [
            located(other, "", &[other]),
            alice.clone(),
            located(other, "205", &[other]),
            alice,
            located(other, "204", &[other]),
        ];
        let step = resolve(&mut numbers, "204@mesh", claims, &found);
        assert_eq!(names(&step), ["alice@mesh"]);
        assert!(numbers.open.is_empty());
    }

    #[test]
    fn nobody_has_a_number_that_is_claimed_wrongly() {
        let mut numbers = Numbers::default();
        let claims = vec![claim(router(3), "alice@mesh", true)];
        let found = [located(router(2), "204", &[router(2)])];
        assert!(names(&resolve(&mut numbers, "204@mesh", claims, &found)).is_empty());
        let claims = vec![claim(router(3), "alice@mesh", true)];
        let step = resolve(&mut numbers, "205@mesh", claims, &[Whereabouts::Unavailable]);
        assert!(names(&step).is_empty());
    }

    #[test]
    fn the_nearest_router_has_the_first_operator() {
        let mut numbers = Numbers::default();
        let claims =
            || vec![claim(router(2), "alice@mesh", true), claim(router(3), "bob@mesh", true)];
        let found = [located(router(2), "", &[router(4)]), located(router(3), "", &[router(3)])];
        let Step::Probe(messages) = resolve(&mut numbers, "112@mesh", claims(), &found) else {
            panic!("nobody is asked");
        };
        let to: Vec<Prefix> = messages.iter().map(|message| message.to).collect();
        assert_eq!(to, [router(3).prefix(), router(4).prefix()]);
        // A second message before the first, another number, or a router that was not asked.
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        for (from, request) in [(3, 8), (3, 9), (5, 7)] {
            assert_eq!(numbers.probed(at(1), router(from).prefix(), request), Step::Wait);
        }
        // Router 3 answers first: a session with it was open. Router 4 is nearer.
        for (ms, from) in [(10, 3), (50, 4)] {
            let again = numbers.probed(at(ms), router(from).prefix(), 7);
            assert!(matches!(again, Step::Probe(ref messages) if messages.len() == 1));
            assert_eq!(numbers.probed(at(ms), router(from).prefix(), 7), Step::Wait);
        }
        assert_eq!(numbers.probed(at(20), router(3).prefix(), 8), Step::Wait);
        let Step::Done(resolved) = numbers.probed(at(55), router(4).prefix(), 8) else {
            panic!("not resolved when all have answered");
        };
        let firsts: Vec<bool> = resolved.aliases.iter().map(|alias| alias.is_first).collect();
        assert_eq!(firsts, [true, false]);
        assert_eq!(resolved.waiting[..], [QuestionId(99)]);
        // Nobody answers: none is first.
        resolve(&mut numbers, "112@mesh", claims(), &found);
        let due = numbers.poll_timeout().unwrap();
        assert!(numbers.timeout(Time::ZERO).is_empty());
        let resolved = numbers.timeout(due).remove(0);
        assert!(resolved.aliases.iter().all(|alias| !alias.is_first));
        // Only one answers, once.
        resolve(&mut numbers, "112@mesh", claims(), &found);
        numbers.probed(at(1), router(3).prefix(), 7);
        let resolved = numbers.timeout(due).remove(0);
        assert!(!resolved.aliases[0].is_first && resolved.aliases[1].is_first);
    }

    #[test]
    fn an_operator_here_is_nearest() {
        let mut numbers = Numbers::default();
        let claims = vec![claim(router(2), "alice@mesh", true), claim(router(3), "bob@mesh", true)];
        let found = [located(router(2), "", &[router(2)]), located(router(3), "", &[OWN])];
        let step = resolve(&mut numbers, "112@mesh", claims, &found);
        let Step::Done(resolved) = step else { panic!("routers are asked") };
        let firsts: Vec<bool> = resolved.aliases.iter().map(|alias| alias.is_first).collect();
        assert_eq!(firsts, [false, true]);
    }
}
