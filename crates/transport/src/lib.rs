#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cubic;
mod key;

pub use cubic::Cubic;
pub use key::{Key, Keyed, number};
