//! TOML files that people write, read by serde, with the position of everything that is wrong in them.
//!
//! [`Document::read`] reports each mistake with its line, its key, what was expected and what came, and
//! of an unknown key the nearest known one. It goes on after a mistake, so that one run reports them
//! all. The `toml` crate parses and serde's derived code reads; between them stands a deserializer of
//! this crate , because an error of `toml` is a sentence, and one of ours is data.
//!
//! It opens no file: the caller does, and decides how large one may be.

mod document;
mod error;
mod nearest;
mod node;
mod problem;

pub use document::{Document, Value, describe, label};
pub use nearest::{list, nearest, unknown};
pub use problem::{MAX_PROBLEMS, Problem, Problems};

#[cfg(test)]
mod tests;
