//! Intervals and bounds.

use ringway_proxy::notifier::MAX_WATCHED;
use ringway_proxy::states::MAX_SERVERS;
use ringway_sansio::Duration;

/// Maximum length of a name with its domain, in octets.
pub const MAX_NAME: usize = 200;
/// Maximum length of a message in octets.
pub const MAX_MESSAGE: usize = 1_000;

/// Lifetime of a FOLLOW, and of what was reported.
pub const LIFETIME: Duration = Duration::from_secs(60);
/// Interval at which a FOLLOW is renewed.
pub const RENEW: Duration = Duration::from_secs(20);
/// Longest lifetime of a FOLLOW of another server.
pub const MAX_LIFETIME: Duration = Duration::from_secs(120);
/// Interval at which a watched user is located.
pub const LOCATE_AGAIN: Duration = Duration::from_secs(60);
/// Shortest interval at which a user is located who is registered nowhere. It doubles up to [`LOCATE_AGAIN`].
pub const LOCATE_FIRST: Duration = Duration::from_secs(2);
/// Time in which changes of a user become one.
pub const COALESCE: Duration = Duration::from_millis(100);
/// Shortest interval of changes of one user that one server is sent.
pub const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of names that are followed at other servers. Workers share them among subscribers; there are
/// more only while subscriptions that have ended wait for their last NOTIFY. Further ones are shown as they are here.
pub const MAX_NAMES: usize = MAX_WATCHED;
/// Maximum number of servers at which one name is followed.
pub const MAX_SERVERS_OF_NAME: usize = MAX_SERVERS;
/// Maximum number of followers of all names. The server with the most loses one for one with fewer.
pub const MAX_FOLLOWERS: usize = 8_192;
/// Maximum number of names that one server follows here.
pub const MAX_OF_SERVER: usize = 256;
