//! Formats of messages on a byte stream that the program brings (RFC 9622 section 9.1.2).

use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Puts messages on a byte stream and finds them again, for peers that do not use this project's framing.
///
/// ```
/// use bytes::{Bytes, BytesMut};
/// use ringway_services_tokio::Framer;
///
/// /// Lines of text.
/// struct Lines;
///
/// impl Framer for Lines {
///     fn encode(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
///         out.extend_from_slice(message);
///         out.push(b'\n');
///         Ok(())
///     }
///
///     fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, String> {
///         let Some(end) = input.iter().position(|octet| *octet == b'\n') else { return Ok(None) };
///         let line = input.split_to(end + 1).freeze();
///         Ok(Some(line.slice(..end)))
///     }
/// }
/// ```
pub trait Framer: Send {
    /// Appends a message to `out`.
    ///
    /// # Errors
    /// The format cannot carry the message. The text says why.
    fn encode(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String>;

    /// Removes the first message from `input` and returns it; `None` if it is not complete.
    ///
    /// # Errors
    /// What was received breaks the format. The text says how.
    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, String>;
}

/// Makes the framer of a connection.
pub(crate) type NewFramer = Arc<dyn Fn() -> Box<dyn Framer> + Send + Sync>;
