//! The body of a notification of the package `dialog`: `application/dialog-info+xml` (RFC 4235 section 4).

use super::xml::{DECLARATION, attribute, escape, number};
use crate::states::{Direction, MAX_DIALOGS, Phase, UserState};
use ringway_sip::write;

/// Appends the document with the number `version` about the user whom the subscriber knows as `entity`. It has the full
/// state, and names no other party.
pub(super) fn write(out: &mut Vec<u8>, entity: &[u8], version: u64, state: &UserState) {
    out.extend_from_slice(DECLARATION);
    out.extend_from_slice(b"<dialog-info xmlns=\"urn:ietf:params:xml:ns:dialog-info");
    number(out, "version", version);
    attribute(out, "state", b"full");
    attribute(out, "entity", entity);
    out.extend_from_slice(b"\">\n");
    for dialog in state.dialogs.iter().take(MAX_DIALOGS) {
        out.extend_from_slice(b"<dialog id=\"");
        write::hex(out, &dialog.id.to_be_bytes());
        attribute(out, "direction", direction(dialog.direction));
        out.extend_from_slice(b"\"><state>");
        escape(out, phase(dialog.phase));
        out.extend_from_slice(b"</state></dialog>\n");
    }
    if state.dialogs.is_empty() {
        // Phones that look for the state of a dialog leave a lamp on if there is none.
        out.extend_from_slice(b"<dialog id=\"none\"><state>terminated</state></dialog>\n");
    }
    out.extend_from_slice(b"</dialog-info>\n");
}

fn direction(direction: Direction) -> &'static [u8] {
    match direction {
        Direction::Initiator => b"initiator",
        Direction::Recipient => b"recipient",
    }
}

fn phase(phase: Phase) -> &'static [u8] {
    match phase {
        Phase::Trying => b"trying",
        Phase::Early => b"early",
        Phase::Confirmed => b"confirmed",
    }
}
