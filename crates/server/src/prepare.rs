//! Everything that must be there before the first worker runs: certificates, sockets, the store.
//!
//! `serve` and `config check` go through the same steps, so that what one refuses the other finds.
//! A check gives everything back. While a server runs on the same store, its sockets and its store
//! are in use, and a check leaves both alone: it looks only whether the addresses are this host's.

use crate::config::{Listen, Settings, StoreKind};
use crate::host;
use crate::locate::Locator;
use crate::observe::control::{self, Control, ControlDirectory};
use crate::setup::{self, Sources, Tls};
use crate::store::{Store, StoreFile, could_be_made};
use crate::worker::Post;
use ringway_net::{Clock, Endpoint};
use ringway_sansio::{Flow, FlowId, Listener, Transport};
use std::fs::OpenOptions;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use tracing::warn;

/// What a server begins with.
pub(crate) struct Prepared {
    pub(crate) kind: StoreKind,
    pub(crate) clock: Clock,
    pub(crate) tls: Tls,
    /// Where pages are served.
    pub(crate) pages: Option<TcpListener>,
    pub(crate) listen: Vec<Listen>,
    /// One for each worker.
    pub(crate) endpoints: Vec<Endpoint<Post>>,
    pub(crate) net: ringway_net::Control<Post>,
    /// Connections that may be open.
    pub(crate) connections: usize,
    pub(crate) locator: Locator,
    pub(crate) store: Store,
    /// `None` for a store in memory beside which another server has the control socket.
    pub(crate) directory: Option<ControlDirectory>,
}

impl Prepared {
    /// Takes everything that these settings ask for.
    ///
    /// # Errors
    /// One line for each thing that is wrong.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Vec<String>> {
        let one = |line: String| vec![line];
        let kind = setup::store(settings).map_err(|e| one(e.to_string()))?;
        let clock = Clock::new();
        let tls = Tls::load(&settings.tls)?;
        let sockets = Sockets::open(settings, &tls, clock).map_err(one)?;
        let Sockets { pages, listen, endpoints, net, connections, locator } = sockets;
        let listeners = net.listeners();
        let workers = net.mailboxes().len();
        let revive = &mut |flow: &Flow| revive(flow, listeners, workers);
        let store = Store::open(&kind, clock.now(), settings.registrar.expires_max, revive);
        let store = store.map_err(|e| one(e.to_string()))?;
        let directory = control_directory(&kind).map_err(one)?;
        check_cdr(settings.cdr.as_deref()).map_err(one)?;
        Ok(Prepared {
            kind,
            clock,
            tls,
            pages,
            listen,
            endpoints,
            net,
            connections,
            locator,
            store,
            directory,
        })
    }
}

/// Looks for everything that would keep `serve` with these settings from starting.
///
/// # Errors
/// One line for each thing that is wrong.
pub fn check(sources: &Sources) -> Result<(), Vec<String>> {
    let settings = sources.read()?;
    let mut problems = Vec::new();
    let mut note = |result: Result<(), String>| problems.extend(result.err());
    let tls = Tls::load(&settings.tls);
    match setup::store(&settings) {
        Err(e) => note(Err(e.to_string())),
        Ok(kind) if is_served(&kind) => addresses_are_here(&settings, &mut note),
        Ok(kind) => {
            // Without its certificates a secure listener cannot be tried.
            match &tls {
                Ok(tls) => note(Sockets::open(&settings, tls, Clock::new()).map(drop)),
                Err(_) => addresses_are_here(&settings, &mut note),
            }
            note(check_store(&kind));
        }
    }
    problems.extend(check_cdr(settings.cdr.as_deref()).err());
    problems.extend(tls.err().into_iter().flatten());
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Whether records of calls can be appended; a file that is not there is not made.
fn check_cdr(path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let tried = match path.exists() {
        true => OpenOptions::new().append(true).open(path).map(drop),
        false => host::can_make(path),
    };
    tried.map_err(|e| format!("call records {}: {e}", path.display()))
}

fn is_served(kind: &StoreKind) -> bool {
    Control::of(kind).is_ok_and(|c| matches!(c.ask("GET", "/healthz", ""), Ok(Some(_))))
}

fn check_store(kind: &StoreKind) -> Result<(), String> {
    let StoreKind::Redb(path) = kind else { return Ok(()) };
    if path.exists() {
        StoreFile::open_existing(path, true).map_err(|e| e.to_string())?;
        control_directory(kind).map(drop)
    } else {
        could_be_made(path).map_err(|e| e.to_string())
    }
}

/// Whether the addresses are this host's, whatever uses their ports.
fn addresses_are_here(settings: &Settings, note: &mut dyn FnMut(Result<(), String>)) {
    for listen in setup::listen(settings) {
        for ip in std::iter::once(listen.addr.ip()).chain(listen.more.iter().copied()) {
            if let Err(e) = std::net::UdpSocket::bind((ip, 0)) {
                note(Err(format!("{listen}: {}", plain(&e))));
            }
        }
    }
    if let Some(addr) = settings.http.0
        && let Err(e) = TcpListener::bind((addr.ip(), 0))
    {
        note(Err(format!("http://{addr}: {}", plain(&e))));
    }
}

/// The sockets that are listened on, and server location, which depends on them.
struct Sockets {
    pages: Option<TcpListener>,
    listen: Vec<Listen>,
    endpoints: Vec<Endpoint<Post>>,
    net: ringway_net::Control<Post>,
    connections: usize,
    locator: Locator,
}

impl Sockets {
    fn open(settings: &Settings, tls: &Tls, clock: Clock) -> Result<Self, String> {
        let pages = settings.http.0.map(bind_pages).transpose()?;
        let workers = setup::workers(settings);
        let listen = setup::listen(settings);
        let limits = setup::net_limits(settings, &listen, host::raise_open_files());
        let connections = limits.connections;
        let endpoints = ringway_net::bind::<Post>(ringway_net::Config {
            workers,
            listen: listen.iter().cloned().map(setup::bind).collect(),
            limits,
            clock,
            tls_server: tls.server.clone(),
            tls_client: tls.client.clone(),
            udp_receive_buffer: ringway_net::limits::UDP_RECEIVE_BUFFER,
            sctp: setup::sctp(settings),
            origins: Default::default(),
        })
        .map_err(|e| e.to_string())?;
        let net = match endpoints.first() {
            Some(endpoint) => endpoint.control(),
            None => return Err("workers: expected at least 1, got 0".to_owned()),
        };
        let locator = Locator::start(net.clone(), clock)?;
        Ok(Sockets { pages, listen, endpoints, net, connections, locator })
    }
}

fn bind_pages(addr: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(addr).map_err(|e| format!("http://{addr}: {}", plain(&e)))
}

/// The words of an I/O error as listeners of SIP have them.
fn plain(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::AddrInUse => "address in use".to_owned(),
        io::ErrorKind::AddrNotAvailable => "no such address on this host".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => e.to_string(),
    }
}

fn control_directory(kind: &StoreKind) -> Result<Option<ControlDirectory>, String> {
    let path = control::directory_of(kind).map_err(|e| e.to_string())?;
    match ControlDirectory::open(&path) {
        Ok(directory) => Ok(Some(directory)),
        // Several servers may run without a store of their own; one of them can be asked.
        Err(e) if *kind == StoreKind::Memory && e.kind() == io::ErrorKind::AddrInUse => {
            warn!("control socket {}: {e}: this server cannot be managed", path.display());
            Ok(None)
        }
        Err(e) => Err(format!("control socket {}: {e}", path.display())),
    }
}

/// The flow of an earlier process in this one: datagrams came to a socket that listens again, if
/// one does; a connection is gone.
fn revive(flow: &Flow, listeners: &[Listener], workers: usize) -> Option<Flow> {
    if flow.transport != Transport::Udp {
        return None;
    }
    let position = listeners.iter().position(|l| {
        let same = l.addr.ip() == flow.local.ip()
            || (l.addr.ip().is_unspecified() && l.addr.is_ipv4() == flow.local.is_ipv4());
        l.transport == flow.transport && l.addr.port() == flow.local.port() && same
    })?;
    let worker = usize::from(flow.id.worker()) % workers;
    Some(Flow { id: FlowId::new(worker as u8, position as u64), ..*flow })
}
