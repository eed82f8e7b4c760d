//! Gathering, filtering and ranking of candidates (RFC 9623 sections 4.1 and 4.2).
//!
//! The tree of candidates branches by path, then by protocol, then by the peer's addresses (section 4.1.2). It is kept as
//! a list of its leaves, each with its index on the three levels.

use crate::availability::{Availability, Interface, MAX_PATHS};
use crate::endpoint::{Family, Remote, RemoteEndpoint, interlace};
use crate::explain::{Criterion, Exclusion, Explanation, Line, Unfit, Verdict};
use crate::memory::{Key, Memory, Outcome};
use crate::preconnection::{MAX_ENDPOINTS, Preconnection};
use crate::properties::{Multipath, Preference, Role, Service};
use crate::protocol::{Protocol, Provided, Provision};
use core::cmp::Ordering;
use core::fmt;
use core::time::Duration;
use ringway_sansio::Time;
use std::net::{IpAddr, SocketAddr};

/// Candidates of one choice; those of lower rank are left out.
pub const MAX_CANDIDATES: usize = 512;

/// A local address, `None` for the system's choice, and whether it is a temporary one.
pub(crate) type Local = (Option<IpAddr>, bool);

/// One way to connect or to listen: a leaf of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The interface to use; `None` for the system's choice.
    pub interface: Option<String>,
    /// The protocol.
    pub protocol: Protocol,
    /// The peer.
    pub remote: Remote,
    /// The local address to bind; `None` for the system's choice, or for all if several paths are used.
    pub local_address: Option<IpAddr>,
    /// The local port to bind; `None` for a free one.
    pub local_port: Option<u16>,
    /// Whether [`framing`](crate::framing) is used.
    pub framed: bool,
    /// What the connection will have.
    pub provides: Provided,
    /// What its outcome is remembered by.
    pub key: Key,
    /// The time of a round trip, if the peer is remembered.
    pub rtt: Option<Duration>,
    /// The address that worked before.
    pub(crate) worked: Option<IpAddr>,
    /// For a name: the local address for peers of each family, and whether it is temporary; `None` where there is none.
    pub(crate) by_family: [Option<Local>; 2],
    /// Whether it is tried only when all others have failed (RFC 9623 section 4.3.3).
    pub last_resort: bool,
    /// Its index on each level of the tree.
    pub(crate) order: Order,
}

impl Candidate {
    /// Returns the candidate for an address of its peer's name, which is one of several.
    pub(crate) fn at(&self, address: SocketAddr, local: Local, index: usize) -> Candidate {
        let mut candidate = self.clone();
        candidate.remote = Remote::Address(address);
        candidate.bind(local);
        candidate.order.address += index;
        candidate
    }

    /// Returns the candidate without a service that its connection turned out to lack.
    #[must_use]
    pub fn without(mut self, service: Service) -> Candidate {
        self.provides.set(service, false);
        self
    }

    /// Moves it to the position of an equal candidate.
    pub(crate) fn move_to(&mut self, other: &Candidate) {
        self.order = other.order;
    }

    fn bind(&mut self, (address, temporary): Local) {
        self.local_address = address;
        self.provides.set(Service::UseTemporaryLocalAddress, temporary);
    }
}

/// The index of a candidate on each level of the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Order {
    pub(crate) path: usize,
    pub(crate) protocol: usize,
    pub(crate) address: usize,
}

/// Candidates, best first, and the reasons of their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranked {
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// Why they are in this order, and what else does not fit.
    pub explanation: Explanation,
    /// Candidates that were left out, because there are more than [`MAX_CANDIDATES`].
    pub left_out: usize,
    /// Whether outcomes must not be remembered (`isolateSession`).
    pub isolated: bool,
}

impl Ranked {
    /// Returns the best candidate. Gathering always returns one.
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.first()
    }
}

/// The tree of candidates, each with the numbers of its branches (RFC 9623 section 4.1).
impl fmt::Display for Ranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, candidate) in self.candidates.iter().enumerate() {
            let Order { path, protocol, address } = candidate.order;
            let interface = candidate.interface.as_deref().unwrap_or("any");
            let (line, title) = (if index == 0 { "" } else { "\n" }, candidate.protocol.title());
            write!(f, "{line}1.{}.{}.{} ", path + 1, protocol + 1, address + 1)?;
            write!(f, "[{}, {interface}, {title}]", candidate.remote)?;
        }
        Ok(())
    }
}

/// Protocols that application protocols run over, by their ALPN identifiers; others run over anything.
fn alpn_protocols(name: &str) -> Option<&'static [Protocol]> {
    match name {
        "h3" | "doq" => Some(&[Protocol::Quic, Protocol::QuicDatagram]),
        "h2" | "http/1.1" | "http/1.0" | "dot" => Some(&[Protocol::Tls]),
        _ => None,
    }
}

/// Returns the name of the security protocol of a stack.
fn security_protocol(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Tls => Some("tls"),
        Protocol::Quic | Protocol::QuicDatagram => Some("quic"),
        _ => None,
    }
}

/// What a branch of one path and one protocol is ranked by, in the order of the fields.
#[derive(Clone, Debug)]
struct Rank {
    failed: bool,
    path_avoided: usize,
    path_preferred: usize,
    path_index: usize,
    /// How well each service that the program prefers is provided: 2 by the protocol, 1 by framing.
    preferred: Vec<(Service, u32)>,
    avoided: Vec<Service>,
    /// The same of services that are preferred by default. They count only for a protocol that the peer is known to speak:
    /// what nobody has asked for is no reason to try one protocol after the other.
    by_default: Vec<(Service, u32)>,
    framed: bool,
    worked: bool,
    protocol: Protocol,
}

/// Returns how well a list of services is provided.
fn score(services: &[(Service, u32)]) -> u32 {
    services.iter().map(|(_, score)| score).sum()
}

/// Returns the services that one branch provides better than another.
fn better(one: &[(Service, u32)], other: &[(Service, u32)]) -> Vec<Service> {
    let better = one.iter().zip(other).filter(|(one, other)| one.1 > other.1);
    better.map(|(one, _)| one.0).collect()
}

impl Rank {
    /// Compares two branches, the better one less, by the first criterion in which they differ.
    fn compare(&self, other: &Rank) -> (Ordering, Criterion) {
        let by = [
            (self.failed.cmp(&other.failed), Criterion::FailedBefore),
            ((self.path_avoided > 0).cmp(&(other.path_avoided > 0)), Criterion::AvoidedInterface),
            // RFC 9622 section 6.2: paths are chosen before protocols.
            (other.path_preferred.cmp(&self.path_preferred), Criterion::Interface),
            (self.path_avoided.cmp(&other.path_avoided), Criterion::AvoidedInterface),
            (self.path_index.cmp(&other.path_index), Criterion::Interface),
            // RFC 9623 section 4.1.3: what is preferred orders branches, what is avoided breaks ties, and what the program
            // has stated weighs more than a default.
            (
                score(&other.preferred).cmp(&score(&self.preferred)),
                Criterion::Preferred(Vec::new()),
            ),
            (self.avoided.len().cmp(&other.avoided.len()), Criterion::Avoided(Vec::new())),
            (
                score(&other.by_default).cmp(&score(&self.by_default)),
                Criterion::ByDefault(Vec::new()),
            ),
            (self.framed.cmp(&other.framed), Criterion::Framing),
            (other.worked.cmp(&self.worked), Criterion::WorkedBefore),
        ];
        by.into_iter()
            .find(|(ordering, _)| ordering.is_ne())
            .unwrap_or((self.protocol.cmp(&other.protocol), Criterion::Order))
    }

    /// Returns what decides between this branch and one that is ranked below it.
    fn beats(&self, loser: &Rank) -> Criterion {
        match self.compare(loser).1 {
            Criterion::Preferred(_) => {
                Criterion::Preferred(better(&self.preferred, &loser.preferred))
            }
            Criterion::ByDefault(_) => {
                Criterion::ByDefault(better(&self.by_default, &loser.by_default))
            }
            Criterion::Avoided(_) => {
                let worse = loser.avoided.iter().filter(|service| !self.avoided.contains(service));
                Criterion::Avoided(worse.copied().collect())
            }
            criterion => criterion,
        }
    }
}

struct Branch {
    rank: Rank,
    interface: Option<String>,
    candidates: Vec<Candidate>,
}

/// One choice: its inputs.
struct Gathering<'a> {
    preconnection: &'a Preconnection,
    role: Role,
    now: Time,
    availability: &'a Availability,
    memory: &'a Memory,
}

pub(crate) fn gather(
    preconnection: &Preconnection,
    role: Role,
    now: Time,
    availability: &Availability,
    memory: &Memory,
) -> Result<Ranked, Unfit> {
    Gathering { preconnection, role, now, availability, memory }.run()
}

impl Gathering<'_> {
    fn run(&self) -> Result<Ranked, Unfit> {
        let any = [Interface::default()];
        let known = &self.availability.interfaces;
        let paths: &[Interface] = if known.is_empty() { &any } else { known };
        let (mut branches, mut excluded) = (Vec::new(), Vec::new());
        for (path_index, path) in paths.iter().take(MAX_PATHS).enumerate() {
            let interface = (!path.name.is_empty()).then(|| path.name.clone());
            for &protocol in Protocol::ALL {
                match self.branch(path_index, path, protocol) {
                    Ok(branch) => branches.push(branch),
                    Err(exclusions) => excluded.push(Line {
                        interface: interface.clone(),
                        protocol,
                        verdict: Verdict::Excluded(exclusions),
                    }),
                }
            }
        }
        branches.sort_by(|one, other| one.rank.compare(&other.rank).0);
        let explanation = explain(&branches, excluded);
        if branches.is_empty() {
            return Err(Unfit::new(explanation));
        }
        let mut candidates = number(branches);
        let left_out = candidates.len().saturating_sub(MAX_CANDIDATES);
        candidates.truncate(MAX_CANDIDATES);
        let isolated = self.preconnection.properties.connection.isolate_session;
        Ok(Ranked { candidates, explanation, left_out, isolated })
    }

    fn preference(&self, service: Service) -> Preference {
        self.preconnection.preference(service, self.role)
    }

    /// Returns whether a preference is the program's, not a default.
    fn is_stated(&self, service: Service) -> bool {
        let selection = &self.preconnection.properties.selection;
        selection.stated(service).is_some()
            || service == Service::Security
            || service == Service::Multihoming && selection.multipath.is_some()
    }

    /// Returns what a protocol provides here.
    fn provides(&self, protocol: Protocol, framed: bool) -> Provided {
        let mut provides = protocol.provides(|service| self.preference(service), framed);
        for (service, _) in self.availability.lacking(protocol) {
            provides.set(*service, false);
        }
        provides
    }

    /// Returns the candidates of one protocol on one path, or all that excludes it.
    fn branch(
        &self,
        path_index: usize,
        path: &Interface,
        protocol: Protocol,
    ) -> Result<Branch, Vec<Exclusion>> {
        let mut exclusions = self.services(protocol);
        self.protocol(protocol, &mut exclusions);
        self.path(path, &mut exclusions);
        let preference = |service| self.preference(service);
        let framed = protocol.is_framed(preference, self.preconnection.may_frame);
        let provides = self.provides(protocol, framed);
        let leaf = |remote, key| Candidate {
            interface: (!path.name.is_empty()).then(|| path.name.clone()),
            protocol,
            remote,
            local_address: None,
            local_port: self.preconnection.local.port,
            framed,
            provides,
            key,
            rtt: None,
            worked: None,
            by_family: [None; 2],
            last_resort: false,
            order: Order::default(),
        };
        let mut candidates = Vec::new();
        if self.role == Role::Listen {
            let key = Key { network: path.network.clone(), peer: String::new(), protocol };
            match self.local(path, None) {
                Ok(local) => {
                    let mut candidate = leaf(Remote::Any, key);
                    candidate.bind(self.bound(&candidate, local));
                    candidates.push(candidate);
                }
                Err(exclusion) => exclusions.push(exclusion),
            }
        } else {
            let endpoints = self.preconnection.remote.iter().take(MAX_ENDPOINTS);
            let none = self.preconnection.remote.is_empty();
            let mut fault = if none { Exclusion::NoRemoteEndpoint } else { Exclusion::NotSpoken };
            for endpoint in endpoints.filter(|endpoint| endpoint.speaks(protocol)) {
                let key = Key { network: path.network.clone(), peer: endpoint.key(), protocol };
                if let Err(exclusion) =
                    self.leaves(path, endpoint, leaf(Remote::Any, key), &mut candidates)
                {
                    fault = exclusion;
                }
            }
            if candidates.is_empty() {
                exclusions.push(fault);
            }
        }
        if !exclusions.is_empty() {
            return Err(exclusions);
        }
        let rank = self.rank(path_index, path, protocol, &candidates, framed);
        let last_resort = rank.failed || rank.path_avoided > 0;
        candidates.iter_mut().for_each(|candidate| candidate.last_resort = last_resort);
        Ok(Branch { rank, interface: candidates[0].interface.clone(), candidates })
    }

    /// Returns the services that exclude a protocol.
    fn services(&self, protocol: Protocol) -> Vec<Exclusion> {
        let mut exclusions = Vec::new();
        let may_frame = self.preconnection.may_frame;
        for fact in protocol.facts() {
            match (self.preference(fact.service), fact.provision) {
                (Preference::Require, Provision::Never) => {
                    exclusions.push(Exclusion::NotProvided(fact.service, fact.source));
                }
                (Preference::Require, Provision::Framed) if !may_frame => {
                    exclusions.push(Exclusion::NeedsFraming(fact.service));
                }
                (Preference::Prohibit, Provision::Always) => {
                    exclusions.push(Exclusion::AlwaysProvided(fact.service, fact.source));
                }
                _ => {}
            }
        }
        let framed = protocol.is_framed(|service| self.preference(service), may_frame);
        if framed && self.preference(Service::PreserveMsgBoundaries) == Preference::Prohibit {
            exclusions.push(Exclusion::FramingKeepsBoundaries);
        }
        exclusions
    }

    /// Adds what else excludes a protocol on all paths.
    fn protocol(&self, protocol: Protocol, exclusions: &mut Vec<Exclusion>) {
        let preconnection = self.preconnection;
        if let Some(reason) = self.availability.missing(protocol) {
            exclusions.push(Exclusion::Unavailable(reason.to_string()));
        }
        for (service, reason) in self.availability.lacking(protocol) {
            if self.preference(*service) == Preference::Require {
                exclusions.push(Exclusion::Unavailable(reason.clone()));
            }
        }
        if preconnection.prohibited.contains(&protocol) {
            exclusions.push(Exclusion::Prohibited(protocol));
        }
        let multipath = preconnection.properties.selection.multipath(self.role);
        if protocol == Protocol::Mptcp && multipath == Multipath::Disabled {
            exclusions.push(Exclusion::SinglePath);
        }
        // RFC 9622 section 9.1.3.4: a protocol that may duplicate needs messages that may be repeated.
        if protocol.may_duplicate() && !preconnection.properties.message.safely_replayable {
            exclusions.push(Exclusion::MayDuplicate);
        }
        let Some(name) = security_protocol(protocol) else { return };
        let security = &preconnection.security;
        let runs = |alpn: &String| alpn_protocols(alpn).is_none_or(|over| over.contains(&protocol));
        if !security.alpn.is_empty() && !security.alpn.iter().any(runs) {
            exclusions.push(Exclusion::Alpn);
        }
        let allowed = &security.allowed_security_protocols;
        if !allowed.is_empty() && !allowed.iter().any(|one| one.eq_ignore_ascii_case(name)) {
            exclusions.push(Exclusion::SecurityProtocol(name));
        }
    }

    /// Adds what excludes a path.
    fn path(&self, path: &Interface, exclusions: &mut Vec<Exclusion>) {
        for (preference, selector) in &self.preconnection.properties.selection.interface.0 {
            let is = path.is(selector);
            if *preference == Preference::Require && !is
                || *preference == Preference::Prohibit && is
            {
                exclusions.push(Exclusion::Interface(*preference, selector.clone()));
            }
        }
        let local = &self.preconnection.local;
        if local.interface.as_ref().is_some_and(|name| *name != path.name) {
            exclusions.push(Exclusion::LocalEndpoint);
        }
    }

    /// Adds the leaves of one remote endpoint, or returns why there is none.
    fn leaves(
        &self,
        path: &Interface,
        endpoint: &RemoteEndpoint,
        mut leaf: Candidate,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), Exclusion> {
        if let Some(Outcome::Worked { rtt, address }) = self.recall(&leaf.key) {
            (leaf.rtt, leaf.worked) = (Some(rtt), Some(address));
        }
        if endpoint.addresses.is_empty() {
            let Some(host) = &endpoint.host else { return Err(Exclusion::NoRemoteEndpoint) };
            // Which families there are is known when the name is resolved.
            let locals = Family::ALL.map(|family| self.local(path, Some(family)));
            let [v6, v4] = locals.map(|local| local.map(|local| self.bound(&leaf, local)));
            leaf.by_family = [v6.clone().ok(), v4.clone().ok()];
            let (_, temporary) = v6.or(v4)?;
            leaf.provides.set(Service::UseTemporaryLocalAddress, temporary);
            leaf.remote = Remote::Name { host: host.clone(), port: endpoint.port };
            candidates.push(leaf);
            return Ok(());
        }
        let (before, mut fault) = (candidates.len(), Exclusion::NoLocalAddress);
        for address in interlace(&endpoint.addresses, leaf.worked) {
            match self.local(path, Some(Family::of(address))) {
                Ok(local) => {
                    let mut candidate = leaf.clone();
                    candidate.remote = Remote::Address(SocketAddr::new(address, endpoint.port));
                    candidate.bind(self.bound(&candidate, local));
                    candidates.push(candidate);
                }
                Err(exclusion) => fault = exclusion,
            }
        }
        if candidates.len() == before { Err(fault) } else { Ok(()) }
    }

    /// Returns the local address for peers of a family, and whether it is a temporary one (RFC 9622 section 6.2.13).
    fn local(&self, path: &Interface, family: Option<Family>) -> Result<Local, Exclusion> {
        let is = |ip: &IpAddr| family.is_none_or(|family| Family::of(*ip) == family);
        let temporary =
            |ip: &IpAddr| path.addresses.iter().any(|local| local.ip == *ip && local.temporary);
        let bound = &self.preconnection.local.addresses;
        let known: Vec<IpAddr> = path.addresses.iter().map(|local| local.ip).filter(is).collect();
        let preference = self.preference(Service::UseTemporaryLocalAddress);
        let usable: Vec<IpAddr> = if bound.is_empty() {
            known
        } else {
            let here = |ip: &IpAddr| path.addresses.is_empty() || known.contains(ip);
            bound.iter().copied().filter(is).filter(here).collect()
        };
        if usable.is_empty() && !bound.is_empty() {
            return Err(Exclusion::LocalEndpoint);
        }
        if usable.is_empty() && !path.addresses.is_empty() {
            return Err(Exclusion::NoLocalAddress);
        }
        let first = |wanted: bool| usable.iter().copied().find(|ip| temporary(ip) == wanted);
        let fallback = || bound.iter().copied().find(|ip| usable.contains(ip));
        let chosen = match preference {
            Preference::Require => Some(first(true).ok_or(Exclusion::NoTemporaryAddress)?),
            Preference::Prefer => first(true).or_else(fallback),
            Preference::NoPreference => fallback(),
            // A listener without an address listens at all of them.
            Preference::Avoid if family.is_none() && bound.is_empty() => None,
            Preference::Avoid => first(false).or_else(fallback),
            Preference::Prohibit if usable.is_empty() => None,
            Preference::Prohibit => Some(first(false).ok_or(Exclusion::OnlyTemporaryAddresses)?),
        };
        Ok((chosen, chosen.as_ref().is_some_and(temporary)))
    }

    /// Returns the local address that a candidate is bound to. One with several paths uses all addresses, unless the program
    /// restricts them.
    fn bound(&self, candidate: &Candidate, local: Local) -> Local {
        let restricts = matches!(
            self.preference(Service::UseTemporaryLocalAddress),
            Preference::Require | Preference::Prohibit
        );
        let all = candidate.provides.has(Service::Multihoming)
            && self.preconnection.local.addresses.is_empty()
            && !restricts;
        if all { (None, false) } else { local }
    }

    fn recall(&self, key: &Key) -> Option<Outcome> {
        // RFC 9622 section 8.1.10: an isolated session uses nothing of others.
        let isolated = self.preconnection.properties.connection.isolate_session;
        if isolated { None } else { self.memory.recall(self.now, key) }
    }

    fn rank(
        &self,
        path_index: usize,
        path: &Interface,
        protocol: Protocol,
        candidates: &[Candidate],
        framed: bool,
    ) -> Rank {
        let interfaces = &self.preconnection.properties.selection.interface.0;
        let count = |wanted| {
            let is = |(preference, selector): &&(Preference, String)| {
                *preference == wanted && path.is(selector)
            };
            interfaces.iter().filter(is).count()
        };
        let provides = self.provides(protocol, framed);
        let is_stated = |service| self.is_stated(service);
        let of = |wanted, stated| {
            let services = Service::ALL.iter().copied();
            // Temporary addresses are a matter of the path.
            let services = services.filter(|one| *one != Service::UseTemporaryLocalAddress);
            services.filter(move |service| {
                self.preference(*service) == wanted && is_stated(*service) == stated
            })
        };
        let outcomes = candidates.iter().map(|candidate| self.recall(&candidate.key));
        let worked = outcomes.clone().any(|one| matches!(one, Some(Outcome::Worked { .. })));
        let names = |endpoint: &RemoteEndpoint| endpoint.protocols.contains(&protocol);
        let is_known = worked || self.preconnection.remote.iter().any(names);
        let score = |service| match (provides.has(service), protocol.fact(service).provision) {
            (false, _) => 0,
            (true, Provision::Framed) => 1,
            (true, _) => 2,
        };
        let by_default = of(Preference::Prefer, false);
        Rank {
            failed: outcomes.clone().all(|outcome| outcome == Some(Outcome::Failed)),
            path_avoided: count(Preference::Avoid),
            path_preferred: count(Preference::Prefer),
            path_index,
            preferred: of(Preference::Prefer, true).map(|one| (one, score(one))).collect(),
            avoided: of(Preference::Avoid, true).filter(|one| provides.has(*one)).collect(),
            by_default: by_default
                .map(|one| (one, if is_known { score(one) } else { 0 }))
                .collect(),
            framed,
            worked,
            protocol,
        }
    }
}

/// Assigns each candidate its index on each level of the tree.
fn number(branches: Vec<Branch>) -> Vec<Candidate> {
    let mut paths: Vec<(usize, usize)> = Vec::new();
    let mut numbered = Vec::new();
    for branch in branches {
        let of = branch.rank.path_index;
        let path = paths.iter().position(|(index, _)| *index == of).unwrap_or_else(|| {
            paths.push((of, 0));
            paths.len() - 1
        });
        let protocol = paths[path].1;
        paths[path].1 += 1;
        for (address, mut candidate) in branch.candidates.into_iter().enumerate() {
            candidate.order = Order { path, protocol, address };
            numbered.push(candidate);
        }
    }
    numbered
}

/// Returns the reasons of an order.
fn explain(branches: &[Branch], excluded: Vec<Line>) -> Explanation {
    let verdicts = branches.iter().enumerate().map(|(index, branch)| match (index, branches) {
        (0, [_]) => Verdict::Only,
        (0, [best, next, ..]) => Verdict::Best(next.rank.protocol, best.rank.beats(&next.rank)),
        _ => Verdict::Below(branches[0].rank.beats(&branch.rank)),
    });
    let fits = branches.iter().zip(verdicts).map(|(branch, verdict)| Line {
        interface: branch.interface.clone(),
        protocol: branch.rank.protocol,
        verdict,
    });
    Explanation { lines: fits.chain(excluded).collect() }
}
