//! Loss of packets.

use crate::correlated::Correlated;
use crate::packet::Packet;
use crate::quantity::Chance;
use crate::random::Stream;
use serde::{Deserialize, Serialize};

/// Maximum length of a byte pattern, in bytes.
pub const MAX_PATTERN: usize = 64;

/// The position of loss in the link. It changes results, because a packet lost before the queue uses no
/// room in it and no time on the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossPosition {
    /// Before the queue, as in netem.
    #[default]
    BeforeQueue,
    /// After the packet was sent, as on a bad line.
    AfterLink,
}

/// A model of loss at random.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Loss {
    /// No loss.
    None {},
    /// The same probability for each packet.
    Random(RandomLoss),
    /// Two states (Gilbert 1960, Elliott 1963).
    GilbertElliott(GilbertElliott),
    /// Four states (Salsano, Ludovici and Ordine 2009), as in netem.
    FourState(FourState),
}

impl Default for Loss {
    fn default() -> Self {
        Loss::None {}
    }
}

impl Loss {
    /// Returns the share of packets that is lost in the long run.
    pub fn mean(&self) -> f64 {
        match self {
            Loss::None {} => 0.0,
            Loss::Random(loss) => loss.chance.get(),
            Loss::GilbertElliott(model) => {
                let (p, r) = (model.p.get(), model.r.get());
                // Without any change the initial state remains.
                let bad = if p > 0.0 { p / (p + r) } else { 0.0 };
                bad * model.bad_loss.get() + (1.0 - bad) * model.good_loss.get()
            }
            Loss::FourState(model) => model.mean(),
        }
    }

    /// Returns whether the loss of a packet is independent of the others.
    pub fn is_independent(&self) -> bool {
        match self {
            Loss::None {} => true,
            Loss::Random(loss) => loss.correlation == Chance::NEVER,
            Loss::GilbertElliott(_) | Loss::FourState(_) => false,
        }
    }
}

/// Loss with the same probability for each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomLoss {
    /// Probability that a packet is lost.
    pub chance: Chance,
    /// Correlation of a packet's loss with that of the packet before.
    #[serde(default)]
    pub correlation: Chance,
}

/// A good and a bad state, each with its loss. The initial state is good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability of a change from good to bad after a packet.
    pub p: Chance,
    /// Probability of a change from bad to good after a packet; the mean length of bad is 1/r packets.
    pub r: Chance,
    /// Probability of loss in the bad state, netem's 1-h.
    #[serde(default = "always")]
    pub bad_loss: Chance,
    /// Probability of loss in the good state, netem's 1-k.
    #[serde(default)]
    pub good_loss: Chance,
}

fn always() -> Chance {
    Chance::ALWAYS
}

/// Good reception in a gap (1), good reception in a burst (2), loss in a burst (3), a single loss in a
/// gap (4). The initial state is 1. The remaining probability is that of no change; state 4 is always
/// followed by 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FourState {
    /// From gap to loss in a burst.
    pub p13: Chance,
    /// From loss in a burst to gap.
    pub p31: Chance,
    /// From loss in a burst to good reception in it.
    #[serde(default)]
    pub p32: Chance,
    /// From good reception in a burst to loss.
    #[serde(default = "always")]
    pub p23: Chance,
    /// From gap to a single loss.
    #[serde(default)]
    pub p14: Chance,
}

impl FourState {
    /// Returns the stationary share of states 3 and 4.
    fn mean(&self) -> f64 {
        let (p13, p14, p23) = (self.p13.get(), self.p14.get(), self.p23.get());
        let (p31, p32) = (self.p31.get(), self.p32.get());
        if p13 == 0.0 {
            return p14 / (1.0 + p14);
        }
        // A state that is never left has everything in the long run.
        if p31 == 0.0 {
            return match (p32 > 0.0, p23 > 0.0) {
                (false, _) => 1.0,
                (true, false) => 0.0,
                (true, true) => p23 / (p23 + p32),
            };
        }
        if p32 > 0.0 && p23 == 0.0 {
            return 0.0;
        }
        // Balance, for state 1 of weight 1: p13 = pi3 p31, pi3 p32 = pi2 p23, pi4 = p14.
        let three = p13 / p31;
        let two = if p32 > 0.0 { three * p32 / p23 } else { 0.0 };
        (three + p14) / (1.0 + two + three + p14)
    }
}

/// Packets that are always lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossList {
    /// The numbers of packets at the position of loss, counted from 1, ascending.
    pub packets: Vec<u64>,
    /// Packets with certain bytes.
    pub pattern: Option<Pattern>,
}

/// Bytes at an offset of the packet as the world holds it: from the transport's header on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Offset of the bytes.
    pub offset: u32,
    /// The expected bytes, after `mask`.
    pub bytes: Vec<u8>,
    /// Mask of the compared bits, of the same length; all bits if left out.
    #[serde(default)]
    pub mask: Vec<u8>,
    /// Numbers of the matching packets that are lost, counted from 1, ascending; all if left out.
    #[serde(default)]
    pub matches: Vec<u64>,
}

impl Pattern {
    fn is_in(&self, packet: &[u8]) -> bool {
        let start = self.offset as usize;
        let end = start + self.bytes.len();
        let Some(there) = packet.get(start..end) else {
            return false;
        };
        there.iter().zip(&self.bytes).enumerate().all(|(i, (have, want))| {
            let mask = self.mask.get(i).copied().unwrap_or(0xff);
            have & mask == want & mask
        })
    }
}

/// A rule in code: returns true for a packet that is to be lost, from its bytes.
pub type LossRule = Box<dyn FnMut(&Packet, &[u8]) -> bool + Send>;

/// The state of a model of random loss.
#[derive(Clone, Debug)]
pub(crate) enum LossState {
    None,
    Random(f64, Correlated),
    GilbertElliott { model: GilbertElliott, bad: bool },
    FourState { model: FourState, state: u8 },
}

impl LossState {
    pub(crate) fn new(loss: Loss) -> Self {
        match loss {
            Loss::None {} => LossState::None,
            Loss::Random(r) => LossState::Random(r.chance.get(), Correlated::new(r.correlation)),
            Loss::GilbertElliott(model) => LossState::GilbertElliott { model, bad: false },
            Loss::FourState(model) => LossState::FourState { model, state: 1 },
        }
    }

    /// Returns whether the next packet is lost.
    #[inline]
    pub(crate) fn strikes(&mut self, stream: &mut Stream) -> bool {
        match self {
            LossState::None => false,
            LossState::Random(chance, source) => source.draw(stream) < *chance,
            LossState::GilbertElliott { model, bad } => {
                let loss = if *bad { model.bad_loss } else { model.good_loss };
                let lost = stream.chance(loss.get());
                let leave = if *bad { model.r } else { model.p };
                *bad ^= stream.chance(leave.get());
                lost
            }
            LossState::FourState { model, state } => {
                let u = stream.uniform();
                let (p13, p14) = (model.p13.get(), model.p14.get());
                let (p31, p32) = (model.p31.get(), model.p32.get());
                *state = match *state {
                    1 if u < p13 => 3,
                    1 if u < p13 + p14 => 4,
                    2 if u < model.p23.get() => 3,
                    3 if u < p31 => 1,
                    3 if u < p31 + p32 => 2,
                    4 => 1,
                    stay => stay,
                };
                matches!(*state, 3 | 4)
            }
        }
    }
}

/// Counters of packets for a list.
#[derive(Default)]
pub(crate) struct ListState {
    seen: u64,
    matched: u64,
}

impl ListState {
    pub(crate) fn strikes(&mut self, list: &LossList, bytes: &[u8]) -> bool {
        self.seen += 1;
        let mut lost = list.packets.binary_search(&self.seen).is_ok();
        if let Some(pattern) = &list.pattern
            && pattern.is_in(bytes)
        {
            self.matched += 1;
            lost |=
                pattern.matches.is_empty() || pattern.matches.binary_search(&self.matched).is_ok();
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Streams;

    fn chance(p: f64) -> Chance {
        Chance::new(p).unwrap()
    }

    /// Returns the loss rate, and the lengths of runs of losses and of runs of receptions.
    fn run(loss: Loss, n: usize) -> (f64, Vec<u32>, Vec<u32>) {
        let mut stream = Streams::new(5, 0).stream("loss");
        let mut state = LossState::new(loss);
        let fates: Vec<bool> = (0..n).map(|_| state.strikes(&mut stream)).collect();
        let lost = fates.iter().filter(|&&l| l).count();
        let runs = |what: bool| {
            let lengths = fates.chunk_by(|a, b| a == b).filter(|c| c[0] == what);
            lengths.map(|c| c.len() as u32).collect::<Vec<_>>()
        };
        (lost as f64 / n as f64, runs(true), runs(false))
    }

    fn mean(v: &[u32]) -> f64 {
        v.iter().map(|&x| f64::from(x)).sum::<f64>() / v.len() as f64
    }

    #[test]
    fn correlation_makes_runs_and_leaves_the_rate() {
        let with = |correlation| {
            let loss = RandomLoss { chance: chance(0.05), correlation: chance(correlation) };
            run(Loss::Random(loss), 400_000)
        };
        let (rate, runs, _) = with(0.0);
        assert!((rate - 0.05).abs() < 0.002, "{rate}");
        assert!((mean(&runs) - 1.0 / 0.95).abs() < 0.01);
        let (rate, runs, _) = with(0.5);
        assert!((rate - 0.05).abs() < 0.003, "{rate}");
        assert!(mean(&runs) > 1.2, "{}", mean(&runs));
    }

    /// Bursts and gaps are geometric: bursts of 1/r packets, gaps of 1/p, loss p/(p+r); and the whole
    /// distribution of burst lengths, by chi squared.
    #[test]
    fn gilbert_bursts_have_the_lengths_of_the_formula() {
        let (p, r) = (0.01, 0.25);
        let model = GilbertElliott {
            p: chance(p),
            r: chance(r),
            bad_loss: Chance::ALWAYS,
            good_loss: Chance::NEVER,
        };
        let (rate, bursts, gaps) = run(Loss::GilbertElliott(model), 2_000_000);
        assert!((rate / (p / (p + r)) - 1.0).abs() < 0.03, "{rate}");
        assert!((mean(&bursts) * r - 1.0).abs() < 0.02, "{}", mean(&bursts));
        assert!((mean(&gaps) * p - 1.0).abs() < 0.02, "{}", mean(&gaps));
        let n = bursts.len() as f64;
        let cells = 12;
        let chi: f64 = (1..=cells)
            .map(|k| {
                let last = k == cells;
                let seen = bursts.iter().filter(|&&b| b == k || last && b > k).count() as f64;
                let tail = (1.0 - r).powi(k as i32 - 1);
                let expected = n * if last { tail } else { tail * r };
                (seen - expected).powi(2) / expected
            })
            .sum();
        // 99.9 % point of chi squared with 11 degrees of freedom.
        assert!(chi < 31.26, "{chi}");
    }

    /// Elliott's: loss is the mean over the stationary states.
    #[test]
    fn elliott_loses_in_both_states() {
        let model = GilbertElliott {
            p: chance(0.1),
            r: chance(0.3),
            bad_loss: chance(0.5),
            good_loss: chance(0.02),
        };
        let (rate, _, _) = run(Loss::GilbertElliott(model), 1_000_000);
        let expected = 0.25 * 0.5 + 0.75 * 0.02;
        assert!((rate / expected - 1.0).abs() < 0.02, "{rate}");
    }

    /// Against the stationary distribution of the chain: single losses and bursts apart.
    #[test]
    fn four_states_have_their_stationary_loss() {
        let (p13, p31, p32, p23, p14) = (0.02, 0.3, 0.2, 0.4, 0.01);
        let model = FourState {
            p13: chance(p13),
            p31: chance(p31),
            p32: chance(p32),
            p23: chance(p23),
            p14: chance(p14),
        };
        let (rate, _, _) = run(Loss::FourState(model), 1_000_000);
        // Balance: pi3 p31 = pi1 p13; pi2 p23 = pi3 p32; pi4 = pi1 p14.
        let (one, three) = (1.0, p13 / p31);
        let (two, four) = (three * p32 / p23, p14);
        let expected = (three + four) / (one + two + three + four);
        assert!((rate / expected - 1.0).abs() < 0.02, "{rate} {expected}");
    }

    #[test]
    fn the_mean_is_the_share_in_the_long_run() {
        let four = |p13, p31, p32, p23, p14| {
            let [p13, p31, p32, p23, p14] = [p13, p31, p32, p23, p14].map(chance);
            Loss::FourState(FourState { p13, p31, p32, p23, p14 })
        };
        let elliott = |p, r, bad_loss, good_loss| {
            let [p, r, bad_loss, good_loss] = [p, r, bad_loss, good_loss].map(chance);
            Loss::GilbertElliott(GilbertElliott { p, r, bad_loss, good_loss })
        };
        let random = RandomLoss { chance: chance(0.05), correlation: Chance::NEVER };
        for loss in [
            Loss::None {},
            Loss::Random(random),
            elliott(0.1, 0.3, 0.5, 0.02),
            elliott(0.0, 0.3, 0.5, 0.02),
            elliott(0.1, 0.0, 0.5, 0.02),
            four(0.02, 0.3, 0.2, 0.4, 0.01),
            four(0.0, 0.3, 0.2, 0.4, 0.1),
            four(0.1, 0.0, 0.0, 0.4, 0.01),
            four(0.1, 0.0, 0.2, 0.3, 0.01),
            four(0.1, 0.3, 0.2, 0.0, 0.01),
            four(0.1, 0.3, 0.0, 0.0, 0.01),
        ] {
            let (rate, _, _) = run(loss, 400_000);
            assert!((rate - loss.mean()).abs() < 0.005, "{loss:?}: {rate}, {}", loss.mean());
        }
    }

    #[test]
    fn a_list_names_packets_and_matches() {
        let list = LossList { packets: vec![2, 4], pattern: None };
        let mut state = ListState::default();
        let fates: Vec<bool> = (0..5).map(|_| state.strikes(&list, b"")).collect();
        assert_eq!(fates, [false, true, false, true, false]);

        let pattern = Pattern { offset: 1, bytes: vec![0x10], mask: vec![0xf0], matches: vec![2] };
        let list = LossList { packets: vec![], pattern: Some(pattern) };
        let mut state = ListState::default();
        let packets: [&[u8]; 5] = [b"a\x11", b"a\x21", b"a", b"a\x1f", b"a\x10"];
        let fates = packets.map(|p| state.strikes(&list, p));
        assert_eq!(fates, [false, false, false, true, false]);
    }
}
