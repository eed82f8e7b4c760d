//! A connection of a client.

use std::collections::VecDeque;
use std::sync::Arc;

use ringway_sansio::Malformed;
use ringway_sansio::time::{Duration, Time};

use super::directory::Directory;
use super::message::{Code, Operation, Request, write_notice, write_result};
use super::search::Search;
use super::{MAX_OUTPUT, MAX_QUEUED, MAX_REQUEST, ber};
use crate::book::Book;

/// Time after which a connection ends on which nothing comes and nothing can be sent.
pub const IDLE: Duration = Duration::from_secs(300);
/// Octets of a message's header.
const HEADER: usize = 6;

/// What a connection does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Nothing, until octets have come or the output has been sent. Then there may be more work.
    Waiting,
    /// More work: [`Connection::work`] is called again, after others have had their turn.
    Working,
    /// The connection is closed as soon as everything is sent.
    Closing,
}

/// A connection: octets go in by [`receive`](Connection::receive), are worked on by [`work`](Connection::work), and come out by
/// [`output`](Connection::output) and [`sent`](Connection::sent).
pub struct Connection {
    input: Vec<u8>,
    requests: VecDeque<Request>,
    search: Option<Search>,
    output: Vec<u8>,
    /// Why nothing is read any longer. It is reported after what was asked before.
    broken: Option<Malformed>,
    is_closing: bool,
    last: Time,
}

impl Connection {
    /// A connection that begins at `now`.
    pub fn new(now: Time) -> Connection {
        Connection {
            input: Vec::new(),
            requests: VecDeque::new(),
            search: None,
            output: Vec::new(),
            broken: None,
            is_closing: false,
            last: now,
        }
    }

    /// Returns how many octets are taken now. At 0, the world does not read.
    pub fn room(&self) -> usize {
        let is_full = self.is_closing || self.broken.is_some() || self.requests.len() >= MAX_QUEUED;
        if is_full { 0 } else { (HEADER + MAX_REQUEST).saturating_sub(self.input.len()) }
    }

    /// Takes octets of the stream, at most [`room`](Connection::room). Returns how many were taken.
    pub fn receive(&mut self, now: Time, octets: &[u8]) -> usize {
        self.last = now;
        let taken = octets.len().min(self.room());
        self.input.extend_from_slice(&octets[..taken]);
        self.read();
        taken
    }

    /// Reads whole requests, as many as may wait.
    fn read(&mut self) {
        let mut at = 0;
        while self.requests.len() < MAX_QUEUED && self.broken.is_none() {
            let rest = &self.input[at..];
            let request = match ber::frame(rest) {
                Ok(Some(length)) if length <= rest.len() => Request::parse(&rest[..length]),
                Ok(_) => break,
                Err(error) => Err(error),
            };
            // A whole message or an error; after the latter nothing is read.
            at += ber::frame(rest).ok().flatten().unwrap_or(0);
            match request {
                Ok(request) => self.take(request),
                Err(error) => self.broken = Some(error),
            }
        }
        self.input.drain(..at.min(self.input.len()));
    }

    /// Takes a request. One that ends another does so at once.
    fn take(&mut self, request: Request) {
        match request.operation {
            // RFC 4511 section 4.11: there is no answer to either.
            Operation::Abandon(id) => {
                if self.search.as_ref().is_some_and(|search| search.id == id) {
                    self.search = None;
                }
                let is_search =
                    |waiting: &Request| matches!(waiting.operation, Operation::Search(_));
                self.requests.retain(|waiting| waiting.id != id || !is_search(waiting));
            }
            _ => self.requests.push_back(request),
        }
    }

    /// Works on requests until enough octets wait to be sent.
    pub fn work(&mut self, now: Time, directory: &Directory, book: &Arc<Book>) -> Progress {
        if self.is_closing {
            return Progress::Closing;
        }
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.close();
            // Who does not read is not waited for.
            self.output.clear();
            return Progress::Closing;
        }
        if self.output.len() < MAX_OUTPUT {
            if let Some(search) = &mut self.search {
                if search.step(now, directory, &mut self.output) {
                    self.search = None;
                }
            } else if let Some(request) = self.requests.pop_front() {
                self.answer(now, request, directory, book);
                // There is room for another one.
                self.read();
            } else if let Some(error) = self.broken {
                self.disconnect(&error.to_string());
            }
        }
        let has_work = self.search.is_some() || !self.requests.is_empty() || self.broken.is_some();
        match (self.is_closing, has_work && self.output.len() < MAX_OUTPUT) {
            (true, _) => Progress::Closing,
            (false, true) => Progress::Working,
            (false, false) => Progress::Waiting,
        }
    }

    fn answer(&mut self, now: Time, request: Request, directory: &Directory, book: &Arc<Book>) {
        // What has no answer is an unbind (RFC 4511 section 4.3).
        let Some(tag) = request.response() else { return self.close() };
        let id = request.id;
        let (code, text) = match request.operation {
            // RFC 4511 section 4.1.11.
            _ if request.is_critical => (Code::UnavailableCriticalExtension, "no control is known"),
            Operation::Search(search) => {
                let out = &mut self.output;
                self.search = Search::begin(now, id, search, directory, book, out);
                return;
            }
            // RFC 4511 section 4.2.1: the version is 1 to 127. Phones send 2 and 3.
            Operation::Bind { version: 2 | 3, is_simple: true } => (Code::Success, ""),
            Operation::Bind { version: 2 | 3, is_simple: false } => {
                (Code::AuthMethodNotSupported, "SASL is not supported")
            }
            Operation::Bind { .. } => (Code::ProtocolError, "expected version 2 or 3"),
            // RFC 4511 section 4.12.
            Operation::Extended => (Code::ProtocolError, "no extended operation is known"),
            _ => (Code::UnwillingToPerform, "the phonebook can only be searched"),
        };
        write_result(&mut self.output, id, tag, code, "", text);
    }

    /// Ends the connection with a notice: what follows cannot be understood (RFC 4511 section 4.1.1).
    fn disconnect(&mut self, text: &str) {
        write_notice(&mut self.output, Code::ProtocolError, text);
        self.close();
    }

    fn close(&mut self) {
        self.is_closing = true;
        self.requests.clear();
        self.search = None;
    }

    /// Returns the octets that wait to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Removes octets that have been sent.
    pub fn sent(&mut self, now: Time, length: usize) {
        self.last = now;
        self.output.drain(..length.min(self.output.len()));
    }

    /// Returns when the connection ends if nothing comes and nothing can be sent. The world calls
    /// [`work`](Connection::work) then.
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.is_closing).then(|| self.last + IDLE)
    }
}
