//! Two network namespaces, each with a TUN device, and a router between the devices.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use super::{Namespace, ip};
use ringway_os::netlink::{Netlink, Route};
use ringway_os::tun::{Coalescer, PACKET_BUFFER, Segments, TunQueue};
use ringway_os::wait_readable;
use std::io::ErrorKind;
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::time::Duration;

/// The addresses of the two ends.
pub const HERE: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);
pub const THERE: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 1);

/// Returns whether the system allows a TUN device. Otherwise the test does nothing.
pub fn has_tun() -> bool {
    match TunQueue::open("probe%d", 1) {
        Ok(_) => true,
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => {
            eprintln!("no TUN device to be had: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Configures a device of the thread's namespace as a router on a mesh does.
pub fn configure(name: &str, own: Ipv6Addr, mtu: u32) {
    let mut netlink = Netlink::open().unwrap();
    let interface = netlink.link(name).unwrap().index;
    netlink.set_mtu(interface, mtu).unwrap();
    netlink.add_address(interface, own, 64).unwrap();
    netlink.set_up(interface).unwrap();
    let destination = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0);
    let route = Route { destination, prefix_length: 8, interface, gateway: None, metric: 0 };
    netlink.add_route(&route).unwrap();
    while !ip(&format!("-6 route get {own}")).starts_with("local") {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Opens a device here and one in the other namespace.
pub fn open(other: &Namespace, mtu: u32) -> (TunQueue, TunQueue) {
    let here = TunQueue::open("mesh%d", 1).unwrap().remove(0);
    configure(here.name(), HERE, mtu);
    let there = other.run(move || {
        let there = TunQueue::open("mesh%d", 1).unwrap().remove(0);
        configure(there.name(), THERE, mtu);
        there
    });
    (here, there)
}

/// How a router passes packets on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Each segment for itself.
    Single,
    /// Gathered.
    Gathered,
}

/// What a router has done.
#[derive(Default, Debug)]
pub struct Counts {
    pub read: usize,
    pub segments: usize,
    pub largest: usize,
    pub written: usize,
}

pub struct Router {
    pub way: Way,
    pub counts: Counts,
    packet: Vec<u8>,
    train: Vec<u8>,
}

impl Router {
    pub fn new(way: Way) -> Router {
        let buffer = || vec![0; PACKET_BUFFER];
        Router { way, counts: Counts::default(), packet: buffer(), train: Vec::new() }
    }

    /// Passes packets on between the devices until `stop` returns `true`, which is asked every 10 ms at least.
    pub fn run(&mut self, here: &TunQueue, there: &TunQueue, stop: impl Fn() -> bool) {
        let limit = Some(Duration::from_millis(10));
        while !stop() {
            wait_readable([here.as_fd(), there.as_fd()], limit).unwrap();
            for (from, to) in [(here, there), (there, here)] {
                while self.forward(from, to) {}
            }
        }
    }

    /// Passes one packet on: its segments are copied, as for a link, and then passed to the other device. Returns
    /// `false` when there is none.
    fn forward(&mut self, from: &TunQueue, to: &TunQueue) -> bool {
        let (header, packet) = match from.read(&mut self.packet) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        };
        self.counts.read += 1;
        self.train.clear();
        let mut segments = Segments::new(&header, packet).unwrap();
        let mut ends = Vec::new();
        while let Some(segment) = segments.next_segment() {
            self.train.extend_from_slice(segment.headers);
            self.train.extend_from_slice(segment.payload);
            ends.push((self.train.len(), segment.checksum));
            self.counts.segments += 1;
            self.counts.largest = self.counts.largest.max(segment.len());
        }
        let written = &mut self.counts.written;
        let mut coalescer = Coalescer::new();
        let mut finish = |coalescer: &mut Coalescer<'_>| {
            *written += 1;
            match coalescer.finish(|header, parts| to.write(header, parts)).unwrap() {
                Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
                _ => {}
            }
        };
        let mut start = 0;
        for (end, checksum) in ends {
            let segment = &self.train[start..end];
            start = end;
            if coalescer.push(segment, checksum) {
                if self.way == Way::Single {
                    finish(&mut coalescer);
                }
                continue;
            }
            finish(&mut coalescer);
            assert!(coalescer.push(segment, checksum));
        }
        if self.way == Way::Gathered {
            finish(&mut coalescer);
        }
        true
    }
}
