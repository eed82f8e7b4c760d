//! The view of a message: [`parse`] finds its structure in one pass over the bytes, [`Message`] returns its parts,
//! [`Message::check`] checks them.
//!
//! The two steps are separate by design. `parse` is lenient, so that every message that can be answered is: a message
//! with a start line and something like header fields has a view. `check` is strict: a message that passes it may be
//! relied on. Neither copies anything.

mod check;
mod fields;
mod parse;
mod views;

pub use crate::method::Method;
pub use parse::parse;
pub use ringway_sansio::{Got, Malformed};

pub(crate) use parse::{Line, line_end, start_line};

use crate::header::{CSeq, HeaderId, Items, NameAddr, Via};
use crate::syntax::{number, offset};
use smallvec::SmallVec;
use std::cell::Cell;
use views::{AddressSpans, ViaSpans, Views};

/// The number of header fields stored without allocation: an ordinary message has fewer.
const INLINE: usize = 48;

/// The first line of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start<'a> {
    /// Request-Line.
    Request {
        /// The method.
        method: Method<'a>,
        /// The Request-URI as written.
        uri: &'a [u8],
    },
    /// Status-Line.
    Response {
        /// 100 to 699.
        status: u16,
        /// The reason phrase as written.
        reason: &'a [u8],
    },
}

/// The position of one header field in the message, by offsets from its first octet.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The header field that the name means.
    pub id: HeaderId,
    /// Index plus one of the next header field of the same id; zero for none.
    next: u8,
    start: u16,
    name_len: u16,
    value_start: u16,
    value_len: u16,
    len: u16,
}

/// A SIP message as a view over its bytes.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    start: Start<'a>,
    start_len: u16,
    /// Whether every header field is one line that ends in CRLF and contains no other CR or LF.
    unfolded: bool,
    /// Whether the head may contain control characters besides line ends and tabs: `check` finds them.
    controls: bool,
    body: &'a [u8],
    slots: SmallVec<[Slot; INLINE]>,
    /// Index plus one of the first header field of each id; zero for none.
    first: [u8; HeaderId::COUNT],
    /// An error that `parse` has tolerated, for `check` to report.
    fault: Option<Malformed>,
    /// Parsed header fields that are read repeatedly.
    views: Views,
}

impl<'a> Message<'a> {
    /// Returns the message without anything before its start line, and with the bytes of a datagram after its body.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns start line, header section and body, without the bytes of a datagram after it (RFC 3261 section 18.3).
    pub fn whole(&self) -> &'a [u8] {
        &self.bytes[..self.body_start() + self.body.len()]
    }

    fn body_start(&self) -> usize {
        offset(self.bytes, self.body)
    }

    /// Returns the parsed start line.
    pub fn start(&self) -> Start<'a> {
        self.start
    }

    /// Returns whether this is a request.
    pub fn is_request(&self) -> bool {
        matches!(self.start, Start::Request { .. })
    }

    /// Returns the method of a request; for a response that of its CSeq, empty if there is none.
    pub fn method(&self) -> Method<'a> {
        match self.start {
            Start::Request { method, .. } => method,
            Start::Response { .. } => self.cseq().map_or(Method::Other(b""), |cseq| cseq.method),
        }
    }

    /// Returns the status of a response; 0 for a request.
    pub fn status(&self) -> u16 {
        match self.start {
            Start::Request { .. } => 0,
            Start::Response { status, .. } => status,
        }
    }

    /// Returns the Request-URI as written; empty for a response.
    pub fn request_uri(&self) -> &'a [u8] {
        match self.start {
            Start::Request { uri, .. } => uri,
            Start::Response { .. } => b"",
        }
    }

    /// Returns the start line with its line end.
    pub fn start_line(&self) -> &'a [u8] {
        &self.bytes[..self.start_len as usize]
    }

    /// Returns the header fields in order. Together their lines are the header section, octet for octet.
    pub fn headers(&self) -> &[Slot] {
        &self.slots
    }

    /// Returns a whole header field, with its folds and its line end, octet for octet.
    #[inline]
    pub fn line(&self, slot: &Slot) -> &'a [u8] {
        &self.bytes[slot.start as usize..slot.start as usize + slot.len as usize]
    }

    /// Returns the name of a header field as written; empty if the line has none, which is an error.
    #[inline]
    pub fn name(&self, slot: &Slot) -> &'a [u8] {
        &self.bytes[slot.start as usize..slot.start as usize + slot.name_len as usize]
    }

    /// Returns the value of a header field without white space around it; folds within it are preserved.
    #[inline]
    pub fn value(&self, slot: &Slot) -> &'a [u8] {
        let start = slot.value_start as usize;
        &self.bytes[start..start + slot.value_len as usize]
    }

    /// Returns the start and the end of the line of a header field, if it is `prefix` (a name, a colon and a space),
    /// the value and CRLF, and nothing else.
    #[inline(always)]
    pub(crate) fn plain_line(&self, slot: &Slot, prefix: &[u8]) -> Option<(usize, usize)> {
        let (start, end) = (slot.start as usize, slot.start as usize + slot.len as usize);
        let value_start = slot.value_start as usize;
        let plain = self.unfolded
            && value_start == start + prefix.len()
            && value_start + slot.value_len as usize + 2 == end
            && self.line(slot).starts_with(prefix);
        plain.then_some((start, end))
    }

    /// Returns the slot of the first header field of this id.
    #[inline]
    pub fn first_slot(&self, id: HeaderId) -> Option<&Slot> {
        self.slots.get((self.first[id as usize] as usize).wrapping_sub(1))
    }

    /// Returns the value of the first header field of this id. Takes the same time however many there are.
    #[inline]
    pub fn first(&self, id: HeaderId) -> Option<&'a [u8]> {
        self.first_slot(id).map(|slot| self.value(slot))
    }

    /// Returns whether there is a header field of this id.
    #[inline]
    pub fn has(&self, id: HeaderId) -> bool {
        self.first[id as usize] != 0
    }

    /// Returns the slots of all header fields of this id, in order.
    pub fn slots(&self, id: HeaderId) -> impl Iterator<Item = &Slot> + '_ {
        core::iter::successors(self.first_slot(id), |slot| {
            self.slots.get((slot.next as usize).wrapping_sub(1))
        })
    }

    /// Returns the values of all header fields of this id, one for each line, in order.
    pub fn all<'m>(&'m self, id: HeaderId) -> impl Iterator<Item = &'a [u8]> + use<'m, 'a> {
        self.slots(id).map(|slot| self.value(slot))
    }

    /// Returns the values of all header fields whose name is `name` in any case, in order: for names that have no id.
    pub fn named<'m>(&'m self, name: &'m [u8]) -> impl Iterator<Item = &'a [u8]> + use<'m, 'a> {
        let id = HeaderId::of(name);
        self.slots(id)
            .filter(move |slot| id != HeaderId::Other || self.name(slot).eq_ignore_ascii_case(name))
            .map(|slot| self.value(slot))
    }

    /// Returns the elements of a list over all header fields of this id, in order (RFC 3261 section 7.3.1). Quoted
    /// strings and angle brackets are respected.
    pub fn items<'m>(&'m self, id: HeaderId) -> impl Iterator<Item = &'a [u8]> + use<'m, 'a> {
        self.all(id).flat_map(Items::new)
    }

    /// Returns the body, cut to Content-Length if that is shorter than the bytes after the header section (RFC 3261
    /// section 18.3).
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Returns the first element of the first Via. It is parsed once.
    #[inline]
    pub fn top_via(&self) -> Result<Via<'a>, Malformed> {
        match self.views.via.get() {
            Some(places) => Ok(places.view(self.bytes)),
            None => self.read_top_via(),
        }
    }

    fn read_top_via(&self) -> Result<Via<'a>, Malformed> {
        let Some(value) = self.first(HeaderId::Via) else {
            return Err(self.missing("Via: expected one"));
        };
        let end = crate::header::item_end(value);
        let element = crate::syntax::trim(&value[..end]);
        let via = Via::parse(element).map_err(|e| e.moved(offset(self.bytes, element)))?;
        self.views.via.set(Some(ViaSpans::of(self.bytes, &via)));
        Ok(via)
    }

    /// Returns From. It is parsed once.
    #[inline]
    pub fn from(&self) -> Result<NameAddr<'a>, Malformed> {
        self.address(&self.views.from, HeaderId::From, "From: expected one")
    }

    /// Returns To. It is parsed once.
    #[inline]
    pub fn to(&self) -> Result<NameAddr<'a>, Malformed> {
        self.address(&self.views.to, HeaderId::To, "To: expected one")
    }

    #[inline]
    fn address(
        &self,
        view: &Cell<Option<AddressSpans>>,
        id: HeaderId,
        expected: &'static str,
    ) -> Result<NameAddr<'a>, Malformed> {
        match view.get() {
            Some(places) => Ok(places.view(self.bytes)),
            None => self.read_address(view, id, expected),
        }
    }

    fn read_address(
        &self,
        view: &Cell<Option<AddressSpans>>,
        id: HeaderId,
        expected: &'static str,
    ) -> Result<NameAddr<'a>, Malformed> {
        let Some(value) = self.first(id) else {
            return Err(self.missing(expected));
        };
        let address = NameAddr::parse(value).map_err(|e| e.moved(offset(self.bytes, value)))?;
        view.set(Some(AddressSpans::of(self.bytes, &address)));
        Ok(address)
    }

    /// Returns Call-ID; empty if there is none.
    pub fn call_id(&self) -> &'a [u8] {
        self.first(HeaderId::CallId).unwrap_or_default()
    }

    /// Returns CSeq.
    pub fn cseq(&self) -> Result<CSeq<'a>, Malformed> {
        let Some(value) = self.first(HeaderId::CSeq) else {
            return Err(self.missing("CSeq: expected one"));
        };
        CSeq::parse(value).map_err(|e| e.moved(offset(self.bytes, value)))
    }

    /// Returns Max-Forwards, if there is one: 0 to 255 (RFC 3261 section 20.22).
    pub fn max_forwards(&self) -> Result<Option<u8>, Malformed> {
        let Some(value) = self.first(HeaderId::MaxForwards) else {
            return Ok(None);
        };
        match number(value, u8::MAX as u64) {
            Some(n) => Ok(Some(n as u8)),
            None => Err(Malformed::here(
                "Max-Forwards: expected 0 to 255",
                self.bytes,
                offset(self.bytes, value),
            )),
        }
    }

    fn missing(&self, expected: &'static str) -> Malformed {
        Malformed::bad(expected, Got::Missing, self.start_len as usize)
    }
}

#[cfg(test)]
mod tests;
