//! A neighbour and the link to it.

use ringway_sansio::Time;
use ringway_sansio::time::{Duration, sooner};

use super::handshake::{LinkAddress, Verified};
use super::liveness::{USUAL_INTERVAL, proof_interval};
use super::{Cost, LinkQuality, Liveness, ReplayWindow, cost};
use crate::budget::SmallBucket;
use crate::crypto::CodeKey;
use crate::id::{Instance, NodeId};
use crate::wire::hello::Report;
use crate::wire::{DataView, HelloView, Slot};

/// Words of the windows of a link, on which packets hardly overtake each other.
const WINDOW: usize = 4;
/// The window before the first packet.
static NO_DATA: ReplayWindow<WINDOW> = ReplayWindow::new();
/// Time for which a new link is used before HELLOs show what it is worth: its handshake has just passed in both
/// directions.
const TRIAL: Duration = Duration::from_secs(5);
/// Time after which data is acknowledged if nothing else goes to its sender.
const FEEDBACK_WAIT: Duration = Duration::from_millis(40);
/// Time by which a HELLO may be late, in us.
const MAX_DELAY: u32 = 10_000_000;
/// Cost above which a link that was not usable stays so.
const GOOD_AGAIN: u16 = 8 * cost::UNIT;

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
    sent: u64,
    data_sent: u32,
    pub(super) window: ReplayWindow<WINDOW>,
    /// Unless no data has come: very many neighbours are simulated.
    data: Option<Box<DataReceived>>,
    pub(super) hello_key: CodeKey,
    pub(super) liveness: Liveness,
    /// What its messages may cost.
    police: SmallBucket,
    /// A stamp of its clock that it has certainly sent, and when it came.
    clock: u32,
    clock_at: Time,
    /// Whether a HELLO has come.
    heard: bool,
    /// Whether anything was reported to it.
    reported: bool,
    /// HELLOs that had been sent before the link came up.
    hellos: u32,
    up_since: Time,
    usable: bool,
    /// The cost by which the link was last judged.
    judged: u16,
}

/// The data packets of a neighbour.
#[derive(Debug, Default)]
struct DataReceived {
    window: ReplayWindow<WINDOW>,
    /// Those that came since something sealed was sent, and when the first did.
    unacknowledged: u32,
    since: Option<Time>,
}

/// What has changed about a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Judgement {
    /// Nothing.
    Same,
    /// Its cost, by more than a quarter.
    Cost,
    /// It can be used again.
    Usable,
    /// It cannot be used.
    Lossy,
}

impl<K> Neighbour<K> {
    pub(super) fn new(
        now: Time,
        address: LinkAddress,
        (mtu, hellos): (u16, u64),
        verified: Verified<K>,
    ) -> Self {
        let Verified { id, payload, index, remote_index, keys } = verified;
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
            sent: 0,
            data_sent: 0,
            window: ReplayWindow::new(),
            data: None,
            hello_key: CodeKey(payload.hello_key),
            liveness: Liveness::new(now, USUAL_INTERVAL),
            police: SmallBucket::FULL,
            clock: payload.stamp,
            clock_at: now,
            heard: false,
            reported: false,
            hellos: hellos as u32,
            up_since: now,
            usable: true,
            judged: cost::UNIT,
        }
    }

    /// Takes over the keys, the address and the clock of a new handshake, before which the interface had sent so many HELLOs.
    /// Those that did not count until then were not lost.
    pub(super) fn renew(
        &mut self,
        now: Time,
        address: LinkAddress,
        (mtu, hellos): (u16, u64),
        verified: Verified<K>,
    ) {
        let Verified { payload, index, remote_index, keys, .. } = verified;
        (self.address, self.index, self.remote_index, self.keys) =
            (address, index, remote_index, keys);
        self.mtu = mtu.min(payload.mtu);
        (self.clock, self.clock_at) = (payload.stamp, now);
        (self.heard, self.reported) = (false, false);
        self.hellos = hellos as u32;
        self.quality.restart();
        (self.sent, self.data_sent) = (0, 0);
        self.window = ReplayWindow::new();
        if let Some(data) = &mut self.data {
            data.window = ReplayWindow::new();
        }
        self.hello_key = CodeKey(payload.hello_key);
        self.liveness = Liveness::new(now, USUAL_INTERVAL);
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
        self.acknowledge();
        self.sent - 1
    }

    /// Addresses a data packet to the neighbour and completes its header. Returns whether the neighbour is suspect.
    pub(super) fn address_data(
        &mut self,
        now: Time,
        key: CodeKey,
        data: &mut DataView<'_>,
    ) -> bool {
        data.set_link(self.remote_index, self.data_sent);
        self.data_sent = self.data_sent.wrapping_add(1);
        let code = data.code(&key);
        data.set_code(code);
        self.liveness.data_sent(now);
        self.acknowledge();
        self.liveness.is_suspect()
    }

    /// Something that shows that the data has arrived is sent to the neighbour.
    fn acknowledge(&mut self) {
        if let Some(data) = &mut self.data {
            (data.unacknowledged, data.since) = (0, None);
        }
    }

    /// Returns whether a data packet is from the neighbour, which is alive then, and whether it must be shown that it has
    /// arrived.
    pub(super) fn accept_data(
        &mut self,
        now: Time,
        key: CodeKey,
        data: &DataView<'_>,
    ) -> (bool, bool) {
        let window = self.data.as_ref().map_or(&NO_DATA, |data| &data.window);
        let number = window.expand(data.sequence());
        let is_good = window.is_fresh(number) && data.code(&key) == data.given_code();
        if is_good {
            let data = self.data.get_or_insert_default();
            data.window.note(number);
            data.unacknowledged += 1;
            data.since.get_or_insert(now);
            self.liveness.hear(now, super::Sign::Sealed);
        }
        (is_good, self.data.as_ref().is_some_and(|data| data.unacknowledged == 1))
    }

    /// Returns when the neighbour must be shown that its data has arrived.
    pub(super) fn feedback_due(&self) -> Option<Time> {
        Some(self.data.as_ref()?.since? + FEEDBACK_WAIT)
    }

    /// Returns whether a message of so many octets may be taken from it.
    pub(super) fn allows(&mut self, now: Time, rate: (u32, u32), octets: usize) -> bool {
        self.police.spend(now, rate, u32::try_from(octets).unwrap_or(u32::MAX))
    }

    /// Returns when something is due.
    pub(super) fn poll_timeout(&self, neighbours: usize) -> Option<Time> {
        sooner(self.liveness.poll_timeout(neighbours), self.feedback_due())
    }

    /// Notes a HELLO with a good code, which any neighbour of the sender could have made, unless it has a report for us
    /// alone, which `key` shows. `tag` is our short name, `sent` how many HELLOs the interface has sent.
    pub(super) fn hear_hello(
        &mut self,
        now: Time,
        key: CodeKey,
        hello: &HelloView<'_>,
        (tag, sent): (u16, u64),
    ) {
        let (stamp, report) = (hello.stamp(), hello.report_about(tag, &key));
        if !self.is_of_now(now, stamp) || !self.quality.hello(hello.sequence(), report.is_some()) {
            return;
        }
        self.heard = true;
        let Some(report) = report else {
            self.liveness.hear(now, super::Sign::Hello(hello.interval()));
            return;
        };
        (self.clock, self.clock_at) = (stamp, now);
        self.liveness.hear(now, super::Sign::OwnHello(hello.interval()));
        let sent = (sent as u32).wrapping_sub(self.hellos);
        self.quality.report(micros(now), &report, sent.min(16) as u16);
    }

    /// Returns whether a HELLO has just been sent, by the clock of its sender: a recorded one has not.
    fn is_of_now(&self, now: Time, stamp: u32) -> bool {
        let elapsed = micros(now).wrapping_sub(micros(self.clock_at));
        let difference = stamp.wrapping_sub(self.clock).wrapping_sub(elapsed).cast_signed();
        difference.unsigned_abs() <= MAX_DELAY
    }

    /// Returns whether a HELLO with a good code is of another time than the clock of the neighbour shows, as far as that is
    /// known, and none of `neighbours` would be without a proof for so long: its clock or ours has stood still, or was set.
    pub(super) fn has_other_clock(&self, now: Time, stamp: u32, neighbours: usize) -> bool {
        !self.is_of_now(now, stamp) && now.since(self.clock_at) >= proof_interval(neighbours)
    }

    /// Returns what to report to the neighbour, or `None` before its first HELLO.
    pub(super) fn report(&self, now: Time) -> Option<Report> {
        if !self.heard {
            return None;
        }
        // Both wrap, and so does their difference.
        let held = (now.since(self.clock_at).as_micros() / 64) as u16;
        let received = self.quality.received();
        Some(Report { tag: short_tag(self.id), received, echo: (self.clock >> 4) as u16, held })
    }

    /// Returns what to report to the neighbour, if nothing was yet.
    pub(super) fn first_report(&mut self, now: Time) -> Option<Report> {
        let report = self.report(now).filter(|_| !self.reported)?;
        self.reported = true;
        Some(report)
    }

    /// Decides whether the link is usable, and what it costs. Returns what has changed.
    pub(super) fn judge(&mut self, now: Time) -> Judgement {
        let cost = self.cost(now);
        let usable = match self.usable {
            true => cost.is_some(),
            false => cost.is_some_and(|cost| cost <= GOOD_AGAIN),
        };
        let changed = core::mem::replace(&mut self.usable, usable) != usable;
        let cost = cost.unwrap_or(u16::MAX);
        let is_other = cost.abs_diff(self.judged) > self.judged / 4;
        if changed || is_other {
            self.judged = cost;
        }
        match (changed, usable) {
            (true, true) => Judgement::Usable,
            (true, false) => Judgement::Lossy,
            (false, true) if is_other => Judgement::Cost,
            (false, _) => Judgement::Same,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An allocator has a size class of 256 octets, and the next is a quarter more.
    #[test]
    fn a_neighbour_has_a_quarter_of_a_kilobyte() {
        let size = size_of::<Neighbour<[u64; 2]>>();
        assert!(size <= 256, "{size}");
    }
}
