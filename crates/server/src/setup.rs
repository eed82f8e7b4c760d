//! Derives the configuration of the proxy and of the sockets from the operator's settings.
//!
//! Values that the file leaves open are determined here: default listeners, the main domain, the
//! host's addresses, the contents of certificate files.

use crate::config::{
    AuthMode, Certificate, HashName, Host, HttpAddr, Listen, SctpProfile, Settings, StoreKind,
    TlsSettings,
};
use crate::host;
use crate::mesh::MeshSettings;
use crate::mesh::settings::{ANYCAST, DOMAIN, SERVER_NAME};
use crate::observe::Facts;
use crate::observe::http::connections;
use crate::phonebook::{self, endpoint};
use crate::validity;
use ringway_media as media;
use ringway_net::{ClientCertificates, Identity, Origins, Roots, TlsClient, TlsServer};
use ringway_proxy::config::{Auth, Config, Domain, Limits, Network};
use ringway_proxy::keys::Secret;
use ringway_proxy::registrar::RegistrarConfig;
use ringway_proxy::routes::RouteTable;
use ringway_sansio::{Listener, Time, Transport};
use ringway_sctp_tokio as sctp;
use ringway_sip::digest::Algorithm;
use ringway_sip::transaction::Timers;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The default port of SIP without TLS.
const SIP: u16 = 5060;
/// The longest Flow-Timer: the default that phones use without one (RFC 5626 section 4.4.1).
const MAX_FLOW_TIMER: Duration = Duration::from_secs(120);

/// Values of the command line, which take precedence over the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--listen`: replaces the value in the file.
    pub listen: Vec<Listen>,
    /// `--domain`: replaces the value in the file.
    pub domains: Vec<Host>,
    /// `--store`
    pub store: Option<StoreKind>,
    /// `--auth`
    pub auth: Option<AuthMode>,
    /// `--workers`
    pub workers: Option<u8>,
    /// `--http`
    pub http: Option<HttpAddr>,
    /// `--mesh`, and the flags of the router.
    pub mesh: Option<MeshSettings>,
}

/// Sources of the configuration; read again on reload.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `--config`
    pub config: Option<PathBuf>,
    /// The other flags.
    pub overrides: Overrides,
}

impl Sources {
    /// Reads the file, if there is one, and applies the flags.
    ///
    /// # Errors
    /// One line for each problem.
    pub fn read(&self) -> Result<Settings, Vec<String>> {
        let mut settings = match &self.config {
            Some(path) => Settings::load(path)
                .map_err(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>())?,
            None => Settings::default(),
        };
        let o = &self.overrides;
        if !o.listen.is_empty() {
            settings.listen.clone_from(&o.listen);
        }
        if !o.domains.is_empty() {
            settings.names.clone_from(&o.domains);
        }
        if let Some(store) = &o.store {
            settings.store = Some(store.clone());
        }
        settings.workers = o.workers.or(settings.workers);
        settings.auth.mode = o.auth.unwrap_or(settings.auth.mode);
        settings.http = o.http.unwrap_or(settings.http);
        if let Some(flags) = &o.mesh {
            settings.mesh.get_or_insert_default().override_by(flags);
        }
        Ok(settings)
    }
}

/// Returns the store of this server: the file beside the database, if nodes share one.
///
/// # Errors
/// Fails when none is configured and there is no state directory.
pub fn store(settings: &Settings) -> std::io::Result<StoreKind> {
    match &settings.store {
        Some(StoreKind::Redis(_)) if let Some(file) = &settings.cluster.file => {
            Ok(StoreKind::Redb(file.clone()))
        }
        Some(store @ (StoreKind::Memory | StoreKind::Redb(_))) => Ok(store.clone()),
        None | Some(StoreKind::Redis(_)) => {
            Ok(StoreKind::Redb(host::state_directory()?.join(host::STORE_FILE)))
        }
    }
}

/// Returns the number of workers.
pub fn workers(settings: &Settings) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    settings.workers.map_or_else(cores, usize::from).clamp(1, crate::config::MAX_WORKERS.into())
}

/// Returns what to listen on. The default is UDP, TCP and SCTP on every address: SCTP over UDP, and
/// over IP if the process may.
pub fn listen(settings: &Settings) -> Vec<Listen> {
    if !settings.listen.is_empty() {
        return settings.listen.clone();
    }
    let mut any: Vec<IpAddr> = vec![Ipv4Addr::UNSPECIFIED.into()];
    if host::has_ipv6() {
        any.push(Ipv6Addr::UNSPECIFIED.into());
    }
    let of = |transport| any.iter().map(move |ip| Listen::at(transport, SocketAddr::new(*ip, SIP)));
    let over_ip = of(Transport::Sctp).filter(|_| sctp::is_permitted());
    let in_udp =
        of(Transport::Sctp).map(|listen| Listen { encapsulation: Some(sctp::UDP_PORT), ..listen });
    of(Transport::Udp).chain(of(Transport::Tcp)).chain(over_ip).chain(in_udp).collect()
}

/// Returns the domains, the main one first. `stored` is the name that the main domain was given
/// when the store was new: users belong to it, so it does not change when the host is renamed.
pub fn domains(settings: &Settings, stored: Option<&str>) -> Vec<Domain> {
    let mut out = Vec::new();
    let text = |host: &Host| host.0.as_str().into();
    let lan_ipv4 = settings.mesh.as_ref().and_then(|mesh| mesh.lan_ipv4);
    let anywhere = || {
        let names = [SERVER_NAME.into(), format!("[{ANYCAST}]").into()];
        names.into_iter().chain(lan_ipv4.map(|lan| lan.address().to_string().into()))
    };
    if settings.mesh.is_some() && settings.names.is_empty() && settings.domains.is_empty() {
        let aliases = anywhere().collect();
        out.push(Domain { name: DOMAIN.into(), aliases, mode: settings.mode });
        return out;
    }
    if let Some((first, others)) = settings.names.split_first() {
        out.push(Domain {
            name: text(first),
            aliases: others.iter().map(text).collect(),
            mode: settings.mode,
        });
    } else if settings.domains.is_empty() {
        let name = host::name();
        let main = stored.map_or_else(|| name.0.clone(), str::to_owned);
        let aliases = [name.0, "localhost".to_owned()];
        out.push(Domain {
            aliases: aliases.into_iter().filter(|a| *a != main).map(Into::into).collect(),
            name: main.into(),
            mode: settings.mode,
        });
    }
    out.extend(settings.domains.iter().map(|d| Domain {
        name: text(&d.name),
        aliases: d.aliases.iter().map(text).collect(),
        mode: d.mode,
    }));
    out
}

/// Returns the names of domains that `old` has and `new` lacks. A reload that removes a domain is
/// treated as a mistake, because its users could no longer register.
pub fn lost_domains(old: &Settings, new: &Settings, stored: Option<&str>) -> Vec<String> {
    let names = |settings: &Settings| -> Vec<String> {
        let further =
            settings.domains.iter().flat_map(|d| std::iter::once(&d.name).chain(&d.aliases));
        let configured = settings.names.iter().chain(further);
        let configured: Vec<String> = configured.map(|host| host.0.clone()).collect();
        match configured.is_empty() {
            // The host's name may change independently of the file.
            true => domains(settings, stored).iter().take(1).map(|d| d.name.to_string()).collect(),
            false => configured,
        }
    };
    let new = names(new);
    names(old).into_iter().filter(|name| !new.contains(name)).collect()
}

/// Returns the default name of the main domain; `None` if one is configured.
pub fn default_domain(settings: &Settings) -> Option<Host> {
    (settings.names.is_empty() && settings.domains.is_empty()).then(host::name)
}

/// Logs a warning for each routing rule that unauthenticated callers may use.
pub fn warn_of_open_rules(settings: &Settings) {
    for (i, _) in settings.routes.iter().enumerate().filter(|(_, rule)| rule.open) {
        tracing::warn!(
            "route {} of the configuration is open: unauthenticated callers may use it",
            i + 1
        );
    }
}

/// Returns the configuration of the proxy. `listeners` have the ports that the system assigned.
pub fn proxy(
    settings: &Settings,
    stored: Option<&str>,
    listeners: &[Listener],
    workers: usize,
    secret: &[u8; 32],
) -> Config {
    let r = &settings.registrar;
    let seconds = |d: Duration| d.as_secs().min(u32::MAX.into()) as u32;
    let idle = settings.limits.idle;
    let limits = &settings.limits;
    // Without a wildcard, another server may have the same port at another address of this host.
    let is_wildcard = listeners.iter().any(|l| l.addr.ip().is_unspecified());
    let mut addresses = if is_wildcard { host::addresses() } else { Vec::new() };
    // A listening address is local even while its interface is down.
    addresses.extend(settings.listen.iter().flat_map(|l| &l.more));
    // Those of a LAN too, which may come up later.
    if let Some(mesh) = &settings.mesh {
        addresses.push(ANYCAST.into());
        addresses.extend(mesh.lan_ipv4.map(|lan| IpAddr::from(lan.address())));
    }
    Config {
        domains: domains(settings, stored),
        listeners: listeners.to_vec(),
        addresses,
        auth: Auth {
            enabled: settings.auth.mode == AuthMode::Digest,
            algorithms: settings.auth.algorithms.iter().map(|a| algorithm(*a)).collect(),
            auth_int: settings.auth.auth_int,
            any_from: settings.auth.any_from,
            nonce_lifetime: settings.auth.nonce_lifetime,
        },
        trusted: settings
            .trusted
            .iter()
            .map(|n| Network { addr: n.addr, prefix: n.prefix })
            .collect(),
        mesh: None,
        nodes: Default::default(),
        routes: RouteTable { rules: settings.routes.clone() },
        // A relay cannot follow a dialog that passes it by.
        record_route: settings.record_route || settings.relays_media(),
        timers: Timers { t1: settings.timers.t1, t2: settings.timers.t2, t4: settings.timers.t4 },
        timer_c: settings.timers.c,
        registrar: RegistrarConfig {
            default_expires: seconds(r.expires_default),
            min_expires: seconds(r.expires_min),
            max_expires: seconds(r.expires_max),
            max_contacts: r.contacts_per_user,
            service_route: service_route(&r.service_route),
            // Two thirds, so that one keep-alive may be late.
            flow_timer: Some(seconds(idle.mul_f64(2.0 / 3.0).min(MAX_FLOW_TIMER)).max(1)),
        },
        limits: Limits {
            requests_per_source: limits.requests_per_source,
            // Each worker gets an equal share.
            requests: limits.requests.div_ceil(workers.max(1) as u32),
            max_forks: limits.forks,
        },
        secret: Secret::new(secret),
    }
}

/// Returns the algorithm of a name.
pub fn algorithm(name: HashName) -> Algorithm {
    match name {
        HashName::Md5 => Algorithm::Md5,
        HashName::Sha256 => Algorithm::Sha256,
        HashName::Sha512t256 => Algorithm::Sha512_256,
    }
}

/// Returns the value of Service-Route (RFC 3608 section 5): all entries are loose routers.
fn service_route(uris: &[String]) -> Vec<u8> {
    let elements: Vec<String> = uris
        .iter()
        .map(|uri| {
            let loose = uri.split(';').skip(1).any(|p| p.eq_ignore_ascii_case("lr"));
            if loose { format!("<{uri}>") } else { format!("<{uri};lr>") }
        })
        .collect();
    elements.join(", ").into_bytes()
}

/// File descriptors in use before any connection: standard streams, store, call records, and those
/// of the threads for signals, server location and management (22 when measured).
const PROCESS_FILES: usize = 24;
/// File descriptors of a worker, without its listeners (4 when measured).
const WORKER_FILES: usize = 4;
/// File descriptors reserved for connections to management, queries to name servers and the files
/// read by a reload.
const SPARE_FILES: usize = 2 * connections::RESERVED_FILES + 4;
/// File descriptors of the media relay: a pair of ports bound ahead of use has two in each family; the event and the epoll
/// instance of its thread.
const MEDIA_FILES: usize = 4 * media::config::SPARE_PAIRS + 2;
/// File descriptors of a relayed stream: two ports in each of two families.
const STREAM_FILES: usize = 4;
/// Minimum number of connections, however few files may be open.
const MIN_CONNECTIONS: usize = 4;

/// Returns the limits of connections. The configured number is reduced to what the process may
/// open: `files`, see `RLIMIT_NOFILE` in getrlimit(2).
pub fn net_limits(settings: &Settings, listen: &[Listen], files: u64) -> ringway_net::Limits {
    let l = &settings.limits;
    let for_media = if settings.relays_media() { media_files(settings, files) } else { 0 };
    let listeners = endpoint::endpoints(settings).iter().flatten().count();
    let others = for_media + (listeners * phonebook::LISTENER_FILES) as u64;
    let available = connections_within(files.saturating_sub(others), listen, workers(settings));
    ringway_net::Limits {
        connections: l.connections.min(available),
        connections_per_source: l.connections_per_source,
        idle: l.idle,
        handshake: l.handshake,
        partial: l.handshake,
        ..ringway_net::Limits::default()
    }
}

/// Returns the configuration of the media relay. `address` is the server's own in the mesh, and `files` as above: relayed
/// streams may use half of them.
pub fn media(settings: &Settings, address: Option<Ipv6Addr>, files: u64) -> media::Config {
    let streams = media_streams(settings, files);
    media::Config {
        ports: settings.media.ports.0.clone(),
        ipv6: address,
        limits: media::Limits {
            streams,
            of_many: streams - streams / 4,
            of_network: streams.div_ceil(4),
            of_address: streams.min(16),
            unanswered: streams.div_ceil(4),
        },
        ..media::Config::default()
    }
}

/// Returns the maximum number of relayed streams.
fn media_streams(settings: &Settings, files: u64) -> usize {
    let half = usize::try_from(files / 2).unwrap_or(usize::MAX);
    settings.media.streams.min(half.saturating_sub(MEDIA_FILES) / STREAM_FILES)
}

/// Returns the number of file descriptors of the media relay, at most half of `files`.
fn media_files(settings: &Settings, files: u64) -> u64 {
    let streams = STREAM_FILES * media_streams(settings, files);
    ((MEDIA_FILES + streams) as u64).min(files / 2)
}

fn connections_within(files: u64, listen: &[Listen], workers: usize) -> usize {
    let sockets = |l: &Listen| match l.transport {
        // One worker has all SCTP sockets: one for each address, and one for errors.
        Transport::Sctp | Transport::TlsSctp => 2 + l.more.len(),
        _ => workers,
    };
    let used = PROCESS_FILES + WORKER_FILES * workers + SPARE_FILES;
    let used = used + listen.iter().map(sockets).sum::<usize>();
    usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(used).max(MIN_CONNECTIONS)
}

/// Returns the origins of web pages that may open a WebSocket: those configured, or those of the
/// local hosts.
pub fn origins(settings: &Settings, config: &Config) -> Origins {
    if let Some(listed) = &settings.websocket.origins {
        return Origins::Listed(listed.clone());
    }
    let names = config.domains.iter().flat_map(|d| std::iter::once(&d.name).chain(&d.aliases));
    Origins::OfHosts(names.map(|name| (**name).into()).collect())
}

/// Returns the settings of associations.
pub fn sctp(settings: &Settings) -> sctp::Settings {
    ringway_net::sctp_settings(match settings.sctp.profile {
        SctpProfile::Standard => sctp::Settings::default(),
        SctpProfile::Ss7 => sctp::Settings::ss7(),
    })
}

/// Loads the certificates that are presented to peers.
///
/// # Errors
/// One line for each certificate that cannot be used, with the file and the problem.
pub fn identities(tls: &TlsSettings) -> Result<Vec<Identity>, Vec<String>> {
    let now = ringway_net::Clock::new().now();
    let (mut out, mut problems) = (Vec::new(), Vec::new());
    for certificate in tls.default.iter().chain(&tls.domains) {
        match identity(certificate, now) {
            Ok(identity) => out.push(identity),
            Err(what) => problems.push(what),
        }
    }
    if problems.is_empty() { Ok(out) } else { Err(problems) }
}

fn identity(configured: &Certificate, now: Time) -> Result<Identity, String> {
    let Certificate { name, certificate, key } = configured;
    let identity = Identity::load(certificate, key).map_err(|e| e.to_string())?;
    if !name.is_empty() && !identity.names().iter().any(|n| covers(n, name)) {
        return Err(format!(
            "{}: expected a certificate for {name}, got one for {}",
            certificate.display(),
            identity.names().join(", ")
        ));
    }
    validity::check(certificate, now)?;
    Ok(identity)
}

/// Returns whether a name in a certificate matches a host (RFC 6125 section 6.4.3: a wildcard
/// stands for one label).
fn covers(certified: &str, host: &str) -> bool {
    match certified.strip_prefix("*.") {
        Some(parent) => host.split_once('.').is_some_and(|(_, rest)| rest == parent),
        None => certified == host,
    }
}

/// TLS for incoming and for outgoing connections.
#[derive(Clone, Default)]
pub struct Tls {
    /// `None` without a certificate.
    pub server: Option<Arc<TlsServer>>,
    /// `None` if the system has no certification authorities and none are configured.
    pub client: Option<Arc<TlsClient>>,
}

impl Tls {
    /// Loads certificates and certification authorities.
    ///
    /// # Errors
    /// One line for each file that cannot be used.
    pub fn load(settings: &TlsSettings) -> Result<Self, Vec<String>> {
        let (identities, roots) = read(settings)?;
        let server = match identities.is_empty() {
            true => None,
            false => {
                let server = TlsServer::new(&identities, &ClientCertificates::NotAsked);
                Some(Arc::new(server.map_err(|e| vec![e.to_string()])?))
            }
        };
        let client = match roots {
            Some(roots) => {
                let client = TlsClient::new(&roots, identities.first());
                Some(Arc::new(client.map_err(|e| vec![e.to_string()])?))
            }
            None => None,
        };
        Ok(Tls { server, client })
    }

    /// Loads all files again; on an error nothing changes.
    ///
    /// # Errors
    /// One line for each file that cannot be used.
    pub fn reload(&self, settings: &TlsSettings) -> Result<(), Vec<String>> {
        let (identities, roots) = read(settings)?;
        if let (Some(server), false) = (&self.server, identities.is_empty()) {
            server
                .replace(&identities, &ClientCertificates::NotAsked)
                .map_err(|e| vec![e.to_string()])?;
        }
        if let (Some(client), Some(roots)) = (&self.client, roots) {
            client.replace(&roots, identities.first()).map_err(|e| vec![e.to_string()])?;
        }
        Ok(())
    }
}

fn read(settings: &TlsSettings) -> Result<(Vec<Identity>, Option<Roots>), Vec<String>> {
    match (identities(settings), roots(settings)) {
        (Ok(identities), Ok(roots)) => Ok((identities, roots)),
        (identities, roots) => {
            let problems = identities.err().into_iter().flatten().chain(roots.err());
            Err(problems.collect())
        }
    }
}

fn roots(settings: &TlsSettings) -> Result<Option<Roots>, String> {
    match &settings.roots {
        Some(file) => Roots::load(&[file]).map(Some).map_err(|e| e.to_string()),
        None => match Roots::system() {
            Ok(roots) => Ok(Some(roots)),
            Err(e) => {
                tracing::warn!("{e}: TLS connections to other servers cannot be opened");
                Ok(None)
            }
        },
    }
}

/// Returns the URIs of the listeners, with the ports that the system assigned.
pub fn listening(listen: &[Listen], listeners: &[Listener]) -> Vec<String> {
    let actual =
        |(l, found): (&Listen, &Listener)| Listen { addr: found.addr, ..l.clone() }.to_string();
    listen.iter().zip(listeners).map(actual).collect()
}

/// Returns the configured values that the status shows.
pub fn facts(config: &Config, listen: Vec<String>, store: &StoreKind) -> Facts {
    let domain = |d: &Domain| {
        (d.name.to_string(), d.aliases.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    Facts {
        domains: config.domains.iter().map(domain).collect(),
        listen,
        store: store.to_string(),
        auth: if config.auth.enabled { "digest" } else { "off" },
        algorithms: config.auth.algorithms.iter().map(|a| a.name()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_management() {
        let listen: Vec<Listen> =
            ["udp://0.0.0.0:5060", "tcp://0.0.0.0:5060"].map(|text| text.parse().unwrap()).into();
        let used = PROCESS_FILES + SPARE_FILES + 2 * (WORKER_FILES + 2);
        assert_eq!(connections_within(1024, &listen, 2), 1024 - used);
        assert_eq!(connections_within(used as u64 + 9, &listen, 2), 9);
        assert_eq!(connections_within(16, &listen, 2), MIN_CONNECTIONS);
        let limits = |files| net_limits(&Settings::default(), &listen, files).connections;
        assert_eq!(limits(1 << 20), 50_000);
        assert!(limits(1024) < 1024);
    }

    /// Relayed streams and connections share the files of the process.
    #[test]
    fn media_takes_at_most_half_of_the_files() {
        let off = Settings::default();
        let on = Settings::parse("r.toml", "[media]\nrelay = \"on\"").unwrap();
        let connections = |settings: &Settings, files| net_limits(settings, &[], files).connections;
        assert_eq!(connections(&off, 20_000) - connections(&on, 20_000), MEDIA_FILES + 4 * 1024);
        assert_eq!(media(&on, None, 20_000).limits, media::Config::default().limits);
        assert_eq!(connections(&off, 1024) - connections(&on, 1024), MEDIA_FILES + 4 * 63);
        assert_eq!(media(&on, None, 1024).limits.streams, 63);
        for files in [0, 16, 256] {
            let limits = media(&on, None, files).limits;
            assert_eq!((limits.streams, limits.of_network, limits.of_address), (0, 0, 0));
            assert_eq!(connections(&on, files), connections(&off, files - files / 2));
        }
    }

    #[test]
    fn service_routes_are_loose() {
        let uris = ["sip:a.org".to_owned(), "sip:b.org;transport=tcp;lr".to_owned()];
        assert_eq!(service_route(&uris), b"<sip:a.org;lr>, <sip:b.org;transport=tcp;lr>");
        assert!(service_route(&[]).is_empty());
    }

    #[test]
    fn the_main_domain_keeps_its_name() {
        let s = Settings::default();
        let d = domains(&s, Some("old-name"));
        assert_eq!(&*d[0].name, "old-name");
        assert!(d[0].aliases.iter().any(|a| **a == *host::name().0));
        let s = Settings { names: vec![Host("a.org".into()), Host("b.org".into())], ..s };
        let d = domains(&s, Some("old-name"));
        assert_eq!((&*d[0].name, &*d[0].aliases[0], d.len()), ("a.org", "b.org", 1));
    }

    #[test]
    fn lost_domains_are_found() {
        let of = |text: &str| Settings::parse("r.toml", text).unwrap();
        let old = of("domains = [\"a.org\", \"b.org\"]\n[[domain]]\nname = \"c.org\"\n");
        let lost = |text: &str| lost_domains(&old, &of(text), Some("host"));
        let all = "domains = [\"b.org\", \"a.org\", \"new.org\"]\n[[domain]]\nname = \"c.org\"\n";
        assert!(lost(all).is_empty());
        assert_eq!(lost("domains = [\"a.org\"]"), ["b.org", "c.org"]);
        assert_eq!(lost(""), ["a.org", "b.org", "c.org"]);
        // The default domain may be lost too.
        let none = of("workers = 1");
        assert!(lost_domains(&none, &of(""), Some("host")).is_empty());
        assert_eq!(lost_domains(&none, &old, Some("host")), ["host"]);
    }

    #[test]
    fn flags_take_precedence_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.toml");
        let text = "workers = 3\nstore = \"redb:x.redb\"\nlisten = [\"udp://127.0.0.1:5080\"]\n";
        std::fs::write(&path, text).unwrap();
        let mut sources = Sources { config: Some(path), overrides: Overrides::default() };
        let s = sources.read().unwrap();
        assert_eq!(workers(&s), 3);
        assert_eq!(store(&s).unwrap(), StoreKind::Redb(dir.path().join("x.redb")));
        sources.overrides = Overrides {
            workers: Some(1),
            store: Some(StoreKind::Memory),
            listen: vec!["tcp://127.0.0.1:5090".parse().unwrap()],
            auth: Some(AuthMode::Off),
            ..Overrides::default()
        };
        let s = sources.read().unwrap();
        assert_eq!((workers(&s), s.auth.mode), (1, AuthMode::Off));
        assert_eq!(listen(&s), ["tcp://127.0.0.1:5090".parse().unwrap()]);
    }

    #[test]
    fn listeners_are_shown_with_their_ports() {
        let listen: Vec<Listen> =
            ["udp://127.0.0.1:0", "sctp+udp://127.0.0.1,127.0.0.2:5060?encap=9900"]
                .map(|text| text.parse().unwrap())
                .into();
        let found = |l: &Listen, port| Listener {
            transport: l.transport,
            addr: SocketAddr::new(l.addr.ip(), port),
        };
        let listeners = [found(&listen[0], 4711), found(&listen[1], 5060)];
        assert_eq!(
            listening(&listen, &listeners),
            ["udp://127.0.0.1:4711", "sctp+udp://127.0.0.1,127.0.0.2:5060?encap=9900"]
        );
        // A listed address is local, whether or not an interface has it now.
        let settings = Settings {
            listen: vec!["sctp://192.0.2.1,198.51.100.1:5060".parse().unwrap()],
            ..Settings::default()
        };
        let config = proxy(&settings, None, &listeners, 1, &[0; 32]);
        assert!(config.addresses.contains(&[198, 51, 100, 1].into()));
    }

    /// Two servers on one host are two: each has the default port at an address of its own.
    #[test]
    fn the_other_addresses_of_the_host_are_local_with_a_wildcard_only() {
        let addresses = |addr: &str| {
            let listener = Listener { transport: Transport::Udp, addr: addr.parse().unwrap() };
            proxy(&Settings::default(), None, &[listener], 1, &[0; 32]).addresses
        };
        assert!(addresses("127.0.0.1:5060").is_empty());
        assert_eq!(addresses("0.0.0.0:5060"), host::addresses());
    }

    /// A Route with an address of the LAN is this server's, whether or not the LAN is up.
    #[test]
    fn the_addresses_of_a_lan_are_local() {
        let settings =
            Settings::parse("r.toml", "[mesh]\nlan = \"lan0\"\nlan_ipv4 = \"10.50.60.1/24\"");
        let config = proxy(&settings.unwrap(), None, &[], 1, &[0; 32]);
        assert!(config.addresses.contains(&[10, 50, 60, 1].into()));
        assert!(config.addresses.contains(&ANYCAST.into()));
        assert_eq!(&*config.domains[0].name, DOMAIN);
    }

    #[test]
    fn a_wildcard_certificate_covers_one_label() {
        assert!(covers("*.a.org", "sip.a.org") && covers("a.org", "a.org"));
        assert!(!covers("*.a.org", "a.org") && !covers("*.a.org", "x.sip.a.org"));
    }

    /// Writes a certificate for a name, and its key, into files.
    fn certificate(dir: &std::path::Path, name: &str) -> Certificate {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let (certificate, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        Certificate { name: name.to_owned(), certificate, key }
    }

    #[test]
    fn certificates_must_match_key_and_name() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (certificate(dir.path(), "a.org"), certificate(dir.path(), "b.org"));
        let with = |domains: Vec<Certificate>| TlsSettings {
            default: Some(Certificate { name: String::new(), ..a.clone() }),
            domains,
            roots: Some(a.certificate.clone()),
        };
        let tls = Tls::load(&with(vec![b.clone()])).unwrap();
        assert!(tls.server.is_some() && tls.client.is_some());
        assert!(tls.reload(&with(vec![])).is_ok());

        let other = Certificate { name: "c.org".into(), ..b.clone() };
        let error = Tls::load(&with(vec![other.clone()])).err().unwrap().remove(0);
        assert!(error.ends_with("b.org.pem: expected a certificate for c.org, got one for b.org"));
        assert!(tls.reload(&with(vec![other])).is_err());

        let crossed = Certificate { key: a.key.clone(), ..b };
        let error = Tls::load(&with(vec![crossed.clone()])).err().unwrap();
        assert!(error.len() == 1 && error[0].contains("b.org.pem"), "{error:?}");

        // All unusable files are reported together, including one that has expired.
        let missing = Certificate { certificate: dir.path().join("no.pem"), ..a.clone() };
        let mut params = rcgen::CertificateParams::new(["d.org".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2024, 5, 6);
        let key = rcgen::KeyPair::generate().unwrap();
        let (expired, key_file) = (dir.path().join("d.pem"), dir.path().join("d.key"));
        std::fs::write(&expired, params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let expired = Certificate { name: "d.org".into(), certificate: expired, key: key_file };
        let error = Tls::load(&with(vec![crossed, missing, expired])).err().unwrap();
        assert_eq!(error.len(), 3, "{error:?}");
        assert!(error[1].ends_with("no.pem: no such file"), "{error:?}");
        let end = "d.pem: the certificate expired on 2024-05-06 00:00:00 UTC";
        assert!(error[2].ends_with(end), "{error:?}");
    }
}
