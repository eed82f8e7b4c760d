#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod budget;
mod cubic;
mod key;
mod reordering;
mod round_trip;

pub use budget::Budget;
pub use cubic::Cubic;
pub use key::{Key, Keyed, number};
pub use reordering::ReorderingWindow;
pub use round_trip::RoundTrip;
