//! What a seed stands for before anything is sent: what may happen, and the settings of a host.

use crate::support::{Dice, ms, secs};
use ringway_sctp::{Algorithm, Multipath, Scheduling, Settings};

/// The UDP port of the end that is not behind a NAT.
pub const UDP_PORT: u16 = 9899;

/// What may happen in a run. It holds for both hosts, as most of it needs both to show.
pub struct Plan {
    /// Paths are probed for packets above 1500 bytes, and links change what they take.
    pub large_packets: bool,
    /// Both let addresses change.
    pub dynamic: bool,
    /// Both take interleaved messages.
    pub interleaving: bool,
    /// Packets come undamaged, and checksums are zero.
    pub dtls: bool,
    /// Addresses that each has to begin with.
    pub homes: usize,
    /// Packets go over UDP, and the opener's port changes as behind a NAT.
    pub udp: bool,
    /// Whether the opener restarts now and then, and opens again.
    pub crashes: bool,
    /// Streams are reset and added.
    pub resets: bool,
    /// All streams and TSNs are reset.
    pub everything: bool,
    /// Both sleep now and then, as a machine that is suspended.
    pub sleeps: bool,
    /// Clocks are set forth and back.
    pub clocks: bool,
    /// Each address reaches all of the other end; else only the one on its link.
    pub across: bool,
}

impl Plan {
    pub fn draw(dice: &mut Dice) -> Plan {
        Plan {
            large_packets: dice.chance(30),
            dynamic: dice.chance(40),
            interleaving: dice.chance(40),
            dtls: dice.chance(10),
            homes: if dice.chance(60) { 2 } else { 1 },
            udp: dice.chance(25),
            crashes: dice.chance(15),
            resets: dice.chance(60),
            everything: dice.chance(15),
            sleeps: dice.chance(20),
            clocks: dice.chance(15),
            across: dice.chance(50),
        }
    }

    /// Settings of one host.
    pub fn settings(&self, dice: &mut Dice, opener: bool) -> Settings {
        let settings = Settings {
            udp_port: if self.udp && opener { UDP_PORT } else { 0 },
            over_dtls: self.dtls,
            ..Settings::default()
        };
        let settings = sizes(settings, self.large_packets, dice);
        let settings = times(settings, dice);
        // An opener fails after two stale cookies in a row (RFC 9260 section 5.2.6), so where time
        // leaps their life is longer than the leaps.
        let cookie_life = if self.sleeps || self.clocks { secs(600) } else { settings.cookie_life };
        // Behind a NAT whose port changes, the port is learned from any packet of the opener (RFC 6951
        // section 5.4); a silent opener is not found again.
        let asks = settings.heartbeat_interval.or((self.udp && opener).then(|| secs(10)));
        let settings = Settings { cookie_life, heartbeat_interval: asks, ..settings };
        let settings = self.extensions(settings, dice);
        settings.check().unwrap();
        settings
    }

    /// What is offered to the peer, and how data is sent.
    fn extensions(&self, settings: Settings, dice: &mut Dice) -> Settings {
        use Multipath::{Independent, Off, Pooled};
        Settings {
            partial_reliability: dice.chance(80),
            reconfiguration: dice.chance(80),
            dynamic_addresses: self.dynamic || dice.chance(10),
            interleaving: self.interleaving || dice.chance(10),
            final_acks: dice.chance(40),
            ecn: dice.chance(40),
            return_undelivered: dice.chance(40),
            rack: dice.chance(40),
            misses: dice.of(&[1, 3]),
            max_burst: dice.of(&[0, 1, 4]),
            algorithm: dice.of(&[Algorithm::Rfc9260, Algorithm::Cubic]),
            multipath: dice.of(&[Off, Off, Independent, Pooled]),
            scheduling: dice.of(&[
                Scheduling::Fcfs,
                Scheduling::RoundRobin,
                Scheduling::PacketRoundRobin,
                Scheduling::Priority,
                Scheduling::FairCapacity,
                Scheduling::WeightedFair,
            ]),
            ..settings
        }
    }
}

/// Packets, buffers, streams and windows.
fn sizes(settings: Settings, large_packets: bool, dice: &mut Dice) -> Settings {
    Settings {
        mtu: dice.of(&[512, 576, 1280, 1499, 1500]),
        largest_mtu: large_packets.then(|| dice.of(&[1500, 1500, 4000])),
        chunk: if dice.chance(15) { dice.of(&[64, 100, 500]) } else { 0 },
        send_buffer: dice.of(&[3000, 20_000, 200_000, 1 << 20]),
        receive_buffer: dice.of(&[4500, 8000, 50_000, 1 << 20]),
        outbound_streams: dice.of(&[1, 3, 5, 64]),
        inbound_streams: dice.of(&[1, 3, 64]),
        max_inbound_streams: dice.of(&[64, 65_535]),
        initial_cwnd: dice.of(&[None, None, None, Some(600), Some(20_000)]),
        initial_ssthresh: dice.of(&[None, None, None, Some(3000), Some(100_000)]),
        ..settings
    }
}

/// Timers and how many errors are borne. Those of an association are so many that no wire here is
/// bad enough to end it: every end but an orderly one is then a fault.
fn times(settings: Settings, dice: &mut Dice) -> Settings {
    Settings {
        rto_initial: secs(1),
        rto_min: ms(dice.of(&[10, 100, 200, 1000])),
        rto_max: ms(dice.of(&[1000, 3000, 5000])),
        sack_delay: ms(dice.of(&[0, 40, 200])),
        sack_packets: dice.of(&[1, 2, 5]),
        heartbeat_interval: dice.of(&[None, Some(ms(100)), Some(secs(1)), Some(secs(30))]),
        heartbeat_max_burst: dice.of(&[1, 3]),
        association_max_retrans: 60,
        path_max_retrans: dice.of(&[0, 2, 5]),
        potentially_failed: dice.of(&[None, Some(0), Some(2)]),
        max_init_retransmits: 60,
        cookie_life: dice.of(&[secs(5), secs(60)]),
        shutdown_guard: Some(secs(3000)),
        ..settings
    }
}
