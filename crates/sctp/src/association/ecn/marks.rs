//! What is known of routers' marks.

use crate::Tsn;

/// State of the marks in both directions.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The highest TSN that arrived marked and that CWR has not covered.
    pub(super) seen: Option<Tsn>,
    /// The TSN of a CWR that is due because the window was reduced.
    pub(super) answer: Option<Tsn>,
    /// Marks up to this position belong to the last reduction of the window.
    pub(super) exit: u64,
    /// Whether the packet being written contains data.
    pub(crate) data: bool,
}
