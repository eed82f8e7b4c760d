//! Phones that are registered at several servers: each is called by one of them.
//!
//! A phone with flows to two servers (RFC 5626), or that has moved from one to another, is one instance at both. Section 7
//! forbids to call it over more than one flow at a time. So one server is asked for it: this one, or another at which it is the
//! user's only phone and registered for longer. The next is asked when that one cannot reach it. A parameter of the Route to a
//! server names the phones by the hashes of their instances: `only=HASH.HASH` or `without=HASH.HASH`.

use crate::core::request::IncomingRequest;
use crate::core::target::{Attempt, Origin, RequestTarget};
use crate::core::turn::Turn;
use crate::location::{BindingView, ServerView, instance_hash};
use ringway_sansio::Time;
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::uri::Uri;
use smallvec::{SmallVec, smallvec};
use std::fmt::Write;

/// The number of servers that are asked for a phone after the first.
const MAX_ALTERNATIVES: usize = 4;
/// The number of phones that one Route names.
const MAX_NAMED: usize = 16;
const ONLY: &str = "only";
const WITHOUT: &str = "without";

/// Hashes of instances.
type Instances = SmallVec<[u64; 2]>;

/// Which phones a request is for.
#[derive(Debug, PartialEq)]
pub(super) enum Wanted {
    /// All.
    All,
    /// These.
    Only(Instances),
    /// All but these.
    Without(Instances),
}

impl Wanted {
    /// Returns what the Route of a request of another server says. Nobody else is believed.
    pub(super) fn of(t: &Turn<'_>, incoming: &IncomingRequest<'_>) -> Wanted {
        if t.node.trust.sender(incoming).is_none() {
            return Wanted::All;
        }
        let route = incoming.msg.items(HeaderId::Route).next().map(NameAddr::parse);
        let uri = route.and_then(|route| Uri::parse(route.ok()?.uri).ok());
        let named = |parameter: &str| instances(uri?.param(parameter.as_bytes())??);
        match (named(ONLY), named(WITHOUT)) {
            (Some(only), _) => Wanted::Only(only),
            (None, Some(without)) => Wanted::Without(without),
            (None, None) => Wanted::All,
        }
    }

    /// Returns whether the request is for the phone of a binding.
    pub(super) fn has(&self, binding: &BindingView<'_>) -> bool {
        let is_among = |named: &Instances| {
            !binding.instance.is_empty() && named.contains(&instance_hash(binding.instance))
        };
        match self {
            Wanted::All => true,
            Wanted::Only(named) => is_among(named),
            Wanted::Without(named) => !is_among(named),
        }
    }

    /// Returns a Path with these phones as its parameter.
    fn write(&self, path: &[u8]) -> Vec<u8> {
        let (name, instances) = match self {
            Wanted::All => return path.to_vec(),
            Wanted::Only(instances) => (ONLY, instances),
            Wanted::Without(instances) => (WITHOUT, instances),
        };
        let mut text = format!(";{name}=");
        for (i, instance) in instances.iter().take(MAX_NAMED).enumerate() {
            let dot = if i == 0 { "" } else { "." };
            // Writing to a string cannot fail.
            let _ = write!(text, "{dot}{instance:016x}");
        }
        let end = memchr::memrchr(b'>', path).unwrap_or(path.len());
        [&path[..end], text.as_bytes(), &path[end..]].concat()
    }
}

fn instances(text: &[u8]) -> Option<Instances> {
    let one = |text: &[u8]| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
    text.split(|&b| b == b'.').take(MAX_NAMED).map(one).collect()
}

/// Another server at which the user is registered.
pub(super) struct Server {
    path: Vec<u8>,
    q: u16,
    ends: Time,
    instances: Instances,
    others: bool,
}

impl From<&ServerView<'_>> for Server {
    fn from(view: &ServerView<'_>) -> Self {
        let ServerView { path, q, ends, instances, others } = *view;
        Server { path: path.to_vec(), q, ends, instances: instances.into(), others }
    }
}

impl Server {
    /// Returns the server as the target for some of its phones.
    fn target(&self, uri: &[u8], wanted: &Wanted) -> RequestTarget {
        let remote =
            RequestTarget::remote(uri.to_vec(), Origin::Elsewhere, smallvec![Attempt::Uri]);
        RequestTarget { path: wanted.write(&self.path), q: self.q, ..remote }
    }

    fn shared(&self, instances: &[u64]) -> Instances {
        self.instances.iter().copied().filter(|one| instances.contains(one)).collect()
    }
}

/// Adds to the targets here those of other servers, at each of which `uri` is the Request-URI: each phone once, with other
/// ways to it as further attempts.
pub(super) fn add_servers(targets: &mut Vec<RequestTarget>, servers: &mut [Server], uri: &[u8]) {
    // The latest registration first.
    servers.sort_by_key(|server| std::cmp::Reverse(server.ends));
    let later = take_later(targets, servers);
    let phones = targets.iter().filter_map(|target| Some(target.phone?.0));
    let mut reached: Instances = phones.collect();
    let mut seen = Instances::new();
    for target in targets.iter_mut() {
        if let Some((instance, _)) = target.phone.filter(|(instance, _)| !seen.contains(instance)) {
            seen.push(instance);
            add_alternatives(target, servers, None, &[instance], uri);
        }
    }
    for (i, server) in servers.iter().enumerate() {
        let known = server.shared(&reached);
        let new: Instances =
            server.instances.iter().copied().filter(|one| !known.contains(one)).collect();
        if new.is_empty() && !server.others && !server.instances.is_empty() {
            continue;
        }
        let wanted = if known.is_empty() { Wanted::All } else { Wanted::Without(known) };
        let mut target = server.target(uri, &wanted);
        add_alternatives(&mut target, servers, Some(i), &new, uri);
        for (_, here) in later.iter().filter(|(instance, _)| new.contains(instance)) {
            target.attempts.insert(0, Attempt::Binding(Box::new(here.clone())));
        }
        reached.extend(new);
        targets.push(target);
    }
}

/// Takes out the targets here of phones whose registration at another server ends later.
fn take_later(targets: &mut Vec<RequestTarget>, servers: &[Server]) -> Vec<(u64, RequestTarget)> {
    let mut latest: SmallVec<[(u64, Time); 4]> = SmallVec::new();
    for (instance, ends) in targets.iter().filter_map(|target| target.phone) {
        match latest.iter_mut().find(|(known, _)| *known == instance) {
            Some((_, last)) => *last = ends.max(*last),
            None => latest.push((instance, ends)),
        }
    }
    latest.retain(|(instance, ends)| {
        // What is known of the end is that of the last phone there.
        let is_alone = |server: &&Server| !server.others && server.instances[..] == [*instance];
        servers.iter().filter(is_alone).any(|server| server.ends > *ends)
    });
    let is_later = |target: &RequestTarget| {
        target.phone.is_some_and(|(instance, _)| latest.iter().any(|(known, _)| *known == instance))
    };
    let taken = targets.extract_if(.., |target| is_later(target));
    taken.filter_map(|target| Some((target.phone?.0, target))).collect()
}

/// Adds the other servers that have some of these phones to the attempts of a target.
fn add_alternatives(
    target: &mut RequestTarget,
    servers: &[Server],
    except: Option<usize>,
    instances: &[u64],
    uri: &[u8],
) {
    let others = servers.iter().enumerate().filter(|(i, _)| Some(*i) != except);
    let with_phones = others.map(|(_, other)| (other, other.shared(instances)));
    for (other, shared) in
        with_phones.filter(|(_, shared)| !shared.is_empty()).take(MAX_ALTERNATIVES)
    {
        let other = other.target(uri, &Wanted::Only(shared));
        // Attempts are in reverse order.
        target.attempts.insert(0, Attempt::Binding(Box::new(other)));
    }
}
