//! Whether a path is verified, and how well it works (RFC 9260 sections 5.4 and 8.2, RFC 7829).

use super::PathState;
use crate::settings::Settings;

/// How well an address answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    Active,
    PotentiallyFailed,
    Inactive,
}

impl Health {
    /// Returns what a number of errors means.
    fn after(errors: u32, settings: &Settings) -> Health {
        if errors > settings.path_max_retrans {
            Health::Inactive
        } else if settings.potentially_failed.is_some_and(|max| errors > max) {
            Health::PotentiallyFailed
        } else {
            Health::Active
        }
    }
}

/// The state of the peer's address, with its errors in a row. The count continues beyond the limits: of paths that all
/// failed, the one with the fewest errors is used.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reach {
    /// It is no longer the peer's, and the slot of the path is free.
    Gone,
    /// It is not verified.
    Unconfirmed { health: Health, errors: u32 },
    /// It is verified.
    Confirmed { health: Health, errors: u32 },
}

impl Reach {
    /// Returns the state of a new path.
    pub(super) fn new(confirmed: bool) -> Reach {
        let (health, errors) = (Health::Active, 0);
        match confirmed {
            true => Reach::Confirmed { health, errors },
            false => Reach::Unconfirmed { health, errors },
        }
    }

    #[inline]
    pub(super) fn state(self) -> PathState {
        match self {
            Reach::Gone | Reach::Unconfirmed { health: Health::Active, .. } => {
                PathState::Unconfirmed
            }
            Reach::Confirmed { health: Health::Active, .. } => PathState::Active,
            Reach::Unconfirmed { health: Health::PotentiallyFailed, .. }
            | Reach::Confirmed { health: Health::PotentiallyFailed, .. } => {
                PathState::PotentiallyFailed
            }
            Reach::Unconfirmed { health: Health::Inactive, .. }
            | Reach::Confirmed { health: Health::Inactive, .. } => PathState::Inactive,
        }
    }

    #[inline]
    pub(super) fn is_gone(self) -> bool {
        matches!(self, Reach::Gone)
    }

    #[inline]
    pub(super) fn is_confirmed(self) -> bool {
        matches!(self, Reach::Confirmed { .. })
    }

    /// Returns whether the address is verified and answers.
    #[inline]
    pub(super) fn is_active(self) -> bool {
        matches!(self, Reach::Confirmed { health: Health::Active, .. })
    }

    /// Notes that the address is verified. Returns whether it was not before.
    pub(super) fn confirm(&mut self) -> bool {
        let Reach::Unconfirmed { health, errors } = *self else { return false };
        *self = Reach::Confirmed { health, errors };
        true
    }

    /// Returns the errors in a row.
    pub(super) fn errors(self) -> u32 {
        match self {
            Reach::Gone => 0,
            Reach::Unconfirmed { errors, .. } | Reach::Confirmed { errors, .. } => errors,
        }
    }

    /// Counts an error. Returns whether the state has become worse.
    pub(super) fn error(&mut self, settings: &Settings) -> bool {
        let errors = self.errors().saturating_add(1);
        self.set(Health::after(errors, settings), errors)
    }

    /// Counts as many errors as it takes to fail.
    pub(super) fn fail(&mut self, settings: &Settings) {
        let errors = self.errors().max(settings.path_max_retrans.saturating_add(1));
        self.set(Health::Inactive, errors);
    }

    /// Ends the errors in a row.
    #[inline]
    pub(super) fn answered(&mut self) {
        self.set(Health::Active, 0);
    }

    /// Sets how well the address answers. Returns whether that is another state.
    #[inline]
    fn set(&mut self, new: Health, count: u32) -> bool {
        match self {
            Reach::Gone => false,
            Reach::Unconfirmed { health, errors } | Reach::Confirmed { health, errors } => {
                *errors = count;
                core::mem::replace(health, new) != new
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9260 section 8.2, RFC 7829 section 3.2.
    #[test]
    fn errors_in_a_row_make_a_path_worse() {
        let settings =
            Settings { path_max_retrans: 2, potentially_failed: Some(0), ..Settings::default() };
        let mut reach = Reach::new(true);
        assert!(reach.is_active());
        assert!(reach.error(&settings) && !reach.error(&settings) && reach.error(&settings));
        assert_eq!((reach.errors(), reach.state()), (3, PathState::Inactive));
        reach.answered();
        assert_eq!((reach.errors(), reach.state()), (0, PathState::Active));
        reach.fail(&settings);
        assert_eq!((reach.errors(), reach.state()), (3, PathState::Inactive));
    }

    /// RFC 9260 section 5.4.
    #[test]
    fn an_address_is_verified_once() {
        let mut reach = Reach::new(false);
        assert_eq!(reach.state(), PathState::Unconfirmed);
        assert!(!reach.is_confirmed() && reach.confirm() && !reach.confirm() && reach.is_active());
        let mut reach = Reach::Gone;
        assert!(reach.is_gone() && !reach.confirm() && !reach.error(&Settings::default()));
    }
}
