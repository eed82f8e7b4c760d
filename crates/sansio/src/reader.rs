//! A reader of binary formats, for protocols whose integers are big-endian.

use crate::{Got, Malformed};

/// Reads the parts of `bytes` in order.
///
/// ```
/// use ringway_sansio::Reader;
///
/// let mut reader = Reader::new("expected a length and a name", &[0, 2, b'o', b'k']);
/// let length = reader.u16()?;
/// assert_eq!(reader.take(length.into())?, b"ok");
/// reader.end()?;
/// # Ok::<(), ringway_sansio::Malformed>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The expected value that an error names.
    expected: &'static str,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`, whose errors state that `expected` was expected.
    pub fn new(expected: &'static str, bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0, expected }
    }

    /// Returns the number of octets that were read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the next `length` octets.
    ///
    /// # Errors
    /// Fewer octets are left. The same holds for the integers and arrays.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let part = self.bytes[self.at..].get(..length).ok_or(Malformed::bad(
            self.expected,
            Got::End,
            self.bytes.len(),
        ))?;
        self.at += length;
        Ok(part)
    }

    /// Returns the next `N` octets.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Returns the next octet.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    /// Returns the integer in the next 2 octets.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// Returns the integer in the next 4 octets.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// Returns the integer in the next 8 octets.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// Returns everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    /// Returns everything that is left but the last `length` octets.
    ///
    /// # Errors
    /// Fewer than `length` octets are left.
    pub fn rest_before(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let left = self.bytes.len() - self.at;
        self.take(left.checked_sub(length).unwrap_or(left + 1))
    }

    /// Returns the fault that the octet before is not what `expected` states.
    pub fn fault(&self, expected: &'static str) -> Malformed {
        Malformed::here(expected, self.bytes, self.at.saturating_sub(1))
    }

    /// Returns whether nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// Octets are left.
    pub fn end(self) -> Result<(), Malformed> {
        let left = self.bytes.len() - self.at;
        if left > 0 {
            return Err(Malformed::bad("expected the end", Got::Number(left as u64), self.at));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_in_order_and_what_is_missing_is_named() {
        let mut reader = Reader::new("expected a number", &[1, 0, 2, 0, 0, 0, 3, 9]);
        assert_eq!((reader.u8(), reader.u16(), reader.u32()), (Ok(1), Ok(2), Ok(3)));
        assert_eq!(reader.position(), 7);
        assert_eq!(reader.clone().rest(), &[9]);
        assert_eq!(
            reader.clone().end().unwrap_err().to_string(),
            "expected the end, got 1 at octet 7"
        );
        let short = reader.u64().unwrap_err();
        assert_eq!(short.to_string(), "expected a number, got the end at octet 8");
        assert!(!reader.is_at_end() && reader.u8() == Ok(9) && reader.is_at_end());
        assert!(reader.fault("expected 8").to_string().contains("at octet 7"));
    }

    #[test]
    fn what_stands_before_a_trailer_is_read_alone() {
        let mut reader = Reader::new("expected a trailer", b"bodytrailer");
        assert_eq!(reader.rest_before(7), Ok(&b"body"[..]));
        assert_eq!(reader.rest_before(7), Ok(&b""[..]));
        assert!(reader.rest_before(8).is_err());
    }
}
