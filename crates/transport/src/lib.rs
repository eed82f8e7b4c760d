#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod budget;
mod cubic;
mod key;
mod shares;

pub use budget::Budget;
pub use cubic::Cubic;
pub use key::{Key, Keyed, number};
pub use shares::{Holdings, Shares};
