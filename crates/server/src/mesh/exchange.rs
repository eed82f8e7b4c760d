//! The channels between workers and the directory of users.
//!
//! Workers call from their threads and never wait: a question is a command to the thread of the router, and its answer is a
//! post to the worker. What is asked and known is the matter of `ringway_onesip`.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::{Arc, OnceLock};

use ringway_directory::{Account, Command, Grant, Secret};
use ringway_mesh::Prefix;
use ringway_net::{Clock, IngressFilter, Mailbox, TwoAddresses};
use ringway_onesip::{Event, World, broker, rules};
use ringway_sansio::{Time, Transport};
use tokio::sync::mpsc;
use tracing::{error, warn};

use crate::config::Settings;
use crate::post::{Post, post_committed};

/// Keeps the permission of a user's home beyond the end of the process: the user with its domain, and the octets; none
/// removes it.
pub type GrantKeeper = Box<dyn Fn(&str, Option<&[u8]>) + Send + Sync>;

/// The connection of all workers with the directory.
pub type Exchange = ringway_onesip::Exchange<Channels>;

/// The channels to the router's thread and to the workers.
pub struct Channels {
    domain: Box<str>,
    clock: Clock,
    commands: mpsc::Sender<Command>,
    mailboxes: OnceLock<Vec<Mailbox<Post>>>,
    keeper: OnceLock<GrantKeeper>,
    /// The index of the TUN device.
    interface: OnceLock<u32>,
}

impl Channels {
    /// Channels for the users of a domain; commands go to the router's thread.
    pub fn new(domain: &str, clock: Clock, commands: mpsc::Sender<Command>) -> Self {
        Channels {
            domain: domain.into(),
            clock,
            commands,
            mailboxes: OnceLock::new(),
            keeper: OnceLock::new(),
            interface: OnceLock::new(),
        }
    }

    /// Returns the clock of the server.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Sets where workers receive answers. Only the first call has an effect.
    pub fn set_mailboxes(&self, mailboxes: Vec<Mailbox<Post>>) {
        let _ = self.mailboxes.set(mailboxes);
    }

    /// Sets what keeps permissions of other homes beyond the end of the process; it must not wait. Only the first call has
    /// an effect.
    pub fn set_keeper(&self, keeper: GrantKeeper) {
        let _ = self.keeper.set(keeper);
    }

    /// Sets the index of the TUN device. Only the first call has an effect.
    pub fn set_interface(&self, interface: u32) {
        let _ = self.interface.set(interface);
    }

    /// A user of this server was added, or has a new password. Returns whether there was room to have the mesh know.
    pub fn set_account(
        &self,
        user: &str,
        realm: &str,
        (account, secret): (Account, Secret),
    ) -> bool {
        let name = format!("{user}@{realm}").into();
        *realm != *self.domain || self.send(Command::SetAccount { name, account, secret })
    }

    /// A user of this server was removed. Returns whether there was room to have the mesh know.
    pub fn remove_account(&self, user: &str, realm: &str) -> bool {
        *realm != *self.domain
            || self.send(Command::RemoveAccount { name: format!("{user}@{realm}").into() })
    }

    /// Has the mesh know a user of this server, at the start: waits for room.
    pub fn announce_account(&self, user: &str, realm: &str, (account, secret): (Account, Secret)) {
        if *realm == *self.domain {
            let name = format!("{user}@{realm}").into();
            self.send_at_start(Command::SetAccount { name, account, secret });
        }
    }

    /// Takes a permission that was kept, at the start: waits for room. Returns whether it has not ended.
    pub fn announce_grant(&self, name: &str, octets: &[u8], now: Time) -> bool {
        let Ok(grant) = Grant::parse(octets) else { return false };
        if grant.has_ended(now) {
            return false;
        }
        self.send_at_start(Command::SetGrant { name: name.into(), grant });
        true
    }

    /// Sends a command when there is room.
    pub fn send_at_start(&self, command: Command) {
        // The router has ended: so will the server.
        let _ = self.commands.blocking_send(command);
    }

    fn mailbox(&self, worker: u8) -> Option<&Mailbox<Post>> {
        self.mailboxes.get()?.get(usize::from(worker))
    }
}

impl World for Channels {
    fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }

    fn has_room(&self) -> bool {
        self.commands.capacity() > 0
    }

    fn carry(&self, event: Event) {
        match event {
            Event::Answered { worker, id, reply } => {
                // What does not arrive is given up by its worker after a while.
                if let Some(mailbox) = self.mailbox(worker) {
                    mailbox.try_post(Post::Answered(id, reply));
                }
            }
            Event::Deliver(delivery) => {
                // What finds no room is tried again by the directory.
                let workers = self.mailboxes.get().map_or(&[][..], Vec::as_slice);
                let worker = delivery.id.0 as usize % workers.len().max(1);
                if let Some(mailbox) = workers.get(worker) {
                    mailbox.try_post(Post::Deliver(Box::new(delivery)));
                }
            }
            Event::Committed { tag, stored } => {
                if let Some(mailbox) = self.mailbox(tag.worker) {
                    post_committed(mailbox, tag.id, stored);
                }
            }
            Event::Withdrawn { name } => {
                warn!("{name} has withdrawn a registration before it was stored");
            }
            Event::Granted { name, grant, evicted } => {
                if let Some(keep) = self.keeper.get() {
                    keep(&name, Some(&grant));
                    evicted.iter().for_each(|name| keep(name, None));
                }
            }
            Event::NotStated { what } => error!("the mesh has no room for {what}"),
            Event::Contested { name, by, marked } => {
                let what = "is also the name of a user that was added on another router";
                match marked {
                    Some(marked) => {
                        error!(
                            "{name} {what}, {by}, before: here the user is {marked} from now on"
                        );
                    }
                    None => warn!("{name} {what}, {by}, later"),
                }
            }
        }
    }
}

/// Has the mesh know that a user was registered here before the start: waits for room.
pub fn announce(exchange: &Exchange, aor: &[u8]) {
    if let Some(command) = exchange.announce(aor) {
        exchange.world().send_at_start(command);
    }
}

/// Returns what datagrams are to be dropped, once the address is known: those of routers that do not come by the mesh.
pub fn ingress(exchange: &Arc<Exchange>) -> Option<IngressFilter> {
    let interface = *exchange.world().interface.get()?;
    Some(IngressFilter { locals: addresses(exchange)?, interface, guards: broker::is_router })
}

/// Returns the addresses of associations with other routers, once they are known, if those are reached by SCTP.
pub fn paths(exchange: &Arc<Exchange>) -> Option<TwoAddresses> {
    let second = |ip| Prefix::of(&ip).filter(|of| of.router() == ip).map(Prefix::second);
    let locals = addresses(exchange).filter(|_| exchange.transport() == Transport::Sctp)?;
    Some(TwoAddresses { locals, second })
}

/// Returns the first and the second address of this router, once they are known.
fn addresses(exchange: &Arc<Exchange>) -> Option<[Ipv6Addr; 2]> {
    let prefix = exchange.id()?.prefix();
    Some([prefix.router(), prefix.second()])
}

/// Returns what the directory is to know of the settings that `before` did not have: the rules that are shared, and the
/// users who answer for service numbers.
pub fn shared_by(domain: &str, settings: &Settings, before: Option<&Settings>) -> Vec<Command> {
    let rules = |settings: &Settings| rules::shared_rules(&settings.routes);
    let services = |settings: Option<&Settings>| -> BTreeMap<Box<str>, Vec<Box<str>>> {
        let mesh = settings.and_then(|settings| settings.mesh.as_ref());
        let services = mesh.map(|mesh| mesh.services.as_slice()).unwrap_or_default();
        let with_domain = |name: &String| format!("{name}@{domain}").into_boxed_str();
        let named = |(number, users): &(String, Vec<String>)| {
            (with_domain(number), users.iter().map(with_domain).collect())
        };
        services.iter().map(named).collect()
    };
    let mut commands = Vec::new();
    let (shared, known) = (rules(settings), before.map(rules).unwrap_or_default());
    if shared != known {
        commands.push(Command::ShareRules { domain: domain.into(), rules: shared });
    }
    let (mut wanted, known) = (services(Some(settings)), services(before));
    for (name, users) in known {
        match wanted.get(&name) {
            Some(same) if *same == users => _ = wanted.remove(&name),
            Some(_) => {}
            None => commands.push(Command::SetService { name, users: Vec::new() }),
        }
    }
    let set = |(name, users)| Command::SetService { name, users };
    commands.extend(wanted.into_iter().map(set));
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        Settings::parse("test", text).unwrap()
    }

    #[test]
    fn only_changes_are_sent_to_the_directory() {
        let first = settings(
            "[mesh]\n[[mesh.service]]\nnumber = \"112\"\nusers = [\"bob\"]\n\
             [[mesh.service]]\nnumber = \"110\"\nusers = [\"bob\"]\n\
             [[route]]\nprefix = \"0\"\nnext_hops = [{ uri = \"sip:gw\" }]\nshare = { cost = 7 }\n",
        );
        let at_start = shared_by("mesh", &first, None);
        assert_eq!(at_start.len(), 3);
        let is_rule = |command: &Command| matches!(command, Command::ShareRules { rules, .. } if rules[0].cost == 7);
        assert!(is_rule(&at_start[0]));
        assert!(shared_by("mesh", &first, Some(&first)).is_empty());
        let later =
            settings("[mesh]\n[[mesh.service]]\nnumber = \"112\"\nusers = [\"bob\", \"eve\"]\n");
        let service = |number: &str, users: &[&str]| Command::SetService {
            name: format!("{number}@mesh").into(),
            users: users.iter().map(|user| format!("{user}@mesh").into()).collect(),
        };
        assert_eq!(
            shared_by("mesh", &later, Some(&first)),
            [
                Command::ShareRules { domain: "mesh".into(), rules: Vec::new() },
                service("110", &[]),
                service("112", &["bob", "eve"]),
            ]
        );
    }
}
