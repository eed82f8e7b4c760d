//! The target set of a request (RFC 3261 section 16.5): targets, and the attempts to reach each.

use ringway_sansio::{Duration, Flow, Hop, Time};
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// One element of the target set.
#[derive(Clone, Debug)]
pub(super) struct RequestTarget {
    /// The Request-URI on this branch.
    pub uri: Vec<u8>,
    /// Value of the Route header field to prepend: the Path of a binding; empty for none.
    pub path: Vec<u8>,
    /// The number of Route elements of the request that are left out, beside those that were ours: those that the path
    /// replaces, or those of a router that is gone.
    pub routes_replaced: usize,
    /// Preference in thousandths.
    pub q: u16,
    /// Attempts to reach it, in reverse order.
    pub attempts: SmallVec<[Attempt; 1]>,
    /// The source of the target.
    pub origin: Origin,
    /// The address-of-record of the user who has registered it here.
    pub owner: Option<Arc<[u8]>>,
    /// The hash of the instance of the phone that has registered it here, and the end of its registration.
    pub phone: Option<(u64, Time)>,
    /// The time without an answer after which targets of the next lower q are tried too. Without it they are tried when
    /// this one has failed.
    pub patience: Option<Duration>,
    /// The address of ours that datagrams are sent from: the one that the phone knows. A phone, or a filter before it,
    /// may accept requests from there only.
    pub local: Option<SocketAddr>,
}

/// The source of a target, which decides where it may lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The request itself: its Request-URI, Route or flow token.
    Request,
    /// A routing rule.
    Rule,
    /// A contact that a user has registered, from this address if it is still known. If the flow is lost, the user is
    /// not available.
    Location(Option<IpAddr>),
    /// Another server at which a user is registered.
    Elsewhere,
    /// A routing rule that another server shares.
    Shared,
}

impl Origin {
    /// Returns whether the target is another server of our domains.
    pub(super) fn is_server(self) -> bool {
        matches!(self, Origin::Elsewhere | Origin::Shared)
    }
}

impl RequestTarget {
    /// Returns the only target of a request that is for no user of ours.
    pub(super) fn remote(
        uri: Vec<u8>,
        origin: Origin,
        attempts: SmallVec<[Attempt; 1]>,
    ) -> RequestTarget {
        RequestTarget {
            uri,
            path: Vec::new(),
            routes_replaced: 0,
            q: 1000,
            attempts,
            origin,
            owner: None,
            phone: None,
            patience: None,
            local: None,
        }
    }

    /// Returns whether it comes from the location service.
    pub(super) fn is_located(&self) -> bool {
        matches!(self.origin, Origin::Location(_) | Origin::Elsewhere)
    }
}

/// Two targets are the same if they lead to the same phone, whichever users have registered it.
impl PartialEq for RequestTarget {
    fn eq(&self, other: &RequestTarget) -> bool {
        let RequestTarget {
            uri,
            path,
            routes_replaced,
            q,
            attempts,
            origin,
            owner: _,
            phone: _,
            patience,
            local,
        } = self;
        (uri, path, routes_replaced, q)
            == (&other.uri, &other.path, &other.routes_replaced, &other.q)
            && (attempts, origin) == (&other.attempts, &other.origin)
            && (patience, local) == (&other.patience, &other.local)
    }
}

/// One attempt to reach a target.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Attempt {
    /// Over the flow of a registration.
    Flow(Flow),
    /// Another binding of the same instance, here or at another server (RFC 5626 section 7).
    Binding(Box<RequestTarget>),
    /// A located server.
    Hop(Hop),
    /// Over UDP, whatever the size: TCP has been refused by the server (RFC 3261 section 18.1.1).
    Datagram(SocketAddr),
    /// By the topmost Route, or else by the Request-URI.
    Uri,
    /// Through this next hop, which is prepended as a Route.
    Via(Box<str>),
}
