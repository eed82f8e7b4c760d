//! Reasons: why a candidate was chosen, what the others lost by, and which requirement excludes what.

use crate::properties::{Preference, Service};
use crate::protocol::Protocol;
use core::fmt;
use std::collections::BTreeMap;

/// A demand of the program, the host or the peer that can exclude candidates.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Requirement {
    /// A service is required or prohibited.
    Service(Service, Preference),
    /// An interface is required or prohibited.
    Interface(Preference, String),
    /// A protocol is prohibited by name.
    Protocol(Protocol),
    /// The remote endpoints name the protocols that the peer speaks.
    RemoteProtocols,
    /// The local endpoint names an interface or addresses.
    LocalEndpoint,
    /// The peer does not use framing.
    NoFraming,
    /// `multipath` is `disabled`.
    SinglePath,
    /// `safelyReplayable` is `false`.
    NotReplayable,
    /// `alpn` names application protocols of another protocol.
    Alpn,
    /// `allowedSecurityProtocols` does not name it.
    SecurityProtocols,
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::Service(service, preference) => write!(f, "{service}={preference}"),
            Requirement::Interface(preference, name) => write!(f, "interface={preference}:{name}"),
            Requirement::Protocol(protocol) => write!(f, "the prohibition of {}", protocol.title()),
            Requirement::RemoteProtocols => f.write_str("the protocols of the remote endpoint"),
            Requirement::LocalEndpoint => f.write_str("the local endpoint"),
            Requirement::NoFraming => f.write_str("the prohibition of framing"),
            Requirement::SinglePath => f.write_str("multipath=disabled"),
            Requirement::NotReplayable => f.write_str("safelyReplayable=false"),
            Requirement::Alpn => f.write_str("alpn"),
            Requirement::SecurityProtocols => f.write_str("allowedSecurityProtocols"),
        }
    }
}

/// Why a protocol is no candidate on a path.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Exclusion {
    /// A required service is never provided.
    NotProvided(Service, &'static str),
    /// A prohibited service is always provided.
    AlwaysProvided(Service, &'static str),
    /// A required service needs framing, which is not allowed.
    NeedsFraming(Service),
    /// Framing, which required multistreaming needs, keeps boundaries of messages, which are prohibited.
    FramingKeepsBoundaries,
    /// The host lacks it.
    Unavailable(String),
    /// It is prohibited by name.
    Prohibited(Protocol),
    /// There is no remote endpoint with a name or an address.
    NoRemoteEndpoint,
    /// No remote endpoint speaks it.
    NotSpoken,
    /// It would be TCP, because several paths are disabled.
    SinglePath,
    /// It may deliver a message twice.
    MayDuplicate,
    /// None of the application protocols runs over it.
    Alpn,
    /// Its security protocol is not allowed.
    SecurityProtocol(&'static str),
    /// The interface is prohibited, or another one is required.
    Interface(Preference, String),
    /// The local endpoint is on another interface, or has no address of the peer's family here.
    LocalEndpoint,
    /// The interface has no address of the peer's family.
    NoLocalAddress,
    /// There is no temporary address to a peer that this path reaches.
    NoTemporaryAddress,
    /// All addresses are temporary.
    OnlyTemporaryAddresses,
}

impl Exclusion {
    /// Returns the requirements of which each, if it were dropped, would lift this exclusion. There is none if the program
    /// cannot change it.
    pub fn requirements(&self) -> Vec<Requirement> {
        let service = Requirement::Service;
        match self {
            Exclusion::NotProvided(what, _) => vec![service(*what, Preference::Require)],
            Exclusion::AlwaysProvided(what, _) => vec![service(*what, Preference::Prohibit)],
            Exclusion::NeedsFraming(what) => {
                vec![service(*what, Preference::Require), Requirement::NoFraming]
            }
            Exclusion::FramingKeepsBoundaries => vec![
                service(Service::Multistreaming, Preference::Require),
                service(Service::PreserveMsgBoundaries, Preference::Prohibit),
            ],
            Exclusion::Unavailable(_) | Exclusion::NoLocalAddress | Exclusion::NoRemoteEndpoint => {
                Vec::new()
            }
            Exclusion::Prohibited(protocol) => vec![Requirement::Protocol(*protocol)],
            Exclusion::NotSpoken => vec![Requirement::RemoteProtocols],
            Exclusion::SinglePath => vec![Requirement::SinglePath],
            Exclusion::MayDuplicate => vec![Requirement::NotReplayable],
            Exclusion::Alpn => vec![Requirement::Alpn],
            Exclusion::SecurityProtocol(_) => vec![Requirement::SecurityProtocols],
            Exclusion::Interface(preference, name) => {
                vec![Requirement::Interface(*preference, name.clone())]
            }
            Exclusion::LocalEndpoint => vec![Requirement::LocalEndpoint],
            Exclusion::NoTemporaryAddress => {
                vec![service(Service::UseTemporaryLocalAddress, Preference::Require)]
            }
            Exclusion::OnlyTemporaryAddresses => {
                vec![service(Service::UseTemporaryLocalAddress, Preference::Prohibit)]
            }
        }
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exclusion::NotProvided(service, source) => {
                write!(f, "{service} is required and never provided ({source})")
            }
            Exclusion::AlwaysProvided(service, source) => {
                write!(f, "{service} is prohibited and always provided ({source})")
            }
            Exclusion::NeedsFraming(service) => {
                write!(f, "{service} is required and needs framing, which the peer does not use")
            }
            Exclusion::FramingKeepsBoundaries => f.write_str(
                "multistreaming is required and needs framing, which keeps the boundaries of messages",
            ),
            Exclusion::Unavailable(reason) => f.write_str(reason),
            Exclusion::Prohibited(_) => f.write_str("it is prohibited by name"),
            Exclusion::NoRemoteEndpoint => {
                f.write_str("no remote endpoint has a name or an address")
            }
            Exclusion::NotSpoken => f.write_str("no remote endpoint speaks it"),
            Exclusion::SinglePath => f.write_str("multipath is disabled, so that it would be TCP"),
            Exclusion::MayDuplicate => f.write_str(
                "it may deliver a message twice and safelyReplayable is false (RFC 9622 section 9.1.3.4)",
            ),
            Exclusion::Alpn => f.write_str("none of the names in alpn runs over it"),
            Exclusion::SecurityProtocol(name) => {
                write!(f, "allowedSecurityProtocols does not name {name}")
            }
            Exclusion::Interface(preference, name) => {
                write!(f, "interface has {preference}:{name}")
            }
            Exclusion::LocalEndpoint => {
                f.write_str("the local endpoint is elsewhere or of another address family")
            }
            Exclusion::NoLocalAddress => {
                f.write_str("the interface has no address of the peer's family")
            }
            Exclusion::NoTemporaryAddress => f.write_str(
                "useTemporaryLocalAddress is required and there is no temporary IPv6 address (RFC 8981)",
            ),
            Exclusion::OnlyTemporaryAddresses => {
                f.write_str("useTemporaryLocalAddress is prohibited and all addresses are temporary")
            }
        }
    }
}

/// What decided between two candidates that both fit; the first of these in which they differ.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Criterion {
    /// The loser failed recently for this peer.
    FailedBefore,
    /// The loser's interface is avoided.
    AvoidedInterface,
    /// The winner's interface is preferred, or comes first in the system's order.
    Interface,
    /// The winner provides these preferred services better.
    Preferred(Vec<Service>),
    /// The loser provides these avoided services.
    Avoided(Vec<Service>),
    /// The winner provides these services better, which are preferred by default.
    ByDefault(Vec<Service>),
    /// The loser needs framing, which the winner does not.
    Framing,
    /// The winner worked before for this peer.
    WorkedBefore,
    /// Nothing else: more networks let the winner through.
    Order,
}

fn list(services: &[Service]) -> String {
    services.iter().map(|service| service.name()).collect::<Vec<_>>().join(", ")
}

impl Criterion {
    /// Returns the reason as the winner sees it.
    fn for_winner(&self) -> String {
        match self {
            Criterion::FailedBefore => "the other failed recently".into(),
            Criterion::AvoidedInterface => "the other's interface is avoided".into(),
            Criterion::Interface => "its interface comes first".into(),
            Criterion::Preferred(services) => {
                format!("it is better at preferred {}", list(services))
            }
            Criterion::Avoided(services) => format!("it lacks avoided {}", list(services)),
            Criterion::ByDefault(services) => {
                format!("it is better at {}, preferred by default", list(services))
            }
            Criterion::Framing => "it needs no framing".into(),
            Criterion::WorkedBefore => "it worked before".into(),
            Criterion::Order => "both fit equally and more networks let it through".into(),
        }
    }

    /// Returns the reason as the loser sees it.
    fn for_loser(&self) -> String {
        match self {
            Criterion::FailedBefore => "it failed recently".into(),
            Criterion::AvoidedInterface => "its interface is avoided".into(),
            Criterion::Interface => "its interface comes later".into(),
            Criterion::Preferred(services) => {
                format!("it is worse at preferred {}", list(services))
            }
            Criterion::Avoided(services) => format!("it has avoided {}", list(services)),
            Criterion::ByDefault(services) => {
                format!("it is worse at {}, preferred by default", list(services))
            }
            Criterion::Framing => "it needs framing".into(),
            Criterion::WorkedBefore => "the other worked before".into(),
            Criterion::Order => "both fit equally and fewer networks let it through".into(),
        }
    }
}

/// What became of a protocol on a path.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// Chosen: nothing else fits.
    Only,
    /// Chosen: it is better than the next one by this.
    Best(Protocol, Criterion),
    /// Chosen: it connected first, while or because those ranked above it had not.
    Connected,
    /// It fits and is ranked below the chosen one.
    Below(Criterion),
    /// It was tried and failed.
    Failed(String),
    /// It was tried and slower than the chosen one.
    Slower,
    /// It does not fit.
    Excluded(Vec<Exclusion>),
}

impl Verdict {
    /// Returns whether it is that of the chosen one.
    pub fn is_chosen(&self) -> bool {
        matches!(self, Verdict::Only | Verdict::Best(..) | Verdict::Connected)
    }
}

/// What became of one protocol on one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The interface; `None` where the system chooses the path.
    pub interface: Option<String>,
    /// The protocol.
    pub protocol: Protocol,
    /// What became of it.
    pub verdict: Verdict,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.protocol.title())?;
        if let Some(interface) = &self.interface {
            write!(f, " on {interface}")?;
        }
        match &self.verdict {
            Verdict::Only => f.write_str(" is chosen: nothing else fits"),
            Verdict::Best(other, criterion) => {
                write!(f, " is chosen before {}: {}", other.title(), criterion.for_winner())
            }
            Verdict::Connected => f.write_str(" is chosen: it connected first"),
            Verdict::Below(criterion) => write!(f, " comes later: {}", criterion.for_loser()),
            Verdict::Failed(error) => write!(f, " failed: {error}"),
            Verdict::Slower => f.write_str(" was slower"),
            Verdict::Excluded(exclusions) => {
                f.write_str(" does not fit: ")?;
                for (index, exclusion) in exclusions.iter().enumerate() {
                    write!(f, "{}{exclusion}", if index == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
        }
    }
}

/// All reasons of a choice: the chosen one first, then what fits by its rank, then what does not fit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explanation {
    /// A line for each protocol on each path.
    pub lines: Vec<Line>,
}

impl Explanation {
    /// Returns the line of the chosen protocol; `None` if nothing was chosen.
    pub fn chosen(&self) -> Option<&Line> {
        self.lines.iter().find(|line| line.verdict.is_chosen())
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.lines.iter().enumerate() {
            write!(f, "{}{line}.", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// A requirement without which these protocols would fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suggestion {
    /// The requirement.
    pub requirement: Requirement,
    /// What would fit then.
    pub protocols: Vec<Protocol>,
}

/// No protocol fits on any path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfit {
    /// What excludes each.
    pub explanation: Explanation,
    /// Requirements of which one alone could be dropped.
    pub suggestions: Vec<Suggestion>,
}

impl Unfit {
    pub(crate) fn new(explanation: Explanation) -> Self {
        let mut suggestions: BTreeMap<Requirement, Vec<Protocol>> = BTreeMap::new();
        for line in &explanation.lines {
            let Verdict::Excluded(exclusions) = &line.verdict else { continue };
            let Some((first, others)) = exclusions.split_first() else { continue };
            for requirement in first.requirements() {
                if others.iter().all(|other| other.requirements().contains(&requirement)) {
                    let protocols = suggestions.entry(requirement).or_default();
                    if !protocols.contains(&line.protocol) {
                        protocols.push(line.protocol);
                    }
                }
            }
        }
        let suggestions = suggestions
            .into_iter()
            .map(|(requirement, protocols)| Suggestion { requirement, protocols })
            .collect();
        Unfit { explanation, suggestions }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "no protocol fits.\n{}", self.explanation)?;
        if self.suggestions.is_empty() {
            return f.write_str("No single requirement can be dropped to make one fit.");
        }
        for (index, suggestion) in self.suggestions.iter().enumerate() {
            let titles: Vec<&str> = suggestion.protocols.iter().map(|one| one.title()).collect();
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}Without {}: {}.", suggestion.requirement, titles.join(", "))?;
        }
        Ok(())
    }
}

impl core::error::Error for Unfit {}
