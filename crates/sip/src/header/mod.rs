//! Header fields: their names and typed views of the values a server works with.
//!
//! A view is `Copy`, borrows the message and preserves its bytes; nothing here allocates.

mod cseq;
mod id;
mod items;
mod name_addr;
mod params;
mod via;

pub use cseq::CSeq;
pub use id::HeaderId;
pub use items::Items;
pub use name_addr::NameAddr;
pub use params::Params;
pub use via::{MAGIC_COOKIE, Via};

pub(crate) use items::item_end;
pub(crate) use params::{Param, known_param, next_param};
