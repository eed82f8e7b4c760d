//! Where users are, as far as it is being asked: two look-ups a name, of which that of the account is remembered.

use std::collections::BTreeMap;

use ringway_dht::{Answer, LookUpId, Record};
use ringway_mesh::NodeId;
use ringway_mesh::crypto::Crypto;
use ringway_sansio::Time;
use smallvec::SmallVec;

use crate::config::{Config, KIND_ACCOUNT, KIND_LOCATION, KIND_NUMBER};
use crate::resolve::{self, Home, Located};
use crate::statement::{Number, is_number};

/// The number of a question.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QuestionId(pub(crate) u64);

/// What is known of a user after a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// This is.
    Found(Located),
    /// Too few routers have answered.
    Unavailable,
}

/// The account of a name, as far as it is remembered.
#[derive(Clone, Debug)]
struct Remembered {
    home: Option<Home>,
    /// When it was looked up.
    looked_up: Time,
    /// When the home was last seen to claim the name.
    seen: Time,
    /// When it was last of use.
    used: Time,
}

/// What was asked, and which look-ups are still to be answered.
#[derive(Clone, Debug, Default)]
struct Question {
    waiting: SmallVec<[QuestionId; 2]>,
    account: Option<LookUpId>,
    location: Option<LookUpId>,
    /// That of claims, if the name is a number.
    number: Option<LookUpId>,
    /// What routers claim of the number; `None` if too few have answered.
    claims: Option<Vec<(NodeId, Number)>>,
    /// Whether all locations were asked for, because none of the first ones was permitted.
    is_thorough: bool,
    /// The records of locations; `None` if too few have answered.
    records: Option<Vec<Record>>,
}

/// A question that has been answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answered {
    pub name: Box<str>,
    pub waiting: SmallVec<[QuestionId; 2]>,
    pub whereabouts: Whereabouts,
    /// What routers claim of the name, if it is a number and no user.
    pub claims: Vec<(NodeId, Number)>,
}

/// Questions under way, and the accounts that are remembered.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    under_way: BTreeMap<Box<str>, Question>,
    accounts: BTreeMap<Box<str>, Remembered>,
    last: u64,
}

/// The look-ups of a router.
pub(crate) trait LookUps {
    /// Begins a look-up that the first keeper with a record ends; `None` if there are too many.
    fn look_up(&mut self, kind: u8, name: &str) -> Option<LookUpId>;

    /// Begins a look-up for what all of a quorum of keepers have.
    fn look_up_all(&mut self, kind: u8, name: &str) -> Option<LookUpId>;
}

impl Questions {
    /// Returns how many names are asked about.
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Returns whether there is no question.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Returns the home of a user, if it is remembered.
    pub fn home(&self, name: &str) -> Option<&Home> {
        self.accounts.get(name)?.home.as_ref()
    }

    /// Returns the home of a user, if it was looked up a short while ago.
    pub(crate) fn fresh_home(&self, now: Time, config: &Config, name: &str) -> Option<&Home> {
        let known = self.accounts.get(name)?;
        let is_fresh = now.since(known.looked_up) < config.account_age;
        known.home.as_ref().filter(|_| is_fresh)
    }

    /// Returns a number for a question that needs no look-up.
    pub(crate) fn draw(&mut self) -> QuestionId {
        self.last += 1;
        QuestionId(self.last)
    }

    /// Asks where a user is. Who asks for a name that is asked about already gets the same answer. Returns `None` if too
    /// much is asked.
    pub(crate) fn ask(
        &mut self,
        now: Time,
        config: &Config,
        name: &str,
        look_ups: &mut dyn LookUps,
    ) -> Option<QuestionId> {
        let id = self.draw();
        if let Some(question) = self.under_way.get_mut(name) {
            question.waiting.push(id);
            return Some(id);
        }
        if self.under_way.len() >= config.questions {
            return None;
        }
        let location = look_ups.look_up(KIND_LOCATION, name)?;
        let is_fresh = |known: &Remembered| now.since(known.looked_up) < config.account_age;
        let account = match self.accounts.get_mut(name) {
            Some(known) if is_fresh(known) && known.home.is_some() => {
                known.used = now;
                None
            }
            _ => look_ups.look_up_all(KIND_ACCOUNT, name),
        };
        let number = match is_number(name) {
            true => look_ups.look_up_all(KIND_NUMBER, name),
            false => None,
        };
        let question = Question {
            waiting: SmallVec::from_slice(&[id]),
            account,
            location: Some(location),
            number,
            claims: None,
            is_thorough: false,
            records: None,
        };
        self.under_way.insert(name.into(), question);
        Some(id)
    }

    /// Handles the answer to a look-up. Returns the questions that it ends, and their answer, with the name.
    pub(crate) fn answered<C: Crypto>(
        &mut self,
        now: Time,
        config: &Config,
        id: LookUpId,
        answer: Answer,
        signer: &dyn Fn(&Record) -> NodeId,
        look_ups: &mut dyn LookUps,
    ) -> Option<Answered> {
        let is_of = |question: &Question| {
            [question.account, question.location, question.number].contains(&Some(id))
        };
        let name = self.under_way.iter().find(|(_, question)| is_of(question))?.0.clone();
        let question = self.under_way.get_mut(&name)?;
        let records = records_of(answer);
        if question.account == Some(id) {
            question.account = None;
            if let Some(records) = records {
                self.remember(now, config, &name, &records, signer);
            }
        } else if question.number == Some(id) {
            question.number = None;
            question.claims = records.map(|records| claims(&records, signer));
        } else {
            question.location = None;
            question.records = records;
        }
        let question = self.under_way.get_mut(&name)?;
        if [question.account, question.location, question.number] != [None; 3] {
            return None;
        }
        let known = self.accounts.get(&name);
        let home = known.and_then(|known| known.home.clone());
        let bits = config.dht.extension_bits;
        let whereabouts = match (&question.records, home) {
            (Some(records), Some(home)) => {
                let routers = resolve::routers::<C>(now, &name, &home, records, bits, signer);
                // Whoever is on the way can answer with a record of its own, which is worth nothing.
                if routers.is_empty() && !records.is_empty() && !question.is_thorough {
                    question.is_thorough = true;
                    question.location = look_ups.look_up_all(KIND_LOCATION, &name);
                    if question.location.is_some() {
                        return None;
                    }
                }
                let aliases = Vec::new();
                Whereabouts::Found(Located { home: Some(home), routers, aliases })
            }
            // A number that is claimed is one, even where too few routers have answered to tell that no user is named so.
            (_, None) if question.claims.as_ref().is_some_and(|claims| !claims.is_empty()) => {
                Whereabouts::Found(Located::default())
            }
            (Some(_), None) if known.is_some() => match is_number(&name) {
                true if question.claims.is_none() => Whereabouts::Unavailable,
                _ => Whereabouts::Found(Located::default()),
            },
            _ => Whereabouts::Unavailable,
        };
        let Question { waiting, claims, .. } = self.under_way.remove(&name)?;
        let is_nobody = whereabouts == Whereabouts::Found(Located::default());
        let claims = claims.filter(|_| is_nobody).unwrap_or_default();
        Some(Answered { name, waiting, whereabouts, claims })
    }

    /// Remembers whose a name is. A home that was seen to have it keeps it for a while without being seen.
    pub(crate) fn remember(
        &mut self,
        now: Time,
        config: &Config,
        name: &str,
        records: &[Record],
        signer: &dyn Fn(&Record) -> NodeId,
    ) {
        let before = self.accounts.get(name);
        let known = before.and_then(|known| known.home.as_ref().map(|home| home.router));
        let found = resolve::home(records, known, signer);
        let is_same = known.is_some() && found.as_ref().map(|home| home.router) == known;
        let next = match before {
            Some(before)
                if known.is_some() && !is_same && now.since(before.seen) < config.home_memory =>
            {
                Remembered { looked_up: now, used: now, ..before.clone() }
            }
            _ => Remembered { home: found, looked_up: now, seen: now, used: now },
        };
        if self.accounts.len() >= config.accounts && !self.accounts.contains_key(name) {
            self.make_room();
        }
        self.accounts.insert(name.into(), next);
    }

    /// Removes the eighth of the accounts that was used longest ago, those of names that nobody has first.
    fn make_room(&mut self) {
        let mut ages: Vec<(bool, Time)> =
            self.accounts.values().map(|known| (known.home.is_some(), known.used)).collect();
        ages.sort_unstable();
        let Some(&limit) = ages.get(ages.len() / 8) else { return };
        self.accounts.retain(|_, known| (known.home.is_some(), known.used) > limit);
    }
}

/// Returns what routers claim of a number; `records` have been verified.
fn claims(records: &[Record], signer: &dyn Fn(&Record) -> NodeId) -> Vec<(NodeId, Number)> {
    let claims = records.iter().filter_map(|record| {
        let number = Number::parse(record.value()).ok()?;
        Some((signer(record), number))
    });
    claims.collect()
}

/// Returns the records of an answer; `None` if too few routers have answered.
pub(crate) fn records_of(answer: Answer) -> Option<Vec<Record>> {
    match answer {
        Answer::Found(records) | Answer::Partial(records) => Some(records),
        Answer::Absent => Some(Vec::new()),
        Answer::Unknown => None,
    }
}
