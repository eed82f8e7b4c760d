//! One relayed dialog: its parties, its streams, and the exchange of offer and answer under way.

use crate::command::{Command, Party, Port, Side, StreamId};
use crate::config::{Config, MAX_STREAMS};
use crate::description::{Address, Stream, Transport};
use crate::reach::Leg;
use crate::shares::Source;
use ringway_sansio::{Time, TimerId};
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};

/// A side of a dialog, as an index: the one that sent its first request, and the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Caller = 0,
    Callee = 1,
}

impl Who {
    pub(crate) const fn other(self) -> Who {
        match self {
            Who::Caller => Who::Callee,
            Who::Callee => Who::Caller,
        }
    }
}

/// The state of a dialog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Its first request has no 2xx yet.
    Early,
    Confirmed,
}

/// A request whose final response is awaited, and which may carry an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exchange {
    pub cseq: u32,
    pub from: Who,
    /// Whether it had a description: then those in its responses answer it.
    pub offered: bool,
}

/// The parties of each stream in one description, by its position.
pub(crate) type Parties = SmallVec<[Option<Party>; 2]>;

/// An offer that has no answer yet.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub from: Who,
    pub parties: Parties,
}

/// A relayed dialog. Call-ID and tags are stored as keyed hashes.
#[derive(Debug)]
pub(crate) struct Session {
    pub call: u64,
    pub tags: [Option<u64>; 2],
    /// The branch of its first request.
    pub branch: Option<u64>,
    pub legs: [Leg; 2],
    pub source: Source,
    pub state: State,
    /// When it was begun to be ended by a BYE.
    pub ending: Option<Time>,
    /// The streams by their position in the description; `None` for those that are not relayed.
    pub streams: SmallVec<[Option<u32>; 2]>,
    /// The number of streams that it has taken from the share of its source.
    pub charged: usize,
    pub invite: Option<Exchange>,
    /// An UPDATE or PRACK.
    pub other: Option<Exchange>,
    pub offer: Option<Offer>,
    /// The time of the last message or packet.
    pub active: Time,
    pub timer: TimerId,
}

impl Session {
    /// Returns the number of relayed streams.
    pub(crate) fn relayed(&self) -> usize {
        self.streams.iter().flatten().count()
    }

    /// Returns the index of the stream at a position of the description.
    pub(crate) fn stream(&self, position: usize) -> Option<u32> {
        self.streams.get(position).copied().flatten()
    }

    /// Sets the stream at a position of the description.
    pub(crate) fn set_stream(&mut self, position: usize, stream: Option<u32>) {
        if position < MAX_DESCRIBED {
            if self.streams.len() <= position {
                self.streams.resize(position + 1, None);
            }
            self.streams[position] = stream;
        }
    }

    /// Returns the side whose tag this is.
    pub(crate) fn who(&self, tag: u64) -> Option<Who> {
        [Who::Caller, Who::Callee].into_iter().find(|&who| self.tags[who as usize] == Some(tag))
    }
}

/// Positions of a description that may be relayed. Those beyond are left alone.
pub(crate) const MAX_DESCRIBED: usize = 4 * MAX_STREAMS;

/// A relayed stream.
#[derive(Debug)]
pub(crate) struct Relayed {
    pub serial: u32,
    pub session: u32,
    /// The even port that each side sends to.
    pub ports: [Port; 2],
    /// The parties as last agreed.
    pub parties: [Option<Party>; 2],
    /// Whether a command about it waits.
    pub queued: bool,
}

impl Relayed {
    pub(crate) fn id(&self, index: usize) -> StreamId {
        StreamId { index: index as u32, serial: self.serial }
    }

    /// Returns the command that makes the other half forward as agreed.
    pub(crate) fn command(&self, index: usize, locals: [IpAddr; 2]) -> Command {
        let side = |who: Who| {
            let (port, local) = (self.ports[who as usize], locals[who as usize]);
            Side { port, local, party: self.parties[who as usize] }
        };
        Command::Set(self.id(index), [side(Who::Caller), side(Who::Callee)])
    }
}

/// Returns the party of a stream in a description of the peer of `leg`; `previous` is the party as agreed before.
/// `refused` counts addresses that media may not be sent to.
pub(crate) fn party(
    config: &Config,
    leg: &Leg,
    stream: &Stream,
    previous: Option<&Party>,
    refused: &mut u64,
) -> Option<Party> {
    if stream.port == 0 {
        return None;
    }
    let signalling = config.latch.then_some(leg.remote);
    let ip = match stream.address {
        Some(Address::Ip(ip)) => ip,
        Some(Address::Unspecified) => {
            // It may still send, music for instance, from where it has been.
            let signalled = previous.and_then(|party| party.signalled);
            return Some(Party { signalled, signalling, held: true, ..Party::default() });
        }
        _ => return Some(Party { signalling, ..Party::default() }),
    };
    let rtp = SocketAddr::new(ip, stream.port);
    if !config.may_send_to(leg, rtp) {
        *refused += 1;
        return Some(Party { signalling, ..Party::default() });
    }
    let rtcp = rtcp(stream, rtp).filter(|&to| config.may_send_to(leg, to));
    let signalling = signalling.filter(|&signalling| signalling != ip);
    Some(Party { signalled: Some(ip), signalling, rtp: Some(rtp), rtcp, held: false })
}

/// Returns where the RTCP of a stream is received (RFC 3550 section 11, RFC 3605).
fn rtcp(stream: &Stream, rtp: SocketAddr) -> Option<SocketAddr> {
    if stream.transport != Transport::Rtp {
        return None;
    }
    let Some(rtcp) = stream.rtcp else {
        return Some(SocketAddr::new(rtp.ip(), rtp.port().checked_add(1)?));
    };
    match rtcp.address {
        None => Some(SocketAddr::new(rtp.ip(), rtcp.port)),
        Some(Address::Ip(ip)) => Some(SocketAddr::new(ip, rtcp.port)),
        Some(_) => None,
    }
}
