//! The octets of labels, in as little memory as they need.
//!
//! A router has a route to each of its contacts, and very many routers are simulated: a short route is in the 16 octets of
//! its owner, a longer one in one allocation of 64, and only the longest in a second one.

use smallvec::SmallVec;

/// Octets of a sequence that needs no allocation.
const SHORT: usize = 13;
/// Octets of a sequence that needs one.
const LONG: usize = 48;

/// A sequence of nibbles, two an octet, and how many labels they are.
#[derive(Clone, Debug)]
pub(super) enum Nibbles {
    Short { nibbles: u8, labels: u8, octets: [u8; SHORT] },
    Long(Box<Long>),
}

#[derive(Clone, Debug)]
pub(super) struct Long {
    nibbles: u16,
    labels: u16,
    octets: SmallVec<[u8; LONG]>,
}

impl Default for Nibbles {
    fn default() -> Self {
        Nibbles::Short { nibbles: 0, labels: 0, octets: [0; SHORT] }
    }
}

impl Nibbles {
    /// The sequence in these octets, of which there are as many as the nibbles need.
    pub(super) fn new(octets: &[u8], nibbles: u16, labels: u16) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..octets.len()) {
            Some(begin) => {
                begin.copy_from_slice(octets);
                Nibbles::Short { nibbles: nibbles as u8, labels: labels as u8, octets: short }
            }
            None => {
                let octets = SmallVec::from_slice(octets);
                Nibbles::Long(Box::new(Long { nibbles, labels, octets }))
            }
        }
    }

    /// Returns the number of nibbles.
    #[inline]
    pub(super) fn nibbles(&self) -> u16 {
        match self {
            Nibbles::Short { nibbles, .. } => (*nibbles).into(),
            Nibbles::Long(long) => long.nibbles,
        }
    }

    /// Returns the number of labels.
    #[inline]
    pub(super) fn labels(&self) -> u16 {
        match self {
            Nibbles::Short { labels, .. } => (*labels).into(),
            Nibbles::Long(long) => long.labels,
        }
    }

    /// Returns the octets.
    #[inline]
    pub(super) fn octets(&self) -> &[u8] {
        let len = usize::from(self.nibbles()).div_ceil(2);
        match self {
            Nibbles::Short { octets, .. } => octets.get(..len).unwrap_or_default(),
            Nibbles::Long(long) => &long.octets,
        }
    }

    /// Returns the octets.
    #[inline]
    pub(super) fn octets_mut(&mut self) -> &mut [u8] {
        let len = usize::from(self.nibbles()).div_ceil(2);
        match self {
            Nibbles::Short { octets, .. } => octets.get_mut(..len).unwrap_or_default(),
            Nibbles::Long(long) => &mut long.octets,
        }
    }

    /// Changes the numbers of nibbles and of labels. New octets are zero.
    pub(super) fn resize(&mut self, new_nibbles: u16, new_labels: u16) {
        let len = usize::from(new_nibbles).div_ceil(2);
        match self {
            Nibbles::Short { nibbles, labels, octets } if len <= SHORT => {
                octets.iter_mut().skip(len).for_each(|octet| *octet = 0);
                (*nibbles, *labels) = (new_nibbles as u8, new_labels as u8);
            }
            Nibbles::Short { .. } => {
                let mut octets = SmallVec::from_slice(self.octets());
                octets.resize(len, 0);
                let long = Long { nibbles: new_nibbles, labels: new_labels, octets };
                *self = Nibbles::Long(Box::new(long));
            }
            Nibbles::Long(long) => {
                long.octets.resize(len, 0);
                (long.nibbles, long.labels) = (new_nibbles, new_labels);
            }
        }
    }

    /// Returns the octets that are allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Nibbles::Short { .. } => 0,
            Nibbles::Long(long) if long.octets.spilled() => {
                size_of::<Long>() + long.octets.capacity()
            }
            Nibbles::Long(_) => size_of::<Long>(),
        }
    }
}

impl PartialEq for Nibbles {
    fn eq(&self, other: &Self) -> bool {
        (self.nibbles(), self.octets()) == (other.nibbles(), other.octets())
    }
}

impl Eq for Nibbles {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_moves_and_is_the_same() {
        assert_eq!([size_of::<Nibbles>(), size_of::<Long>()], [16, 64]);
        let octets: Vec<u8> = (1..=200).collect();
        let mut grown = Nibbles::default();
        for len in 0..=200u16 {
            let new = Nibbles::new(&octets[..len.into()], 2 * len, len);
            grown.resize(2 * len, len);
            grown.octets_mut().copy_from_slice(&octets[..len.into()]);
            assert_eq!((&grown, grown.nibbles(), grown.labels()), (&new, 2 * len, len));
            assert_eq!(new.heap_bytes() > 0, len > 13);
            assert_eq!(new.heap_bytes() > 64, len > 48);
        }
        grown.resize(3, 1);
        assert_eq!(grown, Nibbles::new(&octets[..2], 3, 1));
        let mut short = Nibbles::new(&octets[..9], 18, 9);
        short.resize(2, 1);
        short.resize(6, 3);
        assert_eq!(short.octets(), [1, 0, 0]);
    }
}
