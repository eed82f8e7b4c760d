//! MRG32k3a (L'Ecuyer 1999) with streams and substreams (L'Ecuyer, Simard, Chen and Kelton 2002).

use ringway_sansio::Random;

const M1: u64 = 4_294_967_087;
const M2: u64 = 4_294_944_443;
const A12: u64 = 1_403_580;
const A13N: u64 = 810_728;
const A21: u64 = 527_612;
const A23N: u64 = 1_370_589;
/// 1 / (m1 + 1), as published.
const NORM: f64 = 2.328_306_549_295_728e-10;
/// log2 of the distance between streams.
const STREAM: u32 = 127;
/// log2 of the distance between substreams.
const SUBSTREAM: u32 = 76;

/// Number of powers of two in a jump: 64 bits of streams.
const POWERS: usize = STREAM as usize + 64;

type Matrix = [[u64; 3]; 3];

/// One step of the first component.
const A1: Matrix = [[0, 1, 0], [0, 0, 1], [M1 - A13N, A12, 0]];
/// One step of the second component.
const A2: Matrix = [[0, 1, 0], [0, 0, 1], [M2 - A23N, 0, A21]];

static POWERS1: [Matrix; POWERS] = powers(A1, M1);
static POWERS2: [Matrix; POWERS] = powers(A2, M2);

/// The generator: period about 2^191, 32 random bits per step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mrg32k3a {
    s1: [u64; 3],
    s2: [u64; 3],
}

impl Mrg32k3a {
    /// Creates a generator from six state words: the first three below 4294967087, the last three below
    /// 4294944443, neither three all zero; `None` otherwise.
    pub fn new(state: [u32; 6]) -> Option<Self> {
        let s = state.map(u64::from);
        let (s1, s2) = ([s[0], s[1], s[2]], [s[3], s[4], s[5]]);
        let fits = s1.iter().all(|&w| w < M1) && s2.iter().all(|&w| w < M2);
        (fits && s1 != [0; 3] && s2 != [0; 3]).then_some(Mrg32k3a { s1, s2 })
    }

    /// Creates a generator from a seed. A number that fits is in all six words (12345 is the published
    /// default and that of ns-2), any other is spread over them.
    pub fn from_number(seed: u64) -> Self {
        if (1..M2).contains(&seed) {
            return Mrg32k3a { s1: [seed; 3], s2: [seed; 3] };
        }
        let mut mix = ringway_sansio::SplitMix::new(seed);
        let mut word = |m: u64| 1 + mix.next_u64() % (m - 1);
        Mrg32k3a { s1: [word(M1), word(M1), word(M1)], s2: [word(M2), word(M2), word(M2)] }
    }

    /// Returns the six state words.
    pub fn state(&self) -> [u32; 6] {
        let [a, b, c] = self.s1;
        let [d, e, f] = self.s2;
        [a, b, c, d, e, f].map(|w| w as u32)
    }

    /// Jumps `n` streams ahead.
    pub fn jump_streams(&mut self, n: u64) {
        self.jump(n, STREAM);
    }

    /// Jumps `n` substreams ahead.
    pub fn jump_substreams(&mut self, n: u64) {
        self.jump(n, SUBSTREAM);
    }

    /// Jumps `n` * 2^`shift` steps ahead.
    fn jump(&mut self, n: u64, shift: u32) {
        for bit in (0..64).filter(|bit| n >> bit & 1 == 1) {
            self.s1 = apply(&POWERS1[(shift + bit) as usize], self.s1, M1);
            self.s2 = apply(&POWERS2[(shift + bit) as usize], self.s2, M2);
        }
    }

    /// Returns the next combined value, 1 to m1.
    #[inline]
    fn step(&mut self) -> u64 {
        let [a, b, c] = self.s1;
        let p1 = (A12 * b + A13N * (M1 - a)) % M1;
        self.s1 = [b, c, p1];
        let [d, e, f] = self.s2;
        let p2 = (A21 * f + A23N * (M2 - d)) % M2;
        self.s2 = [e, f, p2];
        if p1 > p2 { p1 - p2 } else { p1 + M1 - p2 }
    }

    /// Returns a number strictly between 0 and 1.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        self.step() as f64 * NORM
    }
}

impl Random for Mrg32k3a {
    /// Returns the low 32 bits of two steps, each less one.
    fn next_u64(&mut self) -> u64 {
        let high = self.step() - 1;
        high << 32 | (self.step() - 1)
    }
}

fn apply(a: &Matrix, v: [u64; 3], m: u64) -> [u64; 3] {
    a.map(|row| (0..3).fold(0, |sum, k| (sum + row[k] * v[k] % m) % m))
}

/// Returns the powers 2^0, 2^1, 2^2 ... of `a`.
const fn powers(a: Matrix, m: u64) -> [Matrix; POWERS] {
    let mut all = [a; POWERS];
    let mut n = 1;
    while n < POWERS {
        let (half, mut i) = (all[n - 1], 0);
        while i < 9 {
            let (row, column) = (i / 3, i % 3);
            let mut sum = 0;
            let mut k = 0;
            while k < 3 {
                sum = (sum + half[row][k] * half[k][column] % m) % m;
                k += 1;
            }
            all[n][row][column] = sum;
            i += 1;
        }
        n += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> Mrg32k3a {
        Mrg32k3a::from_number(12_345)
    }

    /// The first, thousandth and millionth value are those of the published implementation.
    #[test]
    fn values_are_the_published_ones() {
        let mut g = first();
        let values: Vec<f64> = (0..1_000_000).map(|_| g.uniform()).collect();
        let expected = [
            0.12701112204657714,
            0.3185275653967945,
            0.3091860155832701,
            0.8258468629271136,
            0.2216299157820229,
        ];
        assert_eq!(values[..5], expected);
        assert_eq!(values[999], 0.986_078_486_802_132_3);
        assert_eq!(values[99_999], 0.696_289_109_957_435_9);
        assert_eq!(values[999_999], 0.375_788_356_215_688);
    }

    #[test]
    fn streams_start_where_they_are_published_to() {
        let mut second = first();
        second.jump_streams(1);
        assert_eq!(
            second.state(),
            [3692455944, 1366884236, 2968912127, 335948734, 4161675175, 475798818]
        );
        let mut third = first();
        third.jump_streams(2);
        assert_eq!(
            third.state(),
            [1015873554, 1310354410, 2249465273, 994084013, 2912484720, 3876682925]
        );
    }

    #[test]
    fn substreams_start_where_they_are_published_to() {
        let mut g = first();
        g.jump_substreams(1);
        assert_eq!(
            g.state(),
            [870504860, 2641697727, 884013853, 339352413, 2374306706, 3651603887]
        );
        assert_eq!(g.uniform(), 0.07939898979733463);
        assert_eq!(g.uniform(), 0.4803395047575741);
    }

    #[test]
    fn a_jump_is_as_many_steps() {
        let (mut far, mut near) = (first(), first());
        far.jump(35, 0);
        for _ in 0..35 {
            near.step();
        }
        assert_eq!(far, near);
        assert_eq!(
            far.state(),
            [1040577685, 3747037609, 277208355, 1712706441, 627445683, 2408037141]
        );
    }

    #[test]
    fn a_state_outside_the_moduli_is_refused() {
        assert!(Mrg32k3a::new([1, 1, 1, 1, 1, 1]).is_some());
        assert!(Mrg32k3a::new([0, 0, 0, 1, 1, 1]).is_none());
        assert!(Mrg32k3a::new([1, 1, 1, 0, 0, 0]).is_none());
        assert!(Mrg32k3a::new([u32::MAX, 1, 1, 1, 1, 1]).is_none());
        let spread = Mrg32k3a::from_number(0).state();
        assert!(Mrg32k3a::new(spread).is_some());
    }
}
