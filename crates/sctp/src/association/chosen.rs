//! Which of the paths are used for what.

/// The paths that were chosen, by their index.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chosen {
    /// The primary path (RFC 9260 section 6.4).
    pub(super) primary: usize,
    /// The path that data is sent on.
    pub(super) current: usize,
}

impl Chosen {
    /// Replaces paths that are no longer there by another.
    pub(super) fn replace(&mut self, is_gone: impl Fn(usize) -> bool, other: usize) {
        for chosen in [&mut self.primary, &mut self.current] {
            if is_gone(*chosen) {
                *chosen = other;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_are_gone_are_replaced() {
        let mut chosen = Chosen { primary: 1, current: 2 };
        chosen.replace(|path| path == 1, 0);
        assert_eq!((chosen.primary, chosen.current), (0, 2));
    }
}
