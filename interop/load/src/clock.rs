//! The three clocks of a measurement: the one that never jumps (schedules), the one the kernel
//! stamps datagrams with (delays), and the one that counts processor time (cost).

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub(crate) const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds in a microsecond.
pub(crate) const MICROSECOND: u64 = 1_000;

fn read(clock: ClockId) -> u64 {
    match clock_gettime(clock) {
        Ok(t) => nanoseconds(t.tv_sec(), t.tv_nsec()),
        // Only an unknown clock can fail, and every Linux has these three.
        Err(_) => 0,
    }
}

/// Seconds and nanoseconds as one number; a time before the epoch counts as the epoch.
pub(crate) fn nanoseconds(seconds: i64, rest: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0) * SECOND + u64::try_from(rest).unwrap_or(0)
}

/// Now, on the clock that schedules are kept by.
pub(crate) fn monotonic() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Now, on the clock the kernel stamps received datagrams with.
pub(crate) fn realtime() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// Processor time the calling thread has used so far.
pub(crate) fn thread_cpu() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until `deadline` on the monotonic clock. Returns at once when it is past.
pub(crate) fn sleep_until(deadline: u64) {
    let seconds = i64::try_from(deadline / SECOND).unwrap_or(i64::MAX);
    let rest = i64::try_from(deadline % SECOND).unwrap_or(0);
    let until = TimeSpec::new(seconds, rest);
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until)
        == Err(Errno::EINTR)
    {}
}

/// Asks the kernel to wake this thread on time rather than within its usual 50 us of slack.
pub(crate) fn wake_exactly() {
    // Refusal only makes the schedule a little later, and that is measured and reported.
    let _ = nix::sys::prctl::set_timerslack(1);
}
