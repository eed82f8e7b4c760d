//! Detects routing rules that can never apply, and listeners that need the same port.
//!
//! The first rule that matches a request decides (`docs/configuration.md`). A rule can never apply
//! if one earlier rule matches everything that it matches. Rules that are covered only by several
//! earlier rules together are not detected.

use super::sections::DomainSettings;
use super::shape::{Host, HttpAddr, Listen};
use ringway_proxy::routes::{DomainMatch, Rule, UserMatch};
use ringway_sansio::Transport;
use std::net::{IpAddr, SocketAddr};

/// The names that the file gives to the local domains.
pub(super) struct Names<'a> {
    /// The main name of each domain, by which its rules are looked up. Empty if the file does not
    /// name it.
    main: Vec<&'a str>,
    /// The aliases of the domains.
    aliases: Vec<&'a str>,
}

impl<'a> Names<'a> {
    pub(super) fn new(names: &'a [Host], domains: &'a [DomainSettings]) -> Self {
        let text = |host: &'a Host| host.0.as_str();
        Names {
            main: names.iter().take(1).chain(domains.iter().map(|d| &d.name)).map(text).collect(),
            aliases: names
                .iter()
                .skip(1)
                .chain(domains.iter().flat_map(|d| &d.aliases))
                .map(text)
                .collect(),
        }
    }

    /// Returns why a rule can never apply: it names a local domain by an alias, or an earlier rule,
    /// numbered from 1, covers it.
    pub(super) fn unreachable_reason(&self, rules: &[Rule], index: usize) -> Option<String> {
        let rule = rules.get(index)?;
        if let DomainMatch::Name(name) = &rule.domain
            && self.aliases.contains(&&**name)
            && !self.main.contains(&&**name)
        {
            return Some(format!(
                "can never apply: {name} is an alias of a local domain, expected its first name or \
                 \"own\""
            ));
        }
        let covers = |earlier: &Rule| {
            self.domain_covers(&earlier.domain, &rule.domain)
                && user_covers(&earlier.user, &rule.user)
        };
        let earlier = rules[..index].iter().position(covers)?;
        Some(format!(
            "can never apply: rule {} matches everything that this rule matches",
            earlier + 1
        ))
    }

    /// Returns whether `a` matches every domain that `b` matches.
    fn domain_covers(&self, a: &DomainMatch, b: &DomainMatch) -> bool {
        use DomainMatch::{Below, Foreign, Name, Own};
        let is_within = |name: &str, suffix: &str| name.ends_with(suffix) || name == &suffix[1..];
        // A domain that the file does not name may have any name.
        let known = !self.main.is_empty();
        match (a, b) {
            (Own, Own) | (Foreign, Foreign) => true,
            (Own, Name(name)) => self.main.contains(&&**name),
            (Foreign, Name(name)) => known && !self.main.contains(&&**name),
            (Foreign, Below(suffix)) => known && !self.main.iter().any(|n| is_within(n, suffix)),
            (Name(name), Own) => known && self.main.iter().all(|n| **n == **name),
            (Below(suffix), Own) => known && self.main.iter().all(|n| is_within(n, suffix)),
            (Name(a), Name(b)) => a == b,
            (Below(suffix), Name(name)) => is_within(name, suffix),
            (Below(a), Below(b)) => is_within(&b[1..], a),
            (Own, Foreign | Below(_)) | (Foreign, Own) | (Name(_), Foreign | Below(_)) => false,
            (Below(_), Foreign) => false,
        }
    }
}

/// A user match as one class of characters per position, and whether further characters may follow.
struct Shape {
    classes: Vec<Class>,
    more: More,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    None,
    /// Zero or more.
    Any,
    /// At least one.
    Some,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    One(u8),
    /// Digits from this one to 9.
    From(u8),
}

impl Class {
    fn covers(self, other: Class) -> bool {
        match (self, other) {
            (Class::From(a), Class::One(b)) => (a..=b'9').contains(&b),
            (Class::From(a), Class::From(b)) => a <= b,
            (a, b) => a == b,
        }
    }
}

fn shape(user: &UserMatch) -> Shape {
    let literal = |text: &str| text.bytes().map(Class::One).collect();
    match user {
        UserMatch::Any => Shape { classes: Vec::new(), more: More::Any },
        UserMatch::Prefix(prefix) => Shape { classes: literal(prefix), more: More::Any },
        UserMatch::Pattern(pattern) => {
            let (body, more) = match pattern.strip_suffix('.') {
                Some(body) => (body, More::Some),
                None => (&**pattern, More::None),
            };
            let class = |b| match b {
                b'X' => Class::From(b'0'),
                b'Z' => Class::From(b'1'),
                b'N' => Class::From(b'2'),
                other => Class::One(other),
            };
            Shape { classes: body.bytes().map(class).collect(), more }
        }
    }
}

/// Returns whether `a` matches every user part that `b` matches.
fn user_covers(a: &UserMatch, b: &UserMatch) -> bool {
    let (a, b) = (shape(a), shape(b));
    let shortest = b.classes.len() + usize::from(b.more == More::Some);
    let lengths = match (a.more, b.more) {
        (More::None, More::None) => b.classes.len() == a.classes.len(),
        (More::None, _) => false,
        (More::Any, _) => shortest >= a.classes.len(),
        (More::Some, _) => shortest > a.classes.len(),
    };
    lengths
        && b.classes.len() >= a.classes.len()
        && a.classes.iter().zip(&b.classes).all(|(a, b)| a.covers(*b))
}

/// A port that a listener occupies in the kernel.
#[derive(PartialEq, Eq)]
enum Port {
    Tcp(u16),
    Udp(u16),
    /// An SCTP port, directly over IP or over this UDP port.
    Sctp(u16, Option<u16>),
}

fn ports(listen: &Listen) -> Vec<Port> {
    let port = listen.addr.port();
    match (listen.transport, listen.encapsulation) {
        (Transport::Sctp | Transport::TlsSctp, None) => vec![Port::Sctp(port, None)],
        (Transport::Sctp | Transport::TlsSctp, Some(udp)) => {
            vec![Port::Sctp(port, Some(udp)), Port::Udp(udp)]
        }
        (Transport::Udp, _) => vec![Port::Udp(port)],
        _ => vec![Port::Tcp(port)],
    }
}

/// Returns whether two listeners need the same port of the same address.
pub(super) fn collide(a: &Listen, b: &Listen) -> bool {
    // Associations with the same local addresses share their UDP port.
    let shares = |port: &Port| {
        matches!(port, Port::Udp(_)) && a.encapsulation.is_some() && b.encapsulation.is_some()
    };
    let taken = ports(b);
    let port = ports(a).into_iter().any(|p| is_ephemeral(&p) && taken.contains(&p) && !shares(&p));
    port && addresses(a).any(|x| addresses(b).any(|y| overlap(x, y)))
}

/// Returns whether a listener needs the port of the management pages, or of another service on TCP.
pub(super) fn collides_with_pages(listen: &Listen, http: HttpAddr) -> bool {
    http.0.is_some_and(|addr: SocketAddr| {
        let port = Port::Tcp(addr.port());
        is_ephemeral(&port)
            && ports(listen).contains(&port)
            && addresses(listen).any(|ip| overlap(ip, addr.ip()))
    })
}

/// Returns whether the system chooses the port: port 0 differs for each listener.
fn is_ephemeral(port: &Port) -> bool {
    !matches!(port, Port::Tcp(0) | Port::Udp(0) | Port::Sctp(0, _))
}

fn addresses(listen: &Listen) -> impl Iterator<Item = IpAddr> {
    std::iter::once(listen.addr.ip()).chain(listen.more.iter().copied())
}

fn overlap(a: IpAddr, b: IpAddr) -> bool {
    a == b || (a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_proxy::routes::pattern_matches;

    fn fits(m: &UserMatch, user: &str) -> bool {
        match m {
            UserMatch::Any => true,
            UserMatch::Prefix(p) => user.starts_with(&**p),
            UserMatch::Pattern(p) => pattern_matches(p.as_bytes(), user.as_bytes()),
        }
    }

    fn user_match() -> impl Strategy<Value = UserMatch> {
        prop_oneof![
            Just(UserMatch::Any),
            "[012]{0,3}".prop_map(|p| UserMatch::Prefix(p.into())),
            "[012XZN]{0,3}[.]?".prop_map(|p| UserMatch::Pattern(p.into())),
        ]
    }

    proptest! {
        /// Compares with every user part of up to five significant characters.
        #[test]
        fn a_rule_covers_another_that_matches_nothing_more(
            a in user_match(), b in user_match()
        ) {
            let mut users = vec![String::new()];
            for _ in 0..5 {
                let longer = users.iter().flat_map(|u| "0123a".chars().map(move |c| format!("{u}{c}")));
                users = users.iter().cloned().chain(longer).collect();
                users.sort();
                users.dedup();
            }
            let all = users.iter().filter(|u| fits(&b, u)).all(|u| fits(&a, u));
            prop_assert_eq!(user_covers(&a, &b), all, "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn equal_ports_collide() {
        let listen = |text: &str| text.parse::<Listen>().unwrap();
        for (a, b, expected) in [
            ("tcp://0.0.0.0:5060", "ws://127.0.0.1:5060", true),
            ("tcp://0.0.0.0:5060", "tcp://[::]:5060", false),
            ("tcp://127.0.0.1:5060", "udp://127.0.0.1:5060", false),
            ("tcp://127.0.0.1:5060", "tls://127.0.0.2:5060", false),
            ("udp://127.0.0.1:0", "udp://127.0.0.1:0", false),
            ("udp://0.0.0.0:9899", "sctp+udp://127.0.0.1:5060", true),
            ("sctp+udp://127.0.0.1:5060", "tls-sctp+udp://127.0.0.1:5061", false),
            ("sctp+udp://127.0.0.1:5060", "tls-sctp+udp://127.0.0.1:5060", true),
            ("sctp://127.0.0.1:5060", "tls-sctp://127.0.0.1:5060", true),
            ("sctp://127.0.0.1:5060", "sctp+udp://127.0.0.1:5060", false),
            ("sctp://127.0.0.1,127.0.0.2:5060", "tls-sctp://127.0.0.3,127.0.0.2:5060", true),
        ] {
            assert_eq!(collide(&listen(a), &listen(b)), expected, "{a} {b}");
            assert_eq!(collide(&listen(b), &listen(a)), expected, "{b} {a}");
        }
        let http = "127.0.0.1:8060".parse().unwrap();
        assert!(collides_with_pages(&listen("ws://0.0.0.0:8060"), http));
        assert!(!collides_with_pages(&listen("udp://0.0.0.0:8060"), http));
        assert!(!collides_with_pages(&listen("ws://0.0.0.0:8060"), HttpAddr(None)));
    }
}
