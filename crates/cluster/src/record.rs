//! What is in the database: names of nodes, records, scripts, messages.
//!
//! A user's key is a hash with a field for each node at which the user is registered; braces make its slot that of the
//! user. A field is `VERSION BOOT SEQ END Q PHONES`, separated by spaces: the format's version, the run of the node, the
//! number of the change in it, the time at which the last binding ends, in milliseconds of the database's clock, q in
//! thousandths or `-` if the user is not there any more, and the [`Phones`]. A later version may append to it; the first four
//! stay. The leases are one hash, whose fields are `VERSION BOOT END KEY`; a request with the key comes from who can read the
//! database.
//!
//! Times are the database's, so that the clocks of nodes need not agree.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use ringway_proxy::config::NodeKey;
use ringway_proxy::location::MAX_AOR;
use ringway_sansio::{Duration, Transport};

use crate::presence::Phones;

/// Version of the format of records and leases.
pub const VERSION: u32 = 1;
/// Key of the leases.
pub const LEASES: &str = "ringway:nodes";
/// Channel on which changes are published.
pub const CHANNEL: &str = "ringway:changes";

/// Maximum number of digits of a number in a record. Scripts compute with doubles, which are exact up to there.
pub const MAX_DIGITS: usize = 15;
/// Maximum length of a message on [`CHANNEL`].
pub const MAX_MESSAGE: usize = 1 + MAX_AOR;

/// Returns the key of a user.
pub fn key(user: &[u8]) -> Vec<u8> {
    [b"ringway:at:{", user, b"}"].concat()
}

/// Changes the field of a node in the key of a user, unless it has a later change already, drops what has ended, and has
/// the key end with its last field. Other nodes learn of it if they have to read it again; a registration that is merely
/// refreshed changes nothing for them. Returns 1, or 0 if the key is no hash, or the number of a later run of the node that
/// has the field.
///
/// A change that the field has already is written again once it has ended: the clock of a server that has become the
/// primary may be ahead. A number of more than [`MAX_DIGITS`] digits is none of ours, and what has it is replaced.
///
/// Key: the user's. Arguments: node, version, boot, seq, milliseconds to the end, q, channel, message, phones.
pub const PUBLISH: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local changed = true
local old = redis.pcall('HGET', KEYS[1], ARGV[1])
if type(old) == 'table' then
  if string.find(old.err, 'WRONGTYPE', 1, true) then return 0 end
  return old
end
if old then
  local boot, seq, ends, q, phones = string.match(old, '^%d+ (%d+) (%d+) (%d+) (%S+) ?(%S*)')
  if boot and #boot <= 15 and #seq <= 15 and #ends <= 15 then
    local newer = tonumber(boot) - tonumber(ARGV[3])
    if newer > 0 then return boot end
    local later = newer == 0 and tonumber(seq) - tonumber(ARGV[4]) or -1
    if later > 0 or later == 0 and tonumber(ends) > now then return 1 end
    changed = newer ~= 0 or q ~= ARGV[6] or phones ~= ARGV[9] or tonumber(ends) <= now
  end
end
local ends = string.format('%.0f', now + ARGV[5])
redis.call('HSET', KEYS[1], ARGV[1], table.concat({ARGV[2], ARGV[3], ARGV[4], ends, ARGV[6], ARGV[9]}, ' '))
local last = 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at = string.match(all[i + 1], '^%d+ %d+ %d+ (%d+)')
  at = at and #at <= 15 and tonumber(at) or 0
  if at <= now then redis.call('HDEL', KEYS[1], all[i]) elseif at > last then last = at end
end
if last > 0 then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last)) end
if changed then redis.call('PUBLISH', ARGV[7], ARGV[8]) end
return 1
";

/// Returns the fields of a user's key that have not ended, each as node, version, boot, q, milliseconds to the end and
/// phones, or 0 if the key is no hash. What is longer than a field of ours is left out.
///
/// Key: the user's. Argument: the maximum number of fields.
pub const READ: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local found = {}
local all = redis.pcall('HGETALL', KEYS[1])
if all.err then
  if string.find(all.err, 'WRONGTYPE', 1, true) then return 0 end
  return all
end
for i = 1, #all, 2 do
  local version, boot, ends, q, phones = string.match(all[i + 1], '^(%d+) (%d+) %d+ (%d+) (%S+) ?(%S*)')
  if ends and #all[i] + #all[i + 1] <= 256 and #ends <= 15 and tonumber(ends) > now then
    for _, part in ipairs({all[i], version, boot, q, string.format('%.0f', ends - now), phones}) do
      found[#found + 1] = part
    end
    if #found >= ARGV[1] * 6 then break end
  end
end
return found
";

/// Renews the lease of a node, drops those that have ended, and returns all, each as node, boot, milliseconds to the end and
/// key. Returns nothing if a later run of a node of this name has the lease.
///
/// A lease that ends later than any that is written now was written by a clock that has been set back, or by none of ours.
/// It is dropped: a node that lives has another within its interval, and one that does not would live as long as the clock
/// was set back.
///
/// Key: the leases. Arguments: node, version, boot, milliseconds to the end, channel, message, the maximum number of leases,
/// the node's key.
pub const RENEW: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local last = now + 2 * ARGV[4]
local function lease(text)
  local boot, at, key = string.match(text, '^%d+ (%d+) (%d+) (%x+)')
  at = at and #boot <= 15 and #at <= 15 and tonumber(at)
  if at and at > now and at <= last then return boot, at, key end
end
local held = lease(redis.call('HGET', KEYS[1], ARGV[1]) or '')
if held and tonumber(held) > tonumber(ARGV[3]) then return {} end
local ends = string.format('%.0f', now + ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], table.concat({ARGV[2], ARGV[3], ends, ARGV[8]}, ' '))
local found = {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local boot, at, key = lease(all[i + 1])
  if not at or #all[i] + #all[i + 1] > 256 then
    redis.call('HDEL', KEYS[1], all[i])
  elseif #found < ARGV[7] * 4 then
    for _, part in ipairs({all[i], boot, string.format('%.0f', at - now), key}) do
      found[#found + 1] = part
    end
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', ARGV[5], ARGV[6])
return found
";

/// Ends the lease of a node, unless a later run of a node of this name has it.
///
/// Key: the leases. Arguments: node, boot, channel, message.
pub const LEAVE: &str = r"
local old = redis.call('HGET', KEYS[1], ARGV[1])
if not old or string.match(old, '^%d+ (%d+)') ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
";

/// The name of a node: the address by which others reach it. Its text is a SIP URI, such as `sip:192.0.2.1:5060`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeName {
    /// The address at which it receives requests of other nodes.
    pub address: SocketAddr,
    /// Whether they are sent over TCP, whatever their size. Otherwise UDP is used for those that fit a packet (RFC 3261
    /// section 18.1.1).
    pub tcp: bool,
}

impl NodeName {
    /// Returns the value of Path (RFC 3327) that leads to the node with this key.
    pub fn path(&self, key: NodeKey) -> Box<[u8]> {
        let path = [format!("<{self};lr;").as_bytes(), NodeKey::PARAMETER, b"="].concat();
        [&path, key.text().as_bytes(), b">"].concat().into()
    }

    /// Returns the transport by which the node is reached.
    pub fn transport(&self) -> Transport {
        if self.tcp { Transport::Tcp } else { Transport::Udp }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameter = if self.tcp { ";transport=tcp" } else { "" };
        write!(f, "sip:{}{parameter}", self.address)
    }
}

/// A text of the database that is not what it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// What was expected.
    pub expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl std::error::Error for Malformed {}

impl FromStr for NodeName {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = Malformed { expected: "the name of a node" };
        let rest = text.strip_prefix("sip:").ok_or(malformed.clone())?;
        let (address, tcp) = match rest.strip_suffix(";transport=tcp") {
            Some(address) => (address, true),
            None => (rest, false),
        };
        let address = address.parse().map_err(|_| malformed)?;
        Ok(NodeName { address, tcp })
    }
}

/// A change of what the database knows of a user at this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publication {
    /// The address-of-record.
    pub user: Box<[u8]>,
    /// Number of the change.
    pub seq: u64,
    /// Time after which it ends.
    pub lifetime: Duration,
    /// q of the user here, in thousandths; `None` if the user is not here any more.
    pub q: Option<u16>,
    /// The phones here.
    pub phones: Phones,
}

impl Publication {
    /// Returns q as it is in a record.
    pub fn q_text(&self) -> String {
        self.q.map_or_else(|| "-".to_owned(), |q| q.to_string())
    }
}

/// A node at which a user is registered, as the database knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The node.
    pub node: NodeName,
    /// The run of it that has published this.
    pub boot: u64,
    /// Time until the last binding ends.
    pub lifetime: Duration,
    /// q of the user there, in thousandths.
    pub q: u16,
    /// The phones there.
    pub phones: Phones,
}

impl Found {
    /// Parses the answer of [`READ`]. What a later version has written is taken as far as it is known; what cannot be read
    /// is left out.
    pub fn parse(parts: &[&str]) -> Vec<Found> {
        let one = |parts: &[&str]| {
            let [node, _, boot, q, lifetime, phones] = parts else { return None };
            let q = q.parse().ok().filter(|q| *q <= 1000)?;
            Some(Found {
                node: node.parse().ok()?,
                boot: boot.parse().ok()?,
                lifetime: Duration::from_millis(lifetime.parse().ok()?),
                q,
                phones: Phones::parse(phones),
            })
        };
        parts.chunks(6).filter_map(one).take(crate::config::MAX_NODES_PER_USER).collect()
    }
}

/// The lease of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The node.
    pub node: NodeName,
    /// Its run.
    pub boot: u64,
    /// Time until it ends.
    pub left: Duration,
    /// The secret by which it recognises requests of other nodes.
    pub key: NodeKey,
}

impl Lease {
    /// Parses the answer of [`RENEW`]. What cannot be read is left out.
    pub fn parse(parts: &[&str]) -> Vec<Lease> {
        let one = |parts: &[&str]| {
            let [node, boot, left, key] = parts else { return None };
            Some(Lease {
                node: node.parse().ok()?,
                boot: boot.parse().ok()?,
                left: Duration::from_millis(left.parse().ok()?),
                key: NodeKey::parse(key)?,
            })
        };
        parts.chunks(4).filter_map(one).take(crate::config::MAX_NODES).collect()
    }
}

/// A message on [`CHANNEL`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// What is known of a user has changed.
    User(Box<[u8]>),
    /// A node has renewed its lease.
    Renewed {
        /// The node.
        node: NodeName,
        /// The run.
        boot: u64,
    },
    /// A node has ended its lease.
    Left(NodeName),
}

impl Message {
    /// Returns its octets.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Message::User(user) => [b"u", &user[..]].concat(),
            Message::Renewed { node, boot } => format!("n{node} {boot}").into_bytes(),
            Message::Left(node) => format!("l{node}").into_bytes(),
        }
    }

    /// Parses a message.
    ///
    /// # Errors
    /// Fails for what this version does not know.
    pub fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
        let expected = Malformed { expected: "a message about a user or a node" };
        if bytes.len() > MAX_MESSAGE {
            return Err(expected);
        }
        let node = |name: &[u8]| std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        let renewed = |text: &[u8]| {
            let (name, boot) = std::str::from_utf8(text).ok()?.rsplit_once(' ')?;
            Some(Message::Renewed { node: name.parse().ok()?, boot: boot.parse().ok()? })
        };
        match bytes {
            [b'u', user @ ..] => Some(Message::User(user.into())),
            [b'n', text @ ..] => renewed(text),
            [b'l', name @ ..] => node(name).map(Message::Left),
            _ => None,
        }
        .ok_or(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_lead_to_nodes() {
        for (name, path) in [
            ("sip:192.0.2.1:5060", "<sip:192.0.2.1:5060;lr;node="),
            (
                "sip:[2001:db8::1]:5070;transport=tcp",
                "<sip:[2001:db8::1]:5070;transport=tcp;lr;node=",
            ),
        ] {
            let node: NodeName = name.parse().unwrap();
            assert_eq!(node.to_string(), name);
            let path = format!("{path}{}>", "07".repeat(16));
            assert_eq!(*node.path(NodeKey([7; 16])), *path.as_bytes());
        }
        for name in ["", "sip:host:5060", "sip:192.0.2.1", "sips:192.0.2.1:5061", "192.0.2.1:5060"]
        {
            assert!(name.parse::<NodeName>().is_err(), "{name}");
        }
    }

    #[test]
    fn records_that_cannot_be_read_are_left_out() {
        let parts = [
            ["sip:192.0.2.1:5060", "1", "7", "500", "9000", "00000000000000ff+"],
            ["sip:192.0.2.2:5060", "1", "7", "-", "9000", ""],
            ["nobody", "1", "7", "500", "9000", ""],
            ["sip:192.0.2.3:5060", "9", "8", "1000", "1", ""],
        ]
        .concat();
        let found = Found::parse(&parts);
        let nodes: Vec<_> = found.iter().map(|f| (f.node.to_string(), f.boot, f.q)).collect();
        assert_eq!(
            nodes,
            [("sip:192.0.2.1:5060".into(), 7, 500), ("sip:192.0.2.3:5060".into(), 8, 1000)]
        );
        assert_eq!(found[0].lifetime, Duration::from_secs(9));
        assert_eq!(found[0].phones, Phones { instances: [255].into(), others: true });
        assert_eq!(found[1].phones, Phones::unknown(), "of a version before");
        let key = NodeKey([7; 16]).text();
        assert!(Lease::parse(&["sip:192.0.2.1:5060", "x", "1", &key]).is_empty());
        assert!(Lease::parse(&["sip:192.0.2.1:5060", "1", "5000", "key"]).is_empty());
        assert_eq!(Lease::parse(&["sip:192.0.2.1:5060", "1", "5000", &key, "rest"]).len(), 1);
    }

    proptest! {
        #[test]
        fn messages_are_read_as_they_were_written(user in prop::collection::vec(any::<u8>(), 0..40), port: u16) {
            let node = NodeName { address: ([192, 0, 2, 1], port).into(), tcp: port % 2 == 0 };
            let renewed = Message::Renewed { node, boot: user.len() as u64 };
            for message in [Message::User(user.into()), renewed, Message::Left(node)] {
                prop_assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
            }
        }

        #[test]
        fn what_comes_from_the_database_never_panics(bytes: Vec<u8>, texts: Vec<String>) {
            let _ = Message::parse(&bytes);
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            Found::parse(&texts);
            Lease::parse(&texts);
        }
    }
}
