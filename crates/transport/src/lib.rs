#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod budget;
mod cubic;
mod key;
mod reordering;
mod round_trip;
mod shares;

pub use budget::Budget;
pub use cubic::Cubic;
pub use key::{Key, Keyed, number};
pub use reordering::ReorderingWindow;
pub use round_trip::RoundTrip;
pub use shares::{Holdings, Shares};
