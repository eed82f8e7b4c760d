//! The first minutes with a new server: two users, and what to type into two phones.
//!
//! Only on a store that did not exist before: whoever has made a user, or removed all, is not given
//! any.

use crate::config::{AuthMode, Settings};
use crate::host;
use crate::random;
use crate::store::{Hashes, Store, UserStore};
use ringway_proxy::config::Config;
use ringway_sansio::Transport;
use std::fmt::Write;
use std::net::IpAddr;

/// The users that are made.
pub const NAMES: [&str; 2] = ["101", "102"];

/// What there is to say about users at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Users {
    /// Nothing: nobody is asked who they are.
    NotAsked,
    /// These were made now, with these passwords.
    Made(Vec<(String, String)>),
    /// These were there before; perhaps none.
    Kept(Vec<String>),
}

/// Makes the first users where there are none.
///
/// # Errors
/// When they cannot be written.
pub fn users(settings: &Settings, config: &Config, store: &Store) -> Result<Users, String> {
    let realm = config.domains.first().map_or("", |d| &d.name);
    if settings.auth.mode == AuthMode::Off {
        return Ok(Users::NotAsked);
    }
    let list = store.list_users()?;
    if !store.is_new() || !list.is_empty() {
        let ours = list.into_iter().filter(|(_, r)| r == realm).map(|(user, _)| user);
        return Ok(Users::Kept(ours.collect()));
    }
    let mut made = Vec::new();
    for name in NAMES {
        let password = random::password().map_err(|e| e.to_string())?;
        store.set_user(name, realm, Hashes::new(name, realm, &password))?;
        made.push((name.to_owned(), password));
    }
    Ok(Users::Made(made))
}

impl Users {
    /// What to print; empty for nothing.
    pub fn text(&self, config: &Config) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(config, &mut out);
        out
    }

    fn write(&self, config: &Config, out: &mut String) -> std::fmt::Result {
        match self {
            Users::NotAsked => Ok(()),
            Users::Made(users) => {
                let (server, transport) = server(config);
                writeln!(out, "\nType this into two phones:")?;
                for (number, (user, password)) in users.iter().enumerate() {
                    writeln!(out, "\n  phone {}", number + 1)?;
                    writeln!(out, "    server     {server}")?;
                    writeln!(out, "    user       {user}")?;
                    writeln!(out, "    password   {password}")?;
                    writeln!(out, "    transport  {transport}")?;
                }
                let [one, two] = NAMES;
                writeln!(
                    out,
                    "\nThen dial {two} on phone 1. The passwords are shown only now; a new one: \
                     ringway user passwd {one}\n"
                )
            }
            Users::Kept(users) if users.is_empty() => {
                writeln!(out, "There are no users. To make one: ringway user add NAME")
            }
            Users::Kept(users) => {
                let (server, transport) = server(config);
                let mut names = users.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
                if users.len() > 5 {
                    write!(names, " and {} more", users.len() - 5)?;
                }
                writeln!(
                    out,
                    "\nServer {server}, transport {transport}. Users are kept from before: {names}. \
                     A new password: ringway user passwd NAME\n"
                )
            }
        }
    }
}

/// What a phone on the same network must be given: address, with the port unless it is the usual
/// one, and transport.
fn server(config: &Config) -> (String, String) {
    let offered = [
        Transport::Udp,
        Transport::Tcp,
        Transport::Tls,
        Transport::Wss,
        Transport::Ws,
        Transport::Sctp,
        Transport::TlsSctp,
    ];
    let listener = |t: Transport| config.listeners.iter().find(|l| l.transport == t);
    let Some(first) = offered.into_iter().find_map(listener) else {
        return (String::new(), String::new());
    };
    let ip = match first.addr.ip() {
        ip if ip.is_unspecified() => host::reachable(&config.addresses),
        ip => ip,
    };
    let host = match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let port = first.addr.port();
    let server =
        if port == first.transport.default_port() { host } else { format!("{host}:{port}") };
    let names: Vec<&str> = offered
        .into_iter()
        .filter(|t| listener(*t).is_some_and(|l| l.addr.port() == port))
        .map(Transport::via)
        .collect();
    (server, names.join(" or "))
}
