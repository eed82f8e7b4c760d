//! What a driver does with associations: it handles their packets and timeouts, and collects the packets that they send.
//!
//! Packets of an association that is established are handled under its own lock. Several drivers do so at once; each
//! transmits for its own associations only, and has their deadlines. The kernel passes the packets of an association to
//! its driver, but one that it coalesced with those of another association may come to another driver, which then
//! handles it and leaves the answer to the association's own.

use super::carrier::{Carrier, Outgoing, tag_of};
use super::core::{RELEASED, Shared};
use super::inbox::Waiting;
use super::lock::Guard;
use super::member::{Member, MemberState};
use ringway_os::ChaCha;
use ringway_sansio::{Addressing, Deadlines, Time};
use ringway_sctp::Cx;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

/// See the module.
pub(super) struct Runner {
    shared: Arc<Shared>,
    /// The number of the driver.
    number: usize,
    random: ChaCha,
    outgoing: Outgoing,
    /// The system had no room, and packets wait in `outgoing`.
    blocked: bool,
    /// Associations that may have something to send.
    turns: VecDeque<Arc<Member>>,
    /// The endpoint may have packets without an association.
    replies: bool,
    /// Associations with deadlines.
    seats: Slab<Arc<Member>>,
    deadlines: Deadlines,
    /// The association found last, and its tag.
    recent: Option<(u32, Arc<Member>)>,
    /// The number of packets handled without the endpoint.
    received: u64,
}

impl Runner {
    pub(super) fn new(shared: Arc<Shared>, number: usize, random: ChaCha) -> Runner {
        Runner {
            shared,
            number,
            random,
            outgoing: Outgoing::default(),
            blocked: false,
            turns: VecDeque::new(),
            replies: false,
            seats: Slab::new(),
            deadlines: Deadlines::default(),
            recent: None,
            received: 0,
        }
    }

    /// Takes over what waited in the inbox.
    pub(super) fn take(&mut self, waiting: &mut Waiting) {
        self.turns.extend(waiting.members.drain(..));
        self.replies |= waiting.replies;
    }

    /// Returns the number of packets handled without the endpoint.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns whether packets wait for which the system had no room.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Returns whether packets should be sent before more are handled.
    pub(super) fn is_full(&self) -> bool {
        self.outgoing.is_full()
    }

    /// Returns whether nothing is left to send.
    pub(super) fn is_empty(&self) -> bool {
        self.outgoing.is_empty() && self.turns.is_empty() && !self.replies
    }

    /// Returns the next deadline.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| at)
    }

    /// Handles the packets of a train and collects the packets to send because of them.
    pub(super) fn handle_train(&mut self, now: Time, train: &[(Addressing, &[u8])]) {
        let mut rest = train;
        while let Some((addressing, packet)) = rest.first() {
            let member = self.find(tag_of(packet));
            let handled = member.map_or(0, |member| self.handle_packets(now, &member, rest));
            if handled == 0 {
                self.recent = None;
                self.handle_other(now, addressing, packet);
            }
            rest = &rest[handled.max(1)..];
        }
    }

    /// Returns the association whose packets have a tag.
    fn find(&mut self, tag: u32) -> Option<Arc<Member>> {
        match &self.recent {
            Some((recent, member)) if *recent == tag => Some(member.clone()),
            _ if tag == 0 => None,
            _ => {
                let member = self.shared.tables(|tables| tables.find(tag))?;
                self.recent = Some((tag, member.clone()));
                Some(member)
            }
        }
    }

    /// Handles the first packets of a train, as many as are of one association. Returns their number.
    fn handle_packets(
        &mut self,
        now: Time,
        member: &Arc<Member>,
        packets: &[(Addressing, &[u8])],
    ) -> usize {
        let mut state = member.lock();
        let mut cx = Cx { now, random: &mut self.random };
        let of_it = |(addressing, packet): &&(Addressing, &[u8])| {
            state.association.handle_packet(&mut cx, addressing, packet)
        };
        let handled = packets.iter().take_while(of_it).count();
        if handled > 0 {
            self.received += handled as u64;
            state.dispatch();
            if member.driver == self.number {
                self.transmit(now, member, &mut state);
            } else {
                member.queue(&mut state);
            }
        }
        self.leave(member, state);
        handled
    }

    /// Handles a packet that opens an association or belongs to none, and collects the endpoint's answer.
    fn handle_other(&mut self, now: Time, addressing: &Addressing, packet: &[u8]) {
        let Runner { shared, outgoing, blocked, replies, .. } = self;
        shared.tables(|tables| {
            tables.handle_packet(now, addressing, packet);
            *replies = true;
            if !*blocked {
                *replies = !outgoing.fill(|out| tables.poll_transmit(out));
            }
        });
    }

    /// Sends the collected packets.
    pub(super) fn flush(&mut self, now: Time, carrier: &mut impl Carrier) {
        if self.outgoing.is_empty() {
            return;
        }
        self.blocked = !carrier.send(&mut self.outgoing);
        for (sent, icmp, quoted) in carrier.refused() {
            self.shared.tables(|tables| tables.handle_icmp(now, &sent, icmp, &quoted));
        }
    }

    /// Sends until nothing is left to send.
    pub(super) fn send_all(&mut self, now: Time, carrier: &mut impl Carrier) {
        loop {
            self.flush(now, carrier);
            if self.blocked {
                return;
            }
            self.fill(now);
            if self.outgoing.is_empty() {
                return;
            }
        }
    }

    /// Handles the deadlines that have passed.
    pub(super) fn handle_timeouts(&mut self, now: Time) {
        while let Some((at, seat)) = self.deadlines.first()
            && at <= now
        {
            let Some(member) = self.seats.get(seat as usize).cloned() else {
                self.deadlines.set(seat, None);
                continue;
            };
            let mut state = member.lock();
            if state.take_linger(now) {
                self.deadlines.set(seat, state.association.poll_timeout());
                drop(state);
                self.shared.tables(|tables| tables.abort(&member, RELEASED));
                continue;
            }
            state.association.handle_timeout(&mut Cx { now, random: &mut self.random });
            state.dispatch();
            self.deadlines.set(seat, state.next_timeout());
            self.give_turn(&member, &mut state);
            self.leave(&member, state);
        }
    }

    /// Collects packets until there are enough or no more.
    fn fill(&mut self, now: Time) {
        if self.replies {
            let Runner { shared, outgoing, replies, .. } = self;
            shared.tables(|tables| *replies = !outgoing.fill(|out| tables.poll_transmit(out)));
        }
        while !self.outgoing.is_full()
            && let Some(member) = self.turns.pop_front()
        {
            let mut state = member.lock();
            state.end_turn();
            self.transmit(now, &member, &mut state);
            self.leave(&member, state);
        }
    }

    /// Collects the packets of an association until there are enough, or no more; then its next deadline is set. If
    /// there may be more, it gets another turn.
    fn transmit(&mut self, now: Time, member: &Arc<Member>, state: &mut MemberState) {
        let Runner { random, outgoing, blocked, .. } = self;
        let mut cx = Cx { now, random };
        let association = &mut state.association;
        let all = !*blocked && outgoing.fill(|out| association.poll_transmit(&mut cx, out));
        // A message may have been abandoned instead of sent.
        state.dispatch();
        if all {
            self.set_deadline(member, state);
        } else {
            self.give_turn(member, state);
        }
    }

    fn give_turn(&mut self, member: &Arc<Member>, state: &mut MemberState) {
        if !state.take_turn() {
            self.turns.push_back(member.clone());
        }
    }

    fn set_deadline(&mut self, member: &Arc<Member>, state: &mut MemberState) {
        let at = state.next_timeout();
        if at.is_some() && state.seat().is_none() {
            state.set_seat(Some(self.seats.insert(member.clone()) as u32));
        }
        let Some(seat) = state.seat() else { return };
        self.deadlines.set(seat, at);
        if state.is_released() {
            self.seats.try_remove(seat as usize);
            state.set_seat(None);
        }
    }

    /// Unlocks an association after a call, wakes tasks, and updates the tables if need be.
    fn leave(&self, member: &Arc<Member>, mut state: Guard<'_, MemberState>) {
        let (wakes, unsettled) = (state.take_wakes(), state.is_unsettled());
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        if unsettled {
            self.shared.settle(member);
        }
    }
}
