//! A parsed REGISTER: everything that can be decided without the present bindings.

use super::config::RegistrarConfig;
use super::error::{ErrorHeader, RegisterError, unsupported};
use crate::gruu::{Gruus, Resolution};
use crate::location::record::DEFAULT_Q;
use ringway_sansio::Flow;
use ringway_sip::{HeaderId, Message, NameAddr, Uri, write};
use smallvec::SmallVec;
use std::ops::Range;

/// The maximum number of contacts of one REGISTER.
pub const MAX_CONTACTS_PER_REQUEST: usize = 16;
/// The maximum length of a Contact URI, in bytes.
pub const MAX_CONTACT_URI: usize = 1024;
/// The maximum length of the further parameters of one Contact, together, in bytes.
pub const MAX_CONTACT_PARAMS: usize = 1024;
/// The maximum length of an instance, in bytes. That of RFC 5626 section 4.1 has 45.
pub const MAX_INSTANCE: usize = 255;
/// The maximum length of a Path, all elements together, in bytes.
pub const MAX_PATH: usize = 2048;

/// An interval of at least this is never too brief (RFC 3261 section 10.3 step 7).
const ONE_HOUR: u32 = 3600;

/// The extensions that the user agent supports.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Supported {
    pub(super) path: bool,
    pub(super) gruu: bool,
    pub(super) outbound: bool,
}

/// One Contact of the request.
#[derive(Clone, Debug)]
pub(super) struct Contact<'a> {
    pub(super) uri: &'a [u8],
    /// The parsed URI.
    pub(super) parsed: Uri<'a>,
    /// Further parameters, in the scratch buffer.
    pub(super) params: Range<usize>,
    pub(super) q: u16,
    /// Seconds the binding lasts, by request and configuration; 0 removes it.
    pub(super) expires: u32,
    pub(super) instance: &'a [u8],
    /// The reg-id; 0 unless outbound processing applies.
    pub(super) reg_id: u32,
}

/// The requested change of the bindings.
#[derive(Debug)]
pub(super) enum Contacts<'a> {
    /// No Contact: only list them.
    Fetch,
    /// `*`.
    RemoveAll,
    /// Add, update or remove these.
    Each(SmallVec<[Contact<'a>; 1]>),
}

/// A parsed REGISTER.
#[derive(Debug)]
pub(super) struct RegisterRequest<'a> {
    pub(super) call_id: &'a [u8],
    pub(super) cseq: u32,
    pub(super) supported: Supported,
    pub(super) contacts: Contacts<'a>,
    /// Path elements, in the scratch buffer.
    pub(super) path: Range<usize>,
    /// The flow to the user agent, if there is no proxy between.
    pub(super) flow: Option<Flow>,
    /// Whether there is a NAT between it and this server.
    pub(super) nat: bool,
    /// Whether a contact has a reg-id that was not ignored.
    pub(super) outbound: bool,
}

impl<'a> RegisterRequest<'a> {
    pub(super) fn read(
        request: &Message<'a>,
        flow: &Flow,
        aor: &[u8],
        config: &RegistrarConfig,
        gruus: &Gruus,
        scratch: &mut Vec<u8>,
    ) -> Result<Self, RegisterError> {
        // RFC 3261 section 8.2.2.3.
        if unsupported(request).next().is_some() {
            let header = Some(ErrorHeader::Unsupported);
            return Err(RegisterError { header, ..RegisterError::new(420, "Bad Extension") });
        }
        let cseq = request.cseq().map_err(|e| RegisterError::new(e.status, e.reason))?.seq;
        let via = request.top_via().map_err(|e| RegisterError::new(e.status, e.reason))?;
        let supported = supported(request);
        let path = read_path(request, supported, scratch)?;
        // RFC 5626 section 6: the Via header fields show whether there is a proxy between.
        let direct = request.items(HeaderId::Via).nth(1).is_none();
        let mut register = RegisterRequest {
            call_id: request.call_id(),
            cseq,
            supported,
            contacts: Contacts::Fetch,
            path,
            flow: direct.then_some(*flow),
            nat: direct && is_behind_nat(via.host, flow),
            outbound: false,
        };
        let reader = Reader {
            aor,
            config,
            gruus,
            expires: request.first(HeaderId::Expires).and_then(seconds),
            outbound: direct || path_has_ob(&scratch[register.path.clone()]),
            supports_outbound: supported.outbound,
        };
        register.contacts = reader.contacts(request, scratch)?;
        if let Contacts::Each(contacts) = &register.contacts {
            register.outbound = contacts.iter().any(|c| c.reg_id != 0);
        }
        Ok(register)
    }

    pub(super) fn is_fetch(&self) -> bool {
        matches!(self.contacts, Contacts::Fetch)
    }
}

/// The context in which each Contact of a request is parsed.
struct Reader<'p> {
    aor: &'p [u8],
    config: &'p RegistrarConfig,
    gruus: &'p Gruus,
    /// The Expires header field.
    expires: Option<u32>,
    /// Whether outbound processing may be applied: the first hop supports it.
    outbound: bool,
    supports_outbound: bool,
}

impl Reader<'_> {
    fn contacts<'a>(
        &self,
        request: &Message<'a>,
        scratch: &mut Vec<u8>,
    ) -> Result<Contacts<'a>, RegisterError> {
        let mut contacts: SmallVec<[Contact<'a>; 1]> = SmallVec::new();
        let mut all = false;
        for element in request.items(HeaderId::Contact) {
            if element == b"*" {
                all = true;
                continue;
            }
            if contacts.len() == MAX_CONTACTS_PER_REQUEST {
                return Err(RegisterError::new(400, "Contact: expected at most 16"));
            }
            contacts.push(self.contact(element, scratch)?);
        }
        if all {
            // RFC 3261 section 10.3 step 6. Two `*` mean no more than one.
            if !contacts.is_empty() {
                return Err(RegisterError::new(400, "Contact: expected * alone"));
            }
            if self.expires != Some(0) {
                return Err(RegisterError::new(400, "Expires: expected 0 with Contact *"));
            }
            return Ok(Contacts::RemoveAll);
        }
        if contacts.is_empty() {
            return Ok(Contacts::Fetch);
        }
        // RFC 5626 section 6: one flow, one contact.
        let kept = contacts.iter().filter(|c| c.expires > 0);
        if kept.clone().count() > 1 && kept.clone().any(|c| c.reg_id != 0) {
            return Err(RegisterError::new(400, "Contact: expected one contact with a reg-id"));
        }
        Ok(Contacts::Each(contacts))
    }

    fn contact<'a>(
        &self,
        element: &'a [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<Contact<'a>, RegisterError> {
        let address =
            NameAddr::parse(element).map_err(|e| RegisterError::new(e.status, e.reason))?;
        if address.uri.len() > MAX_CONTACT_URI {
            return Err(RegisterError::new(400, "Contact: expected a shorter URI"));
        }
        let uri = Uri::parse(address.uri).map_err(|e| RegisterError::new(e.status, e.reason))?;
        let start = scratch.len();
        let mut contact = Contact {
            uri: address.uri,
            parsed: uri,
            params: start..start,
            q: DEFAULT_Q,
            expires: 0,
            instance: b"",
            reg_id: 0,
        };
        let mut expires = None;
        for (name, value) in address.params() {
            self.param(&mut contact, &mut expires, name, value, scratch)?;
        }
        contact.params.end = scratch.len();
        if contact.params.len() > MAX_CONTACT_PARAMS {
            return Err(RegisterError::new(400, "Contact: expected shorter parameters"));
        }
        // RFC 5626 section 6: a reg-id without an instance is ignored.
        if contact.instance.is_empty() {
            contact.reg_id = 0;
        }
        if contact.reg_id != 0 && !self.outbound {
            if self.supports_outbound {
                return Err(RegisterError::new(439, "First Hop Lacks Outbound Support"));
            }
            contact.reg_id = 0;
        }
        contact.expires = self.granted(expires.or(self.expires))?;
        if contact.expires > 0 {
            self.check_target(&contact)?;
        }
        Ok(contact)
    }

    fn param<'a>(
        &self,
        contact: &mut Contact<'a>,
        expires: &mut Option<u32>,
        name: &'a [u8],
        value: Option<&'a [u8]>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), RegisterError> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"expires") {
            // A value that cannot be parsed means the default.
            *expires = expires.or(value.and_then(seconds));
        } else if is(b"q") {
            contact.q = value
                .and_then(thousandths)
                .ok_or(RegisterError::new(400, "Contact: expected q from 0 to 1"))?;
        } else if is(b"+sip.instance") {
            contact.instance = instance(value.unwrap_or_default());
            if contact.instance.len() > MAX_INSTANCE {
                return Err(RegisterError::new(400, "Contact: expected a shorter instance"));
            }
            if contact.instance.iter().any(u8::is_ascii_control) {
                return Err(RegisterError::new(400, "Contact: expected an instance in one line"));
            }
        } else if is(b"reg-id") {
            // RFC 5626 section 9: 1 to 2^31 - 1.
            let id = value.and_then(seconds).filter(|id| (1..1 << 31).contains(id));
            contact.reg_id =
                id.ok_or(RegisterError::new(400, "Contact: expected reg-id from 1"))?;
        } else if !is(b"pub-gruu") && !is(b"temp-gruu") {
            // RFC 5627 section 5.1: a GRUU suggested by a client is ignored. Other parameters are stored.
            scratch.push(b';');
            scratch.extend_from_slice(name);
            if let Some(value) = value {
                scratch.push(b'=');
                write::unfolded(scratch, value);
            }
        }
        Ok(())
    }

    /// Returns the seconds a binding lasts (RFC 3261 section 10.3 step 7).
    fn granted(&self, requested: Option<u32>) -> Result<u32, RegisterError> {
        let requested = requested.unwrap_or(self.config.default_expires);
        if requested > 0 && requested < ONE_HOUR && requested < self.config.min_expires {
            let header = Some(ErrorHeader::MinExpires(self.config.min_expires));
            return Err(RegisterError { header, ..RegisterError::new(423, "Interval Too Brief") });
        }
        Ok(requested.min(self.config.max_expires))
    }

    /// Rejects a contact that leads back here, or for which there can be no GRUU (RFC 5627 section 5.1). The first
    /// would be a loop without an instance as well.
    fn check_target(&self, contact: &Contact<'_>) -> Result<(), RegisterError> {
        if !contact.parsed.is_sip() {
            if !contact.instance.is_empty() {
                return Err(RegisterError::new(
                    403,
                    "Contact: expected a SIP URI with an instance",
                ));
            }
            return Ok(());
        }
        // Nearly every contact is at another host, and needs no further check. The host of an address-of-record is in
        // lower case; an IPv6 address can be written in several forms.
        let host = contact.parsed.host;
        let host = host.strip_suffix(b".").unwrap_or(host);
        let elsewhere = memchr::memchr(b'@', self.aor).is_some_and(|at| {
            let ours = &self.aor[at + 1..];
            !host.starts_with(b"[")
                && !ours.get(..host.len()).is_some_and(|ours| ours.eq_ignore_ascii_case(host))
        });
        if elsewhere {
            return Ok(());
        }
        let itself = Uri::parse(self.aor).is_ok_and(|aor| contact.parsed.equivalent(&aor));
        let mut aor = Vec::new();
        if itself
            || matches!(self.gruus.resolve(&contact.parsed, &mut aor), Resolution::Gruu(_))
                && aor == self.aor
        {
            return Err(RegisterError::new(
                403,
                "Contact: expected another URI than the address-of-record",
            ));
        }
        Ok(())
    }
}

fn supported(request: &Message<'_>) -> Supported {
    let mut supported = Supported::default();
    // A user agent supports what it requires.
    for option in request.items(HeaderId::Supported).chain(request.items(HeaderId::Require)) {
        supported.path |= option.eq_ignore_ascii_case(b"path");
        supported.gruu |= option.eq_ignore_ascii_case(b"gruu");
        supported.outbound |= option.eq_ignore_ascii_case(b"outbound");
    }
    supported
}

/// Collects the Path elements (RFC 3327 section 5.3).
fn read_path(
    request: &Message<'_>,
    supported: Supported,
    scratch: &mut Vec<u8>,
) -> Result<Range<usize>, RegisterError> {
    let start = scratch.len();
    if !request.has(HeaderId::Path) {
        return Ok(start..start);
    }
    if !supported.path {
        // The user agent cannot know of a proxy between.
        let header = Some(ErrorHeader::PathUnsupported);
        return Err(RegisterError { header, ..RegisterError::new(420, "Bad Extension") });
    }
    for element in request.items(HeaderId::Path) {
        if scratch.len() > start {
            scratch.extend_from_slice(b", ");
        }
        write::unfolded(scratch, element);
    }
    if scratch.len() - start > MAX_PATH {
        return Err(RegisterError::new(400, "Path: expected fewer octets"));
    }
    Ok(start..scratch.len())
}

/// Returns whether the first hop of a Path supports outbound. Only the first hop may add `ob`, wherever it is in the
/// Path (RFC 5626 section 5.1).
fn path_has_ob(path: &[u8]) -> bool {
    ringway_sip::header::Items::new(path).any(|element| {
        NameAddr::parse(element)
            .and_then(|address| Uri::parse(address.uri))
            .is_ok_and(|uri| uri.param(b"ob").is_some())
    })
}

/// Returns whether the sender believes to be at another address than its source (RFC 3581 section 4).
pub(crate) fn is_behind_nat(sent_by: &[u8], flow: &Flow) -> bool {
    match ringway_sip::uri::host_ip(sent_by) {
        Some(ip) => ip.to_canonical() != flow.remote.ip().to_canonical(),
        // A name that cannot exist (RFC 2606), from a browser for example (RFC 7118 section 5).
        None => sent_by.to_ascii_lowercase().ends_with(b".invalid"),
    }
}

/// Returns the instance without its quotes and angle brackets.
fn instance(value: &[u8]) -> &[u8] {
    let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
    value.strip_prefix(b"<").and_then(|v| v.strip_suffix(b">")).unwrap_or(value)
}

/// Parses `delta-seconds`; a number above 32 bits is read as their maximum (RFC 4475 section 3.1.2.4).
pub(crate) fn seconds(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |n: u32, d: &u8| n.saturating_mul(10).saturating_add(u32::from(d - b'0'));
    Some(digits.iter().fold(0, add))
}

/// Parses a `qvalue`, in thousandths (RFC 3261 section 25.1).
fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, rest) = value.split_first()?;
    let digits = match rest {
        [] => rest,
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    if !matches!(whole, b'0' | b'1') || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut q = u16::from(whole - b'0') * 1000;
    let mut weight = 100;
    for digit in digits {
        q += u16::from(digit - b'0') * weight;
        weight /= 10;
    }
    (q <= 1000).then_some(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3261 section 25.1.
    #[test]
    fn q_is_read_in_thousandths() {
        for (text, q) in
            [("0", 0), ("1", 1000), ("1.", 1000), ("0.5", 500), ("0.123", 123), ("1.000", 1000)]
        {
            assert_eq!(thousandths(text.as_bytes()), Some(q), "{text}");
        }
        for text in ["", "2", ".5", "1.001", "0.1234", "0,5", "-1", "0.x"] {
            assert_eq!(thousandths(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn seconds_saturate() {
        assert_eq!(seconds(b"3600"), Some(3600));
        assert_eq!(seconds(b"280297596632815"), Some(u32::MAX));
        assert_eq!(seconds(b""), None);
        assert_eq!(seconds(b"1h"), None);
    }

    /// RFC 5626 section 4.1.
    #[test]
    fn an_instance_loses_its_wrapping() {
        assert_eq!(instance(b"\"<urn:uuid:1>\""), b"urn:uuid:1");
        assert_eq!(instance(b"<urn:uuid:1>"), b"urn:uuid:1");
        assert_eq!(instance(b"\"urn:uuid:1\""), b"urn:uuid:1");
        assert_eq!(instance(b"\"<"), b"\"<");
    }
}
