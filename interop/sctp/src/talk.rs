//! One association with a program that knows nothing of the pattern: sends octets, returns what comes, or both,
//! and compares what comes back, stream by stream, as octets, since not every program keeps messages apart.

use crate::peer::Meeting;
use crate::say;
use ringway_sctp_tokio::{Association, Message, SendOptions, Settings};
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::timeout;

/// Room in the buffers, each way.
const BUFFER: usize = 4 << 20;
/// What is sent repeats after so many octets, which is no power of two, so that a lost packet shows.
const PERIOD: usize = 251;

#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    #[command(flatten)]
    meeting: Meeting,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    streams: u16,
    /// Messages to send
    #[arg(long, default_value_t = 0)]
    count: usize,
    #[arg(long, default_value_t = 1000)]
    size: usize,
    /// Different sizes, from one octet up to --size
    #[arg(long, default_value_t = 1)]
    sizes: usize,
    /// Returns whatever comes, on the stream it came on
    #[arg(long)]
    echo: bool,
    /// Whatever is sent must come back
    #[arg(long)]
    echoed: bool,
    /// Leaves the end to the peer
    #[arg(long)]
    stay: bool,
    /// Seconds it may take
    #[arg(long, default_value_t = 30)]
    limit: u64,
}

/// What went and what came.
#[derive(Default)]
struct Tally {
    sent: u64,
    sent_octets: u64,
    got: u64,
    got_octets: u64,
    wrong: u64,
    /// By stream, how many octets came back.
    back: HashMap<u16, usize>,
    ended: Option<String>,
}

/// The octets from `from` on of what is sent on a stream.
fn octets(stream: u16, from: usize, size: usize) -> Vec<u8> {
    (from..from + size).map(|at| ((at + usize::from(stream)) % PERIOD) as u8).collect()
}

impl Options {
    fn settings(&self) -> Settings {
        Settings {
            send_buffer: BUFFER,
            receive_buffer: BUFFER,
            outbound_streams: self.streams,
            inbound_streams: u16::MAX,
            ..Settings::default()
        }
    }

    fn size_of(&self, message: usize) -> usize {
        match self.sizes {
            0 | 1 => self.size,
            n => 1 + (self.size - 1) * (message % n) / (n - 1),
        }
    }
}

/// One association as it goes.
struct Run<'a> {
    options: &'a Options,
    association: Association,
    tally: RefCell<Tally>,
}

impl Run<'_> {
    fn end(&self, how: &str) {
        self.tally.borrow_mut().ended.get_or_insert_with(|| how.to_owned());
    }

    async fn put(&self, data: Vec<u8>, stream: u16, like: &SendOptions) -> bool {
        let length = data.len() as u64;
        if let Err(error) = self.association.send(data, &SendOptions { stream, ..*like }).await {
            self.end(&format!("send:{error}").replace(' ', "_"));
            return false;
        }
        let mut tally = self.tally.borrow_mut();
        tally.sent += 1;
        tally.sent_octets += length;
        true
    }

    async fn send(&self) {
        let how = SendOptions::default();
        let mut on = vec![0; usize::from(self.options.streams)];
        for message in 0..self.options.count {
            let stream = message % on.len();
            let size = self.options.size_of(message);
            let data = octets(stream as u16, on[stream], size);
            on[stream] += size;
            if !self.put(data, stream as u16, &how).await {
                return;
            }
        }
    }

    /// Takes what comes until the end.
    async fn receive(&self) {
        loop {
            match self.association.recv().await {
                Ok(Some(message)) => self.take(message).await,
                Ok(None) => return self.end("shutdown"),
                Err(error) => return self.end(&error.to_string().replace(' ', "_")),
            }
        }
    }

    async fn take(&self, message: Message) {
        {
            let (stream, length) = (message.stream, message.bytes.len());
            let mut tally = self.tally.borrow_mut();
            tally.got += u64::from(message.end);
            tally.got_octets += length as u64;
            if self.options.echoed {
                let from = tally.back.entry(stream).or_default();
                let right = octets(stream, *from, length) == message.bytes[..];
                *from += length;
                tally.wrong += u64::from(!right);
            }
        }
        if self.options.echo {
            let Message { stream, ppid, unordered, .. } = message;
            let how = SendOptions { ppid, unordered, ..SendOptions::default() };
            self.put(message.bytes.to_vec(), stream, &how).await;
        }
    }

    fn is_done(&self) -> bool {
        let (tally, options) = (self.tally.borrow(), self.options);
        tally.sent >= options.count as u64
            && (!options.echoed || tally.got_octets >= tally.sent_octets)
    }

    async fn finish(&self) {
        while (!self.is_done() || self.options.stay) && self.tally.borrow().ended.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.association.begin_shutdown();
        while self.tally.borrow().ended.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Runs one association to its end.
pub(crate) async fn run(options: Options) -> Result<bool, String> {
    let limit = Duration::from_secs(options.limit);
    let association = match timeout(limit, options.meeting.associate(options.settings())).await {
        Ok(Ok(association)) => association,
        Ok(Err(error)) => return Err(error),
        Err(_) => return Err("no association in time".to_owned()),
    };
    let run = Run { options: &options, association, tally: RefCell::default() };
    let work = async { tokio::join!(run.send(), run.receive()) };
    let done = timeout(limit, async {
        tokio::select! {
            biased;
            () = run.finish() => {}
            _ = work => {}
        }
    });
    let late = done.await.is_err();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let tally = run.tally.borrow();
    say(&format!(
        "sent={} sent_bytes={} got={} got_bytes={} wrong={} ended={}",
        tally.sent,
        tally.sent_octets,
        tally.got,
        tally.got_octets,
        tally.wrong,
        tally.ended.as_deref().unwrap_or("not"),
    ));
    Ok(!late && run.is_done() && tally.wrong == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_goes_on_where_it_ended() {
        let whole = octets(3, 0, 600);
        assert_eq!([octets(3, 0, 251), octets(3, 251, 349)].concat(), whole);
        assert_ne!(octets(4, 0, 600), whole, "streams differ");
        assert_ne!(octets(3, 1, 600), whole, "a missing octet shows");
    }
}
