//! The options of a received packet.

use super::Connection;
use crate::features::Location;
use crate::seq::Seq;
use crate::wire::option::kind;
use crate::wire::{DccpOption, Kind, Packet, Reset, ResetCode};
use ringway_sansio::Duration;

/// Maximum number of Ack Vector options that are read of a packet: all that fit its header.
const MAX_VECTORS: usize = 8;

/// What the options of a packet state, but for features.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stated<'a> {
    vectors: [&'a [u8]; MAX_VECTORS],
    vector_count: usize,
    pub(super) dropped: &'a [u8],
    pub(super) cookie: Option<&'a [u8]>,
    pub(super) ndp: Option<u64>,
    pub(super) elapsed: Duration,
    pub(super) timestamp: Option<u32>,
    pub(super) data_checksum: Option<u32>,
    pub(super) slow_receiver: bool,
    pub(super) loss_event_rate: Option<u32>,
    pub(super) loss_intervals: Option<&'a [u8]>,
    pub(super) receive_rate: Option<u32>,
}

impl<'a> Stated<'a> {
    /// Returns the Ack Vectors.
    pub(super) fn vectors(&self) -> &[&'a [u8]] {
        &self.vectors[..self.vector_count]
    }
}

impl Connection {
    /// Reads the options of a packet, and handles those of features (RFC 4340 section 8.5, step 8).
    ///
    /// # Errors
    /// The Reset that a fault is answered with.
    pub(super) fn handle_options<'a>(
        &mut self,
        packet: &Packet<'a>,
        seq: Seq,
        ack: Option<Seq>,
    ) -> Result<Stated<'a>, Reset> {
        let is_data = packet.header.kind == Kind::Data;
        let mut stated = Stated::default();
        let mut mandatory = false;
        let (accepts, mut handled) = (self.features.accepts(seq), false);
        for option in packet.options() {
            let option =
                option.map_err(|(kind, _)| Reset::of_option(ResetCode::OptionError, kind, &[]))?;
            // RFC 4340 table 3: what a Data packet may not carry is ignored there.
            if is_data && !option.is_for_data() {
                continue;
            }
            if option == DccpOption::Mandatory {
                if mandatory {
                    return Err(Reset::of_option(ResetCode::OptionError, kind::MANDATORY, &[]));
                }
                mandatory = true;
                continue;
            }
            match option {
                DccpOption::ChangeL(number, values) if accepts => {
                    handled = true;
                    self.features.handle_change(number, Location::Remote, values, mandatory)?;
                }
                DccpOption::ChangeR(number, values) if accepts => {
                    handled = true;
                    self.features.handle_change(number, Location::Local, values, mandatory)?;
                }
                DccpOption::ConfirmL(number, values) if accepts => {
                    handled = true;
                    self.features.handle_confirm(number, Location::Remote, values, ack)?;
                }
                DccpOption::ConfirmR(number, values) if accepts => {
                    handled = true;
                    self.features.handle_confirm(number, Location::Local, values, ack)?;
                }
                DccpOption::Unknown(kind, value) if mandatory => {
                    return Err(Reset::of_option(ResetCode::MandatoryError, kind, value));
                }
                other => note(&mut stated, other),
            }
            mandatory = false;
        }
        if mandatory {
            // RFC 4340 section 5.8.2: nothing follows it.
            return Err(Reset::of_option(ResetCode::OptionError, kind::MANDATORY, &[]));
        }
        if handled {
            self.features.handled(seq);
            self.apply_features();
        }
        Ok(stated)
    }
}

fn note<'a>(stated: &mut Stated<'a>, option: DccpOption<'a>) {
    match option {
        DccpOption::SlowReceiver => stated.slow_receiver = true,
        DccpOption::InitCookie(cookie) => stated.cookie = Some(cookie),
        DccpOption::NdpCount(count) => stated.ndp = Some(count),
        DccpOption::AckVector(vector) => {
            if let Some(slot) = stated.vectors.get_mut(stated.vector_count) {
                *slot = vector;
                stated.vector_count += 1;
            }
        }
        // One that follows continues where the first ends; what it says is left out.
        DccpOption::DataDropped(blocks) if stated.dropped.is_empty() => stated.dropped = blocks,
        DccpOption::Timestamp(time) => stated.timestamp = Some(time),
        DccpOption::TimestampEcho(_, elapsed) | DccpOption::ElapsedTime(elapsed) => {
            stated.elapsed = Duration::from_micros(u64::from(elapsed) * 10);
        }
        DccpOption::DataChecksum(crc) => stated.data_checksum = Some(crc),
        DccpOption::LossEventRate(rate) => stated.loss_event_rate = Some(rate),
        DccpOption::LossIntervals(value) => stated.loss_intervals = Some(value),
        DccpOption::ReceiveRate(rate) => stated.receive_rate = Some(rate),
        _ => {}
    }
}
