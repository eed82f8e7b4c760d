#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! | module | what it holds |
//! |---|---|
//! | [`numbers`] | short numbers that cannot collide |

#![forbid(unsafe_code)]

pub mod numbers;
