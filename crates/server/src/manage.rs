//! The management commands: users, short numbers, status, registrations, calls, backups. [`import`] adds the users of
//! other servers.
//!
//! A store belongs to one process. If a server runs on it, a command sends its requests to that
//! server; otherwise it opens the file. Which of the two applies is found by trying to connect.

pub mod import;

use crate::calls::Call;
use crate::config::{Host, Settings, StoreKind};
use crate::numbers::orders::{NumbersView, Order};
use crate::observe::http::{
    ListedUser, Made, NewUser, Page, PageRequest, Pruned, Registration, UserName, listed,
};
use crate::observe::{Control, Status};
use crate::random;
use crate::setup::{self, Sources};
use crate::store::{
    BackupSummary, HashedUser, Hashes, OfflineStore, StoreError, UserStore, check_name,
    check_password, copy_backup,
};
use crate::users::client::UsersClient;
use crate::users::shared::{Change, Expected, PRUNE_COMMAND_LIMIT};
use crate::users::source::{self, Source};
use ringway_sip::digest::Algorithm;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Result of adding a user or changing a password.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UserChange {
    /// Name.
    pub user: String,
    /// Domain it belongs to.
    pub realm: String,
    /// The password, if it was generated and must be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The short number, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<Box<str>>,
    /// Whether there is none yet, and there will be one.
    #[serde(skip)]
    pub awaits_number: bool,
}

/// Manages the users of a running server or of a store file.
pub struct UserManager {
    backend: Backend,
    /// Domains of this server, the main one first.
    realms: Vec<String>,
    /// Other names of domains, and the domains.
    aliases: BTreeMap<String, String>,
    /// Algorithms of the challenges, in their order.
    algorithms: Vec<Algorithm>,
    created: Option<PathBuf>,
}

enum Backend {
    Server(Control),
    File(OfflineStore),
    /// A database that servers share; none runs here.
    Shared(UsersClient),
    /// The store does not exist.
    Missing,
}

const MISSING: &str = "the store does not exist";

/// Action if the store does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissingStore {
    /// Create it.
    Create,
    /// Fail: a command that changes, removes or lists users was given a mistyped name.
    Refuse,
    /// Show what there would be. An existing store is not changed either.
    Ignore,
}

fn unopened(e: &StoreError) -> String {
    match e {
        StoreError::Locked(_) => format!("{e}, which has no control socket here"),
        e => e.to_string(),
    }
}

/// Returns the other names of domains, and the domains.
fn aliases<'d>(domains: impl Iterator<Item = (&'d str, &'d [String])>) -> BTreeMap<String, String> {
    let pairs = domains.flat_map(|(name, others)| others.iter().map(move |other| (other, name)));
    pairs.map(|(other, name)| (other.to_ascii_lowercase(), name.to_owned())).collect()
}

impl UserManager {
    /// Connects to the running server that `sources` describe; if none runs, opens the store.
    ///
    /// # Errors
    /// One line for each problem.
    pub fn open(sources: &Sources, missing: MissingStore) -> Result<Self, Vec<String>> {
        let one = |e: &dyn std::fmt::Display| vec![e.to_string()];
        let settings = sources.read()?;
        let kind = setup::store(&settings).map_err(|e| one(&e))?;
        let configured: Vec<Algorithm> =
            settings.auth.algorithms.iter().map(|name| setup::algorithm(*name)).collect();
        if let Some((control, status)) = running_server(&kind).map_err(|e| one(&e))? {
            let served = status.domains.iter().map(|d| (&*d.name, &*d.aliases));
            let aliases = aliases(served);
            let named =
                status.algorithms.iter().filter_map(|a| Algorithm::from_token(a.as_bytes()));
            let algorithms = Some(named.collect()).filter(|a: &Vec<_>| !a.is_empty());
            return Ok(UserManager {
                backend: Backend::Server(control),
                realms: status.domains.into_iter().map(|d| d.name).collect(),
                aliases,
                algorithms: algorithms.unwrap_or(configured),
                created: None,
            });
        }
        if let Some(source) = Source::of(&settings).map_err(|e| one(&e))? {
            return Self::of_database(&settings, &kind, source, configured);
        }
        let StoreKind::Redb(path) = &kind else {
            return Err(vec![
                "no server is running, and a store in memory ends with it".to_owned(),
            ]);
        };
        if missing == MissingStore::Refuse && !path.exists() {
            return Err(vec![format!("store {}: does not exist", path.display())]);
        }
        let created = missing == MissingStore::Create && !path.exists();
        let opened = match missing {
            MissingStore::Create => OfflineStore::open_or_create(path).map(Some),
            MissingStore::Ignore if !path.exists() => Ok(None),
            MissingStore::Refuse | MissingStore::Ignore => OfflineStore::open(path).map(Some),
        };
        let store = opened.map_err(|e| vec![unopened(&e)])?;
        let mut stored = None;
        if let Some(store) = &store {
            stored = store.domain().map_err(|e| one(&e))?;
            let default = setup::default_domain(&settings);
            if let (None, Some(Host(name))) = (&stored, default)
                && missing != MissingStore::Ignore
            {
                store.set_domain(&name).map_err(|e| one(&e))?;
                stored = Some(name);
            }
        }
        let domains: Vec<(String, Vec<String>)> = setup::domains(&settings, stored.as_deref())
            .iter()
            .map(|d| (d.name.to_string(), d.aliases.iter().map(ToString::to_string).collect()))
            .collect();
        Ok(UserManager {
            backend: store.map_or(Backend::Missing, Backend::File),
            aliases: aliases(domains.iter().map(|(name, others)| (&**name, &**others))),
            realms: domains.into_iter().map(|(name, _)| name).collect(),
            algorithms: configured,
            created: created.then(|| path.clone()),
        })
    }

    /// Manages the users of a database while no server runs.
    fn of_database(
        settings: &Settings,
        kind: &StoreKind,
        source: Source,
        algorithms: Vec<Algorithm>,
    ) -> Result<Self, Vec<String>> {
        // The server that ran here has the domain of its store, also when the host was renamed.
        let stored = match (setup::default_domain(settings), kind) {
            (Some(_), StoreKind::Redb(path)) if path.exists() => {
                let domain = OfflineStore::open(path).and_then(|store| store.domain());
                domain.map_err(|e| vec![unopened(&e)])?
            }
            _ => None,
        };
        let domains = setup::domains(settings, stored.as_deref());
        let named = domains.iter().map(|d| {
            (d.name.to_string(), d.aliases.iter().map(ToString::to_string).collect::<Vec<_>>())
        });
        let named: Vec<(String, Vec<String>)> = named.collect();
        Ok(UserManager {
            backend: Backend::Shared(UsersClient::new(source, source::domains(&domains))),
            aliases: aliases(named.iter().map(|(name, others)| (&**name, &**others))),
            realms: named.into_iter().map(|(name, _)| name).collect(),
            algorithms,
            created: None,
        })
    }

    /// Returns the path of the store if this command created it.
    pub fn created(&self) -> Option<&Path> {
        self.created.as_deref()
    }

    /// Splits `name` or `name@domain`; without a domain the main one is used.
    fn name(&self, text: &str) -> Result<(String, String), String> {
        let (user, realm) = match text.rsplit_once('@') {
            Some((user, realm)) => (user, realm.to_ascii_lowercase()),
            None => (text, self.realms.first().cloned().unwrap_or_default()),
        };
        check_name(user).map_err(|e| e.to_string())?;
        if !self.realms.contains(&realm) {
            let realms = self.realms.join(", ");
            return Err(format!("{realm:?} is not a domain of this server, which has {realms}"));
        }
        Ok((user.to_owned(), realm))
    }

    /// Adds a user if `new` is set, or changes the password of an existing one. Without a password
    /// one is generated and returned.
    ///
    /// # Errors
    /// Describes the problem in one line.
    pub fn set(
        &self,
        name: &str,
        password: Option<String>,
        new: bool,
    ) -> Result<UserChange, String> {
        let (user, realm) = self.name(name)?;
        let drawn = match &password {
            Some(_) => None,
            None => Some(random::password().map_err(|e| e.to_string())?),
        };
        let password = password.or_else(|| drawn.clone()).unwrap_or_default();
        check_password(&password).map_err(|e| e.to_string())?;
        let mut made = Made::default();
        match &self.backend {
            Backend::Server(control) => {
                let body = NewUser { user: user.clone(), realm: realm.clone(), password, new };
                let text = request(control, "PUT", &body)?;
                made = parse(&text)?;
            }
            Backend::File(store) => {
                let exists = store.has_user(&user, &realm)?;
                if exists == new {
                    let what = if exists { "exists already" } else { "does not exist" };
                    return Err(format!("user {user}@{realm} {what}"));
                }
                store.set_user(&user, &realm, Hashes::new(&user, &realm, &password))?;
            }
            Backend::Shared(client) => {
                let hashes = Hashes::new(&user, &realm, &password);
                let expected = if new { Expected::New } else { Expected::Existing };
                let (user, realm) = (user.clone(), realm.clone());
                let users = vec![HashedUser { user, realm, hashes }];
                client.change(&Change::Put(users, expected))?.done()?;
            }
            Backend::Missing => return Err(MISSING.to_owned()),
        }
        let Made { number, awaits_number, .. } = made;
        Ok(UserChange { user, realm, password: drawn, number, awaits_number })
    }

    /// Removes a user and its registrations.
    ///
    /// # Errors
    /// Describes the problem in one line.
    pub fn remove(&self, name: &str) -> Result<UserName, String> {
        // A user of a domain that is no longer configured can still be removed.
        let (user, realm) = match name.rsplit_once('@') {
            Some((user, realm)) => (user.to_owned(), realm.to_ascii_lowercase()),
            None => self.name(name)?,
        };
        let name = UserName { user, realm };
        match &self.backend {
            Backend::Server(control) => {
                request(control, "DELETE", &name)?;
            }
            Backend::File(store) => {
                if !store.remove_user(&name.user, &name.realm)? {
                    return Err(format!("user {}@{} does not exist", name.user, name.realm));
                }
            }
            Backend::Shared(client) => {
                let change = Change::Remove(name.user.clone(), name.realm.clone());
                client.change(&change)?.done()?;
            }
            Backend::Missing => return Err(MISSING.to_owned()),
        }
        Ok(name)
    }

    /// Has a running server remove the users that the database does not have any more, however many. Returns their number.
    ///
    /// # Errors
    /// Describes the problem in one line.
    pub fn prune(&self) -> Result<Pruned, String> {
        match &self.backend {
            Backend::Server(control) => {
                let control = &control.with_timeout(PRUNE_COMMAND_LIMIT);
                parse(&response_text(control, control.request("POST", "/users/prune", ""))?)
            }
            Backend::File(_) | Backend::Shared(_) | Backend::Missing => {
                Err("no server is running here".to_owned())
            }
        }
    }

    /// Returns all users, ordered by domain and name.
    ///
    /// # Errors
    /// Describes the problem in one line.
    pub fn list(&self) -> Result<Vec<ListedUser>, String> {
        match &self.backend {
            Backend::Server(control) => {
                parse(&response_text(control, control.request("GET", "/users", ""))?)
            }
            Backend::File(store) => listed(store),
            Backend::Shared(client) => {
                let listed = |(user, realm)| ListedUser { user, realm, number: None };
                Ok(client.list()?.into_iter().map(listed).collect())
            }
            Backend::Missing => Ok(Vec::new()),
        }
    }
}

/// Requests all items under `path` from the running server and passes each page to `each`.
///
/// # Errors
/// Fails when no server runs, it does not answer, or `each` fails.
fn pages<T: serde::de::DeserializeOwned>(
    sources: &Sources,
    path: &str,
    user: Option<String>,
    each: &mut dyn FnMut(Vec<T>) -> Result<(), Vec<String>>,
) -> Result<(), Vec<String>> {
    let one = |e: &dyn std::fmt::Display| vec![e.to_string()];
    let settings = sources.read()?;
    let kind = setup::store(&settings).map_err(|e| one(&e))?;
    let control = Control::of(&kind).map_err(|e| one(&e))?;
    let mut request = PageRequest { user, after: None };
    loop {
        let body = serde_json::to_string(&request).map_err(|e| one(&e))?;
        let result = control.request("GET", path, &body);
        if matches!(result, Ok(None)) {
            return Err(vec![format!("no server is running on store {kind}")]);
        }
        let text = response_text(&control, result).map_err(|e| one(&e))?;
        let page: Page<T> =
            serde_json::from_str(&text).map_err(|e| one(&format!("unexpected answer: {e}")))?;
        each(page.items)?;
        if page.next.is_none() {
            return Ok(());
        }
        request.after = page.next;
    }
}

/// Passes the registrations of a running server, all or of one user, to `each`, one page at a time.
///
/// # Errors
/// Fails when no server runs, it does not answer, or `each` fails.
pub fn registrations(
    sources: &Sources,
    user: Option<String>,
    each: &mut dyn FnMut(Vec<Registration>) -> Result<(), Vec<String>>,
) -> Result<(), Vec<String>> {
    pages(sources, "/registrations", user, each)
}

/// Passes the calls in progress of a running server to `each`, one page at a time.
///
/// # Errors
/// Fails when no server runs, it does not answer, or `each` fails.
pub fn calls(
    sources: &Sources,
    each: &mut dyn FnMut(Vec<Call>) -> Result<(), Vec<String>>,
) -> Result<(), Vec<String>> {
    pages(sources, "/calls", None, each)
}

/// Contents of a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BackupReport {
    /// The file.
    pub file: PathBuf,
    /// Users.
    pub users: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// Octets.
    pub bytes: u64,
}

impl BackupReport {
    fn new(file: &Path, summary: BackupSummary) -> Self {
        let BackupSummary { users, rows, bytes, .. } = summary;
        BackupReport { file: file.to_owned(), users, rows, bytes }
    }
}

/// Writes a backup of the store that `sources` describe; a running server writes it itself. The
/// file appears complete or not at all. Only its owner can read it, because it contains password
/// hashes.
///
/// # Errors
/// One line for each problem.
pub fn back_up(sources: &Sources, file: &Path, force: bool) -> Result<BackupReport, Vec<String>> {
    let at = |e: &dyn std::fmt::Display| vec![format!("{}: {e}", file.display())];
    if file.exists() && !force {
        return Err(at(&"exists already; --force replaces it"));
    }
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = file.with_file_name(name);
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let mut out = BufWriter::new(options.map_err(|e| at(&e))?);
    let result = write_backup(sources, &mut out).and_then(|summary| {
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(|e| at(&e))?;
        std::fs::rename(&part, file).map_err(|e| at(&e))?;
        Ok(BackupReport::new(file, summary))
    });
    if result.is_err() {
        // The file may have been removed already.
        let _ = std::fs::remove_file(&part);
    }
    result
}

fn write_backup(sources: &Sources, out: &mut dyn Write) -> Result<BackupSummary, Vec<String>> {
    let one = |e: &dyn std::fmt::Display| vec![e.to_string()];
    let settings = sources.read()?;
    let kind = setup::store(&settings).map_err(|e| one(&e))?;
    let control = Control::of(&kind).map_err(|e| one(&e))?;
    let opened = control.open("GET", "/backup", "");
    match opened.map_err(|e| one(&format!("control socket {}: {e}", control.path().display())))? {
        Some((200, mut body)) => copy_backup(&mut body, out).map_err(|e| one(&e)),
        Some((status, mut body)) => {
            let mut text = String::new();
            // The status code alone describes the failure if the body cannot be read.
            let _ = body.read_to_string(&mut text);
            let response_text = response_text(&control, Ok(Some((status, text))));
            Err(response_text.err().into_iter().collect())
        }
        None => match &kind {
            StoreKind::Memory | StoreKind::Redis(_) => Err(one(&"a store in memory has no backup")),
            StoreKind::Redb(path) => {
                let store = OfflineStore::open(path).map_err(|e| one(&e))?;
                store.back_up(out).map_err(|e| one(&e))
            }
        },
    }
}

/// Creates the store that `sources` describe from a backup.
///
/// # Errors
/// Fails when a server runs on it, when it exists and `force` is not set, or when the backup is
/// damaged.
pub fn restore(sources: &Sources, file: &Path, force: bool) -> Result<BackupReport, Vec<String>> {
    let one = |e: &dyn std::fmt::Display| vec![e.to_string()];
    let settings = sources.read()?;
    let kind = setup::store(&settings).map_err(|e| one(&e))?;
    let StoreKind::Redb(path) = &kind else {
        return Err(one(&"a store in memory cannot be restored"));
    };
    if running_server(&kind).map_err(|e| one(&e))?.is_some() {
        return Err(vec![format!("store {}: a server is running on it", path.display())]);
    }
    if path.exists() && !force {
        return Err(vec![format!("store {}: exists already; --force replaces it", path.display())]);
    }
    let open = File::open(file).map_err(|e| vec![format!("{}: {e}", file.display())])?;
    let summary = crate::store::restore(&mut BufReader::new(open), path, force);
    Ok(BackupReport::new(path, summary.map_err(|e| one(&e))?))
}

/// Returns the status of the server that `sources` describe.
///
/// # Errors
/// One line for each problem.
pub fn status(sources: &Sources) -> Result<Status, Vec<String>> {
    needed_server(sources).map(|(_, status)| status)
}

/// Returns the server that runs on the store, and its status.
fn needed_server(sources: &Sources) -> Result<(Control, Status), Vec<String>> {
    let settings = sources.read()?;
    let kind = setup::store(&settings).map_err(|e| vec![e.to_string()])?;
    let running = running_server(&kind).map_err(|e| vec![e])?;
    running.ok_or_else(|| vec![format!("no server is running on store {kind}")])
}

/// Returns the server that runs on a store and its status; `None` if none can be reached.
fn running_server(kind: &StoreKind) -> Result<Option<(Control, Status)>, String> {
    let control = Control::of(kind).map_err(|e| e.to_string())?;
    let result = control.request("GET", "/status", "");
    if matches!(result, Ok(None)) {
        return Ok(None);
    }
    let text = response_text(&control, result)?;
    let status = serde_json::from_str(&text).map_err(|e| format!("unexpected answer: {e}"))?;
    Ok(Some((control, status)))
}

/// Has a running server do something with its short numbers. Returns what there is afterwards.
///
/// # Errors
/// One line for each problem.
pub fn numbers(sources: &Sources, order: &Order) -> Result<NumbersView, Vec<String>> {
    let one = |e: String| vec![e];
    let (control, _) = needed_server(sources)?;
    let body = serde_json::to_string(order).map_err(|e| one(e.to_string()))?;
    let text = response_text(&control, control.request("POST", "/numbers", &body)).map_err(one)?;
    parse(&text).map_err(one)
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| format!("unexpected answer: {e}"))
}

fn request(control: &Control, method: &str, body: &impl Serialize) -> Result<String, String> {
    let body = serde_json::to_string(body).map_err(|e| e.to_string())?;
    response_text(control, control.request(method, "/users", &body))
}

fn response_text(
    control: &Control,
    result: io::Result<Option<(u16, String)>>,
) -> Result<String, String> {
    match result {
        Ok(Some((200, text))) => Ok(text),
        Ok(Some((status, text))) => {
            let what = serde_json::from_str::<serde_json::Value>(&text)
                .ok()
                .and_then(|v| Some(v.get("error")?.as_str()?.to_owned()))
                .unwrap_or(text);
            Err(if what.is_empty() { format!("the server answered {status}") } else { what })
        }
        Ok(None) => Err("the server has ended".to_owned()),
        Err(e) => Err(format!("control socket {}: {e}", control.path().display())),
    }
}
