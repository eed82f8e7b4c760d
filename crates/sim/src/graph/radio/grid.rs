//! Nodes by the cell of the square that they are in.

/// The cells of a square, in rows.
#[derive(Debug, Default)]
pub(super) struct Grid {
    /// Cells in a row, and their number for each metre.
    cells: usize,
    per_metre: f64,
    /// By cell: its first node; and the end of the last.
    starts: Vec<u32>,
    nodes: Vec<u32>,
}

impl Grid {
    /// Puts nodes into cells with a side of at least `cell`.
    pub(super) fn fill(&mut self, side: f64, cell: f64, positions: &[[f64; 2]]) {
        // No more cells than nodes.
        let max = positions.len().isqrt().max(1);
        self.cells = ((side / cell) as usize).clamp(1, max);
        self.per_metre = self.cells as f64 / side;
        self.starts.clear();
        self.starts.resize(self.cells * self.cells + 1, 0);
        for position in positions {
            let cell = self.cell(*position);
            self.starts[cell + 1] += 1;
        }
        (1..self.starts.len()).for_each(|cell| self.starts[cell] += self.starts[cell - 1]);
        self.nodes.clear();
        self.nodes.resize(positions.len(), 0);
        // Filled from the end, each start becomes the first position again.
        let mut next = self.starts.clone();
        for (node, position) in (0..).zip(positions) {
            let next = &mut next[self.cell(*position)];
            self.nodes[*next as usize] = node;
            *next += 1;
        }
    }

    fn coordinate(&self, metres: f64) -> usize {
        ((metres * self.per_metre) as usize).min(self.cells - 1)
    }

    fn cell(&self, [x, y]: [f64; 2]) -> usize {
        self.coordinate(y) * self.cells + self.coordinate(x)
    }

    /// Returns the nodes of all cells that are up to `distance` from a position.
    pub(super) fn near(&self, [x, y]: [f64; 2], distance: f64) -> impl Iterator<Item = u32> + '_ {
        let range = move |at: f64| self.coordinate(at - distance)..=self.coordinate(at + distance);
        let (columns, rows) = (range(x), range(y));
        rows.flat_map(move |row| {
            let (first, last) =
                (row * self.cells + columns.start(), row * self.cells + columns.end());
            let nodes = self.starts[first] as usize..self.starts[last + 1] as usize;
            self.nodes[nodes].iter().copied()
        })
    }

    /// Returns the allocated bytes.
    pub(super) fn memory(&self) -> usize {
        (self.starts.capacity() + self.nodes.capacity()) * size_of::<u32>()
    }
}
