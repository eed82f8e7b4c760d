//! The tasks that run a stack: they receive packets, handle timeouts and send packets.
//!
//! A stack has as many as its runtime has threads, if its packets can be divided among them, each with sockets and
//! associations of its own. They are tasks of the runtime and not threads of their own: on a runtime of one thread a
//! message then goes from its sender's task into a packet, and from a packet to its reader's task, without a
//! switch of threads. A program that wants a thread for it creates a runtime in one. Users put messages
//! directly into the protocol and wake the task once for all of them, so the messages of one turn are
//! sent in one batch.

use super::carrier::Carrier;
use super::core::{Shared, wake};
use super::host_events::read_icmp;
use super::opening::BoundSocket;
use super::runner::Runner;
use ringway_os::{ChaCha, Clock};
use ringway_sansio::{Addressing, Time};
use smallvec::SmallVec;
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

/// Packets of a train that are handled without an allocation: as many as a train has at most.
const TRAIN: usize = 64;

pub(super) struct Driver<C> {
    shared: Arc<Shared>,
    /// Its number among the drivers of the stack.
    number: usize,
    carrier: C,
    runner: Runner,
    clock: Clock,
    sleep: Pin<Box<Sleep>>,
    /// The time at which `sleep` ends.
    armed: Option<Time>,
    /// Tasks that read events from the host; they end with this one.
    tasks: Vec<AbortHandle>,
}

impl<C: Carrier> Driver<C> {
    /// To be called within a runtime.
    pub(super) fn new(
        shared: Arc<Shared>,
        number: usize,
        carrier: C,
        random: ChaCha,
        tasks: Vec<AbortHandle>,
    ) -> Self {
        let clock = shared.clock;
        let runner = Runner::new(shared.clone(), number, random);
        let sleep = Box::pin(sleep(Duration::ZERO));
        Driver { shared, number, carrier, runner, clock, sleep, armed: None, tasks }
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
                    self.runner.flush(now, &mut self.carrier);
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
        let mut packets: SmallVec<[(Addressing, &[u8]); TRAIN]> = SmallVec::new();
        self.carrier.packets(train, &mut |addressing, packet| packets.push((addressing, packet)));
        self.runner.handle_train(now, &packets);
        drop(packets);
        if self.runner.is_full() {
            self.runner.flush(now, &mut self.carrier);
        }
    }

    /// Arms the timer for the next deadline. Returns whether that has passed already.
    fn arm(&mut self, now: Time, cx: &mut Context<'_>) -> bool {
        if self.sleep.is_elapsed() {
            self.armed = None;
        }
        let retry = self.runner.is_blocked().then(|| now + RETRY);
        let next = ringway_sansio::time::sooner(self.runner.next_timeout(), retry);
        let Some(next) = next else { return false };
        if self.armed.is_some_and(|armed| armed <= next) {
            return false;
        }
        self.sleep.as_mut().reset(Instant::from_std(self.clock.instant(next)));
        self.armed = Some(next);
        self.sleep.as_mut().poll(cx).is_ready()
    }
}

impl<C: Carrier + Unpin> Future for Driver<C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        let inbox = driver.shared.inbox(driver.number).clone();
        let mut waiting = inbox.begin_turn(cx);
        driver.runner.take(&mut waiting);
        for bound in waiting.sockets {
            driver.admit(bound);
        }
        let more = driver.receive(cx);
        let now = driver.clock.now();
        driver.runner.handle_timeouts(now);
        driver.runner.send_all(now, &mut driver.carrier);
        let (traffic, received) = (driver.carrier.traffic(), driver.runner.received());
        let emptied = driver.runner.is_empty();
        wake(inbox.end_turn(traffic, received, emptied));
        // The final chunk of the last association may have been queued in this turn.
        if emptied && driver.shared.is_over() && inbox.is_empty() {
            return Poll::Ready(());
        }
        if driver.arm(now, cx) || more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<C> Drop for Driver<C> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.stop(self.number);
    }
}
