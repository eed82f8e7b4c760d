//! One connection of Ringway's DCCP above IP: sends and checks the same messages as its counterpart (peer.c).
//!
//! The last line of the output says how it ended. The exit status is 0 when it was as expected.

mod host;
mod messages;
mod options;

use clap::Parser;
use host::Host;
use messages::Messages;
use options::Options;
use ringway_dccp::{Close, ConnId, Event, SendError, SendOptions, Snapshot};
use ringway_sansio::{Duration, Time};
use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

/// Time that the host goes on after the end of the connection, for a last packet that was lost.
const LINGER: Duration = Duration::from_millis(300);

/// What the program above DCCP does.
struct Program {
    options: Options,
    messages: Messages,
    id: Option<ConnId>,
    open: bool,
    /// When the next message is due.
    due: Time,
    /// When something last happened.
    busy_at: Time,
    /// Whether the next message waits for room in the queue.
    blocked: bool,
    /// Whether the end was begun here.
    closing: bool,
    closed: Option<Close>,
    last: Option<Snapshot>,
}

impl Program {
    fn events(&mut self, host: &mut Host, now: Time) {
        while let Some(event) = host.dccp.poll_event() {
            match event {
                Event::Open { id, .. } if self.id.is_none_or(|known| known == id) => {
                    self.id = Some(id);
                    self.open = true;
                    (self.due, self.busy_at) = (now, now);
                    say(format_args!("open"));
                }
                Event::Closed(id, why) if self.id == Some(id) => self.closed = Some(why),
                _ => {}
            }
        }
    }

    /// Reads what has arrived, and sends what is due.
    fn work(&mut self, host: &mut Host, now: Time) -> Result<(), Box<dyn Error>> {
        self.events(host, now);
        let Some(id) = self.id.filter(|_| self.open) else { return Ok(()) };
        self.last = host.dccp.snapshot(id).ok().or(self.last);
        while let Ok(Some(message)) = host.dccp.recv(id) {
            self.messages.received(&message);
            self.busy_at = now;
        }
        if self.closed.is_some() {
            return Ok(());
        }
        self.blocked = false;
        while self.messages.sent < self.options.send && self.due <= now && !self.blocked {
            let message = self.messages.next(self.options.size);
            match host.dccp.send(now, id, message, SendOptions::default()) {
                Ok(()) => {
                    self.messages.sent += 1;
                    self.due += Duration::from_micros(self.options.pace);
                }
                Err(SendError::Full { .. }) => self.blocked = true,
                Err(SendError::Closing) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            self.busy_at = now;
        }
        let wanted = self.options.close || self.options.abort;
        if wanted && !self.closing && self.is_sent() && now >= self.idle_at() {
            self.closing = true;
            if self.options.abort {
                host.dccp.abort(now, id)?;
                self.closed = Some(Close::Finished);
            } else {
                host.dccp.close(now, id)?;
            }
        }
        Ok(())
    }

    fn is_sent(&self) -> bool {
        self.messages.sent == self.options.send
    }

    fn idle_at(&self) -> Time {
        self.busy_at + Duration::from_millis(self.options.idle)
    }

    /// Returns when it has something to do, `end` at the latest.
    fn deadline(&self, end: Time) -> Time {
        if !self.open || self.closed.is_some() || self.blocked {
            end
        } else if !self.is_sent() {
            self.due.min(end)
        } else if self.closing || !(self.options.close || self.options.abort) {
            end
        } else {
            self.idle_at().min(end)
        }
    }

    /// Prints how it ended. Returns whether that was expected.
    fn report(&self, host: &Host) -> bool {
        let ended = match self.closed {
            None if self.open => "open".to_owned(),
            None => "waiting".to_owned(),
            Some(Close::Finished) => "finished".to_owned(),
            Some(Close::Reset(reset)) => format!("reset:{}", reset.code.to_u8()),
            Some(Close::Violation(reset)) => {
                format!("violation:{}:{:?}", reset.code.to_u8(), reset.data).replace(' ', "")
            }
            Some(other) => format!("{other:?}").to_lowercase(),
        };
        if let Some(snapshot) = &self.last {
            say(format_args!("{snapshot:#?}"));
        }
        say(format_args!("{:#?}", host.dccp.counters()));
        let ccids = self.last.map_or((0, 0), |snapshot| {
            (snapshot.sender_ccid.number(), snapshot.receiver_ccid.number())
        });
        let events = self.last.map_or(0, |snapshot| snapshot.sender.congestion_events);
        let Messages { sent, got, wrong, twice, .. } = &self.messages;
        let (tx, rx) = ccids;
        let refused = host.refused;
        say(format_args!(
            "peer ended={ended} sent={sent} got={got} wrong={wrong} twice={twice} tx={tx} rx={rx} \
             events={events} refused={refused}"
        ));
        self.options.end.contains(&ended) && *wrong == 0 && *twice == 0
    }
}

/// Prints a line for the check that started this program.
fn say(line: fmt::Arguments<'_>) {
    // Whoever closed the output does not wait for it.
    let _ = writeln!(io::stdout(), "{line}");
}

fn run() -> Result<bool, Box<dyn Error>> {
    let options = Options::parse();
    let mut host = Host::new(&options)?;
    let now = host.now();
    let limit = now + Duration::from_secs(options.limit);
    let mut id = None;
    if let Some(remote) = options.connect {
        let local = SocketAddr::new(options.local, options.port);
        id = Some(host.dccp.connect(now, local, remote, options.service, None)?);
    } else {
        let local = SocketAddr::new(options.local, options.port);
        host.dccp.listen(local, &[options.service], None)?;
        say(format_args!("listening"));
    }
    let mut program = Program {
        options,
        messages: Messages::default(),
        id,
        open: false,
        due: now,
        busy_at: now,
        blocked: false,
        closing: false,
        closed: None,
        last: None,
    };
    let mut end = limit;
    while host.now() < end {
        host.turn()?;
        let now = host.now();
        program.work(&mut host, now)?;
        // What came meanwhile wakes the wait.
        host.send();
        if program.closed.is_some() && end == limit {
            end = limit.min(now + LINGER);
        }
        host.wait(program.deadline(end))?;
    }
    Ok(program.report(&host))
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
