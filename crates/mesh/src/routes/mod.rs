//! What a router knows of ways to others: requests under way.

pub mod pending;

pub use pending::Pending;
