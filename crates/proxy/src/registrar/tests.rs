//! A registrar with a store, spoken to in messages.

mod core;
mod extensions;
mod model;

use super::*;
use crate::keys::{Keyring, Secret};
use crate::location::MemoryStore;
use ringway_sansio::{FlowId, SplitMix, Transport};
use ringway_sip::message::parse;

const AOR: &[u8] = b"sip:alice@example.com";

/// Registrar, store and clock.
struct World {
    registrar: Registrar,
    store: MemoryStore,
    random: SplitMix,
    now: Time,
    flow: Flow,
}

/// An answer: status and the header fields of the registrar.
#[derive(Debug)]
struct Answer {
    outcome: RegisterOutcome,
    headers: String,
}

impl Answer {
    fn status(&self) -> u16 {
        self.outcome.status
    }

    /// Values of all header fields of this name.
    fn all(&self, name: &str) -> Vec<&str> {
        self.headers
            .split("\r\n")
            .filter_map(|line| line.split_once(": "))
            .filter(|(n, _)| *n == name)
            .map(|(_, value)| value)
            .collect()
    }

    fn contacts(&self) -> Vec<&str> {
        self.all("Contact")
    }
}

impl World {
    fn new() -> Self {
        Self::with(RegistrarConfig::default())
    }

    fn with(config: RegistrarConfig) -> Self {
        World {
            registrar: Registrar::new(
                config,
                Gruus::new(&Keyring::of(Secret::new(&[4; 32])), None),
            ),
            store: MemoryStore::new([1; 16]),
            random: SplitMix::new(1),
            now: Time::from_secs(1_700_000_000),
            flow: Flow {
                id: FlowId::new(0, 3),
                transport: Transport::Udp,
                local: "192.0.2.1:5060".parse().unwrap(),
                remote: "192.0.2.17:5060".parse().unwrap(),
            },
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += ringway_sansio::Duration::from_secs(seconds);
    }

    /// Sends a REGISTER of alice's; `lines` are header fields, one a line, without CR.
    fn register(&mut self, call_id: &str, cseq: u32, lines: &str) -> Answer {
        self.register_via("Via: SIP/2.0/UDP 192.0.2.17:5060;branch=z9hG4bK1", call_id, cseq, lines)
    }

    fn register_via(&mut self, via: &str, call_id: &str, cseq: u32, lines: &str) -> Answer {
        let text = format!(
            "REGISTER sip:example.com SIP/2.0\n{via}\nMax-Forwards: 70\n\
             From: <sip:alice@example.com>;tag=1\nTo: <sip:alice@example.com>\n\
             Call-ID: {call_id}\nCSeq: {cseq} REGISTER\n{lines}\nContent-Length: 0\n\n"
        );
        self.send(&text.replace("\n\n", "\n").replace('\n', "\r\n"))
    }

    fn send(&mut self, text: &str) -> Answer {
        let bytes = format!("{text}\r\n");
        let message = parse(bytes.as_bytes()).unwrap();
        message.check().unwrap();
        let mut headers = Vec::new();
        let outcome = self.registrar.register(
            self.now,
            &self.flow,
            &message,
            AOR,
            CommitTag { worker: 0, id: 7 },
            &self.store,
            &mut self.random,
            &mut headers,
        );
        Answer { outcome, headers: String::from_utf8(headers).unwrap() }
    }

    /// Returns the Contact URIs in the store.
    fn stored(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.store.lookup(AOR, self.now, &mut |b| {
            all.push(String::from_utf8(b.contact.to_vec()).unwrap());
        });
        all
    }

    /// Looks at the only binding there is.
    fn only<T>(&self, look: impl Fn(&BindingView<'_>) -> T) -> T {
        let mut seen = Vec::new();
        self.store.lookup(AOR, self.now, &mut |b| seen.push(look(b)));
        assert_eq!(seen.len(), 1);
        seen.remove(0)
    }
}
