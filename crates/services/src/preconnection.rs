//! What a program fills in before it connects (RFC 9622 section 6).

use crate::availability::Availability;
use crate::endpoint::{LocalEndpoint, RemoteEndpoint};
use crate::explain::Unfit;
use crate::gather::{self, Ranked};
use crate::memory::Memory;
use crate::properties::{Preference, Role, Service, TransportProperties};
use crate::protocol::Protocol;
use crate::security::SecurityParameters;
use ringway_sansio::Time;
use std::collections::BTreeSet;

/// Remote endpoints of one preconnection; what exceeds them is not considered.
pub const MAX_ENDPOINTS: usize = 16;

/// Endpoints, properties and security of connections to come. It is a value: what is made of it is not changed by it
/// later (RFC 9622 section 7.1).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Preconnection {
    /// Where to send from or to listen; the system's choice unless set.
    pub local: LocalEndpoint,
    /// Endpoints of one peer.
    pub remote: Vec<RemoteEndpoint>,
    /// What the transport must or should provide.
    pub properties: TransportProperties,
    /// What protects the connection; required by default.
    pub security: SecurityParameters,
    /// Whether the peer uses this crate's framing, so that byte streams can carry messages and several connections.
    pub may_frame: bool,
    /// Protocols that are not used whatever they provide.
    pub prohibited: BTreeSet<Protocol>,
}

impl Default for Preconnection {
    fn default() -> Self {
        Preconnection {
            local: LocalEndpoint::default(),
            remote: Vec::new(),
            properties: TransportProperties::default(),
            security: SecurityParameters::default(),
            may_frame: true,
            prohibited: BTreeSet::new(),
        }
    }
}

impl Preconnection {
    /// Returns a preconnection with properties, without endpoints.
    pub fn new(properties: TransportProperties, security: SecurityParameters) -> Self {
        Preconnection { properties, security, ..Self::default() }
    }

    /// Returns it with another endpoint of the peer.
    #[must_use]
    pub fn to(mut self, remote: RemoteEndpoint) -> Self {
        self.remote.push(remote);
        self
    }

    /// Returns it with this local endpoint.
    #[must_use]
    pub fn from(mut self, local: LocalEndpoint) -> Self {
        self.local = local;
        self
    }

    /// Returns it for a peer that knows nothing of this crate's framing: byte streams carry bytes.
    #[must_use]
    pub fn without_framing(mut self) -> Self {
        self.may_frame = false;
        self
    }

    /// Returns it without a protocol.
    #[must_use]
    pub fn without(mut self, protocol: Protocol) -> Self {
        self.prohibited.insert(protocol);
        self
    }

    /// Returns the preference for a service that counts in a role.
    pub fn preference(&self, service: Service, role: Role) -> Preference {
        if service == Service::Security && self.properties.selection.stated(service).is_none() {
            return self.security.preference;
        }
        let preference = self.properties.selection.preference(service, role);
        let profile = self.properties.connection.conn_capacity_profile;
        // RFC 9622 section 8.1.6: where loss is better than delay, messages do not wait for each other.
        let in_haste = service == Service::Bundling
            && preference == Preference::NoPreference
            && profile.is_low_latency();
        if in_haste { Preference::Avoid } else { preference }
    }

    /// Returns the candidates for a connection that this end opens, best first (RFC 9623 section 4).
    ///
    /// # Errors
    /// No candidate fits. The error says what excludes each, and which single requirement could be dropped.
    pub fn candidates(
        &self,
        now: Time,
        availability: &Availability,
        memory: &Memory,
    ) -> Result<Ranked, Unfit> {
        gather::gather(self, Role::Initiate, now, availability, memory)
    }

    /// Returns the candidates for a connection that both ends open at once (RFC 9622 section 7.3).
    ///
    /// # Errors
    /// No candidate fits.
    pub fn rendezvous(
        &self,
        now: Time,
        availability: &Availability,
        memory: &Memory,
    ) -> Result<Ranked, Unfit> {
        gather::gather(self, Role::Rendezvous, now, availability, memory)
    }

    /// Returns what to listen with: every protocol that fits, on every interface that fits (RFC 9623 section 4.7).
    ///
    /// # Errors
    /// No candidate fits.
    pub fn listeners(&self, now: Time, availability: &Availability) -> Result<Ranked, Unfit> {
        gather::gather(self, Role::Listen, now, availability, &Memory::new())
    }
}
