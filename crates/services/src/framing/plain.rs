//! A byte stream to a peer without framing.

use super::Read;

/// What was received of a byte stream and not yet read. All of it is one message without a known end (RFC 9622 section
/// 9.3.2.2).
#[derive(Clone, Debug)]
pub struct Plain {
    bytes: Vec<u8>,
    window: usize,
    ended: bool,
}

impl Plain {
    /// Returns an empty one that holds at most `window` octets.
    pub fn new(window: usize) -> Self {
        Plain { bytes: Vec::new(), window, ended: false }
    }

    /// Takes in octets and returns how many. The rest must wait until something has been read.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.window - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Takes in the end of the byte stream.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// Returns what there is. The end of the byte stream is the end of the message.
    pub fn read(&mut self) -> Read {
        if self.bytes.is_empty() {
            return if self.ended { Read::End } else { Read::Pending };
        }
        Read::Part(core::mem::take(&mut self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9622 section 9.3.2.2.
    #[test]
    fn all_octets_are_one_message() {
        let mut plain = Plain::new(4);
        assert_eq!(plain.read(), Read::Pending);
        assert_eq!(plain.receive(b"hello"), 4);
        assert_eq!(plain.read(), Read::Part(b"hell".to_vec()));
        assert_eq!(plain.receive(b"o"), 1);
        plain.finish();
        assert_eq!((plain.read(), plain.read()), (Read::Part(b"o".to_vec()), Read::End));
    }
}
