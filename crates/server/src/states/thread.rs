//! The thread of states.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ringway_directory::Command;
use ringway_directory::private::SERVICE_STATES;
use ringway_onesip::follow::{Event, Following};
use ringway_os::ChaCha;
use ringway_proxy::states::OTHER_SERVERS;
use ringway_sansio::Time;

use super::inbox::Received;
use super::{Parts, StateCounts};

/// Maximum time without a look at what is due.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// The machine, and what it needs of the world.
pub(super) struct Thread {
    parts: Parts,
    counts: Arc<StateCounts>,
    random: ChaCha,
    machine: Following,
    dropped: u64,
}

impl Thread {
    pub(super) fn new(parts: Parts, counts: Arc<StateCounts>) -> io::Result<Self> {
        let machine = Following::new(&parts.domain, parts.id);
        Ok(Thread { parts, counts, random: ChaCha::from_os()?, machine, dropped: 0 })
    }

    pub(super) fn run(mut self) {
        loop {
            let now = self.parts.clock.now();
            let due = self.machine.poll_timeout();
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

    fn receive(&mut self, now: Time, received: Received) {
        self.dropped += received.dropped;
        for aor in &received.changed {
            self.changed(now, aor);
        }
        for (name, routers) in received.located {
            self.machine.located(now, &name, routers.as_deref());
        }
        for (router, octets) in received.messages {
            self.machine.handle_message(now, router, &octets);
        }
    }

    /// A user is watched here or not any more, or has changed here.
    fn changed(&mut self, now: Time, aor: &[u8]) {
        let Some(name) = name_of(aor) else { return };
        let is_watched = self.parts.shared.states.is_watched(aor);
        if is_watched != self.machine.is_watched(name) {
            self.machine.set_watched(now, name, is_watched);
            self.parts.inbox.follow(name, self.machine.is_watched(name));
        }
        self.machine.changed(now, name);
    }

    /// Does what is due, and what the machine asks for.
    fn work(&mut self, now: Time) {
        if self.machine.poll_timeout().is_some_and(|due| due <= now) {
            let Parts { location, shared, .. } = &self.parts;
            let local = &mut |name: &str| {
                let aor = aor_of(name);
                let is_registered = location.lookup(&aor, now, &mut |_| {}) > 0;
                shared.states.local(now, &aor, is_registered)
            };
            self.machine.handle_timeout(now, local, &mut self.random);
        }
        while let Some(event) = self.machine.poll_event() {
            self.handle(now, event);
        }
    }

    fn handle(&mut self, now: Time, event: Event) {
        let Parts { location, shared, .. } = &self.parts;
        match event {
            Event::Send { to, octets } => {
                // What finds no room is repeated by the machine.
                self.send(Command::Send { to, service: SERVICE_STATES, octets });
            }
            Event::Locate { name } => {
                if !self.send(Command::Locate { name: name.clone() }) {
                    self.machine.located(now, &name, None);
                }
            }
            Event::Report { name, router, state } => {
                shared.states.set_elsewhere(&aor_of(&name), router.raw(), state);
            }
            Event::Watch { name } => {
                let aor = aor_of(&name);
                shared.states.watch(&aor, OTHER_SERVERS);
                location.watch(&aor, OTHER_SERVERS);
                self.machine.changed(now, &name);
            }
            Event::Unwatch { name } => {
                let aor = aor_of(&name);
                shared.states.unwatch(&aor, OTHER_SERVERS);
                location.unwatch(&aor, OTHER_SERVERS);
            }
        }
    }

    fn send(&self, command: Command) -> bool {
        let is_sent = self.parts.commands.try_send(command).is_ok();
        if !is_sent {
            self.counts.unsent.fetch_add(1, Relaxed);
        }
        is_sent
    }

    fn count(&self) {
        let counts = self.machine.counts();
        self.counts.names.store(counts.names as u64, Relaxed);
        self.counts.followers.store(counts.followers as u64, Relaxed);
        self.counts.refused.store(counts.malformed + counts.refused + self.dropped, Relaxed);
    }
}

fn aor_of(name: &str) -> Vec<u8> {
    format!("sip:{name}").into_bytes()
}

fn name_of(aor: &[u8]) -> Option<&str> {
    std::str::from_utf8(aor.strip_prefix(b"sip:")?).ok()
}
