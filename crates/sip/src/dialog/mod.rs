//! Dialogs (RFC 3261 section 12) as state without input, output or timers.
//!
//! A user agent makes a [`Dialog`] of a request and the response that establishes it. It writes its requests within the
//! dialog with [`Dialog::request`], and passes received requests and responses to it. [`Dialogs`] contains all dialogs
//! of one forked INVITE. Transactions and sessions are not part of this module; proxies have no dialogs.

mod fork;
mod request;

pub use fork::{Dialogs, Effect, MAX_FORKS};

use crate::header::{HeaderId, Items, NameAddr};
use crate::message::Message;
use crate::method::Method;
use crate::uri::{Scheme, Uri};
use ringway_sansio::{Got, Malformed};
use std::fmt;

/// The state of a dialog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// A provisional response made it.
    Early,
    /// A 2xx response made it or confirmed it.
    Confirmed,
    /// It has ended; no request may be sent in it any more.
    Terminated,
}

/// The reason why a message does not belong to a dialog or establishes none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DialogError {
    /// The message cannot be parsed.
    Malformed(Malformed),
    /// The method or the status establishes no dialog (RFC 3261 section 12.1).
    NotEstablishing,
    /// The message is of another dialog: other Call-ID or tags.
    Foreign,
    /// The dialog has ended.
    Terminated,
    /// The request is out of order.
    OutOfOrder {
        /// The highest sequence number so far.
        highest: u32,
        /// The sequence number of the request.
        got: u32,
    },
    /// Our sequence numbers are exhausted.
    Exhausted,
}

impl DialogError {
    /// Returns the status of the response to a request with this error (RFC 3261 section 12.2.2).
    pub fn status(&self) -> u16 {
        match self {
            DialogError::Malformed(fault) => fault.status,
            DialogError::NotEstablishing => 400,
            DialogError::Foreign | DialogError::Terminated => 481,
            DialogError::OutOfOrder { .. } | DialogError::Exhausted => 500,
        }
    }
}

impl From<Malformed> for DialogError {
    fn from(fault: Malformed) -> Self {
        DialogError::Malformed(fault)
    }
}

impl fmt::Display for DialogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialogError::Malformed(fault) => fault.fmt(f),
            DialogError::NotEstablishing => {
                f.write_str("expected a request and a response that establish a dialog")
            }
            DialogError::Foreign => f.write_str("expected the Call-ID and tags of the dialog"),
            DialogError::Terminated => f.write_str("expected a dialog that is not over"),
            DialogError::OutOfOrder { highest, got } => {
                write!(f, "expected a CSeq above {highest}, got {got}")
            }
            DialogError::Exhausted => f.write_str("expected a CSeq below 2^31, got to its end"),
        }
    }
}

impl std::error::Error for DialogError {}

/// One side's state of a dialog (RFC 3261 section 12).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dialog {
    state: State,
    call_id: Box<[u8]>,
    local_tag: Box<[u8]>,
    remote_tag: Box<[u8]>,
    /// The sequence number of our last request.
    local_cseq: Option<u32>,
    /// The highest sequence number of the peer's requests.
    remote_cseq: Option<u32>,
    local_uri: Box<[u8]>,
    remote_uri: Box<[u8]>,
    remote_target: Box<[u8]>,
    /// Elements of Route in order, separated by commas.
    route_set: Box<[u8]>,
    secure: bool,
}

impl Dialog {
    /// Returns the dialog of the UAS that answers `request` with `status` and the tag `local_tag` (RFC 3261 section
    /// 12.1.1). `secure_flow` is whether the request came over TLS.
    pub fn new_uas(
        request: &Message<'_>,
        status: u16,
        local_tag: &[u8],
        secure_flow: bool,
    ) -> Result<Self, DialogError> {
        if !request.is_request() {
            return Err(DialogError::NotEstablishing);
        }
        let state = established(request.method(), status)?;
        let (from, to) = (request.from()?, request.to()?);
        let target = contact(request)?.ok_or(Malformed::bad(
            "Contact: expected one in a request that makes a dialog",
            Got::Missing,
            0,
        ))?;
        Ok(Dialog {
            state,
            call_id: request.call_id().into(),
            local_tag: local_tag.into(),
            // RFC 2543 has no From tag: then it is null.
            remote_tag: from.tag().unwrap_or_default().into(),
            local_cseq: None,
            remote_cseq: Some(request.cseq()?.seq),
            local_uri: to.uri.into(),
            remote_uri: from.uri.into(),
            remote_target: target.uri.into(),
            route_set: joined(request.items(HeaderId::RecordRoute))?,
            secure: is_secure(request, secure_flow),
        })
    }

    /// Returns the dialog of the UAC that sent `request` and received `response` (RFC 3261 section 12.1.2).
    /// `secure_flow` is whether the request was sent over TLS.
    ///
    /// A response without Contact leaves the Request-URI as the remote target: provisional responses often have none,
    /// and a BYE needs a target.
    pub fn new_uac(
        request: &Message<'_>,
        response: &Message<'_>,
        secure_flow: bool,
    ) -> Result<Self, DialogError> {
        if !request.is_request() || response.is_request() {
            return Err(DialogError::NotEstablishing);
        }
        let state = established(request.method(), response.status())?;
        let (from, to) = (request.from()?, response.to()?);
        let target = contact(response)?.map_or(request.request_uri(), |contact| contact.uri);
        Ok(Dialog {
            state,
            call_id: request.call_id().into(),
            local_tag: from.tag().unwrap_or_default().into(),
            remote_tag: to.tag().unwrap_or_default().into(),
            local_cseq: Some(request.cseq()?.seq),
            remote_cseq: None,
            local_uri: from.uri.into(),
            remote_uri: to.uri.into(),
            remote_target: target.into(),
            route_set: reversed_routes(response)?,
            secure: is_secure(request, secure_flow),
        })
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the Call-ID.
    pub fn call_id(&self) -> &[u8] {
        &self.call_id
    }

    /// Returns our tag; empty for null.
    pub fn local_tag(&self) -> &[u8] {
        &self.local_tag
    }

    /// Returns the peer's tag; empty for null.
    pub fn remote_tag(&self) -> &[u8] {
        &self.remote_tag
    }

    /// Returns our sequence number, that of the last request; `None` before the first.
    pub fn local_cseq(&self) -> Option<u32> {
        self.local_cseq
    }

    /// Returns the peer's highest sequence number; `None` before its first request.
    pub fn remote_cseq(&self) -> Option<u32> {
        self.remote_cseq
    }

    /// Returns the URI that requests are addressed to.
    pub fn remote_target(&self) -> &[u8] {
        &self.remote_target
    }

    /// Returns the route set: elements of a Route header field.
    pub fn route_set(&self) -> impl Iterator<Item = &[u8]> {
        Items::new(&self.route_set)
    }

    /// Returns whether only secure hops may be used (RFC 3261 section 12.1).
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Returns whether a received message belongs to this dialog: a request of the peer or a response to one of ours
    /// (RFC 3261 section 12). Null tags match absent ones.
    pub fn matches(&self, message: &Message<'_>) -> bool {
        let (Ok(from), Ok(to)) = (message.from(), message.to()) else {
            return false;
        };
        let (local, remote) = if message.is_request() { (to, from) } else { (from, to) };
        message.call_id() == &*self.call_id
            && local.tag().unwrap_or_default() == &*self.local_tag
            && remote.tag().unwrap_or_default() == &*self.remote_tag
    }

    /// Processes a request of the peer within the dialog: checks that it belongs to the dialog and is in order, and
    /// counts it (RFC 3261 section 12.2.2). ACK and CANCEL have the number of their INVITE. Call [`Dialog::accept`]
    /// when it is answered with 2xx.
    pub fn receive(&mut self, request: &Message<'_>) -> Result<(), DialogError> {
        if !request.is_request() || !self.matches(request) {
            return Err(DialogError::Foreign);
        }
        if self.state == State::Terminated {
            return Err(DialogError::Terminated);
        }
        let seq = request.cseq()?.seq;
        if matches!(request.method(), Method::Ack | Method::Cancel) {
            return Ok(());
        }
        if let Some(highest) = self.remote_cseq
            && seq <= highest
        {
            return Err(DialogError::OutOfOrder { highest, got: seq });
        }
        self.remote_cseq = Some(seq);
        Ok(())
    }

    /// Applies a request of the peer that is answered with 2xx: a target refresh moves the remote target (RFC 3261
    /// section 12.2.2), a BYE ends the dialog (section 15).
    pub fn accept(&mut self, request: &Message<'_>) -> Result<(), DialogError> {
        if request.method() == Method::Bye {
            self.state = State::Terminated;
        } else if request.method().refreshes_target() {
            self.retarget(request)?;
        }
        Ok(())
    }

    /// Reports that `status` has been sent as the response to the request that established this dialog.
    pub fn answered(&mut self, status: u16) {
        match (self.state, status) {
            (State::Early, 200..=299) => self.state = State::Confirmed,
            // RFC 3261 section 12.3.
            (State::Early, 300..) => self.state = State::Terminated,
            _ => {}
        }
    }

    /// Processes a response to a request of ours in this dialog, or another one to the request that established it. A
    /// 2xx confirms an early dialog and then determines the route set again (RFC 3261 section 13.2.2.4). A 2xx to a
    /// target refresh moves the remote target. 408 and 481 end the dialog, and so does the response to a BYE (section
    /// 12.2.1.2, section 15.1.1).
    pub fn response(&mut self, response: &Message<'_>) -> Result<(), DialogError> {
        if response.is_request() || !self.matches(response) {
            return Err(DialogError::Foreign);
        }
        if self.state == State::Terminated {
            return Err(DialogError::Terminated);
        }
        let method = response.cseq()?.method;
        match response.status() {
            200..=299 if method == Method::Bye => self.state = State::Terminated,
            status @ 101..=299 if method.refreshes_target() || method.makes_dialog() => {
                if status >= 200 && self.state == State::Early {
                    self.route_set = reversed_routes(response)?;
                    self.state = State::Confirmed;
                }
                // A provisional response moves the target of an early dialog only.
                if status >= 200 || self.state == State::Early {
                    self.retarget(response)?;
                }
            }
            408 | 481 => self.state = State::Terminated,
            300.. if self.state == State::Early && method.makes_dialog() => {
                self.state = State::Terminated;
            }
            300..
                if method == Method::Bye
                    && response.status() != 401
                    && response.status() != 407 =>
            {
                // Whatever the peer answers, a session that we have ended is over.
                self.state = State::Terminated;
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the dialog for a reason of the caller's: no response at all, or a BYE of ours.
    pub fn terminate(&mut self) {
        self.state = State::Terminated;
    }

    fn retarget(&mut self, message: &Message<'_>) -> Result<(), DialogError> {
        if let Some(contact) = contact(message)? {
            self.remote_target = contact.uri.into();
        }
        Ok(())
    }
}

/// Appends the Record-Route header fields that a response which establishes a dialog copies from its request, in their
/// order (RFC 3261 section 12.1.1).
pub fn record_routes(buf: &mut Vec<u8>, request: &Message<'_>) {
    for value in request.all(HeaderId::RecordRoute) {
        buf.extend_from_slice(b"Record-Route: ");
        crate::write::unfolded(buf, value);
        buf.extend_from_slice(b"\r\n");
    }
}

/// Returns the state that a response establishes. RFC 3261 section 12.1: 101 to 199 an early dialog, 2xx a confirmed
/// one.
fn established(method: Method<'_>, status: u16) -> Result<State, DialogError> {
    match status {
        _ if !method.makes_dialog() => Err(DialogError::NotEstablishing),
        101..=199 => Ok(State::Early),
        200..=299 => Ok(State::Confirmed),
        _ => Err(DialogError::NotEstablishing),
    }
}

/// Returns the one Contact of a message of a dialog.
fn contact<'a>(message: &Message<'a>) -> Result<Option<NameAddr<'a>>, DialogError> {
    let Some(element) = message.items(HeaderId::Contact).next() else {
        return Ok(None);
    };
    let contact = NameAddr::parse(element)?;
    Uri::parse(contact.uri)?;
    Ok(Some(contact))
}

fn reversed_routes(response: &Message<'_>) -> Result<Box<[u8]>, Malformed> {
    let routes: Vec<_> = response.items(HeaderId::RecordRoute).collect();
    joined(routes.into_iter().rev())
}

/// Returns a route set as one list. An element that cannot be parsed would change the meaning of the next one.
fn joined<'a>(routes: impl Iterator<Item = &'a [u8]>) -> Result<Box<[u8]>, Malformed> {
    let mut all = Vec::new();
    for route in routes {
        NameAddr::parse(route)?;
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(route);
    }
    Ok(all.into())
}

fn is_secure(request: &Message<'_>, secure_flow: bool) -> bool {
    secure_flow && Uri::parse(request.request_uri()).is_ok_and(|uri| uri.scheme == Scheme::Sips)
}

#[cfg(test)]
mod tests;
