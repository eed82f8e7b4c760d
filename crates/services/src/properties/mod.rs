//! Transport properties (RFC 9622 sections 6.2, 8.1 and 9.1.3), each with its name and its value as text.
//!
//! `pvd` (section 6.2.12) has no field: nothing here tells which provisioning domain an address belongs to, and a
//! requirement that cannot be checked must not seem to be met. Setting it is an error that says so.

mod connection;
mod message;
mod names;
mod selection;
pub(crate) mod value;

pub use connection::{
    CapacityProfile, ConnectionProperties, ConnectionState, DEFAULT_PRIORITY, MultipathPolicy,
    Scheduler,
};
pub use message::{MessageProfile, MessageProperties};
pub use names::PropertyError;
pub use selection::{
    Direction, InterfacePreferences, MAX_INTERFACES, Multipath, Preference, Role,
    SelectionProperties, Service,
};
pub use value::{Coverage, Inherited, Lifetime, Limit, Timeout, ValueError};

pub(crate) use value::parse;

/// All properties of a connection and the defaults of its messages.
///
/// ```
/// use ringway_services::{Preference, Service, TransportProperties};
///
/// let mut properties = TransportProperties::reliable_message().prefer(Service::Multihoming);
/// properties.set("keepAlive", "require")?;
/// assert_eq!(properties.get("preserveMsgBoundaries").as_deref(), Some("require"));
/// assert_eq!(properties.selection.stated(Service::KeepAlive), Some(Preference::Require));
/// # Ok::<(), ringway_services::properties::PropertyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TransportProperties {
    /// What is considered until a connection is established.
    pub selection: SelectionProperties,
    /// What may be changed afterwards.
    pub connection: ConnectionProperties,
    /// The defaults of messages.
    pub message: MessageProperties,
}

impl TransportProperties {
    /// Returns the defaults of RFC 9622: what TCP provides.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns properties without any preference, not even those of the defaults.
    pub fn without_preferences() -> Self {
        let with = |properties: Self, service| properties.with(service, Preference::NoPreference);
        Service::ALL.iter().copied().fold(Self::default(), with)
    }

    /// Returns the profile `reliable-inorder-stream` (RFC 9622 appendix B.2.1).
    pub fn reliable_inorder_stream() -> Self {
        Self::default()
            .require(Service::Reliability)
            .require(Service::PreserveOrder)
            .require(Service::CongestionControl)
            .with(Service::PreserveMsgBoundaries, Preference::NoPreference)
    }

    /// Returns the profile `reliable-message` (RFC 9622 appendix B.2.2).
    pub fn reliable_message() -> Self {
        Self::reliable_inorder_stream().require(Service::PreserveMsgBoundaries)
    }

    /// Returns the profile `unreliable-datagram` (RFC 9622 appendix B.2.3).
    pub fn unreliable_datagram() -> Self {
        let mut properties = Self::default()
            .avoid(Service::Reliability)
            .avoid(Service::PreserveOrder)
            .with(Service::CongestionControl, Preference::NoPreference)
            .require(Service::PreserveMsgBoundaries);
        properties.message.safely_replayable = true;
        properties
    }

    /// Returns the properties with a preference.
    #[must_use]
    pub fn with(mut self, service: Service, preference: Preference) -> Self {
        self.selection.set(service, preference);
        self
    }

    /// Returns the properties with a service required.
    #[must_use]
    pub fn require(self, service: Service) -> Self {
        self.with(service, Preference::Require)
    }

    /// Returns the properties with a service preferred.
    #[must_use]
    pub fn prefer(self, service: Service) -> Self {
        self.with(service, Preference::Prefer)
    }

    /// Returns the properties with a service avoided.
    #[must_use]
    pub fn avoid(self, service: Service) -> Self {
        self.with(service, Preference::Avoid)
    }

    /// Returns the properties with a service prohibited.
    #[must_use]
    pub fn prohibit(self, service: Service) -> Self {
        self.with(service, Preference::Prohibit)
    }
}
