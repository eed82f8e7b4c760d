//! Names of a race: questions, answers that arrive one by one, and the attempts that follow from them (RFC 8305 sections 3
//! and 5).

use super::{Action, Question, Race, State};
use crate::endpoint::{Family, MAX_ADDRESSES, Remote, interlace};
use crate::gather::Candidate;
use ringway_sansio::Time;
use std::net::{IpAddr, SocketAddr};

/// A candidate whose peer is a name.
#[derive(Clone, Debug)]
pub(super) struct Template {
    candidate: Candidate,
    host: String,
    port: u16,
    segment: usize,
}

impl Template {
    /// Returns the template of a candidate; `None` if its peer is an address.
    pub(super) fn of(candidate: &Candidate, segment: usize) -> Option<Template> {
        let Remote::Name { host, port } = &candidate.remote else { return None };
        let (host, port) = (host.clone(), *port);
        Some(Template { candidate: candidate.clone(), host, port, segment })
    }

    fn asks(&self, question: &Question) -> bool {
        question.host == self.host
            && question.interface == self.candidate.interface
            && self.candidate.by_family[question.family as usize].is_some()
    }

    /// Returns the candidate of one of several addresses; `None` if there is no local address for it.
    fn derive(&self, address: IpAddr, index: usize) -> Option<Candidate> {
        let local = self.candidate.by_family[Family::of(address) as usize]?;
        Some(self.candidate.at(SocketAddr::new(address, self.port), local, index))
    }
}

/// A question and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    pub(super) question: Question,
    /// When the answer came.
    answered: Option<Time>,
    addresses: Vec<IpAddr>,
    pub(super) error: Option<String>,
    /// Whether attempts have been derived from the answer.
    derived: bool,
}

impl Race {
    /// Asks for the addresses of all names. AAAA comes before A (RFC 8305 section 3).
    pub(super) fn ask(&mut self) {
        for template in &self.templates {
            for family in Family::ALL {
                let question = Question {
                    host: template.host.clone(),
                    family,
                    interface: template.candidate.interface.clone(),
                };
                let known = self.lookups.iter().any(|lookup| lookup.question == question);
                if known || !template.asks(&question) {
                    continue;
                }
                self.actions.push_back(Action::Resolve(question.clone()));
                let (answered, addresses) = (None, Vec::new());
                let lookup = Lookup { question, answered, addresses, error: None, derived: false };
                self.lookups.push(lookup);
            }
        }
    }

    /// Reports the answer to a question: addresses in the order of their preference (RFC 6724), none if there are none, or
    /// an error. Of more than [`MAX_ADDRESSES`] the first are used. A second answer to a question is ignored.
    pub fn resolved(
        &mut self,
        now: Time,
        question: &Question,
        answer: Result<Vec<IpAddr>, String>,
    ) {
        let mut lookups = self.lookups.iter_mut();
        let Some(lookup) = lookups.find(|lookup| lookup.question == *question) else { return };
        if lookup.answered.is_some() {
            return;
        }
        lookup.answered = Some(now);
        match answer {
            Ok(mut addresses) => {
                addresses.retain(|address| Family::of(*address) == question.family);
                addresses.truncate(MAX_ADDRESSES);
                if addresses.is_empty() {
                    lookup.error = Some(format!("it has no {} address", question.family));
                }
                lookup.addresses = addresses;
            }
            Err(error) => lookup.error = Some(error),
        }
        self.advance(now);
    }

    /// Returns whether an answer is awaited, or an answer is held, that can lead to attempts of a segment before this one.
    pub(super) fn is_resolving(&self, segment: usize) -> bool {
        self.lookups.iter().filter(|lookup| !lookup.derived).any(|lookup| {
            let mut templates = self.templates.iter();
            templates.any(|template| template.segment < segment && template.asks(&lookup.question))
        })
    }

    /// Returns when the first answer that is held for the other family is released.
    pub(super) fn held_until(&self) -> Option<Time> {
        let held = self.lookups.iter().filter(|lookup| !lookup.derived);
        held.filter_map(|lookup| lookup.answered)
            .map(|at| at + self.settings.resolution_delay)
            .min()
    }

    /// Makes attempts of the answers that may be used now.
    pub(super) fn derive(&mut self, now: Time) {
        let mut fresh = false;
        for index in 0..self.lookups.len() {
            let Lookup { question, answered, derived, .. } = &self.lookups[index];
            let Some(at) = answered.filter(|_| !derived) else { continue };
            // RFC 8305 section 3: what comes before AAAA waits for it, but not for long.
            let waits = question.family == Family::V4
                && now < at + self.settings.resolution_delay
                && self.lookups.iter().any(|other| {
                    other.question.host == question.host
                        && other.question.interface == question.interface
                        && other.question.family == Family::V6
                        && other.answered.is_none()
                });
            if !waits {
                self.lookups[index].derived = true;
                fresh = true;
            }
        }
        if !fresh {
            return;
        }
        for template in self.templates.clone() {
            self.derive_template(&template);
        }
    }

    /// Adds the attempts of one name and sorts those that have not started into their order (RFC 8305 section 5).
    fn derive_template(&mut self, template: &Template) {
        let of = |family| {
            let mut lookups = self.lookups.iter();
            let lookup = lookups.find(|lookup| {
                lookup.derived
                    && lookup.question.family == family
                    && template.asks(&lookup.question)
            });
            lookup.map(|lookup| lookup.addresses.clone()).unwrap_or_default()
        };
        let known = [of(Family::V6), of(Family::V4)].concat();
        for (index, address) in interlace(&known, template.candidate.worked).into_iter().enumerate()
        {
            let Some(candidate) = template.derive(address, index) else { continue };
            let existing = self.attempts.iter_mut().find(|attempt| {
                attempt.candidate.remote == candidate.remote
                    && attempt.candidate.protocol == candidate.protocol
                    && attempt.candidate.interface == candidate.interface
            });
            match existing {
                Some(attempt) if attempt.state == State::Waiting => {
                    attempt.candidate.move_to(&candidate);
                }
                Some(_) => {}
                None => self.add(candidate, template.segment),
            }
        }
    }
}
