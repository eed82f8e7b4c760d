//! What the server under test uses of the machine: processor time and memory of its processes, read
//! from `/proc` at the two ends of the measured window. Work the kernel does for a datagram within
//! a system call of the server is the server's; so is delivering to the receiver on loopback.

use std::fs;

use crate::clock;

/// Use of a set of processes up to one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// When it was read, monotonic nanoseconds.
    pub(crate) at: u64,
    /// Time on a processor, nanoseconds, exact.
    pub(crate) cpu: u64,
    /// Time ready to run while something else had the processor, nanoseconds, exact.
    pub(crate) waited: u64,
    /// Of the time on a processor, that in user mode, in the kernel's ticks; only the proportion is of use.
    pub(crate) user: u64,
    /// And in the kernel.
    pub(crate) system: u64,
    /// Resident memory, pages shared between processes divided among them, bytes.
    pub(crate) memory: u64,
}

impl Use {
    /// All ticks.
    pub(crate) fn ticks(&self) -> u64 {
        self.user + self.system
    }

    /// Reads the use of `processes`. A process that is not there uses nothing.
    pub(crate) fn of(processes: &[u32]) -> Self {
        let mut sum = Self { at: clock::monotonic(), ..Self::default() };
        for process in processes {
            let (cpu, waited) = threads_time(*process);
            sum.cpu += cpu;
            sum.waited += waited;
            let (user, system) = ticks(*process);
            sum.user += user;
            sum.system += system;
        }
        sum
    }

    /// The same with memory, which takes the kernel milliseconds to count.
    pub(crate) fn with_memory(processes: &[u32]) -> Self {
        let memory = processes.iter().map(|process| proportional_memory(*process)).sum();
        Self { memory, ..Self::of(processes) }
    }
}

/// The first two fields of every thread's schedstat: nanoseconds spent running, and ready to run.
fn threads_time(process: u32) -> (u64, u64) {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return (0, 0) };
    let mut sum = (0, 0);
    for thread in threads.flatten() {
        let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0));
        sum.0 += fields.next().unwrap_or(0);
        sum.1 += fields.next().unwrap_or(0);
    }
    sum
}

/// utime and stime: the 14th and 15th field of `stat`, counted after the name, which may itself
/// contain spaces and brackets.
fn ticks(process: u32) -> (u64, u64) {
    let Ok(text) = fs::read_to_string(format!("/proc/{process}/stat")) else { return (0, 0) };
    let Some((_, rest)) = text.rsplit_once(')') else { return (0, 0) };
    let mut fields = rest.split_ascii_whitespace().skip(11).map(|field| field.parse().unwrap_or(0));
    (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
}

fn proportional_memory(process: u32) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{process}/smaps_rollup")) else { return 0 };
    text.lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_this_process_work() {
        let me = [std::process::id()];
        let before = Use::with_memory(&me);
        let mut x = 1u64;
        for i in 0..20_000_000u64 {
            x = std::hint::black_box(x.wrapping_mul(i | 1));
        }
        let after = Use::of(&me);
        assert!(after.cpu > before.cpu + 1_000_000, "{before:?} {after:?}");
        assert!(before.memory > 100_000);
        assert_eq!(Use::of(&[u32::MAX]).cpu, 0);
    }
}
