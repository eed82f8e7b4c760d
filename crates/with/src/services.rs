//! The services that a user names on the command line.

use ringway_sansio::Time;
use ringway_services::properties::PropertyError;
use ringway_services::{
    Availability, Memory, Preconnection, Preference, Protocol, RemoteEndpoint, SecurityParameters,
    Service, TransportProperties, Unfit,
};

/// The prefix of this project's own properties, which may be left out.
const PREFIX: &str = "ringway.";

/// Protocols that the broker carries.
const CARRIED: [Protocol; 3] = [Protocol::Tcp, Protocol::Sctp, Protocol::SctpUdp];
/// Protocols that carry datagrams.
const DATAGRAMS: [Protocol; 3] = [Protocol::Udp, Protocol::Sctp, Protocol::SctpUdp];

/// Why services cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// A word is neither a service nor a property with its value.
    #[error("{word}: {error}")]
    Word {
        /// The word.
        word: String,
        /// What was expected.
        error: PropertyError,
    },
    /// No protocol that is carried here has them.
    #[error("{0}")]
    Unfit(String),
    /// Peers without SCTP are sent datagrams by UDP.
    #[error(
        "expected services that UDP has too, because datagrams to peers without SCTP travel by it: {0}"
    )]
    NoUdp(String),
}

/// What connections should have.
#[derive(Clone, Debug)]
pub struct Services(Preconnection);

impl Services {
    /// Reads services: `NAME` is preferred, `require:NAME`, `avoid:NAME` and `prohibit:NAME` say how much it is wanted,
    /// `NAME=VALUE` sets any property.
    ///
    /// # Errors
    /// A word cannot be read, or no protocol has what is required.
    pub fn read(words: &[String]) -> Result<Services, ServiceError> {
        let mut properties = TransportProperties::new();
        for word in words {
            set(&mut properties, word)
                .map_err(|error| ServiceError::Word { word: word.clone(), error })?;
        }
        // What a program wants protected it protects itself: it has a byte stream and speaks, say, TLS on it.
        let security = SecurityParameters::disabled();
        let services = Services(Preconnection::new(properties, security).without_framing());
        let any = RemoteEndpoint::address(([192, 0, 2, 1], 1).into());
        let preconnection = services.to(any);
        preconnection
            .candidates(Time::ZERO, &host(), &Memory::new())
            .map_err(|unfit: Unfit| ServiceError::Unfit(unfit.to_string()))?;
        Ok(services)
    }

    /// Checks that datagrams can have the services.
    ///
    /// # Errors
    /// UDP lacks what is required.
    pub fn check_datagrams(&self) -> Result<(), ServiceError> {
        let preconnection = self.datagrams_to(RemoteEndpoint::address(([192, 0, 2, 1], 1).into()));
        let host = host_of(&[Protocol::Udp]);
        let ranked = preconnection.candidates(Time::ZERO, &host, &Memory::new());
        ranked.map(|_| ()).map_err(|unfit| ServiceError::NoUdp(unfit.to_string()))
    }

    /// Returns the preconnection for datagrams to a peer. What UDP lacks is not wanted unless it is asked for.
    pub(crate) fn datagrams_to(&self, peer: RemoteEndpoint) -> Preconnection {
        let mut preconnection = self.to(peer);
        for service in [Service::Reliability, Service::PreserveOrder, Service::CongestionControl] {
            if self.0.properties.selection.stated(service).is_none() {
                preconnection.properties.selection.set(service, Preference::NoPreference);
            }
        }
        preconnection.properties.selection.set(Service::PreserveMsgBoundaries, Preference::Require);
        // A program that uses UDP is prepared for duplicates.
        preconnection.properties.message.safely_replayable = true;
        preconnection
    }

    /// Returns whether datagrams should have a service.
    pub(crate) fn wants(&self, service: Service) -> bool {
        let stated = self.0.properties.selection.stated(service);
        matches!(stated, Some(Preference::Require | Preference::Prefer))
    }

    /// Returns the preconnection to a peer.
    pub(crate) fn to(&self, peer: RemoteEndpoint) -> Preconnection {
        self.0.clone().to(peer)
    }

    /// Returns the preconnection of listeners.
    pub(crate) fn listening(&self) -> &Preconnection {
        &self.0
    }
}

/// Returns a host that has no protocol but those that the broker carries.
pub(crate) fn host() -> Availability {
    host_of(&CARRIED)
}

/// Returns a host that has no protocol but those that carry datagrams.
pub(crate) fn datagram_host() -> Availability {
    host_of(&DATAGRAMS)
}

fn host_of(carried: &[Protocol]) -> Availability {
    let others = Protocol::ALL.iter().filter(|protocol| !carried.contains(protocol));
    let without = |host: Availability, protocol: &Protocol| {
        host.without(*protocol, "it is not carried for unmodified programs")
    };
    others.fold(Availability::all(), without)
}

fn set(properties: &mut TransportProperties, word: &str) -> Result<(), PropertyError> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, value),
        None => match word.split_once(':') {
            Some((preference, name)) if preference.parse::<Preference>().is_ok() => {
                (name, preference)
            }
            _ => (word, Preference::Prefer.name()),
        },
    };
    let own = format!("{PREFIX}{name}");
    if own.parse::<Service>().is_ok() {
        return properties.set(&own, value);
    }
    properties.set(name, value).map_err(|error| {
        // The name that is nearest with or without the prefix.
        match (&error, properties.set(&own, value)) {
            (
                PropertyError::Unknown { name, nearest },
                Err(PropertyError::Unknown { name: own, nearest: other }),
            ) if distance(&own, other) < distance(name, nearest) => {
                PropertyError::Unknown { name: name.clone(), nearest: other }
            }
            _ => error,
        }
    })
}

fn distance(one: &str, other: &str) -> usize {
    strsim::damerau_levenshtein(one, &other.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Vec<Protocol>, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let services = Services::read(&words).map_err(|error| error.to_string())?;
        let peer = services.to(RemoteEndpoint::address(([192, 0, 2, 1], 80).into()));
        let ranked = peer.candidates(Time::ZERO, &host(), &Memory::new());
        let ranked = ranked.map_err(|unfit| unfit.to_string())?;
        Ok(ranked.candidates.iter().map(|candidate| candidate.protocol).collect())
    }

    #[test]
    fn services_choose_protocols_in_order() {
        use Protocol::{Sctp, SctpUdp, Tcp};
        assert_eq!(read(&[]).unwrap(), [Tcp, SctpUdp, Sctp]);
        assert_eq!(read(&["multihoming"]).unwrap(), [SctpUdp, Sctp, Tcp]);
        assert_eq!(read(&["require:multihoming"]).unwrap(), [SctpUdp, Sctp]);
        assert_eq!(read(&["ringway.multihoming=require"]).unwrap(), [SctpUdp, Sctp]);
        assert_eq!(read(&["prohibit:multihoming"]).unwrap(), [Tcp, SctpUdp, Sctp], "on one path");
        assert_eq!(read(&["prohibit:preserveMsgBoundaries"]).unwrap(), [Tcp]);
        assert_eq!(read(&["multipath=active"]).unwrap(), [SctpUdp, Sctp, Tcp]);
    }

    #[test]
    fn datagrams_need_no_more_than_udp_unless_it_is_asked_for() {
        use Protocol::{Sctp, SctpUdp, Udp};
        let ranked = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let services = Services::read(&words).unwrap();
            let peer = RemoteEndpoint::address(([192, 0, 2, 1], 53).into());
            let peer = services.datagrams_to(peer);
            let ranked = peer.candidates(Time::ZERO, &datagram_host(), &Memory::new()).unwrap();
            let protocols = ranked.candidates.iter().map(|candidate| candidate.protocol).collect();
            (protocols, services.check_datagrams().is_ok())
        };
        assert_eq!(ranked(&[]), (vec![Udp, SctpUdp, Sctp], true));
        assert_eq!(ranked(&["multihoming"]), (vec![SctpUdp, Sctp, Udp], true));
        assert_eq!(ranked(&["reliability"]), (vec![SctpUdp, Sctp, Udp], true));
        assert_eq!(ranked(&["require:multihoming"]), (vec![SctpUdp, Sctp], false));
    }

    #[test]
    fn a_mistake_says_what_was_expected() {
        let error = read(&["multihomin"]).unwrap_err();
        assert!(error.contains("the nearest is ringway.multihoming"), "{error}");
        let error = read(&["keepAlive=yes"]).unwrap_err();
        assert!(error.starts_with("keepAlive=yes: keepAlive: expected require"), "{error}");
        let error = read(&["require:ringway.security"]).unwrap_err();
        assert!(error.starts_with("no protocol fits"), "{error}");
    }
}
