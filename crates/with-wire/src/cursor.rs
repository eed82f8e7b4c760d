//! Reading and writing fields in order, in network byte order, within the bounds of a slice.

use crate::FormatError;

/// A slice that is read from its front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], FormatError> {
        let short = FormatError::Short { expected: length, got: self.0.len() };
        let (taken, rest) = self.0.split_at_checked(length).ok_or(short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(u64::from_be_bytes)
    }
}

/// A slice that is filled from its front.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    length: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Writer<'a> {
        Writer { out, length: 0 }
    }

    /// Returns the number of octets written.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        let free = self.out.get_mut(self.length..).unwrap_or_default();
        let no_room = FormatError::NoRoom { expected: bytes.len(), got: free.len() };
        free.get_mut(..bytes.len()).ok_or(no_room)?.copy_from_slice(bytes);
        self.length += bytes.len();
        Ok(())
    }

    pub(crate) fn u8(&mut self, value: u8) -> Result<(), FormatError> {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u16(&mut self, value: u16) -> Result<(), FormatError> {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> Result<(), FormatError> {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> Result<(), FormatError> {
        self.bytes(&value.to_be_bytes())
    }
}
