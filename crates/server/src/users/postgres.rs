//! Sessions with PostgreSQL: reads everything or changes, and writes.
//!
//! Values are cut by the server at more than any valid one has, and read as octets, since not every row is one of ours.

use super::migrate::migrate;
use super::read::{Changes, Complete, Found, ReadChange, Sink};
use super::shared::{Change, Changed, Expected, Failure};
use super::tls::Connector;
use crate::config::{PostgresUri, TableName};
use crate::store::users::HashedUser;
use ringway_import::{COLUMNS, Subscribers};
use ringway_sip::digest::Algorithm;
use ringway_users::mirror::Follow;
use ringway_users::row::{HASHES, MAX_TEXT, adopted};
use ringway_users::{Domains, MAX_USERS, Position, Refusal, Row};
use std::fmt;
use std::future::{Future, poll_fn};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::Severity;
use tokio_postgres::tls::{MakeTlsConnect, NoTls};
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{
    AsyncMessage, Client, Config, GenericClient, IsolationLevel, Socket, Transaction,
};

/// Time in which a connection to one host is made.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Time in which one statement, or one page of rows, is answered.
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);
/// Number of rows that are read at once.
const PAGE: i32 = 1000;
/// Number of names that are asked for at once.
const NAMES: usize = 1000;
/// Longest text of an error that is shown.
const MAX_ERROR: usize = 300;

/// What a session is set to, so that a server that is cut off blocks nobody for long.
const SETTINGS: &str = "SET statement_timeout = '10s'; SET lock_timeout = '3s'; \
                        SET idle_in_transaction_session_timeout = '30s'";
/// Names without a schema are those of PostgreSQL. Otherwise a role that may create functions or operators, as all could in
/// `public` before version 15, could have this one call them.
const NO_OTHERS: &str = "SET search_path = pg_catalog, pg_temp";

/// The columns of Ringway's own table.
const OWN: &str = "left(domain, 300), left(username, 300), left(ha1_md5, 300), left(ha1_sha256, 300), \
                   left(ha1_sha512t256, 300), \
                   CASE WHEN isfinite(password_set) THEN extract(epoch FROM password_set)::bigint ELSE -1 END";

/// A database, not connected yet.
pub struct Server {
    uri: PostgresUri,
    table: Option<TableName>,
    follow: Follow,
    config: Config,
    tls: Option<Connector>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            Some(table) => write!(f, "{}, table {table}", self.uri),
            None => self.uri.fmt(f),
        }
    }
}

impl Server {
    /// Returns a database.
    ///
    /// # Errors
    /// Fails for trust anchors that cannot be used.
    pub(super) fn new(
        uri: PostgresUri,
        table: Option<TableName>,
        follow: Follow,
        roots: Option<&[u8]>,
    ) -> Result<Self, String> {
        let tls = uri.tls.then(|| Connector::new(roots)).transpose()?;
        let mut config = Config::new();
        config
            .user(&uri.user)
            .dbname(&uri.database)
            .application_name("ringway")
            .connect_timeout(CONNECT_LIMIT)
            .keepalives_idle(Duration::from_secs(30))
            .ssl_mode(if uri.tls { SslMode::Require } else { SslMode::Disable })
            .target_session_attrs(match table {
                // A replica has it, too.
                Some(_) => TargetSessionAttrs::Any,
                None => TargetSessionAttrs::ReadWrite,
            });
        if let Some(password) = &uri.password {
            config.password(password);
        }
        for (host, port) in &uri.hosts {
            config.host(host).port(*port);
        }
        Ok(Server { uri, table, follow, config, tls })
    }

    pub(super) fn read_only(&self) -> Option<String> {
        let table = self.table.as_ref()?;
        Some(format!(
            "the users are those of another program's table {table} (users.table): change them there"
        ))
    }

    pub(super) fn follow(&self) -> Follow {
        self.follow
    }

    /// Returns whether passwords' hashes travel in clear text to another host.
    pub(super) fn is_exposed(&self) -> bool {
        self.uri.is_exposed()
    }

    /// Connects, and has the schema be the one that is known here. Changes are reported to `heard` from then on, which is
    /// closed when the connection is lost.
    pub(super) async fn connect(&self, heard: mpsc::Sender<()>) -> Result<Session, String> {
        let (client, task) = match &self.tls {
            Some(tls) => open(&self.config, tls.clone(), heard).await,
            None => open(&self.config, NoTls, heard).await,
        }
        .map_err(|e| text(&e))?;
        let mut session = Session { client, _task: Ended(task), table: None };
        answered(session.client.batch_execute(SETTINGS)).await?;
        match &self.table {
            Some(table) => {
                let name = found_at(&session.client, table).await?;
                answered(session.client.batch_execute(NO_OTHERS)).await?;
                session.table = Some(foreign(&session.client, table, name).await?);
            }
            None => {
                answered(session.client.batch_execute(NO_OTHERS)).await?;
                migrate(&mut session.client).await?;
                answered(session.client.batch_execute("LISTEN ringway_users")).await?;
            }
        }
        Ok(session)
    }
}

/// A task that ends with its session.
struct Ended(JoinHandle<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn open<T>(
    config: &Config,
    tls: T,
    heard: mpsc::Sender<()>,
) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = config.connect(tls).await?;
    let task = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                // One that waits stands for all.
                let _ = heard.try_send(());
            }
        }
    });
    Ok((client, task))
}

/// A table of another program.
struct Foreign {
    name: String,
    columns: Subscribers,
    select: String,
}

/// Returns the name of a table with the schema in which the role finds it.
async fn found_at(client: &Client, table: &TableName) -> Result<String, String> {
    let sql = "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) \
               FROM pg_catalog.pg_class AS c, pg_catalog.pg_namespace AS n \
               WHERE c.oid OPERATOR(pg_catalog.=) $1::pg_catalog.text::pg_catalog.regclass::pg_catalog.oid \
               AND n.oid OPERATOR(pg_catalog.=) c.relnamespace";
    let row = answered(client.query_one(sql, &[&table.quoted()])).await?;
    Ok(lossy(&row, 0))
}

/// Finds the columns of a table that are used, and that the role may read.
async fn foreign(client: &Client, table: &TableName, name: String) -> Result<Foreign, String> {
    let sql = "SELECT attname::text FROM pg_catalog.pg_attribute \
               WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped \
               AND has_column_privilege(attrelid, attnum, 'SELECT') \
               AND lower(attname::text COLLATE \"C\") = ANY($2::text[])";
    // Other names are not asked for: in a database without an encoding they may be no text, which the server refuses.
    let rows = answered(client.query(sql, &[&name, &COLUMNS.as_slice()])).await?;
    let known = |column: &str| COLUMNS.into_iter().find(|known| column.eq_ignore_ascii_case(known));
    let names: Vec<String> = rows.iter().map(|row| lossy(row, 0)).collect();
    let used: Vec<(&str, &String)> =
        names.iter().filter_map(|column| Some((known(column)?, column))).collect();
    let columns: Vec<&str> = used.iter().map(|(known, _)| *known).collect();
    let columns = Subscribers::new(&table.to_string(), &columns).map_err(|e| e.to_string())?;
    // A database without an encoding may have any octets, of which the server would refuse to make text, for all rows.
    let encoding = answered(client.query_one("SHOW server_encoding", &[])).await?;
    let encoding = if lossy(&encoding, 0) == "SQL_ASCII" { "SQL_ASCII" } else { "UTF8" };
    let cut = |(_, column): &(&str, &String)| {
        let column = column.replace('"', "\"\"");
        format!("convert_to(left(\"{column}\"::text, {MAX_TEXT}), '{encoding}')")
    };
    let cut: Vec<String> = used.iter().map(cut).collect();
    let select = format!("SELECT {} FROM {name}", cut.join(", "));
    Ok(Foreign { name, columns, select })
}

/// A connection.
pub(super) struct Session {
    client: Client,
    _task: Ended,
    table: Option<Foreign>,
}

impl Session {
    /// Reads everything, as of one moment, in pages.
    pub(super) async fn read_all(
        &mut self,
        domains: &Domains,
        sink: &mut dyn Sink,
    ) -> Result<Complete, String> {
        let start = self.client.build_transaction();
        let start = start.isolation_level(IsolationLevel::RepeatableRead).read_only(true).start();
        let tx = answered(start).await?;
        let name = self.table.as_ref().map_or("ringway.users", |table| &table.name);
        expect_room(&tx, name).await?;
        let (mut position, mut select) = (0, format!("SELECT {OWN} FROM ringway.users"));
        match &self.table {
            Some(table) => select.clone_from(&table.select),
            None => position = last_change(&tx).await?,
        }
        let statement = answered(tx.prepare(&select)).await?;
        let portal = answered(tx.bind(&statement, &[])).await?;
        loop {
            let rows = answered(tx.query_portal(&portal, PAGE)).await?;
            if rows.is_empty() {
                break;
            }
            let found = |row| match &self.table {
                Some(table) => subscriber(row, &table.columns, domains),
                None => Some(own(row, 0)),
            };
            sink.page(rows.iter().filter_map(found).collect(), false);
        }
        let mut noted = Vec::new();
        if self.table.is_none() {
            for names in sink.missing().chunks(NAMES) {
                noted.extend(noted_of(&tx, names).await?);
            }
        }
        answered(tx.commit()).await?;
        Ok(Complete { position, noted })
    }

    /// Reads the changes after one, some at a time.
    pub(super) async fn read_changes(&mut self, after: Position) -> Result<Changes, String> {
        let sql = format!(
            "SELECT change, true, {OWN} FROM (SELECT * FROM ringway.users \
               WHERE change > $1 ORDER BY change LIMIT {PAGE}) AS written \
             UNION ALL \
             SELECT change, false, domain, username, NULL, NULL, NULL, 0 FROM (SELECT * FROM ringway.removed \
               WHERE change > $1 ORDER BY change LIMIT {PAGE}) AS removed \
             ORDER BY 1 LIMIT {PAGE}"
        );
        let rows = answered(self.client.query(&sql, &[&after])).await?;
        if rows.is_empty() {
            // Numbers were lost, and begin again.
            let last = last_change(&self.client).await?;
            if last < after {
                return Err(format!("the last change was {after}, and is {last}"));
            }
        }
        let change = |row: &tokio_postgres::Row| match value(row, 1)? {
            true => Ok(ReadChange::Set(own(row, 2))),
            false => Ok(ReadChange::Removed(lossy(row, 3), lossy(row, 2))),
        };
        Ok(Changes {
            changes: rows.iter().map(change).collect::<Result<_, String>>()?,
            position: rows.last().map_or(Ok(after), |row| value(row, 0))?,
            more: rows.len() == PAGE as usize,
        })
    }

    /// Carries out a change. The caller has a limit for it.
    pub(super) async fn write(&mut self, change: &Change) -> Result<Changed, Failure> {
        // What was not committed is not made.
        let (tx, changed) = self.uncommitted(change).await.map_err(Failure::Unchanged)?;
        match changed {
            Changed::Done(_) => commit(tx).await?,
            Changed::Exists(_) | Changed::Missing(_) => {
                answered(tx.rollback()).await.map_err(Failure::Unchanged)?;
            }
        }
        Ok(changed)
    }

    async fn uncommitted(&mut self, change: &Change) -> Result<(Transaction<'_>, Changed), String> {
        let tx = answered(self.client.transaction()).await?;
        let limit = change.limit().as_millis();
        answered(tx.batch_execute(&format!("SET LOCAL statement_timeout = {limit}"))).await?;
        let changed = match change {
            Change::Put(users, expected) => put(&tx, users, *expected).await?,
            Change::Remove(user, realm) => remove(&tx, user, realm).await?,
            Change::Prune => Changed::Done(0),
        };
        Ok((tx, changed))
    }
}

async fn commit(tx: Transaction<'_>) -> Result<(), Failure> {
    match tokio::time::timeout(STATEMENT_LIMIT, tx.commit()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) if is_refusal(&e) => Err(Failure::Unchanged(text(&e))),
        Ok(Err(e)) => Err(Failure::Unknown(text(&e))),
        Err(_) => Err(Failure::Unknown(late())),
    }
}

/// Returns whether the server has refused to commit. An end of its session may come after the commit, and a pooler between
/// reports what has become of the connection only.
fn is_refusal(e: &tokio_postgres::Error) -> bool {
    e.as_db_error().is_some_and(|e| {
        let code = e.code().code();
        e.parsed_severity() == Some(Severity::Error) && !code.starts_with("08") && code != "40003"
    })
}

/// Returns the number of the last change.
async fn last_change(client: &impl GenericClient) -> Result<Position, String> {
    let last = "SELECT greatest((SELECT max(change) FROM ringway.users), \
                (SELECT max(change) FROM ringway.removed), 0)";
    value(&answered(client.query_one(last, &[])).await?, 0)
}

/// Refuses a table with too many rows.
async fn expect_room(tx: &Transaction<'_>, name: &str) -> Result<(), String> {
    let sql = format!("SELECT count(*) FROM (SELECT FROM {name} LIMIT {}) AS rows", MAX_USERS + 1);
    let count: i64 = value(&answered(tx.query_one(&sql, &[])).await?, 0)?;
    match usize::try_from(count).is_ok_and(|count| count <= MAX_USERS) {
        true => Ok(()),
        false => Err(format!("table {name}: expected at most {MAX_USERS} users, got more")),
    }
}

/// Returns those of some users whose removal is noted.
async fn noted_of(
    tx: &Transaction<'_>,
    names: &[(String, String)],
) -> Result<Vec<(String, String)>, String> {
    let (users, realms): (Vec<&str>, Vec<&str>) =
        names.iter().map(|(user, realm)| (user.as_str(), realm.as_str())).unzip();
    let sql = "SELECT username, domain FROM ringway.removed \
               WHERE (domain, username) IN (SELECT * FROM unnest($1::text[], $2::text[]))";
    let rows = answered(tx.query(sql, &[&realms, &users])).await?;
    Ok(rows.iter().map(|row| (lossy(row, 0), lossy(row, 1))).collect())
}

async fn put(
    tx: &Transaction<'_>,
    users: &[HashedUser],
    expected: Expected,
) -> Result<Changed, String> {
    let hex = |user: &HashedUser, algorithm: Algorithm| {
        let mut hex = Vec::new();
        user.hashes.get(algorithm)?.write_hex(&mut hex);
        String::from_utf8(hex).ok()
    };
    let realms: Vec<&str> = users.iter().map(|user| user.realm.as_str()).collect();
    let names: Vec<&str> = users.iter().map(|user| user.user.as_str()).collect();
    let [md5, sha256, sha512]: [Vec<Option<String>>; 3] =
        HASHES.map(|algorithm| users.iter().map(|user| hex(user, algorithm)).collect());
    let set: Vec<i64> = users.iter().map(|user| user.hashes.password_set().into()).collect();
    let rows = "unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[]) \
                AS rows (d, u, a, b, c, t)";
    let columns = "ha1_md5, ha1_sha256, ha1_sha512t256, password_set";
    let insert = format!(
        "INSERT INTO ringway.users (domain, username, {columns}) \
         SELECT d, u, a, b, c, to_timestamp(t) FROM {rows} ON CONFLICT (domain, username) DO"
    );
    let returning = "RETURNING username, domain, change";
    let sql = match expected {
        Expected::New => format!("{insert} NOTHING {returning}"),
        Expected::Any => format!(
            "{insert} UPDATE SET ({columns}) = (EXCLUDED.ha1_md5, EXCLUDED.ha1_sha256, \
             EXCLUDED.ha1_sha512t256, EXCLUDED.password_set) {returning}"
        ),
        Expected::Existing => format!(
            "UPDATE ringway.users SET ({columns}) = (a, b, c, to_timestamp(t)) FROM {rows} \
             WHERE domain = d AND username = u {returning}"
        ),
    };
    let done = tx.query(&sql, &[&realms, &names, &md5, &sha256, &sha512, &set]).await;
    let done = done.map_err(|e| text(&e))?;
    let mut is_done: Vec<(&[u8], &[u8])> = done
        .iter()
        .map(|row| (octets(row, 0).unwrap_or_default(), octets(row, 1).unwrap_or_default()))
        .collect();
    is_done.sort_unstable();
    let other = users.iter().find(|user| {
        is_done.binary_search(&(user.user.as_bytes(), user.realm.as_bytes())).is_err()
    });
    if let Some(HashedUser { user, realm, .. }) = other {
        let name = format!("{user}@{realm}");
        return Ok(match expected {
            Expected::New => Changed::Exists(name),
            Expected::Existing | Expected::Any => Changed::Missing(name),
        });
    }
    if expected != Expected::Existing {
        expect_room(tx, "ringway.users").await?;
    }
    let numbers = done.iter().map(|row| value(row, 2)).collect::<Result<Vec<_>, _>>()?;
    Ok(Changed::Done(numbers.into_iter().max().unwrap_or_default()))
}

async fn remove(tx: &Transaction<'_>, user: &str, realm: &str) -> Result<Changed, String> {
    let delete = "DELETE FROM ringway.users WHERE domain = $1 AND username = $2";
    if answered(tx.execute(delete, &[&realm, &user])).await? == 0 {
        return Ok(Changed::Missing(format!("{user}@{realm}")));
    }
    let number = "SELECT change FROM ringway.removed WHERE domain = $1 AND username = $2";
    let row = answered(tx.query_one(number, &[&realm, &user])).await?;
    value(&row, 0).map(Changed::Done)
}

/// Octets, of a text or not.
struct Octets<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Octets<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Octets(raw))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::TEXT | Type::BYTEA)
    }
}

fn octets(row: &tokio_postgres::Row, column: usize) -> Option<&[u8]> {
    row.try_get::<_, Option<Octets<'_>>>(column).ok().flatten().map(|octets| octets.0)
}

fn lossy(row: &tokio_postgres::Row, column: usize) -> String {
    String::from_utf8_lossy(octets(row, column).unwrap_or_default()).into_owned()
}

/// Returns a value of a row. Its type may be another one: tables may be changed by others.
pub(super) fn value<'r, T: FromSql<'r>>(
    row: &'r tokio_postgres::Row,
    column: usize,
) -> Result<T, String> {
    row.try_get(column).map_err(|e| text(&e))
}

/// Returns the user in a row with the columns of [`OWN`], from this one on.
fn own(row: &tokio_postgres::Row, first: usize) -> Found {
    Row {
        domain: octets(row, first).unwrap_or_default(),
        username: octets(row, first + 1).unwrap_or_default(),
        hashes: [2, 3, 4].map(|column| octets(row, first + column)),
        password_set: row.try_get(first + 5).unwrap_or(-1),
    }
    .entry()
}

/// Returns the user in a row of another program; `None` for one of another domain.
fn subscriber(
    row: &tokio_postgres::Row,
    columns: &Subscribers,
    domains: &Domains,
) -> Option<Found> {
    let values: Vec<Option<&[u8]>> = (0..row.len()).map(|column| octets(row, column)).collect();
    match columns.user(&values) {
        Ok(user) => adopted(user, domains).transpose(),
        Err(refusal) => Some(Err(Refusal {
            // Its domain is not known here, so that it counts as missing.
            name: None,
            text: format!("user {:?} {}", refusal.name.unwrap_or_default(), refusal.reason),
        })),
    }
}

/// Waits for an answer, but not for long.
async fn answered<T>(
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, String> {
    match tokio::time::timeout(STATEMENT_LIMIT, work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(text(&e)),
        Err(_) => Err(late()),
    }
}

fn late() -> String {
    format!("no answer within {} s", STATEMENT_LIMIT.as_secs())
}

/// Describes an error in one line. What the server says in detail may quote a row, so that it is left out.
pub(super) fn text(e: &tokio_postgres::Error) -> String {
    let mut out = match e.as_db_error() {
        Some(e) => format!("{} (SQLSTATE {})", e.message(), e.code().code()),
        None => {
            let mut out = e.to_string();
            let mut cause = std::error::Error::source(e);
            while let Some(e) = cause {
                out = format!("{out}: {e}");
                cause = e.source();
            }
            out
        }
    };
    if let Some((end, _)) = out.char_indices().nth(MAX_ERROR) {
        out.truncate(end);
    }
    out.replace(|c: char| c.is_control(), " ")
}
