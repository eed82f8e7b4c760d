//! Short numbers: every user may have one, and no two users of a network ever have the same, also while the network is
//! divided.
//!
//! # Blocks
//!
//! The space of numbers ([`space`]) is divided into blocks of ten. Each block is owned by at most one router, and a router
//! gives its users numbers of its own blocks only. The router that creates a network owns all of it. Blocks are never
//! created again, only handed over: a router that needs one asks another, which hands over half of its free ones. So no
//! agreement is needed to assign a number, and routers that cannot reach each other cannot collide.
//!
//! # Handing over
//!
//! | step | asker | giver |
//! |---|---|---|
//! | 1 | sends ASK with a random request | |
//! | 2 | | removes the blocks from its own, notes the grant, **stores both**, and only then sends GRANT |
//! | 3 | if it still has the request: adds the blocks, notes the grant, **stores both**, then sends ACK | |
//! | 3' | if it has no such request and no note of the grant: sends REFUSE | |
//! | 4 | | ACK: removes the grant, **stores**, sends DONE. REFUSE: takes the blocks back |
//! | 5 | removes its note of the grant | |
//!
//! The giver repeats GRANT until ACK or REFUSE, the asker repeats ACK until DONE. In between the blocks are nobody's. A
//! request is used once, and a router that has sent REFUSE for a grant never accepts it, as its request is gone; a router
//! that has accepted one never sends REFUSE before DONE, as it has a note. A router that has lost its state has another
//! incarnation: it answers nothing to what was granted before, and those blocks remain nobody's. Nothing depends on clocks.
//!
//! # Networks that meet
//!
//! A network is identified by a [`Tag`]. When two meet, the smaller tag is canonical. A router of the other one changes over
//! when it is granted its first block of the canonical one: its users are assigned new numbers, and their earlier ones remain
//! valid with a mark ([`ShortNumber::dialled_from`]) until they are retired. A mark has four digits, so that two *other*
//! networks may share one; a number that is dialled with it then has two candidates, and should be refused. The full tag
//! is never ambiguous.
//!
//! # Reclaiming
//!
//! Blocks of a router that never returns are recovered by a census ([`Numbers::reclaim`]), on an operator's command. It is
//! safe if two things are true that no protocol can find out:
//!
//! 1. The lost routers never use their state again: it is destroyed. One that returns nevertheless is expelled: it marks its
//!    numbers and asks for blocks anew. Until it hears of that, its numbers may collide.
//! 2. The command names **all** other routers that have ever been granted blocks of the network. The census refuses to end if
//!    one of them knows of a router that is not named. It cannot know of one that only a lost router has granted blocks to.
//!
//! While it takes part, a router accepts no grants for at most [`config::FREEZE`]; all must have answered within
//! [`config::CENSUS_PATIENCE`]. Only this depends on clocks: they must not run four times as fast as
//! another.
//!
//! # Whom to trust
//!
//! Routers of one network trust each other here: one that lies about its blocks makes numbers collide. The world passes on
//! messages of authenticated members only. What one member can take by asking is limited ([`Config::grants_per_hour`]).
//!
//! # Limits
//!
//! A state that is restored from an old copy makes numbers collide. A world that restores a backup starts without the state
//! of this module ([`Numbers::new`]).

pub mod config;
pub mod machine;
pub mod ranges;
pub mod sources;
pub mod space;
pub mod state;
pub mod wire;

pub use config::Config;
pub use machine::{
    AssignError, Counters, Event, Message, Numbers, ReclaimError, ReclaimFailure, Save,
};
pub use space::{Dialled, ShortNumber, Space, SpaceError, Tag};

/// A router's id in the mesh.
pub type Node = u64;
