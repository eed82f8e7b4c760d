//! Which client has which address, and until when.
//!
//! An address is chosen by a hash of the client, so that a client is offered the same address at every router that has
//! the same network, although routers know nothing of each other's leases. A client that asks for an address of its own
//! choice gets it if it is free: so one that moves keeps what it has.

use core::fmt::Write as _;
use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use ringway_sansio::Time;
use ringway_sansio::time::Duration;

use crate::site::Ipv4Lan;

/// Addresses that are remembered at most, leased or not.
pub const MAX_LEASES: usize = 1_024;
/// Addresses that clients of one hardware address may have at once, whatever names they use.
pub const MAX_OF_HARDWARE: usize = 4;
/// Duration of a lease.
pub const LEASE: Duration = Duration::from_secs(1_800);
/// Time for which an offered address is held (RFC 2131 section 3.1).
pub const OFFER: Duration = Duration::from_secs(30);
/// Time for which an address is not offered that another host was found to use.
pub const QUARANTINE: Duration = Duration::from_secs(600);
/// Longest text of leases that is read, in octets.
pub const MAX_TEXT: usize = MAX_LEASES * 96;

/// Octets of the hash of a client, and of a hardware address.
const CLIENT: usize = 16;
const HARDWARE: usize = 8;

/// A client: a hash of its identifier, or else of its hardware address (RFC 2131 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Client {
    id: [u8; CLIENT],
    hardware: [u8; HARDWARE],
}

impl Client {
    /// The client with a hardware address of a kind, and an identifier if it has sent one.
    pub fn new(hardware_kind: u8, hardware: &[u8], identifier: Option<&[u8]>) -> Client {
        let hash = |kind: &[u8], octets: &[u8]| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(kind).update(octets);
            *hasher.finalize().as_bytes()
        };
        let of_hardware = hash(&[1, hardware_kind], hardware);
        let of_client = identifier.map_or(of_hardware, |identifier| hash(&[2], identifier));
        Client { id: first(&of_client), hardware: first(&of_hardware) }
    }

    /// Returns the hash of the hardware address.
    pub fn hardware(&self) -> [u8; HARDWARE] {
        self.hardware
    }

    /// Returns a number that is the same at every router.
    fn number(&self) -> u64 {
        u64::from_be_bytes(first(&self.id))
    }
}

/// Returns the first octets of a hash.
fn first<const N: usize, const M: usize>(hash: &[u8; M]) -> [u8; N] {
    let mut octets = [0; N];
    octets.iter_mut().zip(hash).for_each(|(to, from)| *to = *from);
    octets
}

/// What is known of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// It was offered to the client.
    Offered,
    /// The client has it.
    Bound,
    /// The client has reported that another host uses it.
    Declined,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    client: Client,
    state: Use,
    until: Time,
}

impl Entry {
    fn is_live(&self, now: Time) -> bool {
        now < self.until
    }
}

/// Why a client gets no address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unavailable {
    /// Its hardware address has as many as one may have.
    Share,
    /// Every address is in use, or the table is full.
    Exhausted,
}

/// The addresses of one LAN.
#[derive(Clone, Debug)]
pub struct Leases {
    lan: Ipv4Lan,
    entries: BTreeMap<Ipv4Addr, Entry>,
    /// The address that each client had last.
    of_clients: BTreeMap<[u8; CLIENT], Ipv4Addr>,
    changed: bool,
}

impl Leases {
    /// No leases in a network.
    pub fn new(lan: Ipv4Lan) -> Leases {
        Leases { lan, entries: BTreeMap::new(), of_clients: BTreeMap::new(), changed: false }
    }

    /// Returns the number of addresses that are remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no address is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of addresses that clients have.
    pub fn bound(&self, now: Time) -> usize {
        let is_bound = |entry: &&Entry| entry.state == Use::Bound && entry.is_live(now);
        self.entries.values().filter(is_bound).count()
    }

    /// Returns whether there are other leases than when this was called last.
    pub fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    /// Holds an address for a client (RFC 2131 section 4.3.1): the one it has or had, the one it asks for, or the one
    /// that follows from its name, and the first free one behind it.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub fn offer(
        &mut self,
        now: Time,
        client: Client,
        requested: Option<Ipv4Addr>,
    ) -> Result<Ipv4Addr, Unavailable> {
        let known = self.of_clients.get(&client.id).copied();
        let free = known.filter(|&address| self.is_free_for(now, address, &client));
        let free = free.or(requested.filter(|&address| self.is_free_for(now, address, &client)));
        let address = match free {
            Some(address) => address,
            None => self.first_free(now, &client).ok_or(Unavailable::Exhausted)?,
        };
        let held = self.entries.get(&address).filter(|entry| entry.is_live(now));
        // Another question does not shorten a lease.
        if held.is_none_or(|entry| entry.state != Use::Bound) {
            self.hold(now, address, client, Use::Offered, now + OFFER)?;
        }
        Ok(address)
    }

    /// Leases an address to a client if it is free, or the client's already.
    ///
    /// # Errors
    /// `None` if it is another's or no address of the network; else [`Unavailable`].
    pub fn bind(
        &mut self,
        now: Time,
        client: Client,
        address: Ipv4Addr,
    ) -> Result<(), Option<Unavailable>> {
        if !self.is_free_for(now, address, &client) {
            return Err(None);
        }
        self.hold(now, address, client, Use::Bound, now + LEASE).map_err(Some)?;
        self.changed = true;
        Ok(())
    }

    /// Ends what a client has of an address (RFC 2131 section 4.3.4). The client is offered the same again, unless
    /// another needs it.
    pub fn release(&mut self, now: Time, client: &Client, address: Ipv4Addr) {
        if let Some(entry) = self.owned(client, address) {
            entry.until = now;
            self.changed = true;
        }
    }

    /// Takes back what was offered to a client that has chosen another server.
    pub fn withdraw(&mut self, now: Time, client: &Client) {
        let Some(&address) = self.of_clients.get(&client.id) else { return };
        if let Some(entry) = self.owned(client, address).filter(|entry| entry.state == Use::Offered)
        {
            entry.until = now;
        }
    }

    /// Notes that another host uses the address which a client was given (RFC 2131 section 4.3.3). Returns whether it
    /// was the client's.
    pub fn decline(&mut self, now: Time, client: &Client, address: Ipv4Addr) -> bool {
        let Some(entry) = self.owned(client, address) else { return false };
        (entry.state, entry.until) = (Use::Declined, now + QUARANTINE);
        self.of_clients.remove(&client.id);
        self.changed = true;
        true
    }

    /// Returns the entry of an address that a client was offered or has.
    fn owned(&mut self, client: &Client, address: Ipv4Addr) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&address)?;
        (entry.client.id == client.id && entry.state != Use::Declined).then_some(entry)
    }

    /// Returns whether a client may have an address.
    fn is_free_for(&self, now: Time, address: Ipv4Addr, client: &Client) -> bool {
        let is_free = self.entries.get(&address).is_none_or(|entry| {
            !entry.is_live(now) || (entry.client.id == client.id && entry.state != Use::Declined)
        });
        self.lan.is_host(address) && is_free
    }

    /// Returns the first free address from the one on that follows from the client's name. An address that another
    /// client had is used only when there is no fresh one.
    fn first_free(&self, now: Time, client: &Client) -> Option<Ipv4Addr> {
        let first = self.lan.network().to_bits() + 1;
        let count = self.lan.broadcast().to_bits() - first;
        let start = client.number() % u64::from(count);
        // One more than are in use is enough to find one that is not.
        let tries = u64::from(count).min(self.entries.len() as u64 + 2);
        let at = |n: u64| Ipv4Addr::from_bits(first + ((start + n) % u64::from(count)) as u32);
        let mut candidates =
            (0..tries).map(at).filter(|&address| self.is_free_for(now, address, client));
        let fresh = candidates.clone().find(|address| !self.entries.contains_key(address));
        fresh.or_else(|| candidates.next())
    }

    /// Writes an entry.
    fn hold(
        &mut self,
        now: Time,
        address: Ipv4Addr,
        client: Client,
        state: Use,
        until: Time,
    ) -> Result<(), Unavailable> {
        let others = self.entries.iter().filter(|(other, entry)| {
            **other != address && entry.client.hardware == client.hardware && entry.is_live(now)
        });
        if others.count() >= MAX_OF_HARDWARE {
            return Err(Unavailable::Share);
        }
        if self.entries.len() >= MAX_LEASES && !self.entries.contains_key(&address) {
            self.make_room(now)?;
        }
        let before = self.entries.insert(address, Entry { client, state, until });
        if let Some(before) = before.filter(|before| before.client.id != client.id)
            && self.of_clients.get(&before.client.id) == Some(&address)
        {
            self.of_clients.remove(&before.client.id);
        }
        self.of_clients.insert(client.id, address);
        Ok(())
    }

    /// Removes the entry that has ended first.
    fn make_room(&mut self, now: Time) -> Result<(), Unavailable> {
        let ended = self.entries.iter().filter(|(_, entry)| !entry.is_live(now));
        let oldest = ended.min_by_key(|(_, entry)| entry.until).map(|(&address, _)| address);
        let address = oldest.ok_or(Unavailable::Exhausted)?;
        if let Some(entry) = self.entries.remove(&address)
            && self.of_clients.get(&entry.client.id) == Some(&address)
        {
            self.of_clients.remove(&entry.client.id);
        }
        Ok(())
    }

    /// Returns all leases that last as text, a line for each: address, end in seconds since the epoch, and the hashes of
    /// the client and of its hardware address.
    pub fn to_text(&self, now: Time) -> String {
        let mut text = String::new();
        for (address, entry) in &self.entries {
            if entry.state == Use::Bound && entry.is_live(now) {
                let (seconds, id) = (entry.until.as_secs(), u128::from_be_bytes(entry.client.id));
                let hardware = u64::from_be_bytes(entry.client.hardware);
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{address} {seconds} {id:032x} {hardware:016x}");
            }
        }
        text
    }

    /// Adds the leases of a text. Returns the number of lines that are none, or of another network. A lease whose end
    /// is further away than one lasts, because the clock was set, ends after the duration of a lease.
    pub fn restore(&mut self, now: Time, text: &str) -> usize {
        let mut bad = 0;
        for line in text.lines().take(MAX_LEASES) {
            let Some((address, client, until)) = parse(line) else {
                bad += 1;
                continue;
            };
            let until = until.min(now + LEASE);
            let is_new = self.is_free_for(now, address, &client) && now < until;
            let is_bad = !self.lan.is_host(address)
                || (is_new && self.hold(now, address, client, Use::Bound, until).is_err());
            bad += usize::from(is_bad);
        }
        bad
    }
}

/// Returns what a line of a text of leases has.
fn parse(line: &str) -> Option<(Ipv4Addr, Client, Time)> {
    let mut words = line.split(' ');
    let (address, seconds) = (words.next()?.parse().ok()?, words.next()?.parse::<u64>().ok()?);
    let id = u128::from_str_radix(words.next()?, 16).ok()?.to_be_bytes();
    let hardware = u64::from_str_radix(words.next()?, 16).ok()?.to_be_bytes();
    let until = Time::from_nanos(seconds.checked_mul(1_000_000_000)?);
    words.next().is_none().then_some((address, Client { id, hardware }, until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAN: Ipv4Lan = Ipv4Lan::DEFAULT;

    fn client(n: u32) -> Client {
        Client::new(1, &n.to_be_bytes(), None)
    }

    fn at(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 50, 60, last)
    }

    #[test]
    fn a_client_is_offered_the_same_address_at_every_router() {
        let now = Time::from_secs(100);
        for n in 0..50 {
            let (mut one, mut two) = (Leases::new(LAN), Leases::new(LAN));
            let address = one.offer(now, client(n), None).unwrap();
            assert_eq!(two.offer(now, client(n), None), Ok(address));
            assert!(LAN.is_host(address));
        }
    }

    #[test]
    fn a_client_that_moves_keeps_its_address_if_it_is_free() {
        let (mut leases, now) = (Leases::new(LAN), Time::from_secs(100));
        leases.bind(now, client(1), at(77)).unwrap();
        assert_eq!(leases.bind(now, client(2), at(77)), Err(None), "another has it");
        assert_eq!(leases.bind(now, client(2), at(78)), Ok(()));
        assert_eq!(leases.bind(now, client(3), at(1)), Err(None), "the router's");
        assert_eq!(leases.bind(now, client(3), [192, 168, 1, 2].into()), Err(None));
        assert_eq!(leases.bound(now), 2);
        // A lease that has ended is free.
        assert_eq!(leases.bind(now + LEASE, client(2), at(77)), Ok(()));
    }

    #[test]
    fn a_client_gets_back_what_it_had() {
        let (mut leases, now) = (Leases::new(LAN), Time::from_secs(100));
        leases.bind(now, client(1), at(77)).unwrap();
        leases.release(now, &client(1), at(77));
        assert_eq!(leases.bound(now), 0);
        assert_eq!(leases.offer(now, client(1), Some(at(9))), Ok(at(77)));
        // Not when another has got it meanwhile.
        leases.bind(now + OFFER, client(2), at(77)).unwrap();
        assert_eq!(leases.offer(now + OFFER, client(1), Some(at(9))), Ok(at(9)));
    }

    #[test]
    fn a_lease_is_released_and_declined_by_its_client_alone() {
        let (mut leases, now) = (Leases::new(LAN), Time::from_secs(100));
        leases.bind(now, client(1), at(77)).unwrap();
        leases.release(now, &client(2), at(77));
        assert!(!leases.decline(now, &client(2), at(77)));
        assert_eq!(leases.bound(now), 1);
        assert!(leases.decline(now, &client(1), at(77)));
        assert_eq!(leases.bind(now, client(1), at(77)), Err(None), "another host uses it");
        assert!(!leases.decline(now, &client(1), at(77)), "once");
        assert_eq!(leases.bind(now + QUARANTINE, client(1), at(77)), Ok(()));
    }

    #[test]
    fn a_hardware_address_has_a_share_whatever_names_it_uses() {
        let (mut leases, now) = (Leases::new(LAN), Time::from_secs(100));
        let named = |n: u8| Client::new(1, &[7; 6], Some(&[n]));
        for n in 0..MAX_OF_HARDWARE {
            leases.offer(now, named(n as u8), None).unwrap();
        }
        assert_eq!(leases.offer(now, named(99), None), Err(Unavailable::Share));
        assert!(leases.offer(now, client(1), None).is_ok(), "others are not concerned");
        assert!(leases.offer(now + OFFER, named(99), None).is_ok());
    }

    #[test]
    fn a_hardware_address_declines_no_more_than_its_share() {
        let (mut leases, now) = (Leases::new(LAN), Time::from_secs(100));
        let mut declined = 0;
        for n in 0..50_u8 {
            let client = Client::new(1, &[7; 6], Some(&[n]));
            if let Ok(address) = leases.offer(now, client, None) {
                declined += usize::from(leases.decline(now, &client, address));
            }
        }
        assert_eq!(declined, MAX_OF_HARDWARE);
    }

    #[test]
    fn a_network_that_is_full_has_no_address_until_a_lease_ends() {
        let lan = Ipv4Lan::new(at(1), 29).unwrap();
        let (mut leases, now) = (Leases::new(lan), Time::from_secs(100));
        for n in 0..5 {
            let address = leases.offer(now, client(n), None).unwrap();
            leases.bind(now, client(n), address).unwrap();
        }
        assert_eq!(leases.offer(now, client(9), None), Err(Unavailable::Exhausted));
        assert!(leases.offer(now + LEASE, client(9), None).is_ok());
    }

    #[test]
    fn the_table_is_bounded() {
        let lan = Ipv4Lan::new([10, 50, 0, 1].into(), 16).unwrap();
        let (mut leases, now) = (Leases::new(lan), Time::from_secs(100));
        let offered = |leases: &mut Leases, now, from: u32| {
            (from..from + 2_000).filter(|&n| leases.offer(now, client(n), None).is_ok()).count()
        };
        assert_eq!(offered(&mut leases, now, 0), MAX_LEASES);
        assert_eq!(offered(&mut leases, now + OFFER, 5_000), MAX_LEASES);
        assert_eq!((leases.len(), leases.of_clients.len()), (MAX_LEASES, MAX_LEASES));
    }

    #[test]
    fn leases_survive_as_text() {
        let (mut leases, now) = (Leases::new(LAN), Time::from_secs(100));
        leases.bind(now, client(1), at(77)).unwrap();
        leases.offer(now, client(2), None).unwrap();
        assert!(leases.take_changed() && !leases.take_changed());
        let text = leases.to_text(now);
        assert_eq!(text.lines().count(), 1, "an offer is no lease");
        assert!(text.starts_with("10.50.60.77 1900 "));
        let mut again = Leases::new(LAN);
        assert_eq!(again.restore(now, &text), 0);
        assert_eq!(again.to_text(now), text);
        assert_eq!(again.bind(now, client(2), at(77)), Err(None));
        // A clock that was set back, and a network that was renumbered.
        let mut early = Leases::new(LAN);
        assert_eq!(early.restore(Time::from_secs(5), &text), 0);
        assert!(early.to_text(Time::from_secs(5)).starts_with("10.50.60.77 1805 "));
        let mut other = Leases::new(Ipv4Lan::new([10, 9, 8, 1].into(), 24).unwrap());
        assert_eq!((other.restore(now, &text), other.len()), (1, 0));
        assert_eq!(other.restore(now, "10.9.8.7\n\n10.9.8.7 x y z\n10.9.8.9 1 2 3 4\n"), 4);
    }

    proptest! {
        #[test]
        fn text_of_any_kind_is_read(text in "[ -~\n]{0,400}") {
            let mut leases = Leases::new(LAN);
            leases.restore(Time::from_secs(100), &text);
            prop_assert!(leases.len() <= MAX_LEASES);
        }

        /// Whatever clients do, no address has two clients, and both tables agree.
        #[test]
        fn no_address_has_two_clients(steps in prop::collection::vec((0..5_u8, 0..12_u32, 0..8_u8, 0..700_u64), 1..200)) {
            let lan = Ipv4Lan::new(at(1), 29).unwrap();
            let (mut leases, mut now) = (Leases::new(lan), Time::from_secs(100));
            for (action, n, last, wait) in steps {
                now += Duration::from_secs(wait);
                let (who, address) = (client(n), at(last));
                match action {
                    0 => _ = leases.offer(now, who, Some(address)),
                    1 => _ = leases.bind(now, who, address),
                    2 => leases.release(now, &who, address),
                    3 => _ = leases.decline(now, &who, address),
                    _ => leases.withdraw(now, &who),
                }
                for (id, address) in &leases.of_clients {
                    prop_assert_eq!(&leases.entries[address].client.id, id);
                }
                prop_assert!(leases.entries.keys().all(|&address| lan.is_host(address)));
                prop_assert!(leases.of_clients.len() <= leases.entries.len());
            }
        }
    }
}
