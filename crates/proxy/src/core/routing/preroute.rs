//! Route information preprocessing: RFC 3261 section 16.4.

use crate::core::dialogs::{TargetMatch, split_user};
use crate::core::names::{default_port, user_of};
use crate::core::node::Node;
use crate::core::request::{InDialog, IncomingRequest};
use crate::mark::{MARK_LEN, Mark};
use crate::outbound::BadToken;
use crate::routes::{RouteTable, Rule};
use ringway_sansio::{Flow, Time};
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::message::{Got, Malformed};
use ringway_sip::uri::Uri;

/// Where a request points once our own Route elements are taken off.
pub(in crate::core) struct RequestRoute<'a> {
    /// The Request-URI to go by.
    pub uri_bytes: &'a [u8],
    /// The same, taken apart.
    pub uri: Uri<'a>,
    /// Route elements that were ours.
    pub routes_used: usize,
    /// Whether the Request-URI says where it is to be sent.
    pub maddr: Maddr,
    /// The last Route element was the real Request-URI (a strict router before us).
    pub last_route_used: bool,
    /// The first Route element that is not ours.
    pub next: Option<NameAddr<'a>>,
    /// The mark in a Route of ours.
    pub mark: Option<Mark>,
    /// The dialog that it belongs to, which this proxy has built: the mark is of that dialog.
    pub in_dialog: Option<InDialog>,
    /// Its target is the one that the mark was made for.
    pub target_match: TargetMatch,
    /// Why a mark that was ours is worth nothing here.
    pub void: Option<&'static str>,
    /// The flow a token of ours names, if it is not the one the request came on (RFC 5626
    /// section 5.3).
    pub flow: Option<Flow>,
}

impl RequestRoute<'_> {
    /// Whether it belongs to a dialog that this proxy has built.
    pub(in crate::core) fn is_in_dialog(&self) -> bool {
        self.in_dialog.is_some()
    }

    /// The rule for a request whose next hop nothing else decides: no Route, no flow, no `maddr`, no
    /// dialog.
    pub(in crate::core) fn foreign_rule<'t>(&self, routes: &'t RouteTable) -> Option<&'t Rule> {
        let decided = self.next.is_some()
            || self.flow.is_some()
            || self.is_in_dialog()
            || matches!(self.maddr, Maddr::Other);
        let user = user_of(&self.uri).unwrap_or_default();
        if decided { None } else { routes.find(false, self.uri.host, user) }
    }
}

/// What an `maddr` in the Request-URI says (RFC 3261 sections 16.4 and 16.5).
pub(in crate::core) enum Maddr {
    /// There is none.
    None,
    /// It means us, and has led the request here: taken off.
    Ours,
    /// It means someone else, or another port or transport of ours: the only target.
    Other,
}

impl<'a> RequestRoute<'a> {
    fn new(uri_bytes: &'a [u8], uri: Uri<'a>, maddr: Maddr) -> RequestRoute<'a> {
        RequestRoute {
            uri_bytes,
            uri,
            maddr,
            routes_used: 0,
            last_route_used: false,
            next: None,
            mark: None,
            in_dialog: None,
            target_match: TargetMatch::No,
            void: None,
            flow: None,
        }
    }
}

/// Takes our own Route elements off, and recognises the dialog that they belong to.
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
    // A strict router put the Record-Route value we made into the Request-URI and the real one
    // at the end of Route.
    if uri.is_sip()
        && node.is_us(&uri, incoming.flow)
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
        if !(target.is_sip() && node.is_us(&target, incoming.flow)) {
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
    /// What we wrote into the user part of a Record-Route: the dialog's mark, with a flow token
    /// before it where the flow counts. A token is worth something beside its mark only.
    fn read_user(
        &mut self,
        node: &Node,
        now: Time,
        incoming: &IncomingRequest<'_>,
        route: &Uri<'_>,
    ) -> Result<(), Malformed> {
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
        match node.dialogs.read_mark(now, incoming.msg, token, mark) {
            Some(mark) => {
                self.mark = Some(mark);
                // RFC 5626 section 5.3.2: a token of the flow the request came on has served; another
                // says where the request goes on.
                if let Some(flow) = flow.filter(|flow| !same_flow(flow, incoming.flow)) {
                    self.flow = Some(flow);
                }
            }
            None if mark.len() == MARK_LEN => self.void = Some("a Route of another dialog"),
            None => {}
        }
        Ok(())
    }

    /// Finds out whether the request belongs to the dialog of the mark in its Route.
    fn recognise(&mut self, node: &Node, now: Time, incoming: &IncomingRequest<'_>) {
        if let Some(mark) = &self.mark {
            let next = self.next.as_ref().map(|route| route.uri);
            let target = node.dialogs.target(next, self.uri_bytes, &self.uri);
            match node.dialogs.recognise(now, incoming, mark, target, self.flow.is_some()) {
                Ok((dialog, target_match)) => {
                    (self.in_dialog, self.target_match) = (Some(dialog), target_match);
                }
                Err(why) => self.void = self.void.or(Some(why)),
            }
        }
        if self.void.is_some() {
            (self.in_dialog, self.flow) = (None, None);
        }
    }
}

fn maddr(node: &Node, uri: &Uri<'_>, flow: &Flow) -> Maddr {
    let Some(Some(host)) = uri.param(b"maddr").filter(|_| uri.is_sip()) else {
        return Maddr::None;
    };
    let here = uri.port.unwrap_or(default_port(uri)) == flow.local.port()
        && uri.transport().is_none_or(|transport| transport == flow.transport);
    if here && node.own.is_us(host, Some(flow.local.port()), 0, flow.local) {
        Maddr::Ours
    } else {
        Maddr::Other
    }
}

/// Whether two flows lead to the same peer the same way. Each worker has a datagram socket of its
/// own under the same address, so for datagrams it is the addresses that count.
fn same_flow(a: &Flow, b: &Flow) -> bool {
    if a.transport.is_datagram() {
        a.transport == b.transport && a.local == b.local && a.remote == b.remote
    } else {
        a.id == b.id
    }
}
