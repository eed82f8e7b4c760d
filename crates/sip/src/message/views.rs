//! Parsed header fields that are read repeatedly, stored once they have been parsed.
//!
//! They are stored as offsets, not as slices: a cell of slices would tie a message to one lifetime (make it invariant),
//! which would affect every function that takes one.

use crate::header::{NameAddr, Via};
use std::cell::Cell;

/// The parsed header fields of one message.
#[derive(Clone, Debug, Default)]
pub(super) struct Views {
    pub(super) via: Cell<Option<ViaSpans>>,
    pub(super) from: Cell<Option<AddressSpans>>,
    pub(super) to: Cell<Option<AddressSpans>>,
}

/// A slice of the message, by its start and its length.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u16,
    len: u16,
}

impl Span {
    /// Returns the span of a part. A message is no longer than 65,535 octets, and its parts lie within it. Only an
    /// empty part may lie elsewhere, where any position is correct.
    #[inline]
    fn of(bytes: &[u8], part: &[u8]) -> Self {
        let start = part.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr());
        Span { start: start as u16, len: part.len() as u16 }
    }

    #[inline]
    fn cut(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.start as usize + self.len as usize).unwrap_or_default()
    }
}

/// The positions of the parts of a [`Via`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ViaSpans {
    transport: Span,
    host: Span,
    params: Span,
    branch: Span,
    element: Span,
    received: Option<Span>,
    maddr: Option<Span>,
    port: Option<u16>,
    rport: Option<Option<u16>>,
}

impl ViaSpans {
    pub(super) fn of(bytes: &[u8], via: &Via<'_>) -> Self {
        let place = |part| Span::of(bytes, part);
        ViaSpans {
            transport: place(via.transport),
            host: place(via.host),
            params: place(via.params),
            branch: place(via.branch),
            element: place(via.element),
            received: via.received.map(place),
            maddr: via.maddr.map(place),
            port: via.port,
            rport: via.rport,
        }
    }

    #[inline]
    pub(super) fn view(self, bytes: &[u8]) -> Via<'_> {
        Via {
            transport: self.transport.cut(bytes),
            host: self.host.cut(bytes),
            port: self.port,
            params: self.params.cut(bytes),
            branch: self.branch.cut(bytes),
            received: self.received.map(|p| p.cut(bytes)),
            rport: self.rport,
            maddr: self.maddr.map(|p| p.cut(bytes)),
            element: self.element.cut(bytes),
        }
    }
}

/// The positions of the parts of a [`NameAddr`].
#[derive(Clone, Copy, Debug)]
pub(super) struct AddressSpans {
    display: Span,
    uri: Span,
    params: Span,
    element: Span,
    tag: Option<Option<Span>>,
    bracketed: bool,
}

impl AddressSpans {
    pub(super) fn of(bytes: &[u8], address: &NameAddr<'_>) -> Self {
        let place = |part| Span::of(bytes, part);
        AddressSpans {
            display: place(address.display),
            uri: place(address.uri),
            params: place(address.params),
            element: place(address.element),
            tag: address.tag.map(|tag| tag.map(place)),
            bracketed: address.bracketed,
        }
    }

    #[inline]
    pub(super) fn view(self, bytes: &[u8]) -> NameAddr<'_> {
        NameAddr {
            display: self.display.cut(bytes),
            uri: self.uri.cut(bytes),
            params: self.params.cut(bytes),
            bracketed: self.bracketed,
            element: self.element.cut(bytes),
            tag: self.tag.map(|tag| tag.map(|p| p.cut(bytes))),
        }
    }
}
