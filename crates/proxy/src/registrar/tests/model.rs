//! Any sequence of registrations against a naive registrar.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Bound {
    /// Host of the Contact, or instance and reg-id.
    name: (u8, Option<(u8, u8)>),
    call_id: u8,
    cseq: u32,
    ends: u64,
}

#[derive(Clone, Debug)]
struct Naive {
    bound: Vec<Bound>,
}

/// Host, instance and reg-id if any, expires.
type AskedContact = (u8, Option<(u8, u8)>, u32);

#[derive(Clone, Debug)]
struct Ask {
    call_id: u8,
    cseq: u32,
    contacts: Vec<AskedContact>,
    star: bool,
    pass: u64,
}

const MOST: usize = 4;

impl Naive {
    /// Performs RFC 3261 section 10.3 in its own words; returns the status.
    fn register(&mut self, now: u64, ask: &Ask) -> u16 {
        self.bound.retain(|b| b.ends > now);
        let in_order = |b: &Bound| b.call_id != ask.call_id || ask.cseq > b.cseq;
        if ask.star {
            if !self.bound.iter().all(in_order) {
                return 500;
            }
            self.bound.clear();
            return 200;
        }
        let lasting = ask.contacts.iter().filter(|c| c.2 > 0);
        // Each contact is read on its own first.
        if lasting.clone().any(|c| c.2 < 60) {
            return 423;
        }
        if lasting.clone().count() > 1 && lasting.clone().any(|c| c.1.is_some()) {
            return 400;
        }
        let mut after = self.bound.clone();
        let mut added: Vec<Bound> = Vec::new();
        for (host, flow, expires) in &ask.contacts {
            let same = |b: &Bound| match (flow, b.name.1) {
                (None, None) => b.name.0 == *host,
                (a, b) => *a == b,
            };
            let ends = now + u64::from(*expires);
            let repeats = |b: &Bound| {
                *expires > 0
                    && (b.name, b.call_id, b.cseq) == ((*host, *flow), ask.call_id, ask.cseq)
                    && (b.ends..=b.ends + 32).contains(&ends)
            };
            if self.bound.iter().any(repeats) {
                continue;
            }
            if self.bound.iter().any(|b| same(b) && !in_order(b)) {
                return 500;
            }
            after.retain(|b| !same(b));
            added.retain(|b| !same(b));
            if *expires > 0 {
                added.push(Bound {
                    name: (*host, *flow),
                    call_id: ask.call_id,
                    cseq: ask.cseq,
                    ends: now + u64::from(*expires),
                });
            }
        }
        added.extend(after);
        if added.len() > MOST && added.len() > self.bound.len() {
            return 403;
        }
        self.bound = added;
        200
    }
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let flow = prop_oneof![3 => Just(None), 1 => (0u8..2, 1u8..3).prop_map(Some)];
    let expires = prop_oneof![Just(0u32), Just(30), 60u32..600, 60u32..600];
    (
        0u8..3,
        0u32..12,
        prop::collection::vec((0u8..6, flow, expires), 0..4),
        prop::bool::weighted(0.1),
        0u64..120,
    )
        .prop_map(|(call_id, cseq, contacts, star, pass)| Ask {
            call_id,
            cseq,
            contacts,
            star,
            pass,
        })
}

fn contact((host, flow, expires): &AskedContact) -> String {
    let flow = flow.map_or(String::new(), |(instance, reg_id)| {
        format!(";+sip.instance=\"<urn:i{instance}>\";reg-id={reg_id}")
    });
    format!("Contact: <sip:a@h{host}>;expires={expires}{flow}")
}

proptest! {
    #[test]
    fn behaves_like_the_text_of_the_standard(asks in prop::collection::vec(any_ask(), 1..40)) {
        let mut w = World::with(RegistrarConfig { max_contacts: MOST, ..RegistrarConfig::default() });
        let mut naive = Naive { bound: Vec::new() };
        for ask in asks {
            w.pass(ask.pass);
            let lines = if ask.star {
                "Contact: *\nExpires: 0".to_owned()
            } else {
                ask.contacts.iter().map(contact).collect::<Vec<_>>().join("\n")
            };
            let before = w.stored();
            let a = w.register(&format!("c{}", ask.call_id), ask.cseq, &lines);
            let status = naive.register(w.now.as_secs(), &ask);
            prop_assert_eq!(a.status(), status, "{:?}", ask);
            let expected: Vec<_> =
                naive.bound.iter().map(|b| format!("sip:a@h{}", b.name.0)).collect();
            prop_assert_eq!(&w.stored(), &expected);
            if status == 200 {
                let ends: Vec<_> = naive
                    .bound
                    .iter()
                    .map(|b| format!(";expires={}", b.ends - w.now.as_secs()))
                    .collect();
                prop_assert_eq!(a.contacts().len(), ends.len());
                for (contact, end) in a.contacts().iter().zip(&ends) {
                    prop_assert!(contact.contains(end.as_str()), "{contact} {end}");
                }
            } else {
                prop_assert_eq!(before, w.stored());
                prop_assert!(a.contacts().is_empty());
            }
        }
    }
}
