//! A notifier with a store, spoken to in messages.

use super::*;
use crate::location::tests::binding;
use crate::location::{BindingView, CommitTag, LocationStore, MemoryStore};
use crate::states::States;
use proptest::prelude::*;
use ringway_sansio::{Duration, FlowId, SplitMix, Transport};
use ringway_sip::message::parse;

mod elsewhere;
mod lamps;
mod requests;
mod states;
mod xml;

const AOR: &[u8] = b"sip:joe@example.com";
const TAG: CommitTag = CommitTag { worker: 0, id: 1 };

struct World {
    events: Notifier,
    store: MemoryStore,
    states: States,
    /// Who subscribes.
    subscriber: &'static str,
    random: SplitMix,
    now: Time,
    flow: Flow,
    /// Whether the subscriber may register.
    may_register: bool,
}

/// A NOTIFY that was polled, as text with lines ended by LF.
#[derive(Clone, Debug)]
struct Sent {
    notify: Notify,
    text: String,
}

impl Sent {
    fn header(&self, name: &str) -> Option<&str> {
        self.text
            .lines()
            .take_while(|line| !line.is_empty())
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn routes(&self) -> Vec<&str> {
        self.text.lines().filter_map(|line| line.strip_prefix("Route: ")).collect()
    }

    fn body(&self) -> &str {
        self.text.split_once("\n\n").unwrap().1
    }

    /// Returns `state` and `event` of each contact with its URI.
    fn contacts(&self) -> Vec<(String, String, String)> {
        let doc = xml::parse(self.body());
        doc.all("contact")
            .map(|c| {
                let uri = c.all("uri").next().unwrap().text.clone();
                (uri, c.attribute("state").to_owned(), c.attribute("event").to_owned())
            })
            .collect()
    }

    /// Returns the states of the document and of the registration.
    fn states(&self) -> (String, String) {
        let doc = xml::parse(self.body());
        let registration = doc.all("registration").next().unwrap();
        (doc.attribute("state").to_owned(), registration.attribute("state").to_owned())
    }

    fn version(&self) -> u64 {
        xml::parse(self.body()).attribute("version").parse().unwrap()
    }
}

impl World {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let now = Time::from_secs(1_700_000_000);
        let secret = Secret::new(&[6; 32]);
        World {
            events: Notifier::new(
                limits,
                &secret,
                Gruus::new(&crate::keys::Keyring::of(secret.clone()), None),
                3,
                now,
            ),
            store: MemoryStore::new([1; 16]),
            states: States::new([9; 16]),
            subscriber: "joe@example.com",
            random: SplitMix::new(1),
            now,
            flow: Flow {
                id: FlowId::new(3, 1),
                transport: Transport::Udp,
                local: "192.0.2.1:5060".parse().unwrap(),
                remote: "192.0.2.40:5060".parse().unwrap(),
            },
            may_register: false,
        }
    }

    /// Sends a SUBSCRIBE; `lines` are further header fields, one a line. `to` is the value of To.
    fn send(
        &mut self,
        call_id: &str,
        cseq: u32,
        to: &str,
        lines: &str,
    ) -> (SubscribeOutcome, String) {
        let text = format!(
            "SUBSCRIBE sip:joe@example.com SIP/2.0\n\
             Via: SIP/2.0/UDP 192.0.2.40;branch=z9hG4bKnashds7\nMax-Forwards: 70\n\
             From: <sip:app.example.com>;tag=123aa9\nTo: {to}\nCall-ID: {call_id}\n\
             CSeq: {cseq} SUBSCRIBE\n{lines}\nContent-Length: 0\n\n"
        );
        let bytes = text.replace('\n', "\r\n");
        let message = parse(bytes.as_bytes()).unwrap();
        message.check().unwrap();
        let aor = self.events.dialog_aor(&message).unwrap_or(AOR).to_vec();
        let mut headers = Vec::new();
        let event = message.first(ringway_sip::HeaderId::Event).unwrap_or_default();
        let request = SubscribeRequest {
            flow: &self.flow,
            msg: &message,
            package: Package::of_event(event).unwrap(),
            aor: &aor,
            entity: &aor,
            subscriber: self.subscriber.as_bytes(),
            may_register: self.may_register,
            contact: b"sip:192.0.2.1:5060",
            leads_here: false,
        };
        let sources = Sources { store: &self.store, states: &self.states };
        let answer =
            self.events.subscribe(self.now, &request, sources, &mut self.random, &mut headers);
        (answer, String::from_utf8(headers).unwrap().replace("\r\n", "\n"))
    }

    /// Begins a subscription for `expires` seconds. Returns the value of To within its dialog.
    fn subscribe(&mut self, call_id: &str, expires: u32) -> String {
        let lines = format!("Contact: <sip:app.example.com>\nEvent: reg\nExpires: {expires}");
        let (answer, headers) = self.send(call_id, 10, "<sip:joe@example.com>", &lines);
        assert_eq!(answer.status, 200, "{}", answer.reason);
        assert!(headers.contains(&format!("Expires: {expires}\n")));
        assert!(headers.contains("Contact: <sip:192.0.2.1:5060>\n"));
        let tag = String::from_utf8(answer.to_tag.unwrap()).unwrap();
        format!("<sip:joe@example.com>;tag={tag}")
    }

    fn refresh(&mut self, call_id: &str, cseq: u32, to: &str, expires: u32) -> u16 {
        let lines = format!("Contact: <sip:app.example.com>\nEvent: reg\nExpires: {expires}");
        self.send(call_id, cseq, to, &lines).0.status
    }

    fn poll(&mut self) -> Option<Sent> {
        let mut buf = b"before".to_vec();
        let sources = Sources { store: &self.store, states: &self.states };
        let notify = self.events.poll_notify(self.now, sources, &mut buf)?;
        let bytes = &buf[6..];
        // With its Via, it is a SIP request without fault.
        let mut whole = bytes[..notify.via_at - 6].to_vec();
        whole.extend_from_slice(b"Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKx\r\n");
        whole.extend_from_slice(&bytes[notify.via_at - 6..]);
        parse(&whole).unwrap().check().unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap().replace("\r\n", "\n");
        xml::parse(text.split_once("\n\n").unwrap().1);
        Some(Sent { notify, text })
    }

    /// Polls a NOTIFY that need not be a message a peer could have caused.
    fn poll_unchecked(&mut self) -> String {
        let mut buf = Vec::new();
        let sources = Sources { store: &self.store, states: &self.states };
        self.events.poll_notify(self.now, sources, &mut buf).unwrap();
        String::from_utf8(buf).unwrap()
    }

    /// Polls a NOTIFY and answers it.
    fn notification(&mut self) -> Option<Sent> {
        let sent = self.poll()?;
        self.answer(&sent, 200);
        Some(sent)
    }

    fn answer(&mut self, sent: &Sent, status: u16) {
        let sources = Sources { store: &self.store, states: &self.states };
        self.events.handle_notify_response(self.now, sent.notify.id, status, sources);
    }

    /// Lets time pass, calling as the machine asks for it.
    fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(at) = self.events.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let sources = Sources { store: &self.store, states: &self.states };
            self.events.handle_timeout(self.now, sources);
        }
        self.now = end;
    }

    /// Sets the bindings of joe, for an hour unless the binding has another expiry.
    fn bind(&mut self, bindings: &[BindingView<'_>]) {
        let default = binding().expires;
        self.store.update(AOR, self.now, TAG, &mut |edit| {
            for b in bindings {
                let expires =
                    if b.expires == default { Time::from_secs(1_700_003_600) } else { b.expires };
                edit.put(&BindingView { expires, ..*b }).unwrap();
            }
            edit.commit();
        });
        let sources = Sources { store: &self.store, states: &self.states };
        self.events.changed(self.now, AOR, Change::Updated, sources);
    }
}

fn contact<'a>(uri: &'a str, cseq: u32) -> BindingView<'a> {
    BindingView { contact: uri.as_bytes(), cseq, ..binding() }
}

fn reported(uri: &str, state: &str, event: &str) -> (String, String, String) {
    (uri.to_owned(), state.to_owned(), event.to_owned())
}

#[derive(Clone, Debug)]
enum Act {
    Bind(Vec<(u8, u32, u64)>),
    Subscribe(u32),
    Pass(u64),
    Deliver(u16),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => prop::collection::vec((0u8..5, 0u32..4, 1u64..400), 0..4).prop_map(Act::Bind),
        1 => prop_oneof![Just(0u32), 60u32..400].prop_map(Act::Subscribe),
        3 => (0u64..90).prop_map(Act::Pass),
        4 => prop_oneof![8 => Just(200u16), 1 => Just(500), 1 => Just(481)].prop_map(Act::Deliver),
    ]
}

/// What the documents of one dialog add up to (contact id to URI), and the last version.
type Views = std::collections::BTreeMap<String, (std::collections::BTreeMap<String, String>, i64)>;

proptest! {
    /// A subscriber that puts its documents together (RFC 3680 section 5.2) arrives at the state of
    /// the store, whatever happened on the way; everything is empty at the end.
    #[test]
    fn subscribers_learn_the_truth(acts in prop::collection::vec(any_act(), 1..60)) {
        let mut w = World::new();
        let start = w.now;
        let mut views = Views::new();
        let mut serial = 0;
        let deliver = |w: &mut World, status: u16, views: &mut Views| {
            let Some(sent) = w.poll() else { return };
            let call_id = sent.header("Call-ID").unwrap().to_owned();
            let (table, version) = views.entry(call_id).or_insert((Default::default(), -1));
            if status == 200 {
                let doc = xml::parse(sent.body());
                if doc.attribute("state") == "full" {
                    table.clear();
                } else {
                    // A gap would make the subscriber ask again.
                    assert!(sent.version() as i64 == *version + 1);
                }
                *version = sent.version() as i64;
                for c in doc.all("contact") {
                    let id = c.attribute("id").to_owned();
                    if c.attribute("state") == "active" {
                        table.insert(id, c.all("uri").next().unwrap().text.clone());
                    } else {
                        table.remove(&id);
                    }
                }
            }
            w.answer(&sent, status);
        };
        for act in acts {
            match act {
                Act::Bind(bindings) => {
                    let uris: Vec<_> =
                        bindings.iter().map(|b| format!("sip:joe@h{}", b.0)).collect();
                    let mut all: Vec<BindingView<'_>> = Vec::new();
                    for ((_, cseq, lasts), uri) in bindings.iter().zip(&uris) {
                        if all.iter().all(|b| b.contact != uri.as_bytes()) {
                            let expires = w.now + Duration::from_secs(*lasts);
                            all.push(BindingView { expires, ..contact(uri, *cseq) });
                        }
                    }
                    w.bind(&all);
                }
                Act::Subscribe(expires) => {
                    serial += 1;
                    w.subscribe(&format!("call{serial}"), expires);
                }
                Act::Pass(seconds) => w.pass(seconds),
                Act::Deliver(status) => deliver(&mut w, status, &mut views),
            }
        }
        // One more change, then quiet: everybody who still subscribes must know.
        w.bind(&[contact("sip:joe@last", 1)]);
        for _ in 0..200 {
            w.pass(6);
            while !w.events.ready.is_empty() {
                deliver(&mut w, 200, &mut views);
            }
            for (_, s) in &w.events.subscriptions {
                if s.is_up_to_date() {
                    let call_id = String::from_utf8(s.dialog.call_id.to_vec()).unwrap();
                    let known: Vec<_> = views[&call_id].0.values().cloned().collect();
                    let live: Vec<_> = w.events.watches[AOR]
                        .contacts
                        .iter()
                        .filter(|c| c.event.is_active())
                        .map(|c| String::from_utf8(c.binding().unwrap().contact.to_vec()).unwrap())
                        .collect();
                    prop_assert_eq!(known, live);
                }
            }
        }
        prop_assert!(w.now > start);
        prop_assert!(w.events.is_empty());
        prop_assert!(w.events.dialogs.is_empty() && w.events.watches.is_empty());
        prop_assert!(w.events.poll_timeout().is_none());
    }
}
