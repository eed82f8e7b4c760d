//! Selection properties (RFC 9622 section 6.2) and the services of a transport they ask for.

use super::value::{Value, words};

/// Entries of the property `interface`.
pub const MAX_INTERFACES: usize = 32;

words! {
    /// What a program does with a preconnection (RFC 9622 section 7).
    #[derive(Default)]
    Role, "initiate, listen or rendezvous" {
        /// Opens connections to a peer that listens.
        #[default]
        Initiate = "initiate",
        /// Waits for connections.
        Listen = "listen",
        /// Both at once, with a peer that does the same.
        Rendezvous = "rendezvous",
    }
}

words! {
    /// How much a program wants a service (RFC 9622 section 6.2, table 1).
    #[derive(Default)]
    Preference, "require, prefer, noPreference, avoid or prohibit" {
        /// Only what provides it.
        Require = "require",
        /// Rather what provides it.
        Prefer = "prefer",
        /// Either.
        #[default]
        NoPreference = "noPreference",
        /// Rather what does not provide it.
        Avoid = "avoid",
        /// Only what does not provide it.
        Prohibit = "prohibit",
    }
}

words! {
    /// A service of a transport, with the name of its property.
    ///
    /// Names without a prefix are those of RFC 9622 section 6.2. The others are this project's, with its prefix, as
    /// section 4.1 of that RFC demands.
    Service, "the name of a service" {
        /// All data arrives, once and without a gap (section 6.2.1).
        Reliability = "reliability",
        /// Messages arrive as they were sent, neither split nor joined (section 6.2.2).
        PreserveMsgBoundaries = "preserveMsgBoundaries",
        /// Reliability can be chosen for each message (section 6.2.3).
        PerMsgReliability = "perMsgReliability",
        /// Data arrives in the order in which it was sent (section 6.2.4).
        PreserveOrder = "preserveOrder",
        /// A first message can travel before the connection stands (section 6.2.5).
        ZeroRttMsg = "zeroRttMsg",
        /// Connections to one peer can be streams of one transport connection (section 6.2.6).
        Multistreaming = "multistreaming",
        /// A checksum covers all that is sent (section 6.2.7).
        FullChecksumSend = "fullChecksumSend",
        /// Only what a checksum covers whole is received (section 6.2.8).
        FullChecksumRecv = "fullChecksumRecv",
        /// The sender adapts its rate to the network (section 6.2.9).
        CongestionControl = "congestionControl",
        /// An idle connection is kept alive by packets (section 6.2.10).
        KeepAlive = "keepAlive",
        /// The local address is a temporary one of IPv6 (section 6.2.13).
        UseTemporaryLocalAddress = "useTemporaryLocalAddress",
        /// ICMP errors that end nothing are reported (section 6.2.17).
        SoftErrorNotify = "softErrorNotify",
        /// The passive side can send before the active one has (section 6.2.18).
        ActiveReadBeforeSend = "activeReadBeforeSend",
        /// Both ends agree to communicate before data is delivered.
        ConnectionOriented = "ringway.connectionOriented",
        /// A receiver that does not read slows its sender.
        FlowControl = "ringway.flowControl",
        /// Small messages may wait to share a packet (Nagle's algorithm and the like).
        Bundling = "ringway.bundling",
        /// A message can be abandoned after a time, also when it was sent before.
        PartialByTime = "ringway.partialByTime",
        /// A message can be abandoned after a number of retransmissions.
        PartialByRetransmissions = "ringway.partialByRetransmissions",
        /// One connection uses several addresses of each end.
        Multihoming = "ringway.multihoming",
        /// The peer is authenticated and data is encrypted (RFC 9622 section 6.3).
        Security = "ringway.security",
    }
}

impl Service {
    /// The number of services.
    pub const COUNT: usize = Service::ALL.len();

    /// Returns the preference of a program that states none (RFC 9622 section 6.2).
    pub const fn default_preference(self, role: Role) -> Preference {
        match self {
            Service::Reliability
            | Service::PreserveOrder
            | Service::FullChecksumSend
            | Service::FullChecksumRecv
            | Service::CongestionControl => Preference::Require,
            Service::Multistreaming => Preference::Prefer,
            // Section 6.2.13: a listener is found by a stable address.
            Service::UseTemporaryLocalAddress => match role {
                Role::Initiate => Preference::Prefer,
                Role::Listen | Role::Rendezvous => Preference::Avoid,
            },
            _ => Preference::NoPreference,
        }
    }
}

words! {
    /// Use of several paths at once (RFC 9622 section 6.2.14).
    Multipath, "disabled, active or passive" {
        /// One path, whatever the protocol could do.
        Disabled = "disabled",
        /// Several paths are negotiated if the protocol can.
        Active = "active",
        /// Several paths are used if the peer asks for them.
        Passive = "passive",
    }
}

words! {
    /// Directions of data (RFC 9622 section 6.2.16). Every protocol here is bidirectional and serves all three.
    #[derive(Default)]
    Direction, "bidirectional, unidirectionalSend or unidirectionalReceive" {
        /// Both.
        #[default]
        Bidirectional = "bidirectional",
        /// The program only sends.
        UnidirectionalSend = "unidirectionalSend",
        /// The program only receives.
        UnidirectionalReceive = "unidirectionalReceive",
    }
}

/// Preferences for interfaces by name, such as `eth0`, or by type, such as `wifi` (RFC 9622 section 6.2.11).
///
/// As text, `require:eth0,avoid:cellular`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct InterfacePreferences(pub Vec<(Preference, String)>);

impl Value for InterfacePreferences {
    const EXPECTED: &'static str = "entries such as require:eth0, separated by commas";

    fn read(text: &str) -> Option<Self> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let entries = entries.map(|entry| {
            let (preference, name) = entry.split_once(':')?;
            let name = name.trim();
            (!name.is_empty()).then_some((Preference::read(preference.trim())?, name.to_string()))
        });
        let entries: Option<Vec<_>> = entries.collect();
        entries.filter(|entries| entries.len() <= MAX_INTERFACES).map(InterfacePreferences)
    }

    fn write(&self) -> String {
        let entries = self.0.iter().map(|(preference, name)| format!("{preference}:{name}"));
        entries.collect::<Vec<_>>().join(",")
    }
}

/// What protocols and paths are chosen by. They count until a connection is established.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SelectionProperties {
    /// What the program has stated, by the index of the service.
    stated: [Option<Preference>; Service::COUNT],
    /// Preferences for interfaces.
    pub interface: InterfacePreferences,
    /// Use of several paths; `None` for what the role says (RFC 9622 section 6.2.14).
    pub multipath: Option<Multipath>,
    /// Whether other local addresses are advertised to the peer (section 6.2.15).
    pub advertises_altaddr: bool,
    /// Directions of data.
    pub direction: Direction,
}

impl SelectionProperties {
    /// States a preference.
    pub fn set(&mut self, service: Service, preference: Preference) {
        self.stated[service as usize] = Some(preference);
    }

    /// Returns the preference that the program has stated.
    pub fn stated(&self, service: Service) -> Option<Preference> {
        self.stated[service as usize]
    }

    /// Returns the preference that counts in a role.
    pub fn preference(&self, service: Service, role: Role) -> Preference {
        let preference = self.stated(service).unwrap_or_else(|| service.default_preference(role));
        // RFC 9622 section 6.2.14: a value other than `disabled` is a preference for protocols that can.
        let several = service == Service::Multihoming
            && preference == Preference::NoPreference
            && self.multipath(role) != Multipath::Disabled;
        if several { Preference::Prefer } else { preference }
    }

    /// Returns the use of several paths that counts in a role. A program that wants several addresses wants their paths.
    pub fn multipath(&self, role: Role) -> Multipath {
        let wanted = matches!(
            self.stated(Service::Multihoming),
            Some(Preference::Require | Preference::Prefer)
        );
        self.multipath.unwrap_or(match role {
            _ if wanted => Multipath::Active,
            Role::Listen => Multipath::Passive,
            Role::Initiate | Role::Rendezvous => Multipath::Disabled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9622 sections 6.2.1 to 6.2.18.
    #[test]
    fn defaults_are_those_of_the_rfc() {
        let properties = SelectionProperties::default();
        let require: Vec<_> = Service::ALL
            .iter()
            .filter(|service| {
                properties.preference(**service, Role::Initiate) == Preference::Require
            })
            .map(|service| service.name())
            .collect();
        assert_eq!(
            require,
            [
                "reliability",
                "preserveOrder",
                "fullChecksumSend",
                "fullChecksumRecv",
                "congestionControl"
            ]
        );
        let temporary = |role| properties.preference(Service::UseTemporaryLocalAddress, role);
        assert_eq!(temporary(Role::Initiate), Preference::Prefer);
        assert_eq!(temporary(Role::Listen), Preference::Avoid);
        assert_eq!(properties.multipath(Role::Initiate), Multipath::Disabled);
        assert_eq!(properties.multipath(Role::Listen), Multipath::Passive);
    }

    /// RFC 9622 section 6.2.14.
    #[test]
    fn several_paths_are_a_preference_for_protocols_that_can() {
        let mut properties =
            SelectionProperties { multipath: Some(Multipath::Passive), ..Default::default() };
        let preference =
            |p: &SelectionProperties| p.preference(Service::Multihoming, Role::Initiate);
        assert_eq!(preference(&properties), Preference::Prefer);
        properties.set(Service::Multihoming, Preference::Prohibit);
        assert_eq!(preference(&properties), Preference::Prohibit);
    }

    #[test]
    fn interfaces_are_read_and_written() {
        let text = "require:eth0,avoid:cellular";
        let read = InterfacePreferences::read(text).unwrap();
        assert_eq!(read.0[1], (Preference::Avoid, "cellular".to_string()));
        assert_eq!(read.write(), text);
        assert!(InterfacePreferences::read("").unwrap().0.is_empty());
        for text in ["eth0", "require:", "want:eth0"] {
            assert!(InterfacePreferences::read(text).is_none(), "{text}");
        }
        assert!(InterfacePreferences::read(&"avoid:a,".repeat(MAX_INTERFACES + 1)).is_none());
    }
}
