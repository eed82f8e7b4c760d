//! HELLO: how routers find each other, and how good the links between them are.
//!
//! It goes to everybody on an interface. A neighbour checks its code with the hello key of the handshake; for a stranger
//! it is a hint that somebody is there, and nothing else. All neighbours of the sender know that key. So each report has a
//! code by the key of its link, which nobody else can make: a neighbour that finds one knows who has sent the HELLO.
//!
//! ```text
//!  0 kind  1 zero  2 interval, units of 20 ms  3 number of reports n
//!  4 id (8)  12 instance (4)  16 sequence (2)  18 stamp in us (4)
//! 22 n reports of 12 octets: tag (2), received (2), echo (2), held (2), code of the link (4)
//!    code (8)
//! ```

use ringway_sansio::{Got, Malformed};
use smallvec::SmallVec;

use super::{Kind, MAC, packet_reader};
use crate::crypto::CodeKey;
use crate::id::{Instance, NodeId};

/// Length in octets without reports and code.
const HEADER: usize = 22;
/// Length in octets of a report.
const REPORT: usize = 12;
/// Length in octets of a report without its code.
const STATEMENT: usize = 8;
/// Maximum number of reports; the neighbours take turns.
pub const MAX_REPORTS: usize = 4;

const EXPECTED: &str = "expected a HELLO";

/// What a router has heard of one neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// The low half of the neighbour's tag in message 0.
    pub tag: u16,
    /// Bitmap of its last 16 HELLOs, the newest in the lowest bit.
    pub received: u16,
    /// Bits 4 to 19 of the stamp in its newest HELLO.
    pub echo: u16,
    /// Time since that HELLO in units of 64 us.
    pub held: u16,
}

/// A HELLO without its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Time to the next HELLO in units of 20 ms.
    pub interval: u8,
    /// The sender.
    pub id: NodeId,
    /// The sender's start.
    pub instance: Instance,
    /// Number of this HELLO; it wraps (RFC 1982).
    pub sequence: u16,
    /// Time of sending in us by the sender's clock; it wraps.
    pub stamp: u32,
    /// What was heard of neighbours.
    pub reports: SmallVec<[Report; MAX_REPORTS]>,
}

impl Hello {
    /// Appends the octets up to the code, and then what `code` returns for them. `keys` are those of the links to the
    /// neighbours that are reported of. Reports above [`MAX_REPORTS`], or without a key, are left out.
    pub fn emit(&self, out: &mut Vec<u8>, keys: &[CodeKey], code: impl FnOnce(&[u8]) -> [u8; MAC]) {
        let start = out.len();
        let count = self.reports.len().min(keys.len()).min(MAX_REPORTS);
        out.extend([Kind::Hello.octet(), 0, self.interval, count as u8]);
        out.extend(self.id.to_bytes());
        out.extend(self.instance.0.to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.stamp.to_be_bytes());
        for (report, key) in self.reports.iter().zip(keys).take(count) {
            let at = out.len();
            for part in [report.tag, report.received, report.echo, report.held] {
                out.extend(part.to_be_bytes());
            }
            let code = link_code(key, &out[start..start + HEADER], &out[at..]);
            out.extend(code);
        }
        let code = code(&out[start..]);
        out.extend(code);
    }
}

/// A HELLO as received, of the right length.
#[derive(Clone, Copy, Debug)]
pub struct HelloView<'a> {
    bytes: &'a [u8],
}

impl<'a> HelloView<'a> {
    /// Checks the shape.
    pub fn parse(bytes: &'a [u8]) -> Result<HelloView<'a>, Malformed> {
        let mut reader = packet_reader(Kind::Hello, EXPECTED, bytes)?;
        let [_, _, reports] = reader.array()?;
        if usize::from(reports) > MAX_REPORTS {
            return Err(reader.fault("expected at most 4 reports in a HELLO"));
        }
        let length = HEADER + REPORT * usize::from(reports) + MAC;
        if bytes.len() != length {
            return Err(Malformed::bad(EXPECTED, Got::Number(bytes.len() as u64), bytes.len()));
        }
        Ok(HelloView { bytes })
    }

    /// Returns the octets that the code covers.
    pub fn signed(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - MAC]
    }

    /// Returns the code.
    pub fn code(&self) -> [u8; MAC] {
        let mut code = [0; MAC];
        code.copy_from_slice(&self.bytes[self.bytes.len() - MAC..]);
        code
    }

    /// Returns the sender.
    pub fn id(&self) -> NodeId {
        NodeId::new(self.number(4, 8))
    }

    /// Returns the sender's start.
    pub fn instance(&self) -> Instance {
        Instance(self.number(12, 4) as u32)
    }

    /// Returns the number of this HELLO.
    pub fn sequence(&self) -> u16 {
        self.number(16, 2) as u16
    }

    /// Returns the time of sending in us by the sender's clock.
    pub fn stamp(&self) -> u32 {
        self.number(18, 4) as u32
    }

    /// Returns the time to the next HELLO in units of 20 ms.
    pub fn interval(&self) -> u8 {
        self.bytes[2]
    }

    /// Returns the reports, whoever made them.
    pub fn reports(&self) -> impl Iterator<Item = Report> + 'a {
        self.signed()[HEADER..].chunks_exact(REPORT).map(report)
    }

    /// Returns the report about the router with this tag, if it was made with `key`, the key of the link.
    pub fn report_about(&self, tag: u16, key: &CodeKey) -> Option<Report> {
        let (header, reports) = self.signed().split_at(HEADER);
        let is_good = |bytes: &&[u8]| {
            let (statement, code) = bytes.split_at(STATEMENT);
            report(bytes).tag == tag && code == link_code(key, header, statement)
        };
        reports.chunks_exact(REPORT).find(is_good).map(report)
    }

    /// Returns the value.
    pub fn value(&self) -> Hello {
        Hello {
            interval: self.interval(),
            id: self.id(),
            instance: self.instance(),
            sequence: self.sequence(),
            stamp: self.stamp(),
            reports: self.reports().collect(),
        }
    }

    /// Returns the number of `length` octets at `at`, which is within the header.
    fn number(&self, at: usize, length: usize) -> u64 {
        self.bytes[at..at + length].iter().fold(0, |number, &byte| (number << 8) | u64::from(byte))
    }
}

/// Returns the code of a report, which covers the header of its HELLO.
fn link_code(key: &CodeKey, header: &[u8], statement: &[u8]) -> [u8; REPORT - STATEMENT] {
    let [a, b, c, d, ..] = key.code_parts(&[header, statement]);
    [a, b, c, d]
}

/// Reads the octets of a report.
fn report(bytes: &[u8]) -> Report {
    let part = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    Report { tag: part(0), received: part(2), echo: part(4), held: part(6) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEYS: [CodeKey; 5] = [CodeKey([7; 16]); 5];

    fn hello(reports: usize) -> Hello {
        let report = Report { tag: 0x1234, received: 0xffff, echo: 7, held: 9 };
        Hello {
            interval: 95,
            id: NodeId::new(0x0102_0304_0506_0708),
            instance: Instance(0x1112_1314),
            sequence: 0x2122,
            stamp: 0x3132_3334,
            reports: SmallVec::from_elem(report, reports),
        }
    }

    #[test]
    fn a_hello_has_30_octets_and_12_a_report() {
        for reports in 0..=MAX_REPORTS + 1 {
            let mut out = Vec::new();
            hello(reports).emit(&mut out, &KEYS, |signed| [signed.len() as u8; MAC]);
            assert_eq!(out.len(), 30 + 12 * reports.min(MAX_REPORTS));
            let view = HelloView::parse(&out).unwrap();
            assert_eq!(view.code(), [view.signed().len() as u8; MAC]);
        }
        let mut out = Vec::new();
        hello(0).emit(&mut out, &KEYS, |_| [0xee; MAC]);
        let expected = [
            &[0x11, 0, 95, 0][..],
            &[1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x31, 0x32, 0x33, 0x34],
            &[0xee; MAC],
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn a_faulty_hello_is_refused() {
        let mut out = Vec::new();
        hello(1).emit(&mut out, &KEYS, |_| [0; MAC]);
        let refused = |bytes: &[u8]| HelloView::parse(bytes).unwrap_err().to_string();
        assert_eq!(refused(&out[..41]), "expected a HELLO, got 41 at octet 41");
        assert_eq!(refused(&out[..2]), "expected a HELLO, got the end at octet 2");
        out[3] = 5;
        assert_eq!(
            refused(&out),
            "expected at most 4 reports in a HELLO, got octet 0x05 at octet 3"
        );
        out[0] = 0x12;
        assert_eq!(refused(&out), "expected a HELLO, got octet 0x12 at octet 0");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            numbers: (u64, u32, u16, u32, u8),
            reports in proptest::collection::vec(any::<[u16; 4]>(), 0..=MAX_REPORTS),
        ) {
            let report = |[tag, received, echo, held]: [u16; 4]| Report { tag, received, echo, held };
            let hello = Hello {
                interval: numbers.4,
                id: NodeId::new(numbers.0),
                instance: Instance(numbers.1),
                sequence: numbers.2,
                stamp: numbers.3,
                reports: reports.into_iter().map(report).collect(),
            };
            let mut out = Vec::new();
            hello.emit(&mut out, &KEYS, |_| [1; MAC]);
            prop_assert_eq!(HelloView::parse(&out).unwrap().value(), hello);
        }

        #[test]
        fn a_report_is_only_good_as_it_was_made(octet in 0..46usize, bit in 0..8u8) {
            let mut hello = hello(2);
            hello.reports[0].tag = 1;
            let mut out = Vec::new();
            hello.emit(&mut out, &[KEYS[0], CodeKey([8; 16])], |_| [1; MAC]);
            let about = |bytes: &[u8], key| HelloView::parse(bytes).ok()?.report_about(0x1234, &CodeKey([key; 16]));
            prop_assert_eq!(about(&out, 8), Some(hello.reports[1]));
            prop_assert_eq!(about(&out, 7), None);
            out[octet] ^= 1 << bit;
            // The first report is somebody else's business.
            let is_covered = !(22..34).contains(&octet);
            prop_assert_eq!(about(&out, 8).is_none(), is_covered);
        }

        #[test]
        fn any_octets_are_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(first) = bytes.first_mut() {
                *first = Kind::Hello.octet();
            }
            if let Ok(view) = HelloView::parse(&bytes) {
                prop_assert!(view.value().reports.len() <= MAX_REPORTS);
            }
        }
    }
}
