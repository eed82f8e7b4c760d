//! Reports of what was wrong with a message, and statements that are wrong themselves.

use ringway_sansio::Time;

use super::Router;
use super::messenger::Way;
use crate::crypto::Crypto;
use crate::forward::{Step, step};
use crate::metric::Space;
use crate::ring::Judgement;
use crate::wire::control::{Code, ErrorReport};
use crate::wire::{Body, Item, Message, MessageId, Route, Routed, Slot};

impl<C: Crypto, S: Space> Router<C, S> {
    /// Reports to the sender of a message what was wrong with it.
    pub(super) fn report(&mut self, entered: Slot, message: &Routed<'_>, code: Code) {
        let report = ErrorReport {
            reverse: !message.flags.reverse,
            at: message.at,
            code,
            value: 0,
            quoted: message.id.0,
            by: self.local.id(),
            labels: message.labels.clone(),
        };
        self.outbox.push(entered, &Item::Error(report));
    }

    /// Forwards a report, or believes it as far as it is about something that was sent here.
    pub(super) fn pass_error(&mut self, now: Time, entered: Slot, mut report: ErrorReport) {
        let Ok(mut cursor) = report.labels.cursor(report.at, report.reverse) else {
            return;
        };
        let (links, detours) = (&self.links, &self.detours);
        let is_up = |slot| links.is_up(slot) && detours.get(slot).is_none();
        // Labels only become fewer, so a report needs no hop limit.
        match step(&mut cursor, &mut u16::MAX.clone(), entered, is_up) {
            Step::Out(out) => {
                report.at = cursor.at();
                self.outbox.push(out, &Item::Error(report));
            }
            Step::End => {
                let id = MessageId(report.quoted);
                if let Some(request) = self.messenger.request(id).cloned()
                    && matches!(request.way, Way::Route(_))
                {
                    self.messenger.answered(id);
                    self.give_up(now, &request);
                }
                if report.code == Code::Refuted {
                    return self.carrier.sessions.misled(id);
                }
                if self.carrier.reported(now, entered, &report) {
                    return;
                }
                // What is said about a target makes the route no worse.
                if matches!(report.code, Code::LinkDown | Code::HopLimit | Code::BadRoute) {
                    // An answer has the labels of its route in reverse.
                    let ErrorReport { labels, reverse, .. } = report;
                    let labels = if reverse { labels } else { labels.reversed() };
                    let route = Route { first: entered, labels };
                    self.overlay.route_failed(&route, &mut self.actions);
                }
            }
            Step::Widen | Step::Error(Code::LinkDown) => self.rewrite_error(entered, report),
            Step::Error(_) => {}
        }
    }

    /// Notes to whom a LOOKUP was sent on. One that has a waypoint before it is answered by others than those who are
    /// responsible for that.
    pub(super) fn note_choice(
        &mut self,
        now: Time,
        message: &Routed<'_>,
        entered: Slot,
        out: Slot,
    ) {
        if matches!(
            Body::parse(message.message, message.body),
            Ok((Body::LookUp { onward: None, .. }, ..))
        ) {
            let choice = (message.key(), message.best);
            self.overlay.chose(now, message.id, choice, Some(entered), out);
        }
    }

    /// Stops a NOT_RESPONSIBLE of which this router knows that it is false, and has whoever asked ask again. Returns
    /// `false` if nothing is known against it.
    pub(super) fn refute(&mut self, now: Time, entered: Slot, body: &[u8]) -> bool {
        if Routed::peek(body).is_none_or(|(message, _)| message != Message::NotResponsible) {
            return false;
        }
        let Ok(message) = Routed::parse(body) else { return false };
        let (id, by) = (message.id, message.origin);
        let judgement = self.overlay.denied(now, id, by, entered, &mut self.actions);
        if judgement == Judgement::False {
            self.counters.refuted += 1;
            let Routed { at, labels, .. } = message;
            let (reverse, code, quoted) = (message.flags.reverse, Code::Refuted, id.0);
            let by = self.local.id();
            let report = ErrorReport { reverse, at, code, value: 0, quoted, by, labels };
            self.pass_error(now, entered, report);
        }
        judgement == Judgement::False
    }
}
