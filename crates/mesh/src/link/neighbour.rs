//! A neighbour and the link to it.

use ringway_sansio::Time;
use ringway_sansio::time::{Duration, sooner};

use super::handshake::{LinkAddress, Verified};
use super::interface::SLOW_INTERVAL;
use super::{Cost, LinkQuality, Liveness, ReplayWindow, cost};
use crate::budget::TokenBucket;
use crate::config::Limits;
use crate::crypto::CodeKey;
use crate::id::{Instance, NodeId};
use crate::wire::hello::Report;
use crate::wire::{DataView, Hello, Item, Slot};

/// Words of the windows of a link, on which packets hardly overtake each other.
const WINDOW: usize = 4;
/// Time for which a new link is used before HELLOs show what it is worth: its handshake has just passed in both
/// directions.
const TRIAL: Duration = Duration::from_secs(5);
/// Time after which data is acknowledged if nothing else goes to its sender.
const FEEDBACK_WAIT: Duration = Duration::from_millis(40);
/// Cost above which a link that was not usable stays so.
const GOOD_AGAIN: u16 = 8 * cost::UNIT;
/// Interval of HELLOs in a packet's units that is assumed before the first.
const ASSUMED_INTERVAL: u8 = (SLOW_INTERVAL.as_millis() / 20) as u8;

/// A verified neighbour.
#[derive(Debug)]
pub struct Neighbour<K> {
    /// Who it is.
    pub id: NodeId,
    /// Its start.
    pub instance: Instance,
    /// Where it is.
    pub address: LinkAddress,
    /// Largest UDP payload in octets that passes in both directions.
    pub mtu: u16,
    /// Its slot for us, once it has sent it.
    pub back: Option<Slot>,
    /// Its quality.
    pub quality: LinkQuality,
    pub(super) index: u32,
    pub(super) remote_index: u32,
    pub(super) keys: K,
    codes: [CodeKey; 2],
    sent: u64,
    data_sent: u32,
    /// Data packets that came since something sealed was sent, and when the first did.
    unacknowledged: u32,
    data_since: Option<Time>,
    pub(super) window: ReplayWindow<WINDOW>,
    data_window: ReplayWindow<WINDOW>,
    pub(super) hello_key: CodeKey,
    pub(super) liveness: Liveness,
    /// What its messages may cost.
    police: TokenBucket,
    /// The stamp of its newest HELLO, and when it came.
    heard: Option<(u32, Time)>,
    up_since: Time,
    usable: bool,
}

impl<K> Neighbour<K> {
    pub(super) fn new(
        now: Time,
        address: LinkAddress,
        mtu: u16,
        verified: Verified<K>,
        limits: &Limits,
    ) -> Self {
        let Verified { id, payload, index, remote_index, keys, codes } = verified;
        Neighbour {
            id,
            instance: payload.instance,
            address,
            mtu: mtu.min(payload.mtu),
            back: None,
            quality: LinkQuality::default(),
            index,
            remote_index,
            keys,
            codes,
            sent: 0,
            data_sent: 0,
            unacknowledged: 0,
            data_since: None,
            window: ReplayWindow::new(),
            data_window: ReplayWindow::new(),
            hello_key: CodeKey(payload.hello_key),
            liveness: Liveness::new(now, ASSUMED_INTERVAL),
            police: TokenBucket::new(limits.neighbour_rate, limits.neighbour_burst, now),
            heard: None,
            up_since: now,
            usable: true,
        }
    }

    /// Takes over the keys and the address of a new handshake.
    pub(super) fn renew(&mut self, now: Time, address: LinkAddress, verified: Verified<K>) {
        let Verified { payload, index, remote_index, keys, codes, .. } = verified;
        (self.address, self.index, self.remote_index, self.keys) =
            (address, index, remote_index, keys);
        self.codes = codes;
        (self.sent, self.data_sent) = (0, 0);
        (self.window, self.data_window) = (ReplayWindow::new(), ReplayWindow::new());
        self.hello_key = CodeKey(payload.hello_key);
        self.liveness = Liveness::new(now, ASSUMED_INTERVAL);
    }

    /// Returns whether the link carries packets.
    pub fn is_usable(&self) -> bool {
        self.usable
    }

    /// Returns when the link came up.
    pub fn up_since(&self) -> Time {
        self.up_since
    }

    /// Returns the cost of the link, or `None` if it is not usable.
    pub fn cost(&self, now: Time) -> Cost {
        let is_trial = now.since(self.up_since) < TRIAL;
        self.quality.cost().or(is_trial.then_some(cost::UNIT))
    }

    /// Returns the number of the next CONTROL packet.
    pub(super) fn next_number(&mut self) -> u64 {
        self.sent += 1;
        (self.unacknowledged, self.data_since) = (0, None);
        self.sent - 1
    }

    /// Addresses a data packet to the neighbour and completes its header. Returns whether the neighbour is suspect.
    pub(super) fn address_data(&mut self, now: Time, data: &mut DataView<'_>) -> bool {
        data.set_link(self.remote_index, self.data_sent);
        self.data_sent = self.data_sent.wrapping_add(1);
        let code = data.code(&self.codes[0]);
        data.set_code(code);
        self.liveness.data_sent(now);
        (self.unacknowledged, self.data_since) = (0, None);
        self.liveness.is_suspect()
    }

    /// Returns whether a data packet is from the neighbour, which is alive then, and whether it must be shown that it has
    /// arrived.
    pub(super) fn accept_data(&mut self, now: Time, data: &DataView<'_>) -> (bool, bool) {
        let number = self.data_window.expand(data.sequence());
        let is_good =
            self.data_window.is_fresh(number) && data.code(&self.codes[1]) == data.given_code();
        if is_good {
            self.data_window.note(number);
            self.liveness.hear(now, super::Sign::Sealed);
            self.unacknowledged += 1;
            self.data_since.get_or_insert(now);
        }
        (is_good, self.unacknowledged == 1)
    }

    /// Returns when the neighbour must be shown that its data has arrived.
    pub(super) fn feedback_due(&self) -> Option<Time> {
        self.data_since.map(|since| since + FEEDBACK_WAIT)
    }

    /// Returns the report of data that has arrived.
    pub(super) fn feedback(&self) -> Item<'static> {
        Item::Feedback { highest: 0, received: self.unacknowledged }
    }

    /// Returns whether a message of so many octets may be taken from it.
    pub(super) fn allows(&mut self, now: Time, octets: usize) -> bool {
        self.police.spend(now, u32::try_from(octets).unwrap_or(u32::MAX))
    }

    /// Returns when something is due.
    pub(super) fn poll_timeout(&self, neighbours: usize) -> Option<Time> {
        sooner(self.liveness.poll_timeout(neighbours), self.feedback_due())
    }

    /// Notes a HELLO with a good code. `reporting` is our short name, `sent` how many HELLOs it can have heard.
    pub(super) fn hear_hello(&mut self, now: Time, hello: &Hello, reporting: u16, sent: u64) {
        if !self.quality.hello(hello.sequence) {
            return;
        }
        self.heard = Some((hello.stamp, now));
        self.liveness.hear(now, super::Sign::Hello(hello.interval));
        for report in hello.reports.iter().filter(|report| report.tag == reporting) {
            self.quality.report(micros(now), report, sent.min(16) as u16);
        }
    }

    /// Returns what to report to the neighbour, or `None` before its first HELLO.
    pub(super) fn report(&self, now: Time) -> Option<Report> {
        let (stamp, at) = self.heard?;
        // Both wrap, and so does their difference.
        let held = (now.since(at).as_micros() / 64) as u16;
        let received = self.quality.received();
        Some(Report { tag: short_tag(self.id), received, echo: (stamp >> 4) as u16, held })
    }

    /// Decides whether the link is usable. Returns whether that has changed.
    pub(super) fn judge(&mut self, now: Time) -> bool {
        let cost = self.cost(now);
        let usable = match self.usable {
            true => cost.is_some(),
            false => cost.is_some_and(|cost| cost <= GOOD_AGAIN),
        };
        core::mem::replace(&mut self.usable, usable) != usable
    }
}

/// Returns a clock in microseconds that wraps.
pub(super) fn micros(now: Time) -> u32 {
    (now.as_nanos() / 1_000) as u32
}

/// Returns the short name of a router in the reports of a HELLO.
pub(super) fn short_tag(id: NodeId) -> u16 {
    id.tag(0).0 as u16
}
