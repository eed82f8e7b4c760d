//! Which messages begin something new, as far as their first octets tell: what can be left out with the
//! least loss when there is too much to do.

/// The first four octets of requests that begin something. A re-INVITE or the refresh of a
/// subscription begins with the same; who sent it can do it again.
pub(crate) const METHODS: [[u8; 4]; 6] =
    [*b"INVI", *b"REGI", *b"OPTI", *b"SUBS", *b"MESS", *b"PUBL"];

/// Whether a message is a request that begins something.
pub(crate) fn is_fresh(message: &[u8]) -> bool {
    message.first_chunk().is_some_and(|start| METHODS.contains(start))
}
