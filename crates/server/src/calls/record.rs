//! A call as operators see it: in `ringway calls`, and in the record that is written when it ends.

use crate::calendar::timestamp;
use ringway_proxy::{CallEvent, CallInfo, CallStep};
use ringway_sansio::{Time, Transport};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;

/// A call in progress, as `ringway calls --json` prints it. Keys may be added but are not changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// `ringing` or `answered`.
    pub state: String,
    /// Call-ID.
    pub call_id: String,
    /// URI of From.
    pub caller: String,
    /// URI of To.
    pub callee: String,
    /// Request-URI as received.
    pub target: String,
    /// User that authenticated as the caller by digest, as `user@realm`.
    pub user: Option<String>,
    /// Address the INVITE was received from: `udp:192.0.2.1:5060`.
    pub source: String,
    /// Address that answered, or the last one tried.
    pub destination: Option<String>,
    /// Next hop of a routing rule, if one was used.
    pub gateway: Option<String>,
    /// Time at which the INVITE was received.
    pub began: String,
    /// Seconds since the INVITE was received.
    pub age_seconds: f64,
    /// Seconds since the call was answered.
    pub answered_seconds: Option<f64>,
}

/// Record of an ended call, one JSON object per line. Keys may be added but are not changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CallRecord {
    /// `answered`, `cancelled`, `failed`, or `unknown` if the end was not seen.
    pub outcome: String,
    /// Status of the final response, if one was seen.
    pub status: Option<u16>,
    /// Call-ID.
    pub call_id: String,
    /// Tag of the caller.
    pub from_tag: String,
    /// Tag of the callee.
    pub to_tag: String,
    /// URI of From.
    pub caller: String,
    /// URI of To.
    pub callee: String,
    /// Request-URI as received.
    pub target: String,
    /// User that authenticated as the caller by digest, as `user@realm`.
    pub user: Option<String>,
    /// Address the INVITE was received from: `udp:192.0.2.1:5060`.
    pub source: String,
    /// Address that answered, or the last one tried.
    pub destination: Option<String>,
    /// Next hop of a routing rule, if one was used.
    pub gateway: Option<String>,
    /// Time at which the INVITE was received (RFC 3339, UTC).
    pub began: String,
    /// Time at which the call was answered.
    pub answered: Option<String>,
    /// Time at which the call ended.
    pub ended: Option<String>,
    /// Party that hung up: `caller` or `callee`.
    pub ended_by: Option<String>,
    /// Seconds from the INVITE to the final response.
    pub setup_seconds: Option<f64>,
    /// Seconds from the answer to the end.
    pub duration_seconds: Option<f64>,
}

/// A call in the table.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) info: Arc<CallInfo>,
    pub(super) destination: Option<(Transport, SocketAddr)>,
    pub(super) gateway: Option<Box<str>>,
    /// Time and status of the first 2xx.
    pub(super) answered: Option<(Time, u16)>,
    /// Tags of callees that answered and have not hung up. A forked INVITE may be answered twice.
    pub(super) to_tags: Vec<Box<str>>,
    /// Whether the steps of this call are logged.
    pub(super) logged: bool,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Failed {
        at: Time,
        status: u16,
    },
    HungUp {
        at: Time,
        by_caller: bool,
    },
    /// The end was not seen.
    Unseen,
}

impl Entry {
    pub(super) fn new(event: &CallEvent) -> Self {
        Entry {
            info: event.call.clone(),
            destination: event.destination,
            gateway: event.gateway.clone(),
            answered: match event.step {
                CallStep::Answered { status } => Some((event.at, status)),
                _ => None,
            },
            to_tags: Vec::new(),
            logged: false,
        }
    }

    pub(super) fn call(&self, now: Time) -> Call {
        let info = &*self.info;
        let since = |then: Time| seconds(then, now);
        Call {
            state: if self.answered.is_some() { "answered" } else { "ringing" }.to_owned(),
            call_id: info.call_id().to_owned(),
            caller: info.caller().to_owned(),
            callee: info.callee().to_owned(),
            target: info.target().to_owned(),
            user: info.user.as_deref().map(str::to_owned),
            source: flow(info.source),
            destination: self.destination.map(flow),
            gateway: self.gateway.as_deref().map(str::to_owned),
            began: timestamp(info.began),
            age_seconds: since(info.began),
            answered_seconds: self.answered.map(|(at, _)| since(at)),
        }
    }

    pub(super) fn record(&self, to_tag: &str, end: End) -> CallRecord {
        let (info, answered) = (&*self.info, self.answered);
        let (outcome, status) = match (end, answered) {
            // RFC 3261 section 15.1.2: a CANCEL makes the INVITE fail with 487.
            (End::Failed { status: 487, .. }, None) => ("cancelled", Some(487)),
            (End::Failed { status, .. }, None) => ("failed", Some(status)),
            (_, Some((_, status))) => ("answered", Some(status)),
            (End::HungUp { .. }, None) => ("answered", None),
            (End::Unseen, None) => ("unknown", None),
        };
        let (ended, by_caller) = match end {
            End::Failed { at, .. } => (Some(at), None),
            End::HungUp { at, by_caller } => (Some(at), Some(by_caller)),
            End::Unseen => (None, None),
        };
        let settled = answered.map(|(at, _)| at).or(match end {
            End::Failed { at, .. } => Some(at),
            _ => None,
        });
        CallRecord {
            outcome: outcome.to_owned(),
            status,
            call_id: info.call_id().to_owned(),
            from_tag: info.from_tag().to_owned(),
            to_tag: to_tag.to_owned(),
            caller: info.caller().to_owned(),
            callee: info.callee().to_owned(),
            target: info.target().to_owned(),
            user: info.user.as_deref().map(str::to_owned),
            source: flow(info.source),
            destination: self.destination.map(flow),
            gateway: self.gateway.as_deref().map(str::to_owned),
            began: timestamp(info.began),
            answered: answered.map(|(at, _)| timestamp(at)),
            ended: ended.map(timestamp),
            ended_by: by_caller.map(|by| if by { "caller" } else { "callee" }.to_owned()),
            setup_seconds: settled.map(|at| seconds(info.began, at)),
            duration_seconds: answered.zip(ended).map(|((from, _), to)| seconds(from, to)),
        }
    }
}

/// Formats transport and address as one word: `udp:192.0.2.1:5060`.
pub(crate) fn flow((transport, addr): (Transport, SocketAddr)) -> String {
    format!("{}:{addr}", transport.uri())
}

/// Returns the seconds from one time to another, rounded to milliseconds; 0 if `to` is earlier.
fn seconds(from: Time, to: Time) -> f64 {
    to.since(from).as_millis() as f64 / 1000.0
}
