//! Typed ids of requests in progress, each valid in one worker only.

use crate::notifier::NotifyId;

/// A response context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ContextId {
    /// Its index in the table.
    pub index: u32,
    /// Distinguishes contexts that had the same index.
    pub serial: u32,
}

/// A branch of a response context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct BranchId {
    pub context: ContextId,
    /// Its index in the context.
    pub branch: u16,
}

/// The user of a client transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientUser {
    /// A branch of a forwarded request.
    Branch(BranchId),
    /// A NOTIFY of the notifier.
    Notify(NotifyId),
}

/// Identifies a request of [`Event::Resolve`](super::Event::Resolve); returned with its result.
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

/// Identifies an [`Event::Ask`](super::Event::Ask), or a question of somebody else; returned with its reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AskId {
    /// Its index in the table of parked requests.
    pub(super) index: u32,
    /// Distinguishes questions that had the same index.
    pub(super) serial: u32,
}

impl AskId {
    /// Returns the id of a question that no worker has asked.
    pub const fn of_world(number: u32) -> AskId {
        AskId { index: number, serial: 0 }
    }
}
