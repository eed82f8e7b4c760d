//! Tables for reading: numbers with as many decimals as their column has, and comparisons.

use crate::statistics::Estimate;

/// Most decimals of a column; a double has no more to say.
const MOST_DECIMALS: usize = 17;
/// Numbers from here on are written with an exponent.
const HUGE: f64 = 1e15;
/// Digits of a number that tells its own precision.
const DIGITS: i32 = 6;

/// The head of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the column holds, unit included.
    pub title: String,
    /// Decimals of its numbers; none for a column of text.
    pub decimals: Option<usize>,
}

impl Head {
    /// A column of text.
    pub fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), decimals: None }
    }

    /// A column of numbers with this many decimals, so that their points stand below one another.
    pub fn number(title: impl Into<String>, decimals: usize) -> Self {
        Self { title: title.into(), decimals: Some(decimals) }
    }

    pub(super) fn is_number(&self) -> bool {
        self.decimals.is_some()
    }
}

/// One field of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Words.
    Text(String),
    /// The name of a file beside the page, which leads to it.
    File(String),
    /// A number, with the decimals of its column.
    Number(f64),
    /// A number with decimals of its own.
    Rounded(f64, usize),
    /// A value with the bounds of its interval.
    Estimate(Estimate),
    /// A difference with its sign and decimals of its own.
    Difference(f64, usize),
    /// A difference in per cent, with its sign.
    Percent(f64),
    /// Nothing is known.
    Nothing,
}

impl From<&str> for Entry {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Entry {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Entry {
    fn from(x: f64) -> Self {
        Self::Number(x)
    }
}

impl From<u64> for Entry {
    fn from(x: u64) -> Self {
        Self::Number(x as f64)
    }
}

impl From<Estimate> for Entry {
    fn from(estimate: Estimate) -> Self {
        Self::Estimate(estimate)
    }
}

impl<T: Into<Self>> From<Option<T>> for Entry {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

impl Entry {
    pub(super) fn is_number(&self) -> bool {
        !matches!(self, Self::Text(_) | Self::File(_) | Self::Nothing)
    }

    pub(super) fn spell(&self, head: &Head) -> String {
        let decimals = head.decimals;
        match self {
            Self::Text(text) | Self::File(text) => text.clone(),
            Self::Number(x) => spell(*x, decimals),
            Self::Rounded(x, decimals) => spell(*x, Some(*decimals)),
            Self::Estimate(estimate) => {
                let value = spell(estimate.value, decimals);
                match estimate.interval {
                    Some(i) => {
                        format!("{value} [{}, {}]", spell(i.low, decimals), spell(i.high, decimals))
                    }
                    None => value,
                }
            }
            Self::Percent(x) if !x.is_finite() => "–".to_owned(),
            Self::Percent(x) => format!("{} %", signed(*x, decimals.unwrap_or(2))),
            Self::Difference(x, decimals) => signed(*x, *decimals),
            Self::Nothing => "–".to_owned(),
        }
    }
}

/// A number with its sign, unless it is rounded to zero.
fn signed(x: f64, decimals: usize) -> String {
    let text = spell(x, Some(decimals));
    let zero = !text.contains(|c: char| ('1'..='9').contains(&c));
    if zero || x < 0.0 { text } else { format!("+{text}") }
}

/// A number with a true minus sign; without decimals given, six digits or all before the point.
fn spell(x: f64, decimals: Option<usize>) -> String {
    if !x.is_finite() {
        return "–".to_owned();
    }
    let lead = if x == 0.0 { 0 } else { x.abs().log10().floor() as i32 };
    let text = match decimals {
        _ if x.abs() >= HUGE => format!("{x:.5e}"),
        Some(decimals) => format!("{x:.*}", decimals.min(MOST_DECIMALS)),
        None if x == x.trunc() => format!("{x:.0}"),
        None => format!("{x:.*}", (DIGITS - 1 - lead).clamp(0, MOST_DECIMALS as i32) as usize),
    };
    // What was rounded to zero has no sign.
    match text.strip_prefix('-') {
        Some(size) if size.contains(|c: char| ('1'..='9').contains(&c)) => format!("−{size}"),
        Some(size) => size.to_owned(),
        None => text,
    }
}

/// A table of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// What it shows.
    pub caption: String,
    /// Its columns.
    pub heads: Vec<Head>,
    /// Its rows; a field that is missing counts as [`Entry::Nothing`], one too many is not shown.
    pub rows: Vec<Vec<Entry>>,
}

/// One figure of a paper and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// What was measured, unit included.
    pub what: String,
    /// What the paper prints; none where it prints nothing.
    pub paper: Option<f64>,
    /// What was measured here.
    pub ours: Estimate,
    /// Decimals of this row, most often those that the paper prints.
    pub decimals: usize,
}

impl Grid {
    /// A table without rows.
    pub fn new(caption: impl Into<String>, heads: impl IntoIterator<Item = Head>) -> Self {
        Self { caption: caption.into(), heads: heads.into_iter().collect(), rows: Vec::new() }
    }

    /// The table with a row more.
    #[must_use]
    pub fn row(mut self, row: impl IntoIterator<Item = Entry>) -> Self {
        self.rows.push(row.into_iter().collect());
        self
    }

    /// A paper's figures beside ours: the paper's, ours, its interval where there is one, and the
    /// difference from the paper's, in the unit and in per cent.
    pub fn comparison(caption: impl Into<String>, rows: &[Compared]) -> Self {
        let with_interval = rows.iter().any(|row| row.ours.interval.is_some());
        let mut heads = vec![Head::text(""), Head::number("paper", 0), Head::number("ours", 0)];
        if with_interval {
            heads.push(Head::number("interval", 0));
        }
        heads.extend([Head::number("difference", 0), Head::number("difference", 2)]);
        let mut grid = Self::new(caption, heads);
        let kinds: Vec<String> =
            rows.iter().filter_map(|row| row.ours.interval).map(|i| i.to_string()).collect();
        if let Some(first) = kinds.first() {
            let mixed = kinds.iter().any(|kind| kind != first);
            let named = if mixed { "of the kinds that the text names" } else { first };
            let (fewest, most) = rows.iter().fold((usize::MAX, 0), |(fewest, most), row| {
                (fewest.min(row.ours.n), most.max(row.ours.n))
            });
            let n = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
            let kind = if mixed { named.to_owned() } else { format!("{named} interval") };
            grid.caption = format!("{} n = {n}; {kind}.", grid.caption.trim()).trim().to_owned();
        }
        for row in rows {
            let number = |x: f64| Entry::Rounded(x, row.decimals);
            let difference = row.paper.map(|paper| row.ours.value - paper);
            let relative = match (row.paper, difference) {
                (Some(paper), Some(difference)) if paper != 0.0 => {
                    Entry::Percent(100.0 * difference / paper.abs())
                }
                (Some(_), Some(0.0)) => Entry::Percent(0.0),
                _ => Entry::Nothing,
            };
            let mut entries = vec![
                Entry::Text(row.what.clone()),
                row.paper.map_or(Entry::Nothing, number),
                number(row.ours.value),
            ];
            if with_interval {
                entries.push(row.ours.interval.map_or(Entry::Nothing, |i| {
                    let (low, high) = (Some(row.decimals), Some(row.decimals));
                    Entry::Text(format!("{} to {}", spell(i.low, low), spell(i.high, high)))
                }));
            }
            let difference = difference.map(|x| Entry::Difference(x, row.decimals));
            entries.extend([difference.unwrap_or(Entry::Nothing), relative]);
            grid.rows.push(entries);
        }
        grid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_decimals_of_their_column_and_a_true_minus() {
        let head = Head::number("delay (s)", 3);
        assert_eq!(Entry::from(1.5).spell(&head), "1.500");
        assert_eq!(Entry::from(-0.787_624).spell(&head), "−0.788");
        assert_eq!(Entry::from(-0.000_01).spell(&head), "0.000");
        assert_eq!(Entry::from(f64::NAN).spell(&head), "–");
        assert_eq!(Entry::from(1e300).spell(&head), "1.00000e300");
        assert_eq!(Entry::from(None::<f64>).spell(&head), "–");
        assert_eq!(Entry::Percent(0.049).spell(&head), "+0.049 %");
        assert_eq!(Entry::Percent(-2.0).spell(&head), "−2.000 %");
        assert_eq!(Entry::Percent(-0.000_1).spell(&head), "0.000 %");
        assert_eq!(Entry::from(0.787_624_9).spell(&Head::text("")), "0.787625");
        assert_eq!(Entry::from(1_569.0).spell(&Head::text("")), "1569");
    }

    #[test]
    fn a_comparison_shows_both_and_the_difference() {
        let ours = |value: f64| Estimate { value, n: 1, interval: None, equal: false };
        let rows = [
            Compared {
                what: "sent".into(),
                paper: Some(1_569.0),
                ours: ours(1_568.0),
                decimals: 0,
            },
            Compared { what: "dropped".into(), paper: None, ours: ours(796.0), decimals: 0 },
            Compared { what: "lost".into(), paper: Some(0.0), ours: ours(0.0), decimals: 0 },
        ];
        let grid = Grid::comparison("UDP.", &rows);
        let spelled: Vec<Vec<String>> = grid
            .rows
            .iter()
            .map(|row| row.iter().zip(&grid.heads).map(|(e, h)| e.spell(h)).collect())
            .collect();
        assert_eq!(spelled[0], ["sent", "1569", "1568", "−1", "−0.06 %"]);
        assert_eq!(spelled[1], ["dropped", "–", "796", "–", "–"]);
        assert_eq!(spelled[2], ["lost", "0", "0", "0", "0.00 %"]);
        assert_eq!(grid.caption, "UDP.");
    }

    #[test]
    fn a_comparison_with_intervals_names_their_kind_and_n() {
        let ours = crate::statistics::mean(&[1.0, 2.0, 3.0]).unwrap();
        let row = Compared { what: "delay (s)".into(), paper: Some(2.5), ours, decimals: 2 };
        let grid = Grid::comparison("Delay.", &[row]);
        assert_eq!(grid.caption, "Delay. n = 3; 95 % Student t interval.");
        let interval = grid.rows[0][3].spell(&grid.heads[3]);
        assert_eq!(interval, "−0.48 to 4.48");
    }
}
