//! A call as operators see it: in `ringway calls`, and in the record that is left of it.

use crate::calendar::timestamp;
use ringway_proxy::{CallEvent, CallInfo, CallStep};
use ringway_sansio::{Time, Transport};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;

/// A call under way, as `ringway calls --json` prints it. Keys are added, not changed.
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
    /// Request-URI as it came.
    pub target: String,
    /// Who proved by digest to be the caller, as `user@realm`.
    pub user: Option<String>,
    /// Where the INVITE came from: `udp:192.0.2.1:5060`.
    pub source: String,
    /// Where it was answered or last tried.
    pub destination: Option<String>,
    /// The next hop of a routing rule.
    pub gateway: Option<String>,
    /// When the INVITE came.
    pub began: String,
    /// Seconds since the INVITE came.
    pub age_seconds: f64,
    /// Seconds since it was answered.
    pub answered_seconds: Option<f64>,
}

/// What is left of a call, one JSON object a line. Keys are added, not changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CallRecord {
    /// `answered`, `cancelled`, `failed`, or `unknown` where the end was not seen.
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
    /// Request-URI as it came.
    pub target: String,
    /// Who proved by digest to be the caller, as `user@realm`.
    pub user: Option<String>,
    /// Where the INVITE came from: `udp:192.0.2.1:5060`.
    pub source: String,
    /// Where it was answered or last tried.
    pub destination: Option<String>,
    /// The next hop of a routing rule.
    pub gateway: Option<String>,
    /// When the INVITE came (RFC 3339, UTC).
    pub began: String,
    /// When it was answered.
    pub answered: Option<String>,
    /// When it ended.
    pub ended: Option<String>,
    /// `caller` or `callee`: who hung up.
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
    /// The first 2xx: when, and its status.
    pub(super) answered: Option<(Time, u16)>,
    /// Tags of callees that have answered and not hung up (a forked INVITE may be answered twice).
    pub(super) to_tags: Vec<Box<str>>,
    /// Whether its steps are logged.
    pub(super) logged: bool,
}

/// How a call came to its end.
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
    /// Nobody saw it end.
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
            // RFC 3261 section 15.1.2: 487 is what a CANCEL makes of an INVITE.
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

/// Transport and address in one word, as `udp:192.0.2.1:5060`.
pub(crate) fn flow((transport, addr): (Transport, SocketAddr)) -> String {
    format!("{}:{addr}", transport.uri())
}

/// Seconds between two moments, to the millisecond; 0 where they are the other way round.
fn seconds(from: Time, to: Time) -> f64 {
    to.since(from).as_millis() as f64 / 1000.0
}
