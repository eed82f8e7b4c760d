//! Chunk types.

#![allow(missing_docs)]

pub const DATA: u8 = 0;
pub const INIT: u8 = 1;
pub const INIT_ACK: u8 = 2;
pub const SACK: u8 = 3;
pub const HEARTBEAT: u8 = 4;
pub const HEARTBEAT_ACK: u8 = 5;
pub const ABORT: u8 = 6;
pub const SHUTDOWN: u8 = 7;
pub const SHUTDOWN_ACK: u8 = 8;
pub const ERROR: u8 = 9;
pub const COOKIE_ECHO: u8 = 10;
pub const COOKIE_ACK: u8 = 11;
pub const ECNE: u8 = 12;
pub const CWR: u8 = 13;
pub const SHUTDOWN_COMPLETE: u8 = 14;
/// RFC 4895.
pub const AUTH: u8 = 15;
/// draft-natarajan-tsvwg-sctp-nrsack.
pub const NR_SACK: u8 = 16;
/// RFC 8260.
pub const I_DATA: u8 = 64;
/// RFC 5061.
pub const ASCONF_ACK: u8 = 128;
/// RFC 6525.
pub const RE_CONFIG: u8 = 130;
/// RFC 4820.
pub const PAD: u8 = 132;
/// RFC 3758.
pub const FORWARD_TSN: u8 = 192;
/// RFC 5061.
pub const ASCONF: u8 = 193;
/// RFC 8260.
pub const I_FORWARD_TSN: u8 = 194;
