//! Intervals and bounds, and those in which the routers of a mesh and the nodes of a cluster differ.

use ringway_proxy::notifier::MAX_WATCHED;
use ringway_proxy::states::{Form, MAX_SERVERS};
use ringway_sansio::Duration;

use super::wire::Format;

/// Maximum length of a name with its domain, in octets.
pub const MAX_NAME: usize = 200;
/// Interval at which a FOLLOW is renewed.
pub const RENEW: Duration = Duration::from_secs(20);
/// Interval at which a watched user is located.
pub const LOCATE_AGAIN: Duration = Duration::from_secs(60);
/// Shortest interval at which a user is located who is registered nowhere. It doubles up to [`LOCATE_AGAIN`].
pub const LOCATE_FIRST: Duration = Duration::from_secs(2);
/// Time after which a user is located who is reported to have moved: what the server has to say that the user has left is
/// received before.
pub const MOVE_DELAY: Duration = Duration::from_millis(250);
/// Shortest interval at which a user is located who moves again and again.
pub const MOVE_INTERVAL: Duration = Duration::from_millis(500);
/// Time in which changes of a user become one.
pub const COALESCE: Duration = Duration::from_millis(100);
/// Shortest interval of changes of one user that one server is sent.
pub const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of names that are followed at other servers. Workers share them among subscribers; there are
/// more only while subscriptions that have ended wait for their last NOTIFY. Further ones are shown as they are here.
pub const MAX_NAMES: usize = MAX_WATCHED;
/// Maximum number of servers at which one name is followed.
pub const MAX_SERVERS_OF_NAME: usize = MAX_SERVERS;

/// How often something may be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// The interval.
    pub interval: Duration,
    /// How often at once.
    pub burst: u32,
}

/// In what servers differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// What they report.
    pub form: Form,
    /// Maximum length of a message in octets.
    pub max_message: usize,
    /// Lifetime of a FOLLOW, and of what was reported.
    pub lifetime: Duration,
    /// Longest lifetime of a FOLLOW of another server.
    pub max_lifetime: Duration,
    /// Messages to one server.
    pub messages: Rate,
    /// Names that are located.
    pub locating: Rate,
    /// Maximum number of followers of all names. The server with the most loses one for one with fewer.
    pub max_followers: usize,
    /// Maximum number of names that one server follows here.
    pub max_of_server: usize,
}

impl Config {
    /// Returns how messages are written.
    pub fn format(&self) -> Format {
        Format { form: self.form, max_message: self.max_message }
    }

    /// Returns the bounds of a router of a mesh: its messages fit a packet, and contacts do not. It sends a router a quarter of
    /// what that takes of one, as the directory and other services send there too.
    pub fn of_router() -> Config {
        Config {
            form: Form::State,
            max_message: 1_000,
            lifetime: Duration::from_secs(60),
            max_lifetime: Duration::from_secs(120),
            messages: Rate { interval: Duration::from_millis(125), burst: 32 },
            locating: Rate { interval: Duration::from_nanos(62_500_000), burst: 64 },
            max_followers: 8_192,
            max_of_server: 256,
        }
    }

    /// Returns the bounds of a node of a cluster. There are few nodes, and leases show which of them live: what one has reported
    /// outlasts an absence of the database.
    pub fn of_node() -> Config {
        Config {
            form: Form::Contacts,
            max_message: 16 * 1024,
            lifetime: Duration::from_secs(600),
            max_lifetime: Duration::from_secs(900),
            messages: Rate { interval: Duration::from_millis(50), burst: 32 },
            locating: Rate { interval: Duration::from_millis(8), burst: 512 },
            max_followers: 4 * MAX_NAMES,
            max_of_server: MAX_NAMES,
        }
    }
}
