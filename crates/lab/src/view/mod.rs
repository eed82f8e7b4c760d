//! `ringway lab view`: a run as one self-contained page, with an animation of its packets and plots of its flows.
//!
//! A run writes its [`network`] as JSON and its packets and windows as [`tables`]. [`mod@read`] reads and checks them, and
//! [`mod@page`] packs them into a page with the program in `page/`, which draws them. Read `docs/lab-view.md` for the columns.

mod layout;
pub mod network;
mod pack;
pub mod page;
pub mod read;
pub mod tables;

/// Name of the page.
pub const PAGE: &str = "view.html";

/// Reason why a run cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {what}")]
pub struct ViewError {
    /// Name of the file in the folder.
    pub file: &'static str,
    /// What was expected, and what is there.
    pub what: String,
}

impl ViewError {
    fn network(what: String) -> Self {
        ViewError { file: network::FILE, what }
    }
}

#[cfg(test)]
mod tests;
