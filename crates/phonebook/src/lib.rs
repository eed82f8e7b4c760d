#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! | module | what it holds |
//! |---|---|
//! | [`book`] | who can be called, in one order |
//! | [`formats`] | the book as phones of several vendors read it, and as JSON |
//! | [`http`] | which document a request is answered with |
//! | [`ldap`] | the book by LDAP |
//! | [`numbers`] | short numbers that cannot collide |

#![forbid(unsafe_code)]

pub mod book;
pub mod formats;
pub mod http;
pub mod ldap;
pub mod numbers;

pub use book::{Book, Entry};
