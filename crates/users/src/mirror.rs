//! When a server connects with the database, and when it reads everything or only changes.
//!
//! Everything is read after each connection, since changes may have been lost before it, and at an interval. Between,
//! changes are read when the database reports one, and at a short interval in case a report was lost.

use ringway_sansio::{Duration, Time};

/// Interval at which changes are read without a report.
pub const POLL: Duration = Duration::from_secs(5);
/// Interval at which everything is read where changes have numbers.
pub const COMPLETE: Duration = Duration::from_secs(3600);
/// Shortest time between two reads for reports. The first report after a pause is not delayed.
pub const REPORT_PAUSE: Duration = Duration::from_millis(50);
/// Time after a failure before the database is tried again: the first one and the longest one.
pub const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// The number of the last change that was read.
pub type Position = i64;

/// How changes become known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// By their numbers.
    Changes,
    /// By reading everything at this interval.
    Everything(Duration),
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Connect.
    Connect,
    /// Read everything.
    ReadAll,
    /// Read the changes after this one.
    ReadChanges(Position),
}

/// The next thing to do, or the time until which there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Do this, and report its result.
    Do(Step),
    /// Wait.
    Wait(Time),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    /// There is no connection before this time.
    Down(Time),
    Up,
}

/// What one server has read, and when it reads next.
#[derive(Clone, Debug)]
pub struct Mirror {
    follow: Follow,
    link: Link,
    /// Time before the next attempt, if that one fails.
    pause: Duration,
    /// `None` until everything was read on this connection.
    position: Option<Position>,
    /// When everything was read last, on any connection.
    complete: Option<Time>,
    /// When anything was read last.
    refreshed: Option<Time>,
    /// Whether the last read succeeded.
    present: bool,
    /// Whether there was a report since the last read began.
    reported: bool,
    /// Whether the last read ended before all changes were read.
    more: bool,
    /// Whether everything is to be read as soon as possible.
    asked: bool,
    outages: u64,
}

impl Mirror {
    /// Returns a mirror that has read nothing, and connects at `now`.
    pub fn new(follow: Follow, now: Time) -> Self {
        Mirror {
            follow,
            link: Link::Down(now),
            pause: RETRY.0,
            position: None,
            complete: None,
            refreshed: None,
            present: false,
            reported: false,
            more: false,
            asked: false,
            outages: 0,
        }
    }

    /// Returns what is to be done.
    pub fn next(&self, now: Time) -> Next {
        let due = match (self.link, self.position, self.refreshed, self.complete) {
            (Link::Down(until), ..) => {
                return if until <= now { Next::Do(Step::Connect) } else { Next::Wait(until) };
            }
            (Link::Up, Some(position), Some(refreshed), Some(complete)) if !self.asked => {
                let (all, changes) = match self.follow {
                    Follow::Everything(interval) => (complete + interval, None),
                    Follow::Changes => {
                        let wait = match (self.more, self.reported) {
                            (true, _) => Duration::ZERO,
                            (false, true) => REPORT_PAUSE,
                            (false, false) => POLL,
                        };
                        (complete + COMPLETE, Some((position, refreshed + wait)))
                    }
                };
                if all <= now {
                    return Next::Do(Step::ReadAll);
                }
                match changes {
                    Some((position, due)) if due <= now => {
                        return Next::Do(Step::ReadChanges(position));
                    }
                    Some((_, due)) => due.min(all),
                    None => all,
                }
            }
            (Link::Up, ..) => return Next::Do(Step::ReadAll),
        };
        Next::Wait(due)
    }

    /// There is a connection, and changes are reported from now on.
    pub fn connected(&mut self) {
        self.link = Link::Up;
        self.position = None;
    }

    /// The database has reported a change.
    pub fn report(&mut self) {
        self.reported = true;
    }

    /// Everything is to be read, as soon as there is a connection.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// A read begins: what is reported from now on is not in it.
    pub fn begin(&mut self) {
        self.reported = false;
        self.asked = false;
    }

    /// Everything was read, up to `position`.
    pub fn read_all(&mut self, now: Time, position: Position) {
        self.complete = Some(now);
        self.more = false;
        self.read(now, position);
    }

    /// Changes were read, up to `position`. With `more`, others follow at once.
    pub fn read_changes(&mut self, now: Time, position: Position, more: bool) {
        self.read(now, position);
        self.more = more;
    }

    fn read(&mut self, now: Time, position: Position) {
        self.position = Some(position);
        self.refreshed = Some(now);
        self.present = true;
        self.pause = RETRY.0;
    }

    /// The connection is lost, or a step has failed. Returns whether the database counts as absent only since then.
    pub fn failed(&mut self, now: Time) -> bool {
        self.link = Link::Down(now + self.pause);
        self.pause = (self.pause * 2).min(RETRY.1);
        self.position = None;
        let was_present = std::mem::replace(&mut self.present, false);
        self.outages += u64::from(was_present);
        was_present
    }

    /// Returns whether the last read succeeded.
    pub fn is_present(&self) -> bool {
        self.present
    }

    /// Returns when anything was read last.
    pub fn refreshed(&self) -> Option<Time> {
        self.refreshed
    }

    /// Returns how many times the database has become absent.
    pub fn outages(&self) -> u64 {
        self.outages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Time = Time::from_secs(1_000);

    fn up(follow: Follow) -> Mirror {
        let mut mirror = Mirror::new(follow, START);
        assert_eq!(mirror.next(START), Next::Do(Step::Connect));
        mirror.connected();
        assert_eq!(mirror.next(START), Next::Do(Step::ReadAll));
        mirror.begin();
        mirror.read_all(START, 7);
        mirror
    }

    #[test]
    fn a_report_is_followed_at_once_and_many_together() {
        let mut mirror = up(Follow::Changes);
        assert_eq!(mirror.next(START), Next::Wait(START + POLL));
        let later = START + Duration::from_secs(1);
        mirror.report();
        assert_eq!(mirror.next(later), Next::Do(Step::ReadChanges(7)));
        mirror.begin();
        mirror.report();
        mirror.report();
        mirror.read_changes(later, 9, false);
        // What was reported during the read may not be in it.
        assert_eq!(mirror.next(later), Next::Wait(later + REPORT_PAUSE));
        assert_eq!(mirror.next(later + REPORT_PAUSE), Next::Do(Step::ReadChanges(9)));
    }

    #[test]
    fn changes_are_read_without_a_report_too() {
        let mut mirror = up(Follow::Changes);
        assert_eq!(mirror.next(START + POLL), Next::Do(Step::ReadChanges(7)));
        mirror.begin();
        mirror.read_changes(START + POLL, 7, false);
        assert_eq!(mirror.next(START + COMPLETE), Next::Do(Step::ReadAll));
    }

    #[test]
    fn everything_is_read_after_each_connection() {
        let mut mirror = up(Follow::Changes);
        let now = START + Duration::from_secs(3);
        assert!(mirror.failed(now));
        assert!(!mirror.is_present());
        assert_eq!(mirror.next(now), Next::Wait(now + RETRY.0));
        assert_eq!(mirror.next(now + RETRY.0), Next::Do(Step::Connect));
        mirror.connected();
        assert_eq!(mirror.next(now + RETRY.0), Next::Do(Step::ReadAll));
        assert_eq!((mirror.outages(), mirror.refreshed()), (1, Some(START)));
    }

    #[test]
    fn an_absent_database_is_tried_again_less_often() {
        let mut mirror = Mirror::new(Follow::Changes, START);
        let mut now = START;
        for pause in [500, 1000, 2000, 4000, 5000, 5000] {
            // A connection alone is no success: the tables may be absent.
            mirror.connected();
            assert!(!mirror.failed(now));
            let due = now + Duration::from_millis(pause);
            assert_eq!(mirror.next(now), Next::Wait(due));
            now = due;
        }
        assert_eq!(mirror.outages(), 0);
        mirror.connected();
        mirror.read_all(now, 0);
        assert!(mirror.failed(now));
        assert_eq!(mirror.next(now), Next::Wait(now + RETRY.0));
    }

    #[test]
    fn a_table_without_numbers_is_read_at_an_interval() {
        let interval = Duration::from_secs(30);
        let mut mirror = up(Follow::Everything(interval));
        mirror.report();
        assert_eq!(mirror.next(START), Next::Wait(START + interval));
        assert_eq!(mirror.next(START + interval), Next::Do(Step::ReadAll));
        mirror.ask();
        assert_eq!(mirror.next(START), Next::Do(Step::ReadAll));
        mirror.begin();
        mirror.read_all(START, 0);
        assert_eq!(mirror.next(START), Next::Wait(START + interval));
    }

    #[test]
    fn a_full_page_of_changes_is_followed_by_the_next() {
        let mut mirror = up(Follow::Changes);
        mirror.begin();
        mirror.read_changes(START, 1_000, true);
        assert_eq!(mirror.next(START), Next::Do(Step::ReadChanges(1_000)));
    }

    proptest! {
        /// A database with numbered changes, whose connection fails at any step and whose reports may be lost.
        #[test]
        fn no_change_is_missed_and_none_is_waited_for_longer_than_the_interval(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0u64..3_000, 0u8..10), 1..200)
        ) {
            let (mut mirror, mut now, mut number) = (Mirror::new(Follow::Changes, START), START, 0);
            // What this server knows, and since when there is something that it does not know.
            let (mut known, mut connected, mut unknown_since) = (None, false, None);
            for (is_reported, changes, pass, luck) in steps {
                if changes {
                    number += 1;
                    unknown_since.get_or_insert(now);
                    if is_reported && connected {
                        mirror.report();
                    }
                }
                now += Duration::from_millis(pass);
                while let Next::Do(step) = mirror.next(now) {
                    if luck == 0 {
                        mirror.failed(now);
                        (known, connected) = (None, false);
                        break;
                    }
                    match step {
                        Step::Connect => {
                            mirror.connected();
                            connected = true;
                            continue;
                        }
                        // All that came before is read, also what was not reported.
                        Step::ReadAll => {
                            mirror.begin();
                            mirror.read_all(now, number);
                        }
                        Step::ReadChanges(after) => {
                            prop_assert_eq!(Some(after), known, "changes are read without what came before");
                            mirror.begin();
                            mirror.read_changes(now, number, false);
                        }
                    }
                    (known, unknown_since) = (Some(number), None);
                }
                if let Next::Wait(until) = mirror.next(now) {
                    let longest = if known.is_some() { POLL } else { RETRY.1 };
                    prop_assert!(until > now && until <= now + longest);
                }
                if let (Some(since), true) = (unknown_since, known.is_some()) {
                    prop_assert!(now.since(since) < POLL + Duration::from_secs(3));
                }
            }
        }
    }
}
