//! The body of a notification of the package `reg`: `application/reginfo+xml` (RFC 3680 section 5, RFC 5628).

use super::watch::{Contact, Event, Watch};
use super::xml::{DECLARATION, attribute, escape, number};
use crate::gruu::Gruus;
use crate::location::BindingView;
use crate::location::record::DEFAULT_Q;
use crate::registrar::{same_instance, write_q};
use ringway_sansio::Time;
use ringway_sip::header::Params;
use ringway_sip::write;

/// The maximum length of a document, in bytes; contacts that do not fit are left out.
pub const MAX_DOCUMENT: usize = 48 * 1024;

/// A document to be written.
pub(super) struct Document<'d> {
    pub(super) watch: &'d Watch,
    pub(super) version: u64,
    /// Whether it contains every contact, or only changes.
    pub(super) full: bool,
    /// The serial number after which changes are included.
    pub(super) since: u64,
    /// Whether the subscriber may see temporary GRUUs.
    pub(super) may_register: bool,
    pub(super) now: Time,
    pub(super) gruus: &'d Gruus,
}

impl Document<'_> {
    /// Appends the document. Returns whether it contains a contact.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> bool {
        let reported = |c: &&Contact| {
            if self.full { c.event.is_active() } else { c.changed > self.since }
        };
        let contacts = self.watch.contacts.iter().filter(reported);
        // RFC 3680 section 4.7.1: the move from terminated to init is never reported.
        let state: &[u8] = if self.watch.contacts.iter().any(|c| c.event.is_active()) {
            b"active"
        } else if contacts.clone().next().is_some() {
            b"terminated"
        } else {
            b"init"
        };
        out.extend_from_slice(DECLARATION);
        out.extend_from_slice(
            b"<reginfo xmlns=\"urn:ietf:params:xml:ns:reginfo\" \
              xmlns:gr=\"urn:ietf:params:xml:ns:gruuinfo\" version=\"",
        );
        write::decimal(out, self.version);
        out.extend_from_slice(b"\" state=\"");
        out.extend_from_slice(if self.full { b"full" } else { b"partial" });
        out.extend_from_slice(b"\">\n<registration aor=\"");
        escape(out, &self.watch.aor);
        out.extend_from_slice(b"\" id=\"");
        write::hex(out, &self.watch.id.to_be_bytes());
        attribute(out, "state", state);
        out.extend_from_slice(b"\">\n");
        let mut any = false;
        for contact in contacts {
            let start = out.len();
            if let Some(binding) = contact.binding() {
                self.contact(out, contact, &binding);
                any = true;
            }
            if out.len() > MAX_DOCUMENT {
                out.truncate(start);
                break;
            }
        }
        out.extend_from_slice(b"</registration>\n</reginfo>\n");
        any
    }

    fn contact(&self, out: &mut Vec<u8>, contact: &Contact, binding: &BindingView<'_>) {
        out.extend_from_slice(b"<contact id=\"");
        write::hex(out, &contact.id.to_be_bytes());
        let active = contact.event.is_active();
        attribute(out, "state", if active { b"active" } else { b"terminated" });
        attribute(out, "event", contact.event.as_bytes());
        if let Some(since) = contact.since {
            number(out, "duration-registered", self.now.since(since).as_secs());
        }
        if active || contact.event == Event::Shortened {
            number(out, "expires", binding.expires.since(self.now).as_secs());
        }
        if binding.q != DEFAULT_Q {
            out.extend_from_slice(b"\" q=\"");
            write_q(out, binding.q);
        }
        attribute(out, "callid", binding.call_id);
        number(out, "cseq", u64::from(binding.cseq));
        out.extend_from_slice(b"\"><uri>");
        escape(out, binding.contact);
        out.extend_from_slice(b"</uri>");
        params(out, binding);
        if active && !binding.instance.is_empty() {
            self.gruu(out, binding);
        }
        out.extend_from_slice(b"</contact>\n");
    }

    /// Appends the GRUUs (RFC 5628 section 5).
    fn gruu(&self, out: &mut Vec<u8>, binding: &BindingView<'_>) {
        let mut uri = Vec::new();
        if !Gruus::write_public(&mut uri, &self.watch.aor, binding.instance) {
            return;
        }
        out.extend_from_slice(b"<gr:pub-gruu uri=\"");
        escape(out, &uri);
        out.extend_from_slice(b"\"/>");
        if !self.may_register {
            return;
        }
        // The newest of the instance, as in responses of the registrar.
        let newest = self
            .watch
            .contacts
            .iter()
            .filter(|c| c.event.is_active())
            .filter_map(Contact::binding)
            .find(|b| same_instance(b.instance, binding.instance))
            .map_or(binding.expires, |b| b.expires);
        uri.clear();
        if self.gruus.write_temporary(&mut uri, &self.watch.aor, binding.epoch, newest) {
            out.extend_from_slice(b"<gr:temp-gruu uri=\"");
            escape(out, &uri);
            number(out, "first-cseq", u64::from(binding.first_cseq));
            out.extend_from_slice(b"\"/>");
        }
    }
}

/// Appends the Contact parameters that RFC 3261 does not define (RFC 3680 section 5.1).
fn params(out: &mut Vec<u8>, binding: &BindingView<'_>) {
    if !binding.instance.is_empty() {
        out.extend_from_slice(b"<unknown-param name=\"+sip.instance\">&quot;&lt;");
        escape(out, binding.instance);
        out.extend_from_slice(b"&gt;&quot;</unknown-param>");
    }
    if binding.reg_id != 0 {
        out.extend_from_slice(b"<unknown-param name=\"reg-id\">");
        write::decimal(out, u64::from(binding.reg_id));
        out.extend_from_slice(b"</unknown-param>");
    }
    for (name, value) in Params::new(binding.params) {
        out.extend_from_slice(b"<unknown-param name=\"");
        escape(out, name);
        out.extend_from_slice(b"\">");
        escape(out, value.unwrap_or_default());
        out.extend_from_slice(b"</unknown-param>");
    }
}
