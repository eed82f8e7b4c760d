//! DNS messages in a stream of octets (RFC 1035 section 4.2.2): each behind its length.

use super::MAX_QUERY;

/// Octets of a length.
const LENGTH: usize = 2;

/// A message that is longer than any that is read, or empty. The connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a query of 1 to {MAX_QUERY} octets, got a length of {0}")]
pub struct TooLong(pub usize);

/// What of a stream has come and is no whole message yet: at most one message and what came with its end.
#[derive(Clone, Default, Debug)]
pub struct Stream {
    buffer: Vec<u8>,
}

impl Stream {
    /// Adds octets. Every whole message is to be taken with [`Stream::next_message`] before more are added, so that
    /// what is kept is bounded.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole message.
    ///
    /// # Errors
    /// [`TooLong`] if its length is no query's.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let &[high, low, ref rest @ ..] = self.buffer.as_slice() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if !(1..=MAX_QUERY).contains(&length) {
            return Err(TooLong(length));
        }
        let Some(message) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.buffer.drain(..LENGTH + length);
        Ok(Some(message))
    }

    /// Returns whether nothing of a message has come.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

/// Returns a message behind its length, or `None` for one of more than 65,535 octets.
pub fn frame(message: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes(), message].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_impossible_length_is_an_error() {
        for (bytes, length) in [([0, 0], 0), ([4, 1], 1_025), ([255, 255], 65_535)] {
            let mut stream = Stream::default();
            stream.push(&bytes);
            assert_eq!(stream.next_message(), Err(TooLong(length)));
        }
        assert_eq!(frame(&[0; 65_536]), None);
    }

    proptest! {
        /// RFC 1035 section 4.2.2.
        #[test]
        fn messages_come_out_however_the_stream_is_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 0..8),
            cut in 1..50_usize,
        ) {
            let whole: Vec<u8> = messages.iter().flat_map(|message| frame(message).unwrap()).collect();
            let (mut stream, mut found) = (Stream::default(), Vec::new());
            for piece in whole.chunks(cut) {
                stream.push(piece);
                while let Some(message) = stream.next_message().unwrap() {
                    found.push(message);
                }
                prop_assert!(stream.buffer.len() < LENGTH + MAX_QUERY);
            }
            prop_assert_eq!(found, messages);
            prop_assert!(stream.is_empty());
        }
    }
}
