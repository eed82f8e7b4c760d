//! The transports that can be measured.

use clap::ValueEnum;
use serde::Serialize;
use std::fmt;

/// Transport of the messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
pub(crate) enum Transport {
    /// One message per datagram; losses are counted
    #[serde(rename = "udp")]
    Udp,
    /// Messages with their lengths; a connection for each stream
    #[serde(rename = "tcp")]
    Tcp,
    /// SCTP over IP, which needs the right to use raw sockets
    #[serde(rename = "sctp")]
    Sctp,
    /// SCTP over UDP
    #[value(name = "sctp+udp")]
    #[serde(rename = "sctp+udp")]
    SctpUdp,
    /// The kernel's SCTP, where it is loaded
    #[value(name = "sctp+kernel")]
    #[serde(rename = "sctp+kernel")]
    SctpKernel,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Sctp => "sctp",
            Transport::SctpUdp => "sctp+udp",
            Transport::SctpKernel => "sctp+kernel",
        })
    }
}
