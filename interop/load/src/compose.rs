//! The messages both ends write, straight into the send buffer. Everything that names a call has a
//! fixed width, so that all calls cost the server the same.

use crate::floor::{ROUTE_LENGTH, VIA_LENGTH};
use crate::message::{self, Message, reversed_routes};
use crate::port::Local;

/// What stands after the key in a Call-ID.
const CALL_ID_HOST: &[u8] = b"@load";
/// The key's length in a Call-ID: run, worker, slot and generation in hexadecimal.
const KEY_LENGTH: usize = 8 + 2 + 6 + 8;

/// A session description of the size telephones send; media never flows.
const SDP: &[u8] = b"v=0\r\no=load 53655765 2353687637 IN IP4 192.0.2.1\r\ns=-\r\n\
    c=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 6000 RTP/AVP 0 8\r\na=rtpmap:0 PCMU/8000\r\n\
    a=rtpmap:8 PCMA/8000\r\n";

/// Which call a message belongs to. `slot` has 24 bits on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Largest number of slots a key can name.
pub(crate) const MAX_SLOTS: usize = 1 << 24;

/// Writes messages for one worker.
pub(crate) struct Composer {
    domain: Vec<u8>,
    run: u32,
    worker: u8,
    floor: bool,
}

impl Composer {
    /// `run` tells this run's messages from those of an earlier one that still wander about.
    pub(crate) fn new(domain: &str, run: u32, worker: u8, floor: bool) -> Self {
        Self { domain: domain.as_bytes().to_vec(), run, worker, floor }
    }

    /// The key in a Call-ID, if this worker wrote it in this run.
    pub(crate) fn key(&self, call_id: &[u8]) -> Option<Key> {
        let digits = call_id.strip_suffix(CALL_ID_HOST)?;
        if digits.len() != KEY_LENGTH {
            return None;
        }
        let run = from_hex(&digits[..8])?;
        let worker = from_hex(&digits[8..10])?;
        let slot = from_hex(&digits[10..16])?;
        let generation = from_hex(&digits[16..])?;
        (run == self.run && worker == u32::from(self.worker)).then_some(Key { slot, generation })
    }

    fn call_id(&self, out: &mut Vec<u8>, key: Key) {
        out.extend_from_slice(b"\r\nCall-ID: ");
        hex::<8>(out, self.run);
        hex::<2>(out, u32::from(self.worker));
        hex::<6>(out, key.slot);
        hex::<8>(out, key.generation);
        out.extend_from_slice(CALL_ID_HOST);
    }

    fn address(&self, out: &mut Vec<u8>, user: u32) {
        out.extend_from_slice(b"sip:u");
        decimal(out, user);
        out.push(b'@');
        out.extend_from_slice(&self.domain);
    }

    /// INVITE from `caller` to `callee`.
    pub(crate) fn invite(
        &self,
        out: &mut Vec<u8>,
        local: &Local,
        key: Key,
        caller: u32,
        callee: u32,
    ) {
        out.extend_from_slice(b"INVITE ");
        self.address(out, callee);
        out.extend_from_slice(b" SIP/2.0\r\n");
        via(out, local, b'I', key);
        out.extend_from_slice(b"\r\nMax-Forwards: 70\r\nFrom: <");
        self.address(out, caller);
        out.extend_from_slice(b">;tag=");
        tag(out, key);
        out.extend_from_slice(b"\r\nTo: <");
        self.address(out, callee);
        out.push(b'>');
        self.call_id(out, key);
        out.extend_from_slice(b"\r\nCSeq: 1 INVITE\r\nContact: <sip:u");
        decimal(out, caller);
        out.push(b'@');
        out.extend_from_slice(&local.sent_by);
        out.extend_from_slice(
            b">\r\nAllow: INVITE, ACK, CANCEL, BYE, OPTIONS\r\nUser-Agent: ringway-load\r\n\
              Content-Type: application/sdp\r\nContent-Length: ",
        );
        body(out);
    }

    /// ACK for a 2xx (RFC 3261 section 13.2.2.4), or the BYE after it (section 15.1.1): a request
    /// within the dialog that `ok` began, along the route set it carries.
    pub(crate) fn in_dialog(
        &self,
        out: &mut Vec<u8>,
        local: &Local,
        key: Key,
        ok: &Message<'_>,
        bye: bool,
    ) {
        let (name, letter, cseq): (&[u8], u8, &[u8]) =
            if bye { (b"BYE ", b'B', b"CSeq: 2 BYE") } else { (b"ACK ", b'A', b"CSeq: 1 ACK") };
        out.extend_from_slice(name);
        out.extend_from_slice(message::uri(ok.contact));
        out.extend_from_slice(b" SIP/2.0\r\n");
        via(out, local, letter, key);
        out.extend_from_slice(b"\r\nMax-Forwards: 70\r\n");
        reversed_routes(ok.record_routes.as_slice(), &mut |route| {
            out.extend_from_slice(b"Route: ");
            out.extend_from_slice(route);
            out.extend_from_slice(b"\r\n");
        });
        finish_dialog_request(out, ok, key, self, cseq);
    }

    /// ACK for a final response that is not 2xx: same branch and URI as the INVITE, no Route since
    /// it had none (RFC 3261 section 17.1.1.3).
    pub(crate) fn ack_refusal(
        &self,
        out: &mut Vec<u8>,
        local: &Local,
        key: Key,
        refusal: &Message<'_>,
    ) {
        out.extend_from_slice(b"ACK ");
        out.extend_from_slice(message::uri(refusal.to));
        out.extend_from_slice(b" SIP/2.0\r\n");
        via(out, local, b'I', key);
        out.extend_from_slice(b"\r\nMax-Forwards: 70\r\n");
        finish_dialog_request(out, refusal, key, self, b"CSeq: 1 ACK");
    }

    /// What the called end answers to `request` (RFC 3261 section 8.2.6.2). `contact` is the URI
    /// it is reached at, empty for a BYE's answer.
    pub(crate) fn response(
        &self,
        out: &mut Vec<u8>,
        status: &[u8],
        request: &Message<'_>,
        key: Key,
        contact: &[u8],
        with_body: bool,
    ) {
        out.extend_from_slice(b"SIP/2.0 ");
        out.extend_from_slice(status);
        out.extend_from_slice(b"\r\n");
        let routes = request.record_routes.as_slice();
        for line in request.vias.as_slice().iter().chain(routes) {
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
        if self.floor && !contact.is_empty() {
            stand_in_route(out);
        }
        out.extend_from_slice(request.from);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(request.to);
        if !message::has_tag(request.to) {
            out.extend_from_slice(b";tag=u");
            tag(out, key);
        }
        self.call_id(out, key);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(request.cseq);
        if !contact.is_empty() {
            out.extend_from_slice(b"\r\nContact: <");
            out.extend_from_slice(contact);
            out.push(b'>');
        }
        if with_body {
            out.extend_from_slice(b"\r\nContent-Type: application/sdp\r\nContent-Length: ");
            body(out);
        } else {
            out.extend_from_slice(b"\r\nContent-Length: 0\r\n\r\n");
        }
        if self.floor {
            out.resize(out.len() + VIA_LENGTH, b' ');
        }
    }

    /// REGISTER for `key.slot`, whose CSeq is `key.generation`.
    pub(crate) fn register(&self, out: &mut Vec<u8>, local: &Local, key: Key, what: &Register<'_>) {
        out.extend_from_slice(b"REGISTER sip:");
        out.extend_from_slice(&self.domain);
        out.extend_from_slice(b" SIP/2.0\r\n");
        via(out, local, b'R', key);
        out.extend_from_slice(b"\r\nMax-Forwards: 70\r\nFrom: <");
        self.address(out, what.user);
        out.extend_from_slice(b">;tag=");
        tag(out, Key { generation: 0, ..key });
        out.extend_from_slice(b"\r\nTo: <");
        self.address(out, what.user);
        out.push(b'>');
        // RFC 3261 section 10.2.4: every refresh of a binding keeps the Call-ID.
        self.call_id(out, Key { generation: 0, ..key });
        out.extend_from_slice(b"\r\nCSeq: ");
        decimal(out, key.generation);
        out.extend_from_slice(b" REGISTER\r\nContact: <sip:u");
        decimal(out, what.user);
        out.push(b'@');
        out.extend_from_slice(what.contact);
        out.extend_from_slice(b">\r\n");
        out.extend_from_slice(what.credentials);
        out.extend_from_slice(b"Expires: ");
        decimal(out, what.expires);
        out.extend_from_slice(b"\r\nUser-Agent: ringway-load\r\nContent-Length: 0\r\n\r\n");
    }
}

/// What a REGISTER says.
pub(crate) struct Register<'a> {
    /// Number of the user.
    pub(crate) user: u32,
    /// Host, port and parameters after the `@` of the contact.
    pub(crate) contact: &'a [u8],
    /// Seconds.
    pub(crate) expires: u32,
    /// A whole header line with its CRLF, or nothing.
    pub(crate) credentials: &'a [u8],
}

fn finish_dialog_request(
    out: &mut Vec<u8>,
    answer: &Message<'_>,
    key: Key,
    composer: &Composer,
    cseq: &[u8],
) {
    out.extend_from_slice(answer.from);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(answer.to);
    composer.call_id(out, key);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(cseq);
    out.extend_from_slice(b"\r\nUser-Agent: ringway-load\r\nContent-Length: 0\r\n\r\n");
}

/// A Record-Route as long as a proxy's, for the floor that adds none.
fn stand_in_route(out: &mut Vec<u8>) {
    let line: &[u8] = b"Record-Route: <sip:127.0.0.1:15060;lr>\r\n";
    out.extend_from_slice(line);
    debug_assert!(line.len().abs_diff(ROUTE_LENGTH) < 4);
}

fn via(out: &mut Vec<u8>, local: &Local, letter: u8, key: Key) {
    out.extend_from_slice(&local.via);
    out.push(letter);
    tag(out, key);
}

/// The branch of a Via line, without the magic cookie and the letter: the key it was made of.
pub(crate) fn branch_key(via: &[u8]) -> Option<(u8, Key)> {
    let at = memchr::memmem::find(via, b";branch=z9hG4bK")? + 15;
    let letter = *via.get(at)?;
    let slot = from_hex(via.get(at + 1..at + 7)?)?;
    let generation = from_hex(via.get(at + 7..at + 15)?)?;
    Some((letter, Key { slot, generation }))
}

fn tag(out: &mut Vec<u8>, key: Key) {
    hex::<6>(out, key.slot);
    hex::<8>(out, key.generation);
}

fn body(out: &mut Vec<u8>) {
    decimal(out, SDP.len() as u32);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(SDP);
}

fn hex<const N: usize>(out: &mut Vec<u8>, value: u32) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0u8; N];
    let mut value = value;
    for place in text.iter_mut().rev() {
        *place = DIGITS[(value & 15) as usize];
        value >>= 4;
    }
    out.extend_from_slice(&text);
}

fn from_hex(digits: &[u8]) -> Option<u32> {
    let mut value = 0u32;
    for digit in digits {
        value = value << 4 | (*digit as char).to_digit(16)?;
    }
    Some(value)
}

/// Writes a number without the formatting machinery.
pub(crate) fn decimal(out: &mut Vec<u8>, value: u32) {
    let mut text = [0u8; 10];
    let mut at = text.len();
    let mut value = value;
    loop {
        at -= 1;
        text[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}
