//! Which pair of streams carries a call.

use std::collections::HashSet;

/// Calls remembered because they began before their pair could be used; after more of them all calls
/// stay on the first pair.
const EARLY_CALLS: usize = 1024;

/// What the side that is TLS's server, and so cannot begin a connection, keeps of calls that began on
/// the first pair because theirs was not open: they stay there, so that none overtakes itself.
#[derive(Default)]
pub(super) struct Early {
    calls: HashSet<u64>,
    /// There were too many of them.
    all: bool,
}

impl Early {
    /// The pair for a call that asks for `pair`, which is `open` or not.
    pub(super) fn choose(&mut self, call: u64, pair: u16, open: bool) -> u16 {
        if pair == 0 || self.all {
            return 0;
        }
        if open {
            return if self.calls.contains(&call) { 0 } else { pair };
        }
        self.calls.insert(call);
        if self.calls.len() > EARLY_CALLS {
            (self.calls, self.all) = (HashSet::new(), true);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_began_on_the_first_pair_stays() {
        let mut early = Early::default();
        assert_eq!(early.choose(7, 3, false), 0);
        assert_eq!(early.choose(7, 3, true), 0);
        assert_eq!(early.choose(8, 3, true), 3);
        for call in 0..=EARLY_CALLS as u64 {
            assert_eq!(early.choose(call, 5, false), 0);
        }
        assert_eq!((early.choose(8, 3, true), early.calls.len()), (0, 0));
    }
}
