//! The sender's congestion window after every packet it was given: ours from its snapshot, the
//! kernel's by asking for its socket (`sock_diag(7)`), so that no change is missed however busy the
//! machine is.

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use ringway_sansio::Addressing;
use ringway_tcp::{Recovery, Snapshot};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// What a sender is at; sizes are in segments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sender {
    cwnd: f64,
    /// None before there was any loss.
    ssthresh: Option<f64>,
    flight: f64,
    /// Whether it repairs a loss.
    recovers: bool,
}

impl Sender {
    pub(crate) fn ours(snapshot: &Snapshot) -> Sender {
        let segments = |bytes: u32| f64::from(bytes) / f64::from(snapshot.mss.max(1));
        Sender {
            cwnd: segments(snapshot.cwnd),
            ssthresh: (snapshot.ssthresh < u32::MAX).then(|| segments(snapshot.ssthresh)),
            flight: segments(snapshot.in_flight + snapshot.sacked + snapshot.lost),
            recovers: snapshot.recovery != Recovery::Open,
        }
    }
}

/// One line of a trace.
struct Row {
    /// Milliseconds.
    at: f64,
    /// Data packets the sender has put on the link, lost ones too.
    packets: u64,
    sender: Sender,
}

/// What a sender was at over time.
#[derive(Default)]
pub(crate) struct Trace {
    rows: Vec<Row>,
}

impl Trace {
    /// Keeps a row if anything but the time is new.
    pub(crate) fn note(&mut self, at: f64, packets: u64, sender: Sender) {
        let same = |row: &Row| row.sender == sender && row.packets == packets;
        if !self.rows.last().is_some_and(same) {
            self.rows.push(Row { at, packets, sender });
        }
    }

    /// A line a row: milliseconds since the first, packets, cwnd, ssthresh (0 for none), flight,
    /// and 1 while a loss is repaired.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = String::new();
        let first = self.rows.first().map_or(0.0, |row| row.at);
        for Row { at, packets, sender } in &self.rows {
            let Sender { cwnd, ssthresh, flight, recovers } = sender;
            text.push_str(&format!(
                "{:.2} {packets} {cwnd:.3} {:.3} {flight:.3} {}\n",
                at - first,
                ssthresh.unwrap_or(0.0),
                u8::from(*recovers)
            ));
        }
        std::fs::write(path, text)
    }
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_HEADER: usize = 16;
/// `struct inet_diag_msg`, after which attributes follow.
const DIAG_MESSAGE: usize = 72;
/// The attribute that is a `struct tcp_info`.
const INET_DIAG_INFO: u16 = 2;
/// `TCP_CA_Recovery` and `TCP_CA_Loss`.
const CA_RECOVERY: u8 = 3;
/// `TCP_INFINITE_SSTHRESH`.
const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// Asks the kernel what its end of the connection is at.
pub(crate) struct Diagnosis {
    socket: OwnedFd,
}

impl Diagnosis {
    pub(crate) fn new() -> io::Result<Diagnosis> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkSockDiag,
        )?;
        Ok(Diagnosis { socket })
    }

    /// What the kernel's socket is at that sent, or would send, a packet with this addressing and
    /// these ports. None when there is none.
    pub(crate) fn ask(&self, from: &Addressing, ports: [u8; 4]) -> io::Result<Option<Sender>> {
        send(self.socket.as_raw_fd(), &request(from, ports), MsgFlags::empty())?;
        let mut answer = [0; 8192];
        let length = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        Ok(info(&answer[..length]).and_then(sender))
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(from: &Addressing, ports: [u8; 4]) -> Vec<u8> {
    const LENGTH: usize = NLMSG_HEADER + 56;
    let mut out = Vec::with_capacity(LENGTH);
    out.extend_from_slice(&(LENGTH as u32).to_ne_bytes());
    out.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    let family = if from.source.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    out.extend_from_slice(&[family as u8, from.protocol, 1 << (INET_DIAG_INFO - 1), 0]);
    out.extend_from_slice(&u32::MAX.to_ne_bytes());
    out.extend_from_slice(&ports);
    for address in [from.source, from.destination] {
        let mut octets = [0; 16];
        match address {
            IpAddr::V4(address) => octets[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => octets = address.octets(),
        }
        out.extend_from_slice(&octets);
    }
    out.extend_from_slice(&[0; 4]);
    // INET_DIAG_NOCOOKIE.
    out.extend_from_slice(&[0xff; 8]);
    out
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The `struct tcp_info` of an answer.
fn info(answer: &[u8]) -> Option<&[u8]> {
    if u16_at(answer, 4)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let mut rest = answer.get(NLMSG_HEADER + DIAG_MESSAGE..)?;
    loop {
        let length = usize::from(u16_at(rest, 0)?).max(4);
        if u16_at(rest, 2)? == INET_DIAG_INFO {
            return rest.get(4..length);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// Reads a `struct tcp_info`.
fn sender(info: &[u8]) -> Option<Sender> {
    let ssthresh = u32_at(info, 76)?;
    Some(Sender {
        cwnd: f64::from(u32_at(info, 80)?),
        ssthresh: (ssthresh < NO_SSTHRESH).then_some(f64::from(ssthresh)),
        flight: f64::from(u32_at(info, 24)?),
        recovers: *info.get(1)? >= CA_RECOVERY,
    })
}
