//! The sections of the file: keys, types, defaults and limits.

use super::read::{Word, duration, find_word, integer, tables, word};
use super::shape::{
    FileName, Host, HttpAddr, LanNetwork, Listen, MeshPeer, MeshTransport, Network, OriginText,
    PhonebookAddr, PortRange, SourceText, StoreKind,
};
use super::users::{REFRESH, TableName};

use super::span::Span;
use ringway_net::Origin;
use ringway_proxy::config::Mode;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of workers; a flow id has 8 bits for its worker.
pub const MAX_WORKERS: u8 = 64;
/// Maximum number of listen URIs.
pub const MAX_LISTEN: usize = 64;
/// Maximum number of domains, and of names per domain.
pub const MAX_DOMAINS: usize = 1000;
/// Maximum number of trusted networks.
pub const MAX_TRUSTED: usize = 1000;
/// Maximum number of origins of web pages.
pub const MAX_ORIGINS: usize = 1000;
/// Maximum number of relayed media streams: each has two ports in each family.
pub const MAX_STREAMS: usize = 16_384;
/// Maximum number of routing rules; they are tried one after another.
pub const MAX_ROUTES: usize = 1000;

/// A domain with its own users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DomainSettings {
    /// Name of the domain; also the digest realm of its users.
    pub name: Host,
    /// Other names and addresses of the domain.
    pub aliases: Vec<Host>,
    /// How requests for the domain are treated.
    pub mode: Mode,
}

/// Whether users must authenticate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthMode {
    /// No authentication: a request may claim any user.
    Off,
    /// Digest, RFC 8760.
    Digest,
}

/// A digest algorithm, by its name on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashName {
    /// `MD5`
    Md5,
    /// `SHA-256`
    Sha256,
    /// `SHA-512-256`
    Sha512t256,
}

/// `[auth]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSettings {
    /// Whether digest is required.
    pub mode: AuthMode,
    /// Algorithms, offered in this order.
    pub algorithms: Vec<HashName>,
    /// Whether `auth-int` is offered in addition to `auth`.
    pub auth_int: bool,
    /// Whether an authenticated user may write any From.
    pub any_from: bool,
    /// Validity of a nonce.
    #[serde(deserialize_with = "ten_seconds_to_a_day")]
    pub nonce_lifetime: Duration,
}

/// A certificate chain and its private key, as PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Server name the certificate is presented for; empty for all other names.
    pub name: String,
    /// File of the certificate chain.
    pub certificate: PathBuf,
    /// File of the private key.
    pub key: PathBuf,
}

/// `[tls]`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsSettings {
    /// Certificate for clients that name none of `domains`.
    pub default: Option<Certificate>,
    /// Certificates by server name.
    pub domains: Vec<Certificate>,
    /// File of the certification authorities for outgoing connections; `None` for the system's.
    pub roots: Option<PathBuf>,
}

/// Lowest level of log lines that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Also unusual events.
    Warn,
    /// Also regular events: calls, registrations, reloads.
    Info,
    /// Also the reasons of decisions.
    Debug,
    /// All lines.
    Trace,
}

/// Format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// `[log]`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// Lowest level that is written.
    pub level: LogLevel,
    /// Text or JSON.
    pub format: LogFormat,
}

/// `[limits]`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSettings {
    /// Requests per second from one source address, for each worker; 0 for no limit.
    #[serde(deserialize_with = "source_rate")]
    pub requests_per_source: u32,
    /// Requests per second from all sources; 0 for no limit.
    #[serde(deserialize_with = "rate")]
    pub requests: u32,
    /// Maximum number of contacts that a request is forked to.
    #[serde(deserialize_with = "contacts")]
    pub forks: usize,
    /// Maximum number of open connections.
    #[serde(deserialize_with = "connections")]
    pub connections: usize,
    /// Maximum number of open connections from one source address.
    #[serde(deserialize_with = "connections")]
    pub connections_per_source: usize,
    /// Time after which a connection without traffic is closed.
    #[serde(deserialize_with = "ten_seconds_to_a_day")]
    pub idle: Duration,
    /// Time limit of a TLS or WebSocket handshake, and of a message that has begun.
    #[serde(deserialize_with = "handshake")]
    pub handshake: Duration,
    /// Time limit of a graceful stop.
    #[serde(deserialize_with = "drain")]
    pub drain: Duration,
}

/// `[registrar]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistrarSettings {
    /// Maximum number of contacts per user.
    #[serde(deserialize_with = "contacts")]
    pub contacts_per_user: usize,
    /// Shortest registration; shorter ones are refused with 423.
    #[serde(deserialize_with = "expiry")]
    pub expires_min: Duration,
    /// Duration of a registration when the user agent names none.
    #[serde(deserialize_with = "expiry")]
    pub expires_default: Duration,
    /// Longest registration; longer ones are shortened.
    #[serde(deserialize_with = "expiry")]
    pub expires_max: Duration,
    /// Service-Route elements, URIs without angle brackets (RFC 3608).
    pub service_route: Vec<String>,
}

/// `[websocket]`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WebSocketSettings {
    /// Origins of web pages that may open a WebSocket; `None` for those of the local hosts.
    pub origins: Option<Vec<Origin>>,
}

/// `[sctp]`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SctpSettings {
    /// Timer profile, which decides how soon a silent path is abandoned.
    pub profile: SctpProfile,
}

/// The timers of associations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SctpProfile {
    /// The values that RFC 9260 section 16 recommends.
    #[default]
    Standard,
    /// Values of signalling networks: a failed path is abandoned within 800 ms.
    Ss7,
}

impl Word for SctpProfile {
    const WORDS: &'static [(&'static str, Self)] =
        &[("standard", SctpProfile::Standard), ("ss7", SctpProfile::Ss7)];
}

/// `[media]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediaSettings {
    /// Whether media is relayed.
    #[serde(deserialize_with = "word")]
    pub relay: RelayMode,
    /// Ports that media is received at.
    pub ports: PortRange,
    /// Maximum number of relayed streams.
    #[serde(deserialize_with = "streams")]
    pub streams: usize,
}

impl Default for MediaSettings {
    fn default() -> Self {
        let defaults = ringway_media::Config::default();
        MediaSettings {
            relay: RelayMode::Auto,
            ports: PortRange(defaults.ports),
            streams: defaults.limits.streams,
        }
    }
}

fn streams<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    integer(from, "streams", 1..=MAX_STREAMS)
}

/// Whether media is relayed between parties that do not reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayMode {
    /// If the server is a router of a mesh.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Word for RelayMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", RelayMode::Auto), ("on", RelayMode::On), ("off", RelayMode::Off)];
}

/// `[timers]`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimerSettings {
    /// T1, the round-trip estimate (RFC 3261 section 17.1.1.1).
    #[serde(deserialize_with = "t1")]
    pub t1: Duration,
    /// T2, the longest retransmission interval.
    #[serde(deserialize_with = "t2")]
    pub t2: Duration,
    /// T4, the maximum time a message stays in the network.
    #[serde(deserialize_with = "t2")]
    pub t4: Duration,
    /// Timer C, the maximum ringing time of an INVITE (RFC 3261 section 16.6 item 11).
    #[serde(deserialize_with = "timer_c")]
    pub c: Duration,
}

impl Word for Mode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("proxy", Mode::Proxy), ("redirect", Mode::Redirect), ("stateless", Mode::Stateless)];
}

impl Word for AuthMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("digest", AuthMode::Digest), ("off", AuthMode::Off)];
}

impl std::str::FromStr for AuthMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        find_word(text)
    }
}

impl Word for HashName {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("SHA-512-256", HashName::Sha512t256),
        ("SHA-256", HashName::Sha256),
        ("MD5", HashName::Md5),
    ];
}

impl Word for LogLevel {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
}

impl Word for LogFormat {
    const WORDS: &'static [(&'static str, Self)] =
        &[("text", LogFormat::Text), ("json", LogFormat::Json)];
}

macro_rules! from_word {
    ($($type:ty),+) => { $(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                word(from)
            }
        }
    )+ };
}

from_word!(AuthMode, HashName, LogLevel, LogFormat, SctpProfile);

impl Default for AuthSettings {
    fn default() -> Self {
        AuthSettings {
            mode: AuthMode::Digest,
            algorithms: vec![HashName::Md5],
            auth_int: true,
            any_from: false,
            nonce_lifetime: Duration::from_secs(300),
        }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings { level: LogLevel::Info, format: LogFormat::Text }
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        LimitSettings {
            // No telephone comes near this rate, and verifying a digest for each request takes less
            // than 2 % of a processor.
            requests_per_source: 1000,
            requests: 0,
            forks: 10,
            connections: 50_000,
            connections_per_source: 1000,
            idle: Duration::from_secs(1200),
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(30),
        }
    }
}

impl Default for RegistrarSettings {
    fn default() -> Self {
        RegistrarSettings {
            contacts_per_user: 10,
            expires_min: Duration::from_secs(60),
            expires_default: Duration::from_secs(3600),
            expires_max: Duration::from_secs(7200),
            service_route: Vec::new(),
        }
    }
}

impl Default for TimerSettings {
    fn default() -> Self {
        TimerSettings {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
            c: Duration::from_secs(190),
        }
    }
}

/// Deserializers of numeric keys, with unit and bounds.
macro_rules! numbers {
    ($($name:ident: $type:ty = $unit:literal, $range:expr;)+) => { $(
        fn $name<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
            integer(from, $unit, $range)
        }
    )+ };
}

numbers! {
    threads: u8 = "threads", 0..=MAX_WORKERS;
    source_rate: u32 = "requests a second (0 is no limit)", 0..=1_000_000;
    rate: u32 = "requests a second (0 is no limit)", 0..=10_000_000;
    contacts: usize = "contacts", 1..=100;
    connections: usize = "connections", 1..=1_000_000;
    characters: usize = "characters", 0..=64;
    status: u16 = "a final SIP status", 0..=699;
}

/// Deserializers of duration keys, with bounds.
macro_rules! durations {
    ($($name:ident = $range:expr;)+) => { $(
        fn $name<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
            duration(from, $range)
        }
    )+ };
}

const DAY: u64 = 86_400;

durations! {
    ten_seconds_to_a_day = Span::secs(10)..=Span::secs(DAY);
    refresh = Span::secs(1)..=Span::secs(DAY);
    handshake = Span::secs(1)..=Span::secs(120);
    drain = Span::secs(0)..=Span::secs(DAY);
    expiry = Span::secs(1)..=Span::secs(30 * DAY);
    t1 = Span::ms(10)..=Span::secs(10);
    t2 = Span::ms(10)..=Span::secs(60);
    // RFC 3261 section 16.6 item 11: Timer C MUST be larger than three minutes.
    timer_c = Span::secs(181)..=Span::secs(3600);
}

/// `[phonebook]`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PhonebookSettings {
    /// Where it is served by HTTP; without, to the hosts of the LAN of a mesh, if there is one.
    pub http: Option<PhonebookAddr>,
    /// Where it is served by LDAP; without, as by HTTP.
    pub ldap: Option<PhonebookAddr>,
}

/// The whole file as written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Vec<Listen>,
    pub(super) domains: Vec<Host>,
    #[serde(deserialize_with = "word")]
    pub(super) mode: Mode,
    pub(super) store: Option<StoreKind>,
    #[serde(deserialize_with = "threads")]
    pub(super) workers: u8,
    pub(super) http: HttpAddr,
    pub(super) trusted: Vec<Network>,
    #[serde(default = "default_true")]
    pub(super) record_route: bool,
    pub(super) auth: AuthSettings,
    pub(super) tls: Tls,
    pub(super) log: LogSettings,
    pub(super) cdr: Option<Cdr>,
    pub(super) limits: LimitSettings,
    pub(super) registrar: RegistrarSettings,
    pub(super) timers: TimerSettings,
    pub(super) sctp: SctpSettings,
    pub(super) websocket: WebSocket,
    pub(super) media: MediaSettings,
    pub(super) mesh: Option<Mesh>,
    pub(super) cluster: Cluster,
    pub(super) users: Users,
    pub(super) phonebook: PhonebookSettings,
    #[serde(deserialize_with = "tables")]
    pub(super) domain: Vec<Domain>,
    #[serde(deserialize_with = "tables")]
    pub(super) route: Vec<Route>,
}

fn default_true() -> bool {
    true
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Tls {
    pub(super) certificate: Option<FileName>,
    pub(super) key: Option<FileName>,
    pub(super) roots: Option<FileName>,
    #[serde(deserialize_with = "tables")]
    pub(super) domain: Vec<TlsDomain>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsDomain {
    pub(super) name: Host,
    pub(super) certificate: FileName,
    pub(super) key: FileName,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cdr {
    pub(super) path: FileName,
}

/// `[mesh]`
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Mesh {
    pub(super) interfaces: Vec<String>,
    pub(super) peers: Vec<MeshPeer>,
    pub(super) lan: Option<String>,
    pub(super) lan_ipv4: Option<LanNetwork>,
    pub(super) tun: Option<String>,
    pub(super) network_key: Option<FileName>,
    pub(super) state: Option<FileName>,
    #[serde(deserialize_with = "mesh_port")]
    pub(super) port: u16,
    #[serde(deserialize_with = "tables")]
    pub(super) service: Vec<MeshService>,
    pub(super) numbers: Option<bool>,
    pub(super) transport: Option<MeshTransport>,
}

/// `[cluster]`
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Cluster {
    pub(super) address: Option<Listen>,
    #[serde(deserialize_with = "replicas")]
    pub(super) replicas: u32,
    pub(super) file: Option<FileName>,
    pub(super) roots: Option<FileName>,
}

impl Default for Cluster {
    fn default() -> Self {
        Cluster { address: None, replicas: 1, file: None, roots: None }
    }
}

fn replicas<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    integer(from, "replicas", 0..=16)
}

/// `[users]`
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Users {
    pub(super) source: SourceText,
    pub(super) table: Option<TableName>,
    #[serde(deserialize_with = "refresh")]
    pub(super) refresh: Duration,
    pub(super) roots: Option<FileName>,
}

impl Default for Users {
    fn default() -> Self {
        Users { source: SourceText::default(), table: None, refresh: REFRESH, roots: None }
    }
}

/// A number that users of this router answer for, together with those of other routers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MeshService {
    pub(super) number: String,
    pub(super) users: Vec<String>,
}

fn mesh_port<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    integer(from, "UDP port", 1..=u16::MAX)
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WebSocket {
    pub(super) origins: Option<Vec<OriginText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Domain {
    pub(super) name: Host,
    #[serde(default)]
    pub(super) aliases: Vec<Host>,
    #[serde(default, deserialize_with = "word")]
    pub(super) mode: Mode,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Route {
    pub(super) domain: Option<String>,
    pub(super) prefix: Option<String>,
    pub(super) pattern: Option<String>,
    #[serde(deserialize_with = "characters")]
    pub(super) strip: usize,
    pub(super) prepend: String,
    pub(super) to_domain: Option<Host>,
    #[serde(deserialize_with = "tables")]
    pub(super) next_hops: Vec<Hop>,
    #[serde(deserialize_with = "status")]
    pub(super) reject: u16,
    pub(super) open: bool,
    pub(super) share: Option<RouteShare>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteShare {
    #[serde(default = "one")]
    pub(super) cost: u16,
    #[serde(default = "one")]
    pub(super) capacity: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hop {
    pub(super) uri: String,
    #[serde(default = "one")]
    pub(super) priority: u16,
    #[serde(default = "one")]
    pub(super) weight: u16,
}

fn one() -> u16 {
    1
}
