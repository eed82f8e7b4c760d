//! `ringway serve`, and the commands that prepare, manage and observe a server.

use crate::address::{ServerArgs, StoreParser};
use crate::import;
use crate::live;
use crate::numbers::{self, Numbers};
use crate::out::{self, CommandError};
use clap::{Args, Subcommand};
use ringway_router::settings::{Ipv4Lan, parse_peer};
use ringway_server::config::{AuthMode, Host, HttpAddr, Listen, StoreKind};
use ringway_server::manage::{self, MissingStore, UserManager};
use ringway_server::mesh::MeshSettings;
use ringway_server::prepare;
use ringway_server::serve::serve;
use ringway_server::setup::{Overrides, Sources};
use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Subcommand)]
pub(crate) enum Server {
    /// Runs the proxy and registrar
    Serve(Serve),
    /// Adds, changes, removes and lists users
    #[command(subcommand)]
    User(User),
    /// Adds the users of Kamailio, OpenSIPS or Asterisk, with their passwords
    #[command(subcommand)]
    Import(import::Import),
    /// Checks configuration files
    #[command(subcommand)]
    Config(Config),
    /// Shows the status of a running server
    Status(Status),
    /// Shows the registrations of a running server
    Registrations(live::Registrations),
    /// Shows the calls in progress of a running server
    Calls(live::Calls),
    /// Shows, reclaims and retires short numbers of a running router of a mesh
    #[command(subcommand)]
    Numbers(Numbers),
    /// Writes users and registrations into a file, whether or not the server runs
    Backup(Backup),
    /// Creates a store from a backup; no server may run on it
    Restore(Backup),
}

#[derive(Args)]
pub(crate) struct Serve {
    /// Configuration file (TOML); flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen, as udp://A:P, tcp://, tls://, ws://, wss://, sctp://A[,A2..]:P or
    /// sctp+udp://A[,A2..]:P?encap=9899 (repeatable) [default: UDP, TCP and SCTP
    /// 5060 on all addresses; SCTP in UDP 9899, and over IP where permitted]
    #[arg(long, value_name = "URI")]
    listen: Vec<Listen>,
    /// Name of the domain served; further ones are other names of it (repeatable) [default: the
    /// host's name and addresses]
    #[arg(long = "domain", value_name = "NAME")]
    domains: Vec<Host>,
    /// Where users and registrations are kept: memory, redb:PATH or redis://HOST [default: ringway.redb in the
    /// state directory]
    #[arg(long, value_parser = StoreParser)]
    store: Option<StoreKind>,
    /// Whether users must prove who they are: off or digest [default: digest]
    #[arg(long)]
    auth: Option<AuthMode>,
    /// Worker threads [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: Option<u8>,
    /// Where metrics and management are served, on loopback: ADDRESS:PORT, or off [default:
    /// 127.0.0.1:8060]
    #[arg(long, value_name = "ADDR")]
    http: Option<HttpAddr>,
    #[command(flatten)]
    mesh: MeshArgs,
}

/// The router of a mesh that the server is.
#[derive(Args)]
struct MeshArgs {
    /// Makes the server one of the routers of a mesh, which all together are one server of the domain `mesh`
    #[arg(long)]
    mesh: bool,
    /// Interface on which other routers are discovered (repeatable) [default: all, unless there is a --peer]
    #[arg(long = "interface", value_name = "IF", requires = "mesh")]
    interfaces: Vec<String>,
    /// Router that is reached through the network between, as udp://HOST[:PORT] (repeatable)
    #[arg(long = "peer", value_name = "URI", value_parser = parse_peer, requires = "mesh")]
    peers: Vec<SocketAddr>,
    /// Interface of a LAN whose hosts get addresses of the mesh
    #[arg(long, value_name = "IF", requires = "mesh")]
    lan: Option<String>,
    /// IPv4 subnet of that LAN, whose hosts get addresses by DHCP, by the router's address in it; no other DHCP server
    /// may be there
    #[arg(long, value_name = "ADDR/LEN", num_args = 0..=1, default_missing_value = "10.50.60.1/24", requires = "lan")]
    lan_ipv4: Option<Ipv4Lan>,
    /// Name of the TUN device [default: mesh0]
    #[arg(long, value_name = "NAME", requires = "mesh")]
    tun: Option<String>,
    /// File with the key of the network, which all routers share; without one everybody may join
    #[arg(long, value_name = "FILE", requires = "mesh")]
    network_key: Option<PathBuf>,
    /// Directory of the router's identity [default: mesh in the state directory]
    #[arg(long, value_name = "DIR", requires = "mesh")]
    mesh_state: Option<PathBuf>,
}

impl MeshArgs {
    fn settings(self) -> Option<MeshSettings> {
        let MeshArgs { mesh, interfaces, peers, lan, lan_ipv4, tun, network_key, mesh_state } =
            self;
        mesh.then_some(MeshSettings {
            interfaces,
            peers,
            lan,
            lan_ipv4,
            tun,
            network_key,
            state: mesh_state,
            ..MeshSettings::default()
        })
    }
}

#[derive(Subcommand)]
pub(crate) enum User {
    /// Adds a user; prints the password unless it was given
    Add(UserArgs),
    /// Sets a new password of a user; prints it unless it was given
    Passwd(UserArgs),
    /// Removes a user and its registrations
    Del {
        /// NAME or NAME@DOMAIN
        name: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Lists users
    List(ServerArgs),
    /// Has a running server remove the users that the database does not have any more, even if they are many
    Prune(ServerArgs),
}

#[derive(Args)]
pub(crate) struct UserArgs {
    /// NAME or NAME@DOMAIN
    name: String,
    /// Reads the password from standard input, up to the end of the line
    #[arg(long)]
    password_stdin: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Subcommand)]
pub(crate) enum Config {
    /// Prints ok, or one line for each mistake
    Check {
        /// The file
        file: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct Backup {
    /// The backup
    file: PathBuf,
    /// Replaces what is there already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Args)]
pub(crate) struct Status {
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs a command.
pub(crate) fn server(command: Server) -> Result<(), CommandError> {
    match command {
        Server::Serve(args) => run_server(args),
        Server::User(command) => user(command),
        Server::Import(command) => import::import(command),
        Server::Config(Config::Check { file }) => check(&file),
        Server::Status(Status { server }) => status(&server),
        Server::Registrations(args) => live::registrations(&args),
        Server::Calls(args) => live::calls(&args),
        Server::Numbers(command) => numbers::numbers(command),
        Server::Backup(args) => backup(&args),
        Server::Restore(args) => restore(&args),
    }
}

fn run_server(args: Serve) -> Result<(), CommandError> {
    let Serve { config, listen, domains, store, auth, workers, http, mesh } = args;
    let mesh = mesh.settings();
    let overrides = Overrides { listen, domains, store, auth, workers, http, mesh };
    serve(&Sources { config, overrides }).map_err(|failure| CommandError(failure.0))
}

fn check(file: &std::path::Path) -> Result<(), CommandError> {
    let sources = Sources { config: Some(file.to_owned()), overrides: Overrides::default() };
    prepare::check(&sources).map_err(CommandError)?;
    out::line("ok")
}

fn status(server: &ServerArgs) -> Result<(), CommandError> {
    let status = manage::status(&server.sources()).map_err(CommandError)?;
    if server.json { out::json(&status) } else { out::text(&status.text()) }
}

fn backup(args: &Backup) -> Result<(), CommandError> {
    let made =
        manage::back_up(&args.server.sources(), &args.file, args.force).map_err(CommandError)?;
    if args.server.json {
        return out::json(&made);
    }
    out::line(&format!("{}: {} users, {} bytes", made.file.display(), made.users, made.bytes))
}

fn restore(args: &Backup) -> Result<(), CommandError> {
    let made =
        manage::restore(&args.server.sources(), &args.file, args.force).map_err(CommandError)?;
    if args.server.json {
        return out::json(&made);
    }
    out::line(&format!("store {} restored: {} users", made.file.display(), made.users))
}

fn user(command: User) -> Result<(), CommandError> {
    match command {
        User::Add(user_args) => set(user_args, true),
        User::Passwd(user_args) => set(user_args, false),
        User::Del { name, server } => {
            let removed = UserManager::open(&server.sources(), MissingStore::Refuse)
                .map_err(CommandError)?
                .remove(&name)?;
            match server.json {
                true => out::json(&removed),
                false => out::line(&format!("{}@{} removed", removed.user, removed.realm)),
            }
        }
        User::Prune(server) => prune(&server),
        User::List(server) => {
            let users = UserManager::open(&server.sources(), MissingStore::Refuse)
                .map_err(CommandError)?
                .list()?;
            match server.json {
                true => out::json(&users),
                false => users.iter().try_for_each(|u| {
                    let number = u.number.iter().map(|number| format!("  {number}"));
                    out::line(&format!("{}@{}{}", u.user, u.realm, number.collect::<String>()))
                }),
            }
        }
    }
}

fn prune(server: &ServerArgs) -> Result<(), CommandError> {
    let pruned = UserManager::open(&server.sources(), MissingStore::Refuse)
        .map_err(CommandError)?
        .prune()?;
    match server.json {
        true => out::json(&pruned),
        false => out::line(&format!("{} users removed", pruned.removed)),
    }
}

fn set(user_args: UserArgs, new: bool) -> Result<(), CommandError> {
    let password = match user_args.password_stdin {
        true => Some(read_password()?),
        false => None,
    };
    let missing = if new { MissingStore::Create } else { MissingStore::Refuse };
    let users = UserManager::open(&user_args.server.sources(), missing).map_err(CommandError)?;
    if let Some(store) = users.created() {
        out::note(&format!("store {} is new", store.display()));
    }
    let made = users.set(&user_args.name, password, new)?;
    if user_args.server.json {
        return out::json(&made);
    }
    let what = if new { "added" } else { "has a new password" };
    out::line(&format!("{}@{} {what}", made.user, made.realm))?;
    if let Some(number) = &made.number {
        out::line(&format!("number: {number}"))?;
    } else if made.awaits_number {
        out::note("a short number follows within minutes: ringway user list");
    }
    match &made.password {
        Some(password) => out::line(&format!("password: {password}")),
        None => Ok(()),
    }
}

fn read_password() -> Result<String, CommandError> {
    // More than the longest password; longer input is not a password.
    const MAX_INPUT: u64 = 4096;
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_INPUT)
        .read_to_string(&mut text)
        .map_err(|e| CommandError(vec![format!("standard input: {e}")]))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
