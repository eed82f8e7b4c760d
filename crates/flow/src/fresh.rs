//! Messages that begin something new, as far as their first bytes tell: those that are dropped with the least
//! loss when there is too much to do.

/// The first four bytes of requests that begin something. A re-INVITE or the refresh of a subscription begins
/// with the same; its sender can repeat it.
pub const METHODS: [[u8; 4]; 6] = [*b"INVI", *b"REGI", *b"OPTI", *b"SUBS", *b"MESS", *b"PUBL"];

/// Whether a message is a request that begins something.
pub(crate) fn is_fresh(message: &[u8]) -> bool {
    message.first_chunk().is_some_and(|start| METHODS.contains(start))
}
