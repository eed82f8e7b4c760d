//! The configuration of a link. Every field has a default without effect, so that a configuration names
//! only what it changes.
use crate::deliveries::Deliveries;
use crate::distribution::{Distribution, TableError};
use crate::loss::{Loss, LossList, LossPosition, MAX_PATTERN};
use crate::quantity::{Chance, Rate, Size, Span};
use crate::queue::QueueConfig;
use crate::trace::{self, RateStep};
use serde::{Deserialize, Serialize};

/// Maximum number of changes in a schedule.
pub const MAX_SCHEDULE: usize = 1 << 16;
/// Maximum delay or jitter, so that sums of times do not overflow.
pub const MAX_SPAN: Span = Span::from_secs(1_000_000);

/// Defines the configuration, and a change of any part of it at a given time.
macro_rules! parameters {
    ($( $(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr, )+) => {
        /// One direction of a link.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct LinkConfig {
            $( $(#[doc = $doc])+ pub $name: $type, )+
            /// Changes at given times, ascending.
            pub schedule: Vec<Change>,
            /// Period with which the schedule repeats; 0 s for once only.
            pub schedule_period: Span,
        }

        impl Default for LinkConfig {
            fn default() -> Self {
                LinkConfig {
                    $( $name: $default, )+
                    schedule: Vec::new(),
                    schedule_period: Span(0),
                }
            }
        }

        /// A change at a given time. Fields that are left out stay unchanged.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Change {
            /// The time, counted from the start of the link or of the period.
            pub at: Span,
            $( $(#[doc = $doc])+ #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<$type>, )+
        }

        impl Change {
            /// Applies the change.
            pub fn apply(&self, config: &mut LinkConfig) {
                $( if let Some(value) = &self.$name { config.$name.clone_from(value); } )+
            }
        }
    };
}

parameters! {
    /// Bit rate at which packets are sent, in bit/s.
    rate: Rate = Rate::UNLIMITED,
    /// Bytes added to each packet on the wire, such as 38 for Ethernet with preamble and gap.
    overhead: Size = Size(0),
    /// Bytes of each packet that are not sent, such as 14 for a stripped Ethernet header. The remainder
    /// is at least 0.
    stripped: Size = Size(0),
    /// Cells in which a packet is sent, after overhead and stripping; the last one is filled up.
    cells: Cells = Cells::NONE,
    /// A rate that follows a trace, repeated endlessly. It replaces `rate` if not empty.
    rate_trace: Vec<RateStep> = Vec::new(),
    /// Opportunities to send, repeated endlessly. They replace `rate` if there are any.
    deliveries: Deliveries = Deliveries::default(),
    /// Mean time from the last bit sent to its reception.
    delay: Span = Span(0),
    /// Scatter of the delay: half the width of `uniform`, the standard deviation of the others.
    jitter: Span = Span(0),
    /// Correlation of a packet's delay with that of the packet before.
    delay_correlation: Chance = Chance::NEVER,
    /// Shape of the scatter.
    distribution: Distribution = Distribution::Uniform,
    /// Whether packets stay in order in spite of jitter.
    keep_order: bool = false,
    /// Loss at random.
    loss: Loss = Loss::default(),
    /// Loss of certain packets.
    loss_list: LossList = LossList::default(),
    /// The position of loss in the link.
    loss_at: LossPosition = LossPosition::BeforeQueue,
    /// Whether packets of transports that support ECN are marked where the random model would drop
    /// them.
    loss_marks: bool = false,
    /// Packets that are sent twice.
    duplicate: Sometimes = Sometimes::NEVER,
    /// Packets that arrive with one wrong bit.
    corrupt: Sometimes = Sometimes::NEVER,
    /// Packets that overtake those before them.
    reorder: Reorder = Reorder::NONE,
    /// Delivery in bursts.
    slot: Slot = Slot::NONE,
    /// Random congestion marks on packets of transports that support ECN.
    ecn_mark: Sometimes = Sometimes::NEVER,
    /// Maximum length of a packet, IP header included.
    mtu: Size = Size::UNLIMITED,
    /// Whether the link is up. Packets in flight are lost when it goes down.
    up: bool = true,
    /// Whether the queue is preserved while the link is down.
    down_keeps_queue: bool = false,
    /// The queue of the link and its discipline.
    queue: QueueConfig = QueueConfig::default(),
}

/// An impairment of randomly chosen packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sometimes {
    /// Probability for each packet.
    pub chance: Chance,
    /// Correlation of a packet's choice with that of the packet before.
    #[serde(default)]
    pub correlation: Chance,
}

impl Sometimes {
    /// No packet is chosen.
    pub const NEVER: Sometimes = Sometimes { chance: Chance::NEVER, correlation: Chance::NEVER };
}

/// Packets that are not delayed while the others are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Probability that a packet overtakes.
    pub chance: Chance,
    /// Correlation of a packet's choice with that of the packet before.
    #[serde(default)]
    pub correlation: Chance,
    /// Only each `gap`-th packet may overtake; 1 for any.
    #[serde(default = "one")]
    pub gap: u32,
}

impl Reorder {
    /// No packet overtakes.
    pub const NONE: Reorder = Reorder { chance: Chance::NEVER, correlation: Chance::NEVER, gap: 1 };
}

fn one() -> u32 {
    1
}

/// Cells of one size, the last one filled up; ATM's are `{ payload = "48 B", header = "5 B" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    /// Bytes of a packet in a cell; 0 for no cells.
    pub payload: Size,
    /// Additional bytes of each cell.
    pub header: Size,
}

impl Cells {
    /// No cells.
    pub const NONE: Cells = Cells { payload: Size(0), header: Size(0) };
}

/// Delivery in bursts: packets wait for a slot to open and leave together. The wait is drawn evenly
/// between `min` and `max`, or around `delay` with `jitter`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slot {
    /// Minimum wait for a slot.
    pub min: Span,
    /// Maximum wait for a slot.
    pub max: Span,
    /// Mean wait, instead of `min` and `max`.
    pub delay: Span,
    /// Scatter of the wait around `delay`, defined as for a link's delay.
    pub jitter: Span,
    /// Shape of that scatter.
    pub distribution: Distribution,
    /// Maximum number of packets in a slot; 0 for no limit.
    pub packets: u32,
    /// Number of bytes after which a slot ends. The packet that reaches it is still included.
    pub bytes: Size,
}

impl Slot {
    /// No slots.
    pub const NONE: Slot = Slot {
        min: Span(0),
        max: Span(0),
        delay: Span(0),
        jitter: Span(0),
        distribution: Distribution::Uniform,
        packets: 0,
        bytes: Size::UNLIMITED,
    };

    /// Returns whether no packet waits for a slot.
    pub const fn is_none(&self) -> bool {
        self.max.0 == 0 && !self.scatters()
    }

    /// Returns whether the wait scatters around `delay`.
    pub(crate) const fn scatters(&self) -> bool {
        self.delay.0 > 0 || self.jitter.0 > 0
    }
}

impl Default for Slot {
    fn default() -> Self {
        Slot::NONE
    }
}

/// The reason why a configuration is invalid. `field` is the name of the key.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value outside its range.
    #[error("{field}: expected {expected}")]
    Range {
        /// The key.
        field: &'static str,
        /// The accepted values.
        expected: &'static str,
    },
    /// An invalid table of a distribution.
    #[error("distribution: {0}")]
    Table(#[from] TableError),
    /// A change of the schedule that makes the configuration invalid.
    #[error("schedule, change {number}: {error}")]
    Change {
        /// Its number, from 1.
        number: usize,
        /// The error after the change.
        error: Box<ConfigError>,
    },
}

impl LinkConfig {
    /// Returns the number of bytes on the wire for a packet of `size` bytes: netem's rate with its
    /// overheads.
    #[inline]
    pub fn sent_bytes(&self, size: u64) -> u64 {
        let bytes = (size + self.overhead.0).saturating_sub(self.stripped.0);
        match self.cells.payload.0 {
            0 => bytes,
            payload => bytes.div_ceil(payload) * (payload + self.cells.header.0),
        }
    }

    /// Checks that every value is in range, also after each change of the schedule.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_fields()?;
        let expect = |ok: bool, expected| {
            if ok { Ok(()) } else { Err(ConfigError::Range { field: "schedule", expected }) }
        };
        expect(self.schedule.len() <= MAX_SCHEDULE, "at most 65536 changes")?;
        expect(self.schedule.is_sorted_by_key(|c| c.at), "changes in the order of their times")?;
        let last = self.schedule.last().map_or(Span(0), |c| c.at);
        expect(last <= MAX_SPAN, "times of at most 1000000 s")?;
        let repeats = self.schedule_period != Span(0);
        if repeats && (last >= self.schedule_period || self.schedule_period > MAX_SPAN) {
            return Err(ConfigError::Range {
                field: "schedule_period",
                expected: "more than the time of the last change and at most 1000000 s",
            });
        }
        let mut config = LinkConfig { schedule: Vec::new(), ..self.clone() };
        for (i, change) in self.schedule.iter().enumerate() {
            change.apply(&mut config);
            config
                .check_fields()
                .map_err(|error| ConfigError::Change { number: i + 1, error: Box::new(error) })?;
        }
        Ok(())
    }

    fn check_fields(&self) -> Result<(), ConfigError> {
        let expect = |field, ok: bool, expected| {
            if ok { Ok(()) } else { Err(ConfigError::Range { field, expected }) }
        };
        expect("rate", self.rate.0 > 0, "more than 0; a link that sends nothing is `up = false`")?;
        expect("overhead", self.overhead.0 <= 65_535, "at most 65535 B")?;
        expect("stripped", self.stripped.0 <= 65_535, "at most 65535 B")?;
        let cells = self.cells.payload.0.max(self.cells.header.0) <= 65_535;
        expect("cells", cells, "a `payload` and a `header` of at most 65535 B")?;
        let steps = trace::is_valid(&self.rate_trace);
        expect("rate_trace", steps, "steps longer than 0 s, one of them faster than 0 bit/s")?;
        let deliveries = self.deliveries.is_valid();
        expect(
            "deliveries",
            deliveries,
            "ascending times, the last above 0 s, and `bytes` above 0",
        )?;
        let one = self.rate_trace.is_empty() || self.deliveries.is_none();
        expect("deliveries", one, "either `rate_trace` or `deliveries`")?;
        expect("delay", self.delay <= MAX_SPAN, "at most 1000000 s")?;
        expect("jitter", self.jitter <= MAX_SPAN, "at most 1000000 s")?;
        self.distribution.check()?;
        let slot = self.slot.min <= self.slot.max && self.slot.max <= MAX_SPAN;
        expect("slot", slot, "a `min` of at most `max`, and that of at most 1000000 s")?;
        expect("slot", self.slot.bytes.0 > 0, "`bytes` above 0")?;
        let max = self.slot.delay.max(self.slot.jitter);
        expect("slot", max <= MAX_SPAN, "a `delay` and a `jitter` of at most 1000000 s")?;
        let one = self.slot.max == Span(0) || !self.slot.scatters();
        expect("slot", one, "either `min` and `max`, or `delay` and `jitter`")?;
        self.slot.distribution.check()?;
        expect("reorder", self.reorder.gap > 0, "a gap of 1 or more")?;
        expect("mtu", self.mtu.0 > 0, "more than 0 B")?;
        if let Loss::FourState(m) = &self.loss {
            let max = (m.p13.get() + m.p14.get()).max(m.p31.get() + m.p32.get());
            expect("loss", max <= 1.0, "p13 + p14 and p31 + p32 of at most 1")?;
        }
        let list = &self.loss_list;
        let ascending = |v: &[u64]| v.is_sorted_by(|a, b| a < b);
        expect("loss_list", ascending(&list.packets), "packet numbers in ascending order")?;
        if let Some(p) = &list.pattern {
            let length = (1..=MAX_PATTERN).contains(&p.bytes.len());
            expect("loss_list", length, "a pattern of 1 to 64 bytes")?;
            let mask = p.mask.is_empty() || p.mask.len() == p.bytes.len();
            expect("loss_list", mask, "a mask as long as the pattern")?;
            expect("loss_list", ascending(&p.matches), "numbers of matches in ascending order")?;
        }
        self.queue.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_configuration_is_read() {
        let text = r#"
            rate = "1 Mbit/s"
            overhead = "38 B"
            delay = "100 ms"
            jitter = "10 ms"
            delay_correlation = "25 %"
            distribution = "normal"
            loss = { model = "gilbert-elliott", p = "1 %", r = "25 %" }
            loss_list = { packets = [3, 7], pattern = { offset = 12, bytes = [1] } }
            loss_at = "after-link"
            duplicate = { chance = "1 %" }
            reorder = { chance = "25 %", gap = 5 }
            slot = { min = "1 ms", max = "5 ms", packets = 10 }
            stripped = "14 B"
            cells = { payload = "48 B", header = "5 B" }
            mtu = "1500 B"
            queue = { discipline = "ns2-drop-tail", limit = 50 }
            schedule_period = "10 s"
            [[schedule]]
            at = "5 s"
            up = false
            [[schedule]]
            at = "6 s"
            up = true
            slot = { delay = "2 ms", jitter = "1 ms", distribution = "pareto", bytes = "3 kB" }
            loss = { model = "random", chance = 0.1, correlation = "25 %" }
        "#;
        let config: LinkConfig = toml::from_str(text).unwrap();
        config.check().unwrap();
        assert_eq!(config.rate, Rate(1_000_000));
        assert_eq!(config.schedule[1].up, Some(true));
        let again: LinkConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn unknown_keys_and_missing_units_are_errors() {
        for (text, part) in [
            ("delya = \"1 ms\"", "delay"),
            ("delay = 35", "such as \"35 ms\""),
            ("delay = \"35\"", "such as \"35 ms\""),
            ("rate = \"1 MB\"", "Mbit/s"),
            ("loss = { model = \"random\", chanse = 1 }", "chanse"),
            ("loss = { model = \"none\", chance = 1 }", "chance"),
            ("queue = { discipline = \"red\", limmit = 1 }", "limit"),
            ("schedule = [{ at = \"1 s\", upp = true }]", "upp"),
        ] {
            let error = toml::from_str::<LinkConfig>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn values_out_of_range_are_errors() {
        let check = |text: &str| toml::from_str::<LinkConfig>(text).unwrap().check();
        for text in [
            "rate = \"0 bit/s\"",
            "delay = \"2000000 s\"",
            "mtu = \"0 B\"",
            "slot = { min = \"2 s\", max = \"1 s\" }",
            "slot = { max = \"2 s\", delay = \"1 s\" }",
            "slot = { delay = \"1 s\", distribution = { table = [1.0] } }",
            "cells = { payload = \"48 B\", header = \"65536 B\" }",
            "stripped = \"1 MB\"",
            "reorder = { chance = 0.5, gap = 0 }",
            "loss = { model = \"four-state\", p13 = 0.6, p31 = 1.0, p14 = 0.6 }",
            "loss_list = { packets = [2, 1] }",
            "loss_list = { pattern = { offset = 0, bytes = [1], mask = [1, 2] } }",
            "schedule = [{ at = \"2 s\" }, { at = \"1 s\" }]",
            "schedule = [{ at = \"2 s\", mtu = \"0 B\" }]",
            "schedule_period = \"1 s\"\nschedule = [{ at = \"2 s\" }]",
            "distribution = { table = [1.0] }",
            "queue = { discipline = \"drop-tail\", limit = 0 }",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
        check("").unwrap();
    }
}
