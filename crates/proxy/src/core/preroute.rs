//! Route information preprocessing: RFC 3261 section 16.4.

use super::context::InDialog;
use super::dialog::{Followed, split_user};
use super::{Core, Pass};
use crate::mark::{MARK_LEN, Mark};
use crate::outbound::BadToken;
use ringway_sansio::{Flow, Transport};
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::message::{Got, Malformed};
use ringway_sip::uri::{Scheme, Uri};

/// Where a request points once our own Route elements are taken off.
pub(super) struct Routed<'a> {
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
    pub followed: Followed,
    /// Why a mark that was ours is worth nothing here.
    pub void: Option<&'static str>,
    /// The flow a token of ours names, if it is not the one the request came on (RFC 5626
    /// section 5.3).
    pub flow: Option<Flow>,
}

impl Routed<'_> {
    /// Whether it belongs to a dialog that this proxy has built.
    pub(super) fn is_in_dialog(&self) -> bool {
        self.in_dialog.is_some()
    }
}

/// Stands between a flow token and a mark; no character of either.
pub(super) const MARK_AFTER: u8 = b'.';

/// What an `maddr` in the Request-URI says (RFC 3261 sections 16.4 and 16.5).
pub(super) enum Maddr {
    /// There is none.
    None,
    /// It means us, and has led the request here: taken off.
    Ours,
    /// It means someone else, or another port or transport of ours: the only target.
    Other,
}

/// The default port of a SIP URI, as far as it decides whether the URI means us.
pub(super) fn default_port(uri: &Uri<'_>) -> u16 {
    match uri.transport() {
        Some(t) => t.default_port(),
        None if uri.scheme == Scheme::Sips => Transport::Tls.default_port(),
        None => Transport::Udp.default_port(),
    }
}

impl Core {
    pub(super) fn preroute<'a>(&self, pass: &Pass<'a>) -> Result<Routed<'a>, Malformed> {
        let msg = pass.msg;
        let mut uri_bytes = msg.request_uri();
        let mut uri = Uri::parse(uri_bytes)?;
        if msg.first(HeaderId::Route).is_none() {
            return Ok(Routed {
                uri_bytes,
                uri,
                maddr: self.maddr(&uri, pass.flow),
                routes_used: 0,
                last_route_used: false,
                next: None,
                mark: None,
                in_dialog: None,
                followed: Followed::No,
                void: None,
                flow: None,
            });
        }
        let mut ours = None;
        // A strict router put the Record-Route value we made into the Request-URI and the real one
        // at the end of Route.
        if uri.is_sip()
            && self.is_us(&uri, pass.flow)
            && uri.is_loose_router()
            && let Some(last) = msg.items(HeaderId::Route).last()
        {
            ours = Some(uri);
            uri_bytes = NameAddr::parse(last)?.uri;
            uri = Uri::parse(uri_bytes)?;
        }
        let mut routed = Routed {
            uri_bytes,
            uri,
            maddr: self.maddr(&uri, pass.flow),
            routes_used: 0,
            last_route_used: ours.is_some(),
            next: None,
            mark: None,
            in_dialog: None,
            followed: Followed::No,
            void: None,
            flow: None,
        };
        if let Some(ours) = ours {
            self.read_user(pass, &ours, &mut routed)?;
        }
        let left = match routed.last_route_used {
            true => msg.items(HeaderId::Route).count() - 1,
            false => usize::MAX,
        };
        for item in msg.items(HeaderId::Route).take(left) {
            let route = NameAddr::parse(item)?;
            let target = Uri::parse(route.uri)?;
            if !(target.is_sip() && self.is_us(&target, pass.flow)) {
                routed.next = Some(route);
                break;
            }
            routed.routes_used += 1;
            self.read_user(pass, &target, &mut routed)?;
        }
        if let Some(mark) = routed.mark {
            match self.belongs_to_dialog(pass, &routed, &mark) {
                Ok((dialog, followed)) => {
                    (routed.in_dialog, routed.followed) = (Some(dialog), followed);
                }
                Err(why) => routed.void = routed.void.or(Some(why)),
            }
        }
        if routed.void.is_some() {
            (routed.in_dialog, routed.flow) = (None, None);
        }
        Ok(routed)
    }

    fn maddr(&self, uri: &Uri<'_>, flow: &Flow) -> Maddr {
        let Some(Some(host)) = uri.param(b"maddr").filter(|_| uri.is_sip()) else {
            return Maddr::None;
        };
        let here = uri.port.unwrap_or(default_port(uri)) == flow.local.port()
            && uri.transport().is_none_or(|transport| transport == flow.transport);
        if here && self.own.is_us(host, Some(flow.local.port()), 0, flow.local) {
            Maddr::Ours
        } else {
            Maddr::Other
        }
    }

    /// Whether a URI's host and port are this server's.
    pub(super) fn is_us(&self, uri: &Uri<'_>, flow: &Flow) -> bool {
        self.own.is_us(uri.host, uri.port, default_port(uri), flow.local)
    }

    /// What we wrote into the user part of a Record-Route: the dialog's mark, with a flow token
    /// before it where the flow counts. A token is worth something beside its mark only.
    fn read_user(
        &self,
        pass: &Pass<'_>,
        route: &Uri<'_>,
        routed: &mut Routed<'_>,
    ) -> Result<(), Malformed> {
        let Some(user) = route.user else { return Ok(()) };
        let (token, mark) = split_user(user);
        let flow = match self.tokens.read(token) {
            // RFC 5626 section 5.3.1.
            Err(BadToken::Forged) => {
                let got = Got::Number(token.len() as u64);
                return Err(Malformed::with_status(403, "Forbidden: flow token", got, 0));
            }
            flow => flow.ok(),
        };
        match self.read_mark(pass, token, mark) {
            Some(mark) => {
                routed.mark = Some(mark);
                // RFC 5626 section 5.3.2: a token of the flow the request came on has served; another
                // says where the request goes on.
                if let Some(flow) = flow.filter(|flow| !same_flow(flow, pass.flow)) {
                    routed.flow = Some(flow);
                }
            }
            None if mark.len() == MARK_LEN => routed.void = Some("a Route of another dialog"),
            None => {}
        }
        Ok(())
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
