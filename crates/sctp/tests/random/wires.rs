//! The links between the hosts, and what they do to packets.

use crate::plan::{Plan, UDP_PORT};
use crate::support::{A1, A2, B1, B2, Dice, ms};
use ringway_sansio::{Addressing, Duration, Ecn, Icmp, Time};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

const A3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 3, 1));
const B3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 3, 2));
const A4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 4, 1));
const B4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 4, 2));
/// Links between the hosts.
pub const LINKS: usize = 4;
/// Addresses of both hosts, by link.
pub const ADDRESSES: [[IpAddr; LINKS]; 2] = [[A1, A2, A3, A4], [B1, B2, B3, B4]];
/// Bytes of an IPv4 and of a UDP header.
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// A packet on its way.
pub struct Flying {
    pub to: usize,
    pub addressing: Addressing,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Link {
    cut_until: Time,
    mtu: usize,
}

/// What happens to packets. Chances are in percent.
pub struct Wires {
    loss: u64,
    copies: u64,
    late: u64,
    damage: u64,
    /// Marked as having met congestion, where that is allowed.
    marks: u64,
    latency: Duration,
    /// Whether routers report packets that are too big; they omit half of the reports.
    icmp: bool,
    across: bool,
    checked: bool,
    /// The opener's UDP port, as its NAT has it now.
    nat: u16,
    links: [Link; LINKS],
    /// Addresses that their hosts have no more.
    vanished: Vec<IpAddr>,
    flying: BTreeMap<(Time, u64), Flying>,
    serial: u64,
}

impl Wires {
    pub fn draw(plan: &Plan, dice: &mut Dice) -> Wires {
        Wires {
            loss: dice.of(&[0, 0, 2, 8, 15]),
            copies: dice.of(&[0, 3, 10]),
            late: dice.of(&[0, 5, 30]),
            damage: dice.of(&[0, 0, 3]),
            marks: dice.of(&[0, 5]),
            latency: ms(dice.of(&[1, 10, 80])),
            icmp: dice.chance(50),
            across: plan.across,
            checked: !plan.dtls,
            nat: 20_000,
            links: [Link { cut_until: Time::ZERO, mtu: 1500 }; LINKS],
            vanished: Vec::new(),
            flying: BTreeMap::new(),
            serial: 0,
        }
    }

    /// Cables are in again, and little is lost.
    pub fn heal(&mut self) {
        self.loss = self.loss.min(5);
        self.late = self.late.min(5);
        self.damage = 0;
        for link in &mut self.links {
            link.cut_until = Time::ZERO;
        }
    }

    /// Little goes wrong: what happens then is not the wires' doing.
    pub fn spare(&mut self, dice: &mut Dice) {
        (self.loss, self.damage) = (dice.of(&[0, 0, 1, 2]), 0);
    }

    /// A host loses an address: nothing can be sent from it, and what comes to it is lost.
    pub fn vanish(&mut self, address: IpAddr) {
        self.vanished.push(address);
    }

    pub fn cut(&mut self, link: usize, until: Time) {
        self.links[link].cut_until = until;
    }

    pub fn set_mtu(&mut self, link: usize, mtu: usize) {
        self.links[link].mtu = mtu;
    }

    pub fn set_nat(&mut self, port: u16) {
        self.nat = port;
    }

    pub fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }

    /// When the next packet arrives.
    pub fn next(&self) -> Option<Time> {
        self.flying.keys().next().map(|key| key.0)
    }

    /// The next packet that has arrived.
    pub fn arrived(&mut self, now: Time) -> Option<Flying> {
        let first = self.flying.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Sends a packet of a host. A router's report is returned to it.
    pub fn carry(
        &mut self,
        dice: &mut Dice,
        now: Time,
        from: usize,
        addressing: Addressing,
        bytes: &[u8],
    ) -> Option<Icmp> {
        if self.vanished.contains(&addressing.source) {
            // A host's IP reports that it cannot send from that address.
            return Some(Icmp::Unreachable);
        }
        let link = self.route(now, &addressing)?;
        let size = bytes.len() + IP_HEADER + if addressing.udp_port == 0 { 0 } else { UDP_HEADER };
        if size > link.mtu && addressing.fragment.is_none_or(|mtu| usize::from(mtu) > link.mtu) {
            let told = self.icmp && dice.chance(50);
            return told.then_some(Icmp::TooBig(link.mtu as u32));
        }
        let addressing = self.translate(from, addressing)?;
        if dice.chance(self.loss) {
            return None;
        }
        let copies =
            1 + u64::from(dice.chance(self.copies)) + u64::from(dice.chance(self.copies / 3));
        for copy in 0..copies {
            let mut addressing = addressing;
            if addressing.ecn == Ecn::Ect0 && dice.chance(self.marks) {
                addressing.ecn = Ecn::Ce;
            }
            let at = now + self.delay(dice, size, copy > 0);
            let bytes = self.damage(dice, bytes.to_vec());
            self.serial += 1;
            self.flying.insert((at, self.serial), Flying { to: 1 - from, addressing, bytes });
        }
        None
    }

    /// The link of a packet, if it leads to where the packet goes.
    fn route(&self, now: Time, addressing: &Addressing) -> Option<Link> {
        let link =
            |address: IpAddr| (0..LINKS).find(|i| ADDRESSES.iter().any(|a| a[*i] == address));
        let (first, last) = (link(addressing.source)?, link(addressing.destination)?);
        if self.vanished.contains(&addressing.destination) {
            return None;
        }
        let whole = [first, last].iter().all(|link| self.links[*link].cut_until <= now);
        (whole && (first == last || self.across)).then(|| self.links[first])
    }

    /// UDP ports as they are on the other side of the NAT, where the packet passes it.
    fn translate(&self, from: usize, addressing: Addressing) -> Option<Addressing> {
        let (to, comes_from) = if from == 0 { (UDP_PORT, self.nat) } else { (self.nat, UDP_PORT) };
        let udp_port = match addressing.udp_port {
            0 => 0,
            port if port == to => comes_from,
            _ => return None,
        };
        Some(Addressing { udp_port, fragment: None, ..addressing })
    }

    fn delay(&self, dice: &mut Dice, size: usize, copy: bool) -> Duration {
        // A microsecond a byte.
        let mut delay = self.latency + Duration::from_micros(size as u64);
        if dice.chance(self.late) {
            delay += Duration::from_micros(dice.below(60_000));
        }
        if copy {
            let most = if dice.chance(10) { 3_000_000 } else { 100_000 };
            delay += Duration::from_micros(dice.below(most));
        }
        delay
    }

    /// Inverts some bits and cuts off the end; where no checksum would detect it, nothing.
    fn damage(&self, dice: &mut Dice, mut bytes: Vec<u8>) -> Vec<u8> {
        if !self.checked || !dice.chance(self.damage) {
            return bytes;
        }
        for _ in 0..1 + dice.below(3) {
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << dice.below(8);
        }
        if dice.chance(30) {
            bytes.truncate(dice.below(bytes.len() as u64) as usize);
        }
        bytes
    }
}
