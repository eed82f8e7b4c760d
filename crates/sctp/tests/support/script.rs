//! A host that talks to a script: packets are handed to it and expected of it one by one.

use super::text::build;
use super::{A1, B1, PORT, at, describe, host, pattern};
use ringway_sansio::{Addressing, Duration, Ecn, Endpoint, Time};
use ringway_sctp::wire::chunk::{Chunk, kind};
use ringway_sctp::wire::{AuthParameters, Init, InitParameters, Packet, Writer};
use ringway_sctp::{AssocId, Event, PROTOCOL, Sctp, SendOptions, Settings, Tsn};
use std::collections::VecDeque;
use std::net::IpAddr;

/// The script's first TSN and tag.
pub const PEER_TSN: u32 = 5000;
pub const PEER_TAG: u32 = 0x5c1f7;

pub struct Script {
    pub now: Time,
    pub sctp: Sctp,
    pub id: Option<AssocId>,
    /// The host's first TSN and tag.
    pub tsn: Tsn,
    pub tag: u32,
    /// The script's.
    pub peer_tsn: Tsn,
    pub peer_tag: u32,
    /// Ports: the host's and the script's.
    pub ports: (u16, u16),
    /// The script's window.
    pub window: u32,
    /// The script's addresses, listed in its INIT if several.
    pub addresses: Vec<IpAddr>,
    pub streams: (u16, u16),
    pub cookie: Vec<u8>,
    /// Whether the script takes FORWARD TSN.
    pub forwards: bool,
    /// The UDP port that packets come from, and what congestion has marked them with.
    pub udp_port: u16,
    pub ecn: Ecn,
    /// Chunk types named in Supported Extensions.
    pub extensions: Vec<u8>,
    /// What the script offers.
    pub ecn_capable: bool,
    pub zero_checksum: Option<u32>,
    /// The script's authentication parameters.
    pub auth: Option<AuthParameters>,
    pub sent: VecDeque<(Addressing, Vec<u8>)>,
}

impl Script {
    pub fn new(settings: Settings) -> Script {
        Script {
            now: at(5_000_000),
            sctp: host(3, settings),
            id: None,
            tsn: Tsn::new(0),
            tag: 0,
            peer_tsn: Tsn::new(PEER_TSN),
            peer_tag: PEER_TAG,
            ports: (PORT, 40_000),
            window: 100_000,
            addresses: vec![B1],
            streams: (10, 10),
            cookie: Vec::new(),
            forwards: true,
            udp_port: 0,
            ecn_capable: false,
            zero_checksum: None,
            auth: None,
            extensions: vec![kind::RE_CONFIG],
            ecn: Ecn::NotEct,
            sent: VecDeque::new(),
        }
    }

    /// A listening host after a handshake.
    pub fn accepted(settings: Settings) -> Script {
        let mut s = Script::new(settings);
        s.listen(&[A1]);
        s.give_init();
        s.take_init_ack();
        s.echo("");
        s.expect("COOKIE_ACK");
        s
    }

    /// A host with two addresses and a script with two, both paths verified.
    pub fn two_paths(settings: Settings) -> Script {
        Script::over(settings, &[A1, super::A2], &[B1, super::B2])
    }

    /// A host with addresses and a script with others, all paths verified.
    pub fn over(settings: Settings, host: &[IpAddr], script: &[IpAddr]) -> Script {
        let mut s = Script::new(settings);
        s.addresses = script.to_vec();
        s.listen(host);
        s.give_init();
        s.take_init_ack();
        s.echo("");
        while let Some((addressing, bytes)) = s.take() {
            s.answer_beats(addressing, &bytes);
        }
        s.events();
        s
    }

    /// Sends HEARTBEAT ACKs for the heartbeats of a packet.
    pub fn answer_beats(&mut self, addressing: Addressing, bytes: &[u8]) {
        let packet = Packet::parse(bytes).unwrap();
        for raw in packet.chunks() {
            if let Chunk::Heartbeat(value) = raw.unwrap().parse().unwrap() {
                let mut out = Vec::new();
                let mut writer = self.writer(&mut out);
                Chunk::HeartbeatAck(value).emit(writer.chunks());
                writer.finish();
                self.give_bytes(addressing.destination, addressing.source, &out);
            }
        }
    }

    pub fn listen(&mut self, addresses: &[IpAddr]) {
        self.sctp.listen(addresses, PORT, None).unwrap();
    }

    fn writer<'a>(&self, out: &'a mut Vec<u8>) -> Writer<'a> {
        Writer::new(out, 65_535, self.ports.1, self.ports.0, self.tag)
    }

    pub fn init(&self) -> (Init<'static>, InitParameters) {
        let fixed = Init::fixed(self.peer_tag, self.window, self.streams, self.peer_tsn);
        let several = self.addresses.len() > 1;
        let addresses = if several { self.addresses.clone() } else { Vec::new() };
        (
            fixed,
            InitParameters {
                addresses,
                forward_tsn: self.forwards,
                extensions: self.extensions.clone(),
                auth: self.auth.clone(),
                ecn: self.ecn_capable,
                zero_checksum: self.zero_checksum,
                ..InitParameters::default()
            },
        )
    }

    pub fn give_init(&mut self) {
        let (fixed, parameters) = self.init();
        self.give_init_with(&fixed, &parameters);
    }

    pub fn give_init_with(&mut self, fixed: &Init<'_>, parameters: &InitParameters) {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, 65_535, self.ports.1, self.ports.0, 0);
        parameters.emit(writer.chunks(), kind::INIT, fixed);
        writer.finish();
        self.give_bytes(self.addresses[0], A1, &out);
    }

    /// Takes the INIT ACK that is next.
    pub fn take_init_ack(&mut self) -> InitParameters {
        let (_, bytes) = self.take().expect("a packet");
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.tag, self.peer_tag);
        let chunk = packet.chunks().next().unwrap().unwrap().parse().unwrap();
        let Chunk::InitAck(init) = chunk else { panic!("{chunk:?}") };
        self.tag = init.initiate_tag;
        self.tsn = init.initial_tsn;
        let parameters = InitParameters::read(&init, true).unwrap();
        self.cookie = parameters.cookie.clone().unwrap();
        parameters
    }

    /// An active open: the INIT is taken and answered.
    pub fn connected(settings: Settings) -> Script {
        let mut s = Script::connecting(settings);
        s.give_init_ack();
        s.expect("COOKIE_ECHO");
        s.give("COOKIE_ACK");
        s.events();
        s
    }

    /// An active open: the INIT is taken.
    pub fn connecting(settings: Settings) -> Script {
        let mut s = Script::new(settings);
        s.connect();
        s.take_init();
        s
    }

    pub fn connect(&mut self) {
        let id = self.sctp.connect(self.now, &[A1], PORT, &[B1], 40_000, None).unwrap();
        self.id = Some(id);
    }

    pub fn take_init(&mut self) {
        let (_, bytes) = self.take().expect("a packet");
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.tag, 0);
        let chunk = packet.chunks().next().unwrap().unwrap().parse().unwrap();
        let Chunk::Init(init) = chunk else { panic!("{chunk:?}") };
        self.tag = init.initiate_tag;
        self.tsn = init.initial_tsn;
    }

    pub fn give_init_ack(&mut self) {
        let (fixed, mut parameters) = self.init();
        parameters.cookie = Some(vec![9; 50]);
        self.give_init_ack_with(&fixed, &parameters);
    }

    pub fn give_init_ack_with(&mut self, fixed: &Init<'_>, parameters: &InitParameters) {
        let mut out = Vec::new();
        let mut writer = self.writer(&mut out);
        parameters.emit(writer.chunks(), kind::INIT_ACK, fixed);
        writer.finish();
        self.give_bytes(self.addresses[0], A1, &out);
    }

    /// Sends the cookie back, with more chunks after it.
    pub fn echo(&mut self, more: &str) {
        let mut out = Vec::new();
        let mut writer = self.writer(&mut out);
        Chunk::CookieEcho(&self.cookie).emit(writer.chunks());
        if !more.is_empty() {
            build(more, self.peer_tsn, self.tsn, self.window, writer.chunks());
        }
        writer.finish();
        self.give_bytes(self.addresses[0], A1, &out);
        let id = self.events().into_iter().find_map(|event| match event {
            Event::Up { id, .. } => Some(id),
            _ => None,
        });
        self.id = id.or(self.id);
    }

    /// Delivers a packet with the chunks of a line.
    pub fn give(&mut self, line: &str) {
        self.give_from(B1, A1, line);
    }

    pub fn give_from(&mut self, source: IpAddr, destination: IpAddr, line: &str) {
        self.give_tagged(self.tag, source, destination, line);
    }

    pub fn give_tagged(&mut self, tag: u32, source: IpAddr, destination: IpAddr, line: &str) {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, 65_535, self.ports.1, self.ports.0, tag);
        build(line, self.peer_tsn, self.tsn, self.window, writer.chunks());
        writer.finish();
        self.give_bytes(source, destination, &out);
    }

    pub fn give_bytes(&mut self, source: IpAddr, destination: IpAddr, bytes: &[u8]) {
        let (udp_port, ecn) = (self.udp_port, self.ecn);
        let addressing =
            Addressing { udp_port, ecn, ..Addressing::new(source, destination, PROTOCOL) };
        self.sctp.handle_packet(self.now, addressing, bytes);
        self.collect();
    }

    pub fn collect(&mut self) {
        let mut buffer = Vec::new();
        while let Some(addressing) = self.sctp.poll_transmit(self.now, &mut buffer) {
            self.sent.push_back((addressing, core::mem::take(&mut buffer)));
        }
    }

    pub fn take(&mut self) -> Option<(Addressing, Vec<u8>)> {
        self.collect();
        self.sent.pop_front()
    }

    /// The next packet as a line, and where it goes.
    pub fn line(&mut self) -> Option<(IpAddr, String)> {
        let (addressing, bytes) = self.take()?;
        let text = describe(&bytes, Some(self.tsn), Some(self.peer_tsn));
        Some((addressing.destination, text))
    }

    #[track_caller]
    pub fn expect(&mut self, line: &str) {
        assert_eq!(self.line().map(|l| l.1).as_deref(), Some(line));
    }

    #[track_caller]
    pub fn expect_to(&mut self, to: IpAddr, line: &str) {
        assert_eq!(self.line(), Some((to, line.to_owned())));
    }

    #[track_caller]
    pub fn expect_nothing(&mut self) {
        assert_eq!(self.line(), None);
    }

    /// Lets time pass; timers that are due fire at their time.
    pub fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        self.collect();
        while let Some(next) = self.sctp.poll_timeout().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.sctp.handle_timeout(self.now);
            self.collect();
        }
        self.now = until;
    }

    pub fn id(&self) -> AssocId {
        self.id.expect("an association")
    }

    pub fn send(&mut self, stream: u16, bytes: usize) {
        self.send_with(SendOptions { stream, ..SendOptions::default() }, bytes);
    }

    pub fn send_with(&mut self, options: SendOptions, bytes: usize) {
        self.sctp.send(self.now, self.id(), &options, pattern(0, bytes)).unwrap();
    }

    /// Sizes of the messages that wait.
    pub fn read(&mut self) -> Vec<usize> {
        let (mut sizes, mut out) = (Vec::new(), Vec::new());
        while let Ok(Some(received)) = self.sctp.recv(self.id(), &mut out) {
            assert_eq!(out, pattern(0, received.len));
            sizes.push(received.len);
            out.clear();
        }
        self.collect();
        sizes
    }

    pub fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.sctp.poll_event()).collect()
    }
}
