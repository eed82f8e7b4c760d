//! NOTIFY requests of our own: the registration event package (RFC 3680).
use super::preroute::Routed;
use super::validate::Refusal;
use super::{Core, Pass};
use ringway_sansio::{Outbox, Time};
use ringway_sip::transaction::ClientEvent;
impl Core {
    pub(super) fn send_notifications(&mut self, _now: Time, _out: &mut Outbox) {}
    pub(super) fn notification_answer(&mut self, _now: Time, _e: ClientEvent, _s: u16) -> bool {
        false
    }
    pub(super) fn subscribe(
        &mut self,
        _p: &Pass<'_>,
        _r: &Routed<'_>,
        _d: usize,
        _o: &mut Outbox,
    ) -> Result<(), Refusal> {
        Ok(())
    }
}
