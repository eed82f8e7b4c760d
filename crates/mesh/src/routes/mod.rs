//! What a router knows of ways to others: contacts, marks of the routes of others, and requests under way.

mod blocks;
pub mod contact;
pub mod detours;
pub mod marks;
pub mod pending;

pub use contact::{Adopted, Contact, ContactTable};
pub use detours::{Detour, Detours};
pub use marks::Marks;
pub use pending::Pending;
