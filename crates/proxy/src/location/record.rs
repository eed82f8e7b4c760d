//! One address-of-record as bytes.
//!
//! A record is written once and read in place, in memory as on disk; there is no second form. So it must be small, and
//! reading it must be safe for any bytes of a damaged disk: every read is checked and a fault is a [`CorruptRecord`],
//! never a panic.
//!
//! ```text
//! record  := version(1) flags(1) count(1) binding{count}
//! binding := length(2) flags(1) expires(6, ms since the epoch) cseq(4)
//!            text(contact) text(params) text(path) text(instance) text(call-id)
//!            [q(2)] [reg-id(4)] [epoch(8) first-cseq(4), if there is an instance]
//!            [flow]
//! ```
//! Numbers are little-endian. `length` counts what follows it. Text and flow are as in
//! `wire`.

use super::wire::{self, CorruptRecord, Reader, put_flow};
use super::{MAX_BINDINGS, MAX_RECORD, MAX_TEXT};
use ringway_sansio::{Flow, FlowId, Time, Transport};

/// The form described above.
const VERSION: u8 = 1;
const HEADER: usize = 3;

/// Record flag: a binding came over a connection, so the index of flows may contain this record.
pub(super) const CONNECTED: u8 = 1;

const HAS_FLOW: u8 = 1;
const HAS_Q: u8 = 2;
const HAS_REG_ID: u8 = 4;
const OUTBOUND: u8 = 8;
const NAT: u8 = 16;
const KNOWN: u8 = HAS_FLOW | HAS_Q | HAS_REG_ID | OUTBOUND | NAT;

/// The q of a contact without one (RFC 3261 section 20.10 does not define it; as in other implementations, 1.0).
pub const DEFAULT_Q: u16 = 1000;

/// A text of a binding that is too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge {
    /// What was too large.
    pub what: &'static str,
    /// The maximum length.
    pub limit: usize,
    /// The actual length.
    pub got: usize,
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} too large: at most {}, got {}", self.what, self.limit, self.got)
    }
}

impl std::error::Error for TooLarge {}

/// One binding, borrowed from a record, or to be written into one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindingView<'a> {
    /// The Contact URI, without angle brackets.
    pub contact: &'a [u8],
    /// The other Contact header field parameters as received, each with its leading `;`: without `q`, `expires`,
    /// `+sip.instance` and `reg-id`, which have fields of their own.
    pub params: &'a [u8],
    /// Preference in thousandths, 0 to 1000.
    pub q: u16,
    /// The expiry of the binding, stored in milliseconds.
    pub expires: Time,
    /// The Path elements in order, joined by `, `, or empty (RFC 3327).
    pub path: &'a [u8],
    /// The instance without quotes and angle brackets, such as `urn:uuid:...`, or empty.
    pub instance: &'a [u8],
    /// The reg-id, or 0 for none (RFC 5626 section 4.2).
    pub reg_id: u32,
    /// The flow of the registration, if there is no proxy between the user agent and this server.
    pub flow: Option<Flow>,
    /// The Call-ID of the REGISTER.
    pub call_id: &'a [u8],
    /// The CSeq number of the REGISTER.
    pub cseq: u32,
    /// Whether outbound processing was applied: instance and reg-id identify the binding, and it is reached by its flow
    /// or path only (RFC 5626 section 6).
    pub outbound: bool,
    /// Whether the Via of the REGISTER differed from its source, so that the Contact is most likely not valid outside
    /// the sender's network.
    pub nat: bool,
    /// A number drawn when the instance appeared or changed its Call-ID. It decides which temporary GRUUs are valid
    /// (RFC 5627 section 3.1.2). 0 without an instance.
    pub epoch: u64,
    /// The CSeq number of the REGISTER that began the epoch, so of the oldest valid temporary GRUU (RFC 5628 section
    /// 5). 0 without an instance.
    pub first_cseq: u32,
}

impl BindingView<'_> {
    /// Returns whether the binding can be reached over its flow only, so that it ends with the flow: outbound (RFC 5626
    /// section 7), and WebSocket, which a server cannot open (RFC 7118 section 5).
    pub fn is_flow_bound(&self) -> bool {
        self.path.is_empty()
            && (self.outbound
                || self.flow.is_some_and(|f| matches!(f.transport, Transport::Ws | Transport::Wss)))
    }

    /// Returns the flow that a request to this binding must use, or should use because its Contact may not be
    /// reachable. `None` means that Path, if there is one, and Contact decide. With a flow for outbound, nothing else
    /// may be tried (RFC 5626 section 7). Another connection, or a flow through a NAT, is used while it exists.
    pub fn over_flow(&self) -> Option<Flow> {
        if !self.path.is_empty() {
            return None;
        }
        self.flow.filter(|f| self.outbound || self.nat || !f.transport.is_datagram())
    }

    /// Returns the connection the binding came over; `None` for datagrams.
    pub fn connection(&self) -> Option<FlowId> {
        self.flow.filter(|f| !f.transport.is_datagram()).map(|f| f.id)
    }
}

/// A record being replaced: the present bindings, and the new ones.
#[derive(Debug)]
pub struct RecordEdit<'a> {
    old: &'a [u8],
    now: Time,
    out: &'a mut Vec<u8>,
    start: usize,
    count: usize,
    flags: u8,
    earliest: Time,
    committed: bool,
}

impl<'a> RecordEdit<'a> {
    /// Begins to replace `old` (empty for no record); appends the new record to `out`.
    pub fn new(old: &'a [u8], now: Time, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[VERSION, 0, 0]);
        RecordEdit {
            old,
            now,
            out,
            start,
            count: 0,
            flags: 0,
            earliest: Time::from_nanos(u64::MAX),
            committed: false,
        }
    }

    /// Returns the present bindings, live ones only, the most recently registered first.
    pub fn current(&self) -> Bindings<'a> {
        Bindings::new(self.old, self.now)
    }

    /// Returns the number of bindings in the present record, including expired ones that are not removed yet.
    pub fn stored(&self) -> usize {
        count(self.old)
    }

    /// Appends a binding to the new record; the first must be the most recently registered.
    pub fn put(&mut self, binding: &BindingView<'_>) -> Result<(), TooLarge> {
        if self.count == MAX_BINDINGS {
            return Err(TooLarge { what: "bindings", limit: MAX_BINDINGS, got: self.count + 1 });
        }
        let at = self.out.len();
        let written = encode(self.out, binding).and_then(|()| {
            let got = self.out.len() - self.start;
            if got > MAX_RECORD {
                return Err(TooLarge { what: "record", limit: MAX_RECORD, got });
            }
            Ok(())
        });
        if written.is_err() {
            self.out.truncate(at);
            return written;
        }
        self.count += 1;
        self.earliest = self.earliest.min(binding.expires);
        if binding.connection().is_some() {
            self.flags |= CONNECTED;
        }
        Ok(())
    }

    /// Removes every binding that [`RecordEdit::put`] has appended.
    pub fn clear(&mut self) {
        self.out.truncate(self.start + HEADER);
        self.count = 0;
        self.flags = 0;
        self.earliest = Time::from_nanos(u64::MAX);
    }

    /// Commits the new record; without a binding, the record is removed.
    pub fn commit(&mut self) {
        self.committed = true;
    }

    /// Ends the edit. Returns `None` if it was not committed; otherwise the number of bindings in the new record (its
    /// bytes are in the buffer) and the time at which the first of them expires.
    pub fn finish(self) -> Option<(usize, Time)> {
        if !self.committed {
            return None;
        }
        self.out[self.start + 1] = self.flags;
        self.out[self.start + 2] = self.count as u8;
        Some((self.count, self.earliest))
    }
}

/// Reads the live bindings of a record. Ends early if the bytes are corrupt: use [`check`] first on bytes from outside.
#[derive(Clone, Debug)]
pub struct Bindings<'a> {
    rest: &'a [u8],
    left: u8,
    now: Time,
}

impl<'a> Bindings<'a> {
    /// Returns the bindings of `record` (empty for none) that are live at `now`.
    pub fn new(record: &'a [u8], now: Time) -> Self {
        match record {
            [VERSION, _, count, rest @ ..] => Bindings { rest, left: *count, now },
            _ => Bindings { rest: &[], left: 0, now },
        }
    }
}

impl<'a> Iterator for Bindings<'a> {
    type Item = BindingView<'a>;

    fn next(&mut self) -> Option<BindingView<'a>> {
        while self.left > 0 {
            self.left -= 1;
            let mut r = Reader::new(self.rest);
            let Ok(binding) = decode(&mut r) else {
                self.left = 0;
                return None;
            };
            self.rest = &self.rest[r.at..];
            if binding.expires > self.now {
                return Some(binding);
            }
        }
        None
    }
}

/// Returns the number of bindings in the header of a record, including expired ones. 0 for no record.
pub(super) fn count(record: &[u8]) -> usize {
    record.get(2).map_or(0, |&c| c as usize)
}

/// Returns whether a record has the flag of a binding over a connection.
pub(super) fn connected(record: &[u8]) -> bool {
    record.get(1).is_some_and(|f| f & CONNECTED != 0)
}

/// Checks that bytes are a whole record. Returns its number of bindings, including expired ones.
pub fn check(record: &[u8]) -> Result<usize, CorruptRecord> {
    let mut r = Reader::new(record);
    let version = r.u8("format version 1")?;
    if version != VERSION {
        return Err(CorruptRecord { at: 0, expected: "format version 1", got: version.into() });
    }
    let flags = r.u8("record flags")?;
    if flags & !CONNECTED != 0 {
        return Err(CorruptRecord { at: 1, expected: "known record flags", got: flags.into() });
    }
    let count = r.u8("number of bindings")? as usize;
    if count > MAX_BINDINGS {
        return Err(CorruptRecord { at: 2, expected: "at most 100 bindings", got: count as u64 });
    }
    for _ in 0..count {
        decode(&mut r)?;
    }
    if r.at != record.len() {
        let got = (record.len() - r.at) as u64;
        return Err(CorruptRecord { at: r.at, expected: "the end of the record", got });
    }
    Ok(count)
}

fn encode(out: &mut Vec<u8>, b: &BindingView<'_>) -> Result<(), TooLarge> {
    let start = out.len();
    let mut flags = 0;
    if b.q != DEFAULT_Q {
        flags |= HAS_Q;
    }
    if b.reg_id != 0 {
        flags |= HAS_REG_ID;
    }
    if b.outbound {
        flags |= OUTBOUND;
    }
    if b.nat {
        flags |= NAT;
    }
    if b.flow.is_some() {
        flags |= HAS_FLOW;
    }
    out.extend_from_slice(&[0, 0, flags]);
    out.extend_from_slice(&b.expires.as_millis().to_le_bytes()[..6]);
    out.extend_from_slice(&b.cseq.to_le_bytes());
    put_text(out, "contact URI", b.contact)?;
    put_text(out, "contact parameters", b.params)?;
    put_text(out, "path", b.path)?;
    put_text(out, "instance", b.instance)?;
    put_text(out, "Call-ID", b.call_id)?;
    if b.q != DEFAULT_Q {
        out.extend_from_slice(&b.q.to_le_bytes());
    }
    if b.reg_id != 0 {
        out.extend_from_slice(&b.reg_id.to_le_bytes());
    }
    if !b.instance.is_empty() {
        out.extend_from_slice(&b.epoch.to_le_bytes());
        out.extend_from_slice(&b.first_cseq.to_le_bytes());
    }
    if let Some(flow) = &b.flow {
        put_flow(out, flow);
    }
    // Five texts of at most MAX_TEXT and less than 100 further bytes always fit 16 bits.
    let length = (out.len() - start - 2) as u16;
    out[start..start + 2].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

fn put_text(out: &mut Vec<u8>, what: &'static str, text: &[u8]) -> Result<(), TooLarge> {
    if text.len() > MAX_TEXT {
        return Err(TooLarge { what, limit: MAX_TEXT, got: text.len() });
    }
    wire::put_text(out, text);
    Ok(())
}

fn decode<'a>(r: &mut Reader<'a>) -> Result<BindingView<'a>, CorruptRecord> {
    let length = u16::from_le_bytes(r.array("length of a binding")?) as usize;
    let end = r.at + length;
    if end > r.all.len() {
        let got = length as u64;
        return Err(CorruptRecord { at: r.at - 2, expected: "a length within the record", got });
    }
    let flags = r.u8("binding flags")?;
    if flags & !KNOWN != 0 {
        let got = flags.into();
        return Err(CorruptRecord { at: r.at - 1, expected: "known binding flags", got });
    }
    let expires = decode_expires(r)?;
    let cseq = u32::from_le_bytes(r.array("CSeq")?);
    let contact = r.text("contact URI")?;
    let params = r.text("contact parameters")?;
    let path = r.text("path")?;
    let instance = r.text("instance")?;
    let call_id = r.text("Call-ID")?;
    let mut q = DEFAULT_Q;
    if flags & HAS_Q != 0 {
        q = u16::from_le_bytes(r.array("q")?);
        if q > 1000 {
            return Err(CorruptRecord { at: r.at - 2, expected: "q up to 1000", got: q.into() });
        }
    }
    let reg_id = if flags & HAS_REG_ID != 0 { u32::from_le_bytes(r.array("reg-id")?) } else { 0 };
    let (mut epoch, mut first_cseq) = (0, 0);
    if !instance.is_empty() {
        epoch = u64::from_le_bytes(r.array("instance epoch")?);
        first_cseq = u32::from_le_bytes(r.array("first CSeq")?);
    }
    let flow = if flags & HAS_FLOW != 0 { Some(r.flow()?) } else { None };
    if r.at != end {
        let got = r.at as u64;
        return Err(CorruptRecord { at: end, expected: "the end of the binding", got });
    }
    let (outbound, nat) = (flags & OUTBOUND != 0, flags & NAT != 0);
    Ok(BindingView {
        contact,
        params,
        q,
        expires,
        path,
        instance,
        reg_id,
        flow,
        call_id,
        cseq,
        outbound,
        nat,
        epoch,
        first_cseq,
    })
}

fn decode_expires(r: &mut Reader<'_>) -> Result<Time, CorruptRecord> {
    let mut ms = [0; 8];
    ms[..6].copy_from_slice(&r.array::<6>("expiry")?);
    let ms = u64::from_le_bytes(ms);
    // A Time is 64 bits of nanoseconds.
    if ms > u64::MAX / 1_000_000 {
        return Err(CorruptRecord { at: r.at - 6, expected: "an expiry before 2554", got: ms });
    }
    Ok(Time::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{any_binding, binding, flow};
    use super::*;
    use proptest::prelude::*;

    fn written(bindings: &[BindingView<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut edit = RecordEdit::new(&[], Time::ZERO, &mut out);
        for b in bindings {
            edit.put(b).unwrap();
        }
        edit.commit();
        assert!(edit.finish().is_some());
        out
    }

    #[test]
    fn a_typical_binding_is_compact() {
        let one = written(&[BindingView { flow: Some(flow(1, Transport::Udp)), ..binding() }]);
        assert!(one.len() <= 140, "{} bytes", one.len());
    }

    #[test]
    fn every_field_comes_back() {
        let full = BindingView {
            contact: b"sip:a@[2001:db8::1]:5060",
            params: b";+sip.ice;x=\"y\"",
            q: 250,
            expires: Time::from_millis(1_700_000_000_123),
            path: b"<sip:edge.example.com;lr;ob>, <sip:p2;lr>",
            instance: b"urn:uuid:00000000-0000-1000-8000-000a95a0e128",
            reg_id: 3,
            flow: Some(Flow {
                id: FlowId::new(7, 99),
                transport: Transport::Wss,
                local: "[fe80::1%3]:443".parse().unwrap(),
                remote: "192.0.2.9:50000".parse().unwrap(),
            }),
            call_id: b"abc@host",
            cseq: u32::MAX,
            outbound: true,
            nat: true,
            epoch: 0xdead_beef_0000_0001,
            first_cseq: 77,
        };
        let record = written(&[full]);
        assert_eq!(check(&record), Ok(1));
        assert!(connected(&record));
        let back: Vec<_> = Bindings::new(&record, Time::ZERO).collect();
        assert_eq!(back, [full]);
    }

    #[test]
    fn expired_bindings_are_not_shown() {
        let b = BindingView { expires: Time::from_secs(10), ..binding() };
        let record = written(&[b]);
        assert_eq!(Bindings::new(&record, Time::from_millis(9_999)).count(), 1);
        assert_eq!(Bindings::new(&record, Time::from_secs(10)).count(), 0);
    }

    #[test]
    fn limits_are_reported_and_leave_the_record_whole() {
        let mut out = Vec::new();
        let mut edit = RecordEdit::new(&[], Time::ZERO, &mut out);
        edit.put(&binding()).unwrap();
        let long = vec![b'x'; MAX_TEXT + 1];
        let error = edit.put(&BindingView { path: &long, ..binding() }).unwrap_err();
        assert_eq!(error, TooLarge { what: "path", limit: MAX_TEXT, got: MAX_TEXT + 1 });
        for _ in 1..MAX_BINDINGS {
            edit.put(&binding()).unwrap();
        }
        assert_eq!(edit.put(&binding()).unwrap_err().what, "bindings");
        edit.commit();
        assert_eq!(edit.finish().unwrap().0, MAX_BINDINGS);
        assert_eq!(check(&out), Ok(MAX_BINDINGS));
    }

    #[test]
    fn a_record_stays_below_its_limit() {
        let long = vec![b'x'; MAX_TEXT];
        let wide = BindingView { contact: &long, path: &long, params: &long, ..binding() };
        let mut out = Vec::new();
        let mut edit = RecordEdit::new(&[], Time::ZERO, &mut out);
        let fitted = (0..MAX_BINDINGS).take_while(|_| edit.put(&wide).is_ok()).count();
        assert_eq!(fitted, MAX_RECORD / (3 * MAX_TEXT));
        edit.commit();
        edit.finish();
        assert!(out.len() <= MAX_RECORD);
        assert_eq!(check(&out), Ok(fitted));
    }

    #[test]
    fn corrupt_bytes_say_where_and_what() {
        let good = written(&[binding()]);
        let error = |bytes: &[u8]| check(bytes).unwrap_err();
        assert_eq!(error(&[]).expected, "format version 1");
        let mut bad = good.clone();
        bad[0] = 9;
        assert_eq!(error(&bad), CorruptRecord { at: 0, expected: "format version 1", got: 9 });
        bad = good.clone();
        bad[5] |= 0x80;
        assert_eq!(error(&bad).expected, "known binding flags");
        bad = good.clone();
        bad[6..12].fill(0xff);
        assert_eq!(error(&bad).expected, "an expiry before 2554");
        bad = good.clone();
        bad.push(0);
        assert_eq!(error(&bad).expected, "the end of the record");
        assert_eq!(error(&good[..good.len() - 1]).expected, "a length within the record");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bindings in prop::collection::vec(any_binding(), 0..8)) {
            let views: Vec<_> = bindings.iter().map(|b| b.view()).collect();
            let record = written(&views);
            prop_assert_eq!(check(&record), Ok(views.len()));
            let live: Vec<_> = views.iter().filter(|v| v.expires > Time::ZERO).copied().collect();
            let back: Vec<_> = Bindings::new(&record, Time::ZERO).collect();
            prop_assert_eq!(back, live);
        }

        #[test]
        fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = check(&bytes);
            let _ = Bindings::new(&bytes, Time::ZERO).count();
        }

        #[test]
        fn damage_never_panics(
            bindings in prop::collection::vec(any_binding(), 1..4),
            at in any::<prop::sample::Index>(),
            value in any::<u8>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let views: Vec<_> = bindings.iter().map(|b| b.view()).collect();
            let mut record = written(&views);
            let at = at.index(record.len());
            record[at] = value;
            let counted = check(&record);
            let shown = Bindings::new(&record, Time::ZERO).count();
            if let Ok(count) = counted {
                prop_assert!(shown <= count);
            }
            record.truncate(cut.index(record.len()));
            prop_assert!(check(&record).is_err());
        }
    }
}
