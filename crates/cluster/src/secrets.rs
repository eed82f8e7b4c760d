//! Secrets that all nodes share, so that each reads the tokens of any: nonces, dialog marks, flow tokens, temporary GRUUs.
//!
//! They are numbered. The database has the one in use, the next for a minute before it comes into use, and those before, with
//! which tokens in use were made. Who needs one first makes it. A node keeps what it has read, and writes it again for a
//! database that has lost it.

use ringway_proxy::keys::{MAX_SHARED, SharedSecret};
use ringway_sansio::{Duration, Time};

use crate::config::REPORT_INTERVAL;
use crate::record::MAX_DIGITS;
use crate::shards::Lane;

/// The hash of the secrets: a field for each number, `VERSION FROM SECRET`. Braces make its slot that of the leases.
pub const SECRETS: &str = "ringway:secrets:{ringway:nodes}";
/// Interval at which a node reads the secrets.
pub const READ_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a failure.
pub const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Time for which a secret is in use.
pub const ROTATION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time from which on a new secret is in use: until then all nodes have read it.
pub const NOTICE: Duration = Duration::from_secs(60);

/// Returns the secrets, each as number, time from which it is in use, whether that has come (1 or 0), and secret. Adds first
/// what the node has read and is not there; then a secret, if there is none; or the next, if the last has been in use for long
/// enough. Of too many, those of the lowest numbers are removed. Returns nothing if the key is no hash.
///
/// A number is the time at which the secret was made, or one more than the last, so that two that are made in a database that
/// has lost everything, and in what is left of it, have different ones.
///
/// Key: the secrets. Arguments: version, a new secret, milliseconds for which one is in use, milliseconds before a new one is,
/// how many are kept, and then number, time and secret of each that the node has read.
pub const SHARE: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local all = redis.pcall('HGETALL', KEYS[1])
if all.err then
  if string.find(all.err, 'WRONGTYPE', 1, true) then return {} end
  return all
end
local found, numbers = {}, {}
local function know(number, from, secret)
  found[number] = {from, secret}
  numbers[#numbers + 1] = number
end
local function add(number, from, secret)
  redis.call('HSET', KEYS[1], string.format('%.0f', number), table.concat({ARGV[1], from, secret}, ' '))
  know(number, from, secret)
end
for i = 1, #all, 2 do
  local number = #all[i] <= 15 and string.match(all[i], '^[1-9]%d*$')
  local from, secret = string.match(all[i + 1], '^%d+ (%d+) (%x+)')
  if number and from and #from <= 15 and #secret == 64 then
    know(tonumber(number), from, secret)
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
for i = 6, #ARGV, 3 do
  local number = tonumber(ARGV[i])
  if not found[number] then add(number, ARGV[i + 1], ARGV[i + 2]) end
end
table.sort(numbers)
local last = numbers[#numbers]
if not last then
  add(now, '0', ARGV[2])
elseif found[last][1] + ARGV[3] <= now and last + ARGV[3] <= now then
  add(math.max(now, last + 1), string.format('%.0f', now + ARGV[4]), ARGV[2])
end
local shared = {}
for i, number in ipairs(numbers) do
  local text, from = string.format('%.0f', number), found[number][1]
  if i <= #numbers - ARGV[5] then
    redis.call('HDEL', KEYS[1], text)
  else
    for _, part in ipairs({text, from, tonumber(from) <= now and '1' or '0', found[number][2]}) do
      shared[#shared + 1] = part
    end
  end
end
return shared
";

/// A secret as the database has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredSecret {
    /// Its number, of at most [`MAX_DIGITS`] digits: a later one has a greater.
    pub number: u64,
    /// The time from which it is in use, in milliseconds of the database's clock.
    pub from: u64,
    /// Whether that has come.
    pub in_use: bool,
    /// The secret.
    pub secret: SharedSecret,
}

impl StoredSecret {
    /// Parses the answer of [`SHARE`]. What cannot be read is left out.
    pub fn parse(parts: &[&str]) -> Vec<StoredSecret> {
        let one = |parts: &[&str]| {
            let [number, from, in_use, secret] = parts else { return None };
            let digits = |text: &str| text.parse().ok().filter(|_| text.len() <= MAX_DIGITS);
            Some(StoredSecret {
                number: digits(number)?,
                from: digits(from)?,
                in_use: *in_use == "1",
                secret: parse(secret)?,
            })
        };
        parts.chunks(4).filter_map(one).take(MAX_SHARED).collect()
    }

    /// Returns number, time and secret as arguments of [`SHARE`].
    pub fn arguments(&self) -> [String; 3] {
        [self.number.to_string(), self.from.to_string(), text(&self.secret)]
    }
}

/// Returns a secret as 64 hexadecimal digits.
pub fn text(secret: &SharedSecret) -> String {
    secret.0.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn parse(text: &str) -> Option<SharedSecret> {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() != 64 || !text.bytes().all(is_digit) {
        return None;
    }
    let mut secret = [0; 32];
    for (octet, digits) in secret.iter_mut().zip(text.as_bytes().chunks(2)) {
        *octet = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(SharedSecret(secret))
}

/// What a node knows of the secrets.
#[derive(Debug)]
pub struct Secrets {
    pub(crate) lane: Lane,
    known: Vec<StoredSecret>,
    /// In the order of use.
    shared: Vec<SharedSecret>,
    /// Time until which it is not reported that the key has what is not ours.
    silent: Time,
}

impl Secrets {
    /// Returns nothing known.
    pub fn new() -> Secrets {
        Secrets { lane: Lane::READY, known: Vec::new(), shared: Vec::new(), silent: Time::ZERO }
    }

    /// Begins a command, if it is time. Returns the secrets that are known.
    pub fn begin(&mut self, now: Time) -> Option<Vec<StoredSecret>> {
        if !self.lane.may_begin(now) {
            return None;
        }
        self.lane = Lane::Busy { since: now, late: true };
        Some(self.known.clone())
    }

    /// Returns whether it is to be reported that the key has what is not ours.
    pub fn are_unusable(&mut self, now: Time, found: Option<&[StoredSecret]>) -> bool {
        let are = found.is_some_and(<[_]>::is_empty) && self.silent <= now;
        if are {
            self.silent = now + REPORT_INTERVAL;
        }
        are
    }

    /// Takes the answer: the secrets, or `None` if the command has failed. Returns them in the order of use if that has
    /// changed.
    pub fn read(
        &mut self,
        now: Time,
        found: Option<Vec<StoredSecret>>,
    ) -> Option<Vec<SharedSecret>> {
        let found = found.filter(|found| !found.is_empty());
        let pause = if found.is_some() { READ_INTERVAL } else { RETRY_PAUSE };
        self.lane = Lane::Idle { next: now + pause };
        let mut found = found?;
        found.sort_by_key(|one| std::cmp::Reverse(one.number));
        found.truncate(MAX_SHARED);
        let in_use = found.iter().position(|one| one.in_use).unwrap_or(found.len() - 1);
        let mut shared: Vec<SharedSecret> = found.iter().map(|one| one.secret).collect();
        shared[..=in_use].rotate_right(1);
        self.known = found;
        if shared == self.shared {
            return None;
        }
        self.shared.clone_from(&shared);
        Some(shared)
    }
}

impl Default for Secrets {
    fn default() -> Self {
        Secrets::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_secs(1000);

    fn stored(number: u64, in_use: bool) -> StoredSecret {
        let secret = SharedSecret([number as u8; 32]);
        StoredSecret { number, from: 1000 * number, in_use, secret }
    }

    fn order(secrets: &mut Secrets, found: &[StoredSecret]) -> Option<Vec<u8>> {
        assert!(secrets.begin(NOW + READ_INTERVAL * 2).is_some());
        let shared = secrets.read(NOW, Some(found.to_vec()))?;
        Some(shared.iter().map(|secret| secret.0[0]).collect())
    }

    #[test]
    fn the_last_that_has_come_into_use_is_first() {
        let mut secrets = Secrets::new();
        assert_eq!(order(&mut secrets, &[stored(1, true)]), Some(vec![1]));
        assert_eq!(order(&mut secrets, &[stored(1, true)]), None);
        assert_eq!(order(&mut secrets, &[stored(1, true), stored(2, false)]), Some(vec![1, 2]));
        assert_eq!(order(&mut secrets, &[stored(2, true), stored(1, true)]), Some(vec![2, 1]));
        let four = [stored(3, true), stored(1, true), stored(4, false), stored(2, true)];
        assert_eq!(order(&mut secrets, &four), Some(vec![3, 4, 2, 1]));
        // The clock was set back: the oldest is the one that all nodes know.
        assert_eq!(order(&mut secrets, &[stored(7, false), stored(6, false)]), Some(vec![6, 7]));
    }

    #[test]
    fn what_is_known_stays_while_nothing_is_read() {
        let mut secrets = Secrets::new();
        order(&mut secrets, &[stored(1, true)]);
        for nothing in [None, Some(Vec::new())] {
            secrets.lane = Lane::READY;
            assert_eq!(secrets.begin(NOW), Some(vec![stored(1, true)]));
            assert_eq!(secrets.begin(NOW), None, "one command at a time");
            assert_eq!(secrets.read(NOW, nothing), None);
            assert_eq!(secrets.lane.next(), Some(NOW + RETRY_PAUSE));
        }
    }

    #[test]
    fn what_is_no_secret_is_left_out() {
        let secret = text(&SharedSecret([0xa7; 32]));
        let read = StoredSecret::parse(&["12", "1000", "1", &secret]);
        assert_eq!(read[0].arguments(), ["12".into(), "1000".into(), secret.clone()]);
        for bad in [
            ["-1", "1000", "1", &secret],
            ["1234567890123456", "1000", "1", &secret],
            ["1", "", "1", &secret],
            ["1", "1000", "1", &secret[1..]],
            ["1", "1000", "1", &secret.to_uppercase()],
        ] {
            assert_eq!(StoredSecret::parse(&bad), [], "{bad:?}");
        }
        assert_eq!(StoredSecret::parse(&["1", "1000", "1"]), []);
        let many: Vec<&str> = ["1", "1000", "1", &secret].repeat(MAX_SHARED + 1);
        assert_eq!(StoredSecret::parse(&many).len(), MAX_SHARED);
    }

    proptest! {
        #[test]
        fn any_answer_is_some_order(numbers in prop::collection::vec((0u64..9, any::<bool>()), 0..8)) {
            let found: Vec<StoredSecret> =
                numbers.iter().map(|(number, in_use)| stored(*number, *in_use)).collect();
            let shared = Secrets::new().read(NOW, Some(found.clone()));
            prop_assert_eq!(shared.map_or(0, |shared| shared.len()), found.len().min(MAX_SHARED));
        }
    }
}
