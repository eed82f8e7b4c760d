//! Registrations and calls in progress, page by page.

use super::context::{Context, Shared, error};
use crate::calendar::timestamp;
use crate::calls::Call;
use crate::calls::record::flow;
use axum::Json;
use axum::extract::{State, rejection::JsonRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringway_proxy::location::{BindingView, ListCursor, LocationStore};
use ringway_sansio::Time;
use serde::{Deserialize, Serialize};

/// Maximum number of addresses-of-record or calls on one page.
pub const MAX_PAGE: usize = 1000;

/// A request for a page.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageRequest {
    /// Name of one user, as `NAME` or `NAME@DOMAIN`; for registrations only.
    pub user: Option<String>,
    /// The value of `next` on the previous page.
    pub after: Option<String>,
}

/// One contact, as `ringway registrations --json` prints it. Keys may be added but are not changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// The address-of-record without its scheme: `101@example.org`.
    pub user: String,
    /// The Contact URI.
    pub contact: String,
    /// Preference (q value), from 0 to 1.
    pub q: f64,
    /// Time of expiry (RFC 3339, UTC).
    pub expires: String,
    /// Seconds until expiry.
    pub expires_seconds: u64,
    /// Source of the REGISTER, if requests can be sent there: `udp:192.0.2.1:5060`.
    pub flow: Option<String>,
    /// Path header field, if there are proxies on the way (RFC 3327).
    pub path: Option<String>,
    /// Instance (RFC 5626 section 4.1).
    pub instance: Option<String>,
    /// Number of the flow of that instance (RFC 5626 section 4.2).
    pub reg_id: Option<u32>,
    /// Whether the phone's Contact has another address than the REGISTER was received from.
    pub behind_nat: bool,
    /// Whether the phone can be reached over this flow only (RFC 5626).
    pub outbound: bool,
}

impl Registration {
    fn new(aor: &[u8], binding: &BindingView<'_>, now: Time) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| text(bytes));
        let aor = aor.strip_prefix(b"sip:").unwrap_or(aor);
        Registration {
            user: text(aor),
            contact: text(binding.contact),
            q: f64::from(binding.q) / 1000.0,
            expires: timestamp(binding.expires),
            expires_seconds: binding.expires.since(now).as_secs(),
            flow: binding.flow.map(|f| flow((f.transport, f.remote))),
            path: some(binding.path),
            instance: some(binding.instance),
            reg_id: (binding.reg_id != 0).then_some(binding.reg_id),
            behind_nat: binding.nat,
            outbound: binding.outbound,
        }
    }
}

/// A page of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Page<T> {
    /// Items of the page.
    pub items: Vec<T>,
    /// The value of `after` for the next page; `None` on the last page.
    pub next: Option<String>,
}

type PageBody = Result<Json<PageRequest>, JsonRejection>;

pub(super) async fn registrations(State(context): Shared, body: PageBody) -> Response {
    let request = match body {
        Ok(Json(request)) => request,
        Err(e) => return error(StatusCode::BAD_REQUEST, &e.body_text()),
    };
    let now = (context.now)();
    let mut items = Vec::new();
    if let Some(user) = &request.user {
        for aor in addresses(&context, user) {
            context.monitor.store.location().lookup(aor.as_bytes(), now, &mut |binding| {
                items.push(Registration::new(aor.as_bytes(), binding, now));
            });
        }
        return Json(Page { items, next: None }).into_response();
    }
    let after = match request.after.as_deref().map(parse_cursor) {
        None => None,
        Some(Some(cursor)) => Some(cursor),
        Some(None) => return error(StatusCode::BAD_REQUEST, "after: expected what a page named"),
    };
    let location = context.monitor.store.location();
    let next = location.list(after.as_ref(), MAX_PAGE, now, &mut |aor, binding| {
        items.push(Registration::new(aor, binding, now));
    });
    Json(Page { items, next: next.as_ref().map(format_cursor) }).into_response()
}

/// Returns the addresses-of-record that a user name may stand for: one per domain, unless it names
/// a domain.
fn addresses(context: &Context, user: &str) -> Vec<String> {
    let user = user.strip_prefix("sip:").unwrap_or(user);
    match user.rsplit_once('@') {
        Some((name, realm)) => vec![format!("sip:{name}@{}", realm.to_ascii_lowercase())],
        None => {
            let facts = context.monitor.facts.load();
            facts.domains.iter().map(|(realm, _)| format!("sip:{user}@{realm}")).collect()
        }
    }
}

/// Formats a cursor: the shard of the table, and the address-of-record in hexadecimal.
fn format_cursor(cursor: &ListCursor) -> String {
    let aor = cursor
        .aor
        .as_deref()
        .map_or(String::new(), |aor| aor.iter().map(|byte| format!("{byte:02x}")).collect());
    format!("{}.{aor}", cursor.shard)
}

fn parse_cursor(text: &str) -> Option<ListCursor> {
    let (shard, aor) = text.split_once('.')?;
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let aor = match aor.len().is_multiple_of(2) {
        true => aor.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?,
        false => return None,
    };
    let aor = (!aor.is_empty()).then(|| aor.into_boxed_slice());
    Some(ListCursor { shard: shard.parse().ok()?, aor })
}

pub(super) async fn calls(State(context): Shared, body: PageBody) -> Response {
    let request = match body {
        Ok(Json(request)) => request,
        Err(e) => return error(StatusCode::BAD_REQUEST, &e.body_text()),
    };
    let after = match request.after.as_deref().map(str::parse) {
        None => None,
        Some(Ok(after)) => Some(after),
        Some(Err(_)) => return error(StatusCode::BAD_REQUEST, "after: expected a number"),
    };
    let (items, next): (Vec<Call>, _) =
        context.monitor.calls.page(after, MAX_PAGE, (context.now)());
    Json(Page { items, next: next.map(|next| next.to_string()) }).into_response()
}
