//! What a router knows of ways to others: contacts, and requests under way.

pub mod contact;
pub mod pending;

pub use contact::{Adopted, Contact, ContactTable};
pub use pending::Pending;
