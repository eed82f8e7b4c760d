//! A time that may not be set, in no more memory than a time: very many neighbours are simulated.

use ringway_sansio::Time;

/// A time, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment(u64);

impl Moment {
    /// No time. It is in the year 2554 otherwise.
    pub(crate) const NONE: Moment = Moment(u64::MAX);

    /// Returns the time, if there is one.
    #[inline]
    pub(crate) fn get(self) -> Option<Time> {
        (self != Moment::NONE).then_some(Time::from_nanos(self.0))
    }

    /// Returns the time, which is `now` if there was none.
    #[inline]
    pub(crate) fn get_or_insert(&mut self, now: Time) -> Time {
        if *self == Moment::NONE {
            *self = now.into();
        }
        Time::from_nanos(self.0)
    }
}

impl From<Time> for Moment {
    #[inline]
    fn from(time: Time) -> Moment {
        Moment(time.as_nanos())
    }
}
