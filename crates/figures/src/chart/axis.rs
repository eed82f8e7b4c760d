//! Axes: what they measure, where their ticks stand and what stands beside those.
//!
//! Ticks are 1, 2 or 5 times a power of ten apart, as close as their labels allow. A unit that takes
//! SI prefixes gets the one with which the largest number lies between 1 and 1000: values are given
//! in seconds, the axis says ms. Numbers without such a unit are grouped by thousands, and counted
//! in millions where they reach that.

use super::text::grouped;

/// Values beyond this are treated as not finite: nothing that is measured reaches it, and differences
/// and ratios of what remains do not overflow.
pub const MAX_MAGNITUDE: f64 = 1e120;
/// Values nearer to zero than this count as zero.
pub const MIN_MAGNITUDE: f64 = 1e-120;

/// How positions follow values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps, equal distances.
    #[default]
    Linear,
    /// Equal factors, equal distances. Values of 0 and below cannot be shown.
    Log,
}

/// What an axis counts in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A unit that takes SI prefixes, in which the values are given: s, bit/s, B.
    Si(String),
    /// A unit that takes none: %, dB, packets.
    Plain(String),
    /// None: a number, a ratio.
    Bare,
}

/// A description of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is measured, without the unit.
    pub label: String,
    /// In what.
    pub unit: Unit,
    /// How positions follow values.
    pub scale: Scale,
}

impl Axis {
    /// A linear axis in a unit that takes SI prefixes; values are given in the unit itself.
    pub fn si(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self::new(label, Unit::Si(unit.into()))
    }

    /// A linear axis in a unit that takes no prefixes.
    pub fn plain(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self::new(label, Unit::Plain(unit.into()))
    }

    /// A linear axis without a unit.
    pub fn bare(label: impl Into<String>) -> Self {
        Self::new(label, Unit::Bare)
    }

    fn new(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, scale: Scale::Linear }
    }

    /// The axis with a logarithmic scale.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.scale = Scale::Log;
        self
    }
}

/// SI prefixes by their power of a thousand, from -4.
const PREFIXES: [&str; 9] = ["p", "n", "µ", "m", "", "k", "M", "G", "T"];
/// The power of a thousand of the first prefix.
const FIRST_PREFIX: i32 = -4;
/// What a number without prefixes is counted in, by its power of a thousand from 2.
const MULTIPLES: [&str; 3] = ["millions", "billions", "trillions"];
/// Decades above which a logarithmic axis gives each tick its own prefix.
const COMMON_PREFIX: f64 = 3.2;
/// Narrowest range beside its position: below it the digits of a double run out.
const NARROWEST: f64 = 1e-9;
/// A range that begins nearer to zero than this part of its end begins at zero.
const NEAR_ZERO: f64 = 0.35;
/// Part of the range that is left free beside the data where the axis does not begin at zero.
const MARGIN: f64 = 0.03;
/// Most decimals of a label, as long as another prefix helps.
const MOST_DECIMALS: i32 = 3;
/// Most digits behind the point of a number with an exponent: as many as [`NARROWEST`] asks for.
const MOST_DIGITS: i32 = 11;
/// Numbers from here on have an exponent, as have those with more decimals than [`FINEST`].
const HUGE: f64 = 1e9;
/// Most decimals of a number without an exponent.
const FINEST: i32 = 6;
/// Every how many powers of ten a logarithmic axis may have a label.
const STRIDES: [i32; 9] = [1, 2, 3, 6, 12, 24, 36, 60, 120];
/// Most steps tried until labels fit, each about twice the one before.
const MOST_STEPS: i32 = 40;

/// The values that an axis shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Domain {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) log: bool,
}

impl Domain {
    /// The domain for data between `low` and `high`, which may be none.
    ///
    /// Beside the data a little is left free, unless the axis is to `grow` to its ticks anyway.
    pub(super) fn of(axis: &Axis, data: Option<(f64, f64)>, grow: bool) -> Self {
        let log = axis.scale == Scale::Log;
        let (low, high) = data.unwrap_or(if log { (1.0, 10.0) } else { (0.0, 1.0) });
        let margin = if grow { 0.0 } else { MARGIN };
        if log { Self::log_around(low, high) } else { Self::linear_around(low, high, margin) }
    }

    fn log_around(low: f64, high: f64) -> Self {
        let room = if high / low < 1.0 + NARROWEST { 2.0 } else { (high / low).powf(MARGIN) };
        Self { low: low / room, high: high * room, log: true }
    }

    fn linear_around(low: f64, high: f64, margin: f64) -> Self {
        let size = low.abs().max(high.abs());
        if size < MIN_MAGNITUDE {
            return Self { low: 0.0, high: 1.0, log: false };
        }
        if low >= 0.0 && low <= NEAR_ZERO * high {
            return Self { low: 0.0, high: high * (1.0 + margin), log: false };
        }
        if high <= 0.0 && high >= NEAR_ZERO * low {
            return Self { low: low * (1.0 + margin), high: 0.0, log: false };
        }
        let room = if high - low > NARROWEST * size { (high - low) * margin } else { size * 0.05 };
        Self { low: low - room, high: high + room, log: false }
    }

    /// Where `value` stands: 0 at the low end, 1 at the high one.
    pub(super) fn position(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Where `value` stands, or the low end for what a logarithmic axis cannot show.
    pub(super) fn place_or_foot(&self, value: f64) -> f64 {
        if self.log && value < MIN_MAGNITUDE { 0.0 } else { self.position(value) }
    }

    pub(super) fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Where ticks stand and what they say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ticks {
    /// Values with a label, ascending.
    pub(super) major: Vec<(f64, String)>,
    /// Values between, without one.
    pub(super) minor: Vec<f64>,
    /// What stands along the axis: label and unit.
    pub(super) title: String,
}

/// Where labels have to fit.
pub(super) struct Room<'a> {
    /// Length of the axis.
    pub(super) length: f64,
    /// The room that a label takes along the axis, the gap to the next one included.
    pub(super) takes: &'a dyn Fn(&str) -> f64,
    /// Most labels, however many fit.
    pub(super) max: usize,
    /// Whether all values are whole numbers, so that halves make no sense.
    pub(super) whole: bool,
    /// Whether the axis may grow to the next tick beyond its ends.
    pub(super) grow: bool,
}

/// Chooses ticks for `axis`, and lets `domain` grow to them if it may.
pub(super) fn ticks(axis: &Axis, domain: &mut Domain, room: &Room<'_>) -> Ticks {
    if domain.log {
        let ticks = log_ticks(axis, domain, room);
        if ticks.major.len() >= 2 {
            return ticks;
        }
    }
    linear_ticks(axis, domain, room)
}

fn linear_ticks(axis: &Axis, domain: &mut Domain, room: &Room<'_>) -> Ticks {
    let span = domain.high - domain.low;
    let largest = domain.low.abs().max(domain.high.abs());
    let mut counting = Counting::common(axis, largest);
    // The finest step of which no more than `max` fit is the first to try.
    let mut step = Step::at_least(span / room.max.max(1) as f64);
    if room.whole && !matches!(axis.unit, Unit::Si(_)) && step.size() < 1.0 && span >= 1.0 {
        step = Step { digit: 1, power: 0 };
    }
    let mut major = Vec::new();
    for _ in 0..MOST_STEPS {
        // Small steps far from zero: the prefix is that of the steps, and the labels stay whole.
        let fine = step.power - Counting::common(axis, largest).power < -MOST_DECIMALS;
        let next = Counting::common(axis, if fine { step.size() } else { largest });
        let tried: Vec<(f64, String)> =
            step.multiples(domain, room.grow).map(|v| (v, next.spell(v, &step))).collect();
        if tried.is_empty() {
            // Labels that are close are better than none.
            break;
        }
        (major, counting) = (tried, next);
        let widest = major.iter().map(|(_, l)| (room.takes)(l)).fold(0.0, f64::max);
        if major.len() <= room.max + 1 && step.size() / span * room.length >= widest {
            break;
        }
        step = step.next();
    }
    if room.grow && !domain.log {
        domain.low = major.first().map_or(domain.low, |&(v, _)| v.min(domain.low));
        domain.high = major.last().map_or(domain.high, |&(v, _)| v.max(domain.high));
    }
    Ticks { major, minor: Vec::new(), title: counting.title(axis) }
}

fn log_ticks(axis: &Axis, domain: &Domain, room: &Room<'_>) -> Ticks {
    let decades = (domain.high / domain.low).log10();
    let counting = if decades <= COMMON_PREFIX || !matches!(axis.unit, Unit::Si(_)) {
        Counting::common(axis, domain.high)
    } else {
        Counting { own_prefix: true, ..Counting::common(axis, 1.0) }
    };
    let powers = || domain.low.log10().floor() as i32..=domain.high.log10().ceil() as i32;
    let all = |digits: &'static [i32], stride: i32| -> Vec<Step> {
        powers()
            .filter(|power| power.rem_euclid(stride) == 0)
            .flat_map(|power| digits.iter().map(move |&digit| Step { digit, power }))
            .filter(|step| domain.contains(step.size()))
            .collect()
    };
    let fits = |steps: &[Step]| {
        steps.len() <= room.max.max(2)
            && steps.windows(2).all(|pair| {
                let apart = domain.position(pair[1].size()) - domain.position(pair[0].size());
                let takes = |step: &Step| (room.takes)(&counting.spell(step.size(), step));
                apart * room.length >= (takes(&pair[0]) + takes(&pair[1])) / 2.0
            })
    };
    let dense = [all(&[1, 2, 5], 1), all(&[1, 3], 1)];
    let powers_alone = STRIDES.iter().map(|&stride| all(&[1], stride));
    let chosen = dense.into_iter().chain(powers_alone).find(|s| fits(s)).unwrap_or_default();
    let major =
        chosen.iter().map(|step| (step.size(), counting.spell(step.size(), step))).collect();
    let minor: &'static [i32] = if decades <= 6.0 { &[2, 3, 4, 5, 6, 7, 8, 9] } else { &[] };
    let minor = all(minor, 1).iter().map(Step::size).collect();
    Ticks { major, minor, title: counting.title(axis) }
}

/// 1, 2 or 5 times a power of ten, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    digit: i32,
    power: i32,
}

impl Step {
    fn at_least(size: f64) -> Self {
        let power = size.log10().floor() as i32;
        let lead = size / ten(power);
        let digit = [1, 2, 5].into_iter().find(|&d| f64::from(d) >= lead * (1.0 - 1e-9));
        digit.map_or(Self { digit: 1, power: power + 1 }, |digit| Self { digit, power })
    }

    fn size(&self) -> f64 {
        times_ten(f64::from(self.digit), self.power)
    }

    fn next(self) -> Self {
        match self.digit {
            1 => Self { digit: 2, ..self },
            2 => Self { digit: 5, ..self },
            _ => Self { digit: 1, power: self.power + 1 },
        }
    }

    /// Its multiples within `domain`, or as far as to cover it.
    fn multiples(self, domain: &Domain, cover: bool) -> impl Iterator<Item = f64> {
        let (low, high) = (domain.low / self.size(), domain.high / self.size());
        let dust = 1e-6;
        let (first, last) = if cover && !domain.log {
            ((low + dust).floor(), (high - dust).ceil())
        } else {
            ((low - dust).ceil(), (high + dust).floor())
        };
        let count = (last - first).clamp(-1.0, 10_000.0) as i32;
        let size =
            move |i| times_ten((first + f64::from(i)) * f64::from(self.digit), self.power) + 0.0;
        // Near the foot of a logarithmic axis even a little below is far away.
        let domain = *domain;
        (0..=count).map(size).filter(move |&value| !domain.log || domain.contains(value))
    }
}

/// `x` times ten to the `power`; a negative power divides, which keeps 0.3 what it is.
fn times_ten(x: f64, power: i32) -> f64 {
    if power < 0 { x / ten(-power) } else { x * ten(power) }
}

fn ten(power: i32) -> f64 {
    10f64.powi(power)
}

/// In what the labels of an axis count.
struct Counting {
    /// The power of ten that all labels share.
    power: i32,
    /// What the title says of it.
    prefix: &'static str,
    multiple: Option<&'static str>,
    /// Whether each label has a prefix and the unit of its own.
    own_prefix: bool,
    unit: String,
}

impl Counting {
    fn common(axis: &Axis, largest: f64) -> Self {
        let thousands =
            if largest > 0.0 { (largest.log10() / 3.0 + 1e-9).floor() as i32 } else { 0 };
        let mut counting = Self {
            power: 0,
            prefix: "",
            multiple: None,
            own_prefix: false,
            unit: match &axis.unit {
                Unit::Si(unit) | Unit::Plain(unit) => unit.clone(),
                Unit::Bare => String::new(),
            },
        };
        if let Unit::Si(_) = axis.unit {
            let (power, prefix) = prefix(thousands);
            (counting.power, counting.prefix) = (power, prefix);
        } else if axis.scale == Scale::Linear && thousands >= 2 {
            let at = (thousands - 2).min(MULTIPLES.len() as i32 - 1);
            counting.power = 3 * (at + 2);
            counting.multiple = Some(MULTIPLES[at as usize]);
        }
        counting
    }

    /// The label of `value`, which is a multiple of `step`.
    fn spell(&self, value: f64, step: &Step) -> String {
        if !self.own_prefix {
            return spell(times_ten(value, -self.power), step.power - self.power);
        }
        let (power, prefix) = prefix((value.log10() / 3.0 + 1e-9).floor() as i32);
        let number = spell(times_ten(value, -power), step.power - power);
        format!("{number}\u{a0}{prefix}{}", self.unit)
    }

    fn title(&self, axis: &Axis) -> String {
        let unit = if self.own_prefix {
            String::new()
        } else {
            let unit = format!("{}{}", self.prefix, self.unit);
            match self.multiple {
                Some(multiple) if unit.is_empty() => multiple.to_owned(),
                Some(multiple) => format!("{multiple} of {unit}"),
                None => unit,
            }
        };
        match (axis.label.is_empty(), unit.is_empty()) {
            (_, true) => axis.label.clone(),
            (true, false) => unit,
            (false, false) => format!("{} ({unit})", axis.label),
        }
    }
}

/// The prefix for a power of a thousand, and the power of ten that it stands for.
fn prefix(thousands: i32) -> (i32, &'static str) {
    let at = (thousands - FIRST_PREFIX).clamp(0, PREFIXES.len() as i32 - 1);
    (3 * (at + FIRST_PREFIX), PREFIXES[at as usize])
}

/// `value` with as many digits as a step of ten to the `power` needs, a true minus sign, and a thin
/// space between thousands from five digits on.
fn spell(value: f64, power: i32) -> String {
    let size = value.abs();
    if value != 0.0 && (size >= HUGE || power < -FINEST) {
        let digits = (size.log10().floor() as i32 - power).clamp(0, MOST_DIGITS) as usize;
        return format!("{value:.digits$e}").replace('-', "−");
    }
    let decimals = if value == 0.0 && power < -FINEST { 0 } else { (-power).max(0) as usize };
    let plain = format!("{size:.decimals$}");
    let (whole, fraction) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    format!("{}{}{fraction}", if value < 0.0 { "−" } else { "" }, grouped(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis, low: f64, high: f64, length: f64) -> (Vec<String>, String) {
        let mut domain = Domain::of(axis, Some((low, high)), false);
        let takes = |label: &str| label.chars().count() as f64 * 4.0 + 6.0;
        let room = Room { length, takes: &takes, max: 7, whole: false, grow: false };
        let ticks = ticks(axis, &mut domain, &room);
        (ticks.major.into_iter().map(|(_, label)| label).collect(), ticks.title)
    }

    #[test]
    fn a_unit_takes_the_prefix_of_the_largest_value() {
        let delay = Axis::si("delay", "s");
        assert_eq!(
            labels(&delay, 0.0, 0.04, 200.0),
            (["0", "10", "20", "30", "40"].map(String::from).to_vec(), "delay (ms)".to_owned())
        );
        assert_eq!(labels(&delay, 0.0, 28.0, 200.0).1, "delay (s)");
        let rate = Axis::si("rate", "bit/s");
        assert_eq!(labels(&rate, 0.0, 1.7e6, 200.0).1, "rate (Mbit/s)");
    }

    #[test]
    fn a_number_is_grouped_and_then_counted_in_millions() {
        let bare = Axis::bare("sequence number");
        assert_eq!(
            labels(&bare, 0.0, 40_000.0, 200.0).0,
            ["0", "10\u{2009}000", "20\u{2009}000", "30\u{2009}000", "40\u{2009}000"]
        );
        let (labels, title) = labels(&bare, 0.0, 25e6, 200.0);
        assert_eq!(labels, ["0", "5", "10", "15", "20", "25"]);
        assert_eq!(title, "sequence number (millions)");
    }

    #[test]
    fn a_wide_logarithmic_axis_gives_each_tick_its_prefix() {
        let delay = Axis::si("delay", "s").log();
        let (labels, title) = labels(&delay, 1e-6, 10.0, 240.0);
        assert_eq!(labels, ["1 µs", "100 µs", "10 ms", "1 s"].map(|l| l.replace(' ', "\u{a0}")));
        assert_eq!(title, "delay");
    }

    #[test]
    fn a_narrow_logarithmic_axis_still_has_labels() {
        let (labels, _) = labels(&Axis::plain("loss", "%").log(), 3.1, 3.9, 240.0);
        assert!(labels.len() >= 2, "{labels:?}");
    }

    #[test]
    fn negative_numbers_have_a_minus_sign() {
        let (labels, _) = labels(&Axis::bare("x"), -1.0, 1.0, 200.0);
        assert_eq!(labels, ["−1.0", "−0.5", "0.0", "0.5", "1.0"]);
    }

    proptest! {
        /// Whatever the data: two labels or more, ascending, all different, and within the axis.
        #[test]
        fn every_axis_has_ticks_that_differ(
            a in -1e12f64..1e12, size in -12i32..12, span in 1e-6f64..10.0, log: bool,
            length in 60.0f64..500.0,
        ) {
            let (low, high) = (a * ten(size - 6), a * ten(size - 6) + span * ten(size));
            prop_assume!(!log || low > 0.0);
            let axis = Axis { scale: if log { Scale::Log } else { Scale::Linear }, ..Axis::si("x", "s") };
            let mut domain = Domain::of(&axis, Some((low, high)), false);
            let takes = |label: &str| label.chars().count() as f64 * 3.9 + 5.0;
            let room = Room { length, takes: &takes, max: 7, whole: false, grow: false };
            let ticks = ticks(&axis, &mut domain, &room);
            prop_assert!(!ticks.major.is_empty(), "{domain:?}");
            for pair in ticks.major.windows(2) {
                prop_assert!(pair[0].0 < pair[1].0);
                prop_assert_ne!(&pair[0].1, &pair[1].1);
            }
            for (value, _) in &ticks.major {
                let position = domain.position(*value);
                prop_assert!((-1e-3..=1.001).contains(&position), "{value} at {position}");
            }
        }
    }
}
