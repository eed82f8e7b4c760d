//! What travels between the two ends of a descriptor.
//!
//! Byte streams have a pair of stream sockets, in which octets are as they come. Messages have a pair of SOCK_SEQPACKET,
//! in which each packet is a header and a message. Of a message of more than [`PACKET`] octets the packet has the first
//! ones, and carries the descriptor of a memory file with the rest: so a message is sent at once or not at all, and the
//! kernel's limit of a socket bounds the number of such files. Listeners have packets, too: the header, a text and the
//! descriptor of the connection.

use crate::fault::Fault;
use bytes::Bytes;
use ringway_services_tokio::MessageProperties;
use ringway_services_tokio::properties::{Coverage, Inherited, Lifetime, Limit};
use rustix::fs::MemfdFlags;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Octets of a message in its packet.
pub(crate) const PACKET: usize = 64 * 1024;
/// Octets of a message, as `Limits` of the transport services.
pub(crate) const MAX_MESSAGE: usize = 4 * 1024 * 1024;
/// Octets of the buffer of a descriptor, which Linux doubles. It has room for another packet when it is writable, which is
/// when at most a quarter is in use.
pub(crate) const BUFFER: usize = 128 * 1024;
/// Octets that are in the buffer until there is a connection, so that the descriptor is not writable before.
pub(crate) const FILLER: usize = 2 * BUFFER / 4 + 1;
/// Octets of a header.
pub(crate) const HEADER: usize = 24;
/// Octets of the text of an accepted connection.
const MAX_TEXT: usize = 256;

const END: u32 = 0x1;
const LAST: u32 = 0x2;
const LIFETIME: u32 = 0x4;
const PRIORITY: u32 = 0x8;
const RETRANSMISSIONS: u32 = 0x10;
const COVERAGE: u32 = 0x20;
const HAS_ORDER: u32 = 0x40;
const ORDERED: u32 = 0x80;
const HAS_RELIABLE: u32 = 0x100;
const RELIABLE: u32 = 0x200;
const MESSAGE: u32 = 0x1000;

/// The head of a packet: what is stated of a message, in the order of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Header {
    /// Octets of the message.
    pub(crate) length: u32,
    /// Whether the message ends here.
    pub(crate) is_end: bool,
    /// Whether it is the last one.
    pub(crate) is_last: bool,
    /// Milliseconds.
    pub(crate) lifetime: Option<u32>,
    pub(crate) priority: Option<u32>,
    pub(crate) max_retransmissions: Option<u32>,
    /// Octets that a checksum covers.
    pub(crate) coverage: Option<u32>,
    pub(crate) ordered: Option<bool>,
    pub(crate) reliable: Option<bool>,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let flag = |is_set: bool, bit| if is_set { bit } else { 0 };
        let choice = |value: Option<bool>, has, bit| {
            value.map_or(0, |value| has | if value { bit } else { 0 })
        };
        let flags = MESSAGE
            | flag(self.is_end, END)
            | flag(self.is_last, LAST)
            | flag(self.lifetime.is_some(), LIFETIME)
            | flag(self.priority.is_some(), PRIORITY)
            | flag(self.max_retransmissions.is_some(), RETRANSMISSIONS)
            | flag(self.coverage.is_some(), COVERAGE)
            | choice(self.ordered, HAS_ORDER, ORDERED)
            | choice(self.reliable, HAS_RELIABLE, RELIABLE);
        let numbers = [
            flags,
            self.length,
            self.lifetime.unwrap_or(0),
            self.priority.unwrap_or(0),
            self.max_retransmissions.unwrap_or(0),
            self.coverage.unwrap_or(0),
        ];
        let mut octets = [0; HEADER];
        for (at, number) in octets.chunks_exact_mut(4).zip(numbers) {
            at.copy_from_slice(&number.to_ne_bytes());
        }
        octets
    }

    /// Reads a header; `None` if the octets are none, because the program has written to the descriptor by itself.
    pub(crate) fn decode(octets: &[u8; HEADER]) -> Option<Header> {
        let number = |index: usize| {
            let at = &octets[4 * index..][..4];
            u32::from_ne_bytes([at[0], at[1], at[2], at[3]])
        };
        let flags = number(0);
        let has = |bit| flags & bit != 0;
        let value = |bit, index| has(bit).then(|| number(index));
        let header = Header {
            length: number(1),
            is_end: has(END),
            is_last: has(LAST),
            lifetime: value(LIFETIME, 2),
            priority: value(PRIORITY, 3),
            max_retransmissions: value(RETRANSMISSIONS, 4),
            coverage: value(COVERAGE, 5),
            ordered: has(HAS_ORDER).then(|| has(ORDERED)),
            reliable: has(HAS_RELIABLE).then(|| has(RELIABLE)),
        };
        (has(MESSAGE) && header.length as usize <= MAX_MESSAGE).then_some(header)
    }

    /// Returns the properties of the message, upon the defaults of its connection.
    pub(crate) fn properties(&self, mut defaults: MessageProperties) -> MessageProperties {
        if let Some(lifetime) = self.lifetime {
            defaults.msg_lifetime = Lifetime(Some(Duration::from_millis(lifetime.into())));
        }
        if let Some(priority) = self.priority {
            defaults.msg_priority = priority;
        }
        if let Some(max) = self.max_retransmissions {
            defaults.msg_max_retransmissions = Limit(Some(max));
        }
        if let Some(octets) = self.coverage {
            defaults.msg_checksum_len = Coverage(Some(octets));
        }
        if self.ordered.is_some() {
            defaults.msg_ordered = Inherited(self.ordered);
        }
        if self.reliable.is_some() {
            defaults.msg_reliable = Inherited(self.reliable);
        }
        defaults.final_message |= self.is_last;
        defaults
    }
}

/// Sends a packet, and a descriptor with it.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    attached: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let attached = attached.as_slice();
    if !attached.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(attached));
    }
    sendmsg(socket, parts, &mut control, flags | SendFlags::NOSIGNAL)
}

/// What was received: the octets of the packet, and the descriptor that came with it.
pub(crate) struct Received {
    pub(crate) octets: usize,
    pub(crate) attached: Option<OwnedFd>,
    /// Whether a descriptor came and there was no room for it in the process.
    pub(crate) lost: bool,
}

/// Receives a packet. Of one that is larger than the buffers the rest is dropped; `octets` counts it.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    parts: &mut [IoSliceMut<'_>],
    flags: RecvFlags,
) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
    let message = recvmsg(socket, parts, &mut control, flags)?;
    let attached = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let lost = message.flags.contains(rustix::net::ReturnFlags::CTRUNC) && attached.is_none();
    Ok(Received { octets: message.bytes, attached, lost })
}

/// Returns a memory file with these octets.
pub(crate) fn memory_file(octets: &[u8]) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create(c"ringway-pi", MemfdFlags::CLOEXEC)?;
    let mut written = 0;
    while written < octets.len() {
        written += rustix::io::pwrite(&file, &octets[written..], written as u64)?;
    }
    Ok(file)
}

/// Sends a message whole.
pub(crate) fn send_message(
    socket: BorrowedFd<'_>,
    header: &Header,
    message: &[u8],
    flags: SendFlags,
) -> Result<(), Errno> {
    let (first, rest) = message.split_at(message.len().min(PACKET));
    let file = if rest.is_empty() { None } else { Some(memory_file(rest)?) };
    let header = header.encode();
    let parts = [IoSlice::new(&header), IoSlice::new(first)];
    send(socket, &parts, file.as_ref().map(AsFd::as_fd), flags).map(|_| ())
}

/// Reads octets of a memory file, from its start, as far as there are.
pub(crate) fn read_file(file: &OwnedFd, into: &mut [u8], from: u64) -> Result<usize, Errno> {
    let mut read = 0;
    while read < into.len() {
        match rustix::io::pread(file, &mut into[read..], from + read as u64)? {
            0 => break,
            octets => read += octets,
        }
    }
    Ok(read)
}

/// What a program has written: a message, or octets, with what is stated of them.
pub(crate) type Written = Result<(Header, Bytes), Fault>;

thread_local! {
    /// Where the thread of the library reads into, so that a message takes no more memory than it has octets.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Receives octets of a byte stream; none at the end.
pub(crate) fn receive_octets(socket: BorrowedFd<'_>, flags: RecvFlags) -> Result<Bytes, Errno> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(HEADER + PACKET, 0);
        let (length, _) = rustix::net::recv(socket, &mut scratch[..], flags)?;
        Ok(Bytes::copy_from_slice(&scratch[..length]))
    })
}

/// Receives a message whole; `None` at the end, and a fault for what is none of the library's packets.
pub(crate) fn receive_message(
    socket: BorrowedFd<'_>,
    flags: RecvFlags,
) -> Result<Option<Written>, Errno> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(HEADER + PACKET, 0);
        let received = receive(socket, &mut [IoSliceMut::new(scratch)], flags)?;
        if received.octets == 0 {
            return Ok(None);
        }
        let octets = &scratch[..received.octets.min(HEADER + PACKET)];
        Ok(Some(read_message(octets, received.attached.as_ref())))
    })
}

/// Reads the message of a packet and of the file that came with it.
fn read_message(packet: &[u8], file: Option<&OwnedFd>) -> Written {
    let broken = || Fault::new(libc::EPROTO, "the descriptor was written to without pi_send");
    let (head, first) = packet.split_first_chunk().ok_or_else(broken)?;
    let header = Header::decode(head).ok_or_else(broken)?;
    let length = header.length as usize;
    let mut message = Vec::with_capacity(length);
    message.extend_from_slice(first);
    if length > PACKET && first.len() == PACKET {
        let text = "the thread of the library has no descriptor left for a large message";
        let file = file.ok_or_else(|| Fault::new(libc::EMFILE, text))?;
        message.resize(length, 0);
        let read = read_file(file, &mut message[PACKET..], 0)?;
        message.truncate(PACKET + read);
    }
    if message.len() != length { Err(broken()) } else { Ok((header, message.into())) }
}

/// What is known of a connection in every process that has its descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Info {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Octets of a message to be sent.
    pub(crate) max: usize,
    pub(crate) services: i32,
    pub(crate) protocol: String,
}

impl Info {
    /// Sends the descriptor of a connection to whoever accepts it.
    pub(crate) fn send(&self, to: BorrowedFd<'_>, descriptor: &OwnedFd) -> Result<(), Errno> {
        let text = self.text();
        let parts = [IoSlice::new(text.as_bytes())];
        send(to, &parts, Some(descriptor.as_fd()), SendFlags::DONTWAIT).map(|_| ())
    }

    fn text(&self) -> String {
        let Info { local, remote, max, services, protocol } = self;
        format!("{local}\n{remote}\n{max}\n{services}\n{protocol}")
    }

    /// Receives the descriptor of a connection; `None` if the listener has ended.
    pub(crate) fn receive(
        from: BorrowedFd<'_>,
        flags: RecvFlags,
    ) -> Result<Option<(Info, OwnedFd)>, Fault> {
        let mut text = [0; MAX_TEXT];
        let received = receive(from, &mut [IoSliceMut::new(&mut text)], flags)?;
        if received.octets == 0 {
            return Ok(None);
        }
        let descriptor = received.attached.ok_or_else(|| {
            let text = "the process has no descriptor left; the connection is closed";
            Fault::new(libc::EMFILE, text)
        })?;
        let text = String::from_utf8_lossy(&text[..received.octets.min(MAX_TEXT)]);
        let info = Info::parse(&text).ok_or_else(|| {
            Fault::new(libc::EPROTO, "the listener's descriptor carries something else")
        })?;
        Ok(Some((info, descriptor)))
    }

    fn parse(text: &str) -> Option<Info> {
        let mut lines = text.split('\n');
        Some(Info {
            local: lines.next()?.parse().ok()?,
            remote: lines.next()?.parse().ok()?,
            max: lines.next()?.parse().ok()?,
            services: lines.next()?.parse().ok()?,
            protocol: lines.next()?.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let plain = Header { length: 5, is_end: true, ..Header::default() };
        let full = Header {
            length: MAX_MESSAGE as u32,
            is_end: false,
            is_last: true,
            lifetime: Some(250),
            priority: Some(0),
            max_retransmissions: Some(3),
            coverage: Some(8),
            ordered: Some(false),
            reliable: Some(true),
        };
        for header in [plain, full] {
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
        // What a program writes by itself is none, and neither is what would be too long.
        assert_eq!(Header::decode(&[0; HEADER]), None);
        let long = Header { length: MAX_MESSAGE as u32 + 1, ..Header::default() };
        assert_eq!(Header::decode(&long.encode()), None);
    }

    #[test]
    fn properties_that_are_not_stated_are_those_of_the_connection() {
        let defaults = MessageProperties { msg_priority: 7, ..MessageProperties::default() };
        let header = Header { lifetime: Some(250), ordered: Some(false), ..Header::default() };
        let properties = header.properties(defaults);
        assert_eq!(properties.msg_priority, 7);
        assert_eq!(properties.msg_lifetime, Lifetime(Some(Duration::from_millis(250))));
        assert_eq!(properties.msg_ordered, Inherited(Some(false)));
    }

    #[test]
    fn what_is_known_of_a_connection_travels_as_a_text() {
        let info = Info {
            local: "127.0.0.1:1".parse().unwrap(),
            remote: "[fe80::1%3]:2".parse().unwrap(),
            max: 100,
            services: 0x2a4,
            protocol: "sctp-udp".into(),
        };
        assert_eq!(Info::parse(&info.text()), Some(info));
        for text in ["", "127.0.0.1:1", "127.0.0.1:1\nx\n1\n1\ntcp"] {
            assert_eq!(Info::parse(text), None, "{text}");
        }
    }
}
