//! How a command names the server that it is for.

use clap::Args;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use ringway_server::config::StoreKind;
use ringway_server::setup::{Overrides, Sources};
use std::ffi::OsStr;
use std::path::PathBuf;

/// The server that a command addresses.
#[derive(Args)]
pub(crate) struct ServerArgs {
    /// Configuration file of the server
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Store of the server, if not the default or the configured one
    #[arg(long, value_parser = StoreParser)]
    store: Option<StoreKind>,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl ServerArgs {
    pub(crate) fn sources(&self) -> Sources {
        let overrides = Overrides { store: self.store.clone(), ..Overrides::default() };
        Sources { config: self.config.clone(), overrides }
    }
}

/// Parses a store. An error does not repeat it, since the URI of a database may have a password.
#[derive(Clone)]
pub(crate) struct StoreParser;

impl TypedValueParser for StoreParser {
    type Value = StoreKind;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<StoreKind, clap::Error> {
        let parsed = value.to_str().map_or_else(|| Err("expected UTF-8".to_owned()), str::parse);
        let error = |e| clap::Error::raw(ErrorKind::ValueValidation, format!("--store: {e}\n"));
        parsed.map_err(|e: String| error(e).with_cmd(command))
    }
}
