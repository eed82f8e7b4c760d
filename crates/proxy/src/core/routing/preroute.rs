//! Route information preprocessing: RFC 3261 section 16.4.

use crate::core::dialogs::{Recognised, TargetMatch, address, split_user};
use crate::core::names::{default_port, user_of};
use crate::core::node::Node;
use crate::core::request::{InDialog, IncomingRequest};
use crate::mark::{Beside, MARK_LEN, Mark};
use crate::outbound::BadToken;
use crate::routes::{RouteTable, Rule};
use ringway_sansio::{Flow, Time, Transport};
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::message::{Got, Malformed};
use ringway_sip::uri::Uri;
use std::net::SocketAddr;
use std::sync::Arc;

/// The target of a request after our own Route elements are removed.
pub(in crate::core) struct RequestRoute<'a> {
    /// The effective Request-URI.
    pub uri_bytes: &'a [u8],
    /// The same, parsed.
    pub uri: Uri<'a>,
    /// Route elements that were ours.
    pub routes_used: usize,
    /// The address in the last of them, if it is one over UDP.
    pub local: Option<SocketAddr>,
    /// The meaning of the `maddr` of the Request-URI.
    pub maddr: Maddr,
    /// Whether the last Route element was the real Request-URI (a strict router before us).
    pub last_route_used: bool,
    /// The first Route element that is not ours.
    pub next: Option<NameAddr<'a>>,
    /// The mark in a Route of ours.
    pub mark: Option<Mark>,
    /// The dialog of the mark, which this proxy has record-routed.
    pub in_dialog: Option<InDialog>,
    /// Whether its target is the one of the mark.
    pub target_match: TargetMatch,
    /// The route to the other party of that dialog, if it has moved to another router of the mesh. It replaces the rest of
    /// the Route.
    pub detour: Option<Arc<[u8]>>,
    /// The reason why a mark of ours is not valid here.
    pub void: Option<&'static str>,
    /// The flow that a token of ours names, if it is not the one the request came on (RFC 5626 section 5.3).
    pub flow: Option<Flow>,
}

impl RequestRoute<'_> {
    /// Returns whether it belongs to a dialog that this proxy has record-routed.
    pub(in crate::core) fn is_in_dialog(&self) -> bool {
        self.in_dialog.is_some()
    }

    /// Returns the URI of the first Route element that is not ours.
    pub(in crate::core) fn next_uri(&self) -> Option<&[u8]> {
        self.next.as_ref().map(|route| route.uri)
    }

    /// Returns whether its next hop is not determined by a Route, a flow, an `maddr` or a dialog.
    pub(in crate::core) fn may_follow_rule(&self) -> bool {
        self.next.is_none()
            && self.flow.is_none()
            && !self.is_in_dialog()
            && !matches!(self.maddr, Maddr::Other)
    }

    /// Returns the rule for a request whose next hop is not determined otherwise.
    pub(in crate::core) fn foreign_rule<'t>(&self, routes: &'t RouteTable) -> Option<&'t Rule> {
        let user = user_of(&self.uri).unwrap_or_default();
        let find = || routes.find(false, self.uri.host, user);
        self.may_follow_rule().then(find).flatten()
    }
}

/// The meaning of an `maddr` in the Request-URI (RFC 3261 sections 16.4 and 16.5).
pub(in crate::core) enum Maddr {
    /// There is none.
    None,
    /// It is this server, and has led the request here; it is removed.
    Ours,
    /// It is another host, or another port or transport of ours: the only target.
    Other,
}

impl<'a> RequestRoute<'a> {
    fn new(uri_bytes: &'a [u8], uri: Uri<'a>, maddr: Maddr) -> RequestRoute<'a> {
        RequestRoute {
            uri_bytes,
            uri,
            maddr,
            routes_used: 0,
            local: None,
            last_route_used: false,
            next: None,
            mark: None,
            in_dialog: None,
            target_match: TargetMatch::No,
            detour: None,
            void: None,
            flow: None,
        }
    }
}

/// Removes our own Route elements, and recognises the dialog that they belong to.
pub(in crate::core) fn preroute<'a>(
    node: &Node,
    now: Time,
    incoming: &IncomingRequest<'a>,
) -> Result<RequestRoute<'a>, Malformed> {
    let msg = incoming.msg;
    let mut uri_bytes = msg.request_uri();
    let mut uri = Uri::parse(uri_bytes)?;
    if msg.first(HeaderId::Route).is_none() {
        return Ok(RequestRoute::new(uri_bytes, uri, maddr(node, &uri, incoming.flow)));
    }
    let mut ours = None;
    // A strict router has put our Record-Route value into the Request-URI and the real one at the end of Route.
    if uri.is_sip()
        && node.is_local(&uri, incoming.flow)
        && uri.is_loose_router()
        && let Some(last) = msg.items(HeaderId::Route).last()
    {
        ours = Some(uri);
        uri_bytes = NameAddr::parse(last)?.uri;
        uri = Uri::parse(uri_bytes)?;
    }
    let mut routed = RequestRoute::new(uri_bytes, uri, maddr(node, &uri, incoming.flow));
    let mut left = usize::MAX;
    if let Some(ours) = ours {
        routed.last_route_used = true;
        left = msg.items(HeaderId::Route).count() - 1;
        routed.read_user(node, now, incoming, &ours)?;
    }
    for item in msg.items(HeaderId::Route).take(left) {
        let route = NameAddr::parse(item)?;
        let target = Uri::parse(route.uri)?;
        if !(target.is_sip() && node.is_local(&target, incoming.flow)) {
            routed.next = Some(route);
            break;
        }
        routed.routes_used += 1;
        routed.read_user(node, now, incoming, &target)?;
    }
    routed.recognise(node, now, incoming);
    Ok(routed)
}

impl RequestRoute<'_> {
    /// Reads our Record-Route: its address, and its user part with the mark of the dialog, after a flow token if the flow matters. A token
    /// counts only beside a mark.
    fn read_user(
        &mut self,
        node: &Node,
        now: Time,
        incoming: &IncomingRequest<'_>,
        route: &Uri<'_>,
    ) -> Result<(), Malformed> {
        let port = route.port.unwrap_or(default_port(route));
        let udp = matches!(route.transport(), None | Some(Transport::Udp));
        self.local = route.host_ip().filter(|_| udp).map(|ip| SocketAddr::new(ip, port));
        let Some(user) = route.user else { return Ok(()) };
        let (token, mark) = split_user(user);
        let flow = match node.tokens.read(token) {
            // RFC 5626 section 5.3.1.
            Err(BadToken::Forged) => {
                let got = Got::Number(token.len() as u64);
                return Err(Malformed::with_status(403, "Forbidden: flow token", got, 0));
            }
            flow => flow.ok(),
        };
        let beside = Beside { token, address: address(route) };
        match node.dialogs.read_mark(now, incoming.msg, &beside, mark) {
            Some(mark) => {
                self.mark = Some(mark);
                // RFC 5626 section 5.3.2: a token of the flow the request came on has served its purpose; another token
                // names the flow to send the request over.
                if let Some(flow) = flow.filter(|flow| !same_flow(flow, incoming.flow)) {
                    self.flow = Some(flow);
                }
            }
            None if mark.len() == MARK_LEN => self.void = Some("a Route of another dialog"),
            None => {}
        }
        Ok(())
    }

    /// Determines whether the request belongs to the dialog of the mark in its Route.
    fn recognise(&mut self, node: &Node, now: Time, incoming: &IncomingRequest<'_>) {
        if let Some(mark) = &self.mark {
            let target = |key| node.dialogs.target(key, self.next_uri(), self.uri_bytes, &self.uri);
            match node.dialogs.recognise(now, incoming, mark, target, self.flow.is_some()) {
                Ok(Recognised { dialog, target_match, detour }) => {
                    (self.in_dialog, self.target_match) = (Some(dialog), target_match);
                    self.detour = detour;
                }
                Err(why) => self.void = self.void.or(Some(why)),
            }
        }
        if self.void.is_some() {
            (self.in_dialog, self.flow, self.detour) = (None, None, None);
        }
    }
}

fn maddr(node: &Node, uri: &Uri<'_>, flow: &Flow) -> Maddr {
    let Some(Some(host)) = uri.param(b"maddr").filter(|_| uri.is_sip()) else {
        return Maddr::None;
    };
    let here = uri.port.unwrap_or(default_port(uri)) == flow.local.port()
        && uri.transport().is_none_or(|transport| transport == flow.transport);
    if here && node.identity.is_local(host, Some(flow.local.port()), 0, flow.local) {
        Maddr::Ours
    } else {
        Maddr::Other
    }
}

/// Returns whether two flows lead to the same peer over the same transport. Each worker has a datagram socket of its
/// own with the same address, so only the addresses of datagram flows count.
fn same_flow(a: &Flow, b: &Flow) -> bool {
    if a.transport.is_datagram() {
        a.transport == b.transport && a.local == b.local && a.remote == b.remote
    } else {
        a.id == b.id
    }
}
