//! The two ends: Ethernet interfaces or TUN devices. Each has a source, from which packets come, and a sink, to which they go;
//! they are used by different threads.

mod interface;
mod sink;
mod source;

pub(crate) use sink::Sink;
pub(crate) use source::Source;

use interface::{Attached, Use};
use ringway_os::tun::TunQueue;
use ringway_sansio::{Duration, Time};
use std::io;
use std::sync::Arc;

/// Age of a frame above which its time is not believed: the wall clock was set.
const MAX_AGE: Duration = Duration::from_secs(1);
/// The same for a time after that of the clocks.
const MAX_AHEAD: Duration = Duration::from_millis(10);

/// The reason for which packets are lost at an interface that is down, as it is reported.
const DOWN: &str = "interface down";
/// The same for one without a carrier.
const NO_CARRIER: &str = "no carrier";

/// What a turn of receiving has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The time up to which all arrivals are known.
    pub(crate) known: Time,
    /// More may be waiting.
    pub(crate) more: bool,
}

/// The time when a turn begins, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) now: Time,
    /// Since the UNIX epoch.
    pub(crate) wall: Duration,
}

impl Clocks {
    /// Returns the time at which the kernel has received a frame: before the clocks were read or, if the thread was
    /// interrupted, a moment after.
    fn time(&self, received: Option<Duration>) -> Time {
        let Some(received) = received else { return self.now };
        let (ahead, age) = (received.checked_sub(self.wall), self.wall.checked_sub(received));
        match (ahead, age) {
            (Some(ahead), _) if ahead <= MAX_AHEAD => self.now + ahead,
            (_, Some(age)) if age <= MAX_AGE => {
                Time::from_nanos(self.now.as_nanos().saturating_sub(age.as_nanos() as u64))
            }
            _ => self.now,
        }
    }
}

/// One end.
pub(crate) struct Port {
    pub(crate) source: Source,
    pub(crate) sink: Sink,
}

/// Opens an interface, which may be missing.
///
/// # Errors
/// The error of opening it, as when the process lacks CAP_NET_RAW.
pub(crate) fn interface(name: &str) -> io::Result<Port> {
    let source = Source::interface(Attached::open(name, Use::Receive)?);
    let attached = Attached::open(name, Use::Send)?;
    Ok(Port { source, sink: Sink::Interface { attached, has_no_carrier: false } })
}

/// Returns the end that is a TUN device.
pub(crate) fn tun(queue: TunQueue) -> Port {
    let queue = Arc::new(queue);
    Port { source: Source::tun(queue.clone()), sink: Sink::Tun(queue) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_came_after_the_clocks_were_read_has_its_own_time() {
        let clocks = Clocks { now: Time::from_secs(100), wall: Duration::from_secs(5_000) };
        let received = Some(Duration::from_millis(5_000_002));
        assert_eq!(clocks.time(received), Time::from_millis(100_002));
    }

    #[test]
    fn a_time_of_another_wall_clock_is_not_believed() {
        let now = Time::from_secs(100);
        let clocks = Clocks { now, wall: Duration::from_secs(5_000) };
        let at = |ms: u64| Some(Duration::from_millis(ms));
        assert_eq!(clocks.time(at(4_999_990)), Time::from_millis(99_990));
        for wrong in [None, at(5_000_011), at(4_998_000), at(0)] {
            assert_eq!(clocks.time(wrong), now);
        }
    }
}
