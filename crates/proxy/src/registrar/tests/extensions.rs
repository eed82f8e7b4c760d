//! Path (RFC 3327), Service-Route (RFC 3608), Outbound (RFC 5626), GRUU (RFC 5627).

use super::*;
use crate::gruu::{Gruu, Resolution};
use ringway_sip::Uri;

const TWO_VIAS: &str = "Via: SIP/2.0/UDP edge.example.com;branch=z9hG4bK2, \
                        SIP/2.0/UDP 10.0.0.5;branch=z9hG4bK1";
const INSTANCE: &str = "+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000A95A0E128>\"";
const OTHER: &str = "+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-AABBCCDDEEFF>\"";

/// RFC 3327 section 5.3.
#[test]
fn a_path_is_stored_and_returned() {
    let mut w = World::new();
    let lines = "Supported: path\nPath: <sip:p3.example.com;lr>,<sip:p1.example.net;lr>\n\
                 Path: <sip:p0.example.net;lr>\nContact: <sip:a@h>";
    let a = w.register_via(TWO_VIAS, "c", 1, lines);
    let path = "<sip:p3.example.com;lr>, <sip:p1.example.net;lr>, <sip:p0.example.net;lr>";
    assert_eq!(a.all("Path"), [path]);
    w.only(|b| {
        assert_eq!(b.path, path.as_bytes());
        assert_eq!((b.flow, b.over_flow()), (None, None));
    });
}

/// RFC 3327 section 5.3: the user agent would not know of the proxy.
#[test]
fn a_path_without_support_is_refused() {
    let mut w = World::new();
    let a = w.register("c", 1, "Path: <sip:p;lr>\nContact: <sip:a@h>");
    assert_eq!((a.status(), a.all("Unsupported")), (420, vec!["path"]));
    let a = w.register("c", 1, "Require: path\nPath: <sip:p;lr>\nContact: <sip:a@h>");
    assert_eq!(a.status(), 200);
}

/// RFC 3608 section 6.3: in every 200, fetches included.
#[test]
fn a_service_route_is_given() {
    let service_route = b"<sip:hsp.example.com;lr>".to_vec();
    let mut w = World::with(RegistrarConfig { service_route, ..RegistrarConfig::default() });
    assert_eq!(w.register("c", 1, "").all("Service-Route"), ["<sip:hsp.example.com;lr>"]);
    let a = w.register("c", 1, "Contact: <sip:a@h>");
    assert_eq!(a.all("Service-Route").len(), 1);
    assert!(w.register("c", 0, "Contact: <sip:a@h>").all("Service-Route").is_empty());
}

fn outbound(reg_id: u32, host: &str) -> String {
    format!("Supported: outbound, path\nContact: <sip:a@{host}>;reg-id={reg_id};{INSTANCE}")
}

/// RFC 5626 section 6: instance and reg-id name the binding, not the URI.
#[test]
fn a_flow_replaces_itself() {
    let mut w =
        World::with(RegistrarConfig { flow_timer: Some(120), ..RegistrarConfig::default() });
    let a = w.register("c1", 1, &outbound(1, "h1"));
    assert_eq!((a.all("Require"), a.all("Flow-Timer")), (vec!["outbound"], vec!["120"]));
    w.only(|b| assert!(b.outbound && b.reg_id == 1 && b.flow == Some(w.flow)));
    // The same user agent has got another address and another flow.
    w.flow.remote = "192.0.2.99:1234".parse().unwrap();
    let a = w.register("c2", 1, &outbound(1, "h2"));
    assert_eq!(a.contacts().len(), 1);
    w.only(|b| assert_eq!((b.contact, b.flow), (&b"sip:a@h2"[..], Some(w.flow))));
    // A second flow of it, with the same URI.
    let a = w.register("c3", 1, &outbound(2, "h2"));
    assert_eq!(a.contacts().len(), 2);
    assert!(a.contacts()[0].ends_with(&format!(";{INSTANCE};reg-id=2")), "{a:?}");
    let a = w.register("c3", 2, &outbound(2, "h2").replace(";reg-id", ";expires=0;reg-id"));
    assert_eq!((a.contacts().len(), a.all("Require")), (1, vec!["outbound"]));
}

/// RFC 3261 section 10.3 step 7 for bindings of RFC 5626.
#[test]
fn a_flow_keeps_its_order() {
    let mut w = World::new();
    w.register("c1", 5, &outbound(1, "h1"));
    assert_eq!(w.register("c1", 5, &outbound(1, "h2")).status(), 500);
    assert_eq!(w.register("c1", 6, &outbound(1, "h2")).status(), 200);
}

/// RFC 5626 section 6: instances differ, and plain bindings live beside.
#[test]
fn flows_and_plain_contacts_live_side_by_side() {
    let mut w = World::new();
    w.register("c1", 1, &outbound(1, "h"));
    w.register("c2", 1, &outbound(1, "h").replace(INSTANCE, OTHER));
    let a = w.register("c3", 1, "Contact: <sip:a@h>");
    assert_eq!((a.contacts().len(), a.all("Require").len()), (3, 0));
    let a = w.register("c3", 2, "Contact: <sip:a@h>;expires=0");
    assert_eq!(a.contacts().len(), 2);
}

/// RFC 5626 section 6: one flow, one contact; others may be removed along.
#[test]
fn a_reg_id_stands_alone() {
    let mut w = World::new();
    w.register("c", 1, "Contact: <sip:a@h9>");
    let two = format!("{}, <sip:a@h2>", outbound(1, "h1"));
    assert_eq!(w.register("c", 2, &two).status(), 400);
    let a = w.register("c", 3, &format!("{}, <sip:a@h9>;expires=0", outbound(1, "h1")));
    assert_eq!((a.status(), a.contacts().len()), (200, 1));
}

/// RFC 5626 section 6: a reg-id without an instance is ignored.
#[test]
fn a_reg_id_needs_an_instance() {
    let mut w = World::new();
    let a = w.register("c", 1, "Supported: outbound\nContact: <sip:a@h>;reg-id=1");
    assert_eq!((a.status(), a.all("Require").len()), (200, 0));
    w.only(|b| assert_eq!((b.reg_id, b.outbound), (0, false)));
}

/// RFC 5626 section 6: Require only for those who understand it.
#[test]
fn outbound_is_required_only_of_those_who_support_it() {
    let mut w = World::new();
    let a = w.register("c", 1, &outbound(1, "h").replace("outbound, ", ""));
    assert_eq!((a.status(), a.all("Require").len()), (200, 0));
    w.only(|b| assert!(b.outbound));
}

/// RFC 5626 section 6 and section 11.6.
#[test]
fn a_first_hop_without_outbound() {
    let mut w = World::new();
    let a = w.register_via(TWO_VIAS, "c", 1, &outbound(1, "h"));
    assert_eq!(a.status(), 439);
    let lines = format!("Path: <sip:edge.example.com;lr>\n{}", outbound(1, "h"));
    assert_eq!(w.register_via(TWO_VIAS, "c", 1, &lines).status(), 439);
    // A user agent that would not understand: the reg-id is ignored.
    let plain = outbound(1, "h").replace("outbound, ", "");
    assert_eq!(w.register_via(TWO_VIAS, "c", 1, &plain).status(), 200);
    w.only(|b| assert_eq!((b.reg_id, b.outbound, b.flow), (0, false, None)));
}

/// RFC 5626 section 5.1 and section 6: `ob` in the Path vouches for the first hop.
#[test]
fn an_edge_proxy_with_outbound() {
    let mut w =
        World::with(RegistrarConfig { flow_timer: Some(120), ..RegistrarConfig::default() });
    let path = "Path: <sip:core.example.com;lr>, <sip:TOKEN@edge.example.com;lr;ob>";
    let a = w.register_via(TWO_VIAS, "c", 1, &format!("{path}\n{}", outbound(1, "h")));
    assert_eq!((a.status(), a.all("Require")), (200, vec!["outbound"]));
    // The flow is the edge proxy's to watch.
    assert!(a.all("Flow-Timer").is_empty());
    w.only(|b| assert!(b.outbound && !b.is_flow_bound() && b.over_flow().is_none()));
}

/// RFC 5626 section 7: the flow is gone, so is the binding.
#[test]
fn a_binding_ends_with_its_flow() {
    let mut w = World::new();
    w.flow.transport = Transport::Tcp;
    w.register("c", 1, &outbound(1, "h"));
    assert_eq!(w.store.flow_closed(w.flow.id, w.now), 1);
    assert!(w.stored().is_empty());
}

fn gruu_of(answer: &Answer, contact: usize, name: &str) -> Option<String> {
    let contact = answer.contacts()[contact];
    let start = contact.find(&format!(";{name}=\""))? + name.len() + 3;
    let rest = &contact[start..];
    Some(rest[..rest.find('"')?].to_owned())
}

impl World {
    fn with_gruu(&mut self, call_id: &str, cseq: u32, contact: &str) -> Answer {
        self.register(call_id, cseq, &format!("Supported: gruu\nContact: {contact}"))
    }

    /// Contacts that a GRUU leads to; `None` if it is not one of alice's.
    fn led_to(&self, gruu: &str) -> Option<Vec<String>> {
        let mut aor = Vec::new();
        let uri = Uri::parse(gruu.as_bytes()).unwrap();
        let Resolution::Gruu(gruu) = self.registrar.gruus.resolve(&uri, &mut aor) else {
            return None;
        };
        assert_eq!(aor, AOR);
        let mut found = Vec::new();
        self.store.lookup(&aor, self.now, &mut |b| {
            if gruu.matches(b) {
                found.push(String::from_utf8(b.contact.to_vec()).unwrap());
            }
        });
        Some(found)
    }
}

/// RFC 5627 section 5.2.
#[test]
fn gruus_are_given_to_those_who_understand() {
    let mut w = World::new();
    let contact = format!("<sip:a@h>;{INSTANCE}");
    let a = w.register("c", 1, &format!("Contact: {contact}"));
    assert_eq!(a.contacts(), [format!("<sip:a@h>;expires=3600;{INSTANCE}")]);
    let a = w.with_gruu("c", 2, &contact);
    let public = gruu_of(&a, 0, "pub-gruu").unwrap();
    assert_eq!(public, "sip:alice@example.com;gr=urn:uuid:00000000-0000-1000-8000-000A95A0E128");
    let temporary = gruu_of(&a, 0, "temp-gruu").unwrap();
    assert_eq!(w.led_to(&public).unwrap(), ["sip:a@h"]);
    assert_eq!(w.led_to(&temporary).unwrap(), ["sip:a@h"]);
    // Neither is in Supported or Require of the answer (RFC 5627 section 5.2).
    assert!(a.all("Supported").is_empty() && a.all("Require").is_empty());
    let a = w.with_gruu("c", 3, "<sip:b@h>");
    assert_eq!(gruu_of(&a, 0, "pub-gruu"), None);
    assert_eq!(gruu_of(&a, 1, "pub-gruu"), Some(public));
}

/// RFC 5627 section 5.1: each registration returns a new one; earlier ones stay valid.
#[test]
fn temporary_gruus_accumulate() {
    let mut w = World::new();
    let contact = format!("<sip:a@h>;{INSTANCE}");
    let mut all = Vec::new();
    for cseq in 1..4 {
        all.push(gruu_of(&w.with_gruu("c", cseq, &contact), 0, "temp-gruu").unwrap());
        w.pass(10);
    }
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    assert!(all.iter().all(|gruu| w.led_to(gruu).unwrap() == ["sip:a@h"]));
    // A fetch returns the newest again (RFC 5627 section 5.2).
    let a = w.register("c", 9, "Supported: gruu");
    assert_eq!(gruu_of(&a, 0, "temp-gruu").unwrap(), all[2]);
    w.only(|b| assert_eq!(b.first_cseq, 1));
}

/// RFC 5627 section 5.1: another Call-ID invalidates them.
#[test]
fn another_call_id_invalidates_temporary_gruus() {
    let mut w = World::new();
    let contact = format!("<sip:a@h>;{INSTANCE}");
    let old = gruu_of(&w.with_gruu("c1", 5, &contact), 0, "temp-gruu").unwrap();
    let new = gruu_of(&w.with_gruu("c2", 3, &contact), 0, "temp-gruu").unwrap();
    assert!(w.led_to(&old).unwrap().is_empty());
    assert_eq!(w.led_to(&new).unwrap(), ["sip:a@h"]);
    w.only(|b| assert_eq!(b.first_cseq, 3));
}

/// RFC 5627 section 5.3: temporary ones end with the last contact, the public one does not.
#[test]
fn temporary_gruus_end_with_the_registration() {
    let mut w = World::new();
    let contact = format!("<sip:a@h>;{INSTANCE}");
    let a = w.with_gruu("c", 1, &contact);
    let temporary = gruu_of(&a, 0, "temp-gruu").unwrap();
    let public = gruu_of(&a, 0, "pub-gruu").unwrap();
    w.with_gruu("c", 2, &format!("{contact};expires=0"));
    w.with_gruu("c", 3, &contact);
    assert!(w.led_to(&temporary).unwrap().is_empty());
    assert_eq!(w.led_to(&public).unwrap(), ["sip:a@h"]);
}

/// RFC 5627 section 9, the restarted user agent: both contacts under the instance's newest GRUU.
#[test]
fn a_restarted_user_agent_has_two_contacts_under_one_gruu() {
    let mut w = World::new();
    w.with_gruu("c1", 1, &format!("<sip:a@192.0.2.1>;{INSTANCE}"));
    w.pass(5);
    let a = w.with_gruu("c2", 1, &format!("<sip:a@192.0.2.2>;{INSTANCE}"));
    assert_eq!(a.contacts().len(), 2);
    assert_eq!(gruu_of(&a, 0, "temp-gruu"), gruu_of(&a, 1, "temp-gruu"));
    // The most recent first, as RFC 5627 section 6.1 wants them tried.
    let led = w.led_to(&gruu_of(&a, 0, "temp-gruu").unwrap()).unwrap();
    assert_eq!(led, ["sip:a@192.0.2.2", "sip:a@192.0.2.1"]);
}

/// RFC 5627 section 5.1 with RFC 5626: each flow has a Call-ID of its own, and only a change over
/// the same flow invalidates.
#[test]
fn flows_of_one_instance_share_their_temporary_gruus() {
    let mut w = World::new();
    let flow = |id| format!("<sip:a@h>;reg-id={id};{INSTANCE}");
    let first = gruu_of(&w.with_gruu("c1", 1, &flow(1)), 0, "temp-gruu").unwrap();
    w.with_gruu("c2", 1, &flow(2));
    assert_eq!(w.led_to(&first).unwrap().len(), 2);
    w.with_gruu("c3", 1, &flow(2));
    assert!(w.led_to(&first).unwrap().is_empty());
}

/// RFC 5627 section 5.1: what a user agent suggests is ignored.
#[test]
fn suggested_gruus_are_ignored() {
    let mut w = World::new();
    let contact =
        format!("<sip:a@h>;pub-gruu=\"sip:x@y;gr=1\";temp-gruu=\"sip:z@y;gr\";{INSTANCE}");
    let a = w.register("c", 1, &format!("Contact: {contact}"));
    assert_eq!(a.contacts(), [format!("<sip:a@h>;expires=3600;{INSTANCE}")]);
}

/// RFC 5627 section 5.1.
#[test]
fn a_gruu_is_no_contact_of_its_own_address() {
    let mut w = World::new();
    let a = w.with_gruu("c", 1, &format!("<sip:a@h>;{INSTANCE}"));
    for name in ["pub-gruu", "temp-gruu"] {
        let gruu = gruu_of(&a, 0, name).unwrap();
        let a = w.with_gruu("c", 2, &format!("<{gruu}>;{INSTANCE}"));
        assert_eq!(a.status(), 403, "{name}");
    }
    let a = w.with_gruu("c", 2, &format!("<mailto:a@h>;{INSTANCE}"));
    assert_eq!(a.status(), 403);
}

#[test]
fn the_instance_is_compared_without_case() {
    let mut w = World::new();
    w.register("c", 1, &outbound(1, "h"));
    let a = w.register("c", 2, &outbound(1, "h").replace("000A95A0E128", "000a95a0e128"));
    assert_eq!(a.contacts().len(), 1);
    let upper = Gruu::Public(b"URN:UUID:00000000-0000-1000-8000-000A95A0E128");
    assert!(w.only(|b| upper.matches(b)));
}
