//! What became of what phones have done.

use ringway_sansio::Time;

/// What became of a call, as the caller has it, in the time of its router's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The caller.
    pub caller: u32,
    /// The callee.
    pub callee: u32,
    /// When the first INVITE was sent.
    pub begun: Time,
    /// When a 180 arrived.
    pub ringing: Option<Time>,
    /// When a 200 arrived.
    pub answered: Option<Time>,
    /// When the 200 of the BYE arrived.
    pub ended: Option<Time>,
    /// Status with which INVITE or BYE failed: 408 without a response.
    pub failed: Option<u16>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// When it was sent.
    pub begun: Time,
    /// When it was answered.
    pub ended: Time,
    /// The status: 408 without a response.
    pub status: u16,
}

/// The INVITE of a call that reached a phone whose user had gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stray {
    /// The user.
    pub user: u32,
    /// When it came.
    pub at: Time,
    /// When the last registration of the user here expired.
    pub expired: Time,
}
