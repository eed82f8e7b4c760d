//! The configuration file: its keys, and the report of everything that is wrong in it.
//!
//! [`Settings`] is the file as data, with every default filled in that does not depend on the host.
//! [`Settings::parse`] reports all problems, each with file, line and column. Values that depend on
//! the host (its name, its addresses, the state directory) are determined at start by
//! [`crate::setup`]. `docs/configuration.md` describes each key.

mod check;
mod reach;
mod read;
mod sections;
mod shape;

pub use ringway_document::{MAX_PROBLEMS, Problem};
pub use sections::{
    AuthMode, AuthSettings, Certificate, DomainSettings, HashName, LimitSettings, LogFormat,
    LogLevel, LogSettings, RegistrarSettings, SctpProfile, SctpSettings, TimerSettings,
    TlsSettings, WebSocketSettings,
};
pub use shape::{Host, HttpAddr, Listen, Network, StoreKind};

use check::Check;
use ringway_document::{Document, Problems};
use ringway_proxy::config::Mode;
use ringway_proxy::routes::Rule;
use std::path::{Path, PathBuf};

/// Maximum size of a configuration file, in bytes.
pub const MAX_FILE: u64 = 1 << 20;
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
/// Maximum number of routing rules; they are tried one after another.
pub const MAX_ROUTES: usize = 1000;

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
    /// WebSockets.
    pub websocket: WebSocketSettings,
    /// The routing table.
    pub routes: Vec<Rule>,
}

impl Default for Settings {
    fn default() -> Self {
        // An empty file has no problems.
        Settings::parse("", "").unwrap_or_else(|_| unreachable!("the defaults are valid"))
    }
}

impl Settings {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Returns all problems, in the order of the file.
    pub fn load(path: &Path) -> Result<Self, Vec<Problem>> {
        let file = path.display().to_string();
        let file_problem = |what: String| vec![Problem::whole(&file, what)];
        let metadata = std::fs::metadata(path).map_err(|e| file_problem(e.to_string()))?;
        if metadata.is_dir() {
            return Err(file_problem("is a directory".to_owned()));
        }
        if metadata.len() > MAX_FILE {
            let what = format!("expected at most {MAX_FILE} bytes, got {}", metadata.len());
            return Err(file_problem(what));
        }
        let bytes = std::fs::read(path).map_err(|e| file_problem(e.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            file_problem(format!("not UTF-8 at byte {}", e.utf8_error().valid_up_to()))
        })?;
        let mut settings = Settings::parse(&file, &text)?;
        if let Some(base) = path.parent() {
            settings.resolve(base);
        }
        Ok(settings)
    }

    /// Parses and checks the text of a file. `file` is its name in error messages.
    ///
    /// # Errors
    /// Returns all problems, in the order of the file.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let document =
            Document::parse(file, text).map_err(|found| found.into_iter().collect::<Vec<_>>())?;
        let mut problems = Vec::new();
        let read = document.read("", document.root(), &[], &mut problems);
        let mut check = Check { document: &document, problems: &mut problems };
        match read.map(|read| check.settings(read)) {
            Some(settings) if problems.is_empty() => Ok(settings),
            _ => Err(Problems::new(file, problems).into_iter().collect()),
        }
    }

    /// Resolves relative paths against the directory of the file.
    fn resolve(&mut self, base: &Path) {
        let fix = |path: &mut PathBuf| *path = base.join(&*path);
        if let Some(StoreKind::Redb(path)) = &mut self.store {
            fix(path);
        }
        self.tls.roots.iter_mut().chain(&mut self.cdr).for_each(fix);
        for certificate in self.tls.default.iter_mut().chain(&mut self.tls.domains) {
            fix(&mut certificate.certificate);
            fix(&mut certificate.key);
        }
    }
}

#[cfg(test)]
mod tests;
