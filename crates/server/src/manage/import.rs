//! The users of other servers as users of this one: `ringway import`.
//!
//! [`ringway_import`] reads the files. Here is decided which of their users this server can have: those of its domains,
//! with a password, or with a hash that was made for the realm here and for an algorithm of a challenge here.

use super::{Backend, MISSING, MissingStore, UserManager, parse, response_text};
use crate::config::Host;
use crate::observe::http::{ImportRequest, Imported, ImportedUser, UserName};
use crate::setup::Sources;
use crate::store::{HashedUser, Hashes, UserStore, check_name};
use crate::users::shared::{Change, Expected};
use ringway_import::{Found, MAX_BYTES, Position, Refusal, User};
use ringway_sip::digest::{Algorithm, Ha1};
use ringway_users::Secret;
use ringway_users::row::secret_of;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The program whose users are imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Kamailio or OpenSIPS.
    Kamailio,
    /// Asterisk.
    Asterisk,
}

/// What to import, and how.
#[derive(Clone, Debug)]
pub struct Import {
    /// The program that has written the file.
    pub program: Program,
    /// The file.
    pub file: PathBuf,
    /// Domain of users for whom the file has none; the main one by default.
    pub domain: Option<Host>,
    /// Whether users that exist get the new passwords.
    pub replace: bool,
    /// Whether nothing is changed.
    pub dry_run: bool,
}

/// What has become of the users.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ImportReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Users that were added or got a new password.
    pub imported: Vec<ImportedName>,
    /// Users that existed and were not changed.
    pub kept: Vec<UserName>,
    /// Entries of the file that cannot be users.
    pub refused: Vec<RefusedUser>,
    /// The store, if it was created.
    #[serde(skip)]
    pub created: Option<PathBuf>,
    /// Users that are reported to a mesh at the next start only.
    #[serde(skip)]
    pub unstated: usize,
}

/// A user that was imported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ImportedName {
    /// Name.
    pub user: String,
    /// Domain.
    pub realm: String,
    /// Whether it existed.
    pub replaced: bool,
    /// Algorithms of challenges for which there is neither a password nor a hash.
    pub without: Vec<&'static str>,
}

/// An entry that cannot be a user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RefusedUser {
    /// The file.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The name of the user, or of the section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The reason.
    pub reason: String,
}

impl RefusedUser {
    fn new(at: &Position, user: Option<String>, reason: String) -> Self {
        RefusedUser { file: at.file.to_string(), line: at.line, user, reason }
    }

    /// Describes it in one line.
    pub fn text(&self) -> String {
        let RefusedUser { file, line, user, reason } = self;
        match user {
            // A name of the file may have any characters.
            Some(user) => format!("{file}:{line}: user {user:?}: {reason}"),
            None => format!("{file}:{line}: {reason}"),
        }
    }
}

/// Imports users into the running server that `sources` describe, or into its store if none runs.
///
/// # Errors
/// One line for each problem; then nothing was changed.
pub fn import(sources: &Sources, import: &Import) -> Result<ImportReport, Vec<String>> {
    let found = read(import.program, &import.file).map_err(|e| vec![e])?;
    let mut sources = sources.clone();
    if let (Some(domain), None) = (&import.domain, &sources.config) {
        // As by `ringway serve --domain`. A running server has domains of its own.
        sources.overrides.domains = vec![domain.clone()];
    }
    let missing = if import.dry_run { MissingStore::Ignore } else { MissingStore::Create };
    let manager = UserManager::open(&sources, missing)?;
    let plan = manager.plan(found, import).map_err(|e| vec![e])?;
    let mut report = plan.report;
    report.dry_run = import.dry_run;
    report.created = manager.created().map(Path::to_owned);
    if !import.dry_run && !plan.users.is_empty() {
        report.unstated = manager.add(plan.users, import.replace).map_err(|e| vec![e])?;
    }
    Ok(report)
}

fn read(program: Program, file: &Path) -> Result<Found, String> {
    let name = file.display().to_string();
    let failed = |e: io::Error| format!("{name}: {e}");
    // A pipe is welcome: mysqldump .. | ringway import kamailio /dev/stdin.
    let bytes = File::open(file).and_then(contents).map_err(failed)?;
    let found = match program {
        Program::Kamailio => ringway_import::kamailio(&name, &bytes),
        Program::Asterisk => {
            let folder = file.parent().filter(|p| !p.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            ringway_import::asterisk(&name, &bytes, &mut |name| included(folder, name))
        }
    };
    found.map_err(|e| e.to_string())
}

/// Reads a file; of one that is too long, enough to be refused.
fn contents(open: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file that a configuration includes, from the same folder only. The error is `None` if it does not exist.
fn included(folder: &Path, name: &str) -> Result<Vec<u8>, Option<String>> {
    let why = |e: io::Error| (e.kind() != io::ErrorKind::NotFound).then(|| e.to_string());
    if name.contains(['*', '?', '[']) {
        return Err(Some("a pattern is not followed: include the files by their names".to_owned()));
    }
    let path = folder.join(name).canonicalize().map_err(why)?;
    if path.parent() != Some(&folder.canonicalize().map_err(why)?) {
        return Err(Some("only files of the same folder are read".to_owned()));
    }
    if !path.metadata().map_err(why)?.is_file() {
        return Err(Some("expected a regular file".to_owned()));
    }
    File::open(path).and_then(contents).map_err(why)
}

/// Users to be added, and what is reported of all.
struct Plan {
    users: Vec<HashedUser>,
    report: ImportReport,
}

impl UserManager {
    /// Decides what becomes of each user.
    fn plan(&self, found: Found, import: &Import) -> Result<Plan, String> {
        let default = match &import.domain {
            Some(Host(name)) => self.realm(&name.to_ascii_lowercase()).ok_or_else(|| {
                let realms = self.realms.join(", ");
                format!("--domain: {name:?} is not a domain of this server, which has {realms}")
            })?,
            None => self.realms.first().cloned().unwrap_or_default(),
        };
        let existing: BTreeSet<(String, String)> =
            self.list()?.into_iter().map(|user| (user.user, user.realm)).collect();
        let Found { users, refused } = found;
        let mut plan = Plan { users: Vec::new(), report: ImportReport::default() };
        for Refusal { at, name, reason } in refused {
            plan.report.refused.push(RefusedUser::new(&at, name, reason.to_string()));
        }
        let mut seen: BTreeMap<(String, String), Position> = BTreeMap::new();
        for user in users {
            let realm = match self.check(&user, &default) {
                Ok(realm) => realm,
                Err(reason) => {
                    plan.refuse(&user, reason);
                    continue;
                }
            };
            let name = (user.name.clone(), realm);
            if let Some(first) = seen.get(&name) {
                plan.refuse(&user, format!("is listed already at {first}"));
                continue;
            }
            seen.insert(name.clone(), user.at.clone());
            let replaced = existing.contains(&name);
            let (name, realm) = name;
            if replaced && !import.replace {
                plan.report.kept.push(UserName { user: name, realm });
                continue;
            }
            match self.hashes(&user, &realm) {
                Ok((hashes, without)) => {
                    let imported = ImportedName {
                        user: name.clone(),
                        realm: realm.clone(),
                        replaced,
                        without,
                    };
                    plan.report.imported.push(imported);
                    plan.users.push(HashedUser { user: name, realm, hashes });
                }
                Err(reason) => plan.refuse(&user, reason),
            }
        }
        plan.report.refused.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        Ok(plan)
    }

    /// Returns the domain with this name, or with this other name.
    fn realm(&self, name: &str) -> Option<String> {
        let is_main = self.realms.iter().any(|realm| realm == name);
        if is_main { Some(name.to_owned()) } else { self.aliases.get(name).cloned() }
    }

    /// Checks the name and the domain of a user. Returns the domain here.
    fn check(&self, user: &User, default: &str) -> Result<String, String> {
        check_name(&user.name).map_err(|e| e.to_string())?;
        let Some(domain) = &user.domain else { return Ok(default.to_owned()) };
        self.realm(&domain.to_ascii_lowercase()).ok_or_else(|| {
            let realms = self.realms.join(", ");
            format!("{domain:?} is not a domain of this server, which has {realms}")
        })
    }

    /// Returns the hashes of a user, and the algorithms of challenges for which there is none.
    fn hashes(&self, user: &User, realm: &str) -> Result<(Hashes, Vec<&'static str>), String> {
        let known = match secret_of(user, realm)? {
            Secret::Password(password) => {
                return Ok((Hashes::new(&user.name, realm, &password), Vec::new()));
            }
            Secret::Hashes(known) => known,
        };
        let hashes = Hashes::from_known(&known);
        let (with, without): (Vec<Algorithm>, Vec<Algorithm>) =
            self.algorithms.iter().partition(|a| hashes.get(**a).is_some());
        let names = |of: &[Algorithm]| of.iter().map(|a| a.name()).collect::<Vec<_>>();
        if with.is_empty() {
            let known: Vec<Algorithm> = known.iter().map(Ha1::algorithm).collect();
            return Err(format!(
                "has a hash of {} alone, and the challenge is {} ([auth] algorithms): expected a password",
                names(&known).join(" and "),
                names(&without).join(", ")
            ));
        }
        Ok((hashes, names(&without)))
    }

    /// Adds users, all or none. Returns how many of them are reported to a mesh at the next start only.
    fn add(&self, users: Vec<HashedUser>, replace: bool) -> Result<usize, String> {
        match &self.backend {
            Backend::Server(control) => {
                let users = users.iter().map(ImportedUser::new).collect();
                let body = serde_json::to_string(&ImportRequest { replace, users })
                    .map_err(|e| e.to_string())?;
                let text = response_text(control, control.request("POST", "/users", &body))?;
                parse::<Imported>(&text).map(|imported| imported.unstated)
            }
            Backend::File(store) => store.set_users(users, replace),
            Backend::Shared(client) => {
                let expected = if replace { Expected::Any } else { Expected::New };
                client.change(&Change::Put(users, expected))?.done().map(|()| 0)
            }
            Backend::Missing => Err(MISSING.to_owned()),
        }
    }
}

impl Plan {
    fn refuse(&mut self, user: &User, reason: String) {
        self.report.refused.push(RefusedUser::new(&user.at, Some(user.name.clone()), reason));
    }
}

#[cfg(test)]
mod tests;
