//! Why media is not relayed.

/// The reason why a request cannot be forwarded with media that works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// No pair of ports is ready.
    NoPorts,
    /// The limit of all streams.
    Full,
    /// The share of the source.
    Share,
    /// The share of dialogs that nobody has answered.
    Unanswered,
    /// The limit of one dialog.
    TooMany,
}

impl Refusal {
    /// Returns the status to answer the request with: 488 if it can never be relayed, 503 if it can later.
    pub fn status(self) -> u16 {
        match self {
            Refusal::TooMany => 488,
            _ => 503,
        }
    }
}
