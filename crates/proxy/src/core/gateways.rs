//! Next hops of routing rules, and the requests that may be sent there without a rule.
//!
//! A gateway trusts the proxy by its address and charges calls to it. So a request may be sent to one by a rule, which
//! asks for proof, from a trusted peer, or within a dialog. A Route, a Request-URI, a contact or a Path that leads
//! there by itself is refused. The same holds for a user's contact that leads to a trusted peer. An address counts as a
//! gateway's if a rule names it, or if a rule has recently led there by a name that was looked up.

use super::locator::Destination;
use super::names::next_host;
use super::refusal::Refusal;
use super::target::{Origin, RequestTarget};
use super::trust::Trust;
use crate::config::Config;
use crate::local_identity::{LocalIdentity, parse_ip};
use crate::routes::Rule;
use crate::shared::{FAILURE_LIFETIME, GATEWAY_LIFETIME, Shared, hash_ip};
use ringway_sansio::{Flow, Time};
use ringway_sip::header::{HeaderId, Items, NameAddr};
use ringway_sip::message::Message;
use ringway_sip::uri::Uri;
use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::Arc;

/// The next hops of routing rules: those of the configuration, and the facts about them.
pub(super) struct Gateways {
    ips: Vec<IpAddr>,
    /// In lower case.
    names: Vec<Box<[u8]>>,
    shared: Arc<Shared>,
}

impl Gateways {
    pub(super) fn new(config: &Config, shared: Arc<Shared>) -> Gateways {
        let mut gateways = Gateways { ips: Vec::new(), names: Vec::new(), shared };
        for rule in &config.routes.rules {
            for hop in &rule.next_hops {
                if let Ok(uri) = Uri::parse(hop.uri.as_bytes()) {
                    gateways.add(next_host(&uri));
                }
            }
            if let Some(domain) = rule.rewrite.domain.as_ref().filter(|_| rule.next_hops.is_empty())
            {
                gateways.add(domain.as_bytes());
            }
        }
        gateways
    }

    fn add(&mut self, host: &[u8]) {
        match parse_ip(host) {
            Some(ip) => self.ips.push(ip.to_canonical()),
            None => self.names.push(host.to_ascii_lowercase().into()),
        }
    }

    /// Returns whether a target must not be sent to this destination.
    pub(super) fn forbids(
        &self,
        now: Time,
        identity: &LocalIdentity,
        trust: &Trust,
        target: &RequestTarget,
        privileged: bool,
        destination: &Destination,
    ) -> bool {
        // A flow has been opened by a phone or is named by a token of ours.
        if destination.flow.is_some() {
            return false;
        }
        let addr = destination.target.remote();
        let ip = addr.ip();
        if target.is_located() && identity.is_local_ip(ip) && identity.listens_on(addr.port()) {
            // The name of a contact leads back here: contacts at our domains have been looked up already.
            return true;
        }
        if !trust.asks_for_proof() {
            return false;
        }
        match target.origin {
            Origin::Rule | Origin::Elsewhere | Origin::Shared => false,
            Origin::Request => !privileged && self.is_gateway(now, ip),
            Origin::Location(source) => {
                let is_source = match source {
                    Some(s) => s.to_canonical() == ip.to_canonical() || trust.is_trusted(s),
                    // A contact with a literal address was checked when it was registered.
                    None => is_literal(target, ip),
                };
                !is_source && (self.is_gateway(now, ip) || trust.is_trusted(ip))
            }
        }
    }

    /// Returns whether a target must not be sent to this host name, because it is the next hop of a rule.
    pub(super) fn forbids_name(
        &self,
        trust: &Trust,
        target: &RequestTarget,
        privileged: bool,
        host: &str,
    ) -> bool {
        let named = || self.names.iter().any(|n| n.eq_ignore_ascii_case(host.as_bytes()));
        match target.origin {
            Origin::Rule | Origin::Elsewhere | Origin::Shared => false,
            Origin::Request => !privileged && trust.asks_for_proof() && named(),
            Origin::Location(_) => trust.asks_for_proof() && named(),
        }
    }

    /// Records the destination of a rule's request as a gateway.
    pub(super) fn note_destination(
        &self,
        now: Time,
        trust: &Trust,
        target: &RequestTarget,
        destination: &Destination,
    ) {
        if target.origin == Origin::Rule && destination.flow.is_none() && trust.asks_for_proof() {
            let key = self.key(destination.target.remote().ip());
            self.shared.gateways.put(key, 1, now, GATEWAY_LIFETIME);
        }
    }

    /// Records that a next hop has failed: it is tried last for a while, by all workers and in every rule that has it.
    pub(super) fn note_failed(&self, now: Time, next_hop: &str) {
        self.shared.failed.put(self.failed_key(next_hop), 1, now, FAILURE_LIFETIME);
    }

    /// Moves the next hops of a rule that have failed recently behind the others; the order is kept otherwise.
    pub(super) fn failed_last(&self, now: Time, rule: &Rule, order: &mut [usize]) {
        order.sort_by_cached_key(|&i| self.has_failed(now, &rule.next_hops[i].uri));
    }

    /// Returns whether a next hop has failed recently.
    pub(super) fn has_failed(&self, now: Time, next_hop: &str) -> bool {
        self.shared.failed.get(self.failed_key(next_hop), now).is_some()
    }

    fn failed_key(&self, uri: &str) -> u64 {
        let mut hasher = self.shared.failed.hasher();
        hasher.write(uri.as_bytes());
        hasher.finish()
    }

    /// Returns 403 for a REGISTER with a contact or a Path at a gateway or a trusted peer that is not the sender's own
    /// address.
    pub(super) fn vet_contacts(
        &self,
        now: Time,
        trust: &Trust,
        msg: &Message<'_>,
        flow: &Flow,
    ) -> Result<(), Refusal> {
        for value in msg.items(HeaderId::Contact).chain(msg.items(HeaderId::Path)) {
            let Ok(uri) = NameAddr::parse(value).and_then(|contact| Uri::parse(contact.uri)) else {
                continue;
            };
            let Some(ip) = parse_ip(next_host(&uri)) else { continue };
            let is_source = ip.to_canonical() == flow.remote.ip().to_canonical();
            if !is_source && (self.is_gateway(now, ip) || trust.is_trusted(ip)) {
                return Err(Refusal::new(403, "Forbidden: Contact is a trusted peer"));
            }
        }
        Ok(())
    }

    /// Returns whether a routing rule leads to this address.
    pub(super) fn is_gateway(&self, now: Time, ip: IpAddr) -> bool {
        self.ips.contains(&ip.to_canonical())
            || self.shared.gateways.get(self.key(ip), now).is_some()
    }

    fn key(&self, ip: IpAddr) -> u64 {
        let mut hasher = self.shared.gateways.hasher();
        hash_ip(&mut hasher, ip);
        hasher.finish()
    }
}

/// Returns whether a contact leads to this address as a literal, in its Path or else in its URI.
fn is_literal(target: &RequestTarget, ip: IpAddr) -> bool {
    let path = Items::new(&target.path).next().and_then(|first| NameAddr::parse(first).ok());
    let uri = path.map_or(&target.uri[..], |path| path.uri);
    let named = Uri::parse(uri).ok().and_then(|uri| parse_ip(next_host(&uri)));
    named.is_some_and(|named| named.to_canonical() == ip.to_canonical())
}
