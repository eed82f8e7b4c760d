//! The task that runs a stack: it receives packets, handles timeouts and sends packets.
//!
//! It is a task of the runtime and not a thread of its own: on a runtime of one thread a message
//! then goes from its sender's task into a packet, and from a packet to its reader's task, without a
//! switch of threads. A program that wants a thread for it creates a runtime in one. Users put messages
//! directly into the protocol and wake this task once for all of them, so the messages of one turn are
//! sent in one batch.

use super::carrier::{Carrier, Outgoing};
use super::core::{Core, Shared};
use super::host_events::read_icmp;
use super::opening::BoundSocket;
use ringway_os::Clock;
use ringway_sansio::{Endpoint, Time};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep};

/// Receive batches handled before the users' tasks get their turn.
const BATCHES_A_TURN: usize = 4;

/// Delay before packets are sent again for which the system had no room.
const RETRY: Duration = Duration::from_millis(1);

/// Delay before receiving again after an error.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) struct Driver<C> {
    shared: Arc<Shared>,
    carrier: C,
    clock: Clock,
    outgoing: Outgoing,
    sleep: Pin<Box<Sleep>>,
    /// The time at which `sleep` ends.
    armed: Option<Time>,
    /// The system had no room, and packets wait in `outgoing`.
    blocked: bool,
    /// Tasks that read events from the host; they end with this one.
    tasks: Vec<AbortHandle>,
}

impl<C: Carrier> Driver<C> {
    /// To be called within a runtime.
    pub(super) fn new(shared: Arc<Shared>, carrier: C, tasks: Vec<AbortHandle>) -> Self {
        let clock = shared.with(|core| core.clock);
        let sleep = Box::pin(sleep(Duration::ZERO));
        let outgoing = Outgoing::default();
        Driver { shared, carrier, clock, outgoing, sleep, armed: None, blocked: false, tasks }
    }

    /// Receives packets. Returns whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut errors = 0;
        for _ in 0..BATCHES_A_TURN {
            match self.carrier.poll_receive(cx) {
                Poll::Pending => return false,
                // On a socket: an ICMP message about an earlier packet, which is read elsewhere.
                Poll::Ready(Err(_)) => errors += 1,
                Poll::Ready(Ok(trains)) => {
                    let now = self.clock.now();
                    for train in 0..trains {
                        self.handle_train(now, train);
                    }
                    self.flush();
                }
            }
        }
        if errors == BATCHES_A_TURN {
            // A lasting error: a device that is down, and may come up again.
            self.pause(cx);
            return false;
        }
        true
    }

    /// Adds a socket that was opened for an address added later.
    fn admit(&mut self, bound: BoundSocket) {
        if let Some(ear) = self.carrier.admit(bound) {
            self.tasks.push(tokio::spawn(read_icmp(self.shared.clone(), ear)).abort_handle());
        }
    }

    /// Wakes the task to receive again after [`PAUSE`].
    fn pause(&self, cx: &Context<'_>) {
        let waker = cx.waker().clone();
        tokio::spawn(async move {
            sleep(PAUSE).await;
            waker.wake();
        });
    }

    /// Handles one train and collects the packets to send because of it, so that a batch of trains is not
    /// answered by a single acknowledgement.
    fn handle_train(&mut self, now: Time, train: usize) {
        let Driver { shared, carrier, outgoing, blocked, .. } = self;
        shared.with(|core| {
            carrier.packets(train, &mut |addressing, packet| {
                core.sctp.handle_packet(now, addressing, packet);
            });
            if !*blocked {
                fill(core, now, outgoing);
            }
            core.dispatch();
        });
        if outgoing.is_full() {
            self.flush();
        }
    }

    /// Sends the collected packets.
    fn flush(&mut self) {
        if self.outgoing.is_empty() {
            return;
        }
        self.blocked = !self.carrier.send(&mut self.outgoing);
        for (sent, icmp, quoted) in self.carrier.refused() {
            self.shared.with(|core| core.handle_icmp(&sent, icmp, &quoted));
        }
    }

    /// Sends until nothing is left to send.
    fn transmit(&mut self, now: Time) {
        loop {
            self.flush();
            if self.blocked {
                return;
            }
            let outgoing = &mut self.outgoing;
            self.shared.with(|core| {
                fill(core, now, outgoing);
                core.dispatch();
            });
            if self.outgoing.is_empty() {
                return;
            }
        }
    }

    /// Arms the timer for the next deadline. Returns whether that has passed already.
    fn arm(&mut self, now: Time, next: Option<Time>, cx: &mut Context<'_>) -> bool {
        if self.sleep.is_elapsed() {
            self.armed = None;
        }
        let retry = self.blocked.then(|| now + RETRY);
        let Some(next) = ringway_sansio::time::sooner(next, retry) else { return false };
        if self.armed.is_some_and(|armed| armed <= next) {
            return false;
        }
        self.sleep.as_mut().reset(Instant::from_std(self.clock.instant(next)));
        self.armed = Some(next);
        self.sleep.as_mut().poll(cx).is_ready()
    }
}

/// Collects packets until there are enough or no more.
fn fill(core: &mut Core, now: Time, outgoing: &mut Outgoing) {
    while !outgoing.is_full() {
        let start = outgoing.bytes.len();
        let Some(addressing) = core.sctp.poll_transmit(now, &mut outgoing.bytes) else { return };
        outgoing.packets.push((addressing, start..outgoing.bytes.len()));
    }
}

impl<C: Carrier + Unpin> Future for Driver<C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        let new = driver.shared.with(|core| {
            core.begin_turn(cx);
            core.take_locals()
        });
        for bound in new {
            driver.admit(bound);
        }
        let more = driver.receive(cx);
        let now = driver.clock.now();
        driver.shared.with(|core| {
            if core.next_timeout().is_some_and(|at| at <= now) {
                core.sctp.handle_timeout(now);
                core.dispatch();
                core.end_orphans(now);
            }
        });
        driver.transmit(now);
        let (traffic, sent) = (driver.carrier.traffic(), driver.outgoing.is_empty());
        let (next, over) = driver.shared.with(|core| {
            core.set_traffic(traffic);
            if sent {
                core.emptied();
            }
            (core.next_timeout(), core.released && core.sctp.is_empty())
        });
        if over && driver.outgoing.is_empty() {
            return Poll::Ready(());
        }
        if driver.arm(now, next, cx) || more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<C> Drop for Driver<C> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.with(Core::stop);
    }
}
