//! The thread of states.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ringway_onesip::follow::{self, Carrier};
use ringway_os::ChaCha;
use ringway_sansio::Time;

use super::inbox::Received;
use super::{Parts, StateCounts};

/// Maximum time without a look at what is due.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// What carries the states, and what it needs of the world.
pub(super) struct Thread {
    parts: Parts,
    counts: Arc<StateCounts>,
    random: ChaCha,
    carrier: Carrier,
    dropped: u64,
}

impl Thread {
    pub(super) fn new(parts: Parts, counts: Arc<StateCounts>) -> io::Result<Self> {
        let (shared, location) = (parts.shared.clone(), parts.location.clone());
        let carrier = follow::carrier(&parts.domain, parts.id, shared, location);
        Ok(Thread { parts, counts, random: ChaCha::from_os()?, carrier, dropped: 0 })
    }

    pub(super) fn run(mut self) {
        loop {
            let now = self.parts.clock.now();
            let due = self.carrier.poll_timeout();
            let sleep = due.map_or(MAX_SLEEP, |due| due.since(now).min(MAX_SLEEP));
            let received = self.parts.inbox.wait(sleep);
            let (now, stop) = (self.parts.clock.now(), received.stop);
            self.receive(now, received);
            self.work(now);
            self.count();
            if stop {
                return;
            }
        }
    }

    fn receive(&mut self, now: Time, mut received: Received) {
        let (messages, dropped) = received.messages.take();
        self.dropped += dropped;
        for aor in &received.changed {
            if let Some((name, is_followed)) = self.carrier.changed(now, aor, None) {
                self.parts.inbox.follow(name, is_followed);
            }
        }
        for (name, routers) in received.located {
            self.carrier.located(now, &name, routers.as_deref());
        }
        for (router, octets) in messages {
            self.carrier.handle_message(now, router, &octets);
        }
    }

    fn work(&mut self, now: Time) {
        let Thread { parts, counts, carrier, random, .. } = self;
        let mut send = |command| {
            let is_sent = parts.commands.try_send(command).is_ok();
            if !is_sent {
                counts.unsent.fetch_add(1, Relaxed);
            }
            is_sent
        };
        carrier.work(now, random, &mut follow::Router(&mut send));
    }

    fn count(&self) {
        let counts = self.carrier.counts();
        self.counts.names.store(counts.names as u64, Relaxed);
        self.counts.followers.store(counts.followers as u64, Relaxed);
        self.counts.refused.store(counts.malformed + counts.refused + self.dropped, Relaxed);
    }
}
