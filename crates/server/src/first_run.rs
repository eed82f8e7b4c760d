//! The first start of a new server: creates two users and prints the settings of two phones.
//!
//! This happens only on a store that did not exist before, and without a configuration file. An
//! operator who has added a user, removed all users or written a file gets no users created.
//! Passwords are shown only on a terminal. If standard output is a journal or a file, they are
//! written to a separate file that only its owner can read.

use crate::config::{AuthMode, Settings};
use crate::host;
use crate::random;
use crate::setup::Sources;
use crate::store::{Hashes, Store, UserStore};
use ringway_proxy::config::Config;
use ringway_sansio::Transport;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Short numbers, by users with their domain.
pub type Numbers = HashMap<Box<str>, Box<str>>;

/// Names of the users that are created on a server that is alone.
pub const NAMES: [&str; 2] = ["101", "102"];

/// The users of a server at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FirstUsers {
    /// Authentication is off: users are not needed.
    AuthOff,
    /// Users created by this start: names and passwords.
    Created(Vec<(String, String)>),
    /// Names of the users found in the store, possibly none.
    Existing(Vec<String>),
}

/// Name of the file with the passwords that are not shown, in the directory of the store.
pub const PASSWORD_FILE: &str = "first-users.txt";

/// Creates the first users if the store is new.
///
/// # Errors
/// Fails when they cannot be written.
pub fn create(
    sources: &Sources,
    settings: &Settings,
    config: &Config,
    store: &Store,
) -> Result<FirstUsers, String> {
    let realm = config.domains.first().map_or("", |d| &d.name);
    if settings.auth.mode == AuthMode::Off {
        return Ok(FirstUsers::AuthOff);
    }
    let list = store.list_users()?;
    if !store.is_new() || !list.is_empty() || sources.config.is_some() {
        let names = list.into_iter().filter(|(_, r)| r == realm).map(|(user, _)| user);
        return Ok(FirstUsers::Existing(names.collect()));
    }
    let mut created = Vec::new();
    for name in &names(config) {
        let password = random::password().map_err(|e| e.to_string())?;
        store.set_user(name, realm, Hashes::new(name, realm, &password))?;
        created.push((name.clone(), password));
    }
    Ok(FirstUsers::Created(created))
}

/// Returns the names of the users that are created. Those of two routers of a mesh must differ: they begin with four digits
/// that follow from the router's address.
fn names(config: &Config) -> [String; 2] {
    match &config.mesh {
        None => NAMES.map(str::to_owned),
        Some(mesh) => {
            let number = 1_000 + (mesh.address.to_bits() >> 64) % 9_000;
            [1, 2].map(|user| format!("{number}{user}"))
        }
    }
}

impl FirstUsers {
    /// Returns the names of the two users that were created.
    fn created(&self) -> (&str, &str) {
        match self {
            FirstUsers::Created(users) => match &users[..] {
                [one, two, ..] => (&one.0, &two.0),
                _ => ("", ""),
            },
            _ => ("", ""),
        }
    }

    /// Prints the settings of the phones. `flags` are the arguments by which `ringway user` finds
    /// this server. A file of passwords goes into the directory of `beside`. `numbers` are the
    /// short numbers of users with their domain, if users have some.
    ///
    /// # Errors
    /// Fails when the text cannot be written.
    pub fn print(
        &self,
        config: &Config,
        flags: &str,
        beside: &Path,
        numbers: Option<&Numbers>,
    ) -> io::Result<()> {
        let mut text = self.text(config, flags, numbers);
        let mut out = io::stdout().lock();
        if matches!(self, FirstUsers::Created(_)) && !out.is_terminal() {
            let path = beside.with_file_name(PASSWORD_FILE);
            write_private(&path, &text)
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
            let (one, two) = self.created();
            text = format!(
                "Users {one} and {two} are new. What to type into two phones is in {}\n",
                path.display()
            );
        }
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Returns the text to print; empty if there is none.
    pub fn text(&self, config: &Config, flags: &str, numbers: Option<&Numbers>) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(config, flags, numbers, &mut out);
        out
    }

    fn write(
        &self,
        config: &Config,
        flags: &str,
        numbers: Option<&Numbers>,
        out: &mut String,
    ) -> std::fmt::Result {
        let realm = config.domains.first().map_or("", |d| &d.name);
        let number = |user: &str| numbers?.get(&*format!("{user}@{realm}"));
        match self {
            FirstUsers::AuthOff => Ok(()),
            FirstUsers::Created(users) => {
                let (server, transport) = server(config);
                writeln!(out, "\nType this into two phones:")?;
                for (index, (user, password)) in users.iter().enumerate() {
                    writeln!(out, "\n  phone {}", index + 1)?;
                    writeln!(out, "    server     {server}")?;
                    writeln!(out, "    user       {user}")?;
                    writeln!(out, "    password   {password}")?;
                    writeln!(out, "    transport  {transport}")?;
                    if let Some(number) = number(user) {
                        writeln!(out, "    number     {number}")?;
                    }
                }
                let (one, two) = self.created();
                writeln!(
                    out,
                    "\nThen dial {two} on phone 1. The passwords are kept nowhere \
                     else; a new one: ringway user passwd {one}{flags}\n"
                )?;
                if numbers.is_some() && number(one).is_none() {
                    writeln!(
                        out,
                        "Each gets a short number within minutes: ringway user list{flags}\n"
                    )?;
                }
                Ok(())
            }
            FirstUsers::Existing(users) if users.is_empty() => {
                writeln!(out, "There are no users. To make one: ringway user add NAME{flags}")
            }
            FirstUsers::Existing(users) => {
                let (server, transport) = server(config);
                let with_number = |user: &String| match number(user) {
                    Some(number) => format!("{user} (number {number})"),
                    None => user.clone(),
                };
                let names = users.iter().take(5).map(with_number);
                let mut names = names.collect::<Vec<_>>().join(", ");
                if users.len() > 5 {
                    write!(names, " and {} more", users.len() - 5)?;
                }
                writeln!(
                    out,
                    "\nServer {server}, transport {transport}. Users are kept from before: {names}. \
                     A new password: ringway user passwd NAME{flags}\n"
                )
            }
        }
    }
}

/// Writes a file that only its owner can read, replacing an older one of that name.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Returns what a phone on the same network needs: the address, with the port unless it is the
/// default one, and the transport.
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
        ip if ip.is_unspecified() => host::address_for_phones(&config.addresses),
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
