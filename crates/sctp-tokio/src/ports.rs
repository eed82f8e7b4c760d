//! Ownership of SCTP ports, where processes share protocol 132.
//!
//! A raw socket receives every packet of its protocol, so each process of a network namespace receives
//! the packets of all. Three things separate them. A port is held by one process at a time, by a name in
//! the namespace's abstract unix sockets, which vanishes with the process however it ends. A filter makes
//! the kernel drop packets for ports not held here before it queues them. Packets that were queued under
//! an earlier filter are ignored here. So a process answers only packets to ports that no other process
//! can hold, OOTB packets among them.
//!
//! Any user of the namespace can take such a name and thereby a port, as with the ports of UDP
//! above 1023. Ephemeral ports are held in blocks, so that a filter stays short.

use super::limits::MAX_PORTS;
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX,
    BPF_MSH, BPF_RET,
};
use socket2::{Domain, SockFilter, Socket};
use std::collections::BTreeMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first ephemeral port (RFC 6335 section 6).
const EPHEMERAL: u16 = 49_152;

/// Number of ephemeral ports that are held together.
const BLOCK: u16 = 256;

/// The set of ports held here: a bit for each, read for every packet.
pub(super) struct PortSet(Box<[AtomicU64]>);

impl PortSet {
    fn new() -> PortSet {
        PortSet((0..65_536 / 64).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn contains(&self, port: u16) -> bool {
        let (word, bit) = (usize::from(port) / 64, port % 64);
        self.0[word].load(Ordering::Acquire) >> bit & 1 == 1
    }

    fn set(&self, port: u16, held: bool) {
        let (word, bit) = (usize::from(port) / 64, port % 64);
        if held {
            self.0[word].fetch_or(1 << bit, Ordering::AcqRel);
        } else {
            self.0[word].fetch_and(!(1 << bit), Ordering::AcqRel);
        }
    }
}

/// A name in the network namespace, released when dropped.
struct Name(#[allow(dead_code)] UnixDatagram);

impl Name {
    fn take(kind: &str, number: u16) -> io::Result<Name> {
        let name = SocketAddr::from_abstract_name(format!("ringway/sctp/{kind}/{number}"))?;
        UnixDatagram::bind_addr(&name).map(Name)
    }
}

/// The ports of one stack.
pub(super) struct Ports {
    held: Arc<PortSet>,
    /// The raw sockets, by duplicated descriptors.
    sockets: Vec<Socket>,
    /// Ports below the ephemeral ones, each with the number of its listeners and associations.
    single: BTreeMap<u16, (Name, usize)>,
    /// Blocks of ephemeral ports, by their first port; held for as long as the stack lives.
    blocks: BTreeMap<u16, Name>,
    /// The ephemeral port from which the search continues.
    next: u16,
}

impl Ports {
    /// Creates an empty table.
    pub(super) fn new(sockets: Vec<Socket>) -> io::Result<Ports> {
        // At random, so that processes seldom try the same block.
        let mut start = [0; 2];
        getrandom::fill(&mut start)?;
        let held = Arc::new(PortSet::new());
        let (single, blocks, next) =
            (BTreeMap::new(), BTreeMap::new(), EPHEMERAL | u16::from_ne_bytes(start));
        let ports = Ports { held, sockets, single, blocks, next };
        ports.filter()?;
        Ok(ports)
    }

    pub(super) fn held(&self) -> Arc<PortSet> {
        self.held.clone()
    }

    /// Holds `port` for one more listener or association. Returns `AddrInUse` when another process holds it.
    pub(super) fn hold(&mut self, port: u16) -> io::Result<()> {
        if port >= EPHEMERAL {
            return self.hold_block(port - port % BLOCK);
        }
        if let Some((_, users)) = self.single.get_mut(&port) {
            *users += 1;
            return Ok(());
        }
        if self.single.len() >= MAX_PORTS {
            let text = format!("expected at most {MAX_PORTS} ports, got one more");
            return Err(io::Error::other(text));
        }
        self.single.insert(port, (Name::take("port", port)?, 1));
        self.held.set(port, true);
        self.filter()
    }

    /// Releases `port` for one listener or association.
    pub(super) fn release(&mut self, port: u16) {
        let Some((_, users)) = self.single.get_mut(&port) else { return };
        *users -= 1;
        if *users == 0 {
            // Packets for this port are ignored before its name is free.
            self.held.set(port, false);
            // A filter that passes too much does no harm.
            let name = self.single.remove(&port);
            let _ = self.filter();
            drop(name);
        }
    }

    fn hold_block(&mut self, first: u16) -> io::Result<()> {
        if self.blocks.contains_key(&first) {
            return Ok(());
        }
        self.blocks.insert(first, Name::take("block", first)?);
        (0..BLOCK).for_each(|i| self.held.set(first + i, true));
        self.filter()
    }

    /// Returns the next ephemeral port to try, and holds it. `None` when no block is free.
    pub(super) fn ephemeral(&mut self, try_another_block: bool) -> Option<u16> {
        if self.blocks.is_empty() || try_another_block {
            let max_blocks = (u16::MAX - EPHEMERAL) / BLOCK + 1;
            let mut first = self.next - self.next % BLOCK;
            let mut attempts = 0;
            while self.blocks.contains_key(&first) || self.hold_block(first).is_err() {
                first = after(first, BLOCK);
                attempts += 1;
                if attempts > max_blocks {
                    return None;
                }
            }
            self.next = first;
        } else {
            self.next = after(self.next, 1);
            while !self.blocks.contains_key(&(self.next - self.next % BLOCK)) {
                self.next = after(self.next - self.next % BLOCK, BLOCK);
            }
        }
        Some(self.next)
    }

    /// Returns the number of ephemeral ports held.
    pub(super) fn ephemeral_held(&self) -> usize {
        self.blocks.len() * usize::from(BLOCK)
    }

    /// Makes the kernel drop packets for other ports.
    fn filter(&self) -> io::Result<()> {
        for socket in &self.sockets {
            let ipv4 = socket.domain()? == Domain::IPV4;
            socket.attach_filter(&self.program(ipv4))?;
        }
        Ok(())
    }

    /// Returns the filter: the whole packet if its destination port is held, else nothing. Over IPv4 a raw
    /// socket's filter sees the IP header first.
    fn program(&self, ipv4: bool) -> Vec<SockFilter> {
        let statement = |code: u32, k| SockFilter::new(code as u16, 0, 0, k);
        // Skips the next statement unless equal.
        let equal = |k: u16| SockFilter::new((BPF_JMP | BPF_JEQ | BPF_K) as u16, 0, 1, k.into());
        let accept = || statement(BPF_RET | BPF_K, u32::MAX);
        let mut program = if ipv4 {
            vec![
                statement(BPF_LDX | BPF_B | BPF_MSH, 0),
                statement(BPF_LD | BPF_H | BPF_IND, DESTINATION),
            ]
        } else {
            vec![statement(BPF_LD | BPF_H | BPF_ABS, DESTINATION)]
        };
        program.extend(self.single.keys().flat_map(|&port| [equal(port), accept()]));
        let mask = u32::from(!(BLOCK - 1));
        program.push(statement(BPF_ALU | BPF_AND | BPF_K, mask));
        program.extend(self.blocks.keys().flat_map(|&first| [equal(first), accept()]));
        program.push(statement(BPF_RET | BPF_K, 0));
        program
    }
}

/// Offset of the destination port in SCTP's header (RFC 9260 section 3.1).
pub(super) const DESTINATION: u32 = 2;

/// Returns the ephemeral port `count` after `port`, wrapping at the end.
fn after(port: u16, count: u16) -> u16 {
    port.checked_add(count).unwrap_or(EPHEMERAL)
}
