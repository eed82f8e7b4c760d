//! What the laboratory shows: numbers with their intervals, long tables, charts and reports.
//!
//! Four modules that need nothing of the other rooms and know nothing of networks: [`statistics`]
//! turns observations into estimates, [`table`] keeps rows on disk, [`chart`] draws, and [`report`]
//! puts words, numbers and drawings on one page. There is no clock here and no chance: where numbers
//! are drawn, the seed is an argument, and the same input gives the same bytes.
//!
//! Running experiments, naming scenarios and choosing what to show is the laboratory's business.
//!
//! Read [`statistics`] first.

#![forbid(unsafe_code)]

pub mod chart;
mod markup;
pub mod report;
#[cfg(test)]
mod seed;
pub mod statistics;
pub mod table;
