//! Columns of numbers as bytes: differences, runs and variable lengths.
//!
//! A column is a list of tokens. A token is the zigzag-coded difference of a value from the one before, shifted left by
//! one; the lowest bit is set if the same difference follows once more or several times, and then the number of further
//! occurrences follows, less one. Numbers are little-endian groups of seven bits, of which all but the last have the
//! eighth bit set. `page/codec.js` reads this.

use super::network::MAX_NUMBER;

/// Appends a column. Values must be at most [`MAX_NUMBER`].
pub(super) fn pack(values: impl IntoIterator<Item = u64>, out: &mut Vec<u8>) {
    let (mut last, mut run): (i64, Option<(i64, u64)>) = (0, None);
    for value in values {
        debug_assert!(value <= MAX_NUMBER);
        let difference = value.min(MAX_NUMBER).cast_signed() - last;
        last += difference;
        run = match run {
            Some((same, count)) if same == difference => Some((same, count + 1)),
            other => {
                put_run(other, out);
                Some((difference, 0))
            }
        };
    }
    put_run(run, out);
}

fn put_run(run: Option<(i64, u64)>, out: &mut Vec<u8>) {
    let Some((difference, more)) = run else { return };
    let zigzag = (difference << 1 ^ difference >> 63).cast_unsigned();
    put(zigzag << 1 | u64::from(more > 0), out);
    if more > 0 {
        put(more - 1, out);
    }
}

fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a column as the page does.
    fn unpack(bytes: &[u8]) -> Vec<u64> {
        let mut bytes = bytes.iter();
        let mut number = move || -> Option<u64> {
            let (mut number, mut shift) = (0, 0);
            loop {
                let byte = *bytes.next()?;
                number |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return Some(number);
                }
            }
        };
        let (mut all, mut last) = (Vec::new(), 0i64);
        while let Some(token) = number() {
            let zigzag = token >> 1;
            let difference = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
            let count = if token & 1 == 1 { 2 + number().unwrap_or_default() } else { 1 };
            for _ in 0..count {
                last += difference;
                all.push(last.cast_unsigned());
            }
        }
        all
    }

    proptest! {
        /// A column is read back as it was, with and without runs.
        #[test]
        fn a_column_survives(values in prop::collection::vec((0..=MAX_NUMBER, 1..4usize), 0..60)) {
            let values: Vec<u64> = values.iter().flat_map(|(v, n)| vec![*v; *n]).collect();
            let mut bytes = Vec::new();
            pack(values.iter().copied(), &mut bytes);
            prop_assert_eq!(unpack(&bytes), values);
        }
    }

    /// What is regular takes no room, and the largest token is one that a page computes exactly.
    #[test]
    fn a_regular_column_is_small() {
        let mut bytes = Vec::new();
        pack((0..1_000_000).map(|n| n * 1000), &mut bytes);
        assert!(bytes.len() < 12, "{}", bytes.len());
        const { assert!(MAX_NUMBER * 4 < 1 << 53) };
        bytes.clear();
        pack([MAX_NUMBER, 0, MAX_NUMBER], &mut bytes);
        assert_eq!(unpack(&bytes), [MAX_NUMBER, 0, MAX_NUMBER]);
    }
}
