//! After everything was read: which users are gone, and whether that can be believed.
//!
//! A row that is absent may have been removed, or the database may be a wrong one, an empty one, or restored from an old
//! copy. Its users must not all be refused then. So users are removed when the database has noted their removal, or when
//! few are missing and more are left; otherwise they stay until the database has them again, or an operator confirms. Users
//! who stay are not judged again: a database to which users are added one by one has few missing ones in the end.

/// Number of users that may always be missing.
pub const FEW: usize = 10;

/// The part of all users that may be missing: one of so many.
pub const PART: usize = 4;

/// What was found when everything was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Complete {
    /// Users that were known before.
    pub known: usize,
    /// Rows that are users.
    pub found: usize,
    /// Users that were known and are not among the rows, without those who stay since an earlier read.
    pub missing: usize,
    /// Those of them whose removal the database has noted.
    pub noted: usize,
    /// Whether an operator has confirmed that users are gone.
    pub confirmed: bool,
}

/// What becomes of missing users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All are removed.
    Removed,
    /// Those whose removal was noted are removed; so many others stay.
    Withheld(usize),
}

impl Complete {
    /// Decides what becomes of missing users.
    pub fn outcome(&self) -> Outcome {
        let unexplained = self.missing.saturating_sub(self.noted);
        let allowed = FEW.max(self.known / PART);
        let is_likely = unexplained <= allowed && unexplained <= self.found;
        match unexplained == 0 || self.confirmed || is_likely {
            true => Outcome::Removed,
            false => Outcome::Withheld(unexplained),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(known: usize, found: usize, missing: usize, noted: usize) -> Outcome {
        Complete { known, found, missing, noted, confirmed: false }.outcome()
    }

    #[test]
    fn few_missing_users_are_removed() {
        assert_eq!(outcome(100, 100, 0, 0), Outcome::Removed);
        assert_eq!(outcome(20, 10, 10, 0), Outcome::Removed);
        assert_eq!(outcome(2, 1, 1, 0), Outcome::Removed);
        assert_eq!(outcome(100, 75, 25, 0), Outcome::Removed);
    }

    #[test]
    fn many_missing_users_stay() {
        assert_eq!(outcome(100, 74, 26, 0), Outcome::Withheld(26));
        assert_eq!(outcome(12, 1, 11, 0), Outcome::Withheld(11));
        // More than there are left.
        assert_eq!(outcome(12, 2, 10, 0), Outcome::Withheld(10));
        assert_eq!(outcome(9, 1, 8, 0), Outcome::Withheld(8));
        // Another table altogether.
        assert_eq!(outcome(1000, 5000, 1000, 0), Outcome::Withheld(1000));
    }

    #[test]
    fn an_empty_table_removes_nobody() {
        assert_eq!(outcome(1, 0, 1, 0), Outcome::Withheld(1));
        assert_eq!(outcome(1_000_000, 0, 1_000_000, 0), Outcome::Withheld(1_000_000));
        assert_eq!(outcome(0, 0, 0, 0), Outcome::Removed);
    }

    #[test]
    fn noted_removals_are_believed() {
        assert_eq!(outcome(100, 1, 99, 99), Outcome::Removed);
        assert_eq!(outcome(2, 0, 2, 2), Outcome::Removed);
        assert_eq!(outcome(100, 1, 99, 60), Outcome::Withheld(39));
    }

    #[test]
    fn a_confirmed_loss_is_believed() {
        let complete = Complete { known: 100, found: 0, missing: 100, noted: 0, confirmed: true };
        assert_eq!(complete.outcome(), Outcome::Removed);
    }
}
