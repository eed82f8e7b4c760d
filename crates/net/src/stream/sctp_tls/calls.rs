//! Which pair of streams carries a call.

use siphasher::sip::SipHasher13;
use std::collections::HashSet;

/// Most pairs of streams of one association that carry TLS, each with a connection of its own: what
/// two calls share by chance is seldom lost at once, and a peer costs no more than so many
/// connections of TLS.
pub(crate) const TLS_SESSIONS: u16 = 16;

/// Calls remembered because they began before their pair could be used; after more of them all calls
/// stay on the first pair.
const EARLY_CALLS: usize = 1024;

/// A hash of the call, and the pair that it asks for, of `pairs`. Both ends choose alike, so what
/// answers a request finds the pair open that the request came by; so the hash has no key. Whoever sees
/// to it that calls meet on one pair has them wait for each other, as over TCP, and nothing else.
pub(super) fn asked(call: Option<&[u8]>, pairs: u16) -> (u64, u16) {
    let Some(call) = call else { return (0, 0) };
    let hash = SipHasher13::new().hash(call);
    (hash, (hash % u64::from(pairs.max(1))) as u16)
}

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
    fn calls_spread_over_the_pairs() {
        let mut counts = [0; TLS_SESSIONS as usize];
        for n in 0..1600 {
            let id = if n % 2 == 0 { format!("{n}@host.example") } else { format!("call-{n}") };
            counts[usize::from(asked(Some(id.as_bytes()), TLS_SESSIONS).1)] += 1;
        }
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
        assert_eq!(asked(Some(b"x"), 1).1, 0);
        assert_eq!(asked(None, TLS_SESSIONS), (0, 0));
    }

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
