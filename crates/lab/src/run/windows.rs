//! The windows of senders over time, for `ringway lab view`.
//!
//! They are sampled at equal intervals. When there are [`MAX_TICKS`] samples, every second one is dropped and the interval
//! doubles, so that a run of any length has between half of that and all of it.

use super::build::BuiltWorld;
use super::transport::Window;
use ringway_sansio::{Duration, Time};
use std::net::IpAddr;

/// Interval of the first samples.
const FIRST_EVERY: Duration = Duration::from_millis(1);
/// Maximum number of samples of a curve.
pub const MAX_TICKS: usize = 1 << 14;
/// Maximum number of flows, the first ones, whose windows are sampled.
pub const MAX_FLOWS: usize = 64;
/// Maximum number of curves: a flow has one for each path.
pub const MAX_CURVES: usize = 128;

/// The window of a flow on a path.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Number of the flow.
    pub flow: u32,
    /// Local address of the path, where a flow has several.
    pub path: Option<IpAddr>,
    /// A value for each tick, as far as the path existed.
    pub values: Vec<Option<Window>>,
}

/// All curves of a run.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// Interval between two ticks; the first is at zero.
    pub every: Duration,
    /// Number of ticks.
    pub ticks: usize,
    /// Curves.
    pub curves: Vec<Curve>,
    /// Time of the next tick; `None` if nothing is sampled.
    next: Option<Time>,
}

impl Windows {
    pub(super) fn new(wanted: bool) -> Self {
        Windows { every: FIRST_EVERY, next: wanted.then_some(Time::ZERO), ..Windows::default() }
    }

    /// Returns the time of the next sample.
    pub(super) fn next(&self) -> Time {
        self.next.unwrap_or(Time::from_nanos(u64::MAX))
    }

    /// Takes the samples that are due.
    pub(super) fn take(&mut self, now: Time, built: &BuiltWorld) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        if self.ticks >= MAX_TICKS {
            self.thin();
        }
        for (flow, running) in built.flows.iter().take(MAX_FLOWS).enumerate() {
            for window in running.windows(&built.world) {
                self.push(flow as u32, window);
            }
        }
        self.ticks += 1;
        self.next = Some(Time::ZERO + self.every * self.ticks as u32);
    }

    fn push(&mut self, flow: u32, window: Window) {
        let same = |c: &Curve| c.flow == flow && c.path == window.path;
        let index = self.curves.iter().position(same).or_else(|| {
            (self.curves.len() < MAX_CURVES).then(|| {
                self.curves.push(Curve { flow, path: window.path, values: Vec::new() });
                self.curves.len() - 1
            })
        });
        if let Some(index) = index {
            let values = &mut self.curves[index].values;
            values.resize(self.ticks, None);
            values.push(Some(window));
        }
    }

    fn thin(&mut self) {
        for curve in &mut self.curves {
            curve.values = curve.values.iter().copied().step_by(2).collect();
        }
        self.ticks = self.ticks.div_ceil(2);
        self.every *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thinned samples are those at multiples of the longer interval.
    #[test]
    fn every_second_sample_is_dropped() {
        let window = |cwnd| Window { path: None, cwnd, ssthresh: None, flight: 0.0, srtt: None };
        let mut all = Windows::new(true);
        for tick in 0..5 {
            // The flow has no window at first.
            if tick > 1 {
                all.push(0, window(f64::from(tick)));
            }
            all.ticks += 1;
        }
        all.thin();
        assert_eq!((all.ticks, all.every), (3, FIRST_EVERY * 2));
        let values: Vec<Option<f64>> =
            all.curves[0].values.iter().map(|v| v.map(|w| w.cwnd)).collect();
        assert_eq!(values, [None, Some(2.0), Some(4.0)]);
        assert!(Windows::new(false).next() > Time::from_nanos(u64::MAX - 1));
    }
}
