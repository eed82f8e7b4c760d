//! The configuration file: its keys, and the report of everything that is wrong in it.
//!
//! [`Settings`] is the file as data, with every default filled in that does not depend on the host.
//! [`Settings::parse`] reports all problems, each with file, line and column. Values that depend on
//! the host (its name, its addresses, the state directory) are determined at start by
//! [`crate::setup`]. `docs/configuration.md` describes each key.

mod check;
mod database;
mod reach;
mod read;
mod sections;
mod settings;
mod shape;
mod span;
mod users;

pub use database::{Credentials, DatabaseUri};
pub use ringway_document::{MAX_PROBLEMS, Problem};
pub use sections::{
    AuthMode, AuthSettings, Certificate, DomainSettings, HashName, LimitSettings, LogFormat,
    LogLevel, LogSettings, MAX_DOMAINS, MAX_LISTEN, MAX_ORIGINS, MAX_ROUTES, MAX_STREAMS,
    MAX_TRUSTED, MAX_WORKERS, MediaSettings, PhonebookSettings, RegistrarSettings, RelayMode,
    SctpProfile, SctpSettings, TimerSettings, TlsSettings, WebSocketSettings,
};
pub use settings::Settings;
pub use shape::{
    Host, HttpAddr, Listen, NO_DATABASE, Network, PhonebookAddr, PortRange, StoreKind,
};
pub use users::{NO_USERS_IN_STORE, PostgresUri, TableName, UserSettings, UserSource};

use check::Check;
use ringway_document::{Document, Problems};
use std::path::{Path, PathBuf};

/// Maximum size of a configuration file, in bytes.
pub const MAX_FILE: u64 = 1 << 20;

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

    /// Returns whether media is relayed.
    pub fn relays_media(&self) -> bool {
        match self.media.relay {
            RelayMode::Auto => self.mesh.is_some(),
            RelayMode::On => true,
            RelayMode::Off => false,
        }
    }

    /// Resolves relative paths against the directory of the file.
    fn resolve(&mut self, base: &Path) {
        let fix = |path: &mut PathBuf| *path = base.join(&*path);
        if let Some(StoreKind::Redb(path)) = &mut self.store {
            fix(path);
        }
        self.tls.roots.iter_mut().chain(&mut self.cdr).for_each(fix);
        self.cluster.file.iter_mut().chain(&mut self.cluster.roots).for_each(fix);
        self.users.roots.iter_mut().for_each(fix);
        if let Some(mesh) = &mut self.mesh {
            mesh.network_key.iter_mut().chain(&mut mesh.state).for_each(fix);
        }
        for certificate in self.tls.default.iter_mut().chain(&mut self.tls.domains) {
            fix(&mut certificate.certificate);
            fix(&mut certificate.key);
        }
    }
}

#[cfg(test)]
mod tests;
