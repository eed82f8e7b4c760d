//! The first minutes with a new server: two users, and what to type into two phones.
//!
//! Only on a store that did not exist before, and without a configuration file: whoever has made a
//! user, or removed all, or has written a file, is not given any. Passwords are shown on a terminal
//! only; where standard output goes into a journal or a file, they are written to a file of their own
//! that only its owner can read.

use crate::config::{AuthMode, Settings};
use crate::host;
use crate::random;
use crate::setup::Sources;
use crate::store::{Hashes, Store, UserStore};
use ringway_proxy::config::Config;
use ringway_sansio::Transport;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

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

/// The file of the passwords that are not shown, beside the store.
pub const FILE: &str = "first-users.txt";

/// Makes the first users where there are none.
///
/// # Errors
/// When they cannot be written.
pub fn users(
    sources: &Sources,
    settings: &Settings,
    config: &Config,
    store: &Store,
) -> Result<Users, String> {
    let realm = config.domains.first().map_or("", |d| &d.name);
    if settings.auth.mode == AuthMode::Off {
        return Ok(Users::NotAsked);
    }
    let list = store.list_users()?;
    if !store.is_new() || !list.is_empty() || sources.config.is_some() {
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
    /// Prints what there is to say. `which` are the flags by which `ringway user` finds this server,
    /// `beside` is a path in the store's directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn print(&self, config: &Config, which: &str, beside: &Path) -> io::Result<()> {
        let mut text = self.text(config, which);
        let mut out = io::stdout().lock();
        if matches!(self, Users::Made(_)) && !out.is_terminal() {
            let path = beside.with_file_name(FILE);
            write_private(&path, &text)
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
            let [one, two] = NAMES;
            text = format!(
                "Users {one} and {two} are new. What to type into two phones is in {}\n",
                path.display()
            );
        }
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// What there is to say; empty for nothing.
    pub fn text(&self, config: &Config, which: &str) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(config, which, &mut out);
        out
    }

    fn write(&self, config: &Config, which: &str, out: &mut String) -> std::fmt::Result {
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
                    "\nThen dial {two} on phone 1. The passwords are kept nowhere \
                     else; a new one: ringway user passwd {one}{which}\n"
                )
            }
            Users::Kept(users) if users.is_empty() => {
                writeln!(out, "There are no users. To make one: ringway user add NAME{which}")
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
                     A new password: ringway user passwd NAME{which}\n"
                )
            }
        }
    }
}

/// Writes a file that only its owner can read. One of that name that was there before is replaced.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
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
