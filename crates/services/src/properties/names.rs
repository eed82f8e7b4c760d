//! Names of properties: setting, reading and listing them as text.

use super::selection::{Role, SelectionProperties, Service};
use super::value::{Value, ValueError, parse};
use super::{Preference, TransportProperties};
use thiserror::Error;

/// Why a property cannot be set.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PropertyError {
    /// No property has this name.
    #[error("no property is named \"{name}\"; the nearest is {nearest}")]
    Unknown {
        /// The name.
        name: String,
        /// The name of a property that resembles it.
        nearest: &'static str,
    },
    /// The property is one of RFC 9622 that cannot be provided here.
    #[error("{name} is not supported: {reason}")]
    Unsupported {
        /// Its name.
        name: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// The text is no value of the property.
    #[error("{name}: {fault}")]
    Value {
        /// Its name.
        name: &'static str,
        /// What was expected.
        fault: ValueError,
    },
}

const PVD: &str = "pvd";
const NO_PVD: &str = "provisioning domains (RFC 8801) are not known here; use interface instead";

/// A property that is not a preference for a service.
struct Property {
    name: &'static str,
    get: fn(&TransportProperties) -> String,
    set: fn(&mut TransportProperties, &str) -> Result<(), ValueError>,
}

macro_rules! property {
    ($name:literal, $($field:ident).+) => {
        Property {
            name: $name,
            get: |properties| properties.$($field).+.write(),
            set: |properties, text| {
                properties.$($field).+ = parse(text)?;
                Ok(())
            },
        }
    };
}

const PROPERTIES: &[Property] = &[
    property!("interface", selection.interface),
    Property {
        name: "multipath",
        get: |properties| properties.selection.multipath(Role::Initiate).name().to_string(),
        set: |properties, text| {
            properties.selection.multipath = Some(parse(text)?);
            Ok(())
        },
    },
    property!("advertisesAltaddr", selection.advertises_altaddr),
    property!("direction", selection.direction),
    property!("recvChecksumLen", connection.recv_checksum_len),
    property!("connPriority", connection.conn_priority),
    property!("connTimeout", connection.conn_timeout),
    property!("keepAliveTimeout", connection.keep_alive_timeout),
    property!("connScheduler", connection.conn_scheduler),
    property!("connCapacityProfile", connection.conn_capacity_profile),
    property!("multipathPolicy", connection.multipath_policy),
    property!("minSendRate", connection.min_send_rate),
    property!("minRecvRate", connection.min_recv_rate),
    property!("maxSendRate", connection.max_send_rate),
    property!("maxRecvRate", connection.max_recv_rate),
    property!("groupConnLimit", connection.group_conn_limit),
    property!("isolateSession", connection.isolate_session),
    property!("tcp.userTimeoutValue", connection.tcp_user_timeout_value),
    property!("tcp.userTimeoutEnabled", connection.tcp_user_timeout_enabled),
    property!("tcp.userTimeoutChangeable", connection.tcp_user_timeout_changeable),
    property!("msgLifetime", message.msg_lifetime),
    property!("msgPriority", message.msg_priority),
    property!("msgOrdered", message.msg_ordered),
    property!("safelyReplayable", message.safely_replayable),
    property!("final", message.final_message),
    property!("msgChecksumLen", message.msg_checksum_len),
    property!("msgReliable", message.msg_reliable),
    property!("msgCapacityProfile", message.msg_capacity_profile),
    property!("noFragmentation", message.no_fragmentation),
    property!("noSegmentation", message.no_segmentation),
    property!("ringway.msgMaxRetransmissions", message.msg_max_retransmissions),
];

fn find(name: &str) -> Option<&'static Property> {
    PROPERTIES.iter().find(|property| property.name.eq_ignore_ascii_case(name))
}

fn preference(properties: &SelectionProperties, service: Service) -> Preference {
    properties.preference(service, Role::Initiate)
}

impl TransportProperties {
    /// Returns the names of all properties that can be set: services first, then those of connections and messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let services = Service::ALL.iter().map(|service| service.name());
        services.chain(PROPERTIES.iter().map(|property| property.name))
    }

    /// Sets a property by its name. Names are compared without case.
    ///
    /// # Errors
    /// The name is unknown, the text is no value of it, or the property is `pvd`.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), PropertyError> {
        let name = name.trim();
        if let Some(service) = Service::read(name) {
            let name = service.name();
            let preference = parse(value).map_err(|fault| PropertyError::Value { name, fault })?;
            self.selection.set(service, preference);
            return Ok(());
        }
        if let Some(property) = find(name) {
            let fault = |fault| PropertyError::Value { name: property.name, fault };
            return (property.set)(self, value).map_err(fault);
        }
        if name.eq_ignore_ascii_case(PVD) {
            return Err(PropertyError::Unsupported { name: PVD, reason: NO_PVD });
        }
        let distance =
            |known: &&str| strsim::damerau_levenshtein(&known.to_lowercase(), &short(name));
        let nearest = Self::names().min_by_key(distance).unwrap_or_default();
        Err(PropertyError::Unknown { name: short(name), nearest })
    }

    /// Returns the value of a property by its name, as a program that initiates sees it; `None` if there is none of that
    /// name.
    pub fn get(&self, name: &str) -> Option<String> {
        if let Some(service) = Service::read(name) {
            return Some(preference(&self.selection, service).write());
        }
        find(name).map(|property| (property.get)(self))
    }
}

/// Returns a name as an error shows it: in lower case, and not longer than any name there is by much.
fn short(name: &str) -> String {
    name.chars().take(64).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_is_written_and_read_by_its_name() {
        let properties = TransportProperties::unreliable_datagram();
        let mut again = TransportProperties::without_preferences();
        for name in TransportProperties::names() {
            again.set(name, &properties.get(name).unwrap()).unwrap();
        }
        for name in TransportProperties::names() {
            assert_eq!(again.get(name), properties.get(name), "{name}");
        }
        assert_eq!(again.message, properties.message);
        assert_eq!(again.connection, properties.connection);
    }

    #[test]
    fn values_are_kept() {
        let mut properties = TransportProperties::new();
        for (name, value) in [
            ("Reliability", "avoid"),
            ("interface", "prohibit:cellular"),
            ("multipath", "active"),
            ("connTimeout", "1500ms"),
            ("connScheduler", "priority"),
            ("tcp.userTimeoutEnabled", "true"),
            ("msgPriority", "7"),
            ("ringway.msgMaxRetransmissions", "3"),
            ("msgCapacityProfile", "scavenger"),
        ] {
            properties.set(name, value).unwrap();
            assert_eq!(properties.get(name).as_deref(), Some(value));
        }
    }

    #[test]
    fn a_mistake_names_what_was_expected() {
        let mut properties = TransportProperties::new();
        let mut set = |name, value| properties.set(name, value).unwrap_err().to_string();
        assert_eq!(
            set("reliabilty", "require"),
            "no property is named \"reliabilty\"; the nearest is reliability"
        );
        assert_eq!(
            set("keepalive", "yes"),
            "keepAlive: expected require, prefer, noPreference, avoid or prohibit, got \"yes\""
        );
        assert!(set("pvd", "require:x").starts_with("pvd is not supported"));
        assert!(set(&"x".repeat(100_000), "1").len() < 200);
    }
}
