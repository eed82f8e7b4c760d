//! Signs that the peer is unreachable (RFC 9260 section 8.1).

/// The errors in a row, over all paths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ErrorCount {
    count: u32,
    /// The paths, a bit each, on which data was sent or lost since data was last acknowledged.
    tried: u32,
}

impl ErrorCount {
    /// Returns the number of errors in a row.
    pub(super) fn get(&self) -> u32 {
        self.count
    }

    /// Counts an error. Returns whether the limit is exceeded.
    pub(super) fn add(&mut self, max: u32) -> bool {
        self.count += 1;
        self.count > max
    }

    /// Notes that data is sent or lost on a path.
    #[inline]
    pub(super) fn data_on(&mut self, path: usize) {
        self.tried |= 1 << path;
    }

    /// Returns whether data was sent or lost on a path since data was last acknowledged.
    #[inline]
    pub(super) fn is_tried(&self, path: usize) -> bool {
        self.tried & (1 << path) != 0
    }

    /// Notes that data was acknowledged.
    #[inline]
    pub(super) fn data_acknowledged(&mut self) {
        *self = ErrorCount::default();
    }

    /// Notes another sign that the peer is reachable.
    #[inline]
    pub(super) fn peer_answered(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_until_the_peer_answers() {
        let mut errors = ErrorCount::default();
        errors.data_on(1);
        assert!(!errors.add(1) && errors.add(1));
        errors.peer_answered();
        assert_eq!((errors.get(), errors.is_tried(1)), (0, true));
        errors.data_acknowledged();
        assert!(!errors.is_tried(1));
    }
}
