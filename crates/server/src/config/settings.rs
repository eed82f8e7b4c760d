//! The settings that a file gives, with every default filled in that does not depend on the host.

use super::sections::{
    AuthSettings, DomainSettings, LimitSettings, LogSettings, MediaSettings, PhonebookSettings,
    RegistrarSettings, SctpSettings, TimerSettings, TlsSettings, WebSocketSettings,
};
use super::shape::{Host, HttpAddr, Listen, Network, StoreKind};
use super::users::UserSettings;
use crate::cluster::ClusterSettings;
use crate::mesh::MeshSettings;
use ringway_proxy::config::Mode;
use ringway_proxy::routes::Rule;
use std::path::PathBuf;

/// A configuration file as data.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether the file has no key at all.
    pub is_empty: bool,
    /// URIs to listen on; empty for the defaults.
    pub listen: Vec<Listen>,
    /// Names of the main domain, the first of which is used in addresses-of-record; empty for the
    /// host's name and addresses.
    pub names: Vec<Host>,
    /// Mode of the main domain: how requests for it are treated.
    pub mode: Mode,
    /// Further domains, each with its own users.
    pub domains: Vec<DomainSettings>,
    /// Store of users and registrations; `None` for a file in the state directory.
    pub store: Option<StoreKind>,
    /// Number of worker threads; `None` for one per core.
    pub workers: Option<u8>,
    /// Address on which management is served.
    pub http: HttpAddr,
    /// Networks of peers that need not authenticate.
    pub trusted: Vec<Network>,
    /// Whether the proxy stays in the path of dialogs.
    pub record_route: bool,
    /// Digest authentication.
    pub auth: AuthSettings,
    /// Certificates.
    pub tls: TlsSettings,
    /// Logs.
    pub log: LogSettings,
    /// File to which call records are appended, if any.
    pub cdr: Option<PathBuf>,
    /// Limits of rates and sizes.
    pub limits: LimitSettings,
    /// The registrar's rules.
    pub registrar: RegistrarSettings,
    /// SIP timers.
    pub timers: TimerSettings,
    /// SCTP.
    pub sctp: SctpSettings,
    /// Relayed media.
    pub media: MediaSettings,
    /// The router of a mesh that the server is, if it is one.
    pub mesh: Option<MeshSettings>,
    /// The node of a cluster that the server is, if its store is shared.
    pub cluster: ClusterSettings,
    /// Where users are.
    pub users: UserSettings,
    /// Where the phonebook is served.
    pub phonebook: PhonebookSettings,
    /// WebSockets.
    pub websocket: WebSocketSettings,
    /// The routing table.
    pub routes: Vec<Rule>,
}
