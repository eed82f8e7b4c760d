//! Answers the server gives itself.

use super::{Core, Pass};
use ringway_sansio::{Flow, Outbox, Target};
use ringway_sip::header::{HeaderId, Via};
use ringway_sip::message::{Message, Method, Start};
use ringway_sip::transaction::table::MAX_AMPLIFICATION;
use ringway_sip::write;
use std::net::{IpAddr, SocketAddr};

impl Core {
    /// Where a response goes (RFC 3261 section 18.2.2, RFC 3581 section 4), and the port to open a new
    /// connection to should the flow be gone.
    ///
    /// An `maddr` sends it to a third party, so it is obeyed where it is meant for: a multicast group,
    /// and where a trusted peer writes it.
    pub(super) fn reply_to(&self, flow: &Flow, via: &Via<'_>) -> (Flow, u16) {
        let port = via.port.unwrap_or(flow.transport.default_port());
        if !flow.transport.is_datagram() {
            return (*flow, port);
        }
        let obeyed = |ip: &IpAddr| ip.is_multicast() || self.is_trusted_ip(flow.remote.ip());
        let maddr = via.maddr.and_then(crate::own::parse_ip).filter(obeyed);
        let remote = if let Some(maddr) = maddr {
            SocketAddr::new(maddr, port)
        } else if via.rport.is_some() {
            flow.remote
        } else {
            SocketAddr::new(flow.remote.ip(), port)
        };
        (Flow { remote, ..*flow }, port)
    }

    /// Answers without a transaction: a request that is sent again gets the same answer again
    /// (RFC 3261 section 8.2.7).
    ///
    /// The source of a datagram has proved nothing, not even that the address is its own. An answer of
    /// more than [`MAX_AMPLIFICATION`] times the request is not sent there.
    pub(super) fn refuse(
        &mut self,
        pass: &Pass<'_>,
        status: u16,
        reason: &str,
        headers: &[u8],
        out: &mut Outbox,
    ) {
        if pass.msg.method() == Method::Ack {
            return;
        }
        let start = out.buffer().len();
        let (reply, _) = self.reply_to(pass.flow, pass.via);
        let tag = self.own.tag(pass.msg.call_id());
        let (buf, flow) = (out.buffer(), Some(pass.flow));
        write::response(buf, pass.msg, flow, status, reason, Some(&tag), headers, &[]);
        let octets = out.buffer().len() - start;
        if octets > self.repeat_credit(pass) as usize {
            self.stats.amplification_avoided += 1;
            return out.abandon(start);
        }
        out.finish(start, Target::Flow(reply), 0);
    }

    /// Octets that may be sent in answer to a request before its sender has proved anything;
    /// [`u32::MAX`] where there is no limit.
    pub(super) fn repeat_credit(&self, pass: &Pass<'_>) -> u32 {
        if !pass.flow.transport.is_datagram()
            || !self.config.auth.enabled
            || self.is_trusted_ip(pass.flow.remote.ip())
        {
            return u32::MAX;
        }
        (pass.msg.whole().len() as u32).saturating_mul(MAX_AMPLIFICATION)
    }

    /// Answers a request whose sender has proved enough, however long the answer is.
    pub(super) fn reply(
        &mut self,
        flow: &Flow,
        msg: &Message<'_>,
        via: &Via<'_>,
        status: u16,
        reason: &str,
        headers: &[u8],
        out: &mut Outbox,
    ) {
        let (reply, _) = self.reply_to(flow, via);
        let tag = self.own.tag(msg.call_id());
        out.push(Target::Flow(reply), 0, |buf| {
            write::response(buf, msg, Some(flow), status, reason, Some(&tag), headers, &[]);
        });
    }

    /// 400 for a request whose topmost Via cannot be read, so that RFC 3261 section 18.2.2 has nothing
    /// to go by: sent back to where the request came from, if it has what an answer must repeat.
    pub(super) fn refuse_without_via(
        &mut self,
        flow: &Flow,
        msg: &Message<'_>,
        reason: &str,
        out: &mut Outbox,
    ) {
        let needed =
            [HeaderId::Via, HeaderId::From, HeaderId::To, HeaderId::CallId, HeaderId::CSeq];
        if msg.method() == Method::Ack || !needed.iter().all(|id| msg.has(*id)) {
            self.stats.garbage += 1;
            return;
        }
        self.stats.malformed += 1;
        let tag = self.own.tag(msg.call_id());
        out.push(Target::Flow(*flow), 0, |buf| {
            write::response(buf, msg, Some(flow), 400, reason, Some(&tag), &[], &[]);
        });
    }

    /// Whether an ACK is for an answer of [`Core::refuse`].
    pub(super) fn is_own_tag(&self, msg: &Message<'_>) -> bool {
        msg.to().ok().and_then(|to| to.tag()).is_some_and(|t| t == self.own.tag(msg.call_id()))
    }

    /// 503 for a request that comes at a bad time, as cheaply as can be.
    pub(super) fn turn_away(&mut self, pass: &Pass<'_>, retry_after: u32, out: &mut Outbox) {
        self.stats.overloaded += 1;
        if retry_after == 0 {
            // Dropped: its source sends far too much.
            self.stats.rate_limited += 1;
            return;
        }
        let mut headers = Vec::with_capacity(24);
        write::header_decimal(&mut headers, "Retry-After", u64::from(retry_after));
        self.refuse(pass, 503, "Service Unavailable", &headers, out);
    }

    /// Bytes that begin like a request but are not one that can be read: an answer is owed only
    /// where the header fields that it needs are there, and parsing says they are not.
    pub(super) fn handle_unparsable(&mut self, _flow: &Flow, _bytes: &[u8], _out: &mut Outbox) {
        self.stats.garbage += 1;
    }

    /// A request whose framing on a stream broke (RFC 3261 section 18.3): answered as far as it can
    /// be read.
    pub fn handle_malformed(
        &mut self,
        flow: &Flow,
        head: &[u8],
        status: u16,
        reason: &str,
        out: &mut Outbox,
    ) {
        self.stats.malformed += 1;
        let Ok(msg) = ringway_sip::message::parse(head) else { return };
        let (Ok(via), Start::Request { method, .. }) = (msg.top_via(), msg.start()) else { return };
        if method != Method::Ack && msg.first(HeaderId::CSeq).is_some() {
            self.reply(flow, &msg, &via, status, reason, &[], out);
        }
    }
}
