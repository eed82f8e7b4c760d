//! The link: every impairment in its order.

use crate::config::{ConfigError, LinkConfig, Reorder, Sometimes};
use crate::correlated::Correlated;
use crate::delay::{DelayState, DelayStreams};
use crate::deliveries::DeliveryState;
use crate::loss::{ListState, Loss, LossList, LossPosition, LossRule, LossState};
use crate::packet::{Departure, DropReason, Outlet, Packet};
use crate::quantity::{Chance, Span};
use crate::queue::{LinkQueue, Queue, QueueContext};
use crate::random::{Stream, Streams};
use crate::schedule::Schedule;
use crate::trace::RateTrace;
use ringway_sansio::{Ecn, Time};

/// One direction of a link.
///
/// An offered packet passes, in this order: the check that the link is up, the MTU, loss before the
/// queue, duplication, the queue; then sending at the rate, marks, corruption, loss after the link, and
/// delay. The world offers packets, calls [`Link::poll`] at the time of [`Link::poll_timeout`], and
/// calls [`Link::is_cut`] for each packet that arrives.
///
/// Decisions hold for the time when they are due, not for the time of the call. The time and number of
/// polls have no effect, so a real clock and a virtual one write the same log for the same arrivals.
pub struct Link {
    config: LinkConfig,
    schedule: Schedule,
    queue: LinkQueue,
    /// Whether the queue is not empty.
    waits: bool,
    /// Maximum length of a packet that needs only rate, delay and the queue; 0 if any other decision is
    /// configured.
    plain: u64,
    /// A length in bytes and the nanoseconds to send it, for the many packets of one length.
    sending: (u64, u64),
    /// The time when the last bit of the previous packet is sent.
    free_at: Time,
    last_cut: Option<Time>,
    trace: Option<RateTrace>,
    deliveries: Option<DeliveryState>,
    start: Time,
    loss: LossState,
    list: ListState,
    has_list: bool,
    rule: Option<LossRule>,
    duplicate: Chooser,
    corrupt: Chooser,
    corrupt_bit: Stream,
    mark: Chooser,
    delay: DelayState,
    delay_streams: DelayStreams,
    loss_stream: Stream,
    queue_stream: Stream,
    /// Packets that the queue has dropped in the present call.
    dropped: Vec<(Packet, DropReason)>,
}

/// A random choice of packets.
struct Chooser {
    chance: f64,
    source: Correlated,
    stream: Stream,
}

impl Chooser {
    fn new(what: Sometimes, stream: Stream) -> Self {
        Chooser { chance: what.chance.get(), source: Correlated::new(what.correlation), stream }
    }

    fn set(&mut self, what: Sometimes) {
        self.chance = what.chance.get();
        self.source = Correlated::new(what.correlation);
    }

    #[inline]
    fn chooses(&mut self) -> bool {
        self.chance > 0.0 && self.source.draw(&mut self.stream) < self.chance
    }
}

impl Link {
    /// Creates an empty link that starts at `start`. Its random streams are named `name/loss`,
    /// `name/delay` and so on.
    pub fn new(
        config: LinkConfig,
        name: &str,
        streams: &Streams,
        start: Time,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let stream = |purpose: &str| streams.stream(&format!("{name}/{purpose}"));
        let mut link = Link {
            schedule: Schedule::new(&config.schedule, config.schedule_period, start),
            queue: LinkQueue::new(&config.queue, start),
            waits: false,
            plain: 0,
            sending: (0, 0),
            free_at: start,
            last_cut: None,
            trace: RateTrace::new(&config.rate_trace, start),
            deliveries: DeliveryState::new(&config.deliveries, start),
            start,
            loss: LossState::new(config.loss),
            list: ListState::default(),
            has_list: config.loss_list != LossList::default(),
            rule: None,
            duplicate: Chooser::new(config.duplicate, stream("duplicate")),
            corrupt: Chooser::new(config.corrupt, stream("corrupt")),
            corrupt_bit: stream("corrupt-bit"),
            mark: Chooser::new(config.ecn_mark, stream("ecn")),
            delay: DelayState::new(&config),
            delay_streams: DelayStreams {
                delay: stream("delay"),
                reorder: stream("reorder"),
                slot: stream("slot"),
            },
            loss_stream: stream("loss"),
            queue_stream: stream("queue"),
            dropped: Vec::new(),
            config,
        };
        link.set_plain();
        Ok(link)
    }

    /// Updates the limit of the fast path.
    fn set_plain(&mut self) {
        let plain = is_plain(&self.config) && self.rule.is_none();
        let max = self.queue.lets_through().min(self.config.mtu.0);
        self.plain = if plain { max } else { 0 };
        self.sending = (0, self.config.rate.nanos(self.config.sent_bytes(0)));
    }

    /// Returns the present configuration, with all changes.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Drops the packets that `rule` selects, at the configured position of loss.
    pub fn lose_if(&mut self, rule: LossRule) {
        self.rule = Some(rule);
        self.set_plain();
    }

    /// Returns the number of packets in the queue.
    pub fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of bytes in the queue.
    pub fn queue_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Changes the configuration at `now`, independently of the schedule. `change` receives the present
    /// configuration. An invalid result changes nothing. The schedule itself cannot be changed.
    pub fn reconfigure(
        &mut self,
        now: Time,
        outlet: &mut impl Outlet,
        change: impl FnOnce(&mut LinkConfig),
    ) -> Result<(), ConfigError> {
        self.poll(now, outlet);
        let mut next = self.config.clone();
        change(&mut next);
        next.check()?;
        next.schedule.clone_from(&self.config.schedule);
        next.schedule_period = self.config.schedule_period;
        self.adopt(now, next, outlet);
        Ok(())
    }

    /// Returns the time of the next [`Link::poll`]; `None` while nothing waits.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.waits {
            return None;
        }
        let change = self.schedule.next();
        if !self.config.up {
            return change;
        }
        Some(change.map_or(self.free_at, |c| c.min(self.free_at)))
    }

    /// Performs every decision that is due at `now`.
    #[inline]
    pub fn poll(&mut self, now: Time, outlet: &mut impl Outlet) {
        if self.plain == 0 || self.schedule.next().is_some_and(|change| change <= now) {
            return self.poll_all(now, outlet);
        }
        while self.waits && self.free_at <= now {
            let at = self.free_at;
            let LinkQueue::DropTail(queue) = &mut self.queue else {
                self.send_next(at, outlet);
                continue;
            };
            let Some(packet) = queue.take() else { break };
            self.waits = !queue.is_empty();
            outlet.dequeued(at, packet);
            let arrives = self.depart(at, packet, outlet);
            self.delay.note(arrives);
        }
    }

    #[inline(never)]
    fn poll_all(&mut self, now: Time, outlet: &mut impl Outlet) {
        loop {
            let turn = (self.config.up && self.waits).then_some(self.free_at);
            let change = self.schedule.next();
            match (turn, change) {
                (Some(turn), change) if turn <= now && change.is_none_or(|c| turn < c) => {
                    self.send_next(turn, outlet);
                }
                (_, Some(change)) if change <= now => {
                    let mut next = self.config.clone();
                    self.schedule.apply(&self.config.schedule, &mut next);
                    self.adopt(change, next, outlet);
                }
                _ => break,
            }
        }
    }

    /// Returns whether [`Link::is_cut`] can be true of any packet in flight.
    #[inline]
    pub fn can_be_cut(&self) -> bool {
        self.last_cut.is_some() || self.schedule.next().is_some()
    }

    /// Returns whether a packet that arrives at `now` and was started at `started` is lost, because the
    /// link went down in between.
    #[inline]
    pub fn is_cut(&mut self, now: Time, started: Time, outlet: &mut impl Outlet) -> bool {
        if self.schedule.next().is_some_and(|change| change <= now) {
            self.poll(now, outlet);
        }
        self.last_cut.is_some_and(|cut| started <= cut)
    }

    /// Offers a packet to the link.
    #[inline(always)]
    pub fn offer(&mut self, now: Time, packet: Packet, outlet: &mut impl Outlet) {
        // A new one wherever it goes on, so that it need not stand in memory.
        let Packet { id, size, flow, ecn, .. } = packet;
        let packet = || Packet { id, size, flow, ecn, queued: now };
        let settled = self.schedule.next().is_none_or(|change| now < change);
        let busy = self.free_at > now;
        if !settled || u64::from(size) > self.plain || self.waits && !busy {
            return self.consider(now, packet(), outlet);
        }
        // The fast path of most packets, without decisions that have only one outcome.
        if !busy {
            outlet.enqueued(now, packet());
            outlet.dequeued(now, packet());
            self.depart(now, packet(), outlet);
            return;
        }
        let LinkQueue::DropTail(queue) = &mut self.queue else {
            return self.admit(now, packet(), outlet);
        };
        outlet.enqueued(now, packet());
        if !queue.admit(packet()) {
            outlet.dropped(now, packet(), DropReason::QueueFull);
        }
        self.waits = true;
    }

    /// Sends a packet that needs only rate and delay. Returns its arrival time.
    #[inline(always)]
    fn depart(&mut self, at: Time, packet: Packet, outlet: &mut impl Outlet) -> Time {
        let size = u64::from(packet.size);
        if size != self.sending.0 {
            self.sending = (size, self.config.rate.nanos(self.config.sent_bytes(size)));
        }
        let sent = at.as_nanos().saturating_add(self.sending.1);
        let arrives = Time::from_nanos(sent.saturating_add(self.config.delay.as_nanos()));
        let sent = Time::from_nanos(sent);
        self.free_at = sent;
        outlet.departs(Departure { packet, started: at, sent, arrives, flip: None });
        arrives
    }

    /// Performs every decision about an offered packet.
    #[inline(never)]
    fn consider(&mut self, now: Time, mut packet: Packet, outlet: &mut impl Outlet) {
        if self.waits || self.schedule.next().is_some() {
            self.poll(now, outlet);
        }
        if !self.config.up {
            return outlet.dropped(now, packet, DropReason::Down);
        }
        if u64::from(packet.size) > self.config.mtu.0 {
            return outlet.dropped(now, packet, DropReason::TooBig);
        }
        if self.config.loss_at == LossPosition::BeforeQueue
            && let Some(reason) = self.strikes(&mut packet, outlet)
        {
            return outlet.dropped(now, packet, reason);
        }
        let copy = self.duplicate.chooses().then(|| outlet.copy(packet)).flatten();
        self.admit(now, packet, outlet);
        if let Some(id) = copy {
            self.admit(now, Packet { id, ..packet }, outlet);
        }
    }

    /// Queues a packet, and sends the first one if nothing is being sent.
    #[inline]
    fn admit(&mut self, now: Time, packet: Packet, outlet: &mut impl Outlet) {
        let packet = Packet { queued: now, ..packet };
        outlet.enqueued(now, packet);
        let mut room = QueueContext {
            stream: &mut self.queue_stream,
            dropped: &mut self.dropped,
            rate: self.config.rate,
        };
        self.queue.enqueue(now, packet, &mut room);
        self.hand_over_drops(now, outlet);
        if self.free_at <= now {
            self.send_next(now, outlet);
        }
    }

    /// Reports the packets that the queue has dropped.
    fn hand_over_drops(&mut self, at: Time, outlet: &mut impl Outlet) {
        self.waits = !self.queue.is_empty();
        for (packet, reason) in self.dropped.drain(..) {
            outlet.dropped(at, packet, reason);
        }
    }

    /// Sends the next packet at `at`.
    fn send_next(&mut self, at: Time, outlet: &mut impl Outlet) {
        let mut room = QueueContext {
            stream: &mut self.queue_stream,
            dropped: &mut self.dropped,
            rate: self.config.rate,
        };
        let next = self.queue.dequeue(at, &mut room);
        self.hand_over_drops(at, outlet);
        let Some(mut packet) = next else { return };
        outlet.dequeued(at, packet);
        let size = u64::from(packet.size);
        let sent = self.finish(at, self.config.sent_bytes(size));
        self.free_at = sent;
        if self.mark.chooses() && packet.ecn.is_capable() {
            packet.ecn = Ecn::Ce;
        }
        let flip =
            (self.corrupt.chooses() && size > 0).then(|| self.corrupt_bit.below(size * 8) as u32);
        if self.config.loss_at == LossPosition::AfterLink
            && let Some(reason) = self.strikes(&mut packet, outlet)
        {
            return outlet.dropped(sent, packet, reason);
        }
        let arrives = self.delay.arrival(&self.config, sent, size, &mut self.delay_streams);
        outlet.departs(Departure { packet, started: at, sent, arrives, flip });
    }

    /// Returns the time when `bytes` are sent if sending starts at `at`.
    #[inline]
    fn finish(&mut self, at: Time, bytes: u64) -> Time {
        if let Some(deliveries) = &mut self.deliveries {
            return deliveries.finish(at, bytes);
        }
        match &self.trace {
            Some(trace) => trace.finish(at, bytes),
            None => Time::from_nanos(at.as_nanos().saturating_add(self.config.rate.nanos(bytes))),
        }
    }

    /// Returns the reason if this packet is lost. It may be marked instead.
    #[inline]
    fn strikes(&mut self, packet: &mut Packet, outlet: &mut impl Outlet) -> Option<DropReason> {
        if self.has_list || self.rule.is_some() {
            let bytes = outlet.bytes(packet);
            let listed = self.has_list && self.list.strikes(&self.config.loss_list, bytes);
            let ruled = self.rule.as_mut().is_some_and(|rule| rule(packet, bytes));
            if listed || ruled {
                return Some(DropReason::Listed);
            }
        }
        if !self.loss.strikes(&mut self.loss_stream) {
            return None;
        }
        if self.config.loss_marks && packet.ecn.is_capable() {
            packet.ecn = Ecn::Ce;
            return None;
        }
        Some(DropReason::Loss)
    }

    /// Applies a configuration at `at`. Only the state of changed parts is rebuilt, so that the others
    /// keep theirs.
    fn adopt(&mut self, at: Time, next: LinkConfig, outlet: &mut impl Outlet) {
        let last = core::mem::replace(&mut self.config, next);
        let config = &self.config;
        if config.rate_trace != last.rate_trace {
            self.trace = RateTrace::new(&config.rate_trace, self.start);
        }
        if config.deliveries != last.deliveries {
            self.deliveries = DeliveryState::new(&config.deliveries, self.start);
        }
        if config.loss != last.loss {
            self.loss = LossState::new(config.loss);
        }
        if config.loss_list != last.loss_list {
            self.list = ListState::default();
            self.has_list = config.loss_list != LossList::default();
        }
        if config.duplicate != last.duplicate {
            self.duplicate.set(config.duplicate);
        }
        if config.corrupt != last.corrupt {
            self.corrupt.set(config.corrupt);
        }
        if config.ecn_mark != last.ecn_mark {
            self.mark.set(config.ecn_mark);
        }
        let correlations = |c: &LinkConfig| (c.delay_correlation, c.reorder.correlation);
        if correlations(config) != correlations(&last) {
            self.delay = DelayState::new(config);
        }
        if config.queue != last.queue {
            self.change_queue(at, outlet);
        }
        if last.up && !self.config.up {
            self.last_cut = Some(at);
            if !self.config.down_keeps_queue {
                while let Some(packet) = self.queue.take() {
                    outlet.dropped(at, packet, DropReason::Down);
                }
                self.waits = false;
            }
        }
        if !last.up && self.config.up {
            self.free_at = self.free_at.max(at);
        }
        self.set_plain();
    }

    /// Moves the packets into a queue of another kind.
    fn change_queue(&mut self, at: Time, outlet: &mut impl Outlet) {
        let mut old = core::mem::replace(&mut self.queue, LinkQueue::new(&self.config.queue, at));
        let mut room = QueueContext {
            stream: &mut self.queue_stream,
            dropped: &mut self.dropped,
            rate: self.config.rate,
        };
        while let Some(packet) = old.take() {
            self.queue.enqueue(at, packet, &mut room);
        }
        self.hand_over_drops(at, outlet);
    }
}

/// Returns whether a configuration consists of rate and delay alone.
fn is_plain(config: &LinkConfig) -> bool {
    config.loss == Loss::default()
        && config.loss_list == LossList::default()
        && config.duplicate.chance == Chance::NEVER
        && config.corrupt.chance == Chance::NEVER
        && config.ecn_mark.chance == Chance::NEVER
        && config.reorder == Reorder::NONE
        && config.slot.is_none()
        && config.jitter == Span(0)
        && !config.keep_order
        && config.rate_trace.is_empty()
        && config.deliveries.is_none()
        && config.up
}

impl core::fmt::Debug for Link {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Link")
            .field("config", &self.config)
            .field("queue_len", &self.queue.len())
            .field("free_at", &self.free_at)
            .finish_non_exhaustive()
    }
}
