//! The configuration file: what it may say, and what is said when it is wrong.
//!
//! [`Settings`] is the file as data, with every default filled in that does not depend on the host.
//! [`Settings::parse`] reports everything that is wrong, each with file, line and column. What is
//! left for the moment of starting (the host's name, its addresses, the state directory) is decided
//! in [`crate::serve`]. `docs/configuration.md` describes each key.

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

/// The largest configuration file that is read.
pub const MAX_FILE: u64 = 1 << 20;
/// Most workers; the owner of a flow is named by 8 bits.
pub const MAX_WORKERS: u8 = 64;
/// Most listen URIs.
pub const MAX_LISTEN: usize = 64;
/// Most domains, and most names a domain may have.
pub const MAX_DOMAINS: usize = 1000;
/// Most trusted networks.
pub const MAX_TRUSTED: usize = 1000;
/// Most origins of web pages.
pub const MAX_ORIGINS: usize = 1000;
/// Most routing rules; they are tried one after the other.
pub const MAX_ROUTES: usize = 1000;

/// A configuration file as data.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether the file has no key at all.
    pub is_empty: bool,
    /// Where to listen; empty for the defaults.
    pub listen: Vec<Listen>,
    /// Names of the one main domain, the first of which is used in addresses-of-record; empty for
    /// the host's name and addresses.
    pub names: Vec<Host>,
    /// How requests for the main domain are treated.
    pub mode: Mode,
    /// Further domains with users of their own.
    pub domains: Vec<DomainSettings>,
    /// Where users and registrations are kept; `None` for the state directory.
    pub store: Option<StoreKind>,
    /// Worker threads; `None` for one a core.
    pub workers: Option<u8>,
    /// Where management is served.
    pub http: HttpAddr,
    /// Peers that need not authenticate.
    pub trusted: Vec<Network>,
    /// Whether to stay in the path of dialogs.
    pub record_route: bool,
    /// Digest.
    pub auth: AuthSettings,
    /// Certificates.
    pub tls: TlsSettings,
    /// Logs.
    pub log: LogSettings,
    /// Where records of calls are appended, if anywhere.
    pub cdr: Option<PathBuf>,
    /// Rates and sizes.
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
        // An empty file has nothing that could be wrong.
        Settings::parse("", "").unwrap_or_else(|_| unreachable!("the defaults are valid"))
    }
}

impl Settings {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the file.
    pub fn load(path: &Path) -> Result<Self, Vec<Problem>> {
        let file = path.display().to_string();
        let whole = |what: String| vec![Problem::whole(&file, what)];
        let metadata = std::fs::metadata(path).map_err(|e| whole(e.to_string()))?;
        if metadata.is_dir() {
            return Err(whole("is a directory".to_owned()));
        }
        if metadata.len() > MAX_FILE {
            let what = format!("expected at most {MAX_FILE} bytes, got {}", metadata.len());
            return Err(whole(what));
        }
        let bytes = std::fs::read(path).map_err(|e| whole(e.to_string()))?;
        let text = String::from_utf8(bytes)
            .map_err(|e| whole(format!("not UTF-8 at byte {}", e.utf8_error().valid_up_to())))?;
        let mut settings = Settings::parse(&file, &text)?;
        if let Some(base) = path.parent() {
            settings.resolve(base);
        }
        Ok(settings)
    }

    /// Checks the text of a file, which `file` names in what is reported.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the file.
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

    /// Relative paths in a file are relative to the file.
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
