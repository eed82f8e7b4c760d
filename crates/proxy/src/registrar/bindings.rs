//! The effect of the contacts of a REGISTER on the bindings: all of it, or nothing (RFC 3261 section 10.3 steps 6 and
//! 7).

use super::config::RegistrarConfig;
use super::error::RegisterError;
use super::request::{Contact, Contacts, RegisterRequest};
use crate::location::{BindingView, RecordEdit};
use ringway_sansio::{Duration, Random, Time};
use ringway_sip::Uri;
use smallvec::SmallVec;

/// 64*T1: the time for which a client retransmits a request.
const REPEATED_WITHIN: Duration = Duration::from_secs(32);

type List<'a> = SmallVec<[BindingView<'a>; 4]>;

/// Replaces the record by the bindings after the request, and passes those to `list`. Returns whether anything changed.
pub(super) fn change(
    edit: &mut RecordEdit<'_>,
    register: &RegisterRequest<'_>,
    scratch: &[u8],
    now: Time,
    config: &RegistrarConfig,
    random: &mut dyn Random,
    list: &mut dyn FnMut(&[BindingView<'_>]),
) -> Result<bool, RegisterError> {
    let old: List<'_> = edit.current().collect();
    let (new, changed) = match &register.contacts {
        Contacts::Fetch => (old, false),
        Contacts::RemoveAll => {
            for binding in &old {
                check_order(register, binding)?;
            }
            let changed = !old.is_empty();
            (List::new(), changed)
        }
        Contacts::Each(contacts) => each(&old, contacts, register, scratch, now, config, random)?,
    };
    if changed {
        for binding in &new {
            // The texts are within limits that the record has room for; so are most lists of them.
            edit.put(binding).map_err(|_| RegisterError::new(403, "Too Many Contacts"))?;
        }
        edit.commit();
    }
    list(&new);
    Ok(changed)
}

/// Rejects a request that is not newer than a binding (RFC 3261 section 10.3): it aborts the whole.
fn check_order(
    register: &RegisterRequest<'_>,
    binding: &BindingView<'_>,
) -> Result<(), RegisterError> {
    if binding.call_id == register.call_id && register.cseq <= binding.cseq {
        return Err(RegisterError::new(500, "CSeq: expected a higher number than before"));
    }
    Ok(())
}

/// Performs step 7: the most recent bindings first, then those that the request does not change.
fn each<'a, 'r: 'a>(
    old: &[BindingView<'a>],
    contacts: &[Contact<'r>],
    register: &RegisterRequest<'r>,
    scratch: &'a [u8],
    now: Time,
    config: &RegistrarConfig,
    random: &mut dyn Random,
) -> Result<(List<'a>, bool), RegisterError> {
    let mut kept: SmallVec<[bool; 8]> = SmallVec::from_elem(true, old.len());
    let mut new = List::new();
    let mut repeats = 0;
    for contact in contacts {
        let mut repeated = false;
        for (binding, kept) in old.iter().zip(&mut kept) {
            if is_repeat(contact, register, binding, now) {
                repeated = true;
            } else if is_binding_of(contact, binding) {
                check_order(register, binding)?;
                *kept = false;
            }
        }
        if repeated {
            repeats += 1;
            continue;
        }
        // The same contact twice in one request: the last one counts.
        new.retain(|earlier| !is_binding_of(contact, earlier));
        if contact.expires > 0 {
            new.push(binding(contact, register, scratch, now));
        }
    }
    // A retransmission changes nothing. But its response must wait until the first change is durable, so it is written
    // again.
    let changed = !new.is_empty() || kept.contains(&false) || repeats > 0;
    let fresh = new.len();
    new.extend(old.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(binding, _)| *binding));
    if new.len() > config.max_contacts && new.len() > old.len() {
        return Err(RegisterError::new(403, "Too Many Contacts"));
    }
    for at in 0..fresh {
        if !new[at].instance.is_empty() {
            settle_epoch(old, &mut new, at, random);
        }
    }
    Ok((new, changed))
}

fn binding<'a, 'r: 'a>(
    contact: &Contact<'r>,
    register: &RegisterRequest<'r>,
    scratch: &'a [u8],
    now: Time,
) -> BindingView<'a> {
    BindingView {
        contact: contact.uri,
        params: &scratch[contact.params.clone()],
        q: contact.q,
        expires: now + Duration::from_secs(u64::from(contact.expires)),
        path: &scratch[register.path.clone()],
        instance: contact.instance,
        reg_id: contact.reg_id,
        flow: register.flow,
        call_id: register.call_id,
        cseq: register.cseq,
        outbound: contact.reg_id != 0,
        nat: register.nat,
        epoch: 0,
        first_cseq: 0,
    }
}

/// Returns whether this is a retransmission of the request that made the binding, because the response was lost. The
/// registrar has no transactions. It recognises a retransmission by Call-ID and CSeq, and by the expiry of the binding,
/// which is no further off than a transaction lasts (RFC 3261 section 17.1.2.2: 64*T1).
pub(super) fn is_repeat(
    contact: &Contact<'_>,
    register: &RegisterRequest<'_>,
    binding: &BindingView<'_>,
    now: Time,
) -> bool {
    let end = now + Duration::from_secs(u64::from(contact.expires));
    contact.expires > 0
        && end >= binding.expires
        && end - binding.expires <= REPEATED_WITHIN
        && contact.uri == binding.contact
        && binding.cseq == register.cseq
        && binding.call_id == register.call_id
        && binding.flow == register.flow
        && is_binding_of(contact, binding)
}

/// Returns whether a contact of the request identifies this binding: by instance and reg-id if it registers a flow (RFC
/// 5626 section 6), by its URI otherwise (RFC 3261 section 19.1.4).
fn is_binding_of(contact: &Contact<'_>, binding: &BindingView<'_>) -> bool {
    if contact.reg_id != 0 || binding.outbound {
        return binding.outbound
            && contact.reg_id == binding.reg_id
            && same_instance(contact.instance, binding.instance);
    }
    contact.uri == binding.contact
        || Uri::parse(binding.contact).is_ok_and(|uri| contact.parsed.equivalent(&uri))
}

/// Returns whether two instances are the same. URNs compare without regard to the case of all that matters here (RFC
/// 4122 section 3).
pub(crate) fn same_instance(a: &[u8], b: &[u8]) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// Determines which temporary GRUUs are valid after the binding at `at` was registered (RFC 5627 section 5.1). All so
/// far stay valid if its instance, over its flow if it names one, was registered with the same Call-ID before.
/// Otherwise a new epoch begins for every binding of the instance.
fn settle_epoch(
    old: &[BindingView<'_>],
    new: &mut [BindingView<'_>],
    at: usize,
    random: &mut dyn Random,
) {
    let BindingView { instance, outbound, reg_id, call_id, cseq, .. } = new[at];
    // Most recently registered first.
    let mut before = old.iter().filter(|b| same_instance(b.instance, instance));
    let epoch = before.clone().next().map(|b| (b.epoch, b.first_cseq));
    let last = before.find(|b| !outbound || b.outbound && b.reg_id == reg_id);
    let (epoch, first_cseq) = match epoch {
        Some(epoch) if last.is_none_or(|b| b.call_id == call_id) => epoch,
        _ => (random.next_u64(), cseq),
    };
    for binding in new.iter_mut().filter(|b| same_instance(b.instance, instance)) {
        (binding.epoch, binding.first_cseq) = (epoch, first_cseq);
    }
}
