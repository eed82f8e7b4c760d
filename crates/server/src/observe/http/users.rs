//! Users on the control socket: list, add, add many by their hashes, change the password, remove.

use super::context::{Context, Shared, blocking, error};
use crate::store::{HashedUser, Hashes, UserStore, check_name, check_password};
use crate::users::shared::{Admission, Change, Changed, Expected, SharedUsers};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{State, rejection::JsonRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringway_sip::digest::{Algorithm, Ha1};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum size of a request with users and their hashes, which has room for [`ringway_import::MAX_USERS`].
pub const MAX_IMPORT: usize = 96 << 20;

/// A user by name and realm.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserName {
    /// Name.
    pub user: String,
    /// Domain of the user.
    pub realm: String,
}

/// A user of a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedUser {
    /// Name.
    pub user: String,
    /// Domain of the user.
    pub realm: String,
    /// Short number, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<String>,
}

/// Result of adding a user or changing a password.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Made {
    /// Whether the user is new.
    pub new: bool,
    /// Short number, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<Box<str>>,
    /// Whether there is none yet, and there will be one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub awaits_number: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Time in which a new user gets a number, if this router has free ones.
const NUMBER_WAIT: Duration = Duration::from_secs(2);

/// A user to be added, or whose password is changed.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// Name.
    pub user: String,
    /// Domain of the user.
    pub realm: String,
    /// Password; hashed at once and not stored.
    pub password: String,
    /// Whether the user must be new (`true`) or must already exist (`false`).
    pub new: bool,
}

/// Users to be added in one transaction.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// Whether users that exist get the new hashes; otherwise none may exist.
    pub replace: bool,
    /// The users.
    pub users: Vec<ImportedUser>,
}

/// A user, and the hashes of its password.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportedUser {
    /// Name.
    pub user: String,
    /// Domain of the user.
    pub realm: String,
    /// Hashes in hexadecimal, by the names of their algorithms.
    pub hashes: BTreeMap<String, String>,
}

/// Result of adding users.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Imported {
    /// Users that are reported to a mesh at the next start only.
    pub unstated: usize,
}

/// Result of removing users that the database does not have any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pruned {
    /// Number of users.
    pub removed: usize,
}

impl ImportedUser {
    /// Describes a user for a request.
    pub(crate) fn new(user: &HashedUser) -> Self {
        let hash = |algorithm| {
            let mut hex = Vec::new();
            user.hashes.get(algorithm)?.write_hex(&mut hex);
            Some((algorithm.name().to_owned(), String::from_utf8_lossy(&hex).into_owned()))
        };
        let hashes = Algorithm::ALL.into_iter().filter_map(hash).collect();
        ImportedUser { user: user.user.clone(), realm: user.realm.clone(), hashes }
    }

    /// Returns the user, unless its name or a hash is invalid.
    fn hashed(self) -> Result<HashedUser, String> {
        check_name(&self.user).map_err(|e| e.to_string())?;
        let hash = |(name, hex): (&String, &String)| {
            Ha1::from_hex(Algorithm::from_token(name.as_bytes())?, hex.as_bytes())
        };
        let known: Option<Vec<Ha1>> = self.hashes.iter().map(hash).collect();
        match known {
            Some(known) if !known.is_empty() => {
                let hashes = Hashes::from_known(&known);
                Ok(HashedUser { user: self.user, realm: self.realm, hashes })
            }
            _ => Err(format!(
                "user {}@{}: expected hashes in hexadecimal, by the names of their algorithms",
                self.user, self.realm
            )),
        }
    }
}

pub(super) async fn list(State(context): Shared) -> Response {
    let store = context.monitor.store.clone();
    match blocking(move || listed(&*store)).await {
        Ok(users) => Json(users).into_response(),
        Err(response) => response,
    }
}

/// Returns all users with their numbers.
pub(crate) fn listed(store: &dyn UserStore) -> Result<Vec<ListedUser>, String> {
    let mut numbers = store.list_numbers()?;
    let users = store.list_users()?.into_iter();
    let listed = users.map(|(user, realm)| {
        let number = numbers.remove(&*format!("{user}@{realm}")).map(String::from);
        ListedUser { user, realm, number }
    });
    Ok(listed.collect())
}

pub(super) async fn put(
    State(context): Shared,
    body: Result<Json<NewUser>, JsonRejection>,
) -> Response {
    let new = match body {
        Ok(Json(new)) => new,
        Err(e) => return error(StatusCode::BAD_REQUEST, &e.body_text()),
    };
    if let Err(e) = check_name(&new.user).and_then(|()| check_password(&new.password)) {
        return error(StatusCode::BAD_REQUEST, &e.to_string());
    }
    if !has_realm(&context, &new.realm) {
        return error(StatusCode::BAD_REQUEST, &format!("{:?} is not a local domain", new.realm));
    }
    let store = context.monitor.store.clone();
    if let Some(shared) = store.shared().cloned() {
        return match admitted(&context) {
            Ok(admission) => put_shared(shared, new, admission).await,
            Err(busy) => error(StatusCode::SERVICE_UNAVAILABLE, &busy),
        };
    }
    let exists = {
        use ringway_proxy::auth::Users;
        store.users().exists(new.user.as_bytes(), new.realm.as_bytes())
    };
    if exists == new.new {
        let what = if exists { "exists already" } else { "does not exist" };
        let status = if exists { StatusCode::CONFLICT } else { StatusCode::NOT_FOUND };
        return error(status, &format!("user {}@{} {what}", new.user, new.realm));
    }
    let work = move || {
        let hashes = Hashes::new(&new.user, &new.realm, &new.password);
        let is_new = store.set_user(&new.user, &new.realm, hashes)?;
        let numbers = store.numbers().filter(|numbers| numbers.is_for(&new.realm));
        let name = format!("{}@{}", new.user, new.realm);
        let number = numbers.and_then(|numbers| numbers.wait_for(&name, NUMBER_WAIT));
        let awaits_number = numbers.is_some() && number.is_none();
        Ok(Made { new: is_new, number, awaits_number })
    };
    match blocking(work).await {
        Ok(made) => Json(made).into_response(),
        Err(response) => response,
    }
}

/// Adds a user to the database that servers share, which alone knows whether it exists, or changes its password.
async fn put_shared(shared: SharedUsers, user: NewUser, admission: Option<Admission>) -> Response {
    let is_new = user.new;
    let work = move || {
        let _admission = admission;
        let NewUser { user, realm, password, new } = user;
        let hashes = Hashes::new(&user, &realm, &password);
        let expected = if new { Expected::New } else { Expected::Existing };
        shared.change(Change::Put(vec![HashedUser { user, realm, hashes }], expected))
    };
    match blocking(work).await {
        Ok(Changed::Done(_)) => Json(Made { new: is_new, ..Made::default() }).into_response(),
        Ok(changed) => {
            let status = match changed {
                Changed::Exists(_) => StatusCode::CONFLICT,
                Changed::Done(_) | Changed::Missing(_) => StatusCode::NOT_FOUND,
            };
            error(status, &changed.done().err().unwrap_or_default())
        }
        Err(response) => response,
    }
}

/// Removes the users that the database does not have any more, however many.
pub(super) async fn prune(State(context): Shared) -> Response {
    let store = context.monitor.store.clone();
    let Some(shared) = store.shared().cloned() else {
        let what = "the users are this server's own, and in no database (users.source)";
        return error(StatusCode::CONFLICT, what);
    };
    let admission = match shared.admit_prune() {
        Ok(admission) => admission,
        Err(busy) => return error(StatusCode::SERVICE_UNAVAILABLE, &busy),
    };
    let work = move || {
        let _admission = admission;
        let before = store.users().len();
        shared.change(Change::Prune)?;
        Ok(before.saturating_sub(store.users().len()))
    };
    match blocking(work).await {
        Ok(removed) => Json(Pruned { removed }).into_response(),
        Err(response) => response,
    }
}

/// Admits a change of users, if they are in a database.
fn admitted(context: &Context) -> Result<Option<Admission>, String> {
    context.monitor.store.shared().map(SharedUsers::admit).transpose()
}

pub(super) async fn import(State(context): Shared, body: Bytes) -> Response {
    let admission = match admitted(&context) {
        Ok(admission) => admission,
        Err(busy) => return error(StatusCode::SERVICE_UNAVAILABLE, &busy),
    };
    let work = move || {
        let _admission = admission;
        let bad = |what: String| error(StatusCode::BAD_REQUEST, &what);
        // An error of the parser may quote a hash.
        let parsed: Result<ImportRequest, _> = serde_json::from_slice(&body);
        let ImportRequest { replace, users } = match parsed {
            Ok(request) => request,
            Err(e) => return Ok(bad(format!("expected users and hashes: line {}", e.line()))),
        };
        let mut hashed = Vec::with_capacity(users.len());
        for user in users {
            if !has_realm(&context, &user.realm) {
                return Ok(bad(format!("{:?} is not a local domain", user.realm)));
            }
            match user.hashed() {
                Ok(user) => hashed.push(user),
                Err(what) => return Ok(bad(what)),
            }
        }
        let store = &context.monitor.store;
        let existing = hashed.iter().find(|user| {
            use ringway_proxy::auth::Users;
            !replace
                && store.shared().is_none()
                && store.users().exists(user.user.as_bytes(), user.realm.as_bytes())
        });
        if let Some(HashedUser { user, realm, .. }) = existing {
            let what = format!("user {user}@{realm} exists already");
            return Ok(error(StatusCode::CONFLICT, &what));
        }
        let unstated = store.set_users(hashed, replace)?;
        Ok(Json(Imported { unstated }).into_response())
    };
    blocking(work).await.unwrap_or_else(|response| response)
}

fn has_realm(context: &Context, realm: &str) -> bool {
    context.monitor.facts.load().domains.iter().any(|(name, _)| name == realm)
}

pub(super) async fn remove(
    State(context): Shared,
    body: Result<Json<UserName>, JsonRejection>,
) -> Response {
    let name = match body {
        Ok(Json(name)) => name,
        Err(e) => return error(StatusCode::BAD_REQUEST, &e.body_text()),
    };
    let admission = match admitted(&context) {
        Ok(admission) => admission,
        Err(busy) => return error(StatusCode::SERVICE_UNAVAILABLE, &busy),
    };
    let store = context.monitor.store.clone();
    let now = (context.now)();
    let missing = format!("user {}@{} does not exist", name.user, name.realm);
    let work = move || {
        let _admission = admission;
        let removed = store.remove_user(&name.user, &name.realm)?;
        if removed {
            store.withdraw(&name.user, &name.realm, now);
        }
        Ok(removed)
    };
    match blocking(work).await {
        Ok(true) => Json(serde_json::json!({ "removed": true })).into_response(),
        Ok(false) => error(StatusCode::NOT_FOUND, &missing),
        Err(response) => response,
    }
}
