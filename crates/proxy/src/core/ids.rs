//! Ids of what is under way: each is a type of its own, and means something in one worker only.

use crate::regevent::NotifyId;

/// A response context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ContextId {
    /// Its index in the table.
    pub index: u32,
    /// Tells contexts that had the same index apart.
    pub serial: u32,
}

/// A branch of a response context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct BranchId {
    pub context: ContextId,
    /// Its index in the context.
    pub branch: u16,
}

/// What a client transaction is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientUser {
    /// A branch of a request that is forwarded.
    Branch(BranchId),
    /// A NOTIFY of the notifier.
    Notify(NotifyId),
}

/// Names a question of [`Event::Resolve`](super::Event::Resolve); to be returned with its answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ResolveId(pub(super) ResolveUser);

/// What waits for server location.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ResolveUser {
    /// A branch.
    Branch(BranchId),
    /// A request that is forwarded statelessly, by its index.
    Stateless(u32),
    /// A NOTIFY, by its index.
    Notify(u32),
}
