//! Users on the control socket: list, add, change the password, remove.

use super::context::{Context, Shared, blocking, error};
use crate::store::{Hashes, UserStore, check_name, check_password};
use axum::Json;
use axum::extract::{State, rejection::JsonRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringway_proxy::location::{CommitTag, LocationStore};
use serde::{Deserialize, Serialize};
use std::time::Duration;

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
    let store = context.monitor.store.clone();
    let now = (context.now)();
    let missing = format!("user {}@{} does not exist", name.user, name.realm);
    let work = move || {
        let removed = store.remove_user(&name.user, &name.realm)?;
        if removed {
            // A removed user may no longer be called. The worker of this tag does not exist: no
            // worker waits for the change to be durable.
            let aor = format!("sip:{}@{}", name.user, name.realm);
            let tag = CommitTag { worker: u8::MAX, id: 0 };
            store.location().update(aor.as_bytes(), now, tag, &mut |edit| edit.commit());
        }
        Ok(removed)
    };
    match blocking(work).await {
        Ok(true) => Json(serde_json::json!({ "removed": true })).into_response(),
        Ok(false) => error(StatusCode::NOT_FOUND, &missing),
        Err(response) => response,
    }
}
