//! What one worker collects for others until its batch is done.

use crate::mail::{Carry, Report};
use ringway_sansio::Target;

pub(crate) struct HandOver {
    worker: u8,
    /// Messages for each of the other workers.
    carries: Vec<Option<Box<Carry>>>,
    /// Messages of other workers that could not be sent.
    failed: Vec<Report>,
}

impl HandOver {
    pub(crate) fn new(worker: u8, workers: usize) -> Self {
        HandOver { worker, carries: (0..workers).map(|_| None).collect(), failed: Vec::new() }
    }

    /// Takes a message for another worker. Returns `false` if there is no such worker.
    pub(crate) fn push(
        &mut self,
        worker: u8,
        target: Target,
        bytes: &[u8],
        report: Report,
    ) -> bool {
        if worker == self.worker {
            return false;
        }
        let Some(slot) = self.carries.get_mut(usize::from(worker)) else { return false };
        slot.get_or_insert_default().push(target, bytes, report);
        true
    }

    /// Removes and returns the messages for a worker.
    pub(crate) fn take(&mut self, worker: usize) -> Option<Box<Carry>> {
        self.carries.get_mut(worker)?.take()
    }

    pub(crate) fn workers(&self) -> usize {
        self.carries.len()
    }

    /// Takes the report of a message of another worker that could not be sent.
    pub(crate) fn fail(&mut self, report: Report) {
        if report.number != 0 {
            self.failed.push(report);
        }
    }

    /// Removes and returns the reports for each other worker.
    pub(crate) fn take_failed(&mut self) -> Vec<(u8, Vec<u64>)> {
        let failed = std::mem::take(&mut self.failed);
        self.by_worker(&failed)
    }

    /// Sorts reports by the other workers that they are for.
    pub(crate) fn by_worker(&self, reports: &[Report]) -> Vec<(u8, Vec<u64>)> {
        let mut sorted: Vec<(u8, Vec<u64>)> = Vec::new();
        for report in reports.iter().filter(|r| r.worker != self.worker && r.number != 0) {
            match sorted.iter_mut().find(|(worker, _)| *worker == report.worker) {
                Some((_, numbers)) => numbers.push(report.number),
                None => sorted.push((report.worker, vec![report.number])),
            }
        }
        sorted
    }
}
