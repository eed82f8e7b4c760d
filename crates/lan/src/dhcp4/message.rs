//! Messages of DHCPv4 (RFC 2131 section 2, RFC 2132): what a server reads of one, and how it answers.
//!
//! The fields are read with the lazy view of `dhcproto`. Its other decoder is for messages of friends: it panics on a
//! length of a hardware address above 16, and on some options that are too short.

use core::net::Ipv4Addr;

use dhcproto::v4::borrowed;
use dhcproto::v4::{DhcpOption, DhcpOptions, Flags, HType, Opcode, OptionCode, UnknownOption};
use dhcproto::{Encodable, Encoder, v4};
use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};

pub use dhcproto::v4::MessageType;

/// Shortest message: BOOTP's, which some clients insist on (RFC 1542 section 2.1).
pub const MIN_MESSAGE: usize = 300;
/// Longest message that is read, in octets: one of an Ethernet.
pub const MAX_MESSAGE: usize = 1_472;
/// Longest identifier of a client in octets: that of an option (RFC 2132 section 9.14).
const MAX_IDENTIFIER: usize = 255;
/// Longest hardware address, which is the size of its field.
const MAX_HARDWARE: u8 = 16;
/// Options of a message that are read.
const MAX_OPTIONS: usize = 64;

/// The code of the option with SIP servers (RFC 3361), and its two encodings.
const SIP_SERVERS: u8 = 120;
const ENCODED_AS_NAMES: u8 = 0;
const ENCODED_AS_ADDRESSES: u8 = 1;

/// How SIP servers are written in option 120 (RFC 3361 section 3). A message has one of both.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SipEncoding {
    /// As addresses, which every client understands (section 3.2).
    #[default]
    Addresses,
    /// As names, which a client looks up (section 3.1).
    Names,
}

/// What a server reads of a client's message.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of the transaction.
    pub xid: u32,
    /// Flags, which are returned.
    pub flags: u16,
    /// The client's address, or 0.0.0.0.
    pub ciaddr: Ipv4Addr,
    /// The relay agent's address, or 0.0.0.0.
    pub giaddr: Ipv4Addr,
    /// Kind of the hardware address.
    pub hardware_kind: u8,
    /// The hardware address.
    pub hardware: Vec<u8>,
    /// Kind of the message (option 53).
    pub kind: MessageType,
    /// Option 61.
    pub identifier: Option<Vec<u8>>,
    /// Option 50.
    pub requested: Option<Ipv4Addr>,
    /// Option 54.
    pub server: Option<Ipv4Addr>,
    /// The options that the client asks for (option 55); all if it asks for none.
    pub parameters: Option<Vec<u8>>,
}

impl Request {
    /// Parses a message of a client. `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<Request> {
        if bytes.len() > MAX_MESSAGE {
            return None;
        }
        let message = borrowed::Message::new(bytes).ok()?;
        if message.opcode() != Opcode::BootRequest || message.hlen() > MAX_HARDWARE {
            return None;
        }
        let mut request = Request {
            xid: message.xid(),
            flags: message.flags().into(),
            ciaddr: message.ciaddr(),
            giaddr: message.giaddr(),
            hardware_kind: message.htype().into(),
            hardware: message.chaddr().to_vec(),
            kind: MessageType::Unknown(0),
            identifier: None,
            requested: None,
            server: None,
            parameters: None,
        };
        for option in message.opts().take(MAX_OPTIONS) {
            let address = || <[u8; 4]>::try_from(option.data()).ok().map(Ipv4Addr::from);
            match option.code() {
                OptionCode::MessageType => request.kind = (*option.data().first()?).into(),
                OptionCode::RequestedIpAddress => request.requested = Some(address()?),
                OptionCode::ServerIdentifier => request.server = Some(address()?),
                OptionCode::ParameterRequestList => {
                    request.parameters = Some(option.data().to_vec());
                }
                OptionCode::ClientIdentifier => {
                    let is_one = (2..=MAX_IDENTIFIER).contains(&option.len());
                    request.identifier = is_one.then(|| option.data().to_vec());
                }
                _ => {}
            }
        }
        // A client without a name cannot be told from another.
        let is_named = request.identifier.is_some() || !request.hardware.is_empty();
        (is_named && request.kind != MessageType::Unknown(0)).then_some(request)
    }

    /// Returns whether the client wants an option.
    pub fn wants(&self, code: u8) -> bool {
        self.parameters.as_ref().is_none_or(|parameters| parameters.contains(&code))
    }
}

/// Returns the octets of an answer to a request with the address that the client has, the one that it gets, and
/// options: at least [`MIN_MESSAGE`] of them.
pub(super) fn encode(
    request: &Request,
    ciaddr: Ipv4Addr,
    yiaddr: Ipv4Addr,
    options: DhcpOptions,
) -> Option<Vec<u8>> {
    let mut message = v4::Message::new_with_id(
        request.xid,
        ciaddr,
        yiaddr,
        Ipv4Addr::UNSPECIFIED,
        request.giaddr,
        &request.hardware,
    );
    message.set_opcode(Opcode::BootReply);
    message.set_htype(HType::from(request.hardware_kind));
    message.set_flags(Flags::new(request.flags));
    message.set_opts(options);
    let mut bytes = Vec::with_capacity(MIN_MESSAGE);
    message.encode(&mut Encoder::new(&mut bytes)).ok()?;
    bytes.resize(bytes.len().max(MIN_MESSAGE), 0);
    Some(bytes)
}

/// Returns option 120 with one server, which has an address and a name.
pub(super) fn sip_servers(
    encoding: SipEncoding,
    address: Ipv4Addr,
    name: &Name,
) -> Option<DhcpOption> {
    let data = match encoding {
        SipEncoding::Addresses => [&[ENCODED_AS_ADDRESSES][..], &address.octets()].concat(),
        SipEncoding::Names => [&[ENCODED_AS_NAMES][..], &encode_name(name)?].concat(),
    };
    let code = OptionCode::from(SIP_SERVERS);
    Some(DhcpOption::Unknown(UnknownOption::new(code, data)))
}

/// Returns a name as it is in a message of the DNS, not compressed (RFC 1035 section 3.1).
pub(crate) fn encode_name(name: &Name) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    name.emit(&mut BinEncoder::new(&mut bytes)).ok()?;
    Some(bytes)
}
