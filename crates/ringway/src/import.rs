//! `ringway import`: the users of other servers.

use crate::address::ServerArgs;
use crate::out::{self, CommandError};
use clap::{Args, Subcommand};
use ringway_server::config::Host;
use ringway_server::manage::import::{self, ImportReport, Program};
use std::path::PathBuf;

#[derive(Subcommand)]
pub(crate) enum Import {
    /// Reads the table `subscriber` of Kamailio or OpenSIPS: a dump in SQL, a table of db_text, or CSV with a header
    Kamailio(ImportArgs),
    /// Reads pjsip.conf or sip.conf of Asterisk, and the files of the same folder that it includes
    Asterisk(ImportArgs),
}

#[derive(Args)]
pub(crate) struct ImportArgs {
    /// The file
    file: PathBuf,
    /// Domain of users for whom the file has none [default: the main domain of the server]
    #[arg(long, value_name = "NAME")]
    domain: Option<Host>,
    /// Replaces the passwords of users that exist by those of the file; otherwise they are kept as they are
    #[arg(long)]
    replace: bool,
    /// Prints what would be done and changes nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs a command.
pub(crate) fn import(command: Import) -> Result<(), CommandError> {
    let (program, args) = match command {
        Import::Kamailio(args) => (Program::Kamailio, args),
        Import::Asterisk(args) => (Program::Asterisk, args),
    };
    let ImportArgs { file, domain, replace, dry_run, server } = args;
    let request = import::Import { program, file, domain, replace, dry_run };
    let report = import::import(&server.sources(), &request).map_err(CommandError)?;
    match server.json {
        true => out::json(&report)?,
        false => print(&report)?,
    }
    let nothing = report.imported.is_empty() && report.kept.is_empty();
    match nothing && !report.refused.is_empty() {
        true => Err("no user of the file can be imported".to_owned().into()),
        false => Ok(()),
    }
}

fn print(report: &ImportReport) -> Result<(), CommandError> {
    if let Some(store) = &report.created {
        out::note(&format!("store {} is new", store.display()));
    }
    report.refused.iter().for_each(|refused| out::note(&refused.text()));
    if report.dry_run {
        for user in &report.imported {
            let what =
                if user.replaced { "would get the password of the file" } else { "would be added" };
            out::line(&format!("{}@{} {what}", user.user, user.realm))?;
        }
        for user in &report.kept {
            out::line(&format!("{}@{} would be kept", user.user, user.realm))?;
        }
    }
    let partial: Vec<_> = report.imported.iter().filter(|user| !user.without.is_empty()).collect();
    if let Some(first) = partial.first() {
        out::note(&format!(
            "imported without a hash of {}: {}; a phone that answers such a challenge cannot register",
            first.without.join(", "),
            partial.len()
        ));
    }
    if report.unstated > 0 {
        out::note(&format!(
            "users that are reported to the mesh at the next start: {}",
            report.unstated
        ));
    }
    let (imported, kept) = (report.imported.len(), report.kept.len());
    let dry = if report.dry_run { "dry run: " } else { "" };
    out::line(&format!("{dry}{imported} imported, {kept} kept, {} refused", report.refused.len()))
}
