//! How many points are drawn: as many as the page can show, and no more than a file should hold.
//!
//! Curves keep, of the points that fall into one column of the page, the first, the lowest, the
//! highest and the last: what is drawn is the same to a column's width. Columns are
//! [`FINEST_COLUMN`] wide, and wider only where all curves of a figure together would exceed
//! [`MAX_VERTICES`].
//!
//! Ribbons keep, for each column of [`BAND_COLUMN`], the lowest and the highest bound.
//!
//! Marks, once there are more than [`FREE_MARKS`], are drawn once for each cell of a grid; the cells
//! grow from [`FINEST_CELL`] until [`MAX_MARKS`] are left. The first point of a cell stays where it
//! is, so that no mark lies where there is no point, and every point has a mark within a cell. The
//! caption says how many marks are left, and how large a cell is.

/// Most marks of a figure.
pub const MAX_MARKS: usize = 7_000;
/// Marks that are drawn without thinning.
pub const FREE_MARKS: usize = 1_500;
/// Most corners of all curves of a figure.
pub const MAX_VERTICES: usize = 16_000;
/// Width of the finest column, in points of the printed page.
pub const FINEST_COLUMN: f64 = 0.5;
/// Width of a column of a ribbon, in points of the printed page.
pub const BAND_COLUMN: f64 = 1.0;
/// Side of the finest cell, in points of the printed page.
pub const FINEST_CELL: f64 = 0.5;

/// A position on the page, in points from the plot's lower left corner.
pub(super) type Position = (f64, f64);

/// Marks that are left, of how many, and the side of a cell; none if all are.
pub(super) type Thinned = Option<(usize, usize, f64)>;

/// Marks of several series that are left, and the side of the cell if any was taken away.
pub(super) fn marks(
    series: &[Vec<Position>],
    (width, height): (f64, f64),
) -> (Vec<Vec<Position>>, Option<f64>) {
    let total: usize = series.iter().map(Vec::len).sum();
    if total <= FREE_MARKS {
        return (series.to_vec(), None);
    }
    let mut side = FINEST_CELL;
    loop {
        let left: Vec<Vec<Position>> =
            series.iter().map(|marks| one_a_cell(marks, width, height, side)).collect();
        let kept: usize = left.iter().map(Vec::len).sum();
        if kept <= MAX_MARKS {
            return (left, (kept < total).then_some(side));
        }
        side *= 1.2;
    }
}

fn one_a_cell(marks: &[Position], width: f64, height: f64, side: f64) -> Vec<Position> {
    let columns = (width / side).ceil().max(1.0) as usize + 1;
    let rows = (height / side).ceil().max(1.0) as usize + 1;
    let mut taken = vec![false; columns * rows];
    let cell = |at: f64, max: usize| ((at / side).max(0.0) as usize).min(max - 1);
    let is_first = |&&(x, y): &&Position| {
        let seen = &mut taken[cell(y, rows) * columns + cell(x, columns)];
        !std::mem::replace(seen, true)
    };
    marks.iter().filter(is_first).copied().collect()
}

/// Curves that are left of `curves`, each in runs between its gaps, ascending in x.
pub(super) fn curves(curves: &[Vec<Vec<Position>>]) -> Vec<Vec<Vec<Position>>> {
    let mut column = FINEST_COLUMN;
    loop {
        let left: Vec<Vec<Vec<Position>>> =
            curves.iter().map(|runs| by_column(runs, column)).collect();
        if left.iter().flatten().map(Vec::len).sum::<usize>() <= MAX_VERTICES {
            return left;
        }
        column *= 2.0;
    }
}

/// A position of a ribbon: x, low, high.
pub(super) type Bounds = (f64, f64, f64);

/// What is left of a ribbon, in runs between its gaps, ascending in x.
pub(super) fn band(runs: &[Vec<Bounds>]) -> Vec<Vec<Bounds>> {
    let column = |x: f64| (x / BAND_COLUMN).floor();
    let mut left: Vec<Vec<Bounds>> = Vec::new();
    for run in runs.iter().filter(|run| !run.is_empty()) {
        let last = left.last().and_then(|run| run.last());
        // A gap within a column cannot be seen.
        if last.is_none_or(|last| column(last.0) != column(run[0].0)) {
            left.push(Vec::new());
        }
        let Some(into) = left.last_mut() else { continue };
        for &(x, low, high) in run {
            match into.last_mut().filter(|last| column(last.0) == column(x)) {
                Some(last) => *last = (last.0, last.1.min(low), last.2.max(high)),
                None => into.push((x, low, high)),
            }
        }
    }
    left
}

fn by_column(runs: &[Vec<Position>], column: f64) -> Vec<Vec<Position>> {
    let mut thinned: Vec<Vec<Position>> = Vec::new();
    let mut group: Vec<Position> = Vec::new();
    let at = |position: &Position| (position.0 / column).floor();
    for run in runs.iter().filter(|run| !run.is_empty()) {
        // A gap within a column cannot be seen, and without this there could be too many.
        let gap = group.last().is_none_or(|last| at(last) != at(&run[0]));
        if gap {
            close(&mut group, &mut thinned);
            thinned.push(Vec::new());
        }
        for position in run {
            if group.last().is_some_and(|last| at(last) != at(position)) {
                close(&mut group, &mut thinned);
            }
            if group.len() == 4 {
                absorb(&mut group, *position);
            } else {
                group.push(*position);
            }
        }
    }
    close(&mut group, &mut thinned);
    thinned
}

/// Takes a fifth point into a group of four: first, two extremes in their order, and last remain.
fn absorb(group: &mut Vec<Position>, position: Position) {
    let mut all = [group[1], group[2], group[3]];
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (low, high) = (all[0], all[2]);
    let low_first = group.iter().skip(1).find(|&&p| p == low || p == high) == Some(&low);
    let (second, third) = if low_first { (low, high) } else { (high, low) };
    group.truncate(1);
    group.extend([second, third, position]);
}

fn close(group: &mut Vec<Position>, thinned: &mut [Vec<Position>]) {
    if let Some(run) = thinned.last_mut() {
        run.append(group);
    }
    group.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn saw(n: usize) -> Vec<Position> {
        (0..n).map(|i| (i as f64 * 200.0 / n as f64, (i * 7_919 % 1_000) as f64 / 10.0)).collect()
    }

    #[test]
    fn few_points_stay_as_they_are() {
        let few = vec![saw(400)];
        assert_eq!(marks(&few, (200.0, 100.0)), (few.clone(), None));
        let sparse = vec![vec![vec![(0.0, 1.0), (3.0, 2.0)], vec![(9.0, 2.0)]]];
        assert_eq!(curves(&sparse), sparse);
    }

    #[test]
    fn a_million_points_are_bounded_and_keep_their_extremes() {
        let mut points = saw(1_000_000);
        points[123_456].1 = 5_000.0;
        points[654_321].1 = -5_000.0;
        let left = curves(&[vec![points]]);
        let left: Vec<Position> = left.into_iter().flatten().flatten().collect();
        assert!(left.len() <= MAX_VERTICES);
        assert!(left.iter().any(|p| p.1 == 5_000.0) && left.iter().any(|p| p.1 == -5_000.0));
        assert!(left.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn a_ribbon_keeps_the_bounds_of_every_column() {
        let run: Vec<Bounds> = saw(100_000).into_iter().map(|(x, y)| (x, -y, y)).collect();
        let left = band(&[run]);
        assert_eq!((left.len(), left[0].len()), (1, 200));
        assert!(left[0].iter().all(|&(_, low, high)| low < -98.0 && high > 98.0));
        let few = vec![vec![(0.0, 1.0, 2.0), (5.0, 1.0, 3.0)], vec![(9.0, 0.0, 1.0)]];
        assert_eq!(band(&few), few);
    }

    #[test]
    fn gaps_in_every_second_place_are_bounded() {
        let runs: Vec<Vec<Position>> = saw(500_000).into_iter().map(|p| vec![p]).collect();
        let left = curves(&[runs]);
        assert!(left[0].iter().map(Vec::len).sum::<usize>() <= MAX_VERTICES);
        assert!(left[0].len() <= 401);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Every point has a mark of its own series within a cell, and every mark is a point.
        #[test]
        fn marks_stand_for_all_points(n in 2_000usize..30_000, seed in 1usize..997) {
            let all: Vec<Position> = (0..n)
                .map(|i| ((i * seed % 2_003) as f64 / 10.0, (i * i % 1_009) as f64 / 10.0))
                .collect();
            let (left, side) = marks(std::slice::from_ref(&all), (200.3, 100.9));
            prop_assert!(left[0].len() <= MAX_MARKS);
            let side = side.unwrap_or(FINEST_CELL) * 1.001;
            for position in all.iter().step_by(97) {
                let near = |m: &Position| (m.0 - position.0).abs() <= side && (m.1 - position.1).abs() <= side;
                prop_assert!(left[0].iter().any(near));
            }
            prop_assert!(left[0].iter().step_by(61).all(|m| all.contains(m)));
        }

    }

    proptest! {
        /// Of the points in one column the lowest and the highest remain.
        #[test]
        fn a_column_keeps_its_extremes(ys in prop::collection::vec(-1e3f64..1e3, 1..60)) {
            let points: Vec<Position> =
                ys.iter().enumerate().map(|(i, &y)| (i as f64 / 200.0, y)).collect();
            let left = curves(&[vec![points.clone()]]);
            let left = &left[0][0];
            prop_assert!(left.len() <= 4);
            let extreme = |f: fn(f64, f64) -> f64, p: &[Position]| {
                p.iter().map(|p| p.1).reduce(f).unwrap()
            };
            prop_assert_eq!(extreme(f64::min, left), extreme(f64::min, &points));
            prop_assert_eq!(extreme(f64::max, left), extreme(f64::max, &points));
            prop_assert_eq!(left.first(), points.first());
            prop_assert_eq!(left.last(), points.last());
        }
    }
}
