//! The event packages of the notifier.

use ringway_sansio::Duration;

/// An event package (RFC 6665 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Package {
    /// The registrations of a user (RFC 3680).
    Reg,
    /// The calls of a user (RFC 4235).
    Dialog,
    /// The presence of a user (RFC 3856).
    Presence,
}

/// The value of Allow-Events.
pub const ALLOW_EVENTS: &[u8] = b"reg, dialog, presence";

impl Package {
    /// Returns the package of a value of Event; `None` for one that the notifier does not have.
    pub fn of_event(value: &[u8]) -> Option<Package> {
        let name = value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        let all = [Package::Reg, Package::Dialog, Package::Presence];
        all.into_iter().find(|package| package.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns its name in Event.
    pub fn name(self) -> &'static str {
        match self {
            Package::Reg => "reg",
            Package::Dialog => "dialog",
            Package::Presence => "presence",
        }
    }

    /// Returns the media type of its documents.
    pub(super) fn content_type(self) -> &'static [u8] {
        match self {
            Package::Reg => b"application/reginfo+xml",
            Package::Dialog => b"application/dialog-info+xml",
            Package::Presence => super::pidf::CONTENT_TYPE,
        }
    }

    /// Returns the seconds a subscription lasts if the request names no time (RFC 3680 section 4.4, RFC 4235 section 3.4,
    /// RFC 3856 section 6.4).
    pub(super) fn default_expires(self) -> u32 {
        match self {
            Package::Reg => 3761,
            Package::Dialog | Package::Presence => 3600,
        }
    }

    /// Returns the minimum time between two notifications of changes to one subscriber (RFC 3680 section 4.10, RFC 4235
    /// section 3.10, RFC 3856 section 6.10).
    pub(super) fn min_interval(self) -> Duration {
        Duration::from_secs(match self {
            Package::Reg | Package::Presence => 5,
            Package::Dialog => 1,
        })
    }
}
