//! The wires heal, everything arrives, the association ends, and nothing is left of it.

use crate::support::{ms, secs};
use crate::world::World;
use ringway_sansio::{Duration, Endpoint, Time};
use ringway_sctp::Close;

/// How long it may take until all has arrived, and as long again until all has ended. With timers that
/// have backed off to five seconds and a window closed for long, some minutes are needed.
const PATIENCE: Duration = Duration::from_secs(1200);
/// At first users look often, then now and then.
const OFTEN: Duration = Duration::from_secs(40);

/// How an association ends.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    /// A user aborts it.
    Abort,
    /// One user shuts down.
    One,
    /// Both do.
    Both,
}

impl World {
    pub fn heal(&mut self) {
        self.wires.heal();
        self.tell(|| "wires heal".to_owned());
    }

    /// In half of the runs everything arrives before anybody shuts down, and a user that waits to
    /// write hears that it can; in the others that is left to the shutdown.
    pub fn settle(&mut self) {
        if self.dice.chance(50) {
            return;
        }
        let start = self.now;
        while !self.is_settled() {
            assert!(self.now < start + PATIENCE, "does not settle: {}", self.status());
            self.look(start);
        }
    }

    /// Returns whether both ends have nothing in progress and no user that waits to write.
    fn is_settled(&self) -> bool {
        self.ends.iter().all(|end| {
            let Some(Ok(snapshot)) = end.id.map(|id| end.host.snapshot(id)) else { return true };
            snapshot.unacknowledged == 0 && snapshot.unread == 0 && !end.refused
        })
    }

    /// Both read, and a little time goes by.
    fn look(&mut self, start: Time) {
        for end in 0..2 {
            self.read(end, 1000);
        }
        self.run(if self.now < start + OFTEN { ms(20) } else { secs(1) });
    }

    pub fn end(&mut self) {
        let closer = self.dice.below(2) as usize;
        let ending = match self.dice.below(10) {
            0 => Ending::Abort,
            1..=7 => Ending::One,
            _ => Ending::Both,
        };
        let start = self.now;
        let mut asked = [false; 2];
        while !self.is_over() {
            assert!(self.now < start + PATIENCE, "does not end: {}", self.status());
            for end in [closer, 1 - closer] {
                let first = end == closer || ending == Ending::Both;
                if !asked[end] && (first || self.must_end_itself(ending, start)) {
                    asked[end] = self.close(end, ending == Ending::Abort && end == closer);
                }
            }
            self.look(start);
        }
        self.check(ending);
    }

    /// Where an ABORT was lost and the peer is silent, the local endpoint is not notified. After a
    /// crash of the peer, an association may exist at one end only. So its user shuts it down as well.
    fn must_end_itself(&self, ending: Ending, start: Time) -> bool {
        (ending == Ending::Abort || self.crashed) && self.now > start + OFTEN
    }

    /// Whether the user's wish to end was taken. While a crashed peer comes back an association may
    /// follow on the one that is shut down, so then it is wished again.
    fn close(&mut self, end: usize, abort: bool) -> bool {
        let Some(id) = self.ends[end].id else { return false };
        let now = self.clock(end);
        let host = &mut self.ends[end].host;
        let taken = if abort { host.abort(id, b"enough") } else { host.shutdown(now, id) };
        self.tell(|| format!("{end} ends it, abort {abort}: {taken:?}"));
        taken.is_ok() && !self.crashed
    }

    fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.host.is_empty()) && self.wires.is_empty()
    }

    fn check(&mut self, ending: Ending) {
        for end in &self.ends {
            assert_eq!(end.host.poll_timeout(), None, "a timer of nothing");
        }
        // What a host that has crashed had under way may have come or not, and an ABORT throws away
        // what is under way.
        if self.crashed || ending == Ending::Abort {
            return;
        }
        for end in 0..2 {
            assert!(self.ends[end].id.is_none() || self.ended_well(end), "{}", self.status());
        }
        // RFC 6525 section 5.2.4 G3: data in flight to the endpoint that requests a reset of everything
        // may be lost.
        if !self.everything {
            self.ledgers.iter().for_each(|ledger| ledger.check_whole());
        }
    }

    /// Whether an end was notified of a graceful shutdown. An end whose SHUTDOWN COMPLETE was lost may
    /// receive an ABORT without a cause instead: the answer of a host without the association to a late
    /// copy of another packet (RFC 9260 section 8.4 rule 8). Everything was delivered then.
    fn ended_well(&self, end: usize) -> bool {
        match &self.ends[end].closed {
            Some(Close::Finished) => true,
            Some(Close::Aborted { code: 0, .. }) => {
                self.ends[1 - end].closed == Some(Close::Finished)
            }
            _ => false,
        }
    }

    /// Returns the state of both ends, to investigate a failure.
    fn status(&self) -> String {
        let [a, b] = &self.ends;
        let stands = [a, b].map(|end| end.id.and_then(|id| end.host.snapshot(id).ok()));
        format!("ends {:?} and {:?}; {stands:?}", a.closed, b.closed)
    }
}
