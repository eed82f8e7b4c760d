//! The routing table: the next hops of requests that are not for a registered user, and a small dial plan that rewrites
//! the number.
//!
//! A rule matches the request's domain and optionally the user part, by prefix or by a pattern of digits. The first
//! rule that matches decides. Its next hops are tried by priority; among hops of one priority the load is shared by
//! weight, as RFC 2782 does for SRV records.

use ringway_sansio::Random;

/// The maximum number of next hops of a rule.
pub const MAX_NEXT_HOPS: usize = 16;

/// The user parts of Request-URIs that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum UserMatch {
    /// Any, or none at all.
    #[default]
    Any,
    /// User parts that begin with these characters.
    Prefix(Box<str>),
    /// A dial pattern, see [`pattern_matches`].
    Pattern(Box<str>),
}

/// The domains that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainMatch {
    /// Domains of ours: the user is not registered.
    Own,
    /// Domains that are not ours.
    Foreign,
    /// This domain, ours or not, in lower case.
    Name(Box<str>),
    /// This domain and all below it; written `*.example.org`, stored as `.example.org`.
    Below(Box<str>),
}

/// A next hop of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// A SIP URI. It becomes the topmost Route with `lr`, so that the Request-URI stays the user's.
    pub uri: Box<str>,
    /// Lower is tried first.
    pub priority: u16,
    /// The share of the load among next hops of one priority; 0 gets almost none.
    pub weight: u16,
}

/// The rewriting of a user part: first characters are removed from its beginning, then others are prepended.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Rewrite {
    /// The number of characters to remove from the beginning.
    pub strip: usize,
    /// Characters to prepend.
    pub prepend: Box<str>,
    /// The new domain; `None` for no change.
    pub domain: Option<Box<str>>,
}

/// A routing rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The domains it matches.
    pub domain: DomainMatch,
    /// The users it matches.
    pub user: UserMatch,
    /// The rewriting of the number.
    pub rewrite: Rewrite,
    /// The next hops; empty for the target of the rewritten URI itself.
    pub next_hops: Vec<NextHop>,
    /// The status to answer with instead of routing, such as for a barred prefix.
    pub reject: Option<u16>,
    /// Whether anyone may use it. Otherwise only authenticated users and trusted peers may.
    pub open: bool,
    /// How the users of other routers of the mesh may use it; `None` if they may not.
    pub shared: Option<Share>,
}

/// The terms on which a rule serves other routers of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The routers with the lowest cost are tried first.
    pub cost: u16,
    /// The share of the load among routers of one cost; 0 gets almost none.
    pub capacity: u16,
}

/// The rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// The rules; the first match decides.
    pub rules: Vec<Rule>,
}

impl RouteTable {
    /// Returns the first rule for a user at a domain. `is_local` is whether the domain is ours; `host` is compared
    /// without regard to case.
    pub fn find(&self, is_local: bool, host: &[u8], user: &[u8]) -> Option<&Rule> {
        self.rules.iter().find(|r| r.domain.matches(is_local, host) && r.user.matches(user))
    }
}

impl DomainMatch {
    fn matches(&self, is_local: bool, host: &[u8]) -> bool {
        match self {
            DomainMatch::Own => is_local,
            DomainMatch::Foreign => !is_local,
            DomainMatch::Name(name) => name.as_bytes().eq_ignore_ascii_case(host),
            DomainMatch::Below(suffix) => {
                host.len() > suffix.len()
                    && host[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
                    || suffix.as_bytes()[1..].eq_ignore_ascii_case(host)
            }
        }
    }
}

impl UserMatch {
    fn matches(&self, user: &[u8]) -> bool {
        match self {
            UserMatch::Any => true,
            UserMatch::Prefix(p) => user.starts_with(p.as_bytes()),
            UserMatch::Pattern(p) => pattern_matches(p.as_bytes(), user),
        }
    }
}

/// Returns whether `user` matches a dial pattern. In a pattern `X` is any digit, `Z` a digit from 1 to 9, `N` one from
/// 2 to 9, `.` at the end any further characters (at least one), and everything else itself; `+` is an ordinary
/// character.
pub fn pattern_matches(pattern: &[u8], user: &[u8]) -> bool {
    let mut rest = user;
    for (i, &p) in pattern.iter().enumerate() {
        if p == b'.' && i + 1 == pattern.len() {
            return !rest.is_empty();
        }
        let Some((&c, tail)) = rest.split_first() else { return false };
        let fits = match p {
            b'X' => c.is_ascii_digit(),
            b'Z' => (b'1'..=b'9').contains(&c),
            b'N' => (b'2'..=b'9').contains(&c),
            other => c == other,
        };
        if !fits {
            return false;
        }
        rest = tail;
    }
    rest.is_empty()
}

impl Rewrite {
    /// Returns whether it changes nothing.
    pub fn is_identity(&self) -> bool {
        self.strip == 0 && self.prepend.is_empty() && self.domain.is_none()
    }

    /// Appends the rewritten user part.
    pub fn user(&self, user: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.prepend.as_bytes());
        out.extend_from_slice(&user[self.strip.min(user.len())..]);
    }
}

/// Sorts next hops into the order in which they are tried: by priority, and within one priority drawn by weight (RFC
/// 2782, "Usage rules"). Fills `order` with indexes.
pub fn order(hops: &[NextHop], random: &mut dyn Random, order: &mut Vec<usize>) {
    order.clear();
    order.extend(0..hops.len().min(MAX_NEXT_HOPS));
    order.sort_by_key(|&i| hops[i].priority);
    let mut start = 0;
    while start < order.len() {
        let priority = hops[order[start]].priority;
        let end =
            start + order[start..].iter().take_while(|&&i| hops[i].priority == priority).count();
        for index in start..end {
            // A weight of 0 has a very small chance.
            let weight = |i: usize| u64::from(hops[i].weight).max(1);
            let sum: u64 = order[index..end].iter().map(|&i| weight(i)).sum();
            let mut draw = random.next_u64() % sum;
            let mut chosen = index;
            while draw >= weight(order[chosen]) {
                draw -= weight(order[chosen]);
                chosen += 1;
            }
            let drawn = order.remove(chosen);
            order.insert(index, drawn);
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::SplitMix;

    #[test]
    fn patterns() {
        for (pattern, user, fits) in [
            ("0.", "0301234", true),
            ("0.", "0", false),
            ("1XX", "142", true),
            ("1XX", "1422", false),
            ("NXX", "199", false),
            ("ZX", "09", false),
            ("+49.", "+4930", true),
            ("", "", true),
        ] {
            assert_eq!(
                pattern_matches(pattern.as_bytes(), user.as_bytes()),
                fits,
                "{pattern} {user}"
            );
        }
    }

    #[test]
    fn the_first_rule_decides() {
        let rule = |domain, user, reject| Rule {
            domain,
            user,
            rewrite: Rewrite::default(),
            next_hops: vec![],
            reject,
            open: false,
            shared: None,
        };
        let table = RouteTable {
            rules: vec![
                rule(DomainMatch::Own, UserMatch::Prefix("0900".into()), Some(403)),
                rule(DomainMatch::Below(".example.org".into()), UserMatch::Any, Some(1)),
                rule(DomainMatch::Foreign, UserMatch::Any, None),
            ],
        };
        assert_eq!(table.find(true, b"here", b"09001").unwrap().reject, Some(403));
        assert_eq!(table.find(false, b"A.example.ORG", b"x").unwrap().reject, Some(1));
        assert_eq!(table.find(false, b"example.org", b"x").unwrap().reject, Some(1));
        assert_eq!(table.find(false, b"notexample.org", b"x").unwrap().reject, None);
        assert!(table.find(true, b"here", b"1").is_none());
    }

    #[test]
    fn weights_share_the_load_and_priority_comes_first() {
        let hop = |priority, weight| NextHop { uri: "sip:x".into(), priority, weight };
        let hops = [hop(2, 1), hop(1, 30), hop(1, 10)];
        let mut random = SplitMix::new(5);
        let mut order_of = Vec::new();
        let mut first = [0u32; 3];
        for _ in 0..4_000 {
            order(&hops, &mut random, &mut order_of);
            assert_eq!(order_of.len(), 3);
            assert_eq!(order_of[2], 0);
            first[order_of[0]] += 1;
        }
        assert!((2_850..3_150).contains(&first[1]), "{first:?}");
        assert_eq!(first[0], 0);
    }

    #[test]
    fn rewriting_cuts_then_puts_in_front() {
        let r = Rewrite { strip: 1, prepend: "+49".into(), domain: None };
        let mut out = Vec::new();
        r.user(b"030123", &mut out);
        assert_eq!(out, b"+4930123");
    }
}
