//! The thread of states.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ringway_follow::{Carrier, Whereabouts, World};
use ringway_net::Clock;
use ringway_os::ChaCha;
use ringway_sansio::Time;

use super::inbox::{Inbox, Received};
use super::{Link, StateCounts};

/// Maximum time without a look at what is due.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// What carries the states, and what it needs of the world.
pub(super) struct Thread<L: Link> {
    carrier: Carrier<L::Id>,
    link: L,
    inbox: Arc<Inbox<L::Id>>,
    clock: Clock,
    counts: Arc<StateCounts>,
    random: ChaCha,
    dropped: u64,
}

/// The way to other servers, now.
struct Way<'a, L> {
    link: &'a mut L,
    counts: &'a StateCounts,
    now: Time,
}

impl<L: Link> World<L::Id> for Way<'_, L> {
    fn send(&mut self, to: L::Id, octets: Box<[u8]>) {
        if !self.link.send(to, octets) {
            self.counts.unsent.fetch_add(1, Relaxed);
        }
    }

    fn locate(&mut self, name: &str) -> Whereabouts<L::Id> {
        self.link.locate(self.now, name)
    }
}

impl<L: Link> Thread<L> {
    pub(super) fn new(
        carrier: Carrier<L::Id>,
        link: L,
        inbox: Arc<Inbox<L::Id>>,
        clock: Clock,
        counts: Arc<StateCounts>,
    ) -> io::Result<Self> {
        Ok(Thread { carrier, link, inbox, clock, counts, random: ChaCha::from_os()?, dropped: 0 })
    }

    pub(super) fn run(mut self) {
        loop {
            let now = self.clock.now();
            let due = self.carrier.poll_timeout();
            let sleep = due.map_or(MAX_SLEEP, |due| due.since(now).min(MAX_SLEEP));
            let received = self.inbox.wait(sleep);
            let (now, stop) = (self.clock.now(), received.stop);
            self.receive(now, received);
            let Thread { carrier, link, counts, random, .. } = &mut self;
            carrier.work(now, random, &mut Way { link, counts, now });
            self.count();
            if stop {
                return;
            }
        }
    }

    fn receive(&mut self, now: Time, mut received: Received<L::Id>) {
        let (messages, dropped) = received.messages.take();
        self.dropped += dropped;
        if received.news.servers
            && let Some(alive) = self.link.alive()
        {
            let alive: BTreeSet<L::Id> = alive.into_iter().collect();
            self.carrier.retain(now, &|server| alive.contains(&server));
            // Users may be at those that have come.
            self.carrier.may_have_moved(now);
        }
        if received.news.gap {
            self.carrier.may_have_moved(now);
        }
        if received.news.lost {
            self.carrier.renew(now);
        }
        for (aor, why) in &received.changed {
            if let Some((name, is_followed)) = self.carrier.changed(now, aor, *why) {
                self.link.set_followed(name, is_followed);
            }
        }
        for id in received.answered {
            let Some((name, whereabouts)) = self.link.answered(now, id) else { continue };
            let servers = match whereabouts {
                Whereabouts::At(servers) => Some(servers),
                Whereabouts::Unknown | Whereabouts::Asked => None,
            };
            self.carrier.located(now, &name, servers.as_deref());
        }
        for (name, servers) in received.located {
            self.carrier.located(now, &name, servers.as_deref());
        }
        received.moved.iter().for_each(|aor| self.carrier.moved(now, aor));
        for (server, octets) in messages {
            self.carrier.handle_message(now, server, &octets);
        }
    }

    fn count(&self) {
        let counts = self.carrier.counts();
        self.counts.names.store(counts.names as u64, Relaxed);
        self.counts.followers.store(counts.followers as u64, Relaxed);
        self.counts.refused.store(counts.malformed + counts.refused + self.dropped, Relaxed);
    }
}
