//! `ringway registrations` and `ringway calls`: the present activity of a running server.

use crate::address::ServerArgs;
use crate::out::{self, CommandError};
use clap::Args;
use ringway_server::manage;
use ringway_server::observe::http::Registration;
use ringway_server::text::clean;
use serde::Serialize;

#[derive(Args)]
pub(crate) struct Registrations {
    /// NAME or NAME@DOMAIN [default: everybody]
    user: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Args)]
pub(crate) struct Calls {
    #[command(flatten)]
    server: ServerArgs,
}

/// Maximum width of a column; a longer value is shown in full and shifts the rest of its line.
const MAX_WIDTH: usize = 48;

/// A table whose columns are aligned by the rows of the first page.
struct Table<const N: usize> {
    head: [&'static str; N],
    widths: Option<[usize; N]>,
}

impl<const N: usize> Table<N> {
    fn new(head: [&'static str; N]) -> Self {
        Table { head, widths: None }
    }

    fn page(&mut self, rows: &[[String; N]]) -> Result<(), CommandError> {
        let mut text = String::new();
        let widths = match self.widths {
            Some(widths) => widths,
            None => {
                let mut widths = self.head.map(str::len);
                for row in rows {
                    for (width, cell) in widths.iter_mut().zip(row) {
                        *width = (*width).max(cell.chars().count().min(MAX_WIDTH));
                    }
                }
                self.widths = Some(widths);
                text.push_str(&line(&widths, &self.head));
                widths
            }
        };
        text.extend(rows.iter().map(|row| line(&widths, row)));
        out::text(&text)
    }
}

fn line<T: AsRef<str>>(widths: &[usize], cells: &[T]) -> String {
    let mut text = String::new();
    for (width, cell) in widths.iter().zip(cells) {
        text.push_str(&format!("{:<width$}  ", cell.as_ref()));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Prints items as one JSON list while they arrive.
struct JsonList {
    not_empty: bool,
}

impl JsonList {
    fn page(&mut self, items: &[impl Serialize]) -> Result<(), CommandError> {
        let mut text = String::new();
        for item in items {
            text.push_str(if self.not_empty { ",\n " } else { "[\n " });
            self.not_empty = true;
            text.push_str(&serde_json::to_string(item).map_err(|e| e.to_string())?);
        }
        out::text(&text)
    }

    fn end(&self) -> Result<(), CommandError> {
        out::text(if self.not_empty { "\n]\n" } else { "[]\n" })
    }
}

/// Formats a number of seconds for people.
fn duration(seconds: u64) -> String {
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

pub(crate) fn registrations(args: &Registrations) -> Result<(), CommandError> {
    let (sources, user) = (args.server.sources(), args.user.clone());
    if args.server.json {
        let mut list = JsonList { not_empty: false };
        manage::registrations(&sources, user, &mut |page| list.page(&page).map_err(|e| e.0))
            .map_err(CommandError)?;
        return list.end();
    }
    let mut table = Table::new(["USER", "CONTACT", "FROM", "ENDS IN", ""]);
    let row = |r: Registration| {
        let mut notes = Vec::new();
        if r.behind_nat {
            notes.push("behind a NAT".to_owned());
        }
        if r.outbound {
            notes.push("outbound".to_owned());
        }
        notes.extend(r.path.map(|path| format!("by {}", clean(&path))));
        [
            clean(&r.user).to_string(),
            clean(&r.contact).to_string(),
            r.flow.unwrap_or_else(|| "-".to_owned()),
            duration(r.expires_seconds),
            notes.join(", "),
        ]
    };
    manage::registrations(&sources, user, &mut |page| {
        let rows: Vec<_> = page.into_iter().map(row).collect();
        table.page(&rows).map_err(|e| e.0)
    })
    .map_err(CommandError)
}

pub(crate) fn calls(args: &Calls) -> Result<(), CommandError> {
    let sources = args.server.sources();
    if args.server.json {
        let mut list = JsonList { not_empty: false };
        manage::calls(&sources, &mut |page| list.page(&page).map_err(|e| e.0))
            .map_err(CommandError)?;
        return list.end();
    }
    let mut table = Table::new(["STATE", "FOR", "CALLER", "CALLEE", "FROM", "TO", "CALL-ID"]);
    manage::calls(&sources, &mut |page| {
        let rows: Vec<_> = page
            .into_iter()
            .map(|c| {
                let to = match (c.destination, c.gateway) {
                    (Some(to), Some(gateway)) => format!("{to} ({})", clean(&gateway)),
                    (to, gateway) => to.or(gateway).unwrap_or_else(|| "-".to_owned()),
                };
                [
                    c.state,
                    duration(c.answered_seconds.unwrap_or(c.age_seconds) as u64),
                    clean(&c.caller).to_string(),
                    clean(&c.callee).to_string(),
                    c.source,
                    to,
                    clean(&c.call_id).to_string(),
                ]
            })
            .collect();
        table.page(&rows).map_err(|e| e.0)
    })
    .map_err(CommandError)
}
