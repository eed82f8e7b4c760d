//! The registrar: the effect of a REGISTER on the bindings of an address-of-record (RFC 3261 section 10.3), with Path
//! (RFC 3327), Service-Route (RFC 3608), GRUU (RFC 5627) and Outbound (RFC 5626).
//!
//! It has no transactions and authorises nothing: the caller has checked the message, found the domain to be its own,
//! authenticated the sender and authorised it to change the address-of-record (steps 1, 3 and 4). It writes no
//! response, only the header fields of one. It stores nothing between requests; the state is in the [location
//! service](crate::location).
//!
//! `request` parses a REGISTER, `bindings` is steps 6 and 7, `answer` is step 8.

mod answer;
mod bindings;
mod config;
mod error;
mod request;

use crate::gruu::Gruus;
use crate::location::{BindingView, Commit, CommitTag, LocationStore};
use answer::DateLine;
pub(crate) use answer::date;
pub(crate) use answer::q as write_q;
pub(crate) use bindings::same_instance;
pub use config::RegistrarConfig;
pub(crate) use error::unsupported;
use error::{ErrorHeader, RegisterError};
use request::RegisterRequest;
pub use request::{
    MAX_CONTACT_PARAMS, MAX_CONTACT_URI, MAX_CONTACTS_PER_REQUEST, MAX_INSTANCE, MAX_PATH,
};
pub(crate) use request::{is_behind_nat, seconds};
use ringway_sansio::{Flow, Random, Time};
use ringway_sip::Message;
use smallvec::SmallVec;

/// The result of a REGISTER.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterOutcome {
    /// The status of the response.
    pub status: u16,
    /// Its reason phrase; for an error of the request, what was expected.
    pub reason: &'static str,
    /// With [`Commit::Pending`], the response must wait until the store reports the tag.
    pub commit: Commit,
    /// Whether bindings have changed.
    pub changed: bool,
}

/// The registrar of a worker.
#[derive(Debug)]
pub struct Registrar {
    config: RegistrarConfig,
    gruus: Gruus,
    date: DateLine,
    /// Path and contact parameters of the present request.
    scratch: Vec<u8>,
}

impl Registrar {
    /// Returns a registrar that makes these GRUUs.
    pub fn new(config: RegistrarConfig, gruus: Gruus) -> Self {
        Registrar { config, gruus, date: DateLine::default(), scratch: Vec::new() }
    }

    /// Replaces the configuration, and how GRUUs are made, from the next request on.
    pub fn reconfigure(&mut self, config: RegistrarConfig, gruus: Gruus) {
        (self.config, self.gruus) = (config, gruus);
    }

    /// Processes a REGISTER for `aor`, the canonical address-of-record of its To. The message must have passed
    /// [`Message::check`].
    ///
    /// Appends to `headers` the header fields of the response, complete with CRLF, also for a refusal.
    pub fn register(
        &mut self,
        now: Time,
        flow: &Flow,
        request: &Message<'_>,
        aor: &[u8],
        tag: CommitTag,
        store: &dyn LocationStore,
        random: &mut dyn Random,
        headers: &mut Vec<u8>,
    ) -> RegisterOutcome {
        let start = headers.len();
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let outcome =
            RegisterRequest::read(request, flow, aor, &self.config, &self.gruus, &mut scratch)
                .and_then(|register| {
                    self.carry_out(now, &register, &scratch, aor, tag, store, random, headers)
                });
        self.scratch = scratch;
        match outcome {
            Ok((commit, changed)) => RegisterOutcome { status: 200, reason: "OK", commit, changed },
            Err(refusal) => {
                headers.truncate(start);
                refusal.write(headers, request);
                let RegisterError { status, reason, .. } = refusal;
                RegisterOutcome { status, reason, commit: Commit::Done, changed: false }
            }
        }
    }

    /// Returns whether a REGISTER for `aor` only retransmits the one that made the bindings it names. Then another
    /// response to it is harmless.
    pub fn is_repeat(
        &mut self,
        now: Time,
        flow: &Flow,
        request: &Message<'_>,
        aor: &[u8],
        store: &dyn LocationStore,
    ) -> bool {
        let mut scratch = Vec::new();
        let register =
            RegisterRequest::read(request, flow, aor, &self.config, &self.gruus, &mut scratch);
        let Ok(register) = register else { return false };
        let request::Contacts::Each(contacts) = &register.contacts else { return false };
        let mut repeated = 0;
        store.lookup(aor, now, &mut |binding| {
            repeated +=
                contacts.iter().filter(|c| bindings::is_repeat(c, &register, binding, now)).count();
        });
        repeated >= contacts.len()
    }

    fn carry_out(
        &mut self,
        now: Time,
        register: &RegisterRequest<'_>,
        scratch: &[u8],
        aor: &[u8],
        tag: CommitTag,
        store: &dyn LocationStore,
        random: &mut dyn Random,
        headers: &mut Vec<u8>,
    ) -> Result<(Commit, bool), RegisterError> {
        let listing =
            answer::Listing { gruus: &self.gruus, aor, now, gruu: register.supported.gruu };
        let mut commit = Commit::Done;
        let mut outcome = Ok(false);
        if register.is_fetch() {
            let mut run = |b: &[BindingView<'_>]| listing.write(headers, b);
            fetch(store, aor, now, &mut run);
        } else {
            commit = store.update(aor, now, tag, &mut |edit| {
                outcome = bindings::change(
                    edit,
                    register,
                    scratch,
                    now,
                    &self.config,
                    random,
                    &mut |b| {
                        listing.write(headers, b);
                    },
                );
            });
        }
        let changed = outcome?;
        if commit == Commit::Refused {
            let header = Some(ErrorHeader::RetryAfter);
            return Err(RegisterError {
                header,
                ..RegisterError::new(503, "Location Service Overloaded")
            });
        }
        answer::finish(headers, register, scratch, &self.config, self.date.at(now));
        Ok((commit, changed))
    }
}

/// Returns all bindings of `aor` at once. They are copied, because they cannot leave the store.
fn fetch(
    store: &dyn LocationStore,
    aor: &[u8],
    now: Time,
    run: &mut dyn FnMut(&[BindingView<'_>]),
) {
    let mut record = Vec::new();
    let mut copy = crate::location::RecordEdit::new(&[], now, &mut record);
    store.lookup(aor, now, &mut |b| {
        // What fitted into one record fits into another.
        let _ = copy.put(b);
    });
    copy.commit();
    copy.finish();
    let bindings: SmallVec<[BindingView<'_>; 4]> =
        crate::location::Bindings::new(&record, now).collect();
    run(&bindings);
}

#[cfg(test)]
mod tests;
