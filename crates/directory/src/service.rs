//! The directory as a SIP server sees it: what it wants is a [`Command`], and what it learns a [`Report`]. Neither waits for
//! the other.

use ringway_mesh::NodeId;
use ringway_mesh::crypto::Crypto;
use ringway_sansio::{Random, Time};

use crate::deputies::Secret;
use crate::listing::{ListEnd, Listed, Subject};
use crate::machine::{Directory, Event};
use crate::mail::{Delivery, DeliveryId, Mail};
use crate::private::{CredentialsCheck, Verdict};
use crate::questions::{QuestionId, Whereabouts};
use crate::statement::{Account, Grant, SharedRule};
use crate::verifications::JudgementId;

/// What a server wants of the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// A user of this router, new or changed.
    SetAccount {
        /// The user with its domain.
        name: Box<str>,
        /// What is stated of it.
        account: Account,
        /// What a deputy's server needs to check the user's credentials: see [`Directory::set_account`].
        secret: Secret,
    },
    /// A user of this router is removed.
    RemoveAccount {
        /// The user with its domain.
        name: Box<str>,
    },
    /// A user is registered here. [`Report::Registered`] follows.
    Register {
        /// The user with its domain.
        name: Box<str>,
        /// The preference in thousandths.
        preference: u16,
    },
    /// A user is not registered here any more.
    Unregister {
        /// The user with its domain.
        name: Box<str>,
    },
    /// Where is a user? [`Report::Located`] follows.
    Locate {
        /// The user with its domain.
        name: Box<str>,
    },
    /// Are these credentials right? [`Report::Verified`] follows with the same tag.
    Verify {
        /// What to check.
        check: CredentialsCheck,
        /// The server's number for it.
        tag: u64,
    },
    /// Which users of this router answer for a service number, instead of what it stated before.
    SetService {
        /// The number with the domain.
        name: Box<str>,
        /// The users with their domain; none if nobody does.
        users: Vec<Box<str>>,
    },
    /// What this router shares with the users of all routers, instead of what it stated before.
    ShareRules {
        /// The domain.
        domain: Box<str>,
        /// The rules.
        rules: Vec<SharedRule>,
    },
    /// What do routers share? [`Report::Rules`] follows.
    AskRules {
        /// The domain.
        domain: Box<str>,
    },
    /// A permission that was reported before a restart.
    SetGrant {
        /// The user with its domain.
        name: Box<str>,
        /// The permission.
        grant: Grant,
    },
    /// A message of another service for a router, which may be lost.
    Send {
        /// The router.
        to: NodeId,
        /// The service.
        service: u8,
        /// The message.
        octets: Box<[u8]>,
    },
    /// A message is to be kept until its recipient is registered somewhere. [`Report::Kept`] follows with the same tag.
    Keep {
        /// The server's number for it.
        tag: u64,
        /// The message.
        mail: Mail,
    },
    /// What became of a message that was to be delivered.
    Delivered {
        /// Its number.
        id: DeliveryId,
        /// Whether the recipient has it, or has refused it for good; otherwise it is tried again.
        is_done: bool,
    },
    /// What do all routers state? [`Report::Listed`] follows, several times, and [`Report::ListEnded`].
    List {
        /// Of what.
        subject: Subject,
    },
    /// The answer to [`Report::Judge`].
    Judge {
        /// Its number.
        id: JudgementId,
        /// What the server thinks.
        verdict: Verdict,
    },
}

/// What a server learns of the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// A registration survives the end of any two routers that keep it, or could not be stored yet, or not at all.
    Registered {
        /// The user.
        name: Box<str>,
        /// Whether it is stored.
        stored: bool,
    },
    /// Where a user is.
    Located {
        /// The user.
        name: Box<str>,
        /// What is known.
        whereabouts: Whereabouts,
    },
    /// What routers share; `None` if too few have answered.
    Rules {
        /// The rules of each.
        rules: Option<Vec<(NodeId, Vec<SharedRule>)>>,
    },
    /// Something that was to be stated found no room, or only a part of it did.
    NotStated {
        /// What, for the operator.
        what: String,
    },
    /// What the home of a user thinks of credentials; `None` if it has not answered.
    Verified {
        /// The number of the command.
        tag: u64,
        /// What it thinks.
        verdict: Option<Verdict>,
    },
    /// The home of a user has permitted this router to have it.
    Granted {
        /// The user.
        name: Box<str>,
        /// The permission.
        grant: Grant,
        /// A user whose permission has made room for it.
        evicted: Option<Box<str>>,
    },
    /// Another router asks for a check of credentials.
    Judge {
        /// For the answer.
        id: JudgementId,
        /// The router.
        router: NodeId,
        /// What to check.
        check: CredentialsCheck,
        /// What the user's home has given with [`Command::SetAccount`], if it is silent and this router checks instead.
        secret: Option<Secret>,
    },
    /// Another router has sent a message of another service.
    Message {
        /// The service.
        service: u8,
        /// The router.
        router: NodeId,
        /// The message.
        octets: Box<[u8]>,
    },
    /// A message is kept, or is not.
    Kept {
        /// The number of the command.
        tag: u64,
        /// Whether it survives the end of this router and of any two others.
        is_kept: bool,
    },
    /// A message is to be delivered: answer with [`Command::Delivered`].
    Deliver(Delivery),
    /// A part of a list.
    Listed(Listed),
    /// A list has ended; `None` if it was not begun.
    ListEnded {
        /// Of what.
        subject: Subject,
        /// How.
        end: Option<ListEnd>,
    },
    /// Another home claims the name of a user of this router.
    Contested {
        /// The name.
        name: Box<str>,
        /// The other home.
        by: NodeId,
        /// The name that the user has besides, if the other was first.
        marked: Option<Box<str>>,
    },
}

/// Carries commands to a directory, and its events back.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// Numbers of the server for verifications under way.
    tags: Vec<(QuestionId, u64)>,
}

impl Service {
    /// Handles a command. Returns what is known of it at once; the rest follows by [`Service::poll_report`].
    pub fn handle<C: Crypto>(
        &mut self,
        now: Time,
        command: Command,
        directory: &mut Directory<C>,
        random: &mut dyn Random,
    ) -> Option<Report> {
        match command {
            Command::SetAccount { name, account, secret } => {
                // What the DHT has no room for is seen by those who look the user up.
                _ = directory.set_account(now, &name, (&account, &secret.0), random);
            }
            Command::RemoveAccount { name } => _ = directory.remove_account(now, &name, random),
            Command::Register { name, preference } => {
                return match directory.register(now, &name, preference, random) {
                    Ok(false) => None,
                    Ok(true) => Some(Report::Registered { name, stored: true }),
                    Err(_) => Some(Report::Registered { name, stored: false }),
                };
            }
            Command::Unregister { name } => directory.unregister(now, &name, random),
            Command::Locate { name } => {
                if directory.locate(now, &name, random).is_none() {
                    let whereabouts = Whereabouts::Unavailable;
                    return Some(Report::Located { name, whereabouts });
                }
            }
            Command::Verify { check, tag } => match directory.verify(now, check, random) {
                Some(id) => self.tags.push((id, tag)),
                None => return Some(Report::Verified { tag, verdict: None }),
            },
            Command::SetService { name, users } => {
                if directory.set_service(now, &name, &users, random).is_err() {
                    let what = format!("the users who answer for {name}");
                    return Some(Report::NotStated { what });
                }
            }
            Command::ShareRules { domain, rules } => {
                let shared = directory.share_rules(now, &domain, &rules, random);
                let left = rules.len() - shared.unwrap_or(0);
                if left > 0 {
                    let what = format!("{left} of {} rules that are shared", rules.len());
                    return Some(Report::NotStated { what });
                }
            }
            Command::AskRules { domain } => {
                if !directory.ask_rules(now, &domain, random) {
                    return Some(Report::Rules { rules: None });
                }
            }
            Command::SetGrant { name, grant } => directory.set_grant(now, &name, grant),
            Command::Judge { id, verdict } => directory.judge(now, id, verdict),
            Command::Send { to, service, octets } => directory.send(to, service, &octets),
            Command::Keep { tag, mail } => {
                if !directory.keep(now, tag, mail, random) {
                    return Some(Report::Kept { tag, is_kept: false });
                }
            }
            Command::Delivered { id, is_done } => directory.delivered(now, id, is_done, random),
            Command::List { subject } => {
                if !directory.list(now, subject, random) {
                    return Some(Report::ListEnded { subject, end: None });
                }
            }
        }
        None
    }

    /// Returns the next report of a directory.
    pub fn poll_report<C: Crypto>(&mut self, directory: &mut Directory<C>) -> Option<Report> {
        loop {
            return Some(match directory.poll_event()? {
                Event::Registered { name, stored } => Report::Registered { name, stored },
                Event::Located(_, name, whereabouts) => Report::Located { name, whereabouts },
                Event::Verified(id, verdict) => {
                    let Some(at) = self.tags.iter().position(|(of, _)| *of == id) else { continue };
                    Report::Verified { tag: self.tags.swap_remove(at).1, verdict }
                }
                Event::Rules(rules) => Report::Rules { rules },
                Event::Granted { name, grant, evicted } => Report::Granted { name, grant, evicted },
                Event::Judge { id, router, check, secret } => {
                    Report::Judge { id, router, check, secret }
                }
                Event::Message { service, router, octets } => {
                    Report::Message { service, router, octets }
                }
                Event::Kept { tag, is_kept } => Report::Kept { tag, is_kept },
                Event::Deliver(delivery) => Report::Deliver(delivery),
                Event::Listed(listed) => Report::Listed(listed),
                Event::ListEnded(subject, end) => Report::ListEnded { subject, end: Some(end) },
                Event::Contested { name, by, marked } => Report::Contested { name, by, marked },
            });
        }
    }
}
