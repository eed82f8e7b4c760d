//! The map of slots of a database of many primaries, as its servers report it, and the keys of probes.

use std::sync::OnceLock;
use std::time::Duration;

use redis::{Cmd, Value};
use ringway_cluster::slots::{self, BadSlots, Range};
use ringway_cluster::{Report, Shard, Slots};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::Hub;
use super::database::{Database, Failure};

/// Time that a server has for its map.
const READ_LIMIT: Duration = Duration::from_millis(500);
/// Interval at which the map is read while all shards answer.
const INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which it is read while one does not.
const SEARCH_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum interval, whatever answers make it worth reading.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// Lifetime of the key of a probe, in milliseconds.
const PROBE_LIFETIME: u64 = 5000;

/// Reports the map of slots, as long as the server runs.
pub(super) async fn watch(
    hub: std::sync::Arc<Hub>,
    database: std::sync::Arc<Database>,
    reports: mpsc::Sender<Report>,
) {
    // Nodes begin with different servers, and each asks another each time: one that lags is not believed for long.
    let mut turn = usize::from(hub.name().address.port()) + hub.name().to_string().len();
    loop {
        let slots = read_any(&database, &mut turn).await;
        let failure = slots.as_ref().err().cloned();
        let is_read = failure.is_none();
        hub.world().set_why(&Shard::whole(), failure);
        if let Ok(slots) = &slots {
            hub.world().keep_why(slots.shards());
        }
        if reports.send(Report::Slots(slots.ok())).await.is_err() {
            return;
        }
        let counts = hub.counts();
        let is_complete = is_read && counts.shards_absent == 0;
        turn += 1;
        let interval = if is_complete { INTERVAL } else { SEARCH_INTERVAL };
        sleep(MIN_INTERVAL).await;
        // Early, if an answer shows that the map is old.
        let _ = timeout(interval, database.stale.notified()).await;
    }
}

/// Reads the map from the first server that has one, beginning with another each `turn`.
async fn read_any(database: &Database, turn: &mut usize) -> Result<Slots, Failure> {
    let mut servers = database.servers();
    let count = servers.len().max(1);
    servers.rotate_left(*turn % count);
    let mut failure = "no server".to_owned();
    for server in servers {
        failure = match timeout(READ_LIMIT, read(database, &server)).await {
            Ok(Ok(slots)) => {
                database.set_primaries(slots.shards());
                return Ok(slots);
            }
            Ok(Err(e)) => format!("{server}: {e}"),
            Err(_) => format!("{server}: no answer within {READ_LIMIT:?}"),
        };
        debug!("the map of slots: {failure}");
        *turn += 1;
    }
    Err(failure)
}

async fn read(database: &Database, server: &Shard) -> Result<Slots, Failure> {
    let mut connection = database.connect_with(server).await?;
    let mut pipeline = redis::pipe();
    pipeline.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
    let answers = connection.send_packed_commands(&pipeline, 0, 2).await;
    let answers = answers.map_err(|e| e.to_string())?;
    let [info, map] = &answers[..] else { return Err("no answer to CLUSTER SLOTS".to_owned()) };
    parse(server, info, map).map_err(|e| match (info, map) {
        (Value::ServerError(e), _) | (_, Value::ServerError(e)) => e.to_string(),
        _ => e.to_string(),
    })
}

/// Returns the map that a server has reported by CLUSTER INFO and CLUSTER SLOTS. What a server does not know of itself is its
/// host: it is that at which it was asked.
fn parse(asked: &Shard, info: &Value, map: &Value) -> Result<Slots, BadSlots> {
    let bad = |expected, got: &Value| {
        let got: String = format!("{got:?}").chars().take(80).collect();
        BadSlots { expected, got }
    };
    let epoch = || {
        let Value::BulkString(text) = info else { return None };
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        lines.find_map(|line| line.strip_prefix("cluster_current_epoch:"))?.trim().parse().ok()
    };
    let epoch = epoch().ok_or_else(|| bad("cluster_current_epoch", info))?;
    let Value::Array(ranges) = map else { return Err(bad("ranges of slots", map)) };
    if ranges.len() > usize::from(slots::SLOTS) {
        let got = ranges.len().to_string();
        return Err(BadSlots { expected: "at most 16384 ranges", got });
    }
    let range = |value: &Value| {
        let wrong = || bad("first slot, last slot and primary", value);
        let Value::Array(parts) = value else { return Err(wrong()) };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &parts[..] else {
            return Err(wrong());
        };
        let [host, Value::Int(port), ..] = &primary[..] else { return Err(wrong()) };
        let host = match host {
            Value::Nil => &*asked.host,
            Value::BulkString(host) if host.is_empty() => &*asked.host,
            Value::BulkString(host) => std::str::from_utf8(host).map_err(|_| wrong())?,
            _ => return Err(wrong()),
        };
        Ok(Range { first: *first, last: *last, primary: Shard::new(host, *port)? })
    };
    Slots::new(epoch, ranges.iter().map(range).collect::<Result<_, _>>()?)
}

/// Where a server has answered that a command belongs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Redirect {
    /// The server.
    pub(super) to: Shard,
    /// Whether it is asked this once, since the slot is on its way.
    pub(super) asking: bool,
}

/// Returns the redirection that an answer of a server is: `MOVED SLOT HOST:PORT`, or the same with `ASK`.
pub(super) fn redirect(from: &Shard, value: &Value) -> Option<Redirect> {
    let Value::ServerError(e) = value else { return None };
    let asking = match e.code() {
        "MOVED" => false,
        "ASK" => true,
        _ => return None,
    };
    let (host, port) = e.details()?.split_whitespace().nth(1)?.rsplit_once(':')?;
    let host = if host.is_empty() { &*from.host } else { host };
    Some(Redirect { to: Shard::new(host, port.parse().ok()?).ok()?, asking })
}

/// Returns whether an answer says that another server has the slot.
pub(super) fn is_moved(value: &Value) -> bool {
    matches!(value, Value::ServerError(e) if matches!(e.code(), "MOVED" | "ASK" | "TRYAGAIN"))
}

/// Returns the command of a probe: it writes a key in this slot.
pub(super) fn probe(slot: u16) -> Cmd {
    let key = format!("ringway:shard:{{{}}}", tags()[usize::from(slot % slots::SLOTS)]);
    let mut cmd = redis::cmd("SET");
    cmd.arg(key).arg(1).arg("PX").arg(PROBE_LIFETIME);
    cmd
}

/// Returns a hash tag for each slot.
fn tags() -> &'static [u32] {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    TAGS.get_or_init(|| {
        let mut tags = vec![None; usize::from(slots::SLOTS)];
        let mut missing = tags.len();
        for number in 0u32.. {
            let tag = &mut tags[usize::from(slots::slot(number.to_string().as_bytes()))];
            missing -= usize::from(tag.is_none());
            tag.get_or_insert(number);
            if missing == 0 {
                break;
            }
        }
        tags.into_iter().map(Option::unwrap_or_default).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn server(host: Value, port: i64) -> Value {
        // As Redis 7 and Valkey do it: address, port, id, and further data.
        Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])])
    }

    fn range(first: i64, last: i64, servers: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], servers].concat())
    }

    fn info() -> Value {
        text("cluster_state:ok\r\ncluster_current_epoch:7\r\n")
    }

    #[test]
    fn the_map_of_a_server_is_read() {
        let asked = Shard::new("seed", 7000).unwrap();
        let map = Value::Array(vec![
            range(
                5461,
                16_383,
                vec![server(text("10.0.0.2"), 7002), server(text("10.0.0.3"), 7003)],
            ),
            range(0, 100, vec![server(Value::Nil, 7001)]),
            range(101, 5460, vec![server(text(""), 7004)]),
        ]);
        let slots = parse(&asked, &info(), &map).unwrap();
        assert_eq!(slots.epoch(), 7);
        let of = |slot| slots.of(slot).unwrap().to_string();
        assert_eq!([of(0), of(101), of(6000)], ["seed:7001", "seed:7004", "10.0.0.2:7002"]);
    }

    #[test]
    fn a_map_that_is_none_is_refused() {
        let asked = Shard::new("seed", 7000).unwrap();
        let host = || text("10.0.0.2");
        for (map, expected) in [
            (Value::Nil, "ranges of slots, got nil"),
            (Value::Array(vec![]), "expected slots, got none"),
            (Value::Array(vec![Value::Int(1)]), "first slot, last slot and primary"),
            (Value::Array(vec![range(0, 1, vec![])]), "first slot, last slot and primary"),
            (Value::Array(vec![range(0, 1, vec![Value::Array(vec![])])]), "first slot, last slot"),
            (Value::Array(vec![range(0, 1, vec![server(Value::Int(1), 1)])]), "first slot, last"),
            (Value::Array(vec![range(0, 1, vec![server(text("?"), 1)])]), "a host, got \"?\""),
            (Value::Array(vec![range(0, 1, vec![server(host(), 65_536)])]), "a port, got 65536"),
            (
                Value::Array(vec![range(0, i64::MAX, vec![server(host(), 1)])]),
                "slots from 0 to 16383",
            ),
            (Value::Array(vec![Value::Nil; 16_385]), "at most 16384 ranges, got 16385"),
        ] {
            let error = parse(&asked, &info(), &map).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.len() < 200, "{error}");
        }
        let map = Value::Array(vec![range(0, 1, vec![server(host(), 1)])]);
        for info in [Value::Nil, text(""), text("cluster_current_epoch:x"), text("\u{1}")] {
            let error = parse(&asked, &info, &map).unwrap_err().to_string();
            assert!(error.contains("cluster_current_epoch"), "{error}");
        }
    }

    #[test]
    fn redirections_are_read() {
        let from = Shard::new("10.0.0.1", 7000).unwrap();
        let of = |line: &[u8]| redirect(&from, &redis::parse_redis_value(line).unwrap());
        let to =
            |host, port, asking| Some(Redirect { to: Shard::new(host, port).unwrap(), asking });
        assert_eq!(of(b"-MOVED 3999 10.0.0.2:6381\r\n"), to("10.0.0.2", 6381, false));
        assert_eq!(of(b"-ASK 3999 db.example:6381\r\n"), to("db.example", 6381, true));
        assert_eq!(of(b"-ASK 3999 2001:db8::1:6381\r\n"), to("2001:db8::1", 6381, true));
        // Redis 7, with cluster-preferred-endpoint-type unknown-endpoint.
        assert_eq!(of(b"-MOVED 3999 :6381\r\n"), to("10.0.0.1", 6381, false));
        for line in [
            &b"-MOVED\r\n"[..],
            b"-MOVED 3999\r\n",
            b"-MOVED 3999 x\r\n",
            b"-MOVED 3999 ?:1\r\n",
            b"-ASK 1 a:0\r\n",
            b"-ERR MOVED 3999 10.0.0.2:6381\r\n",
            b"+MOVED 3999 10.0.0.2:6381\r\n",
        ] {
            assert_eq!(of(line), None, "{line:?}");
        }
    }

    #[test]
    fn there_is_a_probe_for_each_slot() {
        for slot in 0..slots::SLOTS {
            let args: Vec<_> = probe(slot)
                .args_iter()
                .filter_map(|arg| match arg {
                    redis::Arg::Simple(bytes) => Some(bytes.to_vec()),
                    _ => None,
                })
                .collect();
            assert_eq!(slots::slot(&args[1]), slot);
        }
    }
}
