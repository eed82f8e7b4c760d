//! Sending one branch (RFC 3261 section 16.6 items 8 to 11).

use super::context::State;
use super::{Calls, Tick, record_route};
use crate::core::forwarding::ForwardRequest;
use crate::core::ids::{BranchId, ClientUser};
use crate::core::locator::Destination;
use crate::core::target::Attempt;
use crate::core::turn::Turn;
use ringway_sansio::{Hop, Target, TimerId, Transport};
use ringway_sip::header::Via;
use ringway_sip::message::Message;
use ringway_sip::transaction::{self, ClientId, Kind};

/// The size above which a request uses TCP unless its destination is fixed (RFC 3261 section 18.1.1).
const MAX_DATAGRAM: usize = 1300;

impl Calls {
    /// Sends a branch to this destination in a new client transaction.
    pub(super) fn launch(
        &mut self,
        t: &mut Turn<'_>,
        id: BranchId,
        mut destination: Destination,
        msg: &Message<'_>,
    ) {
        // It was parsed before, when the request came.
        let Ok(via) = &msg.top_via() else { return self.fail_unreachable(id) };
        let client = t.tx.reserve(t.random);
        let from = &self.contexts[id.context].flow;
        let body = match t.node.relay_request(t.now, msg, from, &destination, Some(client)) {
            Ok(body) => body,
            Err(refusal) => return self.fail_without_media(t, id, refusal.status()),
        };
        let start = t.out.buffer().len();
        let parts = (msg, via, body.as_deref());
        self.write_request(t, id, &destination, parts, client);
        if is_too_large(&destination, t.out.buffer().len() - start) {
            let addr = destination.target.remote();
            let hop = Hop { transport: Transport::Tcp, addr, name: None };
            if let Some(tcp) = t.locator.destination_of(hop) {
                // If TCP is refused, UDP is tried (section 18.1.1).
                self.contexts[id].target.attempts.push(Attempt::Datagram(addr));
                destination = tcp;
                t.out.abandon(start);
                self.write_request(t, id, &destination, parts, client);
            }
        }
        t.node.gateways.note_destination(
            t.now,
            &t.node.trust,
            &self.contexts[id].target,
            &destination,
        );
        let kind = self.contexts[id.context].kind;
        let (went, hop) =
            ((destination.transport, destination.target.remote()), hop_of(&destination));
        let target = destination.into_target();
        t.tx.send(t.now, client, kind, target, ClientUser::Branch(id), t.out, start);
        t.stats.forwarded += 1;
        let timer_c = match kind {
            Kind::Invite => self.wheel.set(t.now + t.node.config.timer_c, Tick::TimerC(id)),
            Kind::NonInvite => TimerId::NONE,
        };
        self.contexts[id.context].alive += 1;
        let branch = &mut self.contexts[id];
        branch.state = State::Sent;
        branch.client = Some(client);
        branch.timer_c = timer_c;
        branch.hop = hop;
        branch.last_destination = Some(went);
        self.record_callee(t, id);
    }

    /// Fails a branch whose media cannot be relayed, as if its target had answered with this status. The same relay serves
    /// its other attempts too.
    fn fail_without_media(&mut self, t: &mut Turn<'_>, id: BranchId, status: u16) {
        t.stats.limits_hit += 1;
        let branch = &mut self.contexts[id];
        branch.state = State::Done;
        branch.target.attempts.clear();
        self.contexts[id.context].offer(status, Vec::new);
    }

    fn write_request(
        &self,
        t: &mut Turn<'_>,
        id: BranchId,
        destination: &Destination,
        (msg, via, body): (&Message<'_>, &Via<'_>, Option<&[u8]>),
        client: ClientId,
    ) {
        let (ctx, branch) = (&self.contexts[id.context], &self.contexts[id]);
        let (node, findings, flow) = (t.node, &ctx.findings, &ctx.flow);
        let (target, through) = (&branch.target, branch.through.as_deref());
        let max_breadth = branch.breadth;
        let request = ForwardRequest {
            msg,
            via,
            flow,
            findings,
            target,
            through,
            destination,
            max_breadth,
            body,
        };
        let name = transaction::Branch { worker: node.worker, client, spiral: findings.spiral };
        let record_route = |buf: &mut Vec<u8>| {
            if findings.record_route {
                record_route::write(buf, node, t.now, msg, &target.uri, flow, destination);
            }
        };
        request.write(t.out.buffer(), node, record_route, |buf| name.write(buf));
    }
}

/// Returns whether the size requires another transport than the UDP that was chosen.
fn is_too_large(destination: &Destination, len: usize) -> bool {
    len > MAX_DATAGRAM && destination.transport == Transport::Udp && !destination.any_size
}

/// Returns the hop of a destination, for the record of a failure.
fn hop_of(destination: &Destination) -> Option<Hop> {
    match &destination.target {
        Target::Peer { transport, remote, name } => {
            Some(Hop { transport: *transport, addr: *remote, name: name.clone() })
        }
        Target::Flow(_) => None,
    }
}
