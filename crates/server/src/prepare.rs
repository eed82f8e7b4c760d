//! Resources that must be available before the first worker runs: certificates, sockets, the store.
//!
//! `serve` and `config check` take the same steps, so that both report the same problems. A check
//! releases everything again. While a server runs on the same store, its sockets and its store are
//! in use; a check then leaves both alone and only tests whether the addresses belong to this host.

use crate::cluster::{ClusterThread, Membership};
use crate::config::{Listen, Settings, StoreKind};
use crate::host;
use crate::locate::Locator;
use crate::mesh::exchange::{ingress, paths};
use crate::mesh::thread::UsersSlot;
use crate::mesh::{DOMAIN, MeshThread};
use crate::observe::control::{self, Control, ControlDirectory};
use crate::phonebook::BookEndpoints;
use crate::phonebook::endpoint::{self, BookEndpoint};
use crate::post::Post;
use crate::setup::{self, Sources, Tls};
use crate::store::{Others, Store, StoreFile, check_creatable};
use crate::users::source::Source;
use ringway_net::{Clock, Endpoint};
use ringway_sansio::{Flow, FlowId, Listener, Transport};
use std::fs::OpenOptions;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::PoisonError;
use tracing::warn;

/// The resources of a server that starts.
pub(crate) struct Resources {
    pub(crate) kind: StoreKind,
    pub(crate) clock: Clock,
    pub(crate) tls: Tls,
    /// Listener of the management pages.
    pub(crate) pages: Option<TcpListener>,
    /// Where the phonebook is served.
    pub(crate) phonebook: BookEndpoints,
    pub(crate) listen: Vec<Listen>,
    /// One endpoint for each worker.
    pub(crate) endpoints: Vec<Endpoint<Post>>,
    pub(crate) net: ringway_net::Control<Post>,
    /// Maximum number of open connections.
    pub(crate) connections: usize,
    pub(crate) locator: Locator,
    /// The router, if the server is one of a mesh.
    pub(crate) mesh: Option<MeshThread>,
    /// The connection with the database, if the server is a node of a cluster.
    pub(crate) cluster: Option<ClusterThread>,
    pub(crate) store: Store,
    /// `None` for a store in memory while another server uses the control socket.
    pub(crate) directory: Option<ControlDirectory>,
}

impl Resources {
    /// Acquires everything that these settings need.
    ///
    /// # Errors
    /// One line for each problem.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Vec<String>> {
        let one = |line: String| vec![line];
        let kind = setup::store(settings).map_err(|e| one(e.to_string()))?;
        let clock = Clock::new();
        let tls = Tls::load(&settings.tls)?;
        // First: sockets may need its address.
        let (mesh, slot) = start_mesh(settings, clock).map_err(one)?.unzip();
        let sockets = Sockets::open(settings, &tls, clock, mesh.as_ref()).map_err(one)?;
        let Sockets { pages, phonebook, listen, endpoints, net, connections, locator } = sockets;
        let listeners = net.listeners();
        let workers = net.mailboxes().len();
        let revive = &mut |flow: &Flow| revive(flow, listeners, workers);
        let membership = Membership::of(settings, &setup::listen(settings)).map_err(one)?;
        let cluster = membership.map(|membership| ClusterThread::start(membership, clock));
        let cluster = cluster.transpose().map_err(one)?;
        let others = match (&mesh, &cluster) {
            (Some(mesh), _) => Others::Mesh(mesh.exchange().clone()),
            (None, Some(cluster)) => Others::Cluster(cluster.hub().clone()),
            (None, None) => Others::None,
        };
        let max_expires = settings.registrar.expires_max;
        let store = Store::open(&kind, clock.now(), max_expires, revive, others);
        let store = store.map_err(|e| one(e.to_string()))?;
        if let Some(slot) = slot {
            let mut users = slot.lock().unwrap_or_else(PoisonError::into_inner);
            *users = Some(store.users().clone());
        }
        let directory = control_directory(&kind).map_err(one)?;
        check_cdr(settings.cdr.as_deref()).map_err(one)?;
        Ok(Resources {
            kind,
            clock,
            tls,
            pages,
            phonebook,
            listen,
            endpoints,
            net,
            connections,
            locator,
            mesh,
            cluster,
            store,
            directory,
        })
    }
}

/// Starts the router, if the server is one of a mesh.
fn start_mesh(
    settings: &Settings,
    clock: Clock,
) -> Result<Option<(MeshThread, UsersSlot)>, String> {
    let Some(mesh) = &settings.mesh else { return Ok(None) };
    let domains = setup::domains(settings, None);
    let domain = domains.first().map_or(DOMAIN, |domain| &domain.name);
    let router = mesh.router(domain, &setup::listen(settings)).map_err(|e| format!("mesh: {e}"))?;
    let transport = mesh.transport.unwrap_or(Transport::Udp);
    MeshThread::start(domain, transport, router, clock).map(Some)
}

/// Checks for everything that would prevent `serve` from starting with these settings.
///
/// # Errors
/// One line for each problem.
pub fn check(sources: &Sources) -> Result<(), Vec<String>> {
    let settings = sources.read()?;
    let mut problems = Vec::new();
    let mut note = |result: Result<(), String>| problems.extend(result.err());
    let tls = Tls::load(&settings.tls);
    match setup::store(&settings) {
        Err(e) => note(Err(e.to_string())),
        Ok(kind) if is_server_running(&kind) => check_addresses(&settings, &mut note),
        Ok(kind) => {
            // A secure listener cannot be opened without its certificates.
            match &tls {
                Ok(tls) => note(Sockets::open(&settings, tls, Clock::new(), None).map(drop)),
                Err(_) => check_addresses(&settings, &mut note),
            }
            note(check_store(&kind));
        }
    }
    problems.extend(Membership::of(&settings, &setup::listen(&settings)).err());
    problems.extend(Source::of(&settings).err());
    problems.extend(check_cdr(settings.cdr.as_deref()).err());
    problems.extend(tls.err().into_iter().flatten());
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Checks that call records can be appended. A missing file is not created.
fn check_cdr(path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let tried = match path.exists() {
        true => OpenOptions::new().append(true).open(path).map(drop),
        false => host::check_creatable(path),
    };
    tried.map_err(|e| format!("call records {}: {e}", path.display()))
}

fn is_server_running(kind: &StoreKind) -> bool {
    Control::of(kind).is_ok_and(|c| matches!(c.request("GET", "/healthz", ""), Ok(Some(_))))
}

fn check_store(kind: &StoreKind) -> Result<(), String> {
    let StoreKind::Redb(path) = kind else { return Ok(()) };
    if path.exists() {
        StoreFile::open_existing(path, true).map_err(|e| e.to_string())?;
        control_directory(kind).map(drop)
    } else {
        check_creatable(path).map_err(|e| e.to_string())
    }
}

/// Checks that the addresses belong to this host, even if their ports are in use.
fn check_addresses(settings: &Settings, note: &mut dyn FnMut(Result<(), String>)) {
    for listen in setup::listen(settings) {
        for ip in std::iter::once(listen.addr.ip()).chain(listen.more.iter().copied()) {
            if let Err(e) = std::net::UdpSocket::bind((ip, 0)) {
                note(Err(format!("{listen}: {}", error_text(&e))));
            }
        }
    }
    let books =
        endpoint::endpoints(settings).into_iter().flatten().filter_map(|endpoint| match endpoint {
            BookEndpoint::At(addr) => Some(addr),
            BookEndpoint::Lan { .. } => None,
        });
    for addr in settings.http.0.into_iter().chain(books) {
        if let Err(e) = TcpListener::bind((addr.ip(), 0)) {
            note(Err(format!("tcp://{addr}: {}", error_text(&e))));
        }
    }
}

/// The listening sockets, and server location, which depends on them.
struct Sockets {
    pages: Option<TcpListener>,
    phonebook: BookEndpoints,
    listen: Vec<Listen>,
    endpoints: Vec<Endpoint<Post>>,
    net: ringway_net::Control<Post>,
    connections: usize,
    locator: Locator,
}

impl Sockets {
    fn open(
        settings: &Settings,
        tls: &Tls,
        clock: Clock,
        mesh: Option<&MeshThread>,
    ) -> Result<Self, String> {
        let pages = settings.http.0.map(|addr| bind_tcp("http", addr)).transpose()?;
        let phonebook = open_book_endpoints(settings)?;
        let workers = setup::workers(settings);
        let listen = setup::listen(settings);
        let limits = setup::net_limits(settings, &listen, host::raise_open_files());
        let connections = limits.connections;
        let endpoints = ringway_net::bind::<Post>(ringway_net::Config {
            workers,
            listen: listen.iter().cloned().map(Into::into).collect(),
            limits,
            clock,
            tls_server: tls.server.clone(),
            tls_client: tls.client.clone(),
            udp_receive_buffer: ringway_net::limits::UDP_RECEIVE_BUFFER,
            sctp: setup::sctp(settings),
            sctp_paths: mesh.and_then(|mesh| paths(mesh.exchange())),
            origins: Default::default(),
            ingress: mesh.and_then(|mesh| ingress(mesh.exchange())),
        })
        .map_err(|e| e.to_string())?;
        let net = match endpoints.first() {
            Some(endpoint) => endpoint.control(),
            None => return Err("workers: expected at least 1, got 0".to_owned()),
        };
        let locator = Locator::start(net.clone(), clock)?;
        Ok(Sockets { pages, phonebook, listen, endpoints, net, connections, locator })
    }
}

fn bind_tcp(scheme: &str, addr: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(addr).map_err(|e| format!("{scheme}://{addr}: {}", error_text(&e)))
}

/// Opens the sockets of the phonebook that are at an address. The interface of a LAN may come up later.
fn open_book_endpoints(settings: &Settings) -> Result<BookEndpoints, String> {
    let [http, ldap] = endpoint::endpoints(settings);
    let open = |scheme: &str, endpoint: Option<BookEndpoint>| -> Result<_, String> {
        let Some(endpoint) = endpoint else { return Ok(None) };
        let listener = match &endpoint {
            BookEndpoint::At(addr) => Some(bind_tcp(scheme, *addr)?),
            BookEndpoint::Lan { .. } => None,
        };
        Ok(Some((endpoint, listener)))
    };
    Ok([open("http", http)?, open("ldap", ldap)?])
}

/// Formats an I/O error in the words that the SIP listeners use.
fn error_text(e: &io::Error) -> String {
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
        // Several servers may run with a store in memory; one of them has the control socket.
        Err(e) if *kind == StoreKind::Memory && e.kind() == io::ErrorKind::AddrInUse => {
            warn!("control socket {}: {e}: this server cannot be managed", path.display());
            Ok(None)
        }
        Err(e) => Err(format!("control socket {}: {e}", path.display())),
    }
}

/// Returns the flow of this process that corresponds to one of an earlier process: datagrams were
/// received on a socket that may be open again; a connection is gone.
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
