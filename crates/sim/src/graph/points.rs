//! Random points in a square, and the cells of a grid over it.

use ringway_sansio::Random;
use std::ops::RangeInclusive;

/// Points with coordinates from 0 to 2^32 - 1. Points near each other have near numbers.
pub(super) struct Points(Vec<u64>);

impl Points {
    pub(super) fn random(points: u32, random: &mut impl Random) -> Self {
        let mut points: Vec<u64> = (0..points).map(|_| random.next_u64()).collect();
        // A point is its Morton number: the bits of x and y in turn.
        points.sort_unstable();
        Points(points)
    }

    pub(super) fn len(&self) -> u32 {
        self.0.len() as u32
    }

    pub(super) fn position(&self, point: u32) -> [u32; 2] {
        let point = self.0[point as usize];
        [even_bits(point), even_bits(point >> 1)]
    }
}

/// The points in each cell of a square grid.
pub(super) struct Cells {
    cells: u64,
    members: Rows,
}

impl Cells {
    /// Divides the square into `cells` times `cells`.
    pub(super) fn new(points: &Points, cells: u64) -> Self {
        let cells = cells.max(1);
        let members = Rows::new((cells * cells) as usize, points.len(), |point| {
            let [x, y] = points.position(point).map(|coordinate| Self::scale(coordinate, cells));
            (y * cells + x) as usize
        });
        Cells { cells, members }
    }

    fn scale(coordinate: u32, cells: u64) -> u64 {
        (u64::from(coordinate) * cells) >> 32
    }

    /// Returns the cell of a coordinate.
    pub(super) fn cell(&self, coordinate: u32) -> u64 {
        Self::scale(coordinate, self.cells)
    }

    /// Returns the cells at most `distance` from a cell, as far as they exist.
    pub(super) fn around(&self, cell: u64, distance: u64) -> RangeInclusive<u64> {
        cell.saturating_sub(distance)..=(cell + distance).min(self.cells - 1)
    }

    /// Returns the first and the last coordinate of a cell.
    pub(super) fn bounds(&self, cell: u64) -> [u32; 2] {
        let first = |cell: u64| (cell << 32).div_ceil(self.cells);
        [first(cell) as u32, (first(cell + 1) - 1) as u32]
    }

    pub(super) fn members(&self, x: u64, y: u64) -> &[u32] {
        self.members.row((y * self.cells + x) as usize)
    }

    /// Returns the points in a rectangle of cells.
    pub(super) fn within(
        &self,
        x: RangeInclusive<u64>,
        y: RangeInclusive<u64>,
    ) -> impl Iterator<Item = u32> + '_ {
        let cells = y.flat_map(move |y| x.clone().map(move |x| (x, y)));
        cells.flat_map(|(x, y)| self.members(x, y).iter().copied())
    }
}

/// Numbers in rows of one array.
struct Rows {
    starts: Vec<u32>,
    numbers: Vec<u32>,
}

impl Rows {
    /// Puts each number below `numbers` into the row that `row` returns, in order.
    fn new(rows: usize, numbers: u32, row: impl Fn(u32) -> usize) -> Self {
        let mut starts = vec![0u32; rows + 1];
        (0..numbers).for_each(|number| starts[row(number) + 1] += 1);
        (1..=rows).for_each(|row| starts[row] += starts[row - 1]);
        let mut next = starts.clone();
        let mut all = vec![0; numbers as usize];
        for number in 0..numbers {
            let position = &mut next[row(number)];
            all[*position as usize] = number;
            *position += 1;
        }
        Rows { starts, numbers: all }
    }

    fn row(&self, row: usize) -> &[u32] {
        &self.numbers[self.starts[row] as usize..self.starts[row + 1] as usize]
    }
}
/// Returns the bits 0, 2, 4 ... of a number.
fn even_bits(number: u64) -> u32 {
    let mut bits = number & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::SplitMix;

    #[test]
    fn every_point_is_in_the_cell_of_its_bounds() {
        let points = Points::random(1_000, &mut SplitMix::new(1));
        for number in [1, 7, 32] {
            let cells = Cells::new(&points, number);
            for point in 0..1_000 {
                let [x, y] = points.position(point);
                for coordinate in [x, y] {
                    let [first, last] = cells.bounds(cells.cell(coordinate));
                    assert!((first..=last).contains(&coordinate));
                }
                assert!(cells.members(cells.cell(x), cells.cell(y)).contains(&point));
            }
            assert_eq!([cells.cell(0), cells.cell(u32::MAX)], [0, number - 1]);
            assert_eq!(cells.within(cells.around(0, 99), 0..=number - 1).count(), 1_000);
        }
    }
}
