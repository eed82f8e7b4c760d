//! Feature negotiation (RFC 4340 section 6).

use crate::seq::Seq;
use crate::settings::{Ccid, Settings};
use crate::wire::feature::{ALL, Feature};
use crate::wire::option::kind;
use crate::wire::{self, DccpOption, Reset, ResetCode};
use ringway_sansio::{Duration, Time};

/// Time before a Change is sent again for the first time. It doubles up to [`MAX_RESEND`].
const FIRST_RESEND: Duration = Duration::from_secs(1);
/// Maximum time before a Change is sent again (RFC 4340 section 6.6.3).
const MAX_RESEND: Duration = Duration::from_secs(64);
/// Number of times that a Change is sent until it is given up.
pub const MAX_CHANGES: u32 = 10;
/// Maximum length in bytes of Confirm options that wait to be sent. Changes beyond it are ignored, and
/// the peer repeats them.
pub const MAX_CONFIRMS: usize = 400;
/// Maximum number of preferences.
const MAX_PREFERENCES: usize = 16;

/// Where a feature is located (RFC 4340 section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Location {
    Local,
    Remote,
}

/// Values in order of preference.
#[derive(Clone, Copy, Debug, Default)]
struct Preferences {
    list: [u8; MAX_PREFERENCES],
    len: usize,
}

impl Preferences {
    fn new(values: impl IntoIterator<Item = u8>) -> Preferences {
        let mut preferences = Preferences::default();
        for (slot, value) in preferences.list.iter_mut().zip(values) {
            *slot = value;
            preferences.len += 1;
        }
        preferences
    }

    fn values(&self) -> &[u8] {
        &self.list[..self.len]
    }
}

/// Returns the first value of the server's list that the client's contains (RFC 4340 section 6.3.1).
fn agree(server: &[u8], client: &[u8]) -> Option<u8> {
    server.iter().copied().find(|value| client.contains(value))
}

/// One feature at one location.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    value: u64,
    preferences: Preferences,
    /// The value that a non-negotiable feature changes to.
    target: u64,
    /// Whether a Change waits for its Confirm.
    changing: bool,
    mandatory: bool,
    /// Whether the peer has refused the preferred value, so that it is not asked for again.
    refused: bool,
    /// The first packet with this Change. A Confirm acknowledges it or a later one (RFC 4340 section
    /// 6.6.4).
    since: Option<Seq>,
}

/// The features of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Features {
    is_server: bool,
    entries: [[Entry; 2]; ALL.len()],
    /// Encoded Confirms that wait to be sent.
    confirms: Vec<u8>,
    /// Whether Changes belong on the next packet.
    due: bool,
    resend_at: Option<Time>,
    attempts: u32,
    /// The newest packet whose feature options were handled (RFC 4340 section 6.6.4).
    newest: Option<Seq>,
    /// Number of Changes given up.
    pub(crate) abandoned: u64,
}

impl Features {
    /// Sets preferences by the settings, and begins the Changes that they need.
    pub(crate) fn new(is_server: bool, settings: &Settings) -> Features {
        let mut features = Features {
            is_server,
            entries: [[Entry::default(); 2]; ALL.len()],
            confirms: Vec::new(),
            due: false,
            resend_at: None,
            attempts: 0,
            newest: None,
            abandoned: 0,
        };
        for feature in ALL {
            for location in [Location::Local, Location::Remote] {
                let entry = features.entry(feature, location);
                entry.value = feature.initial();
                entry.preferences = preferences(feature, location, settings);
            }
        }
        features.begin(settings);
        features
    }

    fn begin(&mut self, settings: &Settings) {
        use Location::{Local, Remote};
        let tfrc = settings.ccid == Ccid::Tfrc;
        for (wanted, feature, location) in [
            (tfrc || settings.ccid_mandatory, Feature::Ccid, Local),
            (tfrc || settings.ccid_mandatory, Feature::Ccid, Remote),
            (settings.short_seqnos, Feature::AllowShortSeqnos, Local),
            (settings.short_seqnos, Feature::AllowShortSeqnos, Remote),
            (!settings.ecn, Feature::EcnIncapable, Local),
            // RFC 4341 section 4: CCID 2 needs Ack Vectors.
            (!tfrc, Feature::SendAckVector, Remote),
            (settings.ndp_count, Feature::SendNdpCount, Local),
            (settings.ndp_count, Feature::SendNdpCount, Remote),
            (settings.min_coverage > 0, Feature::MinChecksumCoverage, Local),
            (settings.coverage > 0, Feature::MinChecksumCoverage, Remote),
            (settings.data_checksum, Feature::CheckDataChecksum, Remote),
            (settings.loss_event_rate && tfrc, Feature::SendLossEventRate, Remote),
        ] {
            if wanted {
                self.change(feature, location);
            }
        }
        if settings.ccid_mandatory {
            self.entry(Feature::Ccid, Local).mandatory = true;
            self.entry(Feature::Ccid, Remote).mandatory = true;
        }
        if settings.sequence_window != Feature::SequenceWindow.initial() {
            self.set(Feature::SequenceWindow, settings.sequence_window);
        }
    }

    fn entry(&mut self, feature: Feature, location: Location) -> &mut Entry {
        let index = ALL.iter().position(|other| *other == feature).unwrap_or(0);
        &mut self.entries[index][location as usize]
    }

    /// Returns the value of a feature.
    pub(crate) fn get(&self, feature: Feature, location: Location) -> u64 {
        let index = ALL.iter().position(|other| *other == feature).unwrap_or(0);
        self.entries[index][location as usize].value
    }

    /// Returns the width of the window of sequence numbers that the local endpoint sends. While it changes,
    /// acknowledgements are accepted by the wider one.
    pub(crate) fn local_window(&self) -> u64 {
        let entry = &self.entries[2][Location::Local as usize];
        if entry.changing { entry.value.max(entry.target) } else { entry.value }
    }

    /// Returns whether a Change of a feature waits for its Confirm.
    pub(crate) fn is_changing(&self, feature: Feature, location: Location) -> bool {
        let index = ALL.iter().position(|other| *other == feature).unwrap_or(0);
        self.entries[index][location as usize].changing
    }

    /// Begins a Change of a server-priority feature to its preferences.
    pub(crate) fn change(&mut self, feature: Feature, location: Location) {
        let entry = self.entry(feature, location);
        if entry.refused {
            return;
        }
        entry.changing = true;
        entry.since = None;
        self.due = true;
        self.attempts = 0;
        self.resend_at = None;
    }

    /// Begins a Change of a non-negotiable feature of the local endpoint.
    pub(crate) fn set(&mut self, feature: Feature, value: u64) {
        if feature.allows(value) {
            self.entry(feature, Location::Local).target = value;
            self.change(feature, Location::Local);
        }
    }

    /// Keeps the congestion controls as they are from now on.
    pub(crate) fn fix_ccids(&mut self) {
        for location in [Location::Local, Location::Remote] {
            let entry = self.entry(Feature::Ccid, location);
            entry.preferences = Preferences::new([entry.value as u8]);
            entry.changing = false;
        }
    }

    /// Returns whether the feature options of a packet are to be handled, which older ones are not (RFC
    /// 4340 section 6.6.4).
    pub(crate) fn accepts(&self, seq: Seq) -> bool {
        self.newest.is_none_or(|newest| seq.after(newest))
    }

    /// Notes that feature options of this packet were handled.
    pub(crate) fn handled(&mut self, seq: Seq) {
        self.newest = Some(seq);
    }

    /// Handles a Change option: Change L where the feature is located at the peer, Change R where it is
    /// located here (RFC 4340 section 6.6.7).
    pub(crate) fn handle_change(
        &mut self,
        number: u8,
        location: Location,
        values: &[u8],
        mandatory: bool,
    ) -> Result<(), Reset> {
        let option = match location {
            Location::Remote => kind::CHANGE_L,
            Location::Local => kind::CHANGE_R,
        };
        let refuse = || {
            let value = [number, values.first().copied().unwrap_or(0)];
            Err(Reset::of_option(ResetCode::MandatoryError, option, &value))
        };
        if self.confirms.len() >= MAX_CONFIRMS {
            return if mandatory { refuse() } else { Ok(()) };
        }
        let Some(feature) = Feature::from_number(number) else {
            if mandatory {
                return refuse();
            }
            // RFC 4340 section 6.6.7: an empty Confirm for an unknown feature.
            self.confirm(number, location, &[]);
            return Ok(());
        };
        if feature.is_non_negotiable() {
            let value = wire::number(values);
            // RFC 4340 sections 6.3.2 and 6.6.8: only the location changes it, by a value of the right length.
            let fits = values.len() == feature.width() && feature.allows(value);
            let valid = location == Location::Remote && fits;
            if !valid {
                if mandatory {
                    return refuse();
                }
                self.confirm(number, location, &[]);
                return Ok(());
            }
            self.entry(feature, location).value = value;
            self.confirm(number, location, values);
            return Ok(());
        }
        let is_server = self.is_server;
        let entry = self.entry(feature, location);
        let preferences = entry.preferences;
        let ours = preferences.values();
        let agreed = if is_server { agree(ours, values) } else { agree(values, ours) };
        match agreed {
            Some(value) => entry.value = value.into(),
            None if mandatory || entry.mandatory => return refuse(),
            None => {}
        }
        let mut answer = vec![entry.value as u8];
        answer.extend_from_slice(ours);
        self.confirm(number, location, &answer);
        Ok(())
    }

    fn confirm(&mut self, number: u8, location: Location, values: &[u8]) {
        let values = &values[..values.len().min(MAX_PREFERENCES + 1)];
        match location {
            Location::Remote => DccpOption::ConfirmR(number, values),
            Location::Local => DccpOption::ConfirmL(number, values),
        }
        .emit(&mut self.confirms);
    }

    /// Handles a Confirm option: Confirm R where the feature is located here, Confirm L where it is located
    /// at the peer (RFC 4340 section 6.6.8). `ack` is the packet's Acknowledgement Number.
    pub(crate) fn handle_confirm(
        &mut self,
        number: u8,
        location: Location,
        values: &[u8],
        ack: Option<Seq>,
    ) -> Result<(), Reset> {
        let Some(feature) = Feature::from_number(number) else { return Ok(()) };
        let is_server = self.is_server;
        let entry = self.entry(feature, location);
        let answers = entry.since.zip(ack).is_some_and(|(since, ack)| !ack.before(since));
        if !entry.changing || !answers {
            return Ok(());
        }
        let option = match location {
            Location::Local => kind::CONFIRM_R,
            Location::Remote => kind::CONFIRM_L,
        };
        let wrong = |code| {
            let value = [number, values.first().copied().unwrap_or(0)];
            Err(Reset::of_option(code, option, &value))
        };
        if values.is_empty() {
            // The peer does not know the feature: it stays as it is.
            if entry.mandatory {
                return wrong(ResetCode::MandatoryError);
            }
            entry.changing = false;
            entry.refused = true;
        } else if feature.is_non_negotiable() {
            if values.len() != feature.width() || wire::number(values) != entry.target {
                return wrong(ResetCode::OptionError);
            }
            entry.value = entry.target;
            entry.changing = false;
        } else {
            let preferences = entry.preferences;
            let (ours, value, theirs) = (preferences.values(), values[0], &values[1..]);
            let agreed = if is_server { agree(ours, theirs) } else { agree(theirs, ours) };
            let expected = match agreed {
                Some(agreed) => agreed,
                // A list may be left out. Without a common value the old one stays.
                None if theirs.is_empty() && ours.contains(&value) => value,
                None => entry.value as u8,
            };
            if value != expected || !feature.allows(value.into()) {
                return wrong(ResetCode::OptionError);
            }
            if entry.mandatory && !ours.contains(&value) {
                return wrong(ResetCode::MandatoryError);
            }
            entry.value = value.into();
            entry.changing = false;
            entry.refused = ours.first() != Some(&value);
        }
        if !self.entries.iter().flatten().any(|entry| entry.changing) {
            self.due = false;
            self.resend_at = None;
        }
        Ok(())
    }

    /// Returns whether options wait for a packet that can carry them.
    pub(crate) fn wants_packet(&self) -> bool {
        self.due || !self.confirms.is_empty()
    }

    /// Returns the room in bytes that [`Features::emit`] needs, at most.
    pub(crate) fn room(&self) -> usize {
        let changes = self.entries.iter().flatten().filter(|entry| entry.changing).count();
        self.confirms.len() + changes * (MAX_PREFERENCES + 4)
    }

    /// Returns when Changes are to be sent again.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.resend_at
    }

    /// Handles the deadline.
    pub(crate) fn timeout(&mut self) {
        self.resend_at = None;
        if self.attempts >= MAX_CHANGES {
            for entry in self.entries.iter_mut().flatten().filter(|entry| entry.changing) {
                entry.changing = false;
                entry.refused = true;
                self.abandoned += 1;
            }
            return;
        }
        self.due = self.entries.iter().flatten().any(|entry| entry.changing);
    }

    /// Appends Confirms, and Changes where they are due or `always`, for the packet `seq`. Confirms are
    /// kept for the next packet where `keep` is set.
    pub(crate) fn emit(
        &mut self,
        now: Time,
        seq: Seq,
        always: bool,
        keep: bool,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(&self.confirms);
        if !keep {
            self.confirms.clear();
        }
        if !self.due && !always {
            return;
        }
        let mut any = false;
        for (index, feature) in ALL.into_iter().enumerate() {
            for location in [Location::Local, Location::Remote] {
                let entry = &mut self.entries[index][location as usize];
                if !entry.changing {
                    continue;
                }
                any = true;
                entry.since = entry.since.or(Some(seq));
                if entry.mandatory {
                    DccpOption::Mandatory.emit(out);
                }
                let target = entry.target.to_be_bytes();
                let values = if feature.is_non_negotiable() {
                    &target[8 - feature.width()..]
                } else {
                    entry.preferences.values()
                };
                match location {
                    Location::Local => DccpOption::ChangeL(feature.number(), values),
                    Location::Remote => DccpOption::ChangeR(feature.number(), values),
                }
                .emit(out);
            }
        }
        self.due = false;
        if any {
            let wait = FIRST_RESEND * (1 << self.attempts.min(6));
            self.attempts += 1;
            self.resend_at = Some(now + wait.min(MAX_RESEND));
        }
    }

    /// Drops the Confirms that were kept.
    pub(crate) fn drop_confirms(&mut self) {
        self.confirms.clear();
    }
}

/// Returns the preferences for a feature by the settings.
fn preferences(feature: Feature, location: Location, settings: &Settings) -> Preferences {
    let local = location == Location::Local;
    let both = |first: bool| Preferences::new(if first { [1, 0] } else { [0, 1] });
    match feature {
        Feature::Ccid => {
            let other = match settings.ccid {
                Ccid::TcpLike => Ccid::Tfrc,
                Ccid::Tfrc => Ccid::TcpLike,
            };
            let all = [settings.ccid.number(), other.number()];
            Preferences::new(all.into_iter().take(if settings.ccid_mandatory { 1 } else { 2 }))
        }
        Feature::AllowShortSeqnos if settings.short_seqnos => both(true),
        Feature::AllowShortSeqnos => Preferences::new([0]),
        Feature::EcnIncapable if local && !settings.ecn => Preferences::new([1]),
        Feature::EcnIncapable => both(false),
        // What the peer asks for is granted.
        Feature::SendAckVector
        | Feature::SendNdpCount
        | Feature::CheckDataChecksum
        | Feature::SendLossEventRate => both(true),
        Feature::MinChecksumCoverage if local => match settings.min_coverage {
            0 => Preferences::new([0]),
            min => Preferences::new([min, 0]),
        },
        Feature::MinChecksumCoverage => Preferences::new((0..=settings.coverage).rev()),
        Feature::SequenceWindow | Feature::AckRatio => Preferences::default(),
    }
}

#[cfg(test)]
mod tests;
