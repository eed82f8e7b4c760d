//! The settings of transports in a file, in the tables of a `[[flow]]`.

use crate::ns2;
use ringway_link::{Size, Span};
use ringway_sansio::Duration;
use ringway_sctp::{self as sctp, Multipath, Reliability, Scheduling};
use ringway_tcp::{Algorithm, Detection, Settings};
use serde::Deserialize;

fn span(of: Duration) -> Span {
    Span(of.as_nanos() as u64)
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AlgorithmKey {
    NewReno,
    Cubic,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DetectionKey {
    RackTlp,
    Sack,
}

/// TCP's settings in the file; [`Settings`] describes each.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TcpKeys {
    mtu: Size,
    send_buffer: Size,
    receive_buffer: Size,
    algorithm: AlgorithmKey,
    detection: DetectionKey,
    sack: bool,
    timestamps: bool,
    window_scaling: bool,
    ecn: bool,
    nagle: bool,
    delayed_ack: Span,
    initial_window: u32,
    min_rto: Span,
    max_rto: Span,
}

impl Default for TcpKeys {
    fn default() -> Self {
        let s = Settings::default();
        TcpKeys {
            mtu: Size(s.mtu.into()),
            send_buffer: Size(s.send_buffer as u64),
            receive_buffer: Size(s.receive_buffer as u64),
            algorithm: match s.algorithm {
                Algorithm::NewReno => AlgorithmKey::NewReno,
                Algorithm::Cubic => AlgorithmKey::Cubic,
            },
            detection: match s.detection {
                Detection::RackTlp => DetectionKey::RackTlp,
                Detection::Sack => DetectionKey::Sack,
            },
            sack: s.sack,
            timestamps: s.timestamps,
            window_scaling: s.window_scaling,
            ecn: s.ecn,
            nagle: s.nagle,
            delayed_ack: span(s.delayed_ack),
            initial_window: s.initial_window,
            min_rto: span(s.min_rto),
            max_rto: span(s.max_rto),
        }
    }
}

impl TcpKeys {
    pub(super) fn settings(self) -> Settings {
        // Values truncated here are outside the bounds that `Settings::check` reports.
        Settings {
            mtu: self.mtu.0.min(u16::MAX.into()) as u16,
            send_buffer: usize::try_from(self.send_buffer.0).unwrap_or(usize::MAX),
            receive_buffer: usize::try_from(self.receive_buffer.0).unwrap_or(usize::MAX),
            algorithm: match self.algorithm {
                AlgorithmKey::NewReno => Algorithm::NewReno,
                AlgorithmKey::Cubic => Algorithm::Cubic,
            },
            detection: match self.detection {
                DetectionKey::RackTlp => Detection::RackTlp,
                DetectionKey::Sack => Detection::Sack,
            },
            sack: self.sack,
            timestamps: self.timestamps,
            window_scaling: self.window_scaling,
            ecn: self.ecn,
            nagle: self.nagle,
            delayed_ack: self.delayed_ack.into(),
            initial_window: self.initial_window,
            min_rto: self.min_rto.into(),
            max_rto: self.max_rto.into(),
            ..Settings::default()
        }
    }
}

/// The settings of ns-2's TCP in the file; [`ns2::tcp::Settings`] describes each.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Ns2Keys {
    window: u32,
    initial_window: u32,
    dup_acks: u32,
    limited_transmit: bool,
    tick: Span,
    min_rto: Span,
    max_rto: Span,
    initial_rto: Span,
}

impl Default for Ns2Keys {
    fn default() -> Self {
        let s = ns2::tcp::Settings::default();
        Ns2Keys {
            window: s.window,
            initial_window: s.initial_window,
            dup_acks: s.dup_acks,
            limited_transmit: s.limited_transmit,
            tick: span(s.tick),
            min_rto: span(s.min_rto),
            max_rto: span(s.max_rto),
            initial_rto: span(s.initial_rto),
        }
    }
}

impl Ns2Keys {
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let max = Span::from_secs(100_000);
        for (key, ok, expected) in [
            ("window", (1..=1 << 20).contains(&self.window), "expected 1 to 1048576 packets"),
            (
                "initial_window",
                (1..=1 << 20).contains(&self.initial_window),
                "expected 1 to 1048576 packets",
            ),
            ("dup_acks", (1..=1 << 20).contains(&self.dup_acks), "expected 1 to 1048576"),
            (
                "tick",
                self.tick > Span(0) && self.tick <= max,
                "expected more than 0 s and at most 100000 s",
            ),
            (
                "max_rto",
                self.max_rto > Span(0) && self.max_rto <= max,
                "expected more than 0 s and at most 100000 s",
            ),
            (
                "min_rto",
                self.min_rto > Span(0) && self.min_rto <= self.max_rto,
                "expected more than 0 s and at most `max_rto`",
            ),
            (
                "initial_rto",
                self.initial_rto > Span(0) && self.initial_rto <= max,
                "expected more than 0 s and at most 100000 s",
            ),
        ] {
            if !ok {
                return Err((key, expected));
            }
        }
        Ok(())
    }

    pub(super) fn settings(self, packet: u16) -> ns2::tcp::Settings {
        ns2::tcp::Settings {
            packet,
            window: self.window,
            initial_window: self.initial_window,
            dup_acks: self.dup_acks,
            limited_transmit: self.limited_transmit,
            tick: self.tick.into(),
            min_rto: self.min_rto.into(),
            max_rto: self.max_rto.into(),
            initial_rto: self.initial_rto.into(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Profile {
    #[default]
    Rfc9260,
    Ss7,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SchedulingKey {
    Fcfs,
    RoundRobin,
    PacketRoundRobin,
    Priority,
    FairCapacity,
    WeightedFair,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum MultipathKey {
    Off,
    Independent,
    Pooled,
}

/// Selection of the stream of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deal {
    /// The stream after that of the previous message.
    #[default]
    InTurn,
    /// A random stream, as for messages that are independent of each other.
    AtRandom,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SctpAlgorithmKey {
    Rfc9260,
    Cubic,
}

/// SCTP's settings in the file; [`sctp::Settings`] describes each. Keys that are not set have the
/// value of the profile.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SctpKeys {
    profile: Profile,
    pub(super) streams: Option<u16>,
    pub(super) unordered: bool,
    pub(super) deal: Deal,
    pub(super) paths: Vec<String>,
    pub(super) moves: Option<Span>,
    pub(super) lifetime: Option<Span>,
    pub(super) retransmissions: Option<u8>,
    priorities: Vec<u16>,
    weights: Vec<u16>,
    multipath: Option<MultipathKey>,
    interleaving: Option<bool>,
    final_acks: Option<bool>,
    ecn: Option<bool>,
    potentially_failed: Option<u32>,
    mtu: Option<Size>,
    send_buffer: Option<Size>,
    receive_buffer: Option<Size>,
    initial_window: Option<Size>,
    initial_rto: Option<Span>,
    min_rto: Option<Span>,
    max_rto: Option<Span>,
    sack_delay: Option<Span>,
    sack_packets: Option<u8>,
    max_burst: Option<u32>,
    misses: Option<u8>,
    rack: Option<bool>,
    algorithm: Option<SctpAlgorithmKey>,
    heartbeat: Option<Span>,
    path_max_retrans: Option<u32>,
    association_max_retrans: Option<u32>,
    scheduling: Option<SchedulingKey>,
}

impl SctpKeys {
    pub(super) fn settings(&self) -> sctp::Settings {
        let base = match self.profile {
            Profile::Rfc9260 => sctp::Settings::default(),
            Profile::Ss7 => sctp::Settings::ss7(),
        };
        // Values truncated here are outside the bounds that `Settings::check` reports.
        let bytes = |size: Option<Size>, or: usize| {
            size.map_or(or, |s| usize::try_from(s.0).unwrap_or(usize::MAX))
        };
        let time = |span: Option<Span>, or: Duration| span.map_or(or, Duration::from);
        sctp::Settings {
            mtu: self.mtu.map_or(base.mtu, |mtu| mtu.0.min(u16::MAX.into()) as u16),
            send_buffer: bytes(self.send_buffer, base.send_buffer),
            receive_buffer: bytes(self.receive_buffer, base.receive_buffer),
            initial_cwnd: match self.initial_window {
                Some(window) => Some(u32::try_from(window.0).unwrap_or(u32::MAX)),
                None => base.initial_cwnd,
            },
            rto_initial: time(self.initial_rto, base.rto_initial),
            rto_min: time(self.min_rto, base.rto_min),
            rto_max: time(self.max_rto, base.rto_max),
            sack_delay: time(self.sack_delay, base.sack_delay),
            sack_packets: self.sack_packets.unwrap_or(base.sack_packets),
            max_burst: self.max_burst.unwrap_or(base.max_burst),
            misses: self.misses.unwrap_or(base.misses),
            rack: self.rack.unwrap_or(base.rack),
            algorithm: match self.algorithm {
                Some(SctpAlgorithmKey::Rfc9260) => sctp::Algorithm::Rfc9260,
                Some(SctpAlgorithmKey::Cubic) => sctp::Algorithm::Cubic,
                None => base.algorithm,
            },
            heartbeat_interval: match self.heartbeat {
                Some(every) => Some(every.into()),
                None => base.heartbeat_interval,
            },
            path_max_retrans: self.path_max_retrans.unwrap_or(base.path_max_retrans),
            association_max_retrans: self
                .association_max_retrans
                .unwrap_or(base.association_max_retrans),
            scheduling: match self.scheduling {
                Some(SchedulingKey::Fcfs) => Scheduling::Fcfs,
                Some(SchedulingKey::RoundRobin) => Scheduling::RoundRobin,
                Some(SchedulingKey::PacketRoundRobin) => Scheduling::PacketRoundRobin,
                Some(SchedulingKey::Priority) => Scheduling::Priority,
                Some(SchedulingKey::FairCapacity) => Scheduling::FairCapacity,
                Some(SchedulingKey::WeightedFair) => Scheduling::WeightedFair,
                None => base.scheduling,
            },
            multipath: match self.multipath {
                Some(MultipathKey::Off) => Multipath::Off,
                Some(MultipathKey::Independent) => Multipath::Independent,
                Some(MultipathKey::Pooled) => Multipath::Pooled,
                None => base.multipath,
            },
            interleaving: self.interleaving.unwrap_or(base.interleaving),
            final_acks: self.final_acks.unwrap_or(base.final_acks),
            ecn: self.ecn.unwrap_or(base.ecn),
            potentially_failed: self.potentially_failed.or(base.potentially_failed),
            dynamic_addresses: self.moves.is_some() || base.dynamic_addresses,
            ..base
        }
    }

    /// Returns a key that is invalid together with others, and what was expected.
    pub(super) fn check(&self, streams: u16, messages: bool) -> Option<(&'static str, String)> {
        let by = |kind: SchedulingKey| {
            self.scheduling
                .is_some_and(|s| std::mem::discriminant(&s) == std::mem::discriminant(&kind))
        };
        for (key, values, scheduling, needed) in [
            ("priorities", &self.priorities, "priority", by(SchedulingKey::Priority)),
            ("weights", &self.weights, "weighted-fair", by(SchedulingKey::WeightedFair)),
        ] {
            if !values.is_empty() && !needed {
                return Some((key, format!("expected with scheduling = \"{scheduling}\" only")));
            }
            if values.len() > usize::from(streams) {
                let got = values.len();
                return Some((
                    key,
                    format!("expected at most one for each of {streams} streams, got {got}"),
                ));
            }
        }
        if self.weights.contains(&0) {
            return Some(("weights", "expected 1 or more each, got 0".into()));
        }
        let limits = [
            ("lifetime", self.lifetime.is_some()),
            ("retransmissions", self.retransmissions.is_some()),
        ];
        match limits.map(|(key, given)| given.then_some(key)) {
            [Some(_), Some(key)] => {
                Some((key, "expected only one of `lifetime` and `retransmissions`".into()))
            }
            [Some(key), None] | [None, Some(key)] if !messages => {
                Some((key, "a file needs all of its messages".into()))
            }
            _ if self.multipath.is_some_and(|m| !matches!(m, MultipathKey::Off))
                && self.paths.len() < 2 =>
            {
                Some(("multipath", "expected with two `paths` or more".into()))
            }
            _ if self.moves.is_some() && self.paths.len() != 2 => {
                Some(("moves", "expected with two `paths`: from the first to the second".into()))
            }
            _ => None,
        }
    }

    /// Returns the condition under which a message is abandoned.
    pub(super) fn reliability(&self) -> Reliability {
        match (self.lifetime, self.retransmissions) {
            (Some(lifetime), _) => Reliability::Lifetime(lifetime.into()),
            (None, Some(max)) => Reliability::Retransmits(max),
            (None, None) => Reliability::Full,
        }
    }

    /// Returns the priorities or weights of the first streams.
    pub(super) fn values(&self) -> Vec<u16> {
        if self.weights.is_empty() { self.priorities.clone() } else { self.weights.clone() }
    }
}

/// The settings of ns-2's SCTP in the file; [`ns2::sctp::Settings`] describes each. With a
/// `sack_delay` of 0 every packet is acknowledged at once. `every_packet`: packets without data are
/// counted too, and the delay of each packet counts from its own transmission.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SctpNs2Keys {
    window: Size,
    ssthresh: Size,
    initial_window: Size,
    misses: u32,
    sack_delay: Span,
    confirm: bool,
    pub(super) every_packet: bool,
    min_rto: Span,
    max_rto: Span,
    initial_rto: Span,
}

impl Default for SctpNs2Keys {
    fn default() -> Self {
        let s = ns2::sctp::Settings::default();
        SctpNs2Keys {
            window: Size(s.rwnd.into()),
            ssthresh: Size(s.ssthresh.into()),
            initial_window: Size(s.cwnd.into()),
            misses: s.misses,
            sack_delay: s.sack_delay.map_or(Span(0), span),
            confirm: s.confirm,
            every_packet: false,
            min_rto: span(s.min_rto),
            max_rto: span(s.max_rto),
            initial_rto: span(s.initial_rto),
        }
    }
}

impl SctpNs2Keys {
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let max = Span::from_secs(100_000);
        let bytes = |size: Size| (1..=1 << 30).contains(&size.0);
        let time = |span: Span| span > Span(0) && span <= max;
        for (key, ok, expected) in [
            ("window", bytes(self.window), "expected 1 B to 1 GiB"),
            ("ssthresh", bytes(self.ssthresh), "expected 1 B to 1 GiB"),
            ("initial_window", bytes(self.initial_window), "expected 1 B to 1 GiB"),
            ("misses", (1..=1 << 20).contains(&self.misses), "expected 1 to 1048576"),
            ("sack_delay", self.sack_delay <= max, "expected at most 100000 s"),
            ("max_rto", time(self.max_rto), "expected more than 0 s and at most 100000 s"),
            (
                "min_rto",
                time(self.min_rto) && self.min_rto <= self.max_rto,
                "expected more than 0 s and at most `max_rto`",
            ),
            ("initial_rto", time(self.initial_rto), "expected more than 0 s and at most 100000 s"),
        ] {
            if !ok {
                return Err((key, expected));
            }
        }
        Ok(())
    }

    pub(super) fn settings(self, message: u16) -> ns2::sctp::Settings {
        ns2::sctp::Settings {
            message,
            rwnd: self.window.0 as u32,
            ssthresh: self.ssthresh.0 as u32,
            cwnd: self.initial_window.0 as u32,
            misses: self.misses,
            sack_delay: (self.sack_delay > Span(0)).then(|| self.sack_delay.into()),
            confirm: self.confirm,
            min_rto: self.min_rto.into(),
            max_rto: self.max_rto.into(),
            initial_rto: self.initial_rto.into(),
            ..ns2::sctp::Settings::default()
        }
    }
}
