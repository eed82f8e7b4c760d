//! Messages that are known by their number, so that one that is altered or comes twice shows.

/// Length in bytes of the number at the front.
const NUMBER: usize = 4;

/// The messages of both directions.
#[derive(Default)]
pub(crate) struct Messages {
    /// Number of messages sent.
    pub(crate) sent: u32,
    /// Number of different messages that came.
    pub(crate) got: u32,
    /// Number of messages that came altered.
    pub(crate) wrong: u32,
    /// Number of messages that came again.
    pub(crate) twice: u32,
    seen: Vec<bool>,
}

impl Messages {
    /// Returns the next message.
    pub(crate) fn next(&self, size: usize) -> Vec<u8> {
        message(self.sent, size)
    }

    /// Checks a message that came.
    pub(crate) fn received(&mut self, bytes: &[u8]) {
        let number = bytes.first_chunk::<NUMBER>().map(|first| u32::from_be_bytes(*first));
        let Some(number) = number.filter(|number| message(*number, bytes.len()) == bytes) else {
            self.wrong += 1;
            return;
        };
        let at = number as usize;
        if self.seen.len() <= at {
            self.seen.resize(at + 1, false);
        }
        if std::mem::replace(&mut self.seen[at], true) {
            self.twice += 1;
        } else {
            self.got += 1;
        }
    }
}

/// Returns a message: its number, and bytes that depend on it.
fn message(number: u32, size: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes
        .extend((NUMBER..size).map(|at| (number as usize).wrapping_mul(31).wrapping_add(at) as u8));
    bytes
}
