//! Links to neighbours: what each is made of.
//!
//! [`handshake`] makes a neighbour of a stranger, [`slots`] numbers the neighbours, [`liveness`] decides when one is dead, [`cost`] what its link costs, and [`replay`]
//! refuses packets that come twice. Each is a small machine of its own with the time as an argument.

pub mod cost;
pub mod handshake;
pub mod liveness;
pub mod replay;
pub mod slots;

pub use cost::{Cost, LinkQuality};
pub use handshake::{Handshakes, LinkAddress, Local, Verified};
pub use liveness::{Liveness, Sign, Task};
pub use replay::ReplayWindow;
pub use slots::Slots;
