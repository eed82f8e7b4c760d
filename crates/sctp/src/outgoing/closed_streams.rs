//! Streams that accept no messages now, because they are being reset (RFC 6525).

/// The streams that are closed.
#[derive(Debug, Default)]
pub(super) struct ClosedStreams {
    streams: Vec<u16>,
    /// How many times all streams are closed.
    all: u8,
    /// Whether no message is begun on any stream.
    held: bool,
}

impl ClosedStreams {
    /// Closes streams, or all if none is named.
    pub(super) fn close(&mut self, streams: &[u16]) {
        self.streams.extend_from_slice(streams);
        self.all += u8::from(streams.is_empty());
    }

    /// Opens streams that were closed together.
    pub(super) fn open(&mut self, streams: &[u16]) {
        self.all = self.all.saturating_sub(u8::from(streams.is_empty()));
        for stream in streams {
            if let Some(at) = self.streams.iter().position(|closed| closed == stream) {
                self.streams.swap_remove(at);
            }
        }
    }

    /// Opens everything.
    pub(super) fn clear(&mut self) {
        self.streams.clear();
        (self.all, self.held) = (0, false);
    }

    /// Sets whether no message is begun.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Returns whether no message is begun.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.held
    }

    /// Returns whether a stream is closed.
    #[inline]
    pub(super) fn contains(&self, stream: u16) -> bool {
        self.all > 0 || (!self.streams.is_empty() && self.streams.contains(&stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_open_once_all_resets_of_it_are_done() {
        let mut closed = ClosedStreams::default();
        closed.close(&[1, 2]);
        closed.close(&[2]);
        closed.close(&[]);
        assert!(closed.contains(7));
        closed.open(&[]);
        assert!(!closed.contains(7) && closed.contains(1));
        closed.open(&[1, 2]);
        assert!(!closed.contains(1) && closed.contains(2));
        closed.open(&[2]);
        assert!(!closed.contains(2));
    }
}
