//! The numbers under which the transport reports messages that could not be sent.
//!
//! The [`Outbox`](ringway_sansio::Outbox) has a plain number for each message. Its meaning is written and read here
//! alone.

/// The bits of a transaction's id in a report.
pub(super) const CHECK: u32 = 0x3fff_ffff;

/// The position of the kind: never 0, because the number 0 asks for no report.
const KIND: u32 = 62;

/// The subject of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// A request of a client transaction.
    Client {
        /// Its index in the table.
        index: u32,
        /// 30 bits of its name.
        check: u32,
    },
    /// A response of a server transaction.
    Server {
        /// Its index in the table.
        index: u32,
        /// 30 bits of its name.
        check: u32,
    },
    /// A message that the transaction user has sent without a transaction, by a number of its own.
    User(u32),
}

impl Report {
    /// Returns the report as a number for the outbox.
    pub fn to_u64(self) -> u64 {
        let (kind, check, index) = match self {
            Report::Client { index, check } => (1, check, index),
            Report::Server { index, check } => (2, check, index),
            Report::User(number) => (3, 0, number),
        };
        kind << KIND | u64::from(check & CHECK) << 32 | u64::from(index)
    }

    /// Parses the result of [`Report::to_u64`]; returns `None` for any other number.
    pub fn from_u64(number: u64) -> Option<Report> {
        let (check, index) = ((number >> 32) as u32 & CHECK, number as u32);
        match (number >> KIND, check) {
            (1, _) => Some(Report::Client { index, check }),
            (2, _) => Some(Report::Server { index, check }),
            (3, 0) => Some(Report::User(index)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_report_reads_back(index: u32, check in 0..=CHECK) {
            let reports =
                [Report::Client { index, check }, Report::Server { index, check }, Report::User(index)];
            for report in reports {
                prop_assert_ne!(report.to_u64(), 0);
                prop_assert_eq!(Report::from_u64(report.to_u64()), Some(report));
            }
        }

        #[test]
        fn a_number_that_means_nothing_is_none(number: u64) {
            prop_assert!(Report::from_u64(number).is_none_or(|report| report.to_u64() == number));
        }
    }
}
