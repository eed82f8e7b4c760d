//! Requests within a dialog (RFC 3261 section 12.2.1.1).

use super::{Dialog, DialogError, State};
use crate::method::Method;
use crate::write::{Party, Request};

/// The sequence number of a dialog's first request, if it is ours to choose.
const FIRST_CSEQ: u32 = 1;

impl Dialog {
    /// Counts a request and returns it, without Via, Contact (which a target refresh should have), further header
    /// fields and body: set these and [emit](Request::emit) it. Not for ACK, see [`Dialog::ack`], nor for CANCEL, which
    /// is derived from the request it cancels.
    pub fn request<'a>(&'a mut self, method: Method<'a>) -> Result<Request<'a>, DialogError> {
        if self.state == State::Terminated {
            return Err(DialogError::Terminated);
        }
        let seq = match self.local_cseq {
            None => FIRST_CSEQ,
            Some(last) if last < (1 << 31) - 1 => last + 1,
            Some(_) => return Err(DialogError::Exhausted),
        };
        self.local_cseq = Some(seq);
        Ok(self.numbered(method, seq))
    }

    /// Returns the ACK for a 2xx to the INVITE with sequence number `seq` (RFC 3261
    /// section 13.2.2.4), as [`Dialog::request`] returns others. It has the credentials of the INVITE:
    /// add them to its fields.
    pub fn ack(&self, seq: u32) -> Request<'_> {
        self.numbered(Method::Ack, seq)
    }

    fn numbered<'a>(&'a self, method: Method<'a>, seq: u32) -> Request<'a> {
        let from = Party { display: b"", uri: &self.local_uri, tag: &self.local_tag };
        let to = Party { display: b"", uri: &self.remote_uri, tag: &self.remote_tag };
        Request {
            route: &self.route_set,
            ..Request::new(method, &self.remote_target, from, to, &self.call_id, seq)
        }
    }
}
