//! The strict judgement: what passes it, a server may rely on.

use super::{Got, Malformed, Message, Start};
use crate::header::{CSeq, HeaderId, Items, NameAddr, Via};
use crate::limits::{MAX_CONTACTS, MAX_METHOD, MAX_REQUEST_URI, MAX_ROUTES, MAX_VIAS};
use crate::syntax::offset;
use crate::uri::Uri;

impl Message<'_> {
    /// Checks everything a server must be able to rely on; the first fault decides.
    pub fn check(&self) -> Result<(), Malformed> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if let Start::Request { method, uri } = self.start {
            let length = method.as_bytes().len();
            if length > MAX_METHOD {
                return Err(Malformed::bad(
                    "expected a shorter method",
                    Got::Number(length as u64),
                    0,
                ));
            }
            // RFC 3261 section 21.4.12.
            if uri.len() > MAX_REQUEST_URI {
                let got = Got::Number(uri.len() as u64);
                return Err(Malformed::with_status(414, "expected a shorter Request-URI", got, 0));
            }
            Uri::parse(uri).map_err(|e| e.moved(offset(self.bytes, uri)))?;
        }
        self.check_mandatory()?;
        let mut vias = 0;
        for slot in &self.slots {
            let value = self.value(slot);
            let base = offset(self.bytes, value);
            self.check_field(slot.id, value, &mut vias).map_err(|e| e.moved(base))?;
        }
        Ok(())
    }

    /// RFC 3261 section 8.1.1. Max-Forwards is not asked for: section 16.3 lets a request without
    /// it pass.
    fn check_mandatory(&self) -> Result<(), Malformed> {
        for (id, expected) in [
            (HeaderId::Via, "Via: expected one"),
            (HeaderId::From, "From: expected one"),
            (HeaderId::To, "To: expected one"),
            (HeaderId::CallId, "Call-ID: expected one"),
            (HeaderId::CSeq, "CSeq: expected one"),
        ] {
            if !self.has(id) {
                return Err(self.missing(expected));
            }
        }
        Ok(())
    }

    fn check_field(&self, id: HeaderId, value: &[u8], vias: &mut usize) -> Result<(), Malformed> {
        match id {
            HeaderId::Via => {
                for item in Items::new(value) {
                    Via::parse(item)?;
                    *vias += 1;
                    if *vias > MAX_VIAS {
                        let got = Got::Number(*vias as u64);
                        return Err(Malformed::with_status(483, "expected fewer Vias", got, 0));
                    }
                }
            }
            HeaderId::From | HeaderId::To => {
                let address = NameAddr::parse(value)?;
                Uri::parse(address.uri)?;
            }
            HeaderId::Contact if value == b"*" => {}
            HeaderId::Contact | HeaderId::Route | HeaderId::RecordRoute => {
                let max = if id == HeaderId::Contact { MAX_CONTACTS } else { MAX_ROUTES };
                for (i, item) in Items::new(value).enumerate() {
                    let address = NameAddr::parse(item)?;
                    Uri::parse(address.uri)?;
                    if i >= max {
                        let got = Got::Number(i as u64 + 1);
                        return Err(Malformed::with_status(
                            513,
                            "expected fewer addresses",
                            got,
                            0,
                        ));
                    }
                }
            }
            HeaderId::CSeq => {
                let cseq = CSeq::parse(value)?;
                if let Start::Request { method, .. } = self.start
                    && cseq.method != method
                {
                    return Err(Malformed::here(
                        "CSeq: expected the method of the request",
                        value,
                        0,
                    ));
                }
            }
            HeaderId::MaxForwards => {
                self.max_forwards()?;
            }
            _ => {}
        }
        Ok(())
    }
}
