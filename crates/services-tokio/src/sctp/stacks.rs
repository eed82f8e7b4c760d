//! The SCTP stacks of a system.

use crate::error::Error;
use ringway_sctp_tokio::{
    Association, Config, Connect, ConnectError, Limits as SctpLimits, OpenError, Over, Settings,
    Stack, StackSockets,
};
use ringway_services::Protocol;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// The stacks that connections are opened with: one for each transport of SCTP's packets, made when it is first needed.
/// Listeners over UDP have their own, and those above IP share this one.
#[derive(Default)]
pub(crate) struct Stacks {
    udp: Mutex<Option<Stack>>,
    ip: Mutex<Option<Stack>>,
}

pub(super) fn failed(error: impl Into<io::Error>) -> Error {
    Error::system("SCTP", error.into())
}

impl Stacks {
    fn get(
        stack: &Mutex<Option<Stack>>,
        new: impl FnOnce() -> Result<Stack, OpenError>,
    ) -> Result<Stack, Error> {
        let mut stack = stack.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stack) = stack.as_ref() {
            return Ok(stack.clone());
        }
        let new = new().map_err(failed)?;
        *stack = Some(new.clone());
        Ok(new)
    }

    /// Opens an association; with a new stack if the runtime of the one that there is has ended.
    pub(super) fn open(&self, protocol: Protocol, connect: &Connect) -> Result<Association, Error> {
        match self.of(protocol)?.open(connect) {
            Err(ConnectError::Stopped(_)) => {
                let stack = if protocol == Protocol::SctpUdp { &self.udp } else { &self.ip };
                *stack.lock().unwrap_or_else(PoisonError::into_inner) = None;
                self.of(protocol)?.open(connect).map_err(failed)
            }
            opened => opened.map_err(failed),
        }
    }

    /// Returns the stack for a protocol.
    pub(super) fn of(&self, protocol: Protocol) -> Result<Stack, Error> {
        match protocol {
            Protocol::SctpUdp => Self::get(&self.udp, || {
                let wild = [IpAddr::from([0; 16]), IpAddr::from([0; 4])];
                // Some hosts have only one family.
                let sockets = StackSockets::udp(&wild, 0)
                    .or_else(|_| StackSockets::udp(&wild[1..], 0))
                    .or_else(|_| StackSockets::udp(&wild[..1], 0))?;
                Stack::start(sockets, SctpLimits::default(), Settings::default())
            }),
            Protocol::Sctp => Self::get(&self.ip, || Stack::new(Config::new(Over::Ip))),
            _ => Stack::new(Config::new(Over::Kernel)).map_err(failed),
        }
    }
}
