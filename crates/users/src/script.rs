//! What is kept in Redis or Valkey: keys, values, and the scripts that change them in one step.
//!
//! | key | content |
//! |---|---|
//! | [`ALL`] | a hash: `user@realm`, and the hashes of its password |
//! | [`CHANGES`] | a sorted set: `user@realm`, with the number of its last change; also of removed users |
//! | [`NUMBER`] | the number of the last change |
//! | [`REMOVED`] | a sorted set: `user@realm` of removed users, with the second of the removal, for 30 days |
//!
//! The braces put all four into one slot. A user who is not in the first alone is not removed: the key may be lost. What is
//! written to it comes last, so that a script that fails has changed no user.

use crate::row::{Entry, HASHES, Refusal, Row};

/// The key of all users.
pub const ALL: &str = "ringway:{users}:all";
/// The key of their changes.
pub const CHANGES: &str = "ringway:{users}:changes";
/// The key of the number of the last change.
pub const NUMBER: &str = "ringway:{users}:number";
/// The key of the names of removed users.
pub const REMOVED: &str = "ringway:{users}:removed";
/// The channel on which changes are reported.
pub const CHANNEL: &str = "ringway:users";

/// Longest name with its domain, in bytes: 128, `@`, 255.
pub const MAX_NAME: usize = 384;
/// Longest value, in bytes.
pub const MAX_VALUE: usize = 256;

/// Writes users, all or none. KEYS: all, changes, number, removed. ARGV: `new` if none may exist, `old` if all must, `any`; the
/// maximum number of users; the channel; for each user its name and its value. Returns `{1, number of the change}`;
/// `{0, name}` for one that exists, `{-1, name}` for one that does not; `{-2}` for too many.
pub const PUT: &str = "
local mode, new, number = ARGV[1], 0, 0
for i = 4, #ARGV, 2 do
  local exists = redis.call('HEXISTS', KEYS[1], ARGV[i])
  if exists == 1 and mode == 'new' then return {0, ARGV[i]} end
  if exists == 0 and mode == 'old' then return {-1, ARGV[i]} end
  new = new + 1 - exists
end
if new > 0 and redis.call('HLEN', KEYS[1]) + new > tonumber(ARGV[2]) then return {-2} end
for i = 4, #ARGV, 2 do number = redis.call('INCR', KEYS[3]) end
local change = number - (#ARGV - 3) / 2
for i = 4, #ARGV, 2 do
  change = change + 1
  redis.call('ZADD', KEYS[2], change, ARGV[i])
  redis.call('ZREM', KEYS[4], ARGV[i])
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('PUBLISH', ARGV[3], '')
return {1, number}";

/// Removes a user. KEYS as for [`PUT`]; ARGV: its name, the channel. Returns the number of the change; 0 without the user.
/// Names that were removed 30 days ago are dropped, some at a time: servers read everything each hour.
pub const REMOVE: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
local now = tonumber(redis.call('TIME')[1])
local number = redis.call('INCR', KEYS[3])
redis.call('ZADD', KEYS[2], number, ARGV[1])
redis.call('ZADD', KEYS[4], now, ARGV[1])
local old = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now - 30 * 86400, 'LIMIT', 0, 100)
for i = 1, #old do
  redis.call('ZREM', KEYS[4], old[i])
  if redis.call('HEXISTS', KEYS[1], old[i]) == 0 then redis.call('ZREM', KEYS[2], old[i]) end
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('PUBLISH', ARGV[2], '')
return number";

/// Reads changes. KEYS as for [`PUT`]; ARGV: the number after which, how many at most, the longest value. Returns the number
/// of the last change, and for each up to it its number, name and value; the value is empty for a user whose removal is
/// noted, `-` for one that is absent without it, `?` for one that is too long. Fails if the last change is an earlier one:
/// numbers were lost, and begin again.
pub const READ_CHANGES: &str = "
local last = redis.call('GET', KEYS[3]) or '0'
if (tonumber(last) or -1) < tonumber(ARGV[1]) then
  return redis.error_reply('ERR the last change was ' .. ARGV[1] .. ', and is ' .. string.sub(last, 1, 20))
end
local found = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], last, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local out = {last}
for i = 1, #found, 2 do
  local name, value = found[i], ''
  if #name <= 1024 then
    value = redis.call('HGET', KEYS[1], name)
    if not value then value = redis.call('ZSCORE', KEYS[4], name) and '' or '-' end
  else
    name = '?'
  end
  if #value > tonumber(ARGV[3]) then value = '?' end
  out[#out + 1] = found[i + 1]
  out[#out + 1] = name
  out[#out + 1] = value
end
return out";

/// Reads a part of all users. KEYS as for [`PUT`]; ARGV: a cursor, how many about, the longest value. Returns the next
/// cursor, which is 0 at the end, then names and values, as [`READ_CHANGES`].
pub const READ_ALL: &str = "
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local out = {page[1]}
for i = 1, #page[2], 2 do
  local name, value = page[2][i], page[2][i + 1]
  if #name > 1024 then name = '?' end
  if #value > tonumber(ARGV[3]) then value = '?' end
  out[#out + 1] = name
  out[#out + 1] = value
end
return out";

/// Says of users what has become of them. KEYS as for [`PUT`]; ARGV: names. Returns for each 1 if its removal is noted, 2
/// if it is there, otherwise 0.
pub const NOTED: &str = "
local out = {}
for i = 1, #ARGV do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then out[i] = 2
  elseif redis.call('ZSCORE', KEYS[4], ARGV[i]) then out[i] = 1
  else out[i] = 0 end
end
return out";

/// Returns the name of a user in the database.
pub fn name(user: &str, realm: &str) -> String {
    format!("{user}@{realm}")
}

/// Splits a name. That of a user has no `@`.
pub fn from_name(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().position(|b| *b == b'@') {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => (name, b""),
    }
}

/// Returns a value: version, hashes in hexadecimal or `-`, and the second in which the password was set.
pub fn value(hashes: [Option<String>; 3], password_set: u32) -> String {
    let [md5, sha256, sha512] = hashes.map(|hash| hash.unwrap_or_else(|| "-".to_owned()));
    format!("1 {md5} {sha256} {sha512} {password_set}")
}

/// Returns the user of a name and a value.
///
/// # Errors
/// Says what is wrong.
pub fn entry(name: &[u8], value: &[u8]) -> Result<Entry, Refusal> {
    let (username, domain) = from_name(name);
    let mut row = Row { username, domain, ..Row::default() };
    let mut parts = value.split(|b| *b == b' ');
    if parts.next() == Some(b"1") {
        for slot in row.hashes.iter_mut().take(HASHES.len()) {
            *slot = parts.next().filter(|hash| *hash != b"-");
        }
        let set = parts.next().and_then(|set| std::str::from_utf8(set).ok()?.parse().ok());
        row.password_set = set.unwrap_or(-1);
    }
    row.entry()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Secret;

    #[test]
    fn a_value_is_read_as_it_was_written() {
        let md5 = "0123456789abcdef".repeat(2);
        let text = value([Some(md5.clone()), None, None], 1_700_000_000);
        assert_eq!(text, format!("1 {md5} - - 1700000000"));
        let entry = entry(name("101", "a.org").as_bytes(), text.as_bytes()).unwrap();
        assert_eq!((&*entry.user, &*entry.realm), ("101", "a.org"));
        assert_eq!(entry.password_set, Some(1_700_000_000));
        assert!(matches!(entry.secret, Secret::Hashes(hashes) if hashes.len() == 1));
    }

    #[test]
    fn what_others_have_written_is_refused() {
        let fine = value([Some("0".repeat(32)), None, None], 0);
        for (name, value) in [
            ("101@a.org", "?"),
            ("101@a.org", ""),
            ("101@a.org", "1 - - - 5"),
            ("101@a.org", "2 00000000000000000000000000000000 - - 5"),
            ("101", &*fine),
            ("@a.org", &*fine),
            ("?", &*fine),
            ("1@2@a.org", &*fine),
        ] {
            assert!(entry(name.as_bytes(), value.as_bytes()).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn the_longest_name_and_value_fit() {
        assert!(name(&"u".repeat(128), &"r".repeat(255)).len() <= MAX_NAME);
        let hash = |digits: usize| Some("0".repeat(digits));
        assert!(value([hash(32), hash(64), hash(64)], u32::MAX).len() <= MAX_VALUE);
    }
}
