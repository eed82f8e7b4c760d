//! Peers that acknowledge nothing: the check that ends their associations.

use ringway_sansio::CloseReason;
use ringway_sctp_tokio::Association;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Aborts an association whose end for this reason is not graceful.
pub(super) fn abort_after(association: &Association, reason: CloseReason) {
    if matches!(reason, CloseReason::SlowReader | CloseReason::HalfOpen | CloseReason::Broken) {
        let _ = association.abort(b"");
    }
}

/// The peer's progress at the last check. Part of a message counts: a large one takes long on a slow link.
#[derive(Default)]
struct Progress {
    /// Messages acknowledged.
    acknowledged: u64,
    /// Chunks sent for the first time; without acknowledgements their number stops growing.
    sent: u64,
    /// The minimum of the bytes in flight since one of these changed.
    min_in_flight: u32,
}

impl Progress {
    /// Notes the present counts. Returns whether there was progress.
    fn moves(&mut self, acknowledged: u64, sent: u64, in_flight: u32) -> bool {
        let further = (acknowledged, sent) != (self.acknowledged, self.sent);
        // Packets that count as lost are not in flight either, but that happens a limited number of times.
        let moves = further || in_flight < self.min_in_flight;
        if moves {
            *self = Progress { acknowledged, sent, min_in_flight: in_flight };
        }
        moves
    }
}

/// Checks that the peer acknowledges what was sent on its association. That is in the association's buffer and
/// no longer in a queue, however long the peer keeps its window closed.
#[derive(Default)]
pub(super) struct Acknowledgments {
    /// Number of SCTP messages sent.
    pub(super) sent: u64,
    progress: Progress,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Acknowledgments {
    /// Returns an error if nothing was acknowledged for one to three times `limit`, though something waited.
    pub(super) fn check(
        &mut self,
        association: &Association,
        limit: Duration,
        cx: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        if self.sent == self.progress.acknowledged {
            return Ok(());
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        while timer.as_mut().poll(cx).is_ready() {
            // An association that has ended has nothing that waits.
            let (waiting, sent, in_flight) = association.statistics().map_or((0, 0, 0), |s| {
                (s.unacknowledged as u64, s.totals.chunks_sent, s.outstanding)
            });
            let moves = self.progress.moves(self.sent.saturating_sub(waiting), sent, in_flight);
            if waiting == 0 {
                self.timer = None;
                break;
            }
            if !moves {
                return Err(CloseReason::SlowReader);
            }
            timer.as_mut().reset(Instant::now() + limit);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of many chunks over a slow link, then a peer that accepts no more.
    #[test]
    fn a_chunk_is_progress_and_a_chunk_sent_again_is_none() {
        let mut progress = Progress::default();
        // Chunks are sent as others arrive; then fewer and fewer are in flight.
        for (sent, in_flight) in [(4, 5600), (7, 5600), (10, 8400), (10, 4200), (10, 1400)] {
            assert!(progress.moves(0, sent, in_flight), "{sent} {in_flight}");
        }
        assert!(progress.moves(1, 12, 2800));
        assert!(progress.moves(1, 12, 0), "counted as lost");
        for in_flight in [1400, 0, 2800, 0] {
            assert!(!progress.moves(1, 12, in_flight), "sent again");
        }
    }
}
