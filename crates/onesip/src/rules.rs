//! Routing rules that routers share, on the way into the directory and out of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ringway_directory::SharedRule;
use ringway_mesh::NodeId;
use ringway_proxy::routes::{
    DomainMatch, MAX_NEXT_HOPS, NextHop, Rewrite, RouteTable, Rule, UserMatch,
};
use ringway_sansio::Transport;

use crate::router_uri;

/// Returns what other routers are to know of the rules of this server: those that are shared.
pub fn shared_rules(rules: &[Rule]) -> Vec<SharedRule> {
    let shared = rules.iter().filter_map(|rule| {
        let share = rule.shared?;
        let domain = match &rule.domain {
            DomainMatch::Own => "".into(),
            DomainMatch::Foreign => "*".into(),
            DomainMatch::Name(name) | DomainMatch::Below(name) => name.clone(),
        };
        let (user, is_pattern) = match &rule.user {
            UserMatch::Any => ("".into(), false),
            UserMatch::Prefix(prefix) => (prefix.clone(), false),
            UserMatch::Pattern(pattern) => (pattern.clone(), true),
        };
        Some(SharedRule { domain, user, is_pattern, cost: share.cost, capacity: share.capacity })
    });
    shared.collect()
}

/// Returns the rules that other routers than `own` share as a table, in which the more particular rules come first. The
/// routers that share the same rule are its next hops, by a transport.
pub fn table(
    own: Option<NodeId>,
    shared: &[(NodeId, Vec<SharedRule>)],
    transport: Transport,
) -> RouteTable {
    let mut hops: BTreeMap<Key<'_>, Vec<NextHop>> = BTreeMap::new();
    for (router, rules) in shared.iter().filter(|(router, _)| Some(*router) != own) {
        let uri = router_uri(router.prefix().router(), transport);
        for rule in rules {
            let hops = hops.entry(Key::of(rule)).or_default();
            if hops.len() < MAX_NEXT_HOPS && hops.iter().all(|hop| *hop.uri != *uri) {
                let (priority, weight) = (rule.cost, rule.capacity);
                hops.push(NextHop { uri: uri.clone().into(), priority, weight });
            }
        }
    }
    let rules = hops.into_iter().map(|(key, next_hops)| Rule {
        domain: key.domain(),
        user: key.user(),
        rewrite: Rewrite::default(),
        next_hops,
        reject: None,
        open: false,
        shared: None,
    });
    RouteTable { rules: rules.collect() }
}

/// What a rule matches, ordered by how particular it is: a domain by name, by its end, and others; then by the length of
/// the user part.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    breadth: u8,
    domain_length: Reverse<usize>,
    user_length: Reverse<usize>,
    domain: &'a str,
    user: &'a str,
    is_pattern: bool,
}

impl<'a> Key<'a> {
    fn of(rule: &'a SharedRule) -> Key<'a> {
        let (domain, user): (&str, &str) = (&rule.domain, &rule.user);
        let breadth = match domain {
            "" | "*" => 2,
            _ if domain.starts_with('.') => 1,
            _ => 0,
        };
        Key {
            breadth,
            domain_length: Reverse(domain.len()),
            user_length: Reverse(user.len()),
            domain,
            user,
            is_pattern: rule.is_pattern,
        }
    }

    fn domain(&self) -> DomainMatch {
        match (self.domain, self.breadth) {
            ("", _) => DomainMatch::Own,
            ("*", _) => DomainMatch::Foreign,
            (domain, 1) => DomainMatch::Below(domain.to_ascii_lowercase().into()),
            (domain, _) => DomainMatch::Name(domain.to_ascii_lowercase().into()),
        }
    }

    fn user(&self) -> UserMatch {
        match (self.user, self.is_pattern) {
            ("", _) => UserMatch::Any,
            (user, false) => UserMatch::Prefix(user.into()),
            (user, true) => UserMatch::Pattern(user.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_proxy::routes::Share;

    fn rule(domain: DomainMatch, user: UserMatch, shared: Option<Share>) -> Rule {
        let (rewrite, next_hops) = (Rewrite::default(), Vec::new());
        Rule { domain, user, rewrite, next_hops, reject: None, open: false, shared }
    }

    fn router(number: u64) -> NodeId {
        NodeId::new(number << 56)
    }

    /// Each form of a rule comes back from the directory with the routers that share it.
    #[test]
    fn rules_come_back_with_their_routers() {
        let share = |cost| Some(Share { cost, capacity: 3 });
        let forms = [
            (DomainMatch::Name("example.org".into()), UserMatch::Any),
            (DomainMatch::Below(".example.net".into()), UserMatch::Any),
            (DomainMatch::Own, UserMatch::Pattern("00XX.".into())),
            (DomainMatch::Own, UserMatch::Prefix("00".into())),
            (DomainMatch::Own, UserMatch::Prefix("0".into())),
            (DomainMatch::Foreign, UserMatch::Any),
        ];
        let rules = |cost| -> Vec<Rule> {
            let forms = forms.iter().rev().cloned();
            forms.map(|(domain, user)| rule(domain, user, share(cost))).collect()
        };
        let mut own = rules(10);
        own.push(rule(DomainMatch::Own, UserMatch::Prefix("7".into()), None));
        let shared = [
            (router(1), shared_rules(&rules(1))),
            (router(2), shared_rules(&own)),
            (router(3), shared_rules(&rules(5))),
        ];
        let table = table(Some(router(1)), &shared, Transport::Tcp);
        let found: Vec<_> =
            table.rules.iter().map(|r| (r.domain.clone(), r.user.clone())).collect();
        // Those of one breadth by the length of the user part.
        assert_eq!(found[..2], forms[..2]);
        for form in &forms {
            assert!(found.contains(form), "{form:?}");
        }
        let at = |user: &str| table.find(true, b"mesh", user.as_bytes()).map(|rule| &rule.user);
        assert_eq!(at("00493"), Some(&UserMatch::Pattern("00XX.".into())));
        assert_eq!(at("00"), Some(&UserMatch::Prefix("00".into())));
        assert_eq!(at("0301"), Some(&UserMatch::Prefix("0".into())));
        assert_eq!(at("7"), None);
        let hops = &table.rules[0].next_hops;
        assert!(hops[0].uri.ends_with("]:5060;transport=tcp"), "{}", hops[0].uri);
        let hops: Vec<_> = hops.iter().map(|hop| (hop.priority, hop.weight)).collect();
        assert_eq!(hops, [(10, 3), (5, 3)]);
    }

    /// A router that states one rule many times has one share of its load.
    #[test]
    fn a_router_is_one_next_hop_of_a_rule() {
        let rule = SharedRule { user: "0".into(), ..SharedRule::default() };
        let shared: Vec<_> = (1..40).map(|n| (router(n), vec![rule.clone(); 5])).collect();
        let table = table(None, &shared, Transport::Udp);
        assert_eq!(table.rules.len(), 1);
        assert_eq!(table.rules[0].next_hops.len(), MAX_NEXT_HOPS);
    }
}
