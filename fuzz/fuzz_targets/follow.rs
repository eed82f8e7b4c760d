//! What carries the states of users between routers, to which others send whatever they like: octets, well-formed messages
//! with parts that a fuzzer chooses, and copies of what it has sent itself, in any order with users that are watched here,
//! found at routers and changed, and time. It reports only what routers state at which the user is registered, what it sends
//! is well-formed and not too much, and what others follow stays within its limits.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::fuzz_target;
use ringway_mesh::NodeId;
use ringway_follow::wire::Item;
use ringway_follow::{Config, Event, Following};
use ringway_proxy::location::{BindingView, Change};
use ringway_proxy::states::{Dialog, Direction, Form, Phase, Report, ServerContact, UserState};
use ringway_sansio::time::Duration;
use ringway_sansio::{SplitMix, Time};

const PEERS: u64 = 4;

fn name(of: u8) -> String {
    format!("user{}@mesh", of % 8)
}

fn state(of: u8, form: Form, now: Time) -> Report {
    let dialog = |id| Dialog { id, direction: Direction::Initiator, phase: Phase::Early };
    let dialogs = (0..u32::from(of >> 5)).map(dialog).collect();
    let state = UserState { is_registered: of & 1 == 1, dialogs, publications: Vec::new() };
    let mut report = Report::from(state);
    if form == Form::Contacts {
        let all = [Change::Updated, Change::Expired, Change::FlowClosed, Change::ServerGone];
        report.ended = all[usize::from(of >> 1 & 3)];
        let uri = format!("sip:{of}@phone");
        let binding = BindingView {
            contact: uri.as_bytes(),
            params: b"",
            q: 1000,
            expires: now + Duration::from_secs(of.into()),
            path: b"",
            instance: b"i",
            reg_id: 1,
            flow: None,
            call_id: b"c",
            cseq: of.into(),
            outbound: true,
            nat: false,
            epoch: 1,
            first_cseq: 1,
        };
        report.add(ServerContact::new(&binding).expect("a short contact"));
    }
    report
}

fuzz_target!(|data: &[u8]| {
    let random = &mut SplitMix::new(1);
    let mut now = Time::from_secs(1_000);
    // Routers of a mesh, or nodes of a cluster.
    let config = match data.first() {
        Some(first) if first & 0x80 != 0 => Config::of_node(),
        _ => Config::of_router(),
    };
    let (format, form) = (config.format(), config.form);
    let is_ours = Box::new(|domain: &str| domain == "mesh");
    let mut following = Following::new(config.clone(), NodeId::new(1), is_ours);
    let mut local: BTreeMap<String, Report> = BTreeMap::new();
    let mut located: BTreeMap<String, BTreeSet<NodeId>> = BTreeMap::new();
    let mut watched: BTreeSet<Box<str>> = BTreeSet::new();
    let mut sent: Vec<Box<[u8]>> = Vec::new();
    let mut rest = data;
    while let Some((&[action, peer, a, b], more)) = rest.split_first_chunk::<4>() {
        rest = more;
        let from = NodeId::new(1 + u64::from(peer) % PEERS);
        let (user, version) = (name(a), u64::from(b % 4) << 32 | u64::from(b >> 2));
        let mut octets = Vec::new();
        let sent_at = now + Duration::from_secs(u64::from(b));
        match action % 16 {
            0 => {
                let (raw, more) = rest.split_at(usize::from(a).min(rest.len()));
                rest = more;
                following.handle_message(now, from, raw);
            }
            1 => {
                let item = Item::Follow { lifetime: u16::from(b), version, name: &user };
                following.handle_message(now, from, &format.to_octets(sent_at, &[item]));
            }
            2 => {
                state(b, form, now).write(form, &mut octets);
                let item = Item::State { version, name: &user, state: &octets };
                following.handle_message(now, from, &format.to_octets(sent_at, &[item]));
            }
            3 => {
                let items = [Item::Ack { version, name: &user }, Item::Followed { version, name: &user }];
                following.handle_message(now, from, &format.to_octets(sent_at, &items));
            }
            4 => {
                following.set_watched(now, &user, b % 4 != 0);
                if !following.is_watched(&user) {
                    located.remove(&user);
                }
            }
            5 => {
                let routers = (0..PEERS).filter(|at| b >> at & 1 == 1);
                let routers: Vec<NodeId> = routers.map(|at| NodeId::new(1 + at)).collect();
                following.located(now, &user, (b < 240).then_some(&routers));
                if b < 240 && following.is_watched(&user) {
                    located.insert(user, routers.into_iter().collect());
                }
            }
            6 => {
                local.insert(user.clone(), state(b, form, now));
                following.changed(now, &user);
            }
            9 => following.moved(now, &user),
            10 => following.may_have_moved(now),
            11 => following.renew(now),
            12 => {
                following.retain(now, &|server| b >> (server.raw() % 8) & 1 == 1);
                located.values_mut().for_each(|at| at.retain(|of| b >> (of.raw() % 8) & 1 == 1));
            }
            7 => now += Duration::from_millis(u64::from(a) * 100),
            8 => now += Duration::from_millis(u64::from(a)),
            _ => {
                if let Some(octets) = sent.iter().rev().nth(usize::from(b) % 8) {
                    following.handle_message(now, from, octets);
                }
            }
        }
        if following.poll_timeout().is_some_and(|due| due <= now) {
            let read = &mut |name: &str| {
                let next = (a % 2 == 0).then(|| now + Duration::from_secs(b.into()));
                (local.get(name).cloned().unwrap_or_default(), next)
            };
            following.handle_timeout(now, read, random);
            // What has come by time may have a user be located at once, and no more.
            following.handle_timeout(now, read, random);
            assert!(following.poll_timeout().is_none_or(|due| due > now));
        }
        let mut messages = 0;
        while let Some(event) = following.poll_event() {
            match event {
                Event::Send { to, octets } => {
                    messages += 1;
                    assert!(octets.len() <= config.max_message && to != NodeId::new(1));
                    let message = format.parse(&octets).expect("what is sent is well-formed");
                    assert!(!message.items.is_empty());
                    sent.push(octets);
                }
                Event::Report { name, server, report, expires } => {
                    assert!(report.state.is_registered && expires > now);
                    assert!(located[&*name].contains(&server), "the user is not registered there");
                }
                Event::Renew { name, server, expires } => {
                    assert!(expires > now && located[&*name].contains(&server));
                }
                Event::End { .. } | Event::Locate { .. } => {}
                Event::Watch { name } => assert!(watched.insert(name), "it is watched already"),
                Event::Unwatch { name } => assert!(watched.remove(&name), "it is not watched"),
            }
        }
        assert!(messages <= 2 * PEERS, "{messages} messages at once");
        sent.drain(..sent.len().saturating_sub(32));
        let counts = following.counts();
        assert!(counts.names <= 8 && counts.followers <= config.max_of_server * PEERS as usize);
        assert!(watched.len() <= counts.followers);
    }
});
