//! The commands that are not the server: users, status, what is going on, backups.
//!
//! A store belongs to one process. While a server runs on it, users are changed by asking that
//! server; otherwise the file is opened. Which of the two it is, is found out by trying.

use crate::calls::Call;
use crate::config::{Host, StoreKind};
use crate::observe::http::{NewUser, Page, PageRequest, Registration, UserName};
use crate::observe::{Control, Status};
use crate::random;
use crate::setup::{self, Sources};
use crate::store::{
    BackupSummary, Hashes, RestingStore, StoreError, UserStore, check_name, check_password,
    copy_backup,
};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What came of making a user or changing a password.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Made {
    /// Name.
    pub user: String,
    /// Domain it belongs to.
    pub realm: String,
    /// The password, if it was drawn and is to be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// Users, wherever they are.
pub struct Users {
    place: Place,
    /// Domains of this server, the main one first.
    realms: Vec<String>,
    made: Option<PathBuf>,
}

enum Place {
    Running(Control),
    Resting(RestingStore),
}

/// What is done with a store that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// It is made.
    Make,
    /// It is an error: whoever changes, removes or lists users has mistyped its name.
    Refuse,
}

impl Users {
    /// Finds the users of the server that these sources describe: the running one if there is one,
    /// the store otherwise.
    ///
    /// # Errors
    /// One line for each thing that is wrong.
    pub fn open(sources: &Sources, missing: Missing) -> Result<Self, Vec<String>> {
        let one = |e: &dyn std::fmt::Display| vec![e.to_string()];
        let settings = sources.read()?;
        let kind = setup::store(&settings).map_err(|e| one(&e))?;
        if let Some((control, status)) = running(&kind).map_err(|e| one(&e))? {
            let realms = status.domains.into_iter().map(|d| d.name).collect();
            return Ok(Users { place: Place::Running(control), realms, made: None });
        }
        let StoreKind::Redb(path) = &kind else {
            return Err(vec![
                "no server is running, and a store in memory ends with it".to_owned(),
            ]);
        };
        if missing == Missing::Refuse && !path.exists() {
            return Err(vec![format!("store {}: does not exist", path.display())]);
        }
        let made = !path.exists();
        let opened = match missing {
            Missing::Make => RestingStore::open_or_make(path),
            Missing::Refuse => RestingStore::open(path),
        };
        let store = opened.map_err(|e| match e {
            StoreError::Locked(_) => one(&format!("{e}, which has no control socket here")),
            e => one(&e),
        })?;
        let mut kept = store.domain().map_err(|e| one(&e))?;
        if let (None, Some(Host(name))) = (&kept, setup::default_domain(&settings)) {
            store.set_domain(&name).map_err(|e| one(&e))?;
            kept = Some(name);
        }
        let domains = setup::domains(&settings, kept.as_deref());
        let realms = domains.iter().map(|d| d.name.to_string()).collect();
        let made = made.then(|| path.clone());
        Ok(Users { place: Place::Resting(store), realms, made })
    }

    /// The store, if it was made now.
    pub fn made(&self) -> Option<&Path> {
        self.made.as_deref()
    }

    /// Splits `name` or `name@domain`; without a domain the main one is meant.
    fn name(&self, text: &str) -> Result<(String, String), String> {
        let (user, realm) = match text.rsplit_once('@') {
            Some((user, realm)) => (user, realm.to_ascii_lowercase()),
            None => (text, self.realms.first().cloned().unwrap_or_default()),
        };
        check_name(user).map_err(|e| e.to_string())?;
        if !self.realms.contains(&realm) {
            let ours = self.realms.join(", ");
            return Err(format!("{realm:?} is not a domain of this server, which has {ours}"));
        }
        Ok((user.to_owned(), realm))
    }

    /// Makes a user (`new`), or gives one a new password. Without a password one is drawn, and told.
    ///
    /// # Errors
    /// What is wrong.
    pub fn set(&self, name: &str, password: Option<String>, new: bool) -> Result<Made, String> {
        let (user, realm) = self.name(name)?;
        let drawn = match &password {
            Some(_) => None,
            None => Some(random::password().map_err(|e| e.to_string())?),
        };
        let password = password.or_else(|| drawn.clone()).unwrap_or_default();
        check_password(&password).map_err(|e| e.to_string())?;
        match &self.place {
            Place::Running(control) => {
                let body = NewUser { user: user.clone(), realm: realm.clone(), password, new };
                ask(control, "PUT", &body)?;
            }
            Place::Resting(store) => {
                let exists = store.has_user(&user, &realm)?;
                if exists == new {
                    let what = if exists { "exists already" } else { "does not exist" };
                    return Err(format!("user {user}@{realm} {what}"));
                }
                store.set_user(&user, &realm, Hashes::new(&user, &realm, &password))?;
            }
        }
        Ok(Made { user, realm, password: drawn })
    }

    /// Removes a user and what it has registered.
    ///
    /// # Errors
    /// What is wrong.
    pub fn remove(&self, name: &str) -> Result<UserName, String> {
        // A user of a domain that is gone from the configuration can still be removed.
        let (user, realm) = match name.rsplit_once('@') {
            Some((user, realm)) => (user.to_owned(), realm.to_ascii_lowercase()),
            None => self.name(name)?,
        };
        let name = UserName { user, realm };
        match &self.place {
            Place::Running(control) => {
                ask(control, "DELETE", &name)?;
            }
            Place::Resting(store) => {
                if !store.remove_user(&name.user, &name.realm)? {
                    return Err(format!("user {}@{} does not exist", name.user, name.realm));
                }
            }
        }
        Ok(name)
    }

    /// Every user, in order of domain and name.
    ///
    /// # Errors
    /// What is wrong.
    pub fn list(&self) -> Result<Vec<UserName>, String> {
        match &self.place {
            Place::Running(control) => {
                let text = answer(control, control.ask("GET", "/users", ""))?;
                serde_json::from_str(&text).map_err(|e| format!("unexpected answer: {e}"))
            }
            Place::Resting(store) => Ok(store
                .list_users()?
                .into_iter()
                .map(|(user, realm)| UserName { user, realm })
                .collect()),
        }
    }
}

/// Asks the running server for everything under `path`, page by page, and hands over each.
///
/// # Errors
/// When no server runs, it does not answer, or `each` fails.
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
        let result = control.ask("GET", path, &body);
        if matches!(result, Ok(None)) {
            return Err(vec![format!("no server is running on store {kind}")]);
        }
        let text = answer(&control, result).map_err(|e| one(&e))?;
        let page: Page<T> =
            serde_json::from_str(&text).map_err(|e| one(&format!("unexpected answer: {e}")))?;
        each(page.items)?;
        if page.next.is_none() {
            return Ok(());
        }
        request.after = page.next;
    }
}

/// The registrations of a running server, all or one user's, a page at a time.
///
/// # Errors
/// When no server runs, it does not answer, or `each` fails.
pub fn registrations(
    sources: &Sources,
    user: Option<String>,
    each: &mut dyn FnMut(Vec<Registration>) -> Result<(), Vec<String>>,
) -> Result<(), Vec<String>> {
    pages(sources, "/registrations", user, each)
}

/// The calls under way of a running server, a page at a time.
///
/// # Errors
/// When no server runs, it does not answer, or `each` fails.
pub fn calls(
    sources: &Sources,
    each: &mut dyn FnMut(Vec<Call>) -> Result<(), Vec<String>>,
) -> Result<(), Vec<String>> {
    pages(sources, "/calls", None, each)
}

/// What a backup holds.
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

/// Writes a backup of the store that these sources describe: by the running server if there is one.
/// The file appears whole or not at all, readable by its owner only: it has the hashes of passwords.
///
/// # Errors
/// One line for each thing that is wrong.
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
        // It may be gone.
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
            // Without it there is still the status.
            let _ = body.read_to_string(&mut text);
            let answer = answer(&control, Ok(Some((status, text))));
            Err(answer.err().into_iter().collect())
        }
        None => match &kind {
            StoreKind::Memory => Err(one(&"a store in memory has no backup")),
            StoreKind::Redb(path) => {
                let store = RestingStore::open(path).map_err(|e| one(&e))?;
                store.back_up(out).map_err(|e| one(&e))
            }
        },
    }
}

/// Makes the store that these sources describe from a backup.
///
/// # Errors
/// When a server runs on it, when it exists and `force` is not set, or the backup is damaged.
pub fn restore(sources: &Sources, file: &Path, force: bool) -> Result<BackupReport, Vec<String>> {
    let one = |e: &dyn std::fmt::Display| vec![e.to_string()];
    let settings = sources.read()?;
    let kind = setup::store(&settings).map_err(|e| one(&e))?;
    let StoreKind::Redb(path) = &kind else {
        return Err(one(&"a store in memory cannot be restored"));
    };
    if running(&kind).map_err(|e| one(&e))?.is_some() {
        return Err(vec![format!("store {}: a server is running on it", path.display())]);
    }
    if path.exists() && !force {
        return Err(vec![format!("store {}: exists already; --force replaces it", path.display())]);
    }
    let open = File::open(file).map_err(|e| vec![format!("{}: {e}", file.display())])?;
    let summary = crate::store::restore(&mut BufReader::new(open), path, force);
    Ok(BackupReport::new(path, summary.map_err(|e| one(&e))?))
}

/// The status of the server that these sources describe.
///
/// # Errors
/// One line for each thing that is wrong.
pub fn status(sources: &Sources) -> Result<Status, Vec<String>> {
    let settings = sources.read()?;
    let kind = setup::store(&settings).map_err(|e| vec![e.to_string()])?;
    match running(&kind).map_err(|e| vec![e])? {
        Some((_, status)) => Ok(status),
        None => Err(vec![format!("no server is running on store {kind}")]),
    }
}

/// The server that runs on a store and how it is; `None` when there is none that can be asked.
fn running(kind: &StoreKind) -> Result<Option<(Control, Status)>, String> {
    let control = Control::of(kind).map_err(|e| e.to_string())?;
    let result = control.ask("GET", "/status", "");
    if matches!(result, Ok(None)) {
        return Ok(None);
    }
    let text = answer(&control, result)?;
    let status = serde_json::from_str(&text).map_err(|e| format!("unexpected answer: {e}"))?;
    Ok(Some((control, status)))
}

fn ask(control: &Control, method: &str, body: &impl Serialize) -> Result<String, String> {
    let body = serde_json::to_string(body).map_err(|e| e.to_string())?;
    answer(control, control.ask(method, "/users", &body))
}

fn answer(control: &Control, result: io::Result<Option<(u16, String)>>) -> Result<String, String> {
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
