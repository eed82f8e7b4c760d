//! The router's part of the directory of users, and the connection of a SIP server in the same process with it.
//!
//! Every router keeps records of users, whether or not it serves phones. A server adds what it knows by [`Command`]s and
//! learns the rest by [`Report`]s; neither waits for the other.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use ringway_directory::verifications::JudgementId;
use ringway_directory::{
    Account, Config, CredentialsCheck, Directory, Event, Grant, QuestionId, SharedRule, Verdict,
    Whereabouts,
};
use ringway_mesh::crypto::Real;
use ringway_mesh::router::Refusal;
use ringway_mesh::{Identity, NodeId, Prefix};
use ringway_os::ChaCha;
use ringway_sansio::Time;
use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use crate::traffic::Traffic;

/// The number of the DHT among the applications of the mesh.
pub const APPLICATION: u16 = 1;
/// UDP port, at the address of a router in the mesh, of private messages between routers.
pub const PRIVATE_PORT: u16 = 5_268;
/// Commands that may wait. More are refused.
pub const MAX_COMMANDS: usize = 4_096;
/// Commands and private messages that are handled before packets again.
const TURN: usize = 64;
/// Length in octets of the buffer of private messages. A longer one is malformed.
const PRIVATE_BUFFER: usize = 2_048;

/// What a server wants of the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// A user of this router, new or changed.
    SetAccount {
        /// The user with its domain.
        name: Box<str>,
        /// What is stated of it.
        account: Account,
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
    /// Which users of this router answer for a service number, instead of what was said before.
    SetService {
        /// The number with the domain.
        name: Box<str>,
        /// The users with their domain; none if nobody does.
        users: Vec<Box<str>>,
    },
    /// What this router shares with the users of all routers, instead of what was said before.
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
    /// The router is in the mesh.
    Ready {
        /// Its id.
        id: NodeId,
        /// The index of its TUN device.
        interface: u32,
    },
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

/// A server that runs beside the router.
pub struct Attachment {
    /// Its commands.
    pub commands: mpsc::Receiver<Command>,
    /// Its receiver of reports, which must not wait.
    pub report: Box<dyn FnMut(Report) + Send>,
}

/// The directory, and what carries its messages.
pub(crate) struct Users {
    directory: Directory<Real>,
    random: ChaCha,
    attachment: Option<Attachment>,
    /// What the directory last knew of the ring: changes of the contacts, and the other end of the line.
    seen: Option<(u64, Option<NodeId>)>,
    /// Numbers of the server for verifications under way.
    tags: Vec<(QuestionId, u64)>,
    socket: Option<UdpSocket>,
    buffer: Box<[u8; PRIVATE_BUFFER]>,
    /// Messages that the mesh has not sent, as its budget was used up.
    pub(crate) refused: u64,
}

impl Users {
    pub(crate) fn new(
        identity: &Arc<Identity>,
        attachment: Option<Attachment>,
        now: Time,
    ) -> io::Result<Users> {
        Ok(Users {
            directory: Directory::new(Config::default(), identity.clone(), now),
            random: ChaCha::from_os()?,
            attachment,
            seen: None,
            tags: Vec::new(),
            socket: None,
            buffer: Box::new([0; PRIVATE_BUFFER]),
            refused: 0,
        })
    }

    /// Begins to receive private messages at the router's address, which this host has now on the device `tun`.
    pub(crate) fn open(&mut self, address: Ipv6Addr, tun: &str, interface: u32) -> io::Result<()> {
        let id = self.directory.id();
        self.report(Report::Ready { id, interface });
        self.socket = Some(private_socket(address, tun)?);
        Ok(())
    }

    /// Waits for a command or a private message, and handles it. May be cancelled.
    pub(crate) async fn next(&mut self, now: impl Fn() -> Time) {
        let command = async {
            match &mut self.attachment {
                Some(attachment) => attachment.commands.recv().await,
                None => None,
            }
        };
        let readable = async {
            match &self.socket {
                Some(socket) => socket.readable().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = command => match command {
                Some(command) => self.handle(now(), command),
                None => {
                    // The server has ended, or there is none.
                    self.attachment = None;
                    std::future::pending::<()>().await;
                }
            },
            ready = readable => if ready.is_ok() {
                self.receive(now());
            },
        }
    }

    /// Handles commands that wait already.
    pub(crate) fn handle_waiting(&mut self, now: Time) {
        for _ in 0..TURN {
            let Some(attachment) = &mut self.attachment else { return };
            let Ok(command) = attachment.commands.try_recv() else { return };
            self.handle(now, command);
        }
    }

    fn receive(&mut self, now: Time) {
        for _ in 0..TURN {
            let Some(socket) = &self.socket else { return };
            // An error is one of an earlier message.
            let Ok((length, from)) = socket.try_recv_from(&mut self.buffer[..]) else { return };
            let Some(prefix) = router_of(from) else { continue };
            let octets = &self.buffer[..length];
            self.directory.handle_private(now, prefix, octets, &mut self.random);
        }
    }

    fn handle(&mut self, now: Time, command: Command) {
        let Users { directory, random, .. } = self;
        match command {
            Command::SetAccount { name, account } => {
                // What the DHT has no room for is seen by those who look the user up.
                _ = directory.set_account(now, &name, &account, random);
            }
            Command::RemoveAccount { name } => _ = directory.remove_account(now, &name, random),
            Command::Register { name, preference } => {
                match directory.register(now, &name, preference, random) {
                    Ok(false) => {}
                    Ok(true) => self.report(Report::Registered { name, stored: true }),
                    Err(_) => self.report(Report::Registered { name, stored: false }),
                }
            }
            Command::Unregister { name } => directory.unregister(now, &name, random),
            Command::Locate { name } => {
                if directory.locate(now, &name, random).is_none() {
                    let whereabouts = Whereabouts::Unavailable;
                    self.report(Report::Located { name, whereabouts });
                }
            }
            Command::SetService { name, users } => {
                if directory.set_service(now, &name, &users, random).is_err() {
                    let what = format!("the users who answer for {name}");
                    self.report(Report::NotStated { what });
                }
            }
            Command::ShareRules { domain, rules } => {
                let shared = directory.share_rules(now, &domain, &rules, random);
                let left = rules.len() - shared.unwrap_or(0);
                if left > 0 {
                    let what = format!("{left} of {} rules that are shared", rules.len());
                    self.report(Report::NotStated { what });
                }
            }
            Command::AskRules { domain } => {
                if !directory.ask_rules(now, &domain, random) {
                    self.report(Report::Rules { rules: None });
                }
            }
            Command::Verify { check, tag } => match directory.verify(now, check, random) {
                Some(id) => self.tags.push((id, tag)),
                None => self.report(Report::Verified { tag, verdict: None }),
            },
            Command::SetGrant { name, grant } => directory.set_grant(now, &name, grant),
            Command::Judge { id, verdict } => directory.judge(now, id, verdict),
        }
    }

    fn report(&mut self, report: Report) {
        if let Some(attachment) = &mut self.attachment {
            (attachment.report)(report);
        }
    }

    /// Handles octets of the DHT from another router.
    pub(crate) fn handle_payload(&mut self, now: Time, origin: NodeId, octets: &[u8]) {
        self.directory.handle(now, origin, octets, &mut self.random);
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.directory.handle_timeout(now, &mut self.random);
        }
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.directory.poll_timeout()
    }

    /// Notifies other routers that this one leaves: what is registered here cannot be reached any more, and those beside it
    /// take over what it keeps.
    pub(crate) fn leave(&mut self, now: Time) {
        let names = self.directory.accounts().registered();
        let names: Vec<Box<str>> = names.map(|(name, _)| name.into()).collect();
        for name in names {
            self.directory.unregister(now, &name, &mut self.random);
        }
        self.directory.leave();
    }

    /// Carries what the directory sends to the mesh, and its events to the server. Returns whether the mesh was given
    /// anything.
    pub(crate) fn settle(&mut self, now: Time, traffic: &mut Traffic) -> bool {
        self.update_neighbours(now, traffic);
        let messages = self.directory.take_messages();
        let is_empty = messages.is_empty();
        for message in messages {
            let sent = traffic.send_closest(now, message.to, &message.octets, message.by_another);
            self.refused += u64::from(sent == Err(Refusal::Budget));
        }
        for message in self.directory.take_private() {
            let to = SocketAddrV6::new(message.to.router(), PRIVATE_PORT, 0, 0);
            // What finds no room is sent again.
            _ = self.socket.as_ref().map(|socket| socket.try_send_to(&message.octets, to.into()));
        }
        while let Some(event) = self.directory.poll_event() {
            self.handle_event(event);
        }
        !is_empty
    }

    fn handle_event(&mut self, event: Event) {
        let report = match event {
            Event::Registered { name, stored } => Report::Registered { name, stored },
            Event::Located(_, name, whereabouts) => Report::Located { name, whereabouts },
            Event::Verified(id, verdict) => {
                let Some(at) = self.tags.iter().position(|(of, _)| *of == id) else { return };
                Report::Verified { tag: self.tags.swap_remove(at).1, verdict }
            }
            Event::Rules(rules) => Report::Rules { rules },
            Event::Granted { name, grant, evicted } => Report::Granted { name, grant, evicted },
            Event::Judge { id, router, check } => Report::Judge { id, router, check },
            Event::Contested { name, by, marked } => Report::Contested { name, by, marked },
            _ => return,
        };
        self.report(report);
    }

    fn update_neighbours(&mut self, now: Time, traffic: &Traffic) {
        let overlay = traffic.router().overlay();
        let known = (overlay.contacts().changes(), overlay.partner());
        if self.seen.replace(known) != Some(known) {
            let near = overlay.contacts().near();
            self.directory.update_neighbours(now, near.into_iter(), known.1, &mut self.random);
        }
    }
}

/// Opens the socket of private messages. What comes by another interface than the TUN device is not of the mesh, whatever
/// address it claims.
fn private_socket(address: Ipv6Addr, tun: &str) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
    socket.bind_device(Some(tun.as_bytes()))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((address, PRIVATE_PORT)).into())?;
    UdpSocket::from_std(socket.into())
}

/// Returns the router that a private message comes from: only a router has its address and port.
fn router_of(from: SocketAddr) -> Option<Prefix> {
    let IpAddr::V6(ip) = from.ip() else { return None };
    let prefix = Prefix::of(&ip)?;
    (prefix.router() == ip && from.port() == PRIVATE_PORT).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_routers_send_private_messages() {
        let prefix = router_of("[fd01:2345:6789:abcd::1]:5268".parse().unwrap());
        assert_eq!(
            prefix.map(|prefix| prefix.to_bytes()),
            Some([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd])
        );
        for other in [
            "[fd01:2345:6789:abcd::1]:5269",
            "[fd01:2345:6789:abcd::2]:5268",
            "[2001:db8::1]:5268",
            "192.0.2.1:5268",
        ] {
            assert_eq!(router_of(other.parse().unwrap()), None, "{other}");
        }
    }
}
