//! Bounds of the real world; those on connections are in [`ringway_flow::limits`].

/// Maximum number of items and handed-over batches that may wait for one worker.
pub const MAILBOX: usize = 8_192;

/// Receive buffer requested for each UDP socket, in bytes.
pub const UDP_RECEIVE_BUFFER: usize = 8 << 20;
