//! A log of the outcome of each packet and its reason.

use crate::packet::{Departure, DropReason, Outlet, Packet};
use core::fmt::Write as _;
use ringway_sansio::Time;

/// An outlet that writes a line for each decision and passes it on.
///
/// One line is `time id what ...`: `enqueue`, `dequeue`, `deliver at <time> after <delay>` with `flip
/// <bit>` and `ce` where they apply, `drop <reason>`, `- id copy <new id>`. Times are nanoseconds since
/// the start in [`Logged::new`], so that two worlds with different clocks write the same.
#[derive(Debug)]
pub struct Logged<'a, O> {
    outlet: &'a mut O,
    lines: &'a mut String,
    start: Time,
}

impl<'a, O: Outlet> Logged<'a, O> {
    /// Creates an outlet that appends the calls of `outlet` to `lines`. Times count from `start`.
    pub fn new(outlet: &'a mut O, lines: &'a mut String, start: Time) -> Self {
        Logged { outlet, lines, start }
    }

    fn line(&mut self, at: Time, text: core::fmt::Arguments<'_>) {
        let at = at.since(self.start).as_nanos();
        // Writing to a string does not fail.
        let _ = writeln!(self.lines, "{at} {text}");
    }
}

impl<O: Outlet> Outlet for Logged<'_, O> {
    fn departs(&mut self, d: Departure) {
        let arrives = d.arrives.since(self.start).as_nanos();
        let delay = d.arrives.since(d.packet.queued).as_nanos();
        let mut text = format!("{} deliver at {arrives} after {delay}", d.packet.id);
        if let Some(bit) = d.flip {
            let _ = write!(text, " flip {bit}");
        }
        if d.packet.ecn == ringway_sansio::Ecn::Ce {
            text.push_str(" ce");
        }
        self.line(d.sent, format_args!("{text}"));
        self.outlet.departs(d);
    }

    fn dropped(&mut self, at: Time, packet: Packet, reason: DropReason) {
        self.line(at, format_args!("{} drop {reason}", packet.id));
        self.outlet.dropped(at, packet, reason);
    }

    fn copy(&mut self, packet: Packet) -> Option<u32> {
        let copy = self.outlet.copy(packet)?;
        let _ = writeln!(self.lines, "- {} copy {copy}", packet.id);
        Some(copy)
    }

    fn bytes(&mut self, packet: &Packet) -> &[u8] {
        self.outlet.bytes(packet)
    }

    fn enqueued(&mut self, at: Time, packet: Packet) {
        self.line(at, format_args!("{} enqueue", packet.id));
        self.outlet.enqueued(at, packet);
    }

    fn dequeued(&mut self, at: Time, packet: Packet) {
        self.line(at, format_args!("{} dequeue", packet.id));
        self.outlet.dequeued(at, packet);
    }
}
