//! The schema of PostgreSQL: created and brought up to date by the first server that finds it so.

use super::postgres::{text, value};
use ringway_users::schema::{LOCK, PREPARE, VERSION, missing};
use tokio_postgres::{Client, GenericClient};
use tracing::info;

/// Has the database have the schema that this program knows. A server that comes second waits, and finds it done.
///
/// # Errors
/// Fails for a later schema, and when the role may not create what is missing.
pub(super) async fn migrate(client: &mut Client) -> Result<(), String> {
    if version(client).await? == Some(VERSION) {
        return Ok(());
    }
    let needs = |e: tokio_postgres::Error| {
        format!(
            "schema ringway cannot be brought to version {VERSION} ({}): connect once as a role that may create it",
            text(&e)
        )
    };
    let tx = client.transaction().await.map_err(needs)?;
    // Released when the transaction ends.
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(needs)?;
    let found = version(&tx).await?;
    if found.is_none() {
        let schema = tx.query_one("SELECT to_regnamespace('ringway') IS NULL", &[]).await;
        let prepare = match value(&schema.map_err(needs)?, 0)? {
            true => PREPARE,
            // A role that may not create schemas may have been given one.
            false => PREPARE.split_once(";\n").map_or(PREPARE, |(_, rest)| rest),
        };
        tx.batch_execute(prepare).await.map_err(needs)?;
    }
    for (version, sql) in missing(found.unwrap_or(0)).map_err(|e| e.to_string())? {
        tx.batch_execute(sql).await.map_err(needs)?;
        let note = "INSERT INTO ringway.schema_version (version) VALUES ($1)";
        tx.execute(note, &[&version]).await.map_err(needs)?;
        info!("the database of users has got version {version} of schema ringway");
    }
    tx.commit().await.map_err(needs)
}

/// Returns the version of the schema, if there is one.
async fn version(client: &impl GenericClient) -> Result<Option<i32>, String> {
    let failed = |e: tokio_postgres::Error| text(&e);
    let found = "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables \
                 WHERE schemaname = 'ringway' AND tablename = 'schema_version')";
    if !value::<bool>(&client.query_one(found, &[]).await.map_err(failed)?, 0)? {
        return Ok(None);
    }
    let latest = "SELECT coalesce(max(version), 0) FROM ringway.schema_version";
    let version: i32 = value(&client.query_one(latest, &[]).await.map_err(failed)?, 0)
        .map_err(|why| format!("table ringway.schema_version: {why}"))?;
    missing(version).map(|_| Some(version)).map_err(|e| e.to_string())
}
