//! Links to neighbours: what each is made of.
//!
//! [`links`] holds them together. [`interface`] decides when HELLOs are sent, [`handshake`] makes a neighbour of a
//! stranger, [`slots`] numbers the neighbours, [`liveness`] decides when one is dead, [`cost`] what its link costs, and
//! [`replay`] refuses packets that come twice. Each is a small machine of its own with the time as an argument.

pub mod cost;
pub mod handshake;
pub mod interface;
pub mod links;
pub mod liveness;
pub mod neighbour;
mod numbers;
pub mod replay;
pub mod slots;

pub use cost::{Cost, LinkQuality, PATH_COST, UNIT};
pub use handshake::{Handshakes, LinkAddress, Local, Verified};
pub use interface::{Discovery, InterfaceConfig};
pub use links::{DownReason, Dropped, LinkEvent, Links};
pub use liveness::{Liveness, Sign, Task};
pub use neighbour::Neighbour;
pub use replay::ReplayWindow;
pub use slots::Slots;
