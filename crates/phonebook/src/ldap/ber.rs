//! What LDAP needs of BER (RFC 4511 section 5.1: definite lengths only), on top of the library that parses it.
//!
//! The library recurses for each nested element and copies their contents, so that the nesting and all lengths are checked
//! here before.

use bytes::BytesMut;
use lber::common::TagClass;
use lber::structure::{PL, StructureTag};
use ringway_sansio::{Got, Malformed};

use super::{MAX_DEPTH, MAX_REQUEST};

/// An element.
pub type Element = StructureTag;

/// Maximum length of a header: the identifier, the first octet of the length, and four of it.
const MAX_HEADER: usize = 6;
/// The identifier of a SEQUENCE.
const SEQUENCE: u8 = 0x30;

/// Returns the lengths of the header and the content of the element at `at`, or `None` if the header is not whole.
fn header(octets: &[u8], at: usize) -> Result<Option<(usize, usize)>, Malformed> {
    let Some(part) = octets.get(at..) else { return Ok(None) };
    let Some(&[identifier, first]) = part.first_chunk::<2>() else { return Ok(None) };
    if identifier & 0x1f == 0x1f {
        return Err(Malformed::here("expected a tag below 31", octets, at));
    }
    if first < 0x80 {
        return Ok(Some((2, first.into())));
    }
    let count = usize::from(first & 0x7f);
    if count == 0 || count > MAX_HEADER - 2 {
        return Err(Malformed::here("expected a length of 1 to 4 octets", octets, at + 1));
    }
    let length = part.get(2..2 + count).map(|length| {
        length.iter().fold(0_usize, |length, &octet| length << 8 | usize::from(octet))
    });
    Ok(length.map(|length| (2 + count, length)))
}

/// Returns the length of the message at the start of a stream, or `None` if more octets are needed to know it.
///
/// # Errors
/// No message begins here, or it is too long: nothing that follows can be understood.
pub fn frame(octets: &[u8]) -> Result<Option<usize>, Malformed> {
    match octets.first() {
        None => return Ok(None),
        Some(&SEQUENCE) => {}
        Some(_) => return Err(Malformed::here("expected a SEQUENCE", octets, 0)),
    }
    let Some((header, content)) = header(octets, 0)? else { return Ok(None) };
    if content > MAX_REQUEST {
        let got = Got::Number(content as u64);
        return Err(Malformed::bad("expected a message of at most 8192 octets", got, 1));
    }
    Ok(Some(header + content))
}

/// Checks that all elements end where those around them do, or before, and that they are not nested too deeply.
fn check(octets: &[u8]) -> Result<(), Malformed> {
    let (mut at, mut ends) = (0, vec![octets.len()]);
    while let Some(&end) = ends.last() {
        if at == end {
            ends.pop();
            continue;
        }
        let (header, content) = header(&octets[..end], at)?.ok_or(Malformed::bad(
            "expected a whole element",
            Got::End,
            at,
        ))?;
        if content > end - at - header {
            return Err(Malformed::bad("expected a whole element", Got::End, end));
        }
        let is_constructed = octets[at] & 0x20 != 0;
        at += header;
        if !is_constructed {
            at += content;
        } else if ends.len() > MAX_DEPTH {
            return Err(Malformed::here("expected at most 32 nested elements", octets, at));
        } else {
            ends.push(at + content);
        }
    }
    Ok(())
}

/// Parses one element.
///
/// # Errors
/// Octets that are not one whole element, or nested too deeply.
pub fn parse(octets: &[u8]) -> Result<Element, Malformed> {
    check(octets)?;
    match lber::parse::parse_tag(octets) {
        Ok(([], element)) => Ok(element),
        Ok((rest, _)) => {
            let at = octets.len() - rest.len();
            Err(Malformed::here("expected the end", octets, at))
        }
        Err(_) => Err(Malformed::here("expected an element", octets, 0)),
    }
}

/// Appends the octets of an element.
pub fn write(out: &mut Vec<u8>, element: Element) {
    let mut buffer = BytesMut::new();
    // A buffer in memory takes everything.
    if lber::write::encode_into(&mut buffer, element).is_ok() {
        out.extend_from_slice(&buffer);
    }
}

/// Returns an element with others in it.
pub(super) fn constructed(class: TagClass, id: u64, parts: Vec<Element>) -> Element {
    Element { class, id, payload: PL::C(parts) }
}

/// Returns a SEQUENCE.
pub(super) fn sequence(parts: Vec<Element>) -> Element {
    constructed(TagClass::Universal, 16, parts)
}

/// Returns a SET.
pub(super) fn set(parts: Vec<Element>) -> Element {
    constructed(TagClass::Universal, 17, parts)
}

/// Returns an element with octets in it.
pub(super) fn primitive(class: TagClass, id: u64, octets: &[u8]) -> Element {
    Element { class, id, payload: PL::P(octets.to_vec()) }
}

/// Returns an OCTET STRING.
pub(super) fn octet_string(octets: &[u8]) -> Element {
    primitive(TagClass::Universal, 4, octets)
}

/// Returns an INTEGER of at most 31 bits, or an ENUMERATED.
pub(super) fn integer(id: u64, value: u32) -> Element {
    let octets = value.to_be_bytes();
    // The shortest form, whose first bit is the sign.
    let first = (0..3).find(|&at| octets[at] != 0 || octets[at + 1] >= 0x80).unwrap_or(3);
    primitive(TagClass::Universal, id, &octets[first..])
}

/// The parts of an element, read one after the other.
pub(super) struct Parts(std::vec::IntoIter<Element>);

impl Parts {
    /// Returns the parts of a constructed element.
    pub(super) fn of(element: Element) -> Result<Parts, Malformed> {
        let parts = element.expect_constructed();
        parts.map(|parts| Parts(parts.into_iter())).ok_or(fault("expected a constructed element"))
    }

    /// Returns the next part.
    pub(super) fn any(&mut self) -> Result<Element, Malformed> {
        self.0.next().ok_or(fault("expected another element"))
    }

    /// Returns the next part, if there is one.
    pub(super) fn more(&mut self) -> Option<Element> {
        self.0.next()
    }

    /// Returns the next part, which has this universal tag.
    pub(super) fn universal(
        &mut self,
        id: u64,
        expected: &'static str,
    ) -> Result<Element, Malformed> {
        let part = self.any()?;
        part.match_class(TagClass::Universal)
            .and_then(|part| part.match_id(id))
            .ok_or(fault(expected))
    }

    /// Returns the next part, which is an OCTET STRING.
    pub(super) fn octets(&mut self) -> Result<Vec<u8>, Malformed> {
        let part = self.universal(4, "expected an OCTET STRING")?;
        part.expect_primitive().ok_or(fault("expected a primitive OCTET STRING"))
    }

    /// Returns the next part, which is an OCTET STRING of UTF-8.
    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.octets()?).map_err(|_| fault("expected UTF-8"))
    }

    /// Returns the next part, which is an INTEGER (tag 2) or an ENUMERATED (tag 10) of 0 to 2^31 - 1.
    pub(super) fn number(&mut self, id: u64) -> Result<u32, Malformed> {
        let part = self.universal(id, "expected a number")?;
        part.expect_primitive()
            .and_then(|octets| number(&octets))
            .ok_or(fault("expected 0 to 2147483647"))
    }

    /// Returns the next part, which is a BOOLEAN.
    pub(super) fn boolean(&mut self) -> Result<bool, Malformed> {
        let part = self.universal(1, "expected a BOOLEAN")?;
        match part.expect_primitive().as_deref() {
            Some(&[octet]) => Ok(octet != 0),
            _ => Err(fault("expected a BOOLEAN of one octet")),
        }
    }
}

/// Returns a number of 0 to 2^31 - 1.
pub(super) fn number(octets: &[u8]) -> Option<u32> {
    let is_short = (1..=4).contains(&octets.len()) && octets[0] < 0x80;
    is_short.then(|| octets.iter().fold(0, |number, &octet| number << 8 | u32::from(octet)))
}

/// Returns the fault that something in a message is not what was expected. Its position is not known any longer.
pub(super) fn fault(expected: &'static str) -> Malformed {
    Malformed::bad(expected, Got::Missing, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_framed_by_its_length() {
        assert_eq!(frame(&[]), Ok(None));
        assert_eq!(frame(&[0x30]), Ok(None));
        assert_eq!(frame(&[0x30, 5]), Ok(Some(7)));
        assert_eq!(frame(&[0x30, 0x82, 1]), Ok(None));
        assert_eq!(frame(&[0x30, 0x82, 1, 0]), Ok(Some(260)));
        assert_eq!(frame(&[0x30, 0x84, 0, 0, 0x20, 0]), Ok(Some(6 + 8_192)));
        for bad in [
            &[0x16, 3, 1][..],            // a handshake of TLS
            &[0x30, 0x80],                // an indefinite length
            &[0x30, 0x85, 0, 0, 0, 0, 1], // a length of five octets
            &[0x30, 0x84, 0, 0, 0x20, 1], // too long
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert!(frame(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn elements_are_nested_only_so_deeply() {
        let nested = |depth: usize| {
            let mut octets = Vec::new();
            for _ in 0..depth {
                let mut whole = vec![0x30, 0x82, (octets.len() >> 8) as u8, octets.len() as u8];
                whole.append(&mut octets);
                octets = whole;
            }
            octets
        };
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        assert!(parse(&nested(MAX_DEPTH + 1)).is_err());
        assert!(parse(&nested(2_000)).is_err());
    }

    #[test]
    fn numbers_have_the_shortest_form() {
        for (value, octets) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0, 128]),
            (0x7fff_ffff, &[0x7f, 0xff, 0xff, 0xff]),
        ] {
            assert_eq!(integer(2, value).expect_primitive().as_deref(), Some(octets));
            assert_eq!(number(octets), Some(value));
        }
        for bad in [&[][..], &[0x80], &[0, 0, 0, 0, 1]] {
            assert_eq!(number(bad), None);
        }
    }

    proptest! {
        /// What is parsed is whole, and is read again when it is written.
        #[test]
        fn octets_are_parsed_or_refused(octets in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(element) = parse(&octets) {
                let mut again = Vec::new();
                write(&mut again, element.clone());
                prop_assert_eq!(parse(&again), Ok(element));
            }
            if let Ok(Some(length)) = frame(&octets) {
                prop_assert!(length <= MAX_REQUEST + MAX_HEADER);
            }
        }
    }
}
