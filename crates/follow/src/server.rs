//! What names a server.

use std::fmt;

/// What names a server.
pub trait ServerId: Copy + Ord + fmt::Debug {}

impl<I: Copy + Ord + fmt::Debug> ServerId for I {}
