//! `ringway numbers`: the short numbers of a running router.

use crate::address::ServerArgs;
use crate::out::{self, CommandError};
use clap::{Args, Subcommand};
use ringway_server::manage;
use ringway_server::numbers::orders::{NumbersView, Order};

#[derive(Subcommand)]
pub(crate) enum Numbers {
    /// Shows the networks of short numbers, and which routers have blocks of them
    Show(Show),
    /// Takes over the blocks of routers that never return; all others must run
    Reclaim(Reclaim),
    /// Ends the numbers of an earlier network
    Retire(Retire),
}

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Args)]
pub(crate) struct Reclaim {
    /// Router that never returns, and whose state is destroyed (repeatable)
    #[arg(long = "lost", value_name = "ID", value_parser = router)]
    lost: Vec<u64>,
    /// Other router that has ever been granted blocks: name all of them (repeatable)
    #[arg(long = "other", value_name = "ID", value_parser = router)]
    others: Vec<u64>,
    /// Go on even if a router is not named that is known to have been granted blocks
    #[arg(long)]
    unchecked: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Args)]
pub(crate) struct Retire {
    /// The mark of the network, four digits
    #[arg(value_parser = clap::value_parser!(u16).range(..10_000))]
    mark: u16,
    #[command(flatten)]
    server: ServerArgs,
}

/// Reads a router's id as other commands print it.
fn router(text: &str) -> Result<u64, String> {
    let is_id = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|_| is_id);
    id.ok_or_else(|| "expected the 16 hexadecimal digits of a router's id".to_owned())
}

pub(crate) fn numbers(command: Numbers) -> Result<(), CommandError> {
    let (order, server) = match command {
        Numbers::Show(args) => (Order::Show, args.server),
        Numbers::Reclaim(args) => {
            let Reclaim { lost, others, unchecked, server } = args;
            (Order::Reclaim { lost, others, unchecked }, server)
        }
        Numbers::Retire(args) => (Order::Retire { mark: args.mark }, args.server),
    };
    let view = manage::numbers(&server.sources(), &order).map_err(CommandError)?;
    if server.json { out::json(&view) } else { out::text(&text(&view)) }
}

fn text(view: &NumbersView) -> String {
    let mut lines = Vec::new();
    match &view.network {
        Some(of) => {
            lines.push(format!("network  {} (mark {}), {} users here", of.id, of.mark, of.users))
        }
        None => lines.push("network  none yet".to_owned()),
    }
    lines.push(format!("free     {} blocks of ten numbers", view.free_blocks));
    if view.waiting > 0 {
        lines.push(format!("waiting  {} users", view.waiting));
    }
    if !view.routers.is_empty() || view.more_routers {
        let more = if view.more_routers { " and others" } else { "" };
        lines.push(format!("granted  to {}{more}", view.routers.join(" ")));
    }
    for of in &view.earlier {
        lines.push(format!("earlier  {} (mark {}), {} users here", of.id, of.mark, of.users));
    }
    if view.census {
        lines.push("census   under way, for at most 20 minutes".to_owned());
    }
    lines.extend(view.found.iter().map(|found| format!("census   {found}")));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_is_named_by_its_id() {
        assert_eq!(router("00000000000000ff"), Ok(255));
        for text in ["ff", "", "fd00::1", "000000000000000g", "+0000000000000ff"] {
            assert!(router(text).is_err(), "{text}");
        }
    }
}
