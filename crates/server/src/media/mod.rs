//! The relay of media (`ringway-media`) on real sockets.
//!
//! Workers call [`SharedRelay`] under a lock that is held for one message. What is agreed is carried out by one thread,
//! which owns the sockets, binds ports ahead of use, and forwards (`thread.rs`). The commands wait in the relay, one for each
//! stream, so that a worker never waits for the thread, and the queue cannot grow beyond what is relayed.

mod sockets;
mod thread;

use nix::sys::eventfd::{EfdFlags, EventFd};
use ringway_media::{
    Config, Counters, Forwarded, MediaRelay, PacketCounters, Refusal, Relay, Tables,
};
use ringway_os::Clock;
use ringway_sansio::Time;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What is known of the relay at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// What was relayed and refused.
    pub relay: Counters,
    /// What is relayed now.
    pub tables: Tables,
    /// What happened to packets.
    pub packets: PacketCounters,
    /// Packets that the system refused to send.
    pub not_sent: u64,
}

/// Counters of the thread, as it last published them.
#[derive(Default, Debug)]
struct Published {
    packets: [AtomicU64; 7],
    not_sent: AtomicU64,
}

impl Published {
    fn publish(&self, packets: &PacketCounters) {
        let PacketCounters {
            forwarded,
            octets,
            no_stream,
            stranger,
            wrong_address,
            rate,
            no_destination,
        } = *packets;
        let all = [forwarded, octets, no_stream, stranger, wrong_address, rate, no_destination];
        for (slot, value) in self.packets.iter().zip(all) {
            slot.store(value, Ordering::Relaxed);
        }
    }

    fn add_not_sent(&self, count: u64) {
        if count > 0 {
            self.not_sent.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn read(&self) -> (PacketCounters, u64) {
        let load = |slot: &AtomicU64| slot.load(Ordering::Relaxed);
        let [forwarded, octets, no_stream, stranger, wrong_address, rate, no_destination] =
            self.packets.each_ref().map(load);
        let packets = PacketCounters {
            forwarded,
            octets,
            no_stream,
            stranger,
            wrong_address,
            rate,
            no_destination,
        };
        (packets, load(&self.not_sent))
    }
}

/// The relay as workers and the thread share it.
pub struct SharedRelay {
    relay: Mutex<Relay>,
    wake: EventFd,
    /// Whether the thread has been woken and has not looked yet.
    woken: AtomicBool,
    stop: AtomicBool,
    published: Published,
}

impl SharedRelay {
    fn new(relay: Relay) -> io::Result<SharedRelay> {
        Ok(SharedRelay {
            relay: Mutex::new(relay),
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            woken: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            published: Published::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Relay> {
        self.relay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread, unless it is about to look anyway.
    fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            // The counter of an event cannot be full after one.
            let _ = self.wake.write(1);
        }
    }

    /// Calls the relay, and wakes the thread if there is something for it to do.
    fn call<R>(&self, f: impl FnOnce(&mut Relay) -> R) -> R {
        let mut relay = self.lock();
        let before = relay.tables();
        let result = f(&mut relay);
        let after = relay.tables();
        drop(relay);
        if after.commands > 0 || after.ready != before.ready {
            self.wake();
        }
        result
    }

    /// Replaces the configuration, except the ports and the rate.
    pub fn reconfigure(&self, config: Config) {
        self.lock().reconfigure(config);
    }

    /// Returns what is known now.
    pub fn snapshot(&self) -> Snapshot {
        let relay = self.lock();
        let (relay, tables) = (*relay.counters(), relay.tables());
        let (packets, not_sent) = self.published.read();
        Snapshot { relay, tables, packets, not_sent }
    }
}

impl MediaRelay for SharedRelay {
    fn request(&self, now: Time, request: &Forwarded<'_>) -> Result<Option<Vec<u8>>, Refusal> {
        self.call(|relay| relay.request(now, request))
    }

    fn response(&self, now: Time, response: &Forwarded<'_>) -> Option<Vec<u8>> {
        self.call(|relay| relay.response(now, response))
    }

    fn ended(&self, branch: u64) {
        self.call(|relay| relay.ended(branch));
    }
}

/// A running relay. Dropping it ends the thread and closes the sockets.
pub struct Media {
    shared: Arc<SharedRelay>,
    thread: Option<JoinHandle<()>>,
}

impl Media {
    /// Binds the first ports and starts the thread. `key` must be secret.
    ///
    /// # Errors
    /// Fails when the system has no descriptors or random numbers, or when no port can be bound in either family.
    pub fn start(config: Config, key: [u8; 16], clock: Clock) -> io::Result<Media> {
        let (ports, rate) = (config.ports.clone(), config.rate);
        let shared = Arc::new(SharedRelay::new(Relay::new(config, key, clock.now()))?);
        let mut thread = thread::Thread::new(shared.clone(), &ports, rate, clock)?;
        thread.bind_ports();
        let [v4, v6] = shared.lock().tables().ready;
        if v4 == 0 && v6 == 0 {
            let text =
                format!("no port of {}-{} can be bound for media", ports.start(), ports.end());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        let thread =
            std::thread::Builder::new().name("media".into()).spawn(move || thread.run())?;
        Ok(Media { shared, thread: Some(thread) })
    }

    /// Returns the relay for workers to call.
    pub fn relay(&self) -> Arc<SharedRelay> {
        self.shared.clone()
    }
}

impl Drop for Media {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = self.shared.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
